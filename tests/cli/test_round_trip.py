"""Nothing is lost: every format, depth and channel layout goes through `dstl denoise` and comes out as it went in.

Files are made and read back without dstl; the pixels must be those that `dstl_cli.denoising` gives for the array.
"""

import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms
from PIL.JpegImagePlugin import JpegImageFile
from running import Outcome, Pixels, command, environment, refused, run, run_process, scene

from dstl_cli import denoise
from dstl_cli.picture.formats import FORMATS, Format
from dstl_cli.picture.model import PageSpec, Picture
from dstl_cli.picture.source import Source

FAST = ("--method", "dct", "--sigma", "20", "--patch-size", "6")
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
DPI = (300, 300)
ABOUT_DPI = pytest.approx(DPI, abs=0.5)
TYPES = (np.uint8, np.uint16, np.float32, np.float64)

Facts = dict[str, Any]


def exif_block() -> bytes:
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif[0x0112] = 6
    return exif.tobytes()


EXIF = exif_block()


def denoised(pixels: Pixels) -> Pixels:
    """What the options above must give."""
    return np.asarray(denoise(pixels, sigma=20, method="dct", patch_size=6))


def coloured(channels: int, dtype: Any = np.uint8, pages: int = 1) -> Pixels:
    """Noisy pixels over the range of a depth (floats: 0 to 255): (H, W) or (H, W, 3), or a stack of them."""
    shape = (48, 64) if channels == 1 else (48, 64, channels)
    parts = [scene(shape, seed=channels + 10 * page) for page in range(pages)]
    pixels = np.stack(parts) if pages > 1 else parts[0]
    if np.dtype(dtype) == np.uint16:
        low_bits = np.random.default_rng(5).integers(0, 256, pixels.shape)
        return (pixels * np.uint16(256) + low_bits).astype(np.uint16)
    return pixels.astype(dtype)


def transparency(dtype: Any = np.uint8) -> Pixels:
    return np.random.default_rng(9).integers(0, np.iinfo(dtype).max, (48, 64), dtype, endpoint=True)


@dataclass(frozen=True)
class Case:
    """A kind of picture file: how to write it and how to read it back without dstl."""

    name: str
    pixels: Pixels  # the colours of all pages, as they are to be denoised
    write: Callable[[Path], object]
    read: Callable[[Path], Pixels]  # all samples, alpha last
    alpha: Pixels | None = None
    pages: int = 1
    lossy: bool = False
    facts: Callable[[Path], Facts] = field(default=lambda path: {})
    expected: Facts = field(default_factory=dict)  # the facts of the file before and after
    stripped: Facts | None = None  # the facts after --strip; None: all gone

    def samples(self, path: Path) -> tuple[Pixels, Pixels | None]:
        """Colours and alpha of a file."""
        found = self.read(path)
        return (found, None) if self.alpha is None else (found[..., :-1].reshape(self.pixels.shape), found[..., -1])

    def split_pages(self, colours: Pixels) -> list[Pixels]:
        """The pages as (H, W) or (H, W, 3)."""
        shape = colours.shape[-3:] if colours.shape[-1] == 3 else colours.shape[-2:]
        return list(colours.reshape(self.pages, *shape))


# PNG


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def make_png(rows: list[bytes], depth: int, colour: int, palette: bytes = b"") -> bytes:
    """A 64x48 PNG with EXIF, resolution and (if in colour) a profile, made with nothing but zlib."""
    extras = {b"pHYs": struct.pack(">IIB", 11811, 11811, 1), b"eXIf": EXIF.removeprefix(b"Exif\x00\x00")}
    if colour in (2, 3, 6):
        extras[b"iCCP"] = b"profile\x00\x00" + zlib.compress(ICC)
    if palette:
        extras[b"PLTE"] = palette
    pixels = zlib.compress(b"".join(b"\x00" + row for row in rows))
    chunks = {b"IHDR": struct.pack(">IIBBBBB", 64, 48, depth, colour, 0, 0, 0), **extras, b"IDAT": pixels, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*item) for item in chunks.items())


def read_pillow(path: Path) -> Pixels:
    with Image.open(path) as image:
        samples = np.asarray(image if image.mode != "P" else image.convert("RGB"))
    return samples * np.uint8(255) if samples.dtype == bool else samples


