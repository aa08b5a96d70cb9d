"""The two passes over all overlapping patches: the coder, and the Wiener shrinkage that its result guides.

The picture is cut into bands of patch rows that depend on its size alone, and their sums are added in order: the
result is the same for any number of threads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dstl_cli.patches import Index, positions
from dstl_cli.progress import Progress
from dstl_cli.threads import in_order
from dstl_cli.transforms import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

BAND_ROWS = 8  # patch rows of a band
CHUNK = 1536  # patches worked on at a time: what fits into the cache
SURE = 3.3  # coefficients above so many deviations are kept whatever they cost


@dataclass(frozen=True)
class Frame:
    """Analysis and synthesis of patches by W, with the patch mean apart and white noise of deviation 1 in every row.

    With P = I - 11'/n, rows w_j of W P and columns b_j of W^-1:
        forward = (1'/sqrt(n); w_j / |w_j|),   backward = (1/sqrt(n), |w_j| b_j),   backward forward = I.
    """

    patch_size: int
    forward: Array32  # (m, n); row 0: the mean
    backward: Array32  # (n, m)
    costs: Array32  # (m,): squared norms of the columns of `backward`

    @classmethod
    def of(cls, transform: Transform) -> "Frame":
        """The frame of a transform; a row that only sees the mean is left out."""
        w = transform.matrix
        n = len(w)
        centred = w - w.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(centred, axis=1)
        seen = norms > 1e-9 * norms.max(initial=0.0)
        mean = np.full((1, n), 1 / np.sqrt(n))
        forward = np.concatenate((mean, centred[seen] / norms[seen, None]))
        inverse = np.linalg.inv(w)[:, seen] * norms[seen]
        backward = np.concatenate((mean.T, inverse), axis=1)
        return cls(
            patch_size=transform.patch_size,
            forward=np.ascontiguousarray(forward, dtype=np.float32),
            backward=np.ascontiguousarray(backward, dtype=np.float32),
            costs=np.asarray((backward**2).sum(axis=0), dtype=np.float32),
        )


def coding_pass(
    image: Array32, frame: Frame, sigma: float, error_scale: float, *, stride: int, jobs: int,
    progress: Progress | None = None,
) -> Array32:  # fmt: skip
    """Every patch y by the fewest coefficients whose estimate x has ||x - y|| <= C sigma sqrt(n), weighted 1/(1 + k).

    The error is taken as the sum of what each dropped coefficient costs alone, which it is for orthonormal W.
    """
    from dstl_cli._pass_kernels import select, take_columns

    n = frame.patch_size**2
    budget = np.float32((error_scale * sigma) ** 2 * n)
    highest = np.float32((SURE * sigma) ** 2)

    def coded(patches: Array32, tops: Index, left: int, across: int) -> tuple[Array32, Array32]:
        take_columns(image, tops, left, across, frame.patch_size, patches)
        coefficients = frame.forward @ patches
        weights = np.empty(patches.shape[1], np.float32)
        select(coefficients, frame.costs, budget, highest, weights)
        return coefficients, weights

    return _over_bands(image, frame, coded, stride=stride, jobs=jobs, progress=progress)


def wiener_pass(
    image: Array32, pilot: Array32, frame: Frame, sigma: float, *, stride: int, jobs: int,
    progress: Progress | None = None,
) -> Array32:  # fmt: skip
    """Every coefficient times q^2 / (q^2 + sigma^2), q that of the pilot's patch; weights 1 / (1 + sum of squares)."""
    from dstl_cli._pass_kernels import shrink, take_columns

    noise = np.float32(sigma**2)

    def shrunk(patches: Array32, tops: Index, left: int, across: int) -> tuple[Array32, Array32]:
        take_columns(image, tops, left, across, frame.patch_size, patches)
        coefficients = frame.forward @ patches
        take_columns(pilot, tops, left, across, frame.patch_size, patches)
        weights = np.empty(patches.shape[1], np.float32)
        shrink(coefficients, frame.forward @ patches, noise, weights)
        return coefficients, weights

    return _over_bands(image, frame, shrunk, stride=stride, jobs=jobs, progress=progress)


def _over_bands(
    image: Array32,
    frame: Frame,
    estimate: Callable[[Array32, Index, int, int], tuple[Array32, Array32]],
    *,
    stride: int,
    jobs: int,
    progress: Progress | None,
) -> Array32:
    """The weighted average of all patches, those of every stride-th row.

    estimate: takes a buffer of patches, their upper rows, their first column and how many there are in a row; gives
    the coefficients and weights of their estimates.
    """
    from dstl_cli._pass_kernels import add_columns

    size = frame.patch_size
    height, width = image.shape
    tops = positions(height, size, stride)
    columns = width - size + 1
    bands = [tops[start : start + BAND_ROWS] for start in range(0, len(tops), BAND_ROWS)]
    across = min(columns, CHUNK)
    together = max(1, CHUNK // across)  # rows of a chunk

    def one(band: Index) -> tuple[int, Array32, Array32]:
        first = int(band[0])
        total = np.zeros((int(band[-1]) - first + size, width), np.float32)
        mass = np.zeros_like(total)
        for start in range(0, len(band), together):
            rows = band[start : start + together]
            for left in range(0, columns, across):
                wide = min(across, columns - left)
                patches = np.empty((size * size, len(rows) * wide), np.float32)
                coefficients, weights = estimate(patches, rows, left, wide)
                np.matmul(frame.backward, coefficients, out=patches)
                add_columns(patches, weights, rows - first, left, wide, size, total, mass)
        return first, total, mass

    result = np.zeros(image.shape, np.float32)
    mass = np.zeros(image.shape, np.float32)
    for done, (first, band_total, band_mass) in enumerate(in_order(one, bands, jobs), start=1):
        result[first : first + len(band_total)] += band_total
        mass[first : first + len(band_mass)] += band_mass
        if progress is not None:
            progress(done / len(bands))
    result /= mass
    return result
