"""Passes over all overlapping patches, each by itself: the coder, the Wiener shrinkage, and the paper's estimate."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.threads import Execution
from dstl_cli.patches.coding import Coder
from dstl_cli.patches.frame import Frame
from dstl_cli.patches.grid import Lattice, positions
from dstl_cli.patches.tiles import Span, Sums, Tile, TileGrid, spans_of, weighted_average
from dstl_cli.pixels.planes import Plane

Array32 = NDArray[np.float32]
Floats = NDArray[np.floating[Any]]
Index = NDArray[np.intp]
# Takes the patches of one tile of all planes that begin at some pixels (N,), numbered row by row, and adds to sums
# (2, h, w) their weighted estimates for the first plane, and the weights.
AddEstimates = Callable[[list[Floats], Index, Sums], None]

# By what the noise is larger at the levels (N,) of the last plane, counted from its centre; None: nowhere.
FactorsAt = Callable[[Floats], Array32 | None]

TILE_HEIGHT, TILE_WIDTH = 64, 192  # pixels from a tile to the next, about
PRODUCT = 1536  # patches that the paper's coder works on at a time: what fits into the cache
ALWAYS_KEPT = 3.3  # coefficients above so many deviations are kept whatever they cost


def sliding_grid(shape: tuple[int, int], size: int, lattice: Lattice) -> TileGrid:
    """The tiles of all patches of a size on a lattice."""
    rows, columns = positions(shape[0], size, lattice.row_step), positions(shape[1], size)
    width = -(-shape[1] // max(1, round(shape[1] / TILE_WIDTH)))  # tiles of equal width

    def spans(corners: NDArray[np.intp], length: int, step: int) -> tuple[Span, ...]:
        return spans_of(corners, size, length, step)

    return TileGrid(shape, spans(rows, shape[0], TILE_HEIGHT), spans(columns, shape[1], width))


def patch_average(
    planes: Sequence[Plane], size: int, lattice: Lattice, add_estimates: AddEstimates, execution: Execution
) -> Plane:
    """The weighted average of the estimates of the first plane's patches on a lattice."""

    def run(tile: Tile, windows: list[Floats]) -> Sums:
        images = [np.ascontiguousarray(window) for window in windows]
        sums = np.zeros((2, *images[0].shape), images[0].dtype)
        rows, columns = lattice.chosen(tile.rows + tile.box.top, tile.columns + tile.box.left, planes[0].shape, size)
        add_estimates(images, tile.rows[rows] * images[0].shape[1] + tile.columns[columns], sums)
        return sums

    grid = sliding_grid(planes[0].shape, size, lattice)
    return weighted_average(planes, grid, run, 1, execution)[0]


def coding_estimate(frame: Frame, costs: Array32, error_scale: float, factors_at: FactorsAt) -> AddEstimates:
    """Every patch y by the fewest coefficients whose estimate x has ||x - y|| <= C sqrt(n), weighted 1/(1 + k).

    Everything is in units of the noise. The error is taken as the sum of what each dropped coefficient costs alone,
    which it is for orthonormal W. costs: of each, (m,).
    """
    from dstl_cli.patches.kernels.sliding import add_coded

    size, forward, backward = frame.patch_size, _single(frame.forward), _single(frame.backward)
    budget, highest = np.float32(error_scale**2 * size**2), np.float32(ALWAYS_KEPT**2)

    def add_estimates(images: list[Floats], corners: Index, sums: Sums) -> None:
        variances = _variances(images[-1], corners, size, factors_at)
        add_coded(images[0], corners, size, forward, backward, costs, budget, highest, variances, sums)

    return add_estimates


def wiener_estimate(frame: Frame, factors_at: FactorsAt) -> AddEstimates:
    """Every coefficient times g = q^2 / (q^2 + d^2), q the guide's, d its noise; weights 1 / (1 + sum of g^2).

    frame: in units of the noise. The second plane is the guide. Where g is next to nothing, it is taken as that.
    """
    from dstl_cli.patches.kernels.sliding import add_shrunk

    size, forward, backward = frame.patch_size, _single(frame.forward), _single(frame.backward)

    def add_estimates(images: list[Floats], corners: Index, sums: Sums) -> None:
        variances = _variances(images[-1], corners, size, factors_at)
        add_shrunk(images[0], images[1], corners, size, forward, backward, variances, sums)

    return add_estimates


def paper_estimate(coder: Coder, limits: tuple[float, float] | None) -> AddEstimates:
    """The paper's estimate, clipped to limits counted from the plane's centre; all patches count the same."""
    from dstl_cli.patches.kernels.sliding import add_patches, add_squares, clip_patches, take_patches

    size = coder.patch_size

    def add_estimates(images: list[Floats], corners: Index, sums: Sums) -> None:
        heights = np.zeros_like(sums)
        heights[1].ravel()[corners] = 1
        for start in range(0, len(corners), PRODUCT):
            part = corners[start : start + PRODUCT]
            means, patches = np.empty(len(part), images[0].dtype), np.empty((size**2, len(part)), np.float32)
            take_patches(images[0], part, size, means, patches)
            found = coder.estimate(patches)
            if limits is not None:
                clip_patches(found, means, *limits)
            add_patches(found, np.ones(len(part), np.float32), part, size, sums[0])
            heights[0].ravel()[part] = means
        for height, total in zip(heights, sums, strict=True):
            add_squares(height, size, total)

    return add_estimates


def _variances(levels: Floats, corners: Index, size: int, factors_at: FactorsAt) -> Array32:
    """Of the noise of each patch, relative, from the mean of the same pixels in the plane of levels."""
    from dstl_cli.patches.kernels.sliding import patch_means

    if factors_at(np.zeros(1)) is None:
        return np.ones(len(corners), np.float32)
    means = np.empty_like(levels)
    patch_means(levels, size, means)
    factors = factors_at(means.ravel()[corners])
    return np.ones(len(corners), np.float32) if factors is None else factors * factors


def _single(matrix: NDArray[np.float64]) -> Array32:
    return np.ascontiguousarray(matrix, dtype=np.float32)
