"""TIFF and BigTIFF: pages, tiles, planes, compression and every tag written back as they were.

Each directory is rewritten with its own tags, so ImageJ, OME and tifffile descriptions (the axes),
resolution, profile, EXIF and private tags stay what they are; only the tags that say how the pixels
are stored are made anew where palettes or low depths had to be expanded.
"""

import io
import json
import math
import operator
import re
from collections.abc import Generator
from dataclasses import replace
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from dstl_cli.picture.formats import ifd as tags
from dstl_cli.picture.formats import tiff_pixels as stored
from dstl_cli.picture.formats.exif import (
    DESCRIPTION,
    HEIGHT_TAGS,
    WIDTH_TAGS,
    exif_from_tiff,
    resolution_dpi,
    resolution_tags,
    tiff_tags_from_exif,
)
from dstl_cli.picture.formats.ifd import EXIF_TAG, Entry, Ifd
from dstl_cli.picture.formats.photoshop import without_small_copies
from dstl_cli.picture.formats.tiff_pixels import Layout
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, Pixels
from dstl_cli.picture.problems import damaged, truncated, unsupported
from dstl_cli.picture.source import PLAUSIBLE_RATIO, SMALL_BYTES, Source, file_errors

_WIDTH, _LENGTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_COUNTS, _PLANAR = 273, 277, 278, 279, 284
_PREDICTOR, _COLOUR_MAP, _TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _TILE_COUNTS = 317, 320, 322, 323, 324, 325
_SUB_IFDS, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _IMAGE_DEPTH, _XMP, _ICC = 330, 338, 339, 32997, 700, 34675
_SUBFILE_TYPE, _OLD_SUBFILE_TYPE, _PAGE_NUMBER = 254, 255, 297
_TIE_POINTS, _MODEL_TRANSFORMATION, _PHOTOSHOP = 33922, 34264, 34377
_JPEG_COMPRESSIONS = (6, 7)
_JPEG_TABLES, _SUBSAMPLING, _LONGEST_TABLES, _LEAD_BYTES = 347, 530, 65_536, 64
_FORM_TAGS = {_WIDTH, _LENGTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _SAMPLES, _ROWS_PER_STRIP, _PLANAR}
_FORM_TAGS |= {_TILE_WIDTH, _TILE_LENGTH, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _SUBSAMPLING, 292, 293}  # options of fax
_MOST_AXES = 64

_STRIP_WHERE, _TILE_WHERE = (_STRIP_OFFSETS, _STRIP_COUNTS), (_TILE_OFFSETS, _TILE_COUNTS)
# Tags that are made anew, and those that are left out: free lists; options of fax, JPEG and YCbCr.
_GONE = {_WIDTH, _LENGTH, _COMPRESSION, _PREDICTOR, _BITS, _PHOTOMETRIC, _SAMPLES, _PLANAR, _EXTRA_SAMPLES}
_GONE |= {_SAMPLE_FORMAT, _ROWS_PER_STRIP, _TILE_WIDTH, _TILE_LENGTH, *_STRIP_WHERE, *_TILE_WHERE}
_GONE |= {_FILL_ORDER, _COLOUR_MAP, _SUB_IFDS, 288, 289, 292, 293, 326, 327, 328, 347}
_GONE |= {*range(512, 522), *range(529, 533)}
# The type of samples by their bits and kind (1 unsigned, 2 signed, 3 floating-point); packed ones become larger.
_SAMPLE_TYPES = {(8, 2): "i1", (16, 2): "i2", (32, 2): "i4", (16, 3): "f2", (32, 3): "f4", (64, 3): "f8"}
_SAMPLE_TYPES |= {**dict.fromkeys(((bits, 1) for bits in range(9, 17)), "u2"), (32, 1): "u4"}
_SAMPLE_TYPES |= dict.fromkeys(((bits, 1) for bits in (1, 2, 4, 8)), "u1")
_KINDS = {"u": 1, "i": 2, "f": 3}
_CLASSIC_BYTES = 2**32 * 2 // 3  # beyond 4 GiB offsets do not fit, and LZW makes noise larger by a third
_SAMPLE_RANGES = {280, 281, 340, 341, 290, 291}  # smallest and largest sample, grey response
_KEPT_WHEN_STRIPPED = {_SUBFILE_TYPE, _OLD_SUBFILE_TYPE, _PAGE_NUMBER}
_OTHER_KINDS = {50706: "is a camera raw file (DNG)", 34412: "is a Zeiss LSM file", 33629: "is a MetaMorph stack"}
_PHOTOMETRIC_NAMES = {
    4: "a transparency mask",
    5: "CMYK colours",
    8: "CIELab colours",
    9: "ICCLab colours",
    10: "ITULab colours",
    32803: "raw camera mosaic data",
    32844: "LogL data",
    32845: "LogLuv data",
    34892: "raw camera data",
}


