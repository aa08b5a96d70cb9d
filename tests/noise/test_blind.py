"""The blind estimate: white noise goes to its reader, its level and colour are recognised, clean stays clean."""

import io

import imagecodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter, zoom
from skimage import data

from dstl_cli.noise.blind import Hints, estimate_model
from dstl_cli.noise.estimate import estimate_sigma
from dstl_cli.noise.model import SpectralNoise, WhiteNoise
from dstl_cli.noise.synthetic import camera_jpeg, photograph
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.depth import Depth
from dstl_cli.run.pages import hints_of


def bytes_of(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("sigma", [5, 25])
@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_white_noise_is_read_by_the_reader_of_white_noise(sigma: float, scale: float) -> None:
    noisy = scale * (data.camera() + np.random.default_rng(0).normal(0, sigma, (512, 512)))
    model, _ = estimate_model(noisy)
    assert isinstance(model, WhiteNoise)
    assert model.sigmas[0] == pytest.approx(estimate_sigma(noisy).sigma)


def test_an_offset_of_the_values_does_not_matter() -> None:
    noisy = data.astronaut() + np.random.default_rng(0).normal(0, 5, (512, 512, 3))
    assert estimate_model(5 + 1e-3 * noisy)[0].sigmas == pytest.approx(
        [1e-3 * s for s in estimate_model(noisy)[0].sigmas], rel=1e-3
    )


def test_photons_give_a_level_function() -> None:
    rng = np.random.default_rng(0)
    model, _ = estimate_model(bytes_of(rng.poisson(data.camera() / 255 * 100) * 2.55))
    assert isinstance(model, SpectralNoise)
    levels = np.array([40.0, 100.0, 200.0])
    factors = model.channel(0).level_factors(levels)
    assert factors is not None
    np.testing.assert_allclose(factors * model.channel(0).deviation(), np.sqrt(2.55 * levels), rtol=0.15)


@pytest.mark.parametrize("blur", [0.0, 0.5])
def test_counts_in_a_small_part_of_sixteen_bits_are_read_as_in_eight(blur: float) -> None:
    scene = gaussian_filter(data.camera() / 255, 2.0)
    counts = gaussian_filter(np.random.default_rng(0).poisson(60 * scene).astype(float), blur)
    eight = bytes_of(2.5 * counts)
    sixteen = 100 + 7 * eight.astype(np.uint16)  # an offset of the camera, and white at a thirtieth of the range
    sixteen[5, 5] = 65535  # a defect pixel
    models = estimate_model(eight)[0], estimate_model(sixteen)[0]
    deviations = np.array([models[0].sigmas[0], models[1].sigmas[0] * 257 / 7])
    assert models[0].kind == models[1].kind == "spectral"
    assert deviations[1] == pytest.approx(deviations[0], rel=0.1)


def halved(values: NDArray[np.generic]) -> NDArray[np.float64]:
    """2x2 means of a colour picture."""
    height, width = (length // 2 for length in values.shape[:2])
    return np.asarray(values[: 2 * height, : 2 * width].reshape(height, 2, width, 2, 3).mean((1, 3)), dtype=float)


@pytest.mark.parametrize("iso", [6400, 12800])
def test_the_noise_of_a_halved_photograph_is_found_and_its_texture_is_not(iso: int) -> None:
    clean = data.cat()
    noisy = bytes_of(halved(photograph(clean, iso, seed=1)))
    model, _ = estimate_model(noisy)
    there = float(np.std(noisy - halved(clean)))
    assert 0.7 * there < model.sigmas[0] < 1.8 * there  # red, green and blue share some of it: up to sqrt(3) times


def test_resampled_photons_are_found_where_some_levels_hold_texture() -> None:
    noisy = np.random.default_rng(0).poisson(data.camera()[:400, :400] / 255 * 200) * 255 / 200
    strength = float(np.std(noisy - data.camera()[:400, :400]))
    model, _ = estimate_model(bytes_of(zoom(noisy, 1.4, order=3)))
    assert model.sigmas[0] == pytest.approx(strength, rel=0.2)


def test_coarse_grain_stronger_than_any_camera_leaves_is_a_picture() -> None:
    grain = gaussian_filter(np.random.default_rng(0).standard_normal((300, 300, 1)), (0.8, 0.8, 0))
    crowd = bytes_of(np.repeat(128 + 75 * grain / grain.std(), 3, axis=2) - [0.0, 1.0, 2.0])  # no grey picture
    assert estimate_model(crowd)[0].sigmas[0] < 40


@pytest.mark.parametrize("iso", [400, 800])
def test_weak_noise_of_a_camera_is_not_taken_for_strong(iso: int) -> None:
    noisy = photograph(data.cat(), iso, seed=1)
    model, _ = estimate_model(noisy)
    assert model.sigmas[0] < 8


@pytest.mark.parametrize("kind", ["white", "poisson"])
def test_a_kind_that_is_known_is_taken(kind: str) -> None:
    photons = bytes_of(np.random.default_rng(0).poisson(data.camera() / 255 * 100) * 2.55)
    model, _ = estimate_model(photons, Depth.of(photons.dtype), kind=kind)
    assert model.kind == {"white": "white", "poisson": "spectral"}[kind]
    if isinstance(model, WhiteNoise):
        assert model.sigmas == pytest.approx((estimate_sigma(photons, data_range=(0, 255)).sigma,))


def test_resampled_noise_is_coarse() -> None:
    white = np.random.default_rng(0).normal(0, 40, (514, 514))
    smooth = np.mean([white[i : i + 512, j : j + 512] for i in range(3) for j in range(3)], axis=0)
    rows = np.linspace(60, 160, 512)[:, None]
    model, _ = estimate_model(bytes_of(rows + smooth))
    assert isinstance(model, SpectralNoise)
    assert model.sigmas[0] == pytest.approx(smooth.std(), rel=0.25)


@pytest.mark.parametrize("name", ["astronaut", "brick", "camera", "chelsea", "text"])
def test_clean_pictures_have_next_to_no_noise(name: str) -> None:
    assert max(estimate_model(getattr(data, name)())[0].sigmas) < 1


def as_jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """What JPEG leaves of a picture."""
    coded = imagecodecs.jpeg8_encode(pixels, quality, subsampling="444")
    return np.asarray(imagecodecs.jpeg8_decode(coded)).reshape(pixels.shape)


def test_a_few_dark_spots_do_not_hide_the_noise_of_photons() -> None:
    """moon is even but for some black spots, where photons leave hardly any noise."""
    clean = data.moon()
    noisy = np.random.default_rng(0).poisson(clean / 12.75) * 12.75
    sigma = estimate_model(noisy.astype(np.float32))[0].sigmas[0]
    assert sigma == pytest.approx(np.sqrt(12.75 * clean.mean()), rel=0.1)


@pytest.mark.parametrize("strength", [6.0, 14.0, 30.0])
def test_plain_coarse_noise_is_as_strong_as_it_reads_after_jpeg(strength: float) -> None:
    """Noise of a smooth scene, blurred, and without fine frequencies after JPEG: no prior holds it."""
    grain = gaussian_filter(np.random.default_rng(1).normal(0, 1, (384, 384)), 0.7)
    noise = strength * grain / grain.std()
    model, _ = estimate_model(as_jpeg(bytes_of(110 + 40 * np.sin(np.arange(384) / 60)[:, None] + noise), 75))
    assert isinstance(model, SpectralNoise)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(384), np.fft.fftfreq(384)))
    power = np.abs(np.fft.fft2(noise)[(frequency > 0.08) & (frequency < 0.12)]) ** 2 / 384**2
    assert model.channel(0).at_frequency(0.1) == pytest.approx(np.sqrt(power.mean()), rel=0.35)


