"""From packed bytes to pixels, by the libraries: the only place where they see a file, and all that the child runs.

Each decoder gets the bytes, an array to fill (or None) and facts that JSON can hold, and gives facts back.
"""

import atexit
import base64
import io
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dstl_cli.picture.problems import BadPixels

Pixels = np.ndarray[Any, Any]  # what the child imports takes time before its first file
Facts = dict[str, Any]
Decoder = Callable[..., Facts | None]

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PIECE = 2**30  # bytes of an IDAT chunk
_PACKBITS = 32773


def jpeg(packed: Any, out: Pixels) -> None:
    """A JPEG file of 8 bits, grey or RGB."""
    import imagecodecs

    imagecodecs.jpeg8_decode(packed, out=out)


def webp(packed: Any, out: Pixels) -> None:
    """A still WebP file, with alpha where there is room for it."""
    import imagecodecs

    imagecodecs.webp_decode(packed, hasalpha=out.shape[2] == 4, out=out)


# --- PNG ----------------------------------------------------------------------------------------------


def png(packed: memoryview, out: Pixels, *, passes: list[list[int]], depth: int, colour: int, key: str | None) -> None:
    """The samples of deflated rows; a transparent colour (key, in hexadecimal) gives one more, the alpha.

    passes: (first row, first column, row step, column step, height, width, bytes of all rows) of each, one where the
    rows are not interlaced.
    """
    total = sum(one[-1] for one in passes)
    unpacker = zlib.decompressobj()
    raw = memoryview(unpacker.decompress(packed, total + 1))
    if len(raw) < total or (len(raw) == total and not unpacker.eof):
        raise BadPixels("its pixels are cut short")
    pieces = [] if key is None else [(b"tRNS", bytes.fromhex(key))]
    for top, left, down, across, height, width, size in passes:
        header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
        whole = down == across == 1
        rows = _png_rows(header, raw[:size], pieces, out if whole else None)
        if not whole:
            out[top::down, left::across] = rows
        raw = raw[size:]


def _png_rows(header: bytes, raw: memoryview, pieces: list[tuple[bytes, bytes]], out: Pixels | None) -> Pixels:
    """Undo the filters of rows and unpack their samples.

    The decoder prints about odd streams and interlacing; it gets to see only plain ones.
    """
    import imagecodecs

    stored = zlib.compress(raw, 0)
    bodies = [(b"IDAT", stored[start : start + _PIECE]) for start in range(0, len(stored), _PIECE)]
    chunks = (png_chunk(*piece) for piece in ((b"IHDR", header), *pieces, *bodies, (b"IEND", b"")))
    return np.asarray(imagecodecs.png_decode(PNG_SIGNATURE + b"".join(chunks), out=out))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """A chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


# --- TIFF ---------------------------------------------------------------------------------------------


class _Last(threading.local):
    """What a thread has opened last, with what tells it from others."""

    key: object = None
    opened: Any = None


_page, _frames = _Last(), _Last()
atexit.register(_frames.__dict__.clear)  # while what closes files is still there


def tiff(packed: memoryview, out: Pixels, *, form: str, row_bytes: int, blocks: list[list[int]]) -> None:
    """Strips and tiles, each into its part of an array (N, H, W, S).

    form: a TIFF file with all tags of the page that matter here, in hexadecimal. blocks: for each, where it lies in
    the packed bytes, its length, number in the page and stored rows, and how high and wide its part of the page is.
    """
    import logging

    import tifffile

    logging.getLogger("tifffile").addHandler(logging.NullHandler())
    if _page.key != form:
        stream = io.BytesIO(bytes.fromhex(form))
        _page.key, _page.opened = form, tifffile.TiffFile(stream).pages[0]
    for place, (start, length, number, rows, high, wide) in zip(out, blocks, strict=True):
        block = _tiff_block(_page.opened, bytes(packed[start : start + length]), number, rows, rows * row_bytes)
        room = place[:high, :wide]
        samples = block[:high, :wide]
        if samples.shape != room.shape:
            raise BadPixels("a block of pixels is too short")
        np.copyto(room, samples, casting="safe")


def _tiff_block(page: Any, raw: bytes, number: int, rows: int, size: int) -> Pixels:
    """One strip or tile of tifffile's page as (rows, width, samples), of `size` bytes once unpacked."""
    try:
        block = page.decode(raw, number, jpegtables=page.jpegtables)[0]
    except Exception:  # a last strip may be stored in full, which tifffile refuses: it gets to see its rows only
        if page.compression == _PACKBITS:
            import imagecodecs

            raw = bytes(imagecodecs.packbits_encode(imagecodecs.packbits_decode(raw)[:size]))
        else:
            raw = zlib.compress(zlib.decompressobj().decompress(raw, size), 0)
        block = page.decode(raw, number)[0]
    return np.asarray(block[0])


# --- what Pillow reads --------------------------------------------------------------------------------


def about(packed: memoryview, out: None, *, key: int) -> Facts | None:
    """What Pillow says of the first frame; None where it cannot open the file."""
    del out
    try:
        with quiet(None):
            found = _opened(packed, key).metadata(index=0, exclude_applied=False)
    except OSError:
        return None
    facts: Facts = {"mode": str(found["mode"]), "shape": list(map(int, found["shape"]))}
    facts["transparent"] = "transparency" in found
    if facts["mode"] in ("P", "PA"):
        palette = np.asarray(found["palette"])[:, :3]
        facts["grey"] = bool((palette == palette[:, :1]).all())
    blobs = {name: found[name] for name in ("icc_profile", "exif", "xmp") if isinstance(found.get(name), bytes)}
    facts["blobs"] = {name: base64.b64encode(blob).decode("ascii") for name, blob in blobs.items()}
    dots = found.get("dpi")
    facts["dpi"] = list(map(float, dots)) if isinstance(dots, tuple) and len(dots) == 2 else [0.0, 0.0]
    return facts


def frames(packed: memoryview, out: None, *, key: int, pixels: int) -> Facts:
    """How many frames there are, none with more than twice so many pixels."""
    del out
    with quiet(pixels):
        return {"count": int(_opened(packed, key).properties(index=...).n_images or 1)}


def frame(packed: memoryview, out: Pixels, *, key: int, index: int, mode: str | None) -> None:
    """One frame, shown in a mode of Pillow (None: its own)."""
    with quiet(out.shape[0] * out.shape[1]):
        found = _opened(packed, key).read(index=index, mode=mode)
    if found.shape != out.shape:
        raise BadPixels("its frames differ in size")
    np.copyto(out, found, casting="same_kind")


def _opened(packed: memoryview, key: int) -> Any:
    """The file as imageio sees it, opened once while its frames are asked for in turn."""
    import imageio.v3 as iio

    if _frames.key != key:
        _frames.key = None
        _frames.opened = iio.imopen(io.BytesIO(packed), "r", plugin="pillow")
        _frames.key = key
    return _frames.opened


@contextmanager
def quiet(pixels: int | None) -> Iterator[None]:
    """No warnings of Pillow, and no frame of more than twice so many pixels (None: any size is told)."""
    from PIL import Image

    limit = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


DECODERS: dict[str, Decoder] = {decoder.__name__: decoder for decoder in (jpeg, webp, png, tiff, about, frames, frame)}
