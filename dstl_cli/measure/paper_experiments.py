"""The paper's two experiments: the denoising table and the convergence figure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import fmean
from time import perf_counter
from typing import Any

import numpy as np

from dstl_cli.base.arrays import Array
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.denoising.pipeline import denoise_pixels
from dstl_cli.denoising.survey import Request
from dstl_cli.learning.loop import Shard, code_shards, learn
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import LearnSettings
from dstl_cli.measure.metrics import peak_signal_noise_ratio, structural_similarity_downsampled
from dstl_cli.patches.grid import patches_at, positions
from dstl_cli.pixels.depth import Depth
from dstl_cli.transforms.transform import Iteration

WHITE = 255.0
UNROUNDED = Depth.of(np.dtype(np.uint8)).unrounded()  # 0 to 255, not only whole numbers

FIGURE_TRAIN = ("barbara", "couple", "cameraman")
FIGURE_TEST = ("hill", "man")
FIGURE_LOGDET_WEIGHTS = (2.1e-4, 2.1e-7, 2.1e-12)
FIGURE_PATCH_SIZE = 8
FIGURE_LEVEL = 6
FIGURE_LEARN = LearnSettings(l1_weight=10.0, homotopy_steps=100)


@dataclass(frozen=True)
class TableRow:
    """One cell of the table, measured beside printed (None where the paper has no such cell)."""

    image: str
    sigma: float
    method: str
    psnr: float
    ssim: float
    noisy_psnr: float
    printed_psnr: float | None
    printed_ssim: float | None
    seconds: float
    condition: float
    density: float

    @property
    def difference(self) -> float | None:
        """Measured PSNR less printed PSNR."""
        return None if self.printed_psnr is None else self.psnr - self.printed_psnr


def table_row(image: str, clean: Array, noisy: Array, sigma: float, request: Request) -> TableRow:
    """Denoise one noisy picture as the table does, and measure against the clean one (0 to 255)."""
    start = perf_counter()
    result = denoise_pixels(noisy, sigma, request, depth=UNROUNDED)
    seconds = perf_counter() - start
    method, transform = request.settings.method, result.record.transform
    printed = json.loads(files("dstl_cli.measure").joinpath("paper_table.json").read_text(encoding="utf-8"))
    printed_psnr, printed_ssim = printed.get(image, {}).get(f"{sigma:g}", {}).get(method) or (None, None)
    return TableRow(
        image=image,
        sigma=sigma,
        method=method,
        psnr=peak_signal_noise_ratio(clean, result.pixels, data_range=WHITE),
        ssim=structural_similarity_downsampled(clean, result.pixels, data_range=WHITE),
        noisy_psnr=peak_signal_noise_ratio(clean, np.clip(noisy, 0, WHITE), data_range=WHITE),
        printed_psnr=printed_psnr,
        printed_ssim=printed_ssim,
        seconds=seconds,
        condition=transform.condition if transform else 1.0,
        density=transform.density if transform else 0.0,
    )


def table_means(rows: Sequence[TableRow]) -> list[dict[str, Any]]:
    """Mean PSNR, SSIM and difference to the printed PSNR of each method."""
    means = []
    for method in dict.fromkeys(row.method for row in rows):
        part = [row for row in rows if row.method == method]
        differences = [row.difference for row in part if row.difference is not None]
        psnr, ssim = fmean(row.psnr for row in part), fmean(row.ssim for row in part)
        difference = fmean(differences) if differences else None
        means.append({"method": method, "psnr": psnr, "ssim": ssim, "difference": difference})
    return means


@dataclass(frozen=True)
class CurvePoint:
    """Errors of one method after one iteration."""

    iteration: int
    train_error: float
    train_relative: float
    test_error: float
    test_relative: float


@dataclass(frozen=True)
class Curve:
    """Convergence of one method under the bounds that one log-det weight gave."""

    logdet_weight: float
    method: str
    max_condition: float  # the bounds; for `bresler` and `dct`, which know none, what was measured
    frobenius_norm: float
    condition: float  # of the delivered transform
    density: float
    points: tuple[CurvePoint, ...]


def figure_shard(images: Sequence[Array], canonical: str = "dct") -> Shard:
    """All 8x8 patches of the images side by side, each with six coefficients."""
    parts = []
    for image in images:
        corners = np.meshgrid(
            *(positions(length, FIGURE_PATCH_SIZE, FIGURE_PATCH_SIZE) for length in image.shape), indexing="ij"
        )
        parts.append(patches_at(image, FIGURE_PATCH_SIZE, corners[0].ravel(), corners[1].ravel()))
    return Shard.from_patches(np.concatenate(parts), FIGURE_LEVEL, canonical)


def figure_curves(
    train: Sequence[Array],
    test: Sequence[Array],
    *,
    iterations: int,
    canonical: str = "dct",
    progress: Progress | None = None,
) -> Iterator[Curve]:
    """The curves of the figure: for each log-det weight, the condition and norm of `bresler` bound the others."""
    shards = figure_shard(train, canonical), figure_shard(test, canonical)
    for number, weight in enumerate(FIGURE_LOGDET_WEIGHTS):
        share = part_of(progress, number, len(FIGURE_LOGDET_WEIGHTS))
        settings = replace(FIGURE_LEARN, logdet_weight=weight, iterations=iterations)
        dense = _curve(*shards, replace(settings, method="bresler"), canonical, part_of(share, 0, 3))
        bounds = replace(settings, max_condition=dense.condition, frobenius_norm=dense.frobenius_norm)
        yield _curve(*shards, replace(bounds, method="dct", iterations=1), canonical)
        yield dense
        yield _curve(*shards, replace(bounds, method="conditioned"), canonical, part_of(share, 1, 3))
        yield _curve(*shards, replace(bounds, method="dsect"), canonical, part_of(share, 2, 3))


def _curve(
    train: Shard, test: Shard, settings: LearnSettings, canonical: str, progress: Progress | None = None
) -> Curve:
    """Learn with one method, and measure it after every iteration."""
    points: list[CurvePoint] = []

    def observe(record: Iteration, factor: Array) -> None:
        tested = code_shards(factor, [test])
        measured = (record.error, record.relative_error, tested.error, tested.relative_error)
        points.append(CurvePoint(record.number, *measured))
        if progress is not None:
            progress(record.number / settings.iterations)

    with one_blas_thread():  # the matrices are too small to share
        learnt = learn([train], settings, canonical=canonical, observer=observe).transform
    bounded = "max_condition" in METHODS[settings.method].uses
    return Curve(
        logdet_weight=settings.logdet_weight,
        method=settings.method,
        max_condition=settings.max_condition if bounded else learnt.condition,
        frobenius_norm=settings.norm_for(FIGURE_PATCH_SIZE**2) if bounded else learnt.frobenius_norm,
        condition=learnt.condition,
        density=learnt.density,
        points=tuple(points),
    )
