"""The spectrum projection is the nearest feasible point: by brute force, over wide input, and at its edges."""

import naive
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dstl_cli.base.checks import check_bounds
from dstl_cli.learning.spectrum import (
    condition_number,
    cone_projection,
    held_to_bound,
    largest_entries,
    mix_with_identity,
    project_on_support,
    project_spectrum,
    scaled_to_norm,
    within_budget,
)

Array = NDArray[np.float64]

RHOS = st.sampled_from([1.0, 1.0 + 1e-9, 1.5, 10.0, 1e3, 1e8, 1e300]) | st.floats(1.0, 50.0)


@st.composite
def spectra(draw: st.DrawFn) -> tuple[Array, Array]:
    """Values with ties and zeros, and weights, some of them zero but not all."""
    n = draw(st.integers(1, 12))
    value = st.sampled_from([0.0, 1.0, 2.0, 1e-3]) | st.floats(0.0, 10.0, allow_subnormal=False)
    weight = st.sampled_from([0.0, 1.0, 1.0, 1e-3]) | st.floats(1e-4, 10.0)
    values = draw(hnp.arrays(np.float64, n, elements=value))
    weights = draw(st.just(np.ones(n)) | hnp.arrays(np.float64, n, elements=weight))
    assume(weights.max() > 0)
    return values, weights


def assert_in_cone(x: Array, rho: float) -> None:
    assert np.isfinite(x).all()
    assert (x >= 0).all()
    assert x.max() / rho <= x.min() * (1 + 1e-12)


def feasible_spectra(n: int, rho: float, count: int, rng: np.random.Generator) -> Array:
    """Random points of the cone {max <= rho min}: (count, n)."""
    return rng.uniform(1.0, rho, (count, n)) * 10 ** rng.uniform(-1, 1, (count, 1))


# The cone.


@settings(max_examples=150)
@given(spectra(), RHOS)
@example((np.array([1.0]), np.ones(1)), 1.0)
@example((np.array([0.0, 0.0, 1.0]), np.ones(3)), 1e300)
@example((np.array([0.0, 1.0]), np.ones(2)), 1.0)
@example((np.array([2.0, 1.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0, 0.0])), 3.0)
def test_cone_projection_is_the_brute_force_minimum(case: tuple[Array, Array], rho: float) -> None:
    values, weights = case
    assume(values.max() == 0 or values[values > 0].min() > 1e-9)
    x = cone_projection(values, rho, weights)
    assert_in_cone(x, rho)
    if values.max() == 0:
        np.testing.assert_array_equal(x, 0.0)
        return
    best = naive.cone_projection(values, rho, weights)
    energy = np.sum(weights * values**2) + 1e-300
    cost, best_cost = (np.sum(weights * (point - values) ** 2) for point in (x, best))
    assert cost <= best_cost + 1e-13 * energy
    counted = weights > 0  # where the weight is zero every value within the bounds is as good
    distance = np.sqrt(weights[counted] / weights.max()) * np.abs(x - best)[counted]
    assert distance.max() <= 1e-5 * values.max()


@given(spectra(), RHOS)
def test_weights_of_one_are_the_default(case: tuple[Array, Array], rho: float) -> None:
    values, _ = case
    np.testing.assert_array_equal(cone_projection(values, rho), cone_projection(values, rho, np.ones_like(values)))


@given(spectra(), RHOS)
def test_projecting_twice_changes_nothing(case: tuple[Array, Array], rho: float) -> None:
    values, weights = case
    once = cone_projection(values, rho, weights)
    np.testing.assert_allclose(cone_projection(once, rho, weights), once, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e10, 1e150, 1e300])
