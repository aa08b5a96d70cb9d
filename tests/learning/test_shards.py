"""Shards of patches: each patch once, the batches share them out, and the sums are those of all together."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from running import scene

from dstl_cli.learning import shards
from dstl_cli.learning.loop import code_shards
from dstl_cli.learning.on_collection import PatchSample, Training, TrainingSet
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.learning.shards import PatchPlaces, PatchShard, ShardedSet
from dstl_cli.transforms.canonical import CANONICAL

SETTINGS = CollectionSettings.of(patch_size=5, iterations=7, sigma=8.0)


def pictures() -> list[np.ndarray[Any, Any]]:
    """Three small pictures; a part of the last one is flat."""
    images = [scene((40, 37)), scene((12, 50), seed=1), scene((30, 30), seed=2)]
    images[2][:, 10:] = 99
    return images


def shard_of(images: list[np.ndarray[Any, Any]], first: int = 0, share: float = 1.0) -> PatchShard:
    chosen = [PatchPlaces.chosen(image, SETTINGS, share, 0, first + n, 0) for n, image in enumerate(images)]
    return PatchShard(tuple(chosen), 5, "dct")


def sharded(cuts: tuple[int, ...] = (1, 2)) -> ShardedSet:
    """The pictures in shards."""
    images, edges = pictures(), (0, *cuts, 3)
    parts = [shard_of(images[a:b], a) for a, b in pairwise(edges)]
    return ShardedSet(
        tuple(part.facts() for part in parts),
        lambda factor, batch, batches: (part.coded(factor, batch, batches) for part in parts),
    )


def sampled() -> TrainingSet:
    """The same patches as a sample that has room for all."""
    sample = PatchSample(5, 10_000, 0, PatchSample.of(SETTINGS).least_energy)
    for number, image in enumerate(pictures()):
        sample.add(image, 0, number, 0)
    return TrainingSet.from_patches(sample.patches(), SETTINGS)


def test_a_shard_has_every_patch_that_is_not_flat_once() -> None:
    image, found = pictures()[0], PatchPlaces.chosen(pictures()[0], SETTINGS, 1.0, 0, 0, 0)
    patches = sliding_window_view(image, (5, 5)).reshape(-1, 25).astype(np.float64)
    patches -= patches.mean(axis=1, keepdims=True)
    some = np.flatnonzero((patches**2).sum(axis=1) > PatchSample.of(SETTINGS).least_energy)
    assert sorted(found.places) == list(some)
    assert list(found.places) != list(some)
    np.testing.assert_allclose(found.patches(slice(3, 9), 5), patches[found.places[3:9]], atol=1e-10)
    fewer = PatchPlaces.chosen(image, SETTINGS, 0.1, 0, 0, 0)
    assert len(patches) * 0.05 < len(fewer.places) <= len(patches) * 0.1 + 1
    assert set(fewer.places) <= set(some)


@pytest.mark.parametrize("batches", [1, 2, 7, 1000])
def test_batches_deal_out_the_patches(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "ROWS", 13)
    shard = shard_of(pictures())
    sizes = [sum(len(part.levels) for part in shard.parts(batch, batches)) for batch in range(batches)]
    assert sizes == [len(range(batch, shard.count, batches)) for batch in range(batches)]
    rows = [part.coefficients for batch in range(batches) for part in shard.parts(batch, batches)]
    everything = np.concatenate([part.coefficients for part in shard.parts()])
    joined = np.concatenate(rows)
    assert {row.tobytes() for row in joined.round(6)} == {row.tobytes() for row in everything.round(6)}
    assert len(joined) == shard.count


def test_sums_and_levels_are_those_of_a_sample_of_all_patches() -> None:
    some, every = sharded(), sampled()
    assert some.count == every.count
    assert some.mean_level == pytest.approx(every.mean_level, rel=2e-3)  # levels are counted in single precision
    assert some.norm == pytest.approx(every.norm)
    np.testing.assert_allclose(some.gram(), every.gram(), rtol=1e-4, atol=1e-5 * np.trace(every.gram()))
    factor = np.eye(24) + 0.1 * np.random.default_rng(0).standard_normal((24, 24))
    mine, other = some.coded(factor), every.coded(factor)
    np.testing.assert_allclose(mine.cross, other.cross, atol=3e-3 * np.abs(other.cross).max())
    assert mine.error == pytest.approx(other.error, rel=1e-3)
    assert mine.energy == pytest.approx(other.energy)


def test_a_shard_codes_what_its_parts_hold() -> None:
    shard, factor = shard_of(pictures()), np.eye(24)
    codes = code_shards(factor, list(shard.parts(1, 3)))
    found = shard.coded(factor, 1, 3)
    assert (found.error, found.energy) == (codes.error, codes.energy)
    np.testing.assert_array_equal(found.cross, codes.cross)
    patch, size = shard.pictures[0].patches(slice(1, 2), 5), CANONICAL["dct"].matrix(5)
    np.testing.assert_allclose(next(iter(shard.parts(1, 3))).coefficients[0], (patch @ size[1:].T)[0], atol=1e-9)


def test_training_in_shards_is_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """As good as on a sample of the same patches, and to the bit the same however often it is interrupted."""
    trained = []
    for data in (sharded(), sampled()):
        training = Training(data, SETTINGS)
        training.begin()
        while training.stop_reason is None:
            training.step()
        trained.append(training.finish())
    assert trained[0].cost == pytest.approx(trained[1].cost, rel=0.01)
    assert trained[0].cost < trained[0].canonical_cost
    monkeypatch.setattr(shards, "MOST_BATCHES", 3)
    monkeypatch.setattr(CollectionSettings, "batches_for", lambda self, count: 1000)
    whole, stopped = Training(sharded(), SETTINGS), Training(sharded(), SETTINGS)
    assert whole.batches == 3
    whole.begin()
    stopped.begin()
    for _ in range(5):
        whole.step()
        stopped.step()
        again = Training(sharded(), SETTINGS)
        again.restore(stopped.state())
        stopped = again
    np.testing.assert_array_equal(whole.finish().transform.factor, stopped.finish().transform.factor)


def test_a_shard_without_patches_changes_nothing() -> None:
    flat = shard_of([np.full((9, 9), 7, np.uint8)])
    assert flat.count == 0
    assert not flat.facts().gram.any()
    some, parts = sharded(), [shard_of(pictures()[:1]), shard_of(pictures()[1:2], 1), shard_of(pictures()[2:], 2), flat]
    more = ShardedSet(
        tuple(part.facts() for part in parts),
        lambda factor, batch, batches: (part.coded(factor, batch, batches) for part in parts),
    )
    np.testing.assert_array_equal(some.gram(), more.gram())
    np.testing.assert_array_equal(some.coded(np.eye(24), 1, 5).cross, more.coded(np.eye(24), 1, 5).cross)
    assert more.batches(SETTINGS) == 1
