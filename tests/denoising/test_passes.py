"""The kernels and both passes are their definitions; how the work is cut changes nothing."""

from collections.abc import Callable
from typing import Any

import naive_passes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dstl_cli.base.progress import Progress
from dstl_cli.base.threads import Execution
from dstl_cli.denoising import passes
from dstl_cli.denoising.passes import (
    ALWAYS_KEPT,
    TILE_WIDTH,
    FactorsAt,
    coding_estimate,
    paper_estimate,
    patch_average,
    sliding_grid,
    wiener_estimate,
)
from dstl_cli.denoising.sliding import lattices
from dstl_cli.noise.model import WhiteChannel
from dstl_cli.patches.coding import Coder
from dstl_cli.patches.frame import Frame
from dstl_cli.patches.grid import Lattice, sheared_shift
from dstl_cli.patches.kernels import sliding as kernels
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

ONE = Execution()
LEAST_RATIO = float(kernels.LEAST_GAIN / (1 - kernels.LEAST_GAIN))  # of squares of guide and noise: no gain below
CORNERS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), min_size=1, max_size=12, unique=True)


def random_image(shape: tuple[int, int], seed: int = 0, sigma: float = 20.0) -> Array32:
    """A picture with an edge, a slope and noise."""
    rows, columns = np.indices(shape)
    clean = 3.0 * rows + 2.0 * columns + 60.0 * (rows > columns)
    return np.asarray(clean + sigma * np.random.default_rng(seed).standard_normal(shape), dtype=np.float32)


# Kernels.


def in_units(transform: Transform, sigma: float) -> Frame:
    """The frame with coefficients in units of white noise."""
    frame = Frame.of(transform)
    return frame.in_units_of(WhiteChannel(sigma).deviations(frame.forward))


def nowhere(levels: NDArray[Any]) -> None:
    """Noise that is the same at all levels."""


def first_lattice(stride: int, transform: Transform) -> Lattice:
    """That of the coder."""
    return lattices(stride, transform.patch_size)[0]


def second_lattice(stride: int, transform: Transform) -> Lattice:
    """That of the Wiener pass."""
    return lattices(stride, transform.patch_size)[1]


def coding_pass(
    image: Array32,
    transform: Transform,
    sigma: float,
    error_scale: float,
    stride: int,
    execution: Execution,
    factors_at: FactorsAt = nowhere,
    *others: Array32,
) -> Array32:
    """The coder over a whole picture with white noise; others: planes after it, the last one for its levels."""
    costs = Frame.of(transform).costs
    estimate = coding_estimate(in_units(transform, sigma), costs, error_scale, factors_at)
    planes = [Plane.whole(part) for part in (image, *others)]
    found = patch_average(planes, transform.patch_size, first_lattice(stride, transform), estimate, execution)
    assert found.box == Plane.whole(image).box
    return np.asarray(found.values)


def wiener_pass(
    image: Array32,
    pilot: Array32,
    transform: Transform,
    sigma: float,
    stride: int,
    execution: Execution,
    factors_at: FactorsAt = nowhere,
    *others: Array32,
) -> Array32:
    """The Wiener pass over a whole picture with white noise; others as before."""
    estimate = wiener_estimate(in_units(transform, sigma), factors_at)
    planes = [Plane.whole(part) for part in (image, pilot, *others)]
    lattice = second_lattice(stride, transform)
    return np.asarray(patch_average(planes, transform.patch_size, lattice, estimate, execution).values)


