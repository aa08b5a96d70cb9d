"""The types of scientific cameras through the real program: what goes in comes out, in its own numbers."""

import io
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from running import refused, run, run_process
from skimage import data

from dstl_cli.base.depths import PIXEL_TYPES
from dstl_cli.denoising import pipeline
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.picture.formats.exif import DESCRIPTION

Pixels = NDArray[Any]
FAST = ("--quality", "fast", "--quiet")

# Where the picture lies in the numbers of the type, and how strong its noise is there.
PLACES = {
    "uint8": (100, 5),
    "uint16": (30_000, 2_000),
    "uint32": (4_294_900_000, 300),
    "int8": (-20, 6),
    "int16": (-1_000, 40),
    "int32": (-2_000_000_000, 1_000),
    "float16": (0.5, 0.02),
    "float32": (-3.0, 0.1),
    "float64": (1e9, 20),
}


def clean_and_noisy(dtype: str, shape: tuple[int, ...] = (70, 90)) -> tuple[NDArray[np.float64], Pixels]:
    """Slow waves as strong as four deviations of the noise, and with the noise, in the numbers of a type."""
    middle, sigma = PLACES[dtype]
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    waves = 4 * sigma * np.sin(rows / 9) * np.cos(columns / 11)
    clean = middle + (waves if len(shape) == 2 else waves[..., None] * np.array([1.0, 0.7, 0.4]))
    noisy = add_noise(clean, sigma, seed=3)
    return clean, (np.rint(noisy) if "int" in dtype else noisy).astype(dtype)


def sigma_of(dtype: str) -> float:
    """As --sigma takes it."""
    return PLACES[dtype][1] / {"uint16": 257}.get(dtype, 1)


def error(pixels: Pixels, clean: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean((pixels.astype(np.float64) - clean) ** 2)))


@pytest.mark.parametrize("dtype", PIXEL_TYPES)
@pytest.mark.parametrize("told", [True, False], ids=["given", "estimated"])
def test_arrays_of_every_type(tmp_path: Path, dtype: str, told: bool) -> None:
    clean, noisy = clean_and_noisy(dtype)
    path, result = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(path, noisy.astype(noisy.dtype.newbyteorder(">")))
    sigma = ("--sigma", repr(sigma_of(dtype))) if told else ("--noise", "white")
    done = run("denoise", path, "-o", result, *sigma, "--quality", "fast", "--json")
    assert done.code == 0, done.stderr
    assert done.report["files"][0]["sigma"] == pytest.approx(sigma_of(dtype), rel=1e-9 if told else 0.2)
    denoised = np.load(result)
    assert denoised.dtype == np.dtype(dtype).newbyteorder(">")
    assert error(denoised, clean) < 0.5 * error(noisy, clean)


@pytest.mark.parametrize("dtype", PIXEL_TYPES)
@pytest.mark.parametrize("order", "<>")
def test_tiff_of_every_type(tmp_path: Path, dtype: str, order: Any) -> None:
    """Strips and tiles, plain and compressed, grey and colour: the type, the layout and nearly the clean picture."""
    for tile, compression, shape in product((None, (32, 48)), (None, "zlib"), ((70, 90), (70, 90, 3))):
        clean, noisy = clean_and_noisy(dtype, shape)
        path, result = tmp_path / "a.tif", tmp_path / "b.tif"
        colours: Any = "rgb" if len(shape) == 3 else "minisblack"
        options: dict[str, Any] = {"byteorder": order, "tile": tile, "photometric": colours, "compression": compression}
        if compression:
            options["predictor"] = True
        tifffile.imwrite(path, noisy, **options)
        done = run("denoise", path, "-o", result, "--sigma", repr(sigma_of(dtype)), "--force", *FAST)
        assert (done.code, done.stderr) == (0, "")
        with tifffile.TiffFile(result) as file:
            page = file.pages[0]
            assert (file.byteorder, page.is_tiled, page.dtype) == (order, tile is not None, np.dtype(dtype))
            denoised = page.asarray()
        assert error(denoised, clean) < 0.5 * error(noisy, clean), (tile, compression, shape)


