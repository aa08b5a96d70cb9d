"""Options that several commands share, written once."""

import os
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from dstl_cli.config import Settings, named_config
from dstl_cli.errors import UsageProblem

Config = TypeVar("Config")


class Method(StrEnum):
    """The learning methods, as choices."""

    DCT = "dct"
    BRESLER = "bresler"
    CONDITIONED = "conditioned"
    SPARSE_BRESLER = "sparse-bresler"
    DSECT = "dsect"


class Preset(StrEnum):
    """The presets, as choices."""

    PAPER = "paper"


class Quality(StrEnum):
    """The qualities, as choices."""

    FAST = "fast"
    STANDARD = "standard"
    BEST = "best"


LEARNING, OUTPUT = "Learning and coding", "Output"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.", rich_help_panel=OUTPUT)]
Seed = Annotated[int, typer.Option(help="Seed of the random patches (and of added noise).", min=0)]
Jobs = Annotated[
    int | None, typer.Option(help="Threads; the result is the same for any number.", min=1, show_default="all cores")
]
Force = Annotated[
    bool, typer.Option("--force", "-f", help="Overwrite existing outputs (never an input).", rich_help_panel=OUTPUT)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT)]


def parse_sigma(text: str) -> float | None:
    """A noise deviation, or None for `auto`."""
    from dstl_cli.config import check_sigma

    if text.strip().lower() == "auto":
        return None
    try:
        return check_sigma(float(text))
    except ValueError:
        raise UsageProblem(f"--sigma takes a number of at least 0, or auto, not {text!r}.") from None


def parse_numbers(text: str, option: str) -> list[float]:
    """Comma-separated noise deviations."""
    values = [parse_sigma(part) for part in text.split(",") if part.strip()]
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        raise UsageProblem(f"{option} takes numbers separated by commas, not {text!r}.")
    return numbers


def parse_names(text: str, option: str, known: tuple[str, ...] | None = None) -> list[str]:
    """Comma-separated names, all of them known."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    strange = [name for name in names if known is not None and name not in known]
    if strange:
        raise UsageProblem(f"{option} knows {', '.join(known or ())}, not {strange[0]!r}.")
    if not names:
        raise UsageProblem(f"{option} needs at least one name.")
    return names


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse, before any work, files that cannot or must not be written; outputs: by the option that asks for them."""
    from dstl_cli.files.atomic import same_file
    from dstl_cli.files.names import display_name

    written: dict[str, str] = {}
    sources = list(inputs)
    for option, path in outputs.items():
        if path is None:
            continue
        name = display_name(path)
        other = written.setdefault(os.path.normcase(os.path.realpath(path)), option)
        if other != option:
            raise UsageProblem(f"{other} and {option} would both write {name}; give two names.")
        if any(same_file(path, source) for source in sources):
            raise UsageProblem(f"{name} is an input and is never overwritten; give another name to {option}.")
        if path.is_dir() or not path.parent.is_dir():
            raise UsageProblem(f"{option} takes a file name in a folder that exists, not {name}.")
        if path.is_file() and not force:
            raise UsageProblem(f"{name} exists; use --force to overwrite it.")


def build_config(name: str, settings: Mapping[str, object]) -> Settings:
    """The settings of a quality or preset with the options that were given."""
    return checked(partial(named_config, name), settings)


def checked(make: Callable[..., Config], settings: Mapping[str, object]) -> Config:
    """What `make` gives for the options that were given; a value out of range is a wrong usage."""
    given = {key: value for key, value in settings.items() if value is not None}
    try:
        return make(**given)
    except ValueError as error:
        text = str(error)
        name = text.split(" ", 1)[0]
        raise UsageProblem(f"--{name.replace('_', '-')}{text[len(name) :]}" if name in given else text) from None
