"""Noise: seeded noise is what it says, and the estimate obeys its laws on pictures real and made up."""

import math
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dstl_cli.noise import estimate as noise
from dstl_cli.noise.estimate import NoiseEstimate, estimate_channels, estimate_sigma, joint_warnings
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.pixels.depth import Depth

Array = NDArray[np.float64]
RANGE = (0.0, 255.0)
PHOTOGRAPHS = ("camera", "coins", "brick", "moon", "text")


@cache
def photograph(name: str) -> Array:
    from skimage import data

    return np.asarray(getattr(data, name)(), dtype=np.float64)


def smooth_picture(height: int = 200, width: int = 260) -> Array:
    """Waves of grey values 60 to 190 without any noise."""
    y, x = np.mgrid[:height, :width]
    return np.asarray(125 + 65 * np.sin(x / 37) * np.cos(y / 29), dtype=np.float64)


def to_bytes(image: Array) -> NDArray[np.uint8]:
    return np.rint(np.clip(image, *RANGE)).astype(np.uint8)


def wavelet_mad(image: Array) -> float:
    a, b, c, d = image[::2, ::2], image[::2, 1::2], image[1::2, ::2], image[1::2, 1::2]
    return float(np.median(np.abs(a - b - c + d) / 2)) / 0.6744897501960817


def box_blurred_noise(shape: tuple[int, ...], sigma: float, seed: int) -> Array:
    """Noise of deviation sigma, averaged over 3x3 neighbours."""
    white = np.random.default_rng(seed).standard_normal(shape)
    blurred = sum(np.roll(white, (i, j), (0, 1)) for i in range(3) for j in range(3)) / 9
    return np.asarray(sigma * blurred / np.std(blurred))


def speaks_of_scales(estimate: NoiseEstimate) -> bool:
    return any(warning.kind == "scales" for warning in estimate.warnings)


def finite_pictures() -> st.SearchStrategy[NDArray[Any]]:
    """Pictures of any number type and of sides 1 to 40, with finite pixels."""

    def of_type(dtype: np.dtype[Any]) -> st.SearchStrategy[NDArray[Any]]:
        pixels = hnp.from_dtype(dtype)
        if dtype.kind == "f":
            pixels = st.floats(-(2.0**100), 2.0**100, width=32).map(dtype.type)
        return hnp.arrays(dtype, st.tuples(st.integers(1, 40), st.integers(1, 40)), elements=pixels)

    names = ("bool", "uint8", "uint16", "int32", "float32", "float64")
    return st.sampled_from([np.dtype(name) for name in names]).flatmap(of_type)


class TestAddNoise:
    def test_is_white_gaussian_of_the_given_deviation(self) -> None:
        added = add_noise(np.zeros((400, 500)), 7.0, seed=3)
        assert abs(added.mean()) < 0.06
        assert added.std() == pytest.approx(7, rel=0.01)
        assert np.mean(np.abs(added) > 14) == pytest.approx(0.0455, abs=0.003)
        assert abs(np.mean(added[:, 1:] * added[:, :-1])) < 0.4
        assert abs(np.mean(added[1:] * added[:-1])) < 0.4

    def test_same_seed_same_noise_whatever_the_sigma(self) -> None:
        image = smooth_picture(20, 30)
        assert np.array_equal(add_noise(image, 5.0, seed=1), add_noise(image, 5.0, seed=1))
        assert not np.array_equal(add_noise(image, 5.0, seed=1), add_noise(image, 5.0, seed=2))
        twice = add_noise(image, 10.0, seed=1) - image
        assert np.allclose(twice, 2 * (add_noise(image, 5.0, seed=1) - image))

    def test_keeps_the_input_and_does_not_clip(self) -> None:
        image = np.full((50, 60, 3), 250, dtype=np.uint8)
        noisy = add_noise(image, 30.0, seed=0)
        assert noisy.dtype == np.float64
        assert noisy.shape == image.shape
        assert noisy.max() > 255
        assert (image == 250).all()
        assert np.array_equal(add_noise(image, 0.0, seed=0), image)

    @pytest.mark.parametrize("sigma", [-1.0, math.nan, math.inf])
    def test_refuses_an_impossible_sigma(self, sigma: float) -> None:
        with pytest.raises(ValueError, match="sigma must be"):
            add_noise(np.zeros((4, 4)), sigma, seed=0)


