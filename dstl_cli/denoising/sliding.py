"""The engine of fast and standard: every overlapping patch by itself, coder first, then a Wiener pass guided by it.

Strong or coarse noise hides the low frequencies of small patches, not those of a smaller picture, where the same patch
covers more. So the picture of half the size is denoised first, and gives the guide and the result their low
frequencies. Coefficients are in units of their own noise; where it follows the brightness, in units of that of the
patch's level, which the luminance tells for all channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dstl_cli.base.threads import Execution
from dstl_cli.denoising.passes import coding_estimate, patch_average, sliding_grid, wiener_estimate
from dstl_cli.denoising.plan import Engine, Plan, TransformSource
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import SMALLEST_SIDE, PictureTransform, choose_transform
from dstl_cli.noise.model import ChannelNoise
from dstl_cli.patches.frame import Frame
from dstl_cli.patches.grid import Lattice
from dstl_cli.pixels.planes import Box, Floats, LazyPlane, Plane, averaged
from dstl_cli.pixels.scales import (
    detail_filters,
    detailed,
    exchanged,
    halved,
    halved_shape,
    most_halvings,
    under,
    with_detail_of,
    with_low_from,
)
from dstl_cli.transforms.transform import Transform

GUIDE_SHARE = 0.7  # of the coarser scale's frequencies that the guide takes ...
RESULT_SHARE = 0.3  # ... and the result
COARSE_NOISE = 0.25  # share of the noise's power beyond the reach of a patch: more than this is coarse
FINEST_STRIDE = 1.6  # so many times as large is the stride of the finest scale where the noise is coarse
CHROMA_STRIDE = 1  # by so much the stride of the chrominances is larger


class SlidingEngine(Engine):
    """Both passes with a transform that is learnt on the luminance."""

    one_by_one = True

    def window(self, box: Box, plan: Plan) -> Box:
        """Two passes at every scale, and what is exchanged between scales."""
        found = box
        for kind in {(depth_of(plan, index), at_half_size(plan, index)) for index in range(len(plan.centres))}:
            found = found.joined(all_under(channel_boxes(box, plan, *kind), plan.shape))
        return found

    def run(self, planes: list[Plane], plan: Plan, execution: Execution) -> list[Plane]:
        """Each channel with the same transform; where few patches spoke for T, the result of Phi is averaged in."""
        results: list[Plane] = []
        luminance = Pyramid(planes[0], execution.threads)
        for index, plane in enumerate(planes):
            if not plan.noise.sigmas[index]:
                results.append(plane)
                continue
            share = execution.part(index, len(planes))
            own = Pyramid(plane, execution.threads) if index else luminance
            parts = [
                denoise_plane(own, luminance, index, transform, plan, share.part(number, len(plan.transforms)))
                for number, transform in enumerate(plan.transforms)
            ]
            found = parts[0] if len(parts) == 1 else averaged(*parts)
            if at_half_size(plan, index):
                found = with_own_detail(plane, own.at(1), found, luminance.at(1), index, plan, execution)
            results.append(found)
            own.forget_finest()
        return results


class Pyramid:
    """A plane and its halves, each made where it is first asked for, and kept."""

    def __init__(self, plane: Plane, threads: int) -> None:
        self.plane, self.threads = plane, threads
        self._kept: dict[int, Plane] = {}

    def at(self, scale: int) -> Plane:
        """The plane after so many halvings."""
        if scale not in self._kept:
            finer = self.at(scale - 1) if scale > 1 else self._kept.get(0) or self.plane.made
            self._kept[scale] = halved(finer, threads=self.threads) if scale else finer
        return self._kept[scale]

    def forget_finest(self) -> None:
        """Keep the halves alone."""
        self._kept.pop(0, None)


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


@dataclass(frozen=True)
class Coding:
    """How patches are coded, beside the transform: see `denoising.settings.PatchCoding`."""

    stride: int
    error_scale: float

    @classmethod
    def of(cls, plan: Plan, index: int) -> "Coding":
        """That of a channel; chrominances have fewer patches."""
        stride = min(plan.settings.stride + (CHROMA_STRIDE if index else 0), plan.patch_size)
        return cls(stride, plan.settings.error_scale)

    def at_finest(self, plan: Plan) -> "Coding":
        """That of the finest scale where the coarser ones hold most of the noise."""
        return replace(self, stride=min(round(FINEST_STRIDE * self.stride), plan.patch_size))


def denoise_plane(
    plane: Pyramid, luminance: Pyramid, index: int, transform: Transform, plan: Plan, execution: Execution
) -> Plane:
    """Both passes at every scale, coarsest first, with one transform; luminance: the noisy one, for its levels.

    Of a channel that is denoised at half its size, the plane of that.
    """
    pyramids, coding = with_levels(plane, luminance, plan.noise.channel(index)), Coding.of(plan, index)
    half = at_half_size(plan, index)
    boxes = [plane.plane.box]
    if execution.wanted is not None:  # a coarse scale needs much of the picture, the others little
        boxes = channel_boxes(execution.wanted, plan, depth_of(plan, index), half)
    coarse = coarser_estimate(pyramids, index, transform, plan, coding, execution, boxes[1:])
    if half and coarse is not None:
        return coarse
    if is_coarse(plan, index):
        coding = coding.at_finest(plan)
    own = [pyramid.at(0).cut(boxes[0].common(pyramid.plane.box)) for pyramid in pyramids]
    return _denoise_scale(own, 0, coarse, index, transform, plan, coding, execution)


def with_own_detail(
    noisy: Plane, half: Plane, coarse: Plane, levels: Plane, index: int, plan: Plan, execution: Execution
) -> Plane:
    """A chrominance that was denoised at half its size in full size, with its own detail where that is no noise.

    It is made from the noisy one where it is asked for, and takes no memory until then. half: the noisy one in half its
    size. levels: the noisy luminance of half the size.
    """
    noise = plan.noise.channel(index).counted_from(plan.centres[0])
    deviation = float(np.sqrt((noise.deviations(detail_filters()) ** 2).mean()))

    def make(box: Box) -> Floats:
        fine, low = detailed(box, noisy.shape)
        factors = noise.level_factors(levels.window(low))
        known = None if factors is None else Plane(factors, low, levels.shape)
        return with_detail_of(noisy.cut(fine), half.cut(low), coarse.cut(low), deviation, known).window(box)

    return LazyPlane(make, execution.wanted or noisy.box, noisy.shape)


def with_levels(plane: Pyramid, luminance: Pyramid, noise: ChannelNoise) -> list[Pyramid]:
    """A plane, and the luminance where that is another one and the noise follows its level."""
    follows_level = noise.level_factors(np.zeros(1)) is not None
    return [plane, luminance] if follows_level and luminance is not plane else [plane]


def coarser_estimate(
    pyramids: Sequence[Pyramid],
    index: int,
    transform: Transform,
    plan: Plan,
    coding: Coding,
    execution: Execution,
    boxes: Sequence[Box],
) -> Plane | None:
    """The denoised picture of half the size, by both passes at every coarser scale that a channel has, if any.

    pyramids: of a plane, and of the luminance where that counts. boxes: what the passes of each scale look at; none:
    all. Told is how far the half size is.
    """
    done: Plane | None = None
    last = 1 if at_half_size(plan, index) else 0  # whose passes are most of the work
    for scale in range(depth_of(plan, index), 0, -1):
        parts = [pyramid.at(scale) for pyramid in pyramids]
        if boxes:
            parts = [part.cut(boxes[scale - 1].common(part.box)) for part in parts]
        share = execution if scale == last else replace(execution, progress=None)
        done = _denoise_scale(parts, scale, done, index, transform, plan, coding, share)
    return done


def _denoise_scale(
    planes: list[Plane],
    scale: int,
    coarse: Plane | None,
    index: int,
    transform: Transform,
    plan: Plan,
    coding: Coding,
    execution: Execution,
) -> Plane:
    """Both passes at one scale of a plane, and the luminance where that is another one and counts.

    coarse: the denoised next coarser scale, if there is one.
    """
    noise = plan.noise.channel(index).counted_from(plan.centres[0])
    plain = Frame.of(transform)
    frame = plain.in_units_of(noise.deviations(plain.forward, scale))
    size = frame.patch_size
    first, second = lattices(coding.stride, size)

    factors_at = partial(noise.level_factors, scale=scale)
    coded = coding_estimate(frame, plain.costs, coding.error_scale, factors_at)
    pilot = patch_average(planes, size, first, coded, execution.part(0, 2))
    if coarse is not None:
        pilot = with_low_from(pilot, coarse, GUIDE_SHARE, threads=execution.threads, in_place=True)
    plane, *luminance = (part.cut(pilot.box) for part in planes)
    shrinking = wiener_estimate(frame, factors_at)
    guided = [plane, pilot, *luminance]
    result = patch_average(guided, size, second, shrinking, execution.part(1, 2))
    del pilot, guided  # as large as the result
    if coarse is None:
        return result
    return with_low_from(result, coarse, RESULT_SHARE, threads=execution.threads, in_place=True)


def lattices(stride: int, size: int) -> tuple[Lattice, Lattice]:
    """Of the first and of the second pass: halfway between, as a patch is no good guide for itself."""
    return Lattice.sheared(stride, size), Lattice.sheared(stride, size, stride**2 // 2)


def own_boxes(box: Box, plan: Plan, shape: tuple[int, int], coarser: int, stride: int) -> list[Box]:
    """The pixels that the passes of a scale, and of so many coarser ones, look at for the result in a box."""
    grid = sliding_grid(shape, plan.patch_size, lattices(stride, plan.patch_size)[0])  # both have the same tiles
    if not coarser:
        return [grid.covering(grid.covering(box))]
    shrunk, low = exchanged(box, RESULT_SHARE, shape)
    guided, guide_low = exchanged(grid.covering(shrunk), GUIDE_SHARE, shape)
    others = own_boxes(low.joined(guide_low), plan, halved_shape(shape), coarser - 1, stride)
    return [grid.covering(guided), *others]


def channel_boxes(box: Box, plan: Plan, depth: int, half: bool) -> list[Box]:
    """The same for a channel of so many coarser scales; half: at its own scale it has nothing but its detail."""
    stride, shape = plan.settings.stride, plan.shape
    if not half:
        return own_boxes(box, plan, shape, depth, stride)
    fine, coarse = detailed(box, shape)
    fine = fine.joined(under(coarse, shape))  # of which the half is made
    return [fine, *own_boxes(coarse, plan, halved_shape(shape), depth - 1, stride)]


def all_under(boxes: Sequence[Box], shape: tuple[int, int]) -> Box:
    """The pixels of a picture that boxes of it, of its half, and so on depend on."""
    shapes = [shape]
    for _ in boxes[1:]:
        shapes.append(halved_shape(shapes[-1]))
    *finer, found = boxes
    for own, size in zip(reversed(finer), reversed(shapes[:-1]), strict=True):
        found = own.joined(under(found, size))
    return found


def at_half_size(plan: Plan, index: int) -> bool:
    """Whether a channel is denoised at half its size: a chrominance whose noise is coarse. Its fine detail is rare."""
    return index > 0 and is_coarse(plan, index)


def is_coarse(plan: Plan, index: int) -> bool:
    """Whether the coarser scales of a channel hold most of what there is to do."""
    return depth_of(plan, index) > 0 and plan.noise.channel(index).coarse_excess > COARSE_NOISE


def depth_of(plan: Plan, index: int) -> int:
    """How often a channel is halved: as often as its noise asks for, and the size of the picture allows."""
    wanted = plan.noise.channel(index).coarser_scales if plan.noise.sigmas[index] else 0
    return most_halvings(plan.padded_shape, wanted, max(SMALLEST_SIDE, plan.patch_size))
