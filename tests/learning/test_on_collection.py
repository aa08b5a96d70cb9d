"""Learning from collections: the sample, mini-batches against full batches, and going on where one stopped."""

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.learning.loop import Shard, code_shards
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_collection import (
    FIDELITY,
    GAIN,
    PatchSample,
    Trained,
    Training,
    TrainingSet,
    best_and_waited,
    learn_from_pictures,
    without_mean,
)
from dstl_cli.learning.settings import CollectionSettings, LearnSettings
from dstl_cli.measure.paper_experiments import figure_shard
from dstl_cli.picture.read import read_picture
from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.canonical import CANONICAL
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Picture = NDArray[np.float64]

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def pictures(count: int, *, seed: int = 0, side: int = 24) -> list[Picture]:
    """Edges at random angles on a slope, with a little noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    found = []
    for _ in range(count):
        a, b, c = rng.standard_normal(3)
        found.append(80.0 * (a * x + b * y > c * side / 2) + 2 * a * x + rng.standard_normal((side, side)))
    return found


def sample_of(images: list[Picture], size: int, count: int, *, seed: int = 0, least: float = 0.0) -> PatchSample:
    sample = PatchSample(size, count, seed, least_energy=least)
    for number, image in enumerate(images):
        sample.add(image, number)
    return sample


def every_patch(image: Picture, size: int) -> set[bytes]:
    """All patches of an image without their means, as the bytes of their single-precision values."""
    height, width = (length - size + 1 for length in image.shape)
    found = set()
    for i in range(height):
        for j in range(width):
            patch = image[i : i + size, j : j + size].reshape(1, -1).astype(np.float64)
            found.add((patch - patch.mean(axis=1, keepdims=True)).astype(np.float32).tobytes())
    return found


def training_set(config: CollectionSettings, *, seed: int = 0, count: int = 12) -> TrainingSet:
    sample = PatchSample.of(config)
    for number, image in enumerate(pictures(count, seed=seed)):
        sample.add(image, number)
    return TrainingSet.from_patches(sample.patches(), config)


def trained(
    data: TrainingSet, config: CollectionSettings, validation: TrainingSet | None = None
) -> tuple[Trained, Training]:
    training = Training(data, config, validation)
    training.begin()
    while training.stop_reason is None:
        training.step()
    return training.finish(), training


SMALL = {"patch_size": 5, "train_patches": 1500, "sparsity_level": 3, "iterations": 12}


def small(method: str, **changes: Any) -> CollectionSettings:
    """Settings that take a moment; those of learning are left out where nothing is learnt."""
    everything = SMALL | changes
    if not METHODS[method].learns:
        everything = {key: everything[key] for key in ("patch_size", "canonical") if key in everything}
    return CollectionSettings.of(method=method, **everything)


# The sample.


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (100, 100), (10_000, 3 * 20 * 20)])
def test_the_sample_has_different_patches_and_no_more_than_asked_for(count: int, expected: int) -> None:
    images = pictures(3)
    patches = sample_of(images, 5, count).patches()
    assert patches.shape == (expected, 25)
    assert patches.dtype == np.float32
    rows = [row.tobytes() for row in patches]
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set().union(*(every_patch(image, 5) for image in images))


def test_the_sample_is_a_function_of_the_seed() -> None:
    images = pictures(4)
    first, again, other = (sample_of(images, 5, 200, seed=seed).patches() for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_cuts_in_memory_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(5)
    whole = sample_of(images, 5, 300).patches()
    monkeypatch.setattr("dstl_cli.learning.on_collection.ROWS", 7)
    np.testing.assert_array_equal(sample_of(images, 5, 300).patches(), whole)


@given(shares=st.lists(st.integers(5, 40), min_size=2, max_size=5), count=st.integers(20, 200))
def test_every_offered_patch_has_the_same_chance(shares: list[int], count: int) -> None:
    """A picture's part of the sample is near its part of the offers, by five standard deviations."""
    images = [np.zeros((side, 12)) for side in shares]
    for number, image in enumerate(images):
        image += np.random.default_rng(number).standard_normal(image.shape)
    sample = PatchSample(5, count, 0)
    offers = np.array([min(count, (side - 4) * 8) for side in shares])
    taken = np.zeros(len(images))
    for number, image in enumerate(images):
        sample.add(image, number)
    sources = [every_patch(image, 5) for image in images]
    for row in sample.patches():
        taken[[row.tobytes() in source for source in sources].index(True)] += 1
    total = taken.sum()
    assert total == min(count, offers.sum())
    chance = offers / offers.sum()
    assert (np.abs(taken - total * chance) <= 5 * np.sqrt(total * chance * (1 - chance)) + 1).all()


