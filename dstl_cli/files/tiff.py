"""TIFF and BigTIFF: pages, tiles, planes, compression and every tag written back as they were.

Each directory is rewritten with its own tags, so ImageJ, OME and tifffile descriptions (the axes),
resolution, profile, EXIF and private tags stay what they are; only the tags that say how the pixels
are stored are made anew where palettes or low depths had to be expanded.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Literal

import numpy as np

from dstl_cli.files.exif import (
    DESCRIPTION,
    RESOLUTION_UNIT,
    X_RESOLUTION,
    Y_RESOLUTION,
    exif_from_tiff,
    resolution_dpi,
    tiff_tags_from_exif,
)
from dstl_cli.files.ifd import (
    ASCII,
    UNDEFINED,
    Entry,
    Ifd,
    IfdReader,
    IfdWriter,
    long,
    offsets,
    rational,
    short,
)
from dstl_cli.files.pictures import (
    EAGER_BYTES,
    ImageInfo,
    LazySequence,
    Metadata,
    PageSpec,
    Picture,
    Pixels,
    Source,
    check_finite,
    check_size,
    damaged,
    file_errors,
    truncated,
    unsupported,
)
from dstl_cli.files.tiff_pixels import (
    BLACK_IS_ZERO,
    COMPRESSIONS,
    CONTIGUOUS,
    DEFLATE,
    FLOATING,
    HORIZONTAL,
    NO_PREDICTOR,
    NONE,
    PACKBITS,
    PALETTE,
    RGB,
    SEPARATE,
    WHITE_IS_ZERO,
    YCBCR,
    Layout,
    read_layout,
    write_segments,
)

_WIDTH, _LENGTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_COUNTS, _PLANAR = 273, 277, 278, 279, 284
_PREDICTOR, _COLOUR_MAP, _TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _TILE_COUNTS = 317, 320, 322, 323, 324, 325
_SUB_IFDS, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _IMAGE_DEPTH, _XMP, _ICC = 330, 338, 339, 32997, 700, 34675
_SUBFILE_TYPE, _OLD_SUBFILE_TYPE, _PAGE_NUMBER = 254, 255, 297
_JPEG_COMPRESSIONS = (6, 7)

_STRUCTURE = {
    _WIDTH, _LENGTH, _BITS, _COMPRESSION, _PHOTOMETRIC, _STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP,
    _STRIP_COUNTS, _PLANAR, _PREDICTOR, _TILE_WIDTH, _TILE_LENGTH, _TILE_OFFSETS, _TILE_COUNTS,
    _EXTRA_SAMPLES, _SAMPLE_FORMAT,
}  # fmt: skip
_GONE = {
    _FILL_ORDER, _COLOUR_MAP, _SUB_IFDS, 288, 289,  # bit order, palette, sub-directories, free lists
    292, 293, 326, 327, 328, 347, *range(512, 522), 529, 530, 531, 532,  # options of fax, JPEG, YCbCr
}  # fmt: skip
_CLASSIC_BYTES = 2**32 * 2 // 3  # beyond 4 GiB offsets do not fit, and LZW makes noise larger by a third
_SAMPLE_RANGES = {280, 281, 340, 341, 290, 291}  # smallest and largest sample, grey response
_KEPT_WHEN_STRIPPED = {_SUBFILE_TYPE, _OLD_SUBFILE_TYPE, _PAGE_NUMBER}
_OTHER_KINDS = {
    50706: "is a camera raw file (DNG)",
    34412: "is a Zeiss LSM file",
    33629: "is a MetaMorph stack",
}
_PHOTOMETRIC_NAMES = {4: "a transparency mask", 5: "CMYK colours", 8: "CIELab colours", 9: "ICCLab colours",
                      10: "ITULab colours", 32803: "raw camera mosaic data", 32844: "LogL data",
                      32845: "LogLuv data", 34892: "raw camera data"}  # fmt: skip


@dataclass(frozen=True)
class TiffExtras:
    """The directories of the file, how each stores its pixels, and the kind of file around them."""

    ifds: tuple[Ifd, ...]
    layouts: tuple[Layout, ...]
    order: Literal["<", ">"]
    big: bool


def probe(source: Source) -> ImageInfo:
    """Read the directories only."""
    extras, _ = _parse(source)
    first = extras.layouts[0]
    spec = first.spec
    pages = sum(layout.pages for layout in extras.layouts)
    has_alpha = any(layout.has_alpha for layout in extras.layouts)
    return ImageInfo(spec.width, spec.height, pages, spec.channels, has_alpha, spec.dtype, "tiff")


def read(source: Source) -> Picture:
    """Read a TIFF file; pages beyond 256 MiB in all are decoded only when asked for."""
    extras, notes = _parse(source)
    specs = tuple(layout.spec for layout in extras.layouts for _ in range(layout.pages))
    loader = _Loader(source, extras.layouts)
    pages: Any = LazySequence(len(specs), loader.page)
    alphas: Any = LazySequence(len(specs), loader.alpha)
    if len(specs) == 1 or sum(layout.decoded_bytes for layout in extras.layouts) <= EAGER_BYTES:
        pairs = list(loader.all())
        pages = tuple(page for page, _ in pairs)
        alphas = tuple(alpha for _, alpha in pairs)
    has_alpha = any(layout.has_alpha for layout in extras.layouts)
    return Picture(source.name, "tiff", pages, alphas, specs, _metadata(extras.ifds[0]), extras, has_alpha, notes)


def write(picture: Picture, stream: BinaryIO, strip: bool) -> None:
    """Write all pages to a seekable stream; a picture from another format becomes deflated strips."""
    extras = picture.native if isinstance(picture.native, TiffExtras) else _fresh(picture)
    layouts = [_for_writing(layout) for layout in extras.layouts]
    total = sum(layout.decoded_bytes for layout in layouts)
    planes = any(layout.planes > 1 for layout in layouts)
    big = extras.big or (total > _CLASSIC_BYTES and not planes)
    writer = IfdWriter(stream, extras.order, big, picture.name)
    index = 0
    for ifd, source_layout, layout in zip(extras.ifds, extras.layouts, layouts, strict=True):
        kept = _stripped(ifd) if strip else ifd
        if layout.planes > 1:
            _write_planes(writer, picture, index, kept, layout)
        else:
            span = range(index, index + layout.pages)
            pages = [picture.pages[page] for page in span]
            writer.begin()
            where = write_segments(stream, layout, pages, picture.alphas[index])
            writer.append(_directory(kept, source_layout, layout, *where, big=big))
        index += layout.pages


# --- reading ------------------------------------------------------------------------------------------


class _Loader:
    """Decodes pages on demand, and remembers the extra samples of the last one."""

    def __init__(self, source: Source, layouts: tuple[Layout, ...]) -> None:
        self._source = source
        self._places = [(layout, place) for layout in layouts for place in range(layout.pages)]
        self._last: tuple[int, Pixels | None] = (-1, None)

    def all(self) -> Iterator[tuple[Pixels, Pixels | None]]:
        """Every page with its extra samples, each directory decoded once."""
        index = 0
        while index < len(self._places):
            layout, place = self._places[index]
            pages, extra = self._decode(index, layout, place)
            for page in pages:
                yield page, extra
            index += len(pages)

    def page(self, index: int) -> Pixels:
        """One page."""
        layout, place = self._places[index]
        pages, extra = self._decode(index, layout, place)
        self._last = (index, extra)
        return pages[place] if layout.channels else pages[0]

    def alpha(self, index: int) -> Pixels | None:
        """The extra samples of one page."""
        layout, place = self._places[index]
        if not layout.has_alpha:
            return None
        last, extra = self._last
        return extra if last == index else self._decode(index, layout, place)[1]

    def _decode(self, index: int, layout: Layout, place: int) -> tuple[list[Pixels], Pixels | None]:
        pages, extra = read_layout(self._source, layout, 0 if layout.channels else place)
        where = f" on page {index + 1}" if len(self._places) > 1 else ""
        for page in pages:
            check_finite(page, self._source.name, where)
        return pages, extra


def _parse(source: Source) -> tuple[TiffExtras, tuple[str, ...]]:
    """Read all directories and check that the file really holds what they promise."""
    name = source.name
    with file_errors(name), source.open() as stream:
        reader = IfdReader(stream, source.size, name)
        ifds = reader.directories()
        if not ifds:
            raise damaged(name, "it holds no pages")
        for ifd in ifds:
            _check_kind(name, ifd, reader)
    notes = list(reader.notes)
    if any(_SUB_IFDS in ifd.entries for ifd in ifds):
        notes.append("The reduced copies stored beside its pages are not carried over.")
    layouts = [_layout(source, ifd, index, reader.order) for index, ifd in enumerate(ifds)]
    if len(ifds) == 1:
        layouts[0] = _with_planes(source, ifds[0], layouts[0])
    if any(layout.compression not in COMPRESSIONS for layout in layouts):
        notes.append("Its compression cannot be written, so the result is stored with deflate.")
    widest = max(layouts, key=lambda layout: layout.decoded_bytes)
    total = sum(layout.decoded_bytes for layout in layouts)
    check_size(source, widest.width, widest.height, total)
    return TiffExtras(tuple(ifds), tuple(layouts), reader.order, reader.big), tuple(notes)


def _check_kind(name: str, ifd: Ifd, reader: IfdReader) -> None:
    """Refuse the relatives of TIFF whose private structures could not be written back."""
    for tag, kind in _OTHER_KINDS.items():
        if tag in ifd.entries:
            raise unsupported(name, kind, "export it as a plain TIFF first")
    if ifd.number(_IMAGE_DEPTH, 1) > 1:
        raise unsupported(name, "stores a volume as one page", "save it with one page per slice first")
    for offset in ifd.numbers(_SUB_IFDS)[:16]:
        inner, _ = reader.directory(offset)
        if inner.number(_WIDTH, 0) > ifd.number(_WIDTH, 0):
            raise unsupported(name, "is a camera raw file", "develop it to a plain TIFF first")


def _layout(source: Source, ifd: Ifd, index: int, order: Literal["<", ">"]) -> Layout:
    """How a directory stores its pixels, checked against the file."""
    name = source.name
    width, height = ifd.number(_WIDTH, 0), ifd.number(_LENGTH, 0)
    samples = ifd.number(_SAMPLES, 1)
    check_size(source, width, height, 0)
    if not 1 <= samples <= 65_535:
        raise damaged(name, f"it has {samples} samples per pixel")
    bits, dtype = _sample_type(name, ifd, samples)
    compression = ifd.number(_COMPRESSION, NONE)
    photometric = ifd.number(_PHOTOMETRIC, RGB if samples >= 3 else BLACK_IS_ZERO)
    if photometric in _PHOTOMETRIC_NAMES:
        raise unsupported(name, f"holds {_PHOTOMETRIC_NAMES[photometric]}", "convert it to grey or RGB first")
    if photometric not in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE) and not (
        photometric == YCBCR and compression in _JPEG_COMPRESSIONS
    ):
        raise unsupported(name, f"has colours of kind {photometric}", "convert it to grey or RGB first")
    colours = 3 if photometric in (RGB, YCBCR) else 1
    if samples < colours:
        raise damaged(name, "it has fewer samples than colours")
    predicted = compression in COMPRESSIONS and compression not in (NONE, PACKBITS)
    predictor = ifd.number(_PREDICTOR, NO_PREDICTOR) if predicted else NO_PREDICTOR
    _check_predictor(name, predictor, bits, dtype)
    tiled = _TILE_OFFSETS in ifd.entries or _TILE_WIDTH in ifd.entries
    if tiled:
        segment = (ifd.number(_TILE_LENGTH, 0), ifd.number(_TILE_WIDTH, 0))
        check_size(source, segment[1], segment[0], 0)
    else:
        segment = (min(max(ifd.number(_ROWS_PER_STRIP, height), 1), height), width)
    declared = tuple(ifd.numbers(_EXTRA_SAMPLES))
    channels = samples > 1 and colours == 1 and photometric != PALETTE and not any(declared[: samples - 1])
    layout = Layout(
        width=width,
        height=height,
        samples=samples,
        bits=bits,
        dtype=dtype,
        photometric=photometric,
        planar=SEPARATE if ifd.number(_PLANAR, CONTIGUOUS) == SEPARATE and samples > 1 else CONTIGUOUS,
        compression=compression,
        predictor=predictor,
        tiled=tiled,
        segment=segment,
        reversed_bits=ifd.number(_FILL_ORDER, 1) == 2,
        order=order,
        offsets=(),
        counts=(),
        palette=_palette(name, ifd, bits, dtype) if photometric == PALETTE else None,
        extra=declared,
        planes=1,
        channels=channels,
        index=index,
    )
    return _with_segments(source, ifd, layout)


def _sample_type(name: str, ifd: Ifd, samples: int) -> tuple[int, np.dtype[Any]]:
    """Bits per sample and the dtype that holds them."""
    depths = set(ifd.numbers(_BITS)[:samples]) or {1}
    formats = set(ifd.numbers(_SAMPLE_FORMAT)[:samples]) or {1}
    if len(depths) > 1 or len(formats) > 1:
        raise unsupported(name, "mixes sample types in one pixel", "save it with one type for all channels")
    bits, form = depths.pop(), formats.pop()
    known = {
        (1, 1): "u1",
        (2, 1): "u1",
        (4, 1): "u1",
        (8, 1): "u1",
        (16, 1): "u2",
        (32, 3): "f4",
        (64, 3): "f8",
    }
    code = known.get((bits, 1 if form == 4 else form))
    if code is None:
        kind = {1: "unsigned whole", 2: "signed whole", 3: "floating-point"}.get(form, "complex")
        remedy = "convert it to 8 or 16-bit unsigned or 32-bit floating-point samples first"
        raise unsupported(name, f"has {bits}-bit {kind} numbers", remedy)
    return bits, np.dtype(code)


def _check_predictor(name: str, predictor: int, bits: int, dtype: np.dtype[Any]) -> None:
    """Refuse predictors that do not fit the samples."""
    if predictor == NO_PREDICTOR:
        return
    floating = predictor == FLOATING and dtype.kind == "f"
    if not floating and not (predictor == HORIZONTAL and bits >= 8):
        raise unsupported(name, f"uses predictor {predictor} for {bits}-bit samples", "save it without a predictor")


def _palette(name: str, ifd: Ifd, bits: int, dtype: np.dtype[Any]) -> Pixels:
    """The colour map as (N, 3) uint8, or (N,) when it is grey."""
    values = ifd.numbers(_COLOUR_MAP)
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
    down, across = layout.grid
    expected = down * across * (layout.samples if layout.planar == SEPARATE else 1)
    if expected > source.size:
        raise damaged(name, "it has more blocks of pixels than bytes")
    places = ifd.numbers(_TILE_OFFSETS if layout.tiled else _STRIP_OFFSETS)
    counts = ifd.numbers(_TILE_COUNTS if layout.tiled else _STRIP_COUNTS)
    if layout.compression == NONE:
        row_bytes = layout.stored_row_bytes()
        needed = [rows * row_bytes for _, _, _, rows in layout.segments()]
        if not counts:
            counts = needed
        if len(counts) < expected or any(count < need for count, need in zip(counts, needed, strict=False)):
            raise damaged(name, "its blocks of pixels are too short")
        counts = needed
    if len(places) < expected or len(counts) < expected:
        raise damaged(name, "it does not say where all its pixels are")
    places, counts = places[:expected], counts[:expected]
    for place, count in zip(places, counts, strict=True):
        if place <= 0 or count <= 0:
            raise damaged(name, "it has blocks without pixels")
        if place + count > source.size:
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
    plane_bytes = layout.height * layout.stored_row_bytes()
    if layout.compression != NONE or layout.channels or layout.planar == SEPARATE or layout.bits < 8 or layout.tiled:
        what = f"promises {count} pictures but lists only one"
        raise unsupported(source.name, what, "save it with one page per picture first")
    if layout.offsets[0] + count * plane_bytes > source.size:
        raise truncated(source.name)
    return replace(layout, planes=count)


def _shaped_planes(text: str, layout: Layout) -> int:
    """How many pictures a truncated tifffile series holds, from the shape in its description."""
    try:
        described = json.loads(text)
        shape = [int(side) for side in described["shape"]]
        if not described["truncated"]:
            return 1
    except (ValueError, KeyError, TypeError, RecursionError):
        return 1
    total = 1
    for side in shape:
        total *= max(0, side)
    return total // (layout.width * layout.height * layout.samples)


def _metadata(ifd: Ifd) -> Metadata:
    """What other formats can hold as well, from the first page."""
    description = next(iter(ifd.texts(DESCRIPTION)), "")
    plain = bool(description) and not _tells_axes(description)
    icc, xmp = ifd.entries.get(_ICC), ifd.entries.get(_XMP)
    return Metadata(
        icc=icc.data if icc is not None else None,
        exif=exif_from_tiff(ifd, plain_description=plain),
        xmp=xmp.data if xmp is not None else None,
        dpi=resolution_dpi(ifd),
        description=description or None,
    )


def _tells_axes(description: str) -> bool:
    """Whether a description is ImageJ's, OME's or tifffile's record of the axes."""
    text = description.strip()
    return text.startswith(("ImageJ=", "{")) or (text.startswith("<") and "<OME" in text and "</OME>" in text)


