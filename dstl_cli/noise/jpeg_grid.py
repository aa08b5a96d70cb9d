"""The grid of a JPEG in pixels, and the noise before it: what the quantiser says of the coefficients that it rounded.

JPEG rounds the DCT coefficients of the luminance's 8x8 blocks to multiples of a step for each frequency. On that grid
of blocks they stand like the teeth of a comb; on the 63 others they do not. So the grid is found in the pixels, also
after the picture was cut, or saved again in any format; the steps as well, where coefficients are left, and the table
in the file has the others. Two things follow from the calm blocks on the grid:
* Most fine coefficients of noise are rounded to 0, and the others to a whole step. How many there are of each tells
  the deviation before: that of the Gaussian under which the counts are most likely.
* Noise leaves its steps in any block of a brightness, texture leaves them together: the number of coefficients that
  are left in a block has a variance of at most its mean, or of more than that.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array, Array32, Mask, largest_around
from dstl_cli.transforms.bases import dct_matrix

BLOCK = 8
LUMA = np.array([0.299, 0.587, 0.114])  # of red, green and blue
RADIUS = np.hypot(*np.divmod(np.arange(BLOCK**2), BLOCK))
EVERY = np.arange(BLOCK**2)  # frequency
SEARCHED = EVERY[(EVERY > 0) & (np.add(*np.divmod(EVERY, BLOCK)) <= 6)]  # finer ones have few steps left

LEAST_STEP, MOST_STEP = 4, 128  # that are looked for: finer ones take nothing that matters
PARTS = 2  # of a grey level in the histograms of coefficients
LARGEST = 2 * MOST_STEP  # coefficients beyond are not looked at
LOOKED_AT = 2500  # blocks of each of the 64 grids
TOOTH = 6.0  # standard errors from which on the coefficients of a frequency are a comb
SHARE_OF_BEST = 0.8  # divisors of a step make combs as well: the largest with such a share of the best score is it
LEAST_COMBS = 4  # frequencies; pictures without JPEG in their past have one at most
ALONE = 2.0  # the steps of the grid over those of the median one, summed: few grey levels make combs on all of them
SAME_TABLE = 0.1  # deviation of steps from a table's, at most, where they are the same

CALM_SHARE, LEVEL_BINS = 0.25, 6  # of the blocks in bins of brightness
FEWEST_CALM = 30
MOST_LEVEL = 3  # multiples of a step from here on count as one
COARSEST = 3.5  # radius from which on the coefficients that are left are counted ...
TRIMMED = 0.1  # ... without those of so many blocks with the most of them, which may have an edge
SIGMAS = np.geomspace(0.3, 80.0, 281)  # 2 % apart


@dataclass(frozen=True)
class Grid:
    """Blocks that begin at (top + 8 i, left + 8 j) were quantised by steps, (64,); 0 where that is not known."""

    top: int
    left: int
    steps: Array


@dataclass(frozen=True)
class CodedReading:
    """What the calm blocks on the grid say of the luminance before JPEG, in grey levels."""

    steps: Array  # (64,)
    counts: Array  # (64, MOST_LEVEL + 1) blocks by |coefficient| / step
    clustering: float  # of the coefficients that are left, in blocks of one brightness: 1 at most for noise

    def deviation(self, low: float, high: float) -> float:
        """Before quantisation, between two radii; nan where no step is known, or nothing is left."""
        chosen = self._between(low, high)
        if not self.counts[chosen, 1:].any():
            return math.nan
        return deviation_before(self.counts[chosen], self.steps[chosen])

    def lost(self, low: float, high: float) -> float:
        """Share of the coefficients between two radii that were rounded to 0; all of them where no step shows."""
        counts = self.counts[(low <= RADIUS) & (high >= RADIUS)]
        return float(counts[:, 0].sum() / counts.sum())

    def _between(self, low: float, high: float) -> Mask:
        return np.asarray((low <= RADIUS) & (high >= RADIUS) & (self.steps > 0))


def deviation_before(counts: Array, steps: Array) -> float:
    """The deviation of Gaussians that were rounded to multiples of steps (m,), by maximum likelihood.

    counts: (m, L) of the magnitudes 0, 1, ... in steps, the last for all beyond.
    """
    edges = (np.arange(counts.shape[1] - 1) + 0.5) * steps[:, None]
    erf = np.vectorize(math.erf, otypes=[np.float64])  # importing scipy's takes longer than these few values
    below = erf(edges[:, :, None] / (math.sqrt(2) * SIGMAS))  # (m, L - 1, sigmas) P(|c| < edge)
    shares = np.diff(below, axis=1, prepend=0.0, append=1.0)
    return float(SIGMAS[np.argmax((counts[:, :, None] * np.log(np.maximum(shares, 1e-300))).sum(axis=(0, 1)))])


def read_coded(windows: Iterable[NDArray[Any]], table: Sequence[int] | None = None) -> CodedReading | None:
    """What JPEG has left in windows (H, W) or (H, W, 3) of one picture in 8 bit; None where no grid shows.

    The windows begin at multiples of 8 pixels from each other, so that one grid is that of all.
    table: (64,) the steps of the luminance, where the file states them. The coarsest grid counts: it may be older.
    """
    planes = [(window, _luma(window)) for window in windows if min(window.shape[:2]) >= 4 * BLOCK]
    grid = find_grid([plane for _, plane in planes]) if planes else None
    if grid is None:
        return None
    steps = _known_steps(grid.steps, table)
    groups = [group for window, plane in planes for group in _calm_magnitudes(window, plane, grid, steps)]
    if sum(map(len, groups)) < FEWEST_CALM:
        return None
    magnitudes = np.concatenate(groups)
    counts = np.stack([(magnitudes == level).sum(axis=0) for level in range(MOST_LEVEL + 1)], axis=1)
    return CodedReading(steps, counts.astype(np.float64), _clustering(groups))


def _clustering(groups: list[NDArray[np.int8]]) -> float:
    """Variance over mean of the number of coefficients left in a block; blocks (N, 64) in groups of one brightness."""
    numbers = [np.sort(np.count_nonzero(group[:, RADIUS >= COARSEST], axis=1)) for group in groups]
    trimmed = [left for own in numbers if len(left := own[: -math.ceil(TRIMMED * len(own))])]
    scatter = sum(float(((left - left.mean()) ** 2).sum()) for left in trimmed)
    return scatter / max(float(sum(left.sum() for left in trimmed)), 1e-9)


def find_grid(planes: Sequence[Array32]) -> Grid | None:
    """The coarsest grid of a JPEG in windows of a luminance; None where there is none."""
    blocks = sum(plane.size for plane in planes) / BLOCK**2
    thinning = max(1, round(math.sqrt(blocks / LOOKED_AT)))
    corners = [(top, left) for top in range(BLOCK) for left in range(BLOCK)]
    strengths = np.array([_comb_steps(planes, corner, SEARCHED, thinning).sum() for corner in corners])
    best = int(np.argmax(strengths))
    if strengths[best] < max(ALONE * np.median(strengths), LEAST_COMBS * LEAST_STEP):
        return None
    steps = _comb_steps(planes, corners[best], EVERY, thinning)
    return Grid(*corners[best], steps) if np.count_nonzero(steps) >= LEAST_COMBS else None


def _luma(window: NDArray[Any]) -> Array32:
    """What JPEG codes as the luminance of grey or RGB pixels."""
    values = window.astype(np.float32)
    return np.asarray(values if window.ndim == 2 else values @ LUMA.astype(np.float32))


def _coefficients(
    plane: Array32, top: int, left: int, frequencies: NDArray[np.intp] = EVERY, thinning: int = 1
) -> Array32:
    """(rows, columns, m) of the blocks on a grid, or of every so many of them."""
    cut = sliding_window_view(plane, (BLOCK, BLOCK))[top :: BLOCK * thinning, left :: BLOCK * thinning]
    return np.asarray(cut.reshape(*cut.shape[:2], BLOCK**2) @ dct_matrix(BLOCK)[frequencies].T.astype(np.float32))


@lru_cache(maxsize=1)
def _waves() -> tuple[Array32, NDArray[np.intp]]:
    """cos(2 pi c / q) where |c| > q/2: (bins of |c|, candidates for q); and the first bin that is, of each."""
    steps = np.arange(LEAST_STEP, MOST_STEP + 1)
    places = np.arange(LARGEST * PARTS)[:, None] / PARTS
    beyond = (places > steps / 2) & (places < LARGEST - 1)
    return (np.cos(2 * np.pi * places / steps) * beyond).astype(np.float32), np.argmax(beyond, axis=0)


def _comb_steps(
    planes: Sequence[Array32], corner: tuple[int, int], frequencies: NDArray[np.intp], thinning: int
) -> Array:
    """The steps (m,) of which the coefficients of m frequencies on a grid are multiples; 0 where they are no comb.

    A step q scores with the sum of cos(2 pi c / q) over the |c| > q/2, in standard errors. A smooth falling density
    has no positive one: the sum begins in the trough between two teeth.
    """
    from dstl_cli.noise.kernels import count_magnitudes

    counts = np.zeros((len(frequencies), LARGEST * PARTS), np.int64)
    for plane in planes:
        coefficients = _coefficients(plane, *corner, frequencies, thinning).reshape(-1, len(frequencies))
        count_magnitudes(coefficients, np.float32(PARTS), counts)
    histograms = counts.astype(np.float32)
    waves, first = _waves()
    below = np.cumsum(histograms, axis=1)
    beyond = below[:, (LARGEST - 1) * PARTS - 1, None] - below[:, first - 1]
    scores = histograms @ waves / np.sqrt(np.maximum(beyond, 1.0) / 2)
    best = scores.max(axis=1, keepdims=True)
    around = np.pad(scores, ((0, 0), (1, 1)))
    peaks = (scores >= np.maximum(around[:, :-2], around[:, 2:])) & (scores >= SHARE_OF_BEST * best)
    largest = MOST_STEP - np.argmax(peaks[:, ::-1], axis=1)
    return np.where((best[:, 0] > TOOTH) & (frequencies > 0), largest, 0).astype(np.float64)


def _known_steps(found: Array, table: Sequence[int] | None) -> Array:
    """The steps that were found, or the table's, where that is of the same grid."""
    if table is None:
        return found
    told, both = np.asarray(table, dtype=np.float64), found > 0
    same = np.median(np.abs(found[both] / told[both] - 1)) <= SAME_TABLE
    return np.where(RADIUS > 0, told, 0.0) if same else found


