"""Mini-batches against full batches: `python benchmarks/minibatch.py [--quick]`.

For each method: the cost both end with, and the work it took, in coded patches and seconds, as ratios within one run.
The data are those of the paper's convergence figure, 8x8 patches with six coefficients each, where its pictures are
beside this checkout, else the same of photographs of scikit-image.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dstl_cli.learning.on_collection import Trained, Training, TrainingSet
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.measure.paper_experiments import FIGURE_LEVEL, FIGURE_PATCH_SIZE, figure_shard
from dstl_cli.picture.read import read_picture

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FIGURE = ("paper_table/barbara.png", "convergence/couple.png", "paper_table/cameraman.png")
COMMON: dict[str, Any] = {"patch_size": FIGURE_PATCH_SIZE, "sparsity_level": FIGURE_LEVEL, "patience": 10**6}
CASES: dict[str, dict[str, Any]] = {
    "procrustes, bound 1": {"method": "procrustes", "max_condition": 1.0, "density": 1.0},
    "procrustes, bound 1.25": {"method": "procrustes", "max_condition": 1.25, "density": 1.0},
    "dsect, bound 1": {"method": "dsect", "max_condition": 1.0, "density": 1.0},
    "dsect, bound 10": {"method": "dsect", "max_condition": 10.0, "density": 1.0},
    "bresler, weight 2.1e-4": {"method": "bresler", "logdet_weight": 2.1e-4},
    "sparse-bresler, weight 2.1e-4": {"method": "sparse-bresler", "logdet_weight": 2.1e-4, "density": 0.2},
}


@dataclass(frozen=True)
class Measured:
    """A training and how long it took."""

    result: Trained
    seconds: float


def measure(data: TrainingSet, changes: dict[str, Any], *, iterations: int, batches: int) -> Measured:
    """Train with so many updates on so many batches."""
    start = perf_counter()
    training = Training(data, CollectionSettings.of(**COMMON, **changes, iterations=iterations, batches=batches))
    training.begin()
    while training.stop_reason is None:
        training.step()
    return Measured(training.finish(), perf_counter() - start)


def figure_data() -> TrainingSet:
    """The patches of the figure in random order."""
    paths = [SHARED / name for name in FIGURE]
    if all(path.exists() for path in paths):
        images = [np.asarray(read_picture(path).pages[0], dtype=np.float64) for path in paths]
    else:
        from skimage import data

        images = [np.asarray(image, dtype=np.float64) for image in (data.camera(), data.coins(), data.clock())]
    shard = figure_shard(images)
    order = np.random.default_rng(0).permutation(len(shard.levels))
    return TrainingSet(shard.coefficients[order, 1:].astype(np.float32), shard.levels[order])


def main() -> None:
    """Print one line for each method and number of batches."""
    parser = argparse.ArgumentParser(description="Mini-batches against full batches.")
    parser.add_argument("--quick", action="store_true", help="fewer iterations")
    arguments = parser.parse_args()
    data = figure_data()
    full_iterations = 60 if arguments.quick else 200
    runs = [(12, 120)] if arguments.quick else [(8, 80), (12, 120), (12, 240), (16, 480)]
    measure(data, CASES["dsect, bound 1"], iterations=1, batches=1)  # compiles the kernels
    print(f"{len(data.levels)} patches; full: {full_iterations} updates on all of them")
    heading = f"{'method':30} {'DCT':>8} {'full':>8}   {'batches':>7} {'updates':>7} {'cost':>8} {'/ full':>7}"
    print(f"{heading} {'work':>7} {'time':>6}")
    for name, changes in CASES.items():
        full = measure(data, changes, iterations=full_iterations, batches=1)
        for batches, iterations in runs:
            part = measure(data, changes, iterations=iterations, batches=batches)
            print(
                f"{name:30} {full.result.canonical_cost:8.4f} {full.result.cost:8.4f}   {batches:7d} {iterations:7d} "
                f"{part.result.cost:8.4f} {part.result.cost / full.result.cost:7.3f} "
                f"{part.result.coded_patches / full.result.coded_patches:7.1%} {part.seconds / full.seconds:6.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
