"""Measuring: pictures against the clean ones, alone or after seeded noise was added and removed again.

Everything is measured on the scale on which white is 255: 16-bit pixels are divided by 257, floats (in file units)
multiplied by 255/peak. So PSNR has the peak 255 throughout, and equals the PSNR of the file's own numbers with their
own peak. Colour: PSNR goes over all red, green and blue values, SSIM over the luma (Rec. 601).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dstl_cli.colour import Depth, check_pixels
from dstl_cli.config import DenoiseConfig, Settings
from dstl_cli.denoising import Tools, denoise_channels, denoise_pixels
from dstl_cli.metrics import WINDOW, psnr, ssim, ssim_downsampled
from dstl_cli.noise import add_noise
from dstl_cli.progress import Progress, part_of

Array = NDArray[np.float64]
Pixels = NDArray[np.generic]
Range = tuple[float, float]

WHITE = 255.0
LUMA = (0.299, 0.587, 0.114)
SSIM_KINDS: dict[str, Callable[[Array, Array], float]] = {"wang": ssim, "downsampled": ssim_downsampled}


@dataclass(frozen=True)
class Quality:
    """How near one picture is to another."""

    psnr: float  # dB, peak 255; infinite for identical pictures
    ssim: float | None  # None where a side is shorter than the window of SSIM


@dataclass(frozen=True)
class Configuration:
    """One way of denoising, by the name it has in tables."""

    label: str
    config: Settings
    tools: Tools = field(default_factory=Tools)


@dataclass(frozen=True)
class Row:
    """One measurement; sigma to seconds are None where no noise was added."""

    image: str
    page: int  # from 1
    sigma: float | None
    method: str | None
    repeat: int | None  # from 1
    noise_seed: int | None
    psnr: float
    ssim: float | None
    identical: bool
    noisy_psnr: float | None
    noisy_ssim: float | None
    seconds: float | None  # of denoising alone


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


@dataclass(frozen=True)
class Trial:
    """One denoised picture with its row; the pictures have white at 255."""

    row: Row
    noisy: Array
    denoised: Array


def with_white_at_255(pixels: Pixels, peak: float = WHITE) -> Array:
    """Pixels of any depth on the common scale; peak: the value of white in float pictures."""
    depth = Depth.of(pixels.dtype)
    return pixels.astype(np.float64) * (WHITE / peak if depth.data_range is None else 1 / depth.unit)


def luma(picture: Array) -> Array:
    """The grey picture whose structure is compared: the picture itself, or 0.299 R + 0.587 G + 0.114 B."""
    return picture if picture.ndim == 2 else picture @ np.array(LUMA)


def measure(clean: Array, estimate: Array, *, ssim_kind: str = "wang") -> Quality:
    """PSNR and SSIM of two grey (H, W) or RGB (H, W, 3) pictures with white at 255."""
    fits = min(clean.shape[:2]) >= WINDOW
    similarity = SSIM_KINDS[ssim_kind](luma(clean), luma(estimate)) if fits else None
    return Quality(psnr(clean, estimate, peak=WHITE), similarity)


def measure_pair(
    name: str, page: int, clean: Pixels, estimate: Pixels, *, peak: float = WHITE, ssim_kind: str = "wang"
) -> Row:
    """The row of two pictures of the same size and colours; their depths may differ."""
    check_pixels(clean)
    check_pixels(estimate)
    if clean.shape != estimate.shape:
        raise ValueError(f"one has {_size_in_words(clean)}, the other {_size_in_words(estimate)}.")
    quality = measure(with_white_at_255(clean, peak), with_white_at_255(estimate, peak), ssim_kind=ssim_kind)
    return Row(
        image=name, page=page, sigma=None, method=None, repeat=None, noise_seed=None,
        psnr=quality.psnr, ssim=quality.ssim, identical=math.isinf(quality.psnr),
        noisy_psnr=None, noisy_ssim=None, seconds=None,
    )  # fmt: skip


def _size_in_words(pixels: Pixels) -> str:
    height, width = pixels.shape[:2]
    return f"{width} x {height} pixels in {'grey' if pixels.ndim == 2 else 'colour'}"


def noise_trials(
    name: str,
    page: int,
    clean: Pixels,
    sigmas: Sequence[float],
    configurations: Sequence[Configuration],
    *,
    repeats: int = 1,
    seed: int = 0,
    peak: float = WHITE,
    ssim_kind: str = "wang",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Trial]:
    """Add noise to a clean picture, denoise it and measure, for each sigma, repeat and configuration in turn.

    sigmas: deviations on the 0-255 scale for uint8 and uint16, in the picture's own units for floats. The noise of
    a repeat has the seed `seed + repeat` (from 0) whatever the configuration. It is neither rounded nor clipped;
    the noisy picture is clipped only where it is measured, as the denoised one is, if the depth has limits.
    """
    check_pixels(clean)
    depth = Depth.of(clean.dtype)
    units = clean.astype(np.float64) / depth.unit
    to_white = WHITE / peak if depth.data_range is None else 1.0
    truth = units * to_white
    total = len(sigmas) * repeats * len(configurations)
    done = 0
    for sigma in sigmas:
        for repeat in range(repeats):
            noisy = add_noise(units, sigma, seed=seed + repeat)
            noisy_view = _clipped(noisy, depth.data_range) * to_white
            before = measure(truth, noisy_view, ssim_kind=ssim_kind)
            for configuration in configurations:
                start = perf_counter()
                share = part_of(progress, done, total)
                denoised = _denoise(noisy, sigma, configuration, depth.data_range, jobs, share) * to_white
                seconds = perf_counter() - start
                after = measure(truth, denoised, ssim_kind=ssim_kind)
                row = Row(
                    image=name, page=page, sigma=sigma, method=configuration.label, repeat=repeat + 1,
                    noise_seed=seed + repeat, psnr=after.psnr, ssim=after.ssim, identical=math.isinf(after.psnr),
                    noisy_psnr=before.psnr, noisy_ssim=before.ssim, seconds=seconds,
                )  # fmt: skip
                done += 1
                if progress is not None:
                    progress(done / total)
                yield Trial(row, noisy_view, denoised)


def _denoise(
    noisy: Array,
    sigma: float,
    configuration: Configuration,
    data_range: Range | None,
    jobs: int | None,
    progress: Progress | None = None,
) -> Array:
    """The denoised picture in units, as a file of the clean picture's depth would come out but for rounding."""
    config, tools = configuration.config, replace(configuration.tools, jobs=jobs)
    if noisy.ndim == 3 or data_range is None:
        result = denoise_pixels(noisy, sigma, config, tools, progress=progress)
        return _clipped(result.pixels.astype(np.float64), data_range)
    (done,) = denoise_channels(lambda _: noisy, [sigma], config, tools, data_range=data_range, progress=progress)
    return _clipped(done.image.astype(np.float64), data_range)


