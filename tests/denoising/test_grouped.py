"""Groups of similar patches: kernels equal to the naive ones, tiles that cover, and laws of the whole pipeline."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import naive_groups as naive
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from plans import make_plan, run_engine

from dstl_cli.base.kernels.vectors import LANES
from dstl_cli.base.threads import Execution
from dstl_cli.denoising.grouped import (
    BEST,
    ReferenceGrid,
    channels_at_half_size,
    find_groups,
    halved_plan,
    offsets_within,
    patch_coder,
    patch_factors,
    room,
    spread,
    threshold_stage,
    whitening,
)
from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.settings import BestSettings, GroupSettings
from dstl_cli.denoising.survey import Request
from dstl_cli.measure.metrics import peak_signal_noise_ratio
from dstl_cli.noise.model import SpectralChannel, SpectralNoise, WhiteChannel, WhiteNoise
from dstl_cli.patches.kernels import grouped as kernels
from dstl_cli.patches.tiles import tiles_in
from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.transforms.transform import Transform

psnr = partial(peak_signal_noise_ratio, data_range=255)

Array32 = NDArray[np.float32]
DCT = Transform.fixed(8)
ONE = Execution()
ROUNDING = 1e-7  # of float32, in what is small beside the largest
NOTHING = np.empty((0, 0), np.float32)  # in the place of factors: noise that is the same everywhere


def noisy_part(camera: NDArray[np.uint8], shape: tuple[int, int], sigma: float, seed: int = 0) -> Array32:
    """A crop of the photograph with noise."""
    noise = sigma * np.random.default_rng(seed).standard_normal(shape)
    return (camera[20 : 20 + shape[0], 30 : 30 + shape[1]] + noise).astype(np.float32)


def denoise_groups(
    pictures: list[Array32], sigmas: Sequence[float], transform: Transform, config: GroupSettings, execution: Execution
) -> list[Array32]:
    """All channels of a picture."""
    settings = BestSettings(groups=config)
    return [np.asarray(image) for image in run_engine("best", settings, pictures, sigmas, transform, execution)]


def denoised(picture: NDArray[Any], sigma: float, transform: Transform = DCT, **changes: Any) -> Array32:
    """A grey picture denoised on one thread, with some of the settings changed."""
    config = GroupSettings.for_sigma(sigma, **changes)
    return denoise_groups([np.asarray(picture, dtype=np.float32)], [sigma], transform, config, ONE)[0]


# Kernels.

PLACES = st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 4))  # radius, near and far step


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=60), st.data())
def test_smallest_are_the_first_of_a_stable_sort(values: list[int], data: st.DataObject) -> None:
    floats = np.array(values, dtype=np.float32)
    chosen = np.empty(data.draw(st.integers(1, len(values))), dtype=np.int32)
    floats[floats < 0] = -1.0
    kernels.smallest(floats.view(np.int32), chosen.size, chosen)
    assume(np.count_nonzero(floats < 0) <= chosen.size)
    assert chosen.tolist() == naive.smallest(floats, chosen.size)


@given(st.data())
def test_groups_are_the_nearest_patches_by_brute_force(data: st.DataObject) -> None:
    """Whole numbers of few values: distances are exact and ties are many. All the room there is can be taken."""
    side, places = data.draw(st.integers(1, 4)), data.draw(PLACES)
    height, width = (data.draw(st.integers(side, 14)) for _ in range(2))
    levels = data.draw(st.sampled_from([1, 2, 50]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    guide = rng.integers(0, levels, (data.draw(st.sampled_from([1, 3])), height, width)).astype(np.float32)
    most = room((height, width), side, offsets_within(*places), 1000)
    rows, columns = (np.sort(rng.permutation(length - side + 1)[:3]) for length in (height, width))
    wanted = data.draw(st.one_of(st.just(most), st.integers(1, most)))
    groups = np.full((rows.size * columns.size, wanted), -1, dtype=np.int32)
    kernels.match(guide, rows, columns, side, offsets_within(*places), groups)
    references = [(r, c) for r in rows for c in columns]
    for (r, c), group in zip(references, groups, strict=True):
        assert group.tolist() == naive.similar(guide, int(r), int(c), side, places, groups.shape[1])


@pytest.mark.parametrize(("rows", "inner", "columns"), [(4, 1, 16), (8, 36, 48), (16, 64, 64), (68, 25, 112)])
def test_products(rows: int, inner: int, columns: int) -> None:
    """With one vector to seven in a row; what is beyond the products stays."""
    rng = np.random.default_rng(inner)
    left = rng.standard_normal((rows + 1, inner + 2)).astype(np.float32)
    right = rng.standard_normal((inner + 3, columns + 16)).astype(np.float32)
    out = np.full((rows + 1, columns), np.nan, dtype=np.float32)
    kernels.multiply(left, right, 16, rows, inner, out)
    expected = left[:rows, :inner].astype(float) @ right[:inner, 16:].astype(float)
    np.testing.assert_allclose(out[:rows], expected, rtol=0, atol=1e-4)
    assert np.isnan(out[rows:]).all()


@pytest.mark.parametrize(("inner", "count", "columns"), [(1, 4, 16), (64, 36, 48), (96, 52, 64), (7, 84, 96)])
def test_cross_products(inner: int, count: int, columns: int) -> None:
    rng = np.random.default_rng(count)
    left, right = (rng.standard_normal((inner, columns)).astype(np.float32) for _ in range(2))
    out = np.full((count, columns + 16), np.nan, dtype=np.float32)
    expected = left[:, :count].T.astype(float) @ right.astype(float)
    kernels.cross_products(left, right, 16, True, out)
    upper = np.triu_indices(count, 0, columns)
    np.testing.assert_allclose(out[:, 16:][upper], expected[upper], rtol=0, atol=1e-4)
    kernels.cross_products(left, right, 16, False, out)
    np.testing.assert_allclose(out[:, 16:], expected, rtol=0, atol=1e-4)
    assert np.isnan(out[:, :16]).all()


@pytest.mark.parametrize(
    ("size", "first", "width"), [(4, 16, 16), (8, 16, 48), (36, 48, 48), (52, 64, 16), (84, 96, 96)]
)
@pytest.mark.parametrize("triangular", [False, True])
def test_eliminate(size: int, first: int, width: int, triangular: bool) -> None:
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    matrix, right = root @ root.T + size * np.eye(size), rng.standard_normal((size, width))
    if triangular:
        width = -(-size // 16) * 16
        right = np.tril(rng.standard_normal((size, width)))
    system = np.zeros((size, first + width), np.float32)
    system[:, :size], system[:, first:] = matrix, right
    system[np.tril_indices(size, -1)] = 1e3  # not looked at
    kernels.eliminate(system, first, np.empty((size // 4, 4, 4), np.float32), triangular)
    factor = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(system[:, first:], np.linalg.solve(factor, right), rtol=0, atol=1e-5)
    upper = np.triu_indices(size)
    np.testing.assert_allclose(system[:, :size][upper], factor.T[upper], rtol=0, atol=1e-3)


@given(st.integers(1, 9), st.integers(1, 80), st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_combine_is_the_definition(side: int, size: int, penalty: float, seed: int) -> None:
    """Systems of patches and of the numbers of a patch give the same, also where P has less than full rank."""
    rng = np.random.default_rng(seed)
    n, rows = side * side, -(-size // 4) * 4
    pilots, currents = np.zeros((2, rows, -(-n // 16) * 16), np.float32)
    rank = rng.integers(1, n + 1)
    pilots[:size, :n] = rng.standard_normal((size, rank)) @ rng.standard_normal((rank, n))
    currents[:size, :n] = rng.standard_normal((size, n))
    scratch = kernels.scratch_of_systems(rows, n, pilots.shape[1])
    out, leverages = np.full(pilots.shape, np.nan, np.float32), np.full(rows, np.nan, np.float32)
    penalty = max(penalty, 1e-5 * float(np.sum(pilots**2)))
    gram = pilots.astype(float) @ pilots.T.astype(float)
    combination = np.linalg.solve(gram + penalty * np.eye(rows), gram)
    for _ in range(2):  # whatever was there before
        kernels.combine(pilots, currents, np.float32(penalty), n, scratch, out, leverages)
        np.testing.assert_allclose(out, combination.T @ currents, rtol=0, atol=5e-3)
        np.testing.assert_allclose(leverages, np.diag(combination), rtol=0, atol=5e-3)


@given(st.integers(1, 20), st.integers(0, 1000))
def test_patches_are_gathered_and_scattered(side: int, seed: int) -> None:
    """Patches of any side as rows of whole vectors, zeros behind them and below; neighbours of a patch stay."""
    rng = np.random.default_rng(seed)
    picture = rng.standard_normal((side + 5, side + 3)).astype(np.float32)
    rows, columns = rng.integers(0, 6, 7), rng.integers(0, 4, 7)
    corners = (rows * picture.shape[1] + columns).astype(np.int32)
    patches = np.zeros((9, -(-(side**2) // 16) * 16), np.float32)
    for order in (-1, 1):  # whatever was there before
        kernels.gather(kernels.padded(picture), picture.shape[1], side, corners[::order].copy(), patches)
    np.testing.assert_array_equal(patches[:7, : side**2], naive.patches_at(picture, corners, side))
    assert not patches[:7, side**2 :].any()
    assert not patches[7:].any()
    total = kernels.padded(picture)
    weights = rng.uniform(0.1, 2, 7).astype(np.float32)
    kernels.scatter(patches, weights, picture.shape[1], side, corners, total)
    expected = picture.astype(float)
    naive.add_at(expected, weights[:, None] * naive.patches_at(picture, corners, side), corners)
    np.testing.assert_allclose(total[: picture.size].reshape(picture.shape), expected, rtol=0, atol=1e-5)
    assert not total[picture.size :].any()


@given(st.integers(1, 6), st.integers(0, 1000))
def test_differences_of_patches(side: int, seed: int) -> None:
    first, second = np.random.default_rng(seed).standard_normal((2, 9, 11)).astype(np.float32)
    found = kernels.patch_differences(first, second, side)
    for row in range(10 - side):
        for column in range(12 - side):
            one, other = (naive.patch_at(picture, row * 11 + column, side) for picture in (first, second))
            assert found[row, column] == pytest.approx(float(np.sum((one - other) ** 2)), rel=1e-5)


@pytest.mark.parametrize(
    ("side", "size", "condition", "sigma"),
    [(1, 2, 1.0, 3.0), (2, 4, 1.0, 9.0), (3, 8, 2.0, 20.0), (8, 16, 1.0, 20.0), (8, 2, 4.0, 20.0)],
)
def test_threshold_groups_is_the_definition(
    camera: NDArray[np.uint8],
    make_transform: Callable[..., Transform],
    side: int,
    size: int,
    condition: float,
    sigma: float,
) -> None:
    transform = make_transform(side, condition)
    check_threshold(noisy_part(camera, (20, 23), sigma), transform, size, sigma, seed=1)


@given(st.integers(1, 4), st.integers(1, 3), st.floats(1.0, 5.0), st.integers(0, 1000), st.booleans())
def test_threshold_groups_is_the_definition_on_any_group(
    side: int, power: int, condition: float, seed: int, dct: bool
) -> None:
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((side**2, side**2)))[0] for _ in range(2))
    spectrum = np.geomspace(1.0, 1.0 / condition, side**2)
    transform = Transform.fixed(side) if dct else Transform(side, (u * spectrum) @ v.T, "test")
    picture = (100 + 30 * rng.standard_normal((9, 11))).astype(np.float32)
    check_threshold(picture, transform, 2**power, 15.0, seed)
    check_threshold(picture, transform, 2**power, 15.0, seed, rng.uniform(0.3, 3.0, picture.shape).astype(np.float32))


def check_threshold(
    picture: Array32, transform: Transform, size: int, sigma: float, seed: int, factors: Array32 | None = None
) -> None:
    """The kernel against the definition, on random groups none of whose coefficients is close to its threshold."""
    side, threshold = transform.patch_size, 2.6
    height, width = picture.shape
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, height - side + 1, (40, size)), rng.integers(0, width - side + 1, (40, size))
    groups = (rows * width + columns).astype(np.int32)
    centred = transform.matrix - transform.matrix.mean(axis=1, keepdims=True)
    limits = threshold * sigma * np.linalg.norm(centred, axis=1)
    clear = []
    for group in groups:
        means, codes = naive.group_coefficients(naive.patches_at(picture, group, side), transform.matrix)
        factor = 1.0 if factors is None else np.sqrt(np.mean(factors.ravel()[group].astype(float) ** 2))
        gaps = np.append(
            np.abs(np.abs(means[1:]) - factor * threshold * sigma),
            np.abs(np.abs(codes) - factor * limits)[:, limits > 1e-6],
        )
        clear.append(gaps.min(initial=np.inf) > 1e-3)
    groups = groups[clear][:20]
    assert len(groups) >= 5

    total, weights = np.zeros((2, height, width), dtype=np.float32)
    forward, backward, deviations = patch_coder(transform, WhiteChannel(sigma))
    np.testing.assert_allclose(deviations, sigma * np.linalg.norm(forward, axis=0), rtol=1e-5)
    thresholds = (threshold * deviations).astype(np.float32)
    known = NOTHING if factors is None else factors
    kernels.threshold_groups(picture, known, groups, side, forward, backward, thresholds, total, weights)
    expected, expected_weights = np.zeros((height, width)), np.zeros(height * width)
    for group in groups:
        estimate, weight = naive.threshold_group(
            naive.patches_at(picture, group, side),
            transform.matrix,
            threshold,
            sigma,
            None if factors is None else factors.ravel()[group],
        )
        naive.add_at(expected, weight * estimate, group)
        np.add.at(expected_weights, group, weight)
    np.testing.assert_allclose(weights.ravel(), expected_weights, rtol=1e-5, atol=0)
    np.testing.assert_allclose(total, expected, rtol=0, atol=0.02)


@given(
    st.integers(1, 5),
    st.integers(1, 20),
    st.floats(0, 0.9),
    st.floats(0, 1),
    st.tuples(st.floats(1, 2), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 0.3, 1.0])),
    st.sampled_from([1.0, 20.0, 300.0]),
    st.integers(0, 1000),
    st.booleans(),
    st.booleans(),
)
def test_ridge_groups_is_the_definition(
    side: int,
    size: int,
    left: float,
    removed: float,
    strength: tuple[float, float, float],
    sigma: float,
    seed: int,
    uneven: bool,
    coloured: bool,
) -> None:
    rng = np.random.default_rng(seed)
    pilot = (128 + 30 * rng.standard_normal((10, 12))).astype(np.float32)
    noisy = (pilot + sigma * rng.standard_normal(pilot.shape)).astype(np.float32)
    current = (noisy + np.float32(removed) * (pilot - noisy)).astype(np.float32)
    factors = rng.uniform(0.3, 3.0, pilot.shape).astype(np.float32) if uneven else NOTHING
    noise = SpectralChannel((0.05, 0.5), (sigma, 0.5 * sigma)) if coloured else WhiteChannel(sigma)
    white = whitening(side, noise)
    rows, columns = rng.integers(0, 11 - side, (6, size)), rng.integers(0, 13 - side, (6, size))
    groups = (rows * 12 + columns).astype(np.int32)
    sums = np.zeros((3, *pilot.shape), dtype=np.float32)
    known = np.float32(sigma), np.array(strength, np.float32), np.float32(left)
    kernels.ridge_groups(noisy, current, pilot, factors, groups, side, white, *known, *sums)
    expected = np.zeros((2, *pilot.shape))
    weights, largest = np.zeros(pilot.size), 0.0
    for group in groups:
        patches = [naive.patches_at(picture, group, side) for picture in (noisy, current, pilot)]
        own = factors.ravel()[group] if uneven else None
        matrix = white[: side**2, : side**2].T.astype(float) if white.size else None
        known_here = sigma, strength, left, own, matrix
        estimate, remaining, weight, excess = naive.ridge_group(patches[0], patches[1], patches[2], *known_here)
        largest = max(largest, excess)
        naive.add_at(expected[0], weight[:, None] * estimate, group)
        naive.add_at(expected[1], weight[:, None] * remaining, group)
        np.add.at(weights, group, weight)
    rough = ROUNDING * largest
    np.testing.assert_allclose(sums[2].ravel(), weights, rtol=1e-3 + rough, atol=0)
    covered = naive.spread(weights.reshape(pilot.shape), side)
    close = 0.01 + 2e-5 * sigma + 200 * rough
    np.testing.assert_allclose(sums[:2], expected, rtol=0, atol=close * covered.max())


@given(
    st.integers(1, 5),
    st.integers(1, 20),
    st.floats(0, 0.9),
    st.floats(0, 1),
    st.tuples(*[st.sampled_from([10.0, 20.0, 50.0])] * 3),
    st.tuples(st.floats(1, 2), st.sampled_from([0.0, 0.5, 3.0]), st.sampled_from([0.0, 0.3, 1.0])),
    st.integers(0, 1000),
)
def test_ridge_colours_is_the_definition(
    side: int,
    size: int,
    left: float,
    removed: float,
    deviations: tuple[float, float, float],
    strength: tuple[float, float, float],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((3, 3)) * [40, 15, 5]  # colours with a strong, a middling and a weak axis
    pilot = (128 + np.tensordot(mixing, rng.standard_normal((3, 10, 12)), 1)).astype(np.float32)
    sigmas = np.array(deviations, dtype=np.float32)
    noisy = (pilot + sigmas[:, None, None] * rng.standard_normal(pilot.shape)).astype(np.float32)
    current = (noisy + np.float32(removed) * (pilot - noisy)).astype(np.float32)
    rows, columns = rng.integers(0, 11 - side, (6, size)), rng.integers(0, 13 - side, (6, size))
    groups = (rows * 12 + columns).astype(np.int32)
    sums = np.zeros((7, 10, 12), dtype=np.float32)
    known = groups, side, sigmas, np.array(strength, np.float32), np.float32(left)
    kernels.ridge_colours(noisy, current, pilot, *known, sums[:3], sums[3:6], sums[6])
    expected, weights, largest = np.zeros((6, 10, 12)), np.zeros(120), 0.0
    for group in groups:
        y, x, p = (
            np.array([naive.patches_at(channel, group, side) for channel in picture])
            for picture in (noisy, current, pilot)
        )
        estimate, remaining, weight, excess = naive.ridge_colours(y, x, p, sigmas, strength, left)
        largest = max(largest, excess)
        for total, own in zip(expected, (*estimate, *remaining), strict=True):
            naive.add_at(total, weight[:, None] * own, group)
        np.add.at(weights, group, weight)
    rough = ROUNDING * largest
    np.testing.assert_allclose(sums[6].ravel(), weights, rtol=1e-3 + rough, atol=0)
    covered = naive.spread(weights.reshape(10, 12), side)
    np.testing.assert_allclose(sums[:6], expected, rtol=0, atol=(0.01 + 200 * rough) * covered.max())
    alone = np.zeros((4, 10, 12), dtype=np.float32)
    kernels.ridge_colours(noisy, current, pilot, *known, alone[:3], alone[3:3], alone[3])  # nothing remains
    np.testing.assert_array_equal(alone, sums[[0, 1, 2, 6]])


@pytest.mark.parametrize("side", [3, 4, 6, 9])
def test_what_is_beside_patches_is_not_added(side: int) -> None:
    """Memory behind the last patch may hold anything."""
    pitch = -(-(side**2) // LANES) * LANES
    patches = np.full((3, pitch), np.nan, np.float32)
    patches[:2, : side**2] = np.arange(side**2)
    flat = np.zeros(20 * 20 + LANES, np.float32)
    corners = np.array([0, 5 * 20 + 11 - side], np.int32)
    kernels.scatter(patches, np.full(corners.size, 2, np.float32), 20, side, corners, flat)
    expected = np.zeros((20, 20))
    for corner in corners:
        y, x = divmod(int(corner), 20)
        expected[y : y + side, x : x + side] += 2 * np.arange(side**2).reshape(side, side)
    np.testing.assert_array_equal(flat[:400].reshape(20, 20), expected)


def test_colours_without_any_spread_have_axes() -> None:
    """Where products are rounded, a moment may be a little below zero."""
    moments, axes = np.diag([1e-5, -1e-12, 0.0]), np.zeros((3, 3))
    kernels.principal_axes(moments, axes)
    np.testing.assert_array_equal(axes, np.eye(3))


@pytest.mark.parametrize("seed", range(40))
def test_flat_colours_stay_as_they_are(seed: int) -> None:
    colour = np.random.default_rng(seed).integers(0, 256, 3)
    flat = np.full((20, 21, 3), colour, np.uint8)
    np.testing.assert_array_equal(denoise_pixels(flat, 20.0, Request.named("best", jobs=1)).pixels, flat)


@pytest.mark.parametrize("seed", range(5))
def test_principal_axes_diagonalise(seed: int) -> None:
    root = np.random.default_rng(seed).standard_normal((3, 3)) * [100, 10, 0.1]
    moments, axes = root @ root.T, np.empty((3, 3))
    left = moments.copy()
    kernels.principal_axes(left, axes)
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(axes @ np.diag(np.diag(left)) @ axes.T, moments, rtol=0, atol=1e-9 * np.trace(moments))


@pytest.mark.parametrize("side", [3, 6, 7])
def test_whitened_patches_have_the_same_noise_in_every_wave(side: int) -> None:
    """Noise of a spectrum, simulated: its covariance in whitened patches has an even diagonal, and little beside it."""
    coarse = SpectralChannel((0.05, 0.5), (20.0, 4.0))
    size = 512
    f = np.fft.fftfreq(size)
    radius = np.clip(np.hypot(f[:, None], f[None, :]), 0.05, 0.5)
    gains = np.exp(np.interp(np.log(radius), np.log((0.05, 0.5)), np.log((20.0, 4.0))))
    noise = np.fft.ifft2(np.fft.fft2(np.random.default_rng(0).standard_normal((size, size))) * gains).real
    patches = np.lib.stride_tricks.sliding_window_view(noise, (side, side))[::3, ::3].reshape(-1, side**2)
    matrix = whitening(side, coarse)
    assert matrix.shape == (-(-(side**2) // 16) * 16,) * 2
    whitened = patches @ matrix[: side**2, : side**2]
    np.testing.assert_allclose(whitened.std(axis=0), coarse.deviation(), rtol=0.08)
    assert not matrix[side**2 :].any()
    assert not matrix[:, side**2 :].any()


def test_white_noise_is_not_whitened_again() -> None:
    assert whitening(6, WhiteChannel(20.0)).size == 0
    assert whitening(6, SpectralChannel((0.5,), (20.0,))).size == 0
    assert whitening(6, SpectralChannel((0.1, 0.5), (20.0, 5.0), floor=20.0)).size == 0


def test_patches_have_the_noise_of_their_mean_level() -> None:
    noise = SpectralChannel((0.5,), (5.0,), 0.0, (0.0, 100.0), (1.0, 3.0))
    levels = np.random.default_rng(0).uniform(0, 100, (9, 11)).astype(np.float32)
    factors = patch_factors([levels], 4, noise)
    for y in range(9 - 3):
        for x in range(11 - 3):
            assert factors[y, x] == pytest.approx(1 + levels[y : y + 4, x : x + 4].mean() / 50, rel=1e-5)
    assert patch_factors([], 4, WhiteChannel(5.0)).size == 0


# Tiles.


@given(
    st.tuples(st.integers(9, 300), st.integers(9, 300)),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 8),
    st.integers(0, 30),
)
def test_tiles_hold_every_reference_once_and_all_it_can_see(
    shape: tuple[int, int], side: int, stride: int, shift: int, radius: int
) -> None:
    assume(max(stride, shift) <= side)
    grid = ReferenceGrid(side, stride, shift, radius, near=2, far_step=3, group=1)
    rows, columns = (grid.positions(length) for length in shape)
    for positions, length in ((rows, shape[0]), (columns, shape[1])):
        assert positions[0] == 0
        assert positions[-1] == length - side
        assert np.diff(positions).max(initial=0) <= side  # no gap between patches
    found = []
    tiles, done = tiles_in(grid.tiles(shape), Box.whole(shape))
    assert done == Box.whole(shape)
    for tile in tiles:
        top, bottom, left, right = tile.box.top, tile.box.bottom, tile.box.left, tile.box.right
        found += [(r + top, c + left) for r in tile.rows for c in tile.columns]
        for local, first, last, length in (
            (tile.rows, top, bottom, shape[0]),
            (tile.columns, left, right, shape[1]),
        ):
            assert first == max(local[0] + first - radius, 0)
            assert last == min(local[-1] + first + radius + side, length)
    assert sorted(found) == [(r, c) for r in rows for c in columns]


def test_groups_do_not_depend_on_the_tiles(camera: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch) -> None:
    guide = camera[:70, :90].astype(np.float32)
    grid = ReferenceGrid(patch_size=6, stride=5, shift=2, radius=8, near=4, far_step=3, group=20)

    def groups_in_the_picture() -> dict[tuple[int, int], list[tuple[int, int]]]:
        found = {}
        groups = find_groups([Plane.whole(guide)], grid, ONE)
        tiles, _ = tiles_in(groups.grid, groups.box)
        assert list(groups.corners) == [tile.place for tile in tiles]
        for tile, corners in zip(tiles, groups.corners.values(), strict=True):
            top, left, width = tile.box.top, tile.box.left, tile.box.shape[1]
            references = [(r + top, c + left) for r in tile.rows for c in tile.columns]
            for reference, group in zip(references, corners, strict=True):
                found[reference] = [(corner // width + top, corner % width + left) for corner in group]
        return found

    whole = groups_in_the_picture()
    assert all(reference in group for reference, group in whole.items())
    monkeypatch.setattr("dstl_cli.denoising.grouped.TILE", (16, 24))
    assert groups_in_the_picture() == whole


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 100))
def test_spread(height: int, width: int, side: int, seed: int) -> None:
    assume(side <= min(height, width))
    weights = np.random.default_rng(seed).integers(0, 5, (height, width)).astype(np.float32)
    weights[height - side + 1 :] = 0
    weights[:, width - side + 1 :] = 0
    np.testing.assert_array_equal(spread(weights, side), naive.spread(weights, side))


# The patch coder.


@pytest.mark.parametrize("condition", [1.0, 5.0])
@pytest.mark.parametrize("side", [1, 2, 8])
def test_codes_go_back_to_the_patches(make_transform: Callable[..., Transform], side: int, condition: float) -> None:
    patches = np.random.default_rng(0).uniform(0, 255, (7, side**2)).astype(np.float32)
    for transform in (make_transform(side, condition), Transform.fixed(side)):
        forward, backward, deviations = patch_coder(transform, WhiteChannel(7.0))
        np.testing.assert_allclose(deviations, 7 * np.linalg.norm(forward, axis=0), rtol=1e-5)
        assert all(length % 16 == 0 for length in forward.shape)
        codes = patches @ forward[: side**2]
        np.testing.assert_allclose(codes[:, 0], patches.mean(axis=1) * side, rtol=1e-5)
        np.testing.assert_allclose((codes @ backward)[:, : side**2], patches, rtol=0, atol=0.01)


def test_the_dct_has_one_code_for_the_mean_and_one_for_each_other_wave() -> None:
    assert patch_coder(DCT, WhiteChannel(1.0))[0].shape == (64, 64)


# The first stage.


def test_a_threshold_of_zero_keeps_all(camera: NDArray[np.uint8]) -> None:
    noisy = noisy_part(camera, (30, 33), 20.0)
    plane = Plane.whole(noisy)
    groups = find_groups(
        [plane], ReferenceGrid(patch_size=8, stride=4, shift=0, radius=5, near=5, far_step=1, group=4), ONE
    )
    result = threshold_stage([plane], WhiteChannel(20.0), groups, DCT, 0.0, ONE)
    np.testing.assert_allclose(result.values, noisy, rtol=0, atol=1e-3)


# The pipeline.


@pytest.mark.parametrize("sigma", [5.0, 25.0, 50.0, 100.0])
def test_noise_is_removed(camera: NDArray[np.uint8], sigma: float) -> None:
    noisy = noisy_part(camera, (96, 96), sigma)
    clean = camera[20:116, 30:126].astype(float)
    before, after = (psnr(clean, picture.astype(float)) for picture in (noisy, denoised(noisy, sigma)))
    assert after > before + {5.0: 2.0, 25.0: 6.5, 50.0: 9.0, 100.0: 11.5}[sigma]


def test_more_passes_are_better_than_the_first_stage_alone(camera: NDArray[np.uint8]) -> None:
    noisy = noisy_part(camera, (96, 96), 25.0)
    clean = camera[20:116, 30:126].astype(float)
    alone, all_passes = (psnr(clean, denoised(noisy, 25.0, passes=passes).astype(float)) for passes in (0, 6))
    assert all_passes > alone + 0.2


@pytest.mark.parametrize("channels", [1, 3])
def test_the_same_bytes_on_any_number_of_threads(camera: NDArray[np.uint8], channels: int) -> None:
    pictures = [noisy_part(camera, (90, 98), 20.0, seed) for seed in range(channels)]
    config = GroupSettings.for_sigma(20.0, passes=3)
    one, two, five = (denoise_groups(pictures, [20.0] * channels, DCT, config, Execution(jobs)) for jobs in (1, 2, 5))
    for a, b, c in zip(one, two, five, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (7, 9), (8, 8), (200, 13), (6, 70), (3, 2)])
@pytest.mark.parametrize("sigma", [3.0, 20.0, 60.0, 5000.0])
def test_any_size(camera: NDArray[np.uint8], shape: tuple[int, int], sigma: float) -> None:
    picture = np.resize(camera, shape) + np.random.default_rng(0).standard_normal(shape)
    result = denoised(picture, sigma)
    assert result.shape == shape
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
    assert result.min() > picture.min() - 40
    assert result.max() < picture.max() + 40


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (30, 41), (70, 130)])
@pytest.mark.parametrize("value", [0.0, 255.0, -90.0])
@pytest.mark.parametrize("sigma", [1.0, 25.0, 100.0])
def test_a_constant_picture_stays(shape: tuple[int, int], value: float, sigma: float) -> None:
    np.testing.assert_allclose(denoised(np.full(shape, value), sigma), value, rtol=1e-5, atol=1e-6)


def test_a_flat_picture_becomes_flat() -> None:
    noisy = 90 + 20 * np.random.default_rng(3).standard_normal((96, 96))
    assert denoised(noisy, 20.0).std() < 1.6


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 0.05, 0.5])
def test_little_noise_changes_little(camera: NDArray[np.uint8], sigma: float) -> None:
    noisy = noisy_part(camera, (60, 60), sigma)
    difference = denoised(noisy, sigma) - noisy
    assert float(np.sqrt(np.mean(difference**2))) < 1.2 * sigma + 0.02


def test_a_constant_added_to_the_picture_is_added_to_the_result(camera: NDArray[np.uint8]) -> None:
    noisy = noisy_part(camera, (60, 60), 20.0)
    shifted = denoised(np.rint(noisy) + 64, 20.0)
    np.testing.assert_allclose(shifted - 64, denoised(np.rint(noisy), 20.0), rtol=0, atol=0.05)


def test_a_channel_without_noise_comes_back_as_it_is(camera: NDArray[np.uint8]) -> None:
    pictures = [noisy_part(camera, (40, 40), 20.0, seed) for seed in range(3)]
    config = GroupSettings.for_sigma(20.0)
    for clean in range(3):
        sigmas = [0.0 if index == clean else 20.0 for index in range(3)]
        results = denoise_groups(pictures, sigmas, DCT, config, ONE)
        for index in range(3):
            assert np.array_equal(results[index], pictures[index]) == (index == clean)
    results = denoise_groups(pictures, [0.0] * 3, DCT, config, ONE)
    assert all(np.array_equal(a, b) for a, b in zip(results, pictures, strict=True))


def test_constant_channels_do_not_change_the_others(camera: NDArray[np.uint8]) -> None:
    picture, flat = noisy_part(camera, (60, 60), 20.0), np.full((60, 60), np.float32(7.0))
    results = denoise_groups([picture, flat, flat], [20.0, 20.0, 0.0], DCT, GroupSettings.for_sigma(20.0), ONE)
    np.testing.assert_allclose(results[0], denoised(picture, 20.0), rtol=0, atol=1e-3)


def test_chrominance_uses_the_groups_of_the_luminance(camera: NDArray[np.uint8]) -> None:
    """Two channels of one structure: the one with more noise gains from groups found on the other."""
    luminance, chrominance = noisy_part(camera, (90, 90), 5.0), noisy_part(camera, (90, 90), 50.0, seed=1)
    clean = camera[20:110, 30:120].astype(float)
    config = GroupSettings.for_sigma(
        50.0, halvings=0
    )  # the groups of one scale: half the size helps the one alone, too
    together = denoise_groups([luminance, chrominance], [5.0, 50.0], DCT, config, ONE)[1]
    alone = denoise_groups([chrominance], [50.0], DCT, config, ONE)[0]
    assert psnr(clean, together.astype(float)) > psnr(clean, alone.astype(float)) + 0.5


@pytest.mark.parametrize("sigmas", [(20.0,), (20.0, 20.0, 20.0), (20.0, 0.0, 5.0), (0.0, 20.0, 20.0)])
def test_progress_grows_to_one(camera: NDArray[np.uint8], sigmas: tuple[float, ...]) -> None:
    shares: list[float] = []
    pictures = [camera.astype(np.float32)] * len(sigmas)
    config = GroupSettings.for_sigma(20.0, passes=2)
    denoise_groups(pictures, sigmas, DCT, config, Execution(2, shares.append))
    assert shares == sorted(set(shares))
    assert shares[-1] == pytest.approx(1.0)
    assert len(shares) > 10


def test_progress_grows_to_one_with_coarser_scales(camera: NDArray[np.uint8]) -> None:
    """They are the last step: it is not done before them."""
    shares: list[float] = []
    noise = SpectralNoise((SpectralChannel((0.05, 0.3), (40.0, 2.0)),))
    request = Request.named("best", method="dct", jobs=1)
    denoise_pixels(camera.astype(np.float32), noise, request, progress=shares.append)
    assert shares == sorted(set(shares))
    assert shares[-1] == pytest.approx(1.0)
    assert shares[-2] < 0.999


def test_the_input_is_left_alone(camera: NDArray[np.uint8]) -> None:
    picture = noisy_part(camera, (40, 40), 20.0)
    picture.flags.writeable = False
    before = picture.copy()
    denoised(picture, 20.0)
    assert np.array_equal(picture, before)


class CountedMemory:
    """Allocates arrays, and knows how many bytes of them were in use at a time, at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def allocate(self, shape: tuple[int, int], dtype: Any) -> NDArray[Any]:
        array = np.empty(shape, dtype)
        self._count(array.nbytes)
        weakref.finalize(array, self._count, -array.nbytes)
        return array

    def _count(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


@pytest.mark.parametrize("levels", [(), (0.0, 255.0)])
def test_planes_that_are_no_more_are_written_over(levels: tuple[float, ...]) -> None:
    """Beside the noisy picture there are no more planes than the engine says."""
    shape = (96, 160)
    factors = (0.7, 1.4)[: len(levels)]
    noise = SpectralNoise((SpectralChannel((0.05, 0.3), (40.0, 20.0), levels=levels, factors=factors),) * 3)
    groups = GroupSettings(window_radius=6, near_radius=4, first_radius=5, first_group=4, group=16, passes=4)
    plan = replace(make_plan("best", BestSettings(groups=groups), shape, (20.0,) * 3, DCT), noise=noise)
    rng, memory = np.random.default_rng(0), CountedMemory()
    planes = [Plane.whole((100 + 20 * rng.standard_normal(shape)).astype(np.float32)) for _ in range(3)]
    BEST.run(planes, plan, Execution(allocate=memory.allocate))
    assert 0 < memory.most <= 1.02 * BEST.planes(plan) * planes[0].values.nbytes
    assert memory.now == 0


def test_a_stride_that_leaves_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="3x3 pixels; best needs at least 4x4"):
        BEST.transform_for(
            Plane.whole(np.ones((9, 9), np.float32)),
            WhiteChannel(1.0),
            BestSettings(),
            TransformSource(Transform.fixed(3)),
            1,
        )


