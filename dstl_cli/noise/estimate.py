"""White Gaussian noise: its deviation, estimated from one noisy picture.

The estimator looks at the DCT of 8x8 blocks. Blocks are ranked by their texture, the power of their low and middle
frequencies; the noise is read off the highest frequencies of the smoothest blocks. In white noise the two are
independent, so the choice does not bias the reading, and smooth blocks have little else in their highest
frequencies. Four more steps make the number dependable:
* how many blocks are read is decided by an upper confidence bound: few where texture raises the reading, many where
  noise rules;
* clipping cuts the tails off the noise: the clipped Gaussian says how much of the power stays at a grey level;
* constant frames and masks in a noisy picture are left out;
* rounding to a grid of grey values adds the variance step^2 / 12, which is taken off again.
Two second opinions tell whether the noise is white: the power of all lower frequencies in the very smoothest blocks,
which must not exceed the reading by much, and the same reading on 2x2 pixel means, which must agree with it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array, Array32, Mask
from dstl_cli.pixels.depth import Depth
from dstl_cli.transforms.bases import dct_matrix

Image = NDArray[Any]
Index = NDArray[np.intp]
Limits = tuple[float, float]

BLOCK = 8  # side of the blocks
HIGHEST = 11  # coefficients whose two indices add up to this or more carry the reading: 10 of the 64
MOST_BLOCKS = 32_768  # larger pictures are read on an even grid of about this many blocks
CHUNK = 4096  # blocks transformed at a time, which bounds memory
FEWEST_BLOCKS = 100  # a reading rests on at least this many blocks (or a quarter of all)
CONFIDENCE = 2.0  # standard errors added to readings before they are compared
OVERLAP = 3.0  # overlapping blocks have standard errors this much larger than disjoint ones
MARGINS = (2.5, 1.5, 0.5)  # wanted distance of a block's level from the clipping limits, in sigma; best first
ENOUGH_BLOCKS = 2000  # blocks at which a margin will do
DEAD_SHARE = 0.75  # a block with a larger share of clipped pixels says nothing about the noise
DRAWN_SHARE = 0.5  # a larger share of blocks with constant lines, among those not all constant, makes a drawing
LEAST_KEPT = 0.02  # share of the variance assumed to survive the hardest clipping
LIGHTEST_TAILS = -1.2  # excess kurtosis that clipping cannot fall below (that of a uniform density)
SMALL_PICTURE = 1024  # pixels below which an estimate is a guess
SATURATED_SHARE = 0.1  # share of clipped pixels from which on to warn
SMOOTHEST_SHARE = 0.003  # quantile of texture at which the lower frequencies are compared with the highest
UNTOUCHED_SHARE = 0.05  # blocks with at most this share of clipped pixels take part in that comparison
LOWER_RATIO = 1.43  # ratio of the deviation in the lower frequencies to sigma from which on to warn
SCALES_RATIO = 2.5  # ratio of the deviations of pixels and of 2x2 means from which on to warn
SCALES_LEAST = 0.01  # no warning if all these deviations are below this share of the range of the pixels

UNCLIPPED = (-math.inf, math.inf)
FREQUENCY = np.add.outer(np.arange(BLOCK), np.arange(BLOCK)).ravel()  # (64,) the sum of a coefficient's indices
TEXTURE = (FREQUENCY > 0) & (FREQUENCY < HIGHEST)  # the coefficients of a block's texture ...
WEIGHTS = FREQUENCY[TEXTURE] / BLOCK  # ... and their weights in it


@dataclass(frozen=True)
class NoiseWarning:
    """Why an estimate may be off; of several channels the one of the largest severity is told."""

    kind: str
    severity: float
    sentence: str


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise of one channel; deviations are in the units of its pixels."""

    sigma: float
    warnings: tuple[NoiseWarning, ...]
    fine: float  # read off the pixels, rounding included
    coarse: float  # read off 2x2 means and doubled: equal to `fine` where the noise is white
    lower: float  # of the lower frequencies in the smoothest blocks: not above `fine` where the noise is white
    saturated: float  # share of the pixels at the clipping limits


