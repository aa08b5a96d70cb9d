"""What a change of the code changes for the user: `python benchmarks/against.py REV [--only WORD] [--expect WORD]`.

Runs the command line of a revision and of the present tree on the same generated files and compares all that they leave
behind: pixels, exit codes, files, metadata, JSON, texts and bytes. Nothing of dstl is imported, so modules may move.

Exit code 1: pixels, transforms, files, metadata or exit codes differ (with --strict: anything) in a case that --expect
does not name. `--seconds` compares the wall time of whole processes instead.
"""

import argparse
import base64
import csv
import difflib
import hashlib
import heapq
import importlib.metadata
import io
import itertools
import json
import os
import pickle
import random
import re
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageCms
from skimage import data

Pixels = NDArray[Any]
Maker = Callable[[], bytes]

PACKAGE = "dstl_cli"
LONGEST = 600.0  # seconds a single run may take
QUALITIES = {
    "fast": "--quality fast",
    "standard": "--quality standard",
    "best": "--quality best",
    "paper": "--preset paper --rounds 2",
}
OWN_LEARNER = ("procrustes", "dsect")  # spellings of the method that standard and best learn with, the newest first


# ---------------------------------------------------------------------------------------------------------------------
# The pictures
# ---------------------------------------------------------------------------------------------------------------------

DEPTHS = ("uint8", "uint16", "float32", "float64")
LAYOUTS = ("grey", "colour", "grey_alpha", "colour_alpha")
SIZES = ((1, 1), (7, 5), (31, 64), (97, 131), (130, 257))
SIGMAS = (5, 20, 100)
FORMATS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # the layouts and depths that each can hold
    "png": (LAYOUTS, DEPTHS[:2]),
    "tif": (LAYOUTS, DEPTHS),
    "jpg": (LAYOUTS[:2], DEPTHS[:1]),
    "webp": (("grey", "colour", "colour_alpha"), DEPTHS[:1]),
    "bmp": (LAYOUTS[:2], DEPTHS[:1]),
    "pnm": (LAYOUTS[:2], DEPTHS[:2]),
    "npy": (LAYOUTS[:2], DEPTHS),
}
WHITE = {"uint8": 255.0, "uint16": 65535.0, "float32": 255.0, "float64": 1.0}


@dataclass(frozen=True)
class Picture:
    """A crop of a picture of scikit-image with white noise, in one of the layouts, depths and formats."""

    layout: str = "grey"
    depth: str = "uint8"
    sigma: float = 20
    size: tuple[int, int] = (97, 131)
    format: str = "png"

    @property
    def name(self) -> str:
        height, width = self.size
        return f"{self.layout}-{self.depth}-s{self.sigma:g}-{height}x{width}-{self.format}"

    @property
    def possible(self) -> bool:
        """Whether the format can hold the layout and depth."""
        layouts, depths = FORMATS[self.format]
        return self.layout in layouts and self.depth in depths

    @property
    def suffix(self) -> str:
        return {"pnm": "pgm" if self.layout == "grey" else "ppm"}.get(self.format, self.format)

    @property
    def file_sigma(self) -> float:
        """The deviation as --sigma wants it: for floats in the file's own units."""
        return self.sigma * WHITE[self.depth] / 255 if self.depth.startswith("float") else self.sigma

    def pixels(self) -> Pixels:
        """The noisy values, (height, width) or (height, width, channels)."""
        grey = self.layout.startswith("grey")
        clean = scene("camera" if grey else "astronaut", self.size)
        noise = np.random.default_rng(zlib.crc32(self.name.encode())).standard_normal(clean.shape)
        levels = clean + self.sigma * noise
        if self.layout.endswith("alpha"):
            rows, columns = np.indices(self.size)
            alpha = np.clip((rows + columns) * 7 - 40, 0, 255)
            levels = np.dstack([levels, alpha])
        values = levels * WHITE[self.depth] / 255
        if self.depth.startswith("float"):
            return values.astype(self.depth)
        return np.clip(np.rint(values), 0, WHITE[self.depth]).astype(self.depth)

    def encoded(self) -> bytes:
        """The file."""
        return encode(self.pixels(), self.format)


def scene(name: str, size: tuple[int, int]) -> Pixels:
    """A crop of a picture of scikit-image as floats on the 0-255 scale, mirrored where it is too small."""
    picture = np.asarray(getattr(data, name)(), dtype=np.float64)[60:, 120:]
    room = [(0, max(0, wanted - present)) for wanted, present in zip(size, picture.shape, strict=False)]
    padded = np.pad(picture, room + [(0, 0)] * (picture.ndim - 2), mode="symmetric")
    return np.asarray(padded[: size[0], : size[1]])


def encode(pixels: Pixels, kind: str) -> bytes:
    """A picture file made without dstl."""
    if kind == "tif":
        return tiff(pixels)
    if kind == "npy":
        stream = io.BytesIO()
        np.save(stream, pixels)
        return stream.getvalue()
    if kind == "pnm":
        head = f"P{5 if pixels.ndim == 2 else 6}\n{pixels.shape[1]} {pixels.shape[0]}\n{np.iinfo(pixels.dtype).max}\n"
        return head.encode() + pixels.astype(pixels.dtype.newbyteorder(">")).tobytes()
    if kind == "bmp":
        return by_pillow(Image.fromarray(pixels), "bmp")
    if kind == "jpg":
        return bytes(imagecodecs.jpeg8_encode(pixels, level=92))
    if kind == "webp":
        colour = pixels if pixels.ndim == 3 else np.dstack([pixels] * 3)
        return bytes(imagecodecs.webp_encode(np.ascontiguousarray(colour), lossless=True))
    return bytes(imagecodecs.png_encode(pixels))


def tiff(*pages: Pixels, **options: Any) -> bytes:
    """A TIFF file of one or more pages."""
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream, byteorder=options.pop("byteorder", "<")) as writer:
        for page in pages:
            channels = page.shape[2] if page.ndim == 3 else 1
            layout: dict[str, Any] = {"photometric": "rgb" if channels >= 3 else "minisblack"}
            if channels in (2, 4):
                layout["extrasamples"] = ["unassalpha"]
            if channels == 2:
                layout["planarconfig"] = "contig"
            writer.write(page, metadata=None, **layout, **options)
    return stream.getvalue()


def by_pillow(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """A file written by Pillow."""
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def small_transform() -> bytes:
    """A transform file of format 1 as docs/commands.md lays it down, made without dstl: the DCT with some disorder."""
    side = 8
    random = np.random.default_rng(5)
    factor = np.eye(side**2) + 0.1 * random.standard_normal((side**2, side**2)) * (random.random((side**2,) * 2) < 0.05)
    rows, columns = np.nonzero(factor)
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        format=np.int64(1),
        patch_size=np.int64(side),
        method=np.str_("conditioned"),
        rows=rows.astype(np.int32),
        columns=columns.astype(np.int32),
        values=factor[rows, columns],
        condition=np.float64(np.linalg.cond(factor)),
        density=np.float64(rows.size / factor.size),
        frobenius_norm=np.float64(np.linalg.norm(factor)),
        provenance=np.str_(json.dumps({"settings": {"seed": 0}, "source": "train"})),
        history=np.array([[1, 10.0, 0.5, 1.1, 0.05], [2, 9.0, 0.45, 1.2, 0.05]]),
    )
    return stream.getvalue()


