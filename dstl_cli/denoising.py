"""The pipeline, one line a stage: learn a transform on the noisy picture, code all patches, put them back."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.coding import Coder
from dstl_cli.colour import Depth, carried_over, channel_count, check_pixels, from_channels, is_grey, working_channel
from dstl_cli.config import DenoiseConfig, check_sigma
from dstl_cli.learning.learner import Iteration, Learnt, Shard, learn
from dstl_cli.noise import estimate_sigma
from dstl_cli.patches import check_image, positions, sample
from dstl_cli.progress import Progress, part_of
from dstl_cli.reconstruction import estimate_image, result_type
from dstl_cli.transforms import Transform

Floats = NDArray[np.floating[Any]]

NEGLIGIBLE = 1e-9  # noise below this share of the largest value is none


@dataclass(frozen=True)
class Denoised:
    """A denoised grey channel and the transform that did it."""

    image: Floats
    transform: Transform | None  # None where there was nothing to do (sigma 0)
    history: tuple[Iteration, ...] = ()


@dataclass(frozen=True)
class Account:
    """How a picture was denoised."""

    sigmas: tuple[float, ...]  # one for grey; luminance and two chrominances for colour
    warnings: tuple[str, ...]
    transform: Transform | None
    history: tuple[Iteration, ...] = ()


@dataclass(frozen=True)
class DenoisedPixels:
    """A denoised picture in its own dtype, and how it was done."""

    pixels: NDArray[np.generic]
    account: Account


def denoise_pixels(
    pixels: NDArray[np.generic],
    sigma: float | None,
    config: DenoiseConfig,
    *,
    transform: Transform | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> DenoisedPixels:
    """Denoise a grey (H, W) or RGB (H, W, 3) picture; dtype and shape stay.

    sigma: noise deviation on the 0-255 scale for uint8 and uint16, in the array's own units for floats; None: it is
    estimated, channel by channel. One transform, learnt on the luminance, serves all channels.
    """
    check_pixels(pixels)
    if sigma is not None and check_sigma(sigma) == 0:
        return DenoisedPixels(pixels.copy(), Account((0.0,), (), None))
    if pixels.ndim == 3 and is_grey(pixels):
        grey = denoise_pixels(pixels[..., 0], sigma, config, transform=transform, jobs=jobs, progress=progress)
        return DenoisedPixels(np.stack([grey.pixels] * 3, axis=-1), grey.account)
    sigmas, warnings = channel_sigmas(pixels, sigma)
    if not any(sigmas):
        return DenoisedPixels(pixels.copy(), Account(sigmas, warnings, None))
    depth = Depth.of(pixels.dtype).for_sigma(max(sigmas))
    own_scale = 1.0 if depth.data_range is not None else depth.unit  # of sigma: integers have it on the 0-255 scale
    count = channel_count(pixels)
    results: list[Floats] = []
    history: tuple[Iteration, ...] = ()
    for index, deviation in enumerate(sigmas):
        channel = working_channel(pixels, index, depth)
        done = denoise_grey(
            pad_to(channel, transform.patch_size if transform else config.patch_size),
            deviation / own_scale,
            config,
            data_range=depth.data_range if count == 1 else None,
            transform=transform,
            jobs=jobs,
            progress=part_of(progress, index, count),
        )
        transform = transform or done.transform
        history = history or done.history
        results.append(done.image[: channel.shape[0], : channel.shape[1]])
    return DenoisedPixels(from_channels(results, depth), Account(sigmas, warnings, transform, history))


def channel_sigmas(pixels: NDArray[np.generic], sigma: float | None) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Noise deviation of each working channel, given or else estimated, and what to say about the estimates.

    Colour is estimated in red, green and blue, where clipping can be seen, and carried over to the working basis.
    """
    if sigma is not None:
        return (float(sigma),) * channel_count(pixels), ()
    depth = Depth.of(pixels.dtype)
    own_range = None if depth.data_range is None else (0.0, depth.data_range[1] * depth.unit)
    stored = [pixels] if pixels.ndim == 2 else [pixels[..., c] for c in range(3)]
    estimates = [estimate_sigma(channel, data_range=own_range) for channel in stored]
    deviations = [estimate.sigma / depth.unit for estimate in estimates]
    warnings = tuple(dict.fromkeys(text for estimate in estimates for text in estimate.warnings))
    return tuple(deviations if pixels.ndim == 2 else carried_over(deviations)), warnings


def pad_to(image: NDArray[np.generic], length: int) -> NDArray[np.generic]:
    """The image, mirrored at its lower and right border where a side is shorter than `length`."""
    missing = [max(0, length - side) for side in image.shape]
    return np.pad(image, [(0, extra) for extra in missing], mode="symmetric") if any(missing) else image


def denoise_grey(
    image: NDArray[np.generic],
    sigma: float,
    config: DenoiseConfig,
    *,
    data_range: tuple[float, float] | None = None,
    transform: Transform | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Denoised:
    """Denoise a 2-D array of noise deviation `sigma` (in its own units); the result is of `result_type`.

    data_range: the smallest and largest value a pixel can have, where known.
    transform: used as it is instead of one learnt on the picture.
    """
    check_image(image)
    check_sigma(sigma)
    patch_size = transform.patch_size if transform else config.patch_size
    if config.stride > patch_size:
        raise ValueError(f"stride must be at most the transform's patch size {patch_size}, not {config.stride}.")
    for length in image.shape:
        positions(length, patch_size, config.stride)
    if sigma <= NEGLIGIBLE * float(np.abs(image).max()):  # nothing that single precision could tell
        return Denoised(image.astype(result_type(image)), None)
    history: tuple[Iteration, ...] = ()
    if transform is None:
        learnt = learn_on_picture(image, sigma, config)
        transform, history = learnt.transform, learnt.history
    estimate = estimate_image(
        image, sigma, make_coder(transform, sigma, config), patch_size, stride=config.stride, data_range=data_range,
        jobs=jobs or available_cores(), progress=progress,
    )  # fmt: skip
    return Denoised(estimate, transform, history)


def make_coder(transform: Transform, sigma: float, config: DenoiseConfig) -> Coder:
    """The variable-sparsity coder with the configured C and mu = 0.01/sigma."""
    return Coder.build(
        transform,
        error_scale=config.error_scale,
        fidelity=0.01 / sigma,
        most=config.most_coefficients(transform.patch_size),
    )


def learn_on_picture(image: NDArray[np.generic], sigma: float, config: DenoiseConfig) -> Learnt:
    """Learn on random patches of the noisy picture, in rounds: each round's codes set the next one's sparsity."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(config.seed)
    learnt = Learnt(Transform.dct(config.patch_size), (), "iterations")
    rounds = config.rounds_at(sigma)
    levels: NDArray[np.int64] | int = config.first_coefficients(config.patch_size)
    with threadpool_limits(limits=1, user_api="blas"):  # the matrices are too small to share
        for number in range(1, rounds + 1):
            patches = sample(image, config.patch_size, config.train_patches, rng)
            if number > 1:
                coder = make_coder(learnt.transform, sigma, config)
                levels = coder.leave_out((patches / sigma).astype(np.float32))[1].astype(np.int64)
            shards = [Shard.from_patches(patches, levels)]
            start = learnt.transform.factor if number > 1 else None
            learnt = learn(shards, config.learn, start=start, final=number == rounds)
    return learnt


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
