"""`dstl denoise --crop`: the part of a picture is, byte for byte, the part of the result for the whole picture."""

import io
import struct
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from running import Pixels, refused, run, run_process, scene

from dstl_cli.denoising import passes, sliding
from dstl_cli.denoising.pipeline import denoise_pixels, denoised_rows
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.noise.model import SpectralChannel, SpectralNoise
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import ArraySource

LEARNING = {"fast": (), "standard": ("--train-patches", 1600, "--iterations", 2), "best": ()}
QUALITIES = [("--quality", quality, *more) for quality, more in LEARNING.items()]
FAST = ("--quality", "fast")


def crop_text(box: Box) -> str:
    return f"{box.left},{box.top},{box.shape[1]},{box.shape[0]}"


def results(source: Path, box: Box, *options: Any) -> tuple[list[Any], list[Any]]:
    """The pages (colours, alpha) of the result of a part, and the part of the pages of the whole result."""
    folder = source.parent
    whole, part = folder / f"whole{source.suffix}", folder / f"part{source.suffix}"
    assert run("denoise", source, "-o", whole, *options).code == 0
    done = run("denoise", source, "-o", part, "--crop", crop_text(box), *options)
    assert (done.code, done.sentences) == (0, [])
    read, wanted = read_picture(part), read_picture(whole)
    places = range(len(wanted.specs))
    return [read.page(i) for i in places], [wanted.window(i, box.rows, box.columns) for i in places]


def assert_same(read: list[Any], wanted: list[Any]) -> None:
    assert len(read) == len(wanted) > 0
    for page, other in zip(read, wanted, strict=True):
        for values, expected in zip(page, other, strict=True):
            np.testing.assert_array_equal(values, expected)
            assert values is None or values.dtype == expected.dtype


