"""A sheet of small pictures with captions, as a PNG file: what a preview shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dstl_cli.base.arrays import Bytes
from dstl_cli.base.atomic import atomic_output

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = 4
SHOWN_SIDE = 576  # of an enlarged picture, at most; larger ones are shown as they are
LEAST_WIDTH = 300  # of a cell, for its caption
MARGIN, LINE = 16, 26  # pixels
TITLE_SIZE, TEXT_SIZE = 22, 18  # of the letters
GROUND, INK, FAINT = (250, 250, 250), (20, 20, 20), (95, 95, 95)


@dataclass(frozen=True)
class Tile:
    """A grey (H, W) or RGB (H, W, 3) picture of bytes, its name and a line about it."""

    title: str
    text: str
    pixels: Bytes


def enlargement(shape: tuple[int, ...]) -> int:
    """By what whole number a picture is enlarged, so that a person sees its pixels."""
    return max(1, SHOWN_SIDE // max(shape[0], shape[1]))


def draw_sheet(
    tiles: Sequence[Tile | None], about: Sequence[str], path: Path, *, overwrite: bool = False, icc: bytes | None = None
) -> None:
    """Write tiles of one shape in rows of four, each under its caption; where there is None, the lines `about` it all.

    icc: the profile of the colours.
    """
    first = next(tile for tile in tiles if tile is not None)
    factor = enlargement(first.pixels.shape)
    high, wide = (side * factor for side in first.pixels.shape[:2])
    width = max(wide, LEAST_WIDTH)
    told = [_fitting(about if tile is None else (tile.title, tile.text), width) for tile in tiles]
    above = LINE * max(len(lines) for tile, lines in zip(tiles, told, strict=True) if tile is not None)
    cell = width + MARGIN, max(above + high, LINE * max(map(len, told))) + 2 * MARGIN
    rows = -(-len(tiles) // COLUMNS)
    sheet = _new_sheet(min(COLUMNS, len(tiles)) * cell[0] + MARGIN, rows * cell[1])
    for number, (tile, lines) in enumerate(zip(tiles, told, strict=True)):
        row, column = divmod(number, COLUMNS)
        left, top = MARGIN + column * cell[0], MARGIN + row * cell[1]
        _write_lines(sheet, left, top, lines)
        if tile is not None:
            sheet.paste(_enlarged(tile.pixels, factor), (left, top + above))
    with atomic_output(path, overwrite=overwrite) as stream:
        sheet.save(stream, "PNG", icc_profile=icc)


def _new_sheet(width: int, height: int) -> "Image":
    from PIL import Image

    return Image.new("RGB", (width, height), GROUND)


def _enlarged(pixels: Bytes, factor: int) -> "Image":
    """A picture whose pixels are squares."""
    from PIL import Image

    return Image.fromarray(np.kron(pixels, np.ones((factor, factor, *(1,) * (pixels.ndim - 2)), np.uint8)))


def _font(*, is_title: bool) -> Any:
    """The letters of titles, which are larger, and of all else."""
    from PIL import ImageFont

    return ImageFont.load_default(TITLE_SIZE if is_title else TEXT_SIZE)


def _fitting(lines: Sequence[str], width: int) -> list[tuple[str, bool]]:
    """Lines, the first of which is a title, in parts that are no wider than that; of each, whether it is the title."""
    found: list[tuple[str, bool]] = []
    for number, line in enumerate(lines):
        is_title = number == 0
        found += [(part, is_title) for part in _broken(line, width, _font(is_title=is_title).getlength)]
    return found


def _write_lines(sheet: "Image", left: int, top: int, lines: Sequence[tuple[str, bool]]) -> None:
    """Write lines one below the other, those of titles larger and darker."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(sheet)
    for number, (line, is_title) in enumerate(lines):
        ink = INK if is_title else FAINT
        draw.text((left, top + number * LINE), line, fill=ink, font=_font(is_title=is_title))


def _broken(line: str, width: float, length: Callable[[str], float]) -> list[str]:
    """A line in parts that are no longer than `width`: of whole words where these are no longer, else within them."""
    parts: list[str] = []
    for word in line.split():
        if parts and length(f"{parts[-1]} {word}") <= width:
            parts[-1] = f"{parts[-1]} {word}"
            continue
        parts.append("")
        for letter in word:
            if parts[-1] and length(parts[-1] + letter) > width:
                parts.append("")
            parts[-1] += letter
    return parts or [""]
