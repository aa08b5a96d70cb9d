"""NumPy's .npy arrays of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), never unpickled."""

from collections.abc import Generator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from dstl_cli.base.depths import PIXEL_TYPES, in_words
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, join_alpha, row_steps, split_alpha
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

    def part(_: int, rows: slice, columns: slice) -> Page:
        if stored.fortran:
            samples = source.array(stored.start, stored.shape[::-1], stored.dtype).transpose()[rows, columns]
        else:
            samples = source.window(stored.start, stored.shape, stored.dtype, rows, columns)
        samples = np.ascontiguousarray(samples)
        if stored.dtype.kind == "b":
            samples = samples.view(np.uint8) * np.uint8(255)
        return split_alpha(samples.astype(dtype, copy=False))

    windows = None if stored.fortran else part
    whole = slice(0, height), slice(0, width)
    return Picture(source.name, (spec,), lambda _: part(0, *whole), Metadata(), stored, decode_part=windows)


def write_rows(picture: Picture, stream: BinaryIO, strip: bool) -> Generator[int, Page, None]:
    """Write one page as an array; byte order and layout are those of the source."""
    del strip  # an array has no metadata
    spec = picture.specs[0]
    samples = spec.channels + spec.extra
    shape = spec.shape if samples == 1 else (*spec.shape[:2], samples)
    native: NpyExtras = picture.native or NpyExtras(shape, spec.dtype, False, 0)
    dtype = spec.dtype if native.dtype.kind == "b" else native.dtype
    if native.fortran:
        array = join_alpha(*(yield spec.height)).astype(dtype, copy=False).reshape(native.shape)
        npy_format.write_array(stream, np.asfortranarray(array), allow_pickle=False)
        return
    descr = npy_format.dtype_to_descr(dtype)
    npy_format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": native.shape})
    for rows in row_steps(spec.height, spec.width * samples * dtype.itemsize):
        stream.write(join_alpha(*(yield rows)).astype(dtype, copy=False).data)


def cropped_native(picture: Picture, rows: slice, columns: slice) -> NpyExtras:
    """How a part of the array is written."""
    native: NpyExtras = picture.native
    return native._replace(shape=(rows.stop - rows.start, columns.stop - columns.start, *native.shape[2:]))


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
        raise unsupported(name, f"holds values of type {dtype.name}", f"save it as {in_words()}")
    if not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))):
        remedy = "save arrays of shape (H, W), (H, W, 3) or (H, W, 4)"
        raise unsupported(name, f"holds an array of shape {shape}", remedy)
    nbytes = shape[0] * shape[1] * (shape[2] if len(shape) == 3 else 1) * dtype.itemsize
    source.check_size(shape[1], shape[0], nbytes)
    if start + nbytes > source.size:
        raise truncated(name)
    return NpyExtras(shape, dtype, bool(fortran), start)
