"""Pixels that are no finite numbers (NaN, infinite): found, left out of what is estimated, and filled for the passes.

What such a pixel held never reaches another one. For the passes it is filled with the weighted mean of its neighbours;
where none of these is valid, with a pixel some way off in the first direction that leads out of the hole, so that the
hole looks like its surroundings, noise included (calm areas would be taken for similar patches by those near them); and
with the picture's mean deep inside. The rule looks no further than FILL_REACH, so that any window gives the numbers of
the whole. For the noise estimate and for learning a mean would be too calm: there a pixel takes the value of one
neighbour, and where many are missing together, a copy of another part of the picture stands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array, Mask
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import SAMPLE_SIDE, PixelSource, bands

Pixels = NDArray[Any]
Index = NDArray[np.intp]

Rule = Callable[[Array, Mask, Index, Index], Array]  # what pixels in rows and columns of padded values become

SHIFTS = (2, 4, 8, 16, 32)  # how far off
FILL_REACH = SHIFTS[-1]
CELL = 64  # side of the parts of a sample that are replaced together ...
MOST_INVALID = 0.2  # ... where a larger share of their pixels is missing
# The eight neighbours, around the pixel, and what they weigh in its mean.
NEIGHBOURS = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))
WEIGHTS = (0.5, 1.0) * 4


def invalid_pixels(pixels: Pixels) -> Mask:
    """Which pixels of a grey (H, W) or RGB (H, W, 3) picture are no finite numbers in some colour, as (H, W)."""
    wrong = ~np.isfinite(pixels)
    return wrong if pixels.ndim == 2 else np.asarray(wrong.any(axis=2))


def put_back(pixels: Pixels, noisy: Pixels) -> None:
    """Let pixels be, to the bit, what they were in the noisy picture where that had no finite numbers."""
    missing = invalid_pixels(noisy)
    pixels[missing] = noisy[missing]


# For the passes


@dataclass(frozen=True)
class FilledSource:
    """A picture without its invalid pixels: `source` has windows of the whole, whose shape and means these are."""

    source: PixelSource
    shape: tuple[int, ...]
    means: Sequence[float]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.source.dtype

    def window(self, box: Box) -> Pixels:
        """The pixels in a box, the invalid ones filled."""
        around = box.grown(FILL_REACH, self.shape)
        rows = slice(box.top - around.top, box.bottom - around.top)
        return filled(self.source.window(around), self.means)[rows, box.left - around.left : box.right - around.left]


def filled(pixels: Pixels, means: Sequence[float]) -> Pixels:
    """Pixels with the invalid ones filled from those around them, or with the mean of their colour."""
    missing = invalid_pixels(pixels)
    return _filled(pixels, missing, means, _mean_of_neighbours) if missing.any() else pixels


def _filled(pixels: Pixels, missing: Mask, means: Sequence[float], rim: Rule) -> Pixels:
    """Pixels with the missing ones at the rim of a hole by a rule, those deeper in by shifts, the rest by means."""
    inner = slice(FILL_REACH, -FILL_REACH)
    known = np.pad(~missing, FILL_REACH)
    values = np.zeros((*known.shape, 1 if pixels.ndim == 2 else 3))
    values[known] = pixels[~missing].reshape(-1, values.shape[2])
    beside = np.zeros_like(missing)
    for down, across in NEIGHBOURS:
        beside |= np.roll(known, (down, across), axis=(0, 1))[inner, inner]
    rows, columns = (place + FILL_REACH for place in np.nonzero(missing & beside))
    at_rim = rim(values, known, rows, columns)
    deep = [place + FILL_REACH for place in np.nonzero(missing & ~beside)]
    in_depth, found = _shifted(values, known, *deep)
    in_depth[~found] = means
    values[rows, columns], values[deep[0], deep[1]] = at_rim, in_depth
    return values[inner, inner].reshape(pixels.shape).astype(pixels.dtype)


def _mean_of_neighbours(values: Array, known: Mask, rows: Index, columns: Index) -> Array:
    """The weighted mean of the known neighbours."""
    places = [(rows + down, columns + across) for down, across in NEIGHBOURS]
    weights = [weight * known[place] for weight, place in zip(WEIGHTS, places, strict=True)]
    total = np.asarray(sum(weights))
    return np.asarray(sum((w / total)[:, None] * values[p] for w, p in zip(weights, places, strict=True)))


def _one_neighbour(values: Array, known: Mask, rows: Index, columns: Index) -> Array:
    """One known neighbour, beginning at another side for each pixel: beside it as often as across a corner."""
    start = rows * 73_856_093 ^ columns * 19_349_663
    chosen, waiting = np.zeros((len(rows), values.shape[2])), np.ones(len(rows), bool)
    for turn in range(len(NEIGHBOURS)):
        down, across = np.array(NEIGHBOURS)[(start + turn) % len(NEIGHBOURS)].T
        place = rows + down, columns + across
        now = waiting & known[place]
        chosen[now] = values[place][now]
        waiting &= ~now
    return chosen


def _shifted(values: Array, known: Mask, rows: Index, columns: Index) -> tuple[Array, Mask]:
    """The known pixels at the first shift that leads to one, and where there is any."""
    chosen, waiting = np.zeros((len(rows), values.shape[2])), np.arange(len(rows))
    for shift, (down, across) in product(SHIFTS, NEIGHBOURS):
        place = rows[waiting] + shift * down, columns[waiting] + shift * across
        now = known[place]
        chosen[waiting[now]] = values[place[0][now], place[1][now]]
        waiting = waiting[~now]
    found = np.ones(len(rows), bool)
    found[waiting] = False
    return chosen, found


# For the noise estimate and for learning


def without_invalid(sample: Pixels) -> Pixels:
    """A sample of a picture in which nothing speaks but its valid pixels."""
    missing = invalid_pixels(sample)
    if not missing.any():
        return sample
    if missing.all():
        raise ValueError("Hardly any of the picture's pixels are finite numbers; there is nothing to learn from.")
    means = sample[~missing].reshape(-1, 1 if sample.ndim == 2 else 3).mean(axis=0, dtype=np.float64)
    tidy = _filled(sample, missing, means, _one_neighbour)
    _replace_cells(tidy, missing)
    return tidy


def _replace_cells(values: Pixels, missing: Mask) -> None:
    """Put other parts of a sample in the place of those with many missing pixels, in order; in place."""
    height, width = missing.shape
    side = min(CELL, max(8, min(height, width) // 4))
    corners = [(top, left) for top in range(0, height, side) for left in range(0, width, side)]
    shares = [float(missing[top : top + side, left : left + side].mean()) for top, left in corners]
    whole = [top + side <= height and left + side <= width for top, left in corners]
    good = [c for c, share, full in zip(corners, shares, whole, strict=True) if share <= MOST_INVALID and full]
    bad = [corner for corner, share in zip(corners, shares, strict=True) if share > MOST_INVALID]
    for number, (top, left) in enumerate(bad if good else ()):
        y, x = good[number % len(good)]
        cell = values[top : top + side, left : left + side]
        cell[...] = values[y : y + cell.shape[0], x : x + cell.shape[1]]


def valid_part(source: PixelSource) -> Box:
    """The smallest box with all valid pixels of a picture, and half a window of a sample around it."""
    rows, columns = np.zeros(source.shape[0], bool), np.zeros(source.shape[1], bool)
    for band in bands(Box.whole(source.shape)):
        valid = ~invalid_pixels(source.window(band))
        rows[band.top : band.bottom] = valid.any(axis=1)
        columns |= valid.any(axis=0)
    (down, across) = (np.flatnonzero(flags) for flags in (rows, columns))
    box = Box(int(down[0]), int(across[0]), int(down[-1]) + 1, int(across[-1]) + 1)
    return box.grown(SAMPLE_SIDE // 2, source.shape)
