"""Parts of a run: each picture in one of them, whatever the queue calls them; and what goes with no scheduler."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from running import outcome_of, refused, run, scene

from dstl_cli.base.shards import Shard
from dstl_cli.run.journal import last_words

FAST = ("--method", "dct", "--sigma", "20", "--patch-size", "6")
QUEUE = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_STEP")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven small pictures in `in`."""
    (tmp_path / "in").mkdir()
    for seed in range(7):
        Image.fromarray(scene((24, 24), seed=seed)).save(tmp_path / "in" / f"{seed}.png")
    return tmp_path


@given(st.integers(0, 50), st.integers(1, 12))
def test_every_item_is_in_one_shard_and_they_are_of_one_size(size: int, count: int) -> None:
    parts = [Shard(number, count).of(range(size)) for number in range(1, count + 1)]
    assert sorted(item for part in parts for item in part) == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_shards_make_the_files_of_the_whole_and_keep_a_journal_each(folder: Path) -> None:
    assert run("denoise", folder / "in", "-o", folder / "whole", *FAST, "-q").code == 0
    for number in (2, 1, 3):
        done = run("denoise", folder / "in", "-o", folder / "out", *FAST, "--shard", f"{number}/3", "--json")
        assert done.code == 0
        assert done.report["settings"]["shard"] == f"{number}/3"
        told = last_words(folder / f"out.{number}-of-3.journal.jsonl")
        assert [entry["input"] for entry in told] == [record["input"] for record in done.report["files"]]
        assert [Path(entry["input"]).stem for entry in told] == list("0123456"[number - 1 :: 3])
    made = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (folder / "whole").iterdir()}
    again = run("denoise", folder / "in", "-o", folder / "out", *FAST, "--shard", "1/3", "--resume", "--json").report
    assert (again["summary"]["resumed"], again["files"]) == (3, [])


def test_a_failure_is_in_the_journal(folder: Path) -> None:
    (folder / "in" / "!.png").write_text("no picture")
    done = run("denoise", folder / "in", "-o", folder / "out", *FAST, "--shard", "1/1", "-q")
    assert done.code == 1
    first, *_ = last_words(folder / "out.1-of-1.journal.jsonl")
    assert [first["error"]] == done.sentences
    head = json.loads((folder / "out.1-of-1.journal.jsonl").read_text().splitlines()[0])
    assert (head["command"], head["pictures"]) == ("denoise", 8)


def test_the_summary_counts_without_records(folder: Path) -> None:
    (folder / "in" / "!.png").write_text("no picture")
    done = run("denoise", folder / "in", "-o", folder / "out", *FAST, "--shard", "1/2")
    assert done.text.splitlines()[-1] == "3 denoised, 1 failed, 0 done before, 0 other files skipped."


def test_an_empty_part_is_told(folder: Path) -> None:
    picture = next((folder / "in").glob("*.*"))
    for command in (("denoise", picture, "-o", folder / "out.png", *FAST), ("evaluate", picture, "--sigma", "20")):
        done = run(*command, "--shard", "2/3")
        assert (done.code, "Part 2/3 is empty: of 1 picture there is none in it." in done.stderr) == (0, True)
    assert not (folder / "out.png").exists()


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "1/3/3", ""])
def test_what_is_no_shard_is_refused(folder: Path, shard: str) -> None:
    refused(run("denoise", folder / "in", "-o", folder / "out", *FAST, "--shard", shard), 2, "--shard")
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (("3", "1", "7", "1"), "2"),
        (("0", "0", "7", ""), "0"),
        (("30", "10", "7", "5"), "4"),
        (("", "", "", ""), None),
        (("12", "10", "7", "5"), None),
        (("9", "1", "3", "1"), None),
    ],
)
def test_slurm_says_which_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch, queue: tuple[str, ...], expected: str | None
) -> None:
    for name, value in zip(QUEUE, queue, strict=True):
        monkeypatch.setenv(name, value)
    done = run("denoise", folder / "in", "-o", folder / "out", *FAST, "--shard", "slurm", "-q")
    if expected is None:
        refused(done, 2, "--shard slurm", "--array")
        return
    assert done.code == 0
    assert [path.stem for path in (folder / "out").iterdir()] == [expected]


def test_an_array_job_is_not_heeded_unless_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(QUEUE, ("3", "1", "7", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert run("denoise", folder / "in", "-o", folder / "out", *FAST, "-q").code == 0
    assert len(list((folder / "out").iterdir())) == 7


def test_what_a_scheduler_cannot_do_is_refused_before_it_is_asked(folder: Path) -> None:
    picture = folder / "in" / "0.png"
    for more in (("-o", "-"), ("--save-transform", folder / "t.npz"), ("--preview", folder / "s.png")):
        refused(run("denoise", picture, "--sigma", "20", *more, "--scheduler", "tcp://127.0.0.1:1"), 2, "--scheduler")


def test_without_the_extra_there_is_one_sentence(folder: Path) -> None:
    """The packages are hidden from a process of its own."""
    hide = "import sys; sys.modules.update(distributed=None, dask=None, fsspec=None); "
    hide += "from dstl_cli.__main__ import program; program()"
    for asked in (("--scheduler", "local:2"), ("-o", "s3://bucket/out/")):
        told = [sys.executable, "-c", hide, "denoise", str(folder / "in"), *FAST, *asked]
        refused(outcome_of(told), 2, "install dstl-cli[cluster]")


def test_nothing_of_a_cluster_is_imported_without_its_options(folder: Path) -> None:
    ask = "import atexit, sys\nfrom dstl_cli.cli import app\natexit.register(lambda: print(*sys.modules))\napp.main()"
    told = [sys.executable, "-c", ask, "denoise", str(folder / "in"), "-o", str(folder / "out"), *FAST]
    loaded = outcome_of(told).text.split()
    assert "dstl_cli.run.files" in loaded
    assert not {"distributed", "dask", "fsspec", "zarr", "s3fs"} & set(loaded)
