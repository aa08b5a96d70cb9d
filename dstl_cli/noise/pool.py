"""One noise model out of several: what pictures of one camera and setting have in common.

Medians in the logarithm, over a common grid of frequencies and of levels: one picture that was misread hardly moves
them. A level counts as known to a model within the levels that it was read at; one without levels knows them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dstl_cli.base.arrays import Array
from dstl_cli.base.checks import require
from dstl_cli.noise.model import NoiseModel, SpectralChannel, SpectralNoise, WhiteNoise

MOST_KNOTS = 48  # of a pooled spectrum or level function
LEAST_SHARE = 1e-3  # of the strongest channel, that a channel without noise has beside coloured ones
NEAR = 0.5  # deviations of the noise: levels that are no farther apart count as one ...
NEAR_SHARE = 0.02  # ... and so do those within this share of the span of all levels
FARTHEST = 1.5  # times more or less noise than the pool: within it a picture always counts
OUTLYING = 3.0  # robust deviations from the pool beyond which it is left out
EVEN = 1.001  # strongest over weakest frequency of what is white
EVEN_LEVELS = 1.15  # strongest over weakest level of what is the same everywhere
MAD = 1.4826  # deviation of Gaussian numbers over the median of their distances from the middle
AGREEMENT = ((0.1, "agree well"), (0.3, "agree roughly"))  # up to these spreads
DISAGREE = "disagree"  # beyond them


@dataclass(frozen=True)
class PooledNoise:
    """A model of what several have in common, and how far each of them is from it.

    ratios: how many times the pooled noise each has in the luminance, at the levels that it shares with others; None
    where it shares none. left_out: which of them have no part in the model.
    """

    model: NoiseModel
    ratios: tuple[float | None, ...]
    left_out: frozenset[int] = frozenset()

    @property
    def spread(self) -> float | None:
        """Robust deviation of the amplitude between the models in the pool, relative: 0.1 is 10 %."""
        kept = [ratio for index, ratio in enumerate(self.ratios) if ratio is not None and index not in self.left_out]
        return float(np.expm1(_robust_deviation(np.log(kept)))) if len(kept) > 1 else None

    @property
    def agreement(self) -> str:
        """The same in words."""
        if self.spread is None:
            return "cannot be compared"
        return next((words for most, words in AGREEMENT if self.spread <= most), DISAGREE)

    def describe(self) -> str:
        """How far they agree, in half a sentence; nothing where there is one."""
        if len(self.ratios) == 1:
            return ""
        if self.spread is None:
            return "each at a brightness of its own"
        others = f" but for {len(self.left_out)}" if self.left_out else ""
        return f"which {self.agreement} (spread {100 * self.spread:.2g} %){others}"

    @property
    def far(self) -> dict[int, float]:
        """The models that are far from the pool, left out or not, with their ratios."""
        return {index: r for index, r in enumerate(self.ratios) if r is not None and not 1 / FARTHEST < r < FARTHEST}


def pooled(models: Sequence[NoiseModel]) -> PooledNoise:
    """What models of as many channels have in common; those far from most others are left out."""
    require(bool(models), "models must be one at least.")
    require(len({len(model.sigmas) for model in models}) == 1, "models must have as many channels.")
    ratios = _ratios(models)
    known = {index: float(np.log(ratio)) for index, ratio in enumerate(ratios) if ratio is not None}
    limit = max(np.log(FARTHEST), OUTLYING * _robust_deviation(np.array([*known.values()])))
    left_out = frozenset(index for index, distance in known.items() if abs(distance) > limit)
    if left_out:
        ratios = _ratios(models, without=left_out)
    return PooledNoise(_middle([m for i, m in enumerate(models) if i not in left_out]), tuple(ratios), left_out)


def pooled_flat_fields(models: Sequence[NoiseModel]) -> PooledNoise:
    """The same of flat fields, each of which knows one level: together they make the level function of the luminance.

    That serves all channels, whose floors are the luminance's; there is none where the noise hardly differs.
    """
    pool = pooled(models)
    if not isinstance(pool.model, SpectralNoise):
        return pool
    luminance = pool.model.channels[0]
    levels, factors = luminance.levels, luminance.factors
    if not factors or max(factors) < EVEN_LEVELS * min(factors):
        levels, factors = (), ()
    even = tuple(replace(channel, levels=levels, factors=factors) for channel in pool.model.channels)
    return replace(pool, model=SpectralNoise(even))


def _robust_deviation(distances: Array) -> float:
    """Deviation of most of the distances from 0."""
    return MAD * float(np.median(np.abs(distances))) if len(distances) else 0.0


def _middle(models: Sequence[NoiseModel]) -> NoiseModel:
    """The median model."""
    if all(model == models[0] for model in models):
        return models[0]
    white = [model for model in models if isinstance(model, WhiteNoise)]
    if len(white) == len(models):
        return WhiteNoise(tuple(_log_median(np.array([m.sigmas for m in white]))))
    indices = range(len(models[0].sigmas))
    channels = [_middle_channel([_spectral(model, index) for model in models]) for index in indices]
    even = all(max(c.deviations_at) < EVEN * min(c.deviations_at) and not c.levels for c in channels)
    return WhiteNoise(tuple(c.deviation() for c in channels)) if even else SpectralNoise(tuple(channels))


def _log_median(values: Array) -> Array:
    """Medians over the first axis, in the logarithm; 0 where half of the values are 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.median(np.log(values), axis=0)))