def _calm_magnitudes(window: NDArray[Any], plane: Array32, grid: Grid, steps: Array) -> list[NDArray[np.int8]]:
    """The |coefficients| of calm blocks in steps, (N, 64) for each bin of brightness.

    Calm are those whose worst neighbour is among the least of the bin.
    """
    coefficients = _coefficients(plane, grid.top, grid.left)
    known = steps > 0
    magnitudes = np.zeros(coefficients.shape, np.int8)
    magnitudes[..., known] = np.minimum(np.rint(np.abs(coefficients[..., known]) / steps[known]), MOST_LEVEL)
    usable = ~_clipped_blocks(window, grid)
    energies = np.where(usable, (magnitudes.astype(np.float32) ** 2).mean(axis=2), 1e9)
    around = np.ones((3, 3), bool)
    around[1, 1] = False
    worst, brightness = largest_around(energies, around), coefficients[..., 0]
    if not usable.any():
        return []
    edges = np.quantile(brightness[usable], np.linspace(0, 1, LEVEL_BINS + 1)[1:-1])
    bin_of = np.searchsorted(edges, brightness)
    bins = (usable & (bin_of == number) for number in range(LEVEL_BINS))
    return [magnitudes[own & (worst <= np.quantile(worst[own], CALM_SHARE))] for own in bins if own.any()]


def _clipped_blocks(window: NDArray[Any], grid: Grid) -> Mask:
    """Blocks on a grid with more than one pixel in ten at a limit of the range."""
    clipped = (window == 0) | (window == 255)
    flags = clipped if window.ndim == 2 else clipped.any(axis=2)
    cut = sliding_window_view(flags, (BLOCK, BLOCK))[grid.top :: BLOCK, grid.left :: BLOCK]
    return np.asarray(cut.mean(axis=(2, 3)) > 0.1)
