"""Pictures are written page by page, some rows at a time, or tile by tile; they appear complete or not at all.

with open_writer(picture, Path("clean.tiff")) as writer:
    for index in range(len(picture.specs)):
        colour, alpha = picture.page(index)
        writer.add(denoise(colour), alpha)
"""

import filecmp
import io
import os
import sys
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dstl_cli.base.addresses import Address, Place, whole_object
from dstl_cli.base.atomic import atomic_folder, atomic_output, writing_errors
from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem
from dstl_cli.picture.formats import FORMATS, Format, format_to_write, is_there_in_tiles, not_replaced, split_suffix
from dstl_cli.picture.model import Page, PageSpec, Picture, Pixels, cut
from dstl_cli.picture.source import file_errors

_METADATA_NAMES = {"icc": "the ICC profile", "exif": "the EXIF data", "xmp": "the XMP data", "dpi": "the resolution"}
_DEPTH_NAMES = {"uint8": "8-bit", "uint16": "16-bit"}


class Writer:
    """Takes the pages of a picture in order, whole or in rows; it may look at them until the page is complete.

    `kept` is a file that may be replaced by its own bytes only.
    """

    def __init__(
        self, picture: Picture, entry: Format, stream: BinaryIO, strip: bool, kept: Path | None = None
    ) -> None:
        self._picture, self._stream, self._kept = picture, stream, kept
        codec = entry.load()
        write_rows = getattr(codec, "write_rows", None) or partial(_write_rows, codec)
        self._codec: Generator[int, Page, None] = write_rows(picture, stream, strip)
        self._wanted = next(self._codec)  # so many rows are written together next
        self._waiting: deque[Page] = deque()
        self._added, self._rows = 0, 0  # complete pages, and rows of the one after them

    def add(self, colour: Pixels, alpha: Pixels | None = None) -> None:
        """Write the next page, which must be what the picture's own is."""
        specs = self._picture.specs
        if self._added == len(specs) or len(colour) != specs[self._added].height:
            raise self._refusal(colour)
        self.add_rows(colour, alpha)

    def add_rows(self, colour: Pixels, extra: Pixels | None = None) -> None:
        """Write the next rows of a page, from top to bottom; with the last ones it is complete."""
        spec = self._picture.specs[self._added] if self._added < len(self._picture.specs) else None
        if spec is None or not 0 < len(colour) <= spec.height - self._rows:
            raise self._refusal(colour)
        if not replace(spec, height=len(colour)).fits(colour, extra):
            raise self._refusal(colour)
        self._waiting.append((colour, extra))
        while 0 < self._wanted <= sum(len(rows) for rows, _ in self._waiting):
            try:
                self._wanted = self._codec.send(self._taken(self._wanted))
            except StopIteration:  # after the last page
                self._wanted = 0
        self._rows += len(colour)
        if self._rows == spec.height:
            self._added, self._rows = self._added + 1, 0

    def _refusal(self, colour: Pixels) -> ValueError:
        """The error for pixels that do not belong to the next page."""
        return ValueError(f"Page {self._added + 1} of {self._picture.name} is not such a page: {colour.shape}.")

    def _taken(self, height: int) -> Page:
        """So many of the rows that wait, which are copied where they came in pieces."""
        colour, extra = self._waiting[0]
        if height <= len(colour):
            rest = cut(self._waiting.popleft(), slice(height, None))
            if len(rest[0]):
                self._waiting.appendleft(rest)
            return cut((colour, extra), slice(height))
        joined = [np.empty((height, *part.shape[1:]), part.dtype) for part in (colour, extra) if part is not None]
        top = 0
        while top < height:
            piece = self._taken(min(len(self._waiting[0][0]), height - top))
            for whole, part in zip(joined, filter(lambda part: part is not None, piece), strict=True):
                whole[top : top + len(piece[0])] = part
            top += len(piece[0])
        return joined[0], None if extra is None else joined[1]

    def copy(self) -> None:
        """Write the file that the picture was read from, instead of pages."""
        assert self._picture.original is not None
        self._stream.seek(0)
        self._stream.truncate()
        self._stream.writelines(self._picture.original())
        self._added = len(self._picture.specs)

    def close(self) -> None:
        """Make sure that every page was there and that the file may appear; it does when the `with` block ends."""
        if self._added < len(self._picture.specs):
            raise ValueError(f"{self._picture.name} has {len(self._picture.specs)} pages, not {self._added}.")
        if self._kept is not None:
            _check_same(self._kept, self._stream)


