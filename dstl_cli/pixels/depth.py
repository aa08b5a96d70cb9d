"""Pixels of any depth in the units of the numerics, and back."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]

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

    @property
    def stored_range(self) -> tuple[float, float] | None:
        """The smallest and largest pixel there can be, in the numbers of the dtype; None: unbounded."""
        return None if self.data_range is None else (0.0, self.data_range[1] * self.unit)

    def for_sigma(self, sigma: float) -> "Depth":
        """The depth for noise of this deviation: floats have no scale of their own, so their noise sets it."""
        if self.data_range is not None or sigma < LEAST_SIGMA or FLOAT_SIGMAS[0] <= sigma <= FLOAT_SIGMAS[1]:
            return self
        return replace(self, unit=sigma / FLOAT_SIGMA)

    def unrounded(self) -> "Depth":
        """The depth of the same numbers where they need not be whole: same units and range, in double precision."""
        return self if self.data_range is None else replace(self, dtype=np.dtype(np.float64))

    def restore(self, values: Floats) -> Pixels:
        """Values in units as pixels: clipped to the range where there is one, and rounded for whole numbers."""
        scaled = values * self.unit
        if self.dtype.kind == "u":
            np.rint(scaled, out=scaled)
        if self.stored_range is not None:
            np.clip(scaled, *self.stored_range, out=scaled)
        return np.asarray(scaled, dtype=self.dtype)
