"""Where the bytes of a picture come from (a file, memory, standard input), and what they may claim to hold."""

import errno
import io
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from dstl_cli.base.addresses import Address, Place
from dstl_cli.base.names import display_name
from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.picture.decoding import asking
from dstl_cli.picture.decoding.shared import Block
from dstl_cli.picture.problems import damaged, truncated

NARROW_BYTES = 2**20  # rows beyond this many bytes, of which only a part is looked at, are read one by one
BLOCK_BYTES = 2**20  # copied at a time
STREAM_BYTES = 2**30  # so much is taken from standard input
MAX_PIXELS_VARIABLE = "DSTL_MAX_PIXELS"
MAX_PIXELS = 500_000_000
MOST_DIGITS = 18  # of the user's own limit
# Deflate cannot shrink data more than 1032 times and LZW not much more, so a file that
# promises 2000 times its own size is cut off or a forgery; real pictures stay far below 200.
POSSIBLE_RATIO = 2000
PLAUSIBLE_RATIO = 200
PLAUSIBLE_PIXELS = 128_000_000
SMALL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Source:
    """The bytes of a picture file, on disk or in memory, and the name used in messages.

    folder: what is one picture, which has no bytes of its own.
    """

    data: Path | bytes
    name: str
    size: int
    folder: Place | None = None

    def open(self) -> BinaryIO:
        """A seekable stream over the bytes."""
        return io.BytesIO(self.data) if isinstance(self.data, bytes) else self.data.open("rb")

    def read(self) -> bytes:
        """All the bytes."""
        if isinstance(self.data, bytes):
            return self.data
        with file_errors(self.name):
            return self.data.read_bytes()

    def blocks(self) -> Iterator[bytes]:
        """All the bytes, some at a time."""
        with file_errors(self.name), self.open() as stream:
            while block := stream.read(BLOCK_BYTES):
                yield block

    def packed(self, pieces: Sequence[tuple[int, int]] | None = None) -> Block:
        """All the bytes for a decoder, or some pieces (offset, length) of them, one behind another."""
        wanted = [(0, self.size)] if pieces is None else pieces
        block = asking.block((sum(count for _, count in wanted),), np.uint8)
        view, start = block.array.data, 0
        with file_errors(self.name), self.open() as stream:
            for offset, count in wanted:
                stream.seek(offset)
                if cast(io.BufferedIOBase, stream).readinto(view[start : start + count]) < count:
                    raise truncated(self.name)
                start += count
        return block

    def lead(self, count: int) -> bytes:
        """The first bytes."""
        with file_errors(self.name), self.open() as stream:
            return stream.read(count)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Raw values at an offset as an array; never mapped from a file, which somebody may cut off meanwhile."""
        count = math.prod(shape)
        if offset + count * dtype.itemsize > self.size:
            raise truncated(self.name)
        if isinstance(self.data, bytes):
            return np.frombuffer(self.data, dtype, count, offset).reshape(shape)
        with file_errors(self.name):
            values = np.fromfile(self.data, dtype, count, offset=offset)
        if values.size != count:
            raise truncated(self.name)
        return values.reshape(shape)

    def window(
        self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], rows: slice, columns: slice
    ) -> np.ndarray[Any, Any]:
        """A part of the array that `array` would give, perhaps not contiguous."""
        row_bytes = math.prod(shape[1:]) * dtype.itemsize
        high, wide = rows.stop - rows.start, columns.stop - columns.start
        start = offset + rows.start * row_bytes
        if wide == shape[1] or high * row_bytes <= NARROW_BYTES or isinstance(self.data, bytes):
            return self.array(start, (high, *shape[1:]), dtype)[:, columns]
        band = np.empty((high, wide, *shape[2:]), dtype)
        start += columns.start * (row_bytes // shape[1])
        with file_errors(self.name), self.data.open("rb", buffering=0) as stream:
            for row in band:
                stream.seek(start)
                if stream.readinto(row.reshape(-1).view(np.uint8)) < row.nbytes:
                    raise truncated(self.name)
                start += row_bytes
        return band

    def check_size(self, width: int, height: int, decoded_bytes: int) -> None:
        """Refuse sizes that are empty, too large, or impossible for so few bytes, before memory and time are spent.

        With DSTL_MAX_PIXELS set, that number of pixels per page is the only limit.
        """
        if width < 1 or height < 1:
            raise damaged(self.name, f"its size is {width} x {height}")
        pixels = width * height
        own_limit = max_pixels()
        claim = f"{self.name} claims {width} x {height} pixels"
        trust = f"set {MAX_PIXELS_VARIABLE}={pixels} if you trust it"
        if pixels > (own_limit or MAX_PIXELS):
            raise FileProblem(f"{claim}, more than the limit of {own_limit or MAX_PIXELS}; {trust}.")
        ratio = POSSIBLE_RATIO if pixels <= PLAUSIBLE_PIXELS else PLAUSIBLE_RATIO
        if own_limit is None and decoded_bytes > max(SMALL_BYTES, ratio * self.size):
            raise FileProblem(f"{claim} but has only {self.size} bytes; {trust}.")


def max_pixels() -> int | None:
    """The user's own limit of pixels per page from DSTL_MAX_PIXELS, or None."""
    text = os.environ.get(MAX_PIXELS_VARIABLE, "").strip()
    if text and not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and int(text) > 0):
        shown = text if len(text) <= MOST_DIGITS else f"{text[:MOST_DIGITS]}..."
        raise DstlError(f"{MAX_PIXELS_VARIABLE} must be a whole number of pixels such as 1000000000, not {shown!r}.")
    return int(text) if text else None


