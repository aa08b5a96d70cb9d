"""A picture in memory, the bytes it comes from, and the checks every format shares."""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import numpy.typing as npt

from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.files.names import display_name

Pixels = npt.NDArray[Any]

PIXEL_TYPES = ("uint8", "uint16", "float32", "float64")
MAX_PIXELS_VARIABLE = "DSTL_MAX_PIXELS"
MAX_PIXELS = 500_000_000
# Deflate cannot shrink data more than 1032 times and LZW not much more, so a file that
# promises 2000 times its own size is cut off or a forgery; real pictures stay far below 200.
POSSIBLE_RATIO = 2000
PLAUSIBLE_RATIO = 200
PLAUSIBLE_PIXELS = 128_000_000
SMALL_BYTES = 64 * 2**20
# Pages beyond this many decoded bytes are read one at a time, when asked for.
EAGER_BYTES = 256 * 2**20
FINITE_BLOCK = 2**22


@dataclass(frozen=True)
class PageSpec:
    """Shape and type of one page: `channels` counts colours only (1 grey, 3 RGB)."""

    height: int
    width: int
    channels: int
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the page's array: (H, W) for grey, (H, W, C) for colour."""
        grey = (self.height, self.width)
        return grey if self.channels == 1 else (*grey, self.channels)

    @property
    def nbytes(self) -> int:
        """The bytes of the page's colour array."""
        return self.height * self.width * self.channels * self.dtype.itemsize


@dataclass(frozen=True)
class ImageInfo:
    """What the headers of a picture file say; width to dtype are those of the first page."""

    width: int
    height: int
    pages: int
    channels: int
    has_alpha: bool
    dtype: np.dtype[Any]
    format: str


@dataclass(frozen=True)
class Metadata:
    """What travels between formats: profile, EXIF (a TIFF blob), XMP, dots per inch, description."""

    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    description: str | None = None


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture file in memory.

    `pages[i]` holds the colours of one page, (H, W) or (H, W, 3), uint8, uint16, float32 or float64, and
    `alphas[i]` is None, (H, W), or (H, W, K) for K extra samples. They are contiguous, may be read-only, and
    may be read from the file each time they are indexed. `native` is what the file's own format needs to
    write everything else back; `notes` are sentences, without the name, about what could not be kept.
    """

    name: str
    format: str
    pages: Sequence[Pixels]
    alphas: Sequence[Pixels | None]
    specs: tuple[PageSpec, ...]
    metadata: Metadata = field(default_factory=Metadata)
    native: object = None
    has_alpha: bool = False
    notes: tuple[str, ...] = ()

    @property
    def info(self) -> ImageInfo:
        """The picture's size, layout and format, without decoding anything."""
        first = self.specs[0]
        return ImageInfo(
            first.width,
            first.height,
            len(self.specs),
            first.channels,
            self.has_alpha,
            first.dtype,
            self.format,
        )

    def with_pages(self, pages: Sequence[Pixels]) -> "Picture":
        """The same picture with other pixels; every page must keep its shape and dtype."""
        if len(pages) != len(self.specs):
            raise ValueError(f"{self.name} has {len(self.specs)} pages, but {len(pages)} were given.")
        for spec, page in zip(self.specs, pages, strict=True):
            check_page(spec, page)
        return replace(self, pages=tuple(pages))

    def map_pages(self, function: Callable[[int, Pixels], Pixels]) -> "Picture":
        """The same picture with each page replaced by function(index, page), computed when it is written."""
        return replace(self, pages=MappedPages(self.pages, function, self.specs))


class LazySequence(Sequence[Any]):
    """A sequence whose items are made by a function each time they are asked for."""

    def __init__(self, count: int, item: Callable[[int], Any]) -> None:
        self._count = count
        self._item = item

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        """The item, or a tuple of items for a slice."""
        if isinstance(index, slice):
            return tuple(self._item(i) for i in range(*index.indices(self._count)))
        position = index + self._count if index < 0 else index
        if not 0 <= position < self._count:
            raise IndexError(index)
        return self._item(position)


