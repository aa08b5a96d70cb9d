"""How the program has files decoded: by a child process that is started once, limited, and replaced when it dies.

    with reading(trusted=False):
        packed = filled([data])
        pixels = decoded("jpeg", packed, (height, width, 3), "u1")

With `trusted`, and where the system has no such means, the same decoders run in the process itself.
"""

import atexit
import errno
import importlib
import json
import math
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstl_cli.base.threads import available_cores
from dstl_cli.picture.decoding import messages
from dstl_cli.picture.decoding.shared import SMALL_BYTES, Block, memory, shown
from dstl_cli.picture.problems import BadPixels, DecoderStopped, NoDecoder

if TYPE_CHECKING:
    from dstl_cli.picture.decoding.decoders import Facts, Pixels

TRUSTING = "--trust-files"
SECONDS, BYTES_A_SECOND = 5, 4 * 2**20  # of processor time: for any file, and one more for so many bytes of pixels
SPARE_BYTES, COPIES = 256 * 2**20, 16  # of memory: for any file, and so many times its pixels
THREAD_BYTES = 16 * 2**20  # of memory for each core: some decoders have as many threads
PATIENCE, PATIENCE_SECONDS = 5, 30  # how long an answer may take: so many times its processor time, and so long
DYING_SECONDS = 1.0  # a process that has hung up takes a while until it is gone
_MODULE = "dstl_cli.picture.decoding.child"
_START = f"import json, sys; args, sys.path[:] = map(json.loads, sys.argv[1:]); from {_MODULE} import main; main(*args)"
_OWN_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # memory that is set aside counts as used
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "LANG")


class _Child:
    """One child process, and the socket to it."""

    def __init__(self) -> None:
        self._connection, other = socket.socketpair()
        common = -1
        try:
            with other:
                common = memory(2 * SMALL_BYTES)
                self._arena = mmap.mmap(common, 2 * SMALL_BYTES)
                self._process = _spawned([other.fileno(), common])
        except BaseException:
            self._connection.close()
            raise
        finally:
            if common >= 0:
                os.close(common)
        self.answered = False

    def ask(self, message: dict[str, Any], packed: Block, out: Block | None) -> dict[str, Any]:
        """The answer to a message about some bytes, and the pixels in an array.

        EOFError or OSError where the child has died, TimeoutError where it does not answer.
        """
        whole = message | {"packed": shown(packed), "out": None if out is None else shown(out)}
        given = [one for one in (packed, out) if one is not None]
        descriptors = [one.descriptor for one in given if one.descriptor is not None]
        if packed.descriptor is None:
            self._arena[: packed.array.nbytes] = packed.array.data
        self._connection.settimeout(PATIENCE_SECONDS + PATIENCE * message["seconds"])
        messages.send(self._connection, whole, tuple(descriptors))
        answer = messages.receive(self._connection)[0]
        self.answered = True
        if out is not None and out.descriptor is None:
            with memoryview(self._arena) as arena, arena[SMALL_BYTES : SMALL_BYTES + out.array.nbytes] as made:
                out.array.reshape(-1).view("u1").data[:] = made
        return answer

    def end(self, seconds: float = 0.0) -> int:
        """End the process, after it was given so long to end by itself; its status."""
        self._connection.close()
        status, until = 0, time.monotonic() + seconds
        with suppress(OSError):
            ended, status = os.waitpid(self._process, os.WNOHANG)
            while not ended and time.monotonic() < until:
                time.sleep(0.005)
                ended, status = os.waitpid(self._process, os.WNOHANG)
            if not ended:
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)
        return status

    def ended_by(self, error: BaseException) -> Exception:
        """What is to be said of an error, after which the process is no more."""
        status = self.end(DYING_SECONDS if isinstance(error, EOFError | ConnectionError) else 0.0)
        if not self.answered and os.WIFEXITED(status) and os.WEXITSTATUS(status):
            return _not_started("it ends at once")
        late = isinstance(error, TimeoutError) or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
        return DecoderStopped("the decoder took too long" if late else "the decoder crashed")

    def forget(self) -> None:
        """In a copy of this process: leave the child to the original."""
        self._connection.close()


