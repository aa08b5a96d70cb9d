"""Measuring agrees with scikit-image at every depth; noise runs and means obey their laws."""

import math
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.denoising.survey import Request
from dstl_cli.measure import trials
from dstl_cli.measure.paper_experiments import table_row
from dstl_cli.measure.trials import (
    Configuration,
    Mean,
    Measurement,
    Measures,
    NoisePlan,
    Row,
    luma,
    mean_rows,
    measure_pair,
    noise_trials,
    warm_up,
    with_white_at_255,
)
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.transforms.transform import Transform

Pixels = NDArray[Any]


def way(method: str = "dct", label: str | None = None, **changes: Any) -> Configuration:
    """The paper's protocol with small patches."""
    request = Request.named("paper", method=method, **({"patch_size": 6} | changes))
    return label or method, request


DCT = way()
PLAIN = Measures()


def one_trial(
    clean: Pixels, sigma: float, one: Configuration = DCT, measures: Measures = PLAIN, seed: int = 0
) -> Measurement:
    (trial,) = noise_trials("a", 1, clean, NoisePlan([sigma], [one], seed=seed), measures)
    return trial


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
    row = measure_pair("a", 1, clean, estimate, PLAIN).row
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
    plain = measure_pair("a", 1, clean, estimate, PLAIN).row
    scaled = measure_pair("a", 1, clean * peak / 255, estimate * peak / 255, Measures(peak)).row
    assert scaled.psnr == pytest.approx(plain.psnr, abs=1e-9)
    assert scaled.ssim == pytest.approx(plain.ssim, abs=1e-9)


def test_depths_can_be_compared_with_one_another() -> None:
    eight = picture("uint8")
    for other in (eight.astype(np.uint16) * 257, eight.astype(np.float32), eight.astype(np.float64)):
        assert measure_pair("a", 1, eight, other, PLAIN).row.identical
    assert measure_pair("a", 1, eight, eight / 255.0, Measures(1.0)).row.psnr > 200  # but for rounding
    np.testing.assert_array_equal(with_white_at_255(np.array([[65535]], np.uint16)), [[255.0]])


def test_identical_pictures_have_infinite_psnr_and_ssim_one() -> None:
    row = measure_pair("a", 1, picture("uint8"), picture("uint8"), PLAIN).row
    assert (row.psnr, row.identical) == (math.inf, True)
    assert row.ssim == pytest.approx(1.0)
    assert (row.sigma, row.method, row.noisy_psnr, row.seconds) == (None, None, None, None)


@pytest.mark.parametrize("shape", [(1, 1), (10, 200), (3, 5, 3)])
@pytest.mark.parametrize("kind", ["wang", "downsampled"])
def test_pictures_below_the_window_have_psnr_but_no_ssim(shape: tuple[int, ...], kind: str) -> None:
    found = Measures(ssim_kind=kind).compare(np.zeros(shape), np.ones(shape))
    assert found["ssim"] is None
    assert found["psnr"] == pytest.approx(20 * math.log10(255))


def test_what_cannot_be_compared_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="one has 52 x 40 pixels in grey, the other 40 x 52 pixels in grey"):
        measure_pair("a", 1, picture("uint8"), picture("uint8").T, PLAIN)
    with pytest.raises(ValueError, match="in grey, the other 52 x 40 pixels in colour"):
        measure_pair("a", 1, picture("uint8"), picture("uint8", shape=(40, 52, 3)), PLAIN)
    broken = picture("float64")
    broken[3, 4] = np.nan
    with pytest.raises(ValueError, match="1 pixel value"):
        measure_pair("a", 1, picture("float64"), broken, PLAIN)


def test_luma_of_grey_is_grey() -> None:
    grey = picture("float64")
    np.testing.assert_allclose(luma(np.dstack([grey] * 3)), grey)
    assert luma(grey) is grey


# --- noise --------------------------------------------------------------------------------------------


def test_rows_come_for_each_sigma_repeat_and_configuration(camera: Pixels) -> None:
    shares: list[float] = []
    ways = [DCT, way(label="other", error_scale=1.2)]
    plan = NoisePlan([10.0, 30.0], ways, repeats=3, seed=7)
    done = list(noise_trials("a.png", 2, camera[:40, :50], plan, PLAIN, shares.append))
    assert [(t.row.sigma, t.row.repeat, t.row.method) for t in done] == [
        (sigma, repeat, method) for sigma in (10, 30) for repeat in (1, 2, 3) for method in ("dct", "other")
    ]
    assert {(t.row.repeat, t.row.noise_seed) for t in done} == {(1, 7), (2, 8), (3, 9)}
    assert {(t.row.image, t.row.page) for t in done} == {("a.png", 2)}
    assert all(t.row.seconds is not None and t.row.seconds > 0 for t in done)
    assert all(t.row.noisy_psnr is not None and t.row.psnr > t.row.noisy_psnr for t in done)
    for first, second in zip(done[::2], done[1::2], strict=True):  # one noise for all methods
        np.testing.assert_array_equal(first.before, second.before)
        assert first.row.noisy_psnr == second.row.noisy_psnr
        assert not np.array_equal(first.after, second.after)
    assert len({t.before.tobytes() for t in done}) == 6
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    "one", [DCT, way("dsect", rounds=2, iterations=3, train_patches=200)], ids=lambda one: str(one[0])
)
def test_a_grey_row_is_that_of_the_papers_table(camera: Pixels, one: Configuration) -> None:
    trial = one_trial(camera, 20.0, one, Measures(ssim_kind="downsampled"), seed=3)
    noisy = add_noise(camera, 20.0, seed=3)
    expected = table_row("camera", camera.astype(np.float64), noisy, 20.0, one[1])
    assert (trial.row.psnr, trial.row.ssim, trial.row.noisy_psnr) == (expected.psnr, expected.ssim, expected.noisy_psnr)
    np.testing.assert_array_equal(trial.before, noisy.clip(0, 255))


