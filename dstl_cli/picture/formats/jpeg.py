"""JPEG: grey and RGB in, quality 95 without colour subsampling out, all application segments carried over."""

import hashlib
import re
import struct
from typing import BinaryIO

import numpy as np

from dstl_cli.picture.formats.exif import exif_dpi
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import Source

Segment = tuple[int, bytes]  # marker, data

QUALITY = 95
_EOI, _SOS, _COM = 0xD9, 0xDA, 0xFE
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_KNOWN_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}
_BARE = {0x01, *range(0xD0, 0xD8)}
_MARKER = re.compile(rb"\xff+([^\x00\xff])", re.DOTALL)
_NEXT_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
_EXIF = b"Exif\x00\x00"
_XMP = b"http://ns.adobe.com/xap/1.0/\x00"
_EXTENDED_XMP = b"http://ns.adobe.com/xmp/extension/\x00"
_ICC = b"ICC_PROFILE\x00"
_LONGEST = 65_533
_SMALL_TAIL = 1024  # padding after the end is common


def read(source: Source) -> Picture:
    """Read a JPEG file; its APPn and comment segments are carried over."""
    data = source.read()
    segments, end = _segments(source.name, data)
    spec = _frame(source, [segment for segment in segments if segment[0] in _FRAMES])
    more = "Only the main picture is kept, not the previews or films stored behind it."
    notes = (more,) if len(data) - end > _SMALL_TAIL else ()
    kept = tuple(segment for segment in segments if _worth_keeping(*segment))
    return Picture(source.name, (spec,), lambda _: _page(source), _metadata(kept), kept, notes)