def pillow_facts(path: Path) -> Facts:
    with Image.open(path) as image:
        return {
            "icc": image.info.get("icc_profile"),
            "exif": image.getexif().get(0x0112),
            "dpi": image.info.get("dpi"),
        }


def png_facts(icc: bool) -> Facts:
    return {"icc": ICC if icc else None, "exif": 6, "dpi": ABOUT_DPI}


def png_case(name: str, colour: int, dtype: Any) -> Case:
    pixels = coloured(3 if colour in (2, 6) else 1, dtype)
    alpha = transparency(dtype) if colour in (4, 6) else None
    samples = pixels if alpha is None else np.dstack((pixels, alpha))
    rows = [row.astype(f">u{pixels.itemsize}").tobytes() for row in samples]
    depth = 8 * pixels.itemsize

    def read(path: Path) -> Pixels:
        data = path.read_bytes()
        assert data[24:26] == bytes((depth, colour))  # what IHDR says
        return np.asarray(imagecodecs.png_decode(data))

    data = make_png(rows, depth, colour)
    facts = png_facts(colour in (2, 6))
    return Case(
        name, pixels, lambda path: path.write_bytes(data), read, alpha=alpha, facts=pillow_facts, expected=facts
    )


def expanded_png_case(name: str, data: bytes, pixels: Pixels, *, icc: bool) -> Case:
    return Case(
        name,
        pixels,
        lambda path: path.write_bytes(data),
        read_pillow,
        facts=pillow_facts,
        expected=png_facts(icc),
    )


def palette_case() -> Case:
    palette = np.random.default_rng(2).integers(0, 256, (200, 3), np.uint8)
    index = np.random.default_rng(3).integers(0, 200, (48, 64), np.uint8)
    data = make_png([row.tobytes() for row in index], 8, 3, palette.tobytes())
    return expanded_png_case("palette.png", data, palette[index], icc=True)


def bilevel_case() -> Case:
    bits = np.random.default_rng(4).integers(0, 2, (48, 64), np.uint8)
    data = make_png([row.tobytes() for row in np.packbits(bits, axis=1)], 1, 0)
    return expanded_png_case("bilevel.png", data, bits * np.uint8(255), icc=False)


# TIFF


def tiff_facts(path: Path) -> Facts:
    with tifffile.TiffFile(path) as file:
        tags = file.pages.first.tags
        codes = {"icc": 34675, "orientation": 274, "description": 270, "resolution": 282, "compression": 259}
        return {name: tags[code].value if code in tags else None for name, code in codes.items()}


def tiff_case(name: str, pixels: Pixels, alpha: Pixels | None = None, *, compression: str | None = None) -> Case:
    samples = pixels if alpha is None else np.dstack((pixels, alpha))
    colour = pixels.shape[-1] == 3
    extra = [(274, "H", 1, 6, True), *([(34675, "B", len(ICC), ICC, True)] if colour else [])]
    options: dict[str, Any] = {} if alpha is None else {"extrasamples": ["unassalpha"]}

    def write(path: Path) -> None:
        tifffile.imwrite(
            path,
            samples,
            photometric="rgb" if colour else "minisblack",
            compression=compression,
            metadata=None,
            resolution=DPI,
            resolutionunit="INCH",
            description="a picture",
            extratags=extra,
            **options,
        )

    code = {None: 1, "deflate": 32946, "zlib": 8, "lzw": 5}[compression]
    return Case(
        name,
        pixels,
        write,
        lambda path: np.asarray(tifffile.imread(path)),
        alpha=alpha,
        pages=1 if pixels.ndim == (3 if colour else 2) else len(pixels),
        facts=tiff_facts,
        expected={
            "icc": ICC if colour else None,
            "orientation": 6,
            "description": "a picture",
            "resolution": (300, 1),
            "compression": code,
        },
        stripped={"icc": None, "orientation": None, "description": None, "resolution": None, "compression": code},
    )


def imagej_facts(path: Path) -> Facts:
    with tifffile.TiffFile(path) as file:
        about = dict(file.imagej_metadata or {})
        return {"axes": file.series[0].axes, "labels": about.get("Labels"), "spacing": about.get("spacing")}


