"""Every update does what its equations say, checked on the patches themselves."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dstl_cli.learning.loop import Shard, learn
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.methods.bresler import Bresler
from dstl_cli.learning.methods.conditioned import Conditioned
from dstl_cli.learning.methods.dsect import soft_threshold
from dstl_cli.learning.settings import LearnSettings

Array = NDArray[np.float64]
Levels = NDArray[np.int64]

N, n = 150, 16


@pytest.fixture
def data() -> tuple[Array, Levels]:
    """Yt (n, N), in which every coefficient is of use, and sparsity levels (N,)."""
    rng = np.random.default_rng(0)
    levels = rng.integers(2, 7, N)
    x = naive.codes(rng.standard_normal((n, N)), levels)
    mix = np.eye(n) + 0.1 * rng.standard_normal((n, n))
    return 3 * (mix @ x + 0.1 * rng.standard_normal((n, N))), levels


def iterates(yt: Array, levels: Levels, config: LearnSettings) -> Iterator[Array]:
    """T after every iteration of the learner."""
    factors: list[Array] = []
    learn([Shard(yt.T, levels)], config, observer=lambda record, factor: factors.append(factor.copy()))
    return iter(factors)


# Log-det.


@pytest.mark.parametrize("lambda0", [1e-4, 0.1, 32e6])
@pytest.mark.parametrize(("method", "density"), [("bresler", None), ("sparse-bresler", 0.3)])
def test_bresler_follows_its_equations(
    data: tuple[Array, Levels], lambda0: float, method: str, density: float | None
) -> None:
    config = LearnSettings(method=method, logdet_weight=lambda0, density=density, iterations=5)
    kept = n * n if density is None else int(density * n * n)
    for factor, expected in zip(iterates(*data, config), naive.bresler(*data, lambda0, kept, 5), strict=True):
        np.testing.assert_allclose(factor, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.parametrize("lambda0", [1e-5, 1e-2, 1.0, 32e6])
def test_bresler_never_raises_its_objective(data: tuple[Array, Levels], lambda0: float) -> None:
    config = LearnSettings(method="bresler", logdet_weight=lambda0, iterations=30)
    values = [naive.logdet_objective(factor, *data, lambda0) for factor in (np.eye(n), *iterates(*data, config))]
    assert (np.diff(values) <= 1e-12 * np.abs(values[0])).all()


@pytest.mark.parametrize("lambda0", [1e-3, 1.0])
def test_bresler_updates_are_stationary(data: tuple[Array, Levels], lambda0: float) -> None:
    """The gradient 2 (T Yt - X) Yt' + l (2 T - T^-T) vanishes at the update for a fixed X."""
    yt, levels = data
    x = naive.codes(yt, levels)
    factor = Bresler(yt @ yt.T, LearnSettings(logdet_weight=lambda0)).update(np.eye(n), x @ yt.T)
    weight = lambda0 * np.sum(yt**2)
    pull = 2 * (factor @ yt - x) @ yt.T
    push = weight * (2 * factor - np.linalg.inv(factor).T)
    assert np.abs(pull + push).max() <= 1e-8 * np.abs(pull).max()


@pytest.mark.parametrize("density", [None, 0.1, 0.5])
def test_sparse_bresler_keeps_exactly_its_share(data: tuple[Array, Levels], density: float | None) -> None:
    config = LearnSettings(method="sparse-bresler", density=density, iterations=10)
    for factor in iterates(*data, config):
        assert np.count_nonzero(factor) == int((density or 0.2) * n * n)


# Explicit conditioning.


