"""Coarser pictures by the DCT, held against scipy's; white noise halves and stays white."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

from dstl_cli.pixels import scales
from dstl_cli.pixels.scales import Scale, from_low_frequencies, halved, low_frequencies, pyramid, with_low_from

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

SIDES = st.integers(1, 24)


def random_image(shape: tuple[int, int], seed: int = 0) -> Array32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def dct(image: NDArray[np.floating]) -> Array:
    return np.asarray(dctn(image.astype(np.float64), norm="ortho"))


@given(SIDES, SIDES, st.data())
def test_low_frequencies_are_those_of_the_dct(height: int, width: int, data: st.DataObject) -> None:
    image = random_image((height, width))
    rows, columns = data.draw(st.integers(0, height)), data.draw(st.integers(0, width))
    low = low_frequencies(image, (rows, columns))
    assert low.dtype == np.float32
    np.testing.assert_allclose(low, dct(image)[:rows, :columns], atol=1e-5)


@given(SIDES, SIDES, st.data())
def test_pictures_of_low_frequencies_have_no_others(height: int, width: int, data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(0, height)), data.draw(st.integers(0, width))
    low = random_image((rows, columns))
    full = np.zeros((height, width))
    full[:rows, :columns] = low
    image = from_low_frequencies(low, (height, width))
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, idctn(full, norm="ortho"), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 3), (600, 7), (7, 1025), (513, 514)])
def test_all_frequencies_give_the_picture_back(shape: tuple[int, int]) -> None:
    """Sizes around the number of lines transformed at a time among them."""
    image = random_image(shape)
    np.testing.assert_allclose(from_low_frequencies(low_frequencies(image, shape), shape), image, atol=1e-5)


def test_lines_at_a_time_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    image = random_image((40, 33))
    whole = halved(Scale(image, 1.0)).image
    monkeypatch.setattr(scales, "LINES", 7)
    np.testing.assert_array_equal(halved(Scale(image, 1.0)).image, whole)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (5, 9), (64, 64), (31, 100)])
def test_halving_keeps_the_mean_and_the_low_frequencies(shape: tuple[int, int]) -> None:
    image = random_image(shape) + np.float32(3.0)
    half = halved(Scale(image, 10.0))
    small = (shape[0] // 2, shape[1] // 2)
    share = np.sqrt(small[0] * small[1] / (shape[0] * shape[1]))
    assert half.image.shape == small
    assert half.image.dtype == np.float32
    assert half.sigma == pytest.approx(10.0 * share)
    assert half.image.mean(dtype=np.float64) == pytest.approx(image.mean(dtype=np.float64), rel=1e-5)
    np.testing.assert_allclose(dct(half.image), share * dct(image)[: small[0], : small[1]], atol=1e-4)
    np.testing.assert_allclose(halved(Scale(np.full(shape, 5.0, np.float32), 1.0)).image, 5.0, rtol=1e-5)


def test_halved_noise_is_white_and_has_the_deviation_told() -> None:
    noise = 7.0 * random_image((400, 401), seed=3)
    half = halved(Scale(noise, 7.0))
    assert half.sigma == pytest.approx(3.5, rel=0.01)
    image = half.image.astype(np.float64)
    assert image.std() == pytest.approx(half.sigma, rel=0.02)
    for neighbours in (image[1:] * image[:-1], image[:, 1:] * image[:, :-1], image[2:, 2:] * image[:-2, :-2]):
        assert abs(neighbours.mean()) < 0.02 * half.sigma**2  # four deviations of chance


def test_a_smooth_picture_halved_is_the_picture_sampled() -> None:
    """Cosines of low frequency, taken at the centres of the larger pixels."""

    def cosines(side: int) -> Array:
        x = (np.arange(side) + 0.5) / side
        return np.asarray(np.cos(3 * np.pi * x)[:, None] + 2 * np.cos(5 * np.pi * x)[None, :])

    half = halved(Scale(cosines(32).astype(np.float32), 1.0))
    np.testing.assert_allclose(half.image, cosines(16), atol=1e-5)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 6), st.integers(1, 40))
def test_pyramids_keep_their_count_and_smallest_side(height: int, width: int, count: int, smallest: int) -> None:
    image = random_image((height, width))
    levels = pyramid(image, 40.0, count, smallest)
    np.testing.assert_array_equal(levels[0].image, image)
    assert levels[0].sigma == 40.0
    assert 1 <= len(levels) <= count
    for fine, coarse in pairwise(levels):
        assert coarse.image.shape == (fine.image.shape[0] // 2, fine.image.shape[1] // 2)
        assert min(coarse.image.shape) >= smallest
        assert coarse.sigma == pytest.approx(fine.sigma * np.sqrt(coarse.image.size / fine.image.size))
    assert len(levels) == count or min(levels[-1].image.shape) // 2 < smallest


@given(SIDES, SIDES, st.floats(0, 1), st.data())
def test_low_frequencies_come_from_the_coarse_and_the_others_from_the_fine(
    height: int, width: int, share: float, data: st.DataObject
) -> None:
    coarse_shape = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    fine, coarse = random_image((height, width)), random_image(coarse_shape, seed=1)
    result = with_low_from(fine, coarse, share)
    assert result.dtype == np.float32
    expected = dct(fine)
    rows, columns = int(coarse_shape[0] * share), int(coarse_shape[1] * share)
    gain = np.sqrt(fine.size / coarse.size)  # so that the mean is the coarse picture's
    expected[:rows, :columns] = gain * dct(coarse)[:rows, :columns]
    np.testing.assert_allclose(dct(result), expected, atol=1e-4)
    if rows and columns:
        assert result.mean(dtype=np.float64) == pytest.approx(coarse.mean(dtype=np.float64), abs=1e-5)


def test_a_picture_with_its_own_low_frequencies_is_itself() -> None:
    image = random_image((30, 41)) + np.float32(100.0)
    half = halved(Scale(image, 1.0)).image
    for share in (0.0, 0.3, 0.7, 1.0):
        np.testing.assert_allclose(with_low_from(image, half, share), image, rtol=0, atol=1e-4)


def test_the_pictures_given_stay_as_they_are() -> None:
    fine, coarse = random_image((20, 21)), random_image((10, 10), seed=1)
    before = fine.copy(), coarse.copy()
    with_low_from(fine, coarse, 0.7)
    halved(Scale(fine, 1.0))
    np.testing.assert_array_equal(fine, before[0])
    np.testing.assert_array_equal(coarse, before[1])
