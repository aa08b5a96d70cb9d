"""Commands whose --help speaks in words: kinds of values by name, choices as they are registered."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.learning.methods import METHODS
from dstl_cli.transforms.canonical import CANONICAL

EVERYDAY, FILES, LEARNING, EXPERTS, OUTPUT = "Everyday", "Folders and files", "Learning", "Experts", "What is said"
KINDS = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH"}


def choices(option: str) -> list[str]:
    """The names that an option takes, as they are registered now; none for other options."""
    names = {
        "quality": [entry.name for entry in QUALITIES if not entry.preset],
        "preset": [entry.name for entry in QUALITIES if entry.preset],
        "method": list(METHODS.names),
        "canonical": list(CANONICAL.names),
    }
    return names.get(option, [])


class _HelpInWords:
    """What names the kinds of values of all parameters before the help is printed."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        for param in self.get_params(ctx):  # type: ignore[attr-defined]
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
                param._usage_display_name = lambda name=param.display_name_raw: name
            elif param.is_flag:
                param.metavar = ""
            elif param.metavar is None:
                kind = param.display_type(ctx).strip("<>").split()[0]
                param.metavar = "|".join(choices(param.name)) or KINDS.get(kind, kind)
            if param.name == "help":
                param.rich_help_panel = OUTPUT
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_HelpInWords, TyperCommand):
    """A command with such a help."""


class Group(_HelpInWords, TyperGroup):
    """Commands with such a help."""
