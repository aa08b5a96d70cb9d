"""Large pictures against what photographers use instead: `python benchmarks/large.py [--megapixels 1,6,24]`.

Whole fresh processes on the same files, one after the other: `dstl denoise FILE --quality Q` with nothing else given,
OpenCV's fastNlMeansDenoising (7, 21) and scikit-image's fast NL-means (grey alone). Colour as JPEG and 16-bit TIFF,
grey as PNG and 16-bit TIFF; OpenCV takes 8 bit only. A scene of free pictures as the simulated camera takes it at ISO
6400. Kernels are compiled before. Prints a Markdown row each: wall seconds, seconds a megapixel, peak memory, and speed
as a multiple of OpenCV's. OpenCV: `pip install 'dstl-cli[benchmarks]'`.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
from numpy.typing import NDArray
from speed import dstl, process

from dstl_cli.base.threads import available_cores
from dstl_cli.noise.synthetic import camera_jpeg

QUALITIES = ("fast", "standard", "best")
ISO = 6400
JPEG_TILE = (1000, 1500)  # the scene is taken once and laid out as often as a picture needs
OPENCV = """
import sys, cv2
y = cv2.imread(sys.argv[1], cv2.IMREAD_UNCHANGED)
x = cv2.fastNlMeansDenoising{kind}(y, None, {strength}, 7, 21)
cv2.imwrite(sys.argv[2], x)
"""
SKIMAGE = """
import sys, imageio.v3 as iio, numpy as np
from skimage.restoration import denoise_nl_means
y = iio.imread(sys.argv[1]); s = 10 / 255
x = denoise_nl_means(y / np.iinfo(y.dtype).max, h=0.8 * s, sigma=s, fast_mode=True, patch_size=5, patch_distance=6)
iio.imwrite(sys.argv[2], (np.clip(x, 0, 1) * np.iinfo(y.dtype).max).round().astype(y.dtype))
"""

Pixels = NDArray[Any]


def photograph(megapixels: float) -> Pixels:
    """A noisy colour picture of about this size, three to two: free pictures side by side, laid out again and again."""
    import imagecodecs

    parts = [skimage.data.astronaut(), skimage.data.coffee()[:400, :600], skimage.data.rocket()[:400, :600]]
    scene = np.zeros((*JPEG_TILE, 3), np.uint8)
    for number in range(6):
        row, column = divmod(number, 3)
        part = np.kron(parts[number % 3], np.ones((2, 2, 1), np.uint8))
        scene[500 * row : 500 * row + 500, 500 * column : 500 * column + 500] = part[200:700, 200:700]
    taken = imagecodecs.jpeg_decode(camera_jpeg(scene, ISO, seed=0))
    height = round((megapixels * 1e6 * 2 / 3) ** 0.5)
    width = round(height * 1.5)
    repeats = (-(-height // JPEG_TILE[0]), -(-width // JPEG_TILE[1]), 1)
    return np.ascontiguousarray(np.tile(taken, repeats)[:height, :width])


def files(folder: Path, megapixels: float) -> Iterator[tuple[str, Path]]:
    """What is denoised: a name and a file."""
    import imagecodecs
    import tifffile

    colour = photograph(megapixels)
    path = folder / "colour.jpg"
    path.write_bytes(imagecodecs.jpeg_encode(colour, level=92, subsampling="420"))
    yield "colour, JPEG", path
    tifffile.imwrite(folder / "colour16.tif", colour.astype(np.uint16) * 257)
    yield "colour, 16-bit TIFF", folder / "colour16.tif"
    imagecodecs.imwrite(folder / "grey.png", np.ascontiguousarray(colour[..., 1]))
    yield "grey, PNG", folder / "grey.png"
    tifffile.imwrite(folder / "grey16.tif", colour[..., 1].astype(np.uint16) * 257)
    yield "grey, 16-bit TIFF", folder / "grey16.tif"


def commands(name: str, source: Path, qualities: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Who denoises a file, and how it is called; OpenCV first."""
    target = source.with_name(f"out{source.suffix}")
    if "16-bit" not in name:
        kind, strength = ("Colored", "10, 10") if "colour" in name else ("", "10")
        script = OPENCV.format(kind=kind, strength=strength)
        yield "OpenCV NL-means", [sys.executable, "-c", script, str(source), str(target)]
    if "grey" in name:
        yield "scikit-image NL-means", [sys.executable, "-c", SKIMAGE, str(source), str(target)]
    for quality in qualities:
        yield quality, [dstl(), "denoise", str(source), "-o", str(target), "--quality", quality, "-q", "-f"]


def compile_kernels(qualities: list[str], only: str) -> None:
    """Have a small picture of each kind denoised, so that what is measured finds its kernels compiled."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in files(Path(folder), 1.0):
            if name.startswith(only):
                for who, command in commands(name, source, qualities):
                    if who in qualities:
                        process(*command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", default="1,6,24")
    parser.add_argument("--quality", default=",".join(QUALITIES))
    parser.add_argument("--only", default="", help="pictures whose names begin so, such as 'colour, JPEG'")
    arguments = parser.parse_args()
    qualities = arguments.quality.split(",")
    compile_kernels(qualities, arguments.only)
    print(f"{available_cores()} cores\n")
    headings = ("megapixels", "picture", "", "seconds", "a megapixel", "peak MiB", "speed over OpenCV")
    print(f"| {' | '.join(headings)} |\n{'|---' * len(headings)}|")
    for megapixels in map(float, arguments.megapixels.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for name, source in files(Path(folder), megapixels):
                if not name.startswith(arguments.only):
                    continue
                peer = 0.0
                for who, command in commands(name, source, qualities):
                    seconds, memory = process(*command)
                    peer = seconds if who.startswith("OpenCV") else peer
                    ratio = f"{peer / seconds:.2f}" if peer else ""
                    each = seconds / megapixels
                    cells = (f"{megapixels:g}", name, who, f"{seconds:.1f}", f"{each:.2f}", f"{memory:.0f}", ratio)
                    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
