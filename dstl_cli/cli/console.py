"""What goes to the terminal: errors, progress, tables."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dstl_cli.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def report_error(sentence: str) -> None:
    """One sentence on stderr."""
    print(f"dstl: {sentence}", file=sys.stderr)


def stdout_console() -> "Console":
    """Where tables go."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def compact_table(*headings: str) -> "Table":
    """A table that fits on 80 columns: numbers to the right, names to the left."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("image", "method") else "right", no_wrap=True)
    return table


@contextmanager
def progress_bar(description: str, *, shown: bool = True) -> Iterator[tuple[Progress | None, Callable[[str], None]]]:
    """A bar with time left on stderr, on a terminal only: yields what to call with the share done, and a renamer."""
    if not (shown and sys.stderr.isatty()):
        yield None, lambda text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=1.0)
        yield (
            lambda share: bar.update(task, completed=share),
            lambda text: bar.update(task, description=text),
        )