# Noise with a spectrum and a level function.


def test_half_the_size_comes_first() -> None:
    """Broad waves in strong noise, which patches of the fine picture alone hardly tell from it."""
    clean = 128 + 60 * np.sin(np.arange(128)[:, None] / 9) * np.sin(np.arange(128) / 11)
    noisy = (clean + 50 * np.random.default_rng(0).standard_normal(clean.shape)).astype(np.float32)
    gains = [psnr(clean, denoised(noisy, 50.0, halvings=count).astype(float)) for count in (0, 1, 2)]
    assert gains[1] > gains[0] + 1
    assert gains[2] > gains[1] + 0.3


def test_half_the_size_only_where_it_shows_more_and_there_is_room() -> None:
    settings = BestSettings(groups=GroupSettings.for_sigma(20.0))
    plan = make_plan("best", settings, (99, 120), (20.0,), DCT)
    half = halved_plan(plan)
    assert half is not None
    assert half.shape == (50, 60)
    assert half.noise.sigmas[0] == pytest.approx(10, rel=0.06)  # the filter passes a little more than half the band
    quarter = halved_plan(half)
    assert quarter is not None
    assert halved_plan(quarter) is None
    assert halved_plan(replace(plan, shape=(45, 120))) is None
    assert halved_plan(replace(plan, noise=SpectralNoise((SpectralChannel((0.1, 0.5), (4.0, 20.0)),)))) is None
    coarse = SpectralNoise((SpectralChannel((0.05, 0.5), (20.0, 4.0)),))
    half = halved_plan(replace(plan, noise=coarse))
    assert half is not None
    assert half.noise == coarse.halved()


