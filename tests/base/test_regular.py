"""Pipes and devices are refused at once wherever a file of ours is read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dstl_cli.base.regular import open_regular
from dstl_cli.cli.inspect import inspect
from dstl_cli.errors import FileProblem, UsageProblem
from dstl_cli.run.cluster import scheduler_address
from dstl_cli.run.noise import load_noise
from dstl_cli.transforms.files import load_transform


def test_files_are_read_from_their_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc\r\n")
    with open_regular(tmp_path / "file") as stream:
        assert stream.read() == b"abc\r\n"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "other")


@pytest.mark.parametrize("read", [load_transform, load_noise, lambda path: inspect(path)])
@pytest.mark.parametrize("suffix", [".npz", ".json", ".png"])
def test_nobody_waits_for_a_pipe_or_reads_a_device(read: Callable[[Path], object], suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    os.mkfifo(path)
    with pytest.raises(FileProblem, match="not a regular file"):
        read(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(FileProblem, match="not a regular file"):
        read(path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_nobody_waits_for_the_file_of_a_scheduler(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "scheduler.json")
    with pytest.raises(UsageProblem, match=r"scheduler\.json is not the file of a Dask scheduler"):
        scheduler_address(str(tmp_path / "scheduler.json"))


def test_the_file_of_a_scheduler_has_its_address(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text('{"address": "tcp://here:8786"}')
    assert scheduler_address(str(file)) == "tcp://here:8786"
    for wrong in ('{"address": 5}', "[" * 100_000, " " * 1_000_000 + '{"address": "tcp://here:8786"}'):
        file.write_text(wrong)
        with pytest.raises(UsageProblem, match="not the file of a Dask scheduler"):
            scheduler_address(str(file))
