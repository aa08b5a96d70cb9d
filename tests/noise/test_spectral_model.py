"""The spectral noise model: what it says of rows, scales and levels, and that it survives JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dstl_cli.noise.model import SpectralChannel, SpectralNoise, WhiteChannel, model_from_json
from dstl_cli.pixels.planes import Plane
from dstl_cli.pixels.scales import halved

COARSE = SpectralChannel((0.02, 0.1, 0.3, 0.5), (20.0, 12.0, 4.0, 1.0))


def simulated(channel: SpectralChannel, size: int, seed: int) -> np.ndarray:
    """Gaussian noise with the channel's spectrum, periodic."""
    f = np.fft.fftfreq(size)
    radius = np.maximum(np.hypot(f[:, None], f[None, :]), 1e-6)
    gains = np.exp(np.interp(np.log(radius), np.log(channel.frequencies), np.log(channel.deviations_at)))
    white = np.random.default_rng(seed).standard_normal((size, size))
    return np.fft.ifft2(np.fft.fft2(white) * gains).real


@pytest.mark.parametrize("scale", [0, 1, 2])
def test_deviations_are_those_of_simulated_noise(scale: int) -> None:
    plane = Plane.whole(simulated(COARSE, 1024, 0))
    for _ in range(scale):
        plane = halved(plane)
    rows = np.random.default_rng(1).standard_normal((6, 49))
    rows -= rows.mean(axis=1, keepdims=True)
    patches = np.lib.stride_tricks.sliding_window_view(plane.values, (7, 7))[::2, ::2].reshape(-1, 49)
    measured = (patches @ rows.T).std(axis=0)
    np.testing.assert_allclose(COARSE.deviations(rows, scale), measured, rtol=0.06)
    own = COARSE
    for _ in range(scale):
        own = own.halved()
    np.testing.assert_allclose(own.deviations(rows), COARSE.deviations(rows, scale))
    assert own.deviation() == COARSE.deviation(scale)
    assert own.coarser_scales == max(0, COARSE.coarser_scales - scale)


def test_a_flat_spectrum_is_white_noise() -> None:
    flat, white = SpectralChannel((0.5,), (7.0,)), WhiteChannel(7.0)
    rows = np.random.default_rng(0).standard_normal((20, 121))
    np.testing.assert_allclose(flat.deviations(rows), white.deviations(rows), rtol=1e-9)
    for scale in (1, 2):
        np.testing.assert_allclose(flat.deviations(rows, scale), white.deviations(rows, scale), rtol=0.03)
        np.testing.assert_allclose(flat.halved().deviations(rows, scale - 1), white.deviations(rows, scale), rtol=0.03)
    assert flat.coarser_scales == 0
    assert COARSE.coarser_scales == 2


def test_the_floor_holds_every_coefficient_up() -> None:
    rows = np.eye(9)[:3] - 1 / 9
    floored = SpectralChannel(COARSE.frequencies, COARSE.deviations_at, floor=30.0)
    np.testing.assert_allclose(floored.deviations(rows), 30.0 * np.linalg.norm(rows, axis=1), rtol=0.02)


def test_levels_are_interpolated_and_held_beyond_the_knots() -> None:
    channel = SpectralChannel((0.5,), (1.0,), 0.0, (10.0, 20.0), (1.0, 3.0))
    factors = channel.level_factors(np.array([0.0, 15.0, 99.0]))
    assert factors is not None
    np.testing.assert_allclose(factors, [1.0, 2.0, 3.0])
    assert COARSE.level_factors(np.zeros(2)) is None


def test_stabilised_levels_have_the_same_noise_everywhere() -> None:
    """Their slope is one over the factor at every level, beyond the knots too; without knots nothing is bent."""
    channel = SpectralChannel((0.5,), (1.0,), 0.0, (10.0, 20.0, 90.0), (0.2, 1.0, 3.0))
    levels = np.linspace(-50, 200, 5001)
    slopes = np.gradient(channel.stabilised(levels), levels)
    factors = channel.level_factors(levels)
    assert factors is not None
    np.testing.assert_allclose(slopes * factors, 1.0, rtol=0.05)
    assert channel.stabilised(levels.astype(np.float32)).dtype == np.float32
    for even in (COARSE, WhiteChannel(3.0)):
        np.testing.assert_array_equal(even.stabilised(levels), levels)


def test_the_coarse_excess_is_that_of_the_power_beyond_a_patch() -> None:
    assert WhiteChannel(100.0).coarse_excess == 0
    assert SpectralChannel((0.5,), (7.0,)).coarse_excess == 0
    assert SpectralChannel((0.01, 0.5), (5.0, 9.0)).coarse_excess == 0
    twice = SpectralChannel((0.5 / 11, 2 / 11), (10.0, 5.0))
    assert twice.coarse_excess == pytest.approx(0.75)
    assert replace(twice, floor=11.0).coarse_excess == 0
    assert twice.scaled(3.0).coarse_excess == pytest.approx(0.75)


def test_json_there_and_back_and_a_line_for_a_person() -> None:
    model = SpectralNoise((SpectralChannel((0.1, 0.5), (9.0, 3.0), 2.0, (0.0, 255.0), (2.0, 1.0)),) * 3)
    assert model_from_json(json.loads(json.dumps(model.to_json()))) == model
    assert "stronger in the shadows" in model.describe()
    with pytest.raises(ValueError, match="usable entry"):
        model_from_json({"kind": "spectral", "channels": [{}]})


def test_impossible_spectra_are_refused() -> None:
    for frequencies, deviations in (((), ()), ((0.5, 0.1), (1.0, 1.0)), ((0.1,), (0.0,)), ((0.1,), (1.0, 2.0))):
        with pytest.raises(ValueError, match=r"\."):
            SpectralChannel(frequencies, deviations)


def test_halvings_are_at_least_those_that_help_and_are_kept() -> None:
    plain = SpectralChannel((0.5,), (20.0,), 0.0, (0.0, 255.0), (0.5, 1.5))
    model = SpectralNoise((replace(plain, halvings=2),))
    assert (plain.coarser_scales, model.channel(0).coarser_scales) == (0, 2)
    assert model_from_json(model.to_json()) == model
    assert model.scaled(2.0).in_units(3.0).channel(0).halvings == 2
    assert model.describe() == SpectralNoise((plain,)).describe()  # the words are of the spectrum


@pytest.mark.parametrize("halvings", [-1, 3, 0.5, float("nan"), float("inf"), "2", None])
def test_wrong_halvings_are_one_sentence(halvings: object) -> None:
    facts = SpectralNoise((SpectralChannel((0.5,), (20.0,)),)).to_json()
    facts["channels"][0]["halvings"] = halvings
    with pytest.raises(ValueError, match=r"\.$"):
        model_from_json(facts)
