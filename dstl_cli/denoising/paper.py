"""The engine of the preset paper: learn in rounds on the noisy picture, code every patch, average.

The average is made in bands of patch rows. Every row of patches is one matrix product of the same shape wherever the
cuts are, every patch is coded by itself, and the overlap-add is exact (see `add_patches`): neither the height of the
bands nor the number of threads changes a bit of the result.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.denoising.channels import Channels, Estimate, Execution, Floats, Plane, TransformSource, result_type
from dstl_cli.denoising.settings import PaperSettings
from dstl_cli.learning.loop import Learnt, Shard, learn
from dstl_cli.learning.on_picture import PictureTransform
from dstl_cli.learning.settings import first_coefficients, most_coefficients
from dstl_cli.patches.coding import Coder
from dstl_cli.patches.grid import Array, Index, extract, positions, sample, summation_step
from dstl_cli.transforms.transform import Transform

BAND_PATCHES = 8192  # patches in one band, about: some megabytes of coefficients


def denoise_channels(
    channels: Channels, settings: PaperSettings, source: TransformSource, execution: Execution
) -> Estimate:
    """The paper's protocol on every channel, with the transform of the first."""

    def learnt(image: NDArray[np.generic], sigma: float, settings: PaperSettings, **given: Any) -> PictureTransform:
        found = learn_in_rounds(image, sigma, settings, start=given["start"])
        return PictureTransform(found.transform, found.history)

    def run(plane: Plane, source: TransformSource, execution: Execution) -> tuple[Floats, PictureTransform]:
        found = source.found(learnt, plane.image, plane.sigma, settings, execution.threads)
        coder = make_coder(found.transform, plane.sigma, settings)
        return estimate_image(plane, coder, settings.stride, execution), found

    return channels.one_by_one(settings, source, execution, run)


def make_coder(transform: Transform, sigma: float, settings: PaperSettings) -> Coder:
    """The variable-sparsity coder with the configured C and mu = 0.01/sigma."""
    most = most_coefficients(transform.patch_size, settings.first_level)
    return Coder.build(transform, error_scale=settings.error_scale, fidelity=0.01 / sigma, most=most)


def learn_in_rounds(
    image: NDArray[np.generic], sigma: float, settings: PaperSettings, *, start: Transform | None = None
) -> Learnt:
    """Learn on random patches of the noisy picture, in rounds: each round's codes set the next one's sparsity."""
    rng = np.random.default_rng(settings.seed)
    learnt = Learnt(start or Transform.fixed(settings.patch_size, settings.canonical), (), "iterations")
    size, canonical = learnt.transform.patch_size, learnt.transform.canonical
    rounds = settings.resolved([sigma], size).rounds
    assert rounds is not None
    levels: NDArray[np.int64] | int = first_coefficients(size, settings.first_level)
    for number in range(1, rounds + 1):
        patches = sample(image, size, settings.train_patches, rng)
        warm = number > 1 or start is not None
        if warm:
            coder = make_coder(learnt.transform, sigma, settings)
            levels = coder.leave_out((patches / sigma).astype(np.float32))[1].astype(np.int64)
        shards = [Shard.from_patches(patches, levels, canonical)]
        factor = learnt.transform.factor if warm else None
        learnt = learn(shards, settings.learn, canonical=canonical, start=factor, final=number == rounds)
    return learnt


def estimate_image(plane: Plane, coder: Coder, stride: int, execution: Execution) -> Floats:
    """Code every patch of the mirrored image (H, W), clip them to the plane's range, and average over each pixel."""
    from dstl_cli.patches.kernels.coding import add_patches

    image, sigma, size = plane.image, plane.sigma, coder.patch_size
    height, width = image.shape
    rows, columns = positions(height, size, stride), positions(width, size, stride)
    down, across = (np.bincount((starts[:, None] + np.arange(size)).ravel()) for starts in (rows, columns))
    low, high = plane.data_range or (-np.inf, np.inf)
    step = summation_step(16 * max(abs(float(image.min())), abs(float(image.max()))), size)
    many = max(1, BAND_PATCHES // len(columns))
    bands = [rows[start : start + many] for start in range(0, len(rows), many)]

    def sums_of(band: Index) -> Array:
        """The sums of the estimates of a band's patches over the pixel rows that they cover."""
        strip = np.ascontiguousarray(image[band[0] : band[-1] + size], dtype=np.float64)
        patches, means = extract(strip, size, band - band[0], columns, scale=1 / sigma, dtype=np.float32)
        sums = np.zeros(strip.shape)
        add_patches(coder.estimate(patches), sigma, means, low, high, step, size, band - band[0], columns, sums)
        return sums

    result = np.empty((height, width), dtype=result_type(image))
    above = np.zeros((0, width))  # what the bands before have added to the rows of the next one
    ends = [*(int(band[0]) for band in bands[1:]), height]
    for band, end, sums in zip(bands, ends, execution.in_order(sums_of, bands), strict=True):
        first = int(band[0])
        sums[: len(above)] += above
        result[first:end] = sums[: end - first] / np.outer(down[first:end], across)
        above = sums[end - first :]
    return np.clip(result, low, high, out=result)
