"""BMP: uncompressed 1 to 32 bit in; 8-bit grey, RGB or RGBA out, with resolution and profile."""

import struct
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

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

_INCH = 0.0254
_RAW, _BITFIELDS, _ALPHA_BITFIELDS = 0, 3, 6
_HEADERS = (12, 40, 52, 56, 64, 108, 124)
_RGB_MASKS = {16: (0x7C00, 0x03E0, 0x001F, 0), 32: (0xFF0000, 0xFF00, 0xFF, 0xFF000000)}
_EMBEDDED_PROFILE = 0x4D424544
_SRGB = 0x73524742


@dataclass(frozen=True)
class BmpExtras:
    """The resolution in pixels per metre, as stored."""

    per_metre: tuple[int, int]


@dataclass(frozen=True)
class _Head:
    width: int
    height: int
    top_down: bool
    bits: int
    masks: tuple[int, int, int, int] | None
    alpha_declared: bool
    palette: Pixels | None
    start: int
    per_metre: tuple[int, int]
    icc: bytes | None

    @property
    def row_bytes(self) -> int:
        """Bytes of one stored row, padded to four."""
        return (self.width * self.bits + 31) // 32 * 4


def probe(source: Source) -> ImageInfo:
    """Read the headers only; 32-bit files without a declared alpha count as opaque here."""
    head = _parse(source)
    channels = 1 if head.palette is not None and head.palette.ndim == 1 else 3
    return ImageInfo(head.width, head.height, 1, channels, head.alpha_declared, np.dtype(np.uint8), "bmp")


def read(source: Source) -> Picture:
    """Read a BMP file."""
    head = _parse(source)
    rows = source.array(head.start, (head.height, head.row_bytes), np.dtype(np.uint8))
    if not head.top_down:
        rows = rows[::-1]
    colour, alpha = _palette_pixels(source.name, head, rows) if head.bits <= 8 else _direct_pixels(head, rows)
    across, down = head.per_metre
    dpi = (across * _INCH, down * _INCH) if across > 0 and down > 0 else None
    metadata = Metadata(icc=head.icc, dpi=dpi)
    return single_page(source.name, "bmp", colour, alpha, metadata, BmpExtras(head.per_metre))


