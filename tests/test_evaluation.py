"""Measuring agrees with scikit-image at every depth; noise runs, means and exhibits obey their laws."""

import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dstl_cli.config import DenoiseConfig, paper_config
from dstl_cli.denoising import Tools
from dstl_cli.evaluation import (
    Configuration,
    Mean,
    Row,
    luma,
    mean_rows,
    measure,
    measure_pair,
    noise_trials,
    warm_up,
    with_white_at_255,
)
from dstl_cli.exhibits import (
    LONGEST_SIDE,
    MOST_SAMPLES,
    SHORTEST_SIDE,
    amplified,
    make_exhibit,
    make_shot,
    places_to_look_at,
    plan_page,
    shrink_factor,
    shrunk,
    to_bytes,
)
from dstl_cli.files.html import nice_ticks
from dstl_cli.noise import add_noise
from dstl_cli.reproduction import table_row
from dstl_cli.transforms import Transform

Pixels = NDArray[Any]
PAPER_TABLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "paper_table"


def config(method: str = "dct", **changes: Any) -> DenoiseConfig:
    return paper_config(**({"method": method, "patch_size": 6} | changes))


DCT = Configuration("dct", config())


def picture(kind: str, seed: int = 0, shape: tuple[int, ...] = (40, 52)) -> Pixels:
    """A random picture of a dtype; floats lie between 0 and 255."""
    values = 255 * np.random.default_rng(seed).random(shape)
    if kind == "uint16":
        return np.rint(values * 257).astype(np.uint16)
    return np.rint(values).astype(np.uint8) if kind == "uint8" else values.astype(kind)


# --- pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 52), (11, 11), (64, 30, 3)])
@pytest.mark.parametrize(("kind", "own_peak"), [("uint8", 255), ("uint16", 65535), ("float32", 255), ("float64", 255)])
def test_psnr_and_ssim_are_those_of_scikit_image(kind: str, own_peak: float, shape: tuple[int, ...]) -> None:
    clean = picture(kind, 0, shape)
    mixture = 0.8 * clean.astype(np.float64) + 0.2 * picture(kind, 1, shape)
    estimate = mixture.astype(clean.dtype)
    row = measure_pair("a", 1, clean, estimate)
    assert row.psnr == pytest.approx(peak_signal_noise_ratio(clean, estimate, data_range=own_peak), abs=1e-4)
    weights = np.array([0.299, 0.587, 0.114])
    greys = [image.astype(np.float64) @ weights if len(shape) == 3 else image for image in (clean, estimate)]
    expected = structural_similarity(
        *map(np.asarray, greys), data_range=own_peak, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    assert row.ssim == pytest.approx(expected, abs=1e-4)
    assert not row.identical


@pytest.mark.parametrize("peak", [1.0, 100.0, 65535.0])
def test_the_peak_of_floats_is_only_a_scale(peak: float) -> None:
    clean, estimate = picture("float64", 0), 0.5 * (picture("float64", 0) + picture("float64", 1))
    plain = measure_pair("a", 1, clean, estimate)
    scaled = measure_pair("a", 1, clean * peak / 255, estimate * peak / 255, peak=peak)
    assert scaled.psnr == pytest.approx(plain.psnr, abs=1e-9)
    assert scaled.ssim == pytest.approx(plain.ssim, abs=1e-9)


def test_depths_can_be_compared_with_one_another() -> None:
    eight = picture("uint8")
    for other in (eight.astype(np.uint16) * 257, eight.astype(np.float32), eight.astype(np.float64)):
        assert measure_pair("a", 1, eight, other).identical
    assert measure_pair("a", 1, eight, eight / 255.0, peak=1.0).psnr > 200  # but for rounding
    np.testing.assert_array_equal(with_white_at_255(np.array([[65535]], np.uint16)), [[255.0]])


def test_identical_pictures_have_infinite_psnr_and_ssim_one() -> None:
    row = measure_pair("a", 1, picture("uint8"), picture("uint8"))
    assert (row.psnr, row.identical) == (math.inf, True)
    assert row.ssim == pytest.approx(1.0)
    assert (row.sigma, row.method, row.noisy_psnr, row.seconds) == (None, None, None, None)


@pytest.mark.parametrize("shape", [(1, 1), (10, 200), (3, 5, 3)])
@pytest.mark.parametrize("kind", ["wang", "downsampled"])
def test_pictures_below_the_window_have_psnr_but_no_ssim(shape: tuple[int, ...], kind: str) -> None:
    quality = measure(np.zeros(shape), np.ones(shape), ssim_kind=kind)
    assert quality.ssim is None
    assert quality.psnr == pytest.approx(20 * math.log10(255))


def test_what_cannot_be_compared_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="one has 52 x 40 pixels in grey, the other 40 x 52 pixels in grey"):
        measure_pair("a", 1, picture("uint8"), picture("uint8").T)
    with pytest.raises(ValueError, match="in grey, the other 52 x 40 pixels in colour"):
        measure_pair("a", 1, picture("uint8"), picture("uint8", shape=(40, 52, 3)))
    broken = picture("float64")
    broken[3, 4] = np.nan
    with pytest.raises(ValueError, match="1 pixel value"):
        measure_pair("a", 1, picture("float64"), broken)