class TestClippedGaussian:
    def test_moments_agree_with_integration(self) -> None:
        z = np.linspace(-10, 10, 40_001)
        density = np.exp(-(z**2) / 2)
        density /= density.sum()
        means, variances, cumulants = noise._clipped_gaussian()
        levels = np.linspace(-4, 8, len(means))
        for k in range(0, len(levels), 50):
            values = np.maximum(levels[k] + z, 0)
            mean = density @ values
            variance = density @ (values - mean) ** 2
            fourth = density @ (values - mean) ** 4 - 3 * variance**2
            assert (means[k], variances[k], cumulants[k]) == pytest.approx((mean, variance, fourth), abs=1e-5)

    @pytest.mark.parametrize(("level", "sigma"), [(0, 20), (30, 20), (60, 50), (127.5, 50), (230, 40)])
    def test_kept_variance_agrees_with_clipped_samples(self, level: float, sigma: float) -> None:
        samples = np.clip(level + sigma * np.random.default_rng(0).standard_normal(400_000), *RANGE)
        kept = noise._kept_variance(np.array([samples.mean()]), RANGE, sigma)
        assert kept[0] == pytest.approx(samples.var() / sigma**2, rel=0.01)

    def test_nothing_is_lost_far_from_the_limits_or_without_them(self) -> None:
        level = np.linspace(80, 175, 20)
        assert np.allclose(noise._kept_variance(level, RANGE, 10.0), 1, atol=1e-3)
        assert np.allclose(noise._kept_variance(level, noise.UNCLIPPED, 100.0), 1)


class TestAccuracy:
    @pytest.mark.parametrize("sigma", [0.5, 1, 3, 10, 30, 100])
    def test_unclipped_noise_on_a_smooth_picture(self, sigma: float) -> None:
        estimate = estimate_sigma(add_noise(smooth_picture(), sigma, seed=1))
        assert estimate.sigma == pytest.approx(sigma, rel=0.05)
        assert estimate.coarse == pytest.approx(sigma, rel=0.1)
        assert estimate.warnings == ()

    @pytest.mark.parametrize("sigma", [10, 25, 50])
    @pytest.mark.parametrize("name", PHOTOGRAPHS)
    def test_photographs_clipped_to_bytes(self, name: str, sigma: float) -> None:
        noisy = to_bytes(add_noise(photograph(name), sigma, seed=2))
        estimate = estimate_sigma(noisy, data_range=RANGE)
        assert estimate.sigma == pytest.approx(sigma, rel=0.07)
        assert not speaks_of_scales(estimate)

    @pytest.mark.parametrize("name", ["grass", "gravel"])
    def test_texture_raises_it_far_less_than_wavelet_mad(self, name: str) -> None:
        noisy = add_noise(photograph(name), 5, seed=4)
        assert estimate_sigma(noisy).sigma - 5 < 0.35 * (wavelet_mad(noisy) - 5)

    @pytest.mark.parametrize("name", ["camera", "cell"])
    def test_clipping_lowers_it_far_less_than_wavelet_mad(self, name: str) -> None:
        noisy = to_bytes(add_noise(photograph(name), 50, seed=4))
        error = abs(estimate_sigma(noisy, data_range=RANGE).sigma - 50)
        assert error < 0.5 * (50 - wavelet_mad(noisy.astype(np.float64)))

    @pytest.mark.parametrize(("level", "sigma"), [(20, 20), (60, 50), (127, 70), (245, 10)])
    def test_clipped_flat_areas(self, level: float, sigma: float) -> None:
        noisy = np.clip(add_noise(np.full((256, 256), level), sigma, seed=5), *RANGE)
        given = estimate_sigma(noisy, data_range=RANGE).sigma
        assert given == pytest.approx(sigma, rel=0.12)
        assert estimate_sigma(noisy).sigma == pytest.approx(given, rel=0.05)  # found by its piles

    def test_limits_that_pixels_exceed_are_no_limits(self) -> None:
        noisy = add_noise(np.full((128, 128), 5.0), 10, seed=6)
        assert estimate_sigma(noisy, data_range=RANGE) == estimate_sigma(noisy)

    def test_rounding_is_taken_off(self) -> None:
        clean = smooth_picture()
        assert estimate_sigma(to_bytes(clean)).sigma <= 0.3
        rounded = estimate_sigma(to_bytes(add_noise(clean, 1, seed=7)))
        assert rounded.sigma == pytest.approx(1, rel=0.05)
        assert rounded.fine**2 - rounded.sigma**2 == pytest.approx(1 / 12)
        in_unit_range = estimate_sigma(to_bytes(add_noise(clean, 1, seed=7)) / 255)
        assert in_unit_range.sigma * 255 == pytest.approx(rounded.sigma, rel=1e-3)

    @pytest.mark.parametrize("value", [0, 16, 128, 255])
    def test_a_constant_frame_does_not_hide_the_noise(self, value: int) -> None:
        framed = np.full((360, 320), value, dtype=np.uint8)
        framed[80:-80, 30:-30] = to_bytes(add_noise(smooth_picture(200, 260), 15, seed=8))
        assert estimate_sigma(framed, data_range=RANGE).sigma == pytest.approx(15, rel=0.06)
        assert estimate_sigma(framed).sigma == pytest.approx(15, rel=0.06)

    @pytest.mark.parametrize(("paper", "ink"), [(255, 0), (230, 40)])
    def test_a_drawing_has_no_noise(self, paper: int, ink: int) -> None:
        drawing = np.full((240, 320), paper, dtype=np.uint8)
        rng = np.random.default_rng(9)
        for y, x in zip(rng.integers(0, 230, 300), rng.integers(0, 300, 300), strict=True):
            drawing[y : y + 2, x : x + 9] = ink
            drawing[y : y + 7, x : x + 2] = ink
        assert estimate_sigma(drawing, data_range=RANGE).sigma == 0
        assert estimate_sigma(drawing).sigma == 0


