"""Files, and folders that are one picture, that appear complete or not at all, even when the process is killed."""

import contextlib
import errno
import io
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem

if sys.platform != "win32":  # there an open file cannot be deleted, which protects it as well as a lock
    import fcntl

TEMPORARY_SUFFIX = ".dstl-tmp"
_TEMPORARY_NAME = re.compile(r"\..*\.(\d+)-[0-9a-f]{16}" + re.escape(TEMPORARY_SUFFIX), re.DOTALL)
_OF_ALL_RUNS = f".0-{0:016x}{TEMPORARY_SUFFIX}"  # where the name of a claim ends: no process has this number
_UNSEEN, _TAKEN = -1, -2  # in place of the number of a claim's open file
_WAITING = 0.2  # seconds between two looks at a claim of another run
_LONGEST_NAME = 255
_KEEP_BOTH, _EXCHANGE = 1, 2  # flags of Linux' renameat2
_unfinished: set[Path] = set()  # temporary files of this process, from before they are made until they are gone
# What disks without hard links or exclusive renames answer.
_UNSUPPORTED = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def atomic_output(path: Path, *, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends without an error.

    On any exception, KeyboardInterrupt included, the temporary file is removed and `path` stays as it
    was. A symbolic link at `path` is replaced, never written through. With overwrite=False an existing
    `path` is an error, also when it appears while the block runs. Devices and pipes such as /dev/null
    get the bytes directly, after the block. Whatever fails in writing is a FileProblem; errors of the
    block itself stay themselves.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise FileProblem(f"{display_name(path)} is a folder; give a file name to write to.")
    if os.path.exists(path) and not os.path.isfile(path):
        buffer = io.BytesIO()
        yield buffer
        with writing_errors(path), path.open("wb") as device:
            device.write(buffer.getbuffer())
        return
    with writing_errors(path):
        if not overwrite and os.path.lexists(path):
            raise FileExistsError
    temporary, stream = _create_temporary(path)
    try:
        try:
            yield stream
            with writing_errors(path):
                stream.flush()
                os.fsync(stream.fileno())
            if sys.platform != "win32":  # still locked, so that nobody takes it for a leftover
                _put_in_place(temporary, path, overwrite)
        finally:
            with contextlib.suppress(OSError, FileProblem):  # a full disk fails again on what is still in the buffer
                stream.close()
        if sys.platform == "win32":
            _put_in_place(temporary, path, overwrite)
    finally:
        _remove(temporary)


@contextmanager
def atomic_folder(path: Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Make a temporary folder beside `path` that takes its place when the block ends without an error.

    What is promised is what `atomic_output` promises. An old folder is exchanged for the new one in one step where the
    system can do that; elsewhere, for a moment, neither is there.
    """
    path = Path(path)
    with writing_errors(path):
        if not overwrite and os.path.lexists(path):
            raise FileExistsError
    temporary, handle = _create_temporary_folder(path)
    try:
        try:
            yield temporary
            with writing_errors(path):
                _sync_tree(temporary)
                if overwrite and os.path.lexists(path):
                    _replace_folder(temporary, path)
                else:
                    _put_in_place(temporary, path, overwrite=False)
        finally:
            if handle is not None:
                os.close(handle)
    finally:
        _remove(temporary)


def nameless_file(folder: Path) -> BinaryIO:
    """An open file that goes with its last use, however the program ends.

    Disks that have no files without a name give one for a moment: that of a temporary file, which is cleared away as
    those of outputs are.
    """
    if sys.platform == "win32":
        import tempfile

        return cast(BinaryIO, tempfile.TemporaryFile(prefix=".dstl-", dir=folder))
    with contextlib.suppress(OSError, AttributeError):
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), "w+b")
    temporary, handle = _opened_temporary(folder / "plane", 0o600)
    _remove(temporary)
    return os.fdopen(handle, "w+b")


@contextmanager
def claim(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Keep other runs from working on the same output: whether none does, which stays so while the block runs.

    A claim is a temporary file that has one name for all runs and is locked by the one that works. A process that ends,
    however it does, holds no lock: what it leaves is taken over, or removed as any leftover. Where files cannot be
    locked, or none can be made, nobody else is seen. wait: until the other run is done with it.
    """
    mark = _temporary_beside(path, _OF_ALL_RUNS)
    handle = _UNSEEN
    try:
        handle = _claimed(mark)
        while handle == _TAKEN and wait:
            time.sleep(_WAITING)
            handle = _claimed(mark)
        yield handle != _TAKEN
    except BaseException:
        if handle < 0:  # an interrupt may have come when the file was just made: nobody has it yet, or another run
            _remove_if_stale(mark, 0)
        raise
    finally:
        if handle >= 0:
            _remove(mark)
            os.close(handle)


def _claimed(mark: Path) -> int:
    """The open file of a claim that is ours now, or _TAKEN, or _UNSEEN."""
    while sys.platform != "win32":
        try:
            handle = os.open(mark, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError:
            return _UNSEEN
        try:
            locked, linked = _lock(handle), os.fstat(handle).st_nlink > 0
            if locked and linked:
                _unfinished.add(mark)
                return handle
        except BaseException as error:  # an interrupt too: nobody may have it yet, or another run
            os.close(handle)
            _remove_if_stale(mark, 0)
            if isinstance(error, OSError):
                return _UNSEEN
            raise
        if locked is None:
            _remove(mark)
        os.close(handle)
        if not locked:
            return _UNSEEN if locked is None else _TAKEN
    return _UNSEEN


def remove_unfinished() -> None:
    """Remove what an interrupt left that came between two steps of `atomic_output`."""
    for temporary in tuple(_unfinished):
        _remove(temporary)


def _remove(temporary: Path) -> None:
    with contextlib.suppress(OSError):  # already renamed, or a leftover that the next run removes
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary)
        else:
            temporary.unlink()
    _unfinished.discard(temporary)


def remove_stale_temporaries(folder: Path) -> int:
    """Delete the temporary files and folders that killed dstl processes left in a folder; return how many.

    Files that a living process is still writing are locked by it and stay.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return 0
    found = filter(None, map(_TEMPORARY_NAME.fullmatch, names))
    return sum(_remove_if_stale(Path(folder) / name.string, int(name[1])) for name in found)


def identities(path: Path) -> set[object]:
    """What tells a file from others: its real name, and where it exists its number, which hard links share."""
    found: set[object] = {os.path.normcase(os.path.realpath(path))}
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)
        found.add((status.st_dev, status.st_ino))
    return found


class _OutputFile(io.FileIO):
    """An open file whose failing writes are told in one sentence, whoever calls them."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(handle, "w+")
        self._path = path

    def write(self, data: Any, /) -> int:
        with writing_errors(self._path):
            return super().write(data)


def _create_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """Create and lock a temporary file beside a path, with the permissions of a normal new file."""
    with writing_errors(path):
        temporary, handle = _opened_temporary(path, 0o666)
        return temporary, io.BufferedRandom(_OutputFile(handle, path))


def _opened_temporary(path: Path, permissions: int) -> tuple[Path, int]:
    """A new temporary file beside a path, open and locked."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        temporary = _temporary_name(path)
        handle = os.open(temporary, flags, permissions)
        try:
            if _lock(handle) is not False and os.fstat(handle).st_nlink > 0:
                return temporary, handle
        except OSError:
            _remove(temporary)
            os.close(handle)
            raise
        os.close(handle)  # someone tidying the folder was quicker than our lock


def _create_temporary_folder(path: Path) -> tuple[Path, int | None]:
    """Create a temporary folder beside a path, and lock it: what holds the lock, where folders can be locked."""
    while True:
        temporary = _temporary_name(path)
        with writing_errors(path):
            temporary.mkdir()
            if sys.platform == "win32":
                return temporary, None
            handle = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _lock(handle) is not False and os.fstat(handle).st_nlink > 0:
                return temporary, handle
            os.close(handle)


def _temporary_name(path: Path) -> Path:
    """A new name beside a path, known as unfinished from now on."""
    temporary = _temporary_beside(path, f".{os.getpid()}-{secrets.token_hex(8)}{TEMPORARY_SUFFIX}")
    _unfinished.add(temporary)
    return temporary


def _temporary_beside(path: Path, tail: str) -> Path:
    """The name of a temporary file beside a path, no longer than names may be."""
    stem = os.fsencode(path.name)[: _LONGEST_NAME - len(tail) - 1]
    return path.with_name("." + os.fsdecode(stem).encode("utf-8", "ignore").decode() + tail)


def _sync_tree(folder: Path) -> None:
    """Have everything below a folder on the disk."""
    for here, _, names in os.walk(folder):
        for name in names:
            with open(Path(here) / name, "rb+") as stream:
                os.fsync(stream.fileno())


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
    with contextlib.suppress(OSError):
        if sys.platform == "win32":  # whose folders cannot be locked: they stay
            temporary.unlink()
            return True
        kind = os.O_RDONLY | os.O_DIRECTORY if temporary.is_dir() else os.O_RDWR
        leftover = os.open(temporary, kind | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            locked = _lock(leftover)
            if locked or (locked is None and not _is_alive(process)):
                _remove(temporary)
                return not os.path.lexists(temporary)
        finally:
            os.close(leftover)
    return False


def _is_alive(process: int) -> bool:
    """Whether a process of this number runs; asked only on disks where files cannot be locked."""
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _put_in_place(temporary: Path, path: Path, overwrite: bool) -> None:
    """Give a finished temporary file its final name; without `overwrite` only if nothing has it.

    The name is never reserved with an empty file, which a killed process would leave behind. On the few disks that
    have neither hard links nor exclusive renames it is looked at and then taken: a file that another process makes in
    between is replaced.
    """
    with writing_errors(path):
        for give_name in () if overwrite else (os.link, _rename_exclusively):
            try:
                give_name(temporary, path)
                return
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
        if not overwrite and os.path.lexists(path):
            raise FileExistsError
        os.replace(temporary, path)


def _rename_exclusively(temporary: Path, path: Path) -> None:
    """Rename in one step that fails if the new name exists, and where system or disk cannot do that."""
    if sys.platform == "win32":  # whose rename is one
        os.rename(temporary, path)
        return
    _rename_as(_KEEP_BOTH, temporary, path)


def _rename_as(flag: int, temporary: Path, path: Path) -> None:
    """Linux' renameat2 with a flag; an error where there is none."""
    if sys.platform == "win32":  # where ctypes has no library of the program itself
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here = -100
    ctypes.set_errno(errno.ENOSYS)
    if renameat2 is None or renameat2(here, os.fsencode(temporary), here, os.fsencode(path), flag) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _replace_folder(temporary: Path, path: Path) -> None:
    """Put a folder in the place of what is there, which has the temporary name then, or is gone."""
    try:
        _rename_as(_EXCHANGE, temporary, path)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        aside = _temporary_name(path)
        os.rename(path, aside)
        try:
            os.rename(temporary, path)
        except OSError:
            os.rename(aside, path)
            raise
        _remove(aside)


@contextmanager
def writing_errors(path: Path) -> Iterator[None]:
    """Turn whatever the system answers to an attempt to write a file into one sentence."""
    name, folder = display_name(path), display_name(path.parent)
    try:
        yield
    except OSError as error:
        remedy = "free some space or choose another disk" if error.errno in _NO_ROOM else "choose another output"
        known: dict[type[OSError], str] = {
            FileExistsError: "already exists; use --force to overwrite it",
            FileNotFoundError: f"cannot be written because the folder {folder} does not exist; make it first",
            NotADirectoryError: f"cannot be written because {folder} is not a folder; choose another output",
            PermissionError: f"may not be written; change the permissions of {folder} or choose another output",
        }
        what = known.get(type(error), f"cannot be written ({error.strerror or error}); {remedy}")
        raise FileProblem(f"{name} {what}.") from error
