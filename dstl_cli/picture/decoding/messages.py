"""What goes through the socket between the program and its child: JSON behind its length, and descriptors.

A message is one call of the system where it can be: after each a busy program waits for Python's lock.
"""

import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">I")
_LONGEST = 2**28
_USUAL = 2**16
_MOST_DESCRIPTORS = 2


def send(connection: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send a message."""
    body = json.dumps(message).encode()
    whole = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(connection, [whole], list(descriptors)) if descriptors else 0
    if sent < len(whole):
        connection.sendall(whole[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message, the only one on its way, and what came with it; EOFError where the sender is gone."""
    received, descriptors, _, _ = socket.recv_fds(connection, _USUAL, _MOST_DESCRIPTORS)
    received = _more(connection, received, _LENGTH.size)
    (length,) = _LENGTH.unpack_from(received)
    if length > _LONGEST:
        raise EOFError
    message = json.loads(_more(connection, received, _LENGTH.size + length)[_LENGTH.size :])
    if not isinstance(message, dict):
        raise EOFError
    return message, descriptors


def _more(connection: socket.socket, received: bytes, count: int) -> bytes:
    """What has been received, and as many further bytes as it takes to make so many."""
    pieces, missing = [received], count - len(received)
    while missing > 0:
        pieces.append(connection.recv(min(missing, 2**20)))
        missing -= len(pieces[-1])
        if not pieces[-1]:
            raise EOFError
    return b"".join(pieces)