def _page(source: Source) -> Page:
    import imagecodecs

    return imagecodecs.jpeg8_decode(source.read()), None


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit grey or RGB."""
    import imagecodecs

    del alpha  # JPEG has none
    encoded = imagecodecs.jpeg8_encode(np.ascontiguousarray(colour), QUALITY, subsampling="444")
    carried = _segments_from(picture.metadata) if picture.native is None else picture.native
    segments = () if strip else carried
    own = encoded[2:4] == b"\xff\xe0"  # the encoder's own JFIF segment, replaced by the carried ones
    start = 4 + int.from_bytes(encoded[4:6], "big") if segments and own else 2
    stream.write(encoded[:2])
    for marker, body in segments:
        stream.write(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body)
    stream.write(memoryview(encoded)[start:])


# --- structure ----------------------------------------------------------------------------------------


def _segments(name: str, data: bytes) -> tuple[list[Segment], int]:
    """The segments up to the first scan, and where the picture ends; its scans must run up to an end marker."""
    found: list[Segment] = []
    position = 2
    while True:
        scanning = bool(found) and found[-1][0] == _SOS
        match = _NEXT_MARKER.search(data, position) if scanning else _MARKER.match(data, position)
        if match is None:
            cut = scanning or not data[position:].strip(b"\xff")
            raise truncated(name) if cut else damaged(name, "a segment does not start with a marker")
        marker, position = match[1][0], match.end()
        if marker in _BARE:
            continue
        if marker == _EOI:
            if not scanning:
                raise damaged(name, "it holds no pixels")
            return found, position
        length = int.from_bytes(data[position : position + 2], "big")
        if position + max(length, 2) > len(data):
            raise truncated(name)
        if length < 2:
            raise damaged(name, "a segment has no length")
        if not scanning:
            found.append((marker, data[position + 2 : position + length]))
        position += length


def _frame(source: Source, frames: list[Segment]) -> PageSpec:
    """Size and colours from the frame header, and whether this is a kind of JPEG that is read."""
    name = source.name
    if len(frames) != 1 or len(frames[0][1]) < 6:
        raise damaged(name, "it has no frame header, or two of them")
    precision, height, width, components = struct.unpack(">BHHB", frames[0][1][:6])
    if frames[0][0] not in _KNOWN_FRAMES or precision != 8:
        raise unsupported(name, f"is a {precision}-bit or lossless JPEG", "convert it to TIFF first")
    if components not in (1, 3):
        what = "holds CMYK colours" if components == 4 else f"has {components} colour channels"
        raise unsupported(name, what, "convert it to grey or RGB first")
    source.check_size(width, height, width * height * components)
    return PageSpec(height, width, components, np.dtype(np.uint8))


# --- metadata -----------------------------------------------------------------------------------------


def _worth_keeping(marker: int, body: bytes) -> bool:
    """Whether a segment says something that stays true for newly encoded pixels."""
    adobe = marker == 0xEE and body.startswith(b"Adobe")  # tells how the old scans were coded
    others = marker == 0xE2 and body.startswith(b"MPF\x00")  # offsets of further pictures in the old file
    return marker == _COM or (0xE0 <= marker <= 0xEF and not adobe and not others)


def _bodies(segments: tuple[Segment, ...], marker: int, start: bytes) -> list[bytes]:
    """What follows such a start in the segments that have it."""
    return [body[len(start) :] for kind, body in segments if kind == marker and body.startswith(start)]


def _metadata(segments: tuple[Segment, ...]) -> Metadata:
    """What other formats can hold as well."""
    exif, xmp = (next(iter(_bodies(segments, 0xE1, start)), None) for start in (_EXIF, _XMP))
    dpi = None
    for body in reversed(_bodies(segments, 0xE0, b"JFIF\x00")):
        unit, across, down = struct.unpack(">BHH", body[2:7].ljust(5, b"\x00"))
        scale = {1: 1.0, 2: 2.54}.get(unit, 0.0)
        dpi = (across * scale, down * scale) if scale * across * down else dpi
    pieces = [(body[0], body[1], body[2:]) for body in _bodies(segments, 0xE2, _ICC) if len(body) >= 2]
    profile = {number: piece for number, _, piece in reversed(pieces)}
    whole = bool(pieces) and sorted(profile) == list(range(1, pieces[-1][1] + 1))
    return Metadata(
        icc=b"".join(profile[number] for number in sorted(profile)) if whole else None,
        exif=exif or None,
        xmp=None if xmp is None else _whole_xmp(xmp, segments),
        dpi=dpi or exif_dpi(exif),
    )


def _segments_from(metadata: Metadata) -> tuple[Segment, ...]:
    """Segments for the metadata of another format; EXIF data and profiles that no segments can hold are left out."""
    unit, across, down = 0, 1, 1
    if metadata.dpi is not None:
        unit, across, down = 1, *(min(max(round(dots), 1), 65_535) for dots in metadata.dpi)
    segments = [(0xE0, b"JFIF\x00" + struct.pack(">BBBHHBB", 1, 1, unit, across, down, 0, 0))]
    if metadata.exif is not None:
        segments.append((0xE1, _EXIF + metadata.exif))
    if metadata.xmp is not None:
        segments += _xmp_segments(metadata.xmp)
    if metadata.icc is not None:
        step = _LONGEST - len(_ICC) - 2
        pieces = [metadata.icc[start : start + step] for start in range(0, len(metadata.icc), step)]
        if len(pieces) <= 255:
            segments += [(0xE2, _ICC + bytes((number, len(pieces))) + piece) for number, piece in enumerate(pieces, 1)]
    return tuple((marker, body) for marker, body in segments if len(body) <= _LONGEST)


# --- XMP that is longer than a segment (Adobe's XMP specification, part 3, section 1.1.3.1) --------------

_POINTER = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description rdf:about="" xmlns:xmpNote="http://ns.adobe.com/xmp/note/" xmpNote:HasExtendedXMP="%s"/>'
    b"</rdf:RDF></x:xmpmeta>"
)
_POINTS = re.compile(rb"""\s*xmpNote:HasExtendedXMP\s*=\s*["']([0-9A-Fa-f]{32})["']""")
_POINTER_ELEMENT = re.compile(rb"<xmpNote:HasExtendedXMP>\s*([0-9A-Fa-f]{32})\s*</xmpNote:HasExtendedXMP>")
_RDF = re.compile(rb"<rdf:RDF\b[^>]*>(.*)</rdf:RDF\s*>", re.DOTALL)
_WRAPPER = re.compile(rb"<\?xpacket\b[^>]*\?>")


def _xmp_segments(xmp: bytes) -> list[Segment]:
    """One segment, or for a long text a short one that points to it and the text in pieces."""
    if len(_XMP) + len(xmp) <= _LONGEST:
        return [(0xE1, _XMP + xmp)]
    text = _WRAPPER.sub(b"", xmp).strip()
    mark = hashlib.md5(text, usedforsecurity=False).hexdigest().upper().encode()
    step = _LONGEST - len(_EXTENDED_XMP) - len(mark) - 8
    pieces = [
        (0xE1, _EXTENDED_XMP + mark + struct.pack(">II", len(text), start) + text[start : start + step])
        for start in range(0, len(text), step)
    ]
    return [(0xE1, _XMP + _POINTER % mark), *pieces]


def _whole_xmp(xmp: bytes, segments: tuple[Segment, ...]) -> bytes:
    """The XMP text with the part that it says is in further segments; as it is when they are not all there."""
    found = _POINTS.search(xmp) or _POINTER_ELEMENT.search(xmp)
    if found is None:
        return xmp
    bodies = _bodies(segments, 0xE1, _EXTENDED_XMP + found[1])
    pieces = sorted((body[4:8], body[:4], body[8:]) for body in bodies)  # offset, length of the whole, text
    text = b"".join(piece for _, _, piece in pieces)
    if not pieces or len(text) != int.from_bytes(pieces[0][1], "big"):
        return xmp
    if xmp == _POINTER % found[1]:
        return text
    rest = xmp[: found.start()] + xmp[found.end() :]
    inner, outer = _RDF.search(text), _RDF.search(rest)
    return xmp if inner is None or outer is None else rest[: outer.end(1)] + inner[1] + rest[outer.end(1) :]
