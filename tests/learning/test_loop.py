"""The loop: records, stop reasons, shards; and what every method promises of the T it delivers."""

from typing import Any

import naive
import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.learning.loop import Shard, code_shards, gram_matrix, learn
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import LearnSettings
from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.transform import Iteration

Array = NDArray[np.float64]


def rotations(n: int, rng: np.random.Generator) -> Array:
    """A sparse orthonormal matrix: two rounds of rotations in random planes."""
    product = np.eye(n)
    for _ in range(2):
        turn = np.eye(n)
        for a, b in rng.permutation(n)[: 2 * (n // 4)].reshape(-1, 2):
            angle = rng.uniform(0.2, 0.6)
            turn[[a, a, b, b], [a, b, a, b]] = np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)
        product = turn @ product
    return product


def planted_patches(size: int, count: int, level: int, noise: float) -> Array:
    """Patches T0' x plus noise, with a sparse orthonormal W0 = T0 Phi and `level` nonzeros in every x."""
    rng = np.random.default_rng(1)
    x = np.zeros((count, size**2))
    for row in x:
        row[rng.choice(size**2, level, replace=False)] = (1 + rng.random(level)) * rng.choice([-1, 1], level)
    patches = x @ rotations(size**2, rng) @ dct_matrix(size)
    return np.asarray(patches + noise * rng.standard_normal(patches.shape))


@pytest.fixture(scope="module")
def shard() -> Shard:
    """Patches of 5x5 pixels with levels of their own."""
    return Shard.from_patches(planted_patches(5, 200, 5, 0.2), np.random.default_rng(0).integers(3, 8, 200))


# Shards and second moments.


def test_shards_hold_patches_in_the_dct_domain() -> None:
    patches = np.random.default_rng(0).standard_normal((6, 9))
    shard = Shard.from_patches(patches, 3)
    np.testing.assert_allclose(shard.coefficients, (dct_matrix(3) @ patches.T).T, atol=1e-14)
    np.testing.assert_array_equal(shard.levels, np.full(6, 3))
    np.testing.assert_array_equal(Shard.from_patches(patches, np.arange(6)).levels, np.arange(6))


@pytest.mark.parametrize("levels", [10, -1, np.array([1, 2, 10]), np.array([9, 2, -1])])
def test_impossible_levels_are_refused(levels: NDArray[np.int64] | int) -> None:
    worst = next(level for level in np.atleast_1d(levels) if not 0 <= level <= 9)
    with pytest.raises(ValueError, match=f"patch of 9 pixels has between 0 and 9 coefficients, not {worst}"):
        Shard.from_patches(np.ones((3, 9)), levels)


def test_second_moments_add_up(shard: Shard) -> None:
    yt, levels = shard.coefficients, shard.levels
    cuts = [Shard(yt[i:j], levels[i:j]) for i, j in ((0, 50), (50, 51), (51, 200))]
    np.testing.assert_allclose(gram_matrix(cuts), yt.T @ yt, rtol=1e-12, atol=1e-9)
    factor = np.random.default_rng(1).standard_normal((25, 25))
    coded, whole = code_shards(factor, cuts), code_shards(factor, [shard])
    np.testing.assert_allclose(coded.cross, whole.cross, rtol=1e-10, atol=1e-8)
    x = naive.codes(factor @ yt.T, levels)
    np.testing.assert_allclose(whole.cross, x @ yt, rtol=1e-10, atol=1e-8)
    for result in (coded, whole):
        assert result.error == pytest.approx(np.linalg.norm(factor @ yt.T - x), rel=1e-10)
        assert result.energy == pytest.approx(np.linalg.norm(factor @ yt.T), rel=1e-10)
        assert result.relative_error == pytest.approx(result.error / result.energy)


@pytest.mark.parametrize("method", METHODS.names)
@pytest.mark.parametrize("rho", [1.0, 3.0])
def test_shards_give_what_their_union_gives(shard: Shard, method: str, rho: float) -> None:
    yt, levels = shard.coefficients, shard.levels
    cuts = [Shard(yt[i::3], levels[i::3]) for i in (0, 1, 2)]
    config = LearnSettings(method=method, iterations=5, max_condition=rho, l1_weight=10.0)
    together, apart = learn([shard], config), learn(cuts, config)
    np.testing.assert_allclose(apart.transform.factor, together.transform.factor, atol=1e-7)
    for one, other in zip(together.history, apart.history, strict=True):
        assert other.error == pytest.approx(one.error, rel=1e-7)


# The loop.


@pytest.mark.parametrize("method", METHODS.names)
def test_one_record_for_every_iteration(shard: Shard, method: str) -> None:
    seen: list[tuple[Iteration, Array]] = []
    config = LearnSettings(method=method, iterations=6, max_condition=4.0)
    learnt = learn([shard], config, observer=lambda record, factor: seen.append((record, factor.copy())))
    assert learnt.stop_reason == "iterations"
    assert [record.number for record in learnt.history] == [1, 2, 3, 4, 5, 6]
    assert tuple(record for record, _ in seen) == learnt.history
    assert learnt.transform.method == method
    assert learnt.transform.patch_size == 5
    yt = shard.coefficients.T
    for record, factor in seen:
        z = factor @ yt
        error = np.linalg.norm(z - naive.codes(z, shard.levels))
        assert record.error == pytest.approx(error, rel=1e-9)
        assert record.relative_error == pytest.approx(error / np.linalg.norm(z), rel=1e-9)
        assert record.condition == pytest.approx(np.linalg.cond(factor), rel=1e-9)
        assert record.density == np.count_nonzero(factor) / 625


@pytest.mark.parametrize("method", METHODS.names)
def test_no_iterations_give_the_start(shard: Shard, method: str) -> None:
    learnt = learn([shard], LearnSettings(method=method, iterations=0))
    assert learnt.history == ()
    assert learnt.stop_reason == "iterations"
    assert np.isfinite(learnt.transform.factor).all()


@pytest.mark.parametrize("method", METHODS.names)
def test_learning_is_repeatable_and_leaves_the_patches_alone(shard: Shard, method: str) -> None:
    before = shard.coefficients.copy()
    config = LearnSettings(method=method, iterations=4)
    first, again = learn([shard], config), learn([shard], config)
    np.testing.assert_array_equal(first.transform.factor, again.transform.factor)
    assert first.history == again.history
    np.testing.assert_array_equal(shard.coefficients, before)


@pytest.mark.parametrize("method", METHODS.names)
def test_learning_goes_on_from_a_start(shard: Shard, method: str) -> None:
    density = 1.0 if method == "procrustes" else None
    config = LearnSettings(method=method, iterations=15, l1_weight=0.0, density=density)
    first = learn([shard], config)
    start = first.transform.factor.copy()
    more = learn([shard], config, start=start)
    assert more.history[-1].error <= first.history[0].error * (1 + 1e-9)
    assert more.history[0].error <= first.history[-1].error * 1.01
    np.testing.assert_array_equal(start, first.transform.factor)


# What is delivered.


@pytest.mark.parametrize("rho", [1.0, 1.5, 10.0, 1000.0])
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("conditioned", {}),
        ("procrustes", {}),
        ("procrustes", {"density": 0.05}),
        ("dsect", {"l1_weight": 0.0}),
        ("dsect", {"l1_weight": 1e4}),
        ("dsect", {"l1_weight": 100.0, "clip": 0.05}),  # coarse clipping breaks the bound on the way
        ("dsect", {"l1_weight": 100.0, "clip": 0.05, "freeze_at": 5}),
        ("dsect", {"l1_weight": 0.03, "l1_units": "energy"}),
        ("dsect", {"density": 0.01}),
        ("dsect", {"density": 0.1}),
        ("dsect", {"density": 0.3, "freeze_at": 5}),
        ("dsect", {"density": 1.0}),
    ],
)
@pytest.mark.parametrize("tau", [None, 2.0])
def test_delivered_transforms_keep_their_bounds(
    shard: Shard, rho: float, method: str, changes: dict[str, Any], tau: float | None
) -> None:
    config = LearnSettings(method=method, max_condition=rho, frobenius_norm=tau, iterations=12, **changes)
    factor = learn([shard], config).transform.factor
    assert naive.keeps_bound(factor, rho)
    assert np.linalg.norm(factor) == pytest.approx(np.sqrt(12.5) if tau is None else tau, rel=1e-9)
    if "density" in changes:
        assert np.count_nonzero(factor) <= max(25, int(changes["density"] * 625))


