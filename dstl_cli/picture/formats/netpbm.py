"""PGM and PPM, plain and raw, any maximal value up to 65535.

Values are scaled to the full range of uint8 or uint16 on reading and back to the file's own maximal
value on writing, so that untouched pixels come back as the very same numbers; Pillow reads 16-bit colour as 8 bit.
"""

import re
from typing import BinaryIO, NamedTuple

import numpy as np

from dstl_cli.errors import FileProblem
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels
from dstl_cli.picture.problems import damaged, truncated
from dstl_cli.picture.source import Source, file_errors

_LONGEST_HEADER = 65_536
_BLOCK = 2**20
_COMMENT = re.compile(rb"#[^\r\n]*")
_TOKEN = re.compile(rb"\s+|#(?P<comment>[^\r\n]*)|(?P<number>[0-9]{1,9})(?=[\s#]|$)")
_NO_NUMBERS = re.compile(rb"[^0-9\s]|[0-9]{10}")


class NetpbmExtras(NamedTuple):
    """How the file was written: plain text or raw, its maximal value, its comments."""

    plain: bool
    maximum: int
    comments: tuple[bytes, ...]


def read(source: Source) -> Picture:
    """Read a PGM or PPM file."""
    spec, extras, start = _parse(source)
    return Picture(source.name, (spec,), lambda _: _page(source, spec, extras, start), Metadata(), extras)


def _page(source: Source, spec: PageSpec, extras: NetpbmExtras, start: int) -> Page:
    if extras.plain:
        colour = _read_plain(source, spec, start)
    else:
        colour = source.array(start, spec.shape, spec.dtype.newbyteorder(">"))
        with file_errors(source.name), source.open() as stream:
            stream.seek(start + colour.nbytes)
            if re.match(rb"P[1-6]", stream.read(2)):
                raise FileProblem(f"{source.name} holds more than one picture; split it into single ones first.")
    top = int(colour.max())
    if top > extras.maximum:
        raise damaged(source.name, f"it has the value {top} above its own maximum {extras.maximum}")
    return _rescale(colour.astype(spec.dtype, copy=False), extras.maximum, np.iinfo(spec.dtype).max), None


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of grey (PGM) or RGB (PPM) in the source's own style, raw when there is none."""
    del alpha  # there is none
    full = np.iinfo(colour.dtype).max
    plain, maximum, comments = picture.native or NetpbmExtras(False, full, ())
    kind = 2 + (colour.ndim == 3) + (0 if plain else 3)
    notes = b"".join(b"#%s\n" % comment for comment in comments if not strip)
    height, width = colour.shape[:2]
    stream.write(b"P%d\n%s%d %d\n%d\n" % (kind, notes, width, height, maximum))
    rows = max(1, _BLOCK // max(1, colour[:1].size))
    for start in range(0, height, rows):
        block = _rescale(colour[start : start + rows], full, maximum)
        big_endian = block.astype(block.dtype.newbyteorder(">"), copy=False)
        stream.write(_plain_text(block, 17 if full == 255 else 11) if plain else big_endian.tobytes())


def _rescale(values: Pixels, old: int, new: int) -> Pixels:
    """Scale whole numbers from 0..old to 0..new, rounding to the nearest."""
    if old == new:
        return values
    return ((values.astype(np.uint64) * new + old // 2) // old).astype(values.dtype)


def _parse(source: Source) -> tuple[PageSpec, NetpbmExtras, int]:
    """Read magic, width, height and maximal value, with the comments between them, and where the pixels start."""
    name = source.name
    lead = source.lead(_LONGEST_HEADER)
    numbers: list[int] = []
    comments: list[bytes] = []
    position = 2
    while len(numbers) < 3:
        match = _TOKEN.match(lead, position)
        if match is None:
            raise truncated(name) if position >= len(lead) else damaged(name, "its header is not made of numbers")
        position = match.end()
        if match["comment"] is not None:
            comments.append(match["comment"])
        elif match["number"] is not None:
            numbers.append(int(match["number"]))
    width, height, maximum = numbers
    if not 0 < maximum < 65_536:
        raise damaged(name, f"its maximal value is {maximum}")
    spec = PageSpec(height, width, 1 if lead[1:2] in b"25" else 3, np.dtype(np.uint8 if maximum < 256 else np.uint16))
    plain = lead[1:2] in b"23"
    count = width * height * spec.channels
    source.check_size(width, height, count * spec.dtype.itemsize)
    if position + 1 + count * (2 if plain else spec.dtype.itemsize) - plain > source.size:
        raise truncated(name)
    return spec, NetpbmExtras(plain, maximum, tuple(comments)), position + 1


def _read_plain(source: Source, spec: PageSpec, start: int) -> Pixels:
    """The numbers of a plain file."""
    text = _COMMENT.sub(b"", source.read()[start:])
    count = spec.width * spec.height * spec.channels
    if _NO_NUMBERS.search(text):
        raise damaged(source.name, "it has pixels that are not whole numbers")
    values = np.fromstring(text.decode("ascii"), np.int64, sep=" ")  # with a count it makes up what is missing
    if values.size < count:
        raise truncated(source.name)
    return values[:count].reshape(spec.shape)


def _plain_text(block: Pixels, per_line: int) -> bytes:
    """Numbers as text in lines of at most 70 characters; each row of the picture starts a line."""
    lines = []
    for row in block.reshape(block.shape[0], -1).tolist():
        words = [str(value) for value in row]
        lines += [" ".join(words[start : start + per_line]) for start in range(0, len(words), per_line)]
    return ("\n".join(lines) + "\n").encode("ascii")
