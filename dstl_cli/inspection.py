"""What there is to know about a picture or a transform: numbers of each channel, and the atoms as one picture."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dstl_cli.colour import Depth, check_pixels
from dstl_cli.noise import estimate_sigma
from dstl_cli.transforms import Transform

Array = NDArray[np.float64]
Pixels = NDArray[np.generic]

BINS = 256


@dataclass(frozen=True)
class Channel:
    """One channel of a page: its range in the file's own numbers, and its estimated noise."""

    page: int  # from 1
    name: str
    smallest: float
    mean: float
    largest: float
    sigma: float  # as --sigma takes it: on the 0-255 scale for integers, in file units for floats
    saturated: float  # share of the pixels at the limits of the range
    warnings: tuple[str, ...]


def channels_of(page: int, pixels: Pixels) -> list[Channel]:
    """The channels of a grey (H, W) or RGB (H, W, 3) page."""
    check_pixels(pixels)
    depth = Depth.of(pixels.dtype)
    own_range = None if depth.data_range is None else (0.0, depth.data_range[1] * depth.unit)
    found = []
    for name, values in named_channels(pixels):
        estimate = estimate_sigma(values, data_range=own_range)
        found.append(
            Channel(
                page=page, name=name, smallest=float(values.min()), mean=float(values.mean(dtype=np.float64)),
                largest=float(values.max()), sigma=estimate.sigma / depth.unit, saturated=estimate.saturated,
                warnings=estimate.warnings,
            )
        )  # fmt: skip
    return found


def named_channels(pixels: Pixels) -> list[tuple[str, Pixels]]:
    """The channels of a page with their names."""
    if pixels.ndim == 2:
        return [("grey", pixels)]
    return [(name, pixels[..., index]) for index, name in enumerate(("red", "green", "blue"))]


def histogram(pixels: Pixels) -> tuple[Array, list[tuple[str, NDArray[np.int64]]]]:
    """Edges of equal bins over the range of the depth (floats: of the pixels), and the counts of each channel."""
    depth = Depth.of(pixels.dtype)
    limits = (float(pixels.min()), float(pixels.max()))
    if depth.data_range is not None:
        limits = (0.0, depth.data_range[1] * depth.unit + 1)
    edges = np.histogram_bin_edges(np.array([]), BINS, limits)
    return edges, [(name, np.histogram(values, edges)[0]) for name, values in named_channels(pixels)]


def atom_grid(transform: Transform) -> Array:
    """The rows of W as p x p pictures in a p x p grid with lines between: -1 to 1, each atom scaled by its peak."""
    p = transform.patch_size
    atoms = transform.matrix / np.abs(transform.matrix).max(axis=1, keepdims=True)
    grid = np.full((p, p + 1, p, p + 1), np.nan)
    grid[:, :p, :, :p] = atoms.reshape(p, p, p, p).transpose(0, 2, 1, 3)
    return grid.reshape(p * (p + 1), p * (p + 1))[:-1, :-1]
