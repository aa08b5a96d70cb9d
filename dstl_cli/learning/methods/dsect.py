"""Doubly sparse, explicitly conditioned learning: Algorithm 1 of the paper.

min ||T Yt - X||^2 + lam ||T||_1   s.t.  cond(T) <= rho,  ||T||_F = tau
"""

import numpy as np

from dstl_cli.base.arrays import Array, Mask
from dstl_cli.learning import spectrum
from dstl_cli.learning.methods import FactorUpdate
from dstl_cli.learning.settings import LearnSettings

SUPPORT_ROUNDS = {"absolute": 5, "energy": 200}  # to keep the zeros of T; the paper's weight leaves hardly any


def soft_threshold(matrix: Array, threshold: float) -> Array:
    """S_t: entries drawn towards zero by t."""
    return np.asarray(np.sign(matrix) * np.maximum(np.abs(matrix) - threshold, 0.0))


class Dsect(FactorUpdate):
    """Proximal gradient steps with momentum, exact line search and a homotopy in the l1 weight.

    With a density in the configuration, the largest entries within that budget are kept instead of thresholding.
    """

    carried = ("momentum", "iteration", "l1_weights", "previous", "support")

    def __init__(self, gram: Array, settings: LearnSettings) -> None:
        super().__init__(gram, settings)
        self.norm = settings.norm_for(len(gram))
        self.unit = float(np.trace(gram)) / len(gram) if settings.l1_units == "energy" else 1.0  # of second moments
        self.l1_weight = settings.l1_weight * self.unit  # lambda
        self.lipschitz = float(np.linalg.norm(gram, 2))  # of the gradient
        self.budget = None if settings.density is None else spectrum.entry_budget(settings.density, len(gram))
        self.previous = np.zeros_like(gram)  # the T before
        self.momentum = 1.0
        self.iteration = 0
        self.support = np.ones(gram.shape, dtype=bool)
        self.l1_weights = np.zeros(settings.homotopy_steps)

    def start(self, cross: Array) -> Array:
        """The least-squares T after one gradient step, on the bounds; sets the homotopy's weights."""
        near_orthonormal = self.settings.max_condition <= 2
        factor = cross / self.unit if near_orthonormal else cross @ np.linalg.pinv(self.gram, hermitian=True)
        u, s, vt = np.linalg.svd(factor)
        factor = (u * np.maximum(s, 1e-12 * s[0])) @ vt
        direction, step = self._gradient_step(factor, cross)
        factor = self._project(factor - step * direction)
        first = 0.1 * float(np.abs(factor).max()) / step
        if self.l1_weight > 0:
            # from the last weight up, so that a single step is the weight asked for
            self.l1_weights = np.geomspace(self.l1_weight, first, self.settings.homotopy_steps)[::-1]
        return factor

    def resume(self, factor: Array) -> Array:
        """Go on from a T learnt before: without the homotopy, which has been gone through."""
        self.l1_weights = np.full(1, self.l1_weight)
        return self._project(factor)

    def update(self, factor: Array, cross: Array) -> Array:
        """One iteration of Algorithm 1 for X Yt' = cross."""
        self.iteration += 1
        old_momentum, self.momentum = self.momentum, (1 + np.sqrt(1 + 4 * self.momentum**2)) / 2
        ahead = factor + (old_momentum - 1) / self.momentum * (factor - self.previous)
        self.previous = factor
        direction, step = self._gradient_step(ahead, cross)
        new = ahead - step * direction
        frozen = self.iteration > (self.settings.freeze_at or np.inf)
        if not frozen and self.budget is None:
            weight = self.l1_weights[min(self.iteration, len(self.l1_weights)) - 1]
            new = soft_threshold(new, step * float(weight))
        new = self._project(new)
        if not frozen:
            self.support = self._support_of(new)
        return np.where(self.support, new, 0.0)

    def deliver(self, factor: Array) -> Array:
        """T on the bounds as measured; with a density also within that budget."""
        bounds = (self.settings.max_condition, self.norm)
        if self.budget is None:  # sparsity is a means here, not a promise: where both cannot be, the bound wins
            rounds = SUPPORT_ROUNDS[self.settings.l1_units]
            on_support = spectrum.project_on_support(factor, factor != 0, *bounds, rounds=rounds)
            return spectrum.held_to_bound(self._project(factor), *bounds) if on_support is None else on_support
        support = self._support_of(factor)
        on_support = spectrum.project_on_support(factor, support, *bounds)
        return spectrum.mix_with_identity(np.where(support, factor, 0.0), *bounds) if on_support is None else on_support

    def _project(self, matrix: Array) -> Array:
        return spectrum.project_spectrum(matrix, self.settings.max_condition, self.norm)

    def _support_of(self, matrix: Array) -> Mask:
        """Entries that stay: above the clip, or the largest within the budget (the diagonal always among them)."""
        if self.budget is None:
            return np.abs(matrix) > self.settings.clip
        return spectrum.largest_with_diagonal(matrix, self.budget)

    def _gradient_step(self, factor: Array, cross: Array) -> tuple[Array, float]:
        """D = (T Yt - X) Yt' and alpha: ||D||^2 / ||D Yt||^2, the best step along D, or 1 / ||Yt Yt'||_2."""
        direction = factor @ self.gram - cross
        curvature = float(np.sum((direction @ self.gram) * direction))
        squared = float(np.sum(direction**2))
        rounding = not (curvature > 0 and squared > 1e-20 * float(np.sum(cross**2)))  # nothing else is left of D
        exact = self.settings.step_rule == "exact" and not rounding
        return direction, squared / curvature if exact else 1.0 / self.lipschitz
