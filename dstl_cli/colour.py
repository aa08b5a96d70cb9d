"""Pixels of any depth and colour as grey channels for the numerics, and back."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]

# Orthonormal luminance-chrominance basis: white noise stays white and of the same deviation in every channel.
BASIS = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]) / np.sqrt([[3.0], [2.0], [6.0]])

UNITS = {"uint8": 1.0, "uint16": 257.0, "float32": 1.0, "float64": 1.0}
FLOAT_SIGMAS = (0.5, 255.0)  # floats with such noise are taken to be on a scale like 0-255 ...
LEAST_SIGMA = 1e-300  # (none has less noise than double precision can hold)
FLOAT_SIGMA = 20.0  # ... others are brought to this deviation


@dataclass(frozen=True)
class Depth:
    """How the numbers of one dtype relate to the units of the numerics, whose constants are meant for 0 to 255."""

    dtype: np.dtype[np.generic]
    unit: float
    data_range: tuple[float, float] | None  # in units; None: unbounded

    @classmethod
    def of(cls, dtype: np.dtype[np.generic]) -> "Depth":
        """The depth of pixels of this dtype."""
        if dtype.name not in UNITS:
            raise ValueError(f"Pixels must be uint8, uint16, float32 or float64, not {dtype}.")
        return cls(dtype, UNITS[dtype.name], (0.0, 255.0) if dtype.kind == "u" else None)

    def for_sigma(self, sigma: float) -> "Depth":
        """The depth for noise of this deviation: floats have no scale of their own, so their noise sets it."""
        if self.data_range is not None or sigma < LEAST_SIGMA or FLOAT_SIGMAS[0] <= sigma <= FLOAT_SIGMAS[1]:
            return self
        return replace(self, unit=sigma / FLOAT_SIGMA)

    def restore(self, values: Floats) -> Pixels:
        """Values in units as pixels: rounded and clipped to the dtype's range where it has one."""
        if self.data_range is None:
            return (values * self.unit).astype(self.dtype)
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


def is_grey(pixels: Pixels) -> bool:
    """Whether a picture is grey, be it stored as one channel or as three equal ones."""
    if pixels.ndim == 2:
        return True
    red = pixels[..., 0]
    return bool(np.array_equal(red, pixels[..., 1]) and np.array_equal(red, pixels[..., 2]))


def channel_count(pixels: Pixels) -> int:
    """How many working channels a picture has: one for grey, three for colour."""
    return 1 if pixels.ndim == 2 else 3


def working_channel(pixels: Pixels, index: int, depth: Depth | None = None) -> Pixels:
    """A grey channel in units: the picture itself, or its luminance (0) or a chrominance (1, 2)."""
    unit = (depth or Depth.of(pixels.dtype)).unit
    working = np.float64 if pixels.dtype == np.float64 else np.float32
    if pixels.ndim == 2:
        return pixels if unit == 1 else np.multiply(pixels, 1 / unit, dtype=working)
    channel = np.zeros(pixels.shape[:2], dtype=working)
    for c in range(3):
        channel += np.multiply(pixels[..., c], BASIS[index, c] / unit, dtype=working)
    return channel


def from_channels(channels: list[Floats], depth: Depth) -> Pixels:
    """The picture whose working channels these are."""
    if len(channels) == 1:
        return depth.restore(channels[0])
    pixels = np.empty((*channels[0].shape, 3), dtype=depth.dtype)
    for c in range(3):
        pixels[..., c] = depth.restore(np.asarray(sum(BASIS[k, c] * channels[k] for k in range(3))))
    return pixels


def carried_over(deviations: list[float]) -> list[float]:
    """Deviations of independent noise in red, green and blue as those in the working basis."""
    return [math.hypot(*(BASIS[k, c] * deviations[c] for c in range(3))) for k in range(3)]


def root_mean_square(values: list[float]) -> float:
    """One number for several deviations."""
    return math.hypot(*values) / math.sqrt(len(values))
