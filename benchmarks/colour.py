"""Colour with `--quality best`: `python benchmarks/colour.py`. All channels together against one by one.

Four pictures of scikit-image with noise of deviation 25 in red, green and blue (not rounded, not clipped); PSNR over
all three, estimate clipped: the stored channels one by one, luminance and chrominances one by one, and together.
"""

from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage import data

from dstl_cli import denoise
from dstl_cli.measure.metrics import peak_signal_noise_ratio
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.pixels.colour import BASIS

psnr = partial(peak_signal_noise_ratio, data_range=255)

SIGMA = 25.0
PICTURES = {
    "astronaut": data.astronaut,
    "coffee": data.coffee,
    "chelsea": data.chelsea,
    "retina, 800x800, every second pixel": lambda: data.retina()[300:1100:2, 300:1100:2],
}


def one_by_one(noisy: NDArray[Any]) -> NDArray[Any]:
    """Every channel as a grey picture of its own."""
    return np.stack([denoise(noisy[..., c], sigma=SIGMA, quality="best") for c in range(3)], axis=-1)


def main() -> None:
    """Print one Markdown row a picture, and the means."""
    print("| picture | R, G, B one by one | luminance and chrominances one by one | together |\n|---|---|---|---|")
    rows = []
    for name, load in PICTURES.items():
        clean = np.asarray(load(), dtype=np.float64)
        noisy = add_noise(clean, SIGMA, seed=0)
        together = denoise(noisy, sigma=SIGMA, quality="best")
        estimates = (one_by_one(noisy), one_by_one(noisy @ BASIS.T) @ BASIS, together)
        rows.append([psnr(clean, np.clip(np.asarray(estimate, np.float64), 0, 255)) for estimate in estimates])
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in rows[-1]) + " |", flush=True)
    print("| mean | " + " | ".join(f"{fmean(column):.2f}" for column in zip(*rows, strict=True)) + " |")


if __name__ == "__main__":
    main()
