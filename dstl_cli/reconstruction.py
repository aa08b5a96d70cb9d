"""All overlapping patches coded and put back, band by band: flat memory, all cores, one result.

The work is cut into bands of patch rows. Every row of patches is one matrix product of the same shape wherever the
cuts are, every patch is coded by itself, and the overlap-add is exact (see `add_patches`): neither the height of the
bands nor the number of threads changes a bit of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.coding import Array32, Coder, Counts
from dstl_cli.patches import positions, summation_steps
from dstl_cli.progress import Progress
from dstl_cli.threads import in_order

Array = NDArray[np.float64]

BAND_PATCHES = 8192  # patches in one band, about: some megabytes of coefficients


@dataclass(frozen=True)
class Sums:
    """Weighted sums of the patches over the pixel rows from `first_row` on, and the sums of the weights."""

    first_row: int
    total: Array
    weight: Array


@dataclass(frozen=True)
class BandWork:
    """What every band of one picture has in common."""

    image: NDArray[np.generic]
    sigma: float
    coder: Coder
    patch_size: int
    columns: NDArray[np.intp]
    data_range: tuple[float, float]
    steps: tuple[float, float]
    weigh: Callable[[Counts], Array]

    def run(self, rows: NDArray[np.intp]) -> Sums:
        """Estimate the patches whose corners are on `rows` and add them up."""
        from dstl_cli import _kernels

        size = self.patch_size
        first, last = int(rows[0]), int(rows[-1])
        strip = np.ascontiguousarray(self.image[first : last + size], dtype=np.float64)
        local = rows - first
        patches: Array32 = np.empty((len(rows), len(self.columns), size**2), dtype=np.float32)
        means = np.empty(patches.shape[:2])
        _kernels.take_patches(strip, size, local, self.columns, 1 / self.sigma, patches, means)
        estimates, counts = self.coder.estimate(patches)
        total, weight = np.zeros(strip.shape), np.zeros(strip.shape)
        _kernels.add_patches(
            estimates, self.sigma, means, self.weigh(counts), *self.data_range, self.steps, size,
            local, self.columns, total, weight,
        )  # fmt: skip
        return Sums(first, total, weight)


def equal_weights(counts: Counts) -> Array:
    """The plain average of the paper: every patch counts the same."""
    return np.ones(counts.shape)


def estimate_image(
    image: NDArray[np.generic],
    sigma: float,
    coder: Coder,
    patch_size: int,
    *,
    stride: int = 1,
    data_range: tuple[float, float] | None = None,
    weigh: Callable[[Counts], Array] = equal_weights,
    jobs: int = 1,
    band_rows: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.floating[Any]]:
    """Code every patch of `image` (H, W) and average the estimates over each pixel: (H, W), see `result_type`.

    data_range: patches are clipped to it before they are averaged; None: they are not.
    progress: called with the share of the work done. band_rows: patch rows of a band, chosen if not given.
    """
    rows = positions(image.shape[0], patch_size, stride)
    columns = positions(image.shape[1], patch_size, stride)
    low, high = data_range or (-np.inf, np.inf)
    largest = max(abs(float(image.min())), abs(float(image.max())))
    work = BandWork(
        image=image, sigma=sigma, coder=coder, patch_size=patch_size, columns=columns, data_range=(low, high),
        steps=summation_steps(16 * largest, patch_size), weigh=weigh,
    )  # fmt: skip
    height = band_rows or max(1, BAND_PATCHES // len(columns))
    bands = [rows[start : start + height] for start in range(0, len(rows), height)]
    result = np.empty(image.shape, dtype=result_type(image))
    open_sums = Sums(0, np.zeros((0, image.shape[1])), np.zeros((0, image.shape[1])))
    for done, sums in enumerate(in_order(work.run, bands, jobs), start=1):
        closed_until = int(bands[done][0]) if done < len(bands) else image.shape[0]
        open_sums = _close_rows(_joined(open_sums, sums), closed_until, result)
        if progress is not None:
            progress(done / len(bands))
    if data_range is not None:
        np.clip(result, low, high, out=result)
    return result


def result_type(image: NDArray[np.generic]) -> type[np.float32] | type[np.float64]:
    """The dtype of an estimate: single precision holds all that integers and single-precision floats tell."""
    return np.float64 if image.dtype == np.float64 else np.float32


def _joined(a: Sums, b: Sums) -> Sums:
    """Two sums added where they overlap; b starts within or right below a."""
    overlap = a.first_row + len(a.total) - b.first_row
    b.total[:overlap] += a.total[-overlap:] if overlap else 0
    b.weight[:overlap] += a.weight[-overlap:] if overlap else 0
    above = b.first_row - a.first_row
    return Sums(a.first_row, np.concatenate((a.total[:above], b.total)), np.concatenate((a.weight[:above], b.weight)))


def _close_rows(sums: Sums, until: int, result: NDArray[np.floating[Any]]) -> Sums:
    """Write the averages of the pixel rows above `until` to `result`; return the sums that are still open."""
    cut = until - sums.first_row
    result[sums.first_row : until] = sums.total[:cut] / sums.weight[:cut]
    return Sums(until, sums.total[cut:], sums.weight[cut:])
