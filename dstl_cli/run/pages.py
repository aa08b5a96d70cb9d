"""The pages of picture files as the numerics see them."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from dstl_cli.denoising import pipeline
from dstl_cli.noise.blind import Hints
from dstl_cli.picture.formats.exif import exif_iso
from dstl_cli.picture.formats.jpeg import jpeg_coding
from dstl_cli.picture.inputs import Input
from dstl_cli.picture.model import Page, Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Box

Pixels = NDArray[Any]


class PageSource:
    """The colours of one page of a picture as a PixelSource: of a small page at hand, else read in windows."""

    def __init__(self, picture: Picture, index: int) -> None:
        self._picture, self._index = picture, index
        spec = picture.specs[index]
        self.shape, self.dtype = spec.shape, spec.dtype
        self.depth = Depth.of(spec.dtype, spec.bits)
        self.hints = hints_of(picture)
        if spec.height * spec.width <= pipeline.STRIP_PIXELS:
            picture.page(index)  # stays at hand

    def window(self, box: Box) -> Pixels:
        """The colours in a box."""
        return self.part(box)[0]

    def part(self, box: Box) -> Page:
        """The colours in a box, and the samples beside them."""
        return self._picture.window(self._index, box.rows, box.columns)


def hints_of(picture: Picture) -> Hints:
    """What the file of a picture says that bears on its noise."""
    coding = jpeg_coding(picture)
    steps = None if coding is None or coding.rgb else coding.tables[0]
    return Hints(iso=exif_iso(picture.metadata.exif), steps=steps)


def read_input(item: Input, name: str, *, keep_invalid: bool) -> Picture:
    """The headers of an input; keep_invalid: pages with NaN and infinite values are not refused."""
    return replace(read_picture(item.path, name=name), allows_invalid=keep_invalid)


def page_of(item: Input, name: str, index: int, *, keep_invalid: bool) -> PageSource:
    """A page of an input, to be called wherever a part of it is worked on."""
    return PageSource(read_input(item, name, keep_invalid=keep_invalid), index)
