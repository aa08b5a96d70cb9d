"""The `dstl` program: its commands, and the one place where errors become exit codes."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from dstl_cli.cli import denoise, evaluate, inspect, reproduce, train
from dstl_cli.cli.console import report_error
from dstl_cli.errors import DstlError, Interrupted
from dstl_cli.version import __version__

app = typer.Typer(
    name="dstl",
    help="Denoise pictures with transforms learnt on them: doubly sparse and explicitly conditioned.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dstl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Denoise pictures with transforms learnt on them: doubly sparse and explicitly conditioned."""


P = ParamSpec("P")


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """The command with Ctrl-C as an error of ours: the command-line library would end the program without a word."""

    @wraps(command)
    def guarded(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            raise Interrupted("Interrupted; nothing was left half-written.") from None

    return guarded


app.command("denoise")(interruptible(denoise.denoise))
app.command("train")(interruptible(train.train))
app.command("evaluate")(interruptible(evaluate.evaluate))
app.command("inspect")(interruptible(inspect.inspect))
paper = typer.Typer(help=reproduce.HELP, no_args_is_help=True)
paper.command("table")(interruptible(reproduce.table))
paper.command("figure")(interruptible(reproduce.figure))
app.add_typer(paper, name="reproduce")


def program() -> None:
    """The installed program: `main` in a process of our own.

    Where scipy is installed, numba imports it to look for BLAS, which our kernels do not use: a third of the start-up.
    When all is done the process ends at once: taking the interpreter and the compiler apart would take a tenth of a
    second, and the operating system does it anyway.
    """
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type]
    try:
        main()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end_at_once(end.code or 0)
    _end_at_once(0)


def _end_at_once(code: int) -> None:
    """End the process without clean-up; what was printed is flushed first."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # nobody listens any more
            code = code or DstlError.exit_code
    os._exit(code)


def main() -> None:
    """Run the program; every failure ends in one sentence and its exit code."""
    debug = "--debug" in sys.argv
    try:
        app()
    except DstlError as error:
        if debug:
            raise
        report_error(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(DstlError.exit_code)
