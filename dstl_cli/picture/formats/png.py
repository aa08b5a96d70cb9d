"""PNG: every depth and colour type in, 8 or 16 bit out, with all other chunks carried over."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from dstl_cli.picture.formats import other
from dstl_cli.picture.limits import check_size
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels, join_alpha, split_alpha
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import Source

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
_DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGB_ALPHA: (8, 16)}
_SAMPLES = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}
# Chunks that describe the colours or the moment, not the exact pixel bytes, although their names
# say "unsafe to copy".
_KEPT_UNSAFE = {b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"cICP", b"mDCV", b"cLLI", b"bKGD", b"tIME"}
_XMP_KEYWORD = b"XML:com.adobe.xmp"
_INCH = 0.0254
# On filtered photographs run lengths pack as well as the full search for matches, three times as fast.
_RUN_LENGTHS = 3
_LONGEST_SIDE = 1_000_000
_BLOCK, _INFLATED_BLOCK = 2**16, 2**20
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


@dataclass(frozen=True)
class PngExtras:
    """The chunks to carry over, before and after the pixel data, as (type, data)."""

    before: tuple[tuple[bytes, bytes], ...]
    after: tuple[tuple[bytes, bytes], ...]


def read(source: Source) -> Picture:
    """Read a PNG file."""
    header = _parse_header(source, source.lead(33))
    notes: list[str] = []
    chunks = list(_chunks(source.name, source.read(), notes))
    kinds = {kind for kind, _ in chunks}
    if b"acTL" in kinds and header.depth == 16:
        raise unsupported(source.name, "is an animated PNG of 16 bits", "split it into single frames first")
    if b"acTL" in kinds:
        return other.read(source)
    if b"IDAT" not in kinds:
        raise damaged(source.name, "it holds no pixels")
    first = {kind: bytes(body) for kind, body in reversed(chunks) if kind in (b"PLTE", b"tRNS")}
    extras = _extras(header, chunks, first)
    metadata = _metadata(extras)
    grey = header.colour in (GREY, GREY_ALPHA)
    if header.colour == PALETTE:
        palette = first.get(b"PLTE", b"")
        grey = metadata.icc is None and palette[0::3] == palette[1::3] == palette[2::3]
    alpha = header.colour in (GREY_ALPHA, RGB_ALPHA) or b"tRNS" in first
    dtype = np.dtype(np.uint16 if header.depth == 16 else np.uint8)
    spec = PageSpec(header.height, header.width, 1 if grey else 3, dtype, int(alpha))
    return Picture(source.name, (spec,), lambda _: _page(source, header, first, grey), metadata, extras, tuple(notes))


def _page(source: Source, header: PngHeader, parts: dict[bytes, bytes], grey: bool) -> Page:
    """Decode the pixels; the file is read again, so that it is not held beside them."""
    chunks = _chunks(source.name, source.read(), [])
    samples = _decode(source.name, header, b"".join(body for kind, body in chunks if kind == b"IDAT"))
    if header.colour == PALETTE:
        return _expand_palette(source.name, samples, header.depth, parts, grey)
    colour, alpha = split_alpha(samples)
    if alpha is None and b"tRNS" in parts:
        alpha = _key_to_alpha(source.name, colour, header.depth, parts[b"tRNS"])
    return colour, alpha


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8 or 16-bit grey or RGB with optional alpha."""
    import imagecodecs

    samples = join_alpha(colour, alpha)
    encoded = imagecodecs.png_encode(samples, level=1, strategy=_RUN_LENGTHS)
    if strip:
        extras = PngExtras((), ())
    elif isinstance(picture.native, PngExtras):
        extras = _fit_extras(picture.native, samples)
    else:
        extras = _extras_from(picture.metadata)
    end_of_header = len(SIGNATURE) + 25
    start_of_end = len(encoded) - 12
    stream.write(memoryview(encoded)[:end_of_header])
    stream.write(b"".join(_chunk(kind, body) for kind, body in extras.before))
    stream.write(memoryview(encoded)[end_of_header:start_of_end])
    stream.write(b"".join(_chunk(kind, body) for kind, body in extras.after))
    stream.write(memoryview(encoded)[start_of_end:])