@pytest.mark.parametrize("dtype", PIXEL_TYPES)
def test_sigma_zero_gives_the_numbers_back(tmp_path: Path, dtype: str) -> None:
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if "int" in dtype else (-65_504, 65_504)
    pixels = np.full((20, 30), low, dtype)
    pixels[::2] = high
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    assert run("denoise", tmp_path / "a.tif", "-o", tmp_path / "b.npy", "--sigma", 0, "--quiet").code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), pixels)
    assert np.load(tmp_path / "b.npy").dtype == pixels.dtype


def test_large_whole_numbers_keep_their_last_digits(tmp_path: Path) -> None:
    """A weak signal high up in 32 bits, where single precision has steps of 256, is denoised as well as it is at 0."""
    rows, columns = np.mgrid[:80, :80]
    clean, top = 20 * np.sin(rows / 9) * np.cos(columns / 8), 4_294_967_000
    low = np.rint(add_noise(clean, 5.0, seed=1)).astype(np.int32)
    np.save(tmp_path / "low.npy", low)
    np.save(tmp_path / "high.npy", (low.astype(np.int64) + top).astype(np.uint32))
    assert run("denoise", tmp_path, "-o", tmp_path / "out", "--sigma", 5, *FAST).code == 0
    before, after = (np.load(tmp_path / "out" / f"{name}.npy").astype(np.int64) for name in ("low", "high"))
    assert error(after - top, clean) < 1.15 * error(before, clean) < 0.4 * error(low, clean)


def test_half_precision_does_not_overflow(tmp_path: Path) -> None:
    noisy = np.clip(add_noise(np.full((64, 64), 65_000.0), 2_000.0, seed=0), -65_504, 65_504).astype(np.float16)
    np.save(tmp_path / "a.npy", noisy)
    for quality in ("fast", "standard", "best"):
        out = tmp_path / f"{quality}.npy"
        done = run("denoise", tmp_path / "a.npy", "-o", out, "--sigma", 2_000, "--quality", quality, "--quiet")
        assert done.code == 0, done.stderr
        assert np.isfinite(np.load(out)).all()
        residual = run("denoise", tmp_path / "a.npy", "-o", out, "--residual", tmp_path / "r.npy", "--force", *FAST)
        assert residual.code == 0


def test_residuals_are_around_zero_or_the_middle(tmp_path: Path) -> None:
    for dtype, middle in (("int16", 0), ("uint32", 2**31), ("uint16", 128 * 257), ("float16", 0)):
        _, noisy = clean_and_noisy(dtype)
        np.save(tmp_path / "a.npy", noisy)
        results = ("-o", tmp_path / "b.npy", "--residual", tmp_path / "r.npy")
        assert run("denoise", tmp_path / "a.npy", *results, "--sigma", sigma_of(dtype), "--force", *FAST).code == 0
        residual, denoised = (np.load(tmp_path / name).astype(np.float64) for name in ("r.npy", "b.npy"))
        expected = noisy.astype(np.float64) - denoised + middle
        np.testing.assert_allclose(residual, expected, atol=0 if "int" in dtype else 1e-4)


def test_formats_without_the_type_say_so(tmp_path: Path) -> None:
    for dtype, words in (("int16", "16-bit signed whole-number"), ("uint32", "32-bit whole-number")):
        np.save(tmp_path / "a.npy", np.zeros((20, 20), dtype))
        refused(
            run("denoise", tmp_path / "a.npy", "-o", tmp_path / "b.png", *FAST), 1, words, "PNG holds 8-bit", ".tiff"
        )


# Packed samples


def packed(pixels: Pixels, bits: int) -> bytes:
    """Rows of samples of so many bits, highest bit first, each row filled up to a byte."""
    rows = pixels.reshape(len(pixels), -1)
    digits = (rows[:, :, None] >> np.arange(bits)[::-1]) & 1
    return np.packbits(digits.reshape(len(rows), -1).astype(np.uint8), axis=1).tobytes()


