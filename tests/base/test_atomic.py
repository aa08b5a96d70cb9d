"""Outputs appear complete or not at all, and leftovers of killed processes go away."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_cli.base import atomic
from dstl_cli.base.atomic import (
    TEMPORARY_SUFFIX,
    atomic_folder,
    atomic_output,
    claim,
    identities,
    remove_stale_temporaries,
)
from dstl_cli.errors import FileProblem


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


def fail_with(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture(params=["links", "no links", "neither links nor exclusive renames"])
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the disk can do; FAT has no hard links, some network disks have no exclusive renames either."""
    if request.param != "links":
        monkeypatch.setattr(os, "link", fail_with(errno.EPERM))
    if request.param.startswith("neither"):
        monkeypatch.setattr(atomic, "_rename_exclusively", fail_with(errno.ENOSYS))
    return str(request.param)


@pytest.mark.usefixtures("disk")
def test_no_overwrite_refuses_at_once_and_at_the_end_on_any_disk(tmp_path: Path) -> None:
    test_no_overwrite_refuses_at_once_and_at_the_end(tmp_path)


@pytest.mark.usefixtures("disk")
def test_a_new_name_never_stands_for_less_than_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every system call that makes or gives a name is a moment at which the process may be killed, or the call fail."""
    path = tmp_path / "out.png"
    for name in ("open", "link", "replace", "rename"):
        plain = getattr(os, name)

        def watched(*arguments: object, plain: Callable[..., object] = plain, **options: object) -> object:
            try:
                return plain(*arguments, **options)
            finally:
                assert not path.exists() or path.read_bytes() == b"whole"

        monkeypatch.setattr(os, name, watched)
    write(path, b"whole", overwrite=False)
    assert names(tmp_path) == ["out.png"]


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_failing_rename_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str, overwrite: bool
) -> None:
    renaming = {"links": (os, "link"), "no links": (atomic, "_rename_exclusively")}
    owner, name = (os, "replace") if overwrite else renaming.get(disk, (os, "replace"))
    monkeypatch.setattr(owner, name, fail_with(errno.EIO))
    with pytest.raises(FileProblem, match=r"out\.png cannot be written"):
        write(tmp_path / "out.png", b"whole", overwrite=overwrite)
    assert names(tmp_path) == []


def test_exactly_one_of_many_writers_wins(tmp_path: Path, disk: str) -> None:
    if disk.startswith("neither"):
        pytest.skip("there the name is looked at, then taken: two writers within a microsecond both win")
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


FULL = """
import resource, signal, sys
from pathlib import Path
from dstl_cli.base.atomic import atomic_output
from dstl_cli.errors import FileProblem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with atomic_output(Path(sys.argv[1])) as stream:
        for _ in range(int(sys.argv[2])):
            stream.write(bytes(400))
except FileProblem as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the size of files is limited the POSIX way")
@pytest.mark.parametrize("pieces", [4, 400], ids=["at the end", "on the way"])
def test_a_full_disk_gives_one_sentence(tmp_path: Path, pieces: int) -> None:
    """The buffer that could not be written is tried once more when the file is closed: that error is the same one."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "out.png"), str(pieces)],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.endswith("out.png cannot be written (File too large); free some space or choose another disk.\n")
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO, errno.ENOSPC, errno.EPERM, errno.ENOTSUP])
@pytest.mark.parametrize("call", ["fsync", "fstat", "open"])
def test_any_failing_call_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    monkeypatch.setattr(os, call, fail_with(number))
    with pytest.raises(FileProblem, match=r"out\.png .*; .*\.$"):
        write(tmp_path / "out.png", b"1")
    monkeypatch.undo()
    assert names(tmp_path) == []


def test_a_name_that_cannot_be_removed_costs_nothing_but_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "unlink", fail_with(errno.EPERM))
    monkeypatch.setattr(Path, "unlink", fail_with(errno.EPERM))
    write(tmp_path / "out.png", b"1", overwrite=False)
    assert (tmp_path / "out.png").read_bytes() == b"1"
    with pytest.raises(RuntimeError, match="the block's own"), atomic_output(tmp_path / "b.png"):
        raise RuntimeError("the block's own")
    monkeypatch.undo()
    assert remove_stale_temporaries(tmp_path) == 2
    assert names(tmp_path) == ["out.png"]


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
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs, as these tests may be, start deaf to it
from pathlib import Path
from dstl_cli.base.atomic import atomic_output
with atomic_output(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(atomic.__file__).parents[2])}


def start_writer(path: Path) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
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


def test_identities_see_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def same_file(first: Path, second: Path) -> bool:
        return not identities(first).isdisjoint(identities(second))

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


def test_an_interrupt_between_two_steps_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(handle: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "_lock", interrupt)
    with pytest.raises(KeyboardInterrupt), atomic.atomic_output(tmp_path / "a.png"):
        pass
    assert len(list(tmp_path.iterdir())) == 1  # nobody could know of it yet
    atomic.remove_unfinished()
    assert not list(tmp_path.iterdir())


# --- folders that are one picture ---------------------------------------------------------------------


def fill(folder: Path, text: str) -> None:
    (folder / "c").mkdir()
    (folder / "c" / "0").write_text(text)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    with atomic_folder(path, overwrite=False) as folder:
        fill(folder, "new")
        (only,) = names(tmp_path)
        assert only.startswith(f".x.zarr.{os.getpid()}-")
    assert (path / "c" / "0").read_text() == "new"

    def fail(overwrite: bool) -> None:
        with atomic_folder(path, overwrite=overwrite) as folder:
            fill(folder, "half")
            raise KeyboardInterrupt

    with pytest.raises(FileProblem, match="already exists"):
        fail(False)
    with pytest.raises(KeyboardInterrupt):
        fail(True)
    assert (path / "c" / "0").read_text() == "new"
    assert names(tmp_path) == ["x.zarr"]


@pytest.mark.parametrize("exchange", [True, False])
def test_an_old_folder_is_replaced_as_a_whole(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr(atomic, "_rename_as", fail_with(errno.ENOSYS))
    path = tmp_path / "x.zarr"
    path.mkdir()
    fill(path, "old")
    (path / "more").touch()
    with atomic_folder(path) as folder:
        fill(folder, "new")
        assert (path / "c" / "0").read_text() == "old"
    assert (path / "c" / "0").read_text() == "new"
    assert names(path) == ["c"]
    assert names(tmp_path) == ["x.zarr"]


def test_a_folder_that_appears_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"

    def write_late() -> None:
        with atomic_folder(path, overwrite=False) as folder:
            fill(folder, "mine")
            path.mkdir()
            fill(path, "theirs")

    with pytest.raises(FileProblem, match="already exists"):
        write_late()
    assert (path / "c" / "0").read_text() == "theirs"
    assert names(tmp_path) == ["x.zarr"]


LEAVE_A_FOLDER = """
import sys, time
from pathlib import Path
from dstl_cli.base.atomic import atomic_folder
with atomic_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_folders_of_killed_processes_go_but_living_writers_keep_theirs(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LEAVE_A_FOLDER, str(tmp_path / "x.zarr")], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        left = Path(child.stdout.readline().strip())
        assert remove_stale_temporaries(tmp_path) == 0
        assert (left / "half").exists()
        child.kill()
    assert remove_stale_temporaries(tmp_path) == 1
    assert names(tmp_path) == []