class TiffExtras(NamedTuple):
    """The directories of the file, how each stores its pixels, and the kind of file around them."""

    ifds: tuple[Ifd, ...]
    layouts: tuple[Layout, ...]
    order: Literal["<", ">"]
    big: bool


def read(source: Source) -> Picture:
    """Read the directories of a TIFF file."""
    extras, notes = _parse(source)
    layouts = extras.layouts
    places = [(directory, page) for directory, layout in enumerate(layouts) for page in range(layout.pages)]
    reader = stored.PixelReader(source)

    def part(index: int, rows: slice, columns: slice) -> Page:
        directory, page = places[index]
        return reader.read(layouts[directory], page, rows, columns)

    def decode(index: int) -> Page:
        return part(index, slice(0, specs[index].height), slice(0, specs[index].width))

    specs = tuple(layouts[directory].spec for directory, _ in places)
    metadata, premultiplied = _metadata(extras.ifds[0]), 1 in layouts[0].extra
    return Picture(source.name, specs, decode, metadata, extras, notes, premultiplied=premultiplied, decode_part=part)


def write_rows(picture: Picture, stream: BinaryIO, strip: bool) -> Generator[int, Page, None]:
    """Write the rows that are sent to a seekable stream; pages from another format become deflated strips."""
    extras: TiffExtras = picture.native or _fresh(picture)
    layouts = [_for_writing(layout) for layout in extras.layouts]
    total = sum(layout.decoded_bytes for layout in layouts)
    planes = any(layout.planes > 1 for layout in layouts)
    big = extras.big or (total > _CLASSIC_BYTES and not planes)
    writer = tags.IfdWriter(stream, extras.order, big, picture.name)
    for ifd, old, layout in zip(extras.ifds, extras.layouts, layouts, strict=True):
        kept = _stripped(ifd) if strip else ifd
        if layout.planes > 1:  # all of them behind one directory, as ImageJ does beyond 4 GiB
            whole = replace(layout, segment=(layout.height, layout.width))
            size = layout.height * layout.stored_row_bytes()
            fields = writer.append(_directory(kept, old, whole, [0], [size], big=big))
            writer.patch(fields[_STRIP_OFFSETS], writer.begin())
            for _ in range(layout.planes):
                yield from stored.write_segments(stream, whole)
            continue
        writer.begin()
        where = yield from stored.write_segments(stream, layout)
        writer.append(_directory(kept, old, layout, *where, big=big))


# --- reading ------------------------------------------------------------------------------------------


def _parse(source: Source) -> tuple[TiffExtras, tuple[str, ...]]:
    """Read all directories and check that the file really holds what they promise."""
    name = source.name
    with file_errors(name), source.open() as stream:
        reader = tags.IfdReader(stream, source.size, name)
        ifds = reader.directories()
        if not ifds:
            raise damaged(name, "it holds no pages")
        for ifd in ifds:
            _check_kind(name, ifd, reader)
    notes = list(dict.fromkeys(reader.notes))
    if any(_SUB_IFDS in ifd.entries for ifd in ifds):
        notes.append("The reduced copies stored beside its pages are not carried over.")
    layouts = _layouts(source, ifds, reader.order)
    if len(ifds) == 1:
        layouts[0] = _with_planes(source, ifds[0], layouts[0])
    if any(layout.compression not in stored.COMPRESSIONS for layout in layouts):
        notes.append("Its compression cannot be written, so the result is stored with deflate.")
    widest = max(layouts, key=lambda layout: layout.decoded_bytes)
    total = sum(layout.decoded_bytes for layout in layouts)
    source.check_size(widest.width, widest.height, total)
    return TiffExtras(tuple(ifds), tuple(layouts), reader.order, reader.big), tuple(notes)