def imagej_case() -> Case:
    pixels = coloured(1, np.uint16, pages=6).reshape(3, 2, 48, 64)
    labels = [f"slice {index}" for index in range(6)]
    about = {"axes": "ZCYX", "spacing": 0.5, "Labels": labels}
    return Case(
        "imagej.tif",
        pixels,
        lambda path: tifffile.imwrite(path, pixels, imagej=True, metadata=about),
        lambda path: np.asarray(tifffile.imread(path)),
        pages=6,
        facts=imagej_facts,
        expected={"axes": "ZCYX", "labels": labels, "spacing": 0.5},
        stripped={"axes": "ZCYX", "labels": None, "spacing": 0.5},  # the axes with their scale are not decoration
    )


# The others


def pillow_case(name: str, pixels: Pixels, alpha: Pixels | None = None, *, expected: Facts, **how: Any) -> Case:
    samples = pixels if alpha is None else np.dstack((pixels, alpha))
    return Case(
        name,
        pixels,
        lambda path: Image.fromarray(samples).save(path, **how),
        read_pillow,
        alpha=alpha,
        lossy=name.endswith(".jpg"),
        facts=pillow_facts,
        expected=expected,
    )


def webp_case(name: str, alpha: Pixels | None = None) -> Case:
    return pillow_case(
        name,
        coloured(3),
        alpha,
        expected={"icc": ICC, "exif": 6, "dpi": None},
        lossless=True,
        exact=True,
        icc_profile=ICC,
        exif=EXIF,
    )


def bmp_case(name: str, pixels: Pixels) -> Case:
    return pillow_case(name, pixels, expected={"icc": None, "exif": None, "dpi": ABOUT_DPI}, dpi=DPI)


def netpbm_case(name: str, pixels: Pixels) -> Case:
    stored = pixels.astype(f">u{pixels.itemsize}")
    head = (b"P6" if pixels.ndim == 3 else b"P5") + b"\n64 48\n%d\n" % np.iinfo(pixels.dtype).max

    def read(path: Path) -> Pixels:
        data = path.read_bytes()
        assert data[: -stored.nbytes].split() == head.split()
        return np.frombuffer(data[-stored.nbytes :], stored.dtype).reshape(pixels.shape).astype(pixels.dtype)

    return Case(name, pixels, lambda path: path.write_bytes(head + stored.tobytes()), read)


def npy_case(name: str, pixels: Pixels, alpha: Pixels | None = None) -> Case:
    samples = pixels if alpha is None else np.dstack((pixels, alpha))
    return Case(name, pixels, lambda path: np.save(path, samples), lambda path: np.asarray(np.load(path)), alpha=alpha)


CASES = [
    *(
        png_case(f"{layout}{8 * np.dtype(dtype).itemsize}.png", colour, dtype)
        for layout, colour in (("grey", 0), ("greyalpha", 4), ("rgb", 2), ("rgba", 6))
        for dtype in (np.uint8, np.uint16)
    ),
    palette_case(),
    bilevel_case(),
    *(
        tiff_case(f"grey_{np.dtype(dtype).name}_{compression}.tif", coloured(1, dtype), compression=compression)
        for dtype in TYPES
        for compression in (None, "zlib", "lzw")
    ),
    *(
        tiff_case(f"rgb_{np.dtype(dtype).name}.tif", coloured(3, dtype), compression=compression)
        for dtype, compression in zip(TYPES, (None, "lzw", "deflate", "lzw"), strict=True)
    ),
    tiff_case("rgba16.tif", coloured(3, np.uint16), transparency(np.uint16), compression="deflate"),
    tiff_case("greyalpha8.tif", coloured(1), transparency()),
    tiff_case("pages_grey16.tif", coloured(1, np.uint16, pages=3), compression="lzw"),
    tiff_case("pages_rgb32.tif", coloured(3, np.float32, pages=2)),
    imagej_case(),
    pillow_case(
        "grey.jpg", coloured(1), expected={"icc": None, "exif": 6, "dpi": ABOUT_DPI}, quality=95, exif=EXIF, dpi=DPI
    ),
    pillow_case(
        "rgb.jpg",
        coloured(3),
        expected={"icc": ICC, "exif": 6, "dpi": ABOUT_DPI},
        quality=95,
        subsampling=0,
        icc_profile=ICC,
        exif=EXIF,
        dpi=DPI,
    ),
    webp_case("rgb.webp"),
    webp_case("rgba.webp", transparency()),
    bmp_case("grey.bmp", coloured(1)),
    bmp_case("rgb.bmp", coloured(3)),
    netpbm_case("grey8.pgm", coloured(1)),
    netpbm_case("grey16.pgm", coloured(1, np.uint16)),
    netpbm_case("rgb8.ppm", coloured(3)),
    netpbm_case("rgb16.ppm", coloured(3, np.uint16)),
    *(npy_case(f"grey_{np.dtype(dtype).name}.npy", coloured(1, dtype)) for dtype in TYPES),
    npy_case("rgb32.npy", coloured(3, np.float32)),
    npy_case("rgba16.npy", coloured(3, np.uint16), transparency(np.uint16)),
]


