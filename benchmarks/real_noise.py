"""What nothing given is worth: `python benchmarks/real_noise.py CHECK... [--quality fast,standard]`.

CHECK is a folder of pairs NAME_noisy.* and NAME_clean.*, or one of
* clean: pictures without noise; how far the result is from the input;
* white: noise of deviation 5 to 50, 8 bit and float; against the sigma given;
* jpeg: noise of deviation 12, then JPEG; against the best white sigma, chosen with the clean picture at hand;
* twice: the same at quality 75, saved again at 92, also cut by 3 pixels in between; against what was saved once;
* jpeg-clean: pictures without noise as JPEG; how far the result is from the input;
* poisson: photons, 5 to 100 of them in a white pixel; against the true model;
* camera: the simulated camera; against the best white sigma;
* walls: the same at ISO 6400 with a profile of four flat fields; against nothing given;
* weak: the same at ISO 400 to 3200; against the noisy picture.
Their pictures are those of scikit-image; what JPEG files say of themselves is known. PSNR with peak 255, estimates
clipped, results of whole numbers as they are.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage import data

from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.plan import TransformSource
from dstl_cli.denoising.survey import Request
from dstl_cli.measure.metrics import peak_signal_noise_ratio
from dstl_cli.noise.blind import NO_HINTS, Hints
from dstl_cli.noise.flat import flat_field_noise
from dstl_cli.noise.model import NoiseModel, SpectralChannel, SpectralNoise
from dstl_cli.noise.pool import pooled_flat_fields
from dstl_cli.noise.synthetic import add_noise, add_poisson_noise, photograph
from dstl_cli.picture.read import read_picture
from dstl_cli.run.pages import hints_of
from dstl_cli.transforms.ready import ready_transform

Pixels = NDArray[Any]
Row = tuple[str, float, float]  # what, PSNR with nothing given, PSNR to compare it with

CLEAN = (
    *(
        "astronaut",
        "brick",
        "camera",
        "cell",
        "cat",
        "clock",
        "coffee",
        "coins",
        "grass",
        "gravel",
        "hubble_deep_field",
    ),
    *("immunohistochemistry", "microaneurysms", "moon", "page", "retina", "rocket", "text"),
)
NOISY = ("astronaut", "brick", "camera", "cat", "coffee", "coins", "grass", "gravel", "moon", "rocket")
PHOTONS = ("astronaut", "camera", "cat", "coins", "moon")
WHITE_SIGMAS = (4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0)
LARGEST = 640  # sides are cut to this


def picture(name: str) -> Pixels:
    """A picture of scikit-image, 8 bit."""
    return np.ascontiguousarray(getattr(data, name)()[:LARGEST, :LARGEST], dtype=np.uint8)


def stored(values: Pixels) -> Pixels:
    """Values as an 8-bit file has them."""
    return np.asarray(np.rint(np.clip(values, 0, 255)), dtype=np.uint8)


def psnr(clean: Pixels, estimate: Pixels) -> float:
    """Of an estimate, clipped; 99 where it is the clean picture itself."""
    if np.array_equal(clean, estimate):
        return 99.0
    return float(peak_signal_noise_ratio(clean.astype(float), np.clip(estimate.astype(float), 0, 255), data_range=255))


def denoised(noisy: Pixels, noise: float | NoiseModel | None, quality: str, hints: Hints = NO_HINTS) -> Pixels:
    """By a quality, with the noise told or not."""
    request = Request.named(quality, source=TransformSource(ready=ready_transform))
    return denoise_pixels(noisy, noise, request, hints=hints).pixels


def as_jpeg(values: Pixels, level: int, sampling: str = "420") -> tuple[Pixels, Hints]:
    """What JPEG leaves of 8-bit values, and what the file says."""
    import imagecodecs

    coded = imagecodecs.jpeg8_encode(np.ascontiguousarray(values), level, subsampling=sampling)
    found = read_picture(bytes(coded))
    return found.pages[0].reshape(values.shape), hints_of(found)


def best_white(noisy: Pixels, clean: Pixels, quality: str) -> float:
    """The highest PSNR that one number for the noise reaches."""
    return max(psnr(clean, denoised(noisy, sigma, quality)) for sigma in WHITE_SIGMAS)


def clean_rows(quality: str) -> Iterator[Row]:
    """Pictures without noise, and with what JPEG leaves of them."""
    for name in CLEAN:
        found = picture(name)
        yield name, psnr(found, denoised(found, None, quality)), 99.0


def white_rows(quality: str) -> Iterator[Row]:
    """White noise, 8 bit and float."""
    for sigma in (5.0, 10.0, 15.0, 25.0, 50.0):
        for name in NOISY:
            clean = picture(name)
            noisy = add_noise(clean, sigma, seed=0)
            for kind, values in (("8 bit", stored(noisy)), ("float", noisy.astype(np.float32))):
                blind, told = (psnr(clean, denoised(values, noise, quality)) for noise in (None, sigma))
                yield f"{kind}, sigma {sigma:g}: {name}", blind, told


def jpeg_rows(quality: str) -> Iterator[Row]:
    """White noise before JPEG."""
    for level in (75, 92):
        for sampling in ("420", "444"):
            for name in NOISY:
                clean = picture(name)
                if clean.ndim == 2 and sampling == "420":
                    continue  # grey has no colour to sample
                noisy, hints = as_jpeg(stored(add_noise(clean, 12.0, seed=0)), level, sampling)
                told = best_white(noisy, clean, quality)
                what = f"quality {level}, {sampling if clean.ndim == 3 else 'grey'}: {name}"
                yield what, psnr(clean, denoised(noisy, None, quality, hints)), told


def twice_rows(quality: str) -> Iterator[Row]:
    """White noise before JPEG, saved again."""
    for name in NOISY:
        clean = picture(name)
        once, hints = as_jpeg(stored(add_noise(clean, 12.0, seed=0)), 75)
        first = denoised(once, None, quality, hints)
        for cut in (0, 3):
            twice, again = as_jpeg(once[cut:, cut:], 92)
            blind = psnr(clean[cut:, cut:], denoised(twice, None, quality, again))
            yield f"75{f', cut by {cut}' if cut else ''}, 92: {name}", blind, psnr(clean[cut:, cut:], first[cut:, cut:])


def jpeg_clean_rows(quality: str) -> Iterator[Row]:
    """JPEG without noise."""
    for level in (75, 92):
        for name in CLEAN:
            found, hints = as_jpeg(picture(name), level)
            yield f"quality {level}: {name}", psnr(found, denoised(found, None, quality, hints)), 99.0


def poisson_rows(quality: str) -> Iterator[Row]:
    """Photons, and a little noise of reading them."""
    for peak in (5, 20, 100):
        for name in PHOTONS:
            clean = picture(name)
            slope, offset = 255 / peak, 4.0
            model = photon_model(slope, offset, 1 if clean.ndim == 2 else 3)
            noisy = add_poisson_noise(clean, slope, offset, seed=3)
            for kind, values in (("8 bit", stored(noisy)), ("float", noisy.astype(np.float32))):
                blind, told = (psnr(clean, denoised(values, noise, quality)) for noise in (None, model))
                yield f"{kind}, peak {peak}: {name}", blind, told


def photon_model(slope: float, offset: float, channels: int) -> SpectralNoise:
    """White noise of variance slope x + offset."""
    grey = np.linspace(0, 255, 64)
    deviations = np.sqrt(slope * grey + offset)
    levels = tuple(map(float, grey * channels**0.5))  # of the luminance, (1, 1, 1) / sqrt(3)
    middle = float(np.sqrt(slope * 127.5 + offset))
    factors = tuple(map(float, deviations / middle))
    return SpectralNoise((SpectralChannel((0.5,), (middle,), 0.0, levels, factors),) * channels)


def camera_rows(quality: str) -> Iterator[Row]:
    """The simulated camera."""
    for iso in (1600, 6400, 25600):
        for name in ("astronaut", "cat", "coffee", "rocket"):
            clean = picture(name)
            noisy = photograph(clean, iso, seed=1)
            told = best_white(noisy, clean, quality)
            what = f"ISO {iso}: {name}, noisy {psnr(clean, noisy):.2f}"
            yield what, psnr(clean, denoised(noisy, None, quality)), told


def walls_rows(quality: str) -> Iterator[Row]:
    """The simulated camera at ISO 6400 with the profile of four evenly lit walls; compared with nothing given."""
    shading = np.add.outer(np.linspace(-4, 4, 512), np.linspace(-6, 6, 768))[..., None] * [1.0, 0.97, 0.93]
    walls = [np.clip(np.rint(level + shading), 0, 255).astype(np.uint8) for level in (40, 90, 150, 210)]
    read = [flat_field_noise(photograph(wall, 6400, seed=seed)) for seed, wall in enumerate(walls, start=10)]
    profile = pooled_flat_fields([model for model in read if model is not None]).model
    for name in ("astronaut", "cat", "coffee", "rocket"):
        clean = picture(name)
        noisy = photograph(clean, 6400, seed=1)
        yield name, psnr(clean, denoised(noisy, profile, quality)), psnr(clean, denoised(noisy, None, quality))


def weak_rows(quality: str) -> Iterator[Row]:
    """The simulated camera where its noise is weak; compared with the noisy picture."""
    for iso in (400, 800, 1600, 3200):
        for name in ("astronaut", "cat", "coffee", "hubble_deep_field", "immunohistochemistry", "retina", "rocket"):
            clean = picture(name)
            noisy = photograph(clean, iso, seed=1)
            yield f"ISO {iso}: {name}", psnr(clean, denoised(noisy, None, quality)), psnr(clean, noisy)


def pair_rows(folder: Path, quality: str) -> Iterator[Row]:
    """Real noisy pictures with their clean partners; compared with the noisy ones."""
    for path in sorted(folder.glob("*_noisy.*")):
        file = read_picture(path)
        noisy, clean = file.pages[0], read_picture(path.with_name(path.name.replace("_noisy", "_clean"))).pages[0]
        blind = denoised(noisy, None, quality, hints_of(file))
        yield path.stem.removesuffix("_noisy"), psnr(clean, blind), psnr(clean, noisy)


CHECKS: dict[str, Callable[[str], Iterator[Row]]] = {
    "clean": clean_rows,
    "white": white_rows,
    "jpeg": jpeg_rows,
    "twice": twice_rows,
    "jpeg-clean": jpeg_clean_rows,
    "poisson": poisson_rows,
    "walls": walls_rows,
    "weak": weak_rows,
    "camera": camera_rows,
}


def main() -> None:
    """Print one Markdown row a picture, and for each check the means and the worst."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checks", nargs="+", metavar="CHECK")
    parser.add_argument("--quality", default="fast,standard")
    asked = parser.parse_args()
    for check in asked.checks:
        rows_of = CHECKS.get(check) or partial(pair_rows, Path(check))
        for quality in asked.quality.split(","):
            print(
                f"\n{Path(check).name}, {quality}\n\n| picture | nothing given | compared with | |\n|---|---|---|---|"
            )
            rows = []
            for name, blind, told in rows_of(quality):
                rows.append((name, blind, told))
                print(f"| {name} | {blind:.2f} | {told:.2f} | {blind - told:+.2f} |", flush=True)
            worst = min(rows, key=lambda row: row[1] - row[2])
            blind, told = fmean(row[1] for row in rows), fmean(row[2] for row in rows)
            print(f"| mean | {blind:.2f} | {told:.2f} | {blind - told:+.2f} |")
            print(f"| worst: {worst[0]} | {worst[1]:.2f} | {worst[2]:.2f} | {worst[1] - worst[2]:+.2f} |")


if __name__ == "__main__":
    main()
