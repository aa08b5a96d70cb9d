"""Pixels of any depth in the units of the numerics, and back."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.depths import PIXEL_TYPES, in_words

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]
Range = tuple[float, float]

WHITE = 255.0  # of the scale that the constants of the numerics are meant for
SCALED = ("uint8", "uint16")  # types whose largest number is white; the others have no scale of their own
FLOAT_SIGMAS = (0.5, 255.0)  # numbers without a scale and with such noise are taken to be on one like 0-255 ...
LEAST_SIGMA = 1e-300  # (none has less noise than double precision can hold)
FLOAT_SIGMA = 20.0  # ... others are brought to this deviation


@dataclass(frozen=True)
class Depth:
    """How the numbers of one dtype relate to the units of the numerics, whose constants are meant for 0 to 255.

    unit: so many of the numbers are one unit. scaled: the largest number is white, which is 255 units, and deviations
    of noise are told in units; else they are told in the numbers themselves. stored_range: the smallest and largest
    number there can be; None: unbounded. whole: they are whole numbers.
    """

    dtype: np.dtype[np.generic]
    unit: float
    scaled: bool
    stored_range: Range | None
    whole: bool

    @classmethod
    def of(cls, dtype: np.dtype[np.generic], bits: int | None = None) -> "Depth":
        """The depth of pixels of this dtype; bits: how many of a whole number's are used, where that is known."""
        if dtype.name not in PIXEL_TYPES:
            raise ValueError(f"Pixels must be {in_words()}, not {dtype}.")
        whole, scaled = dtype.kind != "f", dtype.name in SCALED
        limits = _whole_range(dtype) if whole else _half_range() if dtype == np.float16 else None
        if scaled and bits is not None:
            limits = 0.0, float(2**bits - 1)
        unit = limits[1] / WHITE if scaled and limits is not None else 1.0
        return cls(dtype, unit, scaled, limits, whole)

    @property
    def data_range(self) -> Range | None:
        """The smallest and largest pixel there can be, in units; None: unbounded."""
        if self.scaled:
            return 0.0, WHITE
        limits = self.stored_range
        return None if limits is None else (limits[0] / self.unit, limits[1] / self.unit)

    @property
    def told_unit(self) -> float:
        """So many of the numbers are 1 where deviations of noise are told: on the 0-255 scale, or as they are."""
        return self.unit if self.scaled else 1.0

    @property
    def sigma_unit(self) -> float:
        """One unit as deviations of noise are told."""
        return self.unit / self.told_unit

    @property
    def middle(self) -> float:
        """The number that stands for no difference where differences are shown: middle grey if none is negative."""
        if self.scaled:
            return 128.0 * self.unit
        return 0.0 if self.stored_range is None or self.stored_range[0] < 0 else (self.stored_range[1] + 1) / 2

    def for_sigma(self, sigma: float) -> "Depth":
        """The depth for noise of this deviation: numbers without a scale of their own get it from their noise."""
        if self.scaled or sigma < LEAST_SIGMA or FLOAT_SIGMAS[0] <= sigma <= FLOAT_SIGMAS[1]:
            return self
        largest = float(np.finfo(working_type(self.dtype)).max)  # what is worked on is multiplied by the unit
        return replace(self, unit=min(sigma, largest) / FLOAT_SIGMA)

    def unrounded(self) -> "Depth":
        """The depth of the same numbers where they need not be whole: same units and range, in double precision."""
        return replace(self, dtype=np.dtype(np.float64), whole=False) if self.whole else self

    def restore(self, values: Floats) -> Pixels:
        """Values in units as pixels: clipped to the range where there is one, and rounded for whole numbers."""
        scaled = values * self.unit
        if self.whole:
            np.rint(scaled, out=scaled)
        if self.stored_range is not None:
            np.clip(scaled, *self.stored_range, out=scaled)
        return np.asarray(scaled, dtype=self.dtype)


def working_type(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    """What pixels are worked on in: single precision holds all that 16 bits and single-precision floats tell."""
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64


def _whole_range(dtype: np.dtype[Any]) -> Range:
    return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)


def _half_range() -> Range:
    """Of half precision: single precision, in which it is worked on, goes beyond."""
    return float(np.finfo(np.float16).min), float(np.finfo(np.float16).max)
