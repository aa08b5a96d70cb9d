"""Progress as plain calls: a function that is told the share of the work done. Who shows it is not known here."""

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[float], None]


def part_of(progress: Progress | None, start: float, whole: float, size: float = 1) -> Progress | None:
    """Progress of a part of the work that begins at `start` and has this size, in units of which all has `whole`."""
    if progress is None:
        return None
    return lambda share: progress((start + size * share) / whole)


@dataclass
class FilesDone:
    """How many files of a run have ended, in words beside a bar."""

    total: int
    count: int = 0
    size: int = 0  # in bytes
    failed: int = 0

    def add(self, size: int, *, failed: bool) -> str:
        """One more has ended, of so many bytes; what is told of all of them."""
        self.count, self.size, self.failed = self.count + 1, self.size + size, self.failed + failed
        told = f"{self.count} of {self.total} files, {self.size / 2**20:.0f} MiB"
        return f"{told}, {self.failed} failed" if self.failed else told


when_compiling: list[Callable[[], None]] = []  # what to call, once, when a kernel that is not on disk yet is compiled


def compiling() -> None:
    """A kernel is compiled, deep in the work: whoever wanted to be told of it is told, and need not be known there."""
    while when_compiling:
        when_compiling.pop()()