@pytest.mark.parametrize("quality", QUALITIES.names)
@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("colour", [False, True])
def test_what_is_measured_is_what_denoise_gives(
    camera: Pixels, monkeypatch: pytest.MonkeyPatch, quality: str, kind: str, colour: bool
) -> None:
    """Noise such as a file of the clean picture's depth can hold, so that `denoise` can be given the noisy one."""
    unit = 257 if kind == "uint16" else 1
    grey = camera[:50, 60:110]
    clean = ((np.dstack([grey, grey.T, grey[::-1]]) if colour else grey) * np.uint16(unit)).astype(kind)
    noisy = add_noise(clean, 20.0 * unit, seed=0).clip(0, 255 * unit).round().astype(kind)
    monkeypatch.setattr(trials, "add_noise", lambda *_, **__: noisy)
    settings: dict[str, Any] = {"rounds": 2, "train_patches": 200} if quality == "paper" else {}
    trial = one_trial(clean, 20.0, ("q", Request.named(quality, **settings)))
    expected = denoise_pixels(noisy, 20.0, Request.named(quality, **settings)).pixels.astype(np.float64)
    rounding = 0.5 if kind.startswith("u") else 0.0
    difference = np.abs(trial.after * unit - expected)
    assert np.quantile(difference, 0.99) <= rounding + 1e-3 * unit
    assert difference.max() <= rounding + 2 * unit  # a coefficient at the threshold may fall to the other side


@pytest.mark.parametrize("shape", [(40, 52), (40, 52, 3)])
def test_the_rows_of_eight_and_sixteen_bits_and_of_floats_are_alike(shape: tuple[int, ...]) -> None:
    smooth = np.add.outer(np.arange(40.0), np.arange(52.0)) + 60
    eight = np.rint(smooth if len(shape) == 2 else np.dstack([smooth, smooth[::-1], smooth[:, ::-1]])).astype(np.uint8)
    a, b, c, d = (
        one_trial(pixels, sigma, measures=Measures(peak))
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
    trial = one_trial(black, 40.0)
    assert trial.before.min() == 0
    assert trial.row.noisy_psnr == pytest.approx(20 * math.log10(255 / 40) + 10 * math.log10(2), abs=0.3)
    assert trial.after.mean() < 8  # clipped noise would have left the mean of its positive half, 16
    free = one_trial(black.astype(np.float64), 40.0)
    assert free.before.min() < -80


def test_no_noise_gives_the_picture_back() -> None:
    for clean in (picture("uint16"), picture("float64"), picture("uint8", shape=(40, 52, 3))):
        trial = one_trial(clean, 0.0)
        assert trial.row.identical
        assert trial.row.noisy_psnr == math.inf


@pytest.mark.parametrize("shape", [(1, 1), (3, 30), (4, 5, 3)])
def test_pictures_smaller_than_a_patch_work(shape: tuple[int, ...]) -> None:
    trial = one_trial(picture("uint8", shape=shape), 20.0)
    assert trial.after.shape == shape
    assert trial.row.ssim is None


def test_a_given_transform_is_used(camera: Pixels) -> None:
    given_one = ("mine", Request.named("paper", source=TransformSource(Transform.fixed(6))))
    fixed, mine = (one_trial(camera[:50, :50], 20.0, one) for one in (DCT, given_one))
    np.testing.assert_array_equal(mine.after, fixed.after)
    warm_up(given_one[1])
    warm_up(DCT[1])


# --- means --------------------------------------------------------------------------------------------


def row(image: str, psnr: float, *, repeat: int | None = 1, sigma: float = 5.0, ssim: float | None = 0.5) -> Row:
    return Row(
        image=image,
        page=1,
        sigma=sigma,
        method="dct",
        repeat=repeat,
        noise_seed=0,
        psnr=psnr,
        ssim=ssim,
        identical=math.isinf(psnr),
        noisy_psnr=20.0,
        noisy_ssim=0.1,
        seconds=2.0,
    )


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
