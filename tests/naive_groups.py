"""Slow and obvious versions of the kernels of groups: plain loops, float64, dense products.

Nothing here is imported from dstl_cli. A patch is named by its corner: row * width + column.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Real = NDArray[np.floating[Any]]
Corners = NDArray[np.integer[Any]]


def patch_at(picture: Real, corner: int, side: int) -> Array:
    """The side x side patch that begins at this corner."""
    row, column = divmod(int(corner), picture.shape[1])
    patch = picture[row : row + side, column : column + side]
    assert patch.shape == (side, side), "the patch is not in the picture"
    return patch.astype(np.float64)


def patches_at(picture: Real, corners: Corners, side: int) -> Array:
    """Patches as rows: (K, side**2)."""
    return np.array([patch_at(picture, corner, side).ravel() for corner in corners])


def add_at(picture: Array, patches: Array, corners: Corners) -> None:
    """Add patches (K, side**2) to the picture where they belong."""
    side = round(patches.shape[1] ** 0.5)
    for corner, patch in zip(corners, patches, strict=True):
        row, column = divmod(int(corner), picture.shape[1])
        picture[row : row + side, column : column + side] += patch.reshape(side, side)


def smallest(values: Real, wanted: int) -> list[int]:
    """Indices of the smallest values, in order; of equal ones the first."""
    return sorted(np.argsort(values, kind="stable")[:wanted].tolist())


def similar(guide: Real, row: int, column: int, side: int, places: tuple[int, int, int], wanted: int) -> list[int]:
    """Corners of the `wanted` patches most like the one at (row, column): itself, then by distance, then by corner.

    guide: (channels, height, width); the distance is over all channels. places: (radius, near, step): patches begin at
    most `radius` rows and columns away, and those more than `near` away both multiples of `step`.
    """
    _, height, width = guide.shape
    radius, near, step = places
    own = guide[:, row : row + side, column : column + side]
    found = []
    for y in range(max(row - radius, 0), min(row + radius, height - side) + 1):
        for x in range(max(column - radius, 0), min(column + radius, width - side) + 1):
            down, right = abs(y - row), abs(x - column)
            if max(down, right) <= near or (down % step == 0 and right % step == 0):
                distance = float(np.sum((guide[:, y : y + side, x : x + side] - own) ** 2))
                found.append((-1.0 if (y, x) == (row, column) else distance, y * width + x))
    return sorted(corner for _, corner in sorted(found)[:wanted])


def haar_matrix(size: int) -> Array:
    """Orthonormal Haar transform of `size` (a power of two) values: row 0 is their mean times sqrt(size)."""
    if size == 1:
        return np.ones((1, 1))
    coarse = np.kron(haar_matrix(size // 2), [1.0, 1.0])
    fine = np.kron(np.eye(size // 2), [1.0, -1.0])
    return np.asarray(np.vstack((coarse, fine)) / np.sqrt(2))


def group_coefficients(patches: Real, matrix: Array) -> tuple[Array, Array]:
    """Of one group (K, n): Haar coefficients of the patch means times the patch side (K,), and of W y (K, n)."""
    side = round(patches.shape[1] ** 0.5)
    means = patches.mean(axis=1, keepdims=True)
    haar = haar_matrix(len(patches))
    return haar @ means[:, 0] * side, haar @ ((patches - means) @ matrix.T)


def threshold_group(
    patches: Real, matrix: Array, threshold: float, sigma: float, factors: Real | None = None
) -> tuple[Array, float]:
    """One group (K, n) without the coefficients that are at most `threshold` deviations of their noise; its weight.

    The patches' means are transformed along the group only, and their group mean always stays. factors: (K,), by what
    the noise of each patch is stronger; the group has their root mean square.
    """
    size, n = patches.shape
    side = round(n**0.5)
    power = 1.0 if factors is None else float(np.mean(factors.astype(np.float64) ** 2))
    limit = threshold * sigma * np.sqrt(power)
    means, codes = group_coefficients(patches, matrix)
    norms = np.linalg.norm(matrix - matrix.mean(axis=1, keepdims=True), axis=1)  # the rows see no patch mean
    keep_means = np.abs(means) > limit
    keep_means[0] = True
    keep_codes = (np.abs(codes) > limit * norms) & (norms > 1e-9)  # a row that sees nothing codes nothing
    haar = haar_matrix(size)
    estimate = (haar.T @ np.where(keep_codes, codes, 0.0)) @ np.linalg.inv(matrix).T
    estimate -= estimate.mean(axis=1, keepdims=True)
    estimate += (haar.T @ np.where(keep_means, means, 0.0))[:, None] / side
    return estimate, 1.0 / (keep_means.sum() + keep_codes.sum()) / power


def damped_mean(current: Real, pilot: Real, noise: float) -> Array:
    """The mean of a group (K, n), its deviations from their own mean times e / (e + noise), e the pilot's energy."""
    known, mean = pilot.mean(axis=0), current.mean(axis=0)
    energy = float(np.sum((known - known.mean()) ** 2))
    return np.asarray(mean.mean() + (energy / (energy + noise) if noise else 1.0) * (mean - mean.mean()))