def packed_tiff(pixels: Pixels, bits: int, order: str, *, white_is_zero: bool = False, rows: int = 16) -> bytes:
    """A TIFF file of packed samples, in strips, made by hand: tifffile writes only one byte order right."""
    height, width = pixels.shape[:2]
    samples = 1 if pixels.ndim == 2 else 3
    mark: Literal["little", "big"] = "little" if order == "<" else "big"
    strips = [packed(pixels[top : top + rows], bits) for top in range(0, height, rows)]
    colours = 2 if samples == 3 else 0 if white_is_zero else 1
    tags: dict[int, tuple[int, list[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * samples),
        259: (3, [1]),
        262: (3, [colours]),
        273: (4, [0] * len(strips)),
        277: (3, [samples]),
        278: (4, [rows]),
        279: (4, list(map(len, strips))),
    }
    where = 8 + 2 + 12 * len(tags) + 4
    size = {3: 2, 4: 4}
    lengths = {tag: size[kind] * len(values) for tag, (kind, values) in tags.items()}
    start = where + sum(length for length in lengths.values() if length > 4)
    tags[273] = 4, [start + sum(map(len, strips[:number])) for number in range(len(strips))]
    entries, beyond = io.BytesIO(), io.BytesIO()
    for tag, (kind, values) in tags.items():
        data = b"".join(value.to_bytes(size[kind], mark) for value in values)
        entries.write(tag.to_bytes(2, mark) + kind.to_bytes(2, mark) + len(values).to_bytes(4, mark))
        if len(data) > 4:
            entries.write((where + beyond.tell()).to_bytes(4, mark))
            beyond.write(data)
        else:
            entries.write(data.ljust(4, b"\0"))
    head = (b"II" if order == "<" else b"MM") + (42).to_bytes(2, mark) + (8).to_bytes(4, mark)
    listed = len(tags).to_bytes(2, mark) + entries.getvalue() + bytes(4)
    return head + listed + beyond.getvalue() + b"".join(strips)


def camera(bits: int, shape: tuple[int, ...], sigma: float = 10.0) -> tuple[NDArray[np.float64], Pixels]:
    """Waves with noise of a deviation on the 0-255 scale, in so many bits."""
    white = 2**bits - 1
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    waves = 0.5 + 0.25 * np.sin(rows / 9) * np.cos(columns / 11)
    clean = white * (waves if len(shape) == 2 else waves[..., None] * np.array([1.0, 0.9, 0.8]))
    return clean, np.clip(np.rint(add_noise(clean, sigma * white / 255, seed=3)), 0, white).astype(np.uint16)


@pytest.mark.parametrize("bits", [10, 12, 14])
@pytest.mark.parametrize("order", "<>")
def test_packed_tiff_stays_packed(tmp_path: Path, bits: int, order: str) -> None:
    for shape, white_is_zero in (((70, 91), False), ((70, 91, 3), False), ((70, 90), True)):
        clean, noisy = camera(bits, shape)
        stored = (2**bits - 1) - noisy if white_is_zero else noisy
        (tmp_path / "a.tif").write_bytes(packed_tiff(stored, bits, order, white_is_zero=white_is_zero))
        done = run("denoise", tmp_path / "a.tif", "-o", tmp_path / "b.tif", "--force", "--json", *FAST[:2])
        assert done.code == 0, done.stderr
        assert done.report["files"][0]["sigma"] == pytest.approx(10, rel=0.15)
        assert done.report["files"][0]["warnings"] == []
        with tifffile.TiffFile(tmp_path / "b.tif") as file:
            page = file.pages[0]
            assert (page.bitspersample, file.byteorder) == (bits, order)
            denoised = page.asarray()
        shown = (2**bits - 1) - denoised.astype(np.int64) if white_is_zero else denoised
        assert error(shown, clean) < 0.5 * error(noisy, clean), (shape, white_is_zero)


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_packed_tiff_comes_back_to_the_bit(tmp_path: Path, bits: int) -> None:
    """With nothing to remove and a part to write, the whole: strips by hand, and tiles as tifffile makes them."""
    pixels = np.random.default_rng(1).integers(0, 2**bits, (45, 53), np.uint16)
    pixels[0, :2] = 0, 2**bits - 1
    (tmp_path / "strips.tif").write_bytes(packed_tiff(pixels, bits, ">"))
    tifffile.imwrite(tmp_path / "tiles.tif", pixels, bitspersample=bits, tile=(16, 32))
    for name in ("strips", "tiles"):
        path, out = tmp_path / f"{name}.tif", tmp_path / f"{name}_out.tif"
        assert run("denoise", path, "-o", out, "--sigma", 0, "--crop", "0,0,53,45", "--quiet").code == 0
        np.testing.assert_array_equal(tifffile.imread(out), pixels)
        with tifffile.TiffFile(path) as before, tifffile.TiffFile(out) as after:
            first, second = before.pages[0], after.pages[0]
            assert first.databytecounts == second.databytecounts
            assert (first.is_tiled, first.bitspersample) == (second.is_tiled, second.bitspersample)


def test_packed_numbers_stay_as_they_are_in_other_formats(tmp_path: Path) -> None:
    _, noisy = camera(12, (64, 64))
    (tmp_path / "a.tif").write_bytes(packed_tiff(noisy, 12, "<"))
    out = tmp_path / "b.npy"
    done = run_process("denoise", tmp_path / "a.tif", "-o", out, "--sigma", 0)
    assert done.code == 0
    assert any("has no 12-bit pixels; the numbers stay as they are, white is 4095" in line for line in done.sentences)
    np.testing.assert_array_equal(np.load(out), noisy)
    derived = ("--residual", tmp_path / "r.tif", "--compare", tmp_path / "c.png")
    assert run("denoise", tmp_path / "a.tif", "-o", tmp_path / "b.tif", "--sigma", 10, *derived, *FAST).code == 0
    denoised, residual = (tifffile.imread(tmp_path / name).astype(np.int64) for name in ("b.tif", "r.tif"))
    assert np.abs(residual - (noisy.astype(np.int64) - denoised + round(128 * 4095 / 255))).max() <= 1


def test_packed_pictures_are_inspected_and_measured_on_their_own_scale(tmp_path: Path) -> None:
    clean, noisy = camera(12, (96, 96))
    exact = np.rint(clean).astype(np.uint16)
    (tmp_path / "noisy.tif").write_bytes(packed_tiff(noisy, 12, "<"))
    (tmp_path / "clean.tif").write_bytes(packed_tiff(exact, 12, ">"))
    report = run("inspect", tmp_path / "noisy.tif", "--json").report
    assert (report["image"]["bits"], report["image"]["dtype"]) == (12, "uint16")
    assert report["sigma"] == pytest.approx(10, rel=0.15)
    assert "12 bit, whole numbers" in run("inspect", tmp_path / "noisy.tif").text
    done = run("evaluate", tmp_path / "clean.tif", tmp_path / "noisy.tif", "--json")
    assert done.code == 0, done.stderr
    expected = 10 * np.log10(4095**2 / np.mean((noisy - exact.astype(np.float64)) ** 2))
    assert done.report["rows"][0]["psnr"] == pytest.approx(expected, rel=1e-6)


def test_the_description_is_kept_with_signed_numbers(tmp_path: Path) -> None:
    _, noisy = clean_and_noisy("int16")
    tifffile.imwrite(tmp_path / "a.tif", noisy, description="stage 7")
    assert run("denoise", tmp_path / "a.tif", "-o", tmp_path / "b.tif", "--sigma", 40, *FAST).code == 0
    with tifffile.TiffFile(tmp_path / "b.tif") as file:
        assert file.pages[0].tags[DESCRIPTION].value == "stage 7"
        assert file.pages[0].tags["SampleFormat"].value == 2


# Pixels that are no numbers


def with_holes(dtype: str, shape: tuple[int, ...] = (70, 90)) -> tuple[NDArray[np.float64], Pixels, NDArray[np.bool_]]:
    clean, noisy = clean_and_noisy(dtype, shape)
    mask = np.random.default_rng(8).random(shape[:2]) < 0.03
    mask[20:40, 50:] = True
    noisy[mask] = np.random.default_rng(9).choice((np.nan, np.inf, -np.inf), noisy[mask].shape)
    return clean, noisy, mask


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(70, 90), (70, 90, 3)])
def test_pixels_that_are_no_numbers_are_kept(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    clean, noisy, mask = with_holes(dtype, shape)
    np.save(tmp_path / "a.npy", noisy)
    colours: Any = "rgb" if len(shape) == 3 else "minisblack"
    tifffile.imwrite(tmp_path / "a.tif", noisy, byteorder=">", tile=(32, 32), photometric=colours)
    for name, load in (("a.npy", np.load), ("a.tif", tifffile.imread)):
        refused(run("denoise", tmp_path / name, *FAST), 1, "NaN or infinite", "--nan keep")
        kept = ("--nan", "keep", "--residual", tmp_path / f"r{name}", "--compare", tmp_path / f"c{name}")
        done = run("denoise", tmp_path / name, "-o", tmp_path / f"b{name}", *kept, *FAST)
        assert done.code == 0, done.stderr
        result, residual, compare = (load(tmp_path / f"{key}{name}") for key in "brc")
        assert result.dtype == noisy.dtype
        assert result[mask].tobytes() == residual[mask].tobytes() == noisy[mask].tobytes()
        assert np.isfinite(result[~mask]).all()
        assert error(result[~mask], clean[~mask]) < 0.5 * error(noisy[~mask], clean[~mask])
        expected = noisy[~mask].astype(np.float64) - result[~mask].astype(np.float64)
        np.testing.assert_array_equal(residual[~mask], expected.astype(dtype))
        assert compare.tobytes() == np.concatenate((noisy, result, residual), axis=1).tobytes()


def test_large_files_with_holes_are_read_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips and windows of a file give the bytes of the whole in memory."""
    _, noisy, _ = with_holes("float32", (700, 160))
    noisy[300:420] = np.nan
    np.save(tmp_path / "a.npy", noisy)
    tifffile.imwrite(tmp_path / "a.tif", noisy, tile=(32, 32))
    options = ("--sigma", 0.1, "--nan", "keep", *FAST)
    assert run("denoise", tmp_path / "a.npy", "-o", tmp_path / "whole.npy", *options).code == 0
    monkeypatch.setattr(pipeline, "STRIP_PIXELS", 20_000)
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 1e9)
    assert run("denoise", tmp_path / "a.tif", "-o", tmp_path / "b.tif", *options).code == 0
    assert run("denoise", tmp_path / "a.npy", "-o", tmp_path / "b.npy", *options).code == 0
    whole = np.load(tmp_path / "whole.npy").tobytes()
    assert np.load(tmp_path / "b.npy").tobytes() == tifffile.imread(tmp_path / "b.tif").tobytes() == whole


def test_wrong_words_for_nan_and_pictures_without_a_number(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((20, 20), np.nan))
    refused(run("denoise", tmp_path / "a.npy", "--nan", "drop"), 2, "--nan takes refuse or keep, not 'drop'")
    refused(run("denoise", tmp_path / "a.npy", "--nan", "keep", *FAST), 1, "no pixel that is a finite number")
    assert not (tmp_path / "a_denoised.npy").exists()


@pytest.mark.parametrize("dtype", ["uint32", "float32", "uint16"])
def test_the_noise_is_told_in_the_units_of_sigma(tmp_path: Path, dtype: str) -> None:
    """Photons: what is said has the number that the JSON has."""
    photons = np.random.default_rng(0).poisson(data.camera()[::2, ::2] / 4.0)
    np.save(tmp_path / "photons.npy", (100 * photons).astype(dtype))
    arguments = ("denoise", tmp_path / "photons.npy", "--quality", "fast", "--noise", "poisson", "--force")
    told = float(run(*arguments).text.partition("about like white noise of ")[2].split()[0])
    (record,) = run(*arguments, "--json").report["files"]
    assert record["noise"] == "spectral"
    assert told == pytest.approx(record["sigma"], rel=0.06)  # two digits
