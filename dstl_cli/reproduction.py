"""The paper's two experiments: the denoising table and the convergence figure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from dstl_cli.config import DenoiseConfig, LearnConfig
from dstl_cli.denoising import Tools, denoise_grey
from dstl_cli.learning.learner import Iteration, Shard, code, learn
from dstl_cli.metrics import psnr, ssim_downsampled
from dstl_cli.patches import extract, positions
from dstl_cli.progress import Progress

Array = NDArray[np.float64]

TABLE_IMAGES = ("cameraman", "hill", "baboon", "barbara")
TABLE_SIGMAS = (5.0, 10.0, 15.0, 20.0, 100.0)
TABLE_ERROR_SCALE = 1.15  # what the printed table was made with, whatever the text says
PIXEL_RANGE = (0.0, 255.0)

FIGURE_TRAIN = ("barbara", "couple", "cameraman")
FIGURE_TEST = ("hill", "man")
FIGURE_METHODS = ("dct", "bresler", "conditioned", "dsect")
FIGURE_LOGDET_WEIGHTS = (2.1e-4, 2.1e-7, 2.1e-12)
FIGURE_PATCH_SIZE = 8
FIGURE_LEVEL = 6
FIGURE_ITERATIONS = 1000
FIGURE_LEARN = LearnConfig(l1_weight=10.0, homotopy_steps=100)


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


def printed_cell(image: str, sigma: float, method: str) -> tuple[float, float] | None:
    """PSNR and SSIM that the paper prints, None if it has no such cell."""
    text = files("dstl_cli").joinpath("data/paper_table.json").read_text(encoding="utf-8")
    cell = json.loads(text).get(image, {}).get(f"{sigma:g}", {}).get(method)
    return (cell[0], cell[1]) if cell else None


def table_row(
    image: str, clean: Array, noisy: Array, sigma: float, config: DenoiseConfig, *, jobs: int | None = None
) -> TableRow:
    """Denoise one noisy picture as the table does, and measure against the clean one (0 to 255)."""
    start = perf_counter()
    result = denoise_grey(noisy, sigma, config, Tools(jobs=jobs), data_range=PIXEL_RANGE)
    seconds = perf_counter() - start
    printed = printed_cell(image, sigma, config.learn.method)
    transform = result.transform
    return TableRow(
        image=image,
        sigma=sigma,
        method=config.learn.method,
        psnr=psnr(clean, result.image),
        ssim=ssim_downsampled(clean, result.image),
        noisy_psnr=psnr(clean, np.clip(noisy, *PIXEL_RANGE)),
        printed_psnr=printed[0] if printed else None,
        printed_ssim=printed[1] if printed else None,
        seconds=seconds,
        condition=transform.condition if transform else 1.0,
        density=transform.density if transform else 0.0,
    )


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


def figure_shard(images: Sequence[Array]) -> Shard:
    """All 8x8 patches of the images side by side, each with six coefficients."""
    parts = []
    for image in images:
        rows, columns = (positions(length, FIGURE_PATCH_SIZE, FIGURE_PATCH_SIZE) for length in image.shape)
        parts.append(extract(image, FIGURE_PATCH_SIZE, rows, columns)[0].reshape(-1, FIGURE_PATCH_SIZE**2))
    return Shard.from_patches(np.concatenate(parts), FIGURE_LEVEL)


def figure_curves(
    train: Sequence[Array],
    test: Sequence[Array],
    *,
    iterations: int = FIGURE_ITERATIONS,
    logdet_weights: Sequence[float] = FIGURE_LOGDET_WEIGHTS,
    methods: Sequence[str] = FIGURE_METHODS,
    progress: Progress | None = None,
) -> Iterator[Curve]:
    """The curves of the figure: for each log-det weight, `bresler` first; its condition and norm bound the others."""
    from threadpoolctl import threadpool_limits

    train_shard, test_shard = figure_shard(train), figure_shard(test)
    total = len(logdet_weights) * len({"bresler", *methods} - {"dct"}) * iterations
    done = 0

    def curve(config: LearnConfig) -> Curve:
        points: list[CurvePoint] = []

        def observe(record: Iteration, factor: Array) -> None:
            nonlocal done
            tested = code(factor, [test_shard])
            points.append(
                CurvePoint(record.number, record.error, record.relative_error, tested.error, tested.relative_error)
            )
            done += 1
            if progress is not None:
                progress(min(done / total, 1.0))

        with threadpool_limits(limits=1, user_api="blas"):  # the matrices are too small to share
            learnt = learn([train_shard], config, observer=observe).transform
        bounded = config.method in ("conditioned", "dsect")
        return Curve(
            logdet_weight=config.logdet_weight,
            method=config.method,
            max_condition=config.max_condition if bounded else learnt.condition,
            frobenius_norm=config.norm_for(FIGURE_PATCH_SIZE**2) if bounded else learnt.frobenius_norm,
            condition=learnt.condition,
            density=learnt.density,
            points=tuple(points),
        )

    for weight in logdet_weights:
        dense = curve(replace(FIGURE_LEARN, method="bresler", logdet_weight=weight, iterations=iterations))
        bounds = replace(
            FIGURE_LEARN,
            logdet_weight=weight,
            iterations=iterations,
            max_condition=dense.condition,
            frobenius_norm=dense.frobenius_norm,
        )
        for method in methods:
            if method == "bresler":
                yield dense
            else:
                yield curve(replace(bounds, method=method, iterations=1 if method == "dct" else iterations))
