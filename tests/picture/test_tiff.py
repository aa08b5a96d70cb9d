"""TIFF files of tifffile, Pillow and by hand come back with pixels, pages, axes, layout and tags."""

import io
import json
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from dstl_cli.errors import FileProblem
from dstl_cli.picture.model import Picture, Pixels, picture_from_array
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import open_writer, write_picture

RNG = np.random.default_rng(11)
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def noise(shape: tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind == "f":
        return RNG.normal(100, 50, shape).astype(dtype)
    return RNG.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def made(array: np.ndarray[Any, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    big, order = options.pop("bigtiff", False), options.pop("byteorder", "<")
    with tifffile.TiffWriter(stream, bigtiff=big, byteorder=order) as writer:
        writer.write(array, **options)
    return stream.getvalue()


def saved(picture: Picture, **options: Any) -> bytes:
    stream = io.BytesIO()
    write_picture(picture, stream, **options)
    return stream.getvalue()


def mapped(picture: Picture, function: Callable[[int, Pixels], Pixels]) -> bytes:
    """The file with other pixels, written page by page."""
    stream = io.BytesIO()
    with open_writer(picture, stream) as writer:
        for index in range(len(picture.specs)):
            colour, alpha = picture.page(index)
            writer.add(function(index, colour), alpha)
    return stream.getvalue()


def tags(data: bytes, page: int = 0) -> dict[int, Any]:
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        return {tag.code: tag.value for tag in file.pages[page].tags.values()}


def repeated_tags(data: bytes, page: int) -> list[tuple[int, Any]]:
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        return [(tag.code, tag.value) for tag in file.pages[page].tags]


def same_file_again(data: bytes, places: tuple[int, ...] = (273, 279, 324, 325)) -> bytes:
    """Read and write; pixels by tifffile and all tags but the places of the data must be the same."""
    picture = read_picture(data)
    again = saved(picture)
    with tifffile.TiffFile(io.BytesIO(data)) as old, tifffile.TiffFile(io.BytesIO(again)) as new:
        assert len(old.pages) == len(new.pages)
        assert (old.byteorder, old.is_bigtiff) == (new.byteorder, new.is_bigtiff)
        assert [series.axes for series in old.series] == [series.axes for series in new.series]
        assert [series.shape for series in old.series] == [series.shape for series in new.series]
        for first, second in zip(old.pages, new.pages, strict=True):
            np.testing.assert_array_equal(first.asarray(), second.asarray())
            assert first.dtype == second.dtype
        for index in range(len(old.pages)):
            after = repeated_tags(again, index)
            for item in repeated_tags(data, index):
                assert item[0] in (258, *places) or item in after, item
    return again


DTYPES = [np.uint8, np.uint16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
def test_types_byte_orders_and_bigtiff(dtype: Any, order: str, big: bool) -> None:
    values = noise((13, 17), dtype)
    data = made(values, byteorder=order, bigtiff=big)
    picture = read_picture(data)
    assert picture.pages[0].dtype == dtype
    assert picture.pages[0].dtype.isnative
    np.testing.assert_array_equal(picture.pages[0], values)
    same_file_again(data)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("compression", "predicted"),
    [("none", False), ("packbits", False)]
    + [(name, predicted) for name in ("zlib", "deflate", "lzw", "zstd") for predicted in (False, True)],
)
@pytest.mark.parametrize("layout", ["strips", "tiles"])
def test_compressions_predictors_strips_and_tiles(
    dtype: Any, order: str, compression: str, predicted: bool, layout: str
) -> None:
    predictor = (3 if np.dtype(dtype).kind == "f" else 2) if predicted else None
    kind: dict[str, Any] = {"rowsperstrip": 5} if layout == "strips" else {"tile": (16, 32)}
    for shape in ((37, 41), (37, 41, 3)):
        data = made(
            noise(shape, dtype),
            byteorder=order,
            compression=compression,
            predictor=predictor,
            photometric="rgb" if len(shape) == 3 else "minisblack",
            **kind,
        )
        again = same_file_again(data)
        assert (317 in tags(again)) == predicted


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("compression", ["none", "lzw"])
def test_rgb_planes_and_alpha(dtype: Any, planar: str, kind: int, compression: str) -> None:
    for samples in (3, 4):
        values = noise((21, 19, samples), dtype)
        stored = np.moveaxis(values, 2, 0) if planar == "separate" else values
        data = made(
            stored,
            photometric="rgb",
            planarconfig=planar,
            compression=compression,
            extrasamples=[kind] if samples == 4 else None,
        )
        picture = read_picture(data)
        np.testing.assert_array_equal(picture.pages[0], values[..., :3])
        if samples == 4:
            np.testing.assert_array_equal(picture.page(0)[1], values[..., 3])
        same_file_again(data)


def test_grey_with_alpha_and_more_extra_samples() -> None:
    values = noise((9, 8, 2), np.uint16)
    data = made(values, photometric="minisblack", planarconfig="contig", extrasamples=[2])
    picture = read_picture(data)
    np.testing.assert_array_equal(picture.pages[0], values[..., 0])
    np.testing.assert_array_equal(picture.page(0)[1], values[..., 1])
    same_file_again(data)
    values = noise((9, 8, 5))
    data = made(values, photometric="rgb", planarconfig="contig", extrasamples=[2, 0])
    picture = read_picture(data, name="x.tif")
    np.testing.assert_array_equal(picture.page(0)[1], values[..., 3:])
    same_file_again(data)
    for format in ("png", "npy"):
        with pytest.raises(FileProblem, match=r"extra channels that .* cannot hold"):
            saved(picture, format=format)
    premultiplied = made(noise((9, 8, 4)), photometric="rgb", planarconfig="contig", extrasamples=[1])
    with pytest.raises(FileProblem, match="extra channels that PNG cannot hold"):
        saved(read_picture(premultiplied), format="png")


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_channels_that_are_no_alpha_are_pages_of_their_own(planar: str) -> None:
    values = noise((5, 16, 18), np.uint16)
    stored = values if planar == "separate" else np.moveaxis(values, 0, 2)
    data = made(stored, photometric="minisblack", planarconfig=planar)
    picture = read_picture(data)
    assert len(picture.pages) == 5
    np.testing.assert_array_equal(np.stack(list(picture.pages)), values)
    assert all(picture.page(index)[1] is None for index in range(5))
    same_file_again(data)
    changed = mapped(picture, lambda index, page: page + np.uint16(index))
    expected = values + np.arange(5, dtype=np.uint16)[:, None, None]
    result = tifffile.imread(io.BytesIO(changed))
    np.testing.assert_array_equal(result if planar == "separate" else np.moveaxis(result, 2, 0), expected)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("white_is_zero", [False, True])
@pytest.mark.parametrize("reversed_bits", [False, True])
def test_low_depths(bits: int, white_is_zero: bool, reversed_bits: bool) -> None:
    values = RNG.integers(0, 2**bits, (7, 13))
    text = ["".join(format(value, f"0{bits}b") for value in row) for row in values]
    rows = [line + "0" * (-len(line) % 8) for line in text]
    packed = [line[start : start + 8] for line in rows for start in range(0, len(line), 8)]
    raw = bytes(int(byte[::-1] if reversed_bits else byte, 2) for byte in packed)
    data = hand_made(raw, {256: 13, 257: 7, 258: bits, 262: 0 if white_is_zero else 1, 266: 2 if reversed_bits else 1})
    picture = read_picture(data)
    spread = (values * 255 // (2**bits - 1)).astype(np.uint8)
    expected = 255 - spread if white_is_zero else spread
    np.testing.assert_array_equal(picture.pages[0], expected)
    again = saved(picture)
    assert tags(again)[262] == 1
    np.testing.assert_array_equal(tifffile.imread(io.BytesIO(again)), expected)


def hand_made(raw: bytes, fields: dict[int, int], extra: dict[int, tuple[int, int, bytes]] | None = None) -> bytes:
    """A little-endian TIFF of one strip; `fields` are SHORTs, `extra` are (type, count, bytes)."""
    entries = {259: 1, 277: 1, 278: fields[257], **fields}
    rows: dict[int, bytes] = {tag: struct.pack("<HHIHxx", tag, 3, 1, value) for tag, value in entries.items()}
    position = 8
    body = raw + b"\x00" * (len(raw) & 1)
    rows[273] = struct.pack("<HHII", 273, 4, 1, position)
    rows[279] = struct.pack("<HHII", 279, 4, 1, len(raw))
    for tag, (kind, count, value) in (extra or {}).items():
        if len(value) <= 4:
            rows[tag] = struct.pack("<HHI4s", tag, kind, count, value)
        else:
            rows[tag] = struct.pack("<HHII", tag, kind, count, position + len(body))
            body += value + b"\x00" * (len(value) & 1)
    table = struct.pack("<H", len(rows)) + b"".join(rows[tag] for tag in sorted(rows)) + bytes(4)
    return b"II*\x00" + struct.pack("<I", position + len(body)) + body + table


@pytest.mark.parametrize("dtype", DTYPES)
def test_white_is_zero_is_shown_right_and_kept(dtype: Any) -> None:
    values = noise((9, 8), dtype)
    data = made(values, photometric="miniswhite")
    picture = read_picture(data)
    whole = np.dtype(dtype).kind == "u"
    np.testing.assert_array_equal(picture.pages[0], np.iinfo(dtype).max - values if whole else values)
    again = same_file_again(data)
    assert tags(again)[262] == 0
    if whole:
        png = read_picture(saved(picture, format="png"))
        np.testing.assert_array_equal(png.pages[0], np.iinfo(dtype).max - values)


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("scale", [256, 257, 1])
def test_palettes_are_expanded(grey: bool, scale: int) -> None:
    palette = noise((256, 3))
    palette[0] = 0, 1, 2
    if grey:
        palette[:] = palette[:, :1]
    values = noise((9, 8))
    colour_map = (palette.T.astype(np.uint16) * scale).astype(np.uint16)
    data = made(values, photometric="palette", colormap=colour_map)
    picture = read_picture(data)
    expected = palette[values][..., 0] if grey else palette[values]
    np.testing.assert_array_equal(picture.pages[0], expected)
    again = saved(picture)
    assert 320 not in tags(again)
    with tifffile.TiffFile(io.BytesIO(again)) as file:
        np.testing.assert_array_equal(file.pages[0].asarray(), expected)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(again))), expected)


@pytest.mark.parametrize("compression", [1, 5, 8, 32773])
def test_a_last_strip_that_is_stored_in_full(compression: int) -> None:
    """Some writers fill the last strip up to its height; libtiff reads them, tifffile does not."""
    values = noise((21, 12))
    strips = [values[:16].tobytes(), values[16:].tobytes() + bytes(11 * 12)]
    pack: dict[int, Callable[[bytes], Any]] = {
        1: bytes,
        5: imagecodecs.lzw_encode,
        8: zlib.compress,
        32773: imagecodecs.packbits_encode,
    }
    packed = [bytes(pack[compression](strip)) for strip in strips]
    offsets, counts = struct.pack("<2I", 8, 8 + len(packed[0])), struct.pack("<2I", *map(len, packed))
    raw = b"".join(packed)
    data = hand_made(
        raw, {256: 12, 257: 21, 258: 8, 259: compression, 262: 1, 278: 16}, {273: (4, 2, offsets), 279: (4, 2, counts)}
    )
    np.testing.assert_array_equal(read_picture(data).pages[0], values)


def test_jpeg_inside_tiff_becomes_deflate() -> None:
    rows, columns = np.mgrid[:64, :48]
    values = np.stack([rows * 2, columns * 3, rows + columns], axis=2).astype(np.uint8)
    for kind in ("ycbcr", "rgb"):
        data = made(values, photometric=kind, compression="jpeg", compressionargs={"level": 95})
        picture = read_picture(data, name="x.tif")
        assert "stored with deflate" in picture.notes[0]
        np.testing.assert_array_equal(picture.pages[0], np.asarray(Image.open(io.BytesIO(data))))
        again = saved(picture)
        assert tags(again)[259] == 8
        assert tags(again)[262] == 2
        assert not {347, 530, 532} & set(tags(again))
        np.testing.assert_array_equal(tifffile.imread(io.BytesIO(again)), picture.pages[0])


def test_fax_pages_of_pillow() -> None:
    bits = RNG.integers(0, 2, (20, 31)).astype(bool)
    stream = io.BytesIO()
    Image.fromarray(bits).save(stream, "TIFF", compression="group4")
    picture = read_picture(stream.getvalue())
    np.testing.assert_array_equal(picture.pages[0], bits * np.uint8(255))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(saved(picture)))), bits * np.uint8(255))