def test_luma_of_grey_is_grey() -> None:
    grey = picture("float64")
    np.testing.assert_allclose(luma(np.dstack([grey] * 3)), grey)
    assert luma(grey) is grey


@pytest.mark.slow
@pytest.mark.skipif(not PAPER_TABLE.is_dir(), reason="the paper's data is not beside this checkout")
@pytest.mark.parametrize("sigma", [5.0, 10.0, 15.0, 20.0, 100.0])
@pytest.mark.parametrize("image", ["cameraman", "hill", "baboon", "barbara"])
def test_the_downsampled_ssim_is_that_of_the_printed_dct_column(image: str, sigma: float) -> None:
    from dstl_cli.denoising import denoise_grey
    from dstl_cli.files.images import read_picture
    from dstl_cli.reproduction import printed_cell

    clean, noisy = (
        read_picture(PAPER_TABLE / name).pages[0] for name in (f"{image}.png", f"{image}_sigma{sigma:g}.tiff")
    )
    paper = paper_config(method="dct", error_scale=1.15)
    denoised = denoise_grey(noisy.astype(np.float64), sigma, paper, data_range=(0.0, 255.0)).image
    row = measure_pair(image, 1, clean, denoised, ssim_kind="downsampled")
    printed = printed_cell(image, sigma, "dct")
    assert printed is not None
    assert row.psnr == pytest.approx(printed[0], abs=0.01)
    assert row.ssim == pytest.approx(printed[1], abs=0.002)


# --- noise --------------------------------------------------------------------------------------------


def test_rows_come_for_each_sigma_repeat_and_configuration(camera: Pixels) -> None:
    shares: list[float] = []
    ways = [DCT, Configuration("other", config(error_scale=1.2))]
    trials = list(
        noise_trials("a.png", 2, camera[:40, :50], [10.0, 30.0], ways, repeats=3, seed=7, progress=shares.append)
    )
    assert [(t.row.sigma, t.row.repeat, t.row.method) for t in trials] == [
        (sigma, repeat, method) for sigma in (10, 30) for repeat in (1, 2, 3) for method in ("dct", "other")
    ]
    assert {(t.row.repeat, t.row.noise_seed) for t in trials} == {(1, 7), (2, 8), (3, 9)}
    assert {(t.row.image, t.row.page) for t in trials} == {("a.png", 2)}
    assert all(t.row.seconds is not None and t.row.seconds > 0 for t in trials)
    assert all(t.row.noisy_psnr is not None and t.row.psnr > t.row.noisy_psnr for t in trials)
    for first, second in zip(trials[::2], trials[1::2], strict=True):  # one noise for all methods
        np.testing.assert_array_equal(first.noisy, second.noisy)
        assert first.row.noisy_psnr == second.row.noisy_psnr
        assert not np.array_equal(first.denoised, second.denoised)
    assert len({t.noisy.tobytes() for t in trials}) == 6
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("method", ["dct", "dsect"])
def test_a_grey_row_is_that_of_the_papers_table(camera: Pixels, method: str) -> None:
    way = Configuration(method, config(method, rounds=2, iterations=3, train_patches=200))
    (trial,) = noise_trials("camera", 1, camera, [20.0], [way], seed=3, ssim_kind="downsampled")
    noisy = add_noise(camera, 20.0, seed=3)
    assert isinstance(way.config, DenoiseConfig)
    expected = table_row("camera", camera.astype(np.float64), noisy, 20.0, way.config)
    assert (trial.row.psnr, trial.row.ssim, trial.row.noisy_psnr) == (expected.psnr, expected.ssim, expected.noisy_psnr)
    np.testing.assert_array_equal(trial.noisy, noisy.clip(0, 255))


