"""Selection is H_r, and the coder takes as many coefficients as its definition says: no more, no fewer."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import naive
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dstl_cli.base.threads import one_blas_thread
from dstl_cli.patches.coding import Coder, CodingPass, check_levels, keep_largest
from dstl_cli.patches.kernels import coding as _kernels
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

BOUNDARY = 1e-4  # relative: so near to the limit float32 may decide either way


@pytest.fixture(autouse=True, scope="module")
def small_products() -> Iterator[None]:
    """Many products of small matrices: threads would only wait for each other."""
    with one_blas_thread():
        yield


# Exactly-r selection.


@st.composite
def coefficients_with_levels(draw: st.DrawFn) -> tuple[Array, NDArray[np.int64]]:
    """Rows with many ties, zeros, and huge and small values, and a level for each."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 24)))
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-150, 1e150, -1e150])
    wide = st.floats(-1e150, 1e150, allow_subnormal=False)
    rows = draw(hnp.arrays(np.float64, shape, elements=few | wide))
    return rows, draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1])))


@given(coefficients_with_levels())
def test_keep_largest_is_h_r(case: tuple[Array, NDArray[np.int64]]) -> None:
    rows, levels = case
    before = rows.copy()
    codes, left_out, energy = keep_largest(rows, levels)
    np.testing.assert_array_equal(rows, before)
    expected = [naive.keep_largest(row, r) for row, r in zip(rows, levels.tolist(), strict=True)]
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_allclose(left_out, np.sum((rows - codes) ** 2), rtol=1e-12)
    np.testing.assert_allclose(energy, np.sum(rows**2), rtol=1e-12)


def test_keep_largest_on_every_level_of_random_rows() -> None:
    rows = np.random.default_rng(0).standard_normal((122, 121))
    codes, _, _ = keep_largest(rows, np.arange(122))
    np.testing.assert_array_equal((codes != 0).sum(axis=1), np.arange(122))
    for r in range(122):
        np.testing.assert_array_equal(codes[r], naive.keep_largest(rows[r], r))


@pytest.mark.parametrize("n", [2, 16, 121])
def test_keep_largest_on_sorted_and_equal_rows(n: int) -> None:
    rows = np.array([np.arange(n), np.arange(n)[::-1], np.ones(n), -np.ones(n), np.arange(n) % 2], dtype=np.float64)
    for r in range(n + 1):
        codes, _, _ = keep_largest(rows, np.full(5, r))
        np.testing.assert_array_equal(codes, [naive.keep_largest(row, r) for row in rows])


def test_levels_outside_0_to_n_are_refused_with_the_number() -> None:
    check_levels(np.array([0, 16]), 16)
    check_levels(np.array([], dtype=np.int64), 16)
    with pytest.raises(ValueError, match="between 0 and 16 coefficients, not 17"):
        check_levels(np.array([3, 17]), 16)
    with pytest.raises(ValueError, match="between 0 and 16 coefficients, not -1"):
        check_levels(np.array([3, -1]), 16)


def test_relative_error_of_a_silent_signal_is_zero() -> None:
    assert CodingPass(np.zeros((2, 2)), 0.0, 0.0).relative_error == 0.0
    assert CodingPass(np.zeros((2, 2)), 1.0, 4.0).relative_error == 0.25


# The selection kernels of the coder.


def assert_count_fits(count: int, errors: Array, limit: float, most: int) -> None:
    """`count` is the first k with errors[k] <= limit, or `most`, but for decisions within rounding of the limit."""
    assert 0 <= count <= most
    assert (errors[:count] > limit * (1 - BOUNDARY)).all(), (count, errors, limit)
    assert count == most or errors[count] <= limit * (1 + BOUNDARY), (count, errors, limit)


def run_leave_out(row: Array32, limit: float, most: int) -> tuple[Array32, int]:
    """What the kernel leaves of one row, and how many entries it takes."""
    left, counts = row[None].copy(), np.zeros(1, dtype=np.int32)
    _kernels.leave_out(left, np.float32(limit), most, counts)
    return left[0], int(counts[0])


@st.composite
def rows_with_limits(draw: st.DrawFn) -> tuple[Array32, float, int]:
    """A row with ties, zeros and entries of very different size; a limit near one of its tails; the most to take."""
    n = draw(st.integers(1, 40))
    ties = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 2.0**7, -(2.0**13)])
    exponents = st.floats(-12, 12).map(lambda e: 10.0**e)
    row = draw(hnp.arrays(np.float32, n, elements=ties | exponents.map(lambda v: float(np.float32(v)))))
    tails = naive.tails(row, n)
    positive = tails[tails > 0].tolist() or [1.0]
    limit = draw(st.sampled_from(positive)) * draw(st.sampled_from([0.5, 0.99, 0.9995, 1.0, 1.0005, 1.01, 2.0]))
    return row, float(np.float32(limit)), draw(st.integers(0, n))


