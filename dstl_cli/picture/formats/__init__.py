"""The registry of file formats: what is known of each before a file is opened.

A format is one entry here and one module beside it, imported when a file of it is met. The module has

    read(source) -> Picture                          headers now, pixels when `Picture.page` asks for them
    write(picture, colour, alpha, stream, strip)     the one page of a picture; or, for pages, or to write rows through,
    write_rows(picture, stream, strip)               a generator that yields how many rows of a page it wants next and
                                                     is sent them, (colour, alpha)

A format whose pictures are folders has, instead of the last two,

    create(picture, folder, strip)                   lays out the folder; what it gives writes tiles, as `ZarrFolder`
    created_at(picture, address, strip, same)        the same at an address, for a `with`, at whose end it is a picture

`FORMATS.register` adds a further format from anywhere.
"""

import os
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dstl_cli.base.addresses import Address, Place
from dstl_cli.base.depths import PIXEL_TYPES
from dstl_cli.base.names import display_name
from dstl_cli.base.registry import Registry
from dstl_cli.errors import FileProblem

ALL_METADATA = frozenset({"icc", "exif", "xmp", "dpi"})
LEAD = 18  # so many bytes at the start of a file tell its format


@dataclass(frozen=True)
class Format:
    """What a file format is called, how its files are known, and what they can hold.

    lead: a regular expression that the first 18 bytes of its files match.
    codec: what reads and writes it, or the dotted name of that module (else the module of its name beside this one).
    marks: for a format whose pictures are folders, names one of which is in each of them.
    layouts: kinds of pixels that can be stored: grey (L) or RGB, without or with alpha (A). With `expands`, grey ones
    that are not among them are stored as equal red, green and blue. `only`: the layout that a suffix allows.
    """

    name: str
    label: str
    suffixes: tuple[str, ...]
    lead: bytes
    codec: Any = None
    depths: tuple[str, ...] = ("uint8",)
    layouts: tuple[str, ...] = ("L", "LA", "RGB", "RGBA")
    expands: bool = False
    only: tuple[tuple[str, str], ...] = ()
    pages: bool = False
    longest_side: int | None = None
    metadata: frozenset[str] = ALL_METADATA
    longest_exif: int | None = None
    written: bool = True
    marks: tuple[str, ...] = ()

    def load(self) -> Any:
        """The module (or object) that reads and writes the format."""
        codec = self.codec or f"{__name__}.{self.name}"
        return import_module(codec) if isinstance(codec, str) else codec


class Formats(Registry[Format]):
    """The formats, whose suffixes are taken once too."""

    def register(self, entry: Format) -> Format:
        """Add a format."""
        taken = sorted({suffix for other in self for suffix in other.suffixes} & set(entry.suffixes))
        if taken:
            raise ValueError(f"There is a {self.what} for {', '.join(taken)} already; choose another suffix.")
        return super().register(entry)


OME = (".ome.tif", ".ome.tiff")
GREY_OR_RGB = ("L", "RGB")
NO_GREY_ALPHA = (*GREY_OR_RGB, "RGBA")

FORMATS = Formats(
    "format",
    Format("png", "PNG", (".png",), rb"\x89PNG\r\n\x1a\n", depths=("uint8", "uint16")),
    Format("tiff", "TIFF", (".tif", ".tiff", *OME), rb"II[*+]\x00|MM\x00[*+]", depths=PIXEL_TYPES, pages=True),
    Format(
        *("jpeg", "JPEG", (".jpg", ".jpeg"), rb"\xff\xd8\xff"),
        layouts=GREY_OR_RGB,
        longest_side=65_500,
        longest_exif=65_527,
    ),
    Format(
        *("webp", "WebP", (".webp",), rb"RIFF(.{4}WEBP|.{,7}\Z)"),
        layouts=("RGB", "RGBA"),
        expands=True,
        longest_side=16_383,
        metadata=frozenset({"icc", "exif", "xmp"}),
    ),
    Format(
        *("bmp", "BMP", (".bmp", ".dib"), rb"BM(.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\x00|.{,13}\Z)"),
        layouts=NO_GREY_ALPHA,
        expands=True,
        metadata=frozenset({"icc", "dpi"}),
    ),
    Format(
        *("netpbm", "PGM/PPM", (".pgm", ".ppm", ".pnm"), rb"P[2356]([ \t\r\n#]|\Z)"),
        depths=("uint8", "uint16"),
        layouts=GREY_OR_RGB,
        only=((".pgm", "L"), (".ppm", "RGB")),
        metadata=frozenset(),
    ),
    Format("npy", ".npy", (".npy",), rb"\x93NUMPY", depths=PIXEL_TYPES, layouts=NO_GREY_ALPHA, metadata=frozenset()),
    Format(
        *("zarr", "Zarr", (".zarr", ".ome.zarr"), rb"(?!)"),
        depths=PIXEL_TYPES,
        layouts=NO_GREY_ALPHA,
        only=((".ome.zarr", "L"),),
        pages=True,
        metadata=frozenset(),
        marks=(".zgroup", ".zarray", "zarr.json"),
    ),
)