@pytest.mark.parametrize("rho", [1.0, 1.5, 1e3, 1e300, np.inf])
def test_the_projection_scales_with_its_values(scale: float, rho: float) -> None:
    for values in (np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.0, 0.1, 1.0, 1.0]), np.array([3.0])):
        x = cone_projection(scale * values, rho)
        np.testing.assert_allclose(x / scale, cone_projection(values, rho), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rho", [1.0, 2.5, 1e300, np.inf])
def test_feasible_values_stay_as_they_are(rho: float) -> None:
    values = np.array([3.0, 3.0, 3.0]) if rho == 1 else np.array([2.0, 4.0, 5.0])
    np.testing.assert_array_equal(cone_projection(values, rho), values)
    np.testing.assert_array_equal(cone_projection(values, rho, np.array([1.0, 0.0, 7.0])), values)


def test_edges_by_hand() -> None:
    np.testing.assert_allclose(cone_projection(np.array([1.0, 2.0, 6.0]), 1.0), [3.0, 3.0, 3.0])  # the mean
    weighted_mean = cone_projection(np.array([1.0, 5.0]), 1.0, np.array([3.0, 1.0]))
    np.testing.assert_allclose(weighted_mean, [2.0, 2.0])
    np.testing.assert_allclose(cone_projection(np.array([0.0, 5.0]), 2.0), [2.0, 4.0])  # on the line x2 = 2 x1
    np.testing.assert_array_equal(cone_projection(np.zeros(4), 3.0), np.zeros(4))
    np.testing.assert_array_equal(cone_projection(np.array([7.0]), 1.0), [7.0])
    np.testing.assert_array_equal(cone_projection(np.array([0.0, 5.0]), np.inf), [0.0, 5.0])
    np.testing.assert_allclose(cone_projection(np.array([0.0, 5.0]), 1e300), [0.0, 5.0], atol=1e-290)


@pytest.mark.parametrize(
    ("values", "weights"),
    [
        (np.array([]), None),
        (np.ones((2, 2)), None),
        (np.ones(2), np.ones(3)),
        (np.array([1.0, -1.0]), None),
        (np.array([1.0, np.nan]), None),
        (np.array([1.0, np.inf]), None),
        (np.ones(2), np.array([1.0, -1.0])),
        (np.ones(2), np.array([1.0, np.nan])),
    ],
)
def test_bad_spectra_are_refused(values: Array, weights: Array | None) -> None:
    with pytest.raises(ValueError, match=r"^The spectrum and its weights must be .*\.$"):
        cone_projection(values, 2.0, weights)


# The norm.


@given(spectra(), st.floats(1e-3, 1e3))
def test_scaled_to_norm(case: tuple[Array, Array], norm: float) -> None:
    values, _ = case
    scaled = scaled_to_norm(values, norm)
    assert np.linalg.norm(scaled) == pytest.approx(norm, rel=1e-12)
    if values.max() > 0:
        np.testing.assert_allclose(scaled * values.max(), values * scaled.max(), rtol=1e-12)
    else:
        assert len(set(scaled.tolist())) == 1


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e308])
def test_scaling_knows_no_overflow(scale: float) -> None:
    np.testing.assert_allclose(scaled_to_norm(np.array([1.0, 1.0]) * scale, np.sqrt(2)), [1.0, 1.0])


# Matrices.


@pytest.mark.parametrize("rho", [1.0, 1.5, 10.0, 1000.0])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_project_spectrum_is_the_nearest_feasible_matrix(rho: float, n: int) -> None:
    rng = np.random.default_rng(n)
    matrix = rng.standard_normal((n, n)) @ np.diag(10 ** rng.uniform(-3, 1, n))
    nearest = project_spectrum(matrix, rho, 2.0)
    assert np.linalg.cond(nearest) <= rho * (1 + 1e-9)
    assert np.linalg.norm(nearest) == pytest.approx(2.0, rel=1e-12)
    np.testing.assert_allclose(nearest, naive.project_spectrum(matrix, rho, 2.0), atol=1e-6)
    distance = np.linalg.norm(nearest - matrix)
    u, s, vt = np.linalg.svd(nearest)
    for spectrum in feasible_spectra(n, rho, 300, rng):
        q = np.linalg.qr(rng.standard_normal((2, n, n)))[0]
        anywhere = (q[0] * scaled_to_norm(spectrum, 2.0)) @ q[1].T
        moved = np.clip(s * (1 + 0.1 * rng.standard_normal(n)), s.max() / rho, s.max())
        same_vectors = (u * scaled_to_norm(moved, 2.0)) @ vt
        step = np.linalg.qr(np.eye(n) + 0.05 * rng.standard_normal((n, n)))[0]
        for candidate in (anywhere, same_vectors, step @ nearest, nearest @ step):
            assert np.linalg.norm(candidate - matrix) >= distance * (1 - 1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), RHOS, st.floats(1e-3, 1e3))
def test_project_spectrum_keeps_its_bounds(seed: int, n: int, rho: float, tau: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.6)  # often singular
    projected = project_spectrum(matrix, rho, tau)
    assert np.isfinite(projected).all()
    assert np.linalg.norm(projected) == pytest.approx(tau, rel=1e-12)
    if rho < 1e8:  # beyond, measuring is less exact than the bound
        assert np.linalg.cond(projected) <= rho * (1 + 1e-6)


