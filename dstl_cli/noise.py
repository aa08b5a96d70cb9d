"""White Gaussian noise: adding it with a seed, and estimating its deviation from one noisy picture.

The estimator looks at the DCT of 8x8 blocks. Blocks are ranked by their power in the low and middle frequencies;
the noise is read off the highest frequencies of the smoothest blocks. For white noise the two are independent, so
the choice does not bias the reading, and texture leaves little in the highest frequencies of smooth blocks.
Four more steps make the number dependable:
* how many blocks are read is decided by an upper confidence bound: few where texture raises the reading, many
  where noise rules;
* clipping cuts the tails off the noise: the clipped Gaussian says how much of the variance stays at a grey level;
* blocks with constant lines in an otherwise noisy picture (frames, masks) are left out;
* rounding to a grid of grey values adds the variance step^2 / 12, which is taken off again.
The same reading on 2x2 pixel means is a second opinion: white noise must give the same deviation there.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.patches import check_image
from dstl_cli.transforms import dct_matrix

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Flags = NDArray[np.bool_]
Index = NDArray[np.intp]

BLOCK = 8  # side of the blocks
HIGHEST = 11  # coefficients whose two indices add up to this or more carry the reading: 10 of the 64
MOST_BLOCKS = 65_536  # larger pictures are read on an even grid of about this many blocks
CHUNK = 4096  # blocks transformed at a time, which bounds memory
FEWEST_BLOCKS = 100  # a reading rests on at least this many blocks (or a quarter of all)
CONFIDENCE = 2.0  # standard errors added to readings before they are compared
OVERLAP = 3.0  # overlapping blocks have standard errors this much larger than disjoint ones
MARGINS = (2.5, 1.5, 0.5)  # wanted distance of a block's mean from the clipping limits, in sigma; best first
ENOUGH_BLOCKS = 2000  # blocks at which a margin will do
DEAD_SHARE = 0.75  # a block with a larger share of clipped pixels says nothing about the noise
DRAWN_SHARE = 0.5  # share of blocks with constant lines, among those not all constant, that makes a drawing
LIGHTEST_TAILS = -1.2  # excess kurtosis that clipping cannot go below (of a uniform density)
LEAST_KEPT = 0.02  # share of the variance assumed to survive the hardest clipping
SATURATED_SHARE = 0.1  # share of clipped pixels from which on to warn
SCALES_RATIO = 2.2  # ratio of the two deviations from which on to warn, ...


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise of one channel; deviations are in the units of its pixels."""

    sigma: float
    warnings: tuple[str, ...]
    fine: float  # read off the pixels, rounding included
    coarse: float  # read off 2x2 means and doubled: equal to `fine` where the noise is white
    saturated: float  # share of the pixels at the clipping limits


@dataclass(frozen=True)
class _Blocks:
    """What is kept of N blocks."""

    texture: Array32  # (N,) power below the highest frequencies, weighted by frequency
    power: Array32  # (N, 10) squared coefficients of the highest frequencies
    level: Array  # (N,) mean grey value

    def part(self, chosen: Flags | Index) -> "_Blocks":
        return _Blocks(self.texture[chosen], self.power[chosen], self.level[chosen])


