"""Photoshop's image resources, which lie in JPEG segments and TIFF tags: small copies of the picture are among them."""

import struct

_SMALL_COPIES = (1033, 1036)


def without_small_copies(block: bytes) -> bytes:
    """The resources but for small copies of the picture; from the first place on that makes no sense, as they are.

    Each is its kind (8BIM), its number, a name with its length, padded to an even size, and its bytes, padded likewise.
    """
    kept, position = [], 0
    while len(block) - position >= 12:
        number, name = struct.unpack_from(">HB", block, position + 4)
        start = position + 6 + (name + 2) // 2 * 2 + 4
        size = int.from_bytes(block[start - 4 : start], "big")
        end = start + size + (size & 1)
        if start + size > len(block):
            break
        if number not in _SMALL_COPIES:
            kept.append(block[position:end])
        position = end
    return b"".join(kept) + block[position:]
