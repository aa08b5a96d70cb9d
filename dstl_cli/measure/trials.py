"""Measuring: pictures against the clean ones, as they are or after denoising, with noise of their own or added; means.

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
from dstl_cli.noise.blind import NO_HINTS, Hints
from dstl_cli.noise.synthetic import SyntheticNoise, add_noise
from dstl_cli.pixels.colour import check_pixels
from dstl_cli.pixels.depth import WHITE, Depth

Depths = tuple[Depth | None, Depth | None]  # of a clean picture and its partner; None: as their dtypes tell

LUMA = (0.299, 0.587, 0.114)
SSIM_KINDS = {"wang": metrics.structural_similarity, "downsampled": metrics.structural_similarity_downsampled}


@dataclass(frozen=True)
class Measures:
    """How pictures are measured: the value of white in pictures without a scale, and the convention of SSIM."""

    peak: float = WHITE
    ssim_kind: str = "wang"

    def compare(self, clean: Array, estimate: Array) -> dict[str, Any]:
        """psnr, ssim and identical of a row, for two grey (H, W) or RGB (H, W, 3) pictures with white at 255."""
        fits = min(clean.shape[:2]) >= metrics.WINDOW
        similarity = SSIM_KINDS[self.ssim_kind](luma(clean), luma(estimate), data_range=WHITE) if fits else None
        psnr = metrics.peak_signal_noise_ratio(clean, estimate, data_range=WHITE)
        return {"psnr": psnr, "ssim": similarity, "identical": math.isinf(psnr)}


Configuration = tuple[str, Request]  # the name it has in tables, and how it denoises
Case = tuple[SyntheticNoise | None, float | None]  # what is added, and the deviation that is told


@dataclass(frozen=True)
class NoisePlan:
    """What is denoised, and in which ways.

    sigmas: what the denoiser is told, on the 0-255 scale for whole numbers, in the picture's own units for floats;
    None: it estimates. noises: what is added to a clean picture; None: white noise of the sigma that is told, if there
    is no noisy one. The noise of a repeat has the seed `seed + repeat` (from 0) whatever the configuration.
    """

    sigmas: Sequence[float | None]
    configurations: Sequence[Configuration]
    repeats: int = 1
    seed: int = 0
    noises: Sequence[SyntheticNoise | None] = (None,)

    @property
    def cases(self) -> list[Case]:
        """Each noise with each thing that the denoiser is told."""
        return list(product(self.noises, self.sigmas))

    @property
    def noise_names(self) -> list[str]:
        """The noises that are added and not white noise of the sigma that is told."""
        return [noise.name for noise in self.noises if noise is not None]


class OfCase:
    """What rows and means tell of the noise."""

    noise: str | None
    sigma: float | None

    @property
    def told(self) -> str:
        """What the denoiser was told."""
        return "auto" if self.sigma is None else f"{self.sigma:g}"

    @property
    def case(self) -> str:
        """The noise and what was told of it."""
        return f"{self.noise}, sigma {self.told}" if self.noise else self.told


@dataclass(frozen=True, kw_only=True)
class Row(OfCase):
    """One measurement; method, and noisy_psnr to seconds, are None where nothing was denoised."""

    image: str
    page: int  # from 1
    noise: str | None = None  # what was added, if not white noise of deviation sigma
    sigma: float | None = None  # what the denoiser was told; None: nothing
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

    peak: the value of white in pictures without a scale, as floats. depth: what the numbers mean where the dtype does
    not tell it.
    """
    depth = depth or Depth.of(pixels.dtype)
    if not depth.scaled:
        return pixels.astype(np.float64) * (WHITE / peak)
    return np.clip(pixels.astype(np.float64) / depth.unit, 0.0, WHITE)


def luma(picture: Array) -> Array:
    """The grey picture whose structure is compared: the picture itself, or 0.299 R + 0.587 G + 0.114 B."""
    return picture if picture.ndim == 2 else picture @ np.array(LUMA)


def measure_pair(
    name: str, page: int, clean: Pixels, estimate: Pixels, measures: Measures, *, depths: Depths = (None, None)
) -> Measurement:
    """Compare two pictures of the same size and colours; their depths may differ."""
    check_pair(clean, estimate)
    pair = zip((clean, estimate), depths, strict=True)
    before, after = (with_white_at_255(pixels, measures.peak, depth=depth) for pixels, depth in pair)
    return Measurement(Row(image=name, page=page, **measures.compare(before, after)), before, after)


