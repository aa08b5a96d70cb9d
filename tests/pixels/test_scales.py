"""Coarser pictures by local filters: white noise halves and stays white, and windows give what the whole gives."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.pixels.scales import (
    BASE_REACH,
    DETAIL_SIDE,
    HALF_BAND,
    NOISE_GAIN,
    REACH,
    SHARP,
    SHARP_LOBES,
    SMALLEST_BASE,
    detail_filters,
    detailed,
    doubled,
    exchanged,
    halved,
    halved_shape,
    most_halvings,
    smooth_base,
    under,
    windowed_sinc,
    with_detail_of,
    with_low_from,
)

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]

SHAPES = [(2, 2), (3, 2), (5, 9), (1, 1), (1, 40), (64, 64), (31, 100)]
LARGE = (75, 90)  # windows inside are smaller by much than the picture


def random_image(shape: tuple[int, int], seed: int = 0, dtype: Any = np.float32) -> Floats:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)


def waves(shape: tuple[int, int], longest: float) -> Array:
    """Two cosines with periods of `longest` pixels and a little less, symmetric about the picture's first corner."""
    rows, columns = (np.arange(length) + 0.5 for length in shape)
    return np.asarray(
        3.0 + np.cos(2 * np.pi * rows / longest)[:, None] + 2 * np.cos(2 * np.pi * columns / (0.9 * longest))[None, :]
    )


def boxes(shape: tuple[int, int]) -> st.SearchStrategy[Box]:
    """Boxes within a picture, many of them at its borders."""

    def ends(length: int) -> st.SearchStrategy[tuple[int, int]]:
        places = st.integers(0, length) | st.sampled_from([0, length])
        return st.tuples(places, places).map(lambda pair: (min(pair), max(pair))).filter(lambda pair: pair[0] < pair[1])

    return st.builds(lambda r, c: Box(r[0], c[0], r[1], c[1]), ends(shape[0]), ends(shape[1]))


# Filters.


@pytest.mark.parametrize("taps", [HALF_BAND, SHARP, windowed_sinc(15, 0.3, 4.0)])
def test_filters_are_symmetric_low_passes(taps: Array) -> None:
    assert taps.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(taps, taps[::-1], atol=1e-15)
    response = np.abs(np.fft.rfft(taps, 4096))
    assert response.max() < 1.01
    assert response[-400:].max() < 0.01


def test_the_half_band_filter_keeps_noise_white() -> None:
    """|H(w)|^2 + |H(w + pi)|^2 is nearly constant."""
    power = np.abs(np.fft.fft(HALF_BAND, 4096)) ** 2
    folded = power + np.roll(power, 2048)
    assert np.abs(folded / folded.mean() - 1).max() < 0.08
    assert len(SHARP) == len(HALF_BAND) == 2 * REACH
    assert pytest.approx(0.5, rel=0.02) == NOISE_GAIN


# Halving.


