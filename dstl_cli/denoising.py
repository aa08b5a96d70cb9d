"""The pipeline, one line a stage: learn a transform on the noisy picture, code all patches, put them back."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.coding import Coder
from dstl_cli.colour import Depth, carried_over, channel_count, check_pixels, from_channels, is_grey, working_channel
from dstl_cli.config import (
    AdaptiveConfig,
    BestConfig,
    DenoiseConfig,
    FastConfig,
    Settings,
    StandardConfig,
    check_sigma,
    matched_error_scale,
)
from dstl_cli.group_config import GroupConfig
from dstl_cli.grouping import denoise_groups
from dstl_cli.guided import denoise_guided
from dstl_cli.learning.adaptive import Adapted, ReadySource, adapt, choose_transform
from dstl_cli.learning.learner import Iteration, Learnt, Shard, learn
from dstl_cli.noise import estimate_sigma
from dstl_cli.patches import check_image, positions, sample
from dstl_cli.progress import Progress, part_of
from dstl_cli.reconstruction import estimate_image, result_type
from dstl_cli.threads import one_blas_thread
from dstl_cli.transforms import Transform

Floats = NDArray[np.floating[Any]]

NEGLIGIBLE = 1e-9  # noise below this share of the largest value is none
SMALLEST = 1e-15  # and so is noise below this: single precision hardly holds its square
HIDING = 1e6  # noise of this deviation hides all there is: more makes no difference


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


@dataclass(frozen=True)
class Tools:
    """What denoising has at hand besides the picture.

    transform: used as it is, or with `adapting` as the start of learning. ready: where transforms learnt from other
    pictures come from. jobs: threads, all cores if not given; the result is the same for any number.
    """

    transform: Transform | None = None
    adapting: bool = False
    ready: ReadySource | None = None
    jobs: int | None = None

    @property
    def threads(self) -> int:
        """How many threads to use."""
        return self.jobs or available_cores()

    def patch_size_for(self, config: Settings) -> int:
        """The side of the patches: the transform's, where there is one."""
        return config.patch_size if self.transform is None else self.transform.patch_size


def denoise_pixels(
    pixels: NDArray[np.generic],
    sigma: float | None,
    config: Settings,
    tools: Tools | None = None,
    *,
    progress: Progress | None = None,
) -> DenoisedPixels:
    """Denoise a grey (H, W) or RGB (H, W, 3) picture; dtype and shape stay.

    sigma: noise deviation on the 0-255 scale for uint8 and uint16, in the array's own units for floats; None: it is
    estimated, channel by channel. One transform, learnt on the luminance, serves all channels.
    """
    tools = tools or Tools()
    check_pixels(pixels)
    if sigma is not None and check_sigma(sigma) == 0:
        return DenoisedPixels(pixels.copy(), Account((0.0,), (), None))
    if pixels.ndim == 3 and is_grey(pixels):
        grey = denoise_pixels(pixels[..., 0], sigma, config, tools, progress=progress)
        return DenoisedPixels(np.stack([grey.pixels] * 3, axis=-1), grey.account)
    sigmas, warnings = channel_sigmas(pixels, sigma)
    if not any(sigmas):
        return DenoisedPixels(pixels.copy(), Account(sigmas, warnings, None))
    depth = Depth.of(pixels.dtype).for_sigma(max(sigmas))
    own_scale = 1.0 if depth.data_range is not None else depth.unit  # of sigma: integers have it on the 0-255 scale
    count = channel_count(pixels)
    channels = denoise_channels(
        lambda index: working_channel(pixels, index, depth),
        [deviation / own_scale for deviation in sigmas],
        config,
        tools,
        data_range=depth.data_range if count == 1 else None,
        progress=progress,
    )
    account = Account(sigmas, warnings, channels[0].transform, channels[0].history)
    return DenoisedPixels(from_channels([done.image for done in channels], depth), account)


