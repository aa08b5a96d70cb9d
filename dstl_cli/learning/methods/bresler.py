"""Log-det regularised learning, dense and doubly sparse (Ravishankar and Bresler).

min ||T Yt - X||^2 + l (||T||^2 - log|det T|),   l = lambda0 ||Yt||^2
"""

import numpy as np

from dstl_cli.base.arrays import Array
from dstl_cli.learning.methods import FactorUpdate
from dstl_cli.learning.settings import LearnSettings
from dstl_cli.learning.spectrum import condition_number, entry_budget, largest_entries, within_budget

SINGULAR = 1e6  # condition number from which dropping entries is taken to have lost a direction
TABLE_DENSITY = 0.2  # of the doubly sparse method in the paper's table


class Bresler(FactorUpdate):
    """Closed-form updates of T; no bound is promised, the penalty keeps T invertible."""

    def __init__(self, gram: Array, settings: LearnSettings) -> None:
        super().__init__(gram, settings)
        self.weight = settings.logdet_weight * float(np.trace(gram))
        eigenvalues, vectors = np.linalg.eigh(gram)
        roots = np.sqrt(np.maximum(eigenvalues, 0) + self.weight)
        self.inverse_root = (vectors / roots) @ vectors.T  # L^-1,  L = (Yt Yt' + l I)^(1/2)

    def update(self, factor: Array, cross: Array) -> Array:
        """T = R diag((s + sqrt(s^2 + 2 l))/2) Q' L^-1  with  L^-1 Yt X' = Q diag(s) R'."""
        q, s, rt = np.linalg.svd(self.inverse_root @ cross.T)
        spectrum = (s + np.sqrt(s**2 + 2 * self.weight)) / 2
        return np.asarray((rt.T * spectrum) @ (q.T @ self.inverse_root))


class SparseBresler(Bresler):
    """The same, and only a share of the entries, the largest, is kept each time."""

    def update(self, factor: Array, cross: Array) -> Array:
        """The dense update with its largest entries."""
        new = super().update(factor, cross)
        return np.where(largest_entries(new, self._budget), new, 0.0)

    def deliver(self, factor: Array) -> Array:
        """T as it is, or, where dropping entries has lost a direction, a near one of as many that is invertible."""
        if condition_number(factor) < SINGULAR:
            return factor
        return within_budget(factor, self._budget, SINGULAR, float(np.linalg.norm(factor)))

    @property
    def _budget(self) -> int:
        return entry_budget(self.settings.density or TABLE_DENSITY, len(self.gram))
