"""How the program has files decoded: by a child process that is started once, limited, and replaced when it dies.

    with reading(trusted=False):
        packed = filled([data])
        pixels = decoded("jpeg", packed, (height, width, 3), "u1")

With `trusted`, and where the system has no such means, the same decoders run in the process itself.
"""

import atexit
import importlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstl_cli.errors import DstlError
from dstl_cli.picture.decoding import messages
from dstl_cli.picture.problems import DecoderStopped

if TYPE_CHECKING:
    from dstl_cli.picture.decoding.decoders import Facts, Pixels
    from dstl_cli.picture.decoding.shared import Block

TRUSTING = "--trust-files"
SECONDS, BYTES_A_SECOND = 5, 4 * 2**20  # of processor time: for any file, and one more for so many bytes of pixels
SPARE_BYTES, COPIES = 256 * 2**20, 16  # of memory: for any file, and so many times its pixels
PATIENCE = 10  # times its processor time, and a minute: how long an answer may take
_MODULE = "dstl_cli.picture.decoding.child"
_START = f"import json, sys; sys.path[:] = json.loads(sys.argv[2]); from {_MODULE} import main; main(int(sys.argv[1]))"
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "LANG")


class _Child:
    """One child process, and the socket to it."""

    def __init__(self) -> None:
        self._connection, other = socket.socketpair()
        with other:
            other.set_inheritable(True)
            package = str(Path(__file__).parents[3])
            paths = json.dumps([package, *(path for path in sys.path if path and path != package)])
            start = (sys.executable, "-I", "-S", "-B", "-W", "ignore", "-c", _START, str(other.fileno()), paths)
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            try:
                self._process = os.posix_spawn(
                    start[0], start, environment | {"OPENBLAS_NUM_THREADS": "1"}, file_actions=silent
                )
            except BaseException:
                self._connection.close()
                raise
        self._greeted = False

    def ask(self, message: dict[str, Any], descriptors: tuple[int, ...]) -> dict[str, Any]:
        """The answer to a message; EOFError or OSError where the child has died, TimeoutError where it does not say."""
        self._connection.settimeout(60 + PATIENCE * message["seconds"])
        if not self._greeted:
            messages.receive(self._connection)
            self._greeted = True
        messages.send(self._connection, message, descriptors)
        return messages.receive(self._connection)[0]

    def end(self) -> int:
        """End the process, if it still lives; the signal that ended it before, or 0."""
        self._connection.close()
        with suppress(OSError):
            ended, status = os.waitpid(self._process, os.WNOHANG)
            if not ended:
                os.kill(self._process, signal.SIGKILL)
                _, status = os.waitpid(self._process, 0)
                return 0
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return 0

    def forget(self) -> None:
        """In a copy of this process: leave the child to the original."""
        self._connection.close()


class _Children:
    """The children of this process that wait for work, and how many may work at a time."""

    def __init__(self) -> None:
        from dstl_cli.base.threads import available_cores

        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(max(1, available_cores() // 2))

    def start(self) -> None:
        """Have a child ready."""
        with self._lock:
            if not self._idle:
                self._idle.append(_Child())

    @contextmanager
    def one(self) -> Iterator[_Child]:
        """A child that waits, or a new one; back among those that wait unless it fails."""
        with self._free:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            child = child or _Child()
            yield child
            with self._lock:
                self._idle.append(child)

    def end(self, *, forget: bool = False) -> None:
        """Let go of all that wait."""
        while self._idle:
            child = self._idle.pop()
            child.forget() if forget else child.end()


class _State:
    """Whether files are trusted, and the children that decode them otherwise."""

    trusted = not (hasattr(os, "posix_spawn") and hasattr(socket, "send_fds"))
    children: _Children | None = None


def _children() -> _Children:
    if _State.children is None:
        _State.children = _Children()
    return _State.children


def _end(*, forget: bool = False) -> None:
    """Let go of all children."""
    if _State.children is not None:
        _State.children.end(forget=forget)
        _State.children = None


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _end(forget=True))


@contextmanager
def reading(*, trusted: bool) -> Iterator[None]:
    """Read files so that they are trusted, or else in a child, which is started now."""
    before = _State.trusted
    _State.trusted = before or trusted
    try:
        if not _State.trusted:
            with suppress(OSError):  # said when a file is decoded
                _children().start()
        yield
    finally:
        _State.trusted = before


def block(shape: Sequence[int], dtype: Any) -> "Block":
    """An array that a decoder can fill."""
    from dstl_cli.picture.decoding.shared import Block

    return Block(shape, dtype, shared=not _State.trusted)


def filled(pieces: "Sequence[bytes | memoryview]") -> "Block":
    """Bytes for a decoder."""
    whole, start = block((sum(map(len, pieces)),), "u1"), 0
    view = whole.array.data
    for piece in pieces:
        view[start : start + len(piece)] = piece
        start += len(piece)
    return whole


def decoded(decoder: str, packed: "Block", shape: Sequence[int], dtype: Any, **facts: Any) -> "Pixels":
    """The array of this shape that a decoder makes of packed bytes."""
    out = block(shape, dtype)
    ask(decoder, packed, out, **facts)
    return out.array


def ask(decoder: str, packed: "Block", out: "Block | None" = None, work: int = 0, **facts: Any) -> "Facts | None":
    """What a decoder says of packed bytes, whose pixels go into an array; work: their bytes where there is none.

    DecoderStopped where it crashes or is stopped by its limits, ValueError where it does not like the bytes.
    """
    if packed.descriptor is None and (out is None or out.descriptor is None) and _State.trusted:
        decoders = importlib.import_module("dstl_cli.picture.decoding.decoders")
        found: Facts | None = decoders.DECODERS[decoder](packed.array.data, out and out.array, **facts)
        return found
    size = packed.array.nbytes + max(work, 0 if out is None else out.array.nbytes)
    message = {
        "decoder": decoder,
        "facts": facts,
        "packed": packed.array.nbytes,
        "shape": None if out is None else list(out.array.shape),
        "dtype": None if out is None else out.array.dtype.str,
        "seconds": SECONDS + size // BYTES_A_SECOND,
        "bytes": SPARE_BYTES + COPIES * size,
    }
    descriptors = tuple(one.descriptor for one in (packed, out) if one is not None and one.descriptor is not None)
    reply = _answer(message, descriptors)
    failure = reply.get("failure")
    if failure == "memory":
        raise DecoderStopped("it needs too much memory")
    if failure is not None:
        raise ValueError(str(failure))
    return reply.get("facts")


def _answer(message: dict[str, Any], descriptors: tuple[int, ...]) -> dict[str, Any]:
    """What a child says; one that dies is ended, and the next file gets another."""
    try:
        with _children().one() as child:
            try:
                return child.ask(message, descriptors)
            except (EOFError, OSError, ValueError) as error:
                ended_by = child.end()
                late = isinstance(error, TimeoutError) or ended_by == getattr(signal, "SIGXCPU", -1)
                raise DecoderStopped("the decoder took too long" if late else "the decoder crashed") from None
            except BaseException:
                child.end()
                raise
    except OSError as error:
        reason = error.strerror or error
        raise DstlError(f"The process that decodes files cannot be started ({reason}); use {TRUSTING}.") from None
