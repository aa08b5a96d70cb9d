"""Pictures of any colour as grey working channels, and back."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.pixels.depth import Depth, working_type

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]

# Orthonormal luminance-chrominance basis: white noise stays white and of the same deviation in every channel.
BASIS = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]) / np.sqrt([[3.0], [2.0], [6.0]])


def check_pixels(pixels: Pixels) -> None:
    """Refuse arrays that are not a grey (H, W) or RGB (H, W, 3) picture of a known depth with pixels in it."""
    check_shape(pixels.shape, pixels.dtype)
    check_finite(pixels.size - int(np.count_nonzero(np.isfinite(pixels))))


def check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse shapes that are not those of a grey or RGB picture with pixels in it, and depths that are not known."""
    if len(shape) != 2 and not (len(shape) == 3 and shape[2] == 3):
        found = "x".join(map(str, shape))
        raise ValueError(f"A picture is an array of (height, width) or (height, width, 3), not {found}.")
    if 0 in shape:
        raise ValueError("The picture is empty.")
    Depth.of(dtype)


def check_finite(wrong: int) -> None:
    """Refuse a picture with so many values that are no finite numbers."""
    if wrong:
        raise ValueError(f"The picture has {wrong} pixel values that are not finite numbers.")


def is_grey(pixels: Pixels) -> bool:
    """Whether a picture is grey, be it stored as one channel or as three equal ones."""
    if pixels.ndim == 2:
        return True
    red = pixels[..., 0]
    return bool(np.array_equal(red, pixels[..., 1]) and np.array_equal(red, pixels[..., 2]))


def luminance(pixels: Pixels, depth: Depth | None = None) -> Pixels:
    """The grey channel to learn from, on the scale the denoiser works on: the picture itself, or its luminance."""
    check_pixels(pixels)
    grey = pixels[..., 0] if pixels.ndim == 3 and is_grey(pixels) else pixels
    return np.asarray(working_channel(grey, 0, depth))


def channel_count(pixels: Pixels) -> int:
    """How many working channels a picture has: one for grey, three for colour."""
    return 1 if pixels.ndim == 2 else 3


def working_channel(pixels: Pixels, index: int, depth: Depth | None = None) -> Pixels:
    """A grey channel in units: the picture itself, or its luminance (0) or a chrominance (1, 2)."""
    unit = (depth or Depth.of(pixels.dtype)).unit
    working = working_type(pixels.dtype)
    if pixels.ndim == 2:
        return pixels if unit == 1 else np.multiply(pixels, 1 / unit, dtype=working)
    parts = (np.multiply(pixels[..., c], BASIS[index, c] / unit, dtype=working) for c in np.flatnonzero(BASIS[index]))
    return reduce(_added, parts)


def _added(total: Pixels, part: Pixels) -> Pixels:
    return np.add(total, part, out=total)


def from_channels(channels: list[Floats], depth: Depth) -> Pixels:
    """The picture whose working channels these are."""
    if len(channels) == 1:
        return depth.restore(channels[0])
    pixels = np.empty((*channels[0].shape, 3), dtype=depth.dtype)
    for c in range(3):
        value = channels[0] * float(BASIS[0, c])
        for channel, factor in zip(channels[1:], BASIS[1:, c].tolist(), strict=True):
            if factor:
                value += channel * factor
        pixels[..., c] = depth.restore(value)
    return pixels


def in_working_basis(deviations: list[float]) -> list[float]:
    """Deviations of independent noise in red, green and blue as those in the working basis."""
    return [math.hypot(*(BASIS[k, c] * deviations[c] for c in range(3))) for k in range(3)]


def root_mean_square(values: Sequence[float]) -> float:
    """One number for several deviations."""
    if len(set(values)) == 1:
        return values[0]
    return math.hypot(*values) / math.sqrt(len(values))