def add_noise(image: NDArray[np.generic], sigma: float, *, seed: int) -> Array:
    """The image plus white Gaussian noise of deviation sigma; float64, not clipped, same shape."""
    if not (np.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma must be a finite number of at least 0, not {sigma}.")
    noise = np.random.default_rng(seed).standard_normal(image.shape)
    return np.asarray(image.astype(np.float64) + sigma * noise)


def estimate_sigma(image: NDArray[np.generic], *, data_range: tuple[float, float] | None = None) -> NoiseEstimate:
    """Estimate the deviation of the white Gaussian noise in one grey channel, in the units of its pixels.

    image: (height, width), integers or floats of any scale. data_range: the values at which the picture was
    clipped, e.g. (0, 255); None looks for piles of pixels at its smallest and largest value instead.
    """
    check_image(image)
    limits = _clipping_limits(image, data_range)
    saturated = _saturated_share(image, limits)
    if min(image.shape) < BLOCK:
        sigma = _tiny_sigma(image)
        sentence = f"The picture has a side of less than {BLOCK} pixels, so its noise level is only a guess."
        return NoiseEstimate(sigma, (sentence,), sigma, sigma, saturated)
    fine = _read_scale(image, limits, 1)
    coarse = _read_scale(image, limits, 2) if min(image.shape) >= 2 * BLOCK else fine
    if fine is None or coarse is None:
        sentence = "Nearly all pixels are at the limits of the range, so the noise level cannot be estimated."
        return NoiseEstimate(0.0, (sentence,), 0.0, 0.0, saturated)
    sigma = math.sqrt(max(fine**2 - _rounding_step(image) ** 2 / 12, 0.0))
    return NoiseEstimate(sigma, _warnings(fine, coarse, saturated), fine, coarse, saturated)


def _warnings(fine: float, coarse: float, saturated: float) -> tuple[str, ...]:
    """What a user should know before trusting the number."""
    found = []
    if saturated > SATURATED_SHARE:
        found.append(
            f"{100 * saturated:.0f} % of the pixels are at the limits of the range: the noise level is less certain."
        )
    if coarse > SCALES_RATIO * fine or fine > SCALES_RATIO * coarse:
        found.append(
            f"The noise is not white: its deviation is {fine:.3g} between neighbouring pixels and {coarse:.3g} at "
            "the next coarser scale."
        )
    return tuple(found)


# Clipping


def _clipping_limits(image: NDArray[np.generic], data_range: tuple[float, float] | None) -> tuple[float, float]:
    """The values at which pixels were clipped; infinite on a side without clipping."""
    smallest, largest = float(image.min()), float(image.max())
    if data_range is not None:
        low, high = map(float, data_range)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"The data range must be two finite numbers in rising order, not {data_range}.")
        return (low if smallest >= low else -math.inf, high if largest <= high else math.inf)
    values, counts = np.unique(_pixel_sample(image), return_counts=True)
    if len(values) < 3:
        return -math.inf, math.inf
    pile = max(0.0005 * counts.sum(), 8)
    low_pile = values[0] == smallest and counts[0] > max(pile, 3 * counts[1])
    high_pile = values[-1] == largest and counts[-1] > max(pile, 3 * counts[-2])
    return smallest if low_pile else -math.inf, largest if high_pile else math.inf


def _saturated_share(image: NDArray[np.generic], limits: tuple[float, float]) -> float:
    """Share of the pixels at or beyond the limits."""
    low, high = limits
    clipped = 0
    if math.isfinite(low):
        clipped += int(np.count_nonzero(image <= low))  # type: ignore[operator]
    if math.isfinite(high):
        clipped += int(np.count_nonzero(image >= high))  # type: ignore[operator]
    return clipped / image.size


