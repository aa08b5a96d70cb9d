"""Small pictures, where start-up counts: `python benchmarks/small.py [--against TREE] [--pictures 200]`.

(a) a noisy grey picture of 512x512 as PNG in `fast` with nothing else given, against scikit-image's fast NL-means in a
    fresh Python: whole processes in turn, the least of some runs
(b) a folder of pictures of 256x256, colour and grey, in `standard`, with nothing given and with --sigma 20; against
    another tree of this repository where one is given (`git worktree add TREE REV`)

Wall and processor seconds of whole processes. Kernels are compiled before.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import imagecodecs
import numpy as np
import skimage.data
from large import SKIMAGE

OWN = Path(__file__).resolve().parents[1]
RUNS = 5
Seconds = tuple[float, float]  # wall and processor


def timed(*command: str | Path, tree: Path = OWN) -> Seconds:
    """What a process of this Python takes, with a tree of the package first on its path."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    # the folder it runs in comes before the path
    subprocess.run([sys.executable, *map(str, command)], check=True, env=environment, cwd=tree)
    wall, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make_files(folder: Path, pictures: int) -> None:
    """The picture of (a), camera.png, and the folder of (b), many."""
    rng = np.random.default_rng(0)

    def write(name: str, clean: np.ndarray, sigma: float) -> None:
        noisy = clean + sigma * rng.standard_normal(clean.shape)
        imagecodecs.imwrite(folder / name, np.clip(np.rint(noisy), 0, 255).astype(np.uint8))

    write("camera.png", skimage.data.camera(), 20.0)
    (folder / "many").mkdir()
    scenes = [skimage.data.camera(), skimage.data.astronaut(), skimage.data.coins(), skimage.data.coffee()]
    for number in range(pictures):
        scene = scenes[number % len(scenes)]
        top, left = rng.integers(scene.shape[0] - 255), rng.integers(scene.shape[1] - 255)
        write(f"many/{number:04d}.png", scene[top : top + 256, left : left + 256], float(10 + number % 3 * 10))


def against_scikit_image(folder: Path) -> None:
    """(a)"""
    noisy, target = folder / "camera.png", folder / "out.png"
    own: list[Seconds] = []
    peer: list[Seconds] = []
    denoise = ("-m", "dstl_cli", "denoise", noisy, "-o", target, "-q", "-f", "--quality", "fast")
    timed(*denoise)
    for _ in range(RUNS):
        peer.append(timed("-c", SKIMAGE, noisy, target))
        own.append(timed(*denoise))
    for number, kind in enumerate(("wall", "processor")):
        ours, theirs = (min(seconds[number] for seconds in part) for part in (own, peer))
        print(f"(a) {kind}: fast {ours:.2f} s, scikit-image {theirs:.2f} s, {ours / theirs:.2f} x")


def folders(folder: Path, trees: dict[str, Path], pictures: int) -> None:
    """(b)"""
    for options in ((), ("--sigma", "20")):
        taken = {}
        for name, tree in trees.items():
            command = ("-m", "dstl_cli", "denoise", "-o", folder / "out", "-q", "-f", *options)
            timed(*command, folder / "many" / "0000.png", folder / "many" / "0001.png", tree=tree)
            taken[name] = timed(*command, folder / "many", tree=tree)
            wall, processor = taken[name]
            told = " ".join(options) or "nothing given"
            print(f"(b) {name}, {told}: {wall:.1f} s, processor {processor:.1f} s, {pictures / wall:.1f} a second")
        if "other" in taken:
            ratios = [other / own for other, own in zip(taken["other"], taken["own"], strict=True)]
            print(f"    {ratios[0]:.2f} x the throughput, {ratios[1]:.2f} x by processor time", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another tree of this repository")
    parser.add_argument("--pictures", type=int, default=200)
    arguments = parser.parse_args()
    trees = {"own": OWN} | ({"other": arguments.against} if arguments.against else {})
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name), arguments.pictures)
        against_scikit_image(Path(name))
        folders(Path(name), trees, arguments.pictures)


if __name__ == "__main__":
    main()