# Read through imageio; the result is PNG or TIFF. TGA has no mark of its own: the kinds of palette and picture,
# a size that is not zero, and a depth have to do.
for _name, _label, _suffixes, _lead in (
    ("gif", "GIF", (".gif",), rb"GIF8[79]a"),
    ("avif", "AVIF", (".avif",), rb".{4}ftypavi[fs]"),
    ("heic", "HEIC", (".heic", ".heif"), rb".{4}ftyp(he[iv][cmsx]|mif1|msf1)"),
    ("jpeg2000", "JPEG 2000", (".jp2", ".j2k", ".jpf", ".jpx"), rb"\xff\x4f\xff\x51|.{4}jP  \r\n\x87\n"),
    ("pbm", "PBM", (".pbm",), rb"P[14]([ \t\r\n#]|\Z)"),
    ("pfm", "PFM", (".pfm",), rb"Pf\n"),
    ("qoi", "QOI", (".qoi",), rb"qoif"),
    ("pcx", "PCX", (".pcx",), rb"\n[\x00\x02\x03\x05]\x01[\x01\x02\x04\x08]"),
    ("tga", "TGA", (".tga",), rb".(\x00[\x02\x03\n\x0b]|\x01[\x01\t]).{9}(?!\0\0)..(?!\0\0)..[\x08\x10\x18\x20]"),
):
    FORMATS.register(Format(_name, _label, _suffixes, _lead, "dstl_cli.picture.formats.other", written=False))

# Kinds of files that are known and not read: their first bytes, and what they are.
_REFUSED = (
    (rb"8BPS", "a Photoshop document"),
    (rb"%PDF", "a PDF document"),
    (rb"<svg", "an SVG drawing"),
    (rb"v/1\x01", "an OpenEXR picture"),
    (rb"P7\n", "a PAM picture"),
    (rb"PF\n", "a PFM picture in colour"),
    (rb"\x00\x00\x01\x00", "an icon file"),
    (rb"SIMPLE  =", "a FITS file"),
    (rb"\x89HDF", "an HDF5 file"),
    (rb"\xff\x0a|.{4}JXL \r\n\x87\n", "a JPEG XL picture"),
    (rb".{4}ftypcrx ", "a camera raw file"),
)


def split_suffix(name: str) -> tuple[str, str]:
    """A file name in two: its stem and the suffix of its format, `.ome.tif` whole; else what follows the last dot."""
    known = [suffix for entry in FORMATS for suffix in entry.suffixes if name.lower().endswith(suffix)]
    longest = max((suffix for suffix in known if suffix != name.lower()), key=len, default=Path(name).suffix)
    stem = name[: len(name) - len(longest)]
    return stem, name[len(stem) :]


def format_of_suffix(path: Place) -> Format | None:
    """The format that a file name says, or None."""
    suffix = split_suffix(path.name)[1].lower()
    return next((entry for entry in FORMATS if suffix in entry.suffixes), None)


def format_of_folder(path: Place) -> Format | None:
    """The format of a folder that is one picture, or that is called so; None for other folders and files.

    At an address the name alone tells it.
    """
    named = format_of_suffix(path)
    if isinstance(path, Address):
        return named if named is not None and named.marks else None
    if not os.path.isdir(path):
        return None
    folders = [entry for entry in FORMATS if entry.marks]
    return next((e for e in folders if e is named or any((path / mark).is_file() for mark in e.marks)), None)


def holds_pictures(path: Path) -> bool:
    """Whether a path is a folder of pictures, rather than one picture."""
    return os.path.isdir(path) and format_of_folder(path) is None


def is_written_in_tiles(path: Place | None) -> bool:
    """Whether an output is a folder that is one picture."""
    entry = format_of_suffix(path) if path is not None else None
    return entry is not None and bool(entry.marks)


def is_there_in_tiles(address: Address) -> bool:
    """Whether a picture that is a folder is at an address, complete: what marks it comes last."""
    entry = format_of_folder(address)
    return entry is not None and any((address / mark).size() is not None for mark in entry.marks)


def not_replaced(address: Address) -> FileProblem:
    """The error for a picture at an address that is a folder and there already."""
    remedy = "delete it first, or give another name"
    return FileProblem(f"{address} exists, and no store replaces a whole Zarr picture in one step; {remedy}.")


def format_to_write(path: Place) -> Format:
    """The format that the name of an output asks for."""
    found = format_of_suffix(path)
    if found is not None and found.written:
        return found
    reason = "does not end in a known suffix" if found is None else f"would be {found.label}, which dstl only reads"
    known = ", ".join(sorted(suffix for entry in FORMATS if entry.written for suffix in entry.suffixes))
    raise FileProblem(f"{display_name(path)} {reason}; use one of {known}.")


def recognise(lead: bytes, name: str) -> Format:
    """The format of a file, from its first bytes."""
    for entry in FORMATS:
        if re.match(entry.lead, lead, re.DOTALL):
            return entry
    for pattern, what in _REFUSED:
        if re.match(pattern, lead, re.DOTALL):
            raise FileProblem(f"{name} is {what}, which dstl does not handle; convert it to PNG or TIFF first.")
    if len(lead) < LEAD:
        raise FileProblem(f"{name} is not a picture, or a truncated one ({len(lead)} bytes); copy or export it again.")
    labels = ", ".join(entry.label for entry in FORMATS)
    raise FileProblem(f"{name} is not a picture that dstl knows; give one of {labels}.")
