"""A picture as it is read and written: what its pages look like, how to get at them, what its file said beside them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dstl_cli.base.depths import PIXEL_TYPES, in_words
from dstl_cli.errors import FileProblem
from dstl_cli.picture.problems import damaged, decoding

Pixels = npt.NDArray[Any]
# Colours, (H, W) or (H, W, 3), and the samples beside them: None, (H, W), or (H, W, K) for K of them.
Page = tuple[Pixels, Pixels | None]

_INCH = 0.0254  # metres
_BLOCK = 2**22  # values looked at together
PIECE_BYTES = 2**22  # of rows that are written together


@dataclass(frozen=True)
class PageSpec:
    """Shape and type of one page: how many colours (1 grey, 3 RGB) and extra samples (alpha) a pixel has.

    bits: of a whole number that are used, where the file stores fewer than its type has: white is 2^bits - 1.
    """

    height: int
    width: int
    channels: int
    dtype: np.dtype[Any]
    extra: int = 0
    bits: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the page's colours: (H, W) or (H, W, 3)."""
        grey = (self.height, self.width)
        return grey if self.channels == 1 else (*grey, self.channels)

    def fits(self, colour: Pixels, extra: Pixels | None) -> bool:
        """Whether arrays are what this says."""
        samples = 0 if extra is None else 1 if extra.ndim == 2 else extra.shape[2]
        size = self.shape[:2] if extra is None else extra.shape[:2]
        return (colour.shape, colour.dtype, size, samples) == (self.shape, self.dtype, self.shape[:2], self.extra)


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
    bits: int  # of a sample


@dataclass(frozen=True)
class Metadata:
    """What travels between formats: profile, EXIF (a TIFF blob), XMP, dots per inch, description."""

    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    description: str | None = None

    @property
    def per_metre(self) -> tuple[int, ...] | None:
        """Dots per metre, across and down, as 31-bit numbers."""
        return self.dpi and tuple(min(max(round(dots / _INCH), 1), 2**31 - 1) for dots in self.dpi)


