"""PSNR is that of scikit-image, SSIM that of its definition, the paper's down-sampled SSIM that of a slow loop."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import skimage.metrics
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.measure.metrics import (
    downsampling_factor,
    peak_signal_noise_ratio,
    structural_similarity,
    structural_similarity_downsampled,
)

Array = NDArray[np.float64]

psnr = partial(peak_signal_noise_ratio, data_range=255)
ssim = partial(structural_similarity, data_range=255)
ssim_downsampled = partial(structural_similarity_downsampled, data_range=255)


def pair(shape: tuple[int, ...], sigma: float, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    clean = 128 + 80 * np.sin(rows / 11) * np.cos(columns / 5)
    return clean, np.clip(clean + sigma * rng.standard_normal(shape), 0, 255)


def naive_ssim(a: Array, b: Array, peak: float = 255.0) -> float:
    """Wang's definition: in every window that lies inside, weighted means, variances and covariance."""
    distance = np.hypot(*np.mgrid[-5:6, -5:6])
    weights = np.exp(-(distance**2) / (2 * 1.5**2))
    weights /= weights.sum()
    windows = [sliding_window_view(image, (11, 11)).reshape(-1, 121) for image in (a, b)]
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    found = []
    for x, y in zip(*windows, strict=True):
        mean_x, mean_y = weights.ravel() @ x, weights.ravel() @ y
        x, y = x - mean_x, y - mean_y
        variance_x, variance_y, covariance = (weights.ravel() @ product for product in (x * x, y * y, x * y))
        luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
        found.append(luminance * (2 * covariance + c2) / (variance_x + variance_y + c2))
    return float(np.mean(found))


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    sigma=st.floats(0.01, 100),
    peak=st.sampled_from([1.0, 255.0, 65535.0]),
)
def test_psnr_is_that_of_scikit_image(shape: tuple[int, int], sigma: float, peak: float) -> None:
    a, b = (image * (peak / 255) for image in pair(shape, sigma))
    if not np.array_equal(a, b):
        expected = skimage.metrics.peak_signal_noise_ratio(a, b, data_range=peak)
        assert peak_signal_noise_ratio(a, b, data_range=peak) == pytest.approx(expected, abs=1e-9)


def test_psnr_of_integers_does_not_wrap_around() -> None:
    black, white = np.zeros((4, 5), np.uint8), np.full((4, 5), 255, np.uint8)
    assert psnr(black, white) == psnr(white, black) == 0
    sixteen = np.full((4, 5), 65535, np.uint16)
    assert peak_signal_noise_ratio(np.zeros((4, 5), np.uint16), sixteen, data_range=65535) == 0


def test_psnr_of_colour_is_over_all_values() -> None:
    a, b = np.random.default_rng(0).uniform(0, 255, (2, 9, 7, 3))
    assert psnr(a, b) == pytest.approx(10 * math.log10(255**2 / np.mean((a - b) ** 2)))


@pytest.mark.parametrize("shape", [(11, 11), (11, 40), (33, 57), (64, 64)])
@pytest.mark.parametrize("sigma", [1.0, 20.0, 100.0])
def test_ssim_is_that_of_its_definition(shape: tuple[int, int], sigma: float) -> None:
    a, b = pair(shape, sigma)
    assert ssim(a, b) == pytest.approx(naive_ssim(a, b), abs=1e-9)
    scaled = structural_similarity(a / 255, b / 255, data_range=1.0)
    assert scaled == pytest.approx(naive_ssim(a / 255, b / 255, 1.0), abs=1e-9)


def test_ssim_of_integers() -> None:
    a, b = (np.rint(image).astype(np.uint8) for image in pair((40, 30), 30))
    assert ssim(a, b) == pytest.approx(naive_ssim(a.astype(float), b.astype(float)), abs=1e-9)
    assert ssim(a, b) == pytest.approx(ssim(b, a), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_identical_images(dtype: type) -> None:
    image: NDArray[Any] = pair((300, 20), 10)[1].astype(dtype)
    assert psnr(image, image.copy()) == math.inf
    assert ssim(image, image.copy()) == pytest.approx(1, abs=1e-12)
    assert ssim_downsampled(image, image.copy()) == pytest.approx(1, abs=1e-12)


def test_images_of_different_shape_are_refused() -> None:
    a, b = np.zeros((20, 20)), np.zeros((20, 21))
    for metric in (psnr, ssim, ssim_downsampled):
        with pytest.raises(ValueError, match=r"\(20, 20\).*\(20, 21\)"):
            metric(a, b)
        with pytest.raises(ValueError, match="empty"):
            metric(np.zeros((0, 5)), np.zeros((0, 5)))


def test_ssim_needs_a_window_and_grey() -> None:
    for shape in ((10, 30), (30, 10), (30, 30, 3)):
        with pytest.raises(ValueError, match="11x11"):
            ssim(np.zeros(shape), np.zeros(shape))


@pytest.mark.parametrize(
    ("side", "factor"),
    [(1, 1), (11, 1), (255, 1), (256, 1), (383, 1), (384, 2), (512, 2), (639, 2), (640, 3), (1024, 4)],
)
def test_the_factor_rounds_halves_up(side: int, factor: int) -> None:
    assert downsampling_factor((side, 2000)) == downsampling_factor((2000, side)) == factor


def naive_downsampled(image: Array, factor: int) -> Array:
    """Every factor-th mean of the factor x factor window around a pixel, mirrored at the border, pixel by pixel.

    For an even factor the window lies half a pixel to the lower right, as MATLAB's imfilter has it.
    """
    height, width = image.shape
    pixels = image.tolist()
    window = range(-((factor - 1) // 2), factor - (factor - 1) // 2)

    def mirrored(place: int, length: int) -> int:
        return -place - 1 if place < 0 else 2 * length - 1 - place if place >= length else place

    def mean(row: int, column: int) -> float:
        rows, columns = ([mirrored(at + k, length) for k in window] for at, length in ((row, height), (column, width)))
        return float(sum(pixels[a][b] for a in rows for b in columns)) / factor**2

    return np.array([[mean(row, column) for column in range(0, width, factor)] for row in range(0, height, factor)])


@pytest.mark.parametrize("shape", [(100, 90), (384, 385), (391, 388), (641, 640), (900, 901)])
def test_downsampled_ssim_is_that_of_a_slow_loop(shape: tuple[int, int]) -> None:
    a, b = pair(shape, 25)
    factor = downsampling_factor(shape)
    smaller = (a, b) if factor == 1 else (naive_downsampled(a, factor), naive_downsampled(b, factor))
    assert ssim_downsampled(a, b) == pytest.approx(ssim(*smaller), abs=1e-9)
    assert (ssim_downsampled(a, b) == ssim(a, b)) == (factor == 1)
