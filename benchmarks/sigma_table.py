"""Measure the noise estimator against wavelet MAD: true against estimated sigma, and how often the warnings come.

    python benchmarks/sigma_table.py            # pictures that ship with scikit-image; about a minute
    python benchmarks/sigma_table.py FOLDER     # every *.png of a folder instead

Prints Markdown. Noise is added with fixed seeds, so the numbers repeat.
"""

import argparse
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dstl_cli.noise.estimate import NoiseEstimate, estimate_sigma
from dstl_cli.noise.synthetic import add_noise

Array = NDArray[np.float64]

SIGMAS = (0, 1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50)
PICTURES = (
    *("astronaut", "brick", "camera", "cell", "chelsea", "clock", "coffee", "coins", "grass", "gravel"),
    *("hubble_deep_field", "immunohistochemistry", "moon", "motorcycle", "page", "retina", "rocket", "text"),
)
RANGE = (0.0, 255.0)
KERNELS = {  # one-pixel neighbourhoods; the blurred noise is scaled back to the stated deviation
    "box 3x3": (1.0, 1.0, 1.0),
    "binomial 3x3": (1.0, 2.0, 1.0),
    "Gaussian, deviation 1": tuple(math.exp(-(x**2) / 2) for x in range(-4, 5)),
}
CORRELATED_SIGMAS = (5, 10, 20)
WHITE_SEEDS = range(1000, 1005)  # false alarms are rare, so they are counted over several noises per picture


def grey(picture: NDArray[np.uint8]) -> Array:
    """The picture as one channel of whole grey values."""
    if picture.ndim == 2:
        return picture.astype(np.float64)
    return np.asarray(np.rint(picture[..., :3] @ np.array([0.299, 0.587, 0.114])))


def shipped_pictures() -> dict[str, Array]:
    """The pictures that need no download."""
    from skimage import data

    loaded = {name: getattr(data, name)() for name in PICTURES if name != "motorcycle"}
    loaded["motorcycle"] = data.stereo_motorcycle()[0]
    return {name: grey(loaded[name]) for name in PICTURES}


def folder_pictures(folder: Path) -> dict[str, Array]:
    """All PNG files of a folder and its sub-folders."""
    from PIL import Image

    return {path.stem: grey(np.asarray(Image.open(path))) for path in sorted(folder.rglob("*.png"))}