def spread(values: NDArray[Any], numbers: NDArray[np.int_], shape: tuple[int, ...]) -> Array:
    """An image with these values at the pixels of these numbers, and nothing elsewhere."""
    image = np.zeros(shape)
    image.reshape(-1)[numbers] = values
    return image


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(corners=CORNERS, size=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_patches_are_taken_and_added_where_they_are(
    dtype: type[np.floating[Any]], corners: list[tuple[int, int]], size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = (max(r for r, _ in corners) + size, max(c for _, c in corners) + size)
    image: NDArray[np.floating[Any]] = (5 + rng.standard_normal(shape)).astype(dtype)
    patches = np.empty((size**2, len(corners)), np.float32)
    means = np.empty(patches.shape[1], dtype)
    numbers = np.array([r * shape[1] + c for r, c in corners])
    kernels.take_patches(image, numbers, size, means, patches)
    expected, expected_means = naive_passes.take_patches(image, corners, size)
    np.testing.assert_allclose(patches, expected, rtol=0, atol=3e-6)
    averages = np.empty_like(image)
    kernels.patch_means(image, size, averages)
    for found in (means, averages.ravel()[numbers]):
        np.testing.assert_allclose(found, expected_means, rtol=10 * float(np.finfo(dtype).eps))

    weights = rng.choice([0.0, 0.25, 1.0, rng.random()], patches.shape[1]).astype(np.float32)
    # sums go on from what is there
    total, mass = (rng.random(shape).astype(dtype) for _ in range(2))
    expected_total, expected_mass = total.astype(np.float64), mass.astype(np.float64)
    naive_passes.add_patches(patches, means, weights, corners, expected_total, expected_mass)
    kernels.add_patches(patches, weights, numbers, size, total)
    for heights, sums in ((weights * means, total), (weights, mass)):
        kernels.add_squares(spread(heights, numbers, shape).astype(dtype), size, sums)
    np.testing.assert_allclose(total, expected_total, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mass, expected_mass, rtol=1e-5, atol=1e-5)


def test_patches_on_a_high_level_keep_their_small_differences() -> None:
    image = 1e9 + np.random.default_rng(0).standard_normal((9, 11))
    corners = [(r, c) for r in range(6) for c in range(8)]
    numbers = np.array([r * 11 + c for r, c in corners])
    patches, means = np.empty((16, 6 * 8), np.float32), np.empty(6 * 8)
    kernels.take_patches(image, numbers, 4, means, patches)
    expected, expected_means = naive_passes.take_patches(image, corners, 4)
    np.testing.assert_allclose(patches, expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(means, expected_means, rtol=1e-15)
    total, mass = np.zeros((2, *image.shape))
    kernels.add_patches(patches, np.ones(48, np.float32), numbers, 4, total)
    for heights, sums in ((means, total), (np.ones(48), mass)):
        kernels.add_squares(spread(heights, numbers, image.shape), 4, sums)
    np.testing.assert_allclose(total / mass, image, rtol=0, atol=2e-6)


@given(st.integers(1, 8), st.integers(1, 8), st.tuples(st.integers(0, 30), st.integers(0, 30)), st.booleans())
def test_a_sheared_lattice_is_its_definition_and_leaves_no_gap(
    stride: int, size: int, more: tuple[int, int], second: bool
) -> None:
    assume(stride <= size)
    shape = (size + more[0], size + more[1])
    lattice = lattices(stride, size)[second]
    rows, columns = (np.arange(length - size + 1) for length in shape)
    found = lattice.chosen(rows, columns, shape, size)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == naive_passes.corners_on(lattice, shape, size)
    covered = np.zeros(shape, bool)
    for r, c in zip(*found, strict=True):
        covered[r : r + size, c : c + size] = True
    assert covered.all()


@given(st.integers(1, 5), st.integers(3, 8), st.tuples(st.integers(0, 12), st.integers(0, 12)), st.booleans())
def test_tiles_choose_their_part_of_a_lattice(stride: int, size: int, first: tuple[int, int], second: bool) -> None:
    assume(stride <= size)
    shape = (40, 50)
    lattice = lattices(stride, size)[second]
    every = naive_passes.corners_on(lattice, shape, size)
    rows, columns = (np.arange(low, min(low + 20, length - size + 1)) for low, length in zip(first, shape, strict=True))
    found = lattice.chosen(rows, columns, shape, size)
    corners = list(zip(rows[found[0]].tolist(), columns[found[1]].tolist(), strict=True))
    assert corners == [(r, c) for r, c in every if r in rows and c in columns]


def test_rows_of_patches_differ_in_their_columns() -> None:
    assert [sheared_shift(stride**2, 11) for stride in (1, 2, 3, 4)] == [0, 1, 2, 3]


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_clip_patches_is_its_definition(n: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    patches, means = (100 * rng.standard_normal((n, count))).astype(np.float32), rng.uniform(0, 255, count)
    expected = np.clip(patches + means, 0.0, 255.0) - means
    kernels.clip_patches(patches, means, 0.0, 255.0)
    np.testing.assert_allclose(patches, expected, rtol=0, atol=2e-5)


@st.composite
def exact_selections(draw: st.DrawFn) -> tuple[Array32, Array32, float, float]:
    """Coefficients, costs, budget and highest with few bits, so that single precision is exact: many ties and zeros."""
    shape = draw(st.tuples(st.integers(1, 12), st.integers(1, 5)))
    values = st.integers(-24, 24).map(lambda k: k / 8)
    coefficients = draw(hnp.arrays(np.float32, shape, elements=values | st.sampled_from([0.0, -0.0, 1.0, -1.0])))
    costs = draw(hnp.arrays(np.float32, shape[0], elements=st.integers(0, 8).map(lambda k: k / 4)))
    budget = draw(st.integers(0, 400).map(lambda k: k / 16))
    return coefficients, costs, budget, draw(st.sampled_from([0.0, 0.5, 1.0, 4.0, 8.0, 64.0]))


@st.composite
def wide_selections(draw: st.DrawFn) -> tuple[Array32, Array32, float, float]:
    """The same with real numbers of any size, and budgets about that of dropping the k smallest of the first column."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    m, count = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    coefficients = (2 * rng.standard_t(3, (m, count))).astype(np.float32)
    costs = rng.uniform(0.8, 1.25, m).astype(np.float32)
    first = coefficients[:, 0].astype(np.float64) ** 2
    order = np.argsort(first)
    sums = [0.0, *np.cumsum((costs * first)[order])]
    budget = draw(st.sampled_from(sums)) * draw(st.sampled_from([0.995, 1.0, 1.005]))
    return coefficients, costs, float(budget), draw(st.floats(0.1, 20))


@given(exact_selections() | wide_selections())
def test_select_drops_what_fits_and_no_less(case: tuple[Array32, Array32, float, float]) -> None:
    """What is dropped fits, nothing larger than what stays is dropped, and a thousandth more would not fit."""
    coefficients, costs, budget, highest = case
    kept = coefficients.copy()
    weights = np.empty(coefficients.shape[1], np.float32)
    kernels.select(kept, costs, np.float32(budget), np.float32(highest), np.ones_like(weights), weights)
    for before, after, weight in zip(coefficients.T, kept.T, weights, strict=True):
        dropped, stays = (before != 0) & (after == 0), after != 0
        np.testing.assert_array_equal(after[stays], before[stays])
        squares = (before * before).astype(np.float64)
        assert np.sum(costs[dropped] * squares[dropped]) <= budget * (1 + 1e-5)
        assert squares[dropped].max(initial=0.0) <= highest
        assert squares[stays].min(initial=np.inf) > squares[dropped].max(initial=-np.inf)  # of equal ones all or none
        assert weight == np.float32(1 / (1 + np.count_nonzero(after)))
        higher = squares[stays].min(initial=np.inf) + highest / 1000
        if higher < highest:
            within = squares <= higher
            assert np.sum(costs[within] * squares[within]) > budget * (1 - 1e-5)


@given(exact_selections(), st.sampled_from([0.25, 1.0, 4.0, 16.0]))
def test_select_grows_its_limits_with_the_noise(case: tuple[Array32, Array32, float, float], variance: float) -> None:
    coefficients, costs, budget, highest = case
    plain, scaled = coefficients.copy(), coefficients * np.float32(variance**0.5)
    weights, scaled_weights = (np.empty(coefficients.shape[1], np.float32) for _ in range(2))
    limits = np.float32(budget), np.float32(highest)
    kernels.select(plain, costs, *limits, np.ones_like(weights), weights)
    kernels.select(scaled, costs, *limits, np.full_like(weights, variance), scaled_weights)
    np.testing.assert_array_equal(scaled, plain * np.float32(variance**0.5))
    np.testing.assert_array_equal(scaled_weights, weights / np.float32(variance))


@given(
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    st.sampled_from([1e-3, 1.0, 400.0]),
    st.integers(0, 2**32 - 1),
)
def test_gains_are_their_definition(shape: tuple[int, int], scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    guide = (rng.choice([0.0, 1.0, 30.0], shape) * scale * rng.standard_normal(shape)).astype(np.float32)
    variances = rng.uniform(0.1, 9.0, shape[1]).astype(np.float32)
    assume(not np.isclose(guide**2, variances * LEAST_RATIO, rtol=1e-4).any())
    expected, expected_weights = naive_passes.gains(guide / np.sqrt(variances), float(kernels.LEAST_GAIN))
    weights = np.empty(shape[1], np.float32)
    kernels.gains_of(guide, variances, weights)
    np.testing.assert_allclose(guide, expected, rtol=1e-5)
    np.testing.assert_allclose(weights, expected_weights / variances, rtol=1e-5)


@given(st.integers(1, 30), st.integers(1, 20), st.data())
def test_products_are_those_of_some_rows_over_some_terms(m: int, n: int, data: st.DataObject) -> None:
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, m - 1)))), np.int64)
    terms = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1)))), np.int64)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    sizes = (m, n), (n, kernels.BLOCK), (m, kernels.BLOCK)
    matrix, columns, out = (rng.standard_normal(size).astype(np.float32) for size in sizes)
    expected = out.astype(np.float64)
    expected[rows] = matrix[np.ix_(rows, terms)].astype(np.float64) @ columns[terms]
    kernels.product(matrix, rows, terms, columns, out)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.sampled_from([0.0, -0.0, -2.0])))
def test_rows_in_use_are_those_that_are_not_zero(values: Array32) -> None:
    numbers = np.full(len(values), -1, np.int64)
    count = kernels.rows_in_use(values, numbers)
    assert numbers[:count].tolist() == [j for j, row in enumerate(values.tolist()) if any(row)]


@pytest.mark.parametrize("count", [1, 7, 256, 1000])
def test_add_kept_is_its_definition(count: int) -> None:
    rng = np.random.default_rng(count)
    coefficients = rng.choice([0.0, 1.5, -1.5, 3.0, -3.0, 0.1, 1.6, -2.9], (count, 5)).astype(np.float32)  # with ties
    thresholds = np.array([0.0, 1.5, 3.0, 2.0, 0.1], np.float32)
    patches = rng.standard_normal((count, 8)).astype(np.float32)
    expected, expected_kept, expected_energy = naive_passes.add_kept(coefficients, thresholds, patches)
    cross = np.ones((5, 8), np.float32)  # added to, not written over
    kept, energy = kernels.add_kept(coefficients, thresholds, patches, cross)
    np.testing.assert_allclose(cross - 1, expected, rtol=1e-4, atol=1e-4)
    assert kept == pytest.approx(expected_kept, rel=1e-5)
    assert energy == pytest.approx(expected_energy, rel=1e-5)


# Frames.


def mean_mixing(size: int, seed: int = 0) -> Transform:
    """A transform of condition 2 none of whose rows sees the mean alone or not at all."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((size**2, size**2)))[0] for _ in range(2))
    return Transform(size, (u * np.linspace(1, 2, size**2)) @ v.T, "test")


def mean_apart(size: int, seed: int = 0) -> Transform:
    """The same with T[0] and T[:, 0] those of the identity, the mean's scale another one."""
    n = size**2
    rng = np.random.default_rng(seed)
    factor = np.zeros((n, n))
    factor[0, 0] = 3.0
    u, v = (np.linalg.qr(rng.standard_normal((n - 1, n - 1)))[0] for _ in range(2))
    factor[1:, 1:] = (u * np.linspace(1, 1.25, n - 1)) @ v.T
    return Transform(size, factor, "test")


FRAMES = {
    "dct": (Transform.fixed(5), 24),
    "one pixel": (Transform.fixed(1), 0),
    "negative": (Transform(5, -np.eye(25), "test"), 24),
    "tiny": (Transform(5, 1e-12 * np.eye(25), "test"), 24),
    "huge": (Transform(5, 1e12 * mean_apart(5).factor, "test"), 24),
    "mean apart": (mean_apart(5), 24),
    "mean mixed in": (mean_mixing(5), 25),
    "mean not first": (Transform(4, np.eye(16)[::-1].copy(), "test"), 15),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_give_patches_back(name: str) -> None:
    transform, rows = FRAMES[name]
    frame = Frame.of(transform)
    n = transform.patch_size**2
    assert frame.forward.shape == (rows, n)
    assert frame.backward.shape == (n, rows)
    without_mean = np.eye(n) - 1 / n
    np.testing.assert_allclose(frame.backward @ frame.forward, without_mean, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(frame.forward, axis=1), 1.0, rtol=1e-9)  # white noise keeps deviation 1
    np.testing.assert_allclose(frame.forward.sum(axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(frame.backward.sum(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(frame.costs, np.sum(frame.backward**2, axis=0), rtol=1e-6)
    naive = naive_passes.NaiveFrame(transform.matrix)
    np.testing.assert_allclose(frame.forward, naive.analysis.reshape(rows, n), atol=1e-9)
    np.testing.assert_allclose(frame.backward, naive.synthesis.reshape(n, rows), atol=1e-9)


@pytest.mark.parametrize("name", FRAMES)
def test_frames_in_units_of_the_noise(name: str) -> None:
    transform, rows = FRAMES[name]
    plain = Frame.of(transform)
    deviations = np.random.default_rng(0).uniform(0.5, 30, rows)
    frame = plain.in_units_of(deviations)
    assert frame.patch_size == plain.patch_size
    np.testing.assert_allclose(np.linalg.norm(frame.forward, axis=1), 1 / deviations, rtol=1e-9)
    np.testing.assert_allclose(frame.backward @ frame.forward, plain.backward @ plain.forward, atol=1e-9)
    np.testing.assert_allclose(frame.costs, plain.costs * deviations**2, rtol=1e-6)


def test_orthonormal_transforms_have_orthonormal_frames() -> None:
    frame = Frame.of(Transform(6, -0.7 * np.eye(36), "test"))
    np.testing.assert_allclose(frame.backward, frame.forward.T, atol=1e-9)
    np.testing.assert_allclose(frame.costs, 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.abs(Frame.of(Transform.fixed(6)).forward), np.abs(dct_matrix(6)[1:]), atol=1e-9)


@given(st.floats(1e-6, 1e6), st.integers(0, 100))
def test_the_scale_of_a_transform_does_not_matter(scale: float, seed: int) -> None:
    transform = mean_mixing(3, seed)
    frame, scaled = Frame.of(transform), Frame.of(Transform(3, scale * transform.factor, "test"))
    np.testing.assert_allclose(scaled.forward, frame.forward, atol=1e-9)
    np.testing.assert_allclose(scaled.backward, frame.backward, atol=1e-9)


# Passes: their definition.


def selected(column: Array, costs: Array, budget: float, highest: float) -> tuple[Array, float]:
    """The kernel's choice for one patch, which the law above describes."""
    kept, weight = column[:, None].astype(np.float32), np.empty(1, np.float32)
    kernels.select(
        kept, costs.astype(np.float32), np.float32(budget), np.float32(highest), np.ones_like(weight), weight
    )
    return kept[:, 0].astype(np.float64), float(weight[0])


Pass = Callable[..., Array32]


def run_coding(
    image: Array32, transform: Transform, sigma: float, stride: int, jobs: int, progress: Progress | None = None
) -> Array32:
    return coding_pass(image, transform, sigma, 1.04, stride, Execution(jobs, progress))


def run_wiener(
    image: Array32, transform: Transform, sigma: float, stride: int, jobs: int, progress: Progress | None = None
) -> Array32:
    """Guided by the image itself."""
    return wiener_pass(image, image, transform, sigma, stride, Execution(jobs, progress))


BOTH = pytest.mark.parametrize("run", [run_coding, run_wiener])


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("make", [Transform.fixed, mean_apart, mean_mixing])
def test_both_passes_are_their_definitions(make: Callable[[int], Transform], stride: int) -> None:
    image = random_image((15, 18))
    transform = make(4)
    pilot = coding_pass(image, transform, 20.0, 1.04, stride, ONE)
    expected = naive_passes.coding_pass(
        image, transform.matrix, 20.0, 1.04, first_lattice(stride, transform), ALWAYS_KEPT, selected
    )
    np.testing.assert_allclose(pilot, expected, rtol=0, atol=1e-3)
    result = wiener_pass(image, pilot, transform, 20.0, stride, ONE)
    expected = naive_passes.wiener_pass(
        image, pilot, transform.matrix, 20.0, second_lattice(stride, transform), float(kernels.LEAST_GAIN)
    )
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)
    assert pilot.dtype == result.dtype == np.float32
    assert np.abs(pilot - image).max() > 10.0


def growing(levels: NDArray[Any]) -> Array32:
    """Noise from half as strong to three times as strong, over the levels of `random_image`."""
    return np.asarray(np.interp(levels, (0.0, 60.0, 150.0), (0.5, 1.0, 3.0)), dtype=np.float32)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("with_luminance", [False, True])
@pytest.mark.parametrize("make", [Transform.fixed, mean_apart, mean_mixing])
def test_both_passes_follow_the_levels_of_the_last_plane(
    make: Callable[[int], Transform], with_luminance: bool, stride: int
) -> None:
    """That is the picture itself, then its pilot; or the luminance in both."""
    image = random_image((15, 18))
    luminance = [random_image((15, 18), seed=7)[::-1].copy()] if with_luminance else []
    transform = make(4)

    def factor_in(plane: Array32) -> naive_passes.Factor:
        return lambda r, c: float(growing(plane[r : r + 4, c : c + 4].astype(np.float64).mean()[None])[0])

    pilot = coding_pass(image, transform, 20.0, 1.04, stride, ONE, growing, *luminance)
    factor = factor_in([image, *luminance][-1])
    expected = naive_passes.coding_pass(
        image, transform.matrix, 20.0, 1.04, first_lattice(stride, transform), ALWAYS_KEPT, selected, factor
    )
    np.testing.assert_allclose(pilot, expected, rtol=0, atol=1e-3)
    assert np.abs(pilot - coding_pass(image, transform, 20.0, 1.04, stride, ONE)).max() > 1.0
    result = wiener_pass(image, pilot, transform, 20.0, stride, ONE, growing, *luminance)
    factor = factor_in([pilot, *luminance][-1])
    expected = naive_passes.wiener_pass(
        image, pilot, transform.matrix, 20.0, second_lattice(stride, transform), float(kernels.LEAST_GAIN), factor
    )
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)
    assert np.abs(result - wiener_pass(image, pilot, transform, 20.0, stride, ONE)).max() > 1.0


@pytest.mark.parametrize("stride", [1, 2])
def test_factors_of_one_level_are_another_sigma(stride: int) -> None:
    def twice(levels: NDArray[Any]) -> Array32:
        return np.full(levels.shape, 2.0, np.float32)

    image = random_image((24, 21))
    transform = mean_mixing(5)
    pilot = coding_pass(image, transform, 20.0, 1.04, stride, ONE, twice)
    np.testing.assert_allclose(pilot, coding_pass(image, transform, 40.0, 1.04, stride, ONE), rtol=0, atol=1e-3)
    result = wiener_pass(image, pilot, transform, 20.0, stride, ONE, twice)
    np.testing.assert_allclose(result, wiener_pass(image, pilot, transform, 40.0, stride, ONE), rtol=0, atol=1e-3)


def test_pictures_wider_than_a_block_and_a_tile_are_the_definition() -> None:
    width = max(5 * kernels.BLOCK, 2 * TILE_WIDTH) + 40
    image = random_image((5, width))
    image -= np.float32(2.0) * np.arange(width, dtype=np.float32)  # level: single precision holds what is left
    assert len(sliding_grid(image.shape, 3, Lattice(1, 4)).columns) > 1
    transform = Transform.fixed(3)
    pilot = coding_pass(image, transform, 20.0, 1.04, 2, Execution(2))
    expected = naive_passes.coding_pass(
        image, transform.matrix, 20.0, 1.04, first_lattice(2, transform), ALWAYS_KEPT, selected
    )
    np.testing.assert_allclose(pilot, expected, rtol=0, atol=1e-3)
    result = wiener_pass(image, pilot, transform, 20.0, 2, Execution(2))
    np.testing.assert_allclose(
        result,
        naive_passes.wiener_pass(
            image, pilot, transform.matrix, 20.0, second_lattice(2, transform), float(kernels.LEAST_GAIN)
        ),
        rtol=0,
        atol=1e-3,
    )


@pytest.mark.parametrize("size", [1, 7, 30, 100])
@pytest.mark.parametrize("follows", [nowhere, growing])
def test_patches_do_not_depend_on_those_beside_them(size: int, follows: FactorsAt) -> None:
    image = random_image((40, 34))
    frame = in_units(mean_apart(5), 20.0)
    corners = np.array([34 * r + c for r, c in naive_passes.corners_on(Lattice(2, 1), image.shape, 5)])
    guide = random_image((40, 34), seed=1, sigma=5.0)
    coder, wiener = coding_estimate(frame, frame.costs, 1.04, follows), wiener_estimate(frame, follows)
    for add_estimates, images in ((coder, [image]), (wiener, [image, guide])):
        whole, parts = np.zeros((2, 2, *image.shape), np.float32)
        add_estimates(images, corners, whole)
        for start in range(0, len(corners), size):
            add_estimates(images, corners[start : start + size], parts)
        assert whole[1].min() > 0
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("product", [1, 7, 30, 100])
def test_products_of_the_papers_coder_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, product: int) -> None:
    image = random_image((20, 24))
    coder = Coder.build(mean_apart(5), error_scale=1.04, fidelity=1e-3, most=25, sigma=20.0)

    def run() -> NDArray[Any]:
        return patch_average([Plane.whole(image)], 5, Lattice(1, 1), paper_estimate(coder, None), ONE).values

    whole = run()
    monkeypatch.setattr(passes, "PRODUCT", product)
    np.testing.assert_allclose(run(), whole, rtol=0, atol=2e-3)


@BOTH
@pytest.mark.parametrize("tile", [(1, 1), (7, 9), (64, 10), (16, 100)])
def test_tiles_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, run: Pass, tile: tuple[int, int]) -> None:
    image = random_image((40, 34))
    transform = mean_apart(5)
    whole = run(image, transform, 20.0, 2, 1)
    monkeypatch.setattr(passes, "TILE_HEIGHT", tile[0])
    monkeypatch.setattr(passes, "TILE_WIDTH", tile[1])
    np.testing.assert_allclose(run(image, transform, 20.0, 2, 1), whole, rtol=0, atol=2e-3)


@BOTH
@pytest.mark.parametrize("stride", [1, 3])
def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch, run: Pass, stride: int) -> None:
    monkeypatch.setattr(passes, "TILE_HEIGHT", 16)
    monkeypatch.setattr(passes, "TILE_WIDTH", 20)
    image = random_image((147, 50))
    transform = mean_apart(6)
    one = run(image, transform, 20.0, stride, 1).tobytes()
    for jobs in (2, 3, 8):
        assert run(image, transform, 20.0, stride, jobs).tobytes() == one


# Passes: laws.


@BOTH
@pytest.mark.parametrize("shape", [(6, 6), (6, 40), (40, 6), (7, 6), (29, 31)])
@pytest.mark.parametrize("stride", [1, 2, 5, 6])
def test_every_pixel_is_covered(run: Pass, shape: tuple[int, int], stride: int) -> None:
    image = random_image(shape)
    result = run(image, Transform.fixed(6), 20.0, stride, 1)
    assert result.shape == shape
    assert np.isfinite(result).all()
    assert np.abs(result - image).max() < 200


@BOTH
@pytest.mark.parametrize("value", [0.0, -3.0, 200.0])
@pytest.mark.parametrize("make", [Transform.fixed, mean_apart, mean_mixing])
def test_constant_pictures_stay(run: Pass, make: Callable[[int], Transform], value: float) -> None:
    image = np.full((20, 23), value, np.float32)
    np.testing.assert_allclose(run(image, make(5), 10.0, 2, 1), image, rtol=1e-5)


@pytest.mark.parametrize("shift", [-100.0, 64.0])
@pytest.mark.parametrize("make", [Transform.fixed, mean_mixing])
def test_a_constant_added_is_added_to_the_result(make: Callable[[int], Transform], shift: float) -> None:
    image = random_image((24, 21))
    transform = make(5)
    added = np.float32(shift)
    pilot = coding_pass(image, transform, 20.0, 1.04, 1, ONE)
    np.testing.assert_allclose(
        coding_pass(image + added, transform, 20.0, 1.04, 1, ONE), pilot + added, rtol=0, atol=5e-3
    )
    result = wiener_pass(image, pilot, transform, 20.0, 1, ONE)
    both = wiener_pass(image + added, pilot + added, transform, 20.0, 1, ONE)
    np.testing.assert_allclose(both, result + added, rtol=0, atol=5e-3)


def local_means(image: Array32, size: int) -> Array:
    """Every pixel the average over the patches that cover it of their means."""
    total, mass = np.zeros(image.shape), np.zeros(image.shape)
    for r, c in np.ndindex(image.shape[0] - size + 1, image.shape[1] - size + 1):
        total[r : r + size, c : c + size] += image[r : r + size, c : c + size].astype(np.float64).mean()
        mass[r : r + size, c : c + size] += 1
    return total / mass


@pytest.mark.parametrize("make", [Transform.fixed, mean_apart, mean_mixing])
def test_the_budget_decides_between_local_means_and_the_picture(make: Callable[[int], Transform]) -> None:
    image = random_image((20, 22))
    transform = make(4)
    smooth = coding_pass(image, transform, 1e4, 10.0, 1, ONE)
    np.testing.assert_allclose(smooth, local_means(image, 4), rtol=0, atol=1e-3)
    same = coding_pass(image, transform, 20.0, 0.0, 1, ONE)
    np.testing.assert_allclose(same, image, rtol=0, atol=1e-3)


@pytest.mark.parametrize("make", [Transform.fixed, mean_apart, mean_mixing])
def test_the_pilot_decides_between_local_means_and_the_picture(make: Callable[[int], Transform]) -> None:
    image = random_image((20, 22))
    transform = make(4)
    flat = wiener_pass(image, np.full_like(image, 7.0), transform, 20.0, 1, ONE)
    np.testing.assert_allclose(flat, local_means(image, 4), rtol=0, atol=1e-3)
    lively = (1e6 * np.random.default_rng(5).standard_normal(image.shape)).astype(np.float32)
    np.testing.assert_allclose(wiener_pass(image, lively, transform, 1.0, 1, ONE), image, rtol=0, atol=1e-2)


def test_clear_coefficients_stay_whatever_the_budget() -> None:
    """A strong wave of one frequency, alone in its coefficient, comes through a budget that would hold it."""
    wave = dct_matrix(8)[19].reshape(8, 8)
    transform = Transform.fixed(8)
    for strength, comes_through in ((ALWAYS_KEPT * 1.01, True), (ALWAYS_KEPT * 0.99, False)):
        image = (10.0 * strength * wave).astype(np.float32)
        result = coding_pass(image, transform, 10.0, 3.0, 1, ONE)
        np.testing.assert_allclose(result, image if comes_through else np.zeros_like(image), atol=1e-3)


@BOTH
def test_noise_is_removed_and_the_input_left_alone(run: Pass) -> None:
    clean = random_image((64, 64), sigma=0.0)
    image = random_image((64, 64), sigma=20.0)
    before = image.copy()
    result = run(image, Transform.fixed(8), 20.0, 1, 1)
    np.testing.assert_array_equal(image, before)
    assert np.mean((result - clean) ** 2) < 0.6 * np.mean((image - clean) ** 2)


@BOTH
@pytest.mark.parametrize("stride", [1, 2])
def test_progress_rises_to_one_whatever_the_threads(monkeypatch: pytest.MonkeyPatch, run: Pass, stride: int) -> None:
    monkeypatch.setattr(passes, "TILE_HEIGHT", 16)
    image = random_image((85, 12))
    seen: dict[int, list[float]] = {1: [], 3: []}
    for jobs, shares in seen.items():
        run(image, Transform.fixed(5), 20.0, stride, jobs, shares.append)
    assert seen[1] == seen[3] == sorted(set(seen[1]))
    assert 0 < seen[1][0] < seen[1][-1] == 1.0
