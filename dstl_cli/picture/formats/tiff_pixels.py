"""The pixel data of one TIFF directory: strips and tiles, compression, predictors, sample layouts.

The usual compressions are undone here and not by tifffile, which refuses last strips that are stored in full.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Literal

import numpy as np

from dstl_cli.picture.model import Page, PageSpec, Pixels
from dstl_cli.picture.problems import damaged, truncated
from dstl_cli.picture.source import Source, file_errors

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
    one directory (ImageJ does this beyond 4 GiB). `sample_pages`: the samples of a pixel are separate
    measurements, each a page of its own, rather than a colour. `place` is where the directory lies in the file.
    """

    width: int
    height: int
    samples: int
    bits: int
    dtype: np.dtype[Any]
    photometric: int
    segment: tuple[int, int]
    predictor: int = NO_PREDICTOR
    planar: int = CONTIGUOUS
    compression: int = DEFLATE
    tiled: bool = False
    reversed_bits: bool = False
    order: Literal["<", ">"] = "<"
    offsets: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    palette: Pixels | None = None
    extra: tuple[int, ...] = ()
    planes: int = 1
    sample_pages: bool = False
    place: int = 0

    @property
    def colours(self) -> int:
        """Stored samples per pixel that are colours: 1 or 3."""
        return 3 if self.photometric in (RGB, YCBCR) else 1

    @property
    def pages(self) -> int:
        """How many pages of a Picture this directory stands for."""
        return self.planes * (self.samples if self.sample_pages else 1)

    @property
    def extra_samples(self) -> int:
        """How many samples of a pixel stand beside its colours and pass through untouched."""
        return 0 if self.sample_pages else self.samples - self.colours

    @property
    def spec(self) -> PageSpec:
        """Shape and dtype of each of its pages."""
        channels = 3 if self.palette is not None and self.palette.ndim == 2 else self.colours
        return PageSpec(self.height, self.width, channels, self.dtype, self.extra_samples)

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


def read_layout(source: Source, layout: Layout, plane: int = 0) -> list[Page]:
    """Decode one picture of a directory: its page, or one page for each sample of a pixel."""
    if layout.compression not in COMPRESSIONS:
        samples = _decode_elsewhere(source, layout)
    elif layout.compression == NONE and layout.bits >= 8 and _is_contiguous(layout):
        samples = _read_contiguous(source, layout, plane)
    else:
        samples = _read_segments(source, layout)
    return _to_pages(source.name, layout, samples)


def _is_contiguous(layout: Layout) -> bool:
    """Whether the uncompressed segments lie in the file as one block of rows."""
    if layout.segment[1] != layout.width or layout.reversed_bits or layout.planar == SEPARATE:
        return False
    rows = layout.segment[0] * layout.stored_row_bytes()
    return all(offset == layout.offsets[0] + number * rows for number, offset in enumerate(layout.offsets))


def _read_contiguous(source: Source, layout: Layout, plane: int) -> Pixels:
    """One uncompressed block as (H, W, S); very large ones are mapped from the file."""
    shape = (layout.height, layout.width, layout.samples)
    offset = layout.offsets[0] + plane * layout.height * layout.stored_row_bytes()
    return source.array(offset, shape, layout.dtype.newbyteorder(layout.order)).astype(layout.dtype, copy=False)


def _read_segments(source: Source, layout: Layout) -> Pixels:
    """Decode all strips or tiles to (H, W, S)."""
    samples = np.empty((layout.height, layout.width, layout.samples), layout.dtype)
    with file_errors(source.name), source.open() as stream:
        for place, count, (plane, top, left, rows) in zip(
            layout.offsets, layout.counts, layout.segments(), strict=True
        ):
            stream.seek(place)
            raw = stream.read(count)
            if len(raw) < count:
                raise truncated(source.name)
            data = _decompress(raw.translate(_REVERSED_BITS) if layout.reversed_bits else raw, layout, rows)
            if len(data) < rows * layout.stored_row_bytes():
                raise damaged(source.name, "a block of pixels is too short")
            part = samples[top : top + rows, left : left + layout.segment[1]]
            if layout.planar == SEPARATE:
                part = part[:, :, plane : plane + 1]
            part[...] = _unpack(data, layout, rows)[: part.shape[0], : part.shape[1]]
    return samples


