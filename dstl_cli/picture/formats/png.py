"""PNG: every depth and colour type in, 8 or 16 bit out, with all other chunks carried over."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from dstl_cli.picture.decoding.asking import decoded, filled
from dstl_cli.picture.decoding.decoders import PNG_SIGNATURE, png_chunk
from dstl_cli.picture.formats import other
from dstl_cli.picture.formats.exif import exif_for_part
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels, dots_per_inch, join_alpha, split_alpha
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import Source

Chunk = tuple[bytes, bytes]  # type, data
Extras = tuple[list[Chunk], list[Chunk]]  # what is carried over, before and after the pixel data

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
_DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGB_ALPHA: (8, 16)}
_SAMPLES = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}
# Chunks that describe the colours or the moment, not the exact pixel bytes, although their names
# say "unsafe to copy".
_KEPT_UNSAFE = {b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"cICP", b"mDCV", b"cLLI", b"bKGD", b"tIME"}
_XMP_START = b"XML:com.adobe.xmp\x00"
_LONGEST_TEXT = 64 * 2**20
_MOST_CHUNKS, _BYTES_A_CHUNK = 10_000, 256  # so many chunks at least, and one more for so many bytes of the file
_NAMED = 3  # damaged chunks that are named one by one
# On filtered photographs run lengths pack as well as the full search for matches, three times as fast.
_RUN_LENGTHS = 3
_LONGEST_SIDE = 1_000_000
# Adam7 interlacing: first row, first column, row step, column step of each pass.
_PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


@dataclass(frozen=True)
class PngHeader:
    """The fields of IHDR."""

    width: int
    height: int
    depth: int
    colour: int
    interlace: int

    @property
    def raw_bytes(self) -> int:
        """Bytes of all rows as stored without interlacing, each with its filter byte."""
        return (1 + (self.width * _SAMPLES[self.colour] * self.depth + 7) // 8) * self.height

    @property
    def dtype(self) -> np.dtype[np.uint8 | np.uint16]:
        """The type of the samples once decoded."""
        return np.dtype(np.uint16 if self.depth == 16 else np.uint8)

    @property
    def spread(self) -> int:
        """What low depths are multiplied by to fill 0..255."""
        return 255 // ((1 << self.depth) - 1) if self.depth < 8 else 1


def read(source: Source) -> Picture:
    """Read a PNG file."""
    header = _parse_header(source, source.lead(33))
    damaged_kinds: list[str] = []
    chunks = _without_more_pixels(_chunks(source.name, source.read(), damaged_kinds))
    notes = _left_out(damaged_kinds)
    first = dict(reversed(chunks))
    if b"acTL" in first and header.depth == 16:
        raise unsupported(source.name, "is an animated PNG of 16 bits", "split it into single frames first")
    if b"acTL" in first:
        return other.read(source)
    if b"IDAT" not in first:
        raise damaged(source.name, "it holds no pixels")
    parts = {kind: bytes(body) for kind, body in first.items() if kind in (b"PLTE", b"tRNS")}
    metadata = _metadata(chunks)
    grey = header.colour in (GREY, GREY_ALPHA)
    if header.colour == PALETTE:
        palette = parts.get(b"PLTE", b"")
        grey = metadata.icc is None and palette[0::3] == palette[1::3] == palette[2::3]
    alpha = header.colour in (GREY_ALPHA, RGB_ALPHA) or b"tRNS" in parts
    spec = PageSpec(header.height, header.width, 1 if grey else 3, header.dtype, int(alpha))
    extras = _extras(header, chunks, parts.get(b"PLTE", b""), spec)
    return Picture(source.name, (spec,), lambda _: _page(source, header, parts, grey), metadata, extras, notes)


def _page(source: Source, header: PngHeader, parts: dict[bytes, bytes], grey: bool) -> Page:
    """Decode the pixels; the file is read again, so that it is not held beside them."""
    chunks = _chunks(source.name, source.read(), [])
    bodies = [body for kind, body in chunks if kind == b"IDAT"]
    if header.colour == PALETTE:
        indices = _decode(header, bodies) // header.spread
        return _expand_palette(source.name, indices, header.depth, parts, grey)
    key = parts.get(b"tRNS") if header.colour in (GREY, RGB) else None
    if key is not None and len(key) != 2 * _SAMPLES[header.colour]:
        raise damaged(source.name, "its transparent colour is wrong")
    return split_alpha(_decode(header, bodies, key))


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8 or 16-bit grey or RGB with optional alpha."""
    import imagecodecs

    encoded = memoryview(imagecodecs.png_encode(join_alpha(colour, alpha), level=1, strategy=_RUN_LENGTHS))
    before, after = ([], []) if strip else picture.native or _extras_from(picture.metadata)
    header, end = len(PNG_SIGNATURE) + 25, len(encoded) - 12
    stream.write(encoded[:header])
    stream.write(b"".join(png_chunk(*chunk) for chunk in before))
    stream.write(encoded[header:end])
    stream.write(b"".join(png_chunk(*chunk) for chunk in after))
    stream.write(encoded[end:])


