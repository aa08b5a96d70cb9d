"""Make the ready transforms of `dstl denoise --quality fast` with `dstl train`: one for each range of noise.

    python benchmarks/ready_transforms.py FOLDER                        # what is shipped: dstl_cli/transforms/ready
    python benchmarks/ready_transforms.py FOLDER --without camera,brick # so that they can be measured on these

They are learnt from the grey versions, upright and lying, of all photographs that come with scikit-image and are in the
public domain or CC0. Documents and drawings are left out: their edges, all of one kind, would outweigh the rest.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PHOTOGRAPHS = (
    *("astronaut", "brick", "camera", "cell", "chelsea", "clock", "coffee", "coins", "grass", "gravel"),
    *("hubble_deep_field", "immunohistochemistry", "moon", "retina", "rocket"),
)
SIGMAS = {"ready_low.npz": 12, "ready_middle.npz": 25, "ready_high.npz": 30}  # the noise each is learnt for
SETTINGS = ("--max-condition", "1.1", "--density", "0.3", "--iterations", "200", "--train-patches", "100000")


def grey(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture as one channel."""
    if picture.ndim == 2:
        return picture
    return np.asarray(np.rint(picture[..., :3] @ np.array([0.299, 0.587, 0.114])), dtype=np.uint8)


def export(folder: Path, without: Collection[str]) -> None:
    """Write the photographs, and each with rows and columns exchanged."""
    from skimage import data

    for name in PHOTOGRAPHS:
        if name not in without:
            picture = grey(getattr(data, name)())
            np.save(folder / f"{name}.npy", picture)
            np.save(folder / f"{name}_lying.npy", np.ascontiguousarray(picture.T))


def main() -> None:
    """Train the three transforms."""
    parser = argparse.ArgumentParser(description="Make the ready transforms of `dstl denoise --quality fast`.")
    parser.add_argument("folder", type=Path, help="where to write them; older ones are replaced")
    parser.add_argument("--without", default="", help="photographs not to learn from, separated by commas")
    arguments = parser.parse_args()
    without = [name for name in arguments.without.split(",") if name]
    unknown = set(without) - set(PHOTOGRAPHS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not among {', '.join(PHOTOGRAPHS)}")
    with tempfile.TemporaryDirectory() as pictures:
        export(Path(pictures), without)
        for name, sigma in SIGMAS.items():
            command = ("-m", "dstl_cli", "train", pictures, "-o", str(arguments.folder / name), "--force")
            subprocess.run([sys.executable, *command, "--sigma", str(sigma), *SETTINGS], check=True)


if __name__ == "__main__":
    main()
