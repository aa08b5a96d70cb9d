"""Speed and memory as ratios within one run: `python benchmarks/speed.py [--quick | --large QUALITY]`.

(a) coding pass against a plain numpy implementation of the definition, one thread against two
(b) the whole command against scikit-image's NL-means, wavelet and TV denoisers, each a fresh process
(c) seconds per megapixel and peak memory from 0.25 to 24 megapixels
(d) start-up of `dstl --version`, `--help` and an empty Python
(e) first run with an empty kernel cache, and a run whose cache folder cannot be used, so that numba looks for another
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.threads import Execution, available_cores
from dstl_cli.denoising.paper import make_coder
from dstl_cli.denoising.passes import paper_estimate, patch_average
from dstl_cli.denoising.settings import PaperSettings
from dstl_cli.learning.settings import most_coefficients
from dstl_cli.patches.grid import Lattice, positions
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.transform import Transform

SIGMA, SIZE = 20.0, 11
PEERS = {
    "nl-means": "restoration.denoise_nl_means(y, h=0.8*s, sigma=s, fast_mode=True, patch_size=5, patch_distance=6)",
    "wavelet": "restoration.denoise_wavelet(y, sigma=s, rescale_sigma=False)",
    "tv": "restoration.denoise_tv_chambolle(y, weight=0.1)",
}
READ = "y = tifffile.imread(sys.argv[1]) / 255; s = 20 / 255"
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, code)
"""


def scene(height: int, width: int) -> NDArray[np.uint8]:
    """A picture with flat parts, edges and texture plus noise of deviation 20, in 8 bit."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    picture = 110 + 50 * np.sin(x / 37) * np.cos(y / 53) + 30 * ((x // 64 + y // 64) % 2) + 15 * np.sin(x * y / 9000)
    noise = np.random.default_rng(0).standard_normal((height, width), dtype=np.float32)
    return np.asarray(np.clip(np.rint(picture + SIGMA * noise), 0, 255), dtype=np.uint8)


def best_of(run: Callable[[], object], times: int = 3) -> float:
    """Shortest wall time of some runs."""
    seconds = []
    for _ in range(times):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return min(seconds)


def process(*command: str | Path, environment: dict[str, str] | None = None) -> tuple[float, float]:
    """Wall seconds and peak MiB of a whole process."""
    measure = [sys.executable, "-c", MEASURE, *map(str, command)]
    done = subprocess.run(
        measure, capture_output=True, text=True, check=True, env={**os.environ, **(environment or {})}
    )
    seconds, memory, code = done.stdout.split()
    if code != "0":
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return float(seconds), float(memory)


def definition(image: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Coding and averaging as defined: the estimate for each k in turn until the error is allowed."""
    p = SIZE
    rows, columns = (positions(length, p) for length in image.shape)
    w = dct_matrix(p)
    mu = 0.01 / SIGMA
    inverse = np.linalg.inv(mu * np.eye(p * p) + w.T @ w)
    total, weight = np.zeros(image.shape), np.zeros(image.shape)
    for row in rows:
        for column in columns:
            patch = image[row : row + p, column : column + p].ravel()
            y = patch - patch.mean()
            z = w @ y
            order = np.argsort(-np.abs(z), kind="stable")
            code = np.zeros_like(z)
            for k in range(most + 1):
                if k:
                    code[order[k - 1]] = z[order[k - 1]]
                x = inverse @ (mu * y + w.T @ code)
                if np.linalg.norm(x - y) <= 1.04 * SIGMA * p:
                    break
            total[row : row + p, column : column + p] += x.reshape(p, p) + patch.mean()
            weight[row : row + p, column : column + p] += 1
    return np.asarray(total / weight)


def coding(quick: bool) -> None:
    """(a)"""
    coder = make_coder(Transform.fixed(SIZE), SIGMA, PaperSettings())
    estimate = paper_estimate(coder, None)
    image = scene(512, 512).astype(np.float64)
    plane = Plane.whole(image.astype(np.float32))

    def run(threads: int) -> NDArray[np.floating[Any]]:
        return patch_average([plane], SIZE, Lattice(1, 1), estimate, Execution(threads)).values

    run(1)
    one, two = best_of(lambda: run(1), 5), best_of(lambda: run(2), 5)
    part = image[:64, :64] if quick else image[:128, :128]
    naive = best_of(lambda: definition(part, most_coefficients(SIZE)), 1)
    naive *= (image.shape[0] - SIZE + 1) ** 2 / (part.shape[0] - SIZE + 1) ** 2
    print(f"(a) coding + aggregation, 512x512: {one:.3f} s on one thread, {two:.3f} s on two ({one / two:.2f} x)")
    print(f"    plain numpy definition (part of it, scaled up): {naive:.1f} s, {naive / two:.0f} x slower")


