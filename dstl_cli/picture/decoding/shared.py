"""Arrays in memory that another process can be given: nothing is copied, and nothing of it outlives its users.

Small ones go through memory that a child keeps instead, since it takes longer to make them common than to copy them.
"""

import math
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL_BYTES = 4 * 2**20


class Block:
    """An array, and where it is shared the descriptor of its memory, which lives as long as this object."""

    def __init__(self, shape: Sequence[int], dtype: Any, *, shared: bool) -> None:
        import numpy as np

        self.array: NDArray[Any]
        self.descriptor: int | None = None
        if not shared:
            self.array = np.empty(shape, dtype)
            return
        self.descriptor = memory(math.prod(shape) * np.dtype(dtype).itemsize)
        weakref.finalize(self, os.close, self.descriptor)
        self.array = mapped(self.descriptor, shape, dtype)


def shown(block: Block) -> dict[str, Any]:
    """What a message says of a block."""
    array = block.array
    return {
        "shape": array.shape,
        "dtype": array.dtype.str,
        "size": array.nbytes,
        "shared": block.descriptor is not None,
    }


def mapped(descriptor: int, shape: Sequence[int], dtype: Any) -> "NDArray[Any]":
    """The array in the memory of a descriptor."""
    import numpy as np

    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(descriptor, size), dtype).reshape(shape)


def memory(size: int) -> int:
    """The descriptor of so many bytes without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("dstl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        import tempfile

        with tempfile.TemporaryFile() as stream:
            descriptor = os.dup(stream.fileno())
    try:
        os.truncate(descriptor, size)
        if hasattr(os, "memfd_create"):  # nobody may take it away while it is looked at
            import fcntl

            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
