"""The grid of a JPEG: found where it is and nowhere else, and the noise before it as strong as it was."""

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data

from dstl_cli.noise.jpeg_grid import deviation_before, find_grid, read_coded
from dstl_cli.noise.kernels import count_magnitudes


def as_jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    coded = imagecodecs.jpeg8_encode(np.ascontiguousarray(pixels), quality, subsampling="444")
    return np.asarray(imagecodecs.jpeg8_decode(coded)).reshape(pixels.shape)


@pytest.mark.parametrize(("top", "left"), [(0, 0), (3, 5), (7, 1)])
@pytest.mark.parametrize("again", [None, 95])
def test_the_grid_is_found_where_it_is(top: int, left: int, again: int | None) -> None:
    cut = as_jpeg(data.camera(), 75)[top:, left:]
    grid = find_grid([(cut if again is None else as_jpeg(cut, again)).astype(np.float32)])
    assert grid is not None
    assert ((grid.top + top) % 8, (grid.left + left) % 8) == (0, 0)


def test_no_grid_is_found_where_there_is_none() -> None:
    rng = np.random.default_rng(0)
    noise = [128 + rng.normal(0, sigma, (256, 256)) for sigma in (2, 10, 40)]
    pictures = [data.brick(), data.camera(), data.gravel(), data.moon(), data.camera() // 64 * 64]
    clean = [picture[128:384, 128:384] for picture in pictures]
    noisy = [picture + rng.normal(0, 10, picture.shape) for picture in clean]
    for plane in (*noise, *clean, *noisy):
        assert find_grid([np.clip(np.rint(plane), 0, 255).astype(np.float32)]) is None


@pytest.mark.parametrize("sigma", [6.0, 12.0, 25.0])
def test_the_deviation_before_rounding_is_recovered(sigma: float) -> None:
    steps = np.array([20.0, 40.0])
    drawn = np.random.default_rng(0).normal(0, sigma, (20_000, 2))
    magnitudes = np.minimum(np.rint(np.abs(drawn) / steps), 3)
    counts = np.stack([(magnitudes == level).sum(axis=0) for level in range(4)], axis=1)
    assert deviation_before(counts.astype(np.float64), steps) == pytest.approx(sigma, rel=0.04)


@pytest.mark.parametrize("name", ["moon", "camera"])
def test_noise_before_jpeg_is_as_strong_as_it_was_and_in_any_block(name: str) -> None:
    noisy = getattr(data, name)() + np.random.default_rng(0).normal(0, 12, (512, 512))
    reading = read_coded([as_jpeg(np.clip(np.rint(noisy), 0, 255).astype(np.uint8), 75)])
    assert reading is not None
    assert reading.deviation(7, 9.9) == pytest.approx(12, rel=0.1)
    assert reading.clustering < 1.1
    clean = read_coded([as_jpeg(data.camera(), 75)])
    assert clean is not None
    assert clean.clustering > 1.5


def test_all_windows_have_one_grid() -> None:
    """Each of them is too small to show it."""
    coded = as_jpeg(data.camera(), 75)[3:, 5:].astype(np.float32)
    windows = [coded[top : top + 56, left : left + 56] for top in range(0, 448, 64) for left in range(0, 448, 64)]
    assert find_grid(windows[:1]) is None
    grid = find_grid(windows)
    assert grid is not None
    assert (grid.top, grid.left) == (5, 3)


def test_magnitudes_are_counted_in_their_bins() -> None:
    coefficients = np.random.default_rng(0).normal(0, 6, (500, 3)).astype(np.float32)
    counts = np.ones((3, 20), np.int64)  # added to
    count_magnitudes(coefficients, np.float32(2), counts)
    places = np.minimum(np.rint(2 * np.abs(coefficients)), 19).astype(int)
    assert places.max() == 19
    assert (counts == [[1 + int((column == b).sum()) for b in range(20)] for column in places.T]).all()
