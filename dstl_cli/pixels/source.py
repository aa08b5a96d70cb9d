"""Where the pixels of one page come from: an array, or a file that is read in windows."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dstl_cli.pixels.planes import Box

Pixels = NDArray[np.generic]

BAND_PIXELS = 2_000_000  # looked at together
SAMPLE_PIXELS = 8_000_000  # a larger picture is represented by windows of it
SAMPLE_SIDE = 1024  # of such a window
GRID = 8  # windows begin at multiples of this: the grid of a JPEG's blocks goes on where they are put together


class PixelSource(Protocol):
    """A grey (H, W) or RGB (H, W, 3) picture that can be read in parts."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    def window(self, box: Box) -> Pixels:
        """The pixels in a box."""


@dataclass(frozen=True)
class ArraySource:
    """Pixels in memory: those of a whole picture, or of a window of it that begins at `top` and `left`."""

    pixels: Pixels
    top: int = 0
    left: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pixels.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.pixels.dtype

    def window(self, box: Box) -> Pixels:
        rows = slice(box.top - self.top, box.bottom - self.top)
        return self.pixels[rows, box.left - self.left : box.right - self.left]


class LockedSource:
    """Another source that one thread reads at a time."""

    def __init__(self, source: PixelSource) -> None:
        self._source, self._lock = source, threading.Lock()
        self.shape, self.dtype = source.shape, source.dtype

    def window(self, box: Box) -> Pixels:
        """The pixels in a box."""
        with self._lock:
            return self._source.window(box)


def bands(box: Box, pixels: int | None = None) -> Iterator[Box]:
    """A box in pieces of whole rows that are not large, or of about so many pixels."""
    step = max(1, (pixels or BAND_PIXELS) // max(1, box.right - box.left))
    for top in range(box.top, box.bottom, step):
        yield Box(top, box.left, min(top + step, box.bottom), box.right)


def sample_of(source: PixelSource, seed: int, part: Box | None = None) -> Pixels:
    """A part of a picture (None: all of it), or where it is large, windows at random places in it, one below the other.

    That is a bounded sample.
    """
    part = part or Box.whole(source.shape)
    height, width = part.shape
    if height * width <= SAMPLE_PIXELS:
        return source.window(part)
    rng = np.random.default_rng([seed, height, width])
    tall, wide = min(height, SAMPLE_SIDE), min(width, SAMPLE_SIDE)
    count = max(1, SAMPLE_PIXELS // (tall * wide))
    down, across = (rng.integers(0, room // GRID + 1, count) for room in (height - tall, width - wide))
    corners = sorted(zip(down * GRID, across * GRID, strict=True))
    places = [(part.top + int(y), part.left + int(x)) for y, x in corners]
    return np.concatenate([source.window(Box(y, x, y + tall, x + wide)) for y, x in places])
