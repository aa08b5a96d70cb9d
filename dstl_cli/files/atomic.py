"""Files that appear complete or not at all, even when the process is killed."""

import contextlib
import errno
import io
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dstl_cli.errors import FileProblem
from dstl_cli.files.names import display_name

if sys.platform != "win32":  # there an open file cannot be deleted, which protects it as well as a lock
    import fcntl

TEMPORARY_SUFFIX = ".dstl-tmp"
_TEMPORARY_NAME = re.compile(r"\..*\.(\d+)-[0-9a-f]{16}" + re.escape(TEMPORARY_SUFFIX), re.DOTALL)
_LONGEST_NAME = 255
_NO_LINKS = {
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EXDEV,
    errno.EINVAL,
}
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def atomic_output(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends without an error.

    On any exception, KeyboardInterrupt included, the temporary file is removed and `path` stays as it
    was. A symbolic link at `path` is replaced, never written through. With overwrite=False an existing
    `path` is an error, also when it appears while the block runs. Devices and pipes such as /dev/null
    get the bytes directly, after the block.
    """
    path = Path(path)
    with _place_errors(path):
        kind = _existing_kind(path)
        if kind == "folder":
            raise FileProblem(f"{display_name(path)} is a folder; give a file name to write to.")
        if kind != "device" and not overwrite and os.path.lexists(path):
            raise _already_exists(path)
    if kind == "device":
        buffer = io.BytesIO()
        yield buffer
        with _place_errors(path), path.open("wb") as device:
            device.write(buffer.getbuffer())
        return
    with _place_errors(path):
        temporary, stream = _create_temporary(path)
    try:
        with stream:
            with _disk_errors(path):
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            if sys.platform != "win32":  # still locked, so that nobody takes it for a leftover
                _put_in_place(temporary, path, overwrite)
        if sys.platform == "win32":
            _put_in_place(temporary, path, overwrite)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def remove_stale_temporaries(folder: Path) -> int:
    """Delete the temporary files that killed dstl processes left in a folder; return how many.

    Files that a living process is still writing are locked by it and stay.
    """
    removed = 0
    try:
        names = os.listdir(folder)
    except OSError:
        return 0
    for name in names:
        match = _TEMPORARY_NAME.fullmatch(name)
        if match and _remove_if_stale(Path(folder) / name, int(match.group(1))):
            removed += 1
    return removed


def same_file(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, through symbolic and hard links; neither has to exist."""
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return os.path.normcase(os.path.realpath(first)) == os.path.normcase(os.path.realpath(second))


def _existing_kind(path: Path) -> str:
    """What stands at a path: "nothing", "file", "folder" or "device" (anything else)."""
    try:
        mode = path.stat().st_mode
    except OSError:  # missing, a broken link or a link to itself: all are replaced
        return "nothing"
    if stat.S_ISDIR(mode):
        return "folder"
    return "file" if stat.S_ISREG(mode) else "device"


def _create_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """Create and lock a temporary file beside a path, with the permissions of a normal new file."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        tail = f".{os.getpid()}-{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
        stem = os.fsencode(path.name)[: _LONGEST_NAME - len(tail) - 1]
        temporary = path.with_name("." + os.fsdecode(stem).encode("utf-8", "ignore").decode() + tail)
        handle = os.open(temporary, flags, 0o666)
        if _lock(handle) is not False and os.fstat(handle).st_nlink > 0:
            return temporary, os.fdopen(handle, "w+b")
        os.close(handle)  # someone tidying the folder was quicker than our lock


def _lock(handle: int) -> bool | None:
    """Lock an open file: True when we hold it, False when another process does, None when unknown."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def _remove_if_stale(temporary: Path, process: int) -> bool:
    """Delete one leftover unless its writer lives."""
    try:
        if sys.platform == "win32":
            temporary.unlink()
            return True
        handle = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            locked = _lock(handle)
            if locked is False or (locked is None and _is_alive(process)):
                return False
            temporary.unlink()
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def _is_alive(process: int) -> bool:
    """Whether a process of this number runs; asked only on disks where files cannot be locked."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _put_in_place(temporary: Path, path: Path, overwrite: bool) -> None:
    """Give a finished temporary file its final name."""
    with _place_errors(path):
        if not overwrite and not _link(temporary, path):
            _reserve(path)
            overwrite = True
        if overwrite:
            os.replace(temporary, path)


def _link(temporary: Path, path: Path) -> bool:
    """Give the file a second, new name in one step; False where the disk knows no hard links."""
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise _already_exists(path) from error
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def _reserve(path: Path) -> None:
    """Create an empty file that must not exist yet."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileExistsError as error:
        raise _already_exists(path) from error


def _already_exists(path: Path) -> FileProblem:
    return FileProblem(f"{display_name(path)} already exists; use --force to overwrite it.")


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or failing disk into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        reason = f"cannot be written ({error.strerror}); free some space or choose another disk"
        raise FileProblem(f"{display_name(path)} {reason}.") from error


@contextmanager
def _place_errors(path: Path) -> Iterator[None]:
    """Turn an impossible place for a file into one sentence."""
    name, folder = display_name(path), display_name(path.parent)
    try:
        with _disk_errors(path):
            yield
    except FileNotFoundError as error:
        reason = f"cannot be written because the folder {folder} does not exist; make it first"
        raise FileProblem(f"{name} {reason}.") from error
    except NotADirectoryError as error:
        reason = f"cannot be written because {folder} is not a folder; choose another output"
        raise FileProblem(f"{name} {reason}.") from error
    except PermissionError as error:
        reason = f"may not be written; change the permissions of {folder} or choose another output"
        raise FileProblem(f"{name} {reason}.") from error
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error}); choose another output"
        raise FileProblem(f"{name} {reason}.") from error
