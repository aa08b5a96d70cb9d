"""Patches of an image: where they are, taking them out, and putting them back (the inverse pair)."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def check_image(image: NDArray[np.generic]) -> None:
    """Refuse what is not a non-empty, finite, 2-D array of real numbers."""
    if image.ndim != 2:
        raise ValueError(f"A grey image has two axes, not {image.ndim}.")
    if image.size == 0:
        raise ValueError("The image is empty.")
    if image.dtype.kind not in "buif":
        raise ValueError(f"The image must hold real numbers, not {image.dtype}.")
    bad = image.size - int(np.count_nonzero(np.isfinite(image)))
    if bad:
        raise ValueError(f"The image has {bad} pixels that are not finite numbers.")


def positions(length: int, patch_size: int, stride: int = 1) -> Index:
    """Start of every patch along one axis: multiples of stride, and the last possible one always."""
    if patch_size < 1 or stride < 1:
        raise ValueError(f"Patch size and stride must be at least 1, not {patch_size} and {stride}.")
    last = length - patch_size
    if last < 0:
        raise ValueError(
            f"A patch of {patch_size}x{patch_size} pixels does not fit into an image with a side of {length}."
        )
    starts = np.arange(0, last + 1, stride)
    return starts if starts[-1] == last else np.append(starts, last)


def extract(image: NDArray[np.generic], patch_size: int, rows: Index, columns: Index) -> tuple[Array, Array]:
    """Patches with corners on rows x columns without their means (R, C, n), and the means (R, C)."""
    from dstl_cli._kernels import take_patches

    check_image(image)
    patches = np.empty((len(rows), len(columns), patch_size**2))
    means = np.empty((len(rows), len(columns)))
    take_patches(np.asarray(image, dtype=np.float64), patch_size, rows, columns, 1.0, patches, means)
    return patches, means


def aggregate(
    patches: Array,
    means: Array,
    rows: Index,
    columns: Index,
    shape: tuple[int, int],
    weights: Array | None = None,
) -> Array:
    """Weighted average over each pixel of the patches that cover it: the inverse of `extract`.

    patches: (R, C, n); means, weights: (R, C), the weights ones if not given.
    """
    from dstl_cli._kernels import add_patches

    size = int(np.sqrt(patches.shape[2]))
    w = np.ones(means.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    largest = float(np.abs(patches).max(initial=0.0) + np.abs(means).max(initial=0.0))
    total, weight = np.zeros(shape), np.zeros(shape)
    steps = summation_steps(largest, size)
    add_patches(patches, 1.0, means, w, -np.inf, np.inf, steps, size, rows, columns, total, weight)
    if not (weight > 0).all():
        raise ValueError("The patches do not cover the image with positive weights.")
    return total / weight


def summation_steps(largest: float, patch_size: int) -> tuple[float, float]:
    """Powers of two to which summands (values up to `largest`, weights up to 1) are rounded in `add_patches`.

    Sums of at most patch_size**2 multiples of them stay within 53 bits, so that adding them is exact.
    """
    bits = 52 - int(np.ceil(np.log2(patch_size**2)))
    exponent = int(np.ceil(np.log2(largest))) if largest > 0 else 0
    return 2.0 ** (exponent - bits), 2.0**-bits


def sample(image: NDArray[np.generic], patch_size: int, count: int, rng: np.random.Generator) -> Array:
    """At most `count` different patches at random places without their means: (N, n).

    They are gathered one by one; the other patches are never made.
    """
    height, width = (len(positions(length, patch_size)) for length in image.shape)
    chosen = rng.choice(height * width, size=min(count, height * width), replace=False, shuffle=False)
    windows = sliding_window_view(image, (patch_size, patch_size))
    patches = windows[np.divmod(chosen, width)].astype(np.float64).reshape(len(chosen), -1)
    return np.asarray(patches - patches.mean(axis=1, keepdims=True))