def _decompress(raw: bytes, layout: Layout, rows: int) -> bytes:
    """Undo the compression of one segment, up to the bytes of its rows."""
    size = rows * layout.stored_row_bytes()
    if layout.compression == NONE:
        return raw
    if layout.compression in (DEFLATE, OLD_DEFLATE):
        return zlib.decompressobj().decompress(raw, size)
    import imagecodecs

    if layout.compression == PACKBITS:
        return bytes(imagecodecs.packbits_decode(raw))[:size]
    return bytes((imagecodecs.lzw_decode if layout.compression == LZW else imagecodecs.zstd_decode)(raw, out=size))


def _unpack(data: bytes, layout: Layout, rows: int) -> Pixels:
    """One decompressed segment as (rows, width, samples) in memory's own byte order."""
    shape = (rows, layout.segment[1], layout.segment_samples)
    if layout.bits == 8 and layout.predictor == NO_PREDICTOR:
        return np.frombuffer(data, np.uint8).reshape(shape)
    import imagecodecs

    dtype = layout.dtype
    if layout.bits < 8:
        run = shape[1] * shape[2]
        return np.asarray(imagecodecs.packints_decode(data, dtype, layout.bits, runlen=run)).reshape(shape)
    if layout.predictor == FLOATING:
        return np.asarray(imagecodecs.floatpred_decode(np.frombuffer(data, dtype).reshape(shape), axis=1))
    values = np.frombuffer(data, dtype.newbyteorder(layout.order)).reshape(shape).astype(dtype, copy=False)
    if layout.predictor == HORIZONTAL:
        values = np.asarray(imagecodecs.delta_decode(values.view(f"u{dtype.itemsize}"), axis=1)).view(dtype)
    return values


def _decode_elsewhere(source: Source, layout: Layout) -> Pixels:
    """Decode the rarer compressions (JPEG in TIFF, CCITT fax, JPEG 2000, ...) with tifffile, to (H, W, S)."""
    import logging

    import tifffile

    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    with file_errors(source.name), source.open() as stream, tifffile.TiffFile(stream) as file:
        file.filehandle.seek(layout.place)
        decoded = np.asarray(tifffile.TiffPage(file, 0).asarray())
    if layout.planar == SEPARATE and layout.samples > 1:
        decoded = np.moveaxis(decoded, 0, 2)
    samples = decoded.reshape(layout.height, layout.width, layout.samples)
    return samples.view(np.uint8) if samples.dtype == np.bool_ else samples


def _to_pages(name: str, layout: Layout, samples: Pixels) -> list[Page]:
    """Split (H, W, S) samples into pages, with palettes and low depths expanded."""
    if layout.sample_pages:
        return [(_shown(layout, np.ascontiguousarray(samples[:, :, c])), None) for c in range(layout.samples)]
    extra = None
    colour = samples
    if layout.extra_samples:
        rest = samples[:, :, layout.colours :]
        extra = np.ascontiguousarray(rest[:, :, 0] if rest.shape[2] == 1 else rest)
        colour = np.ascontiguousarray(samples[:, :, : layout.colours])
    if layout.colours == 1:
        colour = colour[:, :, 0]
    if layout.palette is not None:
        if int(colour.max()) >= len(layout.palette):
            raise damaged(name, "it uses colours outside its palette")
        return [(layout.palette[colour], extra)]
    return [(_shown(layout, colour), extra)]


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
    if layout.predictor != NO_PREDICTOR:
        import imagecodecs

        block = np.ascontiguousarray(block)
        if layout.predictor == FLOATING:
            return bytes(imagecodecs.floatpred_encode(block, axis=1).tobytes())
        whole = block.view(f"u{block.dtype.itemsize}")
        block = np.asarray(imagecodecs.delta_encode(whole, axis=1)).view(block.dtype)
    return block.astype(block.dtype.newbyteorder(layout.order), copy=False).tobytes()


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
    return bytes((imagecodecs.lzw_encode if layout.compression == LZW else imagecodecs.zstd_encode)(data))


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
