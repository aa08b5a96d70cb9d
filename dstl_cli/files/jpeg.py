"""JPEG: grey and RGB in, quality 95 without colour subsampling out, all application segments carried over."""

import re
import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from dstl_cli.files.exif import exif_dpi
from dstl_cli.files.pictures import (
    ImageInfo,
    Metadata,
    Picture,
    Source,
    check_size,
    damaged,
    decoding,
    file_errors,
    single_page,
    truncated,
    unsupported,
)

QUALITY = 95
_EOI, _SOS, _COM = 0xD9, 0xDA, 0xFE
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_KNOWN_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}
_BARE = {0x01, *range(0xD0, 0xD8)}
_NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_EXIF = b"Exif\x00\x00"
_XMP = b"http://ns.adobe.com/xap/1.0/\x00"
_ICC = b"ICC_PROFILE\x00"
_LONGEST = 65_533
_SMALL_TAIL = 1024  # padding after the end is common


@dataclass(frozen=True)
class JpegExtras:
    """The APPn and comment segments to carry over, as (marker, data)."""

    segments: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class _Head:
    width: int
    height: int
    components: int
    segments: tuple[tuple[int, bytes], ...]
    scan_start: int


def probe(source: Source) -> ImageInfo:
    """Read the headers only."""
    with file_errors(source.name), source.open() as stream:
        head = _parse_head(source, stream)
    return ImageInfo(head.width, head.height, 1, head.components, False, np.dtype(np.uint8), "jpeg")


def read(source: Source) -> Picture:
    """Read a JPEG file."""
    import imagecodecs

    with file_errors(source.name), source.open() as stream:
        head = _parse_head(source, stream)
    data = source.read()
    end = _find_end(source.name, data, head.scan_start)
    with decoding(source.name):
        colour = imagecodecs.jpeg8_decode(data)
    shape = (head.height, head.width) if head.components == 1 else (head.height, head.width, head.components)
    if colour.dtype != np.uint8 or colour.shape != shape:
        raise damaged(source.name, "its pixels do not fit its header")
    kept = tuple((marker, body) for marker, body in head.segments if _worth_keeping(marker, body))
    notes: tuple[str, ...] = ()
    if len(data) - end > _SMALL_TAIL:
        notes = ("Only the main picture is kept, not the previews or films stored behind it.",)
    return single_page(source.name, "jpeg", colour, None, _metadata(kept), JpegExtras(kept), notes)


