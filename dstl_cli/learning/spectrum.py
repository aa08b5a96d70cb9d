"""Projection of singular values on {condition <= rho, norm = tau}, and of matrices through their SVD."""

import numpy as np

from dstl_cli.base.arrays import Array, Mask
from dstl_cli.base.checks import check_bounds, require


def cone_projection(values: Array, max_condition: float, weights: Array | None = None) -> Array:
    """Nearest x to `values` (weighted least squares) with max(x) <= max_condition * min(x).

    values: (n,) non-negative; weights: (n,) non-negative, all ones if not given.
    The answer is clip(values, l, rho*l); l is the root of the increasing piecewise-linear
        g(l) = sum w_i max(l - s_i, 0) - rho * sum w_i max(s_i - rho*l, 0),
    found in one sweep over the sorted breakpoints s_i and s_i/rho.
    """
    values = s = np.asarray(values, dtype=np.float64)
    w = np.ones_like(s) if weights is None else np.asarray(weights, dtype=np.float64)
    vectors = s.ndim == 1 and s.size > 0 and w.shape == s.shape
    require(vectors, "The spectrum and its weights must be non-empty vectors of one length.")
    sound = all(np.isfinite(part).all() and (part >= 0).all() for part in (s, w))
    require(sound, "The spectrum and its weights must be finite and not negative.")
    counted = w > 0
    top = s[counted].max(initial=0.0)
    if top == 0:  # every weighted value is zero: the cone's tip is the nearest point
        return np.zeros_like(s)
    if np.isinf(max_condition) or s.max() / max_condition <= s.min():
        return s.copy()
    s, w = values[counted] / top, w[counted] / w.max()
    order = np.argsort(s)
    s, w, rho = s[order], w[order], float(max_condition)
    if s[-1] <= rho * s[0]:  # feasible as far as the weighted values go: any l between will do
        level = s[0]
    else:
        # Sums over s[:i] (below l: to be raised) and over s[j:] (above rho*l: to be lowered).
        raised_w, raised_ws = (np.concatenate(([0.0], np.cumsum(v))) for v in (w, w * s))
        lowered_w, lowered_ws = (np.append(np.cumsum(v[::-1])[::-1], 0.0) for v in (w, w * s))
        # The pieces of g between its breakpoints, and its root if each went on for ever; divided through by rho so that
        # a huge rho cannot overflow.
        breakpoints = np.concatenate((s, s / rho))
        order = np.argsort(breakpoints, kind="stable")
        ends = np.append(breakpoints[order], np.inf)
        i, j = (np.concatenate(([0], np.cumsum(part))) for part in (order < s.size, order >= s.size))
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = (raised_ws[i] / rho + lowered_ws[j]) / (raised_w[i] / rho + rho * lowered_w[j])
        level = levels[np.argmax(levels <= ends)]
    return np.clip(values, top * level, top * (rho * level))


def scaled_to_norm(values: Array, norm: float) -> Array:
    """`values` scaled to Euclidean norm `norm`; the flat vector of that norm if all are zero."""
    largest = float(np.abs(values).max())
    if largest == 0:
        return np.full_like(values, norm / np.sqrt(values.size))
    unit = values / largest
    return np.asarray(unit * (norm / np.linalg.norm(unit)))


def project_spectrum(matrix: Array, max_condition: float, frobenius_norm: float) -> Array:
    """Nearest matrix with condition number <= max_condition and the given Frobenius norm.

    An all-zero matrix has no unique nearest point; it gives the scaled product U V' of its SVD.
    """
    check_bounds(max_condition, frobenius_norm)
    polar = _polar_factor(matrix) if max_condition == 1 else None
    if polar is not None:
        return np.asarray(polar * (frobenius_norm / np.sqrt(len(matrix))))
    u, s, vt = np.linalg.svd(matrix)
    s = scaled_to_norm(cone_projection(s, max_condition), frobenius_norm)
    return np.asarray((u * s) @ vt)


def _polar_factor(matrix: Array) -> Array | None:
    """The nearest orthonormal matrix by Newton-Schulz steps, X <- X (3 I - X'X) / 2; None if nearly singular.

    Cheaper than an SVD. A matrix that is far from a multiple of an orthonormal one comes near by X (X'X)^-1/2 first.
    """
    norm = float(np.linalg.norm(matrix))
    if norm == 0:
        return None
    x = matrix * (np.sqrt(len(matrix)) / norm)
    identity = np.eye(len(matrix))
    for number in range(12):
        gram = x.T @ x
        distance = float(np.linalg.norm(gram - identity))
        if distance < 1e-13 * len(matrix):
            return np.asarray(x)
        if distance < 1.9:  # singular values below sqrt(3) converge to 1, larger may not
            x = x - 0.5 * (x @ (gram - identity))
            continue
        values, vectors = np.linalg.eigh(gram)
        if number > 0 or not values[0] > 1e-8 * values[-1]:
            return None
        x = x @ (vectors / np.sqrt(values)) @ vectors.T
    return None


