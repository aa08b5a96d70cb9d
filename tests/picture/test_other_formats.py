"""Formats that are only read: what Pillow writes is read exactly, with its alpha, frames and metadata, or refused."""

import io
import struct
import sys
import time
import types
import zlib
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from dstl_cli.errors import FileProblem
from dstl_cli.picture.decoding.asking import reading
from dstl_cli.picture.model import Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import natural_format, write_picture

RNG = np.random.default_rng(17)
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
XMP = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'></x:xmpmeta>"
GREY = RNG.integers(0, 256, (13, 17), np.uint8)
RGB = RNG.integers(0, 256, (13, 17, 3), np.uint8)
RGBA = RNG.integers(0, 256, (13, 17, 4), np.uint8)
DEEP = RNG.integers(0, 65536, (13, 17), np.uint16)


def made(image: Image.Image | np.ndarray[Any, Any], format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(stream, format, **options)
    return stream.getvalue()


def saved(picture: Picture) -> bytes:
    stream = io.BytesIO()
    write_picture(picture, stream)
    return stream.getvalue()


def samples(picture: Picture, index: int = 0) -> np.ndarray[Any, Any]:
    colour, alpha = picture.page(index)
    return colour if alpha is None else np.dstack((colour, alpha))


@pytest.mark.parametrize(
    ("format", "values", "options"),
    [
        ("TGA", GREY, {}),
        ("TGA", RGB, {}),
        ("TGA", RGBA, {"compression": "tga_rle"}),
        ("PCX", GREY, {}),
        ("PCX", RGB, {}),
        ("QOI", RGB, {}),
        ("QOI", RGBA, {}),
        ("JPEG2000", GREY, {"irreversible": False}),
        ("JPEG2000", RGB, {"irreversible": False}),
        ("JPEG2000", RGBA, {"irreversible": False}),
        ("JPEG2000", DEEP, {"irreversible": False}),
        ("JPEG2000", RGB, {"irreversible": False, "no_jp2": True}),
        ("GIF", GREY, {}),
    ],
)
def test_lossless_formats_are_read_exactly_and_written_as_png(
    format: str, values: np.ndarray[Any, Any], options: dict[str, Any]
) -> None:
    picture = read_picture(made(values, format, **options))
    assert picture.format == format.lower()
    assert samples(picture).dtype == values.dtype
    np.testing.assert_array_equal(samples(picture), values)
    assert natural_format(picture) == "png"
    again = read_picture(saved(picture))
    assert again.format == "png"
    np.testing.assert_array_equal(samples(again), values)


def test_bilevel_and_floating_point_pictures() -> None:
    bits = GREY > 128
    for data in (made(bits, "PPM"), b"P1\n17 13\n" + b" ".join(b"%d" % (not bit) for bit in bits.ravel())):
        np.testing.assert_array_equal(samples(read_picture(data)), bits * np.uint8(255))
    values = RNG.normal(0, 1000, (13, 17)).astype(np.float32)
    picture = read_picture(b"Pf\n17 13\n-1.0\n" + values[::-1].astype("<f4").tobytes())
    np.testing.assert_array_equal(samples(picture), values)
    assert natural_format(picture) == "tiff"
    np.testing.assert_array_equal(tifffile.imread(io.BytesIO(saved(picture))), values)
    values[3, 4] = np.nan
    with pytest.raises(FileProblem, match="1 value that is NaN"):
        read_picture(b"Pf\n17 13\n-1.0\n" + values.astype("<f4").tobytes()).page(0)


@pytest.mark.parametrize("format", ["GIF", "PCX", "TGA"])
@pytest.mark.parametrize("grey", [False, True])
def test_palettes_are_expanded(format: str, grey: bool) -> None:
    palette = RNG.integers(0, 256, (256, 3), np.uint8)
    palette[0] = 1, 2, 3
    if grey:
        palette[:] = palette[:, :1]
    image = Image.fromarray(GREY, "L")
    image.putpalette(palette.tobytes())
    picture = read_picture(made(image, format))
    np.testing.assert_array_equal(samples(picture), palette[GREY][..., 0] if grey else palette[GREY])


@pytest.mark.parametrize("grey", [False, True])
def test_the_transparent_colour_of_a_gif_becomes_alpha(grey: bool) -> None:
    palette = np.repeat(np.arange(16, dtype=np.uint8)[:, None] * 10, 3, axis=1)
    if not grey:
        palette[:, 1] = 7
    index = RNG.integers(0, 16, (13, 17), np.uint8)
    image = Image.fromarray(index, "L")
    image.putpalette(palette.tobytes())
    picture = read_picture(made(image, "GIF", transparency=3))
    alpha = picture.page(0)[1]
    np.testing.assert_array_equal(alpha, np.where(index == 3, 0, 255))
    expected = palette[index][..., 0] if grey else palette[index]
    np.testing.assert_array_equal(picture.pages[0][index != 3], expected[index != 3])


def frames(count: int) -> list[Image.Image]:
    values = RNG.integers(0, 16, (count, 13, 17), np.uint8) * 16
    return [Image.fromarray(page) for page in values]


def test_frames_of_an_animation_are_pages(tmp_path: Path) -> None:
    pages = frames(5)
    data = made(pages[0], "GIF", save_all=True, append_images=pages[1:])
    picture = read_picture(data)
    assert len(picture.specs) == 5
    expected = [np.asarray(page.convert("RGB")) for page in pages]
    for index in (0, 1, 4, 2):  # in any order
        np.testing.assert_array_equal(samples(picture, index), expected[index])
    assert natural_format(picture) == "tiff"
    write_picture(picture, tmp_path / "x.tif")
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "x.tif"), np.stack(expected))


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
@pytest.mark.parametrize("values", [RGB, RGBA])
def test_animations_of_formats_that_are_written_are_pages_too(format: str, values: np.ndarray[Any, Any]) -> None:
    values = values.copy()
    values[..., 3:] |= 1  # WebP forgets the colour of what cannot be seen
    pages = [Image.fromarray(np.roll(values, number, axis=0)) for number in range(3)]
    options: dict[str, Any] = {"lossless": True, "exact": True} if format == "WEBP" else {}
    data = made(pages[0], format, save_all=True, append_images=pages[1:], **options)
    picture = read_picture(data, name="x")
    for number in range(3):
        colour, alpha = picture.page(number)
        np.testing.assert_array_equal(colour, np.asarray(pages[number])[..., :3])
        opacity = np.asarray(pages[number].convert("RGBA"))[..., 3]
        np.testing.assert_array_equal(np.full(opacity.shape, 255) if alpha is None else alpha, opacity)
    assert natural_format(picture) == "tiff"
    with pytest.raises(FileProblem, match=r"^x has 3 pages, but .* holds one; choose an output that ends in \.tiff\.$"):
        write_picture(picture, io.BytesIO(), format=format.lower())


