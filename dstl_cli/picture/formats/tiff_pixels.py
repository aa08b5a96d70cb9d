"""The pixel data of one TIFF directory: strips and tiles, compression, predictors, sample layouts.

tifffile decodes each strip or tile; what lies in the file as it is in memory is read (or mapped) without it.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any, BinaryIO, Literal

import numpy as np

from dstl_cli.picture.model import Page, PageSpec, Pixels
from dstl_cli.picture.problems import damaged
from dstl_cli.picture.source import Source, file_errors

NONE, LZW, DEFLATE, OLD_DEFLATE, PACKBITS, ZSTD = 1, 5, 8, 32946, 32773, 50000
_ENCODERS = dict.fromkeys((DEFLATE, OLD_DEFLATE), "deflate_encode")
_ENCODERS |= {LZW: "lzw_encode", PACKBITS: "packbits_encode", ZSTD: "zstd_encode"}
COMPRESSIONS = (NONE, *_ENCODERS)  # that can be written
PREDICTED = (LZW, DEFLATE, OLD_DEFLATE, ZSTD)  # of them, those that heed the tag
NO_PREDICTOR, HORIZONTAL, FLOATING = 1, 2, 3
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, YCBCR = 0, 1, 2, 3, 6
CONTIGUOUS, SEPARATE = 1, 2


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

    @property
    def grid(self) -> tuple[int, int, int]:
        """How many segments there are: planes of samples, down and across."""
        planes = self.samples if self.planar == SEPARATE else 1
        return planes, -(-self.height // self.segment[0]), -(-self.width // self.segment[1])

    @property
    def segment_samples(self) -> int:
        """Samples per pixel within one segment."""
        return 1 if self.planar == SEPARATE else self.samples

    def segments(self) -> Iterator[tuple[int, int, int, int]]:
        """(plane of samples, top, left, stored rows) of every segment, in file order."""
        for plane, row, column in product(*map(range, self.grid)):
            top, left = row * self.segment[0], column * self.segment[1]
            yield plane, top, left, self.segment[0] if self.tiled else min(self.segment[0], self.height - top)

    def stored_row_bytes(self) -> int:
        """Bytes of one row of a segment once decompressed."""
        return (self.segment[1] * self.segment_samples * self.bits + 7) // 8


# --- reading ------------------------------------------------------------------------------------------


def read_layout(source: Source, layout: Layout, plane: int = 0) -> list[Page]:
    """Decode one picture of a directory: its page, or one page for each sample of a pixel."""
    contiguous = layout.compression == NONE and layout.bits >= 8 and _is_contiguous(layout)
    samples = _read_contiguous(source, layout, plane) if contiguous else _read_segments(source, layout)
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
    """Decode strips or tiles, each by itself, with tifffile to (H, W, S)."""
    import logging

    import tifffile

    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    samples = np.empty((layout.height, layout.width, layout.samples), layout.dtype)
    with file_errors(source.name), source.open() as stream, tifffile.TiffFile(stream) as file:
        file.filehandle.seek(layout.place)
        page = tifffile.TiffPage(file, 0)
        if layout.compression in (NONE, PACKBITS):
            page.predictor = NO_PREDICTOR  # they do not heed the tag
        for index, (plane, top, left, rows) in enumerate(layout.segments()):
            stream.seek(layout.offsets[index])
            block = _decode_segment(page, layout, stream.read(layout.counts[index]), index, rows)
            part = samples[top : top + rows, left : left + layout.segment[1], plane : plane + layout.segment_samples]
            shown = block[: part.shape[0], : part.shape[1]]
            if shown.shape != part.shape:
                raise damaged(source.name, "a block of pixels is too short")
            np.copyto(part, shown, casting="safe")
    return samples


def _decode_segment(page: Any, layout: Layout, raw: bytes, index: int, rows: int) -> Pixels:
    """One segment of tifffile's page as (rows, width, samples)."""
    try:
        block = page.decode(raw, index, jpegtables=page.jpegtables)[0]
    except Exception:  # a last strip may be stored in full, which tifffile refuses: it gets to see its rows only
        import imagecodecs

        size = rows * layout.stored_row_bytes()
        if layout.compression == PACKBITS:
            raw = bytes(imagecodecs.packbits_encode(imagecodecs.packbits_decode(raw)[:size]))
        else:
            raw = zlib.compress(zlib.decompressobj().decompress(raw, size), 0)
        block = page.decode(raw, index)[0]
    return np.asarray(block[0])


def _to_pages(name: str, layout: Layout, samples: Pixels) -> list[Page]:
    """Split (H, W, S) samples into pages, with palettes and low depths expanded."""
    if layout.sample_pages:
        return [(_shown(name, layout, samples[:, :, [index]]), None) for index in range(layout.samples)]
    colour, extra = samples[:, :, : layout.colours], np.ascontiguousarray(samples[:, :, layout.colours :])
    beside = extra[:, :, 0] if layout.extra_samples == 1 else extra
    return [(_shown(name, layout, colour), beside if layout.extra_samples else None)]


def _shown(name: str, layout: Layout, samples: Pixels) -> Pixels:
    """Stored colours, (H, W, 1 or 3), as they are seen: by the palette, over 0..255, zero as black."""
    colour: Pixels = np.ascontiguousarray(samples[:, :, 0] if samples.shape[2] == 1 else samples)
    if layout.palette is not None:
        if int(colour.max()) >= len(layout.palette):
            raise damaged(name, "it uses colours outside its palette")
        return layout.palette[colour]
    if layout.bits < 8:
        colour = colour * np.uint8(255 // ((1 << layout.bits) - 1))
    return ~colour if layout.photometric == WHITE_IS_ZERO and layout.dtype.kind == "u" else colour


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


def _encode(block: Pixels, layout: Layout) -> bytes:
    """The bytes of one segment: predictor, the file's byte order, compression (PackBits row by row)."""
    order = layout.dtype.newbyteorder(layout.order)
    if layout.compression == NONE:
        return block.astype(order, copy=False).tobytes()
    import imagecodecs

    if layout.predictor == HORIZONTAL:
        block = np.asarray(imagecodecs.delta_encode(np.ascontiguousarray(block), axis=1))
    if layout.predictor == FLOATING:
        block = np.asarray(imagecodecs.floatpred_encode(np.ascontiguousarray(block), axis=1))
    else:
        block = block.astype(order, copy=False)
    rows = np.frombuffer(block.tobytes(), np.uint8).reshape(block.shape[0], -1)
    return bytes(getattr(imagecodecs, _ENCODERS[layout.compression])(rows))


def write_segments(
    stream: BinaryIO, layout: Layout, pages: list[Pixels], extra: Pixels | None
) -> tuple[list[int], list[int]]:
    """Write the pixels of one directory at the stream's position; return offsets and byte counts."""
    start = stream.tell()
    counts = [stream.write(_encode(_block(layout, pages, extra, *place), layout)) for place in layout.segments()]
    return list(accumulate(counts[:-1], initial=start)), counts