def _write_rows(codec: Any, picture: Picture, stream: BinaryIO, strip: bool) -> Generator[int, Page, None]:
    """Write the one page of a format that is encoded whole."""
    colour, alpha = yield picture.specs[0].height
    codec.write(picture, colour, alpha, stream, strip)


@contextmanager
def open_writer(
    picture: Picture,
    target: Place | BinaryIO | None,
    *,
    format: str | None = None,
    strip: bool = False,
    overwrite: bool = True,
    resume: bool = False,
    jpeg_quality: int | None = None,
) -> Iterator[Writer]:
    """Write the pages of `picture`, or others like them, to a place, a binary stream or (None) standard output.

    The format is `format`, or else what the file name asks for, or else `natural_format`. With strip, profile, EXIF,
    resolution and all other metadata are left out, but not the axes of TIFF stacks. A file that exists is an error
    unless `overwrite`; with `resume` it may be empty, or be the very bytes that are written. A JPEG file is coded as
    the picture's own was (95 for others), or at `jpeg_quality`.
    """
    path = Path(target) if isinstance(target, (str, os.PathLike)) else None
    named = target if isinstance(target, Address) else path
    entry = format_to_write(named) if named and not format else FORMATS[format or natural_format(picture)]
    check_format(picture, entry, strip=strip, suffix="" if named is None else split_suffix(named.name)[1])
    if entry.marks:
        raise FileProblem(f"{picture.name} goes into one file; choose an output in .tiff, not in {entry.suffixes[0]}.")
    if entry.name != picture.format:
        picture = replace(picture, native=None)
    if jpeg_quality is not None and entry.name == "jpeg":
        picture = entry.load().at_quality(picture, jpeg_quality)
    kept = path if path and resume and not overwrite and os.path.isfile(path) else None
    output: AbstractContextManager[BinaryIO]
    if isinstance(target, Address):
        output = whole_object(target, overwrite=overwrite, same=resume)
    else:
        output = atomic_output(path, overwrite=overwrite or kept is not None) if path else _whole_output(target)
    with output as stream:
        writer = Writer(picture, entry, stream, strip, kept)
        yield writer
        writer.close()


@contextmanager
def open_tiles(
    picture: Picture, target: Place, *, strip: bool = False, overwrite: bool = True, resume: bool = False
) -> Iterator[Any]:
    """Lay out a folder for `picture` or one like it, whose pixels are then written tile by tile.

    What is given is what the format's `create` makes, such as `ZarrFolder`. Only a folder that is a picture is
    overwritten, and at addresses none; with `resume` one that is there must be what is written, to the byte.
    """
    entry = format_to_write(target)
    check_format(picture, entry, strip=strip, suffix=split_suffix(target.name)[1])
    if isinstance(target, Address):
        with _tiles_at(picture, entry, target, strip, resume=resume) as folder:
            yield folder
        return
    if target.is_dir() and not any((target / mark).is_file() for mark in entry.marks):
        name = display_name(target)
        raise FileProblem(f"{name} is a folder that is no {entry.label} picture; give another name.")
    if entry.name != picture.format:
        picture = replace(picture, native=None)
    kept = resume and not overwrite and target.is_dir()
    with atomic_folder(target, overwrite=overwrite or kept) as folder:
        with writing_errors(target):
            yield entry.load().create(picture, folder.absolute(), strip)
        if kept and not _are_same(target, folder):
            raise _not_this(target)


@contextmanager
def _tiles_at(picture: Picture, entry: Format, target: Address, strip: bool, *, resume: bool) -> Iterator[Any]:
    """Lay out objects for a picture, which are one when the block ends without an error."""
    target.check_writable()
    there = is_there_in_tiles(target)
    if there and not resume:
        raise not_replaced(target)
    native = picture.native if entry.name == picture.format else None
    with entry.load().created_at(replace(picture, native=native), target, strip, same=there) as folder:
        yield folder


def write_picture(picture: Picture, target: Path | BinaryIO | None, **options: Any) -> None:
    """Write a picture with its own pages; the options are those of `open_writer`."""
    with open_writer(picture, target, **options) as writer:
        for index in range(len(picture.specs)):
            writer.add(*picture.page(index))


@contextmanager
def _whole_output(target: Any) -> Iterator[BinaryIO]:
    """Memory whose bytes go to a stream or (None) standard output at the end.

    TIFF needs to seek, and half a picture must not reach a pipe.
    """
    stream = io.BytesIO()
    yield stream
    if target is not None:
        target.write(stream.getbuffer())
        return
    if sys.stdout is None:
        raise FileProblem("There is no standard output to write the picture to; give a file with --output.")
    try:
        sys.stdout.buffer.write(stream.getbuffer())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise FileProblem(f"The picture cannot be written to standard output ({reason}); give a file.") from None


