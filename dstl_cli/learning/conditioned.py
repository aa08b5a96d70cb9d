"""Dense learning with an explicit bound on the condition number (Patrascu, Rusu and Irofti).

min ||U diag(d) V' Yt - X||^2   s.t.  U, V orthonormal,  d_max <= rho d_min,  ||d|| = tau
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.learning.spectrum import (
    TOLERANCE,
    check_bounds,
    cone_projection,
    largest_entries,
    mix_with_identity,
    scaled_to_norm,
)

Array = NDArray[np.float64]

FREE_ROUNDS, FIXED_ROUNDS = 8, 150  # of `within_budget`: while the support may change, and after that


class Conditioned:
    """Alternates U and V (Procrustes) and d (a weighted cone projection).

    With `density`, T is learnt dense and delivered with that share of its entries.
    """

    def __init__(
        self, gram: Array, max_condition: float, frobenius_norm: float, *, density: float | None = None
    ) -> None:
        check_bounds(max_condition, frobenius_norm)
        self.gram = gram
        self.max_condition = max_condition
        self.norm = frobenius_norm
        n = len(gram)
        self.v = np.eye(n)
        self.d = np.full(n, frobenius_norm / np.sqrt(n))
        self.budget = None if density is None else max(n, int(density * gram.size))

    def start(self, cross: Array) -> Array:
        """T = tau/sqrt(n) I."""
        return np.diag(self.d)

    def resume(self, factor: Array) -> Array:
        """Go on from a T learnt before: its V and its spectrum on the bounds."""
        u, s, vt = np.linalg.svd(factor)
        self.v = vt.T
        self.d = scaled_to_norm(cone_projection(s, self.max_condition), self.norm)
        return np.asarray((u * self.d) @ vt)

    def update(self, factor: Array, cross: Array) -> Array:
        """One round of U, V and d for X Yt' = cross."""
        # U maximises tr(U diag(d) V' Yt X').
        p, _, rt = np.linalg.svd((self.d[:, None] * self.v.T) @ cross.T)
        u = rt.T @ p.T
        # V maximises tr(V' Yt X' U).
        p, _, rt = np.linalg.svd(u.T @ cross)
        v = rt.T @ p.T
        # d minimises sum (d_i a_i - b_i)^2 in the cone:  a_i = ||Yt' v_i||,  a_i b_i = v_i' Yt X' u_i.
        squares = np.maximum(np.einsum("ji,jk,ki->i", v, self.gram, v, optimize=True), 0.0)
        products = np.einsum("ji,jk,ki->i", u, cross, v, optimize=True)
        v = v * np.where(products < 0, -1.0, 1.0)
        weights = np.where(squares > squares.max() * 1e-14, squares, 0.0)
        targets = np.divide(np.abs(products), squares, out=np.zeros_like(squares), where=weights > 0)
        self.d = scaled_to_norm(cone_projection(targets, self.max_condition, weights), self.norm)
        self.v = v
        return np.asarray((u * self.d) @ v.T)

    def deliver(self, factor: Array) -> Array:
        """T as it is, for every iterate keeps the bounds; with a density brought within that budget."""
        if self.budget is None or np.count_nonzero(factor) <= self.budget:
            return factor
        return within_budget(factor, self.budget, self.max_condition, self.norm)

    def state(self) -> dict[str, NDArray[Any]]:
        """V and d, which the next U starts from."""
        return {"v": np.array(self.v, order="C"), "d": self.d.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up V and d."""
        self.v, self.d = state["v"], state["d"]


def within_budget(
    matrix: Array, budget: int, max_condition: float, frobenius_norm: float, *, aim: float | None = None
) -> Array:
    """A matrix near `matrix` with at most `budget` >= n nonzero entries, the norm, and the condition within the bound.

    Alternates the projections on the largest entries (from some round on: on those of that round) and on the spectrum,
    until the first meets the bound. The spectrum is drawn closer than asked, to condition number `aim` (the root of
    the bound if not given): then they meet in a few rounds, and the entries are better ones. Should they not meet, it
    is drawn to all equal; should that fail too, the largest entries are mixed with the identity.
    """
    for inner in (np.sqrt(max_condition) if aim is None else aim, 1.0):
        near, support = matrix, _largest_with_diagonal(matrix, budget)
        for number in range(FREE_ROUNDS + FIXED_ROUNDS):
            if number < FREE_ROUNDS:
                support = _largest_with_diagonal(near, budget)
            u, s, vt = np.linalg.svd(np.where(support, near, 0.0))
            if s[-1] > 0 and s[0] <= max_condition * (1 + TOLERANCE) * s[-1]:
                sparse = np.where(support, near, 0.0)
                return np.asarray(sparse * (frobenius_norm / np.linalg.norm(sparse)))
            near = (u * scaled_to_norm(cone_projection(s, inner), frobenius_norm)) @ vt
    support = _largest_with_diagonal(matrix, budget)
    return mix_with_identity(np.where(support, matrix, 0.0), max_condition, frobenius_norm)


def _largest_with_diagonal(matrix: Array, budget: int) -> NDArray[np.bool_]:
    """Mask of the diagonal and, within the budget, the largest other entries."""
    favoured = matrix.copy()
    np.fill_diagonal(favoured, np.inf)
    return largest_entries(favoured, budget)
