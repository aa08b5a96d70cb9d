"""Flat fields: pictures of an even surface, or of nothing, in which all that varies is noise.

In other pictures the noise has to be told from the scene, and what is read is held against what cameras have. A flat
field can be believed: its whole spectrum in every working channel, at the one brightness it has.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array
from dstl_cli.noise.blind import BLOCK, RADIUS, Reading, read_scales
from dstl_cli.noise.model import SpectralChannel, SpectralNoise
from dstl_cli.pixels.colour import working_channel
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.scales import NOISE_GAIN
from dstl_cli.transforms.bases import dct_matrix

Pixels = NDArray[np.generic]

# By side of squares: the deviation of their means from a smooth surface, times the side, relative to the coarsest
# coefficients of 8x8 blocks; 1 for white noise. What a picture shows grows faster towards coarse scales than noise.
# At 16 and 32 pixels: simulated cameras have 1.0 to 1.3, the noise of thirteen photographs alone 1.4 to 2.3 and 1.5 to
# 3.2 (two of them more), as f^-0.45 2.0 and 2.6; grass and bricks under white noise of 50 have 2.2 and 2.4, and more
# under less, pictures 3 to 20.
ROUGHEST = {16: 2.1, 32: 2.9}
COARSE = 2.0  # radius up to which coefficients are the coarsest
FEWEST_SQUARES = 4  # of the largest, along each side: a smaller picture cannot be told
WIDEST_SPREAD = (
    0.5  # deviation of the logarithm of all blocks' energies: 0.42 at most in simulated flat fields, 0.6 and
)
# more in clean textures
CLIPPED_SHARE = 0.02  # of the pixels; with more at the limits, noise is cut off
LEAST_NOISE = 0.35  # grey levels; rounding alone leaves 0.29
BANDS = ((2, 2.5), (2, 4.0), (2, 6.0), (1, 4.5), (1, 6.0), (0, 4.0), (0, 5.0), (0, 6.0), (0, 7.0), (0, 8.5))
# scales and radii at which the spectrum is read, from coarse to fine
HALF_BAND_WIDTH = 0.75  # of radii
FITS = 2  # rounds in which the knots come to give what was read; more of them only follow chance
LEAST_SHARE = 0.02  # of the strongest knot, that each has at least
HEAVY_TAILS = (3.0, 4.5)  # kurtosis of the coefficients between which fine noise becomes rare but high, as after JPEG
REFERENCE = 0.16  # cycles per pixel: the floor is then the luminance's deviation there, else that of a pixel. Of floors
# of 0, 0.5, 1, 1.5 deviations and this one, this gained most on ten photographs with the noise of their kind (1.1 dB
# over none), one deviation on nine simulated ones (0.5 dB)


def flat_field_noise(sample: Pixels, depth: Depth | None = None) -> SpectralNoise | None:
    """The noise of a flat field (H, W) or (H, W, 3), as it is read; None where the picture is none."""
    own = depth or Depth.of(sample.dtype)
    if not is_flat_field(sample, own):
        return None
    readings = read_scales(sample, own)
    if not readings:
        return None
    level = float(np.asarray(working_channel(sample, 0, own), dtype=np.float64).mean())
    channels = [_fitted(readings, index, level) for index in range(len(readings[0].spectrum))]
    low, high = HEAVY_TAILS
    heavy = min(max((readings[0].tails - low) / (high - low), 0.0), 1.0)
    deviation, reference = channels[0].deviation(), channels[0].at_frequency(REFERENCE)
    floor = deviation * max(reference / deviation, 1.0) ** heavy
    return SpectralNoise(tuple(replace(channel, floor=floor) for channel in channels))


def is_flat_field(sample: Pixels, depth: Depth) -> bool:
    """Whether a picture shows nothing: means of squares lie on a smooth surface, and all blocks have as much noise."""
    luminance = np.asarray(working_channel(sample, 0, depth), dtype=np.float64)
    largest = max(ROUGHEST)
    height, width = (side // largest * largest for side in luminance.shape)
    if min(height, width) < FEWEST_SQUARES * largest or _clipped_share(sample, depth) > CLIPPED_SHARE:
        return False
    cut = luminance[:height, :width]
    blocks = cut.reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK).transpose(0, 2, 1, 3).reshape(-1, BLOCK**2)
    powers = ((blocks @ dct_matrix(BLOCK).T) ** 2)[:, 1:]
    spectrum = powers.mean(axis=0)
    deviation = math.sqrt(float(spectrum.mean()))
    if deviation <= (LEAST_NOISE if depth.data_range is not None else 1e-12 * float(np.abs(cut).max())):
        return False
    energies = (powers / np.maximum(spectrum, 1e-12 * spectrum.max())).mean(axis=1)
    spread = float(np.std(np.log(np.maximum(energies, 1e-3))))
    coarse = math.sqrt(float(spectrum[RADIUS[1:] <= COARSE].mean()))
    smooth = all(side * _roughness(cut, side) < most * coarse for side, most in ROUGHEST.items())
    return smooth and spread < WIDEST_SPREAD


def _clipped_share(sample: Pixels, depth: Depth) -> float:
    """Share of the pixels at the limits of the range."""
    limits = depth.stored_range
    return 0.0 if limits is None else float(np.mean((sample == limits[0]) | (sample == limits[1])))


def _roughness(plane: Array, side: int) -> float:
    """Deviation of the means of squares from a surface of second degree: light falls off slowly."""
    height, width = plane.shape
    means = plane.reshape(height // side, side, width // side, side).mean(axis=(1, 3))
    y, x = np.meshgrid(*(np.linspace(-1, 1, side) for side in means.shape), indexing="ij")
    surfaces = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=-1).reshape(-1, 6)
    fit = surfaces @ np.linalg.lstsq(surfaces, means.ravel(), rcond=None)[0]
    return float(np.std(means.ravel() - fit))


def _fitted(readings: list[Reading], channel: int, level: float) -> SpectralChannel:
    """The spectrum whose blocks have the powers that were read: what leaks from one frequency to others is undone."""
    bands = [(scale, radius) for scale, radius in BANDS if scale < len(readings)]
    rows = dct_matrix(BLOCK)
    inside = [np.abs(radius - RADIUS) <= HALF_BAND_WIDTH for _, radius in bands]
    read = [readings[scale].spectrum[channel][own].mean() for (scale, _), own in zip(bands, inside, strict=True)]
    target = np.sqrt(np.maximum(read, max(1e-12 * max(read), 1e-300)))
    frequencies = tuple(radius / (2 * BLOCK) / 2**scale for scale, radius in bands)
    deviations = target.copy()
    for _ in range(FITS):
        deviations = np.maximum(deviations, LEAST_SHARE * deviations.max())
        made = SpectralChannel(frequencies, tuple(map(float, deviations)))
        at_scale = [made.deviations(rows, scale) / NOISE_GAIN**scale for scale in range(len(readings))]
        given = [np.mean(at_scale[scale][own] ** 2) for (scale, _), own in zip(bands, inside, strict=True)]
        deviations = deviations * np.clip(target / np.sqrt(given), 0.5, 2.0)
    deviations = np.maximum(deviations, LEAST_SHARE * deviations.max())
    return SpectralChannel(frequencies, tuple(map(float, deviations)), 0.0, (level,), (1.0,))