def _check_same(path: Path, written: BinaryIO) -> None:
    """Refuse to replace a file by other bytes."""
    size = written.seek(0, os.SEEK_END)
    written.seek(0)
    name = display_name(path)
    with file_errors(name), path.open("rb") as old:
        same = os.fstat(old.fileno()).st_size in (0, size)
        while same and (block := old.read(2**20)):
            same = block == written.read(2**20)
    if not same:
        raise _not_this(path)


def _are_same(first: Path, second: Path) -> bool:
    """Whether two folders hold the same files, to the byte."""
    names = [sorted(path.relative_to(top) for path in top.rglob("*") if path.is_file()) for top in (first, second)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(first, second, names[0], shallow=False)[1:])


def _not_this(path: Path) -> FileProblem:
    """The error for a target that another run or program made."""
    return FileProblem(f"{display_name(path)} exists and is not what this run writes; use --force to overwrite it.")


# --- what a format can hold ---------------------------------------------------------------------------


def natural_format(picture: Picture) -> str:
    """The format of a file for a picture when none is asked for: its own if that can be, else PNG, else TIFF."""
    entry = FORMATS[picture.format]
    own = [picture.format] if entry.written and not entry.marks else []
    return next((name for name in (*own, "png") if not _obstacle(picture, FORMATS[name], True, "")), "tiff")


def check_format(picture: Picture, entry: Format, *, strip: bool = False, suffix: str = "") -> None:
    """Refuse a format that cannot hold a picture's depth, channels, alpha, pages or size without loss."""
    reason = _obstacle(picture, entry, strip, suffix.lower())
    if reason:
        wide = " or .npy" if entry.name != "npy" and len(picture.specs) == 1 and not picture.has_alpha else ""
        raise FileProblem(f"{picture.name} {reason}; choose an output that ends in .tiff{wide}.")


def _obstacle(picture: Picture, entry: Format, strip: bool, suffix: str) -> str:
    """Why a format cannot hold a picture; empty when it can."""
    label, spec, count = entry.label, picture.specs[0], len(picture.specs)
    if entry.marks and len(set(picture.specs)) > 1:
        return f"has pages of different sizes or kinds, but {label} holds equal ones"
    if not entry.pages:
        if count > 1:
            return f"has {count} pages, but {label} holds one"
        if spec.extra > 1 or (spec.extra and picture.premultiplied):
            return f"has extra channels that {label} cannot hold"
    layout, rgb = _layout(spec), _layout(spec).replace("L", "RGB")
    if layout not in entry.layouts and not (entry.expands and rgb in entry.layouts):
        if not any("A" in held for held in entry.layouts):
            return f"has an alpha channel, but {label} holds none"
        return f"has grey pixels with alpha, but {label} holds alpha only with RGB"
    if spec.dtype.name not in entry.depths:
        depths = " or ".join(_DEPTH_NAMES[depth] for depth in entry.depths)
        kind = {"f": "floating-point", "i": "signed whole-number"}.get(spec.dtype.kind, "whole-number")
        unsigned = " unsigned ones" if spec.dtype.kind == "i" else ""
        return f"has {spec.dtype.itemsize * 8}-bit {kind} pixels, but {label} holds {depths}{unsigned}"
    if dict(entry.only).get(suffix, layout) != layout:
        return f"has {'RGB' if layout == 'RGB' else 'grey'} pixels, but {suffix} holds the other kind"
    if entry.longest_side is not None and max(spec.width, spec.height) > entry.longest_side:
        return f"is {spec.width} x {spec.height} pixels, but {label} holds at most {entry.longest_side} on a side"
    icc = picture.metadata.icc
    if layout not in entry.layouts and icc is not None and not strip and icc[16:20] == b"GRAY":
        return f"has a profile for grey pixels, but {label} stores them as RGB"
    return ""


def _layout(spec: PageSpec) -> str:
    """L, LA, RGB or RGBA."""
    return ("L" if spec.channels == 1 else "RGB") + ("A" if spec.extra else "")


def lost_metadata(picture: Picture, entry: Format) -> tuple[str, ...]:
    """What a picture knows about itself that another format cannot hold, in words."""
    if entry.name == picture.format:
        return ()
    metadata = picture.metadata
    known = {key for key in _METADATA_NAMES if getattr(metadata, key) is not None}
    held = set(entry.metadata)
    if metadata.exif is not None:
        known.discard("dpi")  # the EXIF data say it too
        if entry.longest_exif is not None and len(metadata.exif) > entry.longest_exif:
            held.discard("exif")
    return tuple(words for key, words in _METADATA_NAMES.items() if key in known - held)