def test_an_animated_png_of_16_bits_is_refused() -> None:
    deep = bytes(imagecodecs.png_encode(np.dstack([DEEP] * 3)))
    control = b"acTL" + struct.pack(">II", 1, 0)
    chunk = struct.pack(">I", 8) + control + struct.pack(">I", zlib.crc32(control))
    with pytest.raises(FileProblem, match="animated PNG of 16 bits"):
        read_picture(deep[:33] + chunk + deep[33:])


def test_metadata_comes_along() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    options: dict[str, Any] = {"icc_profile": ICC, "exif": exif.tobytes(), "xmp": XMP}
    picture = read_picture(made(RGB, "AVIF", quality=100, **options))
    again = Image.open(io.BytesIO(saved(picture)))
    assert again.info["icc_profile"] == ICC
    assert again.getexif()[0x0112] == 6
    assert picture.metadata.xmp == XMP
    picture = read_picture(made(RGB, "PCX", dpi=(150, 300)))
    if picture.metadata.dpi is not None:
        assert Image.open(io.BytesIO(saved(picture))).info["dpi"] == pytest.approx(picture.metadata.dpi, abs=0.05)


@pytest.mark.parametrize("opaque", [True, False])
def test_avif(opaque: bool) -> None:
    values = np.full((16, 16, 4), 200, np.uint8)
    values[..., 3] = 255 if opaque else 100
    data = made(values, "AVIF", quality=100, subsampling="4:4:4")
    picture = read_picture(data)
    assert picture.has_alpha == (not opaque)
    assert np.abs(samples(picture).astype(int) - values[..., : samples(picture).shape[2]]).max() <= 3


