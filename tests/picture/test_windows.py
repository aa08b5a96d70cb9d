"""Parts of pages: any window is what the whole page has there, and rows in any pieces make the same file."""

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from dstl_cli.errors import FileProblem
from dstl_cli.picture import blocks, model
from dstl_cli.picture import source as sources
from dstl_cli.picture.decoding import asking
from dstl_cli.picture.formats import tiff_pixels
from dstl_cli.picture.model import Page, cut
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import open_writer, write_picture

KINDS = ("grey", "white", "rgb", "alpha", "grey alpha", "channels", "palette", "bilevel", "jpeg", "planes")


def noise(shape: tuple[int, ...], dtype: Any = np.uint8, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.normal(100, 50, shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def tiff(values: np.ndarray[Any, Any], *, big: bool = False, order: Any = "<", **options: Any) -> bytes:
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream, bigtiff=big, byteorder=order) as writer:
        writer.write(values, **options)
    return stream.getvalue()


@st.composite
def tiff_files(draw: st.DrawFn) -> bytes:
    """TIFF files of every layout: strips and tiles, planes of samples, compressions, predictors, kinds of colours."""
    size = draw(st.integers(1, 45)), draw(st.integers(1, 45))
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from(["uint8", "uint16", "float32", "float64"]))
    options: dict[str, Any] = {"big": draw(st.booleans()), "order": draw(st.sampled_from("<>"))}
    if kind == "planes":
        return tiff(noise((3, *size), dtype), photometric="minisblack", truncate=True, **options)
    tiles = st.tuples(st.sampled_from([16, 32]), st.sampled_from([16, 32]))
    segments = draw(st.one_of(tiles, st.integers(1, 50), st.none()))
    options |= {"tile": segments} if isinstance(segments, tuple) else {"rowsperstrip": segments}
    if kind == "bilevel":
        return tiff(noise(size) < 99, photometric="minisblack", **options)
    if kind == "jpeg":
        return tiff(noise((*size, 3)), photometric="rgb", compression="jpeg", **options)
    options["compression"] = draw(st.sampled_from([None, "zlib", "lzw", "packbits", "zstd"]))
    if options["compression"] not in (None, "packbits") and draw(st.booleans()) and kind != "palette":
        options["predictor"] = 3 if dtype.startswith("float") else 2
    if kind == "palette":
        return tiff(noise(size), photometric="palette", colormap=noise((3, 256), np.uint16), **options)
    samples = {"rgb": 3, "alpha": 4, "grey alpha": 2, "channels": 5}.get(kind, 1)
    if samples == 1:
        return tiff(noise(size, dtype), photometric="miniswhite" if kind == "white" else "minisblack", **options)
    separate = draw(st.booleans())
    values = noise((samples, *size) if separate else (*size, samples), dtype)
    options["extrasamples"] = {"alpha": [2], "grey alpha": [2], "channels": [0] * 4}.get(kind)
    return tiff(
        values,
        photometric="rgb" if kind in ("rgb", "alpha") else "minisblack",
        planarconfig="separate" if separate else "contig",
        **options,
    )


@st.composite
def npy_files(draw: st.DrawFn) -> bytes:
    """Arrays of every shape, type, byte order and layout."""
    shape = (draw(st.integers(1, 45)), draw(st.integers(1, 45)), *draw(st.sampled_from([(), (1,), (3,), (4,)])))
    dtype = np.dtype(draw(st.sampled_from(["|b1", "|u1", "<u2", ">u2", "<f4", ">f8"])))
    values = noise(shape) < 99 if dtype.kind == "b" else noise(shape, dtype.newbyteorder("=")).astype(dtype)
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(values) if draw(st.booleans()) else values)
    return stream.getvalue()


def other_file(name: str) -> bytes:
    stream = io.BytesIO()
    write_picture(model.picture_from_array(noise((23, 31, 3))), stream, format=name)
    return stream.getvalue()


FILES = st.one_of(tiff_files(), npy_files(), st.sampled_from(["png", "bmp", "netpbm", "jpeg"]).map(other_file))


def equal(part: Page, expected: Page) -> None:
    for mine, other in zip(part, expected, strict=True):
        if mine is None or other is None:
            assert mine is other
        else:
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)


def some_slice(draw: st.DrawFn, length: int) -> slice:
    start = draw(st.integers(0, length - 1))
    return slice(start, draw(st.integers(start + 1, length)))


@given(FILES, st.data())
def test_a_window_is_what_the_page_has_there(file: bytes, data: st.DataObject) -> None:
    whole, windows = read_picture(file), read_picture(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "RECENT_BYTES", data.draw(st.sampled_from([0, 1000, 2**20])))
        for _ in range(4):
            index = data.draw(st.integers(0, len(whole.specs) - 1))
            spec = whole.specs[index]
            rows, columns = (data.draw(st.composite(some_slice)(side)) for side in (spec.height, spec.width))
            equal(windows.window(index, rows, columns), cut(whole.page(index), rows, columns))