def _check_kind(name: str, ifd: Ifd, reader: tags.IfdReader) -> None:
    """Refuse the relatives of TIFF whose private structures could not be written back."""
    for tag, kind in _OTHER_KINDS.items():
        if tag in ifd.entries:
            raise unsupported(name, kind, "export it as a plain TIFF first")
    if ifd.number(_IMAGE_DEPTH, 1) > 1:
        raise unsupported(name, "stores a volume as one page", "save it with one page per slice first")
    for offset in ifd.numbers(_SUB_IFDS, 16):
        inner, _ = reader.directory(offset)
        if inner.number(_WIDTH, 0) > ifd.number(_WIDTH, 0):
            raise unsupported(name, "is a camera raw file", "develop it to a plain TIFF first")


def _layouts(source: Source, ifds: list[Ifd], order: Literal["<", ">"]) -> list[Layout]:
    """How all directories store their pixels; refused where that asks for far more work than the file is long."""
    layouts: list[Layout] = []
    blocks = 0
    for ifd in ifds:
        layouts.append(_layout(source, ifd, order))
        blocks += len(layouts[-1].offsets)
        if blocks > source.size:
            raise damaged(source.name, "it has more blocks of pixels than bytes")
    work = sum(math.prod(layout.grid) * layout.segment_bytes for layout in layouts)
    pixels = sum(layout.decoded_bytes for layout in layouts)
    oversized = any(layout.segment_bytes > max(SMALL_BYTES, 4 * layout.decoded_bytes) for layout in layouts)
    if oversized or work > max(SMALL_BYTES, 16 * pixels, PLAUSIBLE_RATIO * source.size):
        raise damaged(source.name, "its tiles are far larger than its pages")
    if sum(sum(layout.counts) for layout in layouts) > SMALL_BYTES + 16 * source.size:
        raise damaged(source.name, "its blocks of pixels lie upon each other")
    return layouts


def _layout(source: Source, ifd: Ifd, order: Literal["<", ">"]) -> Layout:
    """How a directory stores its pixels, checked against the file."""
    name = source.name
    width, height = ifd.number(_WIDTH, 0), ifd.number(_LENGTH, 0)
    samples = ifd.number(_SAMPLES, 1)
    source.check_size(width, height, 0)
    if not 1 <= samples <= 65_535:
        raise damaged(name, f"it has {samples} samples per pixel")
    bits, dtype = _sample_type(name, ifd, samples)
    compression = ifd.number(_COMPRESSION, stored.NONE)
    if compression not in stored.READ:
        what = f"is compressed by method {compression}"
        raise unsupported(name, what, "save it with deflate, LZW or no compression first")
    photometric = ifd.number(_PHOTOMETRIC, stored.RGB if samples >= 3 else stored.BLACK_IS_ZERO)
    known = photometric in (stored.WHITE_IS_ZERO, stored.BLACK_IS_ZERO, stored.RGB, stored.PALETTE)
    if not known and not (photometric == stored.YCBCR and compression in _JPEG_COMPRESSIONS):
        kind = _PHOTOMETRIC_NAMES.get(photometric)
        what = f"holds {kind}" if kind else f"has colours of kind {photometric}"
        raise unsupported(name, what, "convert it to grey or RGB first")
    colours = 3 if photometric in (stored.RGB, stored.YCBCR) else 1
    if samples < colours:
        raise damaged(name, "it has fewer samples than colours")
    predicted = compression in stored.PREDICTED
    predictor = ifd.number(_PREDICTOR, stored.NO_PREDICTOR) if predicted else stored.NO_PREDICTOR
    unpacked = bits == 8 * dtype.itemsize
    fitting = {stored.NO_PREDICTOR: True, stored.HORIZONTAL: unpacked, stored.FLOATING: dtype.kind == "f"}
    if not fitting.get(predictor):
        raise unsupported(name, f"uses predictor {predictor} for {bits}-bit samples", "save it without a predictor")
    tiled = _TILE_OFFSETS in ifd.entries or _TILE_WIDTH in ifd.entries
    if tiled:
        segment = (ifd.number(_TILE_LENGTH, 0), ifd.number(_TILE_WIDTH, 0))
        source.check_size(segment[1], segment[0], 0)
    else:
        segment = (min(max(ifd.number(_ROWS_PER_STRIP, height), 1), height), width)
    declared = tuple(ifd.numbers(_EXTRA_SAMPLES, samples))
    separate = samples > 1 and colours == 1 and photometric != stored.PALETTE and not any(declared[: samples - 1])
    layout = Layout(
        width=width,
        height=height,
        samples=samples,
        bits=bits,
        dtype=dtype,
        photometric=photometric,
        planar=stored.SEPARATE if samples > 1 and ifd.number(_PLANAR, 1) == stored.SEPARATE else stored.CONTIGUOUS,
        compression=compression,
        predictor=predictor,
        tiled=tiled,
        segment=segment,
        reversed_bits=ifd.number(_FILL_ORDER, 1) == 2,
        order=order,
        palette=_palette(name, ifd, bits, dtype) if photometric == stored.PALETTE else None,
        extra=declared,
        sample_pages=separate,
        place=ifd.place,
    )
    placed = _with_segments(source, ifd, layout)
    return placed if placed.contiguous else replace(placed, form=_form(source, ifd, placed))