def check_pair(clean: Pixels, other: Pixels) -> None:
    """Refuse two pictures that differ in size or in colours, and what is no picture."""
    sizes = []
    for pixels in (clean, other):
        check_pixels(pixels)
        height, width = pixels.shape[:2]
        sizes.append(f"{width} x {height} pixels in {'grey' if pixels.ndim == 2 else 'colour'}")
    if clean.shape != other.shape:
        raise ValueError(f"one has {sizes[0]}, the other {sizes[1]}.")


def noise_trials(
    name: str,
    page: int,
    clean: Pixels,
    plan: NoisePlan,
    measures: Measures,
    progress: Progress | None = None,
    *,
    noisy: Pixels | None = None,
    depths: Depths = (None, None),
    hints: Hints = NO_HINTS,
) -> Iterator[Measurement]:
    """Denoise and measure a noisy picture, given or made of the clean one, for each case, repeat and configuration.

    It is denoised as `dstl denoise` would the file, and clipped where it is measured, if its depth has limits.
    depths: what the numbers of both mean where their dtypes do not tell it. hints: what the noisy one's file says.
    """
    check_pair(clean, clean if noisy is None else noisy)
    truth = with_white_at_255(clean, measures.peak, depth=depths[0])
    total, done = len(plan.cases) * plan.repeats * len(plan.configurations), 0
    for (noise, sigma), repeat in product(plan.cases, range(plan.repeats)):
        trial: dict[str, Any] = {"sigma": sigma}
        if noisy is None:
            seed = plan.seed + repeat
            trial |= {"noise": noise and noise.name, "repeat": repeat + 1, "noise_seed": seed}
            pixels, depth = made_noisy(clean, (noise, sigma), seed, measures.peak, depth=depths[0])
        else:
            pixels, depth = noisy, depths[1] or Depth.of(noisy.dtype)
        noisy_view = with_white_at_255(pixels, measures.peak, depth=depth)
        before = measures.compare(truth, noisy_view)
        trial |= {"noisy_psnr": before["psnr"], "noisy_ssim": before["ssim"]}
        for label, request in plan.configurations:
            start = perf_counter()
            share = part_of(progress, done, total)
            result = denoise_pixels(pixels, sigma, request, depth=depth, progress=share, hints=hints)
            known = trial | {"method": label, "seconds": perf_counter() - start}
            denoised = with_white_at_255(result.pixels, measures.peak, depth=depth)
            done += 1
            if progress is not None:
                progress(done / total)
            yield Measurement(
                Row(image=name, page=page, **known, **measures.compare(truth, denoised)), noisy_view, denoised
            )


def made_noisy(
    clean: Pixels, case: Case, seed: int, peak: float = WHITE, *, depth: Depth | None = None
) -> tuple[Pixels, Depth]:
    """A clean picture with noise, and what its numbers mean.

    White noise whose deviation is told is neither rounded nor clipped; other noise gives what a file would hold: of the
    clean one's depth, or a photograph's 8 bits.
    """
    (noise, sigma), depth = case, depth or Depth.of(clean.dtype)
    if noise is None:
        assert sigma is not None
        exact = depth.unrounded()
        return add_noise(clean, sigma * depth.unit, seed=seed).astype(exact.dtype), exact
    if noise.kind.photograph:
        return noise.added_to(with_white_at_255(clean, peak, depth=depth), seed), Depth.of(np.dtype(np.uint8))
    return depth.restore(noise.added_to(clean.astype(np.float64) / depth.unit, seed)), depth


def warm_up(request: Request) -> None:
    """Denoise a small picture, so that loading the compiled kernels is not counted in the first row's seconds."""
    squares = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((16, 16))) * WHITE
    settings = replace(request.settings, **request.quality.warm_up)
    denoise_pixels(add_noise(squares, 20.0, seed=0), 20.0, replace(request, settings=settings, jobs=1))


@dataclass(frozen=True)
class Mean(OfCase):
    """The mean of several rows. Identical pictures, whose PSNR is infinite, are counted but not in the mean PSNR."""

    image: str | None  # None: over all pictures
    page: int | None
    noise: str | None
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
        return None if self.noisy_psnr is None or math.isinf(self.noisy_psnr) else self.psnr - self.noisy_psnr


def mean_rows(rows: Iterable[Row], *, of_each_picture: bool = False) -> list[Mean]:
    """Means for each noise, sigma and method in the order they come, over all pictures or for each picture."""
    groups: dict[tuple[str | None, int | None, str | None, float | None, str | None], list[Row]] = {}
    for row in rows:
        picture = (row.image, row.page) if of_each_picture else (None, None)
        groups.setdefault((*picture, row.noise, row.sigma, row.method), []).append(row)
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
