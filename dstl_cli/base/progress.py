"""Progress as plain calls: a function that is told the share of the work done. Who shows it is not known here."""

from collections.abc import Callable

Progress = Callable[[float], None]


def part_of(progress: Progress | None, start: float, whole: float, size: float = 1) -> Progress | None:
    """Progress of a part of the work that begins at `start` and has this size, in units of which all has `whole`."""
    if progress is None:
        return None
    return lambda share: progress((start + size * share) / whole)


class Announcement:
    """Something deep in the work that is worth a word: whoever listens is told once, and need not be known there."""

    _tell: Callable[[], None] | None = None

    def listen(self, tell: Callable[[], None] | None) -> None:
        """Call `tell` the next time it happens, and only then."""
        self._tell = tell

    def __call__(self) -> None:
        """It happens now."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()


compiling = Announcement()  # a kernel that is not on disk yet is compiled
