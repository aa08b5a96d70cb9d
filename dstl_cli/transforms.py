"""The fixed DCT and the learnt transform W = T Phi."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@lru_cache(maxsize=8)
def dct_matrix(patch_size: int) -> Array:
    """Orthonormal 2-D DCT-II of vectorised patches: kron(C, C), (n, n) with n = patch_size**2. Read-only."""
    k = np.arange(patch_size)
    c = np.cos(np.pi * np.outer(k, 2 * k + 1) / (2 * patch_size)) * np.sqrt(2 / patch_size)
    c[0] /= np.sqrt(2)
    matrix = np.kron(c, c)
    matrix.flags.writeable = False
    return matrix


@dataclass(frozen=True, eq=False)
class Transform:
    """A sparsifying transform W = T Phi for patches of patch_size x patch_size pixels.

    factor: T, (n, n); Phi is the orthonormal DCT, so condition and norm of W are those of T.
    """

    patch_size: int
    factor: Array
    method: str

    def __post_init__(self) -> None:
        n = self.patch_size**2
        if self.factor.shape != (n, n):
            raise ValueError(
                f"A transform of {self.patch_size}x{self.patch_size} patches needs a {n}x{n} factor, "
                f"not {'x'.join(map(str, self.factor.shape))}."
            )
        if not np.isfinite(self.factor).all():
            raise ValueError("The transform has entries that are not finite numbers.")
        if not 1e-30 < self.singular_values[0] < 1e30 or not self.condition < 1e15:
            raise ValueError("The transform cannot be inverted, or its entries are far too large or small.")

    @classmethod
    def dct(cls, patch_size: int) -> "Transform":
        """The DCT itself: T = I."""
        return cls(patch_size, np.eye(patch_size**2), "dct")

    @cached_property
    def matrix(self) -> Array:
        """W = T Phi, (n, n)."""
        return self.factor @ dct_matrix(self.patch_size)

    @cached_property
    def singular_values(self) -> Array:
        """Singular values of T (and of W), largest first."""
        return np.asarray(np.linalg.svd(self.factor, compute_uv=False), dtype=np.float64)

    @property
    def condition(self) -> float:
        """Measured condition number."""
        s = self.singular_values
        return float(s[0] / s[-1]) if s[-1] > 0 else np.inf

    @property
    def density(self) -> float:
        """Share of the entries of T that are not zero."""
        return float(np.count_nonzero(self.factor) / self.factor.size)

    @property
    def frobenius_norm(self) -> float:
        """||T||_F = ||W||_F."""
        return float(np.linalg.norm(self.factor))

    def apply(self, patches: Array) -> Array:
        """Coefficients W y of each row of `patches` (N, n)."""
        return patches @ self.matrix.T

    def adjoint(self, coefficients: Array) -> Array:
        """W' a of each row of `coefficients` (N, n)."""
        return coefficients @ self.matrix

    def inverse(self, coefficients: Array) -> Array:
        """The patches whose coefficients are the rows of `coefficients` (N, n)."""
        return np.asarray(np.linalg.solve(self.matrix, coefficients.T).T, dtype=np.float64)
