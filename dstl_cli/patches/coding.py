"""Sparse coding of patches: exactly-r selection for learning, the variable-sparsity coder for denoising."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Counts = NDArray[np.int32]


@dataclass(frozen=True)
class CodingPass:
    """What learning needs to know of X = H(T Yt) over all training patches."""

    cross: Array  # X Yt', (n, n)
    error: float  # ||T Yt - X||_F
    energy: float  # ||T Yt||_F

    @property
    def relative_error(self) -> float:
        """||T Yt - X||_F / ||T Yt||_F; zero for a signal of zero energy."""
        return self.error / self.energy if self.energy > 0 else 0.0


def keep_largest(coefficients: Array, levels: NDArray[np.int64]) -> tuple[Array, float, float]:
    """H_r of every row: exactly the levels[i] entries of largest magnitude (ties: lowest index).

    coefficients: (N, n). Returns the codes, and the energies left out and in all.
    """
    from dstl_cli.patches.kernels import coding as _kernels

    codes = np.array(coefficients, order="C")
    left_out, energy = _kernels.keep_largest(codes, levels)
    return codes, left_out, energy


def check_levels(levels: NDArray[np.int64], n: int) -> None:
    """Refuse sparsity levels that no patch of n pixels can have."""
    wrong = levels[(levels < 0) | (levels > n)]
    if wrong.size:
        raise ValueError(f"A patch of {n} pixels has between 0 and {n} coefficients, not {wrong[0]}.")


@dataclass(frozen=True)
class Coder:
    """The variable-sparsity coder of one transform, for patches measured in units of the noise deviation.

    A patch y gets the fewest coefficients of z = W y, largest first and at most `most`, whose estimate
        x = argmin mu ||x - y||^2 + ||W x - a||^2 = y - B r,   B = (mu I + W'W)^-1 W',   r = z - a
    satisfies ||x - y||^2 = r' M r <= limit = C^2 n,  M = B'B.
    """

    analysis: Array32  # W'
    synthesis: Array32  # B'
    error_weights: Array32  # M
    smallest_weight: float  # a lower bound on the eigenvalues of M
    uniform: bool  # M is a multiple of I, as for condition number 1
    limit: float
    most: int

    @property
    def patch_size(self) -> int:
        """The side of the patches."""
        return math.isqrt(len(self.analysis))

    @classmethod
    def build(
        cls, transform: Transform, *, error_scale: float, fidelity: float, most: int, sigma: float = 1.0
    ) -> "Coder":
        """The coder of `transform` with C = error_scale and mu = fidelity; sigma: deviation of the patches' noise."""
        w = transform.matrix
        n = len(w)
        b = np.linalg.solve(fidelity * np.eye(n) + w.T @ w, w.T)
        m = b.T @ b
        eigenvalues = np.linalg.eigvalsh(m)
        return cls(
            analysis=np.ascontiguousarray(w.T / sigma, dtype=np.float32),
            synthesis=np.ascontiguousarray(b.T * sigma, dtype=np.float32),
            error_weights=np.ascontiguousarray(m, dtype=np.float32),
            smallest_weight=max(float(eigenvalues[0]), 0.0),
            uniform=bool(eigenvalues[-1] <= eigenvalues[0] * (1 + 1e-6)),
            limit=error_scale**2 * n,
            most=most,
        )

    def leave_out(self, patches: Array32) -> tuple[Array32, Counts]:
        """The coefficients r left out of every row of `patches` (N, n), and how many were taken (N,)."""
        left_out = patches @ self.analysis
        return left_out, self._take(left_out)

    def estimate(self, patches: Array32) -> Array32:
        """The denoised patches y - B r of all columns (n, N)."""
        left_out = np.ascontiguousarray((self.analysis.T @ patches).T)
        self._take(left_out)
        return patches - self.synthesis.T @ left_out.T

    def _take(self, rows: Array32) -> Counts:
        """Take coefficients of every row (N, n), in place, until the rule is met; how many."""
        from dstl_cli.patches.kernels import coding as kernels

        counts = np.zeros(len(rows), dtype=np.int32)
        if self.uniform:
            kernels.leave_out(rows, np.float32(self.limit / self.smallest_weight), self.most, counts)
            return counts
        # r' M r >= (smallest eigenvalue) r'r: no number of coefficients passes the exact rule before it passes
        # this easy one, so the costly steps start from there (a little earlier, to be safe against rounding).
        if self.smallest_weight > 0:
            easy = np.float32(min(self.limit / self.smallest_weight * 1.0001, 1e38))
            kernels.leave_out(rows, easy, self.most, counts)
        products = rows @ self.error_weights
        kernels.leave_out_weighted(rows, products, self.error_weights, self.limit, self.most, counts)
        return counts
