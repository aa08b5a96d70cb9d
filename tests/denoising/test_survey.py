"""The survey sees every pixel once, whatever its bands; its sample is bounded; what is no picture is refused."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.base.depths import in_words
from dstl_cli.denoising import survey as survey_module
from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.survey import Request, effective_sigma, look_at, survey
from dstl_cli.noise.model import SpectralChannel, SpectralNoise, WhiteNoise
from dstl_cli.pixels import source as source_module
from dstl_cli.pixels.colour import BASIS
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import ArraySource, bands, sample_of

Pixels = NDArray[Any]

FAST = Request.named("fast", jobs=1, method="dct", patch_size=4, stride=2)


@dataclass(frozen=True)
class Watched(ArraySource):
    """Pixels that remember which windows were asked for."""

    asked: list[Box] = field(default_factory=list)

    def window(self, box: Box) -> Pixels:
        self.asked.append(box)
        return super().window(box)


def picture(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Pixels:
    """Whole numbers with many at the limits; floats of both signs."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("u"):
        high = np.iinfo(dtype).max
        return np.clip(rng.integers(-high // 4, high + high // 4, shape), 0, high).astype(dtype)
    return (50 * rng.standard_normal(shape)).astype(dtype)


# Bands.


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 40), st.integers(1, 40), st.integers(1, 200))
def test_bands_are_the_box_in_whole_rows(top: int, left: int, height: int, width: int, most: int) -> None:
    box = Box(top, left, top + height, left + width)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "BAND_PIXELS", most)
        found = list(bands(box))
    rows = [row for band in found for row in range(band.top, band.bottom)]
    assert rows == list(range(top, top + height))
    assert {(band.left, band.right) for band in found} == {(left, left + width)}
    assert all(band.shape[0] == 1 or band.shape[0] * width <= most for band in found)


# What every pixel tells.


@pytest.mark.parametrize("most", [1, 37, 500, 10**6])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (23, 17), (40, 3), (23, 17, 3), (1, 60, 3)])
def test_statistics_are_those_of_the_whole(
    shape: tuple[int, ...], dtype: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "BAND_PIXELS", most)
    pixels = picture(shape, dtype)
    source = Watched(pixels)
    seen = look_at(source, Depth.of(pixels.dtype))
    channels = pixels.reshape(pixels.shape[0] * pixels.shape[1], -1).astype(np.float64)
    np.testing.assert_allclose(seen.means, channels.mean(axis=0), rtol=1e-12, atol=1e-9)
    assert len(seen.means) == channels.shape[1]
    assert seen.smallest == channels.min()
    assert seen.largest == channels.max()
    limits = [0, np.iinfo(pixels.dtype).max] if dtype.startswith("u") else []
    assert seen.clipped == pytest.approx(np.isin(pixels, limits).mean() if limits else 0.0, abs=1e-12)
    assert (seen.clipped > 0) == (dtype.startswith("u") and np.isin(pixels, limits).any())
    assert not seen.equal_channels
    looked = np.zeros(pixels.shape[:2], int)
    for box in source.asked:
        looked[box.top : box.bottom, box.left : box.right] += 1
    assert (looked == 1).all()


@pytest.mark.parametrize("most", [1, 60, 10**6])
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_channels_are_equal_if_all_their_pixels_are(dtype: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "BAND_PIXELS", most)
    equal = np.repeat(picture((20, 15, 1), dtype), 3, axis=2)
    depth = Depth.of(equal.dtype)
    assert look_at(ArraySource(equal), depth).equal_channels
    assert not look_at(ArraySource(equal[..., 0]), depth).equal_channels  # one channel is equal to none
    for place in ((0, 0, 2), (19, 14, 1), (7, 3, 0)):
        other = equal.copy()
        other[place] = other[place] + 1 if other[place] < 100 else other[place] - 1
        assert not look_at(ArraySource(other), depth).equal_channels


def test_float_depths_with_limits_have_clipped_pixels() -> None:
    """Whole numbers that were brought to floats are clipped where they were."""
    pixels = picture((30, 30), "uint8")
    depth = Depth.of(pixels.dtype).unrounded()
    clipped = look_at(ArraySource(pixels.astype(np.float64)), depth).clipped
    assert clipped == look_at(ArraySource(pixels), Depth.of(pixels.dtype)).clipped > 0


# What it refuses.


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (np.zeros((0, 5), np.uint8), "The picture is empty."),
        (np.zeros((5, 0, 3), np.uint8), "The picture is empty."),
        (np.zeros((4, 4, 4), np.uint8), "not 4x4x4."),
        (np.zeros((4, 4, 1), np.uint8), "not 4x4x1."),
        (np.zeros(7, np.uint8), "not 7."),
        (np.zeros((2, 2, 2, 3), np.uint8), "not 2x2x2x3."),
        (np.zeros((4, 4), np.int64), f"Pixels must be {in_words()}, not int64."),
        (np.zeros((4, 4), bool), "float16, float32 or float64, not bool."),
        (np.full((4, 4), np.nan), "The picture has 16 pixel values that are not finite numbers."),
        (np.array([[1.0, np.inf], [0.0, 2.0]]), "The picture has 1 pixel values that are not finite numbers."),
    ],
    ids=str,
)
@pytest.mark.parametrize("sigma", [None, 0.0, 5.0])
def test_what_is_no_picture_is_refused(pixels: Pixels, sentence: str, sigma: float | None) -> None:
    with pytest.raises(ValueError, match=r"\.$") as refused:
        survey(ArraySource(pixels), sigma, FAST)
    assert sentence in str(refused.value)
    with pytest.raises(ValueError, match=r"\.$") as again:
        denoise_pixels(pixels, sigma, FAST)
    assert str(again.value) == str(refused.value)


