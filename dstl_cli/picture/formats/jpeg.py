"""JPEG: grey and RGB in, coded as it was out (else at quality 95), all application segments carried over."""

import hashlib
import io
import re
import struct
from dataclasses import dataclass, replace
from threading import Lock
from typing import BinaryIO

import numpy as np

from dstl_cli.picture.decoding.asking import decoded
from dstl_cli.picture.formats.exif import exif_dpi, exif_for_part
from dstl_cli.picture.formats.photoshop import without_small_copies
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import Source

Segment = tuple[int, bytes]  # marker, data

QUALITY = 95
_FULL_COLOUR = 90  # from this quality on no colour is subsampled
_SAMPLINGS = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0"}  # those that Pillow writes, in its order
_BUFFER = Lock()  # for Pillow's MAXBLOCK, of which there is one
_EOI, _SOS, _DQT, _COM = 0xD9, 0xDA, 0xDB, 0xFE
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_KNOWN_FRAMES = {0xC0, 0xC1, 0xC2, 0xC9, 0xCA}
_PROGRESSIVE = {0xC2, 0xCA}
_BARE = {0x01, *range(0xD0, 0xD8)}
_MARKER = re.compile(rb"\xff+([^\x00\xff])", re.DOTALL)
_NEXT_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
_EXIF = b"Exif\x00\x00"
_XMP = b"http://ns.adobe.com/xap/1.0/\x00"
_EXTENDED_XMP = b"http://ns.adobe.com/xmp/extension/\x00"
_ICC = b"ICC_PROFILE\x00"
_JFIF, _JFXX, _PHOTOSHOP = b"JFIF\x00", b"JFXX\x00", b"Photoshop 3.0\x00"
_LONGEST = 65_533
_MOST_SEGMENTS, _MOST_SCANS = 20_000, 200  # each scan of a progressive file goes over all pixels
_SMALL_TAIL = 1024  # padding after the end is common

