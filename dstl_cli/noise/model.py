"""What is known of the noise of a picture. Everything below asks it: the deviation of a coefficient, of a pixel.

A model has a channel of its own for each working channel. White Gaussian noise is the simplest kind. To add one: a
frozen dataclass with what `NoiseModel` asks for, and an entry in `NOISE_KINDS`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array
from dstl_cli.base.checks import check_sigma, require
from dstl_cli.base.names import display_number
from dstl_cli.base.registry import Registry
from dstl_cli.pixels.scales import HALF_BAND, NOISE_GAIN

SCALE_SIGMA = 30.0  # a scale with more white noise than this gets a coarser one below it


class ChannelNoise(Protocol):
    """The noise of one working channel; scale: how often the picture was halved."""

    @property
    def coarser_scales(self) -> int:
        """How often the picture is halved to reach all frequencies where noise stands out, whatever its strength."""

    def deviation(self, scale: int = 0) -> float:
        """Of a pixel, at a level where it is neither strong nor weak."""

    def deviations(self, rows: Array, scale: int = 0) -> Array:
        """Of the coefficients that these rows (m, n) take from a patch: the roots of diag(F C F'), (m,)."""

    def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32] | None:
        """By what the deviations are larger at these levels (N,) of the luminance; None: nowhere."""

    def stabilised(self, levels: NDArray[Any]) -> NDArray[Any]:
        """Levels of the luminance bent so that the noise is the same at all of them: the integral of 1 / factor."""

    @property
    def coarse_excess(self) -> float:
        """Share of the noise's power beyond the reach of a patch that is more than white noise has there, 0 to 1."""

    def scaled(self, strength: float) -> "ChannelNoise":
        """The same noise, so many times as strong."""

    def counted_from(self, level: float) -> "ChannelNoise":
        """The same noise where levels are counted from this one."""

    def halved(self) -> "ChannelNoise":
        """That of the picture of half the size."""


