"""Pipes and devices are refused at once wherever a file of ours is read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dstl_cli.base.regular import open_regular
from dstl_cli.cli.inspect import inspect
from dstl_cli.errors import FileProblem
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