def denoise_channels(
    channel: Callable[[int], NDArray[np.generic]],
    sigmas: Sequence[float],
    config: Settings,
    tools: Tools,
    *,
    data_range: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> list[Denoised]:
    """Denoise the channels of one picture, luminance first; `channel` gives them by their number.

    The transform that the first one was denoised with, which is learnt there, serves the others too.
    """
    length = tools.patch_size_for(config)
    if isinstance(config, BestConfig) and len(sigmas) > 1:
        images = [channel(index) for index in range(len(sigmas))]
        padded = [pad_to(image, length) for image in images]
        with one_blas_thread():
            limited = [_telling(sigma, image) for sigma, image in zip(sigmas, images, strict=True)]
            together = _denoise_in_groups(padded, limited, config, tools, data_range, progress)
        return [_cropped(done, image.shape) for done, image in zip(together, images, strict=True)]
    results: list[Denoised] = []
    for index, sigma in enumerate(sigmas):
        image = channel(index)
        share = part_of(progress, index, len(sigmas))
        done = denoise_grey(pad_to(image, length), sigma, config, tools, data_range=data_range, progress=share)
        if done.transform is not None:
            tools = replace(tools, transform=done.transform, adapting=False)
        results.append(_cropped(done, image.shape))
    return results


def _telling(sigma: float, image: NDArray[np.generic]) -> float:
    """The deviation as far as it matters: 0 for what single precision cannot tell, at most what hides all."""
    return 0.0 if sigma <= max(NEGLIGIBLE * float(np.abs(image).max()), SMALLEST) else min(sigma, HIDING)


def _cropped(done: Denoised, shape: tuple[int, ...]) -> Denoised:
    """The result without what `pad_to` added."""
    return replace(done, image=done.image[: shape[0], : shape[1]])


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
    config: Settings,
    tools: Tools | None = None,
    *,
    data_range: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Denoised:
    """Denoise a 2-D array of noise deviation `sigma` (in its own units); the result is of `result_type`.

    data_range: the smallest and largest value a pixel can have, where known.
    """
    tools = tools or Tools()
    check_image(image)
    check_sigma(sigma)
    patch_size = tools.patch_size_for(config)
    stride = 1 if isinstance(config, BestConfig) else config.stride
    if stride > patch_size:
        raise ValueError(f"stride must be at most the transform's patch size {patch_size}, not {stride}.")
    for length in image.shape:
        positions(length, patch_size, stride)
    if not _telling(sigma, image):
        return Denoised(image.astype(result_type(image)), None)
    with one_blas_thread():
        if isinstance(config, DenoiseConfig):
            return _denoise_as_published(image, sigma, config, tools, data_range, progress)
        sigma = _telling(sigma, image)
        if isinstance(config, BestConfig):
            return _denoise_in_groups([image], [sigma], config, tools, data_range, progress)[0]
        return _denoise_by_passes(image, sigma, config, tools, data_range, progress)


def _denoise_as_published(
    image: NDArray[np.generic], sigma: float, config: DenoiseConfig, tools: Tools,
    data_range: tuple[float, float] | None, progress: Progress | None,
) -> Denoised:  # fmt: skip
    """The paper's protocol: learn in rounds, code every patch, average."""
    transform = tools.transform
    history: tuple[Iteration, ...] = ()
    if transform is None or tools.adapting:
        learnt = learn_on_picture(image, sigma, config, start=transform)
        transform, history = learnt.transform, learnt.history
    estimate = estimate_image(
        image, sigma, make_coder(transform, sigma, config), transform.patch_size, stride=config.stride,
        data_range=data_range, jobs=tools.threads, progress=progress,
    )  # fmt: skip
    return Denoised(estimate, transform, history)


def _denoise_by_passes(
    image: NDArray[np.generic], sigma: float, config: FastConfig | StandardConfig, tools: Tools,
    data_range: tuple[float, float] | None, progress: Progress | None,
) -> Denoised:  # fmt: skip
    """Fast and standard quality: choose or learn a transform, code, shrink; the DCT helps where that is unsure."""
    working, centre = _centred(image)
    adapted = _transform_for(working, sigma, config, tools)
    size = adapted.transform.patch_size
    scale = config.error_scale or matched_error_scale(size)
    transforms = [adapted.transform] if adapted.sure else [adapted.transform, Transform.dct(size)]
    estimates = [
        denoise_guided(
            working, sigma, transform, scale, stride=config.stride, jobs=tools.threads,
            progress=part_of(progress, index, len(transforms)),
        )
        for index, transform in enumerate(transforms)
    ]  # fmt: skip
    estimate = estimates[0] if adapted.sure else np.float32(0.5) * (estimates[0] + estimates[1])
    return Denoised(_finished(estimate, centre, image, data_range), adapted.transform, adapted.history)


def _denoise_in_groups(
    channels: Sequence[NDArray[np.generic]], sigmas: Sequence[float], config: BestConfig, tools: Tools,
    data_range: tuple[float, float] | None, progress: Progress | None,
) -> list[Denoised]:  # fmt: skip
    """Best quality: a transform for the first stage, then groups of similar patches of all channels."""
    prepared = [_centred(channel) for channel in channels]
    size = tools.patch_size_for(config)
    adapted = _transform_for(prepared[0][0], sigmas[0], config, tools) if sigmas[0] else Adapted(Transform.dct(size))
    estimates = denoise_groups(
        [working for working, _ in prepared], sigmas, adapted.transform, GroupConfig.for_sigma(max(sigmas)),
        jobs=tools.threads, progress=progress,
    )  # fmt: skip
    return [
        Denoised(_finished(estimate, centre, channel, data_range), adapted.transform, adapted.history)
        for estimate, (_, centre), channel in zip(estimates, prepared, channels, strict=True)
    ]


def _centred(image: NDArray[np.generic]) -> tuple[NDArray[np.float32], float]:
    """The image without its mean, and the mean: single precision is for what differs from it."""
    centre = float(image.mean(dtype=np.float64))
    return np.subtract(image, centre, dtype=result_type(image)).astype(np.float32, copy=False), centre


def _finished(
    estimate: NDArray[np.float32], centre: float, image: NDArray[np.generic], data_range: tuple[float, float] | None
) -> Floats:
    """An estimate of the image with its mean again, within the range it can have."""
    result: Floats = estimate.astype(result_type(image), copy=False)
    result += centre
    if data_range is not None:
        np.clip(result, *data_range, out=result)
    return result


def _transform_for(
    image: NDArray[np.float32], sigma: float, config: FastConfig | AdaptiveConfig, tools: Tools
) -> Adapted:
    """The transform given, chosen or learnt."""
    given = tools.transform
    if isinstance(config, AdaptiveConfig) and config.method != "dct" and (given is None or tools.adapting):
        return adapt(image, sigma, config, start=given, ready=tools.ready, jobs=tools.threads)
    if given is not None:
        return Adapted(given)
    if config.method == "dct":
        return Adapted(Transform.dct(config.patch_size))
    return choose_transform(image, sigma, config.patch_size, ready=tools.ready, seed=config.seed)


def make_coder(transform: Transform, sigma: float, config: DenoiseConfig) -> Coder:
    """The variable-sparsity coder with the configured C and mu = 0.01/sigma."""
    return Coder.build(
        transform,
        error_scale=config.error_scale,
        fidelity=0.01 / sigma,
        most=config.most_coefficients(transform.patch_size),
    )


def learn_on_picture(
    image: NDArray[np.generic], sigma: float, config: DenoiseConfig, *, start: Transform | None = None
) -> Learnt:
    """Learn on random patches of the noisy picture, in rounds: each round's codes set the next one's sparsity."""
    rng = np.random.default_rng(config.seed)
    learnt = Learnt(start or Transform.dct(config.patch_size), (), "iterations")
    size = learnt.transform.patch_size
    rounds = config.rounds_at(sigma)
    levels: NDArray[np.int64] | int = config.first_coefficients(size)
    for number in range(1, rounds + 1):
        patches = sample(image, size, config.train_patches, rng)
        warm = number > 1 or start is not None
        if warm:
            coder = make_coder(learnt.transform, sigma, config)
            levels = coder.leave_out((patches / sigma).astype(np.float32))[1].astype(np.int64)
        shards = [Shard.from_patches(patches, levels)]
        factor = learnt.transform.factor if warm else None
        learnt = learn(shards, config.learn, start=factor, final=number == rounds)
    return learnt


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
