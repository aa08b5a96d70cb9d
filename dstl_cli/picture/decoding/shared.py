"""Arrays in memory that another process can be given: nothing is copied, and nothing of it outlives its users."""

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Block:
    """An array, and where it is shared the descriptor of its memory, which lives as long as this object."""

    def __init__(self, shape: Sequence[int], dtype: Any, *, shared: bool) -> None:
        self.array: NDArray[Any]
        self.descriptor: int | None = None
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not shared or not size:
            self.array = np.empty(shape, dtype)
            return
        self.descriptor = _memory(size)
        weakref.finalize(self, os.close, self.descriptor)
        self.array = mapped(self.descriptor, shape, dtype)


def mapped(descriptor: int, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """The array in the memory of a descriptor."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(descriptor, size), dtype).reshape(shape)


def _memory(size: int) -> int:
    """The descriptor of so many bytes without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("dstl")
    else:
        with tempfile.TemporaryFile() as stream:
            descriptor = os.dup(stream.fileno())
    try:
        os.truncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
