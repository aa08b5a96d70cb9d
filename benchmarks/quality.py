"""The qualities on a folder of pictures: `python benchmarks/quality.py FOLDER [--ways standard,best] [--sigmas 5,20]`.

FOLDER has clean NAME.png and, where present, noisy NAME_sigmaS.tiff; else seeded noise is added. Prints one Markdown
row a picture and sigma: PSNR (peak 255, estimate clipped), seconds, and condition and density of the transform that
was learnt; then the means.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.survey import Request
from dstl_cli.measure.metrics import peak_signal_noise_ratio
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.picture.read import read_picture
from dstl_cli.transforms.ready import ready_transform

psnr = partial(peak_signal_noise_ratio, data_range=255)

Pixels = NDArray[Any]

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper dct": ("paper", {"method": "dct"}),
    "paper": ("paper", {}),
    "fast dct": ("fast", {"method": "dct"}),
    "fast": ("fast", {}),
    "standard dct": ("standard", {"method": "dct"}),
    "standard": ("standard", {}),
    "best": ("best", {}),
    "best learnt": ("best", {"method": "procrustes"}),
}
LEARNING = ("paper", "standard")  # their transforms are shown


@dataclass(frozen=True)
class Cell:
    """One picture denoised in one way."""

    psnr: float
    seconds: float
    condition: float
    density: float


def pictures(folder: Path, sigmas: list[float]) -> Iterator[tuple[str, float, Pixels, Pixels]]:
    """Name, sigma, clean and noisy picture."""
    for path in sorted(folder.glob("*.png")):
        clean = np.asarray(read_picture(path).pages[0], dtype=np.float64)
        for sigma in sigmas:
            stored = folder / f"{path.stem}_sigma{sigma:g}.tiff"
            noisy = np.asarray(read_picture(stored).pages[0]) if stored.exists() else add_noise(clean, sigma, seed=0)
            yield path.stem, sigma, clean, noisy.astype(np.float32)


def denoised(clean: Pixels, noisy: Pixels, sigma: float, way: str) -> Cell:
    """Denoise and measure."""
    quality, changes = WAYS[way]
    request = Request.named(quality, source=TransformSource(ready=ready_transform), **changes)
    start = perf_counter()
    done = denoise_pixels(noisy, sigma, request)
    seconds = perf_counter() - start
    transform = done.record.transform
    assert transform is not None
    estimate = np.clip(done.pixels.astype(np.float64), 0, 255)
    return Cell(psnr(clean, estimate), seconds, transform.condition, transform.density)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The qualities on a folder of pictures.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated: " + ", ".join(WAYS))
    parser.add_argument("--sigmas", default="5,10,15,20,100")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    shown = [way for way in ways if way in LEARNING]
    heading = [f"`{way}`" for way in ways] + [f"{way}: cond, density" for way in shown]
    print("| picture | sigma | " + " | ".join(heading) + " |")
    print("|---|---|" + "---|" * len(heading))
    columns: dict[str, list[Cell]] = {way: [] for way in ways}
    for name, sigma, clean, noisy in pictures(arguments.folder, [float(text) for text in arguments.sigmas.split(",")]):
        if not any(columns.values()):  # load the kernels before the first timing
            for way in ways:
                denoised(clean, noisy, sigma, way)
        for way in ways:
            columns[way].append(denoised(clean, noisy, sigma, way))
        cells = [f"{columns[way][-1].psnr:.2f} ({columns[way][-1].seconds:.2f} s)" for way in ways]
        cells += [f"{columns[way][-1].condition:.3f}, {columns[way][-1].density:.3f}" for way in shown]
        print(f"| {name} | {sigma:g} | " + " | ".join(cells) + " |", flush=True)
    means = [
        f"{fmean(c.psnr for c in columns[way]):.3f} ({fmean(c.seconds for c in columns[way]):.2f} s)" for way in ways
    ]
    print("| mean | | " + " | ".join(means) + " |" + " |" * len(shown))


if __name__ == "__main__":
    main()