class MappedPages(LazySequence):
    """Pages computed from other pages, each checked against its spec."""

    def __init__(
        self, pages: Sequence[Pixels], function: Callable[[int, Pixels], Pixels], specs: tuple[PageSpec, ...]
    ) -> None:
        def item(index: int) -> Pixels:
            page = function(index, pages[index])
            check_page(specs[index], page)
            return page

        super().__init__(len(specs), item)


def check_page(spec: PageSpec, page: Pixels) -> None:
    """Refuse pixels whose shape or dtype is not the page's."""
    if page.shape != spec.shape or page.dtype != spec.dtype:
        raise ValueError(
            f"A page of shape {spec.shape} and type {spec.dtype} cannot be replaced by one of shape "
            f"{page.shape} and type {page.dtype}."
        )


def single_page(
    name: str,
    format: str,
    colour: Pixels,
    alpha: Pixels | None,
    metadata: Metadata,
    native: object,
    notes: tuple[str, ...] = (),
) -> Picture:
    """A picture of one page that is already in memory."""
    height, width = colour.shape[:2]
    channels = 1 if colour.ndim == 2 else colour.shape[2]
    spec = PageSpec(height, width, channels, colour.dtype)
    return Picture(name, format, (colour,), (alpha,), (spec,), metadata, native, alpha is not None, notes)


def split_alpha(samples: Pixels) -> tuple[Pixels, Pixels | None]:
    """Split (H, W), (H, W, 1..4) samples into colours and alpha, each contiguous."""
    if samples.ndim == 2:
        return samples, None
    channels = samples.shape[2]
    if channels == 3:
        return samples, None
    if channels == 1:
        return samples[:, :, 0], None
    if channels == 2:
        return np.ascontiguousarray(samples[:, :, 0]), np.ascontiguousarray(samples[:, :, 1])
    return np.ascontiguousarray(samples[:, :, :3]), np.ascontiguousarray(samples[:, :, 3])


def join_alpha(colour: Pixels, alpha: Pixels | None) -> Pixels:
    """Colours and alpha side by side as contiguous samples: (H, W), (H, W, 2), (H, W, 3) or (H, W, 4)."""
    if alpha is None:
        return np.ascontiguousarray(colour)
    return np.dstack((colour, alpha))


