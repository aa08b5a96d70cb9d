"""Imports go one way, and numerics never print, open a file or drag in what they do not need."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dstl_cli

ROOT = Path(dstl_cli.__file__).parent

# From the bottom up: a package imports from the rows above its own and from itself, and from nothing else.
# `picture` stands beside the numerics: it knows files, not what is done with their pixels.
LAYERS = [
    {"version", "errors"},
    {"base"},
    {"pixels", "picture"},
    {"transforms"},
    {"patches"},
    {"noise"},
    {"learning"},
    {"denoising"},
    {"measure"},
    {"report"},
    {"run", "api"},
    {"cli", "__init__"},
    {"__main__"},
]
PICTURE_KNOWS = {"version", "errors", "base", "picture"}
NUMERIC = ("pixels", "patches", "noise", "transforms", "learning", "denoising", "measure")
STORES = {"transforms.files", "transforms.ready"}  # the modules among them whose business is a file

HEAVY = {"numba", "scipy", "skimage", "matplotlib", "jinja2"}


def module_name(path: Path) -> str:
    """Dotted name within the package: learning.dsect, files, __init__."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
NUMERICS = [name for name in MODULES if name.split(".")[0] in NUMERIC and name not in STORES]
HEIGHT = {part: number for number, layer in enumerate(LAYERS) for part in layer}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that can be executed: all but the blocks for type checkers."""
    for child in ast.iter_child_nodes(node):
        if not is_type_checking(child):
            yield child
            yield from executed(child)


def imported(node: ast.AST) -> Iterator[str]:
    """The dotted names that one import statement may mean: packages, modules, and names in them."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written in full"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_imports(name: str) -> set[str]:
    """Modules of the package that `name` imports, at its top or within functions."""
    found = set()
    for node in executed(MODULES[name]):
        for target in imported(node):
            if target.split(".")[0] != "dstl_cli":
                continue
            dotted = target.removeprefix("dstl_cli").removeprefix(".")
            while dotted and dotted not in MODULES:
                dotted = dotted.rpartition(".")[0]
            found.add(dotted or "__init__")
    return found


def test_every_module_has_its_place() -> None:
    assert {name.split(".")[0] for name in MODULES} == set(HEIGHT)
    assert inner_imports("patches.coding") == {"transforms.transform", "patches.kernels.coding"}


def test_no_module_imports_itself_in_a_circle() -> None:
    TopologicalSorter({name: inner_imports(name) - {name} for name in MODULES}).prepare()  # raises on a cycle


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name: str) -> None:
    top = name.split(".")[0]
    for target in inner_imports(name):
        part = target.split(".")[0]
        assert part == top or HEIGHT[part] < HEIGHT[top], f"{name} imports {target}"
        assert top != "picture" or part in PICTURE_KNOWS, f"{name} imports {target}"


@pytest.mark.parametrize("name", NUMERICS)
def test_numerics_never_print_and_never_open_a_file(name: str) -> None:
    builtins = {"print", "open", "input", "breakpoint", "exec", "eval"}
    modules = {"sys", "io", "pathlib", "logging", "shutil", "tempfile", "subprocess", "warnings", "typer", "rich"}
    methods = {"tofile", "fromfile", "save", "savez", "savez_compressed", "savetxt", "load", "loadtxt", "memmap"}
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in builtins, f"{name}, line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in methods | {"open"}, f"{name}, line {node.lineno}"
        for target in imported(node):
            assert target.split(".")[0] not in modules, f"{name} imports {target}"


@pytest.mark.parametrize("name", MODULES)
def test_heavy_packages_are_imported_where_they_are_used(name: str) -> None:
    """numba at the top of the module with its decorator only; the others at the top of none."""
    for node in MODULES[name].body:
        packages = {target.split(".")[0] for target in imported(node)} & HEAVY
        assert not packages or (packages == {"numba"} and name.startswith("base.kernels"))


def test_the_denoiser_never_sees_the_clean_image() -> None:
    """Nothing that denoising imports takes one; measuring (measure) is no part of it."""
    reached, waiting = set(), {name for name in MODULES if name.startswith("denoising.")}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= inner_imports(name) - reached
        names = {node.arg for node in ast.walk(MODULES[name]) if isinstance(node, ast.arg)}
        assert not {"clean", "reference", "ground_truth", "original"} & names, name
    assert {"patches.coding", "learning.loop", "patches.grid"} <= reached


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for(name: str) -> None:
    assert ast.get_docstring(MODULES[name])
