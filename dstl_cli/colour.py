"""Pixels of any depth and colour as grey channels for the numerics, and back."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]

# Orthonormal luminance-chrominance basis: white noise stays white and of the same deviation in every channel.
BASIS = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]) / np.sqrt([[3.0], [2.0], [6.0]])

_UNITS = {"uint8": 1.0, "uint16": 257.0, "float32": 1.0, "float64": 1.0}


@dataclass(frozen=True)
class Depth:
    """How the numbers of one dtype relate to the 0-255 scale of sigma (floats: file units)."""

    dtype: np.dtype[np.generic]
    unit: float
    data_range: tuple[float, float] | None  # in units; None: unbounded

    @classmethod
    def of(cls, dtype: np.dtype[np.generic]) -> "Depth":
        """The depth of pixels of this dtype."""
        if dtype.name not in _UNITS:
            raise ValueError(f"Pixels must be uint8, uint16, float32 or float64, not {dtype}.")
        return cls(dtype, _UNITS[dtype.name], (0.0, 255.0) if dtype.kind == "u" else None)

    def restore(self, values: Floats) -> Pixels:
        """Values in units as pixels: rounded and clipped to the dtype's range where it has one."""
        if self.data_range is None:
            return values.astype(self.dtype)
        scaled = np.rint(values * self.unit)
        np.clip(scaled, 0, self.data_range[1] * self.unit, out=scaled)
        return np.asarray(scaled, dtype=self.dtype)


def check_pixels(pixels: Pixels) -> None:
    """Refuse arrays that are not a grey (H, W) or RGB (H, W, 3) picture with pixels in it."""
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[2] == 3):
        shape = "x".join(map(str, pixels.shape))
        raise ValueError(f"A picture is an array of (height, width) or (height, width, 3), not {shape}.")
    if pixels.size == 0:
        raise ValueError("The picture is empty.")
    bad = pixels.size - int(np.count_nonzero(np.isfinite(pixels)))
    if bad:
        raise ValueError(f"The picture has {bad} pixel values that are not finite numbers.")


def channel_count(pixels: Pixels) -> int:
    """How many working channels a picture has: one for grey, three for colour."""
    return 1 if pixels.ndim == 2 else 3


def working_channel(pixels: Pixels, index: int) -> Pixels:
    """A grey channel in units: the picture itself, or its luminance (0) or a chrominance (1, 2)."""
    depth = Depth.of(pixels.dtype)
    working = np.float64 if depth.dtype == np.float64 else np.float32
    if pixels.ndim == 2:
        return pixels if depth.unit == 1 else np.multiply(pixels, 1 / depth.unit, dtype=working)
    channel = np.zeros(pixels.shape[:2], dtype=working)
    for c in range(3):
        channel += np.multiply(pixels[..., c], BASIS[index, c] / depth.unit, dtype=working)
    return channel


def from_channels(channels: list[Floats], dtype: np.dtype[np.generic]) -> Pixels:
    """The picture whose working channels these are."""
    depth = Depth.of(dtype)
    if len(channels) == 1:
        return depth.restore(channels[0])
    pixels = np.empty((*channels[0].shape, 3), dtype=dtype)
    for c in range(3):
        pixels[..., c] = depth.restore(np.asarray(sum(BASIS[k, c] * channels[k] for k in range(3))))
    return pixels


def carried_over(deviations: list[float]) -> list[float]:
    """Deviations of independent noise in red, green and blue as those in the working basis."""
    return [math.sqrt(sum((BASIS[k, c] * deviations[c]) ** 2 for c in range(3))) for k in range(3)]


def root_mean_square(values: list[float]) -> float:
    """One number for several deviations."""
    return math.sqrt(sum(value**2 for value in values) / len(values))
