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