def write(picture: Picture, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit grey or RGB."""
    import imagecodecs

    encoded = imagecodecs.jpeg8_encode(np.ascontiguousarray(picture.pages[0]), QUALITY, subsampling="444")
    if strip:
        stream.write(encoded)
        return
    native = picture.native
    segments = native.segments if isinstance(native, JpegExtras) else _segments_from(picture.metadata)
    start = 2
    if segments and encoded[2:4] == b"\xff\xe0":  # the encoder's own JFIF segment, replaced by the carried ones
        start += 2 + int.from_bytes(encoded[4:6], "big")
    stream.write(encoded[:2])
    for marker, body in segments:
        stream.write(struct.pack(">BBH", 0xFF, marker, len(body) + 2))
        stream.write(body)
    stream.write(memoryview(encoded)[start:])


# --- structure ----------------------------------------------------------------------------------------


def _parse_head(source: Source, stream: BinaryIO) -> _Head:
    """Read the segments up to the first scan, and check what kind of JPEG this is."""
    name = source.name
    stream.seek(2)
    segments: list[tuple[int, bytes]] = []
    frame: tuple[int, bytes] | None = None
    while True:
        marker = _next_marker(name, stream)
        if marker in _BARE:
            continue
        if marker == _EOI:
            raise damaged(name, "it holds no pixels")
        lead = stream.read(2)
        length = int.from_bytes(lead, "big") - 2
        body = stream.read(length) if length >= 0 else b""
        if len(lead) < 2 or len(body) < length:
            raise truncated(name)
        if length < 0:
            raise damaged(name, "a segment has no length")
        if marker in _FRAMES:
            if frame is not None:
                raise damaged(name, "it has two frame headers")
            frame = (marker, body)
        elif marker == _SOS:
            break
        else:
            segments.append((marker, body))
    if frame is None or len(frame[1]) < 6:
        raise damaged(name, "it has no frame header")
    precision, height, width, components = struct.unpack(">BHHB", frame[1][:6])
    if frame[0] not in _KNOWN_FRAMES or precision != 8:
        raise unsupported(name, f"is a {precision}-bit or lossless JPEG", "convert it to TIFF first")
    if components == 4:
        raise unsupported(name, "holds CMYK colours", "convert it to RGB first")
    if components not in (1, 3):
        raise unsupported(name, f"has {components} colour channels", "convert it to grey or RGB first")
    check_size(source, width, height, width * height * components)
    return _Head(width, height, components, tuple(segments), stream.tell())


def _next_marker(name: str, stream: BinaryIO) -> int:
    """The code of the marker at the stream's position, after any fill bytes."""
    byte = stream.read(1)
    if byte and byte != b"\xff":
        raise damaged(name, "a segment does not start with a marker")
    while byte == b"\xff":
        byte = stream.read(1)
    if not byte:
        raise truncated(name)
    if byte == b"\x00":
        raise damaged(name, "a segment does not start with a marker")
    return byte[0]


def _find_end(name: str, data: bytes, position: int) -> int:
    """Where the picture ends; a file whose scans do not run up to an end marker is refused."""
    while True:
        match = _NEXT_MARKER.search(data, position)
        if match is None:
            raise truncated(name)
        marker = data[match.start() + 1]
        position = match.end()
        if marker == _EOI:
            return position
        if marker in _BARE:
            continue
        length = int.from_bytes(data[position : position + 2], "big")
        position += max(length, 2)


# --- metadata -----------------------------------------------------------------------------------------


def _worth_keeping(marker: int, body: bytes) -> bool:
    """Whether a segment says something that stays true for newly encoded pixels."""
    if marker == _COM:
        return True
    if not 0xE0 <= marker <= 0xEF:
        return False
    adobe = marker == 0xEE and body.startswith(b"Adobe")  # tells how the old scans were coded
    others = marker == 0xE2 and body.startswith(b"MPF\x00")  # offsets of further pictures in the old file
    return not adobe and not others


def _metadata(segments: tuple[tuple[int, bytes], ...]) -> Metadata:
    """What other formats can hold as well."""
    exif = xmp = dpi = None
    profile: dict[int, bytes] = {}
    total = 0
    for marker, body in segments:
        if marker == 0xE0 and body.startswith(b"JFIF\x00") and len(body) >= 12 and dpi is None:
            unit, across, down = struct.unpack(">BHH", body[7:12])
            scale = {1: 1.0, 2: 2.54}.get(unit)
            if scale and across and down:
                dpi = (across * scale, down * scale)
        elif marker == 0xE1 and body.startswith(_EXIF) and exif is None:
            exif = body[len(_EXIF) :]
        elif marker == 0xE1 and body.startswith(_XMP) and xmp is None:
            xmp = body[len(_XMP) :]
        elif marker == 0xE2 and body.startswith(_ICC) and len(body) >= 14:
            profile.setdefault(body[12], body[14:])
            total = body[13]
    whole = bool(profile) and sorted(profile) == list(range(1, total + 1))
    icc = b"".join(profile[index] for index in sorted(profile)) if whole else None
    if dpi is None and exif is not None:
        dpi = exif_dpi(exif)
    return Metadata(icc=icc, exif=exif or None, xmp=xmp, dpi=dpi)


def _segments_from(metadata: Metadata) -> tuple[tuple[int, bytes], ...]:
    """Segments for the metadata of another format; what is too long for a segment is left out."""
    unit, across, down = 0, 1, 1
    if metadata.dpi is not None:
        unit, across, down = 1, *(min(max(round(dots), 1), 65_535) for dots in metadata.dpi)
    segments = [(0xE0, b"JFIF\x00" + struct.pack(">BBBHHBB", 1, 1, unit, across, down, 0, 0))]
    if metadata.exif is not None:
        segments.append((0xE1, _EXIF + metadata.exif))
    if metadata.xmp is not None:
        segments.append((0xE1, _XMP + metadata.xmp))
    if metadata.icc is not None:
        step = _LONGEST - len(_ICC) - 2
        pieces = [metadata.icc[start : start + step] for start in range(0, len(metadata.icc), step)]
        if len(pieces) <= 255:
            segments += [(0xE2, _ICC + bytes((number, len(pieces))) + piece) for number, piece in enumerate(pieces, 1)]
    return tuple((marker, body) for marker, body in segments if len(body) <= _LONGEST)
