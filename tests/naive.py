"""Slow and obvious versions of the definitions, which the fast code must equal: plain loops, float64, dense products.

Nothing here is imported from dstl_cli. Numbers in brackets are sections of the algorithm's description.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import sqrtm
from scipy.optimize import minimize_scalar

Array = NDArray[np.float64]
Real = NDArray[np.floating[Any]]


# Patches.


def positions(length: int, size: int, stride: int) -> list[int]:
    """Every start that is a multiple of stride or the last one possible."""
    return [i for i in range(length - size + 1) if i % stride == 0 or i == length - size]


def extract(image: NDArray[np.generic], size: int, rows: list[int], columns: list[int]) -> tuple[Array, Array]:
    """Patches without their means (R, C, n), and the means (R, C)."""
    patches = np.zeros((len(rows), len(columns), size * size))
    means = np.zeros((len(rows), len(columns)))
    for i, r in enumerate(rows):
        for j, c in enumerate(columns):
            patch = image[r : r + size, c : c + size].astype(np.float64).ravel()
            means[i, j] = patch.mean()
            patches[i, j] = patch - means[i, j]
    return patches, means


def aggregate(values: Real, rows: list[int], columns: list[int], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Sums of the patches `values` (R, C, n) over each pixel, and how many they are."""
    size = round(values.shape[2] ** 0.5)
    total, count = np.zeros(shape), np.zeros(shape)
    for i, r in enumerate(rows):
        for j, c in enumerate(columns):
            for a in range(size):
                for b in range(size):
                    total[r + a, c + b] += float(values[i, j, a * size + b])
                    count[r + a, c + b] += 1
    return total, count


# Selection and coding.


def keep_largest(row: Real, r: int) -> Array:
    """H_r [1]: the r entries of largest magnitude, the lowest index first on ties."""
    kept = np.zeros(len(row))
    first = np.argsort(-np.abs(row), kind="stable")[:r]
    kept[first] = row[first]
    return kept


@dataclass(frozen=True)
class Coded:
    """Squared errors and estimates of one patch for k = 0, 1, ..., most coefficients."""

    errors: Array
    estimates: Array

    def count(self, limit: float) -> int:
        """The smallest k whose error is within the limit, or else the most."""
        for k, error in enumerate(self.errors):
            if error <= limit:
                return k
        return len(self.errors) - 1


def code_patch(w: Array, y: Real, mu: float, most: int) -> Coded:
    """The coder [4] of W: for each k the estimate G (mu y + W' a_k), G = (mu I + W'W)^-1, by dense products."""
    y = y.astype(np.float64)
    g = np.linalg.inv(mu * np.eye(len(y)) + w.T @ w)
    z = w @ y
    a = np.array([keep_largest(z, k) for k in range(most + 1)])
    estimates = (mu * y + a @ w) @ g
    return Coded(np.sum((estimates - y) ** 2, axis=1), estimates)


def tails(row: Real, most: int) -> Array:
    """Energy left out after taking k = 0, 1, ..., most entries, largest first."""
    squares = np.sort(row.astype(np.float64) ** 2)  # ascending: adding up loses nothing of the small ones
    return np.array([squares[: len(row) - k].sum() for k in range(most + 1)])


def weighted_tails(row: Real, m: Array, most: int) -> Array:
    """r' M r after taking k = 0, 1, ..., most entries, largest first."""
    row = row.astype(np.float64)
    left = [row - keep_largest(row, k) for k in range(most + 1)]
    return np.array([r @ m @ r for r in left])


def estimate_image(
    image: NDArray[np.generic],
    sigma: float,
    w: Array,
    *,
    stride: int,
    error_scale: float,
    mu: float,
    most: int,
    data_range: tuple[float, float],
) -> Array:
    """The whole picture at once [3, step 3]: code, rebuild, add the mean, clip, average, clip."""
    size = round(len(w) ** 0.5)
    rows, columns = (positions(length, size, stride) for length in image.shape)
    patches, means = extract(image, size, rows, columns)
    for i, j in np.ndindex(means.shape):
        coded = code_patch(w, patches[i, j] / sigma, mu, most)
        k = coded.count(error_scale**2 * len(w))
        patches[i, j] = np.clip(means[i, j] + sigma * coded.estimates[k], *data_range)
    total, count = aggregate(patches, rows, columns, image.shape)
    return np.clip(total / count, *data_range)


# Spectrum.


