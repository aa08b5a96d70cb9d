"""Runs over thousands of pictures: memory and open files do not grow, and a killed one goes on where it was."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dstl_cli.run.journal import journal_of, last_words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory and open files are read off /proc"),
]
PICTURES = 10_000
GROWTH = 1.05


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many small pictures."""
    place = tmp_path_factory.mktemp("long") / "in"
    place.mkdir()
    pixels = np.random.default_rng(0).integers(100, 156, (24, 24), dtype=np.uint8)
    for number in range(PICTURES):
        pixels[0, :4] = [number >> shift & 255 for shift in (0, 4, 8, 12)]  # no two are the same
        np.save(place / f"{number:05d}.npy", pixels)
    return place


def started(folder: Path, out: Path) -> "subprocess.Popen[str]":
    words = ["-m", "dstl_cli", "denoise", str(folder), "-o", str(out), "--sigma", "20", "--quality", "fast", "--resume"]
    words += ["--shard", "1/1"]  # so that there is a journal
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def held(process: "subprocess.Popen[str]") -> tuple[int, int]:
    """Pages of memory of its own that a process holds, and its open files."""
    place = Path("/proc") / str(process.pid)
    pages, shared = (int(word) for word in (place / "statm").read_text().split()[1:3])
    return pages - shared, len(list((place / "fd").iterdir()))


def at_shares(process: "subprocess.Popen[str]", shares: tuple[float, ...]) -> Iterator[tuple[int, int]]:
    """What it holds when it has done these shares of its pictures."""
    assert process.stdout is not None
    done = 0
    for share in shares:
        while done < share * PICTURES:
            assert "->" in process.stdout.readline()
            done += 1
        seen = []
        for _ in range(20):
            seen.append(held(process))
            time.sleep(0.01)
        yield min(pages for pages, _ in seen), max(files for _, files in seen)


def test_memory_and_open_files_do_not_grow(folder: Path) -> None:
    out = folder.parent / "out"
    with started(folder, out) as process:
        (pages, files), (pages_later, files_later) = at_shares(process, (0.2, 0.9))
        rest, _ = process.communicate()
    assert process.returncode == 0
    assert rest.splitlines()[-1].startswith(f"{PICTURES} denoised, 0 failed")
    assert len(os.listdir(out)) == PICTURES
    assert pages_later <= GROWTH * pages, f"{pages} pages of memory became {pages_later}"
    assert files_later <= GROWTH * files + 4, f"{files} open files became {files_later}"  # some threads hold several


def test_a_long_run_that_is_killed_goes_on_beside_another(folder: Path) -> None:
    """Killed in the middle, then two runs at once: the same files, each done once, and nothing left."""
    whole, out = folder.parent / "out", folder.parent / "again"
    if not whole.exists():
        pytest.skip("the run before has not ended")
    with started(folder, out) as process:
        list(at_shares(process, (random.Random(0).uniform(0.3, 0.6),)))
        process.send_signal(signal.SIGKILL)
    before = len([name for name in os.listdir(out) if not name.startswith(".")])
    runs = [started(folder, out) for _ in range(2)]
    ends = [run.communicate()[0].splitlines() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("->" in line for lines in ends for line in lines) == PICTURES - before
    assert sorted(os.listdir(out)) == sorted(os.listdir(whole))
    differ = [name for name in os.listdir(out) if (out / name).read_bytes() != (whole / name).read_bytes()]
    assert differ == []
    journal = journal_of(out, "1-of-1")
    assert isinstance(journal, Path)
    told = last_words(journal)
    assert not [entry for entry in told if entry["error"]]
    assert PICTURES - len(told) < 20  # those that had appeared when the run was killed, and were not yet noted
    shutil.rmtree(out)
