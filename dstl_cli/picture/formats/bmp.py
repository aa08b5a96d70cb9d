"""BMP: 1 to 32 bit in; 8-bit grey, RGB or RGBA out, with resolution and profile.

Uncompressed files are read here, since Pillow drops the profile and undeclared alpha and rounds 5-bit colours down.
"""

import struct
from typing import BinaryIO, NamedTuple

import numpy as np

from dstl_cli.picture.formats import other
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels, dots_per_inch
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import Source

_RAW, _BITFIELDS, _ALPHA_BITFIELDS = 0, 3, 6
_RUN_LENGTHS = (1, 2)
_HEADERS = (12, 40, 52, 56, 64, 108, 124)
_RGB_MASKS: dict[int, tuple[int, ...]] = {16: (0x7C00, 0x03E0, 0x001F, 0), 32: (0xFF0000, 0xFF00, 0xFF, 0xFF000000)}
_EMBEDDED_PROFILE, _SRGB = b"DEBM", b"BGRs"


class BmpExtras(NamedTuple):
    """What the headers say: how the pixels are stored, the resolution in pixels per metre, and the profile.

    A palette is (N, 3) RGB, or (N,) when all its colours are grey. Masks are those of red, green, blue and alpha.
    """

    width: int
    height: int
    top_down: bool
    bits: int
    masks: tuple[int, ...]
    alpha_declared: bool
    palette: Pixels | None
    start: int
    per_metre: tuple[int, int]
    icc: bytes | None


def read(source: Source) -> Picture:
    """Read a BMP file."""
    if int.from_bytes(source.lead(34)[30:], "little") in _RUN_LENGTHS:
        return other.read(source)
    head = _parse(source)
    channels = 1 if head.palette is not None and head.palette.ndim == 1 else 3
    plain = head.masks == _RGB_MASKS[32]  # the fourth byte is alpha, or only padding
    alpha = head.alpha_declared or (plain and bool(_rows(source, head)[:, 3::4].any()))
    spec = PageSpec(head.height, head.width, channels, np.dtype(np.uint8), int(alpha))
    metadata = Metadata(icc=head.icc, dpi=dots_per_inch(*head.per_metre))
    return Picture(source.name, (spec,), lambda _: _page(source, head, alpha), metadata, head)


def _rows(source: Source, head: BmpExtras) -> Pixels:
    """The stored rows from the top down, (H, bytes of a row)."""
    rows = source.array(head.start, (head.height, _row_bytes(head.width, head.bits)), np.dtype(np.uint8))
    return rows if head.top_down else rows[::-1]


def _row_bytes(width: int, bits: int) -> int:
    """Bytes of one stored row, padded to four."""
    return (width * bits + 31) // 32 * 4


def _page(source: Source, head: BmpExtras, has_alpha: bool) -> Page:
    rows = _rows(source, head)
    if head.palette is not None:
        if head.bits == 4:
            rows = np.stack((rows >> 4, rows & 15), axis=2).reshape(head.height, -1)
        indices = (np.unpackbits(rows, axis=1) if head.bits == 1 else rows)[:, : head.width]
        if int(indices.max()) >= len(head.palette):
            raise damaged(source.name, "it uses colours outside its palette")
        return head.palette[indices], None
    size = head.bits // 8
    stored = np.ascontiguousarray(rows[:, : head.width * size])
    if head.bits == 24:
        return np.ascontiguousarray(stored.reshape(head.height, head.width, 3)[..., ::-1]), None
    samples = [_masked(stored.view(f"<u{size}"), mask) for mask in head.masks[: 3 + has_alpha]]
    return np.stack(samples[:3], axis=2), samples[3] if has_alpha else None