def peers(folder: Path) -> None:
    """(b)"""
    import tifffile

    picture = folder / "peer.tiff"
    tifffile.imwrite(picture, scene(512, 512).astype(np.float32))
    own = {}
    for name, options in {"fast": ["--quality", "fast"], "standard": [], "preset paper": ["--preset", "paper"]}.items():
        own[name] = min(denoising(picture, folder / "own.tiff", *options)[0] for _ in range(3))
        print(f"(b) dstl {name}: {own[name]:.2f} s")
    for name, call in PEERS.items():
        code = f"import sys, tifffile; from skimage import restoration; {READ}; {call}"
        try:
            seconds = min(process(sys.executable, "-c", code, picture)[0] for _ in range(3))
        except SystemExit:
            print(f"    {name}: not installed here")
            continue
        ratios = ", ".join(f"{seconds / own_seconds:.2f} x dstl {kind}" for kind, own_seconds in own.items())
        print(f"    {name}: {seconds:.2f} s = {ratios}")


def scaling(folder: Path, quick: bool) -> None:
    """(c)"""
    import tifffile

    base = 0.0
    sizes = (
        [(512, 512), (1024, 1024), (2048, 2048)] if quick else [(512, 512), (1024, 1024), (2000, 3000), (4000, 6000)]
    )
    for height, width in sizes:
        for colour in (False, True):
            picture = scene(height, width)
            path = folder / "large.tiff"
            tifffile.imwrite(path, np.stack([picture, picture[::-1], picture[:, ::-1]], axis=-1) if colour else picture)
            seconds, memory = denoising(path, folder / "out.tiff", "--preset", "paper", "--method", "dct")
            megapixels = height * width / 1e6
            if (height, width) == (1024, 1024) and not colour:
                base = seconds / megapixels
            ratio = f", {seconds / megapixels / base:.2f} x one megapixel" if base and not colour else ""
            kind = "RGB" if colour else "grey"
            print(f"(c) {megapixels:5.2f} Mpx {kind:4s}: {seconds / megapixels:.3f} s each{ratio}, {memory:.0f} MiB")


def large(folder: Path, quality: str) -> None:
    """A quality at one and at twelve megapixels of grey."""
    import tifffile

    path = folder / "large.tiff"
    each = []
    for height, width in ((1000, 1000), (3000, 4000)):
        tifffile.imwrite(path, scene(height, width))
        seconds, memory = denoising(path, folder / "out.tiff", "--quality", quality)
        each.append(seconds / (height * width / 1e6))
        ratio = f"{each[-1] / each[0]:.2f} x one megapixel"
        print(f"{quality}, {height}x{width}: {seconds:.1f} s, {each[-1]:.2f} s a megapixel ({ratio}), {memory:.0f} MiB")


def start_up(folder: Path) -> None:
    """(d) and (e)"""
    empty = min(process(sys.executable, "-c", "pass")[0] for _ in range(5))
    for option in ("--version", "--help"):
        print(
            f"(d) dstl {option}: {min(process(dstl(), option)[0] for _ in range(5)):.3f} s (empty Python {empty:.3f} s)"
        )
    import tifffile

    picture = folder / "small.tiff"
    tifffile.imwrite(picture, scene(128, 128))
    target = folder / "small_out.tiff"
    cache = {"NUMBA_CACHE_DIR": str(folder / "cache")}
    cold, warm = denoising(picture, target, environment=cache)[0], denoising(picture, target, environment=cache)[0]
    blocked = folder / "no-folder"
    blocked.write_text("a file where the cache folder should be")
    without = denoising(picture, target, environment={"NUMBA_CACHE_DIR": str(blocked)})[0]
    print(f"(e) first run {cold:.2f} s, later {warm:.2f} s: an empty kernel cache costs {cold - warm:.2f} s once")
    print(f"    where the cache folder cannot be used and another is found: {without:.2f} s")


def denoising(
    source: Path, target: Path, *options: str, environment: dict[str, str] | None = None
) -> tuple[float, float]:
    """Wall seconds and peak MiB of `dstl denoise` at sigma 20."""
    fixed = ("--sigma", "20", "-q", "-f")
    return process(dstl(), "denoise", source, "-o", target, *fixed, *options, environment=environment)


def dstl() -> str:
    """The installed program beside this Python."""
    return str(Path(sys.executable).with_name("dstl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller pictures")
    parser.add_argument("--large", metavar="QUALITY", help="only this quality, at 1 and 12 megapixels")
    arguments = parser.parse_args()
    quick = arguments.quick
    print(f"{available_cores()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.large:
            large(folder, arguments.large)
            return
        coding(quick)
        peers(folder)
        scaling(folder, quick)
        start_up(folder)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