def _form(source: Source, ifd: Ifd, layout: Layout) -> bytes:
    """A TIFF file with the tags that tell how segments are decoded, each no longer than it should be.

    Its one segment is the start of the first one of the page, where a decoder of JPEG looks for more.
    """
    most = {_BITS: layout.samples, _SAMPLE_FORMAT: layout.samples, _EXTRA_SAMPLES: layout.samples, _SUBSAMPLING: 2}
    entries = {}
    for tag in _FORM_TAGS & ifd.entries.keys():
        values = ifd.numbers(tag, most.get(tag, 1))
        entries[tag] = tags.numbers(tags.LONG if max(values, default=0) > 65_535 else tags.SHORT, *values)
    if _JPEG_TABLES in ifd.entries and len(ifd.entries[_JPEG_TABLES].data) <= _LONGEST_TABLES:
        entries[_JPEG_TABLES] = ifd.entries[_JPEG_TABLES]
    entries[_PREDICTOR] = tags.numbers(tags.SHORT, layout.predictor)
    with file_errors(source.name), source.open() as stream:
        stream.seek(layout.offsets[0])
        lead = stream.read(min(_LEAD_BYTES, layout.counts[0]))
    made = io.BytesIO()
    writer = tags.IfdWriter(made, layout.order, False, source.name)
    where = _TILE_WHERE if layout.tiled else _STRIP_WHERE
    place = writer.begin()
    made.write(lead)
    entries |= {tag: tags.numbers(tags.LONG, value) for tag, value in zip(where, (place, len(lead)), strict=True)}
    writer.append(Ifd(entries))
    return made.getvalue()


def _sample_type(name: str, ifd: Ifd, samples: int) -> tuple[int, np.dtype[Any]]:
    """Bits per sample and the dtype that holds them."""
    depths = set(ifd.numbers(_BITS, samples)) or {1}
    formats = set(ifd.numbers(_SAMPLE_FORMAT, samples)) or {1}
    if len(depths) > 1 or len(formats) > 1:
        raise unsupported(name, "mixes sample types in one pixel", "save it with one type for all channels")
    bits, form = depths.pop(), formats.pop()
    form = 1 if form == 4 else form
    code = _SAMPLE_TYPES.get((bits, form))
    if code is None:
        kind = {1: "unsigned whole", 2: "signed whole", 3: "floating-point"}.get(form, "complex")
        remedy = "convert it to 8, 16 or 32-bit whole or 16, 32 or 64-bit floating-point samples first"
        raise unsupported(name, f"has {bits}-bit {kind} numbers", remedy)
    return bits, np.dtype(code)


