"""Patches of an image: where they are, and taking them out."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def positions(length: int, patch_size: int, stride: int = 1) -> Index:
    """Start of every patch along one axis: multiples of stride, and the last possible one always."""
    last = length - patch_size
    if last < 0:
        patch = f"{patch_size}x{patch_size}"
        raise ValueError(f"A patch of {patch} pixels does not fit into an image with a side of {length}.")
    starts = np.arange(0, last + 1, stride)
    return starts if starts[-1] == last else np.append(starts, last)


def extract(
    image: NDArray[np.generic],
    patch_size: int,
    rows: Index,
    columns: Index,
    scale: float = 1.0,
    dtype: Any = np.float64,
) -> tuple[NDArray[Any], Array]:
    """Patches with corners on rows x columns without their means, times scale (R, C, n), and the means (R, C)."""
    from dstl_cli.patches.kernels.coding import take_patches

    patches = np.empty((len(rows), len(columns), patch_size**2), dtype)
    means = np.empty((len(rows), len(columns)))
    take_patches(np.asarray(image, dtype=np.float64), patch_size, rows, columns, scale, patches, means)
    return patches, means


def summation_step(largest: float, patch_size: int) -> float:
    """The power of two to which summands, values up to `largest`, are rounded in `add_patches`.

    Sums of at most patch_size**2 multiples of it stay within 53 bits, so that adding them is exact.
    """
    bits = 52 - int(np.ceil(np.log2(patch_size**2)))
    exponent = int(np.ceil(np.log2(largest))) if largest > 0 else 0
    return float(2.0 ** (exponent - bits))


def sample(image: NDArray[np.generic], patch_size: int, count: int, rng: np.random.Generator) -> Array:
    """At most `count` different patches at random places without their means: (N, n).

    They are gathered one by one; the other patches are never made.
    """
    height, width = (len(positions(length, patch_size)) for length in image.shape)
    chosen = rng.choice(height * width, size=min(count, height * width), replace=False, shuffle=False)
    windows = sliding_window_view(image, (patch_size, patch_size))
    patches = windows[np.divmod(chosen, width)].astype(np.float64).reshape(len(chosen), -1)
    return np.asarray(patches - patches.mean(axis=1, keepdims=True))