@runtime_checkable
class NoiseModel(Protocol):
    """The noise of a picture."""

    @property
    def kind(self) -> str:
        """Its name in `NOISE_KINDS`."""

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The deviation of a pixel in each working channel."""

    def channel(self, index: int) -> ChannelNoise:
        """The noise of a working channel."""

    def for_channels(self, count: int) -> "NoiseModel":
        """The model for so many channels, of one that has as many, or one for all."""

    def in_units(self, unit: float) -> "NoiseModel":
        """The same noise where levels and deviations are counted in so many of the present units."""

    def scaled(self, strength: float, chroma: float = 1.0) -> "NoiseModel":
        """The same noise, so many times as strong, the chrominances `chroma` times more."""

    def halved(self) -> "NoiseModel":
        """That of the picture of half the size."""

    def describe(self) -> str:
        """One line for a person."""

    def to_json(self) -> dict[str, Any]:
        """All of it, for `model_from_json`."""


@dataclass(frozen=True)
class WhiteChannel:
    """Independent Gaussian noise of one deviation."""

    sigma: float

    @property
    def coarser_scales(self) -> int:
        return math.ceil(math.log2(self.sigma / SCALE_SIGMA)) if self.sigma > SCALE_SIGMA else 0

    def scaled(self, strength: float) -> "WhiteChannel":
        return WhiteChannel(strength * self.sigma)

    def counted_from(self, level: float) -> "WhiteChannel":
        return self

    def halved(self) -> "WhiteChannel":
        return self.scaled(NOISE_GAIN)

    def deviation(self, scale: int = 0) -> float:
        return self.sigma * NOISE_GAIN**scale

    def deviations(self, rows: Array, scale: int = 0) -> Array:
        return np.asarray(self.deviation(scale) * np.linalg.norm(rows, axis=1))

    def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32] | None:
        return None

    def stabilised(self, levels: NDArray[Any]) -> NDArray[Any]:
        return levels

    @property
    def coarse_excess(self) -> float:
        return 0.0


@dataclass(frozen=True)
class WhiteNoise:
    """White Gaussian noise, of one deviation in each working channel."""

    sigmas: tuple[float, ...]
    kind = "white"

    def __post_init__(self) -> None:
        require(bool(self.sigmas), "sigmas must have one deviation for each channel.")
        for sigma in self.sigmas:
            check_sigma(sigma)

    def channel(self, index: int) -> WhiteChannel:
        return WhiteChannel(self.sigmas[index])

    def for_channels(self, count: int) -> "WhiteNoise":
        return WhiteNoise((self.sigmas * count)[:count])

    def in_units(self, unit: float) -> "WhiteNoise":
        return WhiteNoise(tuple(sigma / unit for sigma in self.sigmas))

    def scaled(self, strength: float, chroma: float = 1.0) -> "WhiteNoise":
        return WhiteNoise(tuple(s * strength * (chroma if index else 1.0) for index, s in enumerate(self.sigmas)))

    def halved(self) -> "WhiteNoise":
        return self.scaled(NOISE_GAIN)

    def describe(self) -> str:
        return f"white noise of {display_number(max(self.sigmas))}" if any(self.sigmas) else "no noise"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sigmas": list(self.sigmas)}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "WhiteNoise":
        return cls(tuple(numbers(facts["sigmas"])))


def is_coarse(model: NoiseModel) -> bool:
    """Whether noise beyond the reach of a patch stands out in any channel, so that smaller pictures show it better."""
    channels = [model.channel(index) for index in range(len(model.sigmas))]
    return any(channel.coarse_excess > 0 and channel.coarser_scales > 0 for channel in channels)


LEVEL_WORD = 1.5  # ratio of deviations over brightness that is worth a word
GRID = 64  # frequencies along an axis at which spectra are held: the lowest is that of 64 pixels
MOST_HALVINGS = 2  # coarser scales that a spectrum may ask for: an 11 x 11 patch then covers 44 pixels
PATCH_REACH = 11.0  # pixels: a patch of this side sees no frequency below 1 / 11
STANDS_OUT = 1.15  # noise beyond the reach of a patch, relative to that within: below it a coarser scale costs more


KNOT_PARTS = 64  # between two knots of a level function, where it is integrated


@lru_cache(maxsize=64)
def _power(frequencies: tuple[float, ...], deviations: tuple[float, ...], floor: float, scale: int) -> Array:
    """Power of the noise at a scale on the grid of an FFT, (GRID, GRID); its mean is the variance of a pixel."""
    f = np.abs(np.fft.fftfreq(GRID))
    power = _folded(np.asarray(frequencies), np.log(deviations), f, f, scale)
    return np.maximum(power, (floor * NOISE_GAIN**scale) ** 2)


def _folded(frequencies: Array, logarithms: Array, fy: Array, fx: Array, scale: int) -> Array:
    """The spectrum (radial, in logarithms between its knots) after so many halvings: filtered and folded."""
    if scale <= 0:
        radius = np.maximum(np.hypot(fy[:, None], fx[None, :]), 1e-6)
        return np.asarray(np.exp(2 * np.interp(np.log(radius), np.log(frequencies), logarithms)))
    total = np.zeros((len(fy), len(fx)))
    for gy in (fy / 2, 0.5 - fy / 2):  # what becomes one frequency in the halved picture
        for gx in (fx / 2, 0.5 - fx / 2):
            passed = np.outer(_half_band_power(gy), _half_band_power(gx))
            total += passed * _folded(frequencies, logarithms, gy, gx, scale - 1)
    return total / 4  # every fourth pixel is kept


def _half_band_power(f: Array) -> Array:
    """|H|^2 of the filter before halving, at frequencies in cycles per pixel."""
    places = np.arange(len(HALF_BAND)) - (len(HALF_BAND) - 1) / 2
    return np.asarray((np.cos(2 * np.pi * np.outer(f, places)) @ HALF_BAND) ** 2)


@dataclass(frozen=True)
class SpectralChannel:
    """Noise with a spectrum, a level function and a floor.

    frequencies, deviations: knots of the radial spectrum, rising cycles per pixel; the deviation of white noise that
    is as strong there. All scales follow from it. floor: no coefficient is taken to have less, as white noise of this
    deviation: after JPEG the noise of fine structures is rare but a whole quantisation step high.
    levels, factors: knots of the deviation over the grey level of the luminance, relative; empty: the same everywhere.
    halvings: coarser scales that help whatever the spectrum is, as the noise hides much of the picture.
    scale: how often the picture was halved that has this noise; the knots are those of before. Only 0 is kept in files.
    """

    frequencies: tuple[float, ...]
    deviations_at: tuple[float, ...]
    floor: float = 0.0
    levels: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    halvings: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.frequencies, self.frequencies[1:], strict=False))
        require(bool(self.frequencies) and rising and self.frequencies[0] > 0, "frequencies must be positive, rising.")
        require(len(self.frequencies) == len(self.deviations_at), "Every frequency has one deviation.")
        require(all(0 < d < float("inf") for d in self.deviations_at), "Deviations must be positive and finite.")
        require(0 <= self.floor < float("inf"), "The floor must be finite and at least 0.")
        require(len(self.levels) == len(self.factors), "Every level has one factor.")
        rising = all(a < b for a, b in zip(self.levels, self.levels[1:], strict=False))
        require(rising and all(map(math.isfinite, self.levels)), "Levels must be finite and rising.")
        require(all(0 < d < float("inf") for d in self.factors), "Factors must be positive and finite.")
        require(0 <= self.halvings <= MOST_HALVINGS, f"Halvings must be 0 to {MOST_HALVINGS}.")

    @property
    def coarser_scales(self) -> int:
        """How often the picture is halved to reach all frequencies where noise stands out, or as often as it helps."""
        return max(self.halvings, self.coarse_octaves)

    @property
    def coarse_octaves(self) -> int:
        """How often the picture is halved until no noise beyond the reach of a patch stands out."""
        for scale in range(self.scale, MOST_HALVINGS):
            seen, beyond = self._around_reach(scale)
            if beyond < STANDS_OUT * seen:
                return scale - self.scale
        return max(0, MOST_HALVINGS - self.scale)

    @property
    def coarse_excess(self) -> float:
        """Share of the noise's power beyond the reach of a patch that is more than it has within, 0 to 1."""
        seen, beyond = self._around_reach(self.scale)
        return max(0.0, 1 - (seen / beyond) ** 2)

    def deviation(self, scale: int = 0) -> float:
        """Of a pixel, at a level where it is neither strong nor weak."""
        return float(np.sqrt(self._power(scale).mean()))

    def deviations(self, rows: Array, scale: int = 0) -> Array:
        """The roots of diag(F C F'): the power of each row's filter over all frequencies, weighted by the noise's."""
        side = round(rows.shape[1] ** 0.5)
        filters = np.abs(np.fft.fft2(rows.reshape(-1, side, side), s=(GRID, GRID))) ** 2
        return np.asarray(np.sqrt((filters * self._power(scale)).mean(axis=(1, 2))))

    def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32] | None:
        """By what the deviations are larger at these grey levels; interpolated between the knots."""
        if not self.levels:
            return None
        return np.asarray(np.interp(levels, self.levels, self.factors), dtype=np.float32)

    def stabilised(self, levels: NDArray[Any]) -> NDArray[Any]:
        """The integral of 1 / factor from the first knot on, by trapezia between the knots; straight beyond them."""
        if not self.levels:
            return levels
        parts = np.linspace(0, len(self.levels) - 1, KNOT_PARTS * (len(self.levels) - 1) + 1)
        numbers = np.arange(len(self.levels))
        x, factors = np.interp(parts, numbers, self.levels), np.interp(parts, numbers, self.factors)
        rise = np.diff(x) * (1 / factors[1:] + 1 / factors[:-1]) / 2
        bent = np.interp(levels, x, np.append(0.0, np.cumsum(rise)))
        below, above = np.minimum(levels - x[0], 0.0), np.maximum(levels - x[-1], 0.0)
        return np.asarray(bent + below / factors[0] + above / factors[-1], dtype=levels.dtype)

    def scaled(self, strength: float) -> "SpectralChannel":
        """The same noise, so many times as strong."""
        stronger = tuple(strength * d for d in self.deviations_at)
        return replace(self, deviations_at=stronger, floor=strength * self.floor)

    def counted_from(self, level: float) -> "SpectralChannel":
        """The same noise where levels are counted from this one."""
        return replace(self, levels=tuple(knot - level for knot in self.levels))

    def halved(self) -> "SpectralChannel":
        """That of the picture of half the size; white noise stays white."""
        halvings = max(0, self.halvings - 1)
        if len(self.frequencies) == 1:
            return replace(self.scaled(NOISE_GAIN), halvings=halvings)
        return replace(self, scale=self.scale + 1, halvings=halvings)

    def in_units(self, unit: float) -> "SpectralChannel":
        """The same noise where levels and deviations are counted in so many of the present units."""
        counted = self.scaled(1 / unit)
        return replace(counted, levels=tuple(level / unit for level in self.levels))

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "frequencies": list(self.frequencies),
            "deviations": list(self.deviations_at),
            "floor": self.floor,
            "levels": list(self.levels),
            "factors": list(self.factors),
            "halvings": self.halvings,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "SpectralChannel":
        """What `to_json` told of."""
        names = ("frequencies", "deviations", "levels", "factors")
        frequencies, deviations, levels, factors = (tuple(numbers(facts[name])) for name in names)
        floor, halvings = numbers([facts["floor"], facts.get("halvings", 0)])
        require(halvings.is_integer(), "Halvings must be a whole number.")
        return cls(frequencies, deviations, floor, levels, factors, int(halvings))

    def _around_reach(self, scale: int) -> tuple[float, float]:
        """The deviation within and beyond the reach of a patch, in the picture that was halved so often."""
        seen, beyond = (self.at_frequency(reach / (PATCH_REACH * 2**scale)) for reach in (2.0, 0.5))
        return seen, beyond

    def at_frequency(self, frequency: float) -> float:
        """The deviation of white noise that is as strong at a frequency, in cycles per pixel."""
        known = np.interp(np.log(frequency), np.log(self.frequencies), np.log(self.deviations_at))
        return max(self.floor, float(np.exp(known)))

    def _power(self, scale: int) -> Array:
        return _power(self.frequencies, self.deviations_at, self.floor, max(0, self.scale + scale))


