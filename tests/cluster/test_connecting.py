"""Schedulers that do not answer or are none, workers of another version, and measuring on real workers."""

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from clusters import contents, scheduler_with_workers, tasks_of, wait_until, write_pictures
from running import PACKAGE_FOLDER, command, environment, refused, run_process

from dstl_cli.version import __version__

pytestmark = pytest.mark.slow
SECONDS = re.compile(r"(?<![\d.])\d+\.\d\d(?!\d)")  # all numbers with two digits after the point
HOW = ("--quality", "fast", "--sigma", "20", "-q")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pictures(tmp_path / "in", 13)
    return tmp_path


@pytest.mark.parametrize("listens", [True, False])
def test_a_scheduler_that_does_not_answer_is_one_sentence_after_ten_seconds(folder: Path, listens: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        outcome = run_process("denoise", folder / "in", "-o", folder / "out", *HOW, "--scheduler", address)
    refused(outcome, 2, address, "10 s")
    assert time.monotonic() - began < 25
    assert contents(folder / "out") == {}


def test_what_is_no_scheduler_is_refused(folder: Path) -> None:
    (folder / "notes.json").write_text("[]")
    for given, words in (
        ("nowhere", "local[:N]"),
        ("local:0", "at least one process"),
        (str(folder / "notes.json"), "notes.json"),
    ):
        refused(run_process("denoise", folder / "in", "-o", folder / "out", *HOW, "--scheduler", given), 2, words)


def test_workers_of_another_version_or_without_dstl_are_told(folder: Path) -> None:
    """The worker's package is put aside by one of the same name, of another version; then there is none."""
    other = folder / "other"
    shutil.copytree(PACKAGE_FOLDER / "dstl_cli", other / "dstl_cli", ignore=shutil.ignore_patterns("__pycache__"))
    version = other / "dstl_cli" / "version.py"
    version.write_text(version.read_text().replace(__version__, "0.0.1"))
    preload = f"import sys; sys.path.insert(0, {str(other)!r})"
    with scheduler_with_workers(folder, workers=1, preload=preload) as file:
        outcome = run_process("denoise", folder / "in", "-o", folder / "out", *HOW, "--scheduler", file)
        refused(outcome, 1, "0.0.1", __version__, "all machines")
    preload = "import sys; sys.modules['dstl_cli'] = None"
    with scheduler_with_workers(folder, workers=1, preload=preload) as file:
        outcome = run_process("denoise", folder / "in", "-o", folder / "out", *HOW, "--scheduler", file)
        refused(outcome, 1, "cannot load dstl", "install dstl-cli[cluster]")


@pytest.mark.parametrize("asked", ["denoise", "train"])
def test_ctrl_c_ends_the_waiting_for_workers(folder: Path, asked: str) -> None:
    more = {"denoise": ("--sigma", "20", "-o", folder / "out"), "train": ("-o", folder / "t.npz")}[asked]
    with scheduler_with_workers(folder, workers=0) as file:
        told = command(asked, folder / "in", *more, "--scheduler", file)
        with subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            wait_until(lambda: "abs-" in " ".join(tasks_of(file)))
            process.send_signal(signal.SIGINT)
            try:
                _, stderr = process.communicate(timeout=20)
            finally:
                process.kill()
    assert (process.returncode, stderr.decode()) == (130, "dstl: Interrupted; nothing was left half-written.\n")
    assert not list(folder.glob("t.npz*"))


def on_a_terminal(*arguments: str | Path) -> str:
    """What the real program shows on a terminal."""
    shown, terminal = pty.openpty()
    told = {"stdout": subprocess.DEVNULL, "stderr": terminal, "env": environment() | {"TERM": "xterm"}}
    with subprocess.Popen(command(*arguments), **told) as process:  # type: ignore[call-overload]
        os.close(terminal)
        text = b""
        with suppress(OSError):  # the end, on Linux
            while piece := os.read(shown, 4096):
                text += piece
    os.close(shown)
    assert process.returncode in (0, 1)  # of those here `train` alone does not mind a picture that is broken
    return text.decode()


@pytest.mark.parametrize("asked", ["denoise", "evaluate", "train"])
def test_a_terminal_shows_files_bytes_failures_and_the_time_left(folder: Path, asked: str) -> None:
    (folder / "in" / "broken.png").write_text("no picture")
    more = {
        "denoise": ("--sigma", "20", "--quality", "fast", "-o", folder / "out"),
        "evaluate": ("--sigma", "20", "--quality", "fast"),
        "train": ("--patch-size", "4", "--iterations", "2", "-o", folder / "t.npz"),
    }[asked]
    shown = on_a_terminal(asked, folder / "in", *more, "--scheduler", "local:1")
    assert re.search(r"14 of 14 files, 0 MiB, 1 failed.*%.*\d:\d\d:\d\d", shown), shown


def test_measuring_gives_the_rows_of_one_machine(folder: Path) -> None:
    asked = ("evaluate", folder / "in", "--sigma", "10,25", "--quality", "fast", "--json")
    (folder / "in" / "broken.png").write_text("no picture")
    alone = run_process(*asked, "--report", folder / "alone.html")
    there = run_process(*asked, "--report", folder / "there.html", "--scheduler", "local:2")
    pages = [(folder / name).read_text("utf-8") for name in ("alone.html", "there.html")]
    assert SECONDS.sub("", pages[0]) == SECONDS.sub("", pages[1])
    assert pages[0].count("data:image/png;base64,") > 13 * 7
    assert (alone.code, there.code) == (1, 1)
    assert [Path(error["image"]).name for error in there.report["errors"]] == ["broken.png"]
    rows = [[{**row, "seconds": None} for row in outcome.report["rows"]] for outcome in (alone, there)]
    assert rows[0] == rows[1]
    assert len(rows[0]) >= 26
    parts = [run_process(*asked, "--shard", f"{number}/3").report["rows"] for number in (1, 2, 3)]
    assert sorted(json.dumps({**row, "seconds": None}) for part in parts for row in part) == sorted(
        json.dumps(row) for row in rows[0]
    )


def test_the_page_and_the_table_of_pairs_are_those_of_one_machine(folder: Path) -> None:
    """To the byte: nothing is timed."""
    assert run_process("denoise", folder / "in", "-o", folder / "out", *HOW).code == 0
    shutil.copy(folder / "in" / "0000.png", folder / "out" / "0001.png")  # one in grey, the other in colour
    made = []
    for name, more in (("alone", ()), ("there", ("--scheduler", "local:2"))):
        outputs = folder / f"{name}.html", folder / f"{name}.csv"
        asked = ("evaluate", folder / "in", folder / "out", "--report", outputs[0], "--csv", outputs[1])
        assert run_process(*asked, *more).code == 1
        made.append([path.read_bytes() for path in outputs])
    assert made[0] == made[1]
    assert b"1 more could not be measured" in made[0][0]


def test_what_is_wrong_with_a_picture_is_told_in_the_same_words(folder: Path) -> None:
    (folder / "in" / "broken.png").write_text("no picture")
    asked = ("denoise", "in", *HOW, "--json")
    alone = run_process(*asked, "-o", "alone", cwd=folder)
    there = run_process(*asked, "-o", "there", "--scheduler", "local:1", cwd=folder)
    errors = [[record["error"] for record in outcome.report["files"] if record["error"]] for outcome in (alone, there)]
    assert errors[0] == errors[1]
    assert errors[0][0].startswith("in/broken.png is not a picture")
