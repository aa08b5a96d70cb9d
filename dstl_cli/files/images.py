"""Picture files: read with everything in them, changed only in their pixels, written back complete.

    picture = read_picture(Path("noisy.tiff"))
    write_picture(picture.map_pages(lambda index, page: denoise(page)), Path("clean.tiff"))

Formats are told by their bytes when reading and by the name's suffix when writing. PNG, TIFF, JPEG, WebP,
BMP, PGM/PPM and .npy are handled. The environment variable DSTL_MAX_PIXELS raises or lowers the limit of
500 million pixels per page, and switches off the check that a file is long enough for the size it claims.
"""

import io
import os
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from dstl_cli.errors import FileProblem
from dstl_cli.files import atomic
from dstl_cli.files.names import display_name
from dstl_cli.files.pictures import (
    PIXEL_TYPES,
    ImageInfo,
    Metadata,
    PageSpec,
    Picture,
    Pixels,
    Source,
    file_errors,
    open_source,
    single_page,
    unsupported,
)

__all__ = [
    "SUPPORTED_SUFFIXES",
    "ImageInfo",
    "Metadata",
    "PageSpec",
    "Picture",
    "check_format",
    "format_of_path",
    "is_picture_path",
    "lost_metadata",
    "picture_from_array",
    "probe",
    "read_picture",
    "write_picture",
]

_FORMATS = {
    ".png": "png",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".webp": "webp",
    ".bmp": "bmp",
    ".dib": "bmp",
    ".pgm": "netpbm",
    ".ppm": "netpbm",
    ".pnm": "netpbm",
    ".npy": "npy",
}
SUPPORTED_SUFFIXES = frozenset(_FORMATS)
_NAMES = {
    "png": "PNG",
    "tiff": "TIFF",
    "jpeg": "JPEG",
    "webp": "WebP",
    "bmp": "BMP",
    "netpbm": "PGM/PPM",
    "npy": ".npy",
}
_METADATA_NAMES = {"icc": "the ICC profile", "exif": "the EXIF data", "xmp": "the XMP data", "dpi": "the resolution"}
_METADATA = {
    "webp": frozenset({"icc", "exif", "xmp"}),
    "bmp": frozenset({"icc", "dpi"}),
    "netpbm": frozenset[str](),
    "npy": frozenset[str](),
}  # the other formats hold all of it
_OTHERS = (  # (offset, bytes there, what such a file is)
    (0, b"GIF8", "is a GIF"),
    (0, b"8BPS", "is a Photoshop document"),
    (0, b"%PDF", "is a PDF document"),
    (0, b"<svg", "is an SVG drawing"),
    (0, b"v/1\x01", "is an OpenEXR picture"),
    (0, b"P7\n", "is a PAM picture"),
    (0, b"Pf\n", "is a PFM picture"),
    (0, b"PF\n", "is a PFM picture"),
    (0, b"\x00\x00\x01\x00", "is an icon file"),
    (0, b"SIMPLE  =", "is a FITS file"),
    (0, b"\x89HDF", "is an HDF5 file"),
    (0, b"\xff\x0a", "is a JPEG XL picture"),
    (4, b"JXL \r\n\x87\n", "is a JPEG XL picture"),
    (0, b"\xffO\xffQ", "is a JPEG 2000 picture"),
    (4, b"jP  \r\n\x87\n", "is a JPEG 2000 picture"),
    (4, b"ftypavif", "is an AVIF picture"),
    (4, b"ftyphei", "is a HEIC picture"),
    (4, b"ftypmif1", "is a HEIC picture"),
    (4, b"ftypcrx ", "is a camera raw file"),
)


class _Codec(Protocol):
    """What the module of each format offers."""

    def probe(self, source: Source, /) -> ImageInfo: ...

    def read(self, source: Source, /) -> Picture: ...

    def write(self, picture: Picture, stream: BinaryIO, strip: bool, /) -> None: ...


def is_picture_path(path: Path) -> bool:
    """Whether a file name ends like a picture that dstl reads."""
    return path.suffix.lower() in SUPPORTED_SUFFIXES


