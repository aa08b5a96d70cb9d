"""How right the progress of `best` is: `python benchmarks/progress.py [--side 384]`.

Of pictures of scikit-image with white and with coarse noise: the share of the work that is reported against the share
of the processor time, from the end of the survey on, on one thread. Prints where they differ most, and how wrong the
time left is told halfway: 1 is right.
"""

import argparse
from time import process_time

import numpy as np
import skimage.data
from numpy.typing import NDArray

from dstl_cli.denoising.pipeline import denoised_rows
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.pixels.source import ArraySource


def noisy(picture: NDArray[np.uint8], sigma: float, *, coarse: bool) -> NDArray[np.uint8]:
    """A picture with noise, white or over several pixels."""
    noise = sigma * np.random.default_rng(0).standard_normal(picture.shape)
    if coarse:
        shifted = [np.roll(noise, (i, j), (0, 1)) for i in range(4) for j in range(4)]
        noise = np.sum(shifted, axis=0) / 4
    return np.asarray(np.clip(np.rint(picture + noise), 0, 255), np.uint8)


def measure(pixels: NDArray[np.uint8], sigma: float | None) -> tuple[float, float]:
    """The largest difference of the shares, and the time left as told halfway over the true one."""
    request = Request.named("best", jobs=1)
    source = ArraySource(pixels)
    plan = survey(source, sigma, request)
    marks: list[tuple[float, float]] = []
    start = process_time()
    for _ in denoised_rows(source, plan, 1, progress=lambda share: marks.append((share, process_time() - start))):
        pass
    whole = process_time() - start
    told, true = np.array([share for share, _ in marks]), np.array([spent / whole for _, spent in marks])
    half = int(np.searchsorted(true, 0.5))
    return float(np.abs(told - true).max()), float(true[half] * (1 / told[half] - 1) / (1 - true[half]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=384)
    side = parser.parse_args().side
    grey, colour = skimage.data.camera()[:side, :side], skimage.data.astronaut()[:side, :side]
    measure(grey[:64, :64], 20.0)  # kernels are loaded
    print("| picture | noise | largest difference | time left halfway, told / true |\n|---|---|---|---|")
    for name, picture in {"grey": grey, "colour": colour}.items():
        for kind, sigma, coarse in (("white 20", 20.0, False), ("white 50", 50.0, False), ("coarse", None, True)):
            difference, left = measure(noisy(picture, sigma or 12.0, coarse=coarse), sigma)
            print(f"| {name} | {kind} | {difference:.2f} | {left:.2f} |", flush=True)


if __name__ == "__main__":
    main()