def check_finite(page: Pixels, name: str, where: str = "") -> None:
    """Refuse NaN and infinite pixels, with their count."""
    if page.dtype.kind != "f":
        return
    flat_rows = max(1, FINITE_BLOCK // max(1, page[:1].size))
    bad = 0
    for start in range(0, page.shape[0], flat_rows):
        block = page[start : start + flat_rows]
        bad += block.size - int(np.count_nonzero(np.isfinite(block)))
    if bad:
        values = "value that is" if bad == 1 else "values that are"
        raise FileProblem(f"{name} has {bad} {values} NaN or infinite{where}; replace them before denoising.")


# --- where the bytes come from ------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """The bytes of a picture file, on disk or in memory, and the name used in messages."""

    data: Path | bytes
    name: str
    size: int

    def open(self) -> BinaryIO:
        """A seekable stream over the bytes."""
        if isinstance(self.data, bytes):
            return io.BytesIO(self.data)
        return self.data.open("rb")

    def read(self) -> bytes:
        """All the bytes."""
        if isinstance(self.data, bytes):
            return self.data
        with file_errors(self.name):
            return self.data.read_bytes()

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Pixels:
        """Raw values at an offset as an array; mapped from the file when it is very large."""
        count = int(np.prod(shape, dtype=np.int64))
        if offset + count * dtype.itemsize > self.size:
            raise truncated(self.name)
        if isinstance(self.data, bytes):
            return np.frombuffer(self.data, dtype, count, offset).reshape(shape)
        with file_errors(self.name):
            if count * dtype.itemsize > EAGER_BYTES:
                return np.memmap(self.data, dtype, "r", offset, shape)
            values = np.fromfile(self.data, dtype, count, offset=offset)
        if values.size != count:
            raise truncated(self.name)
        return values.reshape(shape)


def open_source(source: Path | bytes, name: str | None = None) -> Source:
    """Check that a path is a readable, non-empty regular file and make a Source of it."""
    if isinstance(source, bytes):
        shown = name or "standard input"
        size = len(source)
    else:
        shown = name or display_name(source)
        with file_errors(shown):
            status = source.stat()
            if stat.S_ISDIR(status.st_mode):
                raise FileProblem(f"{shown} is a folder; give a picture file instead.")
            if not stat.S_ISREG(status.st_mode):
                raise FileProblem(f"{shown} is not a regular file; pipe its bytes to standard input instead.")
            with source.open("rb"):
                pass
            size = status.st_size
    if size == 0:
        raise FileProblem(f"{shown} is empty (0 bytes); copy or export it again.")
    return Source(source, shown, size)


_OS_REMEDIES = {
    errno.ENOENT: "does not exist; check the name",
    errno.ENOTDIR: "does not exist; check the name",
    errno.EACCES: "may not be read; change its permissions",
    errno.EPERM: "may not be read; change its permissions",
    errno.EISDIR: "is a folder; give a picture file instead",
    errno.ELOOP: "is a symbolic link that leads to itself; remove or repair the link",
    errno.ENAMETOOLONG: "has a name that is too long; use a shorter one",
    errno.EIO: "cannot be read from its disk; copy it from a backup",
}


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Turn errors of the operating system while reading into one sentence."""
    try:
        yield
    except OSError as error:
        reason = _OS_REMEDIES.get(error.errno or 0)
        if reason is None:
            reason = f"cannot be read ({error.strerror or error}); check the disk it is on"
        raise FileProblem(f"{name} {reason}.") from error
    except ValueError as error:
        if "null" not in str(error):
            raise
        raise FileProblem(f"{name!r} is not a possible file name; check the name.") from error


# --- sentences ----------------------------------------------------------------------------------------


def truncated(name: str) -> FileProblem:
    """The error for a file that ends too early."""
    return FileProblem(f"{name} is truncated: the file ends before its pixels do; copy or export it again.")


def damaged(name: str, what: str) -> FileProblem:
    """The error for a file whose bytes make no sense."""
    return FileProblem(f"{name} is damaged ({what}); copy or export it again.")


def unsupported(name: str, what: str, remedy: str) -> FileProblem:
    """The error for a good file that dstl does not handle."""
    return FileProblem(f"{name} {what}, which dstl does not handle; {remedy}.")


@contextmanager
def decoding(name: str) -> Iterator[None]:
    """Turn whatever a decoder library raises on bad bytes into one sentence."""
    try:
        yield
    except DstlError:
        raise
    except MemoryError as error:
        raise FileProblem(f"{name} does not fit into memory; close other programs or crop it first.") from error
    except Exception as error:
        raise damaged(name, "its pixels do not decode") from error


# --- size limits --------------------------------------------------------------------------------------


def max_pixels() -> int | None:
    """The user's own limit of pixels per page from DSTL_MAX_PIXELS, or None."""
    text = os.environ.get(MAX_PIXELS_VARIABLE, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise DstlError(f"{MAX_PIXELS_VARIABLE} must be a whole number of pixels such as 1000000000, not {text!r}.")
    return int(text)


def check_size(source: Source, width: int, height: int, decoded_bytes: int) -> None:
    """Refuse sizes that are empty, too large, or impossible for a file of this length.

    With DSTL_MAX_PIXELS set, that number of pixels per page is the only limit.
    """
    name = source.name
    if width < 1 or height < 1:
        raise damaged(name, f"its size is {width} x {height}")
    pixels = width * height
    own_limit = max_pixels()
    size = f"{width} x {height} pixels"
    trust = f"set {MAX_PIXELS_VARIABLE}={pixels} if you trust it"
    if pixels > (own_limit or MAX_PIXELS):
        raise FileProblem(f"{name} claims {size}, more than the limit of {own_limit or MAX_PIXELS}; {trust}.")
    if own_limit is not None or decoded_bytes <= SMALL_BYTES:
        return
    ratio = POSSIBLE_RATIO if pixels <= PLAUSIBLE_PIXELS else PLAUSIBLE_RATIO
    if decoded_bytes > ratio * source.size:
        raise FileProblem(f"{name} claims {size} but has only {source.size} bytes; {trust}.")
