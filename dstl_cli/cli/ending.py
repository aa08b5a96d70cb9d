"""How the program ends, whatever happens: one sentence, an exit code, and nothing half-written left behind."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from dstl_cli.base.atomic import remove_unfinished
from dstl_cli.cli.console import is_terminal, report_error, why_output_is_lost
from dstl_cli.errors import Interrupted

SHOW_CURSOR = "\x1b[?25h"


def run_to_the_end(main: Callable[[], None]) -> int:
    """Run the program: its exit code. Whatever nobody foresaw is one sentence too; --debug shows where it came from."""
    if hasattr(sys.stdout, "reconfigure"):  # names that the terminal has no letters for are told all the same
        sys.stdout.reconfigure(errors="backslashreplace")
    if not sys.warnoptions:  # those of libraries; ours are sentences
        warnings.simplefilter("ignore")
    with interrupts() as came:
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException as error:
            remove_unfinished()
            code = _told(KeyboardInterrupt() if came else error)
        lost = why_output_is_lost()
        if lost is not None:
            code = code or 1
        if lost:
            report_error(f"What was to be said cannot be written to standard output ({lost}).")
    return code if isinstance(code, int) else 1


def _told(error: BaseException) -> int:
    """Say in one sentence what ended the program: its exit code."""
    if isinstance(error, KeyboardInterrupt):
        report_error(str(Interrupted()))
        return Interrupted.exit_code
    if "--debug" in sys.argv:
        sys.excepthook(type(error), error, error.__traceback__)
    elif isinstance(error, MemoryError):
        report_error("There is not enough memory for this; close other programs.")
    elif isinstance(error, OSError):
        name = "A file or stream" if error.filename is None else str(error.filename)
        report_error(f"{name} cannot be read or written ({error.strerror or error}); --debug shows where.")
    else:
        what = " ".join(f"{type(error).__name__} {error}".split())
        report_error(f"Something unforeseen happened ({what}); --debug shows where.")
    return 1


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP do what SIGINT does; the second of them ends the program where it is. Ignored ones stay so.

    Yields the signals that came. Where Python or a library swallows the exception (the callbacks of an import do), the
    program ends there too.
    """
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            _end_here()
        raise KeyboardInterrupt

    def swallowed(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _end_here()
        sys.__unraisablehook__(what)

    plain = (signal.SIG_DFL, signal.default_int_handler)
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) in plain}
    hook, sys.unraisablehook = sys.unraisablehook, swallowed
    try:
        for number in before:
            signal.signal(number, end)
        yield came
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_here() -> NoReturn:
    """End the process without waiting for anything, and leave nothing half-written."""
    remove_unfinished()
    with suppress(Exception):
        if is_terminal(sys.stderr):  # a progress bar hides it
            sys.stderr.write(SHOW_CURSOR)
        sys.stdout.flush()
    report_error(str(Interrupted()))
    os._exit(Interrupted.exit_code)
