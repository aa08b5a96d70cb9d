"""The journal of a run: whole lines, one after the other, whatever ended the run before."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from dstl_cli.errors import FileProblem
from dstl_cli.run.journal import KEPT, Journal, journal_of, last_words


def record(name: str, error: str | None = None) -> dict[str, object]:
    return {"input": name, "output": f"out/{name}", "seconds": 0.5, "unchanged": False, "error": error, "plan": "long"}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_journal_lies_beside_the_output_and_shards_have_their_own(tmp_path: Path) -> None:
    assert journal_of(tmp_path / "clean") == tmp_path / "clean.journal.jsonl"
    assert journal_of(tmp_path / "clean" / ".") == tmp_path / "clean.journal.jsonl"
    assert journal_of(tmp_path / "a.b", "1-of-2") == tmp_path / "a.b.1-of-2.journal.jsonl"


def test_every_line_is_there_as_soon_as_it_is_added(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, command="denoise") as journal:
        journal.add(record("a.png"))
        assert len(lines(path)) == 2
        journal.add(record("b.png", "b.png is empty."))
        first, *others = lines(path)
    assert first["command"] == "denoise"
    assert [tuple(line) for line in others] == [KEPT, KEPT]
    assert [line["error"] for line in others] == [None, "b.png is empty."]


def test_a_later_run_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path) as journal:
        journal.add(record("a.png", "no"))
        journal.add(record("b.png", "no"))
    os.truncate(path, path.stat().st_size - 9)
    with Journal(path) as journal:
        journal.add(record("a.png"))
    assert [(entry["input"], entry["error"]) for entry in last_words(path)] == [("a.png", None)]
    assert len(path.read_text().splitlines()) == 5


def test_what_is_no_journal_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_text("precious\n")
    with pytest.raises(FileProblem, match="no journal of dstl"):
        Journal(path)
    assert path.read_text() == "precious\n"
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileProblem, match="cannot be written"):
        Journal(tmp_path / "folder")
    if sys.platform != "win32":
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(FileProblem, match="cannot be written"):
            Journal(tmp_path / "link")
        assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="free some space"):
        Journal(Path("/dev/full"))


def test_lines_of_several_runs_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "j"

    def run(number: int) -> None:
        with Journal(path) as journal:
            for index in range(200):
                journal.add(record(f"{number}-{index}" * 50))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(path)) == 4 * 201
    assert len(last_words(path)) == 800


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"[" * 100_000 + b"\n", b'{"input": 3}\n[]\nnull\n"x"\n', b""])
def test_broken_lines_are_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content + b'{"input": "a"}\n')
    assert last_words(tmp_path / "j") == [{"input": "a"}]