# ---------------------------------------------------------------------------------------------------------------------
# The cases
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Commands run one after the other in a folder of their own, which holds the inputs and gets the outputs.

    steps: for each command its spellings; the next one is used where a tree refuses one with exit code 2. `< FILE` at
    the end of a command is its standard input.
    """

    name: str
    steps: tuple[tuple[str, ...], ...]
    inputs: Mapping[str, Maker]


def case(name: str, inputs: Mapping[str, Maker | Picture], *steps: str | Sequence[str]) -> Case:
    """A case; a command with one spelling is a string."""
    makers = {file: made.encoded if isinstance(made, Picture) else made for file, made in inputs.items()}
    return Case(name, tuple((step,) if isinstance(step, str) else tuple(step) for step in steps), makers)


def spelt(command: str, spellings: Iterable[str] = OWN_LEARNER) -> tuple[str, ...]:
    """A command in which {} stands for something that versions spell differently."""
    return tuple(command.format(spelling) for spelling in spellings)


GREY, COLOUR = Picture(), Picture("colour", size=(60, 75))
TINY, DEEP = Picture(size=(31, 64)), Picture("colour", "uint16", 20, (60, 75), "tif")
FLOAT, REAL = Picture("grey", "float32", 20, (60, 75), "tif"), Picture("grey", "float64", 20, (60, 75), "npy")


def chosen(candidates: Sequence[tuple[object, ...]], goals: Iterable[Sequence[int]]) -> list[int]:
    """Few candidates (their indices) such that, for each goal, all combinations of its factors that occur are there.

    Greedy: always the candidate with the most combinations that are not there yet.
    """
    wanted = [tuple(goal) for goal in goals]
    offers = [{(goal, *(row[factor] for factor in goal)) for goal in wanted} for row in candidates]
    missing: set[tuple[object, ...]] = set().union(*offers)
    queue = [(-len(offer), index) for index, offer in enumerate(offers)]
    heapq.heapify(queue)
    picked = []
    while missing:
        _, index = heapq.heappop(queue)
        gain = -len(offers[index] & missing)
        if queue and (gain, index) > queue[0]:  # gains only fall, so the first whose gain still holds is the largest
            heapq.heappush(queue, (gain, index))
            continue
        picked.append(index)
        missing -= offers[index]
    return picked


def product_cases(full: bool) -> list[Case]:
    """Qualities x layouts x depths x sigmas x sizes x formats: all pairs of their values, or all threes."""
    table = list(itertools.product(QUALITIES, LAYOUTS, DEPTHS, SIGMAS, SIZES, FORMATS))
    table = [row for row in table if Picture(*row[1:]).possible]
    random.Random(0).shuffle(table)  # so that factors on which nothing depends any more still vary
    goals = itertools.combinations(range(6), 3 if full else 2)
    cases = []
    for index in sorted(chosen(table, goals)):
        quality, *rest = table[index]
        picture = Picture(*rest)  # type: ignore[arg-type]
        suffix = picture.suffix
        files = f"in.{suffix} -o out.{suffix}"
        command = f"denoise {files} --sigma {picture.file_sigma:.6g} {QUALITIES[quality]} --json"
        cases.append(case(f"denoise-{quality}-{picture.name}", {f"in.{suffix}": picture}, command))
    return sorted(cases, key=lambda one: one.name)


def large_cases() -> list[Case]:
    """Pictures of several tiles and bands; in floats, so that the smallest difference shows."""
    cases = []
    for quality, layout in itertools.product(QUALITIES, LAYOUTS[:2]):
        picture = Picture(layout, "float32", 25, (301, 403), "tif")
        step = f"denoise in.tif -o out.tif --sigma 25 {QUALITIES[quality]} --json"
        cases.append(case(f"large-{quality}-{layout}", {"in.tif": picture}, step))
    return cases


def estimate_cases() -> list[Case]:
    """--sigma auto, also where it warns."""
    cases = []
    for quality, options in QUALITIES.items():
        cases.append(case(f"auto-{quality}-grey", {"in.png": GREY}, f"denoise in.png --json {options}"))
        cases.append(case(f"auto-{quality}-colour", {"in.tif": DEEP}, f"denoise in.tif {options}"))
    clean, noise = scene("camera", (120, 130)), np.random.default_rng(1).standard_normal((120, 130))
    smooth = sum(np.roll(noise, (row, column), (0, 1)) for row in range(3) for column in range(3)) / 3
    odd = {
        "flat": np.full((40, 50), 77, np.uint8),
        "clipped": np.clip(clean * 2 - 150 + 20 * noise, 0, 255).astype(np.uint8),
        "correlated": np.clip(clean + 25 * smooth, 0, 255).astype(np.uint8),
        "clean": clean.astype(np.uint8),
        "tiny": TINY.pixels()[:5, :4],
    }
    for name, pixels in odd.items():
        cases.append(
            case(f"auto-{name}", {"in.png": lambda p=pixels: encode(p, "png")}, "denoise in.png")  # type: ignore[misc]
        )
    cases.append(case("auto-float64", {"in.npy": REAL}, "denoise in.npy --sigma auto --quality fast"))
    return cases


def side_cases() -> list[Case]:
    """--residual and --compare."""
    pictures = {
        "grey": GREY,
        "rgba16": Picture("colour_alpha", "uint16", 20, (31, 64), "png"),
        "float": FLOAT,
        "real": REAL,
        "jpeg": Picture("colour", format="jpg", size=(60, 75)),
        "webp": Picture("colour", format="webp", size=(31, 64)),
    }
    cases = []
    for quality, (name, picture) in zip(itertools.cycle(QUALITIES), pictures.items(), strict=False):
        end = picture.suffix
        command = f"denoise in.{end} -o out.{end} --residual gone.{end} --compare look.{end} {QUALITIES[quality]}"
        cases.append(
            case(f"residual-compare-{name}", {f"in.{end}": picture}, f"{command} --sigma {picture.file_sigma:g}")
        )
    return cases


def with_or_without_rounds(command: str) -> tuple[str, ...]:
    """A command that learns nothing; later versions refuse --rounds there."""
    return tuple(dict.fromkeys((command, command.replace(" --rounds 2", ""))))


def transform_cases() -> list[Case]:
    """--save-transform, --transform and --adapt."""
    cases = []
    for quality in ("standard", "best", "paper"):
        options = f"--sigma 20 {QUALITIES[quality]}"
        save = f"denoise in.png -o a.png --save-transform t.npz {options}"
        use = with_or_without_rounds(f"denoise in.png -o b.png --transform t.npz {options} --json")
        cases.append(case(f"save-transform-{quality}", {"in.png": GREY}, save, use, "inspect t.npz --json"))
    for quality, options in QUALITIES.items():
        files: dict[str, Maker | Picture] = {"in.png": COLOUR, "t.npz": small_transform}
        command = f"denoise in.png -o out.png --sigma 15 {options} --transform t.npz --json"
        cases.append(case(f"transform-{quality}", files, with_or_without_rounds(command)))
        if quality != "fast":
            cases.append(case(f"transform-adapt-{quality}", files, f"{command} --adapt"))
    return cases


def method_cases() -> list[Case]:
    """Every method by name, with what it tells of its learning."""
    command = "denoise in.png -o out.png --sigma 25 --verbose"
    cases = []
    for quality in ("standard", "best", "paper"):
        for method in ("dct", "bresler", "conditioned", "sparse-bresler"):
            step = f"{command} {QUALITIES[quality]} --method {method}"
            cases.append(case(f"method-{quality}-{method}", {"in.png": GREY}, step))
        spellings = ("dsect",) if quality == "paper" else OWN_LEARNER
        steps = spelt(f"{command} {QUALITIES[quality]} --method {{}}", spellings)
        cases.append(case(f"method-{quality}-own", {"in.png": GREY}, steps))
    cases.append(case("method-fast-dct", {"in.png": GREY}, f"{command} --quality fast --method dct"))
    return cases


OPTIONS = {
    "fast": ("--patch-size 8", "--stride 1", "--error-scale 1.2"),
    "standard": (
        "--patch-size 8", "--patch-size 5 --stride 3", "--error-scale 1.2", "--max-condition 2 --density 0.5",
        "--iterations 3", "--train-patches 500", "--seed 7", "--jobs 1", "--jobs 3", "--sigma 0",
    ),
    "best": ("--patch-size 6", "--iterations 3 --train-patches 900", "--seed 7", "--jobs 1", "--density 0.2"),
    "paper": (
        "--patch-size 8 --stride 2", "--train-patches 300 --iterations 5", "--error-scale 1.15 --seed 7",
        "--density 0.4", "--max-condition 3", "--jobs 1",
    ),
}  # fmt: skip


def option_cases() -> list[Case]:
    """Options one by one."""
    cases = []
    for quality, options in OPTIONS.items():
        for option in options:
            name = f"option-{quality}{option.replace(' --', '-').replace(' ', '=').removeprefix('-')}"
            sigma = "" if "--sigma" in option else "--sigma 20 "
            step = f"denoise in.png -o out.png {sigma}{QUALITIES[quality]} {option} --json"
            spellings = [step]
            if (quality, option) == ("fast", "--patch-size 8"):
                spellings.append(f"{step} --method dct")  # had to be said later
            cases.append(case(name, {"in.png": GREY}, spellings))
    return cases


def file_cases() -> list[Case]:
    """Folders, pipes, names, and what is overwritten."""
    folder: dict[str, Maker | Picture] = {
        "shots/a.png": TINY, "shots/b.jpg": Picture("colour", format="jpg", size=(31, 64)), "shots/sub/c.tif": FLOAT,
        "shots/broken.png": lambda: TINY.encoded()[:200], "shots/notes.txt": lambda: b"no picture",
    }  # fmt: skip
    go = "--sigma 20 --quality fast"
    cases = [
        case("folder-recursive", folder, f"denoise shots -o clean -r {go}", f"denoise shots -o clean -r --resume {go}"),
        case("folder-beside", folder, f"denoise shots {go} --json", f"denoise shots {go}"),
        case("folder-residual", folder, f"denoise shots -o clean {go} --residual gone --compare look"),
        case("files-several", folder, f"denoise shots/a.png shots/b.jpg missing.png -o clean {go} --json"),
        case("files-pattern", folder, f"denoise shots/*.jpg -o clean {go}"),
        case("name-suffix", {"in.png": TINY}, f"denoise in.png --suffix .clean {go}"),
        case("name-force", {"in.png": TINY, "out.png": GREY}, f"denoise in.png -o out.png -f {go}"),
        case("name-exists", {"in.png": TINY, "out.png": GREY}, f"denoise in.png -o out.png {go}"),
        case("name-itself", {"in.png": TINY}, f"denoise in.png -o in.png -f {go}"),
        case("quiet", {"in.png": TINY}, f"denoise in.png -q {go}"),
    ]
    for picture in (TINY, DEEP, Picture("colour", format="jpg"), Picture(format="pnm"), Picture(format="bmp")):
        name = f"in.{picture.suffix}"
        cases.append(case(f"pipe-{picture.suffix}", {name: picture}, f"denoise - {go} < {name}"))
    for source, end in ((DEEP, "png"), (COLOUR, "tif"), (COLOUR, "jpg"), (TINY, "webp"), (FLOAT, "npy"), (REAL, "tif")):
        name = f"in.{source.suffix}"
        step = f"denoise {name} -o out.{end} --quality fast --sigma {source.file_sigma:g}"
        cases.append(case(f"convert-{source.suffix}-{end}", {name: source}, step))
    return cases


def exif(orientation: int) -> bytes:
    """A small EXIF block."""
    block = Image.Exif()
    block[0x0112] = orientation
    block[0x010F] = "Maker"
    return block.tobytes()


def unusual_files() -> dict[str, Maker]:
    """Files with metadata, palettes, pages and rare ways of storing pixels."""
    colour, grey = COLOUR.pixels(), TINY.pixels()
    picture, small = Image.fromarray(colour), Image.fromarray(grey)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    profile = profile[:24] + bytes(12) + profile[36:]  # without the date it was made
    deep = DEEP.pixels()
    return {
        "metadata.png": lambda: by_pillow(picture, "png", icc_profile=profile, dpi=(300, 300), exif=exif(1)),
        "metadata.jpg": lambda: by_pillow(picture, "jpeg", icc_profile=profile, dpi=(72, 72), exif=exif(6), quality=90),
        "metadata.webp": lambda: by_pillow(picture, "webp", icc_profile=profile, exif=exif(3), lossless=True),
        "metadata.tif": lambda: tiff(deep, resolution=(300, 300), description="words", iccprofile=profile),
        "progressive.jpg": lambda: by_pillow(picture, "jpeg", progressive=True, quality=80, comment=b"words"),
        "cmyk.jpg": lambda: by_pillow(picture.convert("CMYK"), "jpeg", quality=90),
        "palette.png": lambda: by_pillow(picture.quantize(64), "png"),
        "bilevel.png": lambda: by_pillow(small.convert("1"), "png"),
        "palette.bmp": lambda: by_pillow(picture.quantize(64), "bmp"),
        "pages.tif": lambda: tiff(grey, grey[::-1], grey[:, ::-1]),
        "mixed.tif": lambda: tiff(grey, colour, deep),
        "lzw.tif": lambda: tiff(deep, compression="lzw", predictor=True),
        "deflate.tif": lambda: tiff(FLOAT.pixels(), compression="zlib"),
        "tiled.tif": lambda: tiff(colour, tile=(16, 32)),
        "planar.tif": lambda: tiff(np.moveaxis(colour, 2, 0), planarconfig="separate"),
        "motorola.tif": lambda: tiff(deep, byteorder=">"),
        "stack.npy": lambda: encode(np.stack([grey, grey[::-1]]), "npy"),
        "not_finite.npy": lambda: encode(np.where(REAL.pixels() > 0.9, np.nan, REAL.pixels()), "npy"),
        "offset.npy": lambda: encode(REAL.pixels() * 1e3 + 1e6, "npy"),
    }


def unusual_cases() -> list[Case]:
    """Those files denoised and looked at, some with --strip."""
    cases = []
    for name, maker in unusual_files().items():
        steps = [f"denoise {name} --sigma 20 --quality fast"]
        if name.startswith("metadata"):
            steps.append(f"denoise {name} --sigma 20 --quality fast --strip --suffix _bare")
            steps.append(f"denoise {name} --sigma 20 --quality fast -o as.{'tif' if name.endswith('png') else 'png'}")
        else:
            steps.append(f"inspect {name} --json")
        cases.append(case(f"unusual-{name}", {name: maker}, *steps))
    return cases


def collection() -> dict[str, Maker | Picture]:
    """A folder to learn from and one beside it."""
    return {
        "few/a.png": lambda: encode(scene("camera", (140, 150)).astype(np.uint8), "png"),
        "few/b.jpg": lambda: encode(scene("coffee", (120, 130)).astype(np.uint8), "jpg"),
        "few/deeper/c.tif": lambda: encode((scene("astronaut", (110, 100)) * 257).astype(np.uint16), "tif"),
        "others/d.png": lambda: encode(scene("chelsea", (100, 110)).astype(np.uint8), "png"),
    }


def train_cases() -> list[Case]:
    """Learning from folders."""
    go = "train few -o t.npz --train-patches 1500 --iterations 12"
    runs: dict[str, Sequence[str]] = {
        "default": (go,),
        "own": spelt(f"{go} --method {{}} --json", ("procrustes", "conditioned")),
        "dsect": (f"{go} --method dsect --json",),
        "bresler": (f"{go} --method bresler",),
        "sparse-bresler": (f"{go} --method sparse-bresler --density 0.2",),
        "dct": (f"{go} --method dct",),
        "validation": (f"{go} --validation others --patience 5 --json",),
        "bounds": (f"{go} --max-condition 1.1 --density 0.15 --sigma 30 --seed 3 --json",),
        "levels": (f"{go} --sparsity-level 8 --batches 4 --patch-size 6 --verbose",),
    }
    files = collection()
    cases = [case(f"train-{name}", files, steps, "inspect t.npz") for name, steps in runs.items()]
    broken = files | {"few/broken.png": lambda: b"\x89PNG\r\n\x1a\nno more", "few/tiny.png": Picture(size=(7, 5))}
    use = "denoise others/d.png --sigma 20 --transform t.npz"
    return [*cases, case("train-broken-use", broken, go, use, go)]


def evaluate_cases() -> list[Case]:
    """Pairs, folders, added noise, and what is written about it."""
    files = collection()
    noisy = {
        "few/a_denoised.png": Picture(size=(140, 150)),
        "near.tif": Picture("grey", "uint16", 5, (140, 150), "tif"),
    }
    real = {"a.npy": REAL, "b.npy": Picture("grey", "float64", 5, (60, 75), "npy")}
    pairs = files | noisy | real
    runs: dict[str, Sequence[str]] = {
        "pair": ("evaluate few/a.png few/a_denoised.png",),
        "pair-depths": ("evaluate few/a.png near.tif --json",),
        "pair-identical": ("evaluate few/a.png few/a.png --json",),
        "pair-float": ("evaluate a.npy b.npy --peak 1 --json",),
        "pair-sizes": ("evaluate few/a.png others/d.png",),
        "folders": ("evaluate few few -r --json --ssim downsampled",),
        "folders-unpaired": ("evaluate few others",),
        "qualities": ("evaluate others --sigma 10,40 --quality fast,standard,best --json",),
        "paper": ("evaluate others --sigma 60 --quality paper --method dct,dsect --json",),
        "methods": spelt("evaluate others few/b.jpg --sigma 20 --method dct,{} --csv rows.csv"),
        "transform": ("evaluate others --sigma 20 --quality fast --transform t.npz --seed 4 --json",),
        "repeats": ("evaluate others --sigma 20 --quality fast --repeats 2 --report page.html",),
        "below": ("evaluate others --sigma 20 --quality fast --min-psnr 60",),
    }
    every: dict[str, Maker | Picture] = {**pairs, "t.npz": small_transform}
    return [case(f"evaluate-{name}", every, steps) for name, steps in runs.items()]


def inspect_cases() -> list[Case]:
    """What is told of pictures and transforms, and the plots."""
    pictures = (GREY, DEEP, FLOAT, REAL, Picture("colour_alpha", "uint16"), Picture("colour", format="jpg"))
    cases = []
    for picture in pictures:
        file = f"in.{picture.suffix}"
        cases.append(case(f"inspect-{picture.name}", {file: picture}, f"inspect {file}", f"inspect {file} --json"))
    cases.append(case("inspect-plot-picture", {"in.png": COLOUR}, "inspect in.png --plot plot.png"))
    steps = ("inspect t.npz", "inspect t.npz --json", "inspect t.npz --plot plot.png")
    return [*cases, case("inspect-transform", {"t.npz": small_transform}, *steps)]


def reproduce_cases() -> list[Case]:
    """The paper's experiments, on small pictures that only have the names of its own."""
    names = {"barbara": "brick", "couple": "coins", "cameraman": "camera", "hill": "moon", "man": "grass"}
    files: dict[str, Maker | Picture] = {
        f"set/{name}.png": lambda stand_in=stand_in: encode(scene(stand_in, (128, 128)).astype(np.uint8), "png")  # type: ignore[misc]
        for name, stand_in in names.items()
    }
    table = "reproduce table set --images couple --sigmas 100 --methods dct,dsect,conditioned"
    return [
        case("reproduce-table", files, f"{table} --json"),
        case("reproduce-figure", files, "reproduce figure set --iterations 2 --json"),
    ]