# --- chunks -------------------------------------------------------------------------------------------


def _parse_header(source: Source, lead: bytes) -> PngHeader:
    """Check signature and IHDR, and the picture's size against the limits."""
    name = source.name
    if len(lead) < 33:
        raise truncated(name)
    if lead[8:16] != b"\x00\x00\x00\rIHDR" or zlib.crc32(lead[12:29]) != int.from_bytes(lead[29:33], "big"):
        raise damaged(name, "its PNG header is wrong")
    width, height, depth, colour, method, filters, interlace = struct.unpack(">IIBBBBB", lead[16:29])
    if depth not in _DEPTHS.get(colour, ()) or method or filters or interlace > 1:
        raise damaged(name, "its PNG header is wrong")
    header = PngHeader(width, height, depth, colour, interlace)
    check_size(source, width, height, header.raw_bytes)
    if max(width, height) > _LONGEST_SIDE:
        raise unsupported(name, f"has a side of more than {_LONGEST_SIDE} pixels", "cut it into pieces first")
    return header


def _chunks(name: str, data: bytes, notes: list[str]) -> Iterator[tuple[bytes, memoryview]]:
    """The chunks up to IEND as (type, data), checked; damaged extra chunks are left out."""
    view = memoryview(data)
    position = len(SIGNATURE)
    while True:
        if position + 12 > len(data):
            raise truncated(name)
        length = int.from_bytes(view[position : position + 4], "big")
        end = position + 12 + length
        kind = bytes(view[position + 4 : position + 8])
        if end > len(data):
            raise truncated(name)
        good = zlib.crc32(view[position + 4 : end - 4]) == int.from_bytes(view[end - 4 : end], "big")
        if good:
            yield kind, view[position + 8 : end - 4]
        elif kind[0] & 0x20 and kind.isalpha() and kind != b"tRNS":
            notes.append(f"A damaged {kind.decode('ascii')} chunk was left out.")
        else:
            raise damaged(name, "a checksum is wrong")
        if kind == b"IEND":
            return
        position = end


def _chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


# --- pixels -------------------------------------------------------------------------------------------


def _decode(name: str, header: PngHeader, packed: bytes) -> Pixels:
    """The stored samples, (H, W) or (H, W, C), of the deflated rows.

    The decoder prints about odd streams and interlacing; it gets to see only plain ones.
    """
    if not header.interlace:
        plain = _inflated_size(name, packed, header.raw_bytes) == header.raw_bytes
        return _decode_plain(header, packed if plain else zlib.compress(_inflated(packed, header.raw_bytes), 0))
    passes = [
        (part, replace(header, width=columns, height=rows, interlace=0))
        for part in _PASSES
        if (columns := len(range(part[1], header.width, part[3])))
        and (rows := len(range(part[0], header.height, part[2])))
    ]
    total = sum(small.raw_bytes for _, small in passes)
    _inflated_size(name, packed, total)
    raw = memoryview(_inflated(packed, total))
    count = _SAMPLES[header.colour]
    shape = (header.height, header.width) if count == 1 else (header.height, header.width, count)
    samples = np.empty(shape, np.uint16 if header.depth == 16 else np.uint8)
    for (top, left, down, across), small in passes:
        samples[top::down, left::across] = _decode_plain(small, zlib.compress(raw[: small.raw_bytes], 0))
        raw = raw[small.raw_bytes :]
    return samples