@lru_cache(maxsize=1)
def _clipped_gaussian() -> tuple[Array, Array, Array]:
    """Mean, variance and fourth cumulant of max(m + z, 0), z standard normal, for rising m.

    The moments I_k = E[(m + z)^k; z > -m] obey I_k = m I_(k-1) + (k - 1) I_(k-2).
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


def _kept_variance(level: Array, limits: tuple[float, float], sigma: float) -> Array:
    """Share of the noise variance that clipping leaves in areas of observed mean `level`."""
    low, high = limits
    mean, variance, _ = _clipped_gaussian()
    from_low = np.interp((level - low) / sigma, mean, variance, left=0.0, right=1.0)
    from_high = np.interp((high - level) / sigma, mean, variance, left=0.0, right=1.0)
    return np.asarray(np.maximum(from_low + from_high - 1, LEAST_KEPT))


def _expected_power(blocks: "_Blocks", limits: tuple[float, float], sigma: float) -> Array:
    """Mean power of a highest frequency in each block, as a share of sigma^2, given its level and texture.

    Clipped noise has light tails (negative fourth cumulant), so the powers of two frequencies of a block are
    negatively correlated, and choosing blocks of little texture chooses blocks with more power elsewhere. For
    orthonormal coefficients c, d of n independent pixels Cov(c^2, d^2) is about the fourth cumulant / n; the
    expectation given the texture follows by linear regression.
    """
    kept = _kept_variance(blocks.level, limits, sigma)
    mean, _, cumulant = _clipped_gaussian()
    light = np.minimum(cumulant, 0.0)
    from_low = np.interp((blocks.level - limits[0]) / sigma, mean, light, left=0.0, right=0.0)
    from_high = np.interp((limits[1] - blocks.level) / sigma, mean, light, left=0.0, right=0.0)
    excess = np.maximum((from_low + from_high) / kept**2, LIGHTEST_TAILS) / BLOCK**2
    weights = _texture_weights()
    slope = excess * weights.sum() / (2 * (weights**2).sum() + excess * weights.sum() ** 2)
    shortfall = np.minimum(blocks.texture / (kept * sigma**2) - weights.sum(), 0.0)
    return np.asarray(kept * (1 + slope * shortfall))


def _undo_clipping(variance: float, blocks: "_Blocks", limits: tuple[float, float]) -> float:
    """The sigma at which the blocks are expected to have the observed variance in the highest frequencies.

    Solves sigma^2 mean(expected power) = variance by fixed point from below.
    """
    sigma = math.sqrt(variance)
    if sigma == 0 or limits == (-math.inf, math.inf):
        return sigma
    for _ in range(100):
        before = sigma
        sigma = math.sqrt(variance / float(_expected_power(blocks, limits, sigma).mean()))
        if abs(sigma - before) <= 1e-4 * sigma:
            break
    return sigma


# Blocks


def _read_scale(image: NDArray[np.generic], limits: tuple[float, float], pool: int) -> float | None:
    """Sigma from the blocks of the picture (pool 1) or of its 2x2 means (pool 2); None without a usable block."""
    unit = float(image.max()) / 2 - float(image.min()) / 2
    if unit == 0:
        return 0.0
    grid = _grid(image.shape, BLOCK * pool, MOST_BLOCKS // pool**2)
    blocks, live = _measure(image, grid, limits, unit, pool)
    if not live.any():
        return None
    flat = (blocks.texture == 0) & ~blocks.power.any(axis=1)
    if flat.any():
        lines = _has_constant_lines(image, grid, BLOCK * pool)
        if np.count_nonzero(lines & live & ~flat) > DRAWN_SHARE * np.count_nonzero(live & ~flat):
            return _read(blocks, (-math.inf, math.inf)) * unit
        live &= ~lines
    return _read(blocks.part(live), (limits[0] / unit, limits[1] / unit)) * unit


def _grid(shape: tuple[int, ...], size: int, most: int) -> tuple[Index, Index]:
    """Corners of about `most` evenly spread blocks, or of all where there are fewer: rows and columns."""
    places = [length - size + 1 for length in shape]
    thinning = max(2.0, math.sqrt(math.prod(places) / most))
    rows, columns = (
        np.unique(np.linspace(0, n - 1, min(n, max(1, round(n / thinning)))).astype(np.intp)) for n in places
    )
    return rows, columns


def _cut(image: NDArray[np.generic], grid: tuple[Index, Index], size: int) -> Iterator[NDArray[np.generic]]:
    """The blocks of the grid in order, some rows of blocks at a time: (count, size, size)."""
    rows, columns = grid
    windows = sliding_window_view(image, (size, size))
    step = max(1, CHUNK * BLOCK**2 // (size**2 * len(columns)))
    for start in range(0, len(rows), step):
        yield windows[rows[start : start + step, None], columns].reshape(-1, size, size)


def _frequencies() -> NDArray[np.int64]:
    """Sum of the two indices of each DCT coefficient of a block: (64,)."""
    return np.add.outer(np.arange(BLOCK), np.arange(BLOCK)).ravel()


def _texture_weights() -> Array:
    """Weight of each coefficient below the highest frequencies in a block's texture: its frequency."""
    frequency = _frequencies()
    return frequency[(frequency > 0) & (frequency < HIGHEST)] / BLOCK


def _measure(
    image: NDArray[np.generic], grid: tuple[Index, Index], limits: tuple[float, float], unit: float, pool: int
) -> tuple[_Blocks, Flags]:
    """Block statistics in multiples of unit, and which blocks are live (not mostly clipped)."""
    transform = dct_matrix(BLOCK)
    frequency = _frequencies()
    weighted = transform[(frequency > 0) & (frequency < HIGHEST)] * np.sqrt(_texture_weights())[:, None]
    analysis = np.concatenate((weighted, transform[frequency >= HIGHEST])).T.astype(np.float32)
    work = np.result_type(image.dtype, np.float32)  # 8 and 16 bits need no more
    texture, power, level, clipped = [], [], [], []
    for cut in _cut(image, grid, BLOCK * pool):
        if limits != (-math.inf, math.inf):
            outside = ((cut <= limits[0]) | (cut >= limits[1])).reshape(len(cut), -1)  # type: ignore[operator]
            clipped.append(outside.sum(axis=1, dtype=np.uint16) / outside.shape[1])
        pixels = cut.astype(work)
        pixels /= work.type(unit)
        if pool == 2:
            pixels = (pixels[:, ::2, ::2] + pixels[:, ::2, 1::2] + pixels[:, 1::2, ::2] + pixels[:, 1::2, 1::2]) / 4
        rows = pixels.reshape(len(pixels), -1)
        level.append(rows.mean(axis=1))
        contrast = ((rows - rows[:, :1]) * pool).astype(np.float32, copy=False)  # 0 for a constant block
        coefficients = contrast @ analysis
        middle, highest = coefficients[:, : len(weighted)], coefficients[:, len(weighted) :]
        texture.append(np.einsum("ij,ij->i", middle, middle))
        power.append(highest**2)
    blocks = _Blocks(np.concatenate(texture), np.concatenate(power), np.concatenate(level).astype(np.float64))
    live = np.concatenate(clipped) <= DEAD_SHARE if clipped else np.ones(len(blocks.level), dtype=np.bool_)
    return blocks, live


