"""Pixels are decoded in a child process: the same as here, within limits, and what it meets costs one file."""

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_bad_files import GOOD, OTHERS, decoded, png

from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.picture.decoding import asking
from dstl_cli.picture.problems import DecoderStopped
from dstl_cli.picture.read import read_picture

pytestmark = pytest.mark.skipif(asking._State.trusted, reason="this system has no means to limit a child")

WAYWARD = """
import os, signal, time
import numpy as np
from dstl_cli.picture.decoding import decoders

def crash(packed, out):
    os.kill(os.getpid(), signal.SIGSEGV)

def spin(packed, out):
    while True:
        pass

def sleep(packed, out):
    time.sleep(1000)

def swell(packed, out):
    np.ones(2**30, np.uint8)

def tell(packed, out):
    os.write(1, b"a library talks")
    os.write(2, b"a library warns")
    return {"descriptors": sorted(map(int, os.listdir("/dev/fd"))), "parent": os.getppid(), "self": os.getpid()}

def write(packed, out, *, path):
    with open(path, "w") as stream:
        stream.write("something")

def shorten(packed, out):
    for number in range(3, 20):
        try:
            os.truncate(number, 0)
        except OSError:
            pass

def fail_at_16_bits(packed, out, png=decoders.png, **facts):
    crash(packed, out) if facts["depth"] == 16 else png(packed, out, **facts)

decoders.DECODERS.update(
    crash=crash, spin=spin, sleep=sleep, swell=swell, tell=tell, shorten=shorten, write=write, png=fail_at_16_bits
)
"""


@pytest.fixture
def wayward(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Children that have a few decoders more, and less time."""
    monkeypatch.setattr(asking, "_START", WAYWARD_START)
    monkeypatch.setattr(asking, "SECONDS", 1)
    monkeypatch.setattr(asking, "PATIENCE", 1)
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 1)
    asking.end_children()
    yield
    asking.end_children()


WAYWARD_START = asking._START.replace(f"from {asking._MODULE}", f"exec({WAYWARD!r}); from {asking._MODULE}")


def asked(decoder: str, **facts: object) -> object:
    return asking.ask(decoder, asking.filled([b"packed"]), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*GOOD, *OTHERS])
def test_the_child_gives_the_same_pixels(kind: str) -> None:
    data = (GOOD | OTHERS)[kind]
    with asking.reading(trusted=True):
        here = decoded(data)
    there = decoded(data)
    assert (here.specs, here.metadata, here.notes) == (there.specs, there.metadata, there.notes)
    for index in range(len(here.specs)):
        for one, other in zip(here.page(index), there.page(index), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("wayward")
@pytest.mark.parametrize(
    ("decoder", "reason"),
    [
        ("crash", "the decoder crashed"),
        ("spin", "the decoder took too long"),
        ("sleep", "the decoder took too long"),
        ("swell", "it needs too much memory"),
    ],
)
def test_a_decoder_that_goes_astray_is_stopped_and_the_next_file_is_read(decoder: str, reason: str) -> None:
    with pytest.raises(DecoderStopped, match=f"^{reason}$"):
        asked(decoder)
    assert decoded(GOOD["jpeg"]).specs


@pytest.mark.usefixtures("wayward")
def test_a_crash_is_one_sentence_about_its_file() -> None:
    with pytest.raises(
        FileProblem,
        match=r"^x could not be decoded: the decoder crashed; copy or export it again, or use --trust-files if you",
    ):
        read_picture(GOOD["png16"], name="x").page(0)
    assert decoded(GOOD["png"]).specs


@pytest.mark.usefixtures("wayward")
def test_the_child_has_nothing_but_its_socket(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "secret").open("w") as kept:
        os.set_inheritable(kept.fileno(), True)
        facts = asked("tell")
    assert isinstance(facts, dict)
    assert len(facts["descriptors"]) <= 6  # three that lead nowhere, the socket, the packed bytes, the listing
    assert facts["parent"] == os.getpid()
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ValueError, match="OSError"):
        asked("write", path=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists() or (tmp_path / "out").stat().st_size == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only there memory can be sealed")
@pytest.mark.usefixtures("wayward")
def test_common_memory_cannot_be_taken_away() -> None:
    size = 5 * 2**20
    packed = asking.filled([bytes(size)])
    out = asking.block((size,), "u1")
    asking.ask("shorten", packed, out)
    assert packed.array.sum() == 0  # reading it would end this process
    out.array[:] = 1


@pytest.mark.usefixtures("wayward")
def test_one_child_reads_many_files_and_one_that_is_killed_meanwhile_is_replaced() -> None:
    first, second = asked("tell"), asked("tell")
    assert isinstance(first, dict)
    assert first["self"] == second["self"]  # type: ignore[index]
    os.kill(first["self"], 9)
    os.waitid(os.P_PID, first["self"], os.WEXITED | os.WNOWAIT)
    assert asked("tell")["self"] != first["self"]  # type: ignore[index]


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_no_descriptor_is_left_open() -> None:
    def count() -> int:
        gc.collect()  # what tests before have left in cycles
        return len(os.listdir("/proc/self/fd"))

    decoded(GOOD["png"])
    before = count()
    for data in (*GOOD.values(), GOOD["jpeg"][:100], png(31, 24, b"")):
        try:
            decoded(data)
        except FileProblem:
            continue
    assert count() == before


@pytest.mark.parametrize("change", [lambda: None, asking.end_children])
def test_a_copy_of_this_process_uses_no_child_of_its_original(change: Callable[[], None]) -> None:
    decoded(GOOD["jpeg"])
    change()
    mine = asking._children()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if asking._State.children is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert asking._children() is mine
    assert decoded(GOOD["jpeg"]).specs


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EMFILE, "^x could not be decoded: there is no memory to"), (errno.ENOMEM, "^x does not fit into")],
)
def test_what_the_system_does_not_give_is_told(number: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    picture = read_picture(GOOD["png"], name="x")
    monkeypatch.setattr(asking, "Block", refuse)
    with pytest.raises(DstlError, match=words):
        picture.page(0)
    monkeypatch.undo()
    asking.end_children()
    monkeypatch.setattr(os, "posix_spawn", refuse)
    gc.collect()
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(DstlError, match=r"^x could not be decoded: .* cannot be started \(no\); use --trust-files\.$"):
        picture.page(0)
    assert set(os.listdir("/dev/fd")) == before
    monkeypatch.undo()
    assert picture.page(0)