class TestLaws:
    @pytest.mark.parametrize(("factor", "offset"), [(1 / 255, 0.0), (257.0, 0.0), (1e-3, 1e3), (1e30, -1e30), (-2, 7)])
    def test_follows_scale_and_ignores_offset(self, factor: float, offset: float) -> None:
        noisy = add_noise(smooth_picture(), 12, seed=10)
        scaled = estimate_sigma(factor * noisy + offset)
        assert scaled.sigma == pytest.approx(abs(factor) * estimate_sigma(noisy).sigma, rel=1e-3)

    @pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32, np.float64])
    def test_depends_on_values_not_on_their_type(self, dtype: type) -> None:
        noisy = to_bytes(add_noise(photograph("camera"), 30, seed=11))
        same = estimate_sigma(noisy.astype(dtype), data_range=RANGE)
        assert same.sigma == pytest.approx(estimate_sigma(noisy, data_range=RANGE).sigma, rel=1e-3)

    def test_sixteen_bits_agree_with_eight(self) -> None:
        noisy = np.clip(add_noise(photograph("camera"), 20, seed=12), *RANGE)
        eight = estimate_sigma(np.rint(noisy).astype(np.uint8), data_range=RANGE).sigma
        sixteen = estimate_sigma(np.rint(257 * noisy).astype(np.uint16), data_range=(0, 65535)).sigma
        assert sixteen / 257 == pytest.approx(eight, rel=0.01)

    def test_repeats_and_leaves_the_picture_alone(self) -> None:
        noisy = to_bytes(add_noise(photograph("coins"), 20, seed=13))
        before = noisy.copy()
        noisy.flags.writeable = False
        assert estimate_sigma(noisy, data_range=RANGE) == estimate_sigma(noisy, data_range=RANGE)
        assert np.array_equal(noisy, before)

    def test_memory_layout_does_not_matter(self) -> None:
        noisy = add_noise(smooth_picture(), 8, seed=14)
        wide = np.zeros((200, 520))
        wide[:, ::2] = noisy
        assert estimate_sigma(wide[:, ::2]) == estimate_sigma(noisy)
        assert estimate_sigma(np.asfortranarray(noisy)) == estimate_sigma(noisy)

    def test_a_large_picture_needs_little_memory(self) -> None:
        tile = to_bytes(add_noise(smooth_picture(500, 500), 9, seed=15))
        large = np.tile(tile, (6, 8))
        tracemalloc.start()
        estimate = estimate_sigma(large, data_range=RANGE)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40e6
        assert estimate.sigma == pytest.approx(9, rel=0.05)


class TestWarnings:
    @pytest.mark.parametrize("sigma", [10, 20])
    @pytest.mark.parametrize("name", PHOTOGRAPHS)
    def test_correlated_noise(self, name: str, sigma: float) -> None:
        clean = photograph(name)
        noisy = to_bytes(clean + box_blurred_noise(clean.shape, sigma, 16))
        assert speaks_of_scales(estimate_sigma(noisy, data_range=RANGE))

    @pytest.mark.parametrize("sigma", [5, 20])
    @pytest.mark.parametrize("name", [*PHOTOGRAPHS, "grass", "gravel"])
    def test_silent_on_white_noise(self, name: str, sigma: float) -> None:
        assert not speaks_of_scales(estimate_sigma(add_noise(photograph(name), sigma, seed=17)))

    def test_saturation(self) -> None:
        burnt = to_bytes(add_noise(smooth_picture() + 90, 10, seed=18))
        estimate = estimate_sigma(burnt, data_range=RANGE)
        assert estimate.saturated == np.mean((burnt == 0) | (burnt == 255)) > 0.1
        assert [warning.kind for warning in estimate.warnings] == ["saturation"]
        assert estimate.sigma == pytest.approx(10, rel=0.05)

    def test_wholly_saturated(self) -> None:
        black = np.clip(add_noise(np.full((64, 64), -50.0), 10, seed=19), *RANGE)
        black[3, 4] = 9.0
        estimate = estimate_sigma(black, data_range=RANGE)
        assert estimate.sigma == 0
        assert any(warning.kind == "saturation" for warning in estimate.warnings)


