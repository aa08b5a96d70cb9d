"""The transform W = T Phi: a learnt factor T on a canonical transform Phi."""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dstl_cli.base.arrays import Array
from dstl_cli.base.checks import require
from dstl_cli.base.registry import load as load_by_name
from dstl_cli.transforms.canonical import CANONICAL

FACTS = ("method", "canonical", "patch_size", "condition", "density", "frobenius_norm", "average_with_canonical")
_FILES = "dstl_cli.transforms.files"  # by name: it imports this module


@dataclass(frozen=True)
class Iteration:
    """One line of the history: the state after an update."""

    number: int
    error: float  # ||T Yt - X||_F
    relative_error: float  # ||T Yt - X||_F / ||T Yt||_F
    condition: float
    density: float


@dataclass(frozen=True, eq=False)
class Transform:
    """A sparsifying transform W = T Phi for patches of patch_size x patch_size pixels.

    factor: T, (n, n). canonical: the name of Phi, which is orthonormal, so condition and norm of W are those of T.
    average_with_canonical: few patches spoke for T when it was learnt, so its result is averaged with that of Phi.

    >>> Transform.fixed(8).save("dct.npz")
    >>> Transform.load("dct.npz").condition
    1.0
    """

    patch_size: int
    factor: Array
    method: str
    canonical: str = "dct"
    average_with_canonical: bool = False

    def __post_init__(self) -> None:
        CANONICAL[self.canonical].check_size(self.patch_size)
        p, n, shape = self.patch_size, self.patch_size**2, self.factor.shape
        sizes = f"{p}x{p} patches needs a {n}x{n} factor, not {'x'.join(map(str, shape))}"
        require(shape == (n, n), f"A transform of {sizes}.")
        require(bool(np.isfinite(self.factor).all()), "The transform has entries that are not finite numbers.")
        sound = bool(1e-30 < self.singular_values[0] < 1e30) and self.condition < 1e15
        require(sound, "The transform cannot be inverted, or its entries are far too large or small.")

    @classmethod
    def fixed(cls, patch_size: int, canonical: str = "dct") -> "Transform":
        """The canonical transform itself: T = I."""
        return cls(patch_size, np.eye(patch_size**2), "dct", canonical)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Transform":
        """The transform in a file that `save`, `dstl train` or `dstl denoise --save-transform` wrote."""
        loaded: Transform = load_by_name(f"{_FILES}:load_transform")(path).transform
        return loaded

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the transform to a `.npz` file, complete or not at all; an existing one only with `overwrite`."""
        file = load_by_name(f"{_FILES}:TransformFile")(self)
        load_by_name(f"{_FILES}:save_transform")(path, file, overwrite=overwrite)

    @property
    def canonical_matrix(self) -> Array:
        """Phi, (n, n)."""
        return np.asarray(CANONICAL[self.canonical].matrix(self.patch_size))

    @cached_property
    def matrix(self) -> Array:
        """W = T Phi, (n, n)."""
        return self.factor @ self.canonical_matrix

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

    def facts(self) -> dict[str, Any]:
        """What reports tell of it."""
        return {key: getattr(self, key) for key in FACTS}

    def apply(self, patches: Array) -> Array:
        """Coefficients W y of each row of `patches` (N, n)."""
        return patches @ self.matrix.T

    def adjoint(self, coefficients: Array) -> Array:
        """W' a of each row of `coefficients` (N, n)."""
        return coefficients @ self.matrix

    def inverse(self, coefficients: Array) -> Array:
        """The patches whose coefficients are the rows of `coefficients` (N, n)."""
        return np.asarray(np.linalg.solve(self.matrix, coefficients.T).T, dtype=np.float64)