def _clipped(image: Array, data_range: Range | None) -> Array:
    return image if data_range is None else np.clip(image, *data_range)


def warm_up(configuration: Configuration) -> None:
    """Denoise a small picture, so that loading the compiled kernels is not counted in the first row's seconds."""
    config = configuration.config
    if isinstance(config, DenoiseConfig):  # its rounds all do the same
        config = replace(config, rounds=1, learn=replace(config.learn, iterations=1))
    squares = np.kron(np.indices((8, 8)).sum(axis=0) % 2, np.ones((16, 16))) * WHITE
    _denoise(add_noise(squares, 20.0, seed=0), 20.0, replace(configuration, config=config), (0.0, WHITE), 1)


def mean_rows(rows: Iterable[Row], *, of_each_picture: bool = False) -> list[Mean]:
    """Means for each sigma and method in the order they come, over all pictures or for each picture."""
    groups: dict[tuple[str | None, int | None, float | None, str | None], list[Row]] = {}
    for row in rows:
        picture = (row.image, row.page) if of_each_picture else (None, None)
        groups.setdefault((*picture, row.sigma, row.method), []).append(row)
    return [_mean(*key, part) for key, part in groups.items()]


def _mean(image: str | None, page: int | None, sigma: float | None, method: str | None, rows: list[Row]) -> Mean:
    identical = sum(row.identical for row in rows)
    mean_psnr = _mean_of(row.psnr for row in rows if not row.identical)
    return Mean(
        image=image, page=page, sigma=sigma, method=method,
        rows=len(rows), identical_rows=identical, identical=identical == len(rows),
        psnr=math.inf if mean_psnr is None else mean_psnr,
        psnr_deviation=_deviation_over_repeats(rows, lambda row: None if row.identical else row.psnr),
        ssim=_mean_of(row.ssim for row in rows),
        ssim_deviation=_deviation_over_repeats(rows, lambda row: row.ssim),
        noisy_psnr=_mean_of(row.noisy_psnr for row in rows),
        noisy_ssim=_mean_of(row.noisy_ssim for row in rows),
        seconds=_mean_of(row.seconds for row in rows),
    )  # fmt: skip


def _mean_of(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return fmean(present) if present else None


def _deviation_over_repeats(rows: list[Row], value: Callable[[Row], float | None]) -> float | None:
    """Sample standard deviation of the repeats' means; None for fewer than two."""
    repeats = dict.fromkeys(row.repeat for row in rows)
    means = [_mean_of(value(row) for row in rows if row.repeat == repeat) for repeat in repeats]
    present = [mean for mean in means if mean is not None]
    return stdev(present) if len(present) > 1 else None
