"""Planes: the values of one channel at one scale, or the part of them that is at hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Box:
    """A rectangle of pixels: rows top to bottom, columns left to right, the last ones not included."""

    top: int
    left: int
    bottom: int
    right: int

    @classmethod
    def whole(cls, shape: Sequence[int]) -> "Box":
        """All of a picture."""
        return cls(0, 0, shape[0], shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return self.bottom - self.top, self.right - self.left

    @property
    def rows(self) -> slice:
        """Its rows."""
        return slice(self.top, self.bottom)

    @property
    def columns(self) -> slice:
        """Its columns."""
        return slice(self.left, self.right)

    def __str__(self) -> str:
        return f"The box of rows {self.top} to {self.bottom} and columns {self.left} to {self.right}"

    def grown(self, reach: int, shape: Sequence[int]) -> "Box":
        """With so many pixels more on each side, within a picture of this shape."""
        return Box(
            max(0, self.top - reach),
            max(0, self.left - reach),
            min(shape[0], self.bottom + reach),
            min(shape[1], self.right + reach),
        )

    def holds(self, other: "Box") -> bool:
        """Whether another box lies within."""
        rows = self.top <= other.top and other.bottom <= self.bottom
        return rows and self.left <= other.left and other.right <= self.right

    def joined(self, other: "Box") -> "Box":
        """The smallest box that holds both."""
        top, left = min(self.top, other.top), min(self.left, other.left)
        return Box(top, left, max(self.bottom, other.bottom), max(self.right, other.right))

    def common(self, other: "Box") -> "Box":
        """What two boxes share."""
        top, left = max(self.top, other.top), max(self.left, other.left)
        return Box(top, left, max(top, min(self.bottom, other.bottom)), max(left, min(self.right, other.right)))


@dataclass(frozen=True)
class Plane:
    """Values of one channel of a picture, (H, W) at its scale, in the box that is at hand."""

    values: Floats
    box: Box
    shape: tuple[int, int]

    @classmethod
    def whole(cls, values: Floats) -> "Plane":
        """The plane of a whole picture."""
        return cls(values, Box.whole(values.shape), (values.shape[0], values.shape[1]))

    def window(self, box: Box) -> Floats:
        """The values in a box."""
        top, left = self.box.top, self.box.left
        return self.values[box.top - top : box.bottom - top, box.left - left : box.right - left]

    @property
    def made(self) -> "Plane":
        """The plane with its values in memory."""
        return Plane(self.values, self.box, self.shape)

    def cut(self, box: Box) -> "Plane":
        """The plane in a smaller box."""
        return Plane(self.window(box), box, self.shape)


class LazyPlane(Plane):
    """A plane whose values are made where they are asked for, each time anew.

    make: the values in a box within the plane's; `made`, where given, those of the whole plane by another way.
    """

    def __init__(
        self,
        make: Callable[[Box], Floats],
        box: Box,
        shape: tuple[int, int],
        whole: Callable[[], Floats] | None = None,
    ) -> None:
        for name, value in (("_make", make), ("_whole", whole), ("box", box), ("shape", shape)):
            object.__setattr__(self, name, value)

    @property
    def values(self) -> Floats:
        """All of them."""
        whole: Callable[[], Floats] | None = self._whole  # type: ignore[attr-defined]
        return self.window(self.box) if whole is None else whole()

    def window(self, box: Box) -> Floats:
        """The values in a box."""
        found: Floats = self._make(box)  # type: ignore[attr-defined]
        return found


def averaged(first: Plane, second: Plane) -> Plane:
    """The mean of two planes of one box."""
    half = first.values.dtype.type(0.5)
    return Plane(half * (first.values + second.values), first.box, first.shape)