def test_coarse_noise_of_colours_is_removed_at_half_the_size() -> None:
    """The chrominances have their own detail beside it: an edge between two colours stays where it was."""
    settings = BestSettings(groups=GroupSettings.for_sigma(20.0, 3, coarse=True))
    noise = SpectralNoise((SpectralChannel((0.1, 0.25), (32.0, 2.0)),) * 3)
    plan = replace(make_plan("best", settings, (128, 160), (20.0,) * 3, DCT), noise=noise)
    assert channels_at_half_size(plan) == [1, 2]
    assert channels_at_half_size(replace(plan, noise=WhiteNoise((20.0,) * 3))) == []
    rng = np.random.default_rng(0)
    clean = np.zeros((3, 128, 160))
    clean[1:, :, 71:] = 90.0
    coarse = [np.kron(rng.standard_normal((32, 40)), np.ones((4, 4))) for _ in range(3)]
    noisy = clean + 8 * np.array(coarse)
    planes = [Plane.whole(channel.astype(np.float32)) for channel in noisy]
    results = BEST.run(planes, plan, ONE)
    for index in (1, 2):
        found = results[index].values
        assert np.mean((found - clean[index]) ** 2) < 0.25 * np.mean((noisy[index] - clean[index]) ** 2)
        assert np.abs(found[:, 69:73] - clean[index][:, 69:73]).mean() < 12