class TestColour:
    def test_each_kind_is_told_once_for_the_channel_where_it_is_worst(self) -> None:
        """Correlated noise in all three channels, most in green, and blue that is burnt out."""
        clean = np.dstack([smooth_picture(), smooth_picture(), smooth_picture() + 90])
        noise = np.dstack([box_blurred_noise(clean.shape[:2], sigma, 20) for sigma in (10, 20, 10)])
        pixels = to_bytes(clean + noise)
        estimates = estimate_channels(pixels, Depth.of(pixels.dtype))
        sentences = joint_warnings(estimates)
        alone = [estimate_sigma(pixels[..., c], data_range=RANGE) for c in range(3)]
        assert estimates == alone
        assert all(speaks_of_scales(estimate) for estimate in alone)
        assert len(sentences) == 2
        assert set(sentences) <= {warning.sentence for estimate in alone for warning in estimate.warnings}
        assert sum("scales disagree" in sentence for sentence in sentences) == 1
        assert {warning.sentence for warning in alone[1].warnings if warning.kind == "scales"} <= set(sentences)
        kinds = {warning.kind for estimate in alone for warning in estimate.warnings}
        assert sorted(sentence for kind in kinds for sentence in joint_warnings(estimates, kind)) == sorted(sentences)
        assert joint_warnings(estimates, *kinds) == sentences
        assert joint_warnings(estimates, "scales") == tuple(item for item in sentences if "scales disagree" in item)
        assert joint_warnings(estimates, "size") == ()

    def test_a_single_channel_says_what_it_says_alone(self) -> None:
        clean = smooth_picture() + 90
        burnt = to_bytes(clean + box_blurred_noise(clean.shape, 20, 21))
        alone = estimate_sigma(burnt, data_range=RANGE)
        assert len(alone.warnings) == 2
        estimates = estimate_channels(burnt, Depth.of(burnt.dtype))
        assert estimates == [alone]
        assert joint_warnings(estimates) == tuple(item.sentence for item in alone.warnings)


class TestEdges:
    @pytest.mark.parametrize("value", [0, 17, 255])
    def test_a_constant_picture_has_no_noise(self, value: int) -> None:
        assert estimate_sigma(np.full((64, 48), value, dtype=np.uint8)) == NoiseEstimate(0.0, (), 0.0, 0.0, 0.0, 0.0)
        assert estimate_sigma(np.full((64, 48), value / 3)).sigma == 0

    @pytest.mark.parametrize("shape", [(1, 1), (1, 2), (3, 5), (1, 400), (7, 300), (8, 8), (31, 31)])
    def test_small_pictures_get_an_answer_and_a_warning(self, shape: tuple[int, int]) -> None:
        estimate = estimate_sigma(add_noise(np.full(shape, 100.0), 10, seed=20))
        assert 0 <= estimate.sigma < 40
        assert any(warning.kind == "size" for warning in estimate.warnings)
        if math.prod(shape) >= 400:
            assert estimate.sigma == pytest.approx(10, rel=0.4)

    @settings(max_examples=80, deadline=None)
    @given(finite_pictures())
    def test_any_finite_picture_gets_a_finite_answer(self, image: NDArray[Any]) -> None:
        estimate = estimate_sigma(image)
        numbers = (estimate.sigma, estimate.fine, estimate.coarse)
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
        assert 0 <= estimate.saturated <= 1
        assert estimate.sigma <= estimate.fine * (1 + 1e-12)

    def test_any_finite_floats_up_to_the_largest(self) -> None:
        noisy = np.random.default_rng(21).uniform(0, 1, (64, 64))
        assert estimate_sigma(noisy * 1e308).sigma / 1e308 == pytest.approx(estimate_sigma(noisy).sigma)
        with pytest.raises(ValueError, match="too wide"):
            estimate_sigma((noisy - 0.5) * 1e308 * 3.4)


@pytest.mark.parametrize(("kind", "option"), [("size", "--sigma"), ("saturation", "--strength"), ("scales", "--sigma")])
def test_a_warning_says_what_to_try(kind: str, option: str) -> None:
    wide = np.repeat(np.repeat(add_noise(np.full((60, 60), 125.0), 20, seed=0), 4, axis=0), 4, axis=1)
    dark = np.clip(add_noise(np.full((90, 90), 5.0), 20, seed=0), *RANGE)
    pictures = {"size": add_noise(np.full((9, 9), 125.0), 20, seed=0), "saturation": dark, "scales": wide}
    found = {item.kind: item.sentence for item in estimate_sigma(pictures[kind], data_range=RANGE).warnings}
    assert option in found[kind]