def test_weak_patches_are_not_taken() -> None:
    image = np.concatenate((np.random.default_rng(0).standard_normal((20, 20)), 50 * pictures(1)[0][:20, :20]))
    patches = sample_of([image], 5, 10_000, least=200.0).patches()
    assert 0 < len(patches) < 36 * 16
    assert (np.sum(patches.astype(np.float64) ** 2, axis=1) > 200 * (1 - 1e-6)).all()


def test_flat_pictures_give_nothing() -> None:
    assert sample_of([np.full((20, 20), 7.0)], 5, 100).patches().shape == (0, 25)


@pytest.mark.parametrize("bad", [np.zeros((4, 30)), np.zeros((0, 30))])
def test_pictures_without_patches_are_refused(bad: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        PatchSample(5, 10, 0).add(bad, 0)


def test_a_sample_goes_on_from_its_state() -> None:
    images = pictures(6)
    whole = sample_of(images, 5, 300).patches()
    first = sample_of(images[:3], 5, 300)
    state = {key: value.copy() for key, value in first.state().items()}
    second = PatchSample(5, 300, 0)
    second.restore(state)
    for number in range(3, 6):
        second.add(images[number], number)
    np.testing.assert_array_equal(second.patches(), whole)


def test_a_state_of_another_size_is_refused() -> None:
    state = sample_of(pictures(1), 5, 100).state()
    for other in (PatchSample(5, 99, 0), PatchSample(4, 100, 0)):
        with pytest.raises(ValueError, match="size asked for"):
            other.restore(state)


# Levels.


def test_sigma_sets_the_levels_as_the_coder_does() -> None:
    config = CollectionSettings(patch_size=5, train_patches=300, sigma=10.0)
    sample = PatchSample.of(config)
    for number, image in enumerate(pictures(8)):
        sample.add(image, number)
    patches = sample.patches().astype(np.float64)
    data = TrainingSet.from_patches(sample.patches(), config)
    limit = (1.04 * 10 * 5) ** 2
    for patch, level in zip(patches, data.levels, strict=True):
        energies = np.sort((dct_matrix(5) @ patch) ** 2)[::-1] / (1 + FIDELITY) ** 2
        left = [energies[k:].sum() for k in range(26)]
        needed = next(k for k in range(26) if left[k] <= limit)
        assert level == min(needed, 12) or abs(left[min(needed, level)] - limit) < 1e-3 * limit
    assert data.levels.min() >= 1  # others are not sampled
    np.testing.assert_allclose(data.coefficients, patches @ dct_matrix(5)[1:].T, rtol=1e-5, atol=1e-3)


def test_no_patch_gets_more_coefficients_than_it_has_without_its_mean() -> None:
    config = CollectionSettings(patch_size=2, sigma=0.01)
    data = TrainingSet.from_patches(np.array([[9, -3, -5, -1]], dtype=np.float32), config)
    assert data.coefficients.shape == (1, 3)
    assert data.levels.tolist() == [3]


def test_a_sparsity_level_is_that_of_every_patch() -> None:
    config = CollectionSettings.of(**SMALL)
    assert PatchSample.of(config).least_energy == 0
    assert (training_set(config).levels == 3).all()


# Batches.


@pytest.mark.parametrize("method", METHODS.names)
def test_one_batch_is_plain_learning(method: str) -> None:
    config = small(method, batches=1, patience=100)
    data = training_set(config)
    result, training = trained(data, config)
    if method == "dct":
        np.testing.assert_array_equal(result.transform.factor, np.eye(25))
        assert result.history == ()
        return
    shard = data.part(0, len(data.levels))
    plain = METHODS[method].make(shard.coefficients.T @ shard.coefficients, without_mean(config.learn, 25))
    factor = plain.start(code_shards(np.eye(24), [shard]).cross)
    for record in result.history:
        factor = plain.update(factor, code_shards(factor, [shard]).cross)
        assert record.relative_error == pytest.approx(code_shards(factor, [shard]).relative_error, rel=1e-9)
        assert record.condition == pytest.approx(np.linalg.cond(factor), rel=1e-6)
        assert record.density == (np.count_nonzero(factor) + 1) / 625
    np.testing.assert_allclose(training.factor, factor, rtol=0, atol=1e-9)
    assert [record.number for record in result.history] == list(range(1, 13))
    assert result.coded_patches == len(data.levels) * (2 + 12)


@pytest.mark.parametrize("method", METHODS.names)
def test_the_mean_is_kept_apart(method: str) -> None:
    """Its atom has its own row and column, within the bounds, the norm and the spectrum of the rest."""
    config = small(method)
    transform = trained(training_set(config), config)[0].transform
    assert np.flatnonzero(transform.factor[0]).tolist() == np.flatnonzero(transform.factor[:, 0]).tolist() == [0]
    spectrum = np.linalg.svd(transform.factor[1:, 1:], compute_uv=False)
    assert spectrum[-1] <= transform.factor[0, 0] <= spectrum[0]
    if "max_condition" in METHODS[method].uses:
        assert transform.frobenius_norm == pytest.approx(math.sqrt(25 / 2))


@given(n=st.integers(4, 200), density=st.floats(0.001, 1))
def test_the_budget_without_the_mean_is_all_but_its_entry(n: int, density: float) -> None:
    allowed = max(n, int(density * n * n + 1e-9))
    share = without_mean(LearnSettings(density=density), n).density
    assert share is not None
    rest = max(n - 1, int(share * (n - 1) ** 2))
    assert rest + 1 <= allowed
    assert rest + 1 >= min(allowed - 1, (n - 1) ** 2 + 1)


@pytest.mark.parametrize("batches", [2, 7, 16])
def test_every_pass_codes_every_patch_once(batches: int) -> None:
    config = CollectionSettings.of(**SMALL | {"iterations": 2 * batches}, batches=batches, patience=100)
    data = training_set(config)
    training = Training(data, config)
    training.begin()
    assert training.coded_patches == 2 * len(data.levels)
    for count in (3, 4):
        for _ in range(batches):
            training.step()
        assert training.coded_patches == count * len(data.levels)


def test_the_running_error_is_that_of_the_newest_codes() -> None:
    """Where T stands still, it is the error of T on all patches."""
    config = CollectionSettings.of(**SMALL | {"iterations": 8}, batches=4, patience=100)
    data = training_set(config)
    training = Training(data, config)
    training.begin()
    fixed = training.factor
    training.method.update = lambda factor, cross: fixed  # type: ignore[method-assign]
    for _ in range(4):
        record = training.step()
    coefficients = fixed @ data.coefficients.T.astype(np.float64)
    codes = naive.codes(coefficients, data.levels)
    assert record.error == pytest.approx(np.linalg.norm(coefficients - codes), rel=1e-9)
    assert record.relative_error == pytest.approx(code_shards(fixed, data.parts()).relative_error, rel=1e-9)


def test_the_work_of_an_iteration_does_not_grow_with_the_sample() -> None:
    config = CollectionSettings(patch_size=8)
    sizes = [count / config.batches_for(count) for count in (5_000, 20_000, 100_000, 1_000_000)]
    assert max(sizes) < 10_000
    assert config.batches_for(1) == config.batches_for(4999) == 1
    assert CollectionSettings(batches=30).batches_for(7) == 7


@pytest.mark.parametrize("method", ["bresler", "procrustes", "dsect"])
def test_batches_reach_the_cost_of_full_batches_with_a_fraction_of_the_work(method: str) -> None:
    """On patches of the paper's figure where they are, else on others; work is counted in coded patches."""
    data = figure_data(6000)
    changes: dict[str, Any] = {"method": method, "patch_size": 8, "sparsity_level": 6}
    changes |= {"logdet_weight": 2.1e-4} if method == "bresler" else {"max_condition": 1.25, "density": 1.0}
    if method == "dsect":
        changes["max_condition"] = 1.0
    config = CollectionSettings.of(**changes, iterations=100, batches=10, patience=1000)
    batched, _ = trained(data, config)
    full, _ = trained(data, CollectionSettings.of(**changes, iterations=80, batches=1, patience=1000))
    assert full.cost < 0.95 * full.canonical_cost
    assert batched.cost <= 1.01 * full.cost
    assert batched.coded_patches <= 0.15 * full.coded_patches


FIGURE = ("paper_table/barbara.png", "convergence/couple.png", "paper_table/cameraman.png")


def figure_data(count: int) -> TrainingSet:
    from skimage import data

    paths = [SHARED / name for name in FIGURE]
    if all(path.exists() for path in paths):
        images = [np.asarray(read_picture(path).pages[0], dtype=np.float64) for path in paths]
    else:
        images = [np.asarray(image, dtype=np.float64) for image in (data.camera(), data.coins(), data.clock())]
    shard = figure_shard(images)
    order = np.random.default_rng(0).permutation(len(shard.levels))[:count]
    return TrainingSet(shard.coefficients[order, 1:].astype(np.float32), shard.levels[order])


# The best so far, and the end.


def test_the_best_iterate_on_held_out_patches_is_delivered() -> None:
    config = CollectionSettings.of(**SMALL | {"iterations": 30}, batches=5, density=1.0)
    data, validation = training_set(config), training_set(config, seed=9, count=3)
    result, training = trained(data, config, validation)
    assert len(result.held_out) == len(result.history)
    assert result.best_iteration == int(np.argmin(result.held_out)) + 1
    assert result.held_out_cost == pytest.approx(min(result.held_out), rel=1e-9)
    canonical = code_shards(np.eye(24), validation.parts()).relative_error
    assert result.held_out_canonical_cost == pytest.approx(canonical, rel=1e-12)
    assert min(result.held_out) < canonical
    np.testing.assert_allclose(result.transform.factor[1:, 1:], training.best, rtol=0, atol=1e-10)


def test_the_costs_are_those_of_the_delivered_transform_and_the_dct() -> None:
    config = CollectionSettings.of(**SMALL, batches=3)
    data = training_set(config)
    result, _ = trained(data, config)
    shard = data.part(0, len(data.levels))
    assert result.cost == pytest.approx(code_shards(result.transform.factor[1:, 1:], [shard]).relative_error, rel=1e-9)
    assert result.canonical_cost == pytest.approx(code_shards(np.eye(24), [shard]).relative_error, rel=1e-9)
    assert result.cost < result.canonical_cost
    assert result.held_out == ()
    assert result.held_out_cost is None


@pytest.mark.parametrize("method", ["bresler", "dsect"])
def test_methods_with_a_scale_of_their_own_are_compared_with_a_dct_of_that_norm(method: str) -> None:
    config = CollectionSettings.of(**SMALL, method=method, batches=3)
    data = training_set(config)
    result, training = trained(data, config)
    shard, factor = data.part(0, len(data.levels)), result.transform.factor[1:, 1:]
    norm = np.linalg.norm(shard.coefficients)
    assert result.cost == pytest.approx(code_shards(factor, [shard]).error / norm, rel=1e-9)
    scaled = np.eye(24) * result.transform.frobenius_norm / 5
    assert result.canonical_cost == pytest.approx(code_shards(scaled, [shard]).error / norm, rel=1e-9)
    assert training.costs == pytest.approx([record.error / norm for record in result.history])


@given(costs=st.lists(st.floats(0, 10) | st.sampled_from([1.0, 1.00005, 0.99995, 0.9998]), min_size=1, max_size=40))
def test_the_costs_know_the_best_and_how_long_ago_it_was_better(costs: list[float]) -> None:
    best, waited = best_and_waited(costs)
    assert best == costs.index(min(costs)) + 1
    mark, last = math.inf, 0
    for number, cost in enumerate(costs, 1):
        if cost < mark * (1 - GAIN):
            mark, last = cost, number
    assert waited == len(costs) - last
    assert best_and_waited([]) == (0, 0)


def test_patience_ends_the_training() -> None:
    config = CollectionSettings.of(**SMALL | {"iterations": 500}, batches=1, patience=6)
    result, training = trained(training_set(config), config)
    assert result.stop_reason == "no improvement"
    assert len(result.history) < 500
    costs = training.costs
    assert min(costs[-6:]) >= min(costs[:-6]) * (1 - 1e-4)


def test_no_iterations_give_the_start() -> None:
    config = CollectionSettings.of(**SMALL | {"iterations": 0})
    result, _ = trained(training_set(config), config)
    assert (result.history, result.best_iteration, result.stop_reason) == ((), 0, "iterations")
    np.testing.assert_allclose(result.transform.factor, np.eye(25) / math.sqrt(2), atol=1e-12)


@pytest.mark.parametrize("method", METHODS.names)
@pytest.mark.parametrize("canonical", CANONICAL.names)
def test_every_method_keeps_its_promises_on_every_basis(method: str, canonical: str) -> None:
    config = small(method, batches=4, canonical=canonical, patch_size=4)
    result, _ = trained(training_set(config), config)
    transform = result.transform
    assert (transform.method, transform.canonical) == (method, canonical)
    if "max_condition" in METHODS[method].uses:
        assert naive.keeps_bound(transform.factor, 1.25)
        assert naive.keeps_bound(transform.matrix, 1.25)
    if config.learn.density is not None:
        assert np.count_nonzero(transform.factor) <= 0.3 * 256
    if METHODS[method].learns:
        assert result.cost < result.canonical_cost
        assert transform.factor[0].any()


@lru_cache(maxsize=3)
def by_algorithm_1(scale: float) -> Transform:
    """Learnt on photographs whose pixels and noise are multiplied by a number."""
    from skimage import data

    settings = CollectionSettings.of(
        method="dsect", patch_size=8, train_patches=20_000, iterations=60, sigma=20 * scale
    )
    return learn_from_pictures([scale * make() for make in (data.camera, data.coins, data.moon)], settings).transform


def test_the_weight_of_algorithm_1_gives_a_sparse_transform_of_photographs() -> None:
    assert 0.2 < by_algorithm_1(1.0).density < 0.5


@pytest.mark.parametrize(("scale", "other_ties"), [(1 / 256, 0.0), (1 / 255, 0.02)])
def test_algorithm_1_is_free_of_the_scale_of_the_pixels(scale: float, other_ties: float) -> None:
    """A power of two changes exponents only; another number the last bits, and which of equal entries is kept."""
    plain, scaled = by_algorithm_1(1.0).factor, by_algorithm_1(scale).factor
    assert np.mean((plain != 0) != (scaled != 0)) <= other_ties
    np.testing.assert_allclose(scaled, plain, rtol=0, atol=max(1e-9, other_ties))


def test_entries_dropped_until_nothing_is_left_of_a_row_still_give_a_transform() -> None:
    config = CollectionSettings.of(
        **SMALL | {"iterations": 20}, method="sparse-bresler", density=0.06, logdet_weight=1e-9, batches=1
    )
    result, training = trained(training_set(config), config)
    assert np.linalg.matrix_rank(training.best) < 24  # else this tests nothing
    assert max(record.condition for record in training.history) == math.inf
    Training(training_set(config), config).restore(training.state())
    assert result.transform.condition < 1e7
    assert np.count_nonzero(result.transform.factor) <= 0.06 * 625


def test_without_patches_there_is_no_training() -> None:
    config = CollectionSettings.of(**SMALL)
    empty = TrainingSet(np.zeros((0, 24), dtype=np.float32), np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match="no patches"):
        Training(empty, config)
    with pytest.raises(ValueError, match="no patches"):
        Training(training_set(config), config, empty)


# Going on.


@pytest.mark.parametrize("method", METHODS.names)
def test_a_training_that_was_stopped_ends_in_the_same_bits(method: str) -> None:
    config = small(method, iterations=20, batches=4, patience=100)
    validation = training_set(config, seed=9)
    whole, _ = trained(training_set(config), config, validation)
    training = Training(training_set(config), config, validation)
    training.begin()
    for stop in (0, 3, 11):
        while len(training.history) < stop and training.stop_reason is None:
            training.step()
        state = {key: np.copy(value) for key, value in training.state().items()}
        training = Training(training_set(config), config, validation)
        training.restore(state)
    while training.stop_reason is None:
        training.step()
    resumed = training.finish()
    assert resumed.transform.factor.tobytes() == whole.transform.factor.tobytes()
    assert (resumed.history, resumed.held_out) == (whole.history, whole.held_out)
    assert (resumed.cost, resumed.canonical_cost, resumed.held_out_cost) == (
        whole.cost,
        whole.canonical_cost,
        whole.held_out_cost,
    )
    assert resumed.coded_patches == whole.coded_patches


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.update(factor=np.eye(25)),
        lambda state: state.update(moments=np.full((24, 24), np.nan)),
        lambda state: state.update(left_out=np.zeros(3)),
        lambda state: state.update(held_out=np.zeros(5)),
        lambda state: state.update(history=np.zeros((2, 4))),
    ],
)
def test_a_state_that_does_not_fit_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    config = CollectionSettings.of(**SMALL, batches=4)
    data = training_set(config)
    training = Training(data, config)
    training.begin()
    training.step()
    state = dict(training.state())
    spoil(state)
    with pytest.raises(ValueError, match="is not what this training left"):
        Training(data, config).restore(state)


