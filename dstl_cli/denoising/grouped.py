"""The pipeline of `--quality best`: groups of similar patches, denoised together.

The first stage codes the patches of each group with the learnt transform and thresholds the whole group. Its result is
the pilot of the passes that follow, which combine the patches of each group and remove the noise little by little.
The picture is cut into tiles, always the same ones, whose sums are added up in their order: neither threads nor luck
change a bit of the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.denoising.channels import Array32, Channels, Estimate, Execution, TransformSource, mirrored
from dstl_cli.denoising.settings import BestSettings, GroupSettings
from dstl_cli.learning.on_picture import PictureTransform, learn_transform_on
from dstl_cli.patches.grid import Index
from dstl_cli.transforms.transform import Transform

Corners = NDArray[np.int32]
Kernel = Callable[..., None]

TILE = (64, 128)  # height and width of the area whose reference patches are one piece of work
LEAST_ROOM = 8  # pictures are mirrored until this many patches fit into their height and width
UNSEEN_SHARE = 1e-6  # codes whose noise has less than this share of the largest deviation are zero


@dataclass(frozen=True)
class Tile:
    """Reference patches with corners on rows x columns, counted within the box: the part of the picture they use."""

    rows: Index
    columns: Index
    box: tuple[slice, slice]


@dataclass(frozen=True)
class Groups:
    """The similar patches of every reference patch of a picture."""

    patch_size: int
    tiles: list[Tile]
    corners: list[Corners]  # of each tile: (references, patches in a group), places within the flat box


@dataclass(frozen=True)
class Grid:
    """Where the reference patches of one stage are, and how many similar patches each one looks for."""

    patch_size: int
    stride: int
    shift: int
    radius: int
    group: int


def denoise_channels(
    channels: Channels, settings: BestSettings, source: TransformSource, execution: Execution
) -> Estimate:
    """The engine of best: a transform for the first stage, then groups of similar patches of all channels."""
    planes = list(channels.planes(source.patch_size(settings)))
    sigmas = [plane.deviation for plane in planes]
    if not any(sigmas):
        return Estimate([plane.unchanged() for plane in planes], None)
    found = PictureTransform(Transform.fixed(source.patch_size(settings), settings.canonical))
    if sigmas[0]:
        found = source.found(learn_transform_on, planes[0].centred, sigmas[0], settings, execution.threads)
    groups = settings.groups or GroupSettings.for_sigma(max(sigmas))
    estimates = denoise_groups([plane.centred for plane in planes], sigmas, found.transform, groups, execution)
    results = [
        plane.restored(estimate) if plane.deviation else plane.unchanged()
        for plane, estimate in zip(planes, estimates, strict=True)
    ]
    return Estimate(results, found.transform, found.history)


def denoise_groups(
    channels: list[Array32], sigmas: Sequence[float], transform: Transform, config: GroupSettings, execution: Execution
) -> list[Array32]:
    """Denoise the channels of a grey picture (one) or a colour picture (luminance first): each (H, W) float32.

    channels: white noise of deviation sigmas[i] in each; one of deviation 0 comes back as it is. Each group has the
    same patches in all channels. transform: codes the patches of the first stage, without their means.
    """
    stride, side = config.first_stride, transform.patch_size
    if stride > side:
        raise ValueError(f"The transform has patches of {side}x{side} pixels; best needs at least {stride}x{stride}.")
    height, width = channels[0].shape
    least = max(side, config.patch_size) + LEAST_ROOM - 1
    shape = (max(height, least), max(width, least))
    noisy = [mirrored(channel, *shape) for channel in channels]
    used = [index for index, sigma in enumerate(sigmas) if sigma > 0]
    grids = _grids(shape, side, config)
    steps = execution.split([1] * (len(grids) + len(used) * (1 + config.passes)))

    pilots = noisy.copy()
    groups = find_groups(noisy[:1], grids[0], next(steps))
    for index in used:
        threshold = config.threshold if index == 0 else config.chroma_threshold
        stage = partial(threshold_stage, noisy[index], sigmas[index], groups, threshold)
        pilots[index] = next(steps).with_canonical(transform, stage)
    currents = noisy.copy()
    for number in range(config.passes):
        if number < config.matchings:
            guides = currents
            if number == 0:
                guides = [_blend(*pair, config.guide_noise) for pair in zip(pilots, noisy, strict=True)]
            groups = find_groups(guides, grids[1 + number], next(steps))
            del guides
        for index in used:
            pictures = [noisy[index], currents[index], pilots[index]]
            noise_left = config.noise_after(number)
            pilots[index], currents[index] = ridge_pass(pictures, sigmas[index], noise_left, groups, next(steps))
    return [pilot[:height, :width] for pilot in pilots]


def threshold_stage(
    noisy: Array32, sigma: float, groups: Groups, threshold: float, transform: Transform, execution: Execution
) -> Array32:
    """The first estimate (H, W): a group's coefficients below `threshold` deviations of their noise are left out."""
    from dstl_cli.patches.kernels.grouped import threshold_groups

    forward, backward = patch_coder(transform)
    thresholds = (threshold * sigma * np.linalg.norm(forward, axis=0)).astype(np.float32)
    return _average(threshold_groups, [noisy], groups, (forward, backward, thresholds), 1, execution)[0]


def ridge_pass(
    pictures: list[Array32], sigma: float, noise_left: float, groups: Groups, execution: Execution
) -> list[Array32]:
    """A better estimate (H, W), and the same with the share `noise_left` of the noise still in it.

    pictures: the noisy one; the same after the passes before, with the noise they left in it; the estimate so far.
    """
    from dstl_cli.patches.kernels.grouped import ridge_groups

    return _average(ridge_groups, pictures, groups, (np.float32(sigma), np.float32(noise_left)), 2, execution)


