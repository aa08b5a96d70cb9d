"""Every command and option has help text and stands in the README or the docs, which name nothing that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from running import run

from dstl_cli.cli.app import app
from dstl_cli.config import METHODS, PRESETS, QUALITIES

PROJECT = Path(__file__).resolve().parents[2]
TEXTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
GIVEN_BY_TYPER = {"--install-completion", "--show-completion", "--help"}
OF_OTHER_PROGRAMS = {"--upgrade", "--editable", "--durations", "--large"}  # pip, pytest, benchmarks


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands with the words that lead to them; the program itself has none."""
    yield path, command
    for name, part in getattr(command, "commands", {}).items():
        yield from walk(part, (*path, name))


COMMANDS = dict(walk(typer.main.get_command(app)))
PARAMETERS = [
    (path, parameter) for path, command in COMMANDS.items() for parameter in command.params if not parameter.hidden
]


def long_names(parameter: Any) -> list[str]:
    return [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")]


def documented() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in TEXTS if path.exists())


def test_the_expected_commands_are_there() -> None:
    assert {("denoise",), ("reproduce", "table"), ("reproduce", "figure")} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help
    assert command.help.strip()
    for option in ("--help", "-h"):
        shown = run(*path, option)
        assert (shown.code, shown.stderr) == (0, "")
        assert command.help.split()[0] in shown.text
        assert all(name in shown.text for name in getattr(command, "commands", {}))


@pytest.mark.parametrize(("path", "parameter"), PARAMETERS, ids=lambda value: getattr(value, "name", None))
def test_every_argument_and_option_has_help(path: tuple[str, ...], parameter: Any) -> None:
    text = parameter.help
    assert text, f"{' '.join(path)}: {parameter.name}"
    assert text.strip().endswith((".", ")"))
    assert text[0].isupper() or not text[0].isalpha()


def test_every_command_is_documented() -> None:
    text = documented()
    assert [" ".join(path) for path in COMMANDS if path and f"dstl {' '.join(path)}" not in text] == []


def test_every_long_option_is_documented() -> None:
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", documented()))
    known = {name for _, parameter in PARAMETERS for name in long_names(parameter)}
    assert known - GIVEN_BY_TYPER - found == set()


def test_the_docs_name_no_option_that_is_not_there() -> None:
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", documented()))
    known = {name for _, parameter in PARAMETERS for name in long_names(parameter)}
    assert found - known - GIVEN_BY_TYPER - OF_OTHER_PROGRAMS == set()


def test_every_method_preset_and_quality_is_documented_and_offered() -> None:
    text = documented()
    shown = re.sub(r"\s*│\s*\n\s*│\s*", "", run("denoise", "--help").text)
    for name in (*METHODS, *PRESETS, *QUALITIES):
        assert re.search(rf"\b{name}\b", text), name
        assert name in shown.replace(" ", ""), name


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (path.parent / target).exists(), target