def test_sparse_bresler_delivers_exactly_its_share(shard: Shard) -> None:
    factor = learn([shard], LearnSettings(method="sparse-bresler", iterations=10)).transform.factor
    assert np.count_nonzero(factor) == 125
    factor = learn([shard], LearnSettings(method="sparse-bresler", iterations=10, density=0.5)).transform.factor
    assert np.count_nonzero(factor) == int(0.5 * 625)


def test_bresler_of_the_table_is_a_scaled_orthonormal_matrix(shard: Shard) -> None:
    transform = learn([shard], LearnSettings(method="bresler", logdet_weight=32e6)).transform
    assert transform.condition == pytest.approx(1.0, abs=1e-4)
    assert transform.frobenius_norm == pytest.approx(np.sqrt(25 / 2), rel=1e-4)


def test_less_logdet_weight_gives_a_larger_condition(shard: Shard) -> None:
    conditions = [
        learn([shard], LearnSettings(method="bresler", logdet_weight=w, iterations=50)).transform.condition
        for w in (1e3, 1e-2, 1e-5)
    ]
    assert conditions == sorted(conditions)
    assert conditions[2] > 2 * conditions[0]


@pytest.mark.parametrize(
    ("method", "changes", "share"),
    [
        ("bresler", {}, 0.01),
        ("bresler", {"logdet_weight": 0.01}, 0.01),
        ("conditioned", {}, 0.01),
        ("conditioned", {"max_condition": 1.5}, 0.1),
        ("procrustes", {"density": 0.2}, 0.01),
        ("sparse-bresler", {}, 0.01),
        ("dsect", {"l1_weight": 0.0}, 0.01),
        ("dsect", {"density": 0.2}, 0.01),
        ("dsect", {"density": 0.2, "max_condition": 1.5}, 0.01),
        ("dsect", {"l1_weight": 1.0, "max_condition": 10.0}, 0.1),
    ],
)
def test_a_planted_sparse_orthonormal_model_is_found(method: str, changes: dict[str, Any], share: float) -> None:
    """Patches T0' x with sparse x: the learnt T leaves out a small share of what the DCT leaves out."""
    shards = [Shard.from_patches(planted_patches(6, 800, 3, noise=0.0), 3)]
    dct = code_shards(np.eye(36), shards).relative_error
    learnt = learn(shards, LearnSettings(method=method, iterations=40, **changes))
    assert dct > 0.2
    assert code_shards(learnt.transform.factor, shards).relative_error < share * dct


