"""The noise of a picture, read blind from one sample of it: white, growing with brightness, or coloured.

The DCT of 8x8 blocks is read on the picture and on two coarser scales. Blocks whose neighbours are calm speak for the
noise (the block itself has no vote, so the choice does not bias the reading); from them come the power of every
frequency, and its change with brightness. Three questions follow:
* Is it white? Then the reader of white noise (`noise.estimate`), which is better at that, gives the number.
* Does it follow the level? Then a line a x + b through the variances at the highest frequencies is its level function.
* Is it coloured, as after demosaicing, resampling or JPEG? Where the calm blocks look like Gaussian noise, they are
  believed; where they do so at the coarser scale alone, as JPEG leaves that as it was, their strength is. Elsewhere
  textures are taken for noise easily, and cameras differ far less than textures: the evidence for noise, to
  which the ISO number in the file belongs, decides how much comes in, and the amplitude is drawn towards what cameras
  have.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.base.arrays import largest_around
from dstl_cli.base.threads import in_order
from dstl_cli.noise.estimate import LOWER_RATIO, NoiseEstimate, estimate_channels, joint_warnings
from dstl_cli.noise.jpeg_grid import CodedReading, read_coded
from dstl_cli.noise.model import NoiseModel, SpectralChannel, SpectralNoise, WhiteNoise
from dstl_cli.pixels.colour import in_working_basis, working_channel
from dstl_cli.pixels.depth import WHITE, Depth
from dstl_cli.pixels.planes import Plane
from dstl_cli.pixels.scales import NOISE_GAIN, halved
from dstl_cli.transforms.bases import dct_matrix

Pixels = NDArray[np.generic]
Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Flags = NDArray[np.bool_]

BLOCK, STEP = 8, 4  # side of the blocks, and from one to the next
SCALES = 3
BINS = (8, 6, 3)  # of brightness, on the three scales
MOST_PIXELS = 900_000  # a larger picture is read in windows of this side, evenly spread
WINDOW = 384
CODED_WINDOWS = 4  # of them that are searched for the grid of a JPEG
LEAST_SIDE = 64  # of a scale that is read
FEWEST_BLOCKS = 50
CALM_SHARE = 0.15  # of the blocks of a bin that speak
ROUNDS = 5
CLIPPED_SHARE = 0.1  # a block with more clipped pixels says nothing
QUANTILE, CHI_QUANTILE = 0.2, 0.0642  # where the spectrum starts: this quantile of a squared coefficient and of chi^2
STARTED_FROM = 8192  # blocks
CHI_MEDIAN = 0.455  # median of chi^2 with one degree of freedom
WINSOR = 9.0  # powers beyond three deviations count as three deviations
STEEPEST_LEVEL = 3.0  # a bin's energy relative to that of the calmest third: more is texture

RADIUS = np.hypot(*np.divmod(np.arange(BLOCK**2), BLOCK))  # of a coefficient; 2 * BLOCK of them are a cycle per pixel
NEIGHBOURS = np.pad(np.zeros((1, 1), bool), 2)
NEIGHBOURS[::2, ::2] = True  # the eight disjoint neighbours of a block ...
NEIGHBOURS[2, 2] = False  # ... without itself

USED_SHARE = 0.25  # of the range of 16 bits, that 14 bits have; a picture within it has no scale
DEFECTS = 0.001  # share of the pixels at either end that may be defect ...
SPAN_PIXELS = 100_000  # ... of about so many, which are looked at

FLAT_SLOPES = (0.5, 0.45)  # steepest log deviation over log frequency of white noise: middle to fine, fine to finest
LEAST_WHITE = 0.6  # grey levels: rounding alone leaves 0.29
LEAST_READ = 0.7  # a white reading below this says nothing about real noise
CORRELATED = 0.45  # power of the chrominances over that of the luminance; 0.7 and more where colours are independent
THIN_LEAST = 5.0  # grey levels of white noise that JPEG has thinned out; a clean wall of bricks at quality 85 reads 4
THIN_LOST = (0.82, 0.996)  # of its finest coefficients that were rounded to 0: with fewer, enough is left to be read as
# it is; with more, the few that are left may be anything's (photographs at ISO 800 to 12800: 0.999 and more)
THIN_SLOPES = (0.7, 0.95)  # of its spectrum before JPEG at most: 0 to 0.3 for noise of 12 on eight pictures, 0.7 to
# 0.9 on grass and gravel, 1.2 to 1.4 for them without noise; the first where it may be a camera's coarse noise
PLAIN_SLOPE = 0.8  # slope as it reads from which on Gaussian noise is coarse: thinned white noise, saved again on
# another grid, has 0.4 to 0.6, a simulated camera's enlarged twice 1.1
TOGETHER = 1.2  # clustering of the coefficients that JPEG left, from which on they are texture's: noise has 1.0 at
# most, that of a simulated camera too, clean pictures of which that much is left 1.4 and more
WEAKEST = 1.1  # deviation of most of the picture (gravel: 1.06) over the reading: then the weakest spots were read
LEVEL_RATIO = (1.5, 1.3)  # variances at bright and dark levels that differ by less are taken as equal: in general
# (white noise in textures: 1.2), and where the calm blocks look like stationary noise
LEVEL_SCATTER = 0.4  # largest median |log| of the bins' variances over the line; textures scatter more
MARGIN = 1.02  # deviations that follow the level are raised by this ...
TAIL_MARGIN = 0.06  # ... and by this for each unit of kurtosis above 3: few photons are not Gaussian (4 to 40 in the
MOST_MARGIN = 1.14  # calm blocks of confocal pictures), and rare high values survive; chosen on 16 micrographs
BIN_TRUST, BIN_EXCESS = 1.3, 1.1  # a bin's variance counts as far as it is within these factors of the line
DARKEST_SHARE = 0.3  # of the variance in the darkest bin, that darker blocks have at least
HIDING = (0.25, 2.5)  # of the picture's contrast: from so much noise on, a coarser scale helps, and a second one: four
# pictures with simulated photons (up to 1.7 dB, at worst -0.2) and twelve micrographs (up to 0.3 dB)
PINBALL = 0.35  # quantile of the line through the bins' variances: texture only adds

GAUSSIAN_TAILS, GAUSSIAN_SPREAD = 3.5, 0.42  # calm blocks of wide-field micrographs: 3.1, 0.30; of grass: 4.7, 0.64
LEVEL_TAILS, LEVEL_SLOPE, LEVEL_SPREAD = 3.35, 1.3, 0.46  # in bins of brightness simulated cameras at ISO 25600 have
# 3.1 to 3.3, 0.9 to 1.1 and 0.32 to 0.45; of forty clean photographs one is within, with noise of 1.6
STEEPEST = 1.0  # slope of the coarser scale from which on it holds texture: where the finest looks Gaussian noise has
# -0.2 to 0.95 there (ninety simulated and resampled pictures; up to 1.1 under texture), a clean picture 1.1 to 3.3
REFERENCE = 5.2 / (4 * BLOCK)  # cycles per pixel: the band of the first coarser scale that is believed
GROWTH = 0.3  # towards coarse scales a camera's noise grows as f^-0.3 at most (measured: 1.2 to 1.5 per octave in
# the raw difference, of which flicker is a part); what grows faster is picture
BELIEVED_FLOOR = (
    0.5  # of its deviation: the floor that gained most (0.3 dB) of 0, 0.3, 0.5 on four wide-field micrographs
)
STEEPEST_GROWTH = 0.6  # the same where the calm blocks look Gaussian: wide-field micrographs have 0.4 to 0.7

CAMERA = 10.0  # a camera's noise at the reference band, as white noise: 5 to 16 in nine of ten at ISO 800 to 12800
CAMERA_PULL = 0.25  # exponent of the reading's ratio to it: better than 1 on four sets of photographs (noise.md)
# What most blocks have at the middle band, over what those of the coarser scale have there: 0.1 to 0.4 in photographs,
# of whose fine noise cameras and JPEG leave a little in few blocks; 0.4 to 0.9 where it was left in all:
KEPT, WEAK_PULL = (0.25, 0.45), 0.75  # there a weak reading is drawn less to what cameras have, ...
EVERYWHERE, LIGHT_TAILS = (0.55, 0.75), 0.6  # ... and there are no tails that ask for more than it reads
# Where in bins of brightness the finest scale has the tails of a Gaussian (2.9 to 3.6 in halved photographs and noisy
# simulated ones, 3.5 to 30 in nearly all clean ones), there is noise, of so much times its finest, at any odds:
PLAIN_TAILS, PLAIN_RATIO = (3.6, 3.3), 1.5
BAND_RATIO = 1.25  # of the noise at the middle band, which that number is of, to that at the reference band ...
STATIONARY_RATIO = 1.1  # ... where that is noise and nothing else: best amplitudes of forty simulated photographs
# Evidence for noise by logistic regression on 50 pairs of noisy and clean photographs (`_evidence` has the features)
# and 18 clean pictures. With each camera left out in turn, 8 of the 50 noisy and 2 of the 50 clean photographs are on
# the wrong side of one half, and with the clean pictures left out 4 of the 18: hence a ramp that begins low.
EVIDENCE = (-1.02, 2.61, 0.99, -1.27, -1.64, -0.82)
GREY_ODDS = 1.5  # grey pictures are seldom a camera's: so much less in the logarithm of the odds
# So much more for each doubling of the ISO number beyond the neutral one, within a range: at ISO 100 texture is far
# more probable than noise, and 800 is where the noise of cameras begins to show in JPEG. Chosen, not measured: no
# pictures with EXIF data were at hand.
ISO_ODDS, ISO_NEUTRAL, ISO_ODDS_RANGE = 0.8, 800.0, (-3.0, 1.5)
LARGEST_ISO = 1e7  # more is none
EVIDENCE_RAMP = (0.1, 0.35)  # probabilities between which noise comes in
LEAST_AMPLITUDE = 1.0  # grey levels; less is not worth a change
MOST_AMPLITUDE = 100.0  # of any coarse noise: simulated cameras at ISO 25600 have 92, a crowded drawing 110 to 140


@dataclass(frozen=True)
class Hints:
    """What the file of a picture says that bears on its noise.

    iso: the camera's ISO number; nonsense is as good as None.
    steps: (64,) the quantiser steps of the luminance of a JPEG, row by row.
    """

    iso: float | None = None
    steps: tuple[int, ...] | None = None

    @property
    def odds(self) -> float:
        """What is added to the logarithm of the odds that a picture is noisy."""
        if self.iso is None or not 0 < self.iso <= LARGEST_ISO:
            return 0.0
        return min(max(ISO_ODDS * math.log2(self.iso / ISO_NEUTRAL), ISO_ODDS_RANGE[0]), ISO_ODDS_RANGE[1])


NO_HINTS = Hints()


@dataclass(frozen=True)
class _Blocks:
    """The blocks of one scale, (N,) of them; powers are in units in which white noise has one power at all scales."""

    powers: Array32  # (N, channels, 64) squared coefficients
    brightness: Array32  # (N,) mean of the luminance, in units
    usable: Flags
    grids: tuple[tuple[int, int], ...]  # rows and columns of blocks in each window

    @classmethod
    def joined(cls, windows: "list[_Blocks]") -> "_Blocks":
        """The blocks of several windows."""
        if len(windows) == 1:
            return windows[0]
        parts = zip(*(_parts(blocks) for blocks in windows), strict=True)
        powers, brightness, usable = (np.concatenate(part) for part in parts)
        return cls(powers, brightness, usable, tuple(grid for blocks in windows for grid in blocks.grids))


def _parts(blocks: _Blocks) -> tuple[Array32, Array32, Flags]:
    return blocks.powers, blocks.brightness, blocks.usable


@dataclass(frozen=True)
class Reading:
    """What the calm blocks of one scale say, as powers of white noise."""

    spectrum: Array  # (channels, 64) means
    robust: Array  # (channels, 64) by medians: what most blocks have
    centres: Array  # (bins,) brightness
    energies: Array  # (bins,) of the luminance, relative, at radius 3 and above
    finest: Array  # (bins,) power of the luminance at radius 7 and above
    finest_median: Array  # (bins,) the same in the median block
    darkest: float  # brightness of a block, clipped ones included
    contrast: float  # deviation of the brightness of all blocks
    spread: float  # deviation of the logarithm of the blocks' energies: 0.2 to 0.3 for stationary noise
    spread_in_bins: float  # the same in most bins of brightness, whatever the others hold
    tails: float  # kurtosis of the coefficients: 3 for a Gaussian
    tails_in_bins: float  # the same in most bins of brightness: noise that follows the level is Gaussian there

    def level(self, low: float, high: float, *, robust: bool = False, channel: int = 0) -> float:
        """Deviation of a channel, the luminance if no other is named, between two radii."""
        powers = self.robust[channel] if robust else self.spectrum[channel]
        return math.sqrt(float(powers[(low <= RADIUS) & (high >= RADIUS)].mean()))

    def slope(self, *, robust: bool = False) -> float:
        """Of the logarithm of the luminance's deviation from the middle to the fine frequencies, downwards."""
        least = 1 / 12 if robust else 0.0  # rounding
        fine, middle = (
            math.hypot(self.level(*radii, robust=robust), math.sqrt(least)) for radii in ((5, 8.5), (2.5, 4.5))
        )
        return math.log(middle / fine) / math.log(6.6 / 3.5)


