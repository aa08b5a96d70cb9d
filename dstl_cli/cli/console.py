"""What goes to the terminal: errors, progress, tables."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from dstl_cli.base.names import display_name
from dstl_cli.base.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("image", "method", "channel")  # columns of words


_lost: list[OSError] = []  # why stdout does not take what is said


def report_error(sentence: str) -> None:
    """One sentence on stderr; dropped where that is closed, full or hung up."""
    tell(f"dstl: {sentence}", to_stderr=True)


def tell(line: str, *, to_stderr: bool = False) -> None:
    """A line on stdout or stderr, without control characters, which file names may have."""
    with _dropped_on_errors() if to_stderr else _said():
        stream = sys.stderr if to_stderr else sys.stdout
        if stream is not None:  # print would take stdout
            print(display_name(line), file=stream, flush=True)


@contextmanager
def _dropped_on_errors() -> Iterator[None]:
    """Nobody can be told that stderr is lost."""
    with suppress(OSError, ValueError):
        yield


@contextmanager
def _said() -> Iterator[None]:
    """What stdout does not take is dropped and remembered, and the work goes on; where nobody listens, it ends."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _lost.append(error)


def why_output_is_lost() -> str | None:
    """Why something that was said did not get to stdout: empty where nobody listens any more; None where all did."""
    try:
        with _said():
            if sys.stdout is not None:
                sys.stdout.flush()
    except (BrokenPipeError, ValueError):  # closed by whoever reads it, or in the program
        return ""
    return str(_lost[0].strerror or _lost[0]) if _lost else None


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody looks at a standard stream, which may be closed."""
    return stream is not None and stream.isatty()


def say(sentence: str) -> None:
    """A sentence about a table on stdout, broken between words where the terminal ends."""
    with _said():
        _stdout().print(display_name(sentence), markup=False)


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
        style = "bold" if number >= len(cells) - totals else None
        table.add_row(*(Text(display_name(cell)) for cell in row), style=style)
    with _said():
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

    document = to_json(command, **parts)
    with _said():
        print(document, flush=True)


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