@dataclass(frozen=True)
class SpectralNoise:
    """Noise with a spectrum and a level function in each working channel; levels are those of the luminance."""

    channels: tuple[SpectralChannel, ...]
    kind = "spectral"

    def __post_init__(self) -> None:
        require(bool(self.channels), "There must be a spectrum for each channel.")

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The deviation of a pixel in each working channel."""
        return tuple(channel.deviation() for channel in self.channels)

    def channel(self, index: int) -> SpectralChannel:
        """The noise of a working channel."""
        return self.channels[index]

    def scaled(self, strength: float, chroma: float = 1.0) -> "SpectralNoise":
        """The same noise, so many times as strong, the chrominances `chroma` times more."""
        parts = [c.scaled(strength * (chroma if index else 1.0)) for index, c in enumerate(self.channels)]
        return SpectralNoise(tuple(parts))

    def halved(self) -> "SpectralNoise":
        """That of the picture of half the size."""
        return SpectralNoise(tuple(channel.halved() for channel in self.channels))

    def for_channels(self, count: int) -> "SpectralNoise":
        """The model for so many channels, of one that has as many, or one for all."""
        return SpectralNoise((self.channels * count)[:count])

    def in_units(self, unit: float) -> "SpectralNoise":
        """The same noise where levels and deviations are counted in so many of the present units."""
        return SpectralNoise(tuple(channel.in_units(unit) for channel in self.channels))

    def describe(self) -> str:
        """One line for a person."""
        luminance = self.channels[0]
        words = ["coarse noise" if luminance.coarse_octaves else "fine noise"]
        if luminance.factors and max(luminance.factors) > LEVEL_WORD * min(luminance.factors):
            bright = luminance.factors[-1] > luminance.factors[0]
            words.append("stronger in the lights" if bright else "stronger in the shadows")
        if len(self.channels) > 1 and max(self.sigmas[1:]) > self.sigmas[0]:
            words.append("mostly colour")
        words.append(f"about like white noise of {display_number(luminance.deviation(), 2)}")
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {"kind": self.kind, "channels": [channel.to_json() for channel in self.channels]}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "SpectralNoise":
        """What `to_json` told of."""
        return cls(tuple(SpectralChannel.from_json(channel) for channel in facts["channels"]))


@dataclass(frozen=True)
class NoiseKind:
    """A registered kind of noise model."""

    name: str
    from_json: Callable[[Mapping[str, Any]], NoiseModel]


NOISE_KINDS: Registry[NoiseKind] = Registry(
    "noise kind", NoiseKind("white", WhiteNoise.from_json), NoiseKind("spectral", SpectralNoise.from_json)
)


def model_from_json(facts: Mapping[str, Any]) -> NoiseModel:
    """The model that `to_json` told of; whatever is wrong with it is a ValueError in one sentence."""
    try:
        return NOISE_KINDS[str(facts["kind"])].from_json(facts)
    except KeyError as error:
        raise ValueError(f"The noise model has no usable entry {error}.") from None
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("The noise model has an entry of the wrong kind.") from None


def numbers(values: Any) -> list[float]:
    """The values as floats; whatever is no number is a TypeError."""
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError("not all of them are numbers")
    return [float(value) for value in values]