def _spawned(given: list[int]) -> int:
    """The number of a new child process that gets these descriptors: Python alone, with our paths and nothing else."""
    for descriptor in given:
        os.set_inheritable(descriptor, True)
    package = str(Path(__file__).parents[3])
    paths = json.dumps([package, *(path for path in sys.path if path and path != package)])
    start = (sys.executable, "-I", "-S", "-B", "-W", "ignore", "-c", _START, json.dumps(given), paths)
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    return os.posix_spawn(start[0], start, environment | _OWN_ENVIRONMENT, file_actions=silent)


class _Children:
    """The children of this process that wait for work, and how many may work at a time."""

    def __init__(self) -> None:
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
            try:
                child = child or _Child()
            except OSError as error:
                raise _not_started(error.strerror or error) from None
            try:
                yield child
            except BaseException as error:
                reason = child.ended_by(error)
                if isinstance(error, BrokenPipeError) and child.answered:
                    raise  # somebody else has ended it while it waited
                if isinstance(error, EOFError | OSError | ValueError):
                    raise reason from None
                raise
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


def end_children(*, forget: bool = False) -> None:
    """Let go of all children."""
    if _State.children is not None:
        _State.children.end(forget=forget)
        _State.children = None


atexit.register(end_children)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: end_children(forget=True))


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


def block(shape: Sequence[int], dtype: Any) -> Block:
    """An array that a decoder can fill."""
    import numpy as np

    large = math.prod(shape) * np.dtype(dtype).itemsize > SMALL_BYTES
    try:
        return Block(shape, dtype, shared=large and not _State.trusted)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise MemoryError from error
        reason = error.strerror or error
        raise NoDecoder(f"there is no memory to decode files in ({reason}); close other programs") from error


def filled(pieces: "Sequence[bytes | memoryview]") -> Block:
    """Bytes for a decoder."""
    whole, start = block((sum(map(len, pieces)),), "u1"), 0
    view = whole.array.data
    for piece in pieces:
        view[start : start + len(piece)] = piece
        start += len(piece)
    return whole


def decoded(decoder: str, packed: Block, shape: Sequence[int], dtype: Any, **facts: Any) -> "Pixels":
    """The array of this shape that a decoder makes of packed bytes."""
    out = block(shape, dtype)
    ask(decoder, packed, out, **facts)
    return out.array


def ask(decoder: str, packed: Block, out: Block | None = None, work: int = 0, **facts: Any) -> "Facts | None":
    """What a decoder says of packed bytes, whose pixels go into an array; work: their bytes where there is none.

    DecoderStopped where it crashes or is stopped by its limits, NoDecoder where the system gives no child, BadPixels or
    ValueError where the bytes are no good.
    """
    if _State.trusted:
        decoders = importlib.import_module("dstl_cli.picture.decoding.decoders")
        found: Facts | None = decoders.DECODERS[decoder](packed.array.data, out and out.array, **facts)
        return found
    size = packed.array.nbytes + max(work, 0 if out is None else out.array.nbytes)
    message: dict[str, Any] = {"decoder": decoder, "facts": facts}
    message |= {
        "seconds": SECONDS + size // BYTES_A_SECOND,
        "bytes": SPARE_BYTES + THREAD_BYTES * available_cores() + COPIES * size,
    }
    reply = None
    while reply is None:
        with suppress(BrokenPipeError), _children().one() as child:
            reply = child.ask(message, packed, out)
    if "memory" in reply:
        raise DecoderStopped("it needs too much memory")
    if "bad" in reply:
        raise BadPixels(str(reply["bad"]))
    if "failure" in reply:
        raise ValueError(str(reply["failure"]))
    return reply.get("facts")


def _not_started(reason: object) -> NoDecoder:
    return NoDecoder(f"the process that decodes files cannot be started ({reason}); use {TRUSTING}")
