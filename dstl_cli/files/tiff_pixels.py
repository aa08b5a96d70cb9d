"""The pixel data of one TIFF directory: strips and tiles, compression, predictors, sample layouts."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Literal

import numpy as np

from dstl_cli.files.pictures import (
    PageSpec,
    Pixels,
    Source,
    damaged,
    decoding,
    file_errors,
    truncated,
)

NONE, LZW, DEFLATE, OLD_DEFLATE, PACKBITS, ZSTD = 1, 5, 8, 32946, 32773, 50000
COMPRESSIONS = (NONE, LZW, DEFLATE, OLD_DEFLATE, PACKBITS, ZSTD)
NO_PREDICTOR, HORIZONTAL, FLOATING = 1, 2, 3
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, YCBCR = 0, 1, 2, 3, 6
CONTIGUOUS, SEPARATE = 1, 2
_REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


@dataclass(frozen=True)
class Layout:
    """How one directory stores its pixels.

    `bits` are per sample; `dtype` is that of the samples in memory (native byte order). `segment` is
    (height, width) of a tile or strip. `planes` counts whole pictures stored one after the other behind
    one directory (ImageJ does this beyond 4 GiB). `channels` is True when the samples of a pixel are
    separate measurements, each a page of its own, rather than a colour.
    """

    width: int
    height: int
    samples: int
    bits: int
    dtype: np.dtype[Any]
    photometric: int
    planar: int
    compression: int
    predictor: int
    tiled: bool
    segment: tuple[int, int]
    reversed_bits: bool
    order: Literal["<", ">"]
    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    palette: Pixels | None
    extra: tuple[int, ...]
    planes: int
    channels: bool
    index: int

    @property
    def colours(self) -> int:
        """Stored samples per pixel that are colours: 1 or 3."""
        return 3 if self.photometric in (RGB, YCBCR) else 1

    @property
    def pages(self) -> int:
        """How many pages of a Picture this directory stands for."""
        return self.planes * (self.samples if self.channels else 1)

    @property
    def has_alpha(self) -> bool:
        """Whether there are samples beside the colours that pass through untouched."""
        return not self.channels and self.samples > self.colours

    @property
    def spec(self) -> PageSpec:
        """Shape and dtype of each of its pages."""
        channels = 3 if self.palette is not None and self.palette.ndim == 2 else self.colours
        return PageSpec(self.height, self.width, channels, self.dtype)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all samples once decoded."""
        return self.width * self.height * self.samples * self.planes * self.dtype.itemsize

    @cached_property
    def grid(self) -> tuple[int, int]:
        """Segments down and across."""
        return -(-self.height // self.segment[0]), -(-self.width // self.segment[1])

    @property
    def segment_samples(self) -> int:
        """Samples per pixel within one segment."""
        return 1 if self.planar == SEPARATE else self.samples

    def segments(self) -> Iterator[tuple[int, int, int, int]]:
        """(plane of samples, top, left, stored rows) of every segment, in file order."""
        down, across = self.grid
        for plane in range(self.samples if self.planar == SEPARATE else 1):
            for row in range(down):
                top = row * self.segment[0]
                rows = self.segment[0] if self.tiled else min(self.segment[0], self.height - top)
                for column in range(across):
                    yield plane, top, column * self.segment[1], rows

    def stored_row_bytes(self) -> int:
        """Bytes of one row of a segment once decompressed."""
        return (self.segment[1] * self.segment_samples * self.bits + 7) // 8


# --- reading ------------------------------------------------------------------------------------------


def read_layout(source: Source, layout: Layout, plane: int = 0) -> tuple[list[Pixels], Pixels | None]:
    """Decode one picture of a directory: its pages (one, or one per channel), and its extra samples."""
    if layout.compression not in COMPRESSIONS:
        samples = _decode_elsewhere(source, layout)
    elif layout.compression == NONE and layout.bits >= 8 and _is_contiguous(layout):
        samples = _read_contiguous(source, layout, plane)
    else:
        samples = _read_segments(source, layout)
    return _to_pages(source.name, layout, samples)


def _is_contiguous(layout: Layout) -> bool:
    """Whether the uncompressed segments lie in the file as one block of rows."""
    if layout.segment[1] != layout.width or layout.predictor != NO_PREDICTOR or layout.reversed_bits:
        return False
    if layout.planar == SEPARATE and layout.samples > 1:
        return False
    row_bytes = layout.stored_row_bytes()
    expected = layout.offsets[0]
    for offset, (_, top, _, rows) in zip(layout.offsets, layout.segments(), strict=True):
        if offset != expected:
            return False
        expected += min(rows, layout.height - top) * row_bytes
    return True


def _read_contiguous(source: Source, layout: Layout, plane: int) -> Pixels:
    """One uncompressed block as (H, W, S); very large ones are mapped from the file."""
    shape = (layout.height, layout.width, layout.samples)
    offset = layout.offsets[0] + plane * layout.height * layout.stored_row_bytes()
    stored = source.array(offset, shape, layout.dtype.newbyteorder(layout.order))
    return stored.astype(layout.dtype, copy=False)


def _read_segments(source: Source, layout: Layout) -> Pixels:
    """Decode all strips or tiles to (H, W, S)."""
    with decoding(source.name):
        samples = np.empty((layout.height, layout.width, layout.samples), layout.dtype)
    row_bytes = layout.stored_row_bytes()
    with file_errors(source.name), source.open() as stream:
        for offset, count, (plane, top, left, rows) in zip(
            layout.offsets, layout.counts, layout.segments(), strict=True
        ):
            stream.seek(offset)
            raw = stream.read(count)
            if len(raw) < count:
                raise truncated(source.name)
            if layout.reversed_bits:
                raw = raw.translate(_REVERSED_BITS)
            data = _decompress(source.name, raw, layout.compression, rows * row_bytes)
            block = _unpack(data, layout, rows)
            part = samples[top : top + rows, left : left + layout.segment[1]]
            if layout.planar == SEPARATE:
                part[:, :, plane] = block[: part.shape[0], : part.shape[1], 0]
            else:
                part[...] = block[: part.shape[0], : part.shape[1]]
    return samples


def _decompress(name: str, raw: bytes, compression: int, size: int) -> bytes:
    """Undo the compression of one segment; exactly `size` bytes or an error."""
    with decoding(name):
        if compression == NONE:
            data = raw
        elif compression in (DEFLATE, OLD_DEFLATE):
            data = zlib.decompressobj().decompress(raw, size)
        else:
            import imagecodecs

            if compression == PACKBITS:
                data = bytes(imagecodecs.packbits_decode(raw))
            else:
                decode = imagecodecs.lzw_decode if compression == LZW else imagecodecs.zstd_decode
                data = bytes(decode(raw, out=size))
    if len(data) < size:
        raise damaged(name, "a block of pixels is too short")
    return data[:size]


def _unpack(data: bytes, layout: Layout, rows: int) -> Pixels:
    """One decompressed segment as (rows, width, samples) in memory's own byte order."""
    width, samples = layout.segment[1], layout.segment_samples
    if layout.bits < 8:
        per_byte = 8 // layout.bits
        shifts = np.arange(8 - layout.bits, -1, -layout.bits, dtype=np.uint8)
        packed = np.frombuffer(data, np.uint8).reshape(rows, -1, 1)
        values = (packed >> shifts & np.uint8((1 << layout.bits) - 1)).reshape(rows, packed.shape[1] * per_byte)
        return values[:, : width * samples].reshape(rows, width, samples)
    if layout.predictor == FLOATING:
        return _undo_floating(data, layout.dtype, rows, width, samples)
    stored = np.frombuffer(data, layout.dtype.newbyteorder(layout.order)).reshape(rows, width, samples)
    values = stored.astype(layout.dtype, copy=False)
    if layout.predictor == HORIZONTAL:
        whole = np.dtype(f"u{layout.dtype.itemsize}")
        values = np.cumsum(values.view(whole), axis=1, dtype=whole).view(layout.dtype)
    return values


def _undo_floating(data: bytes, dtype: np.dtype[Any], rows: int, width: int, samples: int) -> Pixels:
    """Undo TIFF's floating-point predictor: byte planes, most significant first, as differences."""
    size = dtype.itemsize
    steps = np.frombuffer(data, np.uint8).reshape(rows, width * size, samples)
    planes = np.cumsum(steps, axis=1, dtype=np.uint8).reshape(rows, size, width * samples)
    values = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(dtype.newbyteorder(">"))
    return values.reshape(rows, width, samples).astype(dtype, copy=False)


def _decode_elsewhere(source: Source, layout: Layout) -> Pixels:
    """Decode the rarer compressions (JPEG in TIFF, CCITT fax, JPEG 2000, ...) with tifffile."""
    import logging

    import tifffile

    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    with file_errors(source.name), source.open() as stream, decoding(source.name):
        with tifffile.TiffFile(stream) as file:
            decoded = np.asarray(file.pages[layout.index].asarray())
        if layout.planar == SEPARATE and layout.samples > 1:
            decoded = np.moveaxis(decoded, 0, 2)
        samples = decoded.reshape(layout.height, layout.width, layout.samples)
        if samples.dtype == np.bool_:
            samples = samples.view(np.uint8)
    if samples.dtype != layout.dtype:
        raise damaged(source.name, "its pixels do not fit its header")
    return samples


def _to_pages(name: str, layout: Layout, samples: Pixels) -> tuple[list[Pixels], Pixels | None]:
    """Split (H, W, S) samples into pages and extra samples, with palettes and low depths expanded."""
    if layout.channels:
        return [_shown(layout, np.ascontiguousarray(samples[:, :, c])) for c in range(layout.samples)], None
    extra = None
    colour = samples
    if layout.has_alpha:
        rest = samples[:, :, layout.colours :]
        extra = np.ascontiguousarray(rest[:, :, 0] if rest.shape[2] == 1 else rest)
        colour = np.ascontiguousarray(samples[:, :, : layout.colours])
    if layout.colours == 1:
        colour = colour[:, :, 0]
    if layout.palette is not None:
        if int(colour.max()) >= len(layout.palette):
            raise damaged(name, "it uses colours outside its palette")
        return [layout.palette[colour]], extra
    return [_shown(layout, colour)], extra


def _shown(layout: Layout, colour: Pixels) -> Pixels:
    """Low depths spread over 0..255, and zero as black."""
    if layout.bits < 8:
        colour = colour * np.uint8(255 // ((1 << layout.bits) - 1))
    if layout.photometric == WHITE_IS_ZERO and layout.dtype.kind == "u":
        colour = ~colour
    return colour


# --- writing ------------------------------------------------------------------------------------------


def _block(
    layout: Layout, pages: list[Pixels], extra: Pixels | None, plane: int, top: int, left: int, rows: int
) -> Pixels:
    """The samples of one segment as (rows, width, samples); tiles are padded with their edge values."""
    window = (slice(top, top + rows), slice(left, left + layout.segment[1]))
    parts = [page[window] for page in pages]
    if layout.photometric == WHITE_IS_ZERO and layout.dtype.kind == "u":
        parts = [~part for part in parts]
    if extra is not None:
        parts.append(extra[window])
    columns = [part if part.ndim == 3 else part[:, :, np.newaxis] for part in parts]
    samples = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=2)
    if layout.planar == SEPARATE:
        samples = samples[:, :, plane : plane + 1]
    missing = (rows - samples.shape[0], layout.segment[1] - samples.shape[1])
    if any(missing):
        samples = np.pad(samples, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="edge")
    return samples


def _pack(block: Pixels, layout: Layout) -> bytes:
    """The bytes of one segment before compression, with the predictor applied, in the file's byte order."""
    dtype = layout.dtype
    if layout.predictor == FLOATING:
        rows, width, samples = block.shape
        stored = np.ascontiguousarray(block, dtype.newbyteorder(">")).view(np.uint8)
        planes = stored.reshape(rows, width * samples, dtype.itemsize).transpose(0, 2, 1)
        steps = np.ascontiguousarray(planes).reshape(rows, width * dtype.itemsize, samples)
        return _differences(steps).tobytes()
    if layout.predictor == HORIZONTAL:
        whole = np.dtype(f"u{dtype.itemsize}")
        block = _differences(np.ascontiguousarray(block).view(whole)).view(dtype)
    return block.astype(dtype.newbyteorder(layout.order), copy=False).tobytes()


def _differences(values: Pixels) -> Pixels:
    """Each value minus its left neighbour, wrapping around; the first column stays."""
    steps = values.copy()
    steps[:, 1:] -= values[:, :-1]
    return steps


def _compress(data: bytes, layout: Layout) -> bytes:
    """Compress one segment; PackBits goes row by row, as the format asks."""
    if layout.compression == NONE:
        return data
    import imagecodecs

    if layout.compression in (DEFLATE, OLD_DEFLATE):
        return bytes(imagecodecs.deflate_encode(data, 6))
    if layout.compression == PACKBITS:
        step = layout.stored_row_bytes()
        rows = (data[start : start + step] for start in range(0, len(data), step))
        return b"".join(imagecodecs.packbits_encode(row) for row in rows)
    encode = imagecodecs.lzw_encode if layout.compression == LZW else imagecodecs.zstd_encode
    return bytes(encode(data))


def write_segments(
    stream: BinaryIO, layout: Layout, pages: list[Pixels], extra: Pixels | None
) -> tuple[list[int], list[int]]:
    """Write the pixels of one directory at the stream's position; return offsets and byte counts."""
    offsets: list[int] = []
    counts: list[int] = []
    position = stream.tell()
    for plane, top, left, rows in layout.segments():
        block = _block(layout, pages, extra, plane, top, left, rows)
        data = _compress(_pack(block, layout), layout)
        stream.write(data)
        offsets.append(position)
        counts.append(len(data))
        position += len(data)
    return offsets, counts
