"""What a report shows of a picture: the size of the page, the windows, the shrinking, the differences."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.measure.trials import Measurement, Row, luma
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.report.exhibits import (
    LONGEST_SIDE,
    MOST_SAMPLES,
    SHORTEST_SIDE,
    Exhibit,
    amplified,
    page_budget,
    shrunk,
    to_bytes,
    windows_to_look_at,
)

Pixels = NDArray[Any]


@given(st.lists(st.sampled_from([1, 3]), min_size=1, max_size=400), st.integers(1, 40))
def test_a_page_stays_within_its_size(channels: list[int], comparisons: int) -> None:
    count, longest = page_budget(channels, comparisons)
    assert 1 <= count <= len(channels)
    assert SHORTEST_SIDE <= longest <= LONGEST_SIDE
    taken = comparisons * longest**2 * sum(channels[:count])
    assert taken <= MOST_SAMPLES or count == 1
    if count < len(channels):  # one more would have been too many
        assert longest == SHORTEST_SIDE
        assert comparisons * longest**2 * sum(channels[: count + 1]) > MOST_SAMPLES


@given(st.integers(1, 200), st.integers(1, 200), st.booleans(), st.integers(0, 5))
def test_windows_lie_inside_do_not_overlap_and_have_falling_variance(
    height: int, width: int, colour: bool, seed: int
) -> None:
    image = np.random.default_rng(seed).random((height, width, 3) if colour else (height, width)) * 255
    image *= np.linspace(0, 1, width)[:, None] if colour else np.linspace(0, 1, width)
    windows = windows_to_look_at(image)
    side = min(48, height, width)
    assert 1 <= len(windows) <= 3
    assert windows[0].what == "most detail"
    for window in windows:
        assert window.side == side
        assert window.crop(image).shape[:2] == (side, side)
    corners = [(window.row, window.column) for window in windows]
    assert all(max(abs(a[0] - b[0]), abs(a[1] - b[1])) >= side for a in corners for b in corners if a != b)
    assert len(set(corners)) == len(corners)
    grey = luma(image)
    variances = [float(grey[r : r + side, c : c + side].var()) for r, c in corners]
    assert variances == sorted(variances, reverse=True)
    grid = [
        float(grey[r : r + side, c : c + side].var())
        for r in range(0, height - side + 1, side)
        for c in range(0, width - side + 1, side)
    ]
    assert (variances[0], variances[-1]) == (max(grid), min(grid) if len(grid) > 1 else max(grid))


@given(st.integers(1, 90), st.integers(1, 90), st.booleans(), st.integers(5, 60))
def test_shrinking_averages_whole_squares(height: int, width: int, colour: bool, longest: int) -> None:
    image = np.random.default_rng(0).random((height, width, 3) if colour else (height, width))
    factor = Exhibit.of("", image, longest).factor
    small = shrunk(image, factor)
    assert max(small.shape[:2]) <= 1.5 * longest + 1
    assert small.shape[2:] == image.shape[2:]
    np.testing.assert_allclose(small[0, 0], image[:factor, :factor].mean(axis=(0, 1)))
    assert small.shape[0] == max(1, height // factor)
    if factor == 1:
        np.testing.assert_array_equal(small, image)


@given(st.floats(0.01, 100))
def test_differences_are_made_visible_around_grey(rms: float) -> None:
    difference = rms * np.where(np.indices((8, 8)).sum(axis=0) % 2, 1.0, -1.0)
    shown, gain = amplified(difference)
    assert 1 <= gain <= 32
    np.testing.assert_allclose(shown, 127.5 + gain * difference)
    assert 30 <= gain * rms <= 34 or gain in (1, 32)
    assert amplified(np.zeros((3, 3)))[1] == 1.0


def test_an_exhibit_shows_what_was_measured(camera: Pixels) -> None:
    clean = camera.astype(np.float64)
    windows = windows_to_look_at(clean)
    noisy = add_noise(clean, 10, seed=0)
    exhibit = Exhibit.of("title", clean, 64)
    exhibit.add(Measurement(Row(image="a", page=1, psnr=30.0, ssim=0.5, identical=False), noisy, clean))
    (shown,) = exhibit.comparisons
    assert exhibit.windows == windows
    assert (exhibit.width, exhibit.height, exhibit.factor) == (128, 128, 2)
    assert shown.before.shape == shown.after.shape == shown.difference.shape == (64, 64)
    for window, before, after, crop in zip(windows, shown.before_crops, shown.after_crops, exhibit.crops, strict=True):
        pixels = np.s_[window.row : window.row + 48, window.column : window.column + 48]
        np.testing.assert_array_equal(before, to_bytes(noisy[pixels]))
        np.testing.assert_array_equal(after, camera[pixels])
        np.testing.assert_array_equal(crop, camera[pixels])
    assert to_bytes(np.array([[-3.0, 0.4, 99.6, 300.0]])).tolist() == [[0, 0, 100, 255]]