def test_depths_that_pillow_would_shorten_are_refused() -> None:
    deep = np.dstack([DEEP] * 3)
    for data in (
        bytes(imagecodecs.jpeg2k_encode(deep, codecformat="jp2")),
        bytes(imagecodecs.jpeg2k_encode(deep, codecformat="j2k")),
        bytes(imagecodecs.avif_encode(deep >> 6, bitspersample=10)),
    ):
        with pytest.raises(FileProblem, match="has colours of more than 8 bits"):
            read_picture(data, name="x")
    shallow = bytes(imagecodecs.jpeg2k_encode(RGB, level=0, codecformat="j2k"))
    np.testing.assert_array_equal(samples(read_picture(shallow)), RGB)


def test_colours_that_cannot_be_shown_are_refused() -> None:
    data = made(RGBA, "JPEG2000")
    where = data.index(b"colr") + 7  # method, precedence, approximation; then the number of the colour space
    cmyk = data[:where] + struct.pack(">I", 12) + data[where + 4 :]
    assert Image.open(io.BytesIO(cmyk)).mode == "CMYK"
    with pytest.raises(FileProblem, match="holds CMYK colours"):
        read_picture(cmyk)


@pytest.mark.parametrize("format", ["GIF", "TGA", "PCX", "QOI", "JPEG2000", "AVIF"])
def test_cut_files_are_refused(format: str) -> None:
    data = made(RGB, format)
    for length in range(1, len(data) * 3 // 4, max(1, len(data) // 40)):
        with pytest.raises(FileProblem):
            read_picture(data[:length]).page(0)


def test_huge_sizes_are_refused_before_decoding() -> None:
    gif = bytearray(made(GREY, "GIF"))
    gif[6:10] = struct.pack("<HH", 60_000, 60_000)
    tga = bytearray(made(GREY, "TGA"))
    tga[12:16] = struct.pack("<HH", 60_000, 60_000)
    for data in (gif, tga):
        with pytest.raises(FileProblem, match="claims 60000 x 60000 pixels, more than the limit"):
            read_picture(bytes(data))
    tga[12:16] = struct.pack("<HH", 12_000, 9_000)
    with pytest.raises(FileProblem, match="claims 12000 x 9000 pixels but has only"):
        read_picture(bytes(tga))


def test_frames_beyond_the_screen_of_a_gif_take_no_memory() -> None:
    pages = frames(2)
    data = bytearray(made(pages[0], "GIF", save_all=True, append_images=pages[1:]))
    where = data.rindex(b"\x2c\x00\x00\x00\x00") + 1
    data[where : where + 8] = struct.pack("<4H", 60_000, 60_000, 5_000, 5_000)
    picture = read_picture(bytes(data))
    picture.page(0)
    start = time.perf_counter()
    with pytest.raises(FileProblem):
        picture.page(1)
    assert time.perf_counter() - start < 1


def test_heic_is_read_where_its_plugin_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """imageio registers pillow-heif when it is there; a stand-in for it reads a file that has HEIC's first bytes."""
    head = b"\x00\x00\x00\x18ftypheic" + bytes(12)
    data = head + made(RGB, "PNG")

    def open_stand(stream: Any, name: str | bytes) -> Any:
        stream.seek(len(head))
        return Image.open(io.BytesIO(stream.read()))

    module: Any = types.ModuleType("pillow_heif")
    module.register_heif_opener = lambda: Image.register_open(
        "HEIF", open_stand, lambda prefix: prefix[4:12] == b"ftypheic"
    )
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    with reading(trusted=True):  # the stand-in is in this process
        picture = read_picture(data)
        assert picture.format == "heic"
        np.testing.assert_array_equal(samples(picture), RGB)
