"""What fits stays in memory; what does not goes to files that nobody sees and that vanish."""

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from dstl_cli.base import atomic, scratch
from dstl_cli.base.scratch import SHARE, Memory, machine_memory
from dstl_cli.base.threads import allocated
from dstl_cli.errors import FileProblem

Usage = namedtuple("Usage", "total used free")


def test_the_machine_has_memory() -> None:
    assert 2**27 < machine_memory() < 2**50


@pytest.mark.parametrize("error", [AttributeError, ValueError, OSError])
def test_a_machine_that_does_not_tell_has_a_few_gigabytes(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> int:
        raise error

    monkeypatch.setattr(os, "sysconf", refuse, raising=False)
    assert 2**30 <= machine_memory() <= 2**34


def test_a_limit_is_kept_exactly() -> None:
    memory = Memory(most=1000)
    assert memory.holds(0)
    assert memory.holds(1000)
    assert not memory.holds(1001)
    assert Memory(most=0).holds(0)
    assert not Memory(most=0).holds(1)


def test_without_a_limit_it_is_a_share_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "machine_memory", lambda: 2000)
    assert Memory().holds(int(SHARE * 2000))
    assert not Memory().holds(int(SHARE * 2000) + 1)


def test_what_fits_is_in_memory(tmp_path: Path) -> None:
    allocate = Memory(most=1000, scratch=tmp_path / "not looked at").allocator(1000)
    assert allocate is allocated
    array = allocate((3, 4), np.float32)
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype) == ((3, 4), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_does_not_fit_is_in_a_file_that_is_gone_at_once_or_with_its_array(
    dtype: type[np.generic], tmp_path: Path
) -> None:
    allocate = Memory(most=1000, scratch=tmp_path).allocator(1001)
    first, second = allocate((30, 40), dtype), allocate((30, 40), dtype)
    assert type(first) is np.ndarray  # kernels take nothing else
    assert isinstance(first.base, np.memmap)
    assert (first.shape, first.dtype) == ((30, 40), dtype)
    assert not first.any()
    first[:] = 7
    second[5:9] = 1
    assert first.sum() == 7 * 1200
    assert second.sum() == 160
    if sys.platform != "win32":
        assert not list(tmp_path.iterdir())
    del first, second
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_the_usual_folder_is_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used = []
    monkeypatch.setattr(scratch, "_on_disk", lambda folder, shape, dtype: used.append(folder))
    Memory(most=0).allocator(1)((2, 2), np.float32)
    assert used == [tmp_path]


@pytest.mark.parametrize("free", [0, 99 * 2**20])
def test_a_disk_that_is_too_small_is_refused_before_the_work(
    free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(2**40, 2**40 - free, free))
    memory = Memory(most=1000, scratch=tmp_path)
    with pytest.raises(FileProblem) as refused:
        memory.allocator(100 * 2**20)
    sentence = str(refused.value)
    assert str(tmp_path) in sentence
    assert f"{free // 2**20} MiB free and 100 MiB are needed" in sentence
    assert "--scratch" in sentence
    assert "--max-memory" in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert memory.allocator(1000) is allocated  # what fits into memory needs no disk
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_just_large_enough_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(2**40, 2**40 - 4800, 4800))
    assert isinstance(Memory(most=1000, scratch=tmp_path).allocator(4800)((30, 40), np.float32).base, np.memmap)


def test_a_folder_that_is_not_there_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=r"^The folder .*missing cannot be used \(.+\); choose another --scratch\.$"):
        Memory(most=0, scratch=tmp_path / "missing").allocator(1)


def test_a_file_in_place_of_the_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("no folder")
    with pytest.raises(FileProblem, match=r"file.*--scratch"):
        Memory(most=0, scratch=path).allocator(1)((2, 2), np.float32)


@pytest.mark.skipif(sys.platform == "win32" or getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write")
def test_a_folder_that_cannot_be_written_is_refused_with_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(FileProblem, match=r"--scratch"):
            Memory(most=0, scratch=tmp_path).allocator(1)((2, 2), np.float32)
    finally:
        tmp_path.chmod(0o700)


@pytest.fixture
def names_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk, such as FAT, on which every file has a name."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)


@pytest.mark.skipif(sys.platform == "win32", reason="files that are in use cannot be unlinked")
@pytest.mark.usefixtures("names_for_all")
def test_on_disks_where_files_have_names_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the name cannot be removed, or the program ends before, later runs do it; found on an exFAT disk."""
    memory = Memory(most=0, scratch=tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise error

    for error in (PermissionError(1, "no"), KeyboardInterrupt()):
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(Path, "unlink", fail)
            array = memory.allocator(1)((30, 40), np.float32)
            array[:] = 7
        assert len(list(tmp_path.iterdir())) == 1
        if isinstance(error, KeyboardInterrupt):
            atomic.remove_unfinished()
        else:
            memory.allocator(1)
            assert list(tmp_path.iterdir())  # it is in use
            del array
            gc.collect()
            memory.allocator(1)
        assert not list(tmp_path.iterdir())
    array = memory.allocator(1)((30, 40), np.float32)
    assert not list(tmp_path.iterdir())
    array[:] = 7
    assert array.sum() == 7 * 1200


@pytest.mark.skipif(sys.platform == "win32", reason="files that are in use cannot be unlinked")
def test_a_killed_program_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from dstl_cli.base.scratch import Memory\n"
        "array = Memory(most=0, scratch=Path(sys.argv[1])).allocator(1)((100, 100), 'float32')\n"
        "array[:] = 1; os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert not list(tmp_path.iterdir())