def open_source(source: Place | bytes, name: str | None = None) -> Source:
    """Check that a path is a readable, non-empty regular file and make a Source of it.

    What is at an address is read whole.
    """
    if isinstance(source, Address):
        source, name = source.read(), name or str(source)
    if isinstance(source, bytes):
        shown = name or "standard input"
        size = len(source)
    else:
        shown = name or display_name(source)
        with file_errors(shown):
            status = source.stat()
            if stat.S_ISDIR(status.st_mode):
                raise FileProblem(f"{shown} is a folder; give a picture file instead.")
            if not stat.S_ISREG(status.st_mode):
                raise FileProblem(f"{shown} is not a regular file; pipe its bytes to standard input instead.")
            with source.open("rb"):
                pass
            size = status.st_size
    if size == 0:
        raise FileProblem(f"{shown} is empty (0 bytes); copy or export it again.")
    return Source(source, shown, size)


def folder_source(folder: Place, name: str | None = None) -> Source:
    """The Source of a folder that is one picture."""
    return Source(b"", name or display_name(folder), 0, folder)


def standard_input(check: Callable[[bytes], object], lead: int) -> bytes:
    """All of standard input, whose first bytes must pass a check before more is read."""
    if sys.stdin is None:
        raise FileProblem("There is no standard input to read a picture from; give a file.")
    try:
        first = sys.stdin.buffer.read(lead)
        if first:
            check(first)
        rest = sys.stdin.buffer.read(STREAM_BYTES)
    except (OSError, ValueError) as error:
        raise FileProblem(f"Standard input cannot be read ({error}); give a file.") from error
    if len(rest) == STREAM_BYTES:
        raise FileProblem(f"Standard input has more than {STREAM_BYTES} bytes; save it to a file and give that.")
    return first + rest


_OS_REMEDIES = {
    errno.ENOENT: "does not exist; check the name",
    errno.ENOTDIR: "does not exist; check the name",
    errno.EACCES: "may not be read; change its permissions",
    errno.EPERM: "may not be read; change its permissions",
    errno.EISDIR: "is a folder; give a picture file instead",
    errno.ELOOP: "is a symbolic link that leads to itself; remove or repair the link",
    errno.ENAMETOOLONG: "has a name that is too long; use a shorter one",
    errno.EIO: "cannot be read from its disk; copy it from a backup",
}


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Turn errors of the operating system while reading into one sentence."""
    try:
        yield
    except OSError as error:
        reason = _OS_REMEDIES.get(error.errno or 0)
        if reason is None:
            reason = f"cannot be read ({error.strerror or error}); check the disk it is on"
        raise FileProblem(f"{name} {reason}.") from error
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise FileProblem(f"{name!r} is not a possible file name; check the name.") from error