def same_alpha(case: Case, alpha: Pixels | None) -> bool:
    return alpha is None if case.alpha is None else alpha is not None and alpha.tobytes() == case.alpha.tobytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_depth_colour_alpha_pages_and_metadata_stay(case: Case, tmp_path: Path) -> None:
    source, out = tmp_path / case.name, tmp_path / f"out_{case.name}"
    case.write(source)
    assert case.facts(source) == case.expected
    assert run("denoise", source, "-o", out, *FAST).code == 0
    assert case.facts(out) == case.expected
    colours, alpha = case.samples(out)
    assert (colours.dtype, colours.shape) == (case.pixels.dtype, case.pixels.shape)
    assert same_alpha(case, alpha)
    noisy = read_pillow(source) if case.lossy else case.pixels
    for page, before in zip(case.split_pages(colours), case.split_pages(noisy), strict=True):
        if case.lossy:
            assert np.abs(page.astype(float) - denoised(before)).mean() < 3
        else:
            np.testing.assert_array_equal(page, denoised(before))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sigma_zero_gives_the_very_pixels_and_strip_drops_the_metadata(case: Case, tmp_path: Path) -> None:
    source, out = tmp_path / case.name, tmp_path / f"out_{case.name}"
    case.write(source)
    assert run("denoise", source, "-o", out, "--sigma", 0, "--strip").code == 0
    colours, alpha = case.samples(out)
    assert colours.dtype == case.pixels.dtype
    assert same_alpha(case, alpha)
    if case.lossy:
        assert np.abs(colours.astype(float) - read_pillow(source)).mean() < 1
    else:
        np.testing.assert_array_equal(colours, case.pixels)
    assert case.facts(out) == (dict.fromkeys(case.expected) if case.stripped is None else case.stripped)


def test_a_pipe_gets_the_bytes_of_the_file(tmp_path: Path) -> None:
    for name in ("grey16.png", "pages_grey16.tif", "rgb.jpg", "rgba.webp", "grey8.pgm", "grey_float32.npy"):
        case = next(case for case in CASES if case.name == name)
        source, out, filed = (tmp_path / f"{kind}_{name}" for kind in ("in", "out", "filed"))
        case.write(source)
        data = source.read_bytes()
        assert run("denoise", source, "-o", out, *FAST).code == 0
        for target in ((), ("-o", "-")):
            piped = run("denoise", "-", *target, *FAST, stdin=data)
            assert (piped.code, piped.stdout) == (0, out.read_bytes())
            assert "standard input" in piped.stderr
        assert run("denoise", source, "-o", "-", *FAST).stdout == out.read_bytes()
        taken = run("denoise", "-", "-o", filed, *FAST, stdin=data)
        assert (taken.code, taken.stdout) == (0, b"")
        assert filed.read_bytes() == out.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="closing a stream is the shell's, on POSIX systems")