@pytest.mark.parametrize("changes", [{}, {"density": 0.3}, {"density": 0.3, "freeze_at": 3}])
@pytest.mark.parametrize("method", METHODS.names)
def test_a_method_goes_on_from_its_state(method: str, changes: dict[str, Any]) -> None:
    config = LearnSettings(method=method, max_condition=3.0, l1_weight=5.0, **changes)
    rng = np.random.default_rng(0)
    shard = Shard.from_patches(rng.standard_normal((300, 25)) * np.linspace(1, 4, 25), 4)
    gram = shard.coefficients.T @ shard.coefficients
    first = METHODS[method].make(gram, config)
    factor = np.ascontiguousarray(first.start(code_shards(np.eye(25), [shard]).cross))
    for _ in range(3):
        second = METHODS[method].make(gram, config)
        second.restore(first.state())
        cross = code_shards(factor, [shard]).cross
        after = first.update(factor, cross)
        np.testing.assert_array_equal(second.update(factor, cross), after)
        factor = np.ascontiguousarray(after)


# Settings.


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"patch_size": 0}, "patch_size"),
        ({"patch_size": 1}, "patch_size"),
        ({"patch_size": 33}, "patch_size"),
        ({"sparsity_level": 0}, "sparsity_level"),
        ({"sparsity_level": 121}, "sparsity_level"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"sigma": math.inf}, "sigma"),
        ({"train_patches": 0}, "train_patches"),
        ({"batches": 0}, "batches"),
        ({"batches": 11, "train_patches": 10}, "batches"),
        ({"patience": 0}, "patience"),
        ({"seed": -1}, "seed"),
        ({"method": "magic"}, "method"),
        ({"density": 2.0}, "density"),
        ({"max_condition": 0.5}, "max_condition"),
        ({"method": "bresler", "density": 0.5}, "density"),
        ({"method": "conditioned", "density": 0.5}, "density"),
        ({"method": "dct", "max_condition": 2.0}, "max_condition"),
        ({"method": "dct", "iterations": 5}, "iterations"),
        ({"method": "dct", "train_patches": 50}, "train_patches"),
        ({"sigma": 10.0, "sparsity_level": 3}, "sigma"),
        ({"l1_weight": 1.0}, "l1_weight"),
        ({"method": "dsect", "density": 0.3, "l1_weight": 1.0}, "l1_weight"),
        ({"method": "dsect", "clip": 1e-3, "density": 0.3}, "clip"),
        ({"method": "sparse-bresler", "max_condition": 2.0}, "max_condition"),
        ({"iterations": -1}, "iterations"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=rf"^{word} .*\.$"):
        CollectionSettings.of(**changes)
