"""PGM and PPM, plain and raw, any maximal value up to 65535.

Values are scaled to the full range of uint8 or uint16 on reading and back to the file's own maximal
value on writing, so that untouched pixels come back as the very same numbers.
"""

import re
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from dstl_cli.errors import FileProblem
from dstl_cli.files.pictures import (
    ImageInfo,
    Metadata,
    Picture,
    Pixels,
    Source,
    check_size,
    damaged,
    file_errors,
    single_page,
    truncated,
    unsupported,
)

MAGICS = (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")
_LONGEST_HEADER = 65_536
_BLOCK = 2**20
_SPACE = b" \t\n\r\v\f"
_COMMENT = re.compile(rb"#([^\r\n]*)")
_NUMBER = re.compile(rb"[0-9]{1,9}(?=[\s#]|$)")


@dataclass(frozen=True)
class NetpbmExtras:
    """How the file was written: plain text or raw, its maximal value, its comments."""

    plain: bool
    maximum: int
    comments: tuple[bytes, ...]


@dataclass(frozen=True)
class _Head:
    width: int
    height: int
    channels: int
    dtype: np.dtype[Any]
    extras: NetpbmExtras
    start: int


def probe(source: Source) -> ImageInfo:
    """Read the header only."""
    head = _parse(source)
    return ImageInfo(head.width, head.height, 1, head.channels, False, head.dtype, "netpbm")


def read(source: Source) -> Picture:
    """Read a PGM or PPM file."""
    head = _parse(source)
    shape = (head.height, head.width) if head.channels == 1 else (head.height, head.width, head.channels)
    if head.extras.plain:
        colour = _read_plain(source, head).reshape(shape)
    else:
        stored = source.array(head.start, shape, head.dtype.newbyteorder(">"))
        _check_single(source, head.start + stored.nbytes)
        colour = stored.astype(head.dtype, copy=False)
    top = int(colour.max())
    if top > head.extras.maximum:
        raise damaged(source.name, f"it has the value {top} above its own maximum {head.extras.maximum}")
    colour = _rescale(colour, head.extras.maximum, _full(head.dtype))
    return single_page(source.name, "netpbm", colour, None, Metadata(), head.extras)


def write(picture: Picture, stream: BinaryIO, strip: bool) -> None:
    """Write one page of grey (PGM) or RGB (PPM) in the source's own style, raw when there is none."""
    colour = picture.pages[0]
    full = _full(colour.dtype)
    native = picture.native
    extras = native if isinstance(native, NetpbmExtras) else NetpbmExtras(False, full, ())
    kind = (b"P2" if extras.plain else b"P5") if colour.ndim == 2 else (b"P3" if extras.plain else b"P6")
    stream.write(kind + b"\n")
    for comment in () if strip else extras.comments:
        stream.write(b"#" + comment + b"\n")
    height, width = colour.shape[:2]
    stream.write(b"%d %d\n%d\n" % (width, height, extras.maximum))
    rows = max(1, _BLOCK // max(1, colour[:1].size))
    for start in range(0, height, rows):
        block = _rescale(colour[start : start + rows], full, extras.maximum)
        if extras.plain:
            stream.write(_plain_text(block, 17 if full == 255 else 11))
        else:
            stream.write(block.astype(block.dtype.newbyteorder(">"), copy=False).tobytes())


def _full(dtype: np.dtype[Any]) -> int:
    """The largest value of an unsigned type."""
    return int(np.iinfo(dtype).max)


def _rescale(values: Pixels, old: int, new: int) -> Pixels:
    """Scale whole numbers from 0..old to 0..new, rounding to the nearest."""
    if old == new:
        return values
    return ((values.astype(np.uint64) * new + old // 2) // old).astype(values.dtype)


def _parse(source: Source) -> _Head:
    """Read magic, width, height and maximal value, with the comments between them."""
    name = source.name
    with file_errors(name), source.open() as stream:
        lead = stream.read(_LONGEST_HEADER)
    magic = lead[:2]
    if magic in (b"P1", b"P4"):
        raise unsupported(name, "is a 1-bit PBM picture", "convert it to PGM first")
    numbers: list[int] = []
    comments: list[bytes] = []
    position = 2
    while len(numbers) < 3:
        if position >= len(lead):
            raise truncated(name)
        if lead[position] in _SPACE:
            position += 1
        elif match := _COMMENT.match(lead, position):
            comments.append(match.group(1))
            position = match.end()
        elif match := _NUMBER.match(lead, position):
            numbers.append(int(match.group()))
            position = match.end()
        else:
            raise damaged(name, "its header is not made of numbers")
    width, height, maximum = numbers
    if not 0 < maximum < 65_536:
        raise damaged(name, f"its maximal value is {maximum}")
    channels = 1 if magic in (b"P2", b"P5") else 3
    dtype = np.dtype(np.uint8 if maximum < 256 else np.uint16)
    plain = magic in (b"P2", b"P3")
    count = width * height * channels
    check_size(source, width, height, count * dtype.itemsize)
    if position + 1 + count * (2 if plain else dtype.itemsize) - plain > source.size:
        raise truncated(name)
    return _Head(width, height, channels, dtype, NetpbmExtras(plain, maximum, tuple(comments)), position + 1)


def _read_plain(source: Source, head: _Head) -> Pixels:
    """The numbers of a plain file, flat, read block by block."""
    count = head.width * head.height * head.channels
    values = np.empty(count, head.dtype)
    found = 0
    rest = b""
    with file_errors(source.name), source.open() as stream:
        stream.seek(head.start)
        while found < count:
            block = stream.read(_BLOCK)
            text = rest + block
            if block:  # keep the last line: a number or comment may go on in the next block
                cut = max(text.rfind(b"\n"), text.rfind(b"\r"), -1 if b"#" in text else text.rfind(b" "))
                text, rest = text[: cut + 1], text[cut + 1 :]
                if len(rest) > 4 * _BLOCK:
                    raise damaged(source.name, "a line is too long")
            words = _COMMENT.sub(b"", text).split()[: count - found]
            found += _parse_words(source, words, values[found:], head.extras.maximum)
            if not block:
                break
    if found < count:
        raise truncated(source.name)
    return values


def _parse_words(source: Source, words: list[bytes], out: Pixels, maximum: int) -> int:
    """Write the numbers of a list of words to the front of an array; return how many."""
    if not words:
        return 0
    if not all(word.isdigit() and len(word) < 9 for word in words):
        raise damaged(source.name, "it has pixels that are not whole numbers")
    numbers = np.array(words).astype(np.int64)
    if int(numbers.max()) > maximum:
        raise damaged(source.name, f"it has the value {int(numbers.max())} above its own maximum {maximum}")
    out[: len(words)] = numbers
    return len(words)


def _check_single(source: Source, end: int) -> None:
    """Refuse a raw file with further pictures behind the first."""
    with file_errors(source.name), source.open() as stream:
        stream.seek(end)
        if stream.read(2) in MAGICS:
            raise FileProblem(f"{source.name} holds more than one picture; split it into single ones first.")


def _plain_text(block: Pixels, per_line: int) -> bytes:
    """Numbers as text in lines of at most 70 characters; each row of the picture starts a line."""
    lines = []
    for row in block.reshape(block.shape[0], -1).tolist():
        words = [str(value) for value in row]
        lines += [" ".join(words[start : start + per_line]) for start in range(0, len(words), per_line)]
    return ("\n".join(lines) + "\n").encode("ascii")
