"""The pipeline of `--quality best`: groups of similar patches, denoised together.

The first stage codes the patches of each group with the learnt transform and thresholds the whole group. Its result is
the pilot of the passes that follow, which combine the patches of each group and remove the noise little by little.
The picture is cut into tiles, always the same ones, whose sums are added up in their order: neither threads nor luck
change a bit of the result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dstl_cli.config import check_sigma
from dstl_cli.group_config import GroupConfig
from dstl_cli.patches import check_image
from dstl_cli.progress import Progress, part_of
from dstl_cli.threads import in_order
from dstl_cli.transforms import Transform

Array32 = NDArray[np.float32]
Index = NDArray[np.intp]
Box = tuple[slice, slice]
Item = TypeVar("Item")

TILE = (64, 128)  # height and width of the area whose reference patches are one piece of work
LEAST_ROOM = 8  # pictures are mirrored until this many patches fit into their height and width
NEGLIGIBLE = 1e-6  # codes whose noise has less than this share of the largest deviation are zero


@dataclass(frozen=True)
class Tile:
    """Reference patches with corners on rows x columns, counted within the box: the part of the picture they use."""

    rows: Index
    columns: Index
    box: Box


@dataclass(frozen=True)
class Groups:
    """The similar patches of every reference patch of a picture."""

    patch_size: int
    tiles: list[Tile]
    corners: list[NDArray[np.int32]]  # of each tile: (references, patches in a group), places within the flat box


@dataclass(frozen=True)
class Grid:
    """Where the reference patches of one stage are, and how many similar patches each one looks for."""

    patch_size: int
    stride: int
    shift: int
    radius: int
    group: int


@dataclass
class Steps:
    """Progress over a known number of equal steps."""

    count: int
    report: Progress | None
    done: int = 0

    def next(self) -> Progress | None:
        """The progress of the step that begins."""
        self.done += 1
        return part_of(self.report, self.done - 1, self.count)


def denoise_groups(
    channels: Sequence[NDArray[np.generic]],
    sigmas: Sequence[float],
    transform: Transform,
    config: GroupConfig,
    *,
    jobs: int,
    progress: Progress | None = None,
) -> list[Array32]:
    """Denoise the channels of a grey picture (one) or a colour picture (luminance first): each (H, W) float32.

    channels: white noise of deviation sigmas[i] in each; one of deviation 0 comes back as it is. Each group has the
    same patches in all channels. transform: codes the patches of the first stage, without their means.
    """
    _check(channels, sigmas, transform, config)
    height, width = channels[0].shape
    if not any(sigmas):
        return [np.array(channel, dtype=np.float32) for channel in channels]
    least = max(transform.patch_size, config.patch_size) + LEAST_ROOM - 1
    shape = (max(height, least), max(width, least))
    noisy = [_mirrored(np.asarray(channel, dtype=np.float32), shape) for channel in channels]
    used = [index for index, sigma in enumerate(sigmas) if sigma > 0]
    grids = _grids(shape, transform.patch_size, config)
    steps = Steps(len(grids) + len(used) * (1 + config.passes), progress)

    pilots = noisy.copy()
    groups = find_groups(noisy[:1], grids[0], jobs=jobs, progress=steps.next())
    for index in used:
        threshold = config.threshold if index == 0 else config.chroma_threshold
        pilots[index] = threshold_stage(
            noisy[index], sigmas[index], groups, transform, threshold, jobs=jobs, progress=steps.next()
        )
    currents = noisy.copy()
    for number in range(config.passes):
        if number < config.matchings:
            guides = currents
            if number == 0:
                guides = [_blend(*pair, config.guide_noise) for pair in zip(pilots, noisy, strict=True)]
            groups = find_groups(guides, grids[1 + number], jobs=jobs, progress=steps.next())
            del guides
        left = config.noise_after(number)
        for index in used:
            pilots[index], currents[index] = ridge_pass(
                noisy[index], currents[index], pilots[index], sigmas[index], left, groups,
                jobs=jobs, progress=steps.next(),
            )  # fmt: skip
    return [
        pilot[:height, :width] if index in used else pilot[:height, :width].copy() for index, pilot in enumerate(pilots)
    ]


def threshold_stage(
    noisy: Array32,
    sigma: float,
    groups: Groups,
    transform: Transform,
    threshold: float,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Array32:
    """The first estimate (H, W): a group's coefficients below `threshold` deviations of their noise are left out."""
    from dstl_cli._group_kernels import threshold_groups

    forward, backward = patch_coder(transform)
    thresholds = (threshold * sigma * np.linalg.norm(forward, axis=0)).astype(np.float32)

    def run(parts: list[Array32], corners: NDArray[np.int32], sums: Array32) -> None:
        threshold_groups(parts[0], corners, transform.patch_size, forward, backward, thresholds, *sums)

    return _average([noisy], groups, 1, run, jobs, progress)[0]


