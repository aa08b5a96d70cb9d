"""Every format, depth and channel layout comes back from a round trip as it went in.

Files are made by hand or by other libraries, go through read_picture and write_picture, and the result is
read by other libraries again. TIFF has its own module, and so have broken files.
"""

import hashlib
import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from dstl_cli.errors import FileProblem
from dstl_cli.picture.formats import FORMATS, format_of_suffix, format_to_write, split_suffix
from dstl_cli.picture.model import Metadata, Picture, picture_from_array
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import lost_metadata, open_writer, write_picture

RNG = np.random.default_rng(7)
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
GREY_ICC = ICC[:16] + b"GRAY" + ICC[20:]
XMP = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'></x:xmpmeta>"


def noise(shape: tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    """Random pixels over the full range of a type."""
    if np.dtype(dtype).kind == "f":
        return RNG.normal(100, 50, shape).astype(dtype)
    return RNG.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def smooth(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Slow waves, which lossy codecs keep closely."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    grey = 128 + 90 * np.sin(rows / 9) * np.cos(columns / 11)
    return np.broadcast_to(grey[..., None], shape).astype(np.uint8) if len(shape) == 3 else grey.astype(np.uint8)


def exif_block() -> bytes:
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif[0x0112] = 6
    exif[0x011A] = 300.0
    exif[0x011B] = 300.0
    exif[0x0128] = 2
    exif.get_ifd(0x8769)[0x9003] = "2020:01:02 03:04:05"
    exif.get_ifd(0x8825)[0x0001] = "N"
    return exif.tobytes().removeprefix(b"Exif\x00\x00")


EXIF = exif_block()


def saved(picture: Picture, **options: Any) -> bytes:
    stream = io.BytesIO()
    write_picture(picture, stream, **options)
    return stream.getvalue()


def pillow(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def pillow_bytes(array: np.ndarray[Any, Any], format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, format, **options)
    return stream.getvalue()


def check_info(data: bytes, picture: Picture) -> None:
    """The headers alone say what the decoded picture is."""
    alone = read_picture(data).info
    colour, alpha = picture.page(0)
    assert (alone.height, alone.width) == colour.shape[:2]
    assert alone.channels == (1 if colour.ndim == 2 else 3)
    assert (alone.dtype, alone.has_alpha) == (colour.dtype, alpha is not None)


# --- PNG, made by hand --------------------------------------------------------------------------------


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found = []
    position = 8
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        found.append((data[position + 4 : position + 8], data[position + 8 : position + 8 + length]))
        position += 12 + length
    return found


def pack_rows(values: np.ndarray[Any, Any], depth: int) -> bytes:
    """PNG rows without filters, each with its leading zero."""
    rows = []
    for row in values.reshape(values.shape[0], -1):
        if depth == 16:
            rows.append(b"\x00" + row.astype(">u2").tobytes())
        else:
            text = "".join(format(int(value), f"0{depth}b") for value in row)
            text += "0" * (-len(text) % 8)
            rows.append(b"\x00" + int(text, 2).to_bytes(len(text) // 8, "big"))
    return b"".join(rows)


def make_png(
    values: np.ndarray[Any, Any],
    depth: int,
    colour: int,
    before: bytes = b"",
    after: bytes = b"",
    interlaced: bool = False,
) -> bytes:
    height, width = values.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    passes = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    parts = [values[top::down, left::across] for top, left, down, across in passes] if interlaced else [values]
    raw = b"".join(pack_rows(part, depth) for part in parts if part.size)
    packed = zlib.compress(raw)
    data = chunk(b"IDAT", packed[:20]) + chunk(b"IDAT", packed[20:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + data + after + chunk(b"IEND", b"")


SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("colour", [0, 2, 4, 6])
@pytest.mark.parametrize("depth", [8, 16])
def test_png_depths_and_layouts(depth: int, colour: int, interlaced: bool) -> None:
    count = SAMPLES[colour]
    values = noise((13, 11) if count == 1 else (13, 11, count), np.uint8 if depth == 8 else np.uint16)
    data = make_png(values, depth, colour, interlaced=interlaced)
    picture = read_picture(data)
    check_info(data, picture)
    colours = values if count == 1 else values[..., 0] if count == 2 else values[..., :3]
    assert picture.pages[0].dtype == values.dtype
    np.testing.assert_array_equal(picture.pages[0], colours)
    if count in (2, 4):
        np.testing.assert_array_equal(picture.page(0)[1], values[..., -1])
    else:
        assert picture.page(0)[1] is None
    again = saved(picture)
    header = png_chunks(again)[0][1]
    assert header[8:10] == bytes((depth, colour))
    if depth == 8:
        np.testing.assert_array_equal(np.asarray(pillow(again)), values)
    rows = read_picture(again)
    np.testing.assert_array_equal(rows.pages[0], colours)
    assert unfiltered(again).astype(values.dtype).tobytes() == values.tobytes()


def unfiltered(data: bytes) -> np.ndarray[Any, Any]:
    """Decode a non-interlaced 8 or 16-bit PNG with nothing but zlib: an independent reader."""
    chunks = png_chunks(data)
    width, height, depth, colour = struct.unpack(">IIBB", chunks[0][1][:10])
    raw = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    step = SAMPLES[colour] * depth // 8
    size = width * step
    above = [0] * size
    out = []
    for row in range(height):
        line = raw[row * (size + 1) : (row + 1) * (size + 1)]
        current: list[int] = []
        for index, byte in enumerate(line[1:]):
            a = current[index - step] if index >= step else 0
            b = above[index]
            c = above[index - step] if index >= step else 0
            estimate = a + b - c
            paeth = min((a, b, c), key=lambda value: abs(estimate - value))
            current.append((byte + (0, a, b, (a + b) // 2, paeth)[line[0]]) & 255)
        out.append(current)
        above = current
    return np.array(out, np.uint8).view(">u2" if depth == 16 else np.uint8)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_png_low_depths_are_spread_over_the_full_range(depth: int, interlaced: bool) -> None:
    values = RNG.integers(0, 2**depth, (9, 13))
    data = make_png(values, depth, 0, interlaced=interlaced)
    picture = read_picture(data)
    check_info(data, picture)
    np.testing.assert_array_equal(picture.pages[0], values * 255 // (2**depth - 1))
    assert picture.pages[0].dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(pillow(saved(picture))), picture.pages[0])


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_png_palettes_are_expanded(depth: int, grey: bool, transparent: bool) -> None:
    entries = 2**depth if depth < 8 else 200
    palette = noise((entries, 3))
    palette[0] = (3, 4, 5)
    if grey:
        palette[:] = palette[:, :1]
    values = RNG.integers(0, entries, (9, 13))
    opacity = noise((max(1, entries // 2),))
    before = chunk(b"PLTE", palette.tobytes()) + (chunk(b"tRNS", opacity.tobytes()) if transparent else b"")
    data = make_png(values, depth, 3, before)
    picture = read_picture(data)
    check_info(data, picture)
    expected = palette[values][..., 0] if grey else palette[values]
    np.testing.assert_array_equal(picture.pages[0], expected)
    again = pillow(saved(picture))
    if transparent:
        alpha = np.concatenate([opacity, np.full(entries - len(opacity), 255, np.uint8)])[values]
        np.testing.assert_array_equal(picture.page(0)[1], alpha)
        np.testing.assert_array_equal(np.asarray(again), np.dstack((expected, alpha)))
    else:
        assert picture.page(0)[1] is None
        np.testing.assert_array_equal(np.asarray(again), expected)


@pytest.mark.parametrize(("depth", "colour"), [(1, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2)])
def test_png_transparent_colour_becomes_alpha(depth: int, colour: int) -> None:
    values = RNG.integers(0, min(2**depth, 1000), (9, 13) if colour == 0 else (9, 13, 3))
    values[2:5, 3:7] = values[0, 0]
    key = np.atleast_1d(values[0, 0]).astype(">u2").tobytes()
    data = make_png(values, depth, colour, chunk(b"tRNS", key))
    picture = read_picture(data)
    check_info(data, picture)
    clear = values == values[0, 0] if colour == 0 else (values == values[0, 0]).all(axis=2)
    alpha = picture.page(0)[1]
    assert alpha is not None
    assert alpha.dtype == picture.pages[0].dtype
    np.testing.assert_array_equal(alpha, np.where(clear, 0, np.iinfo(alpha.dtype).max))
    assert png_chunks(saved(picture))[0][1][9] == (4 if colour == 0 else 6)


def test_png_carries_every_chunk_over() -> None:
    before = [
        (b"iCCP", b"name\x00\x00" + zlib.compress(ICC)),
        (b"gAMA", struct.pack(">I", 45455)),
        (b"cHRM", bytes(32)),
        (b"sBIT", b"\x05\x06\x05"),
        (b"bKGD", bytes(6)),
        (b"pHYs", struct.pack(">IIB", 11811, 11811, 1)),
        (b"eXIf", EXIF),
        (b"tEXt", b"Title\x00a picture"),
        (b"prVt", b"private but safe to copy"),
    ]
    after = [
        (b"iTXt", b"XML:com.adobe.xmp\x00\x00\x00\x00\x00" + XMP),
        (b"zTXt", b"Comment\x00\x00" + zlib.compress(b"hello")),
        (b"tIME", bytes((7, 228, 1, 2, 3, 4, 5))),
    ]
    dropped = [(b"hIST", bytes(2)), (b"prVT", b"tied to the old pixels")]
    data = make_png(
        noise((5, 6, 3)),
        8,
        2,
        b"".join(chunk(*item) for item in before + dropped),
        b"".join(chunk(*item) for item in after),
    )
    picture = read_picture(data)
    assert (picture.metadata.icc, picture.metadata.exif, picture.metadata.xmp) == (ICC, EXIF, XMP)
    assert picture.metadata.dpi == pytest.approx((300, 300), abs=0.01)
    found = [item for item in png_chunks(saved(picture)) if item[0] not in (b"IHDR", b"IDAT", b"IEND")]
    assert found == before + after
    image = pillow(saved(picture))
    assert image.info["icc_profile"] == ICC
    assert image.getexif()[0x0112] == 6
    assert image.info["dpi"] == pytest.approx((300, 300), abs=0.01)
    assert [kind for kind, _ in png_chunks(saved(picture, strip=True))] == [b"IHDR", b"IDAT", b"IEND"]


def test_png_chunks_follow_an_expanded_palette() -> None:
    palette = bytes((9, 9, 9, 20, 20, 20))
    body = chunk(b"sBIT", b"\x08\x08\x08") + chunk(b"PLTE", palette) + chunk(b"bKGD", b"\x01")
    picture = read_picture(make_png(np.eye(4, dtype=int), 1, 3, body))
    found = dict(png_chunks(saved(picture)))
    assert found[b"bKGD"] == struct.pack(">H", 20)
    assert b"sBIT" not in found
    assert b"PLTE" not in found
    profiled = chunk(b"iCCP", b"name\x00\x00" + zlib.compress(ICC)) + chunk(b"PLTE", palette)
    data = make_png(np.eye(4, dtype=int), 1, 3, profiled)
    assert read_picture(data).pages[0].shape == (4, 4, 3)  # an RGB profile needs RGB pixels
    check_info(data, read_picture(data))


def test_png_damaged_extra_chunk_is_left_out_with_a_note() -> None:
    bad = bytearray(chunk(b"tEXt", b"Title\x00hello"))
    bad[-1] ^= 1
    picture = read_picture(make_png(noise((3, 3)), 8, 0, bytes(bad)), name="x.png")
    assert picture.notes == ("A damaged tEXt chunk was left out.",)


def test_png_with_more_data_than_pixels() -> None:
    values = noise((7, 9))
    data = make_png(values, 8, 0)
    packed = zlib.compress(pack_rows(values, 8) + b"and more")
    chunks = [(b"IDAT", packed) if kind == b"IDAT" else (kind, body) for kind, body in png_chunks(data)]
    unique = [item for index, item in enumerate(chunks) if item not in chunks[:index]]
    longer = data[:8] + b"".join(chunk(*item) for item in unique)
    np.testing.assert_array_equal(read_picture(longer).pages[0], values)


@pytest.mark.parametrize("height", [1023, 1024, 1025, 2047, 2048, 2049])
def test_png_of_one_colour_at_block_boundaries(height: int) -> None:
    data = make_png(np.zeros((1, 1023), np.uint8), 8, 0)
    header = struct.pack(">IIBBBBB", 1023, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1024 * height))) + chunk(b"IEND", b"")
    assert read_picture(data[:8] + body).pages[0].shape == (height, 1023)


def test_png_decoding_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for interlaced in (False, True):
        read_picture(make_png(noise((13, 11, 3)), 8, 2, interlaced=interlaced))
    assert capfd.readouterr() == ("", "")


def test_png_of_other_writers() -> None:
    """The colour and text settings of Pillow survive."""
    info = PngInfo()
    info.add_text("Author", "me")
    stream = io.BytesIO()
    image = Image.fromarray(noise((8, 9, 3)))
    image.save(stream, "PNG", pnginfo=info, icc_profile=ICC, exif=b"Exif\x00\x00" + EXIF, dpi=(72, 144))
    again = pillow(saved(read_picture(stream.getvalue())))
    assert isinstance(again.info, dict)
    assert again.info["Author"] == "me"
    assert again.info["icc_profile"] == ICC
    assert again.info["dpi"] == pytest.approx((72, 144), abs=0.02)
    assert again.getexif().get_ifd(0x8769)[0x9003] == "2020:01:02 03:04:05"


# --- JPEG ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("shape", [(33, 47), (33, 47, 3)])
def test_jpeg_layouts_and_metadata(shape: tuple[int, ...], progressive: bool) -> None:
    stream = io.BytesIO()
    image = Image.fromarray(smooth(shape))
    image.save(
        stream,
        "JPEG",
        quality=90,
        progressive=progressive,
        icc_profile=ICC if len(shape) == 3 else None,
        exif=b"Exif\x00\x00" + EXIF,
        dpi=(200, 100),
        comment=b"a comment",
    )
    picture = read_picture(stream.getvalue())
    check_info(stream.getvalue(), picture)
    np.testing.assert_array_equal(picture.pages[0], np.asarray(pillow(stream.getvalue())))
    assert picture.metadata.exif == EXIF
    assert picture.metadata.dpi == pytest.approx((200, 100))
    again = pillow(saved(picture))
    assert again.mode == ("RGB" if len(shape) == 3 else "L")
    assert again.info.get("icc_profile") == (ICC if len(shape) == 3 else None)
    assert again.info["exif"] == b"Exif\x00\x00" + EXIF
    assert again.info["dpi"] == (200, 100)
    assert again.info["comment"] == b"a comment"
    difference = np.asarray(again).astype(int) - picture.pages[0]
    assert np.abs(difference).max() <= 3
    bare = pillow(saved(picture, strip=True))
    assert not {"exif", "icc_profile", "comment", "dpi"} & set(bare.info)


def test_jpeg_large_profile_and_other_segments() -> None:
    profile = ICC + bytes(150_000)
    stream = io.BytesIO()
    Image.fromarray(smooth((16, 16, 3))).save(stream, "JPEG", icc_profile=profile)
    segment = b"\xff\xed" + struct.pack(">H", 16) + b"Photoshop 3.0\x00"
    xmp = b"\xff\xe1" + struct.pack(">H", 31 + len(XMP)) + b"http://ns.adobe.com/xap/1.0/\x00" + XMP
    mpf = b"\xff\xe2" + struct.pack(">H", 12) + b"MPF\x00123456"
    data = stream.getvalue()[:2] + segment + xmp + mpf + stream.getvalue()[2:] + b"another picture" * 100
    picture = read_picture(data, name="phone.jpg")
    assert picture.notes[0].startswith("Only the main picture is kept")
    assert picture.metadata.icc == profile
    assert picture.metadata.xmp == XMP
    again = saved(picture)
    assert segment in again
    assert xmp in again
    assert b"MPF\x00" not in again
    assert pillow(again).info["icc_profile"] == profile


def test_jpeg_stored_as_rgb_is_not_garbled() -> None:
    values = smooth((32, 32, 3)).copy()
    values[..., 0] = 200
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, "JPEG", quality=95, keep_rgb=True)
    picture = read_picture(stream.getvalue())
    assert np.abs(picture.pages[0].astype(int) - values).max() < 12
    again = np.asarray(pillow(saved(picture)))
    assert np.abs(again.astype(int) - picture.pages[0]).max() < 8


# --- WebP ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strip", [True, False])
@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("shape", [(40, 50), (1, 1), (300, 17)], ids=str)
def test_webp_keeps_alpha_that_is_opaque(shape: tuple[int, int], lossless: bool, strip: bool) -> None:
    """The encoder leaves it out; other programs read ours."""
    values = np.dstack([smooth((*shape, 3)), np.full(shape, 254, np.uint8)])
    picture = read_picture(pillow_bytes(values, "WEBP", lossless=lossless, quality=90, icc_profile=ICC))
    colour, stream = picture.page(0)[0], io.BytesIO()
    with open_writer(picture, stream, strip=strip) as writer:
        writer.add(colour, np.full(shape, 255, np.uint8))
    again = read_picture(stream.getvalue())
    check_info(stream.getvalue(), again)
    assert again.page(0)[1] is not None
    shown = np.asarray(pillow(stream.getvalue()))
    np.testing.assert_array_equal(shown, np.dstack([again.page(0)[0], np.full(shape, 255)]))
    if lossless:
        np.testing.assert_array_equal(shown[..., :3], colour)
    assert (again.metadata.icc is None) == strip


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("channels", [3, 4])
def test_webp_keeps_its_kind_and_metadata(channels: int, lossless: bool) -> None:
    values = smooth((40, 50, channels)).copy()
    if channels == 4:
        values[..., 3] = noise((40, 50))
        values[:5, :5, 3] = 0
    options: dict[str, Any] = {"lossless": lossless, "exact": True, "quality": 90}
    data = pillow_bytes(values, "WEBP", icc_profile=ICC, exif=EXIF, xmp=XMP, **options)
    picture = read_picture(data)
    check_info(data, picture)
    assert picture.metadata == Metadata(icc=ICC, exif=EXIF, xmp=XMP, dpi=(300, 300))
    if lossless:
        np.testing.assert_array_equal(picture.pages[0], values[..., :3])
    if channels == 4:
        np.testing.assert_array_equal(picture.page(0)[1], values[..., 3])
    else:
        assert picture.page(0)[1] is None
    encoded = saved(picture)
    again = pillow(encoded)
    assert again.info["icc_profile"] == ICC
    assert again.info["exif"] == EXIF
    assert again.info["xmp"] == XMP
    assert (b"VP8L" in encoded[:8000]) == lossless
    result = np.asarray(again)
    if lossless:
        np.testing.assert_array_equal(result, values)
    else:
        seen = values[..., 3] > 0 if channels == 4 else np.ones((40, 50), bool)
        assert np.abs(result[..., :3].astype(int) - picture.pages[0])[seen].max() < 10
    if channels == 4:
        np.testing.assert_array_equal(result[..., 3], values[..., 3])
    bare = pillow(saved(picture, strip=True))
    assert not {"exif", "icc_profile", "xmp"} & set(bare.info)


# --- BMP ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 4, 13])
@pytest.mark.parametrize("kind", ["1", "L", "P", "RGB"])
def test_bmp_layouts_and_resolution(kind: str, width: int) -> None:
    if kind == "RGB":
        image = Image.fromarray(noise((7, width, 3)))
    elif kind == "1":
        image = Image.fromarray(noise((7, width))).convert("1")
    else:
        image = Image.fromarray(noise((7, width)))
        if kind == "P":
            image.putpalette(noise((256, 3)).tobytes())
    stream = io.BytesIO()
    image.save(stream, "BMP", dpi=(150, 300))
    picture = read_picture(stream.getvalue())
    check_info(stream.getvalue(), picture)
    expected = np.asarray(image.convert("RGB" if kind in ("RGB", "P") else "L"))
    np.testing.assert_array_equal(picture.pages[0], expected)
    again = pillow(saved(picture))
    np.testing.assert_array_equal(np.asarray(again), expected)
    assert again.info["dpi"] == pytest.approx((150, 300), abs=0.05)
    assert pillow(saved(picture, strip=True)).info.get("dpi", (0, 0)) == (0, 0)


def make_bmp(rows: bytes, width: int, height: int, bits: int, compression: int = 0, masks: bytes = b"") -> bytes:
    size = 40 if len(masks) < 16 else 56
    header = struct.pack("<IiiHHIIiiII", size, width, height, 1, bits, compression, 0, 0, 0, 0, 0) + masks
    return struct.pack("<2sIHHI", b"BM", 14 + len(header) + len(rows), 0, 0, 14 + len(header)) + header + rows


def test_bmp_32_bit_alpha_and_padding() -> None:
    values = noise((6, 5, 4))
    stored = values[::-1, :, [2, 1, 0, 3]].tobytes()
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    for data in (make_bmp(stored, 5, 6, 32), make_bmp(stored, 5, 6, 32, 3, masks)):
        picture = read_picture(data)
        np.testing.assert_array_equal(picture.pages[0], values[..., :3])
        np.testing.assert_array_equal(picture.page(0)[1], values[..., 3])
        again = pillow(saved(picture))
        assert again.mode == "RGBA"
        np.testing.assert_array_equal(np.asarray(again), values)
    values[..., 3] = 0
    picture = read_picture(make_bmp(values[::-1, :, [2, 1, 0, 3]].tobytes(), 5, 6, 32))
    assert picture.page(0)[1] is None
    np.testing.assert_array_equal(picture.pages[0], values[..., :3])


def test_bmp_16_bit_4_bit_and_top_down() -> None:
    bits = noise((3, 4), np.uint16)
    picture = read_picture(make_bmp(bits.tobytes(), 4, -3, 16))
    expected = np.stack([(bits >> shift & 31).astype(int) for shift in (10, 5, 0)], axis=2)
    np.testing.assert_array_equal(picture.pages[0], np.round(expected * 255 / 31))
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    picture = read_picture(make_bmp(bits.tobytes(), 4, -3, 16, 3, masks))
    np.testing.assert_array_equal(picture.pages[0][..., 1], np.round((bits >> 5 & 63) * 255 / 63))
    rows = bytes((0x01, 0x20, 0, 0)) * 2
    header = struct.pack("<IiiHHIIiiII", 40, 3, 2, 1, 4, 0, 0, 0, 0, 3, 0)
    palette = bytes((1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0))
    data = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 14 + 40 + 12) + header + palette + rows
    picture = read_picture(data)
    np.testing.assert_array_equal(picture.pages[0][0], [[3, 2, 1], [6, 5, 4], [9, 8, 7]])


def test_bmp_profile_comes_back() -> None:
    picture = picture_from_array(noise((5, 7, 3)), metadata=Metadata(icc=ICC, dpi=(96.0, 96.0)))
    again = read_picture(saved(picture, format="bmp"))
    assert again.metadata.icc == ICC
    assert read_picture(saved(again)).metadata.icc == ICC
    np.testing.assert_array_equal(np.asarray(pillow(saved(again))), picture.pages[0])


# --- PGM and PPM --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("maximum", [1, 15, 100, 255, 256, 1023, 4095, 65535])
def test_netpbm_any_maximal_value(maximum: int, channels: int, plain: bool) -> None:
    values = RNG.integers(0, maximum + 1, (9, 7) if channels == 1 else (9, 7, 3))
    values.flat[:2] = (0, maximum)
    kind = {(1, False): "P5", (3, False): "P6", (1, True): "P2", (3, True): "P3"}[channels, plain]
    if plain:
        body = " # last\n".join(" ".join(map(str, row)) for row in values.reshape(9, -1)).encode() + b"\n"
    else:
        body = values.astype(">u2" if maximum > 255 else np.uint8).tobytes()
    data = f"{kind}\n# made by hand\n7 9 # size\n{maximum}\n".encode() + body
    picture = read_picture(data)
    check_info(data, picture)
    full = 65535 if maximum > 255 else 255
    assert picture.pages[0].dtype == (np.uint16 if maximum > 255 else np.uint8)
    np.testing.assert_array_equal(picture.pages[0], np.floor(values * full / maximum + 0.5))
    again = saved(picture)
    assert again.startswith(f"{kind}\n# made by hand\n# size\n7 9\n{maximum}\n".encode())
    tail = again.split(f"\n{maximum}\n".encode(), 1)[1]
    if plain:
        np.testing.assert_array_equal(np.array(tail.split(), int), values.ravel())
        assert max(map(len, again.splitlines())) <= 70
    else:
        assert tail == body
    assert saved(picture, strip=True).startswith(f"{kind}\n7 9\n".encode())
    if not plain and maximum in (255, 65535) and (channels, maximum) != (3, 65535):
        np.testing.assert_array_equal(np.asarray(pillow(again)), values)


def test_netpbm_long_plain_file() -> None:
    values = noise((500, 700), np.uint16)
    text = b"P2 700 500 65535 " + " ".join(map(str, values.ravel())).encode()
    np.testing.assert_array_equal(read_picture(text).pages[0], values)


# --- .npy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 1), (5, 6, 3), (5, 6, 4)])
@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "<f4", ">f4", "<f8", ">f8"])
def test_npy_layouts(tmp_path: Path, dtype: str, shape: tuple[int, ...], order: Any) -> None:
    values = np.asarray(noise(shape, np.dtype(dtype).newbyteorder("=")), dtype, order=order)
    path = tmp_path / "x.npy"
    np.save(path, values)
    picture = read_picture(path)
    check_info(path.read_bytes(), picture)
    assert picture.pages[0].dtype.isnative
    colours = values[..., 0] if shape[2:] == (1,) else values[..., :3] if shape[2:] else values
    np.testing.assert_array_equal(picture.pages[0], colours)
    np.testing.assert_array_equal(read_picture(path.read_bytes()).pages[0], colours)
    if shape[2:] == (4,):
        np.testing.assert_array_equal(picture.page(0)[1], values[..., 3])
    write_picture(picture, tmp_path / "y.npy")
    again = np.load(tmp_path / "y.npy", allow_pickle=False)
    assert (again.dtype, again.shape) == (values.dtype, values.shape)
    assert again.flags.f_contiguous == values.flags.f_contiguous
    np.testing.assert_array_equal(again, values)


def test_npy_booleans_become_bytes() -> None:
    stream = io.BytesIO()
    np.save(stream, np.eye(3, dtype=bool))
    np.testing.assert_array_equal(read_picture(stream.getvalue()).pages[0], np.eye(3, dtype=np.uint8) * 255)


# --- the Picture --------------------------------------------------------------------------------------


def test_other_pixels_keep_everything_else() -> None:
    values = noise((6, 7, 4))
    picture = read_picture(make_png(values, 8, 6, chunk(b"tEXt", b"Title\x00hello")))
    colour, alpha = picture.page(0)
    stream = io.BytesIO()
    with open_writer(picture, stream) as writer:
        writer.add(255 - colour, alpha)
    data = stream.getvalue()
    np.testing.assert_array_equal(np.asarray(pillow(data))[..., :3], 255 - values[..., :3])
    np.testing.assert_array_equal(np.asarray(pillow(data))[..., 3], values[..., 3])
    assert (b"tEXt", b"Title\x00hello") in png_chunks(data)


def test_a_writer_takes_the_pages_of_the_picture_and_no_others() -> None:
    values = noise((6, 7, 4))
    picture = read_picture(make_png(values, 8, 6))
    colour, alpha = picture.page(0)
    wrong = [(values, alpha), (colour.astype(np.uint16), alpha), (colour[:5], alpha), (colour, None), (colour, colour)]
    for page in wrong:
        with pytest.raises(ValueError, match="Page 1"), open_writer(picture, io.BytesIO()) as writer:
            writer.add(*page)
    with open_writer(picture, io.BytesIO()) as writer:
        writer.add(colour, alpha)
        with pytest.raises(ValueError, match="Page 2"):
            writer.add(colour, alpha)
    stream = io.BytesIO()
    with pytest.raises(ValueError, match="1 pages, not 0"), open_writer(picture, stream):
        pass
    assert stream.getvalue() == b""


def test_picture_from_array_takes_any_byte_order_and_layout() -> None:
    values = noise((4, 6, 3), np.uint16)
    turned = values.astype(">u2").transpose(1, 0, 2)
    again = read_picture(saved(picture_from_array(turned), format="png"))
    np.testing.assert_array_equal(again.pages[0], values.transpose(1, 0, 2))


def test_picture_from_array_refuses_what_is_no_picture() -> None:
    for array in (np.zeros((3, 3), np.int64), np.zeros((0, 3), np.uint8), np.zeros((3, 3, 2), np.uint8)):
        with pytest.raises(ValueError, match="A picture needs"):
            picture_from_array(array)
    with pytest.raises(ValueError, match="alpha"):
        picture_from_array(np.zeros((3, 3), np.uint8), alpha=np.zeros((3, 4), np.uint8))


# --- from format to format ----------------------------------------------------------------------------

META = Metadata(icc=ICC, exif=EXIF, xmp=XMP, dpi=(300.0, 150.0))


@pytest.mark.parametrize("target", ["png", "tiff", "jpeg", "webp"])
@pytest.mark.parametrize("middle", ["png", "tiff", "jpeg", "webp"])
def test_metadata_travels_between_formats(middle: str, target: str) -> None:
    picture = picture_from_array(smooth((20, 30, 3)), metadata=META)
    first = read_picture(saved(picture, format=middle))
    second = read_picture(saved(first, format=target))
    assert second.metadata.icc == ICC
    assert second.metadata.xmp == XMP
    assert second.metadata.exif is not None
    exif = Image.Exif()
    exif.load(second.metadata.exif)
    assert exif[0x0112] == 6
    assert exif.get_ifd(0x8769)[0x9003] == "2020:01:02 03:04:05"
    assert exif.get_ifd(0x8825)[0x0001] == "N"
    if middle != "webp" and target != "webp":
        assert second.metadata.dpi == pytest.approx((300, 150), abs=0.02)
    if "jpeg" not in (middle, target):
        np.testing.assert_array_equal(second.pages[0], picture.pages[0])
    bare = read_picture(saved(first, format=target, strip=True)).metadata
    assert (bare.icc, bare.exif, bare.xmp, bare.dpi) == (None, None, None, None)


@pytest.mark.parametrize(
    ("dtype", "shape", "alpha", "good"),
    [
        (np.uint8, (5, 6), False, "png tiff jpeg webp bmp netpbm npy"),
        (np.uint8, (5, 6, 3), False, "png tiff jpeg webp bmp netpbm npy"),
        (np.uint8, (5, 6), True, "png tiff webp bmp"),
        (np.uint8, (5, 6, 3), True, "png tiff webp bmp npy"),
        (np.uint16, (5, 6), False, "png tiff netpbm npy"),
        (np.uint16, (5, 6, 3), False, "png tiff netpbm npy"),
        (np.uint16, (5, 6, 3), True, "png tiff npy"),
        (np.float32, (5, 6), False, "tiff npy"),
        (np.float64, (5, 6, 3), True, "tiff npy"),
    ],
)
def test_conversions_lose_nothing_or_are_refused(dtype: Any, shape: tuple[int, ...], alpha: bool, good: str) -> None:
    picture = picture_from_array(noise(shape, dtype), alpha=noise(shape[:2], dtype) if alpha else None, name="x.any")
    for target in ("png", "tiff", "jpeg", "webp", "bmp", "netpbm", "npy"):
        if target not in good.split():
            with pytest.raises(FileProblem, match=r"^x\.any has .*; choose an output that ends in .*\.$"):
                saved(picture, format=target)
            continue
        again = read_picture(saved(picture, format=target))
        assert again.pages[0].dtype == dtype
        if target == "jpeg":
            continue
        rgb = again.pages[0].ndim == 3 and len(shape) == 2
        np.testing.assert_array_equal(again.pages[0][..., 0] if rgb else again.pages[0], picture.pages[0])
        if alpha:
            np.testing.assert_array_equal(again.page(0)[1], picture.page(0)[1])


def test_suffixes_choose_the_format(tmp_path: Path) -> None:
    grey, rgb = picture_from_array(noise((4, 5))), picture_from_array(noise((4, 5, 3)))
    for entry in [entry for entry in FORMATS if entry.written]:
        for suffix in entry.suffixes:
            path = tmp_path / ("x" + suffix.upper())
            assert format_to_write(path) is format_of_suffix(path) is entry
            if entry.marks:  # a folder, which is written another way
                continue
            write_picture(rgb if suffix == ".ppm" else grey, path)
            assert read_picture(path).format == entry.name
    for picture, name in ((grey, "x.ppm"), (rgb, "x.pgm")):
        with pytest.raises(FileProblem, match="holds the other kind"):
            write_picture(picture, tmp_path / name)
    with pytest.raises(FileProblem, match=r"does not end in a known suffix; use one of \.bmp"):
        write_picture(grey, tmp_path / "x.xyz")
    with pytest.raises(FileProblem, match=r"would be GIF, which dstl only reads; use one of \.bmp"):
        write_picture(grey, tmp_path / "x.gif")
    with pytest.raises(ValueError, match=r"format must be one of png, .*, not 'xyz'"):
        saved(grey, format="xyz")
    assert format_of_suffix(Path("notes.txt")) is None
    assert format_of_suffix(Path(".x.png.12-0123456789abcdef.dstl-tmp")) is None


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.png", "a"), ("a.b.TIF", "a.b"), ("a.OME.tif", "a"), ("a.ome.tiff", "a"), ("a.ome", "a"), (".png", ".png")],
)
def test_names_are_split_before_the_suffix_of_their_format(name: str, stem: str) -> None:
    assert split_suffix(name) == (stem, name[len(stem) :])


def lost(picture: Picture, format: str) -> tuple[str, ...]:
    return lost_metadata(picture, FORMATS[format])


def test_metadata_that_a_format_cannot_hold_is_named() -> None:
    picture = picture_from_array(noise((4, 5, 3)), metadata=META)
    assert lost(picture, "tiff") == lost(picture, "png") == ()
    assert lost(picture, "webp") == ()  # the EXIF data say the resolution
    assert lost(picture, "bmp") == ("the EXIF data", "the XMP data")
    only = picture_from_array(noise((4, 5, 3)), metadata=Metadata(icc=ICC, dpi=(72.0, 72.0)))
    assert lost(only, "webp") == ("the resolution",)
    assert lost(only, "npy") == lost(only, "netpbm") == ("the ICC profile", "the resolution")
    assert lost(read_picture(saved(only, format="png")), "png") == ()


def test_sizes_that_a_format_cannot_hold_are_refused() -> None:
    for format, side in (("jpeg", 65_501), ("webp", 16_384)):
        with pytest.raises(FileProblem, match="on a side"):
            saved(picture_from_array(np.zeros((1, side), np.uint8)), format=format)


def test_a_grey_profile_is_not_put_on_rgb_pixels() -> None:
    picture = picture_from_array(noise((4, 5)), metadata=Metadata(icc=GREY_ICC))
    with pytest.raises(FileProblem, match="profile for grey pixels"):
        saved(picture, format="webp")
    assert read_picture(saved(picture, format="png")).metadata.icc == GREY_ICC
    saved(picture, format="webp", strip=True)


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    picture = read_picture(make_png(noise((4, 5)), 8, 0))
    path = tmp_path / "x.png"
    write_picture(picture, path, overwrite=False)
    before = path.read_bytes()
    with pytest.raises(FileProblem, match="already exists"):
        write_picture(picture, path, overwrite=False)

    def interrupted() -> None:
        with open_writer(picture, path) as writer:
            writer.add(255 - picture.pages[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["x.png"]


def test_streams_that_cannot_seek_get_whole_files() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    values = noise((4, 5))
    for format in ("png", "tiff", "npy", "bmp"):
        pipe = Pipe()
        write_picture(picture_from_array(values), pipe, format=format)  # type: ignore[arg-type]
        np.testing.assert_array_equal(read_picture(pipe.data).pages[0], values)


def test_the_registry_of_formats_is_light() -> None:
    code = "import sys; from dstl_cli.picture.formats import split_suffix; split_suffix('x.png'); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    assert not {"numpy", "imageio", "PIL", "tifffile"} & set(done.stdout.split())


@pytest.mark.parametrize(("format", "libraries"), [("png", "imagecodecs"), ("tiff", ""), ("npy", ""), ("bmp", "")])
def test_only_the_needed_libraries_are_imported(tmp_path: Path, format: str, libraries: str) -> None:
    path = tmp_path / f"x.{format}"
    if format == "tiff":
        tifffile.imwrite(path, noise((4, 5), np.float32))
    else:
        write_picture(picture_from_array(noise((4, 5))), path)
    code = (
        "import sys; from pathlib import Path; from dstl_cli.picture.read import read_picture;"
        "from dstl_cli.picture.write import write_picture;"
        "p = read_picture(Path(sys.argv[1])); write_picture(p, Path(sys.argv[1]));"
        "print(*[m for m in ('PIL', 'imageio', 'tifffile', 'imagecodecs') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == libraries


# --- XMP and EXIF that are longer than a segment of JPEG ----------------------------------------------


def long_xmp(size: int) -> bytes:
    items = "".join(f"<rdf:li>{number} äöü &amp; more</rdf:li>" for number in range(size // 40))
    return (
        '<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/">'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<dc:subject><rdf:Bag>{items}</rdf:Bag></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>"
        f'{" " * 2000}<?xpacket end="w"?>'
    ).encode()


def app1_segments(data: bytes, start: bytes) -> list[bytes]:
    """The bodies of the APP1 segments that start so, without that start."""
    found, position = [], 2
    while data[position + 1] != 0xDA:
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        body = data[position + 4 : position + 2 + length]
        if data[position + 1] == 0xE1 and body.startswith(start):
            found.append(body.removeprefix(start))
        position += 2 + length
    return found


def extended_xmp(data: bytes) -> bytes:
    """What the segments of extended XMP hold, put together as Adobe's specification says."""
    pieces = app1_segments(data, b"http://ns.adobe.com/xmp/extension/\x00")
    [standard] = app1_segments(data, b"http://ns.adobe.com/xap/1.0/\x00")
    marks = {piece[:32] for piece in pieces}
    text = bytearray(int.from_bytes(pieces[0][32:36], "big"))
    for piece in reversed(pieces):
        offset = int.from_bytes(piece[36:40], "big")
        text[offset : offset + len(piece) - 40] = piece[40:]
    assert {hashlib.md5(text).hexdigest().upper().encode()} == marks
    note = "{http://ns.adobe.com/xmp/note/}HasExtendedXMP"
    [mark] = [value for node in ElementTree.fromstring(standard).iter() if (value := node.get(note))]
    assert {mark.encode()} == marks
    return bytes(text)


def plain(xmp: bytes) -> str:
    """XMP without its wrapper and freedom of writing."""
    return ElementTree.canonicalize(xmp.decode().split("?>", 1)[-1].rsplit("<?", 1)[0].strip(), strip_text=True)


@pytest.mark.parametrize("size", [66_000, 300_000])
def test_long_xmp_is_spread_over_segments_of_a_jpeg(size: int) -> None:
    xmp = long_xmp(size)
    data = saved(picture_from_array(smooth((16, 16, 3)), metadata=Metadata(xmp=xmp, icc=ICC)), format="jpeg")
    assert plain(extended_xmp(data)) == plain(xmp)
    picture = read_picture(data)
    assert picture.metadata.xmp is not None
    assert plain(picture.metadata.xmp) == plain(xmp)
    assert lost(picture_from_array(smooth((4, 4)), metadata=Metadata(xmp=xmp)), "jpeg") == ()
    again = saved(picture)
    assert extended_xmp(again) == extended_xmp(data)
    assert read_picture(saved(read_picture(again), format="png")).metadata.xmp == picture.metadata.xmp


def test_extended_xmp_of_other_writers_is_put_together() -> None:
    """The short text says something of its own, in an element or an attribute; pieces come in any order."""
    extension = plain(long_xmp(70_000)).encode()
    mark = hashlib.md5(extension).hexdigest().upper()
    rdf = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:xmpNote="http://ns.adobe.com/xmp/note/"'
    for note, inner in (
        (f' xmpNote:HasExtendedXMP="{mark}"', ""),
        ("", f"<xmpNote:HasExtendedXMP>{mark}</xmpNote:HasExtendedXMP>"),
    ):
        standard = (
            f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF {rdf}><rdf:Description rdf:about=""{note}>{inner}'
            '<t:title xmlns:t="t">of its own</t:title></rdf:Description></rdf:RDF></x:xmpmeta>'
        ).encode()
        bodies = [b"http://ns.adobe.com/xap/1.0/\x00" + standard]
        for start in (40_000, 0):
            piece = struct.pack(">II", len(extension), start) + extension[start : start + 40_000]
            bodies.insert(0, b"http://ns.adobe.com/xmp/extension/\x00" + mark.encode() + piece)
        jpeg = pillow_bytes(smooth((16, 16)), "JPEG")
        segments = [b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body for body in bodies]
        whole = read_picture(jpeg[:2] + b"".join(segments) + jpeg[2:]).metadata.xmp
        assert whole is not None
        assert "HasExtended" not in plain(whole)
        words = [text for text in ElementTree.fromstring(whole).itertext() if text.strip()]
        assert words == ["of its own", *ElementTree.fromstring(extension).itertext()]
        cut = read_picture(jpeg[:2] + b"".join(segments[1:]) + jpeg[2:]).metadata.xmp
        assert cut == standard  # a piece is missing


def test_exif_that_a_jpeg_cannot_hold_is_named() -> None:
    for length, words in ((65_527, ()), (65_528, ("the EXIF data",))):
        exif = EXIF.ljust(length, b"\x00")
        picture = picture_from_array(smooth((8, 8)), metadata=Metadata(exif=exif, dpi=(72.0, 72.0)))
        assert lost(picture, "jpeg") == words
        again = read_picture(saved(picture, format="jpeg"))
        assert again.metadata.exif == (None if words else exif)
        assert again.metadata.dpi == (72, 72)