def patch_coder(transform: Transform) -> tuple[Array32, Array32]:
    """Matrices that take patches as rows to codes, (n, m), and back, (m, n); zeros make n and m multiples of 4.

    Code 0 is the orthonormal mean, the others are W of the patch without it; those that are always zero are left out.
    """
    side = transform.patch_size
    n = side**2
    mean = np.full((n, 1), 1 / side)
    centre = np.eye(n) - mean @ mean.T
    forward = centre @ transform.matrix.T
    backward = np.linalg.inv(transform.matrix).T @ centre
    norms = np.linalg.norm(forward, axis=0)
    used = norms > UNSEEN_SHARE * np.linalg.norm(transform.matrix, axis=1).max()
    codes = 1 + int(np.count_nonzero(used))
    matrices = np.zeros((2, n + -n % 4, codes + -codes % 4), dtype=np.float32)
    matrices[0, :n, :codes] = np.hstack((mean, forward[:, used]))
    matrices[1, :n, :codes] = np.vstack((mean.T, backward[used])).T
    return matrices[0], np.ascontiguousarray(matrices[1].T)


def find_groups(guides: list[Array32], grid: Grid, execution: Execution) -> Groups:
    """The patches most similar to each reference patch of the grid, over all guides (H, W)."""
    from dstl_cli.patches.kernels.grouped import match

    def run(tile: Tile) -> Corners:
        part = np.stack([guide[tile.box] for guide in guides])
        corners = np.empty((tile.rows.size * tile.columns.size, grid.group), dtype=np.int32)
        match(part, tile.rows, tile.columns, grid.patch_size, grid.radius, corners)
        return corners

    tiles = cut_tiles(guides[0].shape, grid)
    return Groups(grid.patch_size, tiles, list(execution.in_order(run, tiles)))


def cut_tiles(shape: tuple[int, ...], grid: Grid) -> list[Tile]:
    """The reference patches of a picture of this shape, cut into tiles, row by row."""
    rows, columns = (reference_positions(length, grid) for length in shape)
    reach = grid.radius + grid.patch_size
    tiles = []
    for top in range(0, shape[0], TILE[0]):
        r = rows[(rows >= top) & (rows < top + TILE[0])]
        for left in range(0, shape[1], TILE[1]):
            c = columns[(columns >= left) & (columns < left + TILE[1])]
            if r.size and c.size:
                y, x = max(int(r[0]) - grid.radius, 0), max(int(c[0]) - grid.radius, 0)
                box = (slice(y, min(int(r[-1]) + reach, shape[0])), slice(x, min(int(c[-1]) + reach, shape[1])))
                tiles.append(Tile(r - y, c - x, box))
    return tiles


def reference_positions(length: int, grid: Grid) -> Index:
    """Corners of reference patches along one axis: the first, the last, and every stride-th from the shift on."""
    last = length - grid.patch_size
    return np.unique(np.append(np.arange(grid.shift, last + 1, grid.stride), (0, last)))


def spread(weights: Array32, side: int) -> Array32:
    """Weights of patches, kept at their corners, added up over the pixels that the patches cover: (h, w)."""
    height, width = weights.shape
    rows = weights.copy()
    for i in range(1, side):
        rows[i:] += weights[: height - i]
    covered = rows.copy()
    for j in range(1, side):
        covered[:, j:] += rows[:, : width - j]
    return covered


def _average(
    kernel: Kernel, pictures: list[Array32], groups: Groups, settings: tuple[Any, ...], count: int, execution: Execution
) -> list[Array32]:
    """Weighted averages over all patches, `count` pictures (H, W) of them.

    kernel: adds `count` sums and, last, the weights at the corners of the patches, for one tile's part of `pictures`.
    """

    def run(number: int) -> Array32:
        parts = [np.array(picture[groups.tiles[number].box], order="C") for picture in pictures]
        sums = np.zeros((count + 1, *parts[0].shape), dtype=np.float32)
        kernel(*parts, groups.corners[number], groups.patch_size, *settings, *sums)
        sums[-1] = spread(sums[-1], groups.patch_size)
        return sums

    totals = [np.zeros(pictures[0].shape, dtype=np.float32) for _ in range(count + 1)]
    for tile, sums in zip(groups.tiles, execution.in_order(run, range(len(groups.tiles))), strict=True):
        for total, part in zip(totals, sums, strict=True):
            total[tile.box] += part
    for total in totals[:-1]:
        total /= totals[-1]
    return totals[:-1]


def _grids(shape: tuple[int, int], first_side: int, config: GroupSettings) -> list[Grid]:
    """The grid of the first stage and those of the passes that look for groups, for a picture of this shape."""
    radius = config.window_radius
    first = _room(shape, first_side, radius, config.first_group)
    group = _room(shape, config.patch_size, radius, config.group)
    power_of_two = 1 << (first.bit_length() - 1)
    return [Grid(first_side, config.first_stride, 0, radius, power_of_two)] + [
        Grid(config.patch_size, config.stride, config.shift_of(number), radius, group)
        for number in range(min(config.matchings, config.passes))
    ]


def _room(shape: tuple[int, int], side: int, radius: int, wanted: int) -> int:
    """How many patches a group can have, at most the wanted number: those in reach of the patch in a corner."""
    rows, columns = (min(radius + 1, length - side + 1) for length in shape)
    return min(wanted, rows * columns)


def _blend(pilot: Array32, noisy: Array32, share: float) -> Array32:
    """The pilot with this share of the noise put back."""
    blend = noisy - pilot
    blend *= np.float32(share)
    blend += pilot
    return blend