# --- writing ------------------------------------------------------------------------------------------


def _for_writing(layout: Layout) -> Layout:
    """The layout to write: expanded samples, and a compression we can encode."""
    changes: dict[str, Any] = {"reversed_bits": False}
    if layout.palette is not None:
        rgb = layout.palette.ndim == 2
        extra = layout.samples - 1
        changes |= {"palette": None, "photometric": RGB if rgb else BLACK_IS_ZERO}
        changes |= {"samples": (3 if rgb else 1) + extra}
    if layout.photometric == YCBCR:
        changes["photometric"] = RGB
    if layout.bits < 8:
        changes |= {"bits": 8, "predictor": NO_PREDICTOR}
    if layout.bits < 8 and layout.photometric == WHITE_IS_ZERO:
        changes["photometric"] = BLACK_IS_ZERO
    if layout.compression not in COMPRESSIONS:
        predictor = HORIZONTAL if layout.dtype.kind == "u" else NO_PREDICTOR
        changes |= {"compression": DEFLATE, "predictor": predictor}
    return replace(layout, **changes)


def _directory(ifd: Ifd, old: Layout, layout: Layout, places: list[int], counts: list[int], *, big: bool) -> Ifd:
    """The tags of a page with new pixel data."""
    expanded = (old.bits, old.photometric) != (layout.bits, layout.photometric)
    gone = _STRUCTURE | _GONE | (_SAMPLE_RANGES if expanded else set())
    entries = {tag: entry for tag, entry in ifd.entries.items() if tag not in gone}
    entries |= {
        _WIDTH: long(layout.width),
        _LENGTH: long(layout.height),
        _BITS: short(*[layout.bits] * layout.samples),
        _COMPRESSION: short(layout.compression),
        _PHOTOMETRIC: short(layout.photometric),
        _SAMPLES: short(layout.samples),
        _PLANAR: short(layout.planar),
        _SAMPLE_FORMAT: short(*[3 if layout.dtype.kind == "f" else 1] * layout.samples),
    }
    if layout.predictor != NO_PREDICTOR:
        entries[_PREDICTOR] = short(layout.predictor)
    extra = layout.samples - layout.colours
    if extra:
        entries[_EXTRA_SAMPLES] = short(*(layout.extra + (0,) * extra)[:extra])
    if layout.tiled:
        entries |= {_TILE_LENGTH: long(layout.segment[0]), _TILE_WIDTH: long(layout.segment[1])}
        entries |= {_TILE_OFFSETS: offsets(places, big), _TILE_COUNTS: offsets(counts, big)}
    else:
        entries[_ROWS_PER_STRIP] = long(layout.segment[0])
        entries |= {_STRIP_OFFSETS: offsets(places, big), _STRIP_COUNTS: offsets(counts, big)}
    repeated = tuple((tag, entry) for tag, entry in ifd.repeated if tag not in gone)
    return Ifd(entries, ifd.children, repeated)


