"""BMP: 1 to 32 bit in; 8-bit grey, RGB or RGBA out, with resolution and profile.

Uncompressed files are read here, since Pillow drops the profile and undeclared alpha and rounds 5-bit colours down.
"""

import struct
from typing import BinaryIO, NamedTuple

import numpy as np

from dstl_cli.picture.formats import other
from dstl_cli.picture.limits import check_size
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import Source, file_errors

_INCH = 0.0254
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
    grey = head.palette is not None and head.palette.ndim == 1
    alpha = (
        head.alpha_declared
        or (  # else the fourth byte is alpha, or only padding
            head.masks == _RGB_MASKS[32] and bool(_rows(source, head)[:, 3::4].any())
        )
    )
    spec = PageSpec(head.height, head.width, 1 if grey else 3, np.dtype(np.uint8), int(alpha))
    across, down = head.per_metre
    dpi = (across * _INCH, down * _INCH) if across > 0 and down > 0 else None
    return Picture(source.name, (spec,), lambda _: _page(source, head, alpha), Metadata(icc=head.icc, dpi=dpi), head)


def _rows(source: Source, head: BmpExtras) -> Pixels:
    """The stored rows from the top down, (H, bytes of a row)."""
    rows = source.array(head.start, (head.height, _row_bytes(head.width, head.bits)), np.dtype(np.uint8))
    return rows if head.top_down else rows[::-1]


def _row_bytes(width: int, bits: int) -> int:
    """Bytes of one stored row, padded to four."""
    return (width * bits + 31) // 32 * 4


def _page(source: Source, head: BmpExtras, has_alpha: bool) -> Page:
    rows, shape = _rows(source, head), (head.height, head.width)
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
        return np.ascontiguousarray(stored.reshape(*shape, 3)[..., ::-1]), None
    colour = np.stack([_masked(stored.view(f"<u{size}"), mask) for mask in head.masks[:3]], axis=2)
    return colour, _masked(stored.view(f"<u{size}"), head.masks[3]) if has_alpha else None


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
    row_bytes = _row_bytes(width, bits)
    size = row_bytes * height
    stream.write(struct.pack("<2sIHHI", b"BM", min(start + size + len(icc or b""), 2**32 - 1), 0, 0, start))
    compression = _BITFIELDS if bits == 32 else _RAW
    colours = 256 if bits == 8 else 0
    fields = (width, height, 1, bits, compression, min(size, 2**32 - 1), *per_metre, colours, 0)
    header = struct.pack("<IiiHHIIiiII", header_size, *fields)
    if header_size > 40:
        masks = _RGB_MASKS[32] if bits == 32 else (0, 0, 0, 0)
        space = _EMBEDDED_PROFILE if icc is not None else _SRGB
        header += struct.pack("<IIII4s48x", *masks, space)
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


def _parse(source: Source) -> BmpExtras:
    """Read and check the headers, colour masks, palette and profile."""
    name = source.name
    lead = source.lead(14 + 124 + 16)
    size = int.from_bytes(lead[14:18], "little")
    if len(lead) < 26 or len(lead) < 14 + min(size, 124):
        raise truncated(name)
    start = int.from_bytes(lead[10:14], "little")
    compression = used = across = down = 0
    if size == 12:
        width, height, planes, bits = struct.unpack("<HHHH", lead[18:26])
    else:
        width, height, planes, bits, compression, _, across, down, used, _ = struct.unpack("<iiHHIIiiII", lead[18:54])
    depths = (1, 4, 8, 16, 24, 32) if compression == _RAW else (16, 32)
    if size not in _HEADERS or planes != 1 or bits not in depths or start < 14 + size:
        raise damaged(name, "its BMP header is wrong")
    if compression not in (_RAW, _BITFIELDS, _ALPHA_BITFIELDS) or size == 64:
        raise unsupported(name, "is a compressed BMP", "save it uncompressed or as PNG first")
    check_size(source, width, abs(height), max(0, width) * abs(height) * max(1, bits // 8))
    if start + _row_bytes(width, bits) * abs(height) > source.size:
        raise truncated(name)
    masks = _RGB_MASKS.get(bits, ())
    if compression != _RAW:
        masks = _masks(name, lead, bits, has_alpha=size >= 56 or compression == _ALPHA_BITFIELDS)
    icc, palette = None, None
    with file_errors(name), source.open() as stream:
        offset, length = struct.unpack("<II", lead[126:134].ljust(8, b"\x00"))
        if size == 124 and lead[70:74] == _EMBEDDED_PROFILE and 0 < length <= source.size - 14 - offset:
            stream.seek(14 + offset)
            icc = stream.read(length)
        if bits <= 8:
            stream.seek(14 + size)
            entry = 3 if size == 12 else 4
            stored = stream.read(min(used or 1 << bits, 1 << bits) * entry)
            palette = np.frombuffer(stored, np.uint8, len(stored) // entry * entry).reshape(-1, entry)[:, 2::-1]
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
