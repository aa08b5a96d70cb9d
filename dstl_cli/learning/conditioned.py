"""Dense learning with an explicit bound on the condition number (Patrascu, Rusu and Irofti).

min ||U diag(d) V' Yt - X||^2   s.t.  U, V orthonormal,  d_max <= rho d_min,  ||d|| = tau
"""

import numpy as np
from numpy.typing import NDArray

from dstl_cli.learning.spectrum import check_bounds, cone_projection, scaled_to_norm

Array = NDArray[np.float64]


class Conditioned:
    """Alternates U and V (Procrustes) and d (a weighted cone projection)."""

    def __init__(self, gram: Array, max_condition: float, frobenius_norm: float) -> None:
        check_bounds(max_condition, frobenius_norm)
        self.gram = gram
        self.max_condition = max_condition
        self.norm = frobenius_norm
        n = len(gram)
        self.v = np.eye(n)
        self.d = np.full(n, frobenius_norm / np.sqrt(n))

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
        """T as it is: every iterate keeps the bounds."""
        return factor