def condition_number(matrix: Array) -> float:
    """Largest over smallest singular value; infinite for a singular matrix."""
    return float(np.linalg.cond(matrix))


def largest_entries(matrix: Array, count: int) -> Mask:
    """Mask of the `count` entries of largest magnitude (on ties the first in row order)."""
    mask = np.zeros(matrix.size, dtype=bool)
    mask[np.argsort(-np.abs(matrix), axis=None, kind="stable")[:count]] = True
    return mask.reshape(matrix.shape)


def entry_budget(density: float, n: int) -> int:
    """How many entries of an n x n matrix may be nonzero: a share of them, and enough for an invertible one."""
    return max(n, int(density * n**2))


def largest_with_diagonal(matrix: Array, budget: int) -> Mask:
    """Mask of the diagonal and, within the budget, the largest other entries."""
    favoured = matrix.copy()
    np.fill_diagonal(favoured, np.inf)
    return largest_entries(favoured, budget)


FREE_ROUNDS, FIXED_ROUNDS = 8, 150  # while the support may change, and after that
TOLERANCE = 1e-7  # of condition numbers: what a bound of exactly 1, which rounding cannot keep, is exceeded by


def delivered_condition(max_condition: float) -> float:
    """The largest condition number that is delivered under a bound: below it by more than measuring errs."""
    if max_condition == 1:
        return 1 + TOLERANCE
    return max_condition * (1 - min(0.5, 1e-12 + 1e-14 * max_condition))


def held_to_bound(matrix: Array, max_condition: float, frobenius_norm: float) -> Array:
    """The matrix, or the nearest one of the norm whose condition number is within the bound as measured."""
    limit = delivered_condition(max_condition)
    if condition_number(matrix) <= limit:
        return matrix
    return project_spectrum(matrix, min(max_condition, limit), frobenius_norm)


def project_on_support(
    matrix: Array,
    support: Mask | int,
    max_condition: float,
    frobenius_norm: float,
    *,
    aim: float | None = None,
    rounds: int = 200,
) -> Array | None:
    """A matrix near `matrix` with zeros outside `support`, the norm, and the condition number within the bound.

    Alternates the projections on the support and on the spectrum, which is drawn to condition number `aim`, just below
    the bound if not given; None if they do not meet in so many rounds.
    support: a mask, or how many entries: then it is the largest, chosen anew in the first rounds.
    """
    check_bounds(max_condition, frobenius_norm)
    limit = delivered_condition(max_condition)
    inner = max(1.0, max_condition * (1 - TOLERANCE)) if aim is None else aim
    near, mask = matrix, support
    for number in range(rounds):
        if isinstance(support, int) and number < FREE_ROUNDS:
            mask = largest_with_diagonal(near, support)
        sparse = np.where(mask, near, 0.0)
        u, s, vt = np.linalg.svd(sparse)
        if s[-1] > 0 and s[0] <= limit * s[-1]:
            return np.asarray(sparse * (frobenius_norm / np.linalg.norm(sparse)))
        near = (u * scaled_to_norm(cone_projection(s, inner), frobenius_norm)) @ vt
    return None


def mix_with_identity(matrix: Array, max_condition: float, frobenius_norm: float) -> Array:
    """(1-b) matrix + b c I, with c = norm/sqrt(n), for the smallest b (by bisection) that keeps the bound; scaled."""
    check_bounds(max_condition, frobenius_norm)
    identity = np.eye(len(matrix)) * (frobenius_norm / np.sqrt(len(matrix)))
    limit = delivered_condition(max_condition)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        mixed = (1 - middle) * matrix + middle * identity
        low, high = (low, middle) if condition_number(mixed) <= limit else (middle, high)
    mixed = (1 - high) * matrix + high * identity
    return np.asarray(mixed * (frobenius_norm / np.linalg.norm(mixed)))


def within_budget(
    matrix: Array, budget: int, max_condition: float, frobenius_norm: float, *, aim: float | None = None
) -> Array:
    """A matrix near `matrix` with at most `budget` >= n nonzero entries, the norm, and the condition within the bound.

    Alternates the projections on the largest entries (from some round on: on those of that round) and on the spectrum,
    until the first meets the bound. The spectrum is drawn closer than asked, to condition number `aim` (the root of
    the bound if not given): then they meet in a few rounds, and the entries are better ones. Should they not meet, it
    is drawn to all equal; should that fail too, the largest entries are mixed with the identity.
    """
    bounds = (max_condition, frobenius_norm)
    for inner in (np.sqrt(max_condition) if aim is None else aim, 1.0):
        near = project_on_support(matrix, budget, *bounds, aim=inner, rounds=FREE_ROUNDS + FIXED_ROUNDS)
        if near is not None:
            return near
    return mix_with_identity(np.where(largest_with_diagonal(matrix, budget), matrix, 0.0), *bounds)