# --- pages and axes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_imagej_hyperstacks_keep_axes_labels_and_calibration(dtype: Any) -> None:
    values = noise((2, 3, 4, 11, 12), dtype)
    stream = io.BytesIO()
    metadata = {
        "axes": "TZCYX",
        "spacing": 3.9,
        "unit": "um",
        "finterval": 0.5,
        "Labels": [f"slice {i}" for i in range(24)],
    }
    tifffile.imwrite(stream, values, imagej=True, resolution=(1.5, 2.5), metadata=metadata)
    data = stream.getvalue()
    picture = read_picture(data)
    assert len(picture.pages) == 24
    again = same_file_again(data)
    with tifffile.TiffFile(io.BytesIO(data)) as old, tifffile.TiffFile(io.BytesIO(again)) as new:
        assert new.is_imagej
        assert new.imagej_metadata == old.imagej_metadata
        assert new.series[0].axes == "TZCYX"
        np.testing.assert_array_equal(new.series[0].asarray(), values)
    bare = saved(picture, strip=True)
    with tifffile.TiffFile(io.BytesIO(bare)) as new:
        assert new.series[0].axes == "TZCYX"
        assert not {282, 305, 50838, 50839} & set(tags(bare))


def test_ome_axes_and_xml_are_kept() -> None:
    values = noise((3, 2, 11, 12), np.uint16)
    stream = io.BytesIO()
    metadata = {"axes": "ZCYX", "PhysicalSizeX": 0.25, "Channel": {"Name": ["red", "green"]}}
    tifffile.imwrite(stream, values, ome=True, metadata=metadata, compression="deflate")
    again = same_file_again(stream.getvalue())
    with tifffile.TiffFile(io.BytesIO(again)) as file:
        assert file.is_ome
        assert file.series[0].axes == "ZCYX"
        assert file.ome_metadata is not None
        assert 'PhysicalSizeX="0.25"' in file.ome_metadata
        np.testing.assert_array_equal(file.series[0].asarray(), values)


