"""Slow and obvious versions of the kernels of the passes, and of the passes: plain loops, float64, dense products.

Nothing here is imported from dstl_cli. Patches are columns, as in the kernels.
"""

from collections.abc import Callable
from typing import Any

import naive
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Real = NDArray[np.floating[Any]]

# Which coefficients (m,) of a patch stay, given costs (m,), budget and highest square dropped; and the patch's weight.
Select = Callable[[Array, Array, float, float], tuple[Array, float]]
# By what the noise of the patch at a row and column is larger.
Lattice = Any  # has row_step, column_step, shift and offset
Corners = list[tuple[int, int]]  # row and column of the first pixel of each patch
Factor = Callable[[int, int], float]


# Kernels.


def take_patches(image: Real, corners: Corners, size: int) -> tuple[Array, Array]:
    """Patches that begin at these (row, column): (size**2, N), without their means, and the means."""
    patches = np.array([image[r : r + size, c : c + size].astype(np.float64).ravel() for r, c in corners]).T
    means = patches.mean(axis=0)
    return patches - means, means


def add_patches(patches: Real, means: Real, weights: Real, corners: Corners, total: Array, mass: Array) -> None:
    """Add weight * (patch + mean) of every column, and the weights, where the patch was taken."""
    size = round(len(patches) ** 0.5)
    for patch, mean, weight, (r, c) in zip(patches.T, means, weights, corners, strict=True):
        values = patch.astype(np.float64) + float(mean)
        total[r : r + size, c : c + size] += float(weight) * values.reshape(size, size)
        mass[r : r + size, c : c + size] += float(weight)


def gains(guide: Real, least: float) -> tuple[Array, Array]:
    """Gains q^2 / (q^2 + 1) of coefficients q (m, M), 0 below the least; weights 1 / (1 + sum of their squares)."""
    found, weights = np.zeros(guide.shape), np.zeros(guide.shape[1])
    for c in range(guide.shape[1]):
        every = [float(q) ** 2 / (float(q) ** 2 + 1) for q in guide[:, c]]
        found[:, c] = [gain if gain >= least else 0.0 for gain in every]
        weights[c] = 1 / (1 + sum(gain**2 for gain in found[:, c]))
    return found, weights


def add_kept(coefficients: Real, thresholds: Real, patches: Real) -> tuple[Array, float, float]:
    """X' Y of the coefficients X (N, m) beyond the thresholds of their columns; the energy of those and of all."""
    rows, y = coefficients.astype(np.float64), patches.astype(np.float64)
    cross, kept = np.zeros((rows.shape[1], y.shape[1])), 0.0
    for i, j in np.ndindex(rows.shape):
        if abs(rows[i, j]) > thresholds[j]:
            cross[j] += rows[i, j] * y[i]
            kept += float(rows[i, j] ** 2)
    return cross, kept, float(np.sum(rows**2))


# Passes.


class NaiveFrame:
    """Analysis of a patch y by W: w_j (y - mean) over sigma times the norm of w_j without its mean.

    Rows of W that see the mean alone give nothing but rounding and are left out. What comes back has no mean.
    """

    def __init__(self, w: Array, sigma: float = 1.0) -> None:
        n = len(w)
        without_mean = np.eye(n) - np.full((n, n), 1 / n)
        rows = [j for j in range(n) if np.linalg.norm(w[j] @ without_mean) > 1e-9 * np.linalg.norm(w[j])]
        norms = [sigma * np.linalg.norm(w[j] @ without_mean) for j in rows]
        inverse = without_mean @ np.linalg.inv(w)
        self.analysis = np.array([w[j] @ without_mean / norm for j, norm in zip(rows, norms, strict=True)])
        self.synthesis = np.array([inverse[:, j] * norm for j, norm in zip(rows, norms, strict=True)]).T
        self.costs = np.array([column @ column for column in self.synthesis.T])


def corners_on(lattice: Lattice, shape: tuple[int, ...], size: int) -> Corners:
    """Where patches begin, row by row."""
    found = []
    for r in naive.positions(shape[0], size, lattice.row_step):
        for c in range(shape[1] - size + 1):
            regular = (c - lattice.offset - lattice.shift * r) % lattice.column_step == 0
            outer = r in (0, shape[0] - size) and lattice.column_step > size and c % size == 0
            if regular or outer or c in (0, shape[1] - size):
                found.append((r, c))
    return found


def averaged(
    image: Real, w: Array, lattice: Lattice, estimate: Callable[[Array, int, int], tuple[Array, float]]
) -> Array:
    """The weighted average of the estimates of all patches on a lattice.

    estimate: what becomes of a patch without its mean, and its weight.
    """
    size = round(len(w) ** 0.5)
    total, mass = np.zeros(image.shape), np.zeros(image.shape)
    for r, c in corners_on(lattice, image.shape, size):
        patch = image[r : r + size, c : c + size].astype(np.float64).ravel()
        found, weight = estimate(patch - patch.mean(), r, c)
        total[r : r + size, c : c + size] += weight * (found + patch.mean()).reshape(size, size)
        mass[r : r + size, c : c + size] += weight
    return total / mass


def everywhere(_row: int, _column: int) -> float:
    """Noise that is the same in all patches."""
    return 1.0


def coding_pass(
    image: Real,
    w: Array,
    sigma: float,
    error_scale: float,
    lattice: Lattice,
    always_kept: float,
    select: Select,
    factor: Factor = everywhere,
) -> Array:
    """Each patch without the small coefficients that fit into ||error||^2 <= C^2 n, in units of the patch's noise.

    An estimate counts by the inverse of the variance of that noise.
    """
    costs = NaiveFrame(w).costs

    def estimate(patch: Array, r: int, c: int) -> tuple[Array, float]:
        frame = NaiveFrame(w, sigma * factor(r, c))
        kept, weight = select(frame.analysis @ patch, costs, error_scale**2 * len(w), always_kept**2)
        return frame.synthesis @ kept, weight / factor(r, c) ** 2

    return averaged(image, w, lattice, estimate)


def wiener_pass(
    image: Real, pilot: Real, w: Array, sigma: float, lattice: Lattice, least: float, factor: Factor = everywhere
) -> Array:
    """Each patch with the Wiener gains of the pilot's, in units of its noise, whose inverse variance it counts by.

    least: smaller gains count as none.
    """
    size = round(len(w) ** 0.5)

    def estimate(patch: Array, r: int, c: int) -> tuple[Array, float]:
        frame = NaiveFrame(w, sigma * factor(r, c))
        guide = frame.analysis @ pilot[r : r + size, c : c + size].astype(np.float64).ravel()
        found, weights = gains(guide[:, None], least)
        return frame.synthesis @ (found[:, 0] * (frame.analysis @ patch)), float(weights[0]) / factor(r, c) ** 2

    return averaged(image, w, lattice, estimate)
