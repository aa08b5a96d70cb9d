"""What the child costs that decodes files: `python benchmarks/decoding.py [--runs 5]`.

(a) processor milliseconds of reading a picture, in a child (its start counted apart) and with --trust-files: a grey
    PNG of 128x128, and 24 megapixels of colour as JPEG, PNG and deflated TIFF
(b) wall seconds of whole processes in turn, the least of the runs: `dstl denoise --quality fast` on the small picture
"""

import argparse
import resource
import tempfile
from pathlib import Path
from time import process_time

import imagecodecs
import numpy as np
import skimage.data
import tifffile
from small import timed

from dstl_cli.picture.decoding import asking
from dstl_cli.picture.read import read_picture


def make_files(folder: Path) -> list[Path]:
    """The small picture, and the large one in three formats."""
    rng = np.random.default_rng(0)
    large = np.tile(skimage.data.astronaut(), (8, 12, 1))[:4000, :6000]
    noisy = np.clip(np.rint(large + rng.normal(0, 10, large.shape)), 0, 255).astype(np.uint8)
    imagecodecs.imwrite(folder / "small.png", skimage.data.camera()[100:228, 100:228])
    imagecodecs.imwrite(folder / "large.png", noisy, level=1)
    imagecodecs.imwrite(folder / "large.jpg", noisy, level=92)
    tifffile.imwrite(folder / "large.tif", noisy, compression="zlib", photometric="rgb", rowsperstrip=16)
    return [folder / name for name in ("small.png", "large.jpg", "large.png", "large.tif")]


def of_children() -> float:
    """Processor seconds of children that have ended."""
    asking.end_children()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spent(path: Path, times: int, *, trusted: bool) -> float:
    """Processor seconds of this process and its child for reading a file so many times."""
    with asking.reading(trusted=trusted):
        before, start = of_children(), process_time()
        for _ in range(times):
            read_picture(path).page(0)
        here = process_time() - start
        return here + of_children() - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        files = make_files(Path(name))
        spent(files[0], 1, trusted=True)
        started = min(spent(files[0], 1, trusted=False) for _ in range(runs))
        print(f"start of the child with a first small file: {1e3 * started:.0f} ms")
        for path in files:
            times = 300 if path.name.startswith("small") else 2
            child = (min(spent(path, times, trusted=False) for _ in range(runs)) - started) / times
            trust = min(spent(path, times, trusted=True) for _ in range(runs)) / times
            print(f"{path.name}: {1e3 * child:.2f} ms in the child, {1e3 * trust:.2f} ms with --trust-files")
        words = (
            "-m",
            "dstl_cli",
            "denoise",
            files[0],
            "-o",
            Path(name) / "out.png",
            "--force",
            "--quality",
            "fast",
            "--quiet",
        )
        walls = [(timed(*words)[0], timed(*words, "--trust-files")[0]) for _ in range(2 * runs)]
        print("whole process: {:.3f} s, {:.3f} s with --trust-files".format(*map(min, zip(*walls, strict=True))))


if __name__ == "__main__":
    main()
