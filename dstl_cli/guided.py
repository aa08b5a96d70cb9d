"""Fast and standard quality: the coder's result guides a Wiener pass; where noise is strong, coarser scales help.

Strong noise hides the low frequencies of small patches, not those of a smaller picture, where the same patch covers
more. So the picture of half the size is denoised first, and gives the guide and the result their low frequencies.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dstl_cli.learning.adaptive import SMALLEST_SIDE
from dstl_cli.passes import Frame, coding_pass, wiener_pass
from dstl_cli.progress import Progress, part_of
from dstl_cli.scales import Scale, pyramid, with_low_from
from dstl_cli.transforms import Transform

Array32 = NDArray[np.float32]

SCALE_SIGMA = 30.0  # a scale with more noise than this gets a coarser one below it
GUIDE_SHARE = 0.7  # of the coarser scale's frequencies that the guide takes ...
RESULT_SHARE = 0.3  # ... and the result


def denoise_guided(
    image: Array32,
    sigma: float,
    transform: Transform,
    error_scale: float,
    *,
    stride: int,
    jobs: int,
    progress: Progress | None = None,
) -> Array32:
    """Both passes at every scale, coarsest first, with one transform."""
    depth = 1 + max(0, math.ceil(math.log2(sigma / SCALE_SIGMA)))
    scales = pyramid(image, sigma, depth, max(SMALLEST_SIDE, transform.patch_size))
    frame = Frame.of(transform)
    done: Array32 | None = None
    whole, before = sum(scale.image.size for scale in scales), 0
    for scale in reversed(scales):
        share = _within(progress, before / whole, scale.image.size / whole)
        done = _denoise_scale(scale, frame, error_scale, done, stride=stride, jobs=jobs, progress=share)
        before += scale.image.size
    assert done is not None
    return done


def _denoise_scale(
    scale: Scale, frame: Frame, error_scale: float, coarse: Array32 | None, *, stride: int, jobs: int,
    progress: Progress | None,
) -> Array32:  # fmt: skip
    """Both passes at one scale; coarse: the denoised next coarser scale, if there is one."""
    first, second = part_of(progress, 0, 2), part_of(progress, 1, 2)
    pilot = coding_pass(scale.image, frame, scale.sigma, error_scale, stride=stride, jobs=jobs, progress=first)
    if coarse is not None:
        pilot = with_low_from(pilot, coarse, GUIDE_SHARE)
    result = wiener_pass(scale.image, pilot, frame, scale.sigma, stride=stride, jobs=jobs, progress=second)
    return result if coarse is None else with_low_from(result, coarse, RESULT_SHARE)


def _within(progress: Progress | None, start: float, share: float) -> Progress | None:
    """The progress of a part that begins at `start` and is `share` of the whole."""
    if progress is None:
        return None
    return lambda done: progress(start + share * done)
