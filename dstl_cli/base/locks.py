"""A lock between the processes of a machine."""

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def one_process_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process is in a block of the same path; where files cannot be locked, nobody waits."""
    handle = None
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)  # which unlocks it