@pytest.mark.parametrize("options", QUALITIES, ids=lambda options: options[1])
@pytest.mark.parametrize("kind", ["grey", "colour", "alpha", "deep", "pages"])
def test_the_part_is_that_of_the_whole(kind: str, options: tuple[Any, ...], tmp_path: Path) -> None:
    box = Box(11, 37, 42, 90)
    source = tmp_path / ("noisy.tif" if kind in ("deep", "pages") else "noisy.png")
    if kind == "pages":
        tifffile.imwrite(source, np.stack([scene((60, 120), seed=seed) for seed in (1, 2)]), photometric="minisblack")
    elif kind == "deep":
        tifffile.imwrite(source, scene((60, 120, 3)) * np.uint16(257), tile=(16, 32), compression="zlib")
    else:
        pixels = scene((60, 120) if kind == "grey" else (60, 120, 3))
        alpha = np.arange(60 * 120).reshape(60, 120, 1).astype(np.uint8)
        iio.imwrite(source, np.concatenate((pixels, alpha), axis=2) if kind == "alpha" else pixels)
    assert_same(*results(source, box, *options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pixels]:
    """A noisy picture and its result."""
    source = tmp_path_factory.mktemp("crops") / "noisy.png"
    iio.imwrite(source, scene((70, 90)))
    assert run("denoise", source, *FAST, "-o", source.with_name("whole.png")).code == 0
    return source, iio.imread(source.with_name("whole.png"))


@settings(max_examples=15)
@given(st.data())
def test_any_part_is_that_of_the_whole(whole: tuple[Path, Pixels], data: st.DataObject) -> None:
    source, result = whole
    top, left = data.draw(st.integers(0, 69)), data.draw(st.integers(0, 89))
    box = Box(top, left, data.draw(st.integers(top + 1, 70)), data.draw(st.integers(left + 1, 90)))
    part = source.with_name("part.png")
    assert run("denoise", source, *FAST, "-f", "-o", part, "--crop", crop_text(box)).code == 0
    np.testing.assert_array_equal(iio.imread(part).reshape(box.shape), result[box.rows, box.columns])


@pytest.mark.parametrize("quality", ["fast", pytest.param("best", marks=pytest.mark.slow)])
def test_a_part_of_a_large_picture_takes_a_window_of_it(quality: str) -> None:
    pixels = scene((200, 2600)) if quality == "fast" else scene((100, 7000))
    request, source, box = Request.named(quality), ArraySource(pixels), Box(20, 30, 60, 90)
    plan = survey(source, 20.0, request)
    window = plan.window(box)
    assert window.shape[1] < pixels.shape[1]
    elsewhere = pixels.copy()
    elsewhere[:, window.right :] = 0  # it is not looked at
    part = np.concatenate([rows for _, rows in denoised_rows(ArraySource(elsewhere), plan, part=box)])
    np.testing.assert_array_equal(part, denoise_pixels(pixels, 20.0, request).pixels[box.rows, box.columns])


def test_coarse_noise_takes_a_wide_window_and_few_fine_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coarse scale looks far; the tiles of the fine scale are computed near the part only."""
    pixels = scene((300, 2600))
    noise = SpectralNoise((SpectralChannel((0.09, 0.5), (20.0, 8.0), 3.0),))
    plan = survey(ArraySource(pixels), noise, Request.named("fast"))
    seen: list[tuple[tuple[int, int], Box]] = []

    def noted(planes: Any, *more: Any) -> Any:
        seen.append((planes[0].shape, planes[0].box))
        return passes.patch_average(planes, *more)

    monkeypatch.setattr(sliding, "patch_average", noted)
    box = Box(100, 40, 120, 60)
    part = np.concatenate([rows for _, rows in denoised_rows(ArraySource(pixels), plan, part=box)])
    fine = [used for shape, used in seen if shape == pixels.shape]
    assert len(seen) > len(fine) == 2
    assert max(used.shape[1] for used in fine) < plan.window(box).shape[1]
    whole = np.concatenate([rows for _, rows in denoised_rows(ArraySource(pixels), plan)])
    np.testing.assert_array_equal(part, whole[box.rows, box.columns])


def test_a_folder_with_residual_and_comparison(tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    for seed in (1, 2):
        iio.imwrite(inputs / f"{seed}.png", scene((40, 60), seed=seed))
    made = {}
    for name, more in (("whole", ()), ("part", ("--crop", "10,5,30,20", "--jobs", 2))):
        made[name] = tmp_path / name
        extras = ("--residual", made[name] / "r", "--compare", made[name] / "c")
        assert run("denoise", inputs, "-o", made[name] / "o", *extras, *FAST, *more).code == 0
    for seed in (1, 2):
        for place in (f"o/{seed}.png", f"r/{seed}_residual.png"):
            part, result = (iio.imread(made[name] / place) for name in ("part", "whole"))
            np.testing.assert_array_equal(part, result[5:25, 10:40])
        compared = iio.imread(made["part"] / f"c/{seed}_compare.png")
        whole_row = np.split(iio.imread(made["whole"] / f"c/{seed}_compare.png"), 3, axis=1)
        np.testing.assert_array_equal(compared, np.concatenate([third[5:25, 10:40] for third in whole_row], axis=1))
    again = run("denoise", inputs, "-o", made["part"] / "o", *FAST, "--crop", "10,5,30,20", "--resume")
    assert "2 done before" in again.text


def test_a_picture_without_noise_gives_its_cropped_pixels(tmp_path: Path) -> None:
    source, part = tmp_path / "flat.png", tmp_path / "part.png"
    pixels = np.full((64, 64), 90, np.uint8)
    iio.imwrite(source, pixels)
    done = run("denoise", source, "-o", part, "--crop", "3,4,20,10", "--json")
    assert done.report["files"][0]["unchanged"] is True
    assert (done.report["files"][0]["width"], done.report["files"][0]["height"]) == (20, 10)
    assert done.report["settings"]["crop"] == "3,4,20,10"
    np.testing.assert_array_equal(iio.imread(part), pixels[4:14, 3:23])


def test_a_part_that_a_turned_picture_does_not_hold(tmp_path: Path) -> None:
    """As it is seen it would be held."""
    exif = Image.Exif()
    exif[0x112] = 6
    Image.fromarray(scene((40, 60))).save(tmp_path / "a.jpg", exif=exif)
    done = run("denoise", tmp_path / "a.jpg", "--crop", "0,30,20,20")
    refused(done, 1, "60 x 40 pixels as they are stored, before its EXIF data turn it,")


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "-1,0,5,5", "0,0,0,5", "0,0,5,0", "1.5,0,5,5"])
def test_a_malformed_part_is_a_wrong_usage(text: str, tmp_path: Path) -> None:
    refused(run("denoise", tmp_path / "missing.png", f"--crop={text}"), 2, "--crop takes X,Y,W,H")


def test_a_part_that_is_not_within_is_named_with_the_size(tmp_path: Path) -> None:
    small, large = tmp_path / "a.png", tmp_path / "b.png"
    iio.imwrite(small, scene((40, 50)))
    iio.imwrite(large, scene((80, 90)))
    done = run("denoise", small, large, *FAST, "-o", tmp_path / "out", "--crop", "20,10,31,20", "--sigma", 20)
    assert done.code == 1
    assert done.sentences == [f"{small} has 50 x 40 pixels, which do not hold --crop 20,10,31,20; give a part within."]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["b.png"]


def test_a_page_that_does_not_hold_the_part_is_named(tmp_path: Path) -> None:
    source = tmp_path / "pages.tif"
    with tifffile.TiffWriter(source) as writer:
        writer.write(scene((60, 60)))
        writer.write(scene((30, 60)))
    done = run("denoise", source, *FAST, "--crop", "0,10,40,40")
    refused(done, 1, f"Page 2 of {source} has 60 x 30 pixels")
    assert list(tmp_path.iterdir()) == [source]


def test_structures_of_a_tiff_file_fit_the_part(tmp_path: Path) -> None:
    source, part = tmp_path / "in.tif", tmp_path / "part.tif"
    tie = (0.0, 0.0, 0.0, 500.0, 900.0, 0.0)
    pixels = np.stack([scene((64, 96), seed=seed) for seed in range(3)])
    tifffile.imwrite(
        source,
        pixels,
        rowsperstrip=48,
        resolution=(300, 300),
        photometric="minisblack",
        metadata={"axes": "ZYX"},
        extratags=[(33922, 12, 6, tie)],
    )
    assert run("denoise", source, *FAST, "-o", part, "--crop", "16,8,50,30").code == 0
    with tifffile.TiffFile(part) as file:
        assert file.series[0].shape == (3, 30, 50)
        assert file.series[0].axes == "ZYX"
        assert file.pages[0].tags[33922].value == (-16.0, -8.0, 0.0, 500.0, 900.0, 0.0)
        assert file.pages[0].tags["XResolution"].value == (300, 1)
        assert file.pages[0].tags["RowsPerStrip"].value <= 30


def test_ome_sizes_fit_the_part(tmp_path: Path) -> None:
    source, part = tmp_path / "in.ome.tif", tmp_path / "part.ome.tif"
    tifffile.imwrite(source, np.stack([scene((64, 96), seed=seed) for seed in range(2)]), metadata={"axes": "ZYX"})
    assert run("denoise", source, *FAST, "-o", part, "--crop", "16,8,50,30").code == 0
    with tifffile.TiffFile(part) as file:
        assert file.is_ome
        assert file.series[0].shape == (2, 30, 50)


def exif_with_small_copy() -> tuple[bytes, bytes]:
    """An EXIF block of 96 x 64 pixels with a small copy, and the bytes of that copy."""
    stream = io.BytesIO()
    Image.fromarray(scene((16, 24))).save(stream, "JPEG")
    copy = stream.getvalue()
    main = struct.pack("<HHHIIHHIII", 2, 0x0112, 3, 1, 6, 0x8769, 4, 1, 38, 68)
    child = struct.pack("<HHHIIHHIII", 2, 0xA002, 3, 1, 96, 0xA003, 4, 1, 64, 0)
    second = struct.pack("<HHHIIHHIII", 2, 513, 4, 1, 98, 514, 4, 1, len(copy), 0)
    block = b"II*\x00\x08\x00\x00\x00" + main + child + second
    return block + copy, copy


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_exif_data_tell_the_size_of_the_part_and_show_nothing_else(suffix: str, tmp_path: Path) -> None:
    source, part = tmp_path / f"in{suffix}", tmp_path / f"part{suffix}"
    block, copy = exif_with_small_copy()
    ways: dict[str, dict[str, Any]] = {".jpg": {"quality": 95}, ".webp": {"lossless": True}}
    prefix = b"" if suffix == ".png" else b"Exif\x00\x00"
    Image.fromarray(scene((64, 96, 3))).save(source, exif=prefix + block, dpi=(300, 300), **ways.get(suffix, {}))
    assert copy in source.read_bytes()
    assert run("denoise", source, *FAST, "-o", part, "--crop", "16,8,50,30", "--sigma", 20).code == 0
    assert copy not in part.read_bytes()
    assert copy[20:60] not in part.read_bytes()
    with Image.open(part) as made:
        exif = made.getexif()
        assert made.size == (50, 30)
        assert exif[0x0112] == 6
        assert exif.get_ifd(0x8769) == {0xA002: 50, 0xA003: 30}
        assert exif.get_ifd(1) == {}  # IFD1: the small copy


def test_the_real_program(tmp_path: Path) -> None:
    source = tmp_path / "noisy.png"
    iio.imwrite(source, scene((48, 64)))
    assert run("denoise", source, *FAST, "-o", tmp_path / "whole.png").code == 0
    done = run_process("denoise", "-", *FAST, "--crop", "8,4,30,20", "-o", "-", stdin=source.read_bytes())
    assert done.code == 0
    np.testing.assert_array_equal(iio.imread(done.stdout), iio.imread(tmp_path / "whole.png")[4:24, 8:38])