def _decode_plain(header: PngHeader, packed: bytes) -> Pixels:
    """Decode deflated rows; palette indices are called grey, so that they come as they are."""
    import imagecodecs

    colour = GREY if header.colour == PALETTE else header.colour
    fields = struct.pack(">IIBBBBB", header.width, header.height, header.depth, colour, 0, 0, 0)
    pieces = [_chunk(b"IDAT", packed[start : start + 2**30]) for start in range(0, len(packed), 2**30)]
    file = b"".join((SIGNATURE, _chunk(b"IHDR", fields), *pieces, _chunk(b"IEND", b"")))
    return np.asarray(imagecodecs.png_decode(file))


def _inflated_size(name: str, packed: bytes, wanted: int) -> int:
    """The size of a deflate stream of at least `wanted` bytes, counted up to a little more."""
    unpacker = zlib.decompressobj()
    size = 0
    try:
        for start in range(0, len(packed), _BLOCK):
            data, found = packed[start : start + _BLOCK], _INFLATED_BLOCK
            while (data or found == _INFLATED_BLOCK) and not unpacker.eof and size <= wanted:
                found = len(unpacker.decompress(data, _INFLATED_BLOCK))
                size += found
                data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise damaged(name, "its pixels do not decode") from error
    if size < wanted or (size == wanted and not unpacker.eof):
        raise damaged(name, "its pixels are cut short")
    return size


def _inflated(packed: bytes, wanted: int) -> bytes:
    """The first bytes of a deflate stream that has been checked to hold them."""
    return zlib.decompressobj().decompress(packed, wanted)


def _expand_palette(name: str, samples: Pixels, depth: int, parts: dict[bytes, bytes], grey: bool) -> Page:
    """Replace palette indices, (H, W), by their colours; a grey palette gives a grey picture."""
    stored = parts.get(b"PLTE", b"")
    opacity = parts.get(b"tRNS")
    entries = len(stored) // 3
    if not stored or len(stored) % 3 or entries > 1 << depth or len(opacity or b"") > entries:
        raise damaged(name, "its palette is wrong")
    indices = samples // (255 // ((1 << depth) - 1)) if depth < 8 else samples
    if int(indices.max()) >= entries:
        raise damaged(name, "it uses colours outside its palette")
    palette = np.frombuffer(stored, np.uint8).reshape(-1, 3)
    alpha = None if opacity is None else np.frombuffer(opacity.ljust(entries, b"\xff"), np.uint8)[indices]
    return (palette[:, 0] if grey else palette)[indices], alpha


def _key_to_alpha(name: str, colour: Pixels, depth: int, key: bytes) -> Pixels:
    """The alpha that a transparent colour key stands for, in the colours' own dtype."""
    channels = 1 if colour.ndim == 2 else 3
    if len(key) != 2 * channels:
        raise damaged(name, "its transparent colour is wrong")
    values = np.frombuffer(key, ">u2").astype(np.int64) & ((1 << depth) - 1)
    if depth < 8:
        values *= 255 // ((1 << depth) - 1)
    wanted = values.astype(colour.dtype)
    clear = colour == wanted[0] if channels == 1 else (colour == wanted).all(axis=2)
    return np.where(clear, 0, np.iinfo(colour.dtype).max).astype(colour.dtype)


# --- everything else ----------------------------------------------------------------------------------


def _extras(header: PngHeader, chunks: list[tuple[bytes, memoryview]], parts: dict[bytes, bytes]) -> PngExtras:
    """The chunks worth carrying over, with the background colour in terms of the expanded picture."""
    before: list[tuple[bytes, bytes]] = []
    after: list[tuple[bytes, bytes]] = []
    target = before
    for kind, view in chunks:
        if kind == b"IDAT":
            target = after
        ancillary = bool(kind[0] & 0x20)
        safe = bool(kind[3] & 0x20)
        if not ancillary or kind == b"tRNS" or not (safe or kind in _KEPT_UNSAFE):
            continue
        body: bytes | None = bytes(view)
        if kind == b"bKGD":
            body = _expand_background(bytes(view), header, parts.get(b"PLTE", b""))
        if body is not None:
            target.append((kind, body))
    return PngExtras(tuple(before), tuple(after))