# --- claims -------------------------------------------------------------------------------------------


def test_a_claim_is_one_run_at_a_time_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    with claim(path) as first:
        with claim(path) as second, claim(tmp_path / "other.png") as other:
            assert (first, second, other) == (True, False, True)
        assert remove_stale_temporaries(tmp_path) == 0
        with claim(path) as third:
            assert not third
    with claim(path) as again:
        assert again
    assert names(tmp_path) == []


def test_an_interrupt_just_after_a_claim_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the call that makes the file and the next step; found by killing at seeded moments."""
    plain, interrupted = os.open, list[int]()

    def late(*arguments: Any) -> int:
        handle = plain(*arguments)
        if not interrupted:
            interrupted.append(handle)
            raise KeyboardInterrupt
        return handle

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(KeyboardInterrupt), claim(tmp_path / "out.png"):
        pass
    os.close(interrupted[0])
    assert names(tmp_path) == []


def test_the_claim_of_a_killed_run_is_taken_over(tmp_path: Path) -> None:
    program = CHILD.replace("atomic_output(Path(sys.argv[1])) as stream", "claim(Path(sys.argv[1]))")
    program = program.replace("import atomic_output", "import claim").replace('stream.write(b"half")', "pass")
    program = program.replace("stream.flush()", "pass")
    path = tmp_path / "out.png"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with claim(path) as ours:
            assert not ours
        waiting: list[bool] = []

        def wait() -> None:
            with claim(path, wait=True) as ours:
                waiting.append(ours)

        thread = threading.Thread(target=wait)
        thread.start()
        child.kill()
        thread.join()
    assert waiting == [True]
    assert names(tmp_path) == []


def test_what_is_left_of_a_claim_goes_as_any_leftover(tmp_path: Path) -> None:
    with claim(tmp_path / "out.png"):
        (mark,) = names(tmp_path)
    (tmp_path / mark).write_bytes(b"")
    assert remove_stale_temporaries(tmp_path) == 1
    assert names(tmp_path) == []


def test_of_many_that_claim_at_once_one_has_it(tmp_path: Path) -> None:
    """Also while others take up and give back the same name."""
    holders, most, rounds = [0], [0], 200

    def work() -> None:
        for _ in range(rounds):
            with claim(tmp_path / "out.png") as ours:
                if ours:
                    holders[0] += 1
                    most[0] = max(most[0], holders[0])
                    time.sleep(0)
                    holders[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert names(tmp_path) == []


def test_without_locks_nobody_else_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_lock", lambda handle: None)
    with claim(tmp_path / "out.png") as first, claim(tmp_path / "out.png") as second:
        assert (first, second) == (True, True)
    monkeypatch.undo()
    with claim(tmp_path / "missing" / "out.png") as nowhere:
        assert nowhere
    assert names(tmp_path) == []
