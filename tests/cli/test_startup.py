"""The program starts fast: what needs no numbers imports no numpy; and everywhere, also without a writable cache."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import PACKAGE_FOLDER, Outcome, environment, run_process, scene

from dstl_cli.version import __version__

NUMBERS = {"numpy", "numba", "llvmlite", "scipy", "threadpoolctl"}
PICTURES = {"PIL", "tifffile", "imagecodecs", "skimage", "matplotlib", "imageio"}
WATCHED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
"""


def imported(program: str, *arguments: str) -> tuple[Outcome, set[str]]:
    """Run a program in a fresh interpreter; what it printed, and the packages it imported."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WATCHED + program, *arguments],
        capture_output=True, env=environment(), check=False, timeout=300,
    )  # fmt: skip
    *lines, modules = done.stderr.decode().splitlines()
    names: list[str] = json.loads(modules)
    return Outcome(done.returncode, done.stdout, "\n".join(lines)), set(names)


MAIN = "from dstl_cli.cli.app import main\nmain()"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--version",), 0),
        (("--help",), 0),
        (("-h",), 0),
        (("denoise", "--help"), 0),
        (("reproduce", "-h"), 0),
        (("reproduce", "figure", "--help"), 0),
        (("denoise", "a.png", "--sigma=-1"), 2),
        (("denoise", "a.png", "--density", "0"), 2),
        (("denoise", "a.png", "--nonsense"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_help_version_and_wrong_usage_import_nothing_heavy(arguments: tuple[str, ...], code: int) -> None:
    done, modules = imported(MAIN, *arguments)
    assert done.code == code
    assert not modules & (NUMBERS | PICTURES)
    assert not any(name.startswith("rich.progress") for name in modules)
    if arguments == ("--version",):
        assert done.text == f"dstl {__version__}\n"
        assert "rich" not in modules


def test_the_package_alone_imports_nothing() -> None:
    program = "import dstl_cli\nassert dstl_cli.__version__\nassert 'denoise' in dstl_cli.__all__"
    done, modules = imported(program)
    assert done.code == 0, done.stderr
    assert not modules & (NUMBERS | PICTURES | {"typer", "rich"})
    done, modules = imported("from dstl_cli import denoise, estimate_sigma, learn_transform, Transform")
    assert done.code == 0, done.stderr
    assert "numpy" in modules
    assert not modules & ({"typer", "rich", "scipy"} | PICTURES)


def test_a_run_leaves_out_what_it_does_not_need(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(scene()).save(tmp_path / "a.png")
    done, modules = imported(MAIN, "denoise", str(tmp_path / "a.png"), "--method", "dct", "--patch-size", "6")
    assert done.code == 0, done.stderr
    assert "numpy" in modules
    assert not modules & {"skimage", "matplotlib", "imageio", "pandas"}
    assert not modules & {"scipy.fft", "scipy.ndimage", "scipy.optimize", "scipy.signal"}  # numba looks at scipy itself


def test_module_and_version() -> None:
    assert run_process("--version") == Outcome(0, f"dstl {__version__}\n".encode(), "")


def test_without_arguments_the_help_is_shown() -> None:
    done = run_process()
    assert "denoise" in done.text + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="a folder that no file can be put into is made the POSIX way")
def test_the_kernels_load_where_no_cache_can_be_written(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE_FOLDER / "dstl_cli", tmp_path / "dstl_cli", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "dstl_cli" / "__pycache__").touch()  # a file where the cache folder would be
    nowhere = {"PYTHONPATH": str(tmp_path), "HOME": os.devnull, "XDG_CACHE_HOME": os.devnull}
    cleared = {key: value for key, value in environment().items() if key != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", "import dstl_cli._kernels as kernels; print(kernels.__file__)"],
        cwd=tmp_path, capture_output=True, text=True, env=cleared | nowhere, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert str(tmp_path) in done.stdout