def cropped_native(picture: Picture, rows: slice, columns: slice) -> Extras:
    """The chunks that are written around a part of the picture."""
    size = columns.stop - columns.start, rows.stop - rows.start

    def fitting(chunks: list[Chunk]) -> list[Chunk]:
        made = [(kind, exif_for_part(body, *size) if kind == b"eXIf" else body) for kind, body in chunks]
        return [(kind, body) for kind, body in made if body is not None]

    before, after = picture.native
    return fitting(before), fitting(after)


# --- chunks -------------------------------------------------------------------------------------------


def _parse_header(source: Source, lead: bytes) -> PngHeader:
    """Check signature and IHDR, and the picture's size against the limits."""
    name = source.name
    if len(lead) < 33:
        raise truncated(name)
    width, height, depth, colour, method, filters, interlace = struct.unpack(">IIBBBBB", lead[16:29])
    right = lead[8:16] == b"\x00\x00\x00\rIHDR" and zlib.crc32(lead[12:29]) == int.from_bytes(lead[29:33], "big")
    if not right or depth not in _DEPTHS.get(colour, ()) or method or filters or interlace > 1:
        raise damaged(name, "its PNG header is wrong")
    header = PngHeader(width, height, depth, colour, interlace)
    source.check_size(width, height, header.raw_bytes)
    if max(width, height) > _LONGEST_SIDE:
        raise unsupported(name, f"has a side of more than {_LONGEST_SIDE} pixels", "cut it into pieces first")
    return header


def _chunks(name: str, data: bytes, damaged_kinds: list[str]) -> Iterator[tuple[bytes, memoryview]]:
    """The chunks up to IEND as (type, data), checked; of damaged extra chunks the types are told instead."""
    view = memoryview(data)
    position, kind = len(PNG_SIGNATURE), b""
    left = _MOST_CHUNKS + len(data) // _BYTES_A_CHUNK
    while kind != b"IEND":
        left -= 1
        if left < 0:
            raise damaged(name, "it has too many chunks for its length")
        end = position + 12 + int.from_bytes(view[position : position + 4], "big")
        if end > len(data):
            raise truncated(name)
        kind = bytes(view[position + 4 : position + 8])
        if zlib.crc32(view[position + 4 : end - 4]) == int.from_bytes(view[end - 4 : end], "big"):
            yield kind, view[position + 8 : end - 4]
        elif kind[0] & 0x20 and kind.isalpha() and kind != b"tRNS":
            damaged_kinds.append(kind.decode("ascii"))
        else:
            raise damaged(name, "a checksum is wrong")
        position = end


def _without_more_pixels(chunks: Iterator[tuple[bytes, memoryview]]) -> list[tuple[bytes, memoryview]]:
    """The chunks, of those with pixels the first only: there may be very many."""
    kept, behind = [], False
    for kind, body in chunks:
        if kind != b"IDAT" or not behind:
            kept.append((kind, body))
        behind = behind or kind == b"IDAT"
    return kept


def _left_out(kinds: list[str]) -> tuple[str, ...]:
    """Sentences on damaged chunks."""
    named = tuple(f"A damaged {kind} chunk was left out." for kind in dict.fromkeys(kinds))
    return named if len(named) <= _NAMED else (f"{len(kinds)} damaged chunks were left out.",)


# --- pixels -------------------------------------------------------------------------------------------


def _decode(header: PngHeader, bodies: list[memoryview], key: bytes | None = None) -> Pixels:
    """The samples of the deflated rows, (H, W) or (H, W, C); a transparent colour (key) gives one more, the alpha."""
    passes = [
        [*part, rows, columns, replace(header, width=columns, height=rows).raw_bytes]
        for part in (_PASSES if header.interlace else ((0, 0, 1, 1),))
        if (columns := len(range(part[1], header.width, part[3])))
        and (rows := len(range(part[0], header.height, part[2])))
    ]
    count = _SAMPLES[header.colour] + (key is not None)
    shape = (header.height, header.width, count)[: 2 + (count > 1)]
    colour = GREY if header.colour == PALETTE else header.colour  # the indices are wanted, not the colours
    facts = {"passes": passes, "depth": header.depth, "colour": colour, "key": None if key is None else key.hex()}
    return decoded("png", filled(bodies), shape, header.dtype, **facts)