def _spectral(model: NoiseModel, index: int) -> SpectralChannel:
    """A channel of a model as a spectrum: flat for white noise."""
    channel = model.channel(index)
    if isinstance(channel, SpectralChannel):
        return channel
    return SpectralChannel((0.5,), (max(channel.deviation(), LEAST_SHARE * max(model.sigmas), 1e-300),))


def _middle_channel(channels: Sequence[SpectralChannel]) -> SpectralChannel:
    """The median of spectra relative to their deviations, of these, and of the deviations over the level."""
    amplitudes = _amplitudes(channels)
    own = [channel.frequencies for channel in channels if len(channel.frequencies) > 1]
    frequencies = _grid(own or [channels[0].frequencies])
    shapes = [_on_grid(c, frequencies) / amplitude for c, amplitude in zip(channels, amplitudes, strict=True)]
    floor = float(np.median([c.floor / amplitude for c, amplitude in zip(channels, amplitudes, strict=True)]))
    shape = SpectralChannel(tuple(map(float, frequencies)), tuple(map(float, _log_median(np.array(shapes)))), floor)
    amplitude = float(_log_median(amplitudes))
    halvings = int(np.median([channel.halvings for channel in channels]))
    middle = replace(shape.scaled(amplitude / float(_amplitudes([shape])[0])), halvings=halvings)
    if 2 * sum(bool(channel.levels) for channel in channels) < len(channels):  # most are the same at all levels
        return middle
    levels = _grid([channel.levels for channel in channels])
    factors = _level_deviations(channels, amplitudes, levels) / amplitude
    return replace(middle, levels=tuple(map(float, levels)), factors=tuple(map(float, factors)))


def _amplitudes(channels: Sequence[SpectralChannel]) -> Array:
    """The deviation of each spectrum without its floor, which is no noise but caution."""
    return np.array([replace(channel, floor=0.0).deviation() for channel in channels])


def _grid(knots: Sequence[tuple[float, ...]]) -> Array:
    """The knots of all, each once; where they are many, some of them as they are spread."""
    every = np.unique(np.concatenate([np.zeros(0), *knots]))
    if len(every) <= MOST_KNOTS:
        return every
    return np.unique(np.quantile(every, np.linspace(0, 1, MOST_KNOTS), method="nearest"))


def _on_grid(channel: SpectralChannel, frequencies: Array) -> Array:
    """A spectrum at frequencies, without its floor."""
    known = np.interp(np.log(frequencies), np.log(channel.frequencies), np.log(channel.deviations_at))
    return np.asarray(np.exp(known))


def _level_deviations(channels: Sequence[SpectralChannel], amplitudes: Array, levels: Array) -> Array:
    """The median deviation of a pixel at each level, of the channels that know it."""
    table = _level_table(channels, amplitudes, levels)
    return np.array([float(_log_median(row[np.isfinite(row)])) for row in table.T])


def _level_table(channels: Sequence[SpectralChannel], amplitudes: Array, levels: Array) -> Array:
    """The deviation of a pixel, (channels, levels); NaN where a channel does not know a level."""
    near = max(NEAR * float(np.median(amplitudes)), NEAR_SHARE * float(levels[-1] - levels[0]))
    table = np.full((len(channels), len(levels)), np.nan)
    for row, channel, amplitude in zip(table, channels, amplitudes, strict=True):
        low, high = (channel.levels[0], channel.levels[-1]) if channel.levels else (-np.inf, np.inf)
        known = (levels >= low - near) & (levels <= high + near)
        factors = np.interp(levels, channel.levels, channel.factors) if channel.levels else np.ones(len(levels))
        row[known] = amplitude * factors[known]
    return table


def _ratios(models: Sequence[NoiseModel], without: frozenset[int] = frozenset()) -> list[float | None]:
    """How many times the median deviation each model has in the luminance, where another one knows the level too."""
    channels = [_spectral(model, 0) for model in models]
    amplitudes = _amplitudes(channels)
    levels = _grid([channel.levels for channel in channels])
    table = _level_table(channels, amplitudes, levels if len(levels) else np.zeros(1))
    counted = np.array([index not in without for index in range(len(models))])
    voters = np.isfinite(table) & counted[:, None]
    columns = [column[own] for column, own in zip(table.T, voters.T, strict=True)]
    middles = np.array([_log_median(column) if len(column) else np.nan for column in columns])
    ratios: list[float | None] = []
    for row, own in zip(table, voters, strict=True):
        shared = np.isfinite(row) & (voters.sum(axis=0) > own)
        ratios.append(float(_log_median(row[shared] / middles[shared])) if shared.any() else None)
    return ratios
