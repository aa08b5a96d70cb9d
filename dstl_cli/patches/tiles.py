"""Canonical tiles: the patches of a picture in pieces of work that depend on the picture's shape alone.

Whatever part of the picture is at hand, a tile is computed whole and in the same way, and the sums of tiles are added
in their order. So the bytes of a result do not depend on how the picture was cut.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.threads import Execution
from dstl_cli.pixels.planes import Box, Plane

Floats = NDArray[np.floating[Any]]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Span:
    """The patches of one row (or column) of tiles: where they begin, and the pixels they need and change."""

    corners: Index
    start: int
    stop: int


@dataclass(frozen=True)
class TileGrid:
    """All tiles of a picture: every span of rows with every span of columns."""

    shape: tuple[int, int]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    def covering(self, box: Box) -> Box:
        """The pixels of all tiles that touch a box: those that its values depend on."""
        top, bottom = _covering(self.rows, box.top, box.bottom)
        left, right = _covering(self.columns, box.left, box.right)
        return Box(top, left, bottom, right)

    def within(self, box: Box) -> "tuple[range, range]":
        """The numbers of the rows and columns of tiles whose pixels all lie in a box."""
        return _inside(self.rows, box.top, box.bottom), _inside(self.columns, box.left, box.right)

    def finished(self, rows: range, columns: range) -> Box:
        """The pixels that no other tile changes, once these are done."""
        top, bottom = _finished(self.rows, rows, self.shape[0])
        left, right = _finished(self.columns, columns, self.shape[1])
        return Box(top, left, bottom, right)


def _inside(spans: Sequence[Span], low: int, high: int) -> range:
    numbers = [number for number, span in enumerate(spans) if low <= span.start and span.stop <= high]
    return range(numbers[0], numbers[-1] + 1) if numbers else range(0)


def _covering(spans: Sequence[Span], low: int, high: int) -> tuple[int, int]:
    touching = [span for span in spans if span.start < high and low < span.stop]
    return min(span.start for span in touching), max(span.stop for span in touching)


def _finished(spans: Sequence[Span], numbers: range, length: int) -> tuple[int, int]:
    if not numbers:
        return 0, 0
    start = max((span.stop for span in spans[: numbers[0]]), default=0)
    stop = min((span.start for span in spans[numbers[-1] + 1 :]), default=length)
    return start, max(start, stop)


def spans_of(corners: Index, size: int, length: int, step: int, *, radius: int = 0) -> tuple[Span, ...]:
    """Corners along one axis in runs of `step` pixels from the origin, with patches of `size` up to `radius` away."""
    numbers = corners // step
    return tuple(
        Span(
            part := corners[numbers == number],
            max(0, int(part[0]) - radius),
            min(length, int(part[-1]) + radius + size),
        )
        for number in np.unique(numbers)
    )


@dataclass(frozen=True)
class Tile:
    """One tile: its corners counted from the box, which is counted from the picture's origin."""

    rows: Index
    columns: Index
    box: Box
    place: tuple[int, int]  # its row and column in the grid


def tiles_in(grid: TileGrid, box: Box) -> tuple[list[Tile], Box]:
    """The tiles whose pixels all lie in a box, row by row, and the pixels that are finished when they are done."""
    rows, columns = grid.within(box)
    tiles = []
    for i in rows:
        for j in columns:
            r, c = grid.rows[i], grid.columns[j]
            tiles.append(Tile(r.corners - r.start, c.corners - c.start, Box(r.start, c.start, r.stop, c.stop), (i, j)))
    return tiles, grid.finished(rows, columns)


Sums = NDArray[np.floating[Any]]  # (count + 1, h, w): weighted sums over the tile's box, the weights last


def weighted_average(
    planes: Sequence[Plane],
    grid: TileGrid,
    run: Callable[[Tile, list[Floats]], Sums],
    count: int,
    execution: Execution,
    into: Sequence[Plane] = (),
) -> list[Plane]:
    """Weighted averages over all patches, `count` planes of them: the one overlap-add of all engines.

    run: the sums of one tile, from the windows of the planes that it needs. Rows are averaged as soon as no tile below
    changes them. into: planes that the averages take the place of, perhaps some of `planes`: a tile below does not read
    the rows that are finished.
    """
    dtype = planes[0].values.dtype
    tiles, done = tiles_in(grid, planes[0].box)
    if 0 in done.shape:
        raise ValueError("The window is too small for its box.")
    results = [plane.window(done) for plane in into] or [execution.allocate(done.shape, dtype) for _ in range(count)]
    area = Box(tiles[0].box.top, tiles[0].box.left, tiles[-1].box.bottom, max(tile.box.right for tile in tiles))
    pending = _Rows(area, count + 1, dtype)
    ends = _row_ends(grid, tiles, done)
    finished = execution.over(tiles, lambda tile: run(tile, [plane.window(tile.box) for plane in planes]))
    for tile, following, sums in zip(tiles, [*tiles[1:], None], finished, strict=True):
        pending.add(tile.box, sums)
        if following is None or following.place[0] != tile.place[0]:
            for top, block in pending.finish(ends[tile.place[0]]):
                _write(results, done, area, top, block)
    return [Plane(values, done, grid.shape) for values in results]


def _row_ends(grid: TileGrid, tiles: list[Tile], done: Box) -> dict[int, int]:
    """Up to which pixel row the averages are final after each row of tiles."""
    last = tiles[-1].place[0]
    return {i: done.bottom if i == last else grid.rows[i + 1].start for i in range(tiles[0].place[0], last + 1)}


def _write(results: list[Floats], done: Box, area: Box, top: int, block: Sums) -> None:
    """Put finished rows, from pixel row `top` on, into the results, as far as they belong there."""
    low, high = max(top, done.top), min(top + block.shape[1], done.bottom)
    if low >= high:
        return
    part = block[:, low - top : high - top, done.left - area.left : done.right - area.left]
    for values, total in zip(results, part[:-1], strict=True):
        np.divide(total, part[-1], out=values[low - done.top : high - done.top])


class _Rows:
    """Sums over the pixel rows that are not finished yet."""

    def __init__(self, area: Box, count: int, dtype: Any) -> None:
        self.area, self.top = area, area.top
        self.sums = np.zeros((count, 0, area.right - area.left), dtype)

    def add(self, box: Box, sums: Sums) -> None:
        """Add the sums of a tile."""
        missing = box.bottom - self.top - self.sums.shape[1]
        if missing > 0:
            more = np.zeros((len(self.sums), missing, self.sums.shape[2]), self.sums.dtype)
            self.sums = np.concatenate((self.sums, more), axis=1)
        top, left = box.top - self.top, box.left - self.area.left
        self.sums[:, top : top + sums.shape[1], left : left + sums.shape[2]] += sums

    def finish(self, until: int) -> Iterator[tuple[int, Sums]]:
        """The rows above `until`, which are forgotten."""
        if until > self.top:
            cut = until - self.top
            yield self.top, self.sums[:, :cut]
            self.sums, self.top = self.sums[:, cut:].copy(), until
