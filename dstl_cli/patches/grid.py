"""Patches of an image: where they are, and some of them by themselves."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def positions(length: int, patch_size: int, stride: int = 1) -> Index:
    """Start of every patch along one axis: multiples of stride, and the last possible one always."""
    last = length - patch_size
    if last < 0:
        patch = f"{patch_size}x{patch_size}"
        raise ValueError(f"A patch of {patch} pixels does not fit into an image with a side of {length}.")
    starts = np.arange(0, last + 1, stride)
    return starts if starts[-1] == last else np.append(starts, last)


@dataclass(frozen=True)
class Lattice:
    """Where the patches of a pass begin.

    In rows 0, row_step, 2 row_step, ... and the last one; in row r at columns offset + shift r + column_step j, and at
    the first and the last one. Where column_step is larger than the patches, those of several rows cover a pixel
    together: the first and the last row then have patches side by side.
    """

    row_step: int
    column_step: int
    shift: int = 0
    offset: int = 0

    @classmethod
    def sheared(cls, stride: int, size: int, offset: int = 0) -> "Lattice":
        """One patch in stride**2 pixels, in every row: `sheared_shift` further right from row to row."""
        return cls(1, stride**2, sheared_shift(stride**2, size), offset)

    def chosen(self, rows: Index, columns: Index, shape: tuple[int, int], size: int) -> tuple[Index, Index]:
        """Those of these rows and columns of a picture where patches begin, as numbers of rows and of columns: (N,)."""
        ends = tuple(length - size for length in shape)
        starts = (self.offset + self.shift * rows) % self.column_step
        inner = columns[0] > 0 and columns[-1] < ends[1] and columns[-1] - columns[0] == len(columns) - 1
        if inner and not (self.column_step > size and (rows[0] == 0 or rows[-1] == ends[0])):
            first = tuple(((starts - columns[0]) % self.column_step).tolist())
            return _every(self.column_step, first, len(columns))
        here = columns % self.column_step == starts[:, None]
        here |= (columns == 0) | (columns == ends[1])
        if self.column_step > size:
            here |= ((rows == 0) | (rows == ends[0]))[:, None] & (columns % size == 0)
        chosen_rows, chosen_columns = np.nonzero(here)
        return chosen_rows, chosen_columns


@lru_cache(maxsize=64)
def _every(step: int, first: tuple[int, ...], length: int) -> tuple[Index, Index]:
    """Rows and columns of every `step`-th place of rows of a length, from the first one of each row on: (N,)."""
    across = np.array(first)[:, None] + step * np.arange(-(-length // step))
    rows, numbers = np.nonzero(across < length)
    return rows, across[rows, numbers]


@lru_cache(maxsize=64)
def sheared_shift(step: int, size: int) -> int:
    """By how much patches begin further right from row to row so that they are spread best: one in `step` columns.

    Of the shifts k for which the patches of `size` rows leave no gap, one with the most different columns, k r modulo
    step, as a structure along an axis tells shifts along the other apart alone; of these the one with the largest
    distance between two patches.
    """

    def largest_gap(k: int) -> int:
        starts = sorted(k * row % step for row in range(size))
        return max(b - a for a, b in zip(starts, [*starts[1:], starts[0] + step], strict=True))

    def distance(k: int) -> int:
        across = (min(k * row % step, -k * row % step) for row in range(1, step + 1))
        return min(row**2 + length**2 for row, length in enumerate(across, start=1))

    fitting = [k for k in range(step) if largest_gap(k) <= size]
    return max(fitting, key=lambda k: (step // math.gcd(k, step), distance(k), -k))


def patches_at(image: NDArray[np.generic], patch_size: int, rows: Index, columns: Index) -> Array:
    """The patches that begin at these places, without their means: (N, n). The others are never made."""
    windows = sliding_window_view(image, (patch_size, patch_size))
    patches = windows[rows, columns].astype(np.float64).reshape(len(rows), -1)
    return np.asarray(patches - patches.mean(axis=1, keepdims=True))


def sample(image: NDArray[np.generic], patch_size: int, count: int, rng: np.random.Generator) -> Array:
    """At most `count` different patches at random places without their means: (N, n)."""
    height, width = (len(positions(length, patch_size)) for length in image.shape)
    chosen = rng.choice(height * width, size=min(count, height * width), replace=False, shuffle=False)
    return patches_at(image, patch_size, *np.divmod(chosen, width))
