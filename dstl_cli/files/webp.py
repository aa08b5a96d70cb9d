"""WebP: lossless stays lossless; lossy is written lossy at quality 95, its alpha channel exactly."""

import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from dstl_cli.files.exif import exif_dpi
from dstl_cli.files.pictures import (
    ImageInfo,
    Metadata,
    Picture,
    Pixels,
    Source,
    check_size,
    damaged,
    decoding,
    file_errors,
    single_page,
    split_alpha,
    truncated,
    unsupported,
)

QUALITY = 95
LOSSLESS_EFFORT = 25  # more takes many times as long for a file that is hardly smaller
_EXIF = b"Exif\x00\x00"
_IMAGE_CHUNKS = {b"VP8 ", b"VP8L", b"ALPH"}
_FLAGS = {b"ICCP": 0x20, b"ALPH": 0x10, b"EXIF": 0x08, b"XMP ": 0x04}


@dataclass(frozen=True)
class WebpExtras:
    """Whether the file was lossless, and its other chunks as (type, data)."""

    lossless: bool
    chunks: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class _Head:
    width: int
    height: int
    has_alpha: bool
    lossless: bool
    extras: tuple[tuple[bytes, bytes], ...]


def probe(source: Source) -> ImageInfo:
    """Read the headers only."""
    with file_errors(source.name), source.open() as stream:
        head = _parse(source, stream)
    return ImageInfo(head.width, head.height, 1, 3, head.has_alpha, np.dtype(np.uint8), "webp")


def read(source: Source) -> Picture:
    """Read a still WebP file."""
    import imagecodecs

    with file_errors(source.name), source.open() as stream:
        head = _parse(source, stream)
    with decoding(source.name):
        samples = imagecodecs.webp_decode(source.read(), hasalpha=head.has_alpha)
    if samples.shape != (head.height, head.width, 4 if head.has_alpha else 3):
        raise damaged(source.name, "its pixels do not fit its header")
    colour, alpha = split_alpha(samples)
    extras = WebpExtras(head.lossless, head.extras)
    return single_page(source.name, "webp", colour, alpha, _metadata(head.extras), extras)


def write(picture: Picture, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit RGB with optional alpha; grey is written as equal red, green and blue."""
    import imagecodecs

    colour, alpha = picture.pages[0], picture.alphas[0]
    native = picture.native if isinstance(picture.native, WebpExtras) else None
    lossless = native.lossless if native is not None else picture.format != "jpeg"
    level = LOSSLESS_EFFORT if lossless else QUALITY
    encoded = bytes(imagecodecs.webp_encode(_rgb_samples(colour, alpha), level, lossless=lossless))
    extras: tuple[tuple[bytes, bytes], ...] = ()
    if not strip:
        extras = native.chunks if native is not None else _chunks_from(picture.metadata)
    if not extras:
        stream.write(encoded)
        return
    image = [(kind, body) for kind, body in _encoded_chunks(encoded) if kind in _IMAGE_CHUNKS]
    flags = 0x10 if alpha is not None else 0
    for kind, _ in (*extras, *image):
        flags |= _FLAGS.get(kind, 0)
    height, width = colour.shape[:2]
    canvas = struct.pack("<I", flags) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    first = [(kind, body) for kind, body in extras if kind == b"ICCP"]
    last = [(kind, body) for kind, body in extras if kind != b"ICCP"]
    chunks = b"".join(_chunk(kind, body) for kind, body in ((b"VP8X", canvas), *first, *image, *last))
    stream.write(b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP")
    stream.write(chunks)


def _rgb_samples(colour: Pixels, alpha: Pixels | None) -> Pixels:
    """Contiguous (H, W, 3) or (H, W, 4) samples."""
    if colour.ndim == 2:
        colour = np.repeat(colour[:, :, np.newaxis], 3, axis=2)
    return np.ascontiguousarray(colour) if alpha is None else np.dstack((colour, alpha))


def _parse(source: Source, stream: BinaryIO) -> _Head:
    """Read the chunk list: size, kind of coding, and the chunks to carry over."""
    name = source.name
    lead = stream.read(12)
    end = 8 + int.from_bytes(lead[4:8], "little")
    if len(lead) < 12 or end > source.size:
        raise truncated(name)
    extras: list[tuple[bytes, bytes]] = []
    size: tuple[int, int] | None = None
    canvas: tuple[int, int] | None = None
    has_alpha = lossless = False
    position = 12
    while position + 8 <= end:
        stream.seek(position)
        header = stream.read(8)
        kind, length = header[:4], int.from_bytes(header[4:], "little")
        if position + 8 + length > end:
            raise truncated(name)
        if kind in (b"ANIM", b"ANMF"):
            raise unsupported(name, "is an animated WebP", "split it into single frames first")
        if kind == b"VP8X":
            body = stream.read(min(length, 10))
            if len(body) < 10:
                raise damaged(name, "its header is too short")
            if body[0] & 0x02:
                raise unsupported(name, "is an animated WebP", "split it into single frames first")
            canvas = (1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little"))
            has_alpha = has_alpha or bool(body[0] & 0x10)
        elif kind == b"VP8L" and size is None:
            body = stream.read(min(length, 5))
            if len(body) < 5 or body[0] != 0x2F:
                raise damaged(name, "its lossless header is wrong")
            bits = int.from_bytes(body[1:5], "little")
            size = (1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
            has_alpha = has_alpha or bool(bits >> 28 & 1)
            lossless = True
        elif kind == b"VP8 " and size is None:
            body = stream.read(min(length, 10))
            if len(body) < 10 or body[3:6] != b"\x9d\x01\x2a":
                raise damaged(name, "its lossy header is wrong")
            across, down = struct.unpack("<HH", body[6:10])
            size = (across & 0x3FFF, down & 0x3FFF)
        elif kind == b"ALPH":
            has_alpha = True
        elif kind not in _IMAGE_CHUNKS:
            extras.append((kind, stream.read(length)))
        position += 8 + length + (length & 1)
    if size is None:
        raise damaged(name, "it holds no pixels")
    if canvas is not None and canvas != size:
        raise damaged(name, "its pixels do not fit its header")
    width, height = size
    check_size(source, width, height, width * height * (4 if has_alpha else 3))
    return _Head(width, height, has_alpha, lossless, tuple(extras))


def _encoded_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a file we have just encoded."""
    chunks = []
    position = 12
    while position + 8 <= len(data):
        length = int.from_bytes(data[position + 4 : position + 8], "little")
        chunks.append((bytes(data[position : position + 4]), bytes(data[position + 8 : position + 8 + length])))
        position += 8 + length + (length & 1)
    return chunks


def _chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk with its length, padded to an even size."""
    return kind + struct.pack("<I", len(body)) + body + b"\x00" * (len(body) & 1)


def _metadata(chunks: tuple[tuple[bytes, bytes], ...]) -> Metadata:
    """What other formats can hold as well."""
    found = dict(reversed(chunks))
    exif = found.get(b"EXIF", b"").removeprefix(_EXIF) or None
    dpi = exif_dpi(exif) if exif is not None else None
    return Metadata(icc=found.get(b"ICCP"), exif=exif, xmp=found.get(b"XMP "), dpi=dpi)


def _chunks_from(metadata: Metadata) -> tuple[tuple[bytes, bytes], ...]:
    """Chunks for the metadata of another format."""
    chunks = ((b"ICCP", metadata.icc), (b"EXIF", metadata.exif), (b"XMP ", metadata.xmp))
    return tuple((kind, body) for kind, body in chunks if body is not None)
