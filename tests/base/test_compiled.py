"""Compiled kernels are kept on disk; whatever happens to the files there, the next run gives the same numbers.

What they hold is machine code that runs without numba, or else what numba keeps: the same laws for both.
"""

import errno
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import numba
import numpy as np
import pytest
from hypothesis import strategies
from skimage import data

import dstl_cli
from dstl_cli.base.kernels import machine
from dstl_cli.base.kernels.compiled import compiled, signature_of
from dstl_cli.base.kernels.machine import KernelFiles, MachineCode, undefined_symbols
from dstl_cli.base.progress import when_compiling

SOURCE = "def twice_and(x):\n    return 2 * x + {}\n"


MACHINE = pytest.param(True, marks=pytest.mark.skipif(not machine.SUPPORTED, reason="not tried on this platform"))


@pytest.fixture(params=[MACHINE, False], ids=["machine code", "numba's"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where kernels are kept, empty."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(machine, "SUPPORTED", request.param)
    return tmp_path / "kept"


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


@pytest.mark.skipif(not machine.SUPPORTED, reason="not tried on this platform")
def test_code_is_called_as_it_was_kept_by_the_process_that_made_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba links what it compiles with what it has, to other last bits: the first run gave other pixels."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    made: Any = kernel(tmp_path / "kept")
    assert made(20) == 41
    assert not any(isinstance(call, partial) for call in made._calls.values())  # numba's dispatcher is behind one


@pytest.mark.slow
def test_the_first_run_has_the_pixels_of_the_second(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noisy = np.clip(data.astronaut()[:160, :160] + rng.normal(0, 20, (160, 160, 3)), 0, 255).astype(np.uint8)
    np.save(tmp_path / "x.npy", noisy)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for name in ("first.npy", "second.npy"):
        call = [sys.executable, "-m", "dstl_cli", "denoise", str(tmp_path / "x.npy"), "-o", str(tmp_path / name)]
        subprocess.run([*call, "--sigma", "20", "--quality", "best", "-q"], env=environment, check=True)
    assert (tmp_path / "first.npy").read_bytes() == (tmp_path / "second.npy").read_bytes()


def test_arguments_of_every_type_find_their_own_code(folder: Path) -> None:
    """Whatever the calls before were of."""
    twice_and: Callable[[Any], Any] = kernel(folder)
    whole = np.arange(6).reshape(2, 3)
    fixed = whole.astype(np.float32)
    fixed.flags.writeable = False
    others = [whole.astype(np.float32), fixed, whole.astype(np.float64)]
    arrays: list[Any] = [whole, whole.T, whole[:, ::2], whole.ravel(), *others]
    for _ in range(2):
        assert (twice_and(20), twice_and(20.5), twice_and(np.float32(0.25))) == (41, 42.0, 1.5)
        for array in arrays:
            np.testing.assert_array_equal(twice_and(array), 2 * array + 1)


def test_other_operations_are_compiled_anew(
    folder: Path, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kernels are made of is in a file of its own."""
    changed = tmp_path / "operations.py"
    monkeypatch.setattr(machine, "OPERATIONS", changed)
    for number in range(2):
        changed.write_text(f"version = {number}", encoding="utf-8")
        when_compiling[:] = [lambda: told.append("compiling")]
        assert kernel(folder)(20) == 41
        assert len(told) == number + 1
    assert len(files(folder)) == 1


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


def twice(x: int) -> int:
    return 2 * x


@hypothesis.given(strategies.binary(max_size=300), strategies.data())
def test_nothing_is_loaded_but_what_was_saved(payload: bytes, data: strategies.DataObject) -> None:
    """Cut anywhere, changed anywhere, of another signature, with other options, or by another compiler."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setenv("NUMBA_CACHE_DIR", name)
        saved = KernelFiles(twice, {})
        saved.save("int64", payload)
        assert saved.load("int64") == payload
        assert saved.load("float64") is None
        assert KernelFiles(twice, {"fastmath": {"nsz"}}).load("int64") is None
        with pytest.MonkeyPatch.context() as upgraded:
            upgraded.setattr(machine, "compiler_stamp", lambda: ("another",))
            assert saved.load("int64") is None
        (path,) = files(Path(name))
        whole = path.read_bytes()
        place = data.draw(strategies.integers(0, len(whole) - 1))
        for damaged in (whole[:place], flipped(whole, place)):
            path.write_bytes(damaged)
            assert saved.load("int64") is None


def test_settings_of_the_compiler_count(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = machine.compiler_stamp.__wrapped__()
    monkeypatch.setenv("NUMBA_CACHE_DIR", "elsewhere")
    assert machine.compiler_stamp.__wrapped__() == plain
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert machine.compiler_stamp.__wrapped__() != plain


@pytest.mark.parametrize(
    "values",
    [
        (1, -(2**63), 2.5, np.float32(1), np.int32(2), np.uint16(3)),
        (np.zeros(3, np.float32), np.zeros((2, 3), np.int64), np.zeros((2, 3)).T, np.zeros((1, 4)).T, np.zeros(())),
        (
            np.zeros((4, 6), np.int32)[:, ::2],
            np.zeros(6)[::2],
            np.broadcast_to(np.float32(1), (2, 2)),
            np.zeros((0, 2)),
        ),
        (np.frombuffer(bytes(16)), np.zeros((2, 2, 2), bool), np.zeros(2, np.uint16)),
    ],
    ids=["numbers", "whole arrays", "parts of arrays", "odd arrays"],
)
def test_signatures_are_told_as_numba_tells_them(values: tuple[Any, ...]) -> None:
    assert signature_of(values) == ", ".join(repr(numba.typeof(value)) for value in values)


@pytest.mark.parametrize(
    "value",
    [2**63, True, None, (1,), np.zeros(2, ">f4"), np.ma.zeros(2), "x", np.zeros(9, np.uint8)[1:].view(float)],
    ids=lambda value: type(value).__name__,
)
def test_types_that_are_not_known_here_are_left_to_numba(value: Any) -> None:
    """Their words are none that machine code could have been saved under."""
    known = [1, 2.0, np.float32(1), np.zeros(2, np.float32), np.zeros(2)]
    assert signature_of((value,)) not in [signature_of((other,)) for other in known]


@pytest.mark.skipif(not machine.SUPPORTED, reason="not tried on this platform")
def test_machine_code_that_needs_what_is_not_there_is_not_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linker would end the process."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    assert kernel(tmp_path / "kept")(20) == 41
    (path,) = files(tmp_path / "kept")
    made = MachineCode.from_bytes(path.read_bytes()[32:])
    assert made is not None
    assert "PyArg_UnpackTuple" in made.needed
    assert set(undefined_symbols(made.code)) == set(made.needed)
    call = machine.callable_from(made)
    assert call is not None
    assert call((20,)) == 41
    assert machine.callable_from(replace(made, needed=[*made.needed, "no_such_function"])) is None
    with pytest.raises(ValueError, match="twenty"):
        call(("twenty",))
    with pytest.raises(TypeError):
        call((1, 2))


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
    monkeypatch.setattr(machine, "cache_folder", lambda source: None)
    assert kernel(folder)(20) == 41
    assert told == ["compiling"]
    assert not folder.exists()


WITHOUT = """
from numba.core import caching
theirs = caching.NullCache
del caching.NullCache
from dstl_cli.base.kernels import compiled, compiler
caching.NullCache = theirs
assert compiler.NullCache is object
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
from dstl_cli.base.kernels import compiler
import sys
assert "scipy.linalg" not in sys.modules
import numba, numpy
@numba.njit
def solved(a, b): return numpy.linalg.solve(a, b) + numpy.correlate(b, b)
print(solved(numpy.eye(2), numpy.array([1.0, 2.0])))
import scipy.linalg
print(scipy.linalg.norm([3, 4]))
"""


@pytest.mark.slow
def test_scipy_is_there_for_whoever_wants_it() -> None:
    """Numba looks for BLAS in scipy when its first kernel is loaded; ours need none, those of others find it."""
    environment = os.environ | {"PYTHONPATH": str(Path(dstl_cli.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OTHERS], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[6. 7.]\n5.0\n"), done.stderr
