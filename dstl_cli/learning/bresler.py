"""Log-det regularised learning, dense and doubly sparse (Ravishankar and Bresler).

min ||T Yt - X||^2 + l (||T||^2 - log|det T|),   l = lambda0 ||Yt||^2
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.learning.conditioned import within_budget
from dstl_cli.learning.spectrum import condition_number, largest_entries

Array = NDArray[np.float64]

SINGULAR = 1e6  # condition number from which dropping entries is taken to have lost a direction


class Bresler:
    """Closed-form updates of T; with `density`, only that share of the entries, the largest, is kept each time."""

    def __init__(self, gram: Array, logdet_weight: float, *, density: float | None = None) -> None:
        self.weight = logdet_weight * float(np.trace(gram))
        eigenvalues, vectors = np.linalg.eigh(gram)
        roots = np.sqrt(np.maximum(eigenvalues, 0) + self.weight)
        self.inverse_root = (vectors / roots) @ vectors.T  # L^-1,  L = (Yt Yt' + l I)^(1/2)
        self.kept = None if density is None else max(len(gram), int(density * gram.size))

    def start(self, cross: Array) -> Array:
        """T = I."""
        return np.eye(len(cross))

    def resume(self, factor: Array) -> Array:
        """Go on from a T learnt before."""
        return factor

    def update(self, factor: Array, cross: Array) -> Array:
        """T = R diag((s + sqrt(s^2 + 2 l))/2) Q' L^-1  with  L^-1 Yt X' = Q diag(s) R'."""
        q, s, rt = np.linalg.svd(self.inverse_root @ cross.T)
        spectrum = (s + np.sqrt(s**2 + 2 * self.weight)) / 2
        new = (rt.T * spectrum) @ (q.T @ self.inverse_root)
        return new if self.kept is None else np.where(largest_entries(new, self.kept), new, 0.0)

    def deliver(self, factor: Array) -> Array:
        """T as it is, no bound is promised: the log-det penalty keeps it invertible, but dropping entries may not.

        Where it did not, the nearest T found that is, with as many entries.
        """
        if self.kept is None or condition_number(factor) < SINGULAR:
            return factor
        return within_budget(factor, self.kept, SINGULAR, float(np.linalg.norm(factor)))

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing: every update is a function of T and X Yt' alone."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """There is nothing to restore."""
