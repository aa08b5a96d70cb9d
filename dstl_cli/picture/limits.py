"""What a picture file may claim before memory and time are spent on it."""

import os
from typing import Any

import numpy as np

from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.picture.problems import damaged
from dstl_cli.picture.source import Source

MAX_PIXELS_VARIABLE = "DSTL_MAX_PIXELS"
MAX_PIXELS = 500_000_000
# Deflate cannot shrink data more than 1032 times and LZW not much more, so a file that
# promises 2000 times its own size is cut off or a forgery; real pictures stay far below 200.
POSSIBLE_RATIO = 2000
PLAUSIBLE_RATIO = 200
PLAUSIBLE_PIXELS = 128_000_000
SMALL_BYTES = 64 * 2**20
_FINITE_BLOCK = 2**22


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


def check_finite(page: np.ndarray[Any, Any], name: str, where: str = "") -> None:
    """Refuse NaN and infinite pixels, with their count."""
    if page.dtype.kind != "f":
        return
    step = max(1, _FINITE_BLOCK // max(1, page[:1].size))
    blocks = (page[start : start + step] for start in range(0, page.shape[0], step))
    bad = sum(block.size - int(np.count_nonzero(np.isfinite(block))) for block in blocks)
    if bad:
        values = "value that is" if bad == 1 else "values that are"
        raise FileProblem(f"{name} has {bad} {values} NaN or infinite{where}; replace them before denoising.")
