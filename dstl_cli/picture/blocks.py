"""Pages that are stored in blocks, such as the tiles of TIFF: which ones a part touches, and those decoded lately."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[Any]

RECENT_BYTES = 64 * 2**20  # of decoded blocks stay at hand; a row of them in any case


class RecentBlocks:
    """The blocks decoded last, by any key."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[Any, Pixels] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Any) -> Pixels | None:
        """A block, if it is at hand."""
        with self._lock:
            if key not in self._blocks:
                return None
            self._blocks.move_to_end(key)
            return self._blocks[key]

    def keep(self, key: Any, block: Pixels, row_bytes: int) -> Pixels:
        """Have a block at hand, and let go of the oldest beyond RECENT_BYTES, or a row of blocks of so many bytes."""
        with self._lock:
            if key in self._blocks:  # another thread has decoded it meanwhile
                self._bytes -= self._blocks.pop(key).nbytes
            self._blocks[key] = block
            self._bytes += block.nbytes
            while self._bytes > max(RECENT_BYTES, row_bytes) and len(self._blocks) > 1:
                self._bytes -= self._blocks.popitem(last=False)[1].nbytes
            return block

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self._blocks.clear()
            self._bytes = 0


def touching(
    rows: slice, columns: slice, high: int, wide: int
) -> Iterator[tuple[int, int, tuple[slice, slice], tuple[slice, slice]]]:
    """The blocks (high, wide) that touch a part of a page.

    Of each its row and column, and where that which both share lies: in the part, and in the block.
    """
    for row in range(rows.start // high, -(-rows.stop // high)):
        for column in range(columns.start // wide, -(-columns.stop // wide)):
            shared = []
            for part, first, side in ((rows, row * high, high), (columns, column * wide, wide)):
                start, stop = max(part.start, first), min(part.stop, first + side)
                shared.append((slice(start - part.start, stop - part.start), slice(start - first, stop - first)))
            (above, in_rows), (left, in_columns) = shared
            yield row, column, (above, left), (in_rows, in_columns)


def block_means(values: Pixels, factors: tuple[int, ...]) -> Pixels:
    """The means of blocks of so many values along each axis, those at the end perhaps smaller, in the same dtype.

    Values that are no finite numbers do not count; where there are no others, the mean is none either.
    """
    told = np.isfinite(values)
    sums: Pixels = values if told.all() else np.where(told, values, 0)
    counts: Pixels = np.ones((1,) * values.ndim, np.int64) if told.all() else told
    kind = np.float64 if values.dtype.kind == "f" else np.int64
    for axis, factor in enumerate(factors):
        edges = np.arange(0, values.shape[axis], factor)
        sums = np.add.reduceat(sums, edges, axis=axis, dtype=kind)  # never all of the values in this type
        if told.all():
            sizes = np.diff(edges, append=values.shape[axis]).reshape(-1, *(1,) * (values.ndim - axis - 1))
            counts = counts * sizes
        else:
            counts = np.add.reduceat(counts, edges, axis=axis, dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        means = sums / counts
        return np.asarray((means if values.dtype.kind == "f" else np.rint(means)).astype(values.dtype))
