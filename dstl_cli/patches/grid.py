"""Patches of an image: where they are, and some of them by themselves."""

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


def patches_at(image: NDArray[np.generic], patch_size: int, rows: Index, columns: Index) -> Array:
    """The patches that begin at these places, without their means: (N, n). The others are never made."""
    windows = sliding_window_view(image, (patch_size, patch_size))
    patches = windows[rows, columns].astype(np.float64).reshape(len(rows), -1)
    return np.asarray(patches - patches.mean(axis=1, keepdims=True))


def sample(image: NDArray[np.generic], patch_size: int, count: int, rng: np.random.Generator) -> Array:
    """At most `count` different patches at random places without their means: (N, n)."""
    height, width = (len(positions(length, patch_size)) for length in image.shape)
    chosen = rng.choice(height * width, size=min(count, height * width), replace=False, shuffle=False)
    return patches_at(image, patch_size, *np.divmod(chosen, width))