@pytest.mark.parametrize("arguments", [("denoise", "-"), ("evaluate", "-", "--sigma", "20", "--method", "dct")])
@pytest.mark.parametrize("how", ["<&-", "< ."])
def test_standard_input_that_cannot_be_read(arguments: tuple[str, ...], how: str, tmp_path: Path) -> None:
    line = ["sh", "-c", f'"$@" {how}', "sh", *command(*arguments)]
    done = subprocess.run(line, capture_output=True, env=environment(), cwd=tmp_path, check=False, timeout=300)
    outcome = Outcome(done.returncode, done.stdout, done.stderr.decode())
    assert outcome.code == 1
    assert "Traceback" not in outcome.stderr
    assert [text for text in outcome.sentences if "standard input" in text.lower()] == outcome.sentences[:1]


def test_the_real_program_keeps_sixteen_bit_colour(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "rgba16.png")
    source = tmp_path / case.name
    case.write(source)
    done = run_process("denoise", source, *FAST)
    assert (done.code, done.stderr) == (0, "")
    colours, alpha = case.samples(tmp_path / "rgba16_denoised.png")
    np.testing.assert_array_equal(colours, denoised(case.pixels))
    assert same_alpha(case, alpha)
    piped = run_process("denoise", "-", "-o", "-", *FAST, "-q", stdin=source.read_bytes())
    assert (piped.code, piped.stderr) == (0, "")
    assert piped.stdout == (tmp_path / "rgba16_denoised.png").read_bytes()


def jpeg_facts(path: Path) -> Facts:
    with Image.open(path) as image:
        assert isinstance(image, JpegImageFile)
        sampling = [part[1:3] for part in image.layer]
        return {"tables": image.quantization, "sampling": sampling, "progressive": "progressive" in image.info}


@pytest.mark.parametrize(
    "how", [{"quality": 60}, {"quality": 85, "subsampling": 1, "progressive": True}, {"quality": 96, "subsampling": 0}]
)
def test_jpeg_is_coded_as_the_input_and_no_larger(how: Facts, tmp_path: Path) -> None:
    """A noisy photograph: tables, sampling and mode stay, and the noise that was removed makes the file smaller."""
    with Image.open(Path(__file__).parents[2] / "sample_images" / "astronaut_noisy.png") as image:
        image.crop((100, 0, 300, 160)).save(tmp_path / "a.jpg", **how)
    assert run("denoise", tmp_path / "a.jpg", "--quality", "fast", "--sigma", 15).code == 0
    assert jpeg_facts(tmp_path / "a_denoised.jpg") == jpeg_facts(tmp_path / "a.jpg")
    sizes = [(tmp_path / name).stat().st_size for name in ("a.jpg", "a_denoised.jpg")]
    assert 0.2 * sizes[0] < sizes[1] < sizes[0]


def test_jpeg_quality_of_the_outputs(tmp_path: Path) -> None:
    Image.fromarray(coloured(3)).save(tmp_path / "a.jpg", quality=70, progressive=True)
    for quality, subsampling in ((40, 2), (92, 0)):
        Image.fromarray(coloured(3)).save(tmp_path / "wanted.jpg", quality=quality, subsampling=subsampling)
        more = ("--jpeg-quality", quality, "--residual", tmp_path / "r.jpg", "--force")
        assert run("denoise", tmp_path / "a.jpg", *FAST, *more).code == 0
        wanted = jpeg_facts(tmp_path / "wanted.jpg")
        assert jpeg_facts(tmp_path / "a_denoised.jpg") == jpeg_facts(tmp_path / "r.jpg") == wanted
    Image.fromarray(coloured(3)).save(tmp_path / "wanted.jpg", quality=95, subsampling=0)
    Image.fromarray(coloured(3)).save(tmp_path / "b.png")
    assert run("denoise", tmp_path / "b.png", "-o", tmp_path / "b.jpg", *FAST).code == 0
    assert jpeg_facts(tmp_path / "b.jpg") == jpeg_facts(tmp_path / "wanted.jpg")
    assert run("denoise", tmp_path / "b.png", *FAST, "--jpeg-quality", 1).code == 0  # says nothing to a PNG
    np.testing.assert_array_equal(read_pillow(tmp_path / "b_denoised.png"), denoised(coloured(3)))


