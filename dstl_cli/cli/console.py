"""What goes to the terminal: errors, progress, tables."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from dstl_cli.base.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("image", "method", "channel")  # columns of words


def report_error(sentence: str) -> None:
    """One sentence on stderr; dropped where that is closed, full or hung up."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None:  # print would take stdout
            print(f"dstl: {sentence}", file=sys.stderr)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at a standard stream, which may be closed."""
    return stream is not None and stream.isatty()


def say(sentence: str) -> None:
    """A sentence about a table on stdout, broken between words where the terminal ends."""
    _stdout().print(sentence, markup=False)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, totals: int = 0) -> None:
    """A table on stdout that fits on 80 columns: numbers to the right, names to the left, the last rows bold."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in NAMES else "right", no_wrap=True)
    cells = list(rows)
    for number, row in enumerate(cells):
        table.add_row(*map(Text, row), style="bold" if number >= len(cells) - totals else None)
    _stdout().print(table)


def _stdout() -> "Console":
    from rich.console import Console

    return Console(highlight=False, width=None if is_terminal(sys.stdout) else 120)


def number_or_dash(value: float | None, form: str, spread: float | None = None) -> str:
    """A number, and its deviation if known, as they stand in a table."""
    return ("-" if value is None else format(value, form)) + ("" if spread is None else f" +-{spread:{form}}")


def print_json(command: str, **parts: Any) -> None:
    """The one JSON document of a command, on stdout."""
    from dstl_cli.report.tables import to_json

    print(to_json(command, **parts), flush=True)


@contextmanager
def progress_bar(description: str, *, shown: bool = True) -> Iterator[tuple[Progress, Callable[[str], None]]]:
    """A bar with time left on stderr, on a terminal only: yields what to call with the share done, and a renamer."""
    if not (shown and is_terminal(sys.stderr)):
        yield (lambda share: None), (lambda text: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=1.0)
        yield (lambda share: bar.update(task, completed=share)), (lambda text: bar.update(task, description=text))
