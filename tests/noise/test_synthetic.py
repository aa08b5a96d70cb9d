"""The noises that are added obey their laws: variance per level, colour of the spectrum, growth, seeds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.fft import dctn

from dstl_cli.noise import synthetic
from dstl_cli.noise.synthetic import SYNTHETIC, SyntheticNoise, add_noise, add_poisson_noise, parse_noises, photograph

Pixels = NDArray[Any]
LEVELS = (0.0, 1.0, 10.0, 60.0, 200.0)


def one(text: str) -> SyntheticNoise:
    (noise,) = parse_noises(text)
    return noise


def grey_card(level: float, colour: bool = True) -> Pixels:
    return np.full((128, 160, 3) if colour else (128, 160), level)


def spectrum(noise: Pixels) -> Pixels:
    """Root mean squares of the coefficients of 8x8 blocks along the diagonal."""
    blocks = noise.reshape(noise.shape[0] // 8, 8, noise.shape[1] // 8, 8).swapaxes(1, 2)
    return np.asarray(np.diag(np.sqrt((dctn(blocks, axes=(2, 3), norm="ortho") ** 2).mean(axis=(0, 1)))))


def test_white_noise_is_the_same_bit_for_bit_whatever_it_is_called() -> None:
    image = np.random.default_rng(5).random((30, 40, 3))
    expected = 20.0 * np.random.default_rng(3).standard_normal(image.shape) + image
    np.testing.assert_array_equal(add_noise(image, 20.0, seed=3), expected)
    np.testing.assert_array_equal(one("white:20").added_to(image, 3), expected)


@pytest.mark.parametrize(("slope", "offset"), [(2.0, 9.0), (0.5, 0.0), (12.0, 100.0), (0.0, 25.0), (0.0, 0.0)])
def test_poisson_noise_has_its_variance_at_every_level_and_no_bias(slope: float, offset: float) -> None:
    image = np.repeat(LEVELS, 200_000).reshape(len(LEVELS), -1)
    noise = add_poisson_noise(image, slope, offset, seed=1) - image
    expected = slope * np.array(LEVELS) + offset
    np.testing.assert_allclose(noise.var(axis=1), expected, rtol=0.03)
    assert (np.abs(noise.mean(axis=1)) <= 5 * np.sqrt(expected / 200_000)).all()


def test_poisson_noise_counts() -> None:
    noisy = add_poisson_noise(np.full((50, 50), 10.0), 4.0, 0.0, seed=0)
    np.testing.assert_allclose(noisy / 4, np.rint(noisy / 4), atol=1e-12)
    below = add_poisson_noise(np.full((50, 50), -10.0), 4.0, 0.0, seed=0)
    np.testing.assert_array_equal(below, -10.0)
    with pytest.raises(ValueError, match="slope of Poisson noise must be 0 or at least 1e-13 here, not 1e-20"):
        add_poisson_noise(np.full((2, 2), 100.0), 1e-20, 0.0, seed=0)


@pytest.mark.parametrize("name", ["white:20", "poisson:2,9", "camera:3200"])
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (24, 33, 3)).astype(np.float64)
    kept = image.copy()
    first, again, other = (one(name).added_to(image, seed) for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert first.shape == image.shape
    np.testing.assert_array_equal(image, kept)


@pytest.mark.parametrize("colour", [True, False])
def test_a_camera_makes_coloured_noise_that_grows_with_iso(colour: bool) -> None:
    grown = []
    for iso in (400, 3200, 25600):
        noise = photograph(grey_card(120.0, colour), iso, seed=0) - 120.0
        grown.append(noise.std())
        luma = noise @ np.array([0.299, 0.587, 0.114]) if colour else noise
        if iso > 400:  # below, JPEG is most of it
            low, middle, high = spectrum(luma)[[1, 3, 6]]
            assert low > 1.2 * middle > 1.2 * 1.2 * high
    assert grown[1] > 2 * grown[0]
    assert grown[2] > 2 * grown[1]


def test_a_camera_makes_noise_that_depends_on_the_level_and_is_coarse_and_heavy_tailed_in_the_colours() -> None:
    dark, bright = (photograph(grey_card(level), 6400, seed=2) - level for level in (60.0, 230.0))
    assert dark.std() > 1.5 * bright.std()
    chrominance = photograph(grey_card(120.0), 1600, seed=3) @ np.array([1.0, 0.0, -1.0])
    deviations = spectrum(chrominance - chrominance.mean())
    assert deviations[1] > 4 * deviations[5]
    blocks = (chrominance - chrominance.mean()).reshape(16, 8, 20, 8).swapaxes(1, 2)
    coarse = dctn(blocks, axes=(2, 3), norm="ortho")[..., 1, 1]
    assert np.mean(coarse**4) > 4 * np.mean(coarse**2) ** 2  # 3: Gaussian


def test_a_camera_keeps_the_picture_and_its_shape() -> None:
    rows, columns = np.mgrid[:64, :96]
    smooth = 120 + 60 * np.sin(rows / 20) * np.cos(columns / 25)
    taken = photograph(np.dstack([smooth, smooth, smooth]), 25, seed=0)
    assert taken.dtype == np.uint8
    assert np.abs(taken - smooth[..., None]).mean() < 2
    for shape in ((1, 1), (1, 5, 3), (3, 2), (17, 9, 3)):
        assert photograph(np.full(shape, 90.0), 800, seed=0).shape == shape
    np.testing.assert_array_less(photograph(np.full((8, 8), -40.0), 25, seed=0), 4)  # clipped, not wrapped


def test_the_mosaic_is_interpolated_by_means_of_the_nearest_pixels() -> None:
    mosaic = np.random.default_rng(0).random((6, 8))
    colours = synthetic.interpolated(mosaic)
    sites = [["R", "G"], ["G", "B"]]
    for row in range(1, 5):
        for column in range(1, 7):
            for channel, name in enumerate("RGB"):
                near = [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
                near = [place for place in near if sites[place[0] % 2][place[1] % 2] == name]
                least = min(abs(i - row) + abs(j - column) for i, j in near)
                nearest = [mosaic[i, j] for i, j in near if abs(i - row) + abs(j - column) == least]
                assert colours[row, column, channel] == pytest.approx(np.mean(nearest))
    flat = np.broadcast_to([0.2, 0.5, 0.9], (7, 9, 3))
    np.testing.assert_allclose(synthetic.interpolated(synthetic.mosaic_of(flat)), flat)  # to the very border


@given(st.floats(0, 1))
def test_the_tone_curve_and_its_inverse(value: float) -> None:
    light = synthetic.linear_light(np.array([value]))
    assert synthetic.tone_curve(light)[0] == pytest.approx(value, abs=1e-6)
    assert -1e-12 <= light[0] <= value + 1e-12


def test_noises_are_named_in_one_text() -> None:
    names = [noise.name for noise in parse_noises("white:20, poisson:2,9,camera:3200,white:20.0,poisson:0.5,0")]
    assert names == ["white:20", "poisson:2,9", "camera:3200", "poisson:0.5,0"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "noise must be one of white, poisson, camera, not ''"),
        ("20", "not '20'"),
        ("pink:3", "not 'pink'"),
        ("white", "noise takes white:SIGMA with numbers from 0 to 1e.06, not 'white'"),
        ("white:10,20", "white:SIGMA .* not 'white:10,20'"),
        ("poisson:2", "poisson:A,B .* not 'poisson:2'"),
        ("poisson:2,-1", "not 'poisson:2,-1'"),
        ("white:nan", "not 'white:nan'"),
        ("white:x", "not 'white:x'"),
        ("white:20,", "not 'white:20,'"),
        ("camera:3", "camera:ISO with numbers from 25 to"),
        ("white:20,camera:inf", "not 'camera:inf'"),
    ],
)
def test_what_names_no_noise_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_noises(text)


def test_every_kind_says_what_it_is() -> None:
    for kind in SYNTHETIC:
        numbers = tuple(kind.least + 100.0 for _ in kind.parameters)
        assert one(SyntheticNoise(kind, numbers).name) == SyntheticNoise(kind, numbers)