def _expand_palette(name: str, indices: Pixels, depth: int, parts: dict[bytes, bytes], grey: bool) -> Page:
    """Replace palette indices, (H, W), by their colours; a grey palette gives a grey picture."""
    stored = parts.get(b"PLTE", b"")
    opacity = parts.get(b"tRNS")
    entries = len(stored) // 3
    if not stored or len(stored) % 3 or entries > 1 << depth or len(opacity or b"") > entries:
        raise damaged(name, "its palette is wrong")
    if int(indices.max()) >= entries:
        raise damaged(name, "it uses colours outside its palette")
    palette = np.frombuffer(stored, np.uint8).reshape(-1, 3)
    alpha = None if opacity is None else np.frombuffer(opacity.ljust(entries, b"\xff"), np.uint8)[indices]
    return (palette[:, 0] if grey else palette)[indices], alpha


# --- everything else ----------------------------------------------------------------------------------


def _extras(header: PngHeader, chunks: list[tuple[bytes, memoryview]], palette: bytes, spec: PageSpec) -> Extras:
    """The chunks worth carrying over, in terms of the expanded picture."""
    extras: Extras = ([], [])
    behind = False
    for kind, view in chunks:
        behind = behind or kind == b"IDAT"
        ancillary, safe = kind[0] & 0x20, kind[3] & 0x20
        if not ancillary or kind == b"tRNS" or not (safe or kind in _KEPT_UNSAFE):
            continue
        body = bytes(view)
        if kind == b"bKGD":
            body = _background(body, header, palette, spec.channels)
        if (kind != b"bKGD" or body) and (kind != b"sBIT" or len(body) == spec.channels + spec.extra):
            extras[behind].append((kind, body))
    return extras


def _background(body: bytes, header: PngHeader, palette: bytes, channels: int) -> bytes:
    """The background colour as samples of the expanded picture; empty when it makes no sense."""
    if header.colour == PALETTE:
        entry = palette[3 * body[0] : 3 * body[0] + 3] if len(body) == 1 else b""
        body = b"".join(bytes((0, value)) for value in entry)
    elif header.depth < 8:
        value = int.from_bytes(body, "big") & ((1 << header.depth) - 1)
        body = struct.pack(">H", value * header.spread) if len(body) == 2 else b""
    return body[: 2 * channels] if len(body) in (2 * channels, 6) else b""


def _metadata(chunks: list[tuple[bytes, memoryview]]) -> Metadata:
    """What other formats can hold as well."""
    first = dict(reversed(chunks))
    profile, exif, resolution = (bytes(first.get(kind, b"")) for kind in (b"iCCP", b"eXIf", b"pHYs"))
    texts = (bytes(body) for kind, body in chunks if kind == b"iTXt" and body[: len(_XMP_START)] == _XMP_START)
    dpi = None
    if len(resolution) == 9 and resolution[8] == 1:  # in metres
        dpi = dots_per_inch(*struct.unpack(">II", resolution[:8]))
    return Metadata(
        icc=_inflate(profile.partition(b"\x00")[2][1:]),
        exif=exif or None,
        xmp=_international_text(next(texts, b"")),
        dpi=dpi,
    )


def _international_text(body: bytes) -> bytes | None:
    """The text of an iTXt chunk, in UTF-8: behind keyword, two bytes about its packing, language and translation."""
    rest = body.partition(b"\x00")[2]
    parts = rest[2:].split(b"\x00", 2)
    if len(parts) < 3:
        return None
    return _inflate(parts[2]) if rest[0] else parts[2]


def _inflate(packed: bytes) -> bytes | None:
    """Unpack a small deflate stream; None when it is damaged or unreasonably large."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, _LONGEST_TEXT)
    except zlib.error:
        return None
    return data if unpacker.eof else None


def _extras_from(metadata: Metadata) -> Extras:
    """Chunks for the metadata of another format."""
    icc, per_metre, xmp = metadata.icc, metadata.per_metre, metadata.xmp
    chunks = {
        b"iCCP": None if icc is None else b"ICC profile\x00\x00" + zlib.compress(icc),
        b"pHYs": None if per_metre is None else struct.pack(">IIB", *per_metre, 1),
        b"eXIf": metadata.exif,
        b"iTXt": None if xmp is None else _XMP_START + b"\x00\x00\x00\x00" + xmp,
    }
    return [(kind, body) for kind, body in chunks.items() if body is not None], []
