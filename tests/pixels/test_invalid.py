"""NaN and infinite pixels: what they held reaches nothing else, and the fill is local."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from skimage import data

from dstl_cli import denoise
from dstl_cli.denoising.survey import look_at
from dstl_cli.noise.estimate import estimate_sigma
from dstl_cli.pixels import source as source_module
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.invalid import (
    FILL_REACH,
    FilledSource,
    filled,
    invalid_pixels,
    put_back,
    valid_part,
    without_invalid,
)
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import ArraySource

Pixels = NDArray[Any]
KINDS = (np.nan, np.inf, -np.inf)


def picture(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).normal(100, 20, shape).astype(dtype)


def holes(shape: tuple[int, int], share: float, seed: int = 1) -> NDArray[np.bool_]:
    """Single pixels, and a rectangle that is deeper than the fill reaches where there is room."""
    mask = np.random.default_rng(seed).random(shape) < share
    mask[shape[0] // 4 : 3 * shape[0] // 4, shape[1] // 8 :] = True
    return mask


def masks() -> dict[str, NDArray[np.bool_]]:
    rows, columns = np.mgrid[:512, :512]
    blobs = np.zeros((512, 512), bool)
    for y, x in np.random.default_rng(2).integers(0, 500, (30, 2)):
        blobs[y : y + 12, x : x + 12] = True
    return {
        "1 %": np.random.default_rng(3).random((512, 512)) < 0.01,
        "5 %": np.random.default_rng(4).random((512, 512)) < 0.05,
        "half": columns < 256,
        "outside a circle": (rows - 250) ** 2 + (columns - 250) ** 2 > 230**2,
        "blobs": blobs,
    }


# Filling


@pytest.mark.parametrize("colours", [(), (3,)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_valid_pixels_stay_and_the_others_become_numbers(dtype: str, colours: tuple[int, ...]) -> None:
    pixels = picture((150, 170, *colours), dtype)
    mask = holes((150, 170), 0.1)
    pixels[mask] = np.nan
    result = filled(pixels, (7.0,) * (3 if colours else 1))
    assert result.dtype == pixels.dtype
    assert np.isfinite(result).all()
    np.testing.assert_array_equal(result[~mask], pixels[~mask])
    assert (result[mask] > 0).all()
    assert (result == 7).any()  # the rectangle is deeper than the fill reaches


@settings(max_examples=40)
@given(st.data())
def test_any_window_gives_the_numbers_of_the_whole(data: st.DataObject) -> None:
    shape = (150, 130)
    pixels = picture(shape, seed=data.draw(st.integers(0, 3)))
    pixels[holes(shape, data.draw(st.sampled_from([0.0, 0.1, 0.9])), seed=5)] = np.nan
    whole = filled(pixels, (0.0,))
    top, left = data.draw(st.integers(0, 149)), data.draw(st.integers(0, 129))
    box = Box(top, left, data.draw(st.integers(top + 1, 150)), data.draw(st.integers(left + 1, 130)))
    around = box.grown(FILL_REACH, shape)
    window = pixels[around.top : around.bottom, around.left : around.right]
    source = FilledSource(ArraySource(window.copy(), around.top, around.left), shape, (0.0,))
    expected = whole[box.top : box.bottom, box.left : box.right]
    assert source.window(box).tobytes() == expected.tobytes()


def test_a_pixel_is_the_weighted_mean_of_its_neighbours() -> None:
    pixels = np.arange(9.0).reshape(3, 3) ** 2
    pixels[1, 1] = np.inf
    beside, across = (pixels[0, 1], pixels[1, 0], pixels[1, 2], pixels[2, 1]), (0.0, 4.0, 36.0, 64.0)
    expected = (sum(beside) + 0.5 * sum(across)) / 6
    assert filled(pixels, (0.0,))[1, 1] == pytest.approx(expected)
    pixels[0], pixels[:, 2] = np.nan, np.nan  # left: 9, 36 and 49
    assert filled(pixels, (0.0,))[1, 1] == pytest.approx((9 + 0.5 * 36 + 49) / 2.5)


def test_a_pixel_with_one_wrong_colour_is_invalid() -> None:
    pixels = picture((20, 20, 3))
    pixels[3, 4, 1], pixels[5, 6, 0], pixels[5, 6, 2] = np.nan, np.inf, -np.inf
    mask = invalid_pixels(pixels)
    assert [tuple(map(int, place)) for place in np.argwhere(mask)] == [(3, 4), (5, 6)]
    result = np.zeros_like(pixels)
    put_back(result, pixels)
    assert result[mask].tobytes() == pixels[mask].tobytes()
    assert not result[~mask].any()


def test_statistics_are_those_of_the_valid_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BAND_PIXELS", 900)
    for shape in ((60, 70), (60, 70, 3)):
        pixels = picture(shape)
        mask = holes((60, 70), 0.1)
        mask[10:13] = True  # a whole band
        pixels[mask] = np.nan
        seen = look_at(ArraySource(pixels), Depth.of(pixels.dtype), keep_invalid=True)
        valid = pixels[~mask].astype(np.float64).reshape(-1, len(seen.means))
        np.testing.assert_allclose(seen.means, valid.mean(axis=0), rtol=1e-12)
        assert (seen.smallest, seen.largest) == (valid.min(), valid.max())
        assert seen.invalid == mask.sum()
        assert not seen.equal_channels
    equal = np.repeat(pixels[..., :1], 3, axis=2)
    assert look_at(ArraySource(equal), Depth.of(equal.dtype), keep_invalid=True).equal_channels


# The sample


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("sigma", [5.0, 30.0])
def test_holes_are_not_taken_for_calm_areas(name: str, sigma: float) -> None:
    mask = masks()[name]
    noisy = data.camera() + sigma * np.random.default_rng(0).standard_normal((512, 512))
    full = estimate_sigma(noisy).sigma
    noisy[mask] = np.nan
    sample = without_invalid(noisy)
    assert np.isfinite(sample).all()
    assert estimate_sigma(sample).sigma == pytest.approx(full, rel=0.06)


def test_a_sample_of_small_pictures_has_numbers() -> None:
    for shape in ((1, 1), (1, 9), (7, 5), (20, 31), (8, 70, 3)):
        pixels = picture(shape)
        pixels.reshape(shape[0], shape[1], -1)[: (shape[0] + 1) // 2, 1:] = np.nan
        assert np.isfinite(without_invalid(pixels)).all()


def test_large_pictures_are_sampled_where_they_have_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BAND_PIXELS", 5000)
    pixels = np.full((3000, 2500), np.nan, np.float32)
    pixels[100:104, 2000:2040] = 1
    assert valid_part(ArraySource(pixels)) == Box(0, 1488, 616, 2500)


# What is denoised


@pytest.mark.parametrize("quality", ["fast", "standard", "best", "paper"])
def test_what_invalid_pixels_held_changes_nothing(quality: str) -> None:
    noisy = picture((70, 80, 3) if quality == "fast" else (70, 80))
    mask = holes((70, 80), 0.05)
    results = []
    for seed in range(3):
        kinds = np.random.default_rng(seed).choice(KINDS, noisy[mask].shape)
        other = noisy.copy()
        other[mask] = kinds
        few: dict[str, Any] = {"rounds": 1} if quality == "paper" else {}
        results.append(denoise(other, quality=quality, nan="keep", jobs=1, **few))
        assert results[-1][mask].tobytes() == kinds.astype(np.float32).tobytes()
        assert results[-1][~mask].tobytes() == results[0][~mask].tobytes()
    assert np.isfinite(results[0][~mask]).all()


def test_payloads_of_nan_are_kept() -> None:
    noisy = picture((40, 40))
    noisy.view(np.uint32)[3, 3:6] = 0x7FC01234, 0xFFC00001, 0x7FFFFFFF
    result = denoise(noisy, sigma=20, quality="fast", nan="keep")
    np.testing.assert_array_equal(result.view(np.uint32)[3, 3:6], noisy.view(np.uint32)[3, 3:6])


def test_pictures_without_holes_are_denoised_as_ever() -> None:
    for noisy in (picture((60, 60)), picture((60, 60)).astype(np.int16)):
        assert denoise(noisy, nan="keep").tobytes() == denoise(noisy).tobytes()


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("quality", ["fast", "best"])
def test_the_rest_is_denoised_nearly_as_well(name: str, quality: str) -> None:
    mask, clean = masks()[name][:256, 128:384], data.camera()[100:356, 100:356].astype(np.float32)
    noisy = clean + 20 * np.random.default_rng(0).standard_normal(clean.shape).astype(np.float32)
    before = denoise(noisy, sigma=20, quality=quality)
    noisy[mask] = np.nan
    after = denoise(noisy, sigma=20, quality=quality, nan="keep")
    errors = [float(np.mean((result[~mask] - clean[~mask]) ** 2)) for result in (before, after)]
    assert 10 * np.log10(errors[1] / errors[0]) < 0.2


def test_without_a_valid_pixel_there_is_nothing_to_denoise() -> None:
    with pytest.raises(ValueError, match=r"^The picture has no pixel that is a finite number; there is nothing to d"):
        denoise(np.full((30, 30), np.nan), nan="keep")
    with pytest.raises(ValueError, match=r"^nan must be refuse or keep, not 'drop'\.$"):
        denoise(np.zeros((30, 30)), nan="drop")
    with pytest.raises(ValueError, match=r"has 1 pixel values that are not finite"):
        denoise(np.where(np.eye(20) * np.arange(20) == 3, np.nan, 1.0))
