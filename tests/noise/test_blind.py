"""The blind estimate: white noise goes to its reader, its level and colour are recognised, clean stays clean."""

import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data

from dstl_cli.noise.blind import estimate_model
from dstl_cli.noise.estimate import estimate_sigma
from dstl_cli.noise.model import SpectralNoise, WhiteNoise
from dstl_cli.pixels.depth import Depth


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


@pytest.mark.parametrize("kind", ["white", "poisson"])
def test_a_kind_that_is_known_is_taken(kind: str) -> None:
    photons = bytes_of(np.random.default_rng(0).poisson(data.camera() / 255 * 100) * 2.55)
    model, _ = estimate_model(photons, Depth.of(photons.dtype), kind=kind)
    assert model.kind == {"white": "white", "poisson": "spectral"}[kind]
    if isinstance(model, WhiteNoise):
        assert model.sigmas == (estimate_sigma(photons, data_range=(0, 255)).sigma,)


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


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (8, 8), (70, 300), (3, 400, 3), (64, 64, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_any_size_and_dtype_has_an_answer(shape: tuple[int, ...], dtype: str) -> None:
    for pixels in (np.full(shape, 7, dtype), np.random.default_rng(0).integers(0, 200, shape).astype(dtype)):
        sigmas = estimate_model(pixels)[0].sigmas
        assert len(sigmas) == (3 if len(shape) == 3 else 1)
        assert np.isfinite(sigmas).all()
