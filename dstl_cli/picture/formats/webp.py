"""WebP: lossless stays lossless; lossy is written lossy at quality 95, its alpha channel exactly."""

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from dstl_cli.picture.decoding.asking import decoded
from dstl_cli.picture.formats import other
from dstl_cli.picture.formats.exif import exif_dpi, exif_for_part
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels, join_alpha, split_alpha
from dstl_cli.picture.problems import damaged, truncated
from dstl_cli.picture.source import Source

Chunk = tuple[bytes, bytes]  # type, data

QUALITY = 95
LOSSLESS_EFFORT = 25  # more takes many times as long for a file that is hardly smaller
_MOST_CHUNKS = 10_000
_EXIF = b"Exif\x00\x00"
_IMAGE_CHUNKS = {b"VP8 ", b"VP8L", b"ALPH"}
_FLAGS = {b"ICCP": 0x20, b"ALPH": 0x10, b"EXIF": 0x08, b"XMP ": 0x04}


def read(source: Source) -> Picture:
    """Read a still WebP file."""
    chunks = list(_chunks(source.name, source.read()))
    kinds = [kind for kind, _ in chunks]
    if b"ANIM" in kinds:
        return other.read(source)
    first = dict(reversed(chunks))
    image = next((kind for kind in kinds if kind in (b"VP8 ", b"VP8L")), None)
    if image is None:
        raise damaged(source.name, "it holds no pixels")
    width, height, alpha = _frame(source.name, image, first[image])
    alpha = alpha or b"ALPH" in kinds
    if b"VP8X" in kinds:
        canvas = first[b"VP8X"]
        if len(canvas) < 10 or [int.from_bytes(canvas[at : at + 3], "little") + 1 for at in (4, 7)] != [width, height]:
            raise damaged(source.name, "its pixels do not fit its header")
        alpha = alpha or bool(canvas[0] & _FLAGS[b"ALPH"])
    spec = PageSpec(height, width, 3, np.dtype(np.uint8), int(alpha))
    source.check_size(width, height, width * height * (3 + spec.extra))
    others = tuple((kind, body) for kind, body in chunks if kind not in _IMAGE_CHUNKS | {b"VP8X"})
    native = (image == b"VP8L", others)  # whether it is lossless, and what is carried over
    return Picture(source.name, (spec,), lambda _: _page(source, spec), _metadata(others), native)


def _page(source: Source, spec: PageSpec) -> Page:
    return split_alpha(decoded("webp", source.packed(), (spec.height, spec.width, 3 + spec.extra), spec.dtype))


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit RGB with optional alpha; grey is written as equal red, green and blue."""
    import imagecodecs

    lossless, chunks = picture.native or (picture.format != "jpeg", _chunks_from(picture.metadata))
    level = LOSSLESS_EFFORT if lossless else QUALITY
    rgb = np.dstack((colour, colour, colour)) if colour.ndim == 2 else colour
    encoded = bytes(imagecodecs.webp_encode(join_alpha(rgb, alpha), level, lossless=lossless))
    opaque = alpha is not None and bool((alpha == 255).all())  # which the encoder leaves out
    if (strip or not chunks) and not opaque:
        stream.write(encoded)
        return
    chunks = () if strip else chunks
    image = [chunk for chunk in _chunks(picture.name, encoded) if chunk[0] in _IMAGE_CHUNKS]
    if opaque:
        image = _with_opaque_alpha(image, colour.shape)
    kinds = {kind for kind, _ in (*chunks, *image)} | ({b"ALPH"} if alpha is not None else set())
    flags = sum(_FLAGS.get(kind, 0) for kind in kinds)
    height, width = colour.shape[:2]
    canvas = struct.pack("<I", flags) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    ordered = sorted((*image, *chunks), key=lambda chunk: chunk[0] != b"ICCP")  # the profile comes first
    parts = b"".join(_chunk(kind, body) for kind, body in ((b"VP8X", canvas), *ordered))
    stream.write(b"RIFF" + struct.pack("<I", len(parts) + 4) + b"WEBP" + parts)


def _with_opaque_alpha(image: list[Chunk], shape: tuple[int, ...]) -> list[Chunk]:
    """The pixels with alpha that is 255 everywhere: a flag where they are lossless, else a chunk of its own."""
    import imagecodecs

    (kind, body), *_ = image
    if kind == b"VP8L":
        return [(kind, body[:4] + bytes([body[4] | 0x10]) + body[5:])]
    flat = imagecodecs.webp_encode(np.full((*shape[:2], 3), 255, np.uint8), lossless=True)
    ((_, pixels),) = _chunks("", bytes(flat))  # alpha is coded as the green of lossless pixels, without their header
    return [(b"ALPH", b"\x01" + pixels[5:]), (kind, body)]


def cropped_native(picture: Picture, rows: slice, columns: slice) -> tuple[bool, tuple[Chunk, ...]]:
    """What is written beside a part of the picture."""
    lossless, chunks = picture.native
    size = columns.stop - columns.start, rows.stop - rows.start
    fitting = [
        (kind, exif_for_part(body.removeprefix(_EXIF), *size) if kind == b"EXIF" else body) for kind, body in chunks
    ]
    return lossless, tuple((kind, body) for kind, body in fitting if body is not None)


def _frame(name: str, kind: bytes, body: bytes) -> tuple[int, int, bool]:
    """Width, height, and whether there is alpha, of lossy or lossless pixel data."""
    if kind == b"VP8L":
        if len(body) < 5 or body[0] != 0x2F:
            raise damaged(name, "its lossless header is wrong")
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF), bool(bits >> 28 & 1)
    if len(body) < 10 or body[3:6] != b"\x9d\x01\x2a":
        raise damaged(name, "its lossy header is wrong")
    across, down = struct.unpack("<HH", body[6:10])
    return across & 0x3FFF, down & 0x3FFF, False


def _chunks(name: str, data: bytes) -> Iterator[Chunk]:
    """The chunks of a file."""
    end = 8 + int.from_bytes(data[4:8], "little")
    position, left = 12, _MOST_CHUNKS
    if len(data) < 12 or end > len(data):
        raise truncated(name)
    while position + 8 <= end:
        length = int.from_bytes(data[position + 4 : position + 8], "little")
        if position + 8 + length > end:
            raise truncated(name)
        yield data[position : position + 4], data[position + 8 : position + 8 + length]
        position += 8 + length + (length & 1)
        left -= 1
        if left < 0:
            raise damaged(name, f"it has more than {_MOST_CHUNKS} chunks")


def _chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk with its length, padded to an even size."""
    return kind + struct.pack("<I", len(body)) + body + b"\x00" * (len(body) & 1)


def _metadata(chunks: tuple[Chunk, ...]) -> Metadata:
    """What other formats can hold as well."""
    found = dict(reversed(chunks))
    exif = found.get(b"EXIF", b"").removeprefix(_EXIF) or None
    return Metadata(icc=found.get(b"ICCP"), exif=exif, xmp=found.get(b"XMP "), dpi=exif_dpi(exif))


def _chunks_from(metadata: Metadata) -> tuple[Chunk, ...]:
    """Chunks for the metadata of another format."""
    chunks = ((b"ICCP", metadata.icc), (b"EXIF", metadata.exif), (b"XMP ", metadata.xmp))
    return tuple((kind, body) for kind, body in chunks if body is not None)
