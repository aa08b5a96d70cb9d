"""What `dstl inspect` measures: statistics of the channels of a picture, its histogram, the atoms of a transform."""

from dataclasses import dataclass

import numpy as np

from dstl_cli.base.arrays import Array, Levels, Pixels
from dstl_cli.noise.estimate import estimate_channels
from dstl_cli.pixels.colour import check_shape
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.invalid import invalid_pixels, without_invalid
from dstl_cli.transforms.transform import Transform

BINS = 256


@dataclass(frozen=True)
class ChannelStatistics:
    """One channel of a page: its range in the file's own numbers, and its estimated noise."""

    page: int  # from 1
    name: str
    smallest: float
    mean: float
    largest: float
    sigma: float  # as --sigma takes it: on the 0-255 scale, or in the units of the file
    saturated: float  # share of the pixels at the limits of the range
    invalid: int  # pixels of the page that are no finite numbers in some colour: all else is of the others
    warnings: tuple[str, ...]


def channel_statistics(page: int, pixels: Pixels, depth: Depth | None = None) -> list[ChannelStatistics]:
    """The statistics of each channel of a grey (H, W) or RGB (H, W, 3) page."""
    check_shape(pixels.shape, pixels.dtype)
    depth = depth or Depth.of(pixels.dtype)
    missing = invalid_pixels(pixels)
    invalid = int(np.count_nonzero(missing))
    estimates = estimate_channels(without_invalid(pixels), depth)
    found = []
    for (name, channel), noise in zip(named_channels(pixels), estimates, strict=True):
        values = channel[~missing] if invalid else channel
        smallest, mean, largest = float(values.min()), float(values.mean(dtype=np.float64)), float(values.max())
        sigma, warnings = noise.sigma / depth.told_unit, tuple(warning.sentence for warning in noise.warnings)
        found.append(ChannelStatistics(page, name, smallest, mean, largest, sigma, noise.saturated, invalid, warnings))
    return found


def named_channels(pixels: Pixels) -> list[tuple[str, Pixels]]:
    """The channels of a page with their names."""
    if pixels.ndim == 2:
        return [("grey", pixels)]
    return [(name, pixels[..., index]) for index, name in enumerate(("red", "green", "blue"))]


def working_names(count: int) -> tuple[str, ...]:
    """How the working channels are called, of which a grey picture has one and a colour picture three."""
    return ("grey",) if count == 1 else ("luminance", "chrominance 1", "chrominance 2")


def histogram(pixels: Pixels, depth: Depth | None = None) -> tuple[Array, list[tuple[str, Levels]]]:
    """Edges of equal bins, a byte each or over the range of the pixels; the counts of each channel."""
    depth = depth or Depth.of(pixels.dtype)
    limits = finite_range(pixels)
    if depth.scaled and depth.stored_range is not None:
        first = 0.0 if depth.stored_range[1] < BINS else limits[0]
        limits = first, first + BINS * (np.floor((limits[1] - first) / BINS) + 1)  # bins of whole numbers
    edges = np.histogram_bin_edges(np.array([]), BINS, limits)
    return edges, [
        (name, np.histogram(values[np.isfinite(values)], edges)[0]) for name, values in named_channels(pixels)
    ]


def finite_range(pixels: Pixels) -> tuple[float, float]:
    """The smallest and the largest finite value of pixels."""
    values = pixels[np.isfinite(pixels)]
    return float(values.min()), float(values.max())


def atom_grid(transform: Transform) -> Array:
    """The rows of W as p x p pictures in a p x p grid with lines between: -1 to 1, each atom scaled by its peak."""
    p = transform.patch_size
    atoms = transform.matrix / np.abs(transform.matrix).max(axis=1, keepdims=True)
    grid = np.full((p, p + 1, p, p + 1), np.nan)
    grid[:, :p, :, :p] = atoms.reshape(p, p, p, p).transpose(0, 2, 1, 3)
    return grid.reshape(p * (p + 1), p * (p + 1))[:-1, :-1]
