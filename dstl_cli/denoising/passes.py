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
# Patches (n, N) without their means of the planes that guide, and the means (N,) of every plane, to estimates (n, N) of
# the first one's, and their weights (N,).
PatchEstimate = Callable[[list[Array32], list[Floats]], tuple[Array32, Array32]]

# By what the noise is larger at the levels (N,) of the last plane, counted from its centre; None: nowhere.
FactorsAt = Callable[[Floats], Array32 | None]

TILE_HEIGHT, TILE_WIDTH = 64, 128  # pixels from a tile to the next, about
PRODUCT = 1536  # patches worked on at a time: what fits into the cache
ALWAYS_KEPT = 3.3  # coefficients above so many deviations are kept whatever they cost


def sliding_grid(shape: tuple[int, int], size: int, lattice: Lattice) -> TileGrid:
    """The tiles of all patches of a size on a lattice."""
    rows, columns = positions(shape[0], size, lattice.row_step), positions(shape[1], size)
    width = -(-shape[1] // max(1, round(shape[1] / TILE_WIDTH)))  # tiles of equal width

    def spans(corners: NDArray[np.intp], length: int, step: int) -> tuple[Span, ...]:
        return spans_of(corners, size, length, step)

    return TileGrid(shape, spans(rows, shape[0], TILE_HEIGHT), spans(columns, shape[1], width))


def patch_average(
    planes: Sequence[Plane],
    size: int,
    lattice: Lattice,
    estimate: PatchEstimate,
    execution: Execution,
    levels: int = 0,
) -> Plane:
    """The weighted average of the estimates of the first plane's patches on a lattice.

    levels: so many of the planes, the last ones, matter by the means of their patches alone.
    """
    from dstl_cli.patches.kernels.sliding import add_patches, add_squares, patch_means, take_patches

    def run(tile: Tile, windows: list[Floats]) -> Sums:
        images = [np.ascontiguousarray(window) for window in windows]
        averages = [np.empty_like(image) for image in images]
        for image, average in zip(images, averages, strict=True):
            patch_means(image, size, average)
        sums, heights = (np.zeros((2, *images[0].shape), images[0].dtype) for _ in range(2))
        top, left = tile.box.top, tile.box.left
        rows, columns = lattice.chosen(tile.rows + top, tile.columns + left, planes[0].shape, size)
        corners = tile.rows[rows] * images[0].shape[1] + tile.columns[columns]
        for start in range(0, len(corners), PRODUCT):
            part = corners[start : start + PRODUCT]
            means = [average.ravel()[part] for average in averages]
            patches = [np.empty((size * size, len(part)), np.float32) for _ in images[: len(images) - levels]]
            for image, own, taken in zip(images, means, patches, strict=False):
                take_patches(image, part, size, own, taken)
            estimates, weights = estimate(patches, means)
            add_patches(estimates, weights, part, size, sums[0])
            for height, values in zip(heights, (weights * means[0], weights), strict=True):
                height.ravel()[part] = values
        for height, total in zip(heights, sums, strict=True):
            add_squares(height, size, total)
        return sums

    grid = sliding_grid(planes[0].shape, size, lattice)
    return weighted_average(planes, grid, run, 1, execution)[0]


def coding_estimate(frame: Frame, costs: Array32, error_scale: float, factors_at: FactorsAt) -> PatchEstimate:
    """Every patch y by the fewest coefficients whose estimate x has ||x - y|| <= C sqrt(n), weighted 1/(1 + k).

    Everything is in units of the noise. The error is taken as the sum of what each dropped coefficient costs alone,
    which it is for orthonormal W. costs: of each, (m,).
    """
    from dstl_cli.patches.kernels.sliding import select

    forward, backward = _single(frame.forward), _single(frame.backward)
    budget = np.float32(error_scale**2 * frame.patch_size**2)

    def estimate(patches: list[Array32], means: list[Floats]) -> tuple[Array32, Array32]:
        coefficients = forward @ patches[0]
        weights = np.empty(coefficients.shape[1], np.float32)
        variances = _variances(factors_at(means[-1]), len(weights))
        select(coefficients, costs, budget, np.float32(ALWAYS_KEPT**2), variances, weights)
        return np.matmul(backward, coefficients, out=patches[0]), weights

    return estimate


def wiener_estimate(frame: Frame, factors_at: FactorsAt) -> PatchEstimate:
    """Every coefficient times g = q^2 / (q^2 + d^2), q the guide's, d its noise; weights 1 / (1 + sum of g^2).

    frame: in units of the noise. The second plane is the guide.
    """
    from dstl_cli.patches.kernels.sliding import shrink

    forward, backward = _single(frame.forward), _single(frame.backward)

    def estimate(patches: list[Array32], means: list[Floats]) -> tuple[Array32, Array32]:
        coefficients, guide = forward @ patches[0], forward @ patches[1]
        weights = np.empty(coefficients.shape[1], np.float32)
        shrink(coefficients, guide, _variances(factors_at(means[-1]), len(weights)), weights)
        return np.matmul(backward, coefficients, out=patches[0]), weights

    return estimate


def paper_estimate(coder: Coder, limits: tuple[float, float] | None) -> PatchEstimate:
    """The paper's estimate, clipped to limits counted from the plane's centre; all patches count the same."""
    from dstl_cli.patches.kernels.sliding import clip_patches

    def estimate(patches: list[Array32], means: list[Floats]) -> tuple[Array32, Array32]:
        found = coder.estimate(patches[0])
        if limits is not None:
            clip_patches(found, means[0], *limits)
        return found, np.ones(found.shape[1], np.float32)

    return estimate


def _variances(factors: Array32 | None, count: int) -> Array32:
    """Of the noise of each patch, relative, from those of its deviations."""
    return np.ones(count, np.float32) if factors is None else factors * factors


def _single(matrix: NDArray[np.float64]) -> Array32:
    return np.ascontiguousarray(matrix, dtype=np.float32)
