"""Calls of the system that fail when they are told to: a layer between the program and Python's own functions.

It must be laid (`lay`) before the program is imported, since classes are derived from what it replaces.
"""

import builtins
import errno
import fcntl
import io
import mmap
import os
import signal
import time
from collections.abc import Callable
from typing import Any

ANSWERS = {
    "open": (errno.EMFILE, errno.EACCES, errno.EIO, errno.ENOSPC),
    "read": (errno.EIO,),
    "write": (errno.ENOSPC, errno.EIO, errno.EFBIG),
    "fsync": (errno.EIO, errno.EINVAL, errno.ENOSPC),
    "link": (errno.EPERM, errno.EIO, errno.EMLINK, errno.ENOSPC),
    "rename": (errno.EIO, errno.EACCES, errno.ENOSPC),
    "unlink": (errno.EPERM, errno.EIO),
    "mmap": (errno.ENOMEM, errno.ENODEV),
    "lock": (errno.ENOLCK, errno.EIO),
    "mkdir": (errno.ENOSPC, errno.EACCES),
    "listdir": (errno.EACCES, errno.EIO),
    "allocate": (),  # MemoryError
}


class Faults:
    """Counts the calls; the one of number `at`, or all from there on, fail, or end the process."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.watching = False
        self.at = 0  # none
        self.how = "once"

    def begin(self, at: int, how: str) -> None:
        """Count from here; how: once, lasting, kill or end (SIGTERM)."""
        self.at, self.how, self.watching = at, how, True

    def __call__(self, kind: str) -> None:
        if not self.watching:
            return
        self.kinds.append(kind)
        number = len(self.kinds)
        if number == self.at and self.how in ("kill", "end"):
            os.kill(os.getpid(), signal.SIGKILL if self.how == "kill" else signal.SIGTERM)
        elif number == self.at or (number > self.at > 0 and self.how == "lasting"):
            answers = ANSWERS[kind]
            if not answers:
                raise MemoryError
            answer = answers[self.at % len(answers)]
            raise OSError(answer, os.strerror(answer))


FAULTS = Faults()


class File(io.FileIO):
    """An open file whose reads and writes may fail."""

    def read(self, size: int | None = -1, /) -> bytes:
        FAULTS("read")
        return super().read(-1 if size is None else size)

    def readall(self) -> bytes:
        FAULTS("read")
        return super().readall()

    def readinto(self, buffer: Any, /) -> int:
        FAULTS("read")
        return super().readinto(buffer)

    def write(self, data: Any, /) -> int:
        FAULTS("write")
        return super().write(data)


def lay() -> None:
    """Replace Python's functions by those that may fail, and stop the clock that is told in reports."""
    plain_open = io.open

    def opened(file: Any, mode: str = "r", buffering: int = -1, *others: Any, **options: Any) -> Any:
        FAULTS("open")
        if "b" not in mode or isinstance(file, int):
            return plain_open(file, mode, buffering, *others, **options)
        raw = File(file, mode.replace("b", ""), opener=options.get("opener"))
        if buffering == 0:
            return raw
        return (io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter)(raw)

    io.open = builtins.open = opened
    io.FileIO = File  # type: ignore[misc]
    named = {"open": "open", "fsync": "fsync", "link": "link", "rename": "rename", "replace": "rename"}
    named |= {"unlink": "unlink", "remove": "unlink", "mkdir": "mkdir", "listdir": "listdir"}
    for name, kind in named.items():
        _interpose(os, name, kind)
    _interpose(fcntl, "flock", "lock")
    time.perf_counter = lambda: 0.0
    import numpy as np

    for name in ("empty", "zeros"):
        _interpose(np, name, "allocate")
    mmap.mmap = type("Map", (mmap.mmap,), {"__new__": _mapped})  # type: ignore[assignment, misc]


def _mapped(kind: type[mmap.mmap], *arguments: Any, **options: Any) -> Any:
    """A mapped file, or memory, that may not be had."""
    FAULTS("mmap")
    return kind.__mro__[1].__new__(kind, *arguments, **options)


def _interpose(owner: Any, name: str, kind: str) -> None:
    plain: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        FAULTS(kind)
        return plain(*arguments, **options)

    setattr(owner, name, call)
