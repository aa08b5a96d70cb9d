"""Both passes over scales: coarser ones where noise is strong; learning never costs more than a trifle."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from plans import run_engine

from dstl_cli.base.progress import Progress
from dstl_cli.base.threads import Execution
from dstl_cli.denoising import passes, sliding
from dstl_cli.denoising.passes import coding_estimate, patch_average, wiener_estimate
from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.settings import FastSettings, matched_error_scale
from dstl_cli.denoising.sliding import GUIDE_SHARE, RESULT_SHARE
from dstl_cli.denoising.survey import Request
from dstl_cli.learning.on_picture import SMALLEST_SIDE, PictureTransform
from dstl_cli.measure.metrics import peak_signal_noise_ratio
from dstl_cli.noise import model
from dstl_cli.noise.model import SCALE_SIGMA, SpectralChannel, SpectralNoise, WhiteChannel
from dstl_cli.patches.frame import Frame
from dstl_cli.patches.grid import Lattice
from dstl_cli.pixels.planes import Plane
from dstl_cli.pixels.scales import halved, halved_shape, with_low_from
from dstl_cli.transforms.ready import ready_transform
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

psnr = partial(peak_signal_noise_ratio, data_range=255)

DCT = Transform.fixed(8)


def run(image: Array32, sigma: float, *, stride: int = 1, jobs: int = 1, progress: Progress | None = None) -> Array32:
    settings = FastSettings(patch_size=8, stride=stride)
    return np.asarray(run_engine("fast", settings, [image], [sigma], DCT, Execution(jobs, progress))[0])


def smooth(shape: tuple[int, int]) -> Array32:
    """Slow waves of large contrast around zero."""
    x, y = (np.linspace(0, 1, length) for length in shape)
    waves = 90 * np.sin(5 * x)[:, None] * np.cos(4 * y)[None, :]
    return np.asarray(waves, dtype=np.float32)


def with_noise(clean: Array32, sigma: float, seed: int = 0) -> Array32:
    return clean + (sigma * np.random.default_rng(seed).standard_normal(clean.shape)).astype(np.float32)


def in_units(sigma: float, scale: int) -> Frame:
    frame = Frame.of(DCT)
    return frame.in_units_of(WhiteChannel(sigma).deviations(frame.forward, scale))


def coder_pass(plane: Plane, sigma: float, scale: int = 0) -> Plane:
    """The coder at one scale; sigma: the noise of the whole picture."""
    costs = Frame.of(DCT).costs
    estimate = coding_estimate(in_units(sigma, scale), costs, matched_error_scale(8), lambda _: None)
    return patch_average([plane], 8, Lattice(1, 1), estimate, Execution())


def wiener_pass(plane: Plane, pilot: Plane, sigma: float, scale: int = 0) -> Plane:
    """What a pilot guides to."""
    estimate = wiener_estimate(in_units(sigma, scale), lambda _: None)
    return patch_average([plane, pilot], 8, Lattice(1, 1), estimate, Execution())


def test_weak_noise_has_one_scale() -> None:
    image = with_noise(smooth((70, 60)), SCALE_SIGMA)
    plane = Plane.whole(image)
    expected = wiener_pass(plane, coder_pass(plane, SCALE_SIGMA), SCALE_SIGMA)
    np.testing.assert_array_equal(run(image, SCALE_SIGMA), expected.values)


def test_stronger_noise_has_the_low_frequencies_of_half_the_size() -> None:
    sigma = 1.5 * SCALE_SIGMA
    fine = Plane.whole(with_noise(smooth((70, 60)), sigma))
    half = halved(fine)
    coarse = wiener_pass(half, coder_pass(half, sigma, 1), sigma, 1)
    pilot = with_low_from(coder_pass(fine, sigma), coarse, GUIDE_SHARE)
    expected = with_low_from(wiener_pass(fine, pilot, sigma), coarse, RESULT_SHARE)
    np.testing.assert_array_equal(run(np.asarray(fine.values), sigma), expected.values)


@pytest.mark.parametrize(
    ("sigma", "side", "scales"),
    [
        (0.01, 200, 1),
        (SCALE_SIGMA, 200, 1),
        (1.01 * SCALE_SIGMA, 200, 2),
        (2 * SCALE_SIGMA, 200, 2),
        (2.1 * SCALE_SIGMA, 200, 3),
        (1e6, 200, 4),  # 200, 100, 50, 25
        (1e6, 2 * SMALLEST_SIDE - 1, 2),
        (1e6, 2 * SMALLEST_SIDE - 2, 1),
        (1e6, 8, 1),
    ],
)
def test_how_many_scales_there_are(monkeypatch: pytest.MonkeyPatch, sigma: float, side: int, scales: int) -> None:
    sides: list[int] = []

    def counted(planes: list[Plane], *rest: Any) -> Plane:
        sides.append(planes[0].shape[0])
        return planes[0]

    monkeypatch.setattr(sliding, "patch_average", counted)
    run(np.zeros((side, side), np.float32), sigma)
    expected = [side]
    for _ in range(scales - 1):
        expected.insert(0, halved_shape((expected[0], 1))[0])
    assert sides == [length for length in expected for _ in ("coder", "Wiener")]


@pytest.mark.parametrize("sigma", [60.0, 120.0])
def test_scales_help_where_noise_is_strong(monkeypatch: pytest.MonkeyPatch, sigma: float) -> None:
    clean = smooth((150, 130))
    image = with_noise(clean, sigma)
    helped = psnr(clean, run(image, sigma))
    monkeypatch.setattr(model, "SCALE_SIGMA", 1e9)
    alone = psnr(clean, run(image, sigma))
    assert helped > alone + 1.0


@pytest.mark.parametrize("sigma", [10.0, 50.0, 200.0])
@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_rises_to_one(monkeypatch: pytest.MonkeyPatch, sigma: float, jobs: int) -> None:
    monkeypatch.setattr(passes, "TILE_HEIGHT", 8)
    seen: list[float] = []
    image = with_noise(smooth((101, 67)), sigma)
    run(image, sigma, jobs=jobs, progress=seen.append)
    assert seen == sorted(set(seen))
    assert seen[0] > 0
    assert seen[-1] == pytest.approx(1.0, abs=1e-12)
    assert len(seen) >= 20


@pytest.mark.parametrize("shape", [(8, 8), (8, 300), (300, 8), (9, 8), (47, 48), (48, 49), (97, 131)])
@pytest.mark.parametrize("sigma", [0.5, 40.0, 1e6])
@pytest.mark.parametrize("stride", [1, 3, 8])
def test_pictures_of_any_size(shape: tuple[int, int], sigma: float, stride: int) -> None:
    image = with_noise(smooth(shape), sigma)
    result = run(image, sigma, stride=stride)
    assert result.shape == shape
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
    assert result.std() <= image.std() * 1.001


@pytest.mark.parametrize("sigma", [20.0, 100.0])
def test_threads_do_not_change_a_bit(sigma: float) -> None:
    image = with_noise(smooth((110, 90)), sigma)
    assert run(image, sigma, jobs=3).tobytes() == run(image, sigma).tobytes()


# Learning through the pipeline: never much worse than the DCT under the same passes.


def request(quality: str, **settings: Any) -> Request:
    return Request.named(quality, source=TransformSource(ready=ready_transform), jobs=1, **settings)


def loss_to_dct(clean: NDArray[Any], noisy: Array, sigma: float, quality: str) -> float:
    """By how many dB the result is below that of the DCT."""
    ours, dct = (
        denoise_pixels(noisy, sigma, wanted).pixels.astype(np.float64)
        for wanted in (request(quality), request(quality, method="dct"))
    )
    return psnr(clean, dct) - psnr(clean, ours)


BOTH = pytest.mark.parametrize("quality", ["fast", "standard"])


@BOTH
@pytest.mark.parametrize(("side", "sigma"), [(64, 25.0), (120, 5.0), (200, 100.0)])
def test_noise_alone_is_denoised_as_by_the_dct(quality: str, side: int, sigma: float) -> None:
    clean = np.full((side, side), 128.0)
    noisy = clean + sigma * np.random.default_rng(side).standard_normal(clean.shape)
    assert loss_to_dct(clean, noisy, sigma, quality) == 0.0


@BOTH
@pytest.mark.parametrize(
    ("name", "corner", "sigma"),
    [
        ("camera", (100, 200), 15.0),
        ("coins", (40, 60), 25.0),
        ("brick", (0, 0), 50.0),
        ("text", (20, 100), 10.0),
        ("grass", (300, 300), 5.0),
        ("moon", (200, 200), 100.0),
    ],
)
def test_small_pictures_lose_nothing_to_the_dct(quality: str, name: str, corner: tuple[int, int], sigma: float) -> None:
    from skimage import data

    clean = getattr(data, name)()[corner[0] : corner[0] + 64, corner[1] : corner[1] + 64].astype(np.float64)
    noisy = clean + sigma * np.random.default_rng(1).standard_normal(clean.shape)
    assert loss_to_dct(clean, noisy, sigma, quality) <= 0.05


def test_a_transform_few_patches_speak_for_is_averaged_with_the_canonical_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The result is the mean of both answers, and progress goes over both."""
    ready = ready_transform(20.0, 11)
    assert ready is not None
    noisy = with_noise(smooth((50, 60)), 20.0).astype(np.float64)

    def result(transform: Transform) -> tuple[Array, list[float]]:
        seen: list[float] = []
        monkeypatch.setattr(sliding, "choose_transform", lambda *_, **__: PictureTransform(transform))
        done = denoise_pixels(noisy, 20.0, request("fast"), progress=seen.append)
        assert done.record.transform is transform
        return done.pixels.astype(np.float64), seen

    averaged, seen = result(replace(ready, average_with_canonical=True))
    np.testing.assert_allclose(averaged, (result(ready)[0] + result(Transform.fixed(11))[0]) / 2, rtol=0, atol=1e-3)
    assert seen == sorted(set(seen))
    assert seen[-1] == pytest.approx(1.0)