@pytest.mark.parametrize("rho", [1.0, 1.5, 10.0, 1000.0])
def test_conditioned_takes_the_best_spectrum(data: tuple[Array, Levels], rho: float) -> None:
    """No feasible d gives U diag(d) V' a smaller error for the same X than the multiples of the chosen one."""
    yt, levels = data
    method = Conditioned(yt @ yt.T, LearnSettings(max_condition=rho, frobenius_norm=2.0))
    rng = np.random.default_rng(0)
    factor = method.start(np.eye(n))
    for _ in range(3):
        x = naive.codes(factor @ yt, levels)
        factor = method.update(factor, x @ yt.T)
        u, v, d = factor @ method.v / method.d, method.v, method.d
        np.testing.assert_allclose(u.T @ u, np.eye(n), atol=1e-8)
        np.testing.assert_allclose(v.T @ v, np.eye(n), atol=1e-8)
        assert d.max() <= rho * d.min() * (1 + 1e-9)

        def error(spectrum: Array) -> float:
            z = u @ np.diag(spectrum) @ v.T @ yt  # noqa: B023
            scale = max(0.0, np.sum(z * x) / np.sum(z**2))  # noqa: B023
            return float(np.sum((scale * z - x) ** 2))  # noqa: B023

        best = error(d)
        for _ in range(200):
            anywhere = np.exp(rng.uniform(0, np.log(rho), n))
            nearby = np.clip(d * (1 + 0.05 * rng.standard_normal(n)), d.max() / rho, d.max())
            assert error(anywhere) >= best * (1 - 1e-9)
            assert error(nearby) >= best * (1 - 1e-9)


def test_conditioned_with_bound_1_is_the_procrustes_solution(data: tuple[Array, Levels]) -> None:
    """No scaled orthonormal matrix is better for the same X, and the error never grows."""
    yt, levels = data
    method = Conditioned(yt @ yt.T, LearnSettings(max_condition=1.0, frobenius_norm=2.0))
    rng = np.random.default_rng(0)
    factor = method.start(np.eye(n))
    errors = []
    for _ in range(20):
        x = naive.codes(factor @ yt, levels)
        factor = method.update(factor, x @ yt.T)
        errors.append(np.linalg.norm(factor @ yt - x))
        for step in (0.01, 0.1, 1.0):
            other = np.linalg.qr(np.eye(n) + step * rng.standard_normal((n, n)))[0] @ factor
            assert np.linalg.norm(other @ yt - x) >= errors[-1] * (1 - 1e-12)
    assert (np.diff(errors) <= 1e-12 * errors[0]).all()


@pytest.mark.parametrize("rho", [1.0, 1.5, 10.0, 1000.0])
def test_every_iterate_of_conditioned_keeps_the_bounds(data: tuple[Array, Levels], rho: float) -> None:
    config = LearnSettings(method="conditioned", max_condition=rho, frobenius_norm=3.0, iterations=10)
    for factor in iterates(*data, config):
        assert np.linalg.cond(factor) <= rho * (1 + 1e-9)
        assert np.linalg.norm(factor) == pytest.approx(3.0, rel=1e-12)


# Algorithm 1.


@pytest.mark.parametrize(
    ("rho", "lam", "clip"),
    [
        (1.0, 1.0, 1e-6),
        (1.0, 100.0, 1e-3),
        (1.0, 300.0, 1e-2),
        (1.5, 1.0, 1e-6),
        (1.5, 100.0, 1e-3),
        (1.5, 300.0, 1e-2),
        (10.0, 0.0, 1e-6),  # the least-squares start has no gradient: the first weight is not defined by it
        (10.0, 0.0, 5e-2),
    ],
)
@pytest.mark.parametrize(
    ("freeze_at", "homotopy_steps", "step_rule"),
    [(4, 2, "exact"), (None, 2, "exact"), (4, 5, "exact"), (None, 5, "lipschitz"), (7, 5, "lipschitz")],
)
def test_dsect_is_algorithm_1(
    data: tuple[Array, Levels],
    rho: float,
    lam: float,
    clip: float,
    freeze_at: int | None,
    homotopy_steps: int,
    step_rule: str,
) -> None:
    both: dict[str, Any] = {"clip": clip, "homotopy_steps": homotopy_steps, "iterations": 12}
    config = LearnSettings(
        method="dsect",
        max_condition=rho,
        frobenius_norm=3.0,
        l1_weight=lam,
        freeze_at=freeze_at,
        step_rule=step_rule,
        **both,
    )
    expected = naive.dsect(
        *data, rho=rho, tau=3.0, lam=lam, freeze_at=freeze_at or 12, lipschitz=step_rule == "lipschitz", **both
    )
    for factor, right in zip(iterates(*data, config), expected, strict=True):
        np.testing.assert_allclose(factor, right, atol=1e-5)


def test_a_homotopy_of_one_step_is_the_l1_weight_itself(data: tuple[Array, Levels]) -> None:
    config = LearnSettings(method="dsect", l1_weight=100.0, homotopy_steps=1, iterations=3, frobenius_norm=3.0)
    expected = naive.dsect(*data, rho=1.0, tau=3.0, lam=100.0, clip=1e-6, freeze_at=3, homotopy_steps=1, iterations=3)
    for factor, right in zip(iterates(*data, config), expected, strict=True):
        np.testing.assert_allclose(factor, right, atol=1e-5)