def denoised_with(picture: Array32, noise: SpectralChannel, quality: str = "best") -> NDArray[Any]:
    """A grey picture whose noise is known, by the DCT."""
    return denoise_pixels(picture, SpectralNoise((noise,)), Request.named(quality, method="dct", jobs=1)).pixels


def test_photon_noise_is_removed_as_it_is(camera: NDArray[np.uint8]) -> None:
    """Knowing how it grows is worth a decibel over its mean deviation."""
    clean = camera.astype(np.float64)
    deviations = np.sqrt(3.0 * clean + 20)
    noisy = (clean + deviations * np.random.default_rng(0).standard_normal(clean.shape)).astype(np.float32)
    levels = np.linspace(0, 255, 9)
    mean = float(np.sqrt(np.mean(deviations**2)))
    factors = np.sqrt(3.0 * levels + 20) / mean
    known = SpectralChannel((0.5,), (mean,), 0.0, tuple(map(float, levels)), tuple(map(float, factors)))
    even = replace(known, levels=(), factors=())
    gains = (
        psnr(clean, denoised_with(noisy, known).astype(float)),
        psnr(clean, denoised_with(noisy, even).astype(float)),
    )
    assert gains[0] > gains[1] + 0.4


def test_coarse_noise_is_removed_by_its_spectrum(camera: NDArray[np.uint8]) -> None:
    """Noise that grows towards coarse structures, against white noise of the same deviation."""
    clean = camera.astype(np.float64)
    coarse = SpectralChannel((0.05, 0.3), (40.0, 2.0))
    f = np.fft.fftfreq(128)
    radius = np.clip(np.hypot(f[:, None], f[None, :]), 0.05, 0.3)
    gains = np.exp(np.interp(np.log(radius), np.log(coarse.frequencies), np.log(coarse.deviations_at)))
    noise = np.fft.ifft2(np.fft.fft2(np.random.default_rng(0).standard_normal((128, 128))) * gains).real
    noisy = (clean + noise).astype(np.float32)
    white = SpectralChannel((0.5,), (coarse.deviation(),))
    known, flat = (psnr(clean, denoised_with(noisy, model).astype(float)) for model in (coarse, white))
    assert known > flat + 0.5
    assert known > psnr(clean, noisy.astype(float)) + 0.5


