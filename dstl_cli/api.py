"""The Python interface: arrays in, arrays out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.colour import check_pixels, root_mean_square, working_channel
from dstl_cli.config import named_config, paper_config
from dstl_cli.denoising import Tools, channel_sigmas, denoise_pixels
from dstl_cli.files.ready import ready_transform
from dstl_cli.learning.learner import Shard, learn
from dstl_cli.patches import sample
from dstl_cli.transforms import Transform

__all__ = ["Transform", "denoise", "estimate_sigma", "learn_transform"]


def denoise(
    array: NDArray[np.generic],
    *,
    sigma: float | None = None,
    quality: str = "standard",
    transform: Transform | None = None,
    adapt: bool = False,
    jobs: int | None = None,
    **settings: Any,
) -> NDArray[np.generic]:
    """Denoise a grey (H, W) or RGB (H, W, 3) picture of uint8, uint16, float32 or float64; dtype and shape stay.

    sigma: noise deviation, on the 0-255 scale for integers whatever their depth, in the array's own units for
    floats; estimated if not given. quality: "fast", "standard" or "best", or "paper" for the paper's protocol.
    transform: used as it is, or with `adapt` as the start of learning. settings: fields of the quality's
    configuration in dstl_cli.config, e.g. method="dct", seed=1.
    """
    if adapt and transform is None:
        raise ValueError("adapt needs a transform to start from.")
    config = named_config(quality, **settings)
    tools = Tools(transform=transform, adapting=adapt, ready=ready_transform, jobs=jobs)
    return denoise_pixels(array, sigma, config, tools).pixels


def estimate_sigma(array: NDArray[np.generic]) -> float:
    """Noise deviation of a grey or RGB picture, in the units `denoise` takes; for colour the mean over channels."""
    check_pixels(array)
    return root_mean_square(list(channel_sigmas(array, None)[0]))


def learn_transform(
    images: Sequence[NDArray[np.generic]], *, sparsity_level: int | None = None, **settings: Any
) -> Transform:
    """Learn a transform from grey or RGB pictures (their luminance), with as many patches from each.

    sparsity_level: coefficients a patch is to be coded with, a tenth of its pixels if not given.
    settings: fields of DenoiseConfig or LearnConfig; train_patches counts the patches of all pictures together.
    """
    if not images:
        raise ValueError("There are no pictures to learn from.")
    config = paper_config(**{"train_patches": 20_000, **settings})
    rng = np.random.default_rng(config.seed)
    level = config.first_coefficients(config.patch_size) if sparsity_level is None else sparsity_level
    share = max(1, config.train_patches // len(images))
    shards = []
    for image in images:
        check_pixels(image)
        shards.append(Shard.from_patches(sample(working_channel(image, 0), config.patch_size, share, rng), level))
    return learn(shards, config.learn).transform
