"""The kinds of arrays that the numerics hand on; each function says their shapes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Levels = NDArray[np.int64]
Mask = NDArray[np.bool_]
Pixels = NDArray[np.generic]  # of any depth
Bytes = NDArray[np.uint8]
Arrays = dict[str, NDArray[Any]]  # by name, as in archives


def largest_around(values: Array, footprint: Mask) -> Array:
    """The largest of the values (h, w) under an odd-sided footprint around each; beyond the border lie the nearest.

    scipy.ndimage.maximum_filter is as good, but its import takes a third of a second, a quarter of a short run.
    """
    height, width = values.shape
    reach = footprint.shape[0] // 2, footprint.shape[1] // 2
    wider = np.pad(values, ((reach[0], reach[0]), (reach[1], reach[1])), mode="edge")
    shifted = (wider[i : i + height, j : j + width] for i, j in np.argwhere(footprint))
    largest = next(shifted).copy()
    for part in shifted:
        np.maximum(largest, part, out=largest)
    return largest