@pytest.mark.parametrize("scale", [1 / 256, 4.0])
@pytest.mark.parametrize("copies", [1, 8])
def test_an_l1_weight_in_units_of_energy_is_free_of_scale_and_number(
    data: tuple[Array, Levels], scale: float, copies: int
) -> None:
    yt, levels = data
    settings = LearnSettings(method="dsect", max_condition=1.5, l1_weight=0.1, l1_units="energy", clip=1e-3)
    factor = learn([Shard(yt.T, levels)], settings).transform.factor
    assert 0.1 < np.count_nonzero(factor) / factor.size < 0.9
    other = learn([Shard(np.tile(scale * yt.T, (copies, 1)), np.tile(levels, copies))], settings).transform.factor
    np.testing.assert_array_equal(other != 0, factor != 0)
    np.testing.assert_allclose(other, factor, atol=1e-8)


def test_the_unit_of_energy_is_that_of_a_coefficient(data: tuple[Array, Levels]) -> None:
    yt, levels = data
    settings = LearnSettings(method="dsect", max_condition=3.0, l1_weight=0.1, l1_units="energy")
    absolute = replace(settings, l1_weight=0.1 * float(np.sum(yt**2)) / n, l1_units="absolute")
    for first, second in zip(iterates(yt, levels, settings), iterates(yt, levels, absolute), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-9)


@given(st.floats(-5, 5), st.floats(0, 3))
def test_soft_threshold_is_the_proximal_map_of_the_l1_norm(z: float, threshold: float) -> None:
    best = minimize_scalar(lambda x: 0.5 * (x - z) ** 2 + threshold * abs(x), bounds=(-6, 6), method="bounded")
    assert soft_threshold(np.array([[z]]), threshold)[0, 0] == pytest.approx(best.x, abs=1e-4)


@pytest.mark.parametrize("density", [None, 0.3])
def test_freezing_keeps_the_support(data: tuple[Array, Levels], density: float | None) -> None:
    config = LearnSettings(
        method="dsect", max_condition=5.0, l1_weight=300.0, clip=1e-2, density=density, freeze_at=6, iterations=15
    )
    factors = list(iterates(*data, config))
    frozen = factors[5] != 0
    assert not frozen.all()
    for factor in factors[6:]:
        assert (factor[~frozen] == 0).all()
    if density is not None:
        delivered = learn([Shard(data[0].T, data[1])], config).transform.factor
        assert (delivered[~frozen] == 0).all()


@pytest.mark.parametrize("density", [0.01, 0.1, 0.3, 1.0])
def test_a_budget_holds_in_every_iteration(data: tuple[Array, Levels], density: float) -> None:
    config = LearnSettings(method="dsect", max_condition=5.0, density=density, iterations=10)
    for factor in iterates(*data, config):
        assert np.count_nonzero(factor) <= max(n, int(density * n * n))  # n entries are the fewest of an inverse


def test_more_l1_weight_gives_fewer_entries(data: tuple[Array, Levels]) -> None:
    counts = [
        np.count_nonzero(
            list(iterates(*data, LearnSettings(method="dsect", max_condition=5.0, l1_weight=w, iterations=15)))[-1]
        )
        for w in (0.0, 100.0, 3000.0, 1e5)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]


# The others.


def test_the_dct_learns_nothing(data: tuple[Array, Levels]) -> None:
    for factor in iterates(*data, LearnSettings(method="dct", iterations=3)):
        np.testing.assert_array_equal(factor, np.eye(n))


@pytest.mark.parametrize("name", ["conditioned", "dsect", "procrustes"])
def test_resuming_starts_within_the_bounds(data: tuple[Array, Levels], name: str) -> None:
    yt, _ = data
    method = METHODS[name].make(yt @ yt.T, LearnSettings(method=name, max_condition=3.0, frobenius_norm=2.0))
    rng = np.random.default_rng(0)
    resumed = method.resume(rng.standard_normal((n, n)))
    assert np.linalg.cond(resumed) <= 3.0 * (1 + 1e-9)
    assert np.linalg.norm(resumed) == pytest.approx(2.0)