@given(FILES, st.data())
def test_rows_in_any_pieces_make_the_same_file(file: bytes, data: st.DataObject) -> None:
    picture, whole, pieces = read_picture(file), io.BytesIO(), io.BytesIO()
    write_picture(picture, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "PIECE_BYTES", data.draw(st.sampled_from([1, 100, 2**22])))
        with open_writer(picture, pieces) as writer:
            for index, spec in enumerate(picture.specs):
                top = 0
                while top < spec.height:
                    bottom = min(spec.height, top + data.draw(st.integers(1, 20)))
                    writer.add_rows(*cut(picture.page(index), slice(top, bottom)))
                    top = bottom
    assert pieces.getvalue() == whole.getvalue()


def test_rows_are_those_of_the_page_and_no_others() -> None:
    picture = read_picture(tiff(noise((30, 20)), rowsperstrip=7, compression="zlib"))
    page = picture.pages[0]
    with open_writer(picture, io.BytesIO()) as writer:
        writer.add_rows(page[:20])
        for wrong in (page, page[:0], page[:11], page[20:, :5], page[20:].astype(np.uint16), page[20:, :, None]):
            with pytest.raises(ValueError, match="Page 1"):
                writer.add_rows(wrong)
        with pytest.raises(ValueError, match="Page 1"):
            writer.add_rows(page[20:], page[20:])
        with pytest.raises(ValueError, match="Page 1"):
            writer.add(page)
        with pytest.raises(ValueError, match="1 pages, not 0"):
            writer.close()
        writer.add_rows(page[20:])
        with pytest.raises(ValueError, match="Page 2"):
            writer.add_rows(page)


def test_a_window_reads_the_segments_that_it_touches_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is damaged elsewhere does no harm, and windows that overlap do not decode anything twice."""
    data = bytearray(tiff(noise((160, 64)), tile=(16, 16), compression="zlib"))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as file:
        page = file.pages[0]
        start, count = page.dataoffsets[22], page.databytecounts[22]  # rows 80 to 96, columns 32 to 48
    data[start : start + count] = bytes(count)
    picture = read_picture(bytes(data), name="x.tif")
    decoded: list[int] = []
    decode = asking.decoded

    def counted(*arguments: Any, blocks: list[list[int]], **facts: Any) -> Any:
        decoded.extend(number for _, _, number, *_ in blocks)
        return decode(*arguments, blocks=blocks, **facts)

    monkeypatch.setattr(tiff_pixels, "decoded", counted)
    for top in range(0, 60, 10):
        np.testing.assert_array_equal(
            picture.window(0, slice(top, top + 30), slice(None))[0], noise((160, 64))[top : top + 30]
        )
    assert sorted(decoded) == list(range(20))
    np.testing.assert_array_equal(picture.window(0, slice(85, 90), slice(0, 32))[0], noise((160, 64))[85:90, :32])
    with pytest.raises(
        FileProblem, match=r"^x\.tif is damaged \(its pixels do not decode\); copy or export it again\.$"
    ):
        picture.window(0, slice(0, 81), slice(20, 40))


def test_a_stack_is_never_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(tiff(noise((5, 20, 20)), photometric="minisblack", compression="zlib"))
    picture = read_picture(path)
    streams: list[BinaryIO] = []
    opened = sources.Source.open

    def recorded(source: sources.Source) -> BinaryIO:
        streams.append(opened(source))
        return streams[-1]

    monkeypatch.setattr(sources.Source, "open", recorded)
    np.testing.assert_array_equal(np.stack(list(picture.pages)), noise((5, 20, 20)))
    picture.window(0, slice(3, 5), slice(2, 4))
    assert [stream.closed for stream in streams] == [True] * 6


@pytest.mark.parametrize("kind", ["tiles", "raw", "npy"])
def test_values_that_are_no_numbers_are_counted_on_the_whole_page(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_BLOCK", 200)
    values = noise((40, 30), np.float32)
    values[5, 5] = values[39, :] = np.nan
    stream = io.BytesIO()
    np.save(stream, values)
    data = {"tiles": tiff(values, tile=(16, 16), compression="zlib"), "raw": tiff(values), "npy": stream.getvalue()}[
        kind
    ]
    picture = read_picture(data, name="x")
    picture.window(0, slice(10, 30), slice(None))
    with pytest.raises(
        FileProblem,
        match=r"^x has 31 values that are NaN or infinite; replace them, or keep them with denoise --nan keep\.$",
    ):
        picture.window(0, slice(0, 10), slice(3, 8))


@pytest.mark.parametrize("name", ["x.tif", "x.npy"])
def test_narrow_windows_of_long_rows_are_read_by_themselves(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = noise((20, 3000, 3), np.uint16)
    np.save(tmp_path / "x.npy", values)
    tifffile.imwrite(tmp_path / "x.tif", values, photometric="rgb")
    monkeypatch.setattr(sources, "NARROW_BYTES", 1000)
    monkeypatch.setattr(np, "fromfile", None)
    colour, _ = read_picture(tmp_path / name).window(0, slice(4, 17), slice(100, 140))
    np.testing.assert_array_equal(colour, values[4:17, 100:140])
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-9])
    with pytest.raises(FileProblem, match="is truncated"):
        read_picture(tmp_path / name).window(0, slice(4, 20), slice(2900, 3000))