# Nothing to learn from, or little.


@pytest.mark.parametrize("method", METHODS.names)
def test_constant_patches_have_no_variance(method: str) -> None:
    learnt = learn([Shard.from_patches(np.zeros((10, 25)), 3)], LearnSettings(method=method, max_condition=2.0))
    assert learnt.stop_reason == "no variance"
    assert learnt.history == ()
    assert learnt.transform.condition == pytest.approx(1.0)
    assert learnt.transform.frobenius_norm == pytest.approx(5.0 if method == "dct" else np.sqrt(12.5))


@pytest.mark.parametrize("method", METHODS.names)
@pytest.mark.parametrize("rho", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize(("count", "level", "scale"), [(1, 3, 1.0), (3, 0, 1.0), (3, 25, 1.0), (5, 2, 1e-16)])
def test_few_faint_and_uncoded_patches(method: str, rho: float, count: int, level: int, scale: float) -> None:
    patches = scale * np.random.default_rng(0).standard_normal((count, 25))
    config = LearnSettings(method=method, max_condition=rho, iterations=5)
    transform = learn([Shard.from_patches(patches, level)], config).transform
    assert np.isfinite(transform.factor).all()
    if "max_condition" in METHODS[method].uses:
        assert naive.keeps_bound(transform.factor, rho)
        assert transform.frobenius_norm == pytest.approx(np.sqrt(12.5), rel=1e-9)


@pytest.mark.parametrize("method", METHODS.names)
def test_no_patches_are_refused(method: str) -> None:
    for shards in ([], [Shard.from_patches(np.zeros((0, 25)), 3)]):
        with pytest.raises(ValueError, match="no patches to learn from"):
            learn(shards, LearnSettings(method=method))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_patches_that_are_not_finite_are_refused(bad: float) -> None:
    """They must not pass for patches without variance."""
    coefficients = np.ones((4, 25))
    coefficients[2, 3] = bad
    with pytest.raises(ValueError, match="finite"):
        learn([Shard(coefficients, np.full(4, 3))], LearnSettings(method="dsect"))
