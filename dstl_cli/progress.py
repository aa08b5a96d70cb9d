"""Progress as plain calls: a function that is told the share of the work done. Who shows it is not known here."""

from collections.abc import Callable

Progress = Callable[[float], None]


def part_of(progress: Progress | None, index: int, count: int) -> Progress | None:
    """Progress of the index-th of `count` equal parts of the work."""
    if progress is None:
        return None
    return lambda share: progress((index + share) / count)