def test_a_patch_of_one_pixel_leaves_the_picture() -> None:
    """Its mean is all it has."""
    noisy = with_noise(smooth((70, 60)), 20.0)
    for wanted in (request("fast", method="dct", patch_size=1, stride=1), request("standard", patch_size=1, stride=1)):
        result = denoise_pixels(noisy, 20.0, wanted).pixels
        np.testing.assert_allclose(result.astype(np.float32), noisy, rtol=0, atol=1e-3)


@BOTH
@pytest.mark.parametrize("sigma", [1e-20, 1e-30, 5e-324])
def test_black_pictures_stay_black_however_small_the_noise(quality: str, sigma: float) -> None:
    """Squares of such deviations are zero in single precision."""
    black = np.zeros((40, 30), np.uint8)
    np.testing.assert_array_equal(denoise_pixels(black, sigma, request(quality)).pixels, black)


# Chrominances at half their size.

COARSE = SpectralChannel((0.02, 0.09, 0.4), (60.0, 30.0, 5.0))
FLAT = SpectralChannel((0.5,), (10.0,), halvings=1)


@pytest.mark.parametrize(
    ("channels", "sides"),
    [
        ((COARSE, COARSE, COARSE), [[40, 80, 160], [40, 80], [40, 80]]),
        ((COARSE, FLAT, COARSE), [[40, 80, 160], [80, 160], [40, 80]]),  # nothing speaks for coarse noise in it
        ((COARSE,), [[40, 80, 160]]),
    ],
)
def test_chrominances_with_coarse_noise_are_denoised_at_half_their_size(
    monkeypatch: pytest.MonkeyPatch, channels: tuple[SpectralChannel, ...], sides: list[list[int]]
) -> None:
    seen: list[int] = []

    def counted(planes: list[Plane], *rest: Any) -> Plane:
        seen.append(planes[0].shape[0])
        return planes[0]

    monkeypatch.setattr(sliding, "patch_average", counted)
    pixels = np.random.default_rng(0).random((160, 160, 3) if len(channels) == 3 else (160, 160), np.float32)
    denoise_pixels(pixels, SpectralNoise(channels), Request.named("fast", method="dct", patch_size=8))
    assert seen == [side for channel in sides for side in channel for _ in ("coder", "Wiener")]


def test_sharp_colours_stay_sharp_beside_coarse_noise() -> None:
    clean = np.full((160, 160, 3), 128.0, np.float32)
    clean[:, 81:, 0], clean[:, 81:, 2] = 208.0, 48.0  # one grey level, two colours
    noise = SpectralNoise((SpectralChannel((0.02, 0.09, 0.5), (12.0, 6.0, 2.0), 2.0),) * 3)
    noisy = clean + 2 * np.random.default_rng(0).standard_normal(clean.shape).astype(np.float32)
    result = denoise_pixels(noisy, noise, Request.named("fast")).pixels
    step = np.asarray(result, np.float64)[40:120, :, 0].mean(axis=0)
    assert abs(step[80] - 128) < 8
    assert abs(step[81] - 208) < 8