def test_a_flat_spectrum_is_worked_on_as_white_noise(camera: NDArray[np.uint8]) -> None:
    noisy = noisy_part(camera, (70, 80), 20.0)
    flat = denoised_with(noisy, SpectralChannel((0.5,), (20.0,)))
    white: NDArray[Any] = denoise_pixels(noisy, 20.0, Request.named("best", method="dct", jobs=1)).pixels
    np.testing.assert_allclose(flat, white, rtol=0, atol=0.01)


# Settings.


BAD_SETTINGS: dict[str, list[Any]] = {
    "window_radius": [0, 65],
    "first_radius": [0, 65],
    "near_radius": [-1],
    "far_step": [0],
    "first_stride": [0],
    "first_group": [1],
    "threshold": [-0.1, float("nan")],
    "chroma_threshold": [-0.1],
    "patch_size": [0, 33],
    "stride": [0, 7],
    "group": [0],
    "passes": [-1],
    "matchings": [0],
    "size_steps": [(), (0, -6)],
    "grid_shift": [-1],
    "noise_kept": [1.0, -0.1],
    "guide_noise": [1.1, -0.1],
    "pilot_noise": [1.1, -0.1],
    "mean_penalty": [-0.1, np.inf],
    "mean_passes": [-1],
    "overshoot": [1.1, -0.1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, bad in BAD_SETTINGS.items() for value in bad])
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        replace(GroupSettings(), **{name: value})


@given(st.floats(0, 1e6))
def test_settings_for_any_noise(sigma: float) -> None:
    config = GroupSettings.for_sigma(sigma)
    shares = [config.noise_after(number) for number in range(config.passes)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0
    for matching in range(config.matchings):
        assert 0 <= config.shift_of(matching) < config.stride_of(matching) <= config.patch_size_of(matching)
    scales = [config.penalty_of(number) for number in range(config.passes)]
    assert scales == sorted(scales, reverse=True)
    assert scales[-1] >= 1
    damped = [config.removal(number).mean_penalty > 0 for number in range(config.passes)]
    late = config.mean_passes if config.mean_penalty else 0
    assert damped == [False] * (config.passes - late) + [True] * late
    assert GroupSettings.for_sigma(sigma, group=5).group == 5
    colour = GroupSettings.for_sigma(sigma, 3)
    assert colour.guide_noise < config.guide_noise
    assert colour.stride >= config.stride
    assert GroupSettings.for_sigma(sigma, 3, stride=1, guide_noise=1.0).guide_noise == 1.0


def test_settings_refuse_bad_noise() -> None:
    with pytest.raises(ValueError, match="sigma must be"):
        GroupSettings.for_sigma(-1.0)