def _write_planes(writer: IfdWriter, picture: Picture, index: int, ifd: Ifd, layout: Layout) -> None:
    """Write one directory and behind it all its pictures, as ImageJ does beyond 4 GiB."""
    whole = replace(layout, segment=(layout.height, layout.width))
    plane_bytes = layout.height * layout.stored_row_bytes()
    fields = writer.append(_directory(ifd, layout, whole, [0], [plane_bytes], big=writer.big))
    writer.patch(fields[_STRIP_OFFSETS], writer.begin())
    for page in range(index, index + layout.planes):
        write_segments(writer.stream, whole, [picture.pages[page]], picture.alphas[page])


def _stripped(ifd: Ifd) -> Ifd:
    """A directory without what is not needed to read its pixels; a description of axes stays."""
    entries = {tag: entry for tag, entry in ifd.entries.items() if tag in _KEPT_WHEN_STRIPPED | _STRUCTURE}
    described = [(DESCRIPTION, ifd.entries[DESCRIPTION])] if DESCRIPTION in ifd.entries else []
    described += [(tag, entry) for tag, entry in ifd.repeated if tag == DESCRIPTION]
    axes = tuple((tag, entry) for tag, entry in described if _tells_axes(entry.text()))
    return Ifd(entries, repeated=axes)