@pytest.mark.parametrize("taps", [HALF_BAND, SHARP])
@pytest.mark.parametrize("shape", SHAPES)
def test_halving_is_its_definition(shape: tuple[int, int], taps: Array) -> None:
    """The filter over the mirrored picture along both axes, between every second pair of pixels."""
    image = random_image(shape, dtype=np.float64)
    half = halved(Plane.whole(image), taps)
    # scipy looks at 16 pixels around place i from i - 8 to i + 7: i = 1, 3, ... is between pixels 2k and 2k + 1
    expected = image
    for axis in (0, 1):
        longer = np.pad(expected, [(0, 1) if axis == k else (0, 0) for k in (0, 1)], mode="symmetric")
        exact = np.pad(expected, [(40, 40) if axis == k else (0, 0) for k in (0, 1)], mode="symmetric")
        filtered = correlate1d(exact, taps, axis=axis)
        places = 40 + np.arange(1, longer.shape[axis], 2)
        expected = np.take(filtered, places, axis=axis)
    assert half.shape == half.values.shape == halved_shape(shape)
    assert half.box == Box.whole(half.shape)
    np.testing.assert_allclose(half.values, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("value", [0.0, 5.0, -1e6])
def test_constants_stay(shape: tuple[int, int], value: float, dtype: type[np.floating[Any]]) -> None:
    plane = Plane.whole(np.full(shape, value, dtype))
    half = halved(plane)
    back = doubled(half, shape)
    assert half.values.dtype == back.values.dtype == dtype
    assert back.values.shape == shape
    np.testing.assert_allclose(half.values, value, rtol=2e-6)
    np.testing.assert_allclose(back.values, value, rtol=2e-3)  # even and odd taps add up to nearly the same
    other = Plane.whole(np.full(halved_shape(shape), value + 3, dtype))
    if min(shape) > 1:
        np.testing.assert_allclose(with_low_from(plane, other, 0.7).values, value + 3, rtol=2e-6, atol=1e-2)
        np.testing.assert_allclose(with_low_from(plane, half, 0.3).values, value, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_halved_noise_is_white_and_has_the_deviation_told(depth: int) -> None:
    plane = Plane.whole(random_image((1600, 1601), seed=3, dtype=np.float64))
    for _ in range(depth):
        plane = halved(plane)
    inner, sigma = plane.values[20:-20, 20:-20], NOISE_GAIN**depth
    assert inner.std() == pytest.approx(sigma, rel=0.04)
    for y, x in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (2, 2), (0, 3)):
        height, width = inner.shape
        neighbours = inner[y:, x:] * inner[: height - y, : width - x]
        assert abs(neighbours.mean()) < 0.035 * sigma**2


def test_noise_is_as_strong_at_the_borders() -> None:
    """Mirrored noise adds up a little, within the filter's reach alone."""
    halves = [halved(Plane.whole(random_image((40, 40), seed, np.float64))).values for seed in range(600)]
    deviations = np.std(halves, axis=0)
    assert deviations[5:-5, 5:-5].mean() == pytest.approx(NOISE_GAIN, rel=0.02)
    assert deviations[:, :2].mean() < 1.5 * NOISE_GAIN
    assert deviations[:, -2:].mean() < 1.5 * NOISE_GAIN


@pytest.mark.parametrize("shape", [(64, 64), (65, 98), (97, 63)])
def test_a_smooth_picture_halved_is_the_picture_between_the_pixels(shape: tuple[int, int]) -> None:
    """A coarse pixel lies in the middle of four fine ones."""
    fine = waves((shape[0], shape[1]), 24.0)
    rows, columns = (2 * np.arange(length) + 1.0 for length in halved_shape(shape))
    expected = 3.0 + np.cos(2 * np.pi * rows / 24.0)[:, None] + 2 * np.cos(2 * np.pi * columns / (0.9 * 24.0))[None, :]
    half = halved(Plane.whole(fine))
    inner = (slice(0, -5), slice(0, -5))  # mirrored waves go on at the first corner, not at the last one
    np.testing.assert_allclose(half.values[inner], expected[inner], atol=0.03)


@pytest.mark.parametrize("shape", [(64, 64), (65, 98), (97, 63)])
@pytest.mark.parametrize("period", [16.0, 24.0, 60.0])
def test_low_frequencies_survive_halving_and_doubling(shape: tuple[int, int], period: float) -> None:
    fine = waves(shape, period)
    back = doubled(halved(Plane.whole(fine)), shape)
    assert back.box == Box.whole(shape)
    np.testing.assert_allclose(back.values[:-16, :-16], fine[:-16, :-16], atol=0.05)


def test_high_frequencies_do_not_survive() -> None:
    rows, columns = np.indices((64, 64))
    checks = np.where((rows + columns) % 2, 1.0, -1.0)
    assert np.abs(halved(Plane.whole(checks)).values[4:-4, 4:-4]).max() < 0.01
    stripes = np.where(rows % 2, 1.0, -1.0)
    assert np.abs(halved(Plane.whole(stripes)).values[4:-4]).max() < 0.01


@given(st.integers(0, 20), st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 40))
def test_how_often_a_picture_is_halved(wanted: int, height: int, width: int, smallest: int) -> None:
    depth, shape = most_halvings((height, width), wanted, smallest), (height, width)
    for _ in range(depth):
        shape = halved_shape(shape)
    assert 0 <= depth <= wanted
    assert depth == 0 or min(shape) >= smallest
    assert depth == wanted or min(halved_shape(shape)) < smallest