def estimate_model(
    sample: Pixels, depth: Depth | None = None, *, kind: str = "auto", hints: Hints = NO_HINTS, threads: int = 1
) -> tuple[NoiseModel, tuple[str, ...]]:
    """The noise of a picture from a sample of it, (H, W) or (H, W, 3), in units of the depth; and what to say of it.

    kind: auto, or white or poisson where it is known to be such. hints: they count where the pixels leave a doubt.
    Pictures without a scale (floats, signed and 32-bit numbers) have none that a camera's noise could be told on:
    there only what looks like stationary noise is read, and white noise otherwise.
    """
    own = _with_scale_if_used(depth or Depth.of(sample.dtype), sample)
    looks: list[Callable[[], Any]] = [
        lambda: read_scales(sample, own) if kind != "white" else [],
        lambda: estimate_channels(sample, own),
        lambda: _coded(sample, own, hints) if kind == "auto" else None,
    ]
    readings, estimates, coded = in_order(lambda look: look(), looks, threads)
    sigmas = [estimate.sigma / own.unit for estimate in estimates]
    white = WhiteNoise(tuple(sigmas if sample.ndim == 2 else in_working_basis(sigmas)))
    model: NoiseModel = white
    if kind == "auto" and readings:
        model = _coloured(readings, _grey_level(sample, own), own, estimates, white, coded, hints.odds)
    elif kind == "poisson" and readings:
        model = _following_level(readings[0], len(estimates)) or white
    return model, joint_warnings(estimates, *(() if model is white else ("size", "saturation")))