def _palette(name: str, ifd: Ifd, bits: int, dtype: np.dtype[Any]) -> Pixels:
    """The colour map as (N, 3) uint8, or (N,) when it is grey."""
    values = ifd.numbers(_COLOUR_MAP, 1 + (3 << 8))
    if bits > 8 or dtype != np.uint8:
        raise unsupported(name, f"has a {bits}-bit palette", "convert it to RGB first")
    if len(values) != 3 << bits:
        raise damaged(name, "its palette is wrong")
    colours = np.array(values, np.uint32).reshape(3, -1).T
    small = colours if colours.max() < 256 else colours >> 8  # some writers forget the 16-bit scale
    palette = small.astype(np.uint8)
    grey = (palette == palette[:, :1]).all() and _ICC not in ifd.entries
    return np.ascontiguousarray(palette[:, 0] if grey else palette)


def _with_segments(source: Source, ifd: Ifd, layout: Layout) -> Layout:
    """Add the places of strips or tiles, each checked to lie inside the file."""
    name = source.name
    expected = math.prod(layout.grid)
    if expected > source.size:
        raise damaged(name, "it has more blocks of pixels than bytes")
    places, counts = (ifd.numbers(tag, expected) for tag in (_TILE_WHERE if layout.tiled else _STRIP_WHERE))
    if layout.compression == stored.NONE:
        row_bytes = layout.stored_row_bytes()
        needed = [rows * row_bytes for _, _, _, rows in layout.segments()]
        if counts and (len(counts) < expected or any(map(operator.lt, counts, needed))):
            raise damaged(name, "its blocks of pixels are too short")
        counts = needed
    if min(len(places), len(counts)) < expected:
        raise damaged(name, "it does not say where all its pixels are")
    if min(*places, *counts) <= 0:
        raise damaged(name, "it has blocks without pixels")
    if max(map(operator.add, places, counts)) > source.size:
        raise truncated(name)
    return replace(layout, offsets=tuple(places), counts=tuple(counts))


def _with_planes(source: Source, ifd: Ifd, layout: Layout) -> Layout:
    """Find the further pictures that ImageJ and tifffile may store behind a single directory."""
    count = 1
    for text in ifd.texts(DESCRIPTION):
        if text.startswith("ImageJ=") and (match := re.search(r"^images=(\d{1,9})\s*$", text, re.MULTILINE)):
            count = int(match.group(1))
        elif text.startswith("{") and '"truncated"' in text:
            count = _shaped_planes(text, layout)
    if count <= 1:
        return layout
    plain = layout.compression == stored.NONE and layout.bits == 8 * layout.dtype.itemsize and not layout.tiled
    if not plain or layout.sample_pages or layout.planar == stored.SEPARATE:
        what = f"promises {count} pictures but lists only one"
        raise unsupported(source.name, what, "save it with one page per picture first")
    if layout.offsets[0] + count * layout.height * layout.stored_row_bytes() > source.size:
        raise truncated(source.name)
    return replace(layout, planes=count)


def _shaped_planes(text: str, layout: Layout) -> int:
    """How many pictures a truncated tifffile series holds, from the shape in its description."""
    try:
        described = json.loads(text)
        total = math.prod(max(0, int(side)) for side in described["shape"][:_MOST_AXES])
        return total // (layout.width * layout.height * layout.samples) if described["truncated"] else 1
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return 1


def _metadata(ifd: Ifd) -> Metadata:
    """What other formats can hold as well, from the first page."""
    description = next(iter(ifd.texts(DESCRIPTION)), "")
    plain = bool(description) and not _tells_axes(description)
    exif = exif_from_tiff(ifd, plain_description=plain)
    icc, xmp = (entry.data if (entry := ifd.entries.get(tag)) else None for tag in (_ICC, _XMP))
    return Metadata(icc, exif, xmp, resolution_dpi(ifd), description or None)


def _tells_axes(description: str) -> bool:
    """Whether a description is ImageJ's, OME's or tifffile's record of the axes."""
    text = description.strip()
    return text.startswith(("ImageJ=", "{")) or (text.startswith("<") and "<OME" in text and "</OME>" in text)


# --- writing ------------------------------------------------------------------------------------------


