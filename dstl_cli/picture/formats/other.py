"""Formats that are only read: through imageio, as Pillow decodes them; frames of an animation are pages.

Sizes are checked before anything is decoded, and what Pillow would shorten to 8 bits is refused.
"""

import base64
import re
from itertools import count as numbers
from typing import Any

import numpy as np

from dstl_cli.picture.decoding.asking import ask, decoded, filled
from dstl_cli.picture.formats import LEAD, recognise
from dstl_cli.picture.model import Metadata, Page, PageSpec, Picture, split_alpha
from dstl_cli.picture.problems import damaged, unsupported
from dstl_cli.picture.source import Source

_KEYS = numbers()  # by which the decoder knows a file that it has open
# Pillow's modes that are read: those of bytes, and the types of the others.
_BYTES = ("L", "LA", "RGB", "RGBA")
_DEEP = {"I;16": "uint16", "F": "float32"}
# More than 8 bits of a colour: flags of AV1 and HEVC; and where JPEG 2000 says how many components it has.
_HIGH_DEPTH = {"avif": rb"av1C..[\x40-\x7f\xc0-\xff]", "heic": rb"hvcC.{17}[^\xf8]"}
_COMPONENTS = re.compile(rb"\xff\x4f\xff\x51.{36}(..)", re.DOTALL)


def read(source: Source) -> Picture:
    """Read the headers of a picture file."""
    data = source.read()
    kind = recognise(data[:LEAD], source.name).name
    _check_depth(source.name, kind, data)
    packed, key = filled([data]), next(_KEYS)
    del data
    about = ask("about", packed, key=key)
    if about is None:
        if kind != "heic":
            raise damaged(source.name, "its headers make no sense")
        remedy = "install pillow-heif or convert it to PNG or TIFF first"
        raise unsupported(source.name, "is a HEIC picture", remedy)
    width, height = map(int, about["shape"])
    source.check_size(width, height, width * height)  # counting the frames takes a page of memory
    frames = ask("frames", packed, work=4 * width * height, key=key, pixels=width * height)
    count = int((frames or {})["count"])
    mode = _shown_as(source.name, about, count)
    channels, extra = 3 if mode.startswith("RGB") else 1, int(mode.endswith("A"))
    spec = PageSpec(height, width, channels, np.dtype(_DEEP.get(mode, "uint8")), extra)
    source.check_size(width, height, count * width * height * (channels + extra) * spec.dtype.itemsize)
    shape = (height, width, channels + extra)[: 2 + (channels + extra > 1)]
    shown = None if mode in _DEEP else mode

    def decode(index: int) -> Page:
        return split_alpha(decoded("frame", packed, shape, spec.dtype, key=key, index=index, mode=shown))

    return Picture(source.name, (spec,) * count, decode, _metadata(about))


def _check_depth(name: str, kind: str, data: bytes) -> None:
    """Refuse depths that Pillow would shorten."""
    deep = kind in _HIGH_DEPTH and re.search(_HIGH_DEPTH[kind], data, re.DOTALL) is not None
    if kind == "jpeg2000" and (found := _COMPONENTS.search(data)):
        count = int.from_bytes(found[1], "big")
        deep = count > 1 and max(data[found.end() : found.end() + 3 * count : 3], default=0) > 7  # depth - 1, or signed
    if deep:
        raise unsupported(name, "has colours of more than 8 bits", "convert it to 16-bit PNG or TIFF first")


def _shown_as(name: str, about: dict[str, Any], count: int) -> str:
    """The mode in which all frames can be shown; palettes are expanded, grey ones of single pictures to grey."""
    mode = str(about["mode"])
    if mode in ("P", "PA"):
        grey = count == 1 and "icc_profile" not in about["blobs"] and about["grey"]
        return ("L" if grey else "RGB") + ("A" if mode == "PA" or about["transparent"] else "")
    mode = "L" if mode == "1" else mode
    if mode not in (*_BYTES, *_DEEP):
        kind = {"CMYK": "CMYK colours", "I": "32-bit whole numbers"}.get(mode, f"pixels of kind {mode}")
        raise unsupported(name, f"holds {kind}", "convert it to grey or RGB first")
    return mode if count == 1 else "RGBA" if mode.endswith("A") or about["transparent"] else "RGB"


def _metadata(about: dict[str, Any]) -> Metadata:
    """What Pillow tells of the file that other formats can hold."""
    blobs = {name: base64.b64decode(text) for name, text in about["blobs"].items()}
    exif, dpi = blobs.get("exif"), tuple(map(float, about["dpi"]))
    return Metadata(
        icc=blobs.get("icc_profile"),
        exif=None if exif is None else exif.removeprefix(b"Exif\x00\x00"),
        xmp=blobs.get("xmp"),
        dpi=(dpi[0], dpi[1]) if min(dpi) > 0 else None,
    )
