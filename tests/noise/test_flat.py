"""Flat fields: known from pictures that show something, and believed down to their spectrum."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data

from dstl_cli.noise.flat import flat_field_noise, is_flat_field
from dstl_cli.noise.model import SpectralChannel
from dstl_cli.noise.synthetic import add_noise, add_poisson_noise, photograph
from dstl_cli.pixels.depth import Depth

SIDE = 320
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "real_noise"


def even_light(level: float, channels: int = 3) -> NDArray[np.float64]:
    """An evenly lit wall, a quarter darker in the corners."""
    y, x = np.mgrid[-1:1:240j, -1:1:320j]
    light = level * (1 - 0.12 * (x**2 + y**2))
    return light if channels == 1 else np.repeat(light[..., None], channels, axis=2)


def bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.asarray(np.clip(np.rint(values), 0, 255), np.uint8)


def is_flat(pixels: NDArray[Any]) -> bool:
    return is_flat_field(pixels, Depth.of(pixels.dtype))


@pytest.mark.parametrize("level", [60, 128, 200])
@pytest.mark.parametrize("iso", [800, 3200, 12800])
def test_a_wall_in_a_simulated_camera_is_flat(level: float, iso: float) -> None:
    assert is_flat(photograph(even_light(level), iso, seed=3))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_flat_at_any_depth(dtype: str) -> None:
    noisy = add_poisson_noise(even_light(90, 1), 1.5, 4, seed=0)
    stored: dict[str, NDArray[Any]] = {
        "uint8": bytes_of(noisy),
        "uint16": (257 * noisy).astype(np.uint16),
        "float32": (noisy / 255).astype(np.float32),
    }
    assert is_flat(stored[dtype])


def test_floats_have_any_scale() -> None:
    """And the noise is in their units."""
    noisy = add_noise(even_light(90), 7, seed=0)
    small, large = (flat_field_noise(scale * noisy) for scale in (1e-9, 1.0))
    assert small is not None
    assert large is not None
    assert small.sigmas == pytest.approx([1e-9 * sigma for sigma in large.sigmas], rel=1e-3)
    assert large.sigmas == pytest.approx([7, 7, 7], rel=0.05)


@pytest.mark.parametrize("name", ["astronaut", "brick", "camera", "coins", "grass", "gravel", "moon", "page", "text"])
@pytest.mark.parametrize("sigma", [0, 25, 50])
def test_pictures_and_textures_are_not_flat(name: str, sigma: float) -> None:
    """Not even under strong noise."""
    assert not is_flat(bytes_of(add_noise(getattr(data, name)(), sigma, seed=0)))


def test_what_says_nothing_is_not_flat() -> None:
    assert not is_flat(np.full((200, 200), 7, np.uint8))  # no noise
    assert not is_flat(bytes_of(add_noise(np.full((60, 60), 99.0), 10, seed=0)))  # too small to tell
    assert not is_flat(bytes_of(add_noise(np.full((200, 200), 3.0), 10, seed=0)))  # cut off at 0
    assert flat_field_noise(data.camera()) is None


@pytest.mark.skipif(not SHARED.exists(), reason="the photographs are not part of this project")
def test_no_real_picture_is_flat() -> None:
    import imageio.v3 as iio

    assert [path.name for path in sorted(SHARED.glob("*/*"))[::5] if is_flat(iio.imread(path))] == []


SPECTRA = [
    SpectralChannel((0.5,), (10.0,)),
    SpectralChannel((0.02, 0.1, 0.2, 0.3, 0.5), (16.0, 12.0, 8.0, 3.0, 1.0)),
    SpectralChannel((0.05, 0.15, 0.25, 0.5), (4.0, 9.0, 6.0, 6.0)),
]


@pytest.mark.parametrize("true", SPECTRA)
def test_the_spectrum_of_simulated_noise_comes_back(true: SpectralChannel) -> None:
    """White noise filtered to a spectrum, on a flat field: at every frequency within a tenth."""
    f = np.hypot(np.fft.fftfreq(512)[:, None], np.fft.fftfreq(512)[None])
    gains = np.vectorize(true.at_frequency)(np.maximum(f, 1e-3))
    white = np.random.default_rng(1).standard_normal((512, 512))
    model = flat_field_noise(bytes_of(120 + np.fft.ifft2(np.fft.fft2(white) * gains).real))
    assert model is not None
    (channel,) = model.channels
    read = np.array(channel.deviations_at)
    np.testing.assert_allclose(read, [true.at_frequency(f) for f in channel.frequencies], rtol=0.13)
    assert channel.levels == pytest.approx((120,), abs=0.5)


def test_each_channel_has_its_own() -> None:
    """Colours that share half of their noise: the luminance has most of it."""
    rng = np.random.default_rng(0)
    common, own = rng.standard_normal((SIDE, SIDE, 1)), rng.standard_normal((SIDE, SIDE, 3))
    model = flat_field_noise(bytes_of(128 + 8 * common + 4 * own))
    assert model is not None
    spectra = [channel.deviations_at[-3:] for channel in model.channels]
    np.testing.assert_allclose(spectra[0], np.sqrt(3 * 64 + 16), rtol=0.1)
    np.testing.assert_allclose(spectra[1:], 4, rtol=0.1)