@pytest.mark.parametrize("shape", [(40, 52), (40, 52, 3)])
def test_the_rows_of_eight_and_sixteen_bits_and_of_floats_are_alike(shape: tuple[int, ...]) -> None:
    smooth = np.add.outer(np.arange(40.0), np.arange(52.0)) + 60
    eight = np.rint(smooth if len(shape) == 2 else np.dstack([smooth, smooth[::-1], smooth[:, ::-1]])).astype(np.uint8)
    (a,), (b,), (c,), (d,) = (
        list(noise_trials("a", 1, pixels, [sigma], [DCT], peak=peak))
        for pixels, sigma, peak in (
            (eight, 15.0, 255.0),
            (eight.astype(np.uint16) * 257, 15.0, 255.0),
            (eight.astype(np.float64), 15.0, 255.0),
            (eight / 255, 15 / 255, 1.0),
        )
    )
    assert b.row.psnr == pytest.approx(a.row.psnr, abs=1e-9)
    assert b.row.ssim == pytest.approx(a.row.ssim, abs=1e-9)
    assert c.row.psnr == pytest.approx(a.row.psnr, abs=0.01)  # a float file has no range to be clipped to
    assert d.row.psnr == pytest.approx(c.row.psnr, abs=0.5)  # denoised on another scale
    assert d.row.noisy_psnr == pytest.approx(20 * math.log10(255 / 15), abs=0.3)


def test_noise_beyond_the_range_is_kept_for_the_denoiser_and_clipped_where_it_is_measured() -> None:
    black = np.zeros((64, 64), np.uint8)
    (trial,) = noise_trials("a", 1, black, [40.0], [DCT])
    assert trial.noisy.min() == 0
    assert trial.row.noisy_psnr == pytest.approx(20 * math.log10(255 / 40) + 10 * math.log10(2), abs=0.3)
    assert trial.denoised.mean() < 8  # clipped noise would have left the mean of its positive half, 16
    (free,) = noise_trials("a", 1, black.astype(np.float64), [40.0], [DCT])
    assert free.noisy.min() < -80


def test_no_noise_gives_the_picture_back() -> None:
    for clean in (picture("uint16"), picture("float64"), picture("uint8", shape=(40, 52, 3))):
        (trial,) = noise_trials("a", 1, clean, [0.0], [DCT])
        assert trial.row.identical
        assert trial.row.noisy_psnr == math.inf


@pytest.mark.parametrize("shape", [(1, 1), (3, 30), (4, 5, 3)])
def test_pictures_smaller_than_a_patch_work(shape: tuple[int, ...]) -> None:
    (trial,) = noise_trials("a", 1, picture("uint8", shape=shape), [20.0], [DCT])
    assert trial.denoised.shape == shape
    assert trial.row.ssim is None


def test_a_given_transform_is_used(camera: Pixels) -> None:
    given_one = Configuration("mine", config("dsect", rounds=5), Tools(Transform.dct(6)))
    (learnt,), (mine,) = (list(noise_trials("a", 1, camera[:50, :50], [20.0], [way])) for way in (DCT, given_one))
    np.testing.assert_array_equal(mine.denoised, learnt.denoised)
    warm_up(given_one)
    warm_up(DCT)


# --- means --------------------------------------------------------------------------------------------


def row(image: str, psnr: float, *, repeat: int | None = 1, sigma: float = 5.0, ssim: float | None = 0.5) -> Row:
    return Row(image, 1, sigma, "dct", repeat, 0, psnr, ssim, math.isinf(psnr), 20.0, 0.1, 2.0)


