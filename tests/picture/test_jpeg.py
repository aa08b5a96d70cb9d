"""JPEG in, JPEG out: tables, sampling and mode stay; what the encoder cannot write becomes the nearest and is said."""

import io
import struct
from dataclasses import replace
from typing import Any

import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from dstl_cli.errors import FileProblem
from dstl_cli.picture.formats.jpeg import JpegCoding, coding_changes, jpeg_coding
from dstl_cli.picture.model import Picture, picture_from_array
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import write_picture

RNG = np.random.default_rng(11)
SAMPLING = {0: (1, 1), 1: (2, 1), 2: (2, 2)}  # of the luminance, by Pillow's numbers
TABLES = st.lists(st.integers(1, 255), min_size=64, max_size=64)


def waves(height: int = 40, width: int = 56) -> np.ndarray[Any, Any]:
    """Slow waves of three colours and a little noise, (H, W, 3)."""
    rows, columns = np.mgrid[:height, :width]
    parts = [128 + 80 * np.sin(rows / a) * np.cos(columns / b) for a, b in ((9, 11), (14, 8), (7, 20))]
    return np.clip(np.dstack(parts) + RNG.normal(0, 4, (height, width, 3)), 0, 255).astype(np.uint8)


def made(pixels: np.ndarray[Any, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


def saved(picture: Picture, **options: Any) -> bytes:
    stream = io.BytesIO()
    write_picture(picture, stream, format="jpeg", **options)
    return stream.getvalue()


def opened(data: bytes) -> JpegImageFile:
    image = Image.open(io.BytesIO(data))
    assert isinstance(image, JpegImageFile)
    image.load()
    return image


def coding(data: bytes) -> JpegCoding:
    found = jpeg_coding(read_picture(data))
    assert found is not None
    return found


def frame(data: bytes) -> int:
    """Where the frame header's marker is."""
    return next(where for kind in (b"\xff\xc0", b"\xff\xc1", b"\xff\xc2") if (where := data.find(kind)) > 0)


def with_sampling(data: bytes, *factors: tuple[int, int]) -> bytes:
    """A header that claims other factors than those of its pixels."""
    changed, start = bytearray(data), frame(data) + 10
    for index, (across, down) in enumerate(factors):
        changed[start + 3 * index + 1] = across << 4 | down
    return bytes(changed)


def shortened(data: bytes) -> bytes:
    """A frame header without its components."""
    start = frame(data)
    return data[: start + 2] + struct.pack(">H", 8) + data[start + 4 : start + 10] + data[start + 19 :]


def check_kept(data: bytes) -> None:
    """Written again, a file has the coding that it had, by Pillow's account and ours."""
    picture = read_picture(data)
    again = saved(picture)
    before, after = opened(data), opened(again)
    assert after.quantization == before.quantization
    assert after.layer == before.layer
    assert after.info.get("progressive") == before.info.get("progressive")
    assert after.mode == before.mode
    assert jpeg_coding(read_picture(again)) == jpeg_coding(picture)
    assert coding_changes(picture) == []
    assert np.abs(np.asarray(after).astype(int) - picture.pages[0]).mean() < 4


@settings(max_examples=40, deadline=None)
@given(
    quality=st.integers(30, 100),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
    optimize=st.booleans(),
    grey=st.booleans(),
)
def test_tables_sampling_and_mode_are_those_of_the_input(grey: bool, subsampling: int, **options: Any) -> None:
    pixels = waves()
    data = made(pixels[..., 0].copy(), **options) if grey else made(pixels, subsampling=subsampling, **options)
    check_kept(data)
    found = coding(data)
    assert found.progressive == options["progressive"]
    assert found.sampling == (((1, 1),) if grey else (SAMPLING[subsampling], (1, 1), (1, 1)))
    tables = opened(data).quantization
    assert [list(table) for table in found.tables] == [tables[0], *([] if grey else [tables[1]] * 2)]


@settings(max_examples=20, deadline=None)
@given(tables=st.lists(TABLES, min_size=1, max_size=3), grey=st.booleans(), progressive=st.booleans())
def test_each_component_keeps_a_table_of_its_own(tables: list[list[int]], grey: bool, progressive: bool) -> None:
    pixels = waves(16, 24)
    used = tables[:1] if grey else tables
    data = made(pixels[..., 1].copy() if grey else pixels, qtables=used, progressive=progressive)
    again = saved(read_picture(data))
    assert opened(again).quantization == opened(data).quantization == dict(enumerate(used))
    assert coding(again) == coding(data)


@pytest.mark.parametrize("progressive", [False, True])
def test_a_file_is_as_large_as_it_was(progressive: bool) -> None:
    for options in ({"quality": 60}, {"quality": 80, "subsampling": 1}, {"quality": 93, "subsampling": 0}):
        data = made(waves(200, 300), progressive=progressive, optimize=True, **options)
        assert len(saved(read_picture(data))) == pytest.approx(len(data), rel=0.05)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("rgb", [False, True])
def test_pixels_that_do_not_compress(rgb: bool, progressive: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """The buffer that Pillow itself reckons with would be too small."""
    pixels = RNG.integers(0, 2, (300, 400, 3), np.uint8) * 255
    picture = read_picture(made(pixels, qtables=[[1] * 64], subsampling=0, keep_rgb=rgb))
    kept = replace(picture.native.coding, progressive=progressive)
    before = ImageFile.MAXBLOCK
    again = saved(replace(picture, native=replace(picture.native, coding=kept)))
    assert before == ImageFile.MAXBLOCK
    assert 2 < len(again) / (300 * 400) < 6
    assert np.abs(np.asarray(opened(again)).astype(int) - picture.pages[0]).max() <= 8
    assert capfd.readouterr().err == ""


def test_colours_stored_as_rgb_stay_so() -> None:
    data = made(waves(), quality=90, keep_rgb=True)
    assert coding(data).rgb
    check_kept(data)
    assert not coding(made(waves())).rgb


@pytest.mark.parametrize(
    ("kind", "factors", "written", "words"),
    [("440", (1, 2), (1, 1), "4:4:4"), ("411", (4, 1), (2, 1), "4:2:2")],
)
def test_other_samplings_become_the_nearest_that_loses_nothing(
    kind: str, factors: tuple[int, int], written: tuple[int, int], words: str
) -> None:
    data = bytes(imagecodecs.jpeg8_encode(waves(), 80, subsampling=kind))
    picture = read_picture(data)
    assert coding(data).sampling == (factors, (1, 1), (1, 1))
    assert coding_changes(picture) == [f"Its colour sampling is not one that is written; the result has {words}."]
    again = opened(saved(picture))
    assert again.quantization == opened(data).quantization
    assert [layer[1:3] for layer in again.layer] == [written, (1, 1), (1, 1)]
    assert np.abs(np.asarray(again).astype(int) - picture.pages[0]).mean() < 4


@pytest.mark.parametrize(
    ("factors", "written", "same"),
    [
        (((2, 2), (1, 2), (1, 2)), (2, 1), True),  # 4:2:2 in other words
        (((2, 2), (2, 2), (2, 2)), (1, 1), True),
        (((4, 2), (1, 1), (1, 1)), (2, 2), False),
        (((3, 1), (2, 1), (1, 1)), (1, 1), False),
        (((2, 2), (1, 1), (2, 1)), (1, 1), False),
        (((1, 1), (2, 2), (2, 2)), (1, 1), False),
    ],
)
def test_which_sampling_is_written(factors: tuple[tuple[int, int], ...], written: tuple[int, int], same: bool) -> None:
    table = (1,) * 64
    found = JpegCoding((table,) * 3, factors)
    assert found.written_sampling == (written, same)
    assert JpegCoding((table,) * 3, factors, rgb=True).written_sampling[0] == (1, 1)
    assert JpegCoding((table,), factors[:1]).written_sampling == ((1, 1), True)


def test_steps_above_255_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    """A sequential file with 16-bit tables makes the encoder talk on the error stream; a progressive one does not."""
    steep = [1, *range(5, 320, 5)]
    data = made(waves(), qtables=[steep, [300] * 64])
    capfd.readouterr()
    picture = read_picture(data)
    assert [list(table) for table in coding(data).tables] == [steep, [300] * 64, [300] * 64]
    assert coding_changes(picture) == ["Its quantisation steps above 255 are written in progressive mode."]
    again = opened(saved(picture))
    assert again.quantization == opened(data).quantization
    assert again.info["progressive"]
    assert capfd.readouterr().err == ""


def test_tables_that_are_missing_or_zero_give_quality_95() -> None:
    data = made(waves(), quality=70)
    zero = data.replace(data[25:89], bytes(64), 1)
    assert zero[20:25] == b"\xff\xdb\x00\x43\x00"
    late = data[: frame(data)].replace(b"\xff\xdb", b"\xff\xe9") + data[frame(data) :]  # application segments
    for bad in (zero, late):
        picture = read_picture(bad)
        assert jpeg_coding(picture) is None
        assert coding_changes(picture) == ["Its quantisation tables are not usable; the result has quality 95."]
    again = opened(saved(read_picture(zero)))
    assert again.quantization == opened(made(waves(), quality=95)).quantization
    assert again.layer[0][1:3] == (1, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda data: data.replace(b"\xff\xdb\x00\x43\x00", b"\xff\xdb\x00\x43\x10", 1),
            "a quantisation table makes no sense",
        ),
        (
            lambda data: data.replace(b"\xff\xdb\x00\x43\x00", b"\xff\xdb\x00\x43\x05", 1),
            "a quantisation table makes no sense",
        ),
        (
            lambda data: data.replace(b"\xff\xdb\x00\x43\x00", b"\xff\xdb\x00\x43\x20", 1),
            "a quantisation table makes no sense",
        ),
        (lambda data: with_sampling(data, (0, 1)), "its frame header makes no sense"),
        (lambda data: with_sampling(data, (2, 5)), "its frame header makes no sense"),
        (shortened, "its frame header makes no sense"),
    ],
)
def test_hostile_headers_are_one_sentence(change: Any, words: str) -> None:
    with pytest.raises(FileProblem, match=words):
        read_picture(change(made(waves())))


@settings(max_examples=300, deadline=None)
@given(
    flips=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3),
    progressive=st.booleans(),
)
def test_any_damage_to_the_header_is_a_sentence_or_a_picture_that_is_written(
    flips: list[tuple[float, int]], progressive: bool
) -> None:
    data = bytearray(made(RNG.integers(0, 256, (9, 17, 3), np.uint8), progressive=progressive))
    head = frame(bytes(data)) + 19
    for where, value in flips:
        data[20 + int(where * (head - 20))] = value
    try:
        picture = read_picture(bytes(data))
        pixels = picture.pages[0]
    except FileProblem:
        return
    if pixels.size < 10**6:
        coding_changes(picture)
        assert read_picture(saved(picture)).pages[0].shape == pixels.shape


