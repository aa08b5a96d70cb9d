"""The engine of fast and standard: every overlapping patch by itself, coder first, then a Wiener pass guided by it.

Strong noise hides the low frequencies of small patches, not those of a smaller picture, where the same patch covers
more. So the picture of half the size is denoised first, and gives the guide and the result their low frequencies.
"""

from dataclasses import replace
from typing import Any

from dstl_cli.base.threads import Execution
from dstl_cli.denoising.passes import coding_estimate, patch_average, sliding_grid, wiener_estimate
from dstl_cli.denoising.plan import Engine, Plan, TransformSource
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import SMALLEST_SIDE, PictureTransform, choose_transform
from dstl_cli.noise.model import ChannelNoise
from dstl_cli.patches.frame import Frame
from dstl_cli.pixels.planes import Box, Plane, averaged
from dstl_cli.pixels.scales import depth_for, exchanged, halved, halved_shape, under, with_low_from
from dstl_cli.transforms.transform import Transform

SCALE_SIGMA = 30.0  # a scale with more noise than this gets a coarser one below it
GUIDE_SHARE = 0.7  # of the coarser scale's frequencies that the guide takes ...
RESULT_SHARE = 0.3  # ... and the result


class SlidingEngine(Engine):
    """Both passes with a transform that is learnt on the luminance."""

    def window(self, box: Box, plan: Plan) -> Box:
        """Two passes at every scale, and what is exchanged between scales."""
        return _needed(box, plan, plan.shape, _depth(plan, max(plan.noise.sigmas)))

    def run(self, planes: list[Plane], plan: Plan, execution: Execution) -> list[Plane]:
        """Each channel with the same transform; where few patches spoke for T, the result of Phi is averaged in."""
        results = []
        for index, plane in enumerate(planes):
            if not plan.noise.sigmas[index]:
                results.append(plane)
                continue
            share = execution.part(index, len(planes))
            parts = [
                denoise_plane(plane, index, transform, plan, share.part(number, len(plan.transforms)))
                for number, transform in enumerate(plan.transforms)
            ]
            results.append(parts[0] if len(parts) == 1 else averaged(*parts))
        return results


class ReadyEngine(SlidingEngine):
    """The same with a ready transform, or the canonical one."""

    def transform_for(
        self, plane: Plane, noise: ChannelNoise, settings: Any, source: TransformSource, threads: int
    ) -> PictureTransform:
        """The transform given, or the ready one where the picture gains by it, or the canonical one."""
        if source.given is not None:
            return PictureTransform(source.given)
        if not METHODS[settings.method].learns:
            return PictureTransform(Transform.fixed(settings.patch_size, settings.canonical))
        return choose_transform(plane, noise, settings.patch_size, ready=source.ready, seed=settings.seed)


STANDARD, FAST = SlidingEngine(), ReadyEngine()


def denoise_plane(plane: Plane, index: int, transform: Transform, plan: Plan, execution: Execution) -> Plane:
    """Both passes at every scale, coarsest first, with one transform."""
    scales = [plane]
    for _ in range(_depth(plan, plan.noise.sigmas[index])):
        scales.append(halved(scales[-1]))
    done: Plane | None = None
    for scale in range(len(scales) - 1, 0, -1):
        done = _denoise_scale(scales[scale], scale, done, index, transform, plan, replace(execution, progress=None))
    return _denoise_scale(plane, 0, done, index, transform, plan, execution)


def _denoise_scale(
    plane: Plane, scale: int, coarse: Plane | None, index: int, transform: Transform, plan: Plan, execution: Execution
) -> Plane:
    """Both passes at one scale; coarse: the denoised next coarser scale, if there is one."""
    noise, centre = plan.noise.channel(index), plan.centres[index]
    plain = Frame.of(transform)
    frame = plain.in_units_of(noise.deviations(plain.forward, scale))
    size, strides = frame.patch_size, (plan.settings.stride, 1)
    coding = coding_estimate(frame, noise, scale, centre, plan.settings.error_scale)
    pilot = patch_average([plane], size, strides, coding, execution.part(0, 2))
    if coarse is not None:
        pilot = with_low_from(pilot, coarse, GUIDE_SHARE)
    shrinking = wiener_estimate(frame, noise, scale, centre)
    result = patch_average([plane.cut(pilot.box), pilot], size, strides, shrinking, execution.part(1, 2))
    return result if coarse is None else with_low_from(result, coarse, RESULT_SHARE)


def _needed(box: Box, plan: Plan, shape: tuple[int, int], coarser: int) -> Box:
    """The pixels of a scale, with so many coarser ones, that its result in a box depends on."""
    grid = sliding_grid(shape, plan.patch_size, plan.settings.stride)
    if not coarser:
        return grid.covering(grid.covering(box))
    shrunk, low = exchanged(box, RESULT_SHARE, shape)
    guided, guide_low = exchanged(grid.covering(shrunk), GUIDE_SHARE, shape)
    coarse = _needed(low.joined(guide_low), plan, halved_shape(shape), coarser - 1)
    return grid.covering(guided).joined(under(coarse, shape))


def _depth(plan: Plan, sigma: float) -> int:
    """How often a picture with so much noise is halved."""
    return depth_for(sigma, SCALE_SIGMA, plan.padded_shape, max(SMALLEST_SIDE, plan.patch_size))
