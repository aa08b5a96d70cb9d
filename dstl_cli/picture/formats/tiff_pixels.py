"""The pixel data of one TIFF directory: strips and tiles, compression, predictors, sample layouts.

tifffile decodes strips and tiles (`picture/decoding`); what lies in the file as in memory is read without it. Parts of
a page take no more than the segments that touch them, and rows are written as soon as they fill their segments.
"""

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, Literal

import numpy as np

from dstl_cli.picture.blocks import RECENT_BYTES, RecentBlocks, touching
from dstl_cli.picture.decoding.asking import decoded
from dstl_cli.picture.model import Page, PageSpec, Pixels, row_steps
from dstl_cli.picture.problems import damaged
from dstl_cli.picture.source import Source

Place = tuple[int, int, int]  # of a segment: plane of samples, number down and across

NONE, LZW, DEFLATE, OLD_DEFLATE, PACKBITS, ZSTD = 1, 5, 8, 32946, 32773, 50000
_ENCODERS = dict.fromkeys((DEFLATE, OLD_DEFLATE), "deflate_encode")
_ENCODERS |= {LZW: "lzw_encode", PACKBITS: "packbits_encode", ZSTD: "zstd_encode"}
COMPRESSIONS = (NONE, *_ENCODERS)  # that can be written
_FAX, _JPEG, _JPEG_2000, _LZMA, _WEBP = (2, 3, 4), (6, 7), (33003, 33004, 33005, 34712), (34925,), (50001,)
READ = frozenset({*COMPRESSIONS, *_FAX, *_JPEG, *_JPEG_2000, *_LZMA, *_WEBP})  # the decoder sees no others
PREDICTED = (LZW, DEFLATE, OLD_DEFLATE, ZSTD)  # of them, those that heed the tag
NO_PREDICTOR, HORIZONTAL, FLOATING = 1, 2, 3
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, YCBCR = 0, 1, 2, 3, 6
CONTIGUOUS, SEPARATE = 1, 2
TOGETHER_BYTES = 8 * 2**20  # of segments are decoded together


