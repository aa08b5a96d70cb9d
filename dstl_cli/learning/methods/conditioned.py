"""Dense learning with an explicit bound on the condition number (Patrascu, Rusu and Irofti).

min ||U diag(d) V' Yt - X||^2   s.t.  U, V orthonormal,  d_max <= rho d_min,  ||d|| = tau
"""

import numpy as np

from dstl_cli.base.arrays import Array
from dstl_cli.learning import spectrum
from dstl_cli.learning.methods import FactorUpdate
from dstl_cli.learning.settings import LearnSettings

BUDGET = 0.30  # share of the entries of T that `procrustes` keeps where nothing else is said


class Conditioned(FactorUpdate):
    """Alternates U and V (Procrustes) and d (a weighted cone projection)."""

    carried = ("v", "d")  # which the next U starts from

    def __init__(self, gram: Array, settings: LearnSettings) -> None:
        super().__init__(gram, settings)
        self.max_condition, self.norm = settings.max_condition, settings.norm_for(len(gram))
        n = len(gram)
        self.v = np.eye(n)
        self.d = np.full(n, self.norm / np.sqrt(n))

    def start(self, cross: Array) -> Array:
        """T = tau/sqrt(n) I."""
        return np.diag(self.d)

    def resume(self, factor: Array) -> Array:
        """Go on from a T learnt before: its V and its spectrum on the bounds."""
        u, s, vt = np.linalg.svd(factor)
        self.v = vt.T
        self.d = spectrum.scaled_to_norm(spectrum.cone_projection(s, self.max_condition), self.norm)
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
        self.d = spectrum.scaled_to_norm(spectrum.cone_projection(targets, self.max_condition, weights), self.norm)
        self.v = v
        return np.asarray((u * self.d) @ v.T)

    def deliver(self, factor: Array) -> Array:
        """T, with its condition number within the bound as measured."""
        return spectrum.held_to_bound(factor, self.max_condition, self.norm)


class Procrustes(Conditioned):
    """The same, and delivered with a share of the entries of T."""

    def deliver(self, factor: Array) -> Array:
        """T within the budget and the bound."""
        budget = spectrum.entry_budget(self.settings.density or BUDGET, len(factor))
        if np.count_nonzero(factor) <= budget:
            return super().deliver(factor)
        return spectrum.within_budget(factor, budget, self.max_condition, self.norm)