@dataclass(frozen=True)
class _Blocks:
    """What is known of N blocks; pixels are scaled to the range 0 to 1."""

    texture: Array32  # (N,) power below the highest frequencies, weighted by frequency
    power: Array32  # (N, 10) squared coefficients of the highest frequencies
    level: Array  # (N,) mean grey value

    def part(self, chosen: Mask | Index) -> "_Blocks":
        """Some of the blocks."""
        return _Blocks(self.texture[chosen], self.power[chosen], self.level[chosen])


def estimate_sigma(image: Image, *, data_range: tuple[float, float] | None = None) -> NoiseEstimate:
    """Estimate the deviation of the white Gaussian noise in one grey channel, in the units of its pixels.

    image: (height, width), integers or floats of any scale. data_range: the values at which the picture was
    clipped, e.g. (0, 255); None looks for piles of pixels at its smallest and largest value instead.
    """
    smallest, largest = float(image.min()), float(image.max())
    span = largest - smallest
    if not math.isfinite(span):
        raise ValueError("The pixel values span a range too wide for floating-point numbers.")
    thinning = max(1, math.ceil(math.sqrt(image.size / MOST_BLOCKS)))
    values, counts = np.unique(image[::thinning, ::thinning], return_counts=True)
    limits = data_range or _piles(values, counts, smallest, largest)
    limits = (limits[0] if limits[0] <= smallest else -math.inf, limits[1] if limits[1] >= largest else math.inf)
    saturated = sum(int(np.count_nonzero(image == limit)) for limit in limits if math.isfinite(limit)) / image.size
    if span == 0 or min(image.shape) < BLOCK:
        fine = coarse = lower = _tiny_sigma(image)
    else:
        fine, lower = _read_scale(image, smallest, span, limits, 1)
        coarse = _read_scale(image, smallest, span, limits, 2)[0] if min(image.shape) >= 2 * BLOCK else fine
    rounding = _grid_step(values) / math.sqrt(12)
    sigma = math.sqrt(max(fine - rounding, 0.0)) * math.sqrt(fine + rounding)
    warnings = _warnings(image, saturated, (fine, coarse, lower), span)
    return NoiseEstimate(sigma, tuple(warnings), fine, coarse, lower, saturated)


def estimate_channels(pixels: Image, depth: Depth) -> list[NoiseEstimate]:
    """Noise of every stored channel of a picture, (H, W) or (H, W, 3)."""
    stored = [pixels] if pixels.ndim == 2 else [pixels[..., c] for c in range(pixels.shape[2])]
    return [estimate_sigma(channel, data_range=_known_limits(channel, depth)) for channel in stored]


def _known_limits(channel: Image, depth: Depth) -> Limits | None:
    """Where a channel is clipped; None where numbers without a scale, which seldom use their range, do not reach it."""
    limits = depth.stored_range
    reached = limits is not None and (channel.min() <= limits[0] or channel.max() >= limits[1])
    return limits if depth.scaled or reached else None


def joint_warnings(estimates: list[NoiseEstimate], *kinds: str) -> tuple[str, ...]:
    """A sentence of each kind of warning (of these, or of all), that of the channel where it is worst."""
    worst: dict[str, NoiseWarning] = {}
    for warning in (warning for estimate in estimates for warning in estimate.warnings):
        if not kinds or warning.kind in kinds:
            known = worst.setdefault(warning.kind, warning)
            worst[warning.kind] = max(known, warning, key=lambda item: item.severity)
    return tuple(item.sentence for item in worst.values())


def _warnings(image: Image, saturated: float, readings: tuple[float, ...], span: float) -> Iterator[NoiseWarning]:
    """What may be wrong with the readings (fine, coarse, lower) of a picture whose pixels span a range."""
    if image.size < SMALL_PICTURE or min(image.shape) < BLOCK:
        sentence = "The picture is too small for a dependable estimate of its noise; tell it if you know it (--sigma)."
        yield NoiseWarning("size", 1.0, sentence)
    if saturated >= SATURATED_SHARE:
        share = f"{100 * saturated:.0f} % of the pixels are at the limits of the range"
        sentence = f"{share}; their noise cannot be seen; if too little is removed, try --strength 1.5."
        yield NoiseWarning("saturation", saturated, sentence)
    fine, coarse, lower = readings
    wide = max(coarse, lower)
    agree = coarse <= SCALES_RATIO * fine and fine <= SCALES_RATIO * coarse and lower <= LOWER_RATIO * fine
    if not agree and max(fine, wide) >= SCALES_LEAST * span:
        sentence = (
            f"Fine and coarse scales disagree about the noise (deviation {fine:.3g} between neighbouring pixels, "
            f"{wide:.3g} over wider distances): it is correlated, or texture covers the whole picture; "
            "where it is noise, tell how strong it is (--sigma, 8 to 14 for a camera at a high ISO number)."
        )
        yield NoiseWarning("scales", abs(wide - fine), sentence)


