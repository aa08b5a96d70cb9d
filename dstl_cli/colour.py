"""Pixels of any depth and colour as grey channels for the numerics, and back."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.generic]
Array = NDArray[np.float64]

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

    def restore(self, values: Array) -> Pixels:
        """Values in units as pixels: rounded and clipped to the dtype's range where it has one."""
        if self.data_range is None:
            return values.astype(self.dtype)
        scaled = np.rint(values * self.unit)
        return np.clip(scaled, 0, self.data_range[1] * self.unit, out=scaled).astype(self.dtype)


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


def to_channels(pixels: Pixels) -> list[Pixels]:
    """Grey channels in units: the picture itself, or its luminance and two chrominances."""
    depth = Depth.of(pixels.dtype)
    if pixels.ndim == 2:
        return [pixels if depth.unit == 1 else pixels.astype(np.float64) / depth.unit]
    working = np.float64 if depth.dtype == np.float64 else np.float32
    planes = [pixels[..., c].astype(working) for c in range(3)]
    return [np.asarray(sum(BASIS[k, c] / depth.unit * planes[c] for c in range(3)), dtype=working) for k in range(3)]


def from_channels(channels: list[Array], dtype: np.dtype[np.generic]) -> Pixels:
    """The inverse of `to_channels`."""
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