def _for_writing(layout: Layout) -> Layout:
    """The layout to write: expanded samples, and a compression we can encode."""
    changes: dict[str, Any] = {"reversed_bits": False, "palette": None}
    if layout.palette is not None or layout.photometric == stored.YCBCR or layout.bits < 8:
        rgb = layout.spec.channels == 3
        samples = layout.samples - layout.colours + layout.spec.channels
        changes |= {"photometric": stored.RGB if rgb else stored.BLACK_IS_ZERO, "samples": samples}
    if layout.bits < 8:
        changes |= {"bits": 8, "predictor": stored.NO_PREDICTOR}
    if layout.compression not in stored.COMPRESSIONS:
        horizontal = layout.dtype.kind != "f" and layout.packed_bits is None
        predictor = stored.HORIZONTAL if horizontal else stored.NO_PREDICTOR
        changes |= {"compression": stored.DEFLATE, "predictor": predictor}
    return replace(layout, **changes)


def _directory(ifd: Ifd, old: Layout, layout: Layout, places: list[int], counts: list[int], *, big: bool) -> Ifd:
    """The tags of a page with new pixel data."""
    expanded = (old.bits, old.photometric) != (layout.bits, layout.photometric)
    gone = _GONE | (_SAMPLE_RANGES if expanded else set())
    entries = {tag: entry for tag, entry in ifd.entries.items() if tag not in gone}
    extra = layout.samples - layout.colours
    short = {
        _BITS: [layout.bits] * layout.samples,
        _COMPRESSION: [layout.compression],
        _PHOTOMETRIC: [layout.photometric],
        _SAMPLES: [layout.samples],
        _PLANAR: [layout.planar],
        _SAMPLE_FORMAT: [_KINDS[layout.dtype.kind]] * layout.samples,
        _PREDICTOR: [layout.predictor] if layout.predictor != stored.NO_PREDICTOR else [],
        _EXTRA_SAMPLES: (layout.extra + (0,) * extra)[:extra],
    }
    long = {_WIDTH: layout.width, _LENGTH: layout.height}
    rows, columns = layout.segment
    long |= {_TILE_LENGTH: rows, _TILE_WIDTH: columns} if layout.tiled else {_ROWS_PER_STRIP: rows}
    entries |= {tag: tags.numbers(tags.SHORT, *values) for tag, values in short.items() if values}
    entries |= {tag: tags.numbers(tags.LONG, value) for tag, value in long.items()}
    for tag, values in zip(_TILE_WHERE if layout.tiled else _STRIP_WHERE, (places, counts), strict=True):
        entries[tag] = tags.numbers(tags.LONG8 if big else tags.LONG, *values)
    return Ifd(entries, ifd.children, [(tag, entry) for tag, entry in ifd.repeated if tag not in gone])


def cropped_native(picture: Picture, rows: slice, columns: slice) -> TiffExtras:
    """Directories and layouts for the same part of every page."""
    extras: TiffExtras = picture.native
    height, width = rows.stop - rows.start, columns.stop - columns.start
    layouts, ifds = [], []
    for ifd, layout in zip(extras.ifds, extras.layouts, strict=True):
        segment = layout.segment if layout.tiled else (min(layout.segment[0], height), width)
        layouts.append(replace(layout, width=width, height=height, segment=segment, offsets=(), counts=()))
        ifds.append(_directory_of_part(ifd, layout, rows, columns))
    return extras._replace(ifds=tuple(ifds), layouts=tuple(layouts))