def test_means_go_over_pictures_and_their_deviation_over_repeats() -> None:
    psnrs = {("a", 1): 30.0, ("b", 1): 34.0, ("a", 2): 31.0, ("b", 2): 35.5, ("a", 3): 29.0, ("b", 3): 33.0}
    rows = [row(image, value, repeat=repeat, ssim=value / 100) for (image, repeat), value in psnrs.items()]
    rows.append(row("a", 10.0, sigma=50.0))
    first, second = mean_rows(rows)
    assert (first.sigma, first.rows, second.sigma, second.rows) == (5.0, 6, 50.0, 1)
    assert first.psnr == pytest.approx(fmean(psnrs.values()))
    assert first.psnr_deviation == pytest.approx(stdev([32.0, 33.25, 31.0]))
    assert first.ssim == pytest.approx(first.psnr / 100)
    assert first.ssim_deviation == pytest.approx(stdev([0.32, 0.3325, 0.31]))
    assert [first.noisy_psnr, first.noisy_ssim, first.seconds] == pytest.approx([20.0, 0.1, 2.0])
    assert (second.psnr, second.psnr_deviation) == (10.0, None)
    of_a, of_b, _ = mean_rows(rows, of_each_picture=True)
    assert (of_a.image, of_a.psnr) == ("a", 30.0)
    assert of_a.psnr_deviation == pytest.approx(1.0)
    assert (of_b.image, of_b.rows) == ("b", 3)


def test_identical_pictures_are_counted_but_not_in_the_mean() -> None:
    mean: Mean
    (mean,) = mean_rows([row("a", 30.0), row("b", math.inf), row("c", 32.0)])
    assert (mean.psnr, mean.identical_rows, mean.identical) == (31.0, 1, False)
    (mean,) = mean_rows([row("b", math.inf)])
    assert (mean.psnr, mean.identical_rows, mean.identical) == (math.inf, 1, True)


def test_pictures_without_ssim_are_not_in_its_mean() -> None:
    (mean,) = mean_rows([row("a", 30.0, ssim=None), row("b", 31.0, ssim=0.25)])
    assert mean.ssim == 0.25
    (mean,) = mean_rows([row("a", 30.0, ssim=None)])
    assert mean.ssim is None


# --- exhibits -----------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([1, 3]), min_size=1, max_size=400), st.integers(1, 40))
def test_a_page_is_planned_within_its_size(channels: list[int], shots: int) -> None:
    plan = plan_page(channels, shots)
    assert 1 <= plan.shown <= len(channels)
    assert SHORTEST_SIDE <= plan.longest <= LONGEST_SIDE
    taken = shots * plan.longest**2 * sum(channels[: plan.shown])
    assert taken <= MOST_SAMPLES or plan.shown == 1
    if plan.shown < len(channels):  # one more would have been too many
        assert plan.longest == SHORTEST_SIDE
        assert shots * plan.longest**2 * sum(channels[: plan.shown + 1]) > MOST_SAMPLES


@given(st.integers(1, 200), st.integers(1, 200), st.booleans(), st.integers(0, 5))
def test_places_lie_inside_do_not_overlap_and_have_falling_variance(
    height: int, width: int, colour: bool, seed: int
) -> None:
    image = np.random.default_rng(seed).random((height, width, 3) if colour else (height, width)) * 255
    image *= np.linspace(0, 1, width)[:, None] if colour else np.linspace(0, 1, width)
    places = places_to_look_at(image)
    side = min(48, height, width)
    assert 1 <= len(places) <= 3
    assert places[0].what == "most detail"
    for place in places:
        assert place.side == side
        assert place.cut(image).shape[:2] == (side, side)
    corners = [(place.row, place.column) for place in places]
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
    small, factor = shrunk(image, longest), shrink_factor(image, longest)
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
    places = places_to_look_at(clean)
    noisy = add_noise(clean, 10, seed=0)
    shot = make_shot(row("a", 30.0), noisy, clean, places, 64)
    exhibit = make_exhibit("title", clean, places, [shot], 64)
    assert (exhibit.width, exhibit.height, exhibit.factor) == (128, 128, 2)
    assert shot.before.shape == shot.after.shape == shot.difference.shape == (64, 64)
    for place, before, after, crop in zip(places, shot.before_crops, shot.after_crops, exhibit.crops, strict=True):
        window = np.s_[place.row : place.row + 48, place.column : place.column + 48]
        np.testing.assert_array_equal(before, to_bytes(noisy[window]))
        np.testing.assert_array_equal(after, camera[window])
        np.testing.assert_array_equal(crop, camera[window])
    assert to_bytes(np.array([[-3.0, 0.4, 99.6, 300.0]])).tolist() == [[0, 0, 100, 255]]


@given(st.floats(-50, 50), st.floats(0, 100))
def test_ticks_span_the_values_in_a_few_round_steps(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert 2 <= len(ticks) <= 8
    slack = 1e-6 + 1e-6 * abs(low)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    step = (ticks[-1] - ticks[0]) / (len(ticks) - 1)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - good) for good in (1, 2, 5, 10)) < 1e-3
