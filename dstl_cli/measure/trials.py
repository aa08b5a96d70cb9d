"""Measuring: pictures against the clean ones, alone or after seeded noise was added and removed again; and means.

Everything is measured on the scale on which white is 255: 16-bit pixels are divided by 257, floats (in file units)
multiplied by 255/peak. So PSNR has the peak 255 throughout, and equals the PSNR of the file's own numbers with their
own peak. Colour: PSNR goes over all red, green and blue values, SSIM over the luma (Rec. 601).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import numpy as np

from dstl_cli.base.arrays import Array, Pixels
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.survey import Request
from dstl_cli.measure import metrics
from dstl_cli.noise.synthetic import add_noise
from dstl_cli.pixels.colour import check_pixels
from dstl_cli.pixels.depth import Depth

WHITE = 255.0
LUMA = (0.299, 0.587, 0.114)
SSIM_KINDS = {"wang": metrics.structural_similarity, "downsampled": metrics.structural_similarity_downsampled}


@dataclass(frozen=True)
class Measures:
    """How pictures are measured: the value of white in float pictures, and the convention of SSIM."""

    peak: float = WHITE
    ssim_kind: str = "wang"

    def compare(self, clean: Array, estimate: Array) -> dict[str, Any]:
        """psnr, ssim and identical of a row, for two grey (H, W) or RGB (H, W, 3) pictures with white at 255."""
        fits = min(clean.shape[:2]) >= metrics.WINDOW
        similarity = SSIM_KINDS[self.ssim_kind](luma(clean), luma(estimate), data_range=WHITE) if fits else None
        psnr = metrics.peak_signal_noise_ratio(clean, estimate, data_range=WHITE)
        return {"psnr": psnr, "ssim": similarity, "identical": math.isinf(psnr)}


Configuration = tuple[str, Request]  # the name it has in tables, and how it denoises


@dataclass(frozen=True)
class NoisePlan:
    """The noise that is added, and the ways it is removed again.

    sigmas: deviations on the 0-255 scale for whole numbers, in the picture's own units for floats. The noise of a
    repeat has the seed `seed + repeat` (from 0) whatever the configuration.
    """

    sigmas: Sequence[float]
    configurations: Sequence[Configuration]
    repeats: int = 1
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; sigma to noise_seed, and noisy_psnr to seconds, are None where no noise was added."""

    image: str
    page: int  # from 1
    sigma: float | None = None
    method: str | None = None
    repeat: int | None = None  # from 1
    noise_seed: int | None = None
    psnr: float  # dB, peak 255; infinite for identical pictures
    ssim: float | None  # None where a side is shorter than the window of SSIM
    identical: bool
    noisy_psnr: float | None = None
    noisy_ssim: float | None = None
    seconds: float | None = None  # of denoising alone


@dataclass(frozen=True)
class Measurement:
    """A row and the two pictures it is about, with white at 255: clean and compared, or noisy and denoised."""

    row: Row
    before: Array
    after: Array


def with_white_at_255(pixels: Pixels, peak: float = WHITE, *, depth: Depth | None = None) -> Array:
    """Pixels of any depth, whole or not, on the common scale and within the range of the depth.

    peak: the value of white in float pictures. depth: what the numbers mean where the dtype does not tell it.
    """
    depth = depth or Depth.of(pixels.dtype)
    if depth.data_range is None:
        return pixels.astype(np.float64) * (WHITE / peak)
    return np.clip(pixels.astype(np.float64) / depth.unit, *depth.data_range)


def luma(picture: Array) -> Array:
    """The grey picture whose structure is compared: the picture itself, or 0.299 R + 0.587 G + 0.114 B."""
    return picture if picture.ndim == 2 else picture @ np.array(LUMA)


def measure_pair(name: str, page: int, clean: Pixels, estimate: Pixels, measures: Measures) -> Measurement:
    """Compare two pictures of the same size and colours; their depths may differ."""
    sizes = []
    for pixels in (clean, estimate):
        check_pixels(pixels)
        height, width = pixels.shape[:2]
        sizes.append(f"{width} x {height} pixels in {'grey' if pixels.ndim == 2 else 'colour'}")
    if clean.shape != estimate.shape:
        raise ValueError(f"one has {sizes[0]}, the other {sizes[1]}.")
    before, after = (with_white_at_255(pixels, measures.peak) for pixels in (clean, estimate))
    return Measurement(Row(image=name, page=page, **measures.compare(before, after)), before, after)