# Where the coefficients of a block stand in its 64 numbers, in the order of the file: along the diagonals, to and fro.
_ZIGZAG = sorted(range(64), key=lambda at: (at // 8 + at % 8, (at // 8 if (at // 8 + at % 8) % 2 else at % 8)))


@dataclass(frozen=True)
class JpegCoding:
    """How the pixels of a JPEG file are coded, component by component: grey; Y, Cb, Cr; or, with `rgb`, R, G, B.

    tables: the 64 quantiser steps of each, row by row from that of the mean; one object where components share a table.
    sampling: the factors of each, across and down; the largest among the components is that of the pixels.
    """

    tables: tuple[tuple[int, ...], ...]
    sampling: tuple[tuple[int, int], ...]
    progressive: bool = False
    rgb: bool = False

    @property
    def written_sampling(self) -> tuple[tuple[int, int], bool]:
        """Pixels per colour sample, across and down, as it is written, and whether that is what it was.

        It is the coarsest of those that are written and in neither direction coarser than it was.
        """
        if len(self.sampling) == 1:
            return (1, 1), True
        across, down = (max(factors) for factors in zip(*self.sampling, strict=True))
        first, *others = ((across / h, down / v) for h, v in self.sampling)
        allowed = [(1, 1)] if self.rgb else list(_SAMPLINGS)
        chosen = max(way for way in allowed if all(way[0] <= h and way[1] <= v for h, v in others))
        return chosen, first == (1, 1) and all(other == chosen for other in others)

    @property
    def written_progressive(self) -> bool:
        """Whether it is written in progressive mode: libjpeg talks on stderr about other files with steps above 255."""
        return self.progressive or max(map(max, self.tables)) > 255


@dataclass(frozen=True)
class JpegExtras:
    """What a JPEG file is written with: its segments, and its coding or else the standard one of a quality."""

    segments: tuple[Segment, ...]
    coding: JpegCoding | None = None
    quality: int = QUALITY


def read(source: Source) -> Picture:
    """Read a JPEG file; its APPn and comment segments are carried over."""
    data = source.read()
    segments, end = _segments(source.name, data)
    frames = [segment for segment in segments if segment[0] in _FRAMES]
    spec = _frame(source, frames)
    coding = _coding(source.name, segments, frames[0])
    more = "Only the main picture is kept, not the previews or films stored behind it."
    notes = (more,) if len(data) - end > _SMALL_TAIL else ()
    kept = tuple(segment for segment in segments if _worth_keeping(*segment))
    return Picture(
        source.name, (spec,), lambda _: _page(source, spec), _metadata(kept), JpegExtras(kept, coding), notes
    )


def jpeg_coding(picture: Picture) -> JpegCoding | None:
    """How the pixels of a picture were coded that was read from JPEG; None for others, and where it is unusable."""
    return picture.native.coding if isinstance(picture.native, JpegExtras) else None


def coding_changes(picture: Picture) -> list[str]:
    """Sentences on what is not written as it was in a picture that was read from JPEG."""
    coding = jpeg_coding(picture)
    if coding is None:
        return [f"Its quantisation tables are not usable; the result has quality {QUALITY}."]
    way, same = coding.written_sampling
    sentences = [] if same else [f"Its colour sampling is not one that is written; the result has {_SAMPLINGS[way]}."]
    if coding.written_progressive != coding.progressive:
        sentences.append("Its quantisation steps above 255 are written in progressive mode.")
    return sentences


def at_quality(picture: Picture, quality: int) -> Picture:
    """The picture, to be written with the standard tables of a quality (1 to 100)."""
    return replace(picture, native=replace(_extras(picture), coding=None, quality=quality))


def _page(source: Source, spec: PageSpec) -> Page:
    return decoded("jpeg", source.packed(), spec.shape, spec.dtype), None


def _extras(picture: Picture) -> JpegExtras:
    """What to write beside the pixels of a picture that came from JPEG or from another format."""
    native: JpegExtras | None = picture.native
    return JpegExtras(_segments_from(picture.metadata)) if native is None else native


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit grey or RGB."""
    del alpha  # JPEG has none
    extras = _extras(picture)
    encoded = _encoded(np.ascontiguousarray(colour), extras)
    segments = () if strip else extras.segments
    own = encoded[2:4] == b"\xff\xe0"  # the encoder's own JFIF segment, replaced by the carried ones
    start = 4 + int.from_bytes(encoded[4:6], "big") if segments and own else 2
    stream.write(encoded[:2])
    for marker, body in segments:
        stream.write(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body)
    stream.write(memoryview(encoded)[start:])


def _encoded(colour: Pixels, extras: JpegExtras) -> bytes:
    """A JPEG file of the pixels alone."""
    if extras.coding is not None:
        return _encoded_as_before(colour, extras.coding)
    import imagecodecs

    subsampling = "420" if extras.quality < _FULL_COLOUR and colour.ndim == 3 else "444"
    return bytes(imagecodecs.jpeg8_encode(colour, extras.quality, subsampling=subsampling))


def _encoded_as_before(colour: Pixels, coding: JpegCoding) -> bytes:
    """The same with tables, sampling and mode of another file; by Pillow, as imagecodecs takes no tables."""
    from PIL import Image, ImageFile

    tables = list(coding.tables)
    while len(tables) > 1 and tables[-1] is tables[-2]:
        tables.pop()  # the encoder uses the last one for all further components
    options = {"progressive": coding.written_progressive, "optimize": True, "keep_rgb": coding.rgb}
    subsampling = list(_SAMPLINGS).index(coding.written_sampling[0])
    stream = io.BytesIO()
    with _BUFFER:
        before = ImageFile.MAXBLOCK
        try:
            ImageFile.MAXBLOCK = max(before, 3 * colour.size)  # pure noise takes half of it; Pillow expects less
            Image.fromarray(colour).save(stream, "JPEG", qtables=tables, subsampling=subsampling, **options)
        finally:
            ImageFile.MAXBLOCK = before
    return stream.getvalue()


# --- structure ----------------------------------------------------------------------------------------


def _segments(name: str, data: bytes) -> tuple[list[Segment], int]:
    """The segments up to the first scan, and where the picture ends; its scans must run up to an end marker."""
    found: list[Segment] = []
    position, seen, scans = 2, 0, 0
    while True:
        seen += 1
        if seen > _MOST_SEGMENTS or scans > _MOST_SCANS:
            what, most = ("segments", _MOST_SEGMENTS) if seen > _MOST_SEGMENTS else ("scans", _MOST_SCANS)
            raise damaged(name, f"it has more than {most} {what}")
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
        scans += marker == _SOS


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


def _coding(name: str, segments: list[Segment], frame: Segment) -> JpegCoding | None:
    """Tables, sampling and mode from the headers; None where a table is missing, or has a step of zero."""
    parts = [frame[1][start : start + 3] for start in range(6, 6 + 3 * frame[1][5], 3)]
    sampling = tuple((part[1] >> 4, part[1] & 15) for part in parts if len(part) == 3)
    if len(sampling) < len(parts) or not all(1 <= factor <= 4 for factors in sampling for factor in factors):
        raise damaged(name, "its frame header makes no sense")
    known = _tables(name, segments)
    tables = tuple(known[part[2]] for part in parts if part[2] in known)
    if len(tables) < len(parts) or 0 in map(min, tables):
        return None
    rgb = len(parts) == 3 and _stored_as_rgb(segments, bytes(part[0] for part in parts))
    return JpegCoding(tables, sampling, frame[0] in _PROGRESSIVE, rgb)


def _tables(name: str, segments: list[Segment]) -> dict[int, tuple[int, ...]]:
    """The quantisation tables by their numbers."""
    tables = {}
    for rest in (body for marker, body in segments if marker == _DQT):
        while rest:
            wide, number = rest[0] >> 4, rest[0] & 15
            end = 1 + 64 * (1 + wide)
            if wide > 1 or number > 3 or len(rest) < end:
                raise damaged(name, "a quantisation table makes no sense")
            steps = np.zeros(64, np.int64)
            steps[_ZIGZAG] = np.frombuffer(rest[1:end], ">u2" if wide else "u1")
            tables[number], rest = tuple(steps.tolist()), rest[end:]
    return tables


def _stored_as_rgb(segments: list[Segment], names: bytes) -> bool:
    """Whether a decoder takes three components for red, green and blue: the rule of libjpeg."""
    if any(marker == 0xE0 and body.startswith(b"JFIF\x00") and len(body) >= 14 for marker, body in segments):
        return False
    adobe = [body[11] for marker, body in segments if marker == 0xEE and body.startswith(b"Adobe") and len(body) >= 12]
    return adobe[-1] == 0 if adobe else names == b"RGB"


# --- metadata -----------------------------------------------------------------------------------------


def _worth_keeping(marker: int, body: bytes) -> bool:
    """Whether a segment says something that stays true for newly encoded pixels."""
    adobe = marker == 0xEE and body.startswith(b"Adobe")  # tells how the old scans were coded
    others = marker == 0xE2 and body.startswith(b"MPF\x00")  # offsets of further pictures in the old file
    return marker == _COM or (0xE0 <= marker <= 0xEF and not adobe and not others)


def cropped_native(picture: Picture, rows: slice, columns: slice) -> JpegExtras:
    """What is written around a part of the picture: sizes are the part's, small copies of the whole are left out."""
    native: JpegExtras = picture.native
    size = columns.stop - columns.start, rows.stop - rows.start
    segments = [(marker, _segment_for_part(marker, body, size)) for marker, body in native.segments]
    return replace(native, segments=tuple((marker, body) for marker, body in segments if body is not None))


def _segment_for_part(marker: int, body: bytes, size: tuple[int, int]) -> bytes | None:
    """What a segment says of a part of the picture of such a width and height; None: nothing."""
    if marker == 0xE0 and body.startswith(_JFXX):
        return None
    if marker == 0xE0 and body.startswith(_JFIF) and len(body) > 14:
        return body[:12] + b"\x00\x00"
    if marker == 0xE1 and body.startswith(_EXIF):
        exif = exif_for_part(body.removeprefix(_EXIF), *size)
        return None if exif is None else _EXIF + exif
    if marker == 0xED and body.startswith(_PHOTOSHOP):
        return _PHOTOSHOP + without_small_copies(body.removeprefix(_PHOTOSHOP))
    return body


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
_POINTS = re.compile(rb"""xmpNote:HasExtendedXMP\s*=\s*["']([0-9A-Fa-f]{32})["']""")
_POINTER_ELEMENT = re.compile(rb"<xmpNote:HasExtendedXMP>\s*([0-9A-Fa-f]{32})\s*</xmpNote:HasExtendedXMP>")
_RDF_START, _RDF_END = re.compile(rb"<rdf:RDF\b[^<>]*>"), b"</rdf:RDF"
_WRAPPER = re.compile(rb"<\?xpacket\b[^<>]*\?>")


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
    rest = xmp[: found.start()].rstrip() + xmp[found.end() :]
    inner, outer = _inside_rdf(text), _inside_rdf(rest)
    return xmp if inner is None or outer is None else rest[: outer.stop] + text[inner] + rest[outer.stop :]


def _inside_rdf(text: bytes) -> slice | None:
    """What lies between the first start and the last end of an RDF element; None where there is none."""
    start, end = _RDF_START.search(text), text.rfind(_RDF_END)
    return None if start is None or end < start.end() else slice(start.end(), end)
