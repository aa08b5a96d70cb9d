"""A sheet of small pictures with captions, as a PNG file: what a preview shows."""

from collections.abc import Sequence
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
    cell = max(wide, LEAST_WIDTH) + MARGIN, high + 2 * LINE + 2 * MARGIN
    rows = -(-len(tiles) // COLUMNS)
    sheet = _new_sheet(min(COLUMNS, len(tiles)) * cell[0] + MARGIN, rows * cell[1])
    for number, tile in enumerate(tiles):
        row, column = divmod(number, COLUMNS)
        left, top = MARGIN + column * cell[0], MARGIN + row * cell[1]
        if tile is None:
            _write_lines(sheet, left, top, [(about[0], True), *((line, False) for line in about[1:])], cell[0] - MARGIN)
            continue
        _write_lines(sheet, left, top, [(tile.title, True), (tile.text, False)], cell[0] - MARGIN)
        sheet.paste(_enlarged(tile.pixels, factor), (left, top + 2 * LINE))
    with atomic_output(path, overwrite=overwrite) as stream:
        sheet.save(stream, "PNG", icc_profile=icc)


def _new_sheet(width: int, height: int) -> "Image":
    from PIL import Image

    return Image.new("RGB", (width, height), GROUND)


def _enlarged(pixels: Bytes, factor: int) -> "Image":
    """A picture whose pixels are squares."""
    from PIL import Image

    return Image.fromarray(np.kron(pixels, np.ones((factor, factor, *(1,) * (pixels.ndim - 2)), np.uint8)))


def _write_lines(sheet: "Image", left: int, top: int, lines: Sequence[tuple[str, bool]], width: int) -> None:
    """Write lines, titles larger and darker, broken between words where they are wider than that."""
    from PIL import ImageDraw, ImageFont

    draw = ImageDraw.Draw(sheet)
    for line, is_title in lines:
        font: Any = ImageFont.load_default(TITLE_SIZE if is_title else TEXT_SIZE)
        for part in _broken(line, width, lambda text, font=font: float(draw.textlength(text, font=font))):
            draw.text((left, top), part, fill=INK if is_title else FAINT, font=font)
            top += LINE


def _broken(line: str, width: float, length: Any) -> list[str]:
    """A line in parts of whole words that are no longer than `width`, where the words allow it."""
    parts: list[str] = []
    for word in line.split():
        if parts and length(f"{parts[-1]} {word}") <= width:
            parts[-1] = f"{parts[-1]} {word}"
        else:
            parts.append(word)
    return parts or [""]