def _has_constant_lines(image: NDArray[np.generic], grid: tuple[Index, Index], size: int) -> Flags:
    """Whether a block has a row or a column of equal pixels, which noise does not leave behind."""
    found = []
    for cut in _cut(image, grid, size):
        along_rows = (cut[:, :, 1:] == cut[:, :, :-1]).all(axis=2).any(axis=1)
        along_columns = (cut[:, 1:, :] == cut[:, :-1, :]).all(axis=1).any(axis=1)
        found.append(along_rows | along_columns)
    return np.concatenate(found)


def _read(blocks: _Blocks, limits: tuple[float, float]) -> float:
    """Read the noise off the smoothest blocks, chosen anew as sigma settles how far clipping reaches."""
    sigma = _read_smoothest(blocks, limits, np.ones(len(blocks.level)))
    if limits == (-math.inf, math.inf):
        return sigma
    distance = np.minimum(blocks.level - limits[0], limits[1] - blocks.level)
    for _ in range(4):
        before = sigma
        if sigma == 0:
            break
        chosen = blocks
        for margin in MARGINS:
            inside = distance > margin * sigma
            if np.count_nonzero(inside) >= ENOUGH_BLOCKS:
                chosen = blocks.part(inside)
                break
        sigma = _read_smoothest(chosen, limits, _kept_variance(chosen.level, limits, sigma))
        if abs(sigma - before) <= 0.005 * sigma:
            break
    return sigma


def _read_smoothest(blocks: _Blocks, limits: tuple[float, float], kept: Array) -> float:
    """Read the noise off the blocks of least texture, as many as give the lowest upper confidence bound.

    kept: (N,) share of the noise variance left by clipping, against which texture is judged.
    """
    count = len(kept)
    numbers = [max(min(FEWEST_BLOCKS, -(-count // 4)), count // 512)]
    while 2 * numbers[-1] <= count // 3:
        numbers.append(2 * numbers[-1])
    order = np.argsort(blocks.texture / kept, kind="stable")[: numbers[-1]]
    sums = np.cumsum(blocks.power[order], axis=0, dtype=np.float64)
    best = (math.inf, 0.0, 0)
    for number in numbers:
        powers = sums[number - 1] / number
        outlier = np.median(powers) * (1 + 6 * math.sqrt(2 / number))  # e.g. a screen or weave
        variance = float(powers[powers <= outlier].mean())
        error = OVERLAP * math.sqrt(2 / (number * len(powers)))
        unclipped = variance / float(kept[order[:number]].mean())
        best = min(best, (unclipped * (1 + CONFIDENCE * error), variance, number))
    _, variance, number = best
    return _undo_clipping(variance, blocks.part(order[:number]), limits)


# Pixels


def _pixel_sample(image: NDArray[np.generic]) -> NDArray[np.generic]:
    """Up to about 65 536 pixels, evenly spread, and always the smallest and the largest."""
    thinning = max(1, round(math.sqrt(image.size / MOST_BLOCKS)))
    sample = image[::thinning, ::thinning].ravel()
    return np.append(sample, [image.min(), image.max()])


def _rounding_step(image: NDArray[np.generic]) -> float:
    """The step of the grid that all pixel values lie on; 0 where there is none."""
    values = np.unique(_pixel_sample(image)).astype(np.float64)
    if len(values) < 2:
        return 0.0
    step = float(np.diff(values).min())
    steps = (values - values[0]) / step
    on_grid = steps[-1] < 2**16 and np.abs(steps - np.rint(steps)).max() < 1e-2
    return step if on_grid else 0.0


def _tiny_sigma(image: NDArray[np.generic]) -> float:
    """Median of the absolute differences of neighbours (of diagonal ones where there are), as a deviation."""
    differences = image.astype(np.float64)
    for axis in (0, 1):
        if image.shape[axis] > 1:
            differences = np.diff(differences, axis=axis) / math.sqrt(2)
    if image.size == 1:
        return 0.0
    return float(np.median(np.abs(differences))) / 0.6744897501960817