def error_cases() -> list[Case]:
    """What is refused, and how."""
    commands = {
        "no-command": "", "unknown-command": "polish in.png", "unknown-option": "denoise in.png --polish",
        "no-input": "denoise", "missing": "denoise missing.png --sigma 20", "empty": "denoise empty.png",
        "broken-png": "denoise broken.png --sigma 20 --json", "broken-tif": "denoise broken.tif --sigma 20",
        "broken-jpg": "denoise broken.jpg --sigma 20", "broken-npy": "denoise broken.npy --sigma 20",
        "no-picture": "denoise words.png --sigma 20", "unknown-ending": "denoise in.png -o out.xyz --sigma 20",
        "sigma-negative": "denoise in.png --sigma -3", "sigma-word": "denoise in.png --sigma much",
        "sigma-nan": "denoise in.png --sigma nan", "quality": "denoise in.png --quality finest",
        "method": "denoise in.png --method magic", "both": "denoise in.png --quality best --preset paper",
        "rounds": "denoise in.png --rounds 3", "scale-best": "denoise in.png --quality best --error-scale 1.1",
        "patch-size": "denoise in.png --patch-size 99", "density": "denoise in.png --density 0",
        "adapt": "denoise in.png --adapt", "transform": "denoise in.png --transform words.png",
        "transform-missing": "denoise in.png --transform missing.npz", "debug": "denoise missing.png --debug",
        "json-stdout": "denoise in.png -o - --json", "no-folder": "denoise in.png -o nowhere/deep/out.png --sigma 20",
        "float-to-png": "denoise in.npy -o out.png --sigma 0.08", "train-nothing": "train bare -o t.npz",
        "train-no-output": "train bare",
        "train-ending": "train in.png -o t.txt --train-patches 500 --iterations 2",
        "evaluate-one": "evaluate in.png", "evaluate-sigma": "evaluate in.png --sigma 5,much",
        "inspect-missing": "inspect missing.png", "inspect-broken": "inspect broken.png --json",
        "inspect-words": "inspect words.npz", "reproduce-missing": "reproduce table bare",
    }  # fmt: skip
    files: dict[str, Maker | Picture] = {
        "in.png": TINY, "in.npy": REAL, "empty.png": lambda: b"", "words.png": lambda: b"just words",
        "words.npz": lambda: b"PK", "bare/notes.txt": lambda: b"no picture",
        "broken.png": lambda: GREY.encoded()[:3000],
        "broken.tif": lambda: DEEP.encoded()[:3000], "broken.npy": lambda: REAL.encoded()[:3000],
        "broken.jpg": lambda: Picture("colour", format="jpg").encoded()[:300],
    }  # fmt: skip
    return [case(f"error-{name}", files, command) for name, command in commands.items()]


