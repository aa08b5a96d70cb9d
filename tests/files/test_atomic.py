"""Outputs appear complete or not at all, and leftovers of killed processes go away."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dstl_cli.errors import FileProblem
from dstl_cli.files import atomic
from dstl_cli.files.atomic import TEMPORARY_SUFFIX, atomic_output, remove_stale_temporaries, same_file


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def write(path: Path, data: bytes, *, overwrite: bool = True) -> None:
    with atomic_output(path, overwrite=overwrite) as stream:
        stream.write(data)


def test_file_appears_with_its_content_and_normal_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"x")
    write(tmp_path / "out.png", b"pixels")
    assert (tmp_path / "out.png").read_bytes() == b"pixels"
    assert names(tmp_path) == ["out.png", "plain"]
    assert stat.S_IMODE((tmp_path / "out.png").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_nothing_is_visible_under_the_final_name_before_the_end(tmp_path: Path) -> None:
    with atomic_output(tmp_path / "out.png") as stream:
        stream.write(b"half")
        (only,) = names(tmp_path)
        assert only.startswith(f".out.png.{os.getpid()}-")
        assert only.endswith(TEMPORARY_SUFFIX)
        stream.seek(0)
        assert stream.read() == b"half"
    assert names(tmp_path) == ["out.png"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, GeneratorExit])
def test_any_exception_leaves_the_folder_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "out.png").write_bytes(b"old")

    def fail() -> None:
        with atomic_output(tmp_path / "out.png") as stream:
            stream.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == ["out.png"]
    assert (tmp_path / "out.png").read_bytes() == b"old"


def test_no_overwrite_refuses_at_once_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    write(path, b"first", overwrite=False)
    with pytest.raises(FileProblem, match=r"out\.png already exists; use --force"):
        write(path, b"second", overwrite=False)

    def race(target: Path) -> None:
        with atomic_output(target, overwrite=False) as stream:
            stream.write(b"ours")
            target.write_bytes(b"theirs")  # someone else is quicker

    with pytest.raises(FileProblem, match="already exists"):
        race(tmp_path / "other.png")
    assert path.read_bytes() == b"first"
    assert (tmp_path / "other.png").read_bytes() == b"theirs"
    assert names(tmp_path) == ["other.png", "out.png"]


def test_no_overwrite_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    test_no_overwrite_refuses_at_once_and_at_the_end(tmp_path)


@pytest.mark.parametrize("links", [True, False])
def test_exactly_one_of_many_writers_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "out.png"
    start = threading.Barrier(8)
    winners: list[int] = []

    def writer(number: int) -> None:
        try:
            with atomic_output(path, overwrite=False) as stream:
                stream.write(bytes([number]) * 1000)
                start.wait()
            winners.append(number)
        except FileProblem:
            pass

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert path.read_bytes() == bytes(winners) * 1000
    assert names(tmp_path) == ["out.png"]


def test_a_link_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    (tmp_path / "input.png").write_bytes(b"input")
    (tmp_path / "out.png").symlink_to("input.png")
    write(tmp_path / "out.png", b"result")
    assert (tmp_path / "input.png").read_bytes() == b"input"
    assert not (tmp_path / "out.png").is_symlink()
    (tmp_path / "loop.png").symlink_to("loop.png")
    write(tmp_path / "loop.png", b"result")
    assert (tmp_path / "loop.png").read_bytes() == b"result"


def test_long_and_odd_names(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.png")
    for name in ("ä" * 125 + ".png", "x" * 255, "new\nline.png", odd):
        write(tmp_path / name, b"1")
    assert len(names(tmp_path)) == 4
    with pytest.raises(FileProblem, match="too long"):
        write(tmp_path / ("x" * 256), b"1")


def test_impossible_places_give_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cases: list[tuple[Path, str]] = [
        (tmp_path, "is a folder"),
        (tmp_path / "missing" / "out.png", "does not exist; make it first"),
        (tmp_path / "file" / "out.png", "is not a folder"),
    ]
    for path, words in cases:
        with pytest.raises(FileProblem, match=words) as caught:
            write(path, b"1")
        assert str(caught.value).endswith(".")
        assert "\n" not in str(caught.value)


def test_a_full_disk_gives_one_sentence(tmp_path: Path) -> None:
    def fill() -> None:
        with atomic_output(tmp_path / "out.png"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileProblem, match=r"No space left on device\); free some space"):
        fill()
    assert names(tmp_path) == []


def test_errors_of_the_block_stay_themselves(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_output(tmp_path / "out.png"):
            raise FileNotFoundError(errno.ENOENT, "not our file")

    with pytest.raises(FileNotFoundError):
        fail()


def test_devices_and_pipes_get_the_bytes_and_stay(tmp_path: Path) -> None:
    write(Path(os.devnull), b"gone")
    write(Path(os.devnull), b"gone", overwrite=False)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"through")
    reader.join()
    assert received == [b"through"]


CHILD = """
import sys, time
from pathlib import Path
from dstl_cli.files.atomic import atomic_output
with atomic_output(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def start_writer(path: Path) -> "subprocess.Popen[str]":
    root = str(Path(atomic.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_leftovers_of_killed_processes_go_but_living_writers_keep_theirs(tmp_path: Path) -> None:
    dead, living = start_writer(tmp_path / "dead.png"), start_writer(tmp_path / "living.png")
    try:
        assert remove_stale_temporaries(tmp_path) == 0
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert len(names(tmp_path)) == 2
        assert remove_stale_temporaries(tmp_path) == 1
        (only,) = names(tmp_path)
        assert only.startswith(".living.png.")
        living.send_signal(signal.SIGINT)
        living.wait()
        assert names(tmp_path) == []
    finally:
        for child in (dead, living):
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def test_own_files_in_progress_stay_and_only_our_names_go(tmp_path: Path) -> None:
    others = [".x.png.12-abc.dstl-tmp", "x.png.12-0123456789abcdef.dstl-tmp", "notes.dstl-tmp", "a.png"]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    leftover = tmp_path / f".x.png.{os.getpid()}-0123456789abcdef.dstl-tmp"  # our own number, reused
    leftover.write_bytes(b"half")
    with atomic_output(tmp_path / "out.png") as stream:
        stream.write(b"1")
        assert remove_stale_temporaries(tmp_path) == 1
    assert names(tmp_path) == sorted([*others, "out.png"])
    assert remove_stale_temporaries(tmp_path / "missing") == 0


def test_without_locks_the_process_number_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_lock", lambda handle: None)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for number in (os.getpid(), child.pid, 10**30):
        (tmp_path / f".x.png.{number}-0123456789abcdef.dstl-tmp").write_bytes(b"")
    assert remove_stale_temporaries(tmp_path) == 1
    assert not any(f".{child.pid}-" in name for name in names(tmp_path))


def test_tidying_between_creation_and_lock_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file deleted just before its writer locks it is noticed, and another one is made."""
    honest = atomic._lock
    calls: list[int] = []

    def late(handle: int) -> bool | None:
        calls.append(handle)
        if len(calls) == 1:
            for name in names(tmp_path):
                (tmp_path / name).unlink()
        return honest(handle)

    monkeypatch.setattr(atomic, "_lock", late)
    write(tmp_path / "out.png", b"1")
    assert len(calls) == 2
    assert names(tmp_path) == ["out.png"]


def test_same_file_sees_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    first = tmp_path / "a.png"
    first.write_bytes(b"1")
    (tmp_path / "soft.png").symlink_to(first)
    os.link(first, tmp_path / "hard.png")
    (tmp_path / "folder").symlink_to(tmp_path / "sub")
    (tmp_path / "loop").symlink_to("loop")
    assert same_file(first, Path("a.png"))
    assert same_file(first, tmp_path / "soft.png")
    assert same_file(first, tmp_path / "hard.png")
    assert same_file(first, tmp_path / "sub" / ".." / "a.png")
    assert same_file(tmp_path / "sub" / "new.png", tmp_path / "folder" / "new.png")
    assert not same_file(first, tmp_path / "new.png")
    assert not same_file(first, tmp_path / "loop")
    (tmp_path / "b.png").write_bytes(b"1")
    assert not same_file(first, tmp_path / "b.png")