def noise_trials(
    name: str, page: int, clean: Pixels, plan: NoisePlan, measures: Measures, progress: Progress | None = None
) -> Iterator[Measurement]:
    """Add noise to a clean picture, denoise it and measure, for each sigma, repeat and configuration in turn.

    The noisy picture is what a file of the clean one's depth would hold but for rounding and clipping, and is denoised
    as such a file is; it is clipped only where it is measured, as the denoised one is, if the depth has limits.
    """
    check_pixels(clean)
    depth = Depth.of(clean.dtype)
    exact = depth.unrounded()
    truth = with_white_at_255(clean, measures.peak)
    sigma_unit = 1.0 if depth.data_range is None else depth.unit
    total, done = len(plan.sigmas) * plan.repeats * len(plan.configurations), 0
    for sigma, repeat in product(plan.sigmas, range(plan.repeats)):
        seed = plan.seed + repeat
        noisy = add_noise(clean, sigma * sigma_unit, seed=seed).astype(exact.dtype)
        noisy_view = with_white_at_255(noisy, measures.peak, depth=depth)
        before = measures.compare(truth, noisy_view)
        for label, request in plan.configurations:
            start = perf_counter()
            share = part_of(progress, done, total)
            result = denoise_pixels(noisy, sigma, request, depth=exact, progress=share)
            seconds = perf_counter() - start
            denoised = with_white_at_255(result.pixels, measures.peak, depth=depth)
            trial = {"sigma": sigma, "method": label, "repeat": repeat + 1, "noise_seed": seed}
            noise = {"noisy_psnr": before["psnr"], "noisy_ssim": before["ssim"], "seconds": seconds}
            known: dict[str, Any] = trial | measures.compare(truth, denoised) | noise
            done += 1
            if progress is not None:
                progress(done / total)
            yield Measurement(Row(image=name, page=page, **known), noisy_view, denoised)


def warm_up(request: Request) -> None:
    """Denoise a small picture, so that loading the compiled kernels is not counted in the first row's seconds."""
    squares = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((16, 16))) * WHITE
    settings = replace(request.settings, **request.quality.warm_up)
    denoise_pixels(add_noise(squares, 20.0, seed=0), 20.0, replace(request, settings=settings, jobs=1))


@dataclass(frozen=True)
class Mean:
    """The mean of several rows. Identical pictures, whose PSNR is infinite, are counted but not in the mean PSNR."""

    image: str | None  # None: over all pictures
    page: int | None
    sigma: float | None
    method: str | None
    rows: int
    identical_rows: int
    identical: bool  # all of them
    psnr: float  # infinite where all are identical
    psnr_deviation: float | None  # sample standard deviation, over repeats, of the mean over the pictures
    ssim: float | None
    ssim_deviation: float | None
    noisy_psnr: float | None
    noisy_ssim: float | None
    seconds: float | None

    @property
    def gain(self) -> float | None:
        """By how many dB the PSNR rose above that of the noisy picture."""
        return None if self.noisy_psnr is None else self.psnr - self.noisy_psnr


def mean_rows(rows: Iterable[Row], *, of_each_picture: bool = False) -> list[Mean]:
    """Means for each sigma and method in the order they come, over all pictures or for each picture."""
    groups: dict[tuple[str | None, int | None, float | None, str | None], list[Row]] = {}
    for row in rows:
        picture = (row.image, row.page) if of_each_picture else (None, None)
        groups.setdefault((*picture, row.sigma, row.method), []).append(row)
    return [Mean(*key, **_facts(part)) for key, part in groups.items()]


def _facts(rows: list[Row]) -> dict[str, Any]:
    """What the mean of some rows tells."""
    identical = sum(row.identical for row in rows)
    facts: dict[str, Any] = {"rows": len(rows), "identical_rows": identical, "identical": identical == len(rows)}
    for key in ("psnr", "ssim", "noisy_psnr", "noisy_ssim", "seconds"):
        facts[key] = _mean_of(key, rows)
    repeats = [[row for row in rows if row.repeat == number] for number in dict.fromkeys(row.repeat for row in rows)]
    for key in ("psnr", "ssim"):
        means = [mean for part in repeats if (mean := _mean_of(key, part)) is not None]
        facts[f"{key}_deviation"] = stdev(means) if len(means) > 1 else None
    return facts | {"psnr": math.inf if facts["psnr"] is None else facts["psnr"]}


def _mean_of(key: str, rows: list[Row]) -> float | None:
    """The mean of a value over the rows that have one; identical pictures have no PSNR that counts."""
    present = [getattr(row, key) for row in rows if key != "psnr" or not row.identical]
    present = [value for value in present if value is not None]
    return fmean(present) if present else None
