"""EXIF blocks: small TIFF structures inside JPEG, PNG and WebP files, and their relation to TIFF tags."""

import io
import struct
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction

from dstl_cli.errors import FileProblem
from dstl_cli.picture.formats import ifd as tags
from dstl_cli.picture.formats.ifd import EXIF_TAG, GPS_TAG, Entry, Ifd, IfdReader, IfdWriter, pick

DESCRIPTION, MAKE, MODEL, ORIENTATION, SOFTWARE, DATE, ARTIST = 270, 271, 272, 274, 305, 306, 315
COPYRIGHT = 33432
X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT = 282, 283, 296
WIDTH_TAGS, HEIGHT_TAGS = (256, 0xA002), (257, 0xA003)  # of the picture, in a main and in an EXIF directory
_COPY_PLACES = ((513, 514), (273, 279))  # where a small copy lies and how long it is: as JPEG, and as strips
_ENTRY_BYTES = 12  # tag, type, count and value
_ISO_TAGS = (0x8827, 0x8831, 0x8832, 0x8833)  # the usual one of 16 bits, and three of 32 for what that cannot hold
_ISO_BEYOND = 65_535  # what it says there
_PICTURE_TAGS = (DESCRIPTION, MAKE, MODEL, ORIENTATION, SOFTWARE, DATE, ARTIST, COPYRIGHT)


def parse_exif(blob: bytes | None) -> Ifd:
    """The main directory of an EXIF block with its EXIF and GPS directories; an empty one when it is damaged."""
    data, none = blob or b"", Ifd({})
    with suppress(FileProblem):
        return next(iter(IfdReader(io.BytesIO(data), len(data), "EXIF").directories()), none)
    return none


def exif_dpi(blob: bytes | None) -> tuple[float, float] | None:
    """The dots per inch an EXIF block states."""
    return resolution_dpi(parse_exif(blob))


def exif_iso(blob: bytes | None) -> int | None:
    """The ISO number of the camera that an EXIF block states; None where it states none."""
    ifd = parse_exif(blob).children.get(EXIF_TAG, Ifd({}))
    stated = [number for tag in _ISO_TAGS if (number := ifd.number(tag, 0)) > 0]
    return next((number for number in stated if number != _ISO_BEYOND), stated[0] if stated else None)


def exif_orientation(blob: bytes | None) -> int:
    """How a picture is to be turned for show, 1 to 8 as EXIF counts; 1, as it is stored, where nothing is stated."""
    stated = parse_exif(blob).number(ORIENTATION, 1)
    return stated if 1 <= stated <= 8 else 1


def resolution_dpi(ifd: Ifd) -> tuple[float, float] | None:
    """Dots per inch from the resolution tags of a directory."""
    values = [ifd.entries[tag].rational() for tag in (X_RESOLUTION, Y_RESOLUTION) if tag in ifd.entries]
    scale = {2: 1.0, 3: 2.54}.get(ifd.number(RESOLUTION_UNIT, 2))
    if scale is None or len(values) != 2 or not values[0] or not values[1]:
        return None
    return values[0] * scale, values[1] * scale


def resolution_tags(dpi: tuple[float, float]) -> dict[int, Entry]:
    """The tags for dots per inch, as fractions that are as close as 32 bits allow."""
    entries = {RESOLUTION_UNIT: tags.numbers(tags.SHORT, 2)}
    for tag, dots in zip((X_RESOLUTION, Y_RESOLUTION), dpi, strict=True):
        bounded = min(max(dots, 0.0), 2.0**32 - 1)
        fraction = Fraction(bounded).limit_denominator(min(10_000, int((2**32 - 1) / max(bounded, 1.0))))
        entries[tag] = tags.numbers(tags.RATIONAL, *fraction.as_integer_ratio())
    return entries


def exif_from_tiff(ifd: Ifd, *, plain_description: bool) -> bytes | None:
    """An EXIF block with what a TIFF directory says about the picture; None when it says nothing."""
    entries = pick(ifd.entries, (tag for tag in _PICTURE_TAGS if plain_description or tag != DESCRIPTION))
    children = pick(ifd.children, (EXIF_TAG, GPS_TAG))
    if not children and not set(entries) - {SOFTWARE}:
        return None
    entries |= pick(ifd.entries, (X_RESOLUTION, Y_RESOLUTION, RESOLUTION_UNIT))
    stream = io.BytesIO()
    IfdWriter(stream, "<", False, "EXIF").append(Ifd(entries, children))
    return stream.getvalue()


def tiff_tags_from_exif(blob: bytes) -> tuple[dict[int, Entry], dict[int, Ifd]]:
    """The tags and directories of an EXIF block that belong into a TIFF directory."""
    ifd = parse_exif(blob)
    return pick(ifd.entries, _PICTURE_TAGS), pick(ifd.children, (EXIF_TAG, GPS_TAG))


def exif_for_part(blob: bytes | None, width: int, height: int) -> bytes | None:
    """An EXIF block for a part of its picture: the size is the part's, and no small copy of the whole picture is left.

    It is changed in place, since makers' notes count their offsets from its start. None: it cannot be read.
    """
    if blob is None:
        return None
    try:
        reader = IfdReader(io.BytesIO(blob), len(blob), "EXIF")
        first, *others = reader.directories()
    except (FileProblem, ValueError):
        return None
    if reader.big:
        return None
    data, order = bytearray(blob), reader.order
    sizes = dict.fromkeys(WIDTH_TAGS, width) | dict.fromkeys(HEIGHT_TAGS, height)
    for ifd in (first, *pick(first.children, (EXIF_TAG,)).values()):
        for tag, place in _places(blob, ifd, order):
            if tag in sizes:
                struct.pack_into(order + "HII", data, place + 2, tags.LONG, 1, sizes[tag])
    for where, length in ((ifd.numbers(a), ifd.numbers(b)) for ifd in others for a, b in _COPY_PLACES):
        for start, size in zip(where, length, strict=False):
            end = min(start + size, len(data))
            data[start:end] = bytes(max(0, end - start))
    (count,) = struct.unpack_from(order + "H", blob, first.place)
    struct.pack_into(order + "I", data, first.place + 2 + _ENTRY_BYTES * count, 0)  # there is no second directory
    return bytes(data)


def _places(blob: bytes, ifd: Ifd, order: str) -> Iterator[tuple[int, int]]:
    """The tags of a directory in an EXIF block, and where the entry of each lies."""
    (count,) = struct.unpack_from(order + "H", blob, ifd.place)
    for place in range(ifd.place + 2, ifd.place + 2 + _ENTRY_BYTES * count, _ENTRY_BYTES):
        yield struct.unpack_from(order + "H", blob, place)[0], place
