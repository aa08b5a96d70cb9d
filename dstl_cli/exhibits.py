"""What a report shows of a measured picture: before, after and difference, made small, and windows at full size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dstl_cli.evaluation import WHITE, Row, luma

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

LONGEST_SIDE = 720  # of a picture on the page, about
SHORTEST_SIDE = 240  # of a picture that had to be made smaller to keep the page small
MOST_SAMPLES = 6_000_000  # grey values (three a pixel for colour) of all afters together
WINDOW_SIDE = 48
VISIBLE_RMS = 32.0  # what differences are amplified to
MOST_GAIN = 32.0


@dataclass(frozen=True)
class Plan:
    """How much fits on a page: the first so many pages of pictures, each with about this longest side."""

    shown: int
    longest: int


@dataclass(frozen=True)
class Place:
    """A square window of a picture that is worth a close look."""

    what: str
    row: int
    column: int
    side: int

    def cut(self, picture: Array) -> Bytes:
        """The pixels of the window."""
        return to_bytes(picture[self.row : self.row + self.side, self.column : self.column + self.side])


@dataclass(frozen=True)
class Shot:
    """Before and after of one row; the crops are at full size."""

    row: Row
    before: Bytes
    after: Bytes
    difference: Bytes  # before - after, around middle grey
    gain: float  # by which the difference was amplified
    before_crops: tuple[Bytes, ...]
    after_crops: tuple[Bytes, ...]


@dataclass(frozen=True)
class Exhibit:
    """One picture: the places to look at, how they should look, and the shots in the order of their rows."""

    title: str
    width: int
    height: int
    factor: int  # by how much before, after and difference were shrunk
    places: tuple[Place, ...]
    crops: tuple[Bytes, ...]  # of the clean picture
    shots: tuple[Shot, ...]


def plan_page(channels: Sequence[int], shots_each: int) -> Plan:
    """How many of the pictures with so many channels fit on a page with so many shots of each, and how large."""
    samples = [count * shots_each for count in channels]
    longest = math.isqrt(MOST_SAMPLES // max(1, sum(samples)))
    if longest >= SHORTEST_SIDE:
        return Plan(len(channels), min(longest, LONGEST_SIDE))
    room = MOST_SAMPLES // SHORTEST_SIDE**2
    fitting = int(np.searchsorted(np.cumsum(samples), room, side="right"))
    return Plan(max(1, fitting), SHORTEST_SIDE)


def places_to_look_at(picture: Array, side: int = WINDOW_SIDE) -> tuple[Place, ...]:
    """Up to three windows of a grid without overlap: the ones of largest, middle and smallest variance."""
    grey = luma(picture)
    side = min(side, *grey.shape)
    corners = [
        (row, column)
        for row in range(0, grey.shape[0] - side + 1, side)
        for column in range(0, grey.shape[1] - side + 1, side)
    ]
    variances = np.array([grey[row : row + side, column : column + side].var() for row, column in corners])
    order = np.argsort(-variances, kind="stable")
    ranks = {len(order) // 2: "in between", len(order) - 1: "least detail", 0: "most detail"}
    chosen = [(what, corners[order[rank]]) for rank, what in sorted(ranks.items())]
    return tuple(Place(what, row, column, side) for what, (row, column) in chosen)


def make_shot(row: Row, before: Array, after: Array, places: Sequence[Place], longest: int) -> Shot:
    """The pictures of one row, with white at 255, as a page shows them."""
    small_before, small_after = shrunk(before, longest), shrunk(after, longest)
    difference, gain = amplified(small_before - small_after)
    return Shot(
        row=row, before=to_bytes(small_before), after=to_bytes(small_after), difference=to_bytes(difference), gain=gain,
        before_crops=tuple(place.cut(before) for place in places),
        after_crops=tuple(place.cut(after) for place in places),
    )  # fmt: skip


def make_exhibit(title: str, picture: Array, places: Sequence[Place], shots: Sequence[Shot], longest: int) -> Exhibit:
    """A clean picture, with white at 255, and its shots as a page shows them."""
    height, width = picture.shape[:2]
    crops = tuple(place.cut(picture) for place in places)
    return Exhibit(title, width, height, shrink_factor(picture, longest), tuple(places), crops, tuple(shots))


def shrink_factor(picture: Array, longest: int) -> int:
    """The whole number by which a picture is divided to have a longer side of about `longest` at most."""
    longer: int = max(picture.shape[:2])
    return max(1, round(longer / longest))


def shrunk(picture: Array, longest: int) -> Array:
    """The picture averaged over squares of f x f pixels, f its shrink factor; what is left over is cut off."""
    factor = shrink_factor(picture, longest)
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