# Pixels: range, rounding, and pictures too small for blocks


def _piles(values: Image, counts: NDArray[np.intp], smallest: float, largest: float) -> Limits:
    """The smallest and largest value where far more pixels have it than its neighbour; infinite otherwise.

    values, counts: the distinct values among sampled pixels, rising, and how often they occur.
    """
    if len(values) < 3:
        return UNCLIPPED
    least = max(8.0, 0.0005 * float(counts.sum()))
    low = values[0] == smallest and counts[0] > max(least, 3 * counts[1])
    high = values[-1] == largest and counts[-1] > max(least, 3 * counts[-2])
    return smallest if low else -math.inf, largest if high else math.inf


def _grid_step(values: Image) -> float:
    """The step of the even grid on which all values (distinct, rising) lie; 0 where there is none."""
    if len(values) < 2:
        return 0.0
    offsets = values.astype(np.float64) - float(values[0])
    step = float(np.diff(offsets).min())
    if step == 0 or offsets[-1] >= 2**16 * step:
        return 0.0
    steps = offsets / step
    return step if np.abs(steps - np.rint(steps)).max() < 0.01 else 0.0


def _tiny_sigma(image: Image) -> float:
    """The median magnitude of differences between neighbours along both axes, as a deviation."""
    differences = image.astype(np.float64)
    for axis in (0, 1):
        if image.shape[axis] > 1:
            differences = np.diff(differences, axis=axis) / math.sqrt(2)
    if image.size == 1:
        return 0.0
    return float(np.median(np.abs(differences))) / 0.6744897501960817  # the median of |z|, z standard normal


# Clipping


@lru_cache(maxsize=1)
def _clipped_gaussian() -> tuple[Array, Array, Array]:
    """Mean, variance and fourth cumulant of max(m + z, 0), z standard normal, for rising m.

    The moments I_k = E[(m + z)^k; m + z > 0] obey I_k = m I_(k-1) + (k - 1) I_(k-2).
    """
    m = np.linspace(-4.0, 8.0, 601)
    i0 = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in m])
    i1 = m * i0 + np.exp(-(m**2) / 2) / math.sqrt(2 * math.pi)
    i2 = m * i1 + i0
    i3 = m * i2 + 2 * i1
    i4 = m * i3 + 3 * i2
    variance = i2 - i1**2
    fourth = i4 - 4 * i1 * i3 + 6 * i1**2 * i2 - 3 * i1**4
    return i1, variance, fourth - 3 * variance**2


def _kept_variance(level: Array, limits: Limits, sigma: float) -> Array:
    """Share of the noise variance that clipping leaves where the clipped picture has the mean `level`."""
    mean, variance, _ = _clipped_gaussian()
    below, above = (level - limits[0]) / sigma, (limits[1] - level) / sigma
    lost = [1 - np.interp(distance, mean, variance, left=0.0, right=1.0) for distance in (below, above)]
    return np.asarray(np.maximum(1 - lost[0] - lost[1], LEAST_KEPT))


def _expected_power(blocks: _Blocks, limits: Limits, sigma: float) -> Array:
    """Mean power of a highest frequency in each block as a share of sigma^2, given its level and texture.

    Clipping leaves noise with light tails (a negative fourth cumulant). The powers of two frequencies of a block
    are then negatively correlated, and a block chosen for its low texture has more power in the others. Between
    two orthonormal coefficients of n independent pixels Cov(c^2, d^2) is about fourth cumulant / n; the mean given
    the texture follows by linear regression.
    """
    kept = _kept_variance(blocks.level, limits, sigma)
    mean, _, cumulant = _clipped_gaussian()
    light = np.minimum(cumulant, 0.0)
    below = np.interp((blocks.level - limits[0]) / sigma, mean, light, left=0.0, right=0.0)
    above = np.interp((limits[1] - blocks.level) / sigma, mean, light, left=0.0, right=0.0)
    covariance = np.maximum((below + above) / kept**2, LIGHTEST_TAILS) / BLOCK**2
    slope = covariance * WEIGHTS.sum() / (2 * (WEIGHTS**2).sum() + covariance * WEIGHTS.sum() ** 2)
    shortfall = np.minimum(blocks.texture / (kept * sigma**2) - WEIGHTS.sum(), 0.0)
    return np.asarray(kept * (1 + slope * shortfall))