def test_colour_noise_is_read_as_strong_as_it_is() -> None:
    """Chrominances with three times the noise of the luminance."""
    rng = np.random.default_rng(2)
    grain = gaussian_filter(rng.normal(0, 1, (384, 384, 3)), (1, 1, 0))
    grain /= grain.std()
    grey = grain.mean(axis=2, keepdims=True)
    noisy = 120 + 12 * (grain - grey) + 4 * np.sqrt(3) * grey
    model, _ = estimate_model(bytes_of(noisy))
    assert min(model.sigmas[1:]) > 1.5 * model.sigmas[0]


@pytest.mark.parametrize("name", ["brick", "moon", "camera"])
def test_white_noise_before_jpeg_is_not_read_where_jpeg_took_it(name: str) -> None:
    noisy = bytes_of(getattr(data, name)() + np.random.default_rng(0).normal(0, 12, (512, 512)))
    assert 10 < estimate_model(as_jpeg(noisy, 75))[0].sigmas[0] < 18


@pytest.mark.parametrize("name", ["brick", "grass", "gravel", "camera"])
def test_a_clean_texture_after_jpeg_is_no_noise(name: str) -> None:
    """JPEG takes the fine frequencies of textures as it takes those of noise."""
    assert max(estimate_model(as_jpeg(getattr(data, name)(), 75))[0].sigmas) < 4


