"""Large pictures in tiles, here or on the workers of a cluster: each tile reads its own window.

With the plan a tile is the same wherever it is denoised. Where the output is a folder (Zarr) whoever denoised a tile
writes it, and tiles are whole multiples of its chunks; a file gets whole rows, in order, from this process.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.progress import Progress
from dstl_cli.base.scratch import Memory
from dstl_cli.denoising.pipeline import STRIP_ROWS, denoise_region
from dstl_cli.denoising.plan import Plan
from dstl_cli.errors import DstlError
from dstl_cli.pixels.planes import Box
from dstl_cli.run.cluster import Cluster, Lost, Means, batches_of_one
from dstl_cli.run.pages import PageSource

Part = TypeVar("Part")
Result = TypeVar("Result")
Pixels = NDArray[Any]

TILE_PIXELS = 2**22  # of a tile, where its unit is not larger
TILES_EACH = 4  # for each worker at least, in the bands that are in this process at a time


@dataclass(frozen=True)
class PageWork:
    """A page to be denoised, and how: all that a worker needs beside the box of its tile.

    opened: gives the page. number: its own in the picture. corner: of the part of it that is written.
    """

    opened: Callable[[], PageSource]
    number: int
    plan: Plan
    memory: Memory
    corner: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Tile:
    """A box of a page, and the folder that it goes to (None: back to who asked)."""

    work: PageWork
    box: Box
    folder: Any = None


@dataclass(frozen=True)
class ReducedTile:
    """A box of a reduced copy in a folder."""

    folder: Any
    level: int
    box: Box


def denoise_tile(tile: Tile, means: Means) -> list[Pixels | None]:
    """Denoise a tile, and write it where it has a folder to go to."""
    work, box = tile.work, tile.box
    window = work.plan.window(box)
    seen, beside = work.opened().part(window)
    pixels = denoise_region(seen, box, work.plan, jobs=means.threads, memory=means.limits(work.memory))
    if tile.folder is None:
        return [pixels]
    top, left = work.corner
    place = slice(box.top - top, box.bottom - top), slice(box.left - left, box.right - left)
    inside = (
        slice(box.top - window.top, box.bottom - window.top),
        slice(box.left - window.left, box.right - window.left),
    )
    tile.folder.put(work.number, *place, pixels, None if beside is None else beside[inside])
    return [None]


def reduce_tile(tile: ReducedTile, means: Means) -> list[None]:
    """Make a tile of a reduced copy."""
    del means
    tile.folder.reduce(tile.level, tile.box.rows, tile.box.columns)
    return [None]


@dataclass(frozen=True)
class Crew:
    """Who works on the tiles: the workers of a cluster, or this process by itself, one tile after the other."""

    means: Means
    cluster: Cluster | None = None

    def completed(
        self, task: Callable[[Part, Means], list[Result]], parts: Iterable[Part]
    ) -> Iterator[tuple[Part, Result]]:
        """The result of a task over each part, as they come."""
        if self.cluster is None:
            yield from ((part, task(part, self.means)[0]) for part in parts)
            return
        for part, result in self.cluster.each(task, parts, batches_of_one, itemgetter(0)):
            if isinstance(result, Lost):
                what = f"A tile was not done on the workers, also when it was tried alone ({result.reason})"
                raise DstlError(f"{what}; look at their logs.")
            yield part, result


def denoised_by(crew: Crew, work: PageWork, part: Box, progress: Progress | None) -> Iterator[tuple[Box, Pixels]]:
    """The denoised part of a page in pieces of whole rows, from top to bottom; some bands of tiles are out together."""
    tiles = tiles_of(part, (STRIP_ROWS, STRIP_ROWS))
    bands = [list(band) for _, band in groupby(tiles, key=lambda box: box.top)]
    workers = 1 if crew.cluster is None else crew.cluster.workers
    several, done = max(1, math.ceil(TILES_EACH * workers / len(bands[0]))), 0
    for start in range(0, len(bands), several):
        boxes = [box for band in bands[start : start + several] for box in band]
        rows = replace(part, top=boxes[0].top, bottom=boxes[-1].bottom)
        pixels: Pixels | None = None
        for tile, found in crew.completed(denoise_tile, [Tile(work, box) for box in boxes]):
            assert found is not None
            if pixels is None:
                pixels = np.empty((*rows.shape, *found.shape[2:]), found.dtype)
            top, left = tile.box.top - rows.top, tile.box.left - rows.left
            pixels[top : top + len(found), left : left + found.shape[1]] = found
            done += 1
            if progress is not None:
                progress(done / len(tiles))
        assert pixels is not None
        yield rows, pixels


def write_tiles(crew: Crew, work: PageWork, part: Box, folder: Any, progress: Progress | None) -> None:
    """Denoise a part of a page into a folder."""
    boxes = tiles_of(part, folder.unit(0))
    tiles = (Tile(replace(work, corner=(part.top, part.left)), box, folder) for box in boxes)
    for done, _ in enumerate(crew.completed(denoise_tile, tiles), start=1):
        if progress is not None:
            progress(done / len(boxes))


def write_reduced(crew: Crew, folder: Any) -> None:
    """Make the reduced copies in a folder, each from the one before."""
    for level in range(1, len(folder.levels)):
        boxes = tiles_of(Box.whole(folder.size(level)), folder.unit(level))
        for _ in crew.completed(reduce_tile, (ReducedTile(folder, level, box) for box in boxes)):
            pass


def tiles_of(box: Box, unit: tuple[int, int]) -> list[Box]:
    """A box in tiles, row by row, whose corners lie at multiples of a unit from its own."""
    wide = max(1, math.isqrt(TILE_PIXELS) // unit[1]) * unit[1]
    high = max(1, TILE_PIXELS // (wide * unit[0])) * unit[0]
    corners = ((y, x) for y in range(box.top, box.bottom, high) for x in range(box.left, box.right, wide))
    return [Box(y, x, min(y + high, box.bottom), min(x + wide, box.right)) for y, x in corners]