def _undo_clipping(variance: float, blocks: _Blocks, limits: Limits) -> float:
    """The sigma at which the blocks are expected to show the given variance in their highest frequencies.

    Solves sigma^2 mean(expected power at sigma) = variance by a fixed point from below.
    """
    sigma = math.sqrt(variance)
    if sigma == 0 or limits == UNCLIPPED:
        return sigma
    for _ in range(100):
        before = sigma
        sigma = math.sqrt(variance / float(_expected_power(blocks, limits, sigma).mean()))
        if abs(sigma - before) <= 1e-4 * sigma:
            break
    return sigma


# Blocks


def _read_scale(image: Image, smallest: float, span: float, limits: Limits, pool: int) -> tuple[float, float]:
    """Sigma, and the deviation of the lower frequencies, of the picture (pool 1) or of its 2x2 means (pool 2).

    Both are 0 if no block is usable.
    """
    grid = _block_grid(image.shape, BLOCK * pool, MOST_BLOCKS // pool**2)
    blocks = _measure(image, grid, smallest, span, pool)
    clipped = np.zeros(len(blocks.level))
    if limits != UNCLIPPED:
        clipped = np.concatenate([_clipped_share(cut, limits) for cut in _cut(image, grid, BLOCK * pool)])
    live = clipped <= DEAD_SHARE
    flat = (blocks.texture == 0) & ~blocks.power.any(axis=1)
    if flat.any():
        lines = np.concatenate([_has_constant_lines(cut) for cut in _cut(image, grid, BLOCK * pool)])
        uneven = live & ~flat
        if np.count_nonzero(lines & uneven) > DRAWN_SHARE * np.count_nonzero(uneven):
            return _read(blocks, UNCLIPPED) * span, 0.0
        live &= ~lines
    low, high = ((limit - smallest) / span for limit in limits)
    sigma = _read(blocks.part(live), (low, high))
    texture = blocks.texture[live & (clipped <= UNTOUCHED_SHARE)]
    rank = int(SMOOTHEST_SHARE * len(texture))
    smoothest = float(np.partition(texture, rank)[rank]) if len(texture) else 0.0
    return sigma * span, math.sqrt(smoothest / float(WEIGHTS.sum())) * span  # of white noise with such a texture


def _block_grid(shape: tuple[int, ...], size: int, most: int) -> tuple[Index, Index]:
    """Rows and columns of the corners of about `most` evenly spread blocks; every second place if these are fewer.

    The spacing is not a whole number as a rule, so that no phase of a periodic texture is preferred.
    """
    places = [length - size + 1 for length in shape]
    spacing = max(2.0, math.sqrt(math.prod(places) / most))
    rows, columns = (np.linspace(0, n - 1, max(1, round(n / spacing))).astype(np.intp) for n in places)
    return rows, columns


def _cut(image: Image, grid: tuple[Index, Index], size: int) -> Iterator[Image]:
    """The blocks of the grid in order, some rows of blocks at a time: (count, size, size)."""
    rows, columns = grid
    windows = sliding_window_view(image, (size, size))
    step = max(1, CHUNK * BLOCK**2 // (size**2 * len(columns)))
    for start in range(0, len(rows), step):
        yield windows[rows[start : start + step, None], columns].reshape(-1, size, size)


def _measure(image: Image, grid: tuple[Index, Index], smallest: float, span: float, pool: int) -> _Blocks:
    """Transform the blocks of the grid, of the picture or of its 2x2 means; white noise has one sigma in both."""
    transform = dct_matrix(BLOCK)
    middle = transform[TEXTURE] * np.sqrt(WEIGHTS)[:, None]
    analysis = np.concatenate((middle, transform[FREQUENCY >= HIGHEST])).T.astype(np.float32)
    exact_in_32 = image.dtype.kind in "bui" and image.dtype.itemsize <= 2
    working = np.dtype(np.float32 if exact_in_32 else np.float64)
    texture, power, level = [], [], []
    for cut in _cut(image, grid, BLOCK * pool):
        pixels = cut.astype(working)
        pixels -= working.type(smallest)
        pixels /= working.type(span)
        if pool == 2:
            pixels = (pixels[:, ::2, ::2] + pixels[:, ::2, 1::2] + pixels[:, 1::2, ::2] + pixels[:, 1::2, 1::2]) / 4
        rows = pixels.reshape(len(pixels), BLOCK**2)
        contrast = (rows - rows[:, :1]).astype(np.float32, copy=False)  # exactly 0 in a constant block
        coefficients = contrast @ analysis
        coefficients *= np.float32(pool)
        low, high = coefficients[:, : len(WEIGHTS)], coefficients[:, len(WEIGHTS) :]
        texture.append(np.einsum("ij,ij->i", low, low))
        power.append(high**2)
        level.append(rows.mean(axis=1, dtype=np.float64))
    return _Blocks(np.concatenate(texture), np.concatenate(power), np.concatenate(level))


def _clipped_share(blocks: Image, limits: Limits) -> Array:
    """Share of pixels at the limits in each block (count, size, size)."""
    clipped = ((blocks == limits[0]) | (blocks == limits[1])).reshape(len(blocks), -1)
    return np.asarray(clipped.sum(axis=1, dtype=np.uint16) / clipped.shape[1])


def _has_constant_lines(blocks: Image) -> Mask:
    """Whether each block has a row or a column of equal pixels, which noise does not leave behind."""
    rows = (blocks[:, :, 1:] == blocks[:, :, :-1]).all(axis=2).any(axis=1)
    columns = (blocks[:, 1:, :] == blocks[:, :-1, :]).all(axis=1).any(axis=1)
    return np.asarray(rows | columns)


def _read(blocks: _Blocks, limits: Limits) -> float:
    """Read sigma off the smoothest blocks; under clipping off those far from the limits, as soon as sigma is known."""
    if len(blocks.level) == 0:
        return 0.0
    sigma = _read_smoothest(blocks, limits, np.ones(len(blocks.level)))
    distance = np.minimum(blocks.level - limits[0], limits[1] - blocks.level)
    for _ in range(4 if limits != UNCLIPPED and sigma > 0 else 0):
        before = sigma
        inside = (distance > margin * sigma for margin in MARGINS)
        enough = (blocks.part(flags) for flags in inside if np.count_nonzero(flags) >= ENOUGH_BLOCKS)
        chosen = next(enough, blocks)
        sigma = _read_smoothest(chosen, limits, _kept_variance(chosen.level, limits, sigma))
        if abs(sigma - before) <= 0.005 * before:
            break
    return sigma


def _read_smoothest(blocks: _Blocks, limits: Limits, kept: Array) -> float:
    """Read sigma off the blocks of least texture, as many as give the lowest upper confidence bound.

    kept: (N,) share of the noise variance that clipping has left in each block, the measure of its texture.
    """
    count = len(kept)
    numbers = [max(min(FEWEST_BLOCKS, math.ceil(count / 4)), count // 512)]
    while 2 * numbers[-1] <= count // 3:
        numbers.append(2 * numbers[-1])
    order = np.argsort(blocks.texture / kept, kind="stable")[: numbers[-1]]
    power_sums = np.cumsum(blocks.power[order], axis=0, dtype=np.float64)
    kept_sums = np.cumsum(kept[order])
    best = (math.inf, 0.0, 0)
    for number in numbers:
        powers = power_sums[number - 1] / number
        regular = powers <= np.median(powers) * (1 + 6 * math.sqrt(2 / number))  # others: a screen or a weave
        variance = float(powers[regular].mean())
        error = OVERLAP * math.sqrt(2 / (number * len(powers)))
        bound = variance / (float(kept_sums[number - 1]) / number) * (1 + CONFIDENCE * error)
        best = min(best, (bound, variance, number))
    _, variance, number = best
    return _undo_clipping(variance, blocks.part(order[:number]), limits)
