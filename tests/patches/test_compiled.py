"""Compiled kernels are kept on disk; whatever happens to the files there, the next run gives the same numbers."""

import errno
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numba
import pytest
from hypothesis import strategies

import dstl_cli
from dstl_cli.base.progress import when_compiling
from dstl_cli.patches.kernels.compiled import KernelFiles, compiled

SOURCE = "def twice_and(x):\n    return 2 * x + {}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels are kept, empty."""
    kept = tmp_path / "kept"
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(kept))
    return kept


@pytest.fixture
def told() -> Iterator[list[str]]:
    """One entry for the first kernel that is compiled."""
    heard: list[str] = []
    when_compiling[:] = [lambda: heard.append("compiling")]
    yield heard
    when_compiling.clear()


def kernel(folder: Path, constant: int = 1) -> Callable[[int], int]:
    """A kernel from a file of its own, as a new process would make it."""
    path = folder.parent / "toy.py"
    path.write_text(SOURCE.format(constant), encoding="utf-8")
    os.utime(path, ns=(constant, constant))
    spec = importlib.util.spec_from_file_location("toy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    made: Callable[[int], int] = compiled()(module.twice_and)
    return made


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_was_compiled_is_loaded_in_the_next_process(folder: Path, told: list[str]) -> None:
    assert kernel(folder)(20) == 41
    assert told == ["compiling"]
    (kept,) = files(folder)
    before = kept.stat().st_mtime_ns
    when_compiling[:] = [lambda: told.append("again")]
    assert kernel(folder)(20) == 41
    assert told == ["compiling"]
    assert kept.stat().st_mtime_ns == before


def test_another_source_is_compiled_anew_in_the_same_place(folder: Path, told: list[str]) -> None:
    assert kernel(folder, 1)(20) == 41
    kept = files(folder)
    assert kernel(folder, 2)(20) == 42
    assert kernel(folder, 1)(20) == 41
    assert files(folder) == kept


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "cut short": lambda data: data[:20],
    "zeroed": lambda data: bytes(len(data)),
    "text": lambda data: b"hello",
    "flipped at the start": lambda data: flipped(data, 0),
    "flipped in the middle": lambda data: flipped(data, len(data) // 2),
    "flipped at the end": lambda data: flipped(data, len(data) - 1),
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_anew_and_mended(damage: str, folder: Path, told: list[str]) -> None:
    kernel(folder)(20)
    (kept,) = files(folder)
    whole = kept.read_bytes()
    kept.write_bytes(DAMAGES[damage](whole))
    when_compiling[:] = [lambda: told.append("again")]
    assert kernel(folder)(20) == 41
    assert told == ["compiling", "again"]
    when_compiling[:] = [lambda: told.append("a third time")]
    assert kernel(folder)(20) == 41
    assert told == ["compiling", "again"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root can read and write what it likes")
def test_a_folder_in_the_place_of_the_file_costs_nothing_but_time(folder: Path) -> None:
    kernel(folder)(20)
    (kept,) = files(folder)
    kept.unlink()
    kept.mkdir()
    assert kernel(folder)(20) == 41


@hypothesis.given(strategies.binary(max_size=300), strategies.data())
def test_nothing_is_loaded_but_what_was_saved(payload: bytes, data: strategies.DataObject) -> None:
    """Cut anywhere, changed anywhere, of another kernel, or of another source: nothing of it is unpickled."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        key = ("int64", "processor", "code")
        saved = KernelFiles(name, "kernel", "source")
        saved.save(key, payload)
        assert saved.load(key) == payload
        assert saved.load((*key[:2], "other code")) is None
        assert KernelFiles(name, "kernel", "other source").load(key) is None
        (path,) = Path(name).iterdir()
        whole = path.read_bytes()
        place = data.draw(strategies.integers(0, len(whole) - 1))
        for damaged in (whole[:place], flipped(whole, place)):
            path.write_bytes(damaged)
            assert saved.load(key) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_done_without(
    number: int, folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    assert kernel(folder)(20) == 41
    assert files(folder) == []
    assert told == ["compiling"]


def test_without_any_folder_every_process_compiles(
    folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    assert kernel(folder)(20) == 41
    assert told == ["compiling"]
    assert not folder.exists()


WITHOUT = """
from numba.core import caching
theirs = caching.FunctionCache
del caching.FunctionCache
from dstl_cli.patches.kernels import compiled
caching.FunctionCache = theirs
assert compiled.FunctionCache is object
def two(): return 2
print(compiled.compiled()(two)())
"""


def test_a_numba_without_these_classes_will_do(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(WITHOUT, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(dstl_cli.__file__).parents[1]), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(tmp_path / "toy.py")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


OTHERS = """
from dstl_cli.patches.kernels import compiled
import sys
assert "scipy.linalg" not in sys.modules
import numba, numpy
@numba.njit
def solved(a, b): return numpy.linalg.solve(a, b) + numpy.correlate(b, b)
print(solved(numpy.eye(2), numpy.array([1.0, 2.0])))
import scipy.linalg
print(scipy.linalg.norm([3, 4]))
"""


def test_scipy_is_there_for_whoever_wants_it() -> None:
    """Numba looks for BLAS in scipy when its first kernel is loaded; ours need none, those of others find it."""
    environment = os.environ | {"PYTHONPATH": str(Path(dstl_cli.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OTHERS], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[6. 7.]\n5.0\n"), done.stderr