def dots_per_inch(across: int, down: int) -> tuple[float, float] | None:
    """Dots per inch from dots per metre."""
    return (across * _INCH, down * _INCH) if across > 0 and down > 0 else None


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture file whose headers are read.

    `decode(i)` gives page i (ask for it through `page` and `pages`); None for a picture that is only
    written, page by page. `decode_part(i, rows, columns)` reads no more of page i than it must; None where the format
    has no such way (ask through `window`). `native` is what the file's own format needs to write everything else back;
    the writers of other formats do not get it. `notes` are sentences, without the name, about what could not be kept;
    `format` is the registered name of the format it was read from. `premultiplied`: its colours are already
    multiplied by its alpha. `allows_invalid`: pages with NaN and infinite values are not refused.
    """

    name: str
    specs: tuple[PageSpec, ...]
    decode: Callable[[int], Page] | None = None
    metadata: Metadata = Metadata()
    native: Any = None
    notes: tuple[str, ...] = ()
    format: str = "array"
    premultiplied: bool = False
    allows_invalid: bool = False
    original: Callable[[], Iterable[bytes]] | None = None  # the bytes of the file, some at a time
    decode_part: Callable[[int, slice, slice], Page] | None = None
    _last: dict[int, Page] = field(default_factory=dict, init=False)  # the page decoded last, by its number

    @property
    def has_alpha(self) -> bool:
        """Whether some page has samples beside its colours."""
        return any(spec.extra for spec in self.specs)

    @property
    def info(self) -> ImageInfo:
        """The picture's size, layout and format, without decoding anything."""
        first = self.specs[0]
        pages = len(self.specs)
        size, bits = (first.width, first.height, pages), first.bits or 8 * first.dtype.itemsize
        return ImageInfo(*size, first.channels, self.has_alpha, first.dtype, self.format, bits)

    def page(self, index: int) -> Page:
        """Page `index`, decoded unless it was the last one asked for; contiguous, finite, perhaps read-only."""
        if index not in self._last:
            if self.decode is None:
                raise ValueError(f"{self.name} has no pages yet.")
            self._last.clear()
            with decoding(self.name):
                page = self.decode(index)
            self._refuse_wrong(index, self._wrong_values(page, self.specs[index]))
            self._last[index] = page
        return self._last[index]

    def window(self, index: int, rows: slice, columns: slice) -> Page:
        """A part of page `index`: read by itself where the format lets it, else cut from the page."""
        if self.decode_part is None or index in self._last:
            return cut(self.page(index), rows, columns)
        page, wrong = self._part(index, rows, columns)
        if wrong:  # those of the whole page are told
            height, step = self.specs[index].height, max(1, _BLOCK // self.specs[index].width)
            bands = (slice(top, top + step) for top in range(0, height, step))
            self._refuse_wrong(index, sum(self._part(index, band, slice(None))[1] for band in bands))
        return page

    def _part(self, index: int, rows: slice, columns: slice) -> tuple[Page, int]:
        """A part of a page, read by itself, and how many of its values are NaN or infinite."""
        assert self.decode_part is not None
        spec = self.specs[index]
        (top, bottom, _), (left, right, _) = rows.indices(spec.height), columns.indices(spec.width)
        with decoding(self.name):
            page = self.decode_part(index, slice(top, bottom), slice(left, right))
        return page, self._wrong_values(page, replace(spec, height=bottom - top, width=right - left))

    def _wrong_values(self, page: Page, spec: PageSpec) -> int:
        """How many values are NaN or infinite, and should not be, in pixels that must be what their spec says."""
        if not spec.fits(*page):
            raise damaged(self.name, "its pixels do not fit its header")
        values = page[0].reshape(-1) if spec.dtype.kind == "f" and not self.allows_invalid else page[0][:0]
        blocks = (values[start : start + _BLOCK] for start in range(0, values.size, _BLOCK))
        return sum(block.size - int(np.count_nonzero(np.isfinite(block))) for block in blocks)

    def _refuse_wrong(self, index: int, count: int) -> None:
        """Refuse a page with NaN and infinite values."""
        if count:
            kind = "value that is" if count == 1 else "values that are"
            where = f" on page {index + 1}" if len(self.specs) > 1 else ""
            remedy = "replace them, or keep them with denoise --nan keep"
            raise FileProblem(f"{self.name} has {count} {kind} NaN or infinite{where}; {remedy}.")

    @property
    def pages(self) -> "LazyPages":
        """The colours of each page, decoded when asked for."""
        return LazyPages(self)


@dataclass(frozen=True)
class LazyPages:
    """The colours of a picture's pages as a list whose items are decoded when they are asked for."""

    picture: Picture

    def __len__(self) -> int:
        return len(self.picture.specs)

    def __getitem__(self, index: int) -> Pixels:
        return self.picture.page(range(len(self))[index])[0]

    def __iter__(self) -> Iterator[Pixels]:
        return map(self.__getitem__, range(len(self)))


def picture_from_array(
    pixels: Pixels, *, alpha: Pixels | None = None, metadata: Metadata | None = None, name: str = "the picture"
) -> Picture:
    """A picture of one page from (H, W) or (H, W, 3) pixels of one of PIXEL_TYPES."""
    grey_or_rgb = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if not grey_or_rgb or pixels.size == 0 or pixels.dtype.name not in PIXEL_TYPES:
        raise ValueError(
            f"A picture needs (H, W) or (H, W, 3) pixels of type {in_words()}, "
            f"not shape {pixels.shape} and type {pixels.dtype}."
        )
    if alpha is not None and (alpha.shape != pixels.shape[:2] or alpha.dtype != pixels.dtype):
        raise ValueError("The alpha channel needs the height, width and type of the pixels.")
    native = pixels.dtype.newbyteorder("=")
    colour = np.ascontiguousarray(pixels, native)
    opacity = None if alpha is None else np.ascontiguousarray(alpha, native)
    height, width = colour.shape[:2]
    spec = PageSpec(height, width, 1 if colour.ndim == 2 else 3, colour.dtype, int(alpha is not None))
    return Picture(name, (spec,), lambda _: (colour, opacity), metadata or Metadata())


def split_alpha(samples: Pixels) -> Page:
    """Split (H, W) or (H, W, 1..4) samples into colours and alpha, each contiguous."""
    if samples.ndim == 2:
        return samples, None
    count = samples.shape[2]
    colour = samples[:, :, 0] if count < 3 else samples[:, :, :3]
    alpha = None if count in (1, 3) else np.ascontiguousarray(samples[:, :, -1])
    return np.ascontiguousarray(colour), alpha


def join_alpha(colour: Pixels, alpha: Pixels | None) -> Pixels:
    """Colours and alpha side by side as contiguous samples: (H, W), (H, W, 2), (H, W, 3) or (H, W, 4)."""
    return np.ascontiguousarray(colour) if alpha is None else np.dstack((colour, alpha))


def cut(page: Page, rows: slice, columns: slice = slice(None)) -> Page:
    """A part of a page."""
    colour, extra = page
    return colour[rows, columns], None if extra is None else extra[rows, columns]


def row_steps(height: int, row_bytes: int) -> Iterator[int]:
    """The rows of a page in pieces of a few MiB: how many each piece has."""
    step = max(1, PIECE_BYTES // row_bytes)
    return (min(step, height - top) for top in range(0, height, step))
