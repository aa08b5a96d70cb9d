"""What a report shows of a measured picture: before, after and difference, made small, and windows at full size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dstl_cli.base.arrays import Array, Bytes
from dstl_cli.measure.trials import Measurement, Row, luma
from dstl_cli.pixels.depth import WHITE

LONGEST_SIDE = 720  # of a picture on the page, about
SHORTEST_SIDE = 240  # of a picture that had to be made smaller to keep the page small
MOST_SAMPLES = 6_000_000  # grey values (three a pixel for colour) of all afters together
WINDOW_SIDE = 48
VISIBLE_RMS = 32.0  # what differences are amplified to
MOST_GAIN = 32.0


@dataclass(frozen=True)
class Window:
    """A square window of a picture that is worth a close look."""

    what: str
    row: int
    column: int
    side: int

    def crop(self, picture: Array) -> Bytes:
        """The pixels of the window."""
        return to_bytes(picture[self.row : self.row + self.side, self.column : self.column + self.side])


@dataclass(frozen=True)
class Comparison:
    """Before and after of one measurement; the crops are at full size."""

    row: Row
    name: str  # what `after` is called
    before: Bytes
    after: Bytes
    difference: Bytes  # before - after, around middle grey
    gain: float  # by which the difference was amplified
    before_crops: tuple[Bytes, ...]
    after_crops: tuple[Bytes, ...]


@dataclass(frozen=True)
class Exhibit:
    """One picture of a report: the windows to look at, how they should look, and what was compared, row by row."""

    title: str
    width: int
    height: int
    factor: int  # by how much before, after and difference are shrunk
    windows: tuple[Window, ...]
    crops: tuple[Bytes, ...]  # of the clean picture
    comparisons: list[Comparison] = field(default_factory=list)

    @classmethod
    def of(cls, title: str, clean: Array, longest: int) -> "Exhibit":
        """A clean picture with white at 255, shown with about this longest side."""
        windows = windows_to_look_at(clean)
        height, width = clean.shape[:2]
        factor = max(1, round(max(height, width) / longest))
        return cls(title, width, height, factor, windows, tuple(window.crop(clean) for window in windows))

    def add(self, measured: Measurement) -> None:
        """Show a measurement too."""
        before, after = shrunk(measured.before, self.factor), shrunk(measured.after, self.factor)
        difference, gain = amplified(before - after)
        pictures = (to_bytes(before), to_bytes(after), to_bytes(difference))
        crops = [tuple(window.crop(full) for window in self.windows) for full in (measured.before, measured.after)]
        self.comparisons.append(Comparison(measured.row, measured.row.method or "compared", *pictures, gain, *crops))


def page_budget(channels: Sequence[int], comparisons_each: int) -> tuple[int, int]:
    """How many pictures with so many channels and comparisons fit on a page, and with which longest side, about."""
    samples = [count * comparisons_each for count in channels]
    longest = math.isqrt(MOST_SAMPLES // max(1, sum(samples)))
    if longest >= SHORTEST_SIDE:
        return len(channels), min(longest, LONGEST_SIDE)
    room = MOST_SAMPLES // SHORTEST_SIDE**2
    fitting = int(np.searchsorted(np.cumsum(samples), room, side="right"))
    return max(1, fitting), SHORTEST_SIDE


def windows_to_look_at(picture: Array) -> tuple[Window, ...]:
    """Up to three windows of a grid without overlap: the ones of largest, middle and smallest variance."""
    grey = luma(picture)
    side = min(WINDOW_SIDE, *grey.shape)
    rows, columns = (length // side for length in grey.shape)
    blocks = grey[: rows * side, : columns * side].reshape(rows, side, columns, side)
    order = np.argsort(-blocks.var(axis=(1, 3)), axis=None, kind="stable")
    ranks = {len(order) // 2: "in between", len(order) - 1: "least detail", 0: "most detail"}
    corners = [(what, *divmod(int(order[rank]), columns)) for rank, what in sorted(ranks.items())]
    return tuple(Window(what, row * side, column * side, side) for what, row, column in corners)


def shrunk(picture: Array, factor: int) -> Array:
    """The picture averaged over squares of factor x factor pixels; what is left over is cut off."""
    height, width = picture.shape[:2]
    rows, columns = (max(1, length // factor) for length in (height, width))
    part = picture[: min(height, rows * factor), : min(width, columns * factor)]
    blocks = part.reshape(rows, part.shape[0] // rows, columns, part.shape[1] // columns, *part.shape[2:])
    return np.asarray(blocks.mean(axis=(1, 3)))


def amplified(difference: Array) -> tuple[Array, float]:
    """A difference around middle grey, strengthened until it is well visible, and by how much."""
    rms = math.sqrt(float(np.mean(difference**2)))
    gain = min(max(round(VISIBLE_RMS / rms, 1), 1.0), MOST_GAIN) if rms > 0 else 1.0
    return WHITE / 2 + gain * difference, gain


def to_bytes(picture: Array) -> Bytes:
    """Rounded and clipped to 0 to 255."""
    return np.clip(np.rint(picture), 0, WHITE).astype(np.uint8)