# Windows.


def same_as_whole(part: Plane, whole: Plane) -> None:
    """The part has what the whole has there, bit by bit."""
    assert part.shape == whole.shape
    assert part.values.shape == part.box.shape
    assert whole.box.holds(part.box)
    assert part.values.tobytes() == whole.window(part.box).tobytes()


def wide_enough(box: Box, shape: tuple[int, int], least: int) -> Box:
    """The box, grown until windows of it have something left."""
    return box.grown(least, shape)


@given(boxes(LARGE), st.sampled_from([np.float32, np.float64]))
def test_halved_windows_are_those_of_the_whole(box: Box, dtype: type[np.floating[Any]]) -> None:
    whole = Plane.whole(random_image(LARGE, dtype=dtype))
    same_as_whole(halved(whole.cut(wide_enough(box, LARGE, REACH))), halved(whole))


@given(boxes(LARGE))
def test_halving_needs_what_it_says(box: Box) -> None:
    """`under` a box of the coarse picture is what gives that box, and without it nothing else is said."""
    coarse = Box(box.top // 2, box.left // 2, -(-box.bottom // 2), -(-box.right // 2))
    whole = Plane.whole(random_image(LARGE))
    part = halved(whole.cut(under(coarse, LARGE)))
    assert part.box.holds(coarse)
    same_as_whole(part, halved(whole))


@given(boxes(LARGE), st.booleans(), st.booleans())
def test_doubled_windows_are_those_of_the_whole(box: Box, odd_rows: bool, odd_columns: bool) -> None:
    whole = Plane.whole(random_image(LARGE))
    shape = (2 * LARGE[0] - odd_rows, 2 * LARGE[1] - odd_columns)
    part = doubled(whole.cut(wide_enough(box, LARGE, REACH // 2)), shape)
    same_as_whole(part, doubled(whole, shape))


@pytest.mark.parametrize("shape", [(150, 180), (149, 180), (150, 179), (149, 179)])
@pytest.mark.parametrize(("share", "lobes"), [(0.3, SHARP_LOBES), (0.7, SHARP_LOBES), (0.3, 1.0)])
def test_low_frequencies_given_to_windows_are_those_of_the_whole(
    shape: tuple[int, int], share: float, lobes: float
) -> None:
    fine, coarse = Plane.whole(random_image(shape)), Plane.whole(random_image(halved_shape(shape), seed=1))
    whole = with_low_from(fine, coarse, share, lobes=lobes)
    assert whole.box == Box.whole(shape)
    rng = np.random.default_rng(0)
    smaller = 0
    for _ in range(40):
        (top, bottom), (left, right) = (np.sort(rng.choice(length + 1, 2, replace=False)) for length in shape)
        box = Box(int(top), int(left), int(bottom), int(right))
        for wanted in (box, Box(box.top, box.left, box.top + 1, box.left + 1), Box(0, box.left, 3, box.right)):
            fine_box, coarse_box = exchanged(wanted, share, shape, lobes)
            part = with_low_from(fine.cut(fine_box), coarse.cut(coarse_box), share, lobes=lobes)
            assert part.box.holds(wanted)
            same_as_whole(part, whole)
            smaller += fine_box != Box.whole(shape)
    assert smaller > 20


def test_bases_of_windows_are_those_of_the_whole() -> None:
    shape = (211, 190)
    plane = Plane.whole(random_image(shape, dtype=np.float64))
    whole = smooth_base(plane)
    assert whole.box == Box.whole(shape)
    for wanted in (Box(0, 0, 1, 1), Box(100, 90, 101, 91), Box(210, 189, 211, 190), Box(63, 64, 140, 127)):
        part = smooth_base(plane.cut(wanted.grown(BASE_REACH, shape)))
        assert part.box.holds(wanted)
        same_as_whole(part, whole)


@pytest.mark.parametrize("shape", [(SMALLEST_BASE, SMALLEST_BASE), (5, 40), (100, 90)])
def test_a_base_follows_a_slope(shape: tuple[int, int]) -> None:
    """What is left has no more than the slope's changes near the borders, where it is mirrored."""
    rows, columns = np.indices(shape)
    slope = 1e9 * (rows + columns) / sum(shape)
    base = smooth_base(Plane.whole(slope))
    assert base.values.shape == shape
    step = 1e9 / sum(shape)
    assert np.abs(slope - base.values).max() < 12 * step
    if min(shape) > 80:
        assert np.abs(slope - base.values)[40:-40, 40:-40].max() < 0.05 * step


# Low frequencies from the coarser picture.


@pytest.mark.parametrize("shape", [(30, 41), (96, 97), (64, 128)])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_picture_with_its_own_low_frequencies_is_itself(shape: tuple[int, int], share: float) -> None:
    plane = Plane.whole(random_image(shape) + np.float32(100.0))
    np.testing.assert_array_equal(with_low_from(plane, halved(plane), share).values, plane.values)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_low_frequencies_come_by_their_weight(weight: float) -> None:
    fine, coarse = Plane.whole(random_image((40, 51))), Plane.whole(random_image((20, 26), seed=1))
    whole = with_low_from(fine, coarse, 0.3, lobes=1.0).values
    part = with_low_from(fine, coarse, 0.3, lobes=1.0, weight=weight).values
    np.testing.assert_allclose(part, fine.values + weight * (whole - fine.values), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("share", "period"), [(0.3, 8.3), (0.7, 2.6)])
def test_low_frequencies_come_from_the_coarse_and_the_others_from_the_fine(share: float, period: float) -> None:
    """A slow wave of the coarse picture replaces that of the fine one; a fast one of either changes nothing."""
    shape = (192, 192)
    slow, fast = waves(shape, 96.0), 5 * waves(shape, period)
    fine = Plane.whole(fast)
    coarse = halved(Plane.whole(slow))
    inner = (slice(24, -24), slice(24, -24))
    result = with_low_from(fine, coarse, share).values
    expected = fast - fast.mean() + slow
    np.testing.assert_allclose(result[inner], expected[inner], atol=0.45)
    np.testing.assert_allclose(result[inner].mean(), expected[inner].mean(), atol=0.05)
    # and above that share of the coarse picture's band nothing comes from it
    quick = halved(Plane.whole(waves(shape, 96.0) + 5 * waves(shape, period) - 15.0))
    np.testing.assert_allclose(with_low_from(fine, quick, share).values[inner], expected[inner], atol=0.6)


@pytest.mark.parametrize("run", [halved, smooth_base, lambda plane: doubled(plane, (40, 42))])
def test_the_planes_given_stay_as_they_are(run: Callable[[Plane], Plane]) -> None:
    plane = Plane.whole(random_image((20, 21)))
    before = plane.values.copy()
    plane.values.flags.writeable = False
    run(plane)
    coarse = halved(plane)
    coarse.values.flags.writeable = False
    with_low_from(plane, coarse, 0.7)
    np.testing.assert_array_equal(plane.values, before)


# Detail beside the coarser picture.


def naive_detail(fine: Floats, deviation: float, factors: Floats | None = None) -> Array:
    """What stays of a picture's detail, pixel by pixel."""
    lost = fine - doubled(halved(Plane.whole(fine)), fine.shape).values
    mirrored = np.pad(lost, DETAIL_SIDE // 2, mode="symmetric")
    kept = np.zeros(fine.shape)
    for r, c in np.ndindex(*fine.shape):
        energy = (mirrored[r : r + DETAIL_SIDE, c : c + DETAIL_SIDE] ** 2).mean()
        noise = (deviation * (1 if factors is None else factors[r // 2, c // 2])) ** 2
        kept[r, c] = lost[r, c] * max(energy - noise, 0) / energy
    return kept


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("shape", [(30, 41), (33, 26)])
def test_detail_beside_the_coarser_picture_is_its_definition(shape: tuple[int, int], follows: bool) -> None:
    fine, coarse = random_image(shape, dtype=np.float64), random_image(halved_shape(shape), 1, np.float64)
    factors = np.random.default_rng(2).uniform(0.5, 1.5, coarse.shape) if follows else None
    given = None if factors is None else Plane.whole(factors)
    found = with_detail_of(Plane.whole(fine), halved(Plane.whole(fine)), Plane.whole(coarse), 0.8, given)
    expected = doubled(Plane.whole(coarse), shape).values + naive_detail(fine, 0.8, factors)
    assert found.box == Box.whole(shape)
    np.testing.assert_allclose(found.values, expected, atol=1e-12)


def test_noise_is_no_detail_and_an_edge_is() -> None:
    noise = random_image((100, 100), dtype=np.float64)
    edge = np.where(np.arange(100) < 51, 0.0, 60.0) + np.zeros((100, 1))
    deviation = float(np.sqrt((detail_filters() ** 2).sum(axis=1).mean()))  # of white noise of 1
    nothing = Plane.whole(np.zeros((50, 50)))
    left = with_detail_of(Plane.whole(noise), halved(Plane.whole(noise)), nothing, deviation).values
    assert left.std() < 0.2 * noise.std()
    coarse = halved(Plane.whole(edge))
    sharp = with_detail_of(Plane.whole(edge + noise), halved(Plane.whole(edge + noise)), coarse, deviation).values
    blurred = doubled(coarse, (100, 100)).values
    assert np.abs(sharp - edge)[:, 49:53].mean() < 0.2 * np.abs(blurred - edge)[:, 49:53].mean()


def test_detail_filters_take_the_detail_of_a_pixel() -> None:
    fine = random_image((70, 70), dtype=np.float64)
    lost = fine - doubled(halved(Plane.whole(fine)), fine.shape).values
    filters = detail_filters().reshape(4, 64, 64)
    for one in filters:
        y, x = (int(place) for place in np.unravel_index(np.argmax(one), one.shape))
        found = (one * fine[1:65, 1:65]).sum()  # coarse pixels lie between pixels 0 and 1, not 1 and 2
        assert found == pytest.approx(lost[1 + y, 1 + x], abs=1e-12)
    assert len({tuple(one.ravel()) for one in filters}) == 4


@pytest.mark.parametrize("shape", [(150, 180), (149, 179)])
def test_detail_of_windows_is_that_of_the_whole(shape: tuple[int, int]) -> None:
    fine, coarse = Plane.whole(random_image(shape)), Plane.whole(random_image(halved_shape(shape), seed=1))
    whole = with_detail_of(fine, halved(fine), coarse, 0.8, coarse)
    rng = np.random.default_rng(0)
    smaller = 0
    for _ in range(40):
        (top, bottom), (left, right) = (np.sort(rng.choice(length + 1, 2, replace=False)) for length in shape)
        wanted = Box(int(top), int(left), int(bottom), int(right))
        fine_box, coarse_box = detailed(wanted, shape)
        low = coarse.cut(coarse_box)
        part = with_detail_of(fine.cut(fine_box), halved(fine).cut(coarse_box), low, 0.8, low)
        assert part.box.holds(wanted)
        same_as_whole(part, whole)
        smaller += fine_box != Box.whole(shape)
    assert smaller > 20


def test_windows_without_detail_are_those_of_the_whole() -> None:
    shape = (120, 200)
    values = random_image(shape)
    values[:, 80:] *= np.float32(0.01)
    fine, coarse = Plane.whole(values), Plane.whole(random_image(halved_shape(shape), seed=1))
    whole = with_detail_of(fine, halved(fine), coarse, 0.8)
    fine_box, coarse_box = detailed(Box(10, 110, 30, 190), shape)
    part = with_detail_of(fine.cut(fine_box), halved(fine).cut(coarse_box), coarse.cut(coarse_box), 0.8)
    assert part.box.holds(Box(10, 110, 30, 190))
    same_as_whole(part.cut(Box(10, 110, 30, 190)), whole)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    fine, coarse = Plane.whole(random_image((301, 903))), Plane.whole(random_image((151, 452), seed=1))
    for run in (partial(with_low_from, fine, share=0.7), partial(with_detail_of, fine, halved(fine), deviation=0.5)):
        assert run(coarse, threads=threads).values.tobytes() == run(coarse).values.tobytes()