def _coloured(
    readings: list[Reading],
    grey: float,
    own: Depth,
    estimates: list[NoiseEstimate],
    white: WhiteNoise,
    coded: CodedReading | None,
    odds: float,
) -> NoiseModel:
    """The model where the noise is not white, or JPEG has thinned it out; else the white one.

    grey: a grey level. odds: what the file adds to those of noise.
    """
    count = len(estimates)
    odds -= GREY_ODDS if count == 1 else 0.0
    probability = _evidence(readings[0], readings[1], odds) if own.scaled and len(readings) > 1 else 0.0
    plain = _looks_gaussian(readings[0])
    coarse = plain and readings[0].slope() > PLAIN_SLOPE
    steepest = THIN_SLOPES[probability < EVIDENCE_RAMP[0]]
    if coded is not None and not coarse and (before_jpeg := _before_jpeg(coded, count, steepest)):
        return WhiteNoise((before_jpeg,) * len(white.sigmas))
    agrees = all(e.lower <= LOWER_RATIO * e.fine and e.sigma >= LEAST_READ * grey * own.unit for e in estimates)
    if agrees and count == 3:
        white = _with_correlated_colours(white, readings[0])
    if agrees or _looks_white(readings[0], grey):
        return _following_level(readings[0], count) or _not_of_the_weakest(white, readings[0])
    if len(readings) < 2:
        return white
    if own.scaled and readings[1].level(4, 6.5) > MOST_AMPLITUDE:
        return white
    if plain or _gaussian_in_bins(readings[0]):
        if readings[1].slope() < STEEPEST:
            return _believed(readings)
        if (finest := readings[0].level(7, 9.9)) > LEAST_AMPLITUDE * grey:  # texture hides the rest
            return _following_level(readings[0], count) or WhiteNoise((finest,) * count)
    camera = _camera_noise(readings, count, probability) if own.scaled else None
    return camera or white


