"""What goes through the socket between the program and its child: JSON behind its length, and descriptors."""

import json
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">I")
_LONGEST = 2**28
_MOST_DESCRIPTORS = 2


def send(connection: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send a message."""
    body = json.dumps(message).encode()
    length = _LENGTH.pack(len(body))
    if descriptors:
        socket.send_fds(connection, [length], list(descriptors))
        connection.sendall(body)
    else:
        connection.sendall(length + body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and what came with it; EOFError where the other side is gone."""
    first, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _MOST_DESCRIPTORS)
    (length,) = _LENGTH.unpack(first + _exactly(connection, _LENGTH.size - len(first)))
    if length > _LONGEST:
        raise EOFError
    message = json.loads(_exactly(connection, length))
    if not isinstance(message, dict):
        raise EOFError
    return message, descriptors


def _exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes."""
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(min(count - len(received), 2**20))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)