def test_what_is_not_coded_as_the_input_is_said_where_it_matters(tmp_path: Path) -> None:
    source = tmp_path / "a.jpg"
    source.write_bytes(imagecodecs.jpeg8_encode(coloured(3), 80, subsampling="440"))
    sentence = f"{source}: Its colour sampling is not one that is written; the result has 4:4:4."
    assert run("denoise", source, *FAST).sentences == [sentence]
    assert run("denoise", source, "-o", tmp_path / "b.png", *FAST).sentences == []
    assert run("denoise", source, "--force", "--jpeg-quality", 80, *FAST).sentences == []


def test_the_output_name_chooses_the_format_unless_something_would_be_lost(tmp_path: Path) -> None:
    pixels = coloured(3, np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb")
    assert run("denoise", tmp_path / "a.tif", "-o", tmp_path / "a.png", *FAST).code == 0
    np.testing.assert_array_equal(imagecodecs.png_decode((tmp_path / "a.png").read_bytes()), denoised(pixels))
    for name in ("b.jpg", "b.webp", "b.bmp"):
        refused(run("denoise", tmp_path / "a.tif", "-o", tmp_path / name, *FAST), 1, "16-bit", "a.tif")
    refused(run("denoise", tmp_path / "a.tif", "-o", tmp_path / "b.xyz", *FAST), 1, "b.xyz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.tif"]


# --- formats that are added, or only read ---------------------------------------------------------------


class Toy:
    """A format of two bytes for the size and one for each grey pixel."""

    @staticmethod
    def read(source: Source) -> Picture:
        data = source.read()
        spec = PageSpec(data[3], data[4], 1, np.dtype(np.uint8))
        return Picture(source.name, (spec,), lambda _: (np.frombuffer(data[5:], np.uint8).reshape(spec.shape), None))

    @staticmethod
    def write(picture: Picture, colour: Pixels, alpha: Pixels | None, stream: BinaryIO, strip: bool) -> None:
        stream.write(b"TOY" + bytes(colour.shape) + colour.tobytes())


def test_a_format_is_added_in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORMATS, "_entries", dict(FORMATS._entries))  # forgotten after the test
    FORMATS.register(Format("toy", "Toy", (".toy",), rb"TOY", Toy, layouts=("L",)))
    pixels = coloured(1)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.toy").write_bytes(b"TOY" + bytes(pixels.shape) + pixels.tobytes())
    assert run("denoise", tmp_path / "in", *FAST).code == 0
    result = (tmp_path / "in" / "a_denoised.toy").read_bytes()
    np.testing.assert_array_equal(np.frombuffer(result[5:], np.uint8).reshape(48, 64), denoised(pixels))
    np.save(tmp_path / "b.npy", coloured(3))
    refused(run("denoise", tmp_path / "b.npy", "-o", tmp_path / "b.toy", *FAST), 1, "Toy")
    with pytest.raises(ValueError, match=r"for \.toy already"):
        FORMATS.register(Format("again", "Again", (".toy",), rb"AGAIN", Toy))
    piped = run("denoise", "-", *FAST, stdin=(tmp_path / "in" / "a.toy").read_bytes())
    assert piped.stdout == result


def test_formats_that_are_only_read_become_png_or_tiff(tmp_path: Path) -> None:
    frames = [Image.fromarray(scene(seed=seed)) for seed in range(3)]
    frames[0].save(tmp_path / "one.gif")
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    done = run("denoise", tmp_path / "one.gif", tmp_path / "film.gif", *FAST, "--residual", tmp_path / "r")
    assert done.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "film.gif",
        "film_denoised.tif",
        "one.gif",
        "one_denoised.png",
        "r",
    ]
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["film_residual.tif", "one_residual.png"]
    np.testing.assert_array_equal(read_pillow(tmp_path / "one_denoised.png"), denoised(scene()))
    assert tifffile.imread(tmp_path / "film_denoised.tif").shape == (3, 48, 64, 3)
    assert done.sentences == [
        f"{tmp_path / 'one.gif'}: GIF is only read; the result is PNG.",
        f"{tmp_path / 'film.gif'}: GIF is only read; the result is TIFF.",
    ]
    [record] = run("denoise", tmp_path / "one.gif", *FAST, "--force", "--json").report["files"]
    assert record["output"].endswith("one_denoised.png")
    assert record["warnings"] == ["GIF is only read; the result is PNG."]
    piped = run("denoise", "-", *FAST, "-q", stdin=(tmp_path / "one.gif").read_bytes())
    assert piped.stdout == (tmp_path / "one_denoised.png").read_bytes()
    refused(run("denoise", tmp_path / "one.gif", "-o", tmp_path / "x.gif", *FAST), 1, "x.gif", "only reads")


