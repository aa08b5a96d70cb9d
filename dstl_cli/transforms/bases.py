"""The orthonormal bases behind the canonical transforms: kron(C, C) of a one-dimensional basis C. All are read-only."""

from functools import lru_cache

import numpy as np

from dstl_cli.base.arrays import Array


def _separable(rows: Array) -> Array:
    """The two-dimensional basis of vectorised patches, (n, n)."""
    matrix: Array = np.kron(rows, rows).astype(np.float64, copy=False)
    matrix.flags.writeable = False
    return matrix


@lru_cache(maxsize=8)
def dct_matrix(patch_size: int) -> Array:
    """Orthonormal 2-D DCT-II."""
    k = np.arange(patch_size)
    c = np.cos(np.pi * np.outer(k, 2 * k + 1) / (2 * patch_size)) * np.sqrt(2 / patch_size)
    c[0] /= np.sqrt(2)
    return _separable(c)


@lru_cache(maxsize=8)
def hadamard_matrix(patch_size: int) -> Array:
    """Walsh-Hadamard basis in Sylvester's order, for powers of two: H_2m = (H_m, H_m; H_m, -H_m)."""
    h = np.ones((1, 1))
    while len(h) < patch_size:
        h = np.block([[h, h], [h, -h]])
    return _separable(h / np.sqrt(patch_size))


@lru_cache(maxsize=8)
def haar_matrix(patch_size: int) -> Array:
    """Haar wavelets of all scales, for powers of two: sums of neighbours on, differences beside them."""
    h = np.ones((1, 1))
    while len(h) < patch_size:
        h = np.concatenate((np.kron(h, [1.0, 1.0]), np.kron(np.eye(len(h)), [1.0, -1.0]))) / np.sqrt(2)
    return _separable(h)


@lru_cache(maxsize=8)
def fourier_matrix(patch_size: int) -> Array:
    """The real Fourier basis: the constant, then cos and sin of each frequency up to half the patch size."""
    angles = 2 * np.pi * np.outer(np.arange(1, patch_size // 2 + 1), np.arange(patch_size)) / patch_size
    waves = np.stack((np.cos(angles), np.sin(angles)), axis=1).reshape(-1, patch_size)[: patch_size - 1]
    rows = np.concatenate((np.ones((1, patch_size)), waves))
    return _separable(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@lru_cache(maxsize=8)
def identity_matrix(patch_size: int) -> Array:
    """The pixels themselves."""
    return _separable(np.eye(patch_size))
