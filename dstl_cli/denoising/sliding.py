"""The engine of fast and standard: every overlapping patch by itself, coder first, then a Wiener pass guided by it.

Strong noise hides the low frequencies of small patches, not those of a smaller picture, where the same patch covers
more. So the picture of half the size is denoised first, and gives the guide and the result their low frequencies.

In a pass the picture is cut into bands of patch rows that depend on its size alone, and their sums are added in order:
the result is the same for any number of threads.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dstl_cli.denoising.channels import Array32, Channels, Estimate, Execution, Floats, Learner, Plane, TransformSource
from dstl_cli.denoising.settings import FastSettings, PatchCoding, StandardSettings
from dstl_cli.learning.on_picture import SMALLEST_SIDE, PictureTransform, choose_transform, learn_transform_on
from dstl_cli.patches.frame import Frame
from dstl_cli.patches.grid import Index, positions
from dstl_cli.pixels.scales import pyramid, with_low_from
from dstl_cli.transforms.transform import Transform

SCALE_SIGMA = 30.0  # a scale with more noise than this gets a coarser one below it
GUIDE_SHARE = 0.7  # of the coarser scale's frequencies that the guide takes ...
RESULT_SHARE = 0.3  # ... and the result
BAND_ROWS = 8  # patch rows of a band
CHUNK = 1536  # patches worked on at a time: what fits into the cache
ALWAYS_KEPT = 3.3  # coefficients above so many deviations are kept whatever they cost


def with_ready_transform(
    channels: Channels, settings: FastSettings, source: TransformSource, execution: Execution
) -> Estimate:
    """The engine of fast: a given, a ready or the canonical transform."""

    def choose(image: Array32, sigma: float, settings: FastSettings, **found: Any) -> PictureTransform:
        return choose_transform(image, sigma, settings.patch_size, ready=found["ready"], seed=settings.seed)

    return _denoise(channels, settings, source, execution, choose)


def with_learnt_transform(
    channels: Channels, settings: StandardSettings, source: TransformSource, execution: Execution
) -> Estimate:
    """The engine of standard: a transform given or learnt on the luminance."""
    return _denoise(channels, settings, source, execution, learn_transform_on)


def _denoise(
    channels: Channels, settings: PatchCoding, source: TransformSource, execution: Execution, learn: Learner
) -> Estimate:
    """Both passes on every channel."""

    def run(plane: Plane, source: TransformSource, execution: Execution) -> tuple[Floats, PictureTransform]:
        image, sigma = plane.centred, plane.deviation
        found = source.found(learn, image, sigma, settings, execution.threads)
        passes = partial(denoise_guided, image, sigma, settings.error_scale or 1.0, settings.stride)
        return plane.restored(execution.with_canonical(found.transform, passes)), found

    return channels.one_by_one(settings, source, execution, run)


def denoise_guided(
    image: Array32, sigma: float, error_scale: float, stride: int, transform: Transform, execution: Execution
) -> Array32:
    """Both passes at every scale, coarsest first, with one transform."""
    depth = 1 + max(0, math.ceil(math.log2(sigma / SCALE_SIGMA)))
    scales = pyramid(image, sigma, depth, max(SMALLEST_SIDE, transform.patch_size))[::-1]
    frame = Frame.of(transform)
    done: Array32 | None = None
    for scale, step in zip(scales, execution.split([scale.image.size for scale in scales]), strict=True):
        first, second = step.split([1, 1])
        pilot = coding_pass(scale.image, frame, scale.sigma, error_scale, stride, first)
        if done is not None:
            pilot = with_low_from(pilot, done, GUIDE_SHARE)
        result = wiener_pass(scale.image, pilot, frame, scale.sigma, stride, second)
        done = result if done is None else with_low_from(result, done, RESULT_SHARE)
    assert done is not None
    return done


def coding_pass(
    image: Array32, frame: Frame, sigma: float, error_scale: float, stride: int, execution: Execution
) -> Array32:
    """Every patch y by the fewest coefficients whose estimate x has ||x - y|| <= C sigma sqrt(n), weighted 1/(1 + k).

    The error is taken as the sum of what each dropped coefficient costs alone, which it is for orthonormal W.
    """
    from dstl_cli.patches.kernels.sliding import select

    budget = np.float32((error_scale * sigma) ** 2 * frame.patch_size**2)
    highest = np.float32((ALWAYS_KEPT * sigma) ** 2)

    def drop_small(coefficients: Array32, weights: Array32) -> None:
        select(coefficients, frame.costs, budget, highest, weights)

    return _over_bands([image], frame, drop_small, stride, execution)


def wiener_pass(
    image: Array32, pilot: Array32, frame: Frame, sigma: float, stride: int, execution: Execution
) -> Array32:
    """Every coefficient times q^2 / (q^2 + sigma^2), q that of the pilot's patch; weights 1 / (1 + sum of squares)."""
    from dstl_cli.patches.kernels.sliding import shrink

    def attenuate(coefficients: Array32, guide: Array32, weights: Array32) -> None:
        shrink(coefficients, guide, np.float32(sigma**2), weights)

    return _over_bands([image, pilot], frame, attenuate, stride, execution)


def _over_bands(
    pictures: list[Array32], frame: Frame, change: Callable[..., None], stride: int, execution: Execution
) -> Array32:
    """The weighted average of all patches of the first picture, those of every stride-th row, after `change`.

    change: takes the coefficients (m, M) of the same patches of all pictures and their weights (M,); changes those of
    the first picture, and fills in the weights.
    """
    from dstl_cli.patches.kernels.sliding import add_columns, take_columns

    size = frame.patch_size
    height, width = pictures[0].shape
    tops = positions(height, size, stride)
    columns = width - size + 1
    bands = [tops[start : start + BAND_ROWS] for start in range(0, len(tops), BAND_ROWS)]
    across = min(columns, CHUNK)
    together = max(1, CHUNK // across)  # rows of a chunk

    def one(band: Index) -> tuple[int, Array32, Array32]:
        first = int(band[0])
        total = np.zeros((int(band[-1]) - first + size, width), np.float32)
        mass = np.zeros_like(total)
        for start in range(0, len(band), together):
            rows = band[start : start + together]
            for left in range(0, columns, across):
                wide = min(across, columns - left)
                patches = np.empty((size * size, len(rows) * wide), np.float32)
                coefficients = []
                for picture in pictures:
                    take_columns(picture, rows, left, wide, size, patches)
                    coefficients.append(frame.forward @ patches)
                weights = np.empty(patches.shape[1], np.float32)
                change(*coefficients, weights)
                np.matmul(frame.backward, coefficients[0], out=patches)
                add_columns(patches, weights, rows - first, left, wide, size, total, mass)
        return first, total, mass

    result = np.zeros((height, width), np.float32)
    mass = np.zeros((height, width), np.float32)
    for first, band_total, band_mass in execution.in_order(one, bands):
        result[first : first + len(band_total)] += band_total
        mass[first : first + len(band_mass)] += band_mass
    result /= mass
    return result