def test_numbers_that_are_not_finite_are_counted_over_all_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.ones((20, 10))
    pixels[2, 3] = pixels[17, 9] = np.nan
    pixels[9, 0] = -np.inf
    monkeypatch.setattr(source_module, "BAND_PIXELS", 30)
    with pytest.raises(ValueError, match=r"^The picture has 3 pixel values that are not finite numbers\.$"):
        survey(ArraySource(pixels), 5.0, FAST)


@pytest.mark.parametrize("sigma", [-1.0, float("nan"), float("inf")])
def test_noise_that_is_none_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"^sigma must be"):
        survey(ArraySource(np.zeros((9, 9), np.uint8)), sigma, FAST)


# The sample.


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SAMPLE_PIXELS", 3000)
    monkeypatch.setattr(source_module, "SAMPLE_SIDE", 20)


def test_a_small_picture_is_its_own_sample(small_sample: None) -> None:
    for shape in ((50, 60), (60, 50, 3), (1, 3000)):
        pixels = picture(shape, "uint8")
        np.testing.assert_array_equal(sample_of(ArraySource(pixels), 0), pixels)


@pytest.mark.parametrize("shape", [(61, 50), (500, 700), (10, 2000), (2000, 10), (1, 5000), (200, 300, 3)])
def test_the_sample_of_a_large_picture_is_bounded(small_sample: None, shape: tuple[int, ...]) -> None:
    pixels = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    source = Watched(pixels)
    sample = sample_of(source, 7)
    assert sample.ndim == pixels.ndim
    assert sample.shape[0] * sample.shape[1] <= 3000
    assert sample.shape[0] * sample.shape[1] > 1000
    assert sum(box.shape[0] * box.shape[1] for box in source.asked) <= 3000
    for box in source.asked:
        assert Box.whole(shape).holds(box)
        assert box.shape == (min(shape[0], 20), min(shape[1], 20))
    assert np.isin(sample, pixels).all()
    np.testing.assert_array_equal(sample, sample_of(ArraySource(pixels), 7))


def test_the_sample_follows_the_seed_and_the_shape_alone(small_sample: None) -> None:
    first, second = (Watched(picture((100, 200), "uint8", seed)) for seed in (0, 1))
    sample_of(first, 3)
    sample_of(second, 3)
    assert first.asked == second.asked
    assert len(set(first.asked)) > 1
    other = Watched(picture((100, 200), "uint8"))
    sample_of(other, 4)
    assert other.asked != first.asked


def test_the_grid_of_a_jpeg_goes_on_across_the_windows_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SAMPLE_PIXELS", 3000)
    monkeypatch.setattr(source_module, "SAMPLE_SIDE", 16)
    rows, columns = np.indices((200, 300)) % 8
    sample = sample_of(ArraySource(8.0 * rows + columns), 0)
    again, beside = np.indices(sample.shape) % 8
    np.testing.assert_array_equal(sample, 8.0 * again + beside)


def test_plans_of_large_pictures_are_made_from_their_sample(small_sample: None) -> None:
    """The same plan each time, from no more pixels than the sample and one look at each."""
    pixels = np.clip(128 + 20 * np.random.default_rng(0).standard_normal((150, 150)), 0, 255).astype(np.uint8)
    request = Request.named("standard", jobs=1, patch_size=4, train_patches=800, iterations=2)
    source = Watched(pixels)
    plan = survey(source, None, request)
    again = survey(ArraySource(pixels), None, request)
    assert json.dumps(plan.to_json()) == json.dumps(again.to_json())
    assert plan.transform is not None
    assert again.transform is not None
    np.testing.assert_array_equal(plan.transform.factor, again.transform.factor)
    assert sum(box.shape[0] * box.shape[1] for box in source.asked) <= pixels.size + 3000
    assert plan.sigmas[0] == pytest.approx(20.0, rel=0.15)
    assert plan.statistics.means == pytest.approx((pixels.mean(),))


# The plan that comes of it.


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_centres_are_the_means_of_the_working_channels(dtype: str) -> None:
    pixels = picture((20, 30, 3), dtype)
    plan = survey(ArraySource(pixels), 20.0, FAST)
    assert plan.colour
    unit = 257.0 if dtype == "uint16" else 1.0
    expected = BASIS @ (pixels.reshape(-1, 3).mean(axis=0, dtype=np.float64) / unit)
    np.testing.assert_allclose(plan.centres, expected, rtol=1e-9, atol=1e-9)
    for index in range(3):
        assert abs(plan.channel(pixels, index).mean(dtype=np.float64)) < 1e-3
    grey = survey(ArraySource(pixels[..., 0]), 20.0, FAST)
    assert grey.centres == pytest.approx((pixels[..., 0].mean(dtype=np.float64) / unit,))


