"""Tiles hold every patch once, say what they need, and their sums are the average, whatever window is at hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.base.threads import Execution
from dstl_cli.patches.grid import positions
from dstl_cli.patches.tiles import Sums, Tile, TileGrid, spans_of, tiles_in, weighted_average
from dstl_cli.pixels.planes import Box, Plane

Floats = NDArray[np.floating[Any]]


@st.composite
def grids(draw: st.DrawFn) -> tuple[TileGrid, int, int]:
    """A grid of tiles, the size of its patches and how far around they look."""
    size = draw(st.integers(1, 6))
    shape = draw(st.tuples(st.integers(size, 40), st.integers(size, 40)))
    stride, radius = draw(st.integers(1, size)), draw(st.integers(0, 5))
    step = draw(st.integers(1, 20))
    rows, columns = (spans_of(positions(n, size, stride), size, n, step, radius=radius) for n in shape)
    return TileGrid(shape, rows, columns), size, radius


@st.composite
def grids_with_boxes(draw: st.DrawFn) -> tuple[TileGrid, int, int, Box]:
    grid, size, radius = draw(grids())
    (top, bottom), (left, right) = (
        sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in grid.shape
    )
    return grid, size, radius, Box(top, left, bottom, right)


def corners_of(tiles: list[Tile]) -> list[tuple[int, int]]:
    return [(int(r) + t.box.top, int(c) + t.box.left) for t in tiles for r in t.rows for c in t.columns]


@given(grids())
def test_every_patch_is_in_one_tile_that_holds_it(case: tuple[TileGrid, int, int]) -> None:
    grid, size, radius = case
    tiles, done = tiles_in(grid, Box.whole(grid.shape))
    assert done == Box.whole(grid.shape)
    found = corners_of(tiles)
    assert len(set(found)) == len(found)
    rows, columns = ([int(c) for span in spans for c in span.corners] for spans in (grid.rows, grid.columns))
    assert sorted(found) == [(r, c) for r in rows for c in columns]
    for tile in tiles:
        for r, c in corners_of([tile]):
            assert tile.box.holds(Box(r, c, r + size, c + size).grown(radius, grid.shape))
    assert [tile.place for tile in tiles] == sorted(tile.place for tile in tiles)


@given(grids_with_boxes())
def test_what_covers_a_box_is_all_it_depends_on(case: tuple[TileGrid, int, int, Box]) -> None:
    """Every tile that changes a pixel of the box is within, and with these the box is finished."""
    grid, _, _, box = case
    needed = grid.covering(box)
    assert needed.holds(box)
    everything, _ = tiles_in(grid, Box.whole(grid.shape))
    for tile in everything:
        if 0 not in tile.box.common(box).shape:
            assert needed.holds(tile.box)
    _, done = tiles_in(grid, needed)
    assert done.holds(box)


@given(grids_with_boxes())
def test_what_is_finished_no_other_tile_changes(case: tuple[TileGrid, int, int, Box]) -> None:
    grid, _, _, box = case
    tiles, done = tiles_in(grid, box)
    inside = {tile.place for tile in tiles}
    everything, _ = tiles_in(grid, Box.whole(grid.shape))
    for tile in everything:
        assert (tile.place in inside) == box.holds(tile.box)
        if tile.place not in inside:
            assert 0 in tile.box.common(done).shape


def averaging(size: int) -> Any:
    """Sums of patches with weights that differ from patch to patch."""

    def run(tile: Tile, windows: list[Floats]) -> Sums:
        sums = np.zeros((2, *windows[0].shape), windows[0].dtype)
        for r in tile.rows:
            for c in tile.columns:
                weight = 1 + (tile.box.top + r + 3 * (tile.box.left + c)) % 5
                sums[0, r : r + size, c : c + size] += weight * windows[0][r : r + size, c : c + size]
                sums[1, r : r + size, c : c + size] += weight
        return sums

    return run


@given(grids_with_boxes(), st.sampled_from([np.float32, np.float64]), st.integers(0, 1000))
def test_averages_give_the_picture_back_whatever_is_at_hand(
    case: tuple[TileGrid, int, int, Box], dtype: type[np.floating[Any]], seed: int
) -> None:
    grid, size, _, box = case
    plane = Plane.whole(np.random.default_rng(seed).uniform(0, 255, grid.shape).astype(dtype))
    whole = weighted_average([plane], grid, averaging(size), 1, Execution())[0]
    assert whole.box == plane.box
    assert whole.values.dtype == dtype
    np.testing.assert_allclose(whole.values, plane.values, rtol=1e-5 if dtype == np.float32 else 1e-13)
    part = weighted_average([plane.cut(grid.covering(box))], grid, averaging(size), 1, Execution(2))[0]
    assert part.box.holds(box)
    assert part.window(box).tobytes() == whole.window(box).tobytes()
    assert part.values.tobytes() == whole.window(part.box).tobytes()


def test_a_window_without_a_whole_tile_is_refused() -> None:
    grid = TileGrid((30, 30), *(spans_of(positions(30, 5), 5, 30, 10) for _ in range(2)))
    plane = Plane.whole(np.zeros((30, 30), np.float32)).cut(Box(3, 3, 12, 12))
    with pytest.raises(ValueError, match=r"^The window is too small for its box\.$"):
        weighted_average([plane], grid, averaging(5), 1, Execution())
