"""Broken, hostile and unsupported files: one sentence with name and remedy, no memory eaten, no hang."""

import contextlib
import io
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.picture import source as sources
from dstl_cli.picture.model import Picture, picture_from_array
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import natural_format, write_picture

RNG = np.random.default_rng(5)


def problem(source: Path | bytes, words: str, name: str | None = "bad.file") -> str:
    """The one sentence a bad file gives; it names the file and contains the words."""
    with pytest.raises(FileProblem) as caught:
        list(read_picture(source, name=name).pages)
    sentence = str(caught.value)
    assert words in sentence, sentence
    assert (name or str(source)) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert ";" in sentence  # what to do about it
    return sentence


def decoded(source: Path | bytes) -> Picture:
    """A picture that was read to its last pixel."""
    picture = read_picture(source)
    for index in range(len(picture.specs)):
        picture.page(index)
    return picture


def saved(picture: Picture, format: str) -> bytes:
    stream = io.BytesIO()
    write_picture(picture, stream, format=format)
    return stream.getvalue()


def pillow_bytes(image: Image.Image, format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def tiff_bytes(array: np.ndarray[Any, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, **options)
    return stream.getvalue()


def npy_bytes(array: np.ndarray[Any, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, raw: bytes, depth: int = 8, colour: int = 0, before: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + chunk(b"IDAT", zlib.compress(raw, 1)) + chunk(b"IEND", b"")


GREY = RNG.integers(0, 256, (24, 31), np.uint8)
RGB = RNG.integers(0, 256, (24, 31, 3), np.uint8)
GOOD: dict[str, bytes] = {
    "png": saved(picture_from_array(RGB, alpha=GREY), "png"),
    "png16": saved(picture_from_array(RGB.astype(np.uint16) * 257), "png"),
    "palette": pillow_bytes(Image.fromarray(RGB).quantize(16), "PNG", transparency=3),
    "jpeg": pillow_bytes(Image.fromarray(RGB), "JPEG", exif=Image.Exif().tobytes(), dpi=(90, 90)),
    "progressive": pillow_bytes(Image.fromarray(GREY), "JPEG", progressive=True),
    "webp": saved(picture_from_array(RGB, alpha=GREY), "webp"),
    "lossy": pillow_bytes(Image.fromarray(RGB), "WEBP"),
    "bmp": saved(picture_from_array(RGB, alpha=GREY), "bmp"),
    "bmp8": pillow_bytes(Image.fromarray(GREY), "BMP"),
    "pgm": saved(picture_from_array(GREY), "netpbm"),
    "plain": b"P2\n31 24\n255\n" + b" ".join(b"%d" % value for value in GREY.ravel()) + b"\n",
    "npy": npy_bytes(RGB),
    "tiff": tiff_bytes(GREY),
    "lzw": tiff_bytes(RGB, compression="lzw", photometric="rgb", predictor=2),
    "deflate": tiff_bytes(RGB, compression="zlib", tile=(16, 16), photometric="rgb"),
    "packbits": tiff_bytes(GREY, compression="packbits", rowsperstrip=4),
    "zstd": tiff_bytes(GREY.astype(np.float32), compression="zstd", predictor=3),
    "pages": tiff_bytes(np.stack([GREY] * 3), photometric="minisblack", bigtiff=True),
    "imagej": tiff_bytes(np.stack([GREY] * 3), imagej=True, metadata={"axes": "ZYX"}),
    "jpegtiff": tiff_bytes(RGB, compression="jpeg", photometric="ycbcr"),
}


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_files_are_good(kind: str) -> None:
    picture = read_picture(GOOD[kind])
    assert picture.pages[0].shape[:2] == (24, 31)


@pytest.mark.parametrize("kind", [kind for kind in GOOD if kind != "plain"])
def test_every_truncation_is_an_error(kind: str) -> None:
    """No prefix of a file may pass as a picture; only what follows the last pixel may be missing."""
    data = GOOD[kind]
    padding = {"imagej": 17}.get(kind, 1)  # tifffile leaves 16 unused bytes behind
    step = max(1, len(data) // 60)
    for length in [*range(1, len(data) - padding, step), len(data) - padding]:
        with pytest.raises(FileProblem):
            decoded(data[:length])


def test_truncated_plain_file() -> None:
    data = GOOD["plain"]
    for length in (5, 12, 13, 40, len(data) // 2, len(data) - 6):
        problem(data[:length], "truncated" if length > 1 else "")


def test_truncated_jpeg_names_the_reason() -> None:
    problem(GOOD["jpeg"][: len(GOOD["jpeg"]) // 2], "truncated: the file ends before its pixels do")
    problem(GOOD["png"][: len(GOOD["png"]) // 2], "truncated: the file ends before its pixels do")
    problem(GOOD["lzw"][: len(GOOD["lzw"]) // 2], "truncated: the file ends before its pixels do")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("these are no pixels\n")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "dangling.png").symlink_to("nothing.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "file").write_bytes(b"x")
    cases = {
        "empty.png": "is empty (0 bytes)",
        "text.png": "is not a picture that dstl knows",
        "loop.png": "leads to itself",
        "dangling.png": "does not exist",
        "missing.png": "does not exist",
        "pipe.png": "is not a regular file",
        "file/x.png": "does not exist",
        "x" * 300 + ".png": "too long",
    }
    for name, words in cases.items():
        problem(tmp_path / name, words, name=None)
    problem(tmp_path, "is a folder", name=None)
    with pytest.raises(FileProblem, match="not a possible file name"):
        read_picture(Path("a\0b.png"))
    with pytest.raises(FileProblem, match=r"standard input is empty"):
        read_picture(b"")


def test_unreadable_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(GOOD["png"])
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything: pretend

        def refuse(self: Path, *_: Any) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
    problem(path, "may not be read; change its permissions", name=None)


def test_strange_names_stay_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"new\nline\xff\x1b.png")
    path.write_bytes(b"nonsense")
    with pytest.raises(FileProblem) as caught:
        read_picture(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GIF89a" + bytes(20), "is damaged"),
        (b"8BPS" + bytes(20), "is a Photoshop document"),
        (b"\x00\x00\x00\x20ftypheic" + bytes(20), "is a HEIC picture, which dstl does not handle; install pillow-heif"),
        (b"\x00\x00\x00\x20ftypavif" + bytes(20), "is damaged"),
        (b"\x00\x00\x01\x00\x01\x00" + bytes(20), "is an icon file"),
        (b"PF\n3 3\n-1.0\n" + bytes(108), "is a PFM picture in colour"),
        (b"P7\nWIDTH 3\n", "is a PAM picture"),
        (b"PK\x03\x04" + bytes(30), "is not a picture"),
        (b"BMnothing of the sort", "is not a picture"),
        (b"\x89PN", "truncated"),
    ],
)
def test_other_kinds_of_files(data: bytes, words: str) -> None:
    problem(data, words)


def test_depths_and_colours_that_are_not_handled() -> None:
    cmyk = Image.fromarray(np.dstack((RGB, GREY)), "RGBA").convert("CMYK")
    problem(pillow_bytes(cmyk, "JPEG"), "holds CMYK colours")
    problem(pillow_bytes(cmyk, "TIFF"), "holds CMYK colours")
    for dtype, words in {
        "int64": "64-bit signed whole numbers",
        "uint64": "64-bit unsigned whole numbers",
        "complex64": "64-bit complex numbers",
    }.items():
        problem(tiff_bytes(GREY.astype(dtype)), words)
        problem(npy_bytes(GREY.astype(dtype)), f"holds values of type {dtype}")
    problem(tiff_bytes(np.dstack((RGB, GREY)), photometric="cielab", extrasamples=[2]), "holds CIELab colours")
    problem(
        tiff_bytes(np.stack([GREY] * 4), volumetric=True, photometric="minisblack"),
        "stores a volume as one page",
    )
    dng = tiff_bytes(GREY, extratags=[(50706, "B", 4, bytes((1, 4, 0, 0)), True)])
    problem(dng, "camera raw file (DNG)")
    raw = io.BytesIO()
    with tifffile.TiffWriter(raw) as writer:  # a thumbnail first, the real picture beneath it
        writer.write(GREY, subifds=1)
        writer.write(np.zeros((240, 310), np.uint16))
    problem(raw.getvalue(), "camera raw file")


def test_arrays_that_are_no_pictures() -> None:
    for shape in ((3,), (3, 4, 2), (3, 4, 5), (2, 3, 4, 3), ()):
        problem(npy_bytes(np.zeros(shape, np.uint8)), f"holds an array of shape {shape}")
    problem(npy_bytes(np.array([[{}]], object), allow_pickle=True), "holds values of type object")
    problem(npy_bytes(np.zeros((0, 4), np.uint8)), "its size is 4 x 0")
    problem(b"\x93NUMPY\x01\x00\x0a\x00{nonsense}", "its .npy header is wrong")
    problem(b"\x93NUMPY\x01\x00\x0a\x00__import__", "its .npy header is wrong")
    huge = npy_bytes(np.zeros((2, 2), np.uint8)).replace(b"(2, 2), }        ", b"(1" + b"0" * 9 + b", 2), }")
    problem(huge, "more than the limit")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_not_a_number_and_infinity_are_counted(dtype: Any) -> None:
    values = np.ones((30, 20, 3), dtype)
    values[0, 0, 0] = np.nan
    problem(tiff_bytes(values, photometric="rgb"), "has 1 value that is NaN or infinite; replace")
    values[3, 4:9, 1] = np.inf
    values[29, 19, 2] = -np.inf
    problem(tiff_bytes(values, photometric="rgb", compression="zlib"), "has 7 values that are NaN or infinite")
    problem(npy_bytes(values), "has 7 values that are NaN or infinite")
    pages = np.ones((3, 9, 8), dtype)
    pages[1, 2, 2:4] = np.nan
    problem(tiff_bytes(pages, photometric="minisblack"), "has 2 values that are NaN or infinite on page 2")
    alpha = np.ones((9, 8, 4), dtype)
    alpha[..., 3] = np.nan  # alpha passes through untouched, whatever it is
    assert np.isnan(np.asarray(read_picture(npy_bytes(alpha)).page(0)[1])).all()


def test_several_pictures_in_one_pgm_are_not_lost_silently() -> None:
    problem(GOOD["pgm"] + GOOD["pgm"], "holds more than one picture")


def test_netpbm_nonsense() -> None:
    problem(b"P5\n2 2\n0\nabcd", "its maximal value is 0")
    problem(b"P5\n2 2\n70000\nabcdefgh", "its maximal value is 70000")
    problem(b"P5\n2 x\n255\nabcd", "not made of numbers")
    problem(b"P5\n2 2\n100\n\xff\x01\x02\x03", "value 255 above its own maximum 100")
    problem(b"P2\n2 2\n100\n1 2 3 101\n", "value 101 above its own maximum 100")
    problem(b"P2\n2 2\n100\n1 2 3 -1\n", "not whole numbers")


def test_png_nonsense() -> None:
    raw = b"".join(b"\x00" + row.tobytes() for row in GREY)
    problem(png(31, 24, raw[:-40]), "damaged")
    problem(png(31, 24, raw, colour=3), "its palette is wrong")
    problem(png(31, 24, raw, colour=3, before=chunk(b"PLTE", bytes(30))), "outside its palette")
    problem(png(31, 24, raw, colour=5), "its PNG header is wrong")
    problem(png(31, 24, raw, depth=3), "its PNG header is wrong")
    problem(png(0, 24, raw), "its size is 0 x 24")
    problem(png(31, 24, raw, before=chunk(b"tRNS", bytes(3))), "transparent colour is wrong")
    flipped = bytearray(png(31, 24, raw))
    flipped[-30] ^= 1
    problem(bytes(flipped), "a checksum is wrong")
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 3, 8, 0, 0, 0, 0))
    problem(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IEND", b""), "holds no pixels")


def ifd(rows: list[tuple[int, int, int, int]], following: int = 0) -> bytes:
    return (
        struct.pack("<H", len(rows))
        + b"".join(struct.pack("<HHII", *row) for row in rows)
        + struct.pack("<I", following)
    )


def test_tiff_nonsense() -> None:
    good = [(256, 3, 1, 4), (257, 3, 1, 4), (258, 3, 1, 8), (273, 4, 1, 8), (279, 4, 1, 16)]
    start = b"II*\x00"

    def file(rows: list[tuple[int, int, int, int]], following: int = 0) -> bytes:
        return start + struct.pack("<I", 24) + bytes(range(16)) + ifd(rows, following)

    assert read_picture(file(good)).pages[0].shape == (4, 4)
    problem(file(good, 24), "directories run in a circle")
    problem(start + bytes(4), "holds no pages")
    problem(start + struct.pack("<I", 999), "truncated")
    problem(file([*good, (270, 2, 2**31, 0)]), "damaged")
    problem(file(good[2:]), "its size is 0 x 0")
    problem(file([*good[:3], (273, 4, 1, 800), good[4]]), "truncated")
    problem(file([*good[:3], good[3], (279, 4, 1, 15)]), "too short")
    problem(file([*good[:4], (279, 4, 1, 0)]), "too short")
    problem(file([*good[:3], (259, 3, 1, 5), *good[3:4], (279, 4, 1, 0)]), "blocks without pixels")
    problem(file([*good[:3], (259, 3, 1, 12345), *good[3:]]), "is compressed by method 12345")
    problem(file([*good[:3], (262, 3, 1, 77), *good[3:]]), "has colours of kind 77")
    problem(file([(256, 4, 1, 2**20), (257, 4, 1, 400), *good[2:4], (278, 4, 1, 1), good[4]]), "damaged")
    counts = struct.pack("<H", 1000) * 6001  # 3000 directories of 1000 tags each, all upon each other
    links = b"".join(struct.pack("<I", 8 + 4 * index) for index in range(1, 3000))
    problem(start + struct.pack("<I", 8) + counts + links + bytes(4), "claim more bytes than the file has")


# --- sizes --------------------------------------------------------------------------------------------


def huge_files() -> dict[str, bytes]:
    """Headers of 60000 x 60000 with next to nothing behind them."""
    side = 60_000
    jpeg = bytearray(GOOD["jpeg"])
    where = jpeg.index(b"\xff\xc0") + 5
    jpeg[where : where + 4] = struct.pack(">HH", side, side)
    tiff = tiff_bytes(GREY, compression="zlib")
    for tag, value in ((256, 31), (257, 24), (278, 24)):
        tiff = tiff.replace(struct.pack("<HHII", tag, 4, 1, value), struct.pack("<HHII", tag, 4, 1, side))
    raw_tiff = tiff.replace(struct.pack("<HHI", 259, 3, 1), struct.pack("<HHI", 259, 3, 1))
    bmp = GOOD["bmp8"][:18] + struct.pack("<ii", side, side) + GOOD["bmp8"][26:]
    npy = npy_bytes(GREY).replace(b"(24, 31), }    ", b"(60000, 60000)}")
    return {
        "png": png(side, side, bytes(60_001 * 20)),
        "jpeg": bytes(jpeg),
        "tiff": tiff,
        "raw": raw_tiff,
        "bmp": bmp,
        "pgm": b"P5\n60000 60000\n255\n" + bytes(100),
        "plain": b"P3\n60000 60000\n255\n" + b"1 " * 100,
        "npy": npy,
    }


@pytest.mark.parametrize("kind", ["png", "jpeg", "tiff", "raw", "bmp", "pgm", "plain", "npy"])
def test_huge_headers_are_refused_before_memory_is_used(kind: str) -> None:
    data = huge_files()[kind]
    tracemalloc.start()
    problem(data, "claims 60000 x 60000 pixels, more than the limit of 500000000; set DSTL_MAX_PIXELS=3600000000")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_sizes_that_the_file_cannot_hold_are_refused() -> None:
    problem(png(12_000, 10_000, bytes(12_001 * 4)), "claims 12000 x 10000 pixels but has only")
    flat = png(14_000, 10_000, bytes(14_001 * 10_000))  # 140 megapixels of nothing in 140 kB: a bomb
    problem(flat, "claims 14000 x 10000 pixels but has only")


def test_flat_large_pictures_still_open(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = png(10_000, 8_000, bytes(10_001 * 8_000))
    assert read_picture(flat).pages[0].shape == (8_000, 10_000)


def test_the_limit_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSTL_MAX_PIXELS", "700")
    problem(GOOD["png"], "claims 31 x 24 pixels, more than the limit of 700; set DSTL_MAX_PIXELS=744")
    monkeypatch.setenv("DSTL_MAX_PIXELS", "744")
    read_picture(GOOD["png"])
    monkeypatch.setenv("DSTL_MAX_PIXELS", "3600000000")
    assert read_picture(huge_files()["png"]).info.width == 60_000  # at the user's word
    problem(huge_files()["pgm"], "truncated")  # but bytes that are not there are not there
    problem(huge_files()["bmp"], "truncated")
    monkeypatch.setenv("DSTL_MAX_PIXELS", "many")
    with pytest.raises(DstlError, match="DSTL_MAX_PIXELS must be a whole number"):
        read_picture(GOOD["png"])
    monkeypatch.setenv("DSTL_MAX_PIXELS", "9" * 5000)  # more digits than Python makes a number of
    with pytest.raises(DstlError, match=r"DSTL_MAX_PIXELS must be .* not '9{18}\.\.\.'\.$"):
        read_picture(GOOD["png"])


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_memory_of_a_large_picture(tmp_path: Path) -> None:
    """24 megapixels of grey cost their own size plus about one copy, in every simple format."""
    page = np.tile(RNG.integers(0, 256, (400, 600), np.uint8), (10, 10))
    code = (
        "import sys; from pathlib import Path; import numpy, imagecodecs;"
        "from dstl_cli.picture.read import read_picture; from dstl_cli.picture.write import write_picture;"
        "peak = lambda: int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]);"
        "start = peak(); picture = read_picture(Path(sys.argv[1])); picture.page(0); read = peak();"
        "write_picture(picture, Path(sys.argv[2])); print((read - start) // 1024, (peak() - start) // 1024)"
    )
    picture = picture_from_array(page)
    tifffile.imwrite(tmp_path / "x.tif", page)
    write_picture(picture, tmp_path / "x.npy")
    write_picture(picture, tmp_path / "x.bmp")
    for name, reading, writing in (("x.tif", 50, 60), ("x.npy", 50, 60), ("x.bmp", 60, 70)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / name), str(tmp_path / ("out" + name))],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        read, both = map(int, done.stdout.split())
        assert read <= reading, (name, read)
        assert both <= writing, (name, both)


# --- noise on the bytes -------------------------------------------------------------------------------


def opens_or_says_why(data: bytes) -> None:
    """Reading gives a picture that can be written, or a DstlError; nothing else."""
    try:
        picture = read_picture(data)
        pages = list(picture.pages)
    except DstlError:
        return
    assert [page.shape for page in pages] == [spec.shape for spec in picture.specs]
    assert [page.dtype for page in pages] == [spec.dtype for spec in picture.specs]
    if sum(page.size for page in pages) < 10**6:
        again = read_picture(saved(picture, natural_format(picture)))
        assert [page.shape for page in again.pages] == [page.shape for page in pages]
        if picture.format not in ("jpeg", "webp"):
            for first, second in zip(pages, again.pages, strict=True):
                np.testing.assert_array_equal(first, second)


def mutate(data: bytes, cut: float, flips: list[tuple[float, int]], fix: Callable[[bytes], bytes]) -> bytes:
    changed = bytearray(data[: max(1, int(len(data) * cut))])
    for where, value in flips:
        changed[int(len(changed) * where)] ^= value
    return fix(bytes(changed))


def right_checksums(data: bytes) -> bytes:
    """Give every chunk of a damaged PNG a right checksum, so that the damage gets further in."""
    out, position = data[:8], 8
    while position + 12 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        if position + 12 + length > len(data):
            break
        out += chunk(data[position + 4 : position + 8], data[position + 8 : position + 8 + length])
        position += 12 + length
    return out + data[position:]


fractions = st.floats(0, 1, exclude_max=True)
changes = st.lists(st.tuples(st.one_of(fractions, fractions.map(lambda x: x * x * x)), st.integers(1, 255)), max_size=6)


FRAMES = [Image.fromarray(GREY), Image.fromarray(255 - GREY)]
OTHERS: dict[str, bytes] = {
    format: pillow_bytes(Image.fromarray(RGB), format) for format in ("GIF", "TGA", "PCX", "QOI", "JPEG2000", "AVIF")
} | {
    "animated": pillow_bytes(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]),
    "run lengths": bytes.fromhex("424d4200000000000000 3a000000 28000000 04000000 02000000 0100 0400 02000000")
    + struct.pack("<IiiII", 8, 0, 0, 1, 0)
    + b"\x01\x02\x03\x00\x04\x00\x00\x00\x04\x00\x00\x01",
}


@pytest.mark.parametrize("kind", [*GOOD, *OTHERS])
@settings(max_examples=40, deadline=2000, derandomize=True)
@given(cut=st.one_of(st.just(1.0), st.floats(0, 1)), flips=changes)
def test_random_damage(kind: str, cut: float, flips: list[tuple[float, int]]) -> None:
    fix = right_checksums if kind in ("png", "png16", "palette") else bytes
    opens_or_says_why(mutate((GOOD | OTHERS)[kind], cut, flips, fix))


@settings(max_examples=100, deadline=2000, derandomize=True)
@given(
    lead=st.sampled_from(
        [
            b"",
            b"\x89PNG\r\n\x1a\n",
            b"II*\x00",
            b"MM\x00+\x00\x08\x00\x00",
            b"\xff\xd8\xff",
            b"P2 ",
            b"BM",
            b"\x93NUMPY\x01\x00",
            b"RIFF\xff\x00\x00\x00WEBP",
        ]
    ),
    rest=st.binary(max_size=200),
)
def test_random_bytes(lead: bytes, rest: bytes) -> None:
    opens_or_says_why(lead + rest)


# --- files made to break readers ------------------------------------------------------------------------


def negative_exif() -> bytes:
    """An EXIF block whose inner directory lies before the file."""
    return b"II*\x00\x08\x00\x00\x00" + ifd([(34665, 9, 1, 2**32 - 1)])


def test_damaged_exif_data_do_not_cost_the_picture() -> None:
    for format in ("JPEG", "WEBP", "PNG"):
        data = pillow_bytes(Image.fromarray(RGB), format, exif=b"Exif\x00\x00" + negative_exif())
        assert decoded(data).specs[0].shape == RGB.shape
    rows = [(256, 3, 1, 4), (257, 3, 1, 4), (258, 3, 1, 8), (273, 4, 1, 8), (279, 4, 1, 16)]
    file = b"II*\x00" + struct.pack("<I", 24) + bytes(range(16))
    picture = decoded(file + ifd([*rows, (34665, 9, 1, 2**32 - 1)]))
    assert picture.notes == ("Damaged EXIF data was left out.",)
    problem(file + ifd([*rows, (330, 9, 1, 2**32 - 1)]), "truncated")


def test_absurd_shapes_in_descriptions_are_ignored() -> None:
    for shape in (b"[1e999, 16]", b"[" + b"9, " * 100_000 + b"9]", b"null", b'{"a": 1}'):
        text = b'{"shape": ' + shape + b', "truncated": true}'
        data = tiff_bytes(GREY, description=text, metadata=None)
        with contextlib.suppress(FileProblem):  # a picture, or a sentence, at once
            decoded(data)


def test_many_xmp_texts_are_not_all_unpacked() -> None:
    body = b"XML:com.adobe.xmp\x00\x01\x00\x00\x00" + zlib.compress(bytes(2**22))
    raw = b"".join(b"\x00" + row.tobytes() for row in GREY)
    data = png(31, 24, raw, before=chunk(b"iTXt", body) * 50)
    tracemalloc.start()
    decoded(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 2**22


def in_time(data: bytes, seconds: float = 2.0, mebibytes: int = 96) -> Picture | str:
    """A picture that was read to its last pixel or the sentence about it; refused if that takes long or much memory."""
    tracemalloc.start()
    start = time.process_time()
    try:
        return decoded(data)
    except FileProblem as error:
        return str(error)
    finally:
        spent, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert spent < seconds
        assert peak < mebibytes * 2**20


def tiled(sides: tuple[int, int], tile: tuple[int, int], packed: bytes, count: int = 1) -> bytes:
    """A grey TIFF of deflated tiles that are all the same bytes."""
    (height, width), (high, wide) = sides, tile
    lists = struct.pack("<I", 8) * count + struct.pack("<I", len(packed)) * count
    at = 8 + len(packed)
    places = [8, len(packed)] if count == 1 else [at, at + 4 * count]
    rows = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)]
    rows += [(322, 4, 1, wide), (323, 4, 1, high), (324, 4, count, places[0]), (325, 4, count, places[1])]
    return b"II*\x00" + struct.pack("<I", at + len(lists)) + packed + lists + ifd(rows)


def test_tiles_far_larger_than_their_page_are_not_unpacked() -> None:
    assert isinstance(in_time(tiled((16, 16), (512, 512), zlib.compress(bytes(512 * 512)))), Picture)
    for file in (
        tiled((16, 16), (16_384, 16_384), b"\x00" * 2**18),
        tiled((16, 32_000), (400_000, 16), zlib.compress(bytes(16 * 400_000)), count=2000),
    ):
        assert "its tiles are far larger than its pages" in str(in_time(file))


def test_blocks_that_lie_upon_each_other_are_not_all_read() -> None:
    packed = zlib.compress(bytes(256)) + RNG.bytes(2**20)
    assert "lie upon each other" in str(in_time(tiled((160, 1600), (16, 16), packed, count=1000)))


def test_a_tag_that_many_directories_share_costs_nothing() -> None:
    values = struct.pack("<H", 8) + b"\x01\x00" * 2**19
    file = bytearray(b"II*\x00" + struct.pack("<I", 8 + len(values) + 64) + values + bytes(64))
    rows = [(256, 3, 2**19, 8), (257, 3, 2**19, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    rows += [(273, 4, 1, 8 + len(values)), (279, 4, 1, 64)]
    for number in range(400, 0, -1):
        file += ifd(rows, len(file) + 2 + 12 * len(rows) + 4 if number > 1 else 0)
    picture = in_time(bytes(file))
    assert isinstance(picture, Picture)
    assert len(picture.specs) == 400


def test_compressions_that_are_not_on_the_list_reach_no_decoder() -> None:
    for method in (34887, 34934, 50002):
        file = bytearray(GOOD["lzw"])
        at = file.index(struct.pack("<HHI", 259, 3, 1)) + 8
        file[at : at + 4] = struct.pack("<I", method)
        problem(bytes(file), f"is compressed by method {method}, which dstl does not handle")


def test_scans_and_segments_of_jpeg_are_counted() -> None:
    good = GOOD["progressive"]
    at = good.index(b"\xff\xda")
    scan = good[at : good.index(b"\xff", at + 2)] + b"\x00"
    assert "more than 200 scans" in str(in_time(good[:-2] + scan * 1000 + b"\xff\xd9"))
    assert "more than 20000 segments" in str(in_time(good[:2] + b"\xff\xe5\x00\x02" * 10**6 + good[2:]))
    assert "more than 20000 segments" in str(in_time(good[:2] + b"\xff\x01" * 10**6 + good[2:]))


def test_chunks_are_counted() -> None:
    raw = b"".join(b"\x00" + row.tobytes() for row in GREY)
    assert "too many chunks" in str(in_time(png(31, 24, raw, before=chunk(b"teXt", b"") * 100_000)))
    assert "too many chunks" in str(in_time(png(31, 24, raw, before=chunk(b"IDAT", b"") * 100_000)))
    body = GOOD["webp"][12:] + b"junk\x00\x00\x00\x00" * 100_000
    assert "more than 10000 chunks" in str(in_time(b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body))


def test_many_damaged_chunks_are_one_note() -> None:
    raw = b"".join(b"\x00" + row.tobytes() for row in GREY)
    names = [b"a%cAa" % letter for letter in b"ABCDEFGH"]
    few, many = (b"".join(chunk(name, b"")[:-1] + b"!" for name in some) for some in (names[:2] * 9, names))
    assert decoded(png(31, 24, raw, before=few)).notes == (
        "A damaged aAAa chunk was left out.",
        "A damaged aBAa chunk was left out.",
    )
    assert decoded(png(31, 24, raw, before=many)).notes == ("8 damaged chunks were left out.",)


def test_long_xmp_texts_are_searched_once() -> None:
    start = b"http://ns.adobe.com/xap/1.0/\x00"
    for text in (b" " * 65_000, b"<rdf:RDF " * 7000, b"<rdf:RDF>" * 7000):
        body = start + text
        data = GOOD["jpeg"][:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + GOOD["jpeg"][2:]
        assert isinstance(in_time(data, 0.5), Picture)
    wrong = chunk(b"iTXt", b"XML:com.adobe.xmp\x00\x01\x00\x00\x00" + zlib.compress(bytes(2**26 + 9))) * 100
    raw = b"".join(b"\x00" + row.tobytes() for row in GREY)
    assert isinstance(in_time(png(31, 24, raw, before=wrong), mebibytes=200), Picture)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless file")
def test_endless_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "STREAM_BYTES", 2**16)
    for start, words in ((b"", "is not a picture that dstl knows"), (GOOD["png"], "has more than 65536 bytes")):
        (tmp_path / "start").write_bytes(start)
        with (tmp_path / "start").open("rb") as first, open("/dev/zero", "rb") as zeros:
            endless = io.BufferedReader(Joined(first, zeros))
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
            with pytest.raises(FileProblem, match=f"^[Ss]tandard input {words}"):
                read_picture(None)


class Joined(io.RawIOBase):
    """One stream behind another."""

    def __init__(self, *streams: Any) -> None:
        super().__init__()
        self._streams = streams

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return next((count for stream in self._streams if (count := stream.readinto(buffer))), 0)