@given(rows_with_limits())
@example((np.array([0, 0, 0], dtype=np.float32), 1.0, 3))
@example((np.array([3, 3, 3, 3], dtype=np.float32), 18.0, 4))
@example((np.array([1e-12, 1e12, 1, 1], dtype=np.float32), 1.5, 4))
def test_leave_out_takes_the_fewest_largest(case: tuple[Array32, float, int]) -> None:
    row, limit, most = case
    left, count = run_leave_out(row, limit, most)
    assert_count_fits(count, naive.tails(row, most), limit, most)
    by_square = np.argsort(-(row * row), kind="stable")  # ties: the lowest index goes first
    expected = row.copy()
    expected[by_square[:count]] = 0
    np.testing.assert_array_equal(left, expected)


@pytest.mark.parametrize("magnitude", [30.0, 300.0, 3e3, 3e4, 3e5, 3e6])
def test_leave_out_is_right_beside_large_coefficients(magnitude: float) -> None:
    """A strong edge at low noise: one coefficient far above a floor whose energy is just within the limit."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        row = rng.standard_normal(121).astype(np.float32)
        row[rng.integers(121)] = magnitude * rng.uniform(0.7, 1.4)
        tails = naive.tails(row, 72)
        for limit in (tails[1] * 0.99, tails[1] * 1.001, tails[1] * 1.05):
            _, count = run_leave_out(row, limit, 72)
            assert_count_fits(count, tails, limit, 72)


@pytest.mark.parametrize("condition", [1.5, 20.0])
def test_leave_out_weighted_takes_the_fewest_largest(condition: float) -> None:
    rng = np.random.default_rng(0)
    n = 30
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    m = (q * np.geomspace(1, condition**-2, n)) @ q.T
    rows = (rng.standard_normal((200, n)) * 10 ** rng.uniform(0, 1.5, (200, n))).astype(np.float32)
    most = 25
    before = rows.copy()
    counts = np.zeros(len(rows), dtype=np.int32)
    weights = m.astype(np.float32)
    limit = float(np.median([naive.weighted_tails(row, m, 12)[12] for row in rows]))
    _kernels.leave_out_weighted(rows, rows @ weights, weights, limit, most, counts)
    for row, left, count in zip(before, rows, counts.tolist(), strict=True):
        assert_count_fits(count, naive.weighted_tails(row, m, most), limit, most)
        np.testing.assert_array_equal(left, row - naive.keep_largest(row, count).astype(np.float32))
    assert len(set(counts.tolist())) > 5


# The coder.


def noise_patches(size: int, count: int) -> Array32:
    """Random patches of very different strength without their means."""
    rng = np.random.default_rng(size)
    patches = rng.standard_normal((count, size**2)) * rng.choice([0.0, 0.5, 1.0, 1.3, 3.0, 10.0], (count, 1))
    return np.asarray(patches - patches.mean(axis=1, keepdims=True), dtype=np.float32)


def real_patches(camera: NDArray[np.uint8], size: int, count: int, sigma: float) -> Array32:
    """Patches of a photograph with noise, in units of the noise."""
    rng = np.random.default_rng(size)
    noisy = camera + sigma * rng.standard_normal(camera.shape)
    corners = rng.integers(0, min(camera.shape) - size, (count, 2))
    patches = np.array([noisy[r : r + size, c : c + size].ravel() for r, c in corners]) / sigma
    return np.asarray(patches - patches.mean(axis=1, keepdims=True), dtype=np.float32)


def assert_coded_as_defined(
    transform: Transform, patches: Array32, *, error_scale: float, mu: float, most: int
) -> NDArray[np.int32]:
    """Counts and estimates of the fast coder are those of the definition; returns the counts."""
    coder = Coder.build(transform, error_scale=error_scale, fidelity=mu, most=most)
    estimates = coder.estimate(np.ascontiguousarray(patches.T)).T
    left, counts = coder.leave_out(patches)
    n = patches.shape[1]
    limit = error_scale**2 * n
    different = 0
    for y, x, r, count in zip(patches, estimates, left, counts.tolist(), strict=True):
        coded = naive.code_patch(transform.matrix, y, mu, most)
        assert_count_fits(count, coded.errors, limit, most)
        scale = float(np.abs(y).max()) + 1.0
        np.testing.assert_allclose(x, coded.estimates[count], rtol=0, atol=3e-5 * scale)
        assert np.count_nonzero(r) <= n - count
        different += count != coded.count(limit)
    assert different <= 0.02 * len(patches)
    return counts


CONDITIONS = [(1.0, 1.0), (1.0, 0.7071), (1.2, 1.0), (3.0, 0.7071), (50.0, 3.0)]


@pytest.mark.parametrize(("condition", "scale"), CONDITIONS)
@pytest.mark.parametrize("mu", [5e-4, 0.2, 5.0])
@pytest.mark.parametrize("most", [0, 7, 64])
def test_random_patches_are_coded_as_defined(
    make_transform: Callable[..., Transform], condition: float, scale: float, mu: float, most: int
) -> None:
    transform = make_transform(8, condition, scale)
    counts = assert_coded_as_defined(transform, noise_patches(8, 40), error_scale=0.7, mu=mu, most=most)
    assert counts.min() == 0
    if mu < 1:
        assert counts.max() == most or most == 64
    if most == 64 and mu < 1:
        assert len(set(counts.tolist())) > 10


@pytest.mark.parametrize(("condition", "scale"), CONDITIONS)
@pytest.mark.parametrize("sigma", [3.0, 25.0])
def test_real_patches_are_coded_as_defined(
    camera: NDArray[np.uint8], condition: float, scale: float, sigma: float
) -> None:
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(np.eye(121) + 0.02 * rng.standard_normal((121, 121)))[0]
    near_dct = (turn * rng.permutation(scale * np.geomspace(1, 1 / condition, 121))) @ turn.T
    patches = real_patches(camera, 11, 50, sigma)
    transform = Transform(11, near_dct, "test")
    counts = assert_coded_as_defined(transform, patches, error_scale=1.04, mu=0.01 / sigma, most=72)
    assert len(set(counts.tolist())) > 5


def test_the_dct_codes_real_patches_as_defined(camera: NDArray[np.uint8]) -> None:
    patches = real_patches(camera, 11, 150, 10.0)
    counts = assert_coded_as_defined(Transform.fixed(11), patches, error_scale=1.04, mu=1e-3, most=72)
    assert len(set(counts.tolist())) > 10


def test_low_noise_is_coded_as_defined(camera: NDArray[np.uint8]) -> None:
    """Pixels of a thousand times the noise: the large coefficients must not drown the small ones."""
    patches = real_patches(camera, 8, 150, 0.2)
    assert_coded_as_defined(Transform.fixed(8), patches, error_scale=1.04, mu=0.05, most=64)


def test_badly_conditioned_transforms_are_coded_as_defined(make_transform: Callable[..., Transform]) -> None:
    patches = noise_patches(6, 40)
    assert_coded_as_defined(make_transform(6, 1e4), patches, error_scale=0.7, mu=1e-3, most=36)


@pytest.mark.parametrize("scale", [1.0, 0.7071])
def test_the_fast_path_of_condition_1_equals_the_general_one(
    make_transform: Callable[..., Transform], scale: float
) -> None:
    coder = Coder.build(make_transform(8, 1.0, scale), error_scale=1.04, fidelity=1e-3, most=48)
    assert coder.uniform
    assert not Coder.build(make_transform(8, 1.01), error_scale=1.04, fidelity=1e-3, most=48).uniform
    patches = noise_patches(8, 200)
    exact = replace(coder, uniform=False)
    np.testing.assert_array_equal(coder.leave_out(patches)[1], exact.leave_out(patches)[1])
    columns = np.ascontiguousarray(patches.T)
    np.testing.assert_allclose(coder.estimate(columns), exact.estimate(columns), atol=1e-4)


@pytest.mark.parametrize("condition", [1.0, 3.0])
def test_patches_are_coded_one_by_one(make_transform: Callable[..., Transform], condition: float) -> None:
    """However many there are in a call, and the input stays as it was."""
    coder = Coder.build(make_transform(5, condition), error_scale=0.7, fidelity=1e-3, most=12)
    patches = noise_patches(5, 24)
    before = patches.copy()
    counts = coder.leave_out(patches)[1]
    estimates = coder.estimate(patches.T)
    assert counts.shape == (24,)
    assert estimates.shape == (25, 24)
    for k in range(24):
        one = patches[k : k + 1]
        np.testing.assert_array_equal(coder.leave_out(one)[1], counts[k])
        np.testing.assert_allclose(coder.estimate(one.T), estimates[:, k : k + 1], atol=1e-5)
    np.testing.assert_array_equal(patches, before)


@pytest.mark.parametrize("condition", [1.0, 3.0])
@pytest.mark.parametrize("sigma", [0.25, 16.0])
def test_patches_are_measured_in_units_of_their_noise(
    make_transform: Callable[..., Transform], condition: float, sigma: float
) -> None:
    transform, patches = make_transform(5, condition), noise_patches(5, 50)
    unit = Coder.build(transform, error_scale=0.7, fidelity=1e-3, most=12)
    coder = Coder.build(transform, error_scale=0.7, fidelity=1e-3, most=12, sigma=sigma)
    scaled = np.float32(sigma) * patches
    np.testing.assert_array_equal(coder.leave_out(scaled)[1], unit.leave_out(patches)[1])
    np.testing.assert_allclose(coder.estimate(scaled.T) / sigma, unit.estimate(patches.T), atol=1e-5)
