"""The examples of the documents run and give what they show; the table of what combines with what is the program's."""

import doctest
import inspect
import re
import shlex
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dstl_cli
from dstl_cli.cli.app import app
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.learning.methods import METHODS
from dstl_cli.picture.formats import FORMATS
from dstl_cli.transforms.canonical import CANONICAL

PROJECT = Path(__file__).resolve().parents[1]
DOCUMENTS = [str(path.relative_to(PROJECT)) for path in (*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md"))]
API = ("denoise", "estimate_noise", "learn_transform", "peak_signal_noise_ratio", "structural_similarity")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# A value that every quality accepts wherever it has the setting.
VALUES: dict[str, Any] = {"canonical": "fourier", "patch_size": 9, "stride": 2, "error_scale": 1.1, "iterations": 3}
VALUES |= {"train_patches": 100, "max_condition": 1.5, "density": 0.4, "rounds": 2}


def python_blocks(document: str) -> list[tuple[int, str]]:
    """The python blocks of a document with their line numbers."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the sample pictures; whatever is registered is forgotten afterwards."""
    shutil.copytree(PROJECT / "sample_images", tmp_path / "sample_images", ignore=shutil.ignore_patterns("*_denoised*"))
    monkeypatch.chdir(tmp_path)
    for registry in (QUALITIES, METHODS, CANONICAL, FORMATS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    return tmp_path


@pytest.mark.parametrize("document", ["README.md", "docs/api.md", "CONTRIBUTING.md"])
def test_the_examples_of_a_document_run(document: str, workplace: Path) -> None:
    """One after the other, in one namespace; lines with >>> show their results."""
    blocks = python_blocks(document)
    assert blocks
    namespace: dict[str, Any] = {"__name__": "example"}
    for line, code in blocks:
        if ">>>" not in code:
            exec(compile("\n" * (line - 1) + code, document, "exec"), namespace)
            continue
        test = doctest.DocTestParser().get_doctest(code, namespace, document, document, line - 1)
        report: list[str] = []
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
        namespace = test.globs
        assert not report, "".join(report)
    if document == "CONTRIBUTING.md":  # what was registered works from the command line
        lines = re.findall(r"^    dstl (.*)$", (PROJECT / document).read_text(encoding="utf-8"), re.MULTILINE)
        assert [line for line in lines if CliRunner().invoke(app, shlex.split(line)).exit_code != 0] == []


def commands(document: str) -> list[str]:
    """The dstl commands of a document's indented lines, without their comments."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    return re.findall(r"^ {4,6}dstl (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("document", ["README.md", "docs/photographs.md", "docs/microscopy.md"])
def test_the_commands_of_a_document_run(document: str, workplace: Path) -> None:
    """Those on the sample pictures, or all where the document makes its pictures by its own python block."""
    lines = commands(document)
    if document == "docs/microscopy.md":
        for _, code in python_blocks(document):
            exec(compile(code, document, "exec"), {"__name__": "example"})
    else:
        lines = [line for line in lines if "sample_images/" in line]
    assert lines
    failed = [line for line in lines if CliRunner().invoke(app, shlex.split(line, comments=True)).exit_code != 0]
    assert failed == []


@pytest.mark.parametrize("module", ["dstl_cli.api", "dstl_cli.measure.metrics", "dstl_cli.transforms.transform"])
def test_the_examples_of_docstrings_run(module: str, workplace: Path) -> None:
    outcome = doctest.testmod(import_module(module), optionflags=FLAGS)
    assert outcome.attempted
    assert not outcome.failed


@pytest.mark.parametrize("name", API)
def test_the_api_is_documented_to_the_last_keyword(name: str) -> None:
    function = getattr(dstl_cli, name)
    text = (PROJECT / "docs/api.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    (section,) = [part for part in sections if part.startswith(name)]
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD
        assert parameter.annotation is not inspect.Parameter.empty
        assert re.search(rf"\b{parameter.name}\b", section), parameter.name
        assert re.search(rf"^    .*\b{parameter.name}\b.* : ", function.__doc__, re.MULTILINE), parameter.name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_functions_that_a_document_names_are_there(document: str) -> None:
    """Written as `module.py: name, name`, with the path of the module in the package or in the project."""
    text = (PROJECT / document).read_text(encoding="utf-8")
    for path, names in re.findall(r"`((?:\w+/)*\w+\.py)(?::\s([\w., \n]+))?`", text):
        module = next((base / path for base in (PROJECT / "dstl_cli", PROJECT) if (base / path).is_file()), None)
        assert module is not None, path
        source = module.read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b.*=", source, re.MULTILINE), f"{path}: {name}"


def accepted_methods(quality: str, setting: str) -> list[str]:
    """The methods with which a quality accepts a setting."""
    entry, found = QUALITIES[quality], []
    for method in entry.methods or METHODS.names:
        try:
            entry.make({"method": method, setting: VALUES[setting]})
            found.append(method)
        except ValueError:
            pass
    return found


def cell(quality: str, setting: str) -> str:
    """The same in words."""
    known = QUALITIES[quality].methods or METHODS.names
    accepted = accepted_methods(quality, setting)
    if not accepted:
        return "-"
    if accepted == list(known):
        return "always"
    if accepted == [name for name in known if METHODS[name].learns]:
        return "all but `dct`"
    return ", ".join(f"`{name}`" for name in accepted)


def settings_table() -> str:
    """What combines with what, as it stands in docs/commands.md."""
    import typer.main

    parameters = typer.main.get_command(app).commands["denoise"].params  # type: ignore[attr-defined]
    every = frozenset().union(*(entry.setting_names for entry in QUALITIES)) - {"method", "seed"}
    settings = [item.name for item in parameters if item.name in every]
    lines = ["| option | " + " | ".join(f"`{name}`" for name in QUALITIES.names) + " |"]
    lines.append("|---" * (1 + len(QUALITIES.names)) + "|")
    accepted = (", ".join(f"`{name}`" for name in entry.methods) if entry.methods else "every" for entry in QUALITIES)
    lines.append(f"| `--method` | {' | '.join(accepted)} |")
    for setting in settings:
        cells = " | ".join(cell(name, setting) for name in QUALITIES.names)
        lines.append(f"| `--{setting.replace('_', '-')}` | {cells} |")
    return "\n".join(lines)


def formats_table() -> str:
    """What the formats that are written can hold, as it stands in docs/commands.md."""
    bits = {"uint8": "8", "uint16": "16", "uint32": "32", "int16": "signed", "float32": "float"}
    names = {"icc": "ICC profile", "exif": "EXIF", "xmp": "XMP", "dpi": "resolution"}
    lines = ["| format | ends in | bits | alpha | pages | keeps |", "|---|---|---|---|---|---|"]
    for entry in FORMATS:
        if entry.written:
            depths = ", ".join(text for key, text in bits.items() if key in entry.depths)
            alpha = "yes" if any("A" in layout for layout in entry.layouts) else "no"
            kept = ", ".join(text for key, text in names.items() if key in entry.metadata) or "-"
            suffixes = ", ".join(f"`{suffix}`" for suffix in entry.suffixes)
            pages = "many" if entry.pages else "one"
            lines.append(f"| {entry.label} | {suffixes} | {depths} | {alpha} | {pages} | {kept} |")
    return "\n".join(lines)


def test_the_table_of_formats_is_true() -> None:
    text = (PROJECT / "docs/commands.md").read_text(encoding="utf-8")
    assert formats_table() in text
    read_only = ", ".join(f"{entry.label} (`{'`, `'.join(entry.suffixes)}`)" for entry in FORMATS if not entry.written)
    assert f"Only read: {read_only}." in " ".join(text.split())


def test_the_table_of_what_combines_with_what_is_true() -> None:
    """Tried out, not read off the entries; put what this test shows into the document where it differs."""
    assert settings_table() in (PROJECT / "docs/commands.md").read_text(encoding="utf-8")


def test_the_citation_is_of_this_version() -> None:
    cited = re.search(r"^version: (.+)$", (PROJECT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited
    assert cited[1] == dstl_cli.__version__