@dataclass(frozen=True)
class Layout:
    """How one directory stores its pixels.

    `bits` are per sample; `dtype` is that of the samples in memory (native byte order). `segment` is
    (height, width) of a tile or strip. `planes` counts whole pictures stored one after the other behind
    one directory (ImageJ does this beyond 4 GiB). `sample_pages`: the samples of a pixel are separate
    measurements, each a page of its own, rather than a colour. `place` is where the directory lies in the file.
    `form` is what the decoder gets to know of it: a small TIFF file of its own.
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
    form: bytes = b""

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
        return PageSpec(self.height, self.width, channels, self.dtype, self.extra_samples, self.packed_bits)

    @property
    def packed_bits(self) -> int | None:
        """Bits of a sample where they are more than a byte's, and stored without room between them; else None."""
        return self.bits if 8 < self.bits < 8 * self.dtype.itemsize else None

    @property
    def decoded_bytes(self) -> int:
        """Bytes of all samples once decoded."""
        return self.width * self.height * self.samples * self.planes * self.dtype.itemsize

    @property
    def segment_bytes(self) -> int:
        """Bytes of the samples of a whole segment once decoded."""
        return math.prod(self.segment) * self.segment_samples * self.dtype.itemsize

    @property
    def grid(self) -> tuple[int, int, int]:
        """How many segments there are: planes of samples, down and across."""
        planes = self.samples if self.planar == SEPARATE else 1
        return planes, -(-self.height // self.segment[0]), -(-self.width // self.segment[1])

    @property
    def segment_samples(self) -> int:
        """Samples per pixel within one segment."""
        return 1 if self.planar == SEPARATE else self.samples

    @cached_property
    def contiguous(self) -> bool:
        """Whether the samples lie in the file as in memory, as one block of rows."""
        plain = self.compression == NONE and self.bits == 8 * self.dtype.itemsize and not self.reversed_bits
        if not plain or self.segment[1] != self.width or self.planar == SEPARATE:
            return False
        rows = self.segment[0] * self.stored_row_bytes()
        return all(offset == self.offsets[0] + number * rows for number, offset in enumerate(self.offsets))

    def number_of(self, place: Place) -> int:
        """The number of a segment in file order."""
        plane, row, column = place
        return (plane * self.grid[1] + row) * self.grid[2] + column

    def size_of(self, place: Place) -> tuple[int, int]:
        """How high and wide the part of the page is that a segment holds."""
        _, row, column = place
        inside = self.height - row * self.segment[0], self.width - column * self.segment[1]
        return min(self.segment[0], inside[0]), min(self.segment[1], inside[1])

    def segments(self) -> Iterator[tuple[int, int, int, int]]:
        """(plane of samples, top, left, stored rows) of every segment, in file order."""
        for plane, row, column in product(*map(range, self.grid)):
            top, left = row * self.segment[0], column * self.segment[1]
            yield plane, top, left, self.segment[0] if self.tiled else min(self.segment[0], self.height - top)

    def stored_row_bytes(self) -> int:
        """Bytes of one row of a segment once decompressed."""
        return (self.segment[1] * self.segment_samples * self.bits + 7) // 8


# --- reading ------------------------------------------------------------------------------------------


class PixelReader:
    """Reads pages of a file, or parts of them; the segments decoded last for parts stay at hand."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._recent = RecentBlocks()  # segments by directory and number

    def read(self, layout: Layout, number: int, rows: slice, columns: slice) -> Page:
        """A part of a page of a directory."""
        plane, shown = (0, slice(number, number + 1)) if layout.sample_pages else (number, slice(0, layout.samples))
        if layout.contiguous:
            shape = (layout.height, layout.width, layout.samples)
            offset = layout.offsets[0] + plane * layout.height * layout.stored_row_bytes()
            stored = self._source.window(offset, shape, layout.dtype.newbyteorder(layout.order), rows, columns)
            samples = stored.astype(layout.dtype, copy=False)[:, :, shown]
        else:
            samples = self._read_segments(layout, shown, rows, columns)
        return _to_page(self._source.name, layout, samples)

    def _read_segments(self, layout: Layout, shown: slice, rows: slice, columns: slice) -> Pixels:
        """Some samples of a part of a page, as (H, W, S), from the strips or tiles that touch it."""
        shape = (rows.stop - rows.start, columns.stop - columns.start, shown.stop - shown.start)
        samples = np.empty(shape, layout.dtype)
        separate, (high, wide) = layout.planar == SEPARATE, layout.segment
        whole = shape[:2] == (layout.height, layout.width) and (separate or not layout.sample_pages)
        planes = range(shown.start, shown.stop) if separate else range(1)
        shared = {
            (plane, row, column): (there, here)
            for plane in planes
            for row, column, there, here in touching(rows, columns, high, wide)
        }
        for place, segment in self._segments(layout, shared, keep=not whole):
            there, here = shared[place]
            own = slice(place[0] - shown.start, place[0] - shown.start + 1) if separate else slice(None)
            samples[(*there, own)] = segment[(*here, slice(None) if separate else shown)]
        return samples

    def _segments(self, layout: Layout, places: Iterable[Place], *, keep: bool) -> Iterator[tuple[Place, Pixels]]:
        """What strips or tiles hold of the page, as (H, W, S), decoded now or lately; with `keep` they stay at hand."""
        waiting: list[Place] = []
        packed = 0
        for place in places:
            key = layout.place, layout.number_of(place)
            known = self._recent.get(key)
            if known is not None:
                yield place, known
                continue
            packed += layout.counts[key[1]]
            waiting.append(place)
            if max(packed, len(waiting) * layout.segment_bytes) > TOGETHER_BYTES:
                yield from self._decoded(layout, waiting, keep=keep)
                waiting, packed = [], 0
        if waiting:
            yield from self._decoded(layout, waiting, keep=keep)

    def _decoded(self, layout: Layout, places: list[Place], *, keep: bool) -> Iterator[tuple[Place, Pixels]]:
        """The same of strips or tiles that are not at hand, decoded together."""
        numbers = [layout.number_of(place) for place in places]
        sizes = [layout.size_of(place) for place in places]
        counts = [layout.counts[number] for number in numbers]
        packed = self._source.packed([(layout.offsets[number], layout.counts[number]) for number in numbers])
        starts = accumulate(counts, initial=0)
        rows = [layout.segment[0] if layout.tiled else high for high, _ in sizes]
        blocks = [list(one) for one in zip(starts, counts, numbers, rows, *zip(*sizes, strict=True), strict=False)]
        shape = (len(places), max(rows), layout.segment[1], layout.segment_samples)
        facts = {"form": layout.form.hex(), "row_bytes": layout.stored_row_bytes(), "blocks": blocks}
        stack = decoded("tiff", packed, shape, layout.dtype, **facts)
        for place, samples, (high, wide) in zip(places, stack, sizes, strict=True):
            yield place, self._kept(layout, place, samples[:high, :wide]) if keep else samples[:high, :wide]

    def _kept(self, layout: Layout, place: Place, samples: Pixels) -> Pixels:
        """A copy of a segment that stays at hand, for which others may have to go."""
        rows = layout.height if layout.sample_pages else min(layout.segment[0], layout.height)
        row_bytes = rows * layout.width * layout.samples * layout.dtype.itemsize
        return self._recent.keep((layout.place, layout.number_of(place)), samples.copy(), row_bytes)


def _to_page(name: str, layout: Layout, samples: Pixels) -> Page:
    """(H, W, S) samples of a page as its colours and what stands beside them, palettes and low depths expanded."""
    colour, extra = samples[:, :, : layout.colours], np.ascontiguousarray(samples[:, :, layout.colours :])
    beside = extra[:, :, 0] if layout.extra_samples == 1 else extra
    return _shown(name, layout, colour), beside if layout.extra_samples else None


def _shown(name: str, layout: Layout, samples: Pixels) -> Pixels:
    """Stored colours, (H, W, 1 or 3), as they are seen: by the palette, over 0..255, zero as black."""
    colour: Pixels = np.ascontiguousarray(samples[:, :, 0] if samples.shape[2] == 1 else samples)
    if layout.palette is not None:
        if int(colour.max()) >= len(layout.palette):
            raise damaged(name, "it uses colours outside its palette")
        return layout.palette[colour]
    if layout.bits < 8:
        colour = colour * np.uint8(255 // ((1 << layout.bits) - 1))
    return _inverted(colour, layout)


def _inverted(colour: Pixels, layout: Layout) -> Pixels:
    """Colours with zero as black where the file has it as white, and back; signed numbers and floats stay."""
    if layout.photometric != WHITE_IS_ZERO or layout.dtype.kind != "u":
        return colour
    return ~colour if layout.packed_bits is None else colour ^ layout.dtype.type(2**layout.packed_bits - 1)


# --- writing ------------------------------------------------------------------------------------------


def _samples(layout: Layout, colours: list[Pixels], extra: Pixels | None) -> Pixels:
    """Rows of the pages of a directory as the samples that are stored, (H, W, S)."""
    parts = [_inverted(part, layout) for part in colours]
    parts = [part if part.ndim == 3 else part[:, :, np.newaxis] for part in (*parts, extra) if part is not None]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)


def _padded(block: Pixels, layout: Layout) -> Pixels:
    """The samples of a segment; those of tiles beyond the page repeat its edge."""
    missing = (layout.segment[0] - block.shape[0], layout.segment[1] - block.shape[1])
    if not layout.tiled or not any(missing):
        return block
    return np.pad(block, ((0, missing[0]), (0, missing[1]), (0, 0)), mode="edge")


def _encode(block: Pixels, layout: Layout) -> bytes:
    """The bytes of one segment, compressed (PackBits row by row)."""
    stored = _as_stored(block, layout)
    if layout.compression == NONE:
        return stored.tobytes()
    import imagecodecs

    rows = np.frombuffer(stored.tobytes(), np.uint8).reshape(len(stored), -1)
    return bytes(getattr(imagecodecs, _ENCODERS[layout.compression])(rows))


def _as_stored(block: Pixels, layout: Layout) -> Pixels:
    """The samples of a segment as they are compressed: predicted, in the file's byte order, or packed."""
    order = layout.dtype.newbyteorder(layout.order)
    if layout.packed_bits is None and layout.predictor == NO_PREDICTOR:
        return block.astype(order, copy=False)
    import imagecodecs

    native = np.ascontiguousarray(block)
    if layout.packed_bits is not None:
        in_row = native.shape[1] * native.shape[2]
        packed = imagecodecs.packints_encode(native, layout.packed_bits, runlen=in_row)
        return np.frombuffer(packed, np.uint8).reshape(len(native), -1)
    if layout.predictor == FLOATING:
        return np.asarray(imagecodecs.floatpred_encode(native, axis=1))
    return np.asarray(imagecodecs.delta_encode(native, axis=1)).astype(order, copy=False)


def write_segments(stream: BinaryIO, layout: Layout) -> Generator[int, Page, tuple[list[int], list[int]]]:
    """Write the pages of one directory at the stream's position; return offsets and byte counts of the segments.

    The rows that are asked for are written at once, but for sample pages, which need each other.
    """
    start = stream.tell()
    if layout.compression == NONE and not layout.tiled and layout.planar == CONTIGUOUS and not layout.sample_pages:
        for rows in row_steps(layout.height, layout.stored_row_bytes()):
            colour, extra = yield rows
            stream.write(_encode(_samples(layout, [colour], extra), layout))
        counts = [rows * layout.stored_row_bytes() for _, _, _, rows in layout.segments()]
    else:
        counts = yield from _write_rows_of_segments(stream, layout)
    return list(accumulate(counts[:-1], initial=start)), counts


def _write_rows_of_segments(stream: BinaryIO, layout: Layout) -> Generator[int, Page, list[int]]:
    """Write the segments of a directory as their rows come; return their byte counts."""
    pages: list[Pixels] = []
    for _ in range(layout.samples if layout.sample_pages else 0):
        pages.append((yield layout.height)[0])
    planes, down, across = layout.grid
    (high, wide), counts = layout.segment, np.zeros(layout.grid, np.int64)
    with SpooledTemporaryFile(RECENT_BYTES) as later:  # the planes of samples after the first
        places = {}
        for row in range(down):
            rows = slice(row * high, min((row + 1) * high, layout.height))
            colours, extra = [page[rows] for page in pages], None
            if not layout.sample_pages:
                colour, extra = yield rows.stop - rows.start
                colours = [colour]
            samples = _samples(layout, colours, extra)
            for plane, column in product(range(planes), range(across)):
                block = samples[:, column * wide : (column + 1) * wide]
                block = block[:, :, plane : plane + 1] if layout.planar == SEPARATE else block
                if column == 0:
                    places[plane, row] = later.tell()
                counts[plane, row, column] = (later if plane else stream).write(_encode(_padded(block, layout), layout))
        for plane, row in product(range(1, planes), range(down)):
            later.seek(places[plane, row])
            stream.write(later.read(int(counts[plane, row].sum())))
    return [int(count) for count in counts.ravel()]
