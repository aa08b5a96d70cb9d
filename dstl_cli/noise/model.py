"""What is known of the noise of a picture. Everything below asks it: the deviation of a coefficient, of a pixel.

A model has a channel of its own for each working channel. White Gaussian noise is the simplest kind. To add one: a
frozen dataclass with `kind`, `channel` and `to_json`, and an entry in `NOISE_KINDS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.checks import check_sigma, require
from dstl_cli.base.registry import Registry
from dstl_cli.pixels.scales import NOISE_GAIN

Array = NDArray[np.float64]


class ChannelNoise(Protocol):
    """The noise of one working channel; scale: how often the picture was halved."""

    def deviation(self, scale: int = 0) -> float:
        """Of a pixel, at a level where it is neither strong nor weak."""

    def deviations(self, rows: Array, scale: int = 0) -> Array:
        """Of the coefficients that these rows (m, n) take from a patch: the roots of diag(F C F'), (m,)."""

    def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32] | None:
        """By what the deviations are larger at these grey levels (N,); None: nowhere."""


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

    def to_json(self) -> dict[str, Any]:
        """All of it, for `model_from_json`."""


@dataclass(frozen=True)
class WhiteChannel:
    """Independent Gaussian noise of one deviation."""

    sigma: float

    def deviation(self, scale: int = 0) -> float:
        return self.sigma * NOISE_GAIN**scale

    def deviations(self, rows: Array, scale: int = 0) -> Array:
        return np.asarray(self.deviation(scale) * np.linalg.norm(rows, axis=1))

    def level_factors(self, levels: NDArray[Any], scale: int = 0) -> NDArray[np.float32] | None:
        return None


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

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sigmas": list(self.sigmas)}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "WhiteNoise":
        return cls(tuple(numbers(facts["sigmas"])))


def numbers(values: Any) -> list[float]:
    """The values as floats; whatever is no number is a TypeError."""
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError("not all of them are numbers")
    return [float(value) for value in values]


@dataclass(frozen=True)
class NoiseKind:
    """A registered kind of noise model."""

    name: str
    from_json: Callable[[Mapping[str, Any]], NoiseModel]


NOISE_KINDS: Registry[NoiseKind] = Registry("noise kind", NoiseKind("white", WhiteNoise.from_json))


def model_from_json(facts: Mapping[str, Any]) -> NoiseModel:
    """The model that `to_json` told of; whatever is wrong with it is a ValueError in one sentence."""
    try:
        return NOISE_KINDS[str(facts["kind"])].from_json(facts)
    except KeyError as error:
        raise ValueError(f"The noise model has no usable entry {error}.") from None
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("The noise model has an entry of the wrong kind.") from None