def patch_weights(leverages: Array, excess: float) -> Array:
    """Weights of the patches of a group: less for those that keep more of their noise, and for rich groups."""
    return np.asarray(1 / (leverages + 0.2) / np.sqrt(1 + excess))


def ridge_group(
    noisy: Real,
    current: Real,
    pilot: Real,
    sigma: float,
    strength: tuple[float, float, float],
    left: float,
    factors: Real | None = None,
    whitening: Array | None = None,
) -> tuple[Array, Array, Array, float]:
    """One group: each denoised patch is the combination of all that is best for the pilot with the noise still there.

    noisy, current, pilot: (K, n), the group's patches. The combination is of the deviations from the group mean.
    strength: by what the power of that noise is taken for larger, in the patches and in their mean; a group whose trace
    is below the third share of its penalty has only the mean.
    factors: (K,), by what the noise of each patch is stronger. whitening: V (n, n); V times the pilot's patches decide
    the combination. Returns the estimate, the same with the share `left` of all the noise, the weights of both, and how
    much larger than the penalty the system is.
    """
    size, n = current.shape
    powers = np.ones(size) if factors is None else factors.astype(np.float64) ** 2
    share = max(1 - np.sqrt(np.mean((noisy - current) ** 2) / np.mean(powers)) / sigma, left + 1e-3)
    p = pilot - pilot.mean(axis=0)
    if whitening is not None:
        p = p @ whitening.T
    y = current - current.mean(axis=0)
    gram = p @ p.T
    penalty = max(strength[0] * n * (share * sigma) ** 2, 1e-6 * np.trace(gram / powers))
    combination = np.linalg.solve(gram + penalty * np.diag(powers), gram)
    mean_noise = strength[1] * n * (share * sigma) ** 2 * np.mean(powers) / size
    if np.trace(gram / powers) <= strength[2] * penalty:
        combination = np.zeros_like(combination)
    estimate = combination.T @ y + damped_mean(current, pilot, mean_noise)
    excess = float(np.trace(gram / powers) / penalty)
    weights = patch_weights(np.diag(combination), excess / n)
    return estimate, estimate + left / share * (current - estimate), weights, excess


def ridge_colours(
    noisy: Real, current: Real, pilot: Real, sigmas: Real, strength: tuple[float, float, float], left: float
) -> tuple[Array, Array, Array, float]:
    """One group of three channels with white noise: `ridge_group` along the principal axes of the pilot's colours.

    noisy, current, pilot: (3, K, n). strength: the third is for each axis.
    """
    _, size, n = current.shape
    units = np.asarray(sigmas, dtype=np.float64)[:, None, None]
    shares = [max(1 - np.sqrt(np.mean(d**2)), left + 1e-3) for d in (noisy - current) / units]
    means = current.mean(axis=1, keepdims=True)
    p, y = (pilot - pilot.mean(axis=1, keepdims=True)) / units, (current - means) / units
    _, axes = np.linalg.eigh(np.einsum("aij,bij->ab", p, p))
    clean, leverages, ratios = np.zeros(y.shape), np.zeros(size), []
    for axis in axes.T:
        turned = np.tensordot(axis, p, 1)
        gram = turned @ turned.T
        penalty = max(strength[0] * n * np.sum((axis * shares) ** 2), 1e-6 * np.trace(gram))
        combination = np.linalg.solve(gram + penalty * np.eye(len(gram)), gram)
        if np.trace(gram) > strength[2] * penalty:
            clean += axis[:, None, None] * (combination.T @ np.tensordot(axis, y, 1))
            leverages += np.diag(combination) / 3
        ratios.append(np.trace(gram) / n / penalty)
    noise = [strength[1] * n * (share * sigma) ** 2 / size for share, sigma in zip(shares, sigmas, strict=True)]
    damped = [damped_mean(*known) for known in zip(current, pilot, noise, strict=True)]
    estimate = units * clean + np.array(damped)[:, None]
    remaining = estimate + (left / np.array(shares))[:, None, None] * (current - estimate)
    return estimate, remaining, patch_weights(leverages, float(np.mean(ratios))), float(np.max(ratios)) * n


def spread(weights: Real, side: int) -> Array:
    """Sum of the weights of the patches that cover each pixel."""
    covered = np.zeros(weights.shape)
    for y in range(weights.shape[0]):
        for x in range(weights.shape[1]):
            covered[y : y + side, x : x + side] += weights[y, x]
    return covered