def test_three_equal_channels_are_worked_on_as_one() -> None:
    grey = picture((30, 40), "uint8")
    plan = survey(ArraySource(np.stack([grey] * 3, axis=-1)), 10.0, FAST)
    assert not plan.colour
    assert plan.statistics.equal_channels
    assert len(plan.centres) == len(plan.sigmas) == 1
    single = denoise_pixels(grey, 10.0, FAST).pixels
    repeated = denoise_pixels(np.stack([grey] * 3, axis=-1), 10.0, FAST).pixels
    np.testing.assert_array_equal(repeated, np.stack([single] * 3, axis=-1))


def test_noise_may_be_given_as_a_model() -> None:
    """One channel serves all; the strengths come in; another number of channels is refused."""
    pixels = picture((40, 50, 3), "uint8")
    own = SpectralChannel((0.1, 0.5), (9.0, 5.0), 0.0, (0.0, 255.0), (0.8, 1.2))
    plan = survey(ArraySource(pixels), SpectralNoise((own,)), FAST)
    assert plan.noise == SpectralNoise((own,) * 3)
    assert plan.sigmas == plan.noise.sigmas
    stronger = replace(FAST, strength=1.5, chroma_strength=2.0)
    known = survey(ArraySource(pixels), SpectralNoise((own,)), stronger).noise
    assert known == SpectralNoise((own.scaled(1.5), own.scaled(3.0), own.scaled(3.0)))
    assert survey(ArraySource(pixels), 10.0, stronger).noise == WhiteNoise((15.0, 30.0, 30.0))
    as_model = survey(ArraySource(pixels), WhiteNoise((10.0,)), FAST)
    assert as_model.to_json() == survey(ArraySource(pixels), 10.0, FAST).to_json()
    for model in (SpectralNoise((own,) * 3), WhiteNoise((1.0, 2.0))):
        with pytest.raises(
            ValueError, match=r"^The noise model is of \d channels, the picture has 1; make one of its kind\.$"
        ):
            survey(ArraySource(pixels[..., 0]), model, FAST)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_model_is_in_units_of_the_depth(dtype: str) -> None:
    """Grey levels of 0 to 255 for whole numbers; the array's own for floats."""
    pixels = picture((40, 50), dtype)
    own = SpectralNoise((SpectralChannel((0.1, 0.5), (9.0, 5.0), 0.0, (0.0, 255.0), (0.8, 1.2)),))
    assert survey(ArraySource(pixels), own, FAST).noise == own


@pytest.mark.parametrize(
    ("sigma", "largest", "expected"),
    [(0.0, 255.0, 0.0), (1e-8, 255.0, 0.0), (1e-6, 255.0, 1e-6), (1e-16, 0.0, 0.0), (5.0, 1e9, 5.0), (1e30, 1.0, 1e6)],
)
def test_noise_matters_as_far_as_single_precision_tells(sigma: float, largest: float, expected: float) -> None:
    assert effective_sigma(sigma, largest) == expected


@pytest.mark.parametrize(("largest", "steep"), [(255.0, False), (1e5, False), (2e6, True), (1e9, True)])
def test_values_far_beyond_the_noise_make_a_plan_steep(largest: float, steep: bool) -> None:
    pixels = np.linspace(0, largest, 900).reshape(30, 30)
    assert survey(ArraySource(pixels), 5.0, FAST).steep == steep
    assert survey_module.STEEP == 2e5


def test_no_noise_needs_no_transform() -> None:
    pixels = picture((20, 30), "uint8")
    plan = survey(ArraySource(pixels), 0.0, FAST)
    assert plan.transform is None
    assert plan.sigmas == (0.0,)
    assert plan.window(Box(3, 4, 5, 6)) == Box(3, 4, 5, 6)
    np.testing.assert_array_equal(denoise_pixels(pixels, 0.0, FAST).pixels, pixels)


def test_any_number_is_a_sigma() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50)).astype(np.uint8)
    expected = survey(ArraySource(pixels), 5.0, Request.named("fast")).noise
    for number in (5, np.float32(5), np.int64(5), np.array(5.0)):
        assert survey(ArraySource(pixels), number, Request.named("fast")).noise == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("quality", ["fast", "standard", "best"])
def test_noise_that_follows_the_brightness_is_left_to_no_other_quality(quality: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 70)).astype(np.uint8)
    photons = SpectralNoise((SpectralChannel((0.5,), (20.0,), 0.0, (0.0, 255.0), (0.5, 1.5)),))
    plan = survey(ArraySource(pixels), photons, Request.named(quality))
    assert plan.quality == quality
    assert plan.noise == photons
    assert not any("bright" in sentence for sentence in plan.warnings)