def test_long_exif_data_are_not_lost_silently(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif.get_ifd(0x8769)[0x927C] = bytes(70_000)
    Image.fromarray(coloured(3)).save(tmp_path / "a.png", exif=exif)
    done = run("denoise", tmp_path / "a.png", "-o", tmp_path / "b.jpg", *FAST)
    assert done.code == 0
    assert done.sentences == [f"{tmp_path / 'a.png'}: {tmp_path / 'b.jpg'} cannot hold the EXIF data of the input."]


@pytest.mark.parametrize("suffix", [".ome.tif", ".OME.TIFF"])
def test_names_of_ome_files_keep_both_suffixes(suffix: str, tmp_path: Path) -> None:
    stack = coloured(1, np.uint16, pages=2)
    tifffile.imwrite(tmp_path / f"x{suffix}", stack, ome=True, photometric="minisblack")
    extras = ("--residual", tmp_path / "r/", "--compare", tmp_path / "c/")
    (tmp_path / "r").mkdir()
    (tmp_path / "c").mkdir()
    assert run("denoise", tmp_path / f"x{suffix}", *FAST, *extras).code == 0
    assert (tmp_path / "r" / f"x_residual{suffix}").exists()
    assert (tmp_path / "c" / f"x_compare{suffix}").exists()
    with tifffile.TiffFile(tmp_path / f"x_denoised{suffix}") as file:
        assert file.is_ome
        np.testing.assert_array_equal(file.asarray(), [denoised(page) for page in stack])
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "x.tif").write_bytes((tmp_path / f"x{suffix}").read_bytes())
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / f"x_denoised{suffix}").write_bytes((tmp_path / f"x_denoised{suffix}").read_bytes())
    assert run("evaluate", tmp_path / "clean", tmp_path / "made").code == 0
    done = run("denoise", tmp_path, *FAST, "--resume")  # the result of the first run is not taken for an input
    assert (done.code, done.text) == (0, "0 denoised, 0 failed, 1 done before, 1 other files skipped.\n")


# --- residual and comparison of stacks ------------------------------------------------------------------


def test_residuals_and_comparisons_have_all_pages(tmp_path: Path) -> None:
    stack = coloured(3, np.uint16, pages=3)
    tifffile.imwrite(tmp_path / "a.tif", stack, photometric="rgb")
    residual, compare = tmp_path / "r.tif", tmp_path / "c.tif"
    assert run("denoise", tmp_path / "a.tif", *FAST, "--residual", residual, "--compare", compare).code == 0
    clean = np.asarray(tifffile.imread(tmp_path / "a_denoised.tif"))
    removed = np.asarray(tifffile.imread(residual))
    np.testing.assert_array_equal(removed.astype(int) - 128 * 257, stack.astype(int) - clean)
    np.testing.assert_array_equal(tifffile.imread(compare), np.concatenate((stack, clean, removed), axis=2))


def test_a_long_stack_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    peaks = []
    for pages in (1, 3, 43):  # the first run warms up
        stack = np.stack([scene((32, 40), seed=seed) for seed in range(pages)])
        tifffile.imwrite(tmp_path / "a.tif", stack, photometric="minisblack", compression="zlib")
        tracemalloc.start()
        done = run("denoise", tmp_path / "a.tif", "--quality", "fast", "--sigma", 20, "--force", "-q")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert done.code == 0
    assert peaks[2] < peaks[1] + 1_000_000


@pytest.mark.parametrize("option", ["--residual", "--compare"])
def test_side_files_that_cannot_hold_the_pages_are_refused_before_any_work(option: str, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", coloured(1, pages=3), photometric="minisblack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dstl_cli.run.files.survey", lambda *_: pytest.fail("no work is to be done"))
        done = run("denoise", tmp_path / "a.tif", *FAST, option, tmp_path / "x.png")
    refused(done, 1, "3 pages", "PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]