@pytest.mark.parametrize(("name", "quality"), [("camera", 75), ("moon", 75), ("chelsea", 75), ("coffee", 50)])
def test_the_few_coefficients_that_jpeg_leaves_of_a_clean_picture_are_no_white_noise(name: str, quality: int) -> None:
    """With the file's table all steps are known, also where next to nothing is left."""
    stream = io.BytesIO()
    Image.fromarray(getattr(data, name)()).save(stream, "JPEG", quality=quality)
    picture = read_picture(stream.getvalue())
    model, _ = estimate_model(picture.pages[0], hints=hints_of(picture))
    assert isinstance(model, SpectralNoise) or max(model.sigmas) < 1


@pytest.mark.parametrize("name", ["camera", "moon"])
@pytest.mark.parametrize("cut", [0, 3])
def test_noise_before_jpeg_is_read_alike_once_saved_and_twice(name: str, cut: int) -> None:
    clean = getattr(data, name)()
    once = as_jpeg(bytes_of(clean + np.random.default_rng(0).normal(0, 12, clean.shape)), 75)
    twice = as_jpeg(np.ascontiguousarray(once[cut:, cut:]), 92)
    (first,), (second,) = (estimate_model(pixels)[0].sigmas for pixels in (once, twice))
    assert second == pytest.approx(first, rel=0.1)


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (8, 8), (70, 300), (3, 400, 3), (64, 64, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_any_size_and_dtype_has_an_answer(shape: tuple[int, ...], dtype: str) -> None:
    for pixels in (np.full(shape, 7, dtype), np.random.default_rng(0).integers(0, 200, shape).astype(dtype)):
        sigmas = estimate_model(pixels)[0].sigmas
        assert len(sigmas) == (3 if len(shape) == 3 else 1)
        assert np.isfinite(sigmas).all()


def jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """The pixels after JPEG."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream))


# The ISO number


@pytest.mark.parametrize(("name", "quality"), [("chelsea", 75), ("camera", 90)])
def test_the_higher_the_iso_number_the_more_noise_is_found(name: str, quality: int) -> None:
    pixels = jpeg(getattr(data, name)(), quality)
    numbers = [1, 400, 800, 1600, 1e7]
    sigmas = [estimate_model(pixels, hints=Hints(iso))[0].sigmas[0] for iso in numbers]
    assert sigmas == sorted(sigmas)
    assert sigmas[0] < sigmas[-1]
    assert sigmas[numbers.index(800)] == estimate_model(pixels)[0].sigmas[0]


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(1e-3, 1e7), st.floats(1e-3, 1e7))
def test_a_number_moves_the_odds_one_way_and_so_far_and_nonsense_does_not(any_: float, one: float, two: float) -> None:
    assert -3 <= Hints(any_).odds <= 1.5
    assert Hints(800).odds == 0
    assert Hints(min(one, two)).odds <= Hints(max(one, two)).odds
    for nonsense in (None, 0, -100, 1.1e7, np.nan, np.inf, 2**64):
        assert Hints(nonsense).odds == 0


@pytest.mark.parametrize("iso", [100, 102400])
def test_noise_that_the_pixels_tell_is_what_it_is_at_any_iso_number(iso: float) -> None:
    rng, rows = np.random.default_rng(0), np.linspace(60, 160, 512)[:, None]
    white = rng.normal(0, 40, (514, 514))
    coarse = np.mean([white[i : i + 512, j : j + 512] for i in range(3) for j in range(3)], axis=0)
    pictures = {
        "white": data.camera() + rng.normal(0, 10, (512, 512)),
        "photons": rng.poisson(data.camera() / 255 * 100) * 2.55,
        "coarse": rows + coarse,
        "plain at the coarser scale": np.asarray(Image.open(io.BytesIO(camera_jpeg(data.rocket(), 6400, seed=0)))),
    }
    for name, values in pictures.items():
        pixels = bytes_of(values)
        assert estimate_model(pixels, hints=Hints(iso)) == estimate_model(pixels), name
