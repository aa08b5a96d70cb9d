"""One road for every picture: what goes in is checked, what comes out is the same again with the transform kept."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.denoising.pipeline import Denoised, denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.denoising.survey import Request
from dstl_cli.transforms.ready import ready_transform
from dstl_cli.transforms.transform import Transform

Pixels = NDArray[Any]

EVERY_QUALITY = pytest.mark.parametrize("quality", QUALITIES.names)


def denoised(
    pixels: Pixels, sigma: float | None, quality: str, given: Transform | None = None, **changes: Any
) -> Denoised:
    source = TransformSource(given, ready=ready_transform)
    if quality == "paper" and given is None:
        changes = {"rounds": 2, "train_patches": 300} | changes
    return denoise_pixels(pixels, sigma, Request.named(quality, source=source, **changes))


def noisy_part(camera: NDArray[np.uint8], side: int, *, colour: bool = False, sigma: float = 20.0) -> NDArray[np.uint8]:
    """The upper left corner of the photograph, or of it and two turned ones as colour, with noise."""
    grey = camera[:side, :side]
    clean = np.dstack((grey, grey.T, grey[::-1])) if colour else grey
    noisy = clean + sigma * np.random.default_rng(0).standard_normal(clean.shape)
    return np.asarray(np.rint(noisy.clip(0, 255)), dtype=np.uint8)


# A kept transform gives the pixels of the run that made it.


LEARNT = {"method": "procrustes", "patch_size": 11}  # 8x8, the usual one of best, has no ready transform


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("side", [60, 128])
@pytest.mark.parametrize(
    ("quality", "changes"),
    [("fast", {}), ("standard", {}), ("best", {}), pytest.param("best", LEARNT, marks=pytest.mark.slow), ("paper", {})],
    ids=str,
)
def test_a_kept_transform_gives_the_same_pixels(
    camera: NDArray[np.uint8], quality: str, changes: dict[str, Any], side: int, colour: bool
) -> None:
    noisy = noisy_part(camera, side, colour=colour)
    first = denoised(noisy, None, quality, **changes)
    transform = first.record.transform
    assert transform is not None
    averages = side == 60 and (quality in ("fast", "standard") or changes == LEARNT)
    assert transform.average_with_canonical == averages
    again = denoised(noisy, None, quality, transform)
    np.testing.assert_array_equal(again.pixels, first.pixels)
    assert again.record.transform is transform
    assert again.record.sigmas == first.record.sigmas


@pytest.mark.parametrize("quality", ["fast", "standard"])
def test_few_patches_average_every_channel_with_the_canonical_transform(
    camera: NDArray[np.uint8], quality: str
) -> None:
    """Each channel of the floats is the mean of the results of T alone and of Phi alone: chrominances too."""
    noisy = noisy_part(camera, 60, colour=True).astype(np.float64)
    both = denoised(noisy, 20.0, quality)
    transform = both.record.transform
    assert transform is not None
    assert transform.average_with_canonical
    alone = Transform(transform.patch_size, transform.factor, transform.method, transform.canonical)
    parts = [denoised(noisy, 20.0, quality, used).pixels for used in (alone, Transform.fixed(alone.patch_size))]
    np.testing.assert_allclose(both.pixels.astype(float), np.mean(np.asarray(parts, float), axis=0), rtol=0, atol=1e-3)


# Given sigmas and estimates.


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("colour", [False, True])
@EVERY_QUALITY
def test_sigma_0_gives_the_same_pixels(
    camera: NDArray[np.uint8], dtype: type[np.generic], colour: bool, quality: str
) -> None:
    pixels = noisy_part(camera, 20, colour=colour).astype(dtype)
    before = pixels.copy()
    result = denoised(pixels, 0.0, quality)
    assert result.pixels.dtype == dtype
    assert result.record.transform is None
    np.testing.assert_array_equal(result.pixels, pixels)
    result.pixels.fill(0)
    np.testing.assert_array_equal(pixels, before)


@pytest.mark.parametrize("sigma", [20, 0.1, 1 / 3, 7.3])
def test_a_given_sigma_is_that_of_every_channel_to_the_bit(camera: NDArray[np.uint8], sigma: float) -> None:
    colour = noisy_part(camera, 16, colour=True)
    assert denoised(colour, sigma, "fast", method="dct").record.sigmas == (sigma,) * 3
    assert denoised(colour[..., 0], sigma, "fast", method="dct").record.sigmas == (sigma,)


@EVERY_QUALITY
def test_one_channel_without_noise_costs_the_others_nothing(camera: NDArray[np.uint8], quality: str) -> None:
    """Noise in green alone is in the luminance and in one chrominance, and goes from both."""
    clean = np.dstack([camera[:64, :64], camera[:64, 64:], camera[64:, :64]]).astype(np.float64)
    noisy = clean.copy()
    noisy[..., 1] += 20 * np.random.default_rng(0).standard_normal(clean.shape[:2])
    result = denoised(noisy, None, quality).pixels.astype(np.float64)
    assert np.mean((result[..., 1] - clean[..., 1]) ** 2) < 0.7 * 20**2


# The settings that made a result are told.


@EVERY_QUALITY
@pytest.mark.parametrize("colour", [False, True])
def test_the_settings_told_give_the_same_pixels(camera: NDArray[np.uint8], quality: str, colour: bool) -> None:
    """Those that are told are all: none is left to be chosen by the noise or the patch size."""
    noisy = noisy_part(camera, 96, colour=colour, sigma=60.0)
    first = denoised(noisy, 60.0, quality)
    told = first.record.settings
    assert told is not None
    assert None not in [value for key, value in told.items() if key not in ("density", "max_condition")]
    flat, usual = told | told.get("learn", {}), QUALITIES[quality].facts(QUALITIES[quality].make({}))
    usual |= usual.get("learn", {})
    changed = {key: flat[key] for key in QUALITIES[quality].setting_names & flat.keys() if flat[key] != usual[key]}
    again = denoised(noisy, 60.0, quality, **changed)
    np.testing.assert_array_equal(again.pixels, first.pixels)
    assert again.record.settings == told


# Bad input.


@pytest.mark.parametrize("sigma", [-1.0, -1e-9, math.nan, math.inf, -math.inf])
def test_bad_sigmas_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="sigma must be a finite number of at least 0, not"):
        denoised(np.zeros((20, 20)), sigma, "fast")


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (np.zeros((0, 0)), "picture is empty"),
        (np.zeros((0, 20)), "picture is empty"),
        (np.zeros((20, 20, 4)), r"\(height, width, 3\), not 20x20x4"),
        (np.zeros(20), r"\(height, width, 3\), not 20"),
        (np.zeros((20, 20), dtype=complex), "float64, not complex128"),
        (np.zeros((20, 20), dtype=bool), "float64, not bool"),
        (np.full((20, 20), "a"), "float64, not <U1"),
        (np.full((20, 20), None), "float64, not object"),
        (np.where(np.arange(400).reshape(20, 20) % 100 == 0, np.nan, 1.0), "4 pixel values that are not finite"),
        (np.where(np.arange(400).reshape(20, 20) < 2, np.inf, 1.0), "2 pixel values that are not finite"),
    ],
)
@pytest.mark.parametrize("sigma", [0.0, 10.0, None])
def test_what_is_no_picture_is_refused(pixels: Pixels, sentence: str, sigma: float | None) -> None:
    with pytest.raises(ValueError, match=sentence):
        denoised(pixels, sigma, "fast")


@pytest.mark.parametrize("quality", ["fast", "standard", "paper"])
def test_a_given_transform_of_small_patches_with_a_large_stride(quality: str) -> None:
    """The settings cannot see it, but pixels would be left uncovered: refused in a sentence."""
    with pytest.raises(ValueError, match="stride must be at most the transform's patch size 4, not 9"):
        denoised(np.ones((40, 40)), 20.0, quality, Transform.fixed(4), stride=9)


def test_a_given_transform_of_patches_too_small_for_the_groups() -> None:
    with pytest.raises(ValueError, match="3x3 pixels; best needs at least 4x4"):
        denoised(np.ones((40, 40)), 20.0, "best", Transform.fixed(3))