def cone_projection(values: Array, rho: float, weights: Array) -> Array:
    """Nearest x with max(x) <= rho min(x) [2.1], by minimising the cost of clip(values, l, rho l) over l alone.

    The cost is convex in l. It is minimised twice, over l and over log l, and the better one wins.
    """

    def clipped(level: float) -> Array:
        return np.clip(values, level, rho * level)

    def cost(level: float) -> float:
        return float(np.sum(weights * (clipped(level) - values) ** 2))

    top = float(values.max())
    linear = minimize_scalar(cost, bounds=(0.0, top), method="bounded", options={"xatol": 1e-14 * top})
    lowest = np.log(top) - np.log(rho) - 1.0
    logarithmic = minimize_scalar(
        lambda u: cost(float(np.exp(u))), bounds=(lowest, np.log(top)), method="bounded", options={"xatol": 1e-12}
    )
    levels = (float(linear.x), float(np.exp(logarithmic.x)), top / rho, top, float(values.min()))
    return clipped(min(levels, key=cost))


def project_spectrum(matrix: Array, rho: float, tau: float) -> Array:
    """P(T; rho, tau) [2.1]."""
    u, s, vt = np.linalg.svd(matrix)
    s = cone_projection(s, rho, np.ones_like(s)) if s[0] > rho * s[-1] else s
    return np.asarray(u @ np.diag(s * tau / np.linalg.norm(s)) @ vt)


# Learning, on the patches themselves: Yt and X are (n, N), a patch a column.


def codes(coefficients: Array, levels: NDArray[np.int64]) -> Array:
    """X = H(coefficients), column by column."""
    return np.array([keep_largest(z, int(r)) for z, r in zip(coefficients.T, levels, strict=True)]).T


def bresler(yt: Array, levels: NDArray[np.int64], lambda0: float, kept: int, iterations: int) -> Iterator[Array]:
    """The log-det iterates [2.3], with only the `kept` largest entries of T staying."""
    n = len(yt)
    weight = lambda0 * np.sum(yt**2)
    root = np.real(sqrtm(yt @ yt.T + weight * np.eye(n)))
    t = np.eye(n)
    for _ in range(iterations):
        x = codes(t @ yt, levels)
        q, s, rt = np.linalg.svd(np.linalg.inv(root) @ yt @ x.T)
        t = rt.T @ np.diag((s + np.sqrt(s**2 + 2 * weight)) / 2) @ q.T @ np.linalg.inv(root)
        t = keep_largest(t.ravel(), kept).reshape(n, n)
        yield t


def logdet_objective(t: Array, yt: Array, levels: NDArray[np.int64], lambda0: float) -> float:
    """||T Yt - X||^2 + l (||T||^2 - log|det T|) for X = H(T Yt) and l = lambda0 ||Yt||^2."""
    z = t @ yt
    penalty = np.sum(t**2) - np.linalg.slogdet(t)[1]
    return float(np.sum((z - codes(z, levels)) ** 2) + lambda0 * np.sum(yt**2) * penalty)


def keeps_bound(matrix: Array, rho: float) -> bool:
    """Whether cond(matrix) <= rho, as numpy measures it; a bound of 1 is kept to 1e-7."""
    return bool(np.linalg.cond(matrix) <= (1 + 1e-7 if rho == 1 else rho))


def dsect(
    yt: Array,
    levels: NDArray[np.int64],
    *,
    rho: float,
    tau: float,
    lam: float,
    homotopy_steps: int,
    clip: float,
    freeze_at: int,
    iterations: int,
    lipschitz: bool = False,
) -> Iterator[Array]:
    """Algorithm 1 [2.2] as it stands there, T after every iteration; with the constant step 1/L if lipschitz."""

    def step_of(direction: Array) -> float:
        if lipschitz:
            return float(1 / np.linalg.svd(yt)[1][0] ** 2)
        return float(np.sum(direction**2) / np.sum((direction @ yt) ** 2))

    x = codes(yt, levels)
    t = x @ yt.T if rho <= 2 else x @ np.linalg.pinv(yt)
    u, s, vt = np.linalg.svd(t)
    t = u @ np.diag(np.maximum(s, 1e-12 * s[0])) @ vt
    d = (t @ yt - x) @ yt.T
    alpha = step_of(d)
    t = project_spectrum(t - alpha * d, rho, tau)
    first = 0.1 * np.abs(t).max() / alpha
    steps_left = np.arange(homotopy_steps)[::-1] / max(homotopy_steps - 1, 1)
    lams = lam * (first / lam) ** steps_left if lam > 0 else np.zeros(homotopy_steps)
    support = np.ones(t.shape, dtype=bool)
    before, momentum = t, 1.0
    for k in range(1, iterations + 1):
        x = codes(t @ yt, levels)
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        z = t + (momentum - 1) / next_momentum * (t - before)
        before, momentum = t, next_momentum
        d = (z @ yt - x) @ yt.T
        alpha = step_of(d)
        t = z - alpha * d
        if k <= freeze_at:
            threshold = alpha * lams[min(k, homotopy_steps) - 1]
            t = np.sign(t) * np.maximum(np.abs(t) - threshold, 0)
        t = project_spectrum(t, rho, tau)
        if k <= freeze_at:
            support = np.abs(t) > clip
        t = np.where(support, t, 0.0)
        yield t
