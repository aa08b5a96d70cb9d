"""NumPy's .npy arrays of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), never unpickled."""

from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from dstl_cli.picture.model import PIXEL_TYPES, Metadata, Page, PageSpec, Picture, Pixels, join_alpha, split_alpha
from dstl_cli.picture.problems import decoding, truncated, unsupported
from dstl_cli.picture.source import Source, file_errors


class NpyExtras(NamedTuple):
    """How the array lay in the file: its shape, its dtype with the byte order, Fortran's order or C's, where."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int


def read(source: Source) -> Picture:
    """Read an array; booleans become 0 and 255."""
    stored = _parse(source)
    height, width = stored.shape[:2]
    samples = stored.shape[2] if len(stored.shape) == 3 else 1
    dtype = np.dtype(np.uint8) if stored.dtype.kind == "b" else stored.dtype.newbyteorder("=")
    spec = PageSpec(height, width, 1 if samples == 1 else 3, dtype, int(samples == 4))
    return Picture(source.name, (spec,), lambda _: _page(source, stored, dtype), Metadata(), stored)


def _page(source: Source, stored: NpyExtras, dtype: np.dtype[Any]) -> Page:
    shape = stored.shape[::-1] if stored.fortran else stored.shape
    samples = source.array(stored.start, shape, stored.dtype)
    if stored.fortran:
        samples = np.ascontiguousarray(samples.transpose())
    if stored.dtype.kind == "b":
        samples = samples.view(np.uint8) * np.uint8(255)
    return split_alpha(samples.astype(dtype, copy=False))


def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
    """Write one page as an array; byte order and layout are those of the source."""
    del strip  # an array has no metadata
    samples = join_alpha(colour, alpha)
    if picture.native is not None:
        native: NpyExtras = picture.native
        dtype = samples.dtype if native.dtype.kind == "b" else native.dtype
        samples = samples.astype(dtype, copy=False).reshape(native.shape)
        samples = np.asfortranarray(samples) if native.fortran else np.ascontiguousarray(samples)
    npy_format.write_array(stream, samples, allow_pickle=False)


def _parse(source: Source) -> NpyExtras:
    """Read and check the header."""
    name = source.name
    with file_errors(name), source.open() as stream, decoding(name, "its .npy header is wrong"):
        first = npy_format.read_magic(stream) == (1, 0)
        reader = npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0
        found, fortran, dtype = reader(stream)
        start = stream.tell()
    shape = tuple(map(int, found))
    if dtype.kind != "b" and dtype.newbyteorder("=").name not in PIXEL_TYPES:
        remedy = "save it as uint8, uint16, float32 or float64"
        raise unsupported(name, f"holds values of type {dtype.name}", remedy)
    if not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))):
        remedy = "save arrays of shape (H, W), (H, W, 3) or (H, W, 4)"
        raise unsupported(name, f"holds an array of shape {shape}", remedy)
    nbytes = shape[0] * shape[1] * (shape[2] if len(shape) == 3 else 1) * dtype.itemsize
    source.check_size(shape[1], shape[0], nbytes)
    if start + nbytes > source.size:
        raise truncated(name)
    return NpyExtras(shape, dtype, bool(fortran), start)