def write(picture: Picture, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit grey, RGB or RGBA; grey with alpha is written as RGBA."""
    colour, alpha = picture.pages[0], picture.alphas[0]
    height, width = colour.shape[:2]
    bits = 32 if alpha is not None else 24 if colour.ndim == 3 else 8
    per_metre = (0, 0)
    icc = None if strip else picture.metadata.icc
    if not strip and isinstance(picture.native, BmpExtras):
        per_metre = picture.native.per_metre
    elif not strip and picture.metadata.dpi is not None:
        across, down = (min(round(dots / _INCH), 2**31 - 1) for dots in picture.metadata.dpi)
        per_metre = (across, down)
    palette = b"".join(bytes((v, v, v, 0)) for v in range(256)) if bits == 8 else b""
    header_size = 124 if icc is not None else 108 if bits == 32 else 40
    start = 14 + header_size + len(palette)
    row_bytes = (width * bits + 31) // 32 * 4
    size = row_bytes * height
    stream.write(struct.pack("<2sIHHI", b"BM", min(start + size + len(icc or b""), 2**32 - 1), 0, 0, start))
    compression = _BITFIELDS if bits == 32 else _RAW
    header = struct.pack(
        "<IiiHHIIiiII", header_size, width, height, 1, bits, compression, min(size, 2**32 - 1), *per_metre,
        256 if bits == 8 else 0, 0,
    )  # fmt: skip
    if header_size > 40:
        masks = _RGB_MASKS[32] if bits == 32 else (0, 0, 0, 0)
        space = _EMBEDDED_PROFILE if icc is not None else _SRGB
        header += struct.pack("<IIIII48x", *masks, space)
    if header_size == 124:
        header += struct.pack("<IIII", 4, header_size + len(palette) + size, len(icc or b""), 0)
    stream.write(header + palette)
    step = max(1, 2**22 // row_bytes)
    for end in range(height, 0, -step):
        first = max(0, end - step)
        block = np.zeros((end - first, row_bytes), np.uint8)
        samples = block[:, : width * bits // 8].reshape(end - first, width, bits // 8)
        shown = colour[first:end][::-1]
        samples[..., : min(3, bits // 8)] = shown[..., ::-1] if shown.ndim == 3 else shown[..., np.newaxis]
        if alpha is not None:
            samples[..., 3] = alpha[first:end][::-1]
        stream.write(block.tobytes())
    stream.write(icc or b"")


def _parse(source: Source) -> _Head:
    """Read and check the headers, colour masks, palette and profile."""
    name = source.name
    with file_errors(name), source.open() as stream:
        lead = stream.read(14 + 124 + 16)
        header_size = int.from_bytes(lead[14:18], "little")
        if len(lead) < 26 or len(lead) < 14 + min(header_size, 124):
            raise truncated(name)
        if header_size not in _HEADERS:
            raise damaged(name, "its BMP header is wrong")
        start = int.from_bytes(lead[10:14], "little")
        compression = used = across = down = 0
        if header_size == 12:
            width, height, planes, bits = struct.unpack("<HHHH", lead[18:26])
        else:
            width, height, planes, bits, compression, _, across, down, used, _ = struct.unpack(
                "<iiHHIIiiII", lead[18:54]
            )
        if planes != 1 or bits not in (1, 4, 8, 16, 24, 32):
            raise damaged(name, "its BMP header is wrong")
        if compression not in (_RAW, _BITFIELDS, _ALPHA_BITFIELDS) or header_size == 64:
            raise unsupported(name, "is a compressed BMP", "save it uncompressed or as PNG first")
        if start < 14 + header_size:
            raise damaged(name, "its BMP header is wrong")
        masks, declared = _masks(name, lead, header_size, bits, compression)
        icc = _profile(source, stream, lead) if header_size == 124 else None
        palette = None
        if bits <= 8:
            entry = 3 if header_size == 12 else 4
            stream.seek(14 + header_size)
            entries = min(used or 1 << bits, 1 << bits)
            palette = _palette(stream.read(entries * entry), entry, icc is not None)
            if len(palette) == 0:
                raise truncated(name)
    check_size(source, width, abs(height), max(0, width) * abs(height) * max(1, bits // 8))
    rows, top_down = abs(height), height < 0
    head = _Head(width, rows, top_down, bits, masks, declared, palette, start, (across, down), icc)
    if head.start + head.row_bytes * head.height > source.size:
        raise truncated(name)
    return head


def _masks(
    name: str, lead: bytes, header_size: int, bits: int, compression: int
) -> tuple[tuple[int, int, int, int] | None, bool]:
    """The bit masks of red, green, blue, alpha for 16 and 32 bit, and whether the file declares alpha."""
    if bits not in (16, 32):
        if compression != _RAW:
            raise damaged(name, "its BMP header is wrong")
        return None, False
    if compression == _RAW:
        return _RGB_MASKS[bits], False
    red, green, blue, alpha = struct.unpack("<IIII", lead[54:70].ljust(16, b"\x00"))
    if header_size < 56 and compression == _BITFIELDS:
        alpha = 0
    masks = (red, green, blue, alpha)
    total = 0
    for mask in masks:
        if mask.bit_length() > bits or mask & total or not _is_run(mask) or _width(mask) > 8:
            raise unsupported(name, "has unusual colour masks", "save it as PNG first")
        total |= mask
    if not (red and green and blue):
        raise damaged(name, "its colour masks are empty")
    return masks, alpha != 0


def _is_run(mask: int) -> bool:
    """Whether the set bits of a mask are neighbours."""
    low = mask & -mask
    return mask == 0 or (mask // low) & (mask // low + 1) == 0


def _width(mask: int) -> int:
    """How many bits a mask has."""
    return mask.bit_count()


def _palette(stored: bytes, entry: int, keep_rgb: bool) -> Pixels:
    """The palette as (N, 3) RGB, or as (N,) when all its colours are grey."""
    usable = len(stored) // entry * entry
    colours = np.frombuffer(stored[:usable], np.uint8).reshape(-1, entry)[:, 2::-1]
    if not keep_rgb and (colours == colours[:, :1]).all():
        return np.ascontiguousarray(colours[:, 0])
    return np.ascontiguousarray(colours)


def _profile(source: Source, stream: BinaryIO, lead: bytes) -> bytes | None:
    """The ICC profile embedded in a version 5 file."""
    space = int.from_bytes(lead[70:74], "little")
    offset, length = struct.unpack("<II", lead[126:134])
    if space != _EMBEDDED_PROFILE or not length or 14 + offset + length > source.size:
        return None
    stream.seek(14 + offset)
    return stream.read(length)


def _palette_pixels(name: str, head: _Head, rows: Pixels) -> tuple[Pixels, None]:
    """Look up the colours of 1, 4 and 8-bit rows, (H, row_bytes)."""
    if head.bits == 1:
        indices = np.unpackbits(rows, axis=1)[:, : head.width]
    elif head.bits == 4:
        indices = np.stack((rows >> 4, rows & 15), axis=2).reshape(head.height, -1)[:, : head.width]
    else:
        indices = rows[:, : head.width]
    assert head.palette is not None
    if int(indices.max()) >= len(head.palette):
        raise damaged(name, "it uses colours outside its palette")
    return head.palette[indices], None


def _direct_pixels(head: _Head, rows: Pixels) -> tuple[Pixels, Pixels | None]:
    """Take the colours and alpha of 16, 24 and 32-bit rows, (H, row_bytes)."""
    if head.bits == 24:
        return np.ascontiguousarray(rows[:, : head.width * 3].reshape(head.height, head.width, 3)[..., ::-1]), None
    assert head.masks is not None
    stored = np.ascontiguousarray(rows[:, : head.width * head.bits // 8]).view(f"<u{head.bits // 8}")
    colour = np.empty((head.height, head.width, 3), np.uint8)
    for channel, mask in enumerate(head.masks[:3]):
        colour[..., channel] = _masked(stored, mask)
    if not head.masks[3]:
        return colour, None
    alpha = _masked(stored, head.masks[3])
    if not head.alpha_declared and not alpha.any():  # the fourth byte is only padding
        return colour, None
    return colour, alpha


def _masked(stored: Pixels, mask: int) -> Pixels:
    """The bits under a mask, scaled to 0..255."""
    shift = (mask & -mask).bit_length() - 1
    top = mask >> shift
    values = (stored >> shift) & top
    return values.astype(np.uint8) if top == 255 else ((values * 255 + top // 2) // top).astype(np.uint8)
