"""The engine of best: groups of similar patches, denoised together.

The first stage codes the patches of each group with the learnt transform and thresholds the whole group. Its result is
the pilot of the passes that follow, which combine the patches of each group and remove the noise little by little.
The picture of half the size comes first where it shows more: pilot and result take low frequencies of its estimate, and
chrominances whose noise is coarse have nothing but their detail beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.progress import part_of
from dstl_cli.base.threads import Execution
from dstl_cli.denoising.plan import Engine, Plan, TransformSource
from dstl_cli.denoising.settings import BestSettings, GroupSettings, Removal
from dstl_cli.denoising.sliding import at_half_size, with_own_detail
from dstl_cli.learning.on_picture import SMALLEST_SIDE, PictureTransform
from dstl_cli.noise.model import ChannelNoise, is_coarse
from dstl_cli.patches.frame import Frame
from dstl_cli.patches.tiles import Sums, Tile, TileGrid, spans_of, tiles_in, weighted_average
from dstl_cli.pixels.planes import Box, LazyPlane, Plane, averaged
from dstl_cli.pixels.scales import SHARP_LOBES, detailed, exchanged, halved, halved_shape, under, with_low_from
from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Floats = NDArray[np.floating[Any]]
Index = NDArray[np.intp]
Corners = NDArray[np.integer[Any]]  # (references, patches in a group), places within the flat box of a tile

TILE = (64, 128)  # height and width of the area whose reference patches are one piece of work
FAINT = 1.0  # groups of a chrominance, and axes of colours, with less than this share of their penalty are smooth
NOTHING = np.empty((0, 0), np.float32)
FLAT = 1.02  # deviations of coefficients that differ by less are the same
# Processor time of a reference patch, for the progress, in units in which a pass on 64 patches of p x p takes p^2.
MATCHING_COST = 0.0105  # of each place and channel, and once more
THRESHOLD_COST = 9.3
COLOUR_COST = 2.9  # of a pass that turns three channels, against one channel
COLOURED_COST = 1.3, 0.9  # of luminance and chrominance under noise that is coarse or follows the brightness
LEAST_ROOM = 8  # pictures are mirrored until this many patches fit into their height and width


@dataclass(frozen=True)
class ReferenceGrid:
    """Where the reference patches of one stage are, and how many similar patches each one looks for."""

    patch_size: int
    stride: int
    shift: int
    radius: int
    near: int
    far_step: int
    group: int

    @property
    def offsets(self) -> Index:
        """Where similar patches are looked for: rows and columns from the reference, (N, 2), row by row."""
        return offsets_within(self.radius, self.near, self.far_step)

    def tiles(self, shape: tuple[int, int]) -> TileGrid:
        """The reference patches of a picture of this shape, cut into tiles."""
        rows, columns = (
            spans_of(self.positions(length), self.patch_size, length, step, radius=self.radius)
            for length, step in zip(shape, TILE, strict=True)
        )
        return TileGrid(shape, rows, columns)

    def positions(self, length: int) -> Index:
        """Corners of reference patches along one axis: the first, the last, and every stride-th from the shift on."""
        last = length - self.patch_size
        return np.unique(np.append(np.arange(self.shift, last + 1, self.stride), (0, last)))


@dataclass(frozen=True)
class Low:
    """A share of the frequencies of half the size, the lower ones, cut off by so many lobes of a filter.

    weights: by which each channel takes them.
    """

    share: float
    lobes: float
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Groups:
    """The similar patches of every reference patch, tile by tile."""

    patch_size: int
    grid: TileGrid
    box: Box  # what the guides had at hand
    corners: dict[tuple[int, int], Corners]  # by the place of the tile


class GroupedEngine(Engine):
    """Groups found on all channels, denoised in each."""

    one_by_one = True

    def transform_for(
        self, plane: Plane, noise: ChannelNoise, settings: BestSettings, source: TransformSource, threads: int
    ) -> PictureTransform:
        """The transform given, or learnt on the picture."""
        found = source.found(plane, noise, settings, threads)
        side, step = found.transform.patch_size, (settings.groups or GroupSettings()).first_stride
        if side < step:
            raise ValueError(f"The transform has patches of {side}x{side} pixels; best needs at least {step}x{step}.")
        return found

    def least_side(self, plan: Plan) -> int:
        """Room for some patches."""
        settings: GroupSettings = plan.settings.groups
        sizes = [settings.patch_size_of(number) for number in range(settings.matchings)] + [plan.settings.patch_size]
        if plan.transform is not None:
            sizes.append(plan.transform.patch_size)
        return int(max(sizes)) + LEAST_ROOM - 1

    def period(self, plan: Plan) -> int:
        """Of the reference patches of all stages."""
        settings: GroupSettings = plan.settings.groups
        return math.lcm(settings.first_stride, *map(settings.stride_of, range(settings.matchings)))

    def planes(self, plan: Plan) -> float:
        """Pilot and current of every channel, and the groups of two matchings.

        Passes that turn no colours keep the first stage beside them.
        """
        channels = len(plan.centres)
        count = channels - len(channels_at_half_size(plan))
        settings: GroupSettings = plan.settings.groups
        noises = [plan.noise.channel(index) for index in range(channels)]
        kept = 1.0 if turns_colours(noises, settings.patch_size) else 1.5
        half = 0.0 if halved_plan(plan) is None else 0.5 * channels
        places = [0.5 * settings.group / settings.stride_of(number) ** 2 for number in range(settings.matchings)]
        return 2.0 * kept * count + half + sum(sorted(places)[-2:])

    def window(self, box: Box, plan: Plan) -> Box:
        """The groups and the sums of each pass, from the last to the first stage, and the picture of half the size."""
        fine, low = self._windows(box, plan)
        half = halved_plan(plan)
        return fine if half is None else fine.joined(under(self.window(low, half), plan.shape))

    def _windows(self, box: Box, plan: Plan) -> tuple[Box, Box]:
        """What the passes need, from the last to the first stage; and what of the estimate of half the size."""
        assert plan.transform is not None
        settings: GroupSettings = plan.settings.groups
        grids = [grid.tiles(plan.shape) for grid in reference_grids(plan.shape, plan.transform.patch_size, settings)]
        halves, smaller = halved_plan(plan) is not None, channels_at_half_size(plan)
        for_pilot, for_result = lows_of(plan)
        found, low = box, box
        if halves:
            found, low = exchanged(box, for_result.share, plan.shape, for_result.lobes)
        for number in range(settings.passes - 1, -1, -1):
            found = grids[1 + settings.matching_of(number)].covering(found)
        if halves:
            found, guide_low = exchanged(found, for_pilot.share, plan.shape, for_pilot.lobes)
            low = low.joined(guide_low)
        found = grids[0].covering(found)
        if smaller:
            fine, coarse = detailed(box, plan.shape)
            found, low = found.joined(fine).joined(under(coarse, plan.shape)), low.joined(coarse)
        return found, low

    def run(self, planes: list[Plane], plan: Plan, execution: Execution) -> list[Plane]:
        """Half the size, the first stage, the passes, and low frequencies of half the size."""
        assert plan.transform is not None
        settings: GroupSettings = plan.settings.groups
        smaller = channels_at_half_size(plan)
        own = [index for index in range(len(planes)) if index not in smaller]
        noises = [plan.noise.channel(index).counted_from(plan.centres[0]) for index in own]
        first, *others = reference_grids(planes[0].shape, plan.transform.patch_size, settings)
        turned = turns_colours(noises, settings.patch_size)
        steps = _Steps(execution, costs_of(plan, turned))
        at_hand = [plane if index in smaller else plane.made for index, plane in enumerate(planes)]
        halves, coarse = self._half_size(at_hand, plan, steps)
        fine = [at_hand[index] for index in own]
        del at_hand
        if execution.wanted is not None:  # half the size needs much of the picture, the groups less
            window, _ = self._windows(execution.wanted, plan)
            fine = [plane.cut(window.common(plane.box)) for plane in fine]
        for_pilot, for_result = lows_of(plan)
        pilots = self._first_stage(fine, noises, plan, first, steps)
        pilots = with_low_of(pilots, own, coarse, for_pilot, execution.threads)
        results = self._passes(fine, list(pilots), noises, settings, others, steps)
        del fine
        if settings.passes and not turned:  # turned colours have taken the place of the first stage
            for index, (first_one, noise) in enumerate(zip(pilots, noises, strict=True)):
                if noise.deviation() > 0:
                    results[index] = _blend(results[index], first_one, -settings.overshoot, in_place=True)
        del pilots
        results = with_low_of(results, own, coarse, for_result, execution.threads)
        found = dict(zip(own, results, strict=True))
        for index in smaller:
            estimate = coarse[index]
            assert estimate is not None
            found[index] = with_own_detail(planes[index], halves[index], estimate, halves[0], index, plan, execution)
        return [found[index] for index in range(len(planes))]

    def _half_size(self, planes: list[Plane], plan: Plan, steps: "_Steps") -> tuple[list[Plane], list[Plane | None]]:
        """The planes of half the size, and their estimates where they have noise; nothing where it does not help."""
        half = halved_plan(plan)
        if half is None:
            return [], [None] * len(planes)
        execution = steps.next()
        wanted = execution.wanted and self._windows(execution.wanted, plan)[1]
        small = [halved(plane.made, threads=execution.threads) for plane in planes]
        estimates = self.run(list(small), half, replace(execution, wanted=wanted))
        return small, [plane if sigma > 0 else None for plane, sigma in zip(estimates, half.noise.sigmas, strict=True)]

    def _first_stage(
        self, planes: list[Plane], noises: list[ChannelNoise], plan: Plan, grid: "ReferenceGrid", steps: "_Steps"
    ) -> list[Plane]:
        """The estimates by thresholds; groups are those of the luminance."""
        settings: GroupSettings = plan.settings.groups
        groups = find_groups(stabilised(planes[:1], noises[0]), grid, steps.next())
        pilots = list(planes)
        for index, noise in enumerate(noises):
            threshold = settings.threshold if index == 0 else settings.chroma_threshold
            if noise.deviation() > 0:
                own = [planes[index], *levels_for(noise, planes[0])]
                estimates = [
                    threshold_stage(own, noise, groups, transform, threshold, steps.next())
                    for transform in plan.transforms
                ]
                pilots[index] = estimates[0] if len(estimates) == 1 else averaged(*estimates)
        return pilots

    def _passes(
        self,
        noisy: list[Plane],
        pilots: list[Plane],
        noises: list[ChannelNoise],
        settings: GroupSettings,
        grids: "list[ReferenceGrid]",
        steps: "_Steps",
    ) -> list[Plane]:
        """The passes that remove the noise little by little."""
        currents = list(noisy)
        found: dict[int, Groups] = {}
        for number in range(settings.passes):
            if number < settings.matchings:
                guides = currents
                if number == 0:
                    guides = [_blend(*pair, settings.guide_noise) for pair in zip(pilots, noisy, strict=True)]
                found.pop(number - 2, None)
                found[number] = find_groups(stabilised(guides, noises[0]), grids[number], steps.next())
                del guides
            groups = found[settings.matching_of(number)]
            if turns_colours(noises, settings.patch_size):
                planes = [*noisy, *currents, *pilots]
                pilots, currents = colour_pass(planes, noises, settings.removal(number), groups, steps.next())
                continue
            for index, noise in reversed(list(enumerate(noises))):  # the luminance that tells the levels changes last
                if noise.deviation() > 0:
                    pilots[index], currents[index] = ridge_pass(
                        [noisy[index], currents[index], pilots[index], *levels_for(noise, pilots[0])],
                        noise,
                        settings.removal(number),
                        groups,
                        steps.next(),
                        FAINT if index else 0.0,
                        in_place=number > 0,
                    )
        return pilots


BEST = GroupedEngine()


@dataclass
class _Steps:
    """An execution in steps whose costs are known."""

    execution: Execution
    costs: list[float]
    done: int = 0

    def next(self) -> Execution:
        """The execution of the step that begins."""
        before, own, whole = sum(self.costs[: self.done]), self.costs[self.done], sum(self.costs)
        self.done += 1
        return replace(self.execution, progress=part_of(self.execution.progress, before, whole, own))


def costs_of(plan: Plan, turned: bool) -> list[float]:
    """What the steps of a picture cost, in their order, as measured: half size, first stage, passes.

    turned: the passes turn the colours.
    """
    half = halved_plan(plan)
    costs = [] if half is None else [sum(costs_of(half, turned)) / 4]
    settings: GroupSettings = plan.settings.groups
    smaller = channels_at_half_size(plan)
    noisy = [index for index, sigma in enumerate(plan.noise.sigmas) if sigma > 0 and index not in smaller]
    near, far_step = settings.near_radius, settings.far_step
    first = len(offsets_within(settings.first_radius, near, far_step)) / settings.first_stride**2
    costs.append(2 * MATCHING_COST * first)
    costs += [THRESHOLD_COST / settings.first_stride**2] * (len(noisy) * len(plan.transforms))
    places = len(offsets_within(settings.window_radius, near, far_step))
    own = [_cost_of(plan.noise.channel(index), index, settings.patch_size) for index in noisy]
    for number in range(settings.passes):
        if number < settings.matchings:
            guides = len(plan.centres) - len(smaller)
            costs.append(MATCHING_COST * (1 + guides) * places / settings.stride_of(number) ** 2)
        matching = settings.matching_of(number)
        cost = settings.patch_size_of(matching) ** 2 / settings.stride_of(matching) ** 2 * settings.group / 64
        costs += [COLOUR_COST * cost] if turned else [share * cost for share in reversed(own)]
    return costs


def _cost_of(noise: ChannelNoise, index: int, side: int) -> float:
    """What a pass on a channel costs, against one on white noise."""
    white = noise.level_factors(np.zeros(1)) is None and not whitening(side, noise).size
    return 1.0 if white else COLOURED_COST[min(index, 1)]


def threshold_stage(
    planes: list[Plane],
    noise: ChannelNoise,
    groups: Groups,
    transform: Transform,
    threshold: float,
    execution: Execution,
) -> Plane:
    """The first estimate: a group's coefficients below `threshold` deviations of their noise are left out.

    planes: noisy, and where the noise follows the brightness the luminance.
    """
    from dstl_cli.patches.kernels.grouped import threshold_groups

    forward, backward, deviations = patch_coder(transform, noise)
    thresholds = (threshold * deviations).astype(np.float32)
    side = transform.patch_size

    def run(parts: list[Floats], corners: Corners, sums: Sums) -> None:
        noisy, *levels = parts
        factors = patch_factors(levels, side, noise)
        threshold_groups(noisy, factors, corners, side, forward, backward, thresholds, *sums)

    return _average(planes, groups, 1, run, execution)[0]


def ridge_pass(
    planes: list[Plane],
    noise: ChannelNoise,
    removal: Removal,
    groups: Groups,
    execution: Execution,
    faint: float = 0.0,
    *,
    in_place: bool = False,
) -> tuple[Plane, Plane]:
    """A better estimate, and the same with some of the noise still in it.

    faint: groups with less than this share of their penalty are left at their mean.

    planes: noisy, current (noisy after the passes before, with the noise they left), the estimate so far, and where the
    noise follows the brightness the luminance. Where no noise is left, the second is the estimate too.
    in_place: written over the estimate so far and current, which are no more.
    """
    from dstl_cli.patches.kernels.grouped import ridge_groups

    side, deviation = groups.patch_size, np.float32(noise.deviation())
    white = whitening(side, noise)
    if white.size:  # little of coloured noise is in the mean patch's deviations, and how much depends on the overlaps
        removal = replace(removal, mean_penalty=0.0)
    strength, left = _strength(removal, faint)

    def run(parts: list[Floats], corners: Corners, sums: Sums) -> None:
        noisy, current, pilot, *levels = parts
        known = patch_factors(levels, side, noise), corners, side, white, deviation, strength, left
        ridge_groups(noisy, current, pilot, *known, sums[0], sums[1] if left else NOTHING, sums[-1])

    common, count = _common(planes), 2 if left else 1
    into = [common[2], common[1]][:count] if in_place else []
    found = _average(common, groups, count, run, execution, into)
    return found[0], found[-1]


def _strength(removal: Removal, faint: float) -> tuple[Array32, np.float32]:
    """What the kernels take: by what the noise of patches and of group means counts more, and what is left of it."""
    return np.array([removal.penalty, removal.mean_penalty, faint], np.float32), np.float32(removal.noise_left)


def colour_pass(
    planes: list[Plane], noises: list[ChannelNoise], removal: Removal, groups: Groups, execution: Execution
) -> tuple[list[Plane], list[Plane]]:
    """`ridge_pass` for three channels at once, along the axes of each group's own colours.

    planes: noisy, current and the estimate so far, of three channels each. The results take the place of the estimate
    and, unless that is the noisy picture itself, of current. Where no noise is left, the second is the estimate too.
    """
    from dstl_cli.patches.kernels.grouped import ridge_colours

    sigmas = np.array([noise.deviation() for noise in noises], np.float32)
    strength, left = _strength(removal, FAINT)

    def run(parts: list[Floats], corners: Corners, sums: Sums) -> None:
        noisy, current, pilot = (np.stack(parts[first : first + 3]) for first in (0, 3, 6))
        known = groups.patch_size, sigmas, strength, left
        ridge_colours(noisy, current, pilot, corners, *known, sums[:3], sums[3:-1], sums[-1])

    common = _common(planes)
    if removal.noise_left == 0:
        estimates = _average(common, groups, 3, run, execution, common[6:])
        return estimates, estimates
    remaining = common[3:6] if planes[3] is not planes[0] else [_like(plane, execution) for plane in common[3:6]]
    found = _average(common, groups, 6, run, execution, [*common[6:], *remaining])
    return found[:3], found[3:]


def _like(plane: Plane, execution: Execution) -> Plane:
    """A plane of the same box whose values are not set."""
    return replace(plane, values=execution.allocate(plane.box.shape, plane.values.dtype))


def turns_colours(noises: list[ChannelNoise], side: int) -> bool:
    """Whether the passes turn the colours of each group: three channels, white noise in all of them."""
    return len(noises) == 3 and all(
        noise.deviation() > 0 and noise.level_factors(np.zeros(1)) is None and not whitening(side, noise).size
        for noise in noises
    )


def _common(planes: list[Plane]) -> list[Plane]:
    """The planes, as far as all of them reach."""
    box = planes[0].box
    for plane in planes[1:]:
        box = box.common(plane.box)
    return [plane.cut(box) for plane in planes]


def lows_of(plan: Plan) -> "tuple[Low, Low]":
    """What pilot and result take of the picture of half the size.

    Coarse noise hides what the fine picture has at its lower frequencies; white noise hides them no more than others.
    """
    count = len(plan.centres)
    excess = [plan.noise.channel(index).coarse_excess for index in range(count)]
    if not any(excess):
        return Low(0.7, SHARP_LOBES, (0.5,) * count), Low(0.3, 1.0, (0.7,) * count)  # of the result the lowest most
    return Low(0.7, SHARP_LOBES, tuple(0.5 * share for share in excess)), Low(0.7, SHARP_LOBES, tuple(excess))


def channels_at_half_size(plan: Plan) -> list[int]:
    """Those that are denoised at half their size and have nothing but their detail at their own: see `at_half_size`.

    Of smaller pictures none: a quarter of the size would lose 0.1 dB of sharp colours.
    """
    if plan.halvings or halved_plan(plan) is None:
        return []
    return [index for index in range(len(plan.centres)) if at_half_size(plan, index)]


def halved_plan(plan: Plan) -> Plan | None:
    """How groups denoise the picture of half the size first; None where they do not: fine noise, no room."""
    settings: GroupSettings = plan.settings.groups
    noisy = [plan.noise.channel(index) for index, sigma in enumerate(plan.noise.sigmas) if sigma > 0]
    coloured = any(whitening(settings.patch_size, noise).size for noise in noisy)
    if settings.half is None or (coloured and not is_coarse(plan.noise)):
        return None
    half = replace(
        plan,
        shape=halved_shape(plan.padded_shape),
        halvings=plan.halvings + 1,
        noise=plan.noise.halved(),
        settings=replace(plan.settings, groups=settings.half),
    )
    return half if half.padded_shape == half.shape and min(half.shape) >= SMALLEST_SIDE else None


def with_low_of(
    planes: list[Plane], channels: list[int], coarse: Sequence[Plane | None], low: Low, threads: int
) -> list[Plane]:
    """The planes of some channels with low frequencies of those of half the size, of all; written over."""
    results = list(planes)
    for number, index in enumerate(channels):
        other, weight = coarse[index], low.weights[index]
        if other is not None and weight:
            how: dict[str, Any] = {"weight": weight, "lobes": low.lobes, "threads": threads, "in_place": True}
            results[number] = with_low_from(planes[number], other, low.share, **how)
    return results


def levels_for(noise: ChannelNoise, luminance: Plane) -> list[Plane]:
    """The luminance where the noise follows its level, nothing where it does not."""
    return [] if noise.level_factors(np.zeros(1)) is None else [luminance]


def patch_factors(levels: list[Floats], side: int, noise: ChannelNoise) -> Array32:
    """By what the noise of the patch at each corner is stronger, (h, w), from the luminance; (0, 0) without it."""
    if not levels:
        return NOTHING
    means = spread(levels[0][::-1, ::-1], side)[::-1, ::-1] / levels[0].dtype.type(side * side)
    factors = noise.level_factors(means.ravel())
    assert factors is not None
    return factors.reshape(means.shape)


def whitening(side: int, noise: ChannelNoise) -> Array32:
    """V' with V = d diag(1 / d_k) C: the DCT C of a patch with all its coefficients' noise d_k the same; (0, 0) if so.

    d: deviation of a pixel; with zeros up to a multiple of 16.
    """
    n = side * side
    rows = dct_matrix(side)
    deviations = noise.deviations(rows)
    if deviations.max() < FLAT * deviations.min():
        return NOTHING
    matrix = np.zeros((_whole_sixteens(n),) * 2, np.float32)
    matrix[:n, :n] = (noise.deviation() / deviations[:, None] * rows).T
    return matrix


def stabilised(guides: list[Plane], noise: ChannelNoise) -> list[Plane]:
    """Guides to compare patches on: the first, the luminance, with the same noise at every level."""
    if noise.level_factors(np.zeros(1)) is None:
        return guides
    levels = guides[0]
    return [LazyPlane(lambda box: noise.stabilised(levels.window(box)), levels.box, levels.shape), *guides[1:]]


def patch_coder(transform: Transform, noise: ChannelNoise) -> tuple[Array32, Array32, Array]:
    """Matrices that take patches as rows to codes, (n, m), and back, (m, n), and the noise of each code, (m,).

    Code 0 is the orthonormal mean. Zeros make n and m multiples of 16.
    """
    frame = Frame.of(transform)
    n = frame.patch_size**2
    mean = np.full((1, n), 1 / frame.patch_size)
    rows = np.concatenate((mean, frame.forward))
    size, codes = _whole_sixteens(n), _whole_sixteens(len(rows))
    forward, backward = np.zeros((size, codes), np.float32), np.zeros((codes, size), np.float32)
    forward[:n, : len(rows)] = rows.T
    backward[: len(rows), :n] = np.concatenate((mean.T, frame.backward), axis=1).T
    return forward, backward, np.append(noise.deviations(rows), np.zeros(codes - len(rows)))


def _whole_sixteens(count: int) -> int:
    """The next multiple of 16."""
    return -(-count // 16) * 16


def find_groups(guides: list[Plane], grid: ReferenceGrid, execution: Execution) -> Groups:
    """The patches most similar to each reference patch of the grid, over all guides."""
    from dstl_cli.patches.kernels.grouped import match

    box = guides[0].box
    for guide in guides[1:]:
        box = box.common(guide.box)
    tiles, _ = tiles_in(tile_grid := grid.tiles(guides[0].shape), box)
    ends = np.cumsum([0, *(tile.rows.size * tile.columns.size for tile in tiles)])
    most = max((math.prod(tile.box.shape) for tile in tiles), default=0)
    kind = np.uint16 if most <= np.iinfo(np.uint16).max else np.int32
    kept = execution.allocate((int(ends[-1]), grid.group), kind)  # together: pieces would leave holes in the memory

    def run(number: int) -> Corners:
        tile = tiles[number]
        own: Corners = kept[ends[number] : ends[number + 1]]
        corners = np.empty(own.shape, dtype=np.int32)
        windows = np.stack([guide.window(tile.box) for guide in guides])
        match(windows, tile.rows, tile.columns, grid.patch_size, grid.offsets, corners)
        own[...] = corners
        return own

    places = [tile.place for tile in tiles]
    found = execution.over(range(len(tiles)), run)
    return Groups(grid.patch_size, tile_grid, box, dict(zip(places, found, strict=True)))


def _average(
    planes: list[Plane], groups: Groups, count: int, kernel: Any, execution: Execution, into: Sequence[Plane] = ()
) -> list[Plane]:
    """Weighted averages over all patches of the groups, `count` planes of them; for `into` see `weighted_average`.

    kernel: adds `count` sums and, last, the weights at the corners of the patches, for one tile's part of the planes.
    """

    def run(tile: Tile, windows: list[Floats]) -> Sums:
        parts = [np.ascontiguousarray(window) for window in windows]
        sums = np.zeros((count + 1, *parts[0].shape), parts[0].dtype)
        kernel(parts, groups.corners[tile.place].astype(np.int32, copy=False), sums)
        sums[-1] = spread(sums[-1], groups.patch_size)
        return sums

    box = planes[0].box.common(groups.box)
    return weighted_average([plane.cut(box) for plane in planes], groups.grid, run, count, execution, into)


def spread(weights: Floats, side: int) -> Floats:
    """Weights of patches, kept at their corners, added up over the pixels that the patches cover: (h, w)."""
    height, width = weights.shape
    rows = weights.copy()
    for i in range(1, side):
        rows[i:] += weights[: height - i]
    covered = rows.copy()
    for j in range(1, side):
        covered[:, j:] += rows[:, : width - j]
    return covered


def reference_grids(shape: tuple[int, int], first_side: int, settings: GroupSettings) -> list[ReferenceGrid]:
    """The grid of the first stage and those of the passes that look for groups, for a picture of this shape."""
    places = settings.window_radius, settings.near_radius, settings.far_step
    first_places = settings.first_radius, *places[1:]
    first = room(shape, first_side, offsets_within(*first_places), settings.first_group)
    power_of_two = 1 << (first.bit_length() - 1)
    return [ReferenceGrid(first_side, settings.first_stride, 0, *first_places, power_of_two)] + [
        ReferenceGrid(
            side := settings.patch_size_of(number),
            settings.stride_of(number),
            settings.shift_of(number),
            *places,
            room(shape, side, offsets_within(*places), settings.group),
        )
        for number in range(min(settings.matchings, settings.passes))
    ]


@lru_cache
def offsets_within(radius: int, near: int, far_step: int) -> Index:
    """Rows and columns from the reference, (N, 2), row by row, up to `radius` away: all of those up to `near` away.

    Of those further away only rows and columns that are multiples of `far_step`.
    """
    places = np.arange(-radius, radius + 1)
    offsets = np.stack(np.meshgrid(places, places, indexing="ij"), axis=-1).reshape(-1, 2)
    wanted = (abs(offsets) <= near).all(axis=1) | (offsets % far_step == 0).all(axis=1)
    return np.asarray(offsets[wanted])


def room(shape: tuple[int, int], side: int, offsets: Index, wanted: int) -> int:
    """How many patches a group can have, at most the wanted number: those that every patch finds, wherever it is."""
    reach = 2 * int(abs(offsets).max(initial=0)) + 1  # in longer pictures no more places differ
    found = []
    for axis, length in enumerate(shape):
        places = min(length - side + 1, reach)
        others = np.arange(places)[:, None] + offsets[:, axis]
        found.append(((others >= 0) & (others < places)).astype(np.float32))
    return min(wanted, int((found[0] @ found[1].T).min()))


def _blend(first: Plane, second: Plane, share: float, *, in_place: bool = False) -> Plane:
    """The first plane with this share of the second in its place; in_place: written over the second."""
    other = second.window(first.box)
    blend = np.subtract(other, first.values, out=other if in_place else None)
    blend *= blend.dtype.type(share)
    blend += first.values
    return replace(first, values=blend)
