"""The `dstl` program: its commands, and the one place where errors become sentences and exit codes."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, cast

import typer

from dstl_cli.base.names import display_name
from dstl_cli.base.progress import when_compiling
from dstl_cli.cli import denoise, evaluate, inspect, profile, reproduce, train
from dstl_cli.cli.console import report_error, tell
from dstl_cli.cli.options import Command, Group
from dstl_cli.errors import DstlError, Interrupted, UsageProblem
from dstl_cli.picture.decoding.asking import reading
from dstl_cli.version import __version__

WrongCall = cast(type[Exception], typer.BadParameter.__base__)  # the library's class of all wrong calls
COMPILING = "The kernels are being compiled for this computer; this takes some seconds and is done once."
OTHER_NAMES = {"--threads": "--jobs", "--overwrite": "--force", "--model": "--transform"}

app = typer.Typer(
    name="dstl",
    cls=Group,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        tell(f"dstl {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Denoise pictures with transforms learnt on them: doubly sparse and explicitly conditioned."""


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command with what all commands share: how much it says, who decodes files, and Ctrl-C as an error of ours."""

    @wraps(command)
    def run(**options: Any) -> None:
        if options.get("quiet") and options.get("verbose"):
            raise UsageProblem("--quiet and --verbose contradict each other; give one of them.")
        if not (options.get("quiet") or options.get("json")):
            when_compiling.append(lambda: report_error(COMPILING))
        try:
            with reading(trusted=options.get("trust_files", False)):
                command(**options)
        except KeyboardInterrupt:
            from dstl_cli.base.atomic import remove_unfinished

            remove_unfinished()
            raise Interrupted from None
        finally:
            when_compiling.clear()

    return run


for command in (denoise.denoise, train.train, evaluate.evaluate, inspect.inspect, profile.profile):
    app.command(command.__name__, cls=Command)(guarded(command))
paper = typer.Typer(cls=Group, help=reproduce.HELP, no_args_is_help=True)
paper.command("table", cls=Command)(guarded(reproduce.table))
paper.command("figure", cls=Command)(guarded(reproduce.figure))
app.add_typer(paper, name="reproduce")


def main() -> None:
    """Run the program; every failure ends in one sentence and its exit code."""
    debug = "--debug" in sys.argv
    try:
        code = app(prog_name="dstl", standalone_mode=False)
        if code == Interrupted.exit_code:  # what the library makes of Ctrl-C while it reads the options
            raise Interrupted
    except WrongCall as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # which has shown the help already
            report_error(_what_is_wrong(error))
        sys.exit(UsageProblem.exit_code)
    except DstlError as error:
        if debug:
            raise
        report_error(str(error))
        sys.exit(error.exit_code)
    sys.exit(code)


def _what_is_wrong(error: Any) -> str:
    """What the command-line library found wrong with a call, as one sentence of ours that names what was meant."""
    path = "dstl" if error.ctx is None else error.ctx.command_path
    if type(error).__name__ == "NoSuchOption":  # the library's own suggestions are far-fetched
        from difflib import get_close_matches

        name, known = error.option_name, [name for option in error.ctx.command.params for name in option.opts]
        other = OTHER_NAMES.get(name, "")
        near = " or ".join([other] if other in known else get_close_matches(name, known, cutoff=0.7))
        text = f"There is no option {display_name(name)}" + (f" (did you mean {near}?)" if near else "")
    else:
        text = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
        what, mark, guess = text.partition(". Did you mean ")
        text = f"{what} (did you mean {guess})" if mark else text
    return f"{text}; see {path} --help."