def ridge_pass(
    noisy: Array32,
    current: Array32,
    pilot: Array32,
    sigma: float,
    left: float,
    groups: Groups,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[Array32, Array32]:
    """A better estimate (H, W), and the same with the share `left` of the noise still in it.

    current: the noisy picture after the passes before, with the noise they left in it; pilot: the estimate so far.
    """
    from dstl_cli._group_kernels import ridge_groups

    side, deviation, share = groups.patch_size, np.float32(sigma), np.float32(left)

    def run(parts: list[Array32], corners: NDArray[np.int32], sums: Array32) -> None:
        ridge_groups(*parts, corners, side, deviation, share, *sums)

    estimate, remaining = _average([noisy, current, pilot], groups, 2, run, jobs, progress)
    return estimate, remaining


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
    used = norms > NEGLIGIBLE * np.linalg.norm(transform.matrix, axis=1).max()
    codes = 1 + int(np.count_nonzero(used))
    matrices = np.zeros((2, _whole_fours(n), _whole_fours(codes)), dtype=np.float32)
    matrices[0, :n, :codes] = np.hstack((mean, forward[:, used]))
    matrices[1, :n, :codes] = np.vstack((mean.T, backward[used])).T
    return matrices[0], np.ascontiguousarray(matrices[1].T)


def _whole_fours(count: int) -> int:
    """The next multiple of 4."""
    return -(-count // 4) * 4


def find_groups(guides: list[Array32], grid: Grid, *, jobs: int = 1, progress: Progress | None = None) -> Groups:
    """The patches most similar to each reference patch of the grid, over all guides (H, W)."""
    from dstl_cli._group_kernels import match

    tiles = cut_tiles((guides[0].shape[0], guides[0].shape[1]), grid)

    def run(number: int) -> NDArray[np.int32]:
        tile = tiles[number]
        corners = np.empty((tile.rows.size * tile.columns.size, grid.group), dtype=np.int32)
        match(
            np.stack([guide[tile.box] for guide in guides]),
            tile.rows,
            tile.columns,
            grid.patch_size,
            grid.radius,
            corners,
        )
        return corners

    return Groups(grid.patch_size, tiles, list(_reported(in_order(run, range(len(tiles)), jobs), len(tiles), progress)))


def cut_tiles(shape: tuple[int, int], grid: Grid) -> list[Tile]:
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
    pictures: list[Array32],
    groups: Groups,
    count: int,
    kernel: Callable[[list[Array32], NDArray[np.int32], Array32], None],
    jobs: int,
    progress: Progress | None,
) -> list[Array32]:
    """Weighted averages over all patches, `count` pictures (H, W) of them.

    kernel: adds `count` sums and, last, the weights at the corners of the patches, for one tile's part of `pictures`.
    """

    def run(number: int) -> Array32:
        parts = [np.array(picture[groups.tiles[number].box], order="C") for picture in pictures]
        sums = np.zeros((count + 1, *parts[0].shape), dtype=np.float32)
        kernel(parts, groups.corners[number], sums)
        sums[-1] = spread(sums[-1], groups.patch_size)
        return sums

    *totals, weight = (np.zeros(pictures[0].shape, dtype=np.float32) for _ in range(count + 1))
    total_tiles = len(groups.tiles)
    finished = _reported(in_order(run, range(total_tiles), jobs), total_tiles, progress)
    for tile, sums in zip(groups.tiles, finished, strict=True):
        for total, part in zip((*totals, weight), sums, strict=True):
            total[tile.box] += part
    for total in totals:
        total /= weight
    return totals


def _reported(items: Iterator[Item], count: int, progress: Progress | None) -> Iterator[Item]:
    """The items as they come, each told to `progress`."""
    for done, item in enumerate(items, start=1):
        yield item
        if progress is not None:
            progress(done / count)


def _grids(shape: tuple[int, int], first_side: int, config: GroupConfig) -> list[Grid]:
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


def _mirrored(picture: Array32, sides: tuple[int, int]) -> Array32:
    """The picture, mirrored at its lower and right border until it has these sides."""
    missing = [(0, max(0, side - length)) for side, length in zip(sides, picture.shape, strict=True)]
    return np.pad(picture, missing, mode="symmetric") if np.any(missing) else picture


def _blend(pilot: Array32, noisy: Array32, share: float) -> Array32:
    """The pilot with this share of the noise put back."""
    blend = noisy - pilot
    blend *= np.float32(share)
    blend += pilot
    return blend


def _check(
    channels: Sequence[NDArray[np.generic]], sigmas: Sequence[float], transform: Transform, config: GroupConfig
) -> None:
    """Refuse channels that are not pictures of one shape with a deviation each, and a stride that leaves gaps."""
    if not channels or len(channels) != len(sigmas):
        raise ValueError(f"Each channel needs one sigma, not {len(channels)} channels and {len(sigmas)} sigmas.")
    for channel, sigma in zip(channels, sigmas, strict=True):
        check_image(channel)
        check_sigma(sigma)
        if channel.shape != channels[0].shape:
            raise ValueError("All channels of a picture must have the same shape.")
    stride, side = config.first_stride, transform.patch_size
    if stride > side:
        raise ValueError(f"first_stride must be at most the transform's patch size {side}, not {stride}.")