def test_a_quality_that_is_asked_for() -> None:
    pixels = waves()
    for picture in (read_picture(made(pixels, quality=50, progressive=True)), picture_from_array(pixels)):
        for quality, factors in ((1, (2, 2)), (60, (2, 2)), (89, (2, 2)), (90, (1, 1)), (100, (1, 1))):
            again = opened(saved(picture, jpeg_quality=quality))
            assert again.quantization == opened(made(pixels, quality=quality)).quantization
            assert [layer[1:3] for layer in again.layer] == [factors, (1, 1), (1, 1)]
            assert "progressive" not in again.info
    data = made(pixels, comment=b"kept", dpi=(200, 100))
    again = opened(saved(read_picture(data), jpeg_quality=40))
    assert (again.info["comment"], again.info["dpi"]) == (b"kept", (200, 100))
    grey = opened(saved(picture_from_array(pixels[..., 0].copy()), jpeg_quality=40))
    assert grey.mode == "L"
    assert grey.quantization == opened(made(pixels[..., 0].copy(), quality=40)).quantization
    stream = io.BytesIO()
    write_picture(picture_from_array(pixels), stream, format="png", jpeg_quality=40)
    np.testing.assert_array_equal(read_picture(stream.getvalue()).pages[0], pixels)


def test_pictures_of_other_formats_have_quality_95_without_subsampling() -> None:
    pixels = waves()
    again = opened(saved(picture_from_array(pixels)))
    assert again.quantization == opened(made(pixels, quality=95)).quantization
    assert [layer[1:3] for layer in again.layer] == [(1, 1)] * 3
    assert jpeg_coding(picture_from_array(pixels)) is None
