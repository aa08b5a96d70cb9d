"""A run over files: what it does once and not for every picture."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from running import run, scene

from dstl_cli.base import threads


@pytest.mark.parametrize("jobs", [1, 2])
def test_blas_is_told_once_how_many_threads_it_has(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads wait in loops when they come: told for every picture, small ones took twice the processor time."""
    for number in range(4):
        (tmp_path / "in").mkdir(exist_ok=True)
        Image.fromarray(scene((24, 32), seed=number)).save(tmp_path / "in" / f"{number}.png")
    told, tell = [], threads._set_threads

    def counted(libraries: list[Any], numbers: Any) -> None:
        told.append(list(numbers))
        tell(libraries, numbers)

    monkeypatch.setattr(threads, "_set_threads", counted)
    more = ("--sigma", "20", "--quality", "fast", "--jobs", jobs, "-q")
    assert run("denoise", tmp_path / "in", "-o", tmp_path / "out", *more).code == 0
    assert len(told) <= 2 * (1 + jobs)  # there and back: for the process, and for each thread where it counts by itself