@pytest.mark.parametrize("shape", [(4, 9, 8), (2, 3, 4, 9, 8), (2, 9, 8, 3)])
def test_shaped_series_keep_their_axes(shape: tuple[int, ...]) -> None:
    rgb = shape[-1] == 3
    axes = "TYXS" if rgb else "TZCYX"[-len(shape) :]
    again = same_file_again(made(noise(shape), photometric="rgb" if rgb else "minisblack", metadata={"axes": axes}))
    with tifffile.TiffFile(io.BytesIO(again)) as file:
        assert file.series[0].axes == axes


def test_pages_of_different_shape_type_and_layout() -> None:
    pages = [noise((9, 8)), noise((5, 6, 3), np.uint16), noise((12, 4), np.float32), noise((7, 7, 4))]
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        for index, page in enumerate(pages):
            kind = "rgb" if page.ndim == 3 else "minisblack"
            extra = [2] if page.shape[2:] == (4,) else None
            packing = ("lzw", None, "zlib", "packbits")[index]
            writer.write(page, photometric=kind, extrasamples=extra, compression=packing, description=f"page {index}")
    data = stream.getvalue()
    picture = read_picture(data)
    assert [page.dtype for page in picture.pages] == [page.dtype for page in pages]
    np.testing.assert_array_equal(picture.page(3)[1], pages[3][..., 3])
    again = same_file_again(data)
    assert [tags(again, index)[259] for index in range(4)] == [5, 1, 8, 32773]
    with pytest.raises(FileProblem, match="has 4 pages, but PNG holds one"):
        saved(picture, format="png")


