"""The sheet of a preview: nothing that is written on it is cut, or lies on something else."""

from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest

from dstl_cli.base.arrays import Bytes
from dstl_cli.report.sheet import GROUND, LEAST_WIDTH, LINE, MARGIN, Tile, draw_sheet

LONG_NAME = "_".join(["photograph"] * 12) + ".png"
LONG_LINE = "coarse noise, stronger in the shadows, mostly colour, about like white noise of 9"


def drawn(tiles: list[Tile | None], about: list[str], path: Path) -> Bytes:
    draw_sheet(tiles, about, path)
    return np.asarray(iio.imread(path))


def test_a_long_name_stays_in_its_column(tmp_path: Path) -> None:
    tile = Tile("noisy", "", np.zeros((2, 300), np.uint8))
    sheet = drawn([None, tile], [LONG_NAME, "300 x 2 pixels"], tmp_path / "a.png")
    gap = sheet[:, MARGIN + LEAST_WIDTH : MARGIN + LEAST_WIDTH + MARGIN]
    assert (gap == GROUND).all()
    assert (sheet[:, MARGIN : MARGIN + LEAST_WIDTH] != GROUND).any(axis=(1, 2)).sum() > 4 * LINE // 2


@pytest.mark.parametrize("lines", [1, 9])
def test_low_tiles_leave_room_for_all_that_is_told(lines: int, tmp_path: Path) -> None:
    tile = Tile("noisy", LONG_LINE, np.full((3, 300), 90, np.uint8))
    sheet = drawn([tile, None], ["name", *["a line"] * lines], tmp_path / "a.png")
    (rows,) = np.nonzero((sheet[:, MARGIN : MARGIN + 300] == 90).all(axis=(1, 2)))
    caption = sheet[: rows[0], MARGIN : MARGIN + 300]
    written = (caption != GROUND).any(axis=(1, 2))
    assert written[MARGIN + LINE :].sum() > LINE  # the second line of the caption is there
    assert (sheet[-MARGIN // 2 :] == GROUND).all()
    about = (sheet[:, 2 * MARGIN + LEAST_WIDTH :] != GROUND).any(axis=(1, 2))
    starts = np.count_nonzero(np.diff(about.astype(int)) == 1)
    assert starts == 1 + lines