def help_cases() -> list[Case]:
    """The help of every command."""
    commands = ("", "denoise", "train", "evaluate", "inspect", "reproduce", "reproduce table", "reproduce figure")
    return [case(f"help-{name.replace(' ', '-') or 'dstl'}", {}, f"{name} --help".strip()) for name in commands]


RARE = (
    "auto-fast-grey", "auto-paper-colour", "convert-npy", "convert-tif-npy", "error-density", "error-inspect",
    "error-patch", "error-sigma", "error-transform-missing", "evaluate-below", "evaluate-pair-identical",
    "folder-residual", "help-reproduce", "inspect-grey-float", "method-best-bresler", "method-best-dct",
    "method-best-sparse-bresler", "method-paper-dct", "option-best-jobs", "option-best-seed", "option-fast-error",
    "option-paper-density", "option-paper-jobs", "option-standard-iterations", "option-standard-jobs=1", "pipe-bmp",
    "pipe-pgm", "train-dct", "unusual-bilevel", "unusual-deflate", "unusual-motorola", "unusual-tiled",
)  # words of the names that only --all and --only take; others show nearly the same  # fmt: skip


def all_cases(full: bool) -> list[Case]:
    """Every case; with `full` all threes of what a picture can be instead of all pairs."""
    groups = (
        large_cases, estimate_cases, side_cases, transform_cases, method_cases, option_cases, file_cases, unusual_cases,
        train_cases, evaluate_cases, inspect_cases, reproduce_cases, error_cases, help_cases,
    )  # fmt: skip
    return product_cases(full) + [one for group in groups for one in group()]