def format_of_path(path: Path) -> str:
    """The format a file name asks for: "png", "tiff", "jpeg", "webp", "bmp", "netpbm" or "npy"."""
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        known = ", ".join(sorted(SUPPORTED_SUFFIXES))
        raise FileProblem(f"{display_name(path)} does not end in a known suffix; use one of {known}.")
    return found


def probe(source: Path | bytes, *, name: str | None = None) -> ImageInfo:
    """Read only the headers of a picture file."""
    opened = open_source(source, name)
    return _codec(_sniff(opened)).probe(opened)


def read_picture(source: Path | bytes, *, name: str | None = None) -> Picture:
    """Read a picture file; every problem with it is a FileProblem. Its arrays may be read-only."""
    opened = open_source(source, name)
    codec = _codec(_sniff(opened))
    try:
        return codec.read(opened)
    except MemoryError as error:
        raise FileProblem(f"{opened.name} does not fit into memory; close other programs or crop it.") from error


def write_picture(
    picture: Picture,
    target: Path | BinaryIO,
    *,
    strip: bool = False,
    format: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write a picture to a file, which appears complete or not at all, or to a binary stream.

    The format is `format`, or else what the file name asks for, or else (for a stream) the picture's own.
    Each page is taken from the picture once, in order. With strip, profile, EXIF, resolution and all other
    metadata are left out, but not the axes of TIFF stacks.
    """
    if isinstance(target, (str, os.PathLike)):
        path = Path(target)
        chosen = format or format_of_path(path)
        check_format(picture, chosen, strip=strip, suffix=path.suffix)
        with atomic.atomic_output(path, overwrite=overwrite) as stream:
            _codec(chosen).write(picture, stream, strip)
        return
    chosen = format or picture.format
    check_format(picture, chosen, strip=strip)
    buffer = io.BytesIO()  # TIFF needs to seek, and half a picture must not reach a pipe
    _codec(chosen).write(picture, buffer, strip)
    target.write(buffer.getbuffer())


def check_format(picture: Picture, format: str, *, strip: bool = False, suffix: str = "") -> None:
    """Refuse a format that cannot hold a picture's depth, channels, alpha, pages or size without loss."""
    if format not in _NAMES:
        raise FileProblem(f"There is no format {format!r}; use one of {', '.join(_NAMES)}.")
    if format == "tiff" or (format == picture.format and format != "netpbm"):
        return
    reason = _obstacle(picture, format, strip, suffix.lower())
    if reason:
        wide = ".npy" if format != "npy" and len(picture.specs) == 1 and not picture.has_alpha else ""
        better = ".tiff" + (f" or {wide}" if wide else "")
        raise FileProblem(f"{picture.name} {reason}; choose an output that ends in {better}.")


def lost_metadata(picture: Picture, format: str) -> tuple[str, ...]:
    """What a picture knows about itself that another format cannot hold, in words."""
    if format == picture.format:
        return ()
    metadata = picture.metadata
    holds = _METADATA.get(format, frozenset(_METADATA_NAMES))
    return tuple(
        words
        for key, words in _METADATA_NAMES.items()
        if key not in holds and getattr(metadata, key) is not None and not (key == "dpi" and metadata.exif)
    )


def picture_from_array(
    pixels: Pixels,
    *,
    alpha: Pixels | None = None,
    metadata: Metadata | None = None,
    name: str = "the picture",
) -> Picture:
    """A picture of one page from (H, W) or (H, W, 3) pixels of type uint8, uint16, float32 or float64."""
    grey_or_rgb = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not grey_or_rgb or pixels.size == 0 or pixels.dtype.name not in PIXEL_TYPES:
        raise ValueError(
            f"A picture needs (H, W) or (H, W, 3) pixels of type {', '.join(PIXEL_TYPES)}, "
            f"not shape {pixels.shape} and type {pixels.dtype}."
        )
    if alpha is not None and (alpha.shape != pixels.shape[:2] or alpha.dtype != pixels.dtype):
        raise ValueError("The alpha channel needs the height, width and type of the pixels.")
    native = pixels.dtype.newbyteorder("=")
    colour = np.ascontiguousarray(pixels, native)
    opacity = None if alpha is None else np.ascontiguousarray(alpha, native)
    return single_page(name, "array", colour, opacity, metadata or Metadata(), None)


def _obstacle(picture: Picture, format: str, strip: bool, suffix: str) -> str:
    """Why a format cannot hold a picture; empty when it can."""
    label = _NAMES[format]
    spec = picture.specs[0]
    if len(picture.specs) > 1:
        return f"has {len(picture.specs)} pages, but {label} holds one"
    first_alpha = picture.alphas[0] if picture.has_alpha else None
    if first_alpha is not None:
        if format in ("jpeg", "netpbm"):
            return f"has an alpha channel, but {label} holds none"
        if first_alpha.ndim > 2 or _premultiplied(picture):
            return f"has extra channels that {label} cannot hold"
        if format == "npy" and spec.channels == 1:
            return "has grey pixels with alpha, but .npy holds alpha only with RGB"
    if format == "npy":
        return ""
    depths = ("uint8", "uint16") if format in ("png", "netpbm") else ("uint8",)
    if spec.dtype.name not in depths:
        return f"has {_depth_name(spec.dtype)} pixels, but {label} holds {' or '.join(map(_short, depths))}"
    if format == "netpbm" and {".pgm": 3, ".ppm": 1}.get(suffix) == spec.channels:
        return f"has {'RGB' if spec.channels == 3 else 'grey'} pixels, but {suffix} holds the other kind"
    longest = {"jpeg": 65_500, "webp": 16_383}.get(format)
    if longest is not None and max(spec.width, spec.height) > longest:
        return f"is {spec.width} x {spec.height} pixels, but {label} holds at most {longest} on a side"
    icc = picture.metadata.icc
    becomes_rgb = format == "webp" or (format == "bmp" and picture.has_alpha)
    if icc is not None and not strip and icc[16:20] == b"GRAY" and becomes_rgb:
        return f"has a profile for grey pixels, but {label} stores them as RGB"
    return ""


def _premultiplied(picture: Picture) -> bool:
    """Whether the alpha of a TIFF page is already multiplied into its colours."""
    from dstl_cli.files import tiff

    return isinstance(picture.native, tiff.TiffExtras) and 1 in picture.native.layouts[0].extra


def _depth_name(dtype: np.dtype[np.generic]) -> str:
    return f"{dtype.itemsize * 8}-bit " + ("floating-point" if dtype.kind == "f" else "whole-number")


def _short(name: str) -> str:
    return {"uint8": "8-bit", "uint16": "16-bit"}[name]


def _sniff(source: Source) -> str:
    """The format of a file, from its first bytes."""
    with file_errors(source.name), source.open() as stream:
        lead = stream.read(16)
    if lead.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if lead[:4] in (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"):
        return "tiff"
    if lead.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if lead[:4] == b"RIFF" and (lead[8:12] == b"WEBP" or len(lead) < 12):
        return "webp"
    if lead.startswith(b"\x93NUMPY"):
        return "npy"
    if lead[:1] == b"P" and lead[1:2] in b"123456" and (lead[2:3] in b" \t\r\n#" or len(lead) < 3):
        return "netpbm"
    if lead.startswith(b"BM") and (lead[14:16] in _BMP_HEADERS or len(lead) < 16):
        return "bmp"
    for offset, magic, what in _OTHERS:
        if lead[offset : offset + len(magic)] == magic:
            raise unsupported(source.name, what, "convert it to PNG or TIFF first")
    if any(magic.startswith(lead) for magic in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\x93NUMPY")):
        raise FileProblem(f"{source.name} is truncated: it ends inside its header; copy or export it again.")
    known = ", ".join(_NAMES.values())
    raise FileProblem(f"{source.name} is not a picture that dstl knows; give one of {known}.")


_BMP_HEADERS = tuple(size.to_bytes(2, "little") for size in (12, 40, 52, 56, 64, 108, 124))


def _codec(format: str) -> _Codec:
    """The module of a format, imported only when it is needed."""
    from importlib import import_module

    codec: _Codec = import_module(f"dstl_cli.files.{format}")
    return codec