def test_truncated_series_behind_one_directory() -> None:
    """ImageJ beyond 4 GiB, and tifffile when asked, list only the first picture."""
    values = noise((5, 9, 8), np.uint16)
    shaped = made(values, truncate=True, photometric="minisblack")
    description = "ImageJ=1.54f\nimages=5\nslices=5\n"
    extra = {270: (2, len(description) + 1, description.encode() + b"\x00")}
    raw = values.astype("<u2").tobytes()
    imagej = hand_made(raw, {256: 8, 257: 9, 258: 16, 262: 1}, extra)
    imagej = imagej.replace(struct.pack("<HHII", 279, 4, 1, len(raw)), struct.pack("<HHII", 279, 4, 1, 144))
    for data in (shaped, imagej):
        picture = read_picture(data)
        np.testing.assert_array_equal(np.stack(list(picture.pages)), values)
        again = mapped(picture, lambda index, page: page + np.uint16(index))
        with tifffile.TiffFile(io.BytesIO(again)) as file:
            assert len(file.pages) == 1
            expected = values + np.arange(5, dtype=np.uint16)[:, None, None]
            np.testing.assert_array_equal(file.series[0].asarray(), expected)
    with pytest.raises(FileProblem, match="truncated"):
        read_picture(imagej.replace(b"images=5", b"images=9"))


