"""The `dstl` program: its commands, and the one place where errors become exit codes."""

import sys
from typing import Annotated

import typer

from dstl_cli.cli import denoise, evaluate, inspect, reproduce
from dstl_cli.cli.console import report_error
from dstl_cli.errors import DstlError, UsageProblem
from dstl_cli.version import __version__

INTERRUPTED, USAGE, FAILED = 130, 2, 1

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


app.command("denoise")(denoise.denoise)
app.command("evaluate")(evaluate.evaluate)
app.command("inspect")(inspect.inspect)
app.add_typer(reproduce.app, name="reproduce")


def main() -> None:
    """Run the program; every failure ends in one sentence and its exit code."""
    debug = "--debug" in sys.argv
    try:
        app()
    except DstlError as error:
        if debug:
            raise
        report_error(str(error))
        sys.exit(USAGE if isinstance(error, UsageProblem) else FAILED)
    except KeyboardInterrupt:
        report_error("Interrupted; nothing was left half-written.")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILED)
