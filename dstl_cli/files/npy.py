"""NumPy's .npy arrays of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), never unpickled."""

from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from dstl_cli.files.pictures import (
    PIXEL_TYPES,
    ImageInfo,
    Metadata,
    Picture,
    Source,
    check_finite,
    check_size,
    damaged,
    file_errors,
    single_page,
    split_alpha,
    truncated,
    unsupported,
)


@dataclass(frozen=True)
class NpyExtras:
    """The stored dtype with its byte order, and how the array lay in the file."""

    dtype: np.dtype[Any]
    fortran: bool
    ndim: int


@dataclass(frozen=True)
class _Head:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int

    @property
    def samples(self) -> int:
        """Samples per pixel."""
        return 1 if len(self.shape) == 2 else self.shape[2]

    @property
    def pixel_dtype(self) -> np.dtype[Any]:
        """The dtype in memory: native byte order, booleans as bytes."""
        return np.dtype(np.uint8) if self.dtype.kind == "b" else self.dtype.newbyteorder("=")


def probe(source: Source) -> ImageInfo:
    """Read the header only."""
    head = _parse(source)
    height, width = head.shape[:2]
    channels = 1 if head.samples == 1 else 3
    return ImageInfo(width, height, 1, channels, head.samples == 4, head.pixel_dtype, "npy")


def read(source: Source) -> Picture:
    """Read an array; booleans become 0 and 255."""
    head = _parse(source)
    if head.fortran:
        samples = np.ascontiguousarray(source.array(head.start, head.shape[::-1], head.dtype).transpose())
    else:
        samples = source.array(head.start, head.shape, head.dtype)
    if head.dtype.kind == "b":
        samples = samples.view(np.uint8) * np.uint8(255)
    colour, alpha = split_alpha(samples.astype(head.pixel_dtype, copy=False))
    check_finite(colour, source.name)
    stored = head.pixel_dtype if head.dtype.kind == "b" else head.dtype
    extras = NpyExtras(stored, head.fortran, len(head.shape))
    return single_page(source.name, "npy", colour, alpha, Metadata(), extras)


def write(picture: Picture, stream: BinaryIO, strip: bool) -> None:
    """Write one page as an array; byte order and layout are those of the source."""
    del strip  # an array has no metadata
    colour, alpha = picture.pages[0], picture.alphas[0]
    samples = colour if alpha is None else np.dstack((colour, alpha))
    native = picture.native
    if isinstance(native, NpyExtras):
        samples = samples.astype(native.dtype, copy=False)
        if samples.ndim < native.ndim:
            samples = samples[:, :, np.newaxis]
        samples = np.asfortranarray(samples) if native.fortran else np.ascontiguousarray(samples)
    npy_format.write_array(stream, samples, allow_pickle=False)


def _parse(source: Source) -> _Head:
    """Read and check the header."""
    name = source.name
    with file_errors(name), source.open() as stream:
        try:
            version = npy_format.read_magic(stream)
            reader = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = reader(stream)
        except OSError:
            raise
        except Exception as error:
            raise damaged(name, "its .npy header is wrong") from error
        start = stream.tell()
    if dtype.kind != "b" and dtype.newbyteorder("=").name not in PIXEL_TYPES:
        remedy = "save it as uint8, uint16, float32 or float64"
        raise unsupported(name, f"holds values of type {dtype.name}", remedy)
    if not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))):
        remedy = "save arrays of shape (H, W), (H, W, 3) or (H, W, 4)"
        raise unsupported(name, f"holds an array of shape {shape}", remedy)
    height, width = (int(side) for side in shape[:2])
    nbytes = int(np.prod([int(side) for side in shape], dtype=object)) * dtype.itemsize
    check_size(source, width, height, nbytes)
    if start + nbytes > source.size:
        raise truncated(name)
    return _Head(tuple(int(side) for side in shape), dtype, bool(fortran), start)