def _fresh(picture: Picture) -> TiffExtras:
    """Directories for a picture that comes from another format."""
    metadata = picture.metadata
    ifds: list[Ifd] = []
    layouts: list[Layout] = []
    for spec in picture.specs:
        entries: dict[int, Entry] = {}
        children: dict[int, Ifd] = {}
        if metadata.exif is not None:
            entries, children = tiff_tags_from_exif(metadata.exif)
        if metadata.dpi is not None:
            across, down = metadata.dpi
            entries |= {
                X_RESOLUTION: rational(across),
                Y_RESOLUTION: rational(down),
                RESOLUTION_UNIT: short(2),
            }
        if metadata.icc is not None:
            entries[_ICC] = Entry(UNDEFINED, len(metadata.icc), metadata.icc)
        if metadata.xmp is not None:
            entries[_XMP] = Entry(1, len(metadata.xmp), metadata.xmp)
        if metadata.description:
            text = metadata.description.encode() + b"\x00"
            entries[DESCRIPTION] = Entry(ASCII, len(text), text)
        ifds.append(Ifd(entries, children))
        layouts.append(_fresh_layout(spec, picture.has_alpha))
    return TiffExtras(tuple(ifds), tuple(layouts), "<", False)


def _fresh_layout(spec: PageSpec, has_alpha: bool) -> Layout:
    """Deflated strips of about a quarter MiB."""
    samples = spec.channels + has_alpha
    row_bytes = spec.width * samples * spec.dtype.itemsize
    rows = min(spec.height, max(1, 2**18 // row_bytes))
    return Layout(
        width=spec.width,
        height=spec.height,
        samples=samples,
        bits=spec.dtype.itemsize * 8,
        dtype=spec.dtype,
        photometric=RGB if spec.channels == 3 else BLACK_IS_ZERO,
        planar=CONTIGUOUS,
        compression=DEFLATE,
        predictor=HORIZONTAL if spec.dtype.kind == "u" else NO_PREDICTOR,
        tiled=False,
        segment=(rows, spec.width),
        reversed_bits=False,
        order="<",
        offsets=(),
        counts=(),
        palette=None,
        extra=(2,) if has_alpha else (),
        planes=1,
        channels=False,
        index=0,
    )
