"""The ISO number in EXIF data: of every format that holds them, in both byte orders, and of damaged ones."""

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dstl_cli.noise.blind import Hints
from dstl_cli.picture.formats.exif import exif_iso, resolution_dpi, resolution_tags
from dstl_cli.picture.formats.ifd import EXIF_TAG, Ifd
from dstl_cli.picture.read import read_picture
from dstl_cli.run.pages import PageSource, hints_of

ISO, STANDARD_OUTPUT, EXPOSURE_INDEX, SPEED = 0x8827, 0x8831, 0x8832, 0x8833


def exif(endian: str, **values: int) -> bytes:
    """An EXIF block with values of the EXIF directory by the names above."""
    block: Any = Image.Exif()
    block.endian = endian
    block[0x010F] = "Maker"
    for name, value in values.items():
        block.get_ifd(EXIF_TAG)[globals()[name]] = value
    return bytes(block.tobytes()).removeprefix(b"Exif\x00\x00")


@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_format_tells_the_iso_number(kind: str, endian: str) -> None:
    mark, stream = {"<": b"II", ">": b"MM"}[endian], io.BytesIO()
    block = exif(endian, ISO=6400)
    assert block[:2] == mark
    of_tiff = kind == "TIFF"  # Pillow writes big-endian files of big-endian pixels
    pixels = np.zeros((8, 9), f"{endian}u2" if of_tiff else np.uint8)
    Image.fromarray(pixels).save(stream, kind, exif=b"Exif\x00\x00" + block)
    assert not of_tiff or stream.getvalue()[:2] == mark
    picture = read_picture(stream.getvalue())
    assert picture.format == kind.lower()
    hints = hints_of(picture)
    assert hints == PageSource(picture, 0).hints
    assert (hints.iso, hints.steps is not None) == (6400, kind == "JPEG")


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ({"ISO": 100, "SPEED": 200}, 100),
        ({"ISO": 65535, "STANDARD_OUTPUT": 102400}, 102400),
        ({"ISO": 65535, "EXPOSURE_INDEX": 204800, "SPEED": 409600}, 204800),
        ({"ISO": 65535, "SPEED": 409600}, 409600),
        ({"ISO": 65535}, 65535),
        ({"ISO": 0, "SPEED": 3200}, 3200),
        ({"ISO": 0}, None),
        ({}, None),
    ],
)
def test_a_number_that_16_bits_cannot_hold_stands_in_another_tag(values: dict[str, int], number: int | None) -> None:
    assert exif_iso(exif("<", **values)) == number


@given(st.binary(max_size=300), st.sampled_from([b"", b"II*\x00\x08\x00\x00\x00", b"MM\x00*\x00\x00\x00\x08"]))
def test_any_bytes_have_an_answer(content: bytes, lead: bytes) -> None:
    number = exif_iso(lead + content)
    assert number is None or number > 0
    assert math.isfinite(Hints(number).odds)
    assert exif_iso(content[:7]) is None


@given(st.data(), st.sampled_from("<>"))
def test_damaged_exif_data_tell_nothing_or_a_number(data: st.DataObject, endian: str) -> None:
    block = bytearray(exif(endian, ISO=6400))
    places = st.integers(0, len(block) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4)):
        block[place] = value
    number = exif_iso(bytes(block))
    assert number is None or number > 0


@pytest.mark.parametrize("endian", ["<", ">"])
def test_exif_data_that_are_cut_off_tell_nothing(endian: str) -> None:
    block = exif(endian, ISO=6400)
    last = block.rindex((6400).to_bytes(2, "little" if endian == "<" else "big"))
    assert exif_iso(block) == 6400
    assert {exif_iso(block[:length]) for length in range(last + 2)} == {None}
    assert exif_iso(None) is None


@pytest.mark.parametrize("dots", [0.0, 72.0, 300.123, 571_137.58, 2.0**31, 1e300])
def test_any_resolution_becomes_a_fraction_of_32_bits(dots: float) -> None:
    found = resolution_dpi(Ifd(resolution_tags((dots, 1.5))))
    if dots:
        assert found is not None
        assert found[1] == 1.5
        assert found[0] == pytest.approx(min(dots, 2.0**32 - 1), rel=1e-4)
    else:
        assert found is None