def _directory_of_part(ifd: Ifd, layout: Layout, rows: slice, columns: slice) -> Ifd:
    """The tags of a page that say where its pixels lie or how many there are, made to fit a part of it."""
    size = columns.stop - columns.start, rows.stop - rows.start

    def fitting(tag: int, entry: Entry) -> Entry:
        if tag == DESCRIPTION:
            text = _description_of_part(entry.text(), layout, *size).encode() + b"\x00"
            return Entry(entry.type, len(text), text) if _tells_axes(entry.text()) else entry
        if tag in (_TIE_POINTS, _MODEL_TRANSFORMATION) and entry.type == tags.DOUBLE:
            return _georeference_of_part(tag, entry, rows.start, columns.start)
        if tag == _PHOTOSHOP:
            block = without_small_copies(entry.data)
            return Entry(entry.type, len(block) // tags.TYPES[entry.type].itemsize, block)
        return entry

    children = dict(ifd.children)
    if EXIF_TAG in children:
        exif = children[EXIF_TAG]
        sizes = dict.fromkeys(WIDTH_TAGS, size[0]) | dict.fromkeys(HEIGHT_TAGS, size[1])
        known = {tag: tags.numbers(tags.LONG, sizes[tag]) for tag in sizes if tag in exif.entries}
        children[EXIF_TAG] = replace(exif, entries=exif.entries | known)
    entries = {tag: fitting(tag, entry) for tag, entry in ifd.entries.items()}
    return replace(ifd, entries=entries, children=children, repeated=[(t, fitting(t, e)) for t, e in ifd.repeated])


def _description_of_part(text: str, layout: Layout, width: int, height: int) -> str:
    """A record of the axes with the size of a part: tifffile's shape, and the Pixels of OME."""
    if text.startswith("{"):
        try:
            described = json.loads(text)
            shape, last = list(described["shape"]), 3 if layout.segment_samples > 1 else 2
        except (ValueError, KeyError, TypeError, RecursionError):
            return text
        if shape[len(shape) - last :][:2] == [layout.height, layout.width]:
            shape[len(shape) - last : len(shape) - last + 2] = [height, width]
        return json.dumps(described | {"shape": shape})
    resized = re.sub(r'(?<=\bSizeX=")\d+(?=")', str(width), text)
    return re.sub(r'(?<=\bSizeY=")\d+(?=")', str(height), resized)


def _georeference_of_part(tag: int, entry: Entry, top: int, left: int) -> Entry:
    """Where the pixels of a part lie on the earth (GeoTIFF): tie points (I, J, K, X, Y, Z), or a 4 x 4 matrix."""
    values = np.frombuffer(entry.data, "<f8").copy()
    if tag == _TIE_POINTS and values.size % 6 == 0:
        values.reshape(-1, 6)[:, :2] -= left, top
    elif tag == _MODEL_TRANSFORMATION and values.size == 16:
        matrix = values.reshape(4, 4)
        matrix[:3, 3] += matrix[:3, 0] * left + matrix[:3, 1] * top
    return replace(entry, data=values.tobytes())


def _stripped(ifd: Ifd) -> Ifd:
    """A directory without what is not needed to read its pixels; a description of axes stays."""
    described = ((tag, entry) for tag, entry in (*ifd.entries.items(), *ifd.repeated) if tag == DESCRIPTION)
    axes = [item for item in described if _tells_axes(item[1].text())]
    return Ifd(tags.pick(ifd.entries, _KEPT_WHEN_STRIPPED), repeated=axes)


def _fresh(picture: Picture) -> TiffExtras:
    """Directories for a picture that comes from another format."""
    metadata = picture.metadata
    entries, children = tiff_tags_from_exif(metadata.exif) if metadata.exif is not None else ({}, {})
    if metadata.dpi is not None:
        entries |= resolution_tags(metadata.dpi)
    text = metadata.description.encode() + b"\x00" if metadata.description else None
    for tag, kind, value in ((_ICC, tags.UNDEFINED, metadata.icc), (_XMP, 1, metadata.xmp), (DESCRIPTION, 2, text)):
        if value is not None:
            entries[tag] = Entry(kind, len(value), value)
    ifds = (Ifd(entries, children),) * len(picture.specs)
    return TiffExtras(ifds, tuple(map(_fresh_layout, picture.specs)), "<", False)


def _fresh_layout(spec: PageSpec) -> Layout:
    """Deflated strips of about a quarter MiB."""
    samples = spec.channels + spec.extra
    row_bytes = spec.width * samples * spec.dtype.itemsize
    rows = min(spec.height, max(1, 2**18 // row_bytes))
    return Layout(
        width=spec.width,
        height=spec.height,
        samples=samples,
        bits=spec.bits or 8 * spec.dtype.itemsize,
        dtype=spec.dtype,
        photometric=stored.RGB if spec.channels == 3 else stored.BLACK_IS_ZERO,
        predictor=stored.NO_PREDICTOR if spec.dtype.kind == "f" or spec.bits else stored.HORIZONTAL,
        segment=(rows, spec.width),
        extra=(2,) * spec.extra,
    )