# ---------------------------------------------------------------------------------------------------------------------
# Running them
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a command left on its channels, and the spelling it was given in."""

    command: str
    code: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True)
class Run:
    """What a case left behind: the outcome of every step and all files of its folder."""

    outcomes: list[Outcome]
    files: dict[str, bytes]


class Processes:
    """Starts commands and ends those still running when the tool itself is ended."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, command: list[str], *, cwd: Path, env: dict[str, str], stdin: bytes = b"") -> tuple[int, bytes, str]:
        """Exit code (-1: took too long), standard output and error of a command."""
        pipe = subprocess.PIPE
        with self._lock:
            if self._ended:
                raise RuntimeError("ended")
            process = subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
            self._running.add(process)
        try:
            stdout, stderr = process.communicate(stdin, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            return -1, b"", f"ended after {LONGEST:g} s"
        finally:
            with suppress(OSError):
                process.kill()
            process.wait()
            with self._lock:
                self._running.discard(process)
                ended = self._ended
        if ended:
            raise RuntimeError("ended")  # a run that was cut short says nothing
        return process.returncode, stdout, stderr.decode(errors="replace")

    def end(self) -> None:
        """Kill what runs and let nothing start any more."""
        with self._lock:
            self._ended = True
            for process in self._running:
                with suppress(OSError):
                    process.kill()


@dataclass(frozen=True)
class Tree:
    """A checkout whose command line is run."""

    label: str
    path: Path
    processes: Processes

    @property
    def environment(self) -> dict[str, str]:
        """Its modules first, wide text without colours, no settings of dstl from outside."""
        own = {"PYTHONPATH": str(self.path), "PYTHONIOENCODING": "utf-8", "COLUMNS": "200", "NO_COLOR": "1"}
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("DSTL_", "NUMBA_", "FORCE_COLOR"))
        }
        return kept | own

    def python(self, *arguments: str, cwd: Path, stdin: bytes = b"") -> tuple[int, bytes, str]:
        """Run Python in this tree."""
        return self.processes.run([sys.executable, *arguments], cwd=cwd, env=self.environment, stdin=stdin)

    def dstl(self, command: str, cwd: Path) -> Outcome:
        """Run a command as the user would."""
        words, _, source = command.partition(" < ")
        stdin = (cwd / source).read_bytes() if source else b""
        code, stdout, stderr = self.python("-m", PACKAGE, *shlex.split(words), cwd=cwd, stdin=stdin)
        return Outcome(command, code, stdout, stderr)

    def check(self, cwd: Path) -> None:
        """Refuse to go on where Python would find the package elsewhere."""
        code = f"import importlib.util as u; print(u.find_spec('{PACKAGE}').origin)"
        _, stdout, stderr = self.python("-c", code, cwd=cwd)
        if not stdout.decode().startswith(str(self.path)):
            raise SystemExit(f"{self.label}: {PACKAGE} is not found in {self.path} but in {stdout.decode()}{stderr}")

    def warm_up(self, folder: Path) -> None:
        """Compile the kernels once, so that later runs find them beside the sources."""
        cwd = folder / f"warm_{self.label}"
        cwd.mkdir(exist_ok=True)
        self.check(cwd)
        for picture in (TINY, COLOUR):
            (cwd / "in.png").write_bytes(picture.encoded())
            for options in QUALITIES.values():
                done = self.dstl(f"denoise in.png -f -q -o out.png {options}", cwd)
                if done.code:
                    print(f"{self.label}: denoise {options} ended with {done.code}: {done.stderr.strip()[-300:]}")


