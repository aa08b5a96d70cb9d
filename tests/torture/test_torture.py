"""Each call that may fail does, and processes end at any moment: files are whole or absent, and a sentence says why.

`python -m tests.torture` is the same by hand.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .jobs import JOBS, TEMPORARY, Job, contents, make_pictures

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the jobs run in forked children")


def tortured(*arguments: str) -> dict[str, Any]:
    """What a torture run tells of itself; it must find nothing wrong."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture", *arguments], capture_output=True, text=True, cwd=ROOT, env=ENVIRONMENT
    )
    *wrong, last = done.stdout.splitlines() or [""]
    assert (done.returncode, wrong) == (0, []), done.stderr
    report: dict[str, Any] = json.loads(last)
    return report


def test_a_seeded_part_of_the_torture() -> None:
    report = tortured("file", "folder", "train", "profile", "--count", "14", "--moments", "2", "--seed", "1")
    assert report["cases"] == 4 * 16


@pytest.mark.slow
@pytest.mark.parametrize("job", [job.name for job in JOBS])
def test_every_call_fails_in_turn(job: str) -> None:
    report = tortured(job, "--moments", "90")
    assert report["cases"] > 2 * report["calls"][job]


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_closed_streams_change_nothing(job: Job, closed: tuple[int, ...], tmp_path: Path) -> None:
    made = []
    for numbers in ((), closed):
        folder = tmp_path / str(len(numbers))
        make_pictures(folder)
        redirections = " ".join(f"{number}>&-" for number in numbers)
        shell = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "dstl_cli", *job.arguments]
        done = subprocess.run(shell, capture_output=True, cwd=folder, env=ENVIRONMENT)
        assert done.returncode == 0
        made.append(contents(folder))
    assert set(made[0]) == set(made[1])
    assert all(made[0][name] == data for name, data in made[1].items() if name not in ("a.csv", "r.html"))  # seconds


def checked(job: Job, folder: Path, done: "subprocess.CompletedProcess[str]", expected: set[str]) -> None:
    """What must hold after the real program met an obstacle."""
    assert done.returncode in (0, 1), done
    assert "Traceback" not in done.stderr
    if done.returncode == 1:
        assert all(line.startswith("dstl: ") and line.endswith(".") for line in done.stderr.splitlines())
        assert done.stderr
    names = {name for name in contents(folder) if not name.startswith("in/")}
    assert names <= expected | {job.unfinished}
    assert done.returncode == 1 or names == expected


def allowed(*words: str) -> bool:
    """Whether a command can be run here and does what it should."""
    return shutil.which(words[0]) is not None and subprocess.run(words, capture_output=True).returncode == 0


MOUNT = 'mount -t tmpfs -o size="$1" none . && cd "$PWD" && cp -r ../pictures/in . && shift && exec "$@"'


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_disk_that_is_nearly_full(job: Job, tmp_path: Path) -> None:
    """Of sizes from one that holds hardly the pictures to one that holds all."""
    if not allowed("unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"):
        pytest.skip("nothing can be mounted here")
    make_pictures(tmp_path / "pictures")
    (tmp_path / "disk").mkdir()
    codes = set()
    listing = f'{sys.executable} -m dstl_cli "$@"; code=$?; echo FOUND; find . -type f -not -path "./in/*"; exit $code'
    for size in (*range(24, 64, 4), 80, 112, 160, 320, 2000):
        shell = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", f"{size}k", "sh", "-c", listing, "sh", *job.arguments]
        done = subprocess.run(shell, capture_output=True, text=True, cwd=tmp_path / "disk", env=ENVIRONMENT)
        names = done.stdout.partition("FOUND\n")[2].split()
        assert done.returncode in (0, 1), done
        assert "Traceback" not in done.stderr
        assert not [name for name in names if name.endswith(TEMPORARY)]
        assert done.returncode == 0 or "No space left" in done.stderr or "free and" in done.stderr, done
        codes.add(done.returncode)
    assert 0 in codes


DISKS = (("mkfs.vfat", "vfat"), ("mkfs.exfat", "exfat"), ("mkfs.exfat", "exfat-fuse"))


@pytest.fixture(scope="module")
def fat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small disk of a kind that has no hard links."""
    folder, image = tmp_path_factory.mktemp("fat"), tmp_path_factory.mktemp("image") / "disk"
    for maker, kind in DISKS:
        image.write_bytes(bytes(2**25))
        if allowed(maker, str(image)) and allowed("mount", "-o", "loop", "-t", kind, str(image), str(folder)):
            break
    else:
        pytest.skip("no such disk can be made or mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("job", [job.name for job in JOBS])
def test_a_disk_without_hard_links(job: str, fat: Path) -> None:
    (fat / "file").touch()
    with pytest.raises(OSError, match="Operation not permitted"):
        os.link(fat / "file", fat / "other")
    (fat / "file").unlink()
    report = tortured(job, "--place", str(fat), "--count", "40", "--moments", "20", "--seed", "2")
    assert report["cases"] == 60
    assert not any(fat.iterdir())


CALLS = ("fsync", "?link,linkat", "?rename,?renameat,renameat2", "?unlink,unlinkat", "flock", "?mkdir,mkdirat")


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_calls_of_the_real_program_fail(job: Job, tmp_path: Path) -> None:
    """By strace, below Python: a seeded part of calls, answers and numbers."""
    if not allowed("strace", "-f", "-o", os.devnull, "true"):
        pytest.skip("there is no strace, or it may not trace")
    make_pictures(tmp_path / "whole")
    program = [sys.executable, "-m", "dstl_cli", *job.arguments]
    subprocess.run(program, cwd=tmp_path / "whole", env=ENVIRONMENT, check=True, capture_output=True)
    expected = {name for name in contents(tmp_path / "whole") if not name.startswith("in/")}
    every = list(itertools.product(CALLS, ("EIO", "ENOSPC", "EPERM"), ("1", "2", "1+")))
    for number, (call, answer, when) in enumerate(random.Random(job.name).sample(every, 8)):
        folder = tmp_path / str(number)
        make_pictures(folder)
        words = ["strace", "-f", "-o", os.devnull, "-e", f"inject={call}:error={answer}:when={when}"]
        done = subprocess.run([*words, *program], capture_output=True, text=True, cwd=folder, env=ENVIRONMENT)
        if "unlink" in call or done.returncode == 0:  # then a second run tidies up
            done = subprocess.run([*program, "--force"], capture_output=True, text=True, cwd=folder, env=ENVIRONMENT)
            assert done.returncode == 0
        checked(job, folder, done, expected)