def _grey_level(sample: Pixels, depth: Depth) -> float:
    """One of 255 grey levels, in units: for numbers without a scale, of the span of their values."""
    return 1.0 if depth.scaled else _span(sample) / WHITE / depth.unit


def _with_scale_if_used(depth: Depth, sample: Pixels) -> Depth:
    """The depth, without a scale where the picture uses a small part of it, as counts of photons in 16 bits do.

    What would be a grey level of 255 there may be a fifth of the picture.
    """
    unused = depth.scaled and sample.dtype != np.uint8 and _span(sample) <= USED_SHARE * WHITE * depth.unit
    return replace(depth, scaled=False) if unused else depth


def _span(sample: NDArray[Any]) -> float:
    """From the smallest value to the largest, but for a few defect pixels."""
    thinning = max(1, math.isqrt(sample.size // SPAN_PIXELS))
    low, high = np.quantile(sample[::thinning, ::thinning], (DEFECTS, 1 - DEFECTS))
    return float(high - low)


def _coded(sample: Pixels, depth: Depth, hints: Hints) -> CodedReading | None:
    """What JPEG has left in some windows of a picture of 8 bit, if it was one."""
    if sample.dtype != np.uint8 or not depth.scaled:
        return None
    windows = list(_windows(sample))
    return read_coded(windows[:: math.ceil(len(windows) / CODED_WINDOWS)], hints.steps)


# Blocks of three scales


def read_scales(sample: Pixels, depth: Depth) -> list[Reading]:
    """What the calm blocks say on each scale, finest first; as far as there are enough of them."""
    scales: list[list[_Blocks]] = []
    for window in _windows(sample):
        for scale, blocks in enumerate(_window_blocks(window, depth)):
            if scale == len(scales):
                scales.append([])
            scales[scale].append(blocks)
    readings = []
    for windows, bins in zip(scales, BINS, strict=False):
        blocks = _Blocks.joined(windows)
        if np.count_nonzero(blocks.usable) < FEWEST_BLOCKS:
            break
        readings.append(_read(blocks, bins))
    return readings


def _windows(sample: Pixels) -> Iterator[Pixels]:
    """The sample, or where it is large, evenly spread windows of it."""
    height, width = sample.shape[:2]
    if height * width <= MOST_PIXELS:
        yield sample
        return
    tall, wide = min(WINDOW, height), min(WINDOW, width)
    count = max(1, MOST_PIXELS // (tall * wide))
    down = max(1, min(round(math.sqrt(count * height / width)), count))
    across = max(1, count // down)
    for top in np.linspace(0, height - tall, down).astype(int) // BLOCK * BLOCK:  # the grid of a JPEG is that of all
        for left in np.linspace(0, width - wide, across).astype(int) // BLOCK * BLOCK:
            yield sample[top : top + tall, left : left + wide]


def _window_blocks(window: Pixels, depth: Depth) -> Iterator[_Blocks]:
    """The blocks of one window on each scale that is large enough."""
    channels = range(1 if window.ndim == 2 else 3)
    planes = [Plane.whole(working_channel(window, c, depth).astype(np.float32)) for c in channels]
    clipped = Plane.whole(_clipped(window, depth))
    for scale in range(SCALES):
        if min(planes[0].shape) < (BLOCK if scale == 0 else LEAST_SIDE):
            return
        yield _blocks_of([plane.values for plane in planes], clipped.values, scale)
        planes, clipped = [halved(plane) for plane in planes], halved(clipped)


def _clipped(window: Pixels, depth: Depth) -> Array32:
    """1 where a pixel is at a limit of the range in any colour."""
    limits = depth.stored_range
    if limits is None:
        return np.zeros(window.shape[:2], np.float32)
    flags = (window == limits[0]) | (window == limits[1])
    return np.asarray(flags if window.ndim == 2 else flags.any(axis=2), dtype=np.float32)


def _blocks_of(planes: list[Array32], clipped: Array32, scale: int) -> _Blocks:
    """All blocks of planes of one scale."""
    transform = dct_matrix(BLOCK).T.astype(np.float32)
    cut = [sliding_window_view(plane, (BLOCK, BLOCK))[::STEP, ::STEP] for plane in planes]
    grid = cut[0].shape[:2]
    coefficients = [part.reshape(-1, BLOCK**2) @ transform for part in cut]
    powers = np.empty((len(coefficients[0]), len(planes), BLOCK**2), np.float32)
    for channel, part in enumerate(coefficients):
        np.multiply(part, part, out=powers[:, channel])
    powers /= np.float32(NOISE_GAIN ** (2 * scale))
    share = _means_of_blocks(clipped).ravel()
    flat = powers[:, 0, 1:].sum(axis=1) < 1e-11 * np.maximum(powers[:, 0, 0], 1e-30)
    brightness = np.asarray(coefficients[0][:, 0] / BLOCK, dtype=np.float32)
    return _Blocks(powers, brightness, (share < CLIPPED_SHARE) & ~flat, ((grid[0], grid[1]),))


def _means_of_blocks(plane: Array32) -> Array32:
    """The mean of every block, from those of the squares that blocks share."""
    height, width = (length // STEP * STEP for length in plane.shape)
    squares = plane[:height, :width].reshape(height // STEP, STEP, width // STEP, STEP).mean(axis=(1, 3))
    return np.asarray(sliding_window_view(squares, (BLOCK // STEP,) * 2).mean(axis=(2, 3)))


def _read(blocks: _Blocks, bins: int) -> Reading:
    """Spectrum and level function of the calm blocks, alternating with the choice of the blocks."""
    edges = np.quantile(blocks.brightness[blocks.usable], np.linspace(0, 1, bins + 1)[1:-1])
    bin_of = np.searchsorted(edges, blocks.brightness)
    some = np.flatnonzero(blocks.usable)[:: math.ceil(np.count_nonzero(blocks.usable) / STARTED_FROM)]
    start = np.quantile(blocks.powers[some], QUANTILE, axis=0) / CHI_QUANTILE
    least = 1e-6 * float(start[:, 1:].max()) + 1e-30
    spectrum, factors = np.maximum(start, least), np.ones(bins)
    for _ in range(ROUNDS):
        weights = np.divide(1 / spectrum[:, 1:].size, spectrum, out=np.zeros_like(spectrum), where=RADIUS > 0)
        energies = blocks.powers.reshape(len(bin_of), -1) @ weights.astype(np.float32).ravel() / factors[bin_of]
        calm = _calm(blocks, energies, bin_of, bins)
        own = bin_of[calm]
        powers = blocks.powers[calm] / factors[own][:, None, None]
        spectrum = np.maximum(np.minimum(powers, WINSOR * spectrum).mean(axis=0), least)
        coarse = RADIUS >= 3
        energy = (blocks.powers[calm][:, 0, coarse] / spectrum[0, coarse]).mean(axis=1)
        factors = _level_energies(energy, own, bins)
    finest = blocks.powers[calm][:, 0, RADIUS >= 7].mean(axis=1)
    middle = powers[:, 0, (RADIUS >= 3) & (RADIUS <= 6)]
    logs = np.log(np.maximum(energies[calm], 1e-6))
    return Reading(
        spectrum=spectrum,
        robust=np.median(powers, axis=0) / CHI_MEDIAN,
        centres=np.array([blocks.brightness[blocks.usable & (bin_of == k)].mean() for k in np.unique(own)]),
        energies=factors[np.unique(own)],
        finest=np.array([finest[own == k].mean() for k in np.unique(own)]),
        finest_median=np.array([np.median(finest[own == k]) for k in np.unique(own)]),
        darkest=float(blocks.brightness.min()),
        contrast=float(blocks.brightness[blocks.usable].std()),
        spread=float(np.std(logs)),
        spread_in_bins=float(np.median([np.std(logs[own == k]) for k in np.unique(own)])),
        tails=float(np.median(_kurtosis(middle, least))),
        tails_in_bins=float(np.median([_kurtosis(middle[own == k], least) for k in np.unique(own)])),
    )


def _kurtosis(powers: NDArray[np.floating[Any]], least: float) -> Array:
    """Of every frequency, given squared coefficients (N, m) that are no less than a power."""
    return np.asarray((powers**2).mean(axis=0) / np.maximum(powers.mean(axis=0) ** 2, least**2))


def _calm(blocks: _Blocks, energies: Array, bin_of: NDArray[np.intp], bins: int) -> Flags:
    """In each bin of brightness the blocks whose worst neighbour is the least."""
    known = np.where(blocks.usable, energies, np.inf)
    worst, start = np.empty(len(known)), 0
    for rows, columns in blocks.grids:
        part = slice(start, start + rows * columns)
        around = largest_around(known[part].reshape(rows, columns), NEIGHBOURS)
        worst[part] = np.minimum(around.ravel(), 1e30)
        start = part.stop
    chosen = np.zeros(len(known), bool)
    for number in range(bins):
        members = np.flatnonzero(blocks.usable & (bin_of == number))
        if len(members):
            chosen[members[worst[members] <= np.quantile(worst[members], CALM_SHARE)]] = True
    return chosen


def _level_energies(energy: Array, own: NDArray[np.intp], bins: int) -> Array:
    """Median energy of the calm blocks of each bin, held where texture raises it, with a mean of 1 over the blocks."""
    medians = np.ones(bins)
    for number in np.unique(own):
        medians[number] = max(float(np.median(energy[own == number])), 1e-6)
    calmest = np.sort(medians)[: max(1, bins // 3)].mean()
    held = np.minimum(medians, STEEPEST_LEVEL * calmest)
    return np.asarray(held / held[own].mean())


# White, or following the level


def _looks_white(finest: Reading, grey: float) -> bool:
    """Whether the spectrum is flat and more than rounding."""
    steep = math.log(finest.level(4, 5.5) / finest.level(7, 9.9)) / math.log(8 / 4.8)
    return finest.slope() < FLAT_SLOPES[0] and steep < FLAT_SLOPES[1] and finest.level(7, 9.9) > LEAST_WHITE * grey


def _before_jpeg(coded: CodedReading, channels: int, steepest: float) -> float:
    """The deviation of white noise of which JPEG has taken most of the fine frequencies; 0 where it is none, or weak.

    Its spectrum before was flat, and what is left of it stands in any block. JPEG leaves the noise of its luminance,
    which is the same in red, green and blue: sqrt(3) times that in the working luminance.
    """
    sigma = math.sqrt(channels) * coded.deviation(7, 9.9)
    enough = THIN_LOST[0] <= coded.lost(7, 9.9) <= THIN_LOST[1]
    if not (sigma > THIN_LEAST and enough and coded.clustering < TOGETHER):
        return 0.0
    slope = math.log(coded.deviation(2.5, 4.5) / coded.deviation(6.5, 8)) / math.log(7.25 / 3.5)
    return sigma if slope < steepest else 0.0


def _with_correlated_colours(white: WhiteNoise, finest: Reading) -> WhiteNoise:
    """White noise where red, green and blue share it, as after JPEG with halved chrominances.

    The highest frequencies, where it was read, then hold it in the luminance: the sum over the three channels stays.
    The chrominances are taken to have as much: they have it at low frequencies, and little else is at high ones.
    """
    powers = finest.spectrum[:, RADIUS >= 7].mean(axis=1)
    shares = powers / powers[0]
    if shares[1:].mean() > CORRELATED:
        return white
    return WhiteNoise((math.hypot(*white.sigmas) / math.sqrt(float(shares.sum())),) * 3)


def _not_of_the_weakest(white: WhiteNoise, finest: Reading) -> WhiteNoise:
    """White noise, as most of the picture has it, where that looks stationary and the weakest spots were read."""
    typical = math.sqrt(float(np.median(finest.finest)))
    if not _looks_gaussian(finest) or typical < WEAKEST * white.sigmas[0]:
        return white
    return WhiteNoise(tuple(typical / white.sigmas[0] * sigma for sigma in white.sigmas))


def _following_level(reading: Reading, channels: int) -> SpectralNoise | None:
    """Noise with a flat spectrum and the variance a x + b, where the bins of brightness speak for it."""
    x, variances = reading.centres, np.maximum(reading.finest, 1e-12)
    if len(x) < 4 or x[-1] - x[0] < 1e-6:
        return None
    a, b = _pinball_line(x, variances)
    line = np.maximum(a * x + b, 0.25 * variances.min())
    ratio = min(float(line.max() / line.min()), _line_ratio(x, reading.finest_median))  # texture raises means more
    scatter = float(np.median(np.abs(np.log(variances / line))))
    if ratio < LEVEL_RATIO[_looks_gaussian(reading)] or scatter > LEVEL_SCATTER:
        return None
    held = np.clip(variances, line / BIN_TRUST, line * BIN_EXCESS)
    ends = x[-1] + (x[-1] - x[0]) * np.array([1.0, 4.0, 16.0])  # bright spots are rare: no bin of their own
    beyond = np.maximum(a * ends + b, line[-1])
    darkest = min(reading.darkest, float(x[0]) - 1e-3 * float(x[-1] - x[0]))  # clipped blocks, which have no bin
    dark = max(a * darkest + b, DARKEST_SHARE * float(held[0]))
    sigma = math.sqrt(float(line.mean()))
    margin = min(MARGIN + TAIL_MARGIN * max(reading.tails - 3.0, 0.0), MOST_MARGIN)
    factors = margin * np.sqrt(np.concatenate(([dark], held, beyond))) / sigma
    knots = tuple(map(float, np.concatenate(([darkest], x, ends)))), tuple(map(float, factors))
    halvings = sum(sigma > share * reading.contrast for share in HIDING)
    return SpectralNoise((SpectralChannel((0.5,), (sigma,), 0.0, *knots, halvings),) * channels)


def _line_ratio(x: Array, variances: Array) -> float:
    """The largest over the least value of the line through variances."""
    held = np.maximum(variances, 1e-12)
    a, b = _pinball_line(x, held)
    line = np.maximum(a * x + b, 0.25 * held.min())
    return float(line.max() / line.min())


def _pinball_line(x: Array, y: Array) -> tuple[float, float]:
    """The line a x + b, a >= 0, with the least pinball loss relative to y: it passes through two of the points."""
    best = (math.inf, 0.0, float(y.mean()))
    for i, j in combinations(range(len(x)), 2):
        if x[i] == x[j]:
            continue
        a = float((y[j] - y[i]) / (x[j] - x[i]))
        b = float(y[i] - a * x[i])
        miss = (y - (a * x + b)) / y
        loss = float(np.where(miss > 0, PINBALL * miss, (PINBALL - 1) * miss).sum())
        if a >= 0:
            best = min(best, (loss, a, b))
    return best[1], best[2]


# Coloured


def _looks_gaussian(finest: Reading) -> bool:
    """Whether the calm blocks are those of stationary Gaussian noise."""
    return finest.tails < GAUSSIAN_TAILS and finest.spread < GAUSSIAN_SPREAD


def _gaussian_in_bins(finest: Reading) -> bool:
    """Whether they are those of coarse Gaussian noise that follows the level steeply."""
    plain = finest.tails_in_bins < LEVEL_TAILS and finest.slope() < LEVEL_SLOPE
    return plain and finest.spread_in_bins < LEVEL_SPREAD


def _believed(readings: list[Reading]) -> SpectralNoise:
    """The spectra as they were read down to the reference band, and no steeper than noise can be below it.

    The chrominances are taken to have no less than the luminance: colour detail is rare.
    """
    fine, coarse = readings[:2]
    levels, factors = tuple(map(float, fine.centres)), tuple(map(float, np.sqrt(fine.energies)))
    growth = min(max(coarse.slope(), GROWTH), STEEPEST_GROWTH)
    spectra = [dict(_believed_spectrum(fine, coarse, growth, channel)) for channel in range(len(fine.spectrum))]
    luminance = spectra[0]
    floor = BELIEVED_FLOOR * SpectralChannel(tuple(luminance), tuple(luminance.values())).deviation()
    deviations = [tuple(max(own[f], luminance[f]) for f in luminance) for own in spectra]
    return SpectralNoise(tuple(SpectralChannel(tuple(luminance), d, floor, levels, factors) for d in deviations))


def _believed_spectrum(fine: Reading, coarse: Reading, growth: float, channel: int) -> Iterator[tuple[float, float]]:
    """Knots of the spectrum of one channel: rising frequencies, and the deviations there."""
    yield from _grown(REFERENCE, max(coarse.level(4, 6.5, channel=channel), 1e-9), growth)
    yield 6.0 / 2 / BLOCK / 2, max(coarse.level(5.25, 6.75, channel=channel), 1e-9)
    for r in (4.0, 5.0, 6.0, 7.0, 8.0):
        yield r / 2 / BLOCK, max(fine.level(r - 0.75, r + 0.75, channel=channel), 1e-9)


def _grown(frequency: float, deviation: float, growth: float = GROWTH) -> list[tuple[float, float]]:
    """Knots of noise that has a deviation at a frequency and grows below it."""
    return [(frequency / 2**k, deviation * 2 ** (growth * k)) for k in (4, 3, 2, 1, 0)]


def _camera_noise(readings: list[Reading], channels: int, probability: float) -> SpectralNoise | None:
    """The noise of a camera's JPEG, as far as it is probable, stationary or plain; None where it is nothing of that.

    Its floor is as high as its amplitude: the tails of what JPEG left of the fine noise reach that far.
    """
    amplitude = _camera_amplitude(readings[0], readings[1], probability)
    if amplitude < LEAST_AMPLITUDE:
        return None
    frequencies, deviations = zip(*_grown(REFERENCE, amplitude), strict=True)
    return SpectralNoise((SpectralChannel(frequencies, deviations, amplitude),) * channels)


def _camera_amplitude(fine: Reading, coarse: Reading, probability: float) -> float:
    """Of a camera's noise at the reference band, as it is best removed."""
    stationary = _stationary(coarse)
    share = max(_ramp(probability, *EVIDENCE_RAMP), stationary)
    between = ((BAND_RATIO, STATIONARY_RATIO), (CAMERA_PULL, 1.0))  # drawn to what cameras have; as it reads
    ratio, exponent = (float(np.interp(stationary, (0.0, 1.0), ends)) for ends in between)
    strength = max(coarse.level(4, 6.5, robust=True), 1e-3)
    read = ratio * strength / CAMERA
    drawn = CAMERA * math.pow(read, exponent)
    finest = fine.level(7, 9.9)
    plain = _ramp(fine.tails_in_bins, *PLAIN_TAILS)
    amplitude = max(share * drawn, plain * min(drawn, PLAIN_RATIO * finest))
    everywhere = fine.level(2.5, 4.5, robust=True) / strength
    if read < 1:
        less = (WEAK_PULL - CAMERA_PULL) * _ramp(everywhere, *KEPT) * (1 - stationary)
        amplitude = min(amplitude, CAMERA * math.pow(read, exponent + less))
    return amplitude * (1 - (1 - LIGHT_TAILS) * _ramp(everywhere, *EVERYWHERE) * (1 - stationary))


def _stationary(coarse: Reading) -> float:
    """Evidence that the coarser scale shows noise and nothing else, 0 to 1: then it is as strong as it reads.

    Its calm blocks have the tails of a Gaussian and a flat spectrum. Clean pictures that look so read 3 at most.
    """
    strength = coarse.level(4, 6.5, robust=True)
    return _ramp(coarse.tails, 3.7, 3.3) * _ramp(coarse.slope(), STEEPEST, 0.7) * _ramp(strength, 3.0, 6.0)


def _ramp(value: float, nothing: float, all_of_it: float) -> float:
    """0 at `nothing` and before, 1 at `all_of_it` and beyond, a line between."""
    return min(max((value - nothing) / (all_of_it - nothing), 0.0), 1.0)


def _evidence(fine: Reading, coarse: Reading, more: float) -> float:
    """Probability that a picture with these readings of the two finest scales is noisy.

    Noise is cut off steeply at the finest scale and flat below, textures and blurred pictures have one slope
    everywhere: the difference of the slopes, by means and by medians. The robust amplitude is near that of cameras.
    Noise is everywhere in the calm blocks, so that its tails are light. more: the odds of what else is known.
    """
    amplitude = math.log(max(coarse.level(4, 6.5, robust=True), 0.3) / 8)
    curved = min(max(fine.slope() - coarse.slope(), -1.0), 1.5)
    curved_robust = min(max(fine.slope(robust=True) - coarse.slope(robust=True), -1.0), 1.5)
    features = (1.0, curved, curved_robust, amplitude, amplitude**2, math.log(max(coarse.tails, 1.0) / 5))
    odds = sum(w * f for w, f in zip(EVIDENCE, features, strict=True))
    return 1 / (1 + math.exp(-odds - more))