@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_stacks_stream_page_by_page(planar: str, tmp_path: Path) -> None:
    """However long a stack is, few of its pages are held at a time."""
    values = noise((40, 4, 64, 64), np.uint16)
    stored = values if planar == "separate" else np.moveaxis(values, 1, 3)
    source, target = tmp_path / "stack.tif", tmp_path / "out.tif"
    photometric = {"photometric": "rgb", "extrasamples": [2]} if planar == "contig" else {"photometric": "minisblack"}
    source.write_bytes(made(stored, planarconfig=planar, compression="zlib", **photometric))
    picture = read_picture(source)
    tracemalloc.start()
    write_picture(picture, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * values[0].nbytes < values.nbytes
    np.testing.assert_array_equal(tifffile.imread(target), stored)
    np.testing.assert_array_equal(picture.pages[-1], values[-1, -1] if planar == "separate" else stored[-1, ..., :3])
    with pytest.raises(IndexError):
        picture.pages[160]


@pytest.mark.parametrize("name", ["x.tif", "x.npy"])
def test_files_that_are_cut_off_while_they_are_read(name: str, tmp_path: Path) -> None:
    """A page that was mapped would end the process here."""
    values = np.tile(noise((64, 64), np.float32), (132, 128))
    path = tmp_path / name
    tifffile.imwrite(path, values) if name == "x.tif" else np.save(path, values)
    picture = read_picture(path)
    part = picture.window(0, slice(100, 200), slice(None))[0]
    os.truncate(path, 10_000)
    np.testing.assert_array_equal(part, values[100:200])
    for columns in (slice(None), slice(0, 9)):
        with pytest.raises(FileProblem, match="is truncated"):
            picture.window(0, slice(300, 2000), columns)


# --- tags ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
def test_all_tags_survive(order: str, big: bool) -> None:
    private = [
        (65000, "B", 5, b"\x01\x02\x03\x04\x05", True),
        (65001, "d", 3, (1.5, -2.5, 1e300), True),
        (65002, "h", 2, (-3, 4), True),
        (65003, "2i", 2, (-1, 3, 5, 7), True),
        (274, "H", 1, 6, True),
        (315, "s", 0, "someone", True),
        (33432, "s", 0, "(c) someone, all rights reserved", True),
        (34675, "B", len(ICC), ICC, True),
    ]
    data = made(
        noise((9, 8, 3)),
        photometric="rgb",
        byteorder=order,
        bigtiff=big,
        resolution=(300, 200),
        resolutionunit="CENTIMETER",
        description="a plain description",
        software="a program",
        datetime="2020:01:02 03:04:05",
        extratags=private,
        subfiletype=2,
        metadata=None,
    )
    again = same_file_again(data)
    found = tags(again)
    assert found[65001] == (1.5, -2.5, 1e300)
    assert found[65003] == (-1, 3, 5, 7)
    assert found[34675] == ICC
    picture = read_picture(data)
    assert picture.metadata.dpi == pytest.approx((300 * 2.54, 200 * 2.54))
    assert picture.metadata.description == "a plain description"
    assert picture.metadata.icc == ICC
    bare = set(tags(saved(picture, strip=True)))
    assert not bare & {270, 274, 282, 283, 296, 305, 306, 315, 33432, 34675, 65000}
    np.testing.assert_array_equal(tifffile.imread(io.BytesIO(saved(picture, strip=True))), picture.pages[0])


def test_exif_and_gps_directories_survive() -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    exif.get_ifd(0x8769)[0x9003] = "2020:01:02 03:04:05"
    exif.get_ifd(0x8769)[0x829A] = 0.01
    exif.get_ifd(0x8769)[0x927C] = bytes(range(200))
    exif.get_ifd(0x8825)[0x0002] = (1.0, 2.0, 3.0)
    stream = io.BytesIO()
    Image.fromarray(noise((9, 8, 3))).save(stream, "TIFF", exif=exif.tobytes(), dpi=(300, 300), icc_profile=ICC)
    picture = read_picture(stream.getvalue())
    again = Image.open(io.BytesIO(saved(picture)))
    assert again.getexif()[0x0112] == 3
    inner = again.getexif().get_ifd(0x8769)
    assert inner[0x9003] == "2020:01:02 03:04:05"
    assert float(inner[0x829A]) == pytest.approx(0.01)
    assert inner[0x927C] == bytes(range(200))
    assert again.getexif().get_ifd(0x8825)[0x0002] == (1.0, 2.0, 3.0)
    assert again.info["dpi"] == (300, 300)
    assert again.info["icc_profile"] == ICC
    jpeg = Image.open(io.BytesIO(saved(picture, format="jpeg")))
    assert jpeg.getexif()[0x0112] == 3
    assert jpeg.getexif().get_ifd(0x8769)[0x9003] == "2020:01:02 03:04:05"
    assert jpeg.info["dpi"] == (300, 300)
    assert 34665 not in tags(saved(picture, strip=True))


def test_long_tags_shared_by_pages_are_stored_once() -> None:
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        for _ in range(20):
            writer.write(noise((4, 4)), extratags=[(34675, "B", len(ICC), ICC, True)], contiguous=False)
    again = saved(read_picture(stream.getvalue()))
    assert again.count(ICC) == 1
    assert tags(again, 19)[34675] == ICC


def test_reduced_copies_in_sub_directories_are_dropped_with_a_note() -> None:
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(noise((32, 32)), subifds=1)
        writer.write(noise((16, 16)), subfiletype=1)
    picture = read_picture(stream.getvalue(), name="x.tif")
    assert picture.notes == ("The reduced copies stored beside its pages are not carried over.",)
    assert len(picture.pages) == 1
    assert 330 not in tags(saved(picture))


def test_from_png_to_tiff_is_deflated_and_readable() -> None:
    for dtype in DTYPES:
        for shape in ((300, 700), (300, 700, 3)):
            values = noise(shape, dtype)
            data = saved(picture_from_array(values), format="tiff")
            with tifffile.TiffFile(io.BytesIO(data)) as file:
                assert file.pages[0].compression == 8
                np.testing.assert_array_equal(file.pages[0].asarray(), values)
            if dtype == np.uint8:
                np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), values)


def test_shape_description_stays_json() -> None:
    data = made(noise((3, 9, 8)), photometric="minisblack")
    assert json.loads(tags(saved(read_picture(data)))[270]) == {"shape": [3, 9, 8]}