def _expand_background(body: bytes, header: PngHeader, palette: bytes) -> bytes | None:
    """The background colour as samples of the expanded picture, or None when it makes no sense."""
    if header.colour == PALETTE:
        entry = palette[3 * body[0] : 3 * body[0] + 3] if len(body) == 1 else b""
        return bytes((0, entry[0], 0, entry[1], 0, entry[2])) if len(entry) == 3 else None
    if header.depth < 8:
        if len(body) != 2:
            return None
        value = int.from_bytes(body, "big") & ((1 << header.depth) - 1)
        return struct.pack(">H", value * (255 // ((1 << header.depth) - 1)))
    return body


def _fit_extras(extras: PngExtras, samples: Pixels) -> PngExtras:
    """Make the few chunks that depend on the number of samples fit the samples to be written."""
    count = 1 if samples.ndim == 2 else samples.shape[2]
    colours = 1 if count < 3 else 3

    def fit(kind: bytes, body: bytes) -> tuple[bytes, bytes] | None:
        if kind == b"sBIT" and len(body) != count:
            return None
        if kind == b"bKGD" and len(body) != 2 * colours:
            return (kind, body[:2]) if len(body) == 6 and colours == 1 else None
        return kind, body

    before = (fit(kind, body) for kind, body in extras.before)
    return PngExtras(tuple(item for item in before if item is not None), extras.after)


def _metadata(extras: PngExtras) -> Metadata:
    """What other formats can hold as well."""
    found: dict[bytes, bytes] = {}
    xmp = None
    for kind, body in extras.before + extras.after:
        found.setdefault(kind, body)
        if xmp is None and kind == b"iTXt" and body.startswith(_XMP_KEYWORD + b"\x00"):
            xmp = _international_text(body)
    return Metadata(
        icc=_icc(found.get(b"iCCP")), exif=found.get(b"eXIf") or None, xmp=xmp, dpi=_dpi(found.get(b"pHYs"))
    )


def _icc(body: bytes | None) -> bytes | None:
    """The profile inside an iCCP chunk."""
    if body is None:
        return None
    _, _, packed = body.partition(b"\x00")
    return _inflate(packed[1:])


def _international_text(body: bytes) -> bytes | None:
    """The text of an iTXt chunk, in UTF-8."""
    _, _, rest = body.partition(b"\x00")
    if len(rest) < 2:
        return None
    parts = rest[2:].split(b"\x00", 2)
    if len(parts) < 3:
        return None
    return _inflate(parts[2]) if rest[0] else parts[2]


def _inflate(packed: bytes) -> bytes | None:
    """Unpack a small deflate stream; None when it is damaged or unreasonably large."""
    limit = 64 * 2**20
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, limit)
    except zlib.error:
        return None
    return data if unpacker.eof else None


def _dpi(body: bytes | None) -> tuple[float, float] | None:
    """Dots per inch from a pHYs chunk that states metres."""
    if body is None or len(body) != 9 or body[8] != 1:
        return None
    across, down = struct.unpack(">II", body[:8])
    return (across * _INCH, down * _INCH) if across and down else None


def _extras_from(metadata: Metadata) -> PngExtras:
    """Chunks for the metadata of another format."""
    before: list[tuple[bytes, bytes]] = []
    if metadata.icc is not None:
        before.append((b"iCCP", b"ICC profile\x00\x00" + zlib.compress(metadata.icc)))
    if metadata.dpi is not None:
        across, down = (min(max(round(dots / _INCH), 1), 2**31 - 1) for dots in metadata.dpi)
        before.append((b"pHYs", struct.pack(">IIB", across, down, 1)))
    if metadata.exif is not None:
        before.append((b"eXIf", metadata.exif))
    if metadata.xmp is not None:
        before.append((b"iTXt", _XMP_KEYWORD + b"\x00\x00\x00\x00\x00" + metadata.xmp))
    return PngExtras(tuple(before), ())
