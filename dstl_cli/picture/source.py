"""Where the bytes of a picture come from: a file, memory, or standard input."""

import errno
import io
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem
from dstl_cli.picture.problems import truncated

# Arrays beyond this many bytes are mapped from their file instead of being read.
MAPPED_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Source:
    """The bytes of a picture file, on disk or in memory, and the name used in messages."""

    data: Path | bytes
    name: str
    size: int

    def open(self) -> BinaryIO:
        """A seekable stream over the bytes."""
        return io.BytesIO(self.data) if isinstance(self.data, bytes) else self.data.open("rb")

    def read(self) -> bytes:
        """All the bytes."""
        if isinstance(self.data, bytes):
            return self.data
        with file_errors(self.name):
            return self.data.read_bytes()

    def lead(self, count: int) -> bytes:
        """The first bytes."""
        with file_errors(self.name), self.open() as stream:
            return stream.read(count)

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Raw values at an offset as an array; mapped from the file when it is very large."""
        count = int(np.prod(shape, dtype=np.int64))
        if offset + count * dtype.itemsize > self.size:
            raise truncated(self.name)
        if isinstance(self.data, bytes):
            return np.frombuffer(self.data, dtype, count, offset).reshape(shape)
        with file_errors(self.name):
            if count * dtype.itemsize > MAPPED_BYTES:
                return np.memmap(self.data, dtype, "r", offset, shape)
            values = np.fromfile(self.data, dtype, count, offset=offset)
        if values.size != count:
            raise truncated(self.name)
        return values.reshape(shape)


def open_source(source: Path | bytes | None, name: str | None = None) -> Source:
    """Check that a path is a readable, non-empty regular file and make a Source of it; None is standard input."""
    if source is None:
        source = _standard_input()
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


def _standard_input() -> bytes:
    """All of standard input."""
    if sys.stdin is None:
        raise FileProblem("There is no standard input to read a picture from; give a file.")
    try:
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:
        raise FileProblem(f"Standard input cannot be read ({error}); give a file.") from error


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