def _masked(stored: Pixels, mask: int) -> Pixels:
    """The bits under a mask, scaled to 0..255."""
    shift = (mask & -mask).bit_length() - 1
    top = mask >> shift
    values = (stored >> shift) & top
    return values.astype(np.uint8) if top == 255 else ((values * 255 + top // 2) // top).astype(np.uint8)


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page of 8-bit grey, RGB or RGBA; grey with alpha is written as RGBA."""
    height, width = colour.shape[:2]
    bits = 32 if alpha is not None else 24 if colour.ndim == 3 else 8
    metadata = Metadata() if strip else picture.metadata
    icc, per_metre = metadata.icc or b"", metadata.per_metre or (0, 0)
    if picture.native is not None and not strip:
        per_metre = picture.native.per_metre
    palette = (np.arange(256, dtype="<u4") * 0x010101).tobytes() if bits == 8 else b""
    header_size = 124 if icc else 108 if bits == 32 else 40
    start = 14 + header_size + len(palette)
    rows = np.zeros((height, _row_bytes(width, bits)), np.uint8)
    size, largest = rows.size, 2**32 - 1
    compression = _BITFIELDS if bits == 32 else _RAW
    fields = (width, height, 1, bits, compression, min(size, largest), *per_metre, len(palette) // 4, 0)
    header = struct.pack("<IiiHHIIiiII", header_size, *fields)
    if header_size > 40:
        masks = _RGB_MASKS[32] if bits == 32 else (0, 0, 0, 0)
        header += struct.pack("<IIII4s48x", *masks, _EMBEDDED_PROFILE if icc else _SRGB)
    if icc:
        header += struct.pack("<IIII", 4, start - 14 + size, len(icc), 0)
    stream.write(struct.pack("<2sIHHI", b"BM", min(start + size + len(icc), largest), 0, 0, start) + header + palette)
    samples = rows[::-1, : width * bits // 8].reshape(height, width, bits // 8)
    samples[..., :3] = colour[..., ::-1] if colour.ndim == 3 else colour[..., np.newaxis]
    if alpha is not None:
        samples[..., 3] = alpha
    stream.write(rows.data)
    stream.write(icc)


def _parse(source: Source) -> BmpExtras:
    """Read and check the headers, colour masks, palette and profile."""
    name = source.name
    lead = source.lead(14 + 124 + 16)
    size = int.from_bytes(lead[14:18], "little")
    if len(lead) < 26 or len(lead) < 14 + min(size, 124):
        raise truncated(name)
    start = int.from_bytes(lead[10:14], "little")
    form, fields = ("<HHHH", lead[18:26]) if size == 12 else ("<iiHHI4xiiI4x", lead[18:54])
    width, height, planes, bits, *more = struct.unpack(form, fields)
    compression, across, down, used = more or (0, 0, 0, 0)
    depths = (1, 4, 8, 16, 24, 32) if compression == _RAW else (16, 32)
    if size not in _HEADERS or planes != 1 or bits not in depths or start < 14 + size:
        raise damaged(name, "its BMP header is wrong")
    if compression not in (_RAW, _BITFIELDS, _ALPHA_BITFIELDS) or size == 64:
        raise unsupported(name, "is a compressed BMP", "save it uncompressed or as PNG first")
    source.check_size(width, abs(height), max(0, width) * abs(height) * max(1, bits // 8))
    if start + _row_bytes(width, bits) * abs(height) > source.size:
        raise truncated(name)
    masks = _RGB_MASKS.get(bits, ())
    if compression != _RAW:
        masks = _masks(name, lead, bits, has_alpha=size >= 56 or compression == _ALPHA_BITFIELDS)
    icc = palette = None
    offset, length = struct.unpack("<II", lead[126:134].ljust(8, b"\x00"))
    if size == 124 and lead[70:74] == _EMBEDDED_PROFILE and 0 < length <= source.size - 14 - offset:
        icc = source.array(14 + offset, (length,), np.dtype(np.uint8)).tobytes()
    if bits <= 8:
        entry = 3 if size == 12 else 4
        count = min(used or 1 << bits, 1 << bits, (source.size - 14 - size) // entry)
        palette = source.array(14 + size, (count, entry), np.dtype(np.uint8))[:, 2::-1]
        if icc is None and (palette == palette[:, :1]).all():
            palette = palette[:, 0]
    declared = compression != _RAW and bool(masks[3])
    return BmpExtras(width, abs(height), height < 0, bits, masks, declared, palette, start, (across, down), icc)


def _masks(name: str, lead: bytes, bits: int, *, has_alpha: bool) -> tuple[int, ...]:
    """The bit masks of red, green, blue and alpha that a header has."""
    masks = struct.unpack("<IIII", lead[54:70].ljust(16, b"\x00"))[: 3 + has_alpha]
    total = 0
    for mask in masks:
        run = mask // max(1, mask & -mask)  # ones only, if the bits are neighbours
        if mask.bit_length() > bits or mask & total or run & (run + 1) or run > 255:
            raise unsupported(name, "has unusual colour masks", "save it as PNG first")
        total |= mask
    if not all(masks[:3]):
        raise damaged(name, "its colour masks are empty")
    return masks if has_alpha else (*masks, 0)