@pytest.mark.parametrize("n", [1, 4, 30])
@pytest.mark.parametrize("step", [0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.2, 0.5, 2.0])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_bound_1_gives_the_nearest_orthonormal_matrix(n: int, step: float, scale: float) -> None:
    """Near an orthonormal matrix and far from one; U V' of the SVD is the answer."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        matrix = q + step * rng.standard_normal((n, n))
        u, s, vt = np.linalg.svd(matrix)
        nearest = project_spectrum(scale * matrix, 1.0, 2.0)
        np.testing.assert_allclose(nearest, 2.0 / np.sqrt(n) * u @ vt, atol=1e-11 / max(s[-1], 1e-3))
        assert np.linalg.cond(nearest) <= 1 + 1e-9
        assert np.linalg.norm(nearest) == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_singular_matrices_have_a_projection_at_bound_1(missing: int) -> None:
    matrix = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0] @ np.diag(
        [1.0] * (6 - missing) + [0.0] * missing
    )
    nearest = project_spectrum(matrix, 1.0, 2.0)
    assert np.linalg.cond(nearest) <= 1 + 1e-9
    assert np.linalg.norm(nearest) == pytest.approx(2.0, rel=1e-12)
    np.testing.assert_allclose(nearest[:, : 6 - missing], 2.0 / np.sqrt(6) * matrix[:, : 6 - missing], atol=1e-12)


def test_feasible_matrices_are_only_scaled() -> None:
    matrix = np.diag([1.0, 2.0, 3.0])[[2, 0, 1]]
    np.testing.assert_allclose(project_spectrum(matrix, 3.0, 2 * np.sqrt(14)), 2 * matrix, atol=1e-14)


@pytest.mark.parametrize("rho", [1.0, 1.5, 1e300, np.inf])
def test_the_zero_matrix_has_a_defined_projection(rho: float) -> None:
    projected = project_spectrum(np.zeros((4, 4)), rho, 3.0)
    assert np.linalg.cond(projected) == pytest.approx(1.0)
    assert np.linalg.norm(projected) == pytest.approx(3.0)


@pytest.mark.parametrize("rho", [0.999, 0.0, -1.0, np.nan])
def test_bad_condition_bounds_are_refused(rho: float) -> None:
    for function in (project_spectrum, mix_with_identity):
        with pytest.raises(ValueError, match=f"max_condition must be at least 1, not {rho}"):
            function(np.eye(3), rho, 1.0)
    with pytest.raises(ValueError, match=f"max_condition must be at least 1, not {rho}"):
        project_on_support(np.eye(3), np.eye(3) > 0, rho, 1.0)


@pytest.mark.parametrize("tau", [0.0, -1.0, np.nan, np.inf])
def test_bad_norms_are_refused(tau: float) -> None:
    with pytest.raises(ValueError, match=f"frobenius_norm must be positive and finite, not {tau}"):
        check_bounds(1.0, tau)
    with pytest.raises(ValueError, match=f"frobenius_norm must be positive and finite, not {tau}"):
        project_spectrum(np.eye(3), 1.0, tau)


def test_condition_number() -> None:
    assert condition_number(np.diag([4.0, 2.0, 1.0])) == pytest.approx(4.0)
    assert condition_number(np.zeros((2, 2))) == np.inf
    assert condition_number(np.diag([1.0, 0.0])) == np.inf


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.floats(1.0, 1e9), st.floats(1e-3, 1e3))
def test_a_bound_is_held_as_measured(seed: int, n: int, rho: float, tau: float) -> None:
    """Of the matrix, scaled, and times an orthonormal one."""
    rng = np.random.default_rng(seed)
    matrix = project_spectrum(rng.standard_normal((n, n)), rho, tau)
    held = held_to_bound(matrix, rho, tau)
    np.testing.assert_allclose(held, matrix, rtol=0, atol=1e-4 * tau)
    assert np.linalg.norm(held) == pytest.approx(tau, rel=1e-9)
    for near in (held, 0.3 * held, held @ np.linalg.qr(rng.standard_normal((n, n)))[0]):
        assert naive.keeps_bound(near, rho)


# Supports.


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-2, 2).map(round)),
    st.integers(0, 30),
)
def test_largest_entries_are_h_r_of_the_matrix(matrix: Array, count: int) -> None:
    mask = largest_entries(matrix, count)
    assert mask.shape == matrix.shape
    assert mask.sum() == min(count, matrix.size)
    kept = naive.keep_largest(matrix.ravel(), count).reshape(matrix.shape)
    np.testing.assert_array_equal(np.where(mask, matrix, 0.0), kept)


@pytest.mark.parametrize("rho", [1.0, 1.5, 10.0, 1000.0])
@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_project_on_support_keeps_support_and_bounds_or_says_no(rho: float, share: float) -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(8):
        matrix = np.eye(10) + 0.2 * rng.standard_normal((10, 10))
        support = (rng.random((10, 10)) < share) | (np.eye(10) > 0)
        near = project_on_support(matrix, support, rho, 2.0)
        if near is None:
            continue
        found += 1
        assert (near[~support] == 0).all()
        assert naive.keeps_bound(near, rho)
        assert np.linalg.norm(near) == pytest.approx(2.0, rel=1e-12)
    assert found == 8 or (rho < 10 and share < 1)


def test_project_on_support_only_scales_what_is_feasible() -> None:
    matrix = np.diag([1.0, 2.0, 3.0])
    near = project_on_support(matrix, matrix != 0, 3.01, 2 * np.sqrt(14))
    assert near is not None
    np.testing.assert_allclose(near, 2 * matrix, rtol=1e-14)


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), np.ones((3, 3))])
def test_a_support_without_invertible_matrices_gives_none(matrix: Array) -> None:
    support = np.ones((3, 3), dtype=bool)
    support[1] = False
    assert project_on_support(matrix, support, 100.0, 1.0) is None


@pytest.mark.parametrize("rho", [1.0, 1.5, 10.0, 1000.0])
@pytest.mark.parametrize("seed", range(5))
def test_mix_with_identity_keeps_support_and_bounds(rho: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((8, 8)) * (rng.random((8, 8)) < 0.4)
    mixed = mix_with_identity(matrix, rho, 2.0)
    assert naive.keeps_bound(mixed, rho)
    assert np.linalg.norm(mixed) == pytest.approx(2.0, rel=1e-12)
    assert (mixed[(matrix == 0) & (np.eye(8) == 0)] == 0).all()


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), -np.eye(3), np.diag([1.0, 0.0, -1.0]), np.eye(3)])
@pytest.mark.parametrize("rho", [1.0, 2.0])
def test_mix_with_identity_at_its_edges(matrix: Array, rho: float) -> None:
    mixed = mix_with_identity(matrix, rho, 2.0)
    assert naive.keeps_bound(mixed, rho)
    assert np.linalg.norm(mixed) == pytest.approx(2.0, rel=1e-12)


def test_mixing_leaves_feasible_matrices_alone() -> None:
    matrix = np.array([[1.0, 0.5], [-0.5, 1.0]])
    np.testing.assert_allclose(mix_with_identity(matrix, 2.0, 2.0), matrix * 2 / np.linalg.norm(matrix), atol=1e-9)


# The budget of nonzero entries.


@given(
    st.integers(2, 9),
    st.floats(0, 1),
    st.sampled_from([1.0, 1.05, np.inf]) | st.floats(1, 30),
    st.floats(0.1, 10),
    st.sampled_from([None, 1.0]),
    st.integers(0, 10**6),
)
def test_within_budget_keeps_budget_bound_and_norm(
    n: int, share: float, rho: float, tau: float, aim: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, n)) * rng.choice([0.0, 1.0, 5.0], (n, n))
    budget = n + int(share * (n * n - n))
    found = within_budget(matrix, budget, rho, tau, aim=aim)
    assert np.count_nonzero(found) <= budget
    assert naive.keeps_bound(found, min(rho, 1e12))
    assert np.linalg.norm(found) == pytest.approx(tau, rel=1e-9)


@pytest.mark.parametrize("aim", [None, 1.0])
def test_within_budget_returns_what_is_within(aim: float | None) -> None:
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 9)))[0]
    np.testing.assert_allclose(within_budget(turned, 81, 1.2, 6.0, aim=aim), 2 * turned, atol=1e-12)
    sparse = np.eye(9) + np.diag(0.1 * np.random.default_rng(0).standard_normal(8), 1)
    near = within_budget(sparse, 17, 10.0, float(np.linalg.norm(sparse)), aim=aim)
    np.testing.assert_allclose(near, sparse, atol=1e-12)


@pytest.mark.parametrize("aim", [None, 1.0])
def test_within_budget_finds_the_sparse_matrix_under_a_little_noise(aim: float | None) -> None:
    rng = np.random.default_rng(0)
    sparse = np.eye(20)
    for a, b in rng.permutation(20).reshape(-1, 2):
        angle = rng.uniform(0.3, 1.2)
        sparse[[a, a, b, b], [a, b, a, b]] = np.cos(angle), np.sin(angle), -np.sin(angle), np.cos(angle)
    found = within_budget(sparse + 0.01 * rng.standard_normal((20, 20)), 40, 1.05, np.sqrt(20), aim=aim)
    np.testing.assert_array_equal(found != 0, sparse != 0)
    np.testing.assert_allclose(found, sparse, atol=0.05)
