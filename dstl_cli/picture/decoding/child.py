"""The child process: it decodes what it is given, within limits, until the program is gone.

It opens no file of the user: packed bytes come in, and pixels go out, in memory that the program shares with it. Its
standard streams lead nowhere, it cannot write to a file, and nothing is left of it when it dies.
"""

import os
import resource
import signal
import socket
from typing import Any

from dstl_cli.picture.decoding.messages import receive, send
from dstl_cli.picture.problems import BadPixels

_STATUS = "/proc/self/statm"


def main(descriptor: int, common: int) -> None:
    """Answer until the other side hangs up; common: memory for small arrays."""
    _give_up_rights({descriptor, common})
    import imagecodecs  # noqa: F401  (while nobody waits yet)
    import numpy as np

    from dstl_cli.picture.decoding import decoders
    from dstl_cli.picture.decoding.shared import SMALL_BYTES, mapped

    arena = mapped(common, (2, SMALL_BYTES), "u1")
    os.close(common)

    def array(number: int, described: dict[str, Any] | None, descriptors: list[int]) -> Any:
        if described is None:
            return None
        if described["shared"]:
            return mapped(descriptors.pop(0), described["shape"], described["dtype"])
        return arena[number, : described["size"]].view(np.dtype(described["dtype"])).reshape(described["shape"])

    def answer(message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        packed, out = (array(number, message[name], descriptors) for number, name in enumerate(("packed", "out")))
        _limit(message["seconds"], message["bytes"])
        try:
            facts = decoders.DECODERS[message["decoder"]](packed.data, out, **message["facts"])
        except MemoryError:
            return {"memory": True}
        except BadPixels as error:
            return {"bad": str(error)}
        except Exception as error:
            return {"failure": f"{type(error).__name__}: {error}"[:1000]}
        return {"facts": facts}

    with socket.socket(fileno=descriptor) as connection:
        while True:
            try:
                message, descriptors = receive(connection)
                reply = answer(message, list(descriptors))
                send(connection, reply)
            except (EOFError, ConnectionError):
                return
            for other in descriptors:
                os.close(other)


def _give_up_rights(kept: set[int]) -> None:
    """Close what was inherited, leave the terminal, write no file and dump no memory."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:  # that of the listing itself
                continue
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _limit(seconds: int, most: int) -> None:
    """From now on so many seconds of processor time, and so many bytes of memory beside what there is."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + 1 + seconds)
    if os.path.exists(_STATUS):
        with open(_STATUS, "rb") as status:
            _lower(resource.RLIMIT_AS, int(status.read().split()[0]) * resource.getpagesize() + most)


def _lower(kind: int, limit: int) -> None:
    """Set a limit that ends this process, within the one that it was given."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
