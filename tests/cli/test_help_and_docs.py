"""Every command and option has help text and stands in the README or the docs, which name nothing that is not there."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from running import run

from dstl_cli.cli.app import app
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.learning.methods import METHODS
from dstl_cli.transforms.canonical import CANONICAL

PROJECT = Path(__file__).resolve().parents[2]
TEXTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
ALL_TEXTS = sorted({*TEXTS, *PROJECT.glob("*.md"), *PROJECT.glob("*/*.md")})
GIVEN_BY_TYPER = {"--install-completion", "--show-completion", "--help"}
OF_OTHER_PROGRAMS = {"--upgrade", "--editable", "--durations"}  # pip, pytest
OF_OTHER_PROGRAMS |= {"--large", "--size", "--megapixels", "--only", "--runs"}  # benchmarks
OF_OTHER_PROGRAMS |= {"--how", "--minutes", "--moments", "--mutants", "--place", "--plain"}  # tests.torture, tests.fuzz
OF_OTHER_PROGRAMS |= {"--array", "--cpus-per-task", "--mem", "--time", "--wrap"}  # sbatch
OF_OTHER_PROGRAMS |= {"--scheduler-file", "--nworkers", "--nthreads", "--memory-limit"}  # dask
OF_OTHER_PROGRAMS |= {"--repo", "--generate-name", "--name", "--rm", "--image", "--files"}  # helm, kubectl, scale.py


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
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", documented()))
    known = {name for _, parameter in PARAMETERS for name in long_names(parameter)}
    assert known - GIVEN_BY_TYPER - found == set()


def test_the_docs_name_no_option_that_is_not_there() -> None:
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", documented()))
    known = {name for _, parameter in PARAMETERS for name in long_names(parameter)}
    assert found - known - GIVEN_BY_TYPER - OF_OTHER_PROGRAMS == set()


def test_every_registered_name_is_documented_and_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no name is cut in two
    text, shown = documented(), run("denoise", "--help").text
    for name in (*METHODS.names, *QUALITIES.names, *CANONICAL.names):
        assert re.search(rf"\b{name}\b", text), name
        assert name in shown, name


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_the_help_speaks_in_words(path: tuple[str, ...]) -> None:
    shown = run(*path, "--help").text
    assert not re.search(r"<\w+|list\[|\{\w|\bbool\b|\bTEXT\b", shown)
    panels = re.findall(r"╭─ (.+?) ─", shown)
    if "Everyday" in panels:
        assert next(name for name in panels if name != "Arguments") == "Everyday"


def command_lines(text: str) -> Iterator[list[str]]:
    """The words after `dstl` in the indented lines of a document, without comments, pipes and redirections."""
    for line in re.findall(r"^    (.*\bdstl .*)$", text, re.MULTILINE):
        for piece in re.split(r"&&|[|;]", line.split("  #")[0]):
            words = shlex.split(re.sub(r"[<>] *\S+", "", piece))
            if words and Path(words[0]).name == "dstl":
                yield words[1:]


@pytest.mark.parametrize("path", ALL_TEXTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_command_line_in_the_docs_is_understood(path: Path) -> None:
    for words in command_lines(path.read_text(encoding="utf-8")):
        names = max((name for name in COMMANDS if tuple(words[: len(name)]) == name), key=len)
        with COMMANDS[names].make_context("dstl", words[len(names) :]) as context:
            assert names, words
            assert context.params


@pytest.mark.parametrize("path", ALL_TEXTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (path.parent / target).exists(), target