def run_case(one: Case, tree: Tree, folder: Path) -> Run:
    """Run a case in a new folder, which is removed afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        cwd = Path(name)
        for file, maker in one.inputs.items():
            (cwd / file).parent.mkdir(parents=True, exist_ok=True)
            (cwd / file).write_bytes(maker())
        outcomes = []
        for spellings in one.steps:
            for spelling in spellings:
                done = tree.dstl(spelling, cwd)
                if done.code != 2:
                    break
            outcomes.append(normalised(done, {str(cwd): "FOLDER", str(tree.path): "TREE"}))
        found = sorted(path for path in cwd.rglob("*") if path.is_file())
        return Run(outcomes, {path.relative_to(cwd).as_posix(): path.read_bytes() for path in found})


class Memory:
    """Runs of the old tree, kept while its commit, this file and the installed packages are the same."""

    def __init__(self, folder: Path | None, commit: str) -> None:
        software = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
        state = repr((commit, sys.version, software)).encode() + Path(__file__).read_bytes()
        self.folder = folder and folder / hashlib.sha256(state).hexdigest()[:16]

    def has(self, one: Case) -> bool:
        """Whether a case was run before."""
        return self.folder is not None and (self.folder / one.name).exists()

    def run(self, one: Case, tree: Tree, folder: Path) -> Run:
        """The run of a case, from before or a new one."""
        if self.folder is None:
            return run_case(one, tree, folder)
        place = self.folder / one.name
        if self.has(one):
            kept = pickle.loads(place.read_bytes())
            assert isinstance(kept, Run)
            return kept
        done = run_case(one, tree, folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.{os.getpid()}")
        part.write_bytes(pickle.dumps(done))
        part.replace(place)
        return done


def normalised(done: Outcome, places: Mapping[str, str]) -> Outcome:
    """The outcome with folders by name instead of by path."""
    stdout, stderr = done.stdout, done.stderr
    for path, name in places.items():
        stdout, stderr = stdout.replace(path.encode(), name.encode()), stderr.replace(path, name)
    return Outcome(done.command, done.code, stdout, stderr)


# ---------------------------------------------------------------------------------------------------------------------
# Comparing
# ---------------------------------------------------------------------------------------------------------------------

SERIOUS = ("pixels", "exit code", "files", "metadata")  # the others are bytes, json and text
VOLATILE = re.compile(r"(^|_)(seconds|version)$")
TIME = re.compile(r"\d+(\.\d+)?(e-?\d+)? ?(s|seconds)\b")
LAST_CELL = re.compile(r"<td[^>]*>[\d.]+</td></tr>")
COMPILING = "kernels are being compiled"  # said only where a kernel is needed for the first time
EMBEDDED = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")


@dataclass(frozen=True)
class Difference:
    """One thing in which the trees differ."""

    aspect: str
    text: str


def compared(old: Run, new: Run) -> list[Difference]:
    """All differences between two runs of a case."""
    found: list[Difference] = []
    for number, (before, after) in enumerate(zip(old.outcomes, new.outcomes, strict=True), 1):
        step = f"step {number}: " if len(old.outcomes) > 1 else ""
        found += [Difference(one.aspect, step + one.text) for one in compared_outcomes(before, after)]
    for name in sorted(old.files.keys() | new.files.keys()):
        if name not in new.files or name not in old.files:
            found.append(Difference("files", f"{name} is only written by the {'old' if name in old.files else 'new'}"))
        elif old.files[name] != new.files[name]:
            found += [Difference(one.aspect, f"{name}: {one.text}") for one in compared_files(name, old, new)]
    return found


def compared_outcomes(old: Outcome, new: Outcome) -> list[Difference]:
    """Exit code, standard output (a picture, JSON or text) and error."""
    found = []
    if old.code != new.code:
        told = [line for line in (new if new.code else old).stderr.splitlines() if re.search(r"\w", line)]
        found.append(Difference("exit code", f"{old.code} -> {new.code} ({told[-1].strip()[:120] if told else ''})"))
    if old.stdout != new.stdout:
        if old.code == new.code and "--json" in shlex.split(old.command):
            found += compared_json(old.stdout, new.stdout)
        elif kind_of(old.stdout) or kind_of(new.stdout):
            found += [
                Difference(one.aspect, f"stdout: {one.text}") for one in compared_pictures(old.stdout, new.stdout)
            ]
        else:
            found += compared_texts("stdout", old.stdout.decode(errors="replace"), new.stdout.decode(errors="replace"))
    return found + compared_texts("stderr", old.stderr, new.stderr)


def compared_files(name: str, old: Run, new: Run) -> list[Difference]:
    """Two files of one name and different bytes."""
    before, after = old.files[name], new.files[name]
    suffix = Path(name).suffix
    if suffix == ".npz":
        return compared_transforms(before, after)
    if suffix == ".csv":
        rows = [list(csv.DictReader(io.StringIO(text.decode()))) for text in (before, after)]
        return compared_tables(*rows)
    if suffix in (".html", ".txt", ".json"):
        return compared_texts("text", before.decode(errors="replace"), after.decode(errors="replace"))
    return compared_pictures(before, after)


def compared_pictures(old: bytes, new: bytes) -> list[Difference]:
    """Pixels and metadata; bytes count as much as pixels where pixels do not come back as they were stored (JPEG)."""
    try:
        pages = decode(old), decode(new)
    except Exception as error:  # a decoder may raise anything
        return [Difference("pixels", f"cannot be decoded ({type(error).__name__}: {error})")]
    found = []
    pixels = compared_pixels(*pages)
    if pixels:
        found.append(Difference("pixels", pixels))
    elif kind_of(old) == "jpg":
        found.append(Difference("pixels", f"the same, but {compared_bytes(old, new)}"))
    changed = compared_tables(metadata(old), metadata(new))
    found += [Difference("metadata", one.text) for one in changed]
    return found or [Difference("bytes", compared_bytes(old, new))]


def compared_bytes(old: bytes, new: bytes) -> str:
    """How two byte strings differ."""
    if len(old) != len(new):
        return f"{len(old)} -> {len(new)} bytes"
    different = np.flatnonzero(np.frombuffer(old, np.uint8) != np.frombuffer(new, np.uint8))
    return f"{different.size} of {len(old)} bytes differ, the first at {different[0]}"


def compared_pixels(old: list[Pixels], new: list[Pixels]) -> str:
    """How the pages of two pictures differ; empty: not at all."""
    shapes = [[f"{'x'.join(map(str, page.shape))} {page.dtype}" for page in pages] for pages in (old, new)]
    if shapes[0] != shapes[1]:
        return f"{', '.join(shapes[0])} -> {', '.join(shapes[1])}"
    largest, count, total, scale = 0.0, 0, 0, 1.0
    for before, after in zip(old, new, strict=True):
        same = (before == after) | ((before != before) & (after != after))
        total += before.shape[0] * before.shape[1] if before.ndim >= 2 else before.size
        if same.all():
            continue
        count += int(np.count_nonzero(~same.all(axis=-1) if before.ndim == 3 else ~same))
        with np.errstate(invalid="ignore"):
            largest = max(largest, float(np.max(np.abs(before[~same].astype(float) - after[~same].astype(float)))))
        scale = 257.0 if before.dtype == np.uint16 else 1.0
    if not count:
        return ""
    levels = f" ({largest / scale:.3g} on 0-255)" if scale != 1 else ""
    return f"up to {largest:.4g}{levels} in {100 * count / total:.3g} % of the pixels"


def kind_of(file: bytes) -> str:
    """The format of a picture file by its first bytes; empty: none that is known here."""
    starts = {
        b"\x89PNG": "png", b"II*\0": "tif", b"MM\0*": "tif", b"II+\0": "tif", b"MM\0+": "tif", b"\xff\xd8\xff": "jpg",
        b"BM": "bmp", b"P5": "pnm", b"P6": "pnm", b"\x93NUMPY": "npy", b"RIFF": "webp",
    }  # fmt: skip
    return next((kind for start, kind in starts.items() if file.startswith(start)), "")


def decode(file: bytes) -> list[Pixels]:
    """The pages of a picture file, read without dstl."""
    kind = kind_of(file)
    if kind == "tif":
        with tifffile.TiffFile(io.BytesIO(file)) as pages:
            return [page.asarray() for page in pages.pages]
    if kind == "npy":
        return [np.load(io.BytesIO(file), allow_pickle=False)]
    if kind == "pnm":
        return [netpbm(file)]
    if kind == "bmp":
        return [np.asarray(Image.open(io.BytesIO(file)))]
    codecs = {"png": imagecodecs.png_decode, "jpg": imagecodecs.jpeg8_decode, "webp": imagecodecs.webp_decode}
    if kind not in codecs:
        raise ValueError("no picture")
    return [codecs[kind](file)]


def netpbm(file: bytes) -> Pixels:
    """The pixels of a binary PGM or PPM file; Pillow would make 8 bit of 16."""
    head = re.match(rb"P([56])(?:\s+#[^\n]*)*\s+(\d+)\s+(\d+)\s+(\d+)\s", file)
    if head is None:
        raise ValueError("no binary PGM or PPM")
    channels, (width, height, white) = (1 if head[1] == b"5" else 3), (int(word) for word in head.groups()[1:])
    values = np.frombuffer(file, ">u2" if white > 255 else "u1", width * height * channels, head.end())
    return values.astype(np.uint16 if white > 255 else np.uint8).reshape(
        (height, width, channels)[: 2 + (channels > 1)]
    )


def metadata(file: bytes) -> dict[str, Any]:
    """What a picture file has besides its pixels, as an independent reader sees it."""
    kind = kind_of(file)
    if kind in ("npy", "pnm"):
        return {}
    if kind == "tif":
        with tifffile.TiffFile(io.BytesIO(file)) as pages:
            tags = {f"{n}.{tag.name}": tag.value for n, page in enumerate(pages.pages) for tag in page.tags}
        places = ("Offsets", "ByteCounts", "RowsPerStrip", "ExifTag")
        return {name: str(value) for name, value in tags.items() if not name.endswith(places)}
    with warnings.catch_warnings(), suppress(OSError):
        warnings.simplefilter("ignore")
        picture = Image.open(io.BytesIO(file))
        return {"mode": picture.mode} | {str(key): str(value) for key, value in picture.info.items()}
    return {}


def compared_transforms(old: bytes, new: bytes) -> list[Difference]:
    """T counts as pixels do; the rest of a transform file as JSON does."""
    try:
        (before, facts), (after, new_facts) = transform_file(old), transform_file(new)
    except Exception as error:  # whatever a changed layout leads to
        return [Difference("pixels", f"no transform file as docs/commands.md has it ({type(error).__name__}: {error})")]
    found = []
    if before.shape != after.shape:
        found.append(Difference("pixels", f"T: {len(before)} -> {len(after)} rows"))
    elif (before != after).any():
        largest = np.max(np.abs(before - after)) / np.max(np.abs(before))
        share, support = np.mean(before != after), np.count_nonzero((before != 0) != (after != 0))
        text = f"T: up to {largest:.3g} of its largest entry, in {100 * share:.3g} % of the entries"
        found.append(Difference("pixels", f"{text}, {support} are zero in one only"))
    found += compared_tables(facts, new_facts)
    return found or [Difference("bytes", compared_bytes(old, new))]


def transform_file(file: bytes) -> tuple[Pixels, dict[str, Any]]:
    """T and all else that a transform file holds."""
    with np.load(io.BytesIO(file), allow_pickle=False) as entries:
        held = {name: entries[name] for name in entries.files}
    factor = np.zeros((int(held.pop("patch_size")) ** 2,) * 2)
    factor[held.pop("rows"), held.pop("columns")] = held.pop("values")
    facts: dict[str, Any] = {name: value.tolist() for name, value in held.items()}
    facts["provenance"] = json.loads(facts["provenance"])
    return factor, facts


def compared_json(old: bytes, new: bytes) -> list[Difference]:
    """Two JSON documents without what changes from run to run."""
    try:
        before, after = json.loads(old or b"null"), json.loads(new or b"null")
    except ValueError as error:
        return [Difference("json", f"no JSON ({error})")]
    return compared_tables(before, after)


def compared_tables(old: object, new: object) -> list[Difference]:
    """How many entries of nested tables were added, removed and changed, with the first of each."""
    before, after = dict(flattened(old)), dict(flattened(new))
    both = [key for key in before if key in after]
    kinds = {
        "added": [key for key in after if key not in before],
        "removed": [key for key in before if key not in after],
        "changed": [f"{key} {before[key]!s:.40} -> {after[key]!s:.40}" for key in both if before[key] != after[key]],
    }
    texts = [f"{len(keys)} {kind} ({shortened(keys)})" for kind, keys in kinds.items() if keys]
    return [Difference("json", "; ".join(texts))] if texts else []


def shortened(names: Sequence[str], most: int = 3) -> str:
    """The first few names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def flattened(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """The entries of nested tables and lists by their path, without seconds and versions."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not VOLATILE.search(str(key)):
                yield from flattened(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from flattened(inner, f"{name}[{index}]")
    else:
        yield name, value


def compared_texts(name: str, old: str, new: str) -> list[Difference]:
    """How many lines differ, with the first."""
    before, after = (timeless(text).splitlines() for text in (old, new))
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    spans = [(i, k, j, m) for kind, i, k, j, m in steps if kind != "equal"]
    if not spans:
        return []
    i, k, j, m = spans[0]
    first, second = (before[i] if i < k else ""), (after[j] if j < m else "")
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    start = max(0, len(list(alike)) - 20)
    count = sum(max(k - i, m - j) for i, k, j, m in spans)
    shown = f"{first[start : start + 90]!r} -> {second[start : start + 90]!r}"
    return [Difference("text", f"{name}: {count} of {len(before)} lines, first {shown}")]


def timeless(text: str) -> str:
    """A text without seconds and the widths of columns; pictures in a page by what they show."""
    text = EMBEDDED.sub(lambda found: fingerprint(found[1]), text)
    text = LAST_CELL.sub("</tr>", TIME.sub("# s", text))
    lines, in_table = [], False
    for line in text.splitlines():
        if COMPILING in line:
            continue
        bare = " ".join(re.sub(r"[─━]+", "─", line).split())
        in_table = bool(bare) and (in_table or bare.endswith((" s", " seconds")))
        lines.append(re.sub(r" [\d.]+$", " #", bare) if in_table else bare)
    return "\n".join(lines)


def fingerprint(encoded: str) -> str:
    """A short name for the pixels of a picture in a page."""
    return hashlib.sha256(decode(base64.b64decode(encoded))[0].tobytes()).hexdigest()[:12]


# ---------------------------------------------------------------------------------------------------------------------
# Reporting
# ---------------------------------------------------------------------------------------------------------------------


class Report:
    """The table of differences and the count of them."""

    def __init__(self, expected: Sequence[str], strict: bool, width: int) -> None:
        self.expected, self.strict, self.width = expected, strict, width
        self.counts: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.failed: list[str] = []
        self.differing: list[str] = []
        self.lesser: dict[tuple[str, str, str], list[str]] = {}  # (aspect, mark, text): the cases

    def add(self, name: str, differences: Sequence[Difference]) -> None:
        """Print what is serious in a case at once, keep the rest for the end, and keep count."""
        expected = named(name, self.expected)
        for one in differences:
            serious = one.aspect in SERIOUS
            mark = "expected" if expected else "DIFFERS" if serious or self.strict else ""
            if serious:
                self._print(name, one.aspect, mark, one.text)
            else:
                self.lesser.setdefault((one.aspect, mark, one.text), []).append(name)
        self.counts.update({one.aspect for one in differences})
        if differences:
            self.differing.append(name)
        if not expected and any(self.strict or one.aspect in SERIOUS for one in differences):
            self.failed.append(name)

    def _print(self, name: str, aspect: str, mark: str, text: str) -> None:
        print(f"{name:{self.width}}  {aspect:9}  {mark:8}  {text}", flush=True)

    def finish(self, total: int, seconds: float) -> int:
        """Print the sums; the exit code."""
        kinds = ", ".join(f"{count} in {aspect}" for aspect, count in sorted(self.counts.items())) or "no difference"
        for (aspect, mark, text), names in self.lesser.items():
            self._print(names[0], aspect, mark, text)
            if names[1:]:
                print(f"    and {len(names) - 1} more like it: {shortened(names[1:], 4)}")
        codes = ", ".join(f"{count} with {code}" for code, count in sorted(self.codes.items()))
        print(f"{self.codes.total()} commands of the new tree ended: {codes}.")
        print(f"{total} cases in {seconds:.0f} s, {len(self.differing)} differ: {kinds}.")
        for word in self.expected:
            if not any(word in name for name in self.differing):
                print(f"Nothing named {word!r} differs, although that was expected.")
        if self.failed:
            print(f"{len(self.failed)} cases differ and were not expected to: {shortened(self.failed, 5)}")
        return 1 if self.failed else 0


def named(name: str, words: Iterable[str]) -> bool:
    """Whether a name has one of the words in it."""
    return any(word in name for word in words)


def compare(
    trees: tuple[Tree, Tree], folder: Path, cases: Sequence[Case], report: Report, memory: Memory, jobs: int
) -> int:
    """Run and compare all cases; the exit code."""
    start = perf_counter()
    processes = trees[0].processes

    def differences(one: Case) -> list[Difference]:
        old, new = memory.run(one, trees[0], folder), run_case(one, trees[1], folder)
        found = compared(old, new)
        report.codes.update(outcome.code for outcome in new.outcomes)
        spellings = [[outcome.command for outcome in run.outcomes] for run in (old, new)]
        if found and spellings[0] != spellings[1]:
            found.append(Difference("spelling", f"{' | '.join(spellings[0])} -> {' | '.join(spellings[1])}"))
        return found

    with ThreadPoolExecutor(jobs) as pool:
        try:
            warm_up(trees[1:] if all(map(memory.has, cases)) else trees, folder, pool)
            for number, (one, found) in enumerate(zip(cases, pool.map(differences, cases), strict=True), 1):
                if sys.stderr.isatty():
                    print(f"\r\033[K{number}/{len(cases)} {one.name}\r", end="", file=sys.stderr, flush=True)
                report.add(one.name, found)
        except BaseException:
            processes.end()
            pool.shutdown(cancel_futures=True)
            raise
    return report.finish(len(cases), perf_counter() - start)


def warm_up(trees: Sequence[Tree], folder: Path, pool: ThreadPoolExecutor) -> None:
    """Compile the kernels of the trees."""
    start = perf_counter()
    list(pool.map(lambda tree: tree.warm_up(folder), trees))
    print(f"Kernels compiled in {perf_counter() - start:.0f} s.", flush=True)


# ---------------------------------------------------------------------------------------------------------------------
# Seconds
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """A command whose wall time is compared: words for Python, and the share of the repeats it gets."""

    name: str
    words: tuple[str, ...]
    source: Picture | None = None
    share: float = 1.0


def timings(full: bool) -> list[Timing]:
    """What --seconds measures; `full` adds the paper's protocol on the large picture."""
    dstl = ("-m", PACKAGE)
    found = [Timing("import-numpy", ("-c", "import numpy")), Timing("help", (*dstl, "--help"))]
    small = Picture(size=(512, 512))
    large = Picture("colour", size=(2000, 3000), format="jpg")
    for picture, kind, share in ((small, "grey-512", 1.0), (large, "colour-6mp", 0.4)):
        for quality, options in QUALITIES.items():
            if quality == "paper" and picture is large and not full:
                continue
            files = ("denoise", f"{kind}.{picture.suffix}", "-o", f"out.{picture.suffix}", "-f", "-q", "--sigma", "20")
            found.append(Timing(f"{kind}-{quality}", (*dstl, *files, *options.split()), picture, share))
    return found


@cache
def encoded_once(picture: Picture) -> bytes:
    """The file of a picture, kept."""
    return picture.encoded()


def measure(trees: tuple[Tree, Tree], folder: Path, wanted: Sequence[Timing], repeats: int) -> int:
    """Print wall and processor time of both trees, taken by turns after one run of each that does not count."""
    heads = "".join(f" {word:>8}" for word in ("old s", "new s", "new/old", " old cpu", "new cpu", "new/old"))
    print(f"{'medians of':20} runs{heads}")
    for timing in wanted:
        if timing.source is not None:
            (folder / timing.words[3]).write_bytes(encoded_once(timing.source))
        times = max(1, round(repeats * timing.share))
        turns = [[timed(tree, timing, folder) for tree in trees] for _ in range(times + 1)][1:]
        wall, cpu = ([statistics.median(turn[tree][kind] for turn in turns) for tree in (0, 1)] for kind in (0, 1))
        columns = (f"{old:8.3f} {new:8.3f} {new / old:8.3f}" for old, new in (wall, cpu))
        print(f"{timing.name:20} {times:4d} {'  '.join(columns)}", flush=True)
    return 0


def timed(tree: Tree, timing: Timing, folder: Path) -> tuple[float, float]:
    """Wall and processor seconds of a run; the second suffers less from what else the machine does."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    code, _, stderr = tree.python(*timing.words, cwd=folder)
    wall, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise SystemExit(f"{tree.label}: {' '.join(timing.words)} ended with {code}: {stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# ---------------------------------------------------------------------------------------------------------------------
# The two trees
# ---------------------------------------------------------------------------------------------------------------------


def git(tree: Path, *arguments: str) -> str:
    """What git says, or the end of the program."""
    done = subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def two_trees(tree: Path, commit: str) -> Iterator[tuple[tuple[Tree, Tree], Path]]:
    """The old and the new tree in a temporary folder, and a folder to work in; all of it is gone afterwards.

    The new one is a copy, so the checkout can be worked on meanwhile, and without its caches: numba does not notice
    when a kernel calls another that changed in another file.
    """
    with tempfile.TemporaryDirectory(prefix="dstl-against-", ignore_cleanup_errors=True) as name:
        place = Path(name).resolve()
        processes = Processes()
        try:
            git(tree, "worktree", "add", "--detach", "--quiet", str(place / "old"), commit)
            shutil.copytree(tree / PACKAGE, place / "new" / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
            (place / "work").mkdir()
            changed = "with changes" if git(tree, "status", "--porcelain", PACKAGE) else "without changes"
            print(f"old: {commit[:12]}  new: {tree} at {git(tree, 'rev-parse', 'HEAD')[:12]} {changed}", flush=True)
            yield (Tree("old", place / "old", processes), Tree("new", place / "new", processes)), place / "work"
        finally:
            processes.end()
            remove = ["git", "-C", str(tree), "worktree", "remove", "--force", "--force", str(place / "old")]
            subprocess.run(remove, capture_output=True, check=False)


def end_tidily() -> None:
    """Let the first signal unwind the program, so that everything is removed, and later ones not disturb that."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _: object) -> NoReturn:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in signals:
        signal.signal(each, end)


def words(text: str) -> list[str]:
    """The words of a list with commas."""
    return [word for word in text.split(",") if word]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("revision", metavar="REV", help="the revision to compare with")
    add("--tree", type=Path, default=Path(__file__).resolve().parents[1], help="the present tree (that of this file)")
    add("--only", type=words, default=[], metavar="WORD[,WORD]", help="only cases with such a word in their name")
    add("--expect", type=words, default=[], metavar="WORD[,WORD]", help="cases that may differ: listed, not counted")
    add("--all", action="store_true", help="more cases: all threes of quality, layout, depth, sigma, size and format")
    add("--strict", action="store_true", help="texts, JSON and bytes count like pixels")
    add("--jobs", type=int, default=1, help="cases run at the same time (1)")
    add("--cache", type=Path, metavar="DIR", help="keep what the old tree gave, so that the next call need not run it")
    add("--seconds", action="store_true", help="compare wall times instead; --only and --all choose here too")
    add("--repeats", type=int, default=5, help="runs of each tree with --seconds (5; fewer for large pictures)")
    add("--list", action="store_true", help="only print the names of the cases")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    tree = given.tree.resolve()
    everything: Sequence[Case | Timing] = timings(given.all) if given.seconds else all_cases(given.all)
    if given.only:
        wanted = [one for one in everything if named(one.name, given.only)]
    else:
        wanted = [one for one in everything if given.all or not named(one.name, RARE)]
    if not wanted:
        raise SystemExit(f"No case has {' or '.join(given.only)} in its name; --list shows them.")
    if given.list:
        print("\n".join(one.name for one in wanted))
        return 0
    if not (tree / PACKAGE).is_dir():
        raise SystemExit(f"There is no {PACKAGE} in {tree}.")
    end_tidily()
    commit = git(tree, "rev-parse", "--verify", f"{given.revision}^{{commit}}")
    with two_trees(tree, commit) as (trees, folder):
        if given.seconds:
            return measure(trees, folder, [one for one in wanted if isinstance(one, Timing)], given.repeats)
        cases = [one for one in wanted if isinstance(one, Case)]
        report = Report(given.expect, given.strict, max(len(one.name) for one in cases))
        return compare(trees, folder, cases, report, Memory(given.cache, commit), given.jobs)


if __name__ == "__main__":
    raise SystemExit(main())