def wavelet_mad(image: Array) -> float:
    """The usual estimate: median magnitude of the finest diagonal Haar coefficients / 0.6745."""
    height, width = (side // 2 * 2 for side in image.shape)
    a, b = image[:height:2, :width:2], image[:height:2, 1:width:2]
    c, d = image[1:height:2, :width:2], image[1:height:2, 1:width:2]
    return float(np.median(np.abs(a - b - c + d) / 2)) / 0.6744897501960817


def to_bytes(image: Array) -> NDArray[np.uint8]:
    """Clipped and rounded to 8 bits."""
    return np.rint(np.clip(image, *RANGE)).astype(np.uint8)


def blurred_noise(shape: tuple[int, ...], kernel: tuple[float, ...], seed: int) -> Array:
    """Gaussian noise of deviation 1 that a separable kernel has correlated."""
    noise = add_noise(np.zeros(shape), 1.0, seed=seed)
    for axis in (0, 1):
        shifted = (weight * np.roll(noise, k, axis) for k, weight in enumerate(kernel))
        noise = sum(shifted, start=np.zeros(shape))
    return np.asarray(noise / noise.std())


def warns_of_scales(estimate: NoiseEstimate) -> bool:
    """Whether the two scales were found to disagree."""
    return any(warning.kind == "scales" for warning in estimate.warnings)


def error_rows(name: str, estimates: Array) -> list[str]:
    """Table rows of one estimator: mean at sigma 0, then mean, median and worst relative error in percent.

    estimates: (pictures, sigmas).
    """
    sigmas = np.array(SIGMAS[1:])
    errors = 100 * np.abs(estimates[:, 1:] / sigmas - 1)
    rows = []
    table = np.column_stack((estimates[:, 0], errors))
    for kind, values in (("mean", table.mean(0)), ("median", np.median(table, 0)), ("worst", table.max(0))):
        cells = (f"{values[0]:.2f}", *(f"{value:.1f}" for value in values[1:]))
        rows.append(f"| {name}, {kind} | " + " | ".join(cells) + " |")
    return rows


def header(first: str, columns: tuple[object, ...]) -> list[str]:
    """Head of a Markdown table."""
    return [f"| {first} | " + " | ".join(map(str, columns)) + " |", "|---|" + "---|" * len(columns)]


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="PNG pictures to use instead of scikit-image's")
    folder = parser.parse_args().folder
    pictures = folder_pictures(folder) if folder else shipped_pictures()

    shape = (len(pictures), len(SIGMAS))
    ours = {"float": np.zeros(shape), "uint8": np.zeros(shape)}
    mad = {"float": np.zeros(shape), "uint8": np.zeros(shape)}
    alarms = {"float": np.zeros(shape), "uint8": np.zeros(shape)}
    for i, clean in enumerate(pictures.values()):
        for j, sigma in enumerate(SIGMAS):
            noisy = add_noise(clean, sigma, seed=100 * i + j)
            stored = to_bytes(noisy)
            for depth, found in (
                ("float", estimate_sigma(noisy)),
                ("uint8", estimate_sigma(stored, data_range=RANGE)),
            ):
                ours[depth][i, j] = found.sigma
                alarms[depth][i, j] = warns_of_scales(found)
            mad["float"][i, j] = wavelet_mad(noisy)
            mad["uint8"][i, j] = wavelet_mad(stored.astype(np.float64))

    for depth, title in (("float", "float, not clipped"), ("uint8", "clipped and rounded to 8 bits")):
        print(f"\n### Error, {title}\n")
        print(f"{len(pictures)} pictures. First column: the estimate itself; others: relative error in percent.\n")
        print("\n".join(header("true sigma", SIGMAS)))
        print("\n".join(error_rows("dstl", ours[depth]) + error_rows("wavelet MAD", mad[depth])))
    print("\n### Estimates, clipped and rounded to 8 bits (dstl / wavelet MAD)\n")
    print("\n".join(header("true sigma", SIGMAS)))
    for i, name in enumerate(pictures):
        cells = (f"{ours['uint8'][i, j]:.1f} / {mad['uint8'][i, j]:.1f}" for j in range(len(SIGMAS)))
        print(f"| {name} | " + " | ".join(cells) + " |")

    print("\n### Warnings that fine and coarse scales disagree, 8 bits (pictures with a warning)\n")
    print("\n".join(header("noise", tuple(f"sigma {s}" for s in CORRELATED_SIGMAS))))
    white = [
        sum(
            warns_of_scales(estimate_sigma(to_bytes(add_noise(clean, sigma, seed=seed)), data_range=RANGE))
            for clean in pictures.values()
            for seed in WHITE_SEEDS
        )
        for sigma in CORRELATED_SIGMAS
    ]
    cases = len(pictures) * len(WHITE_SEEDS)
    print(f"| white, {len(WHITE_SEEDS)} seeds | " + " | ".join(f"{count} of {cases}" for count in white) + " |")
    for name, kernel in KERNELS.items():
        counts = dict.fromkeys(CORRELATED_SIGMAS, 0)
        for i, clean in enumerate(pictures.values()):
            noise = blurred_noise(clean.shape, kernel, i)
            for sigma in CORRELATED_SIGMAS:
                found = estimate_sigma(to_bytes(clean + sigma * noise), data_range=RANGE)
                counts[sigma] += warns_of_scales(found)
        print(f"| {name} | " + " | ".join(f"{count} of {len(pictures)}" for count in counts.values()) + " |")
    wide = SIGMAS.index(5)
    false_alarms = sum(int(flags[:, wide:].sum()) for flags in alarms.values())
    cases = sum(flags[:, wide:].size for flags in alarms.values())
    print(f"\nFalse alarms on white noise of sigma 5 and more, both depths: {false_alarms} of {cases}.")
    for j in range(wide):
        count = int(alarms["uint8"][:, j].sum())
        print(f"White noise of sigma {SIGMAS[j]}, 8 bits: {count} of {len(pictures)} pictures with a warning.")


if __name__ == "__main__":
    main()
