"""The learning methods by name, and what the loop asks of each."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dstl_cli.config import LearnConfig

Array = NDArray[np.float64]
State = dict[str, NDArray[Any]]  # what a method carries from one update to the next, by name


class Method(Protocol):
    """One way to learn T from second moments: the Gram matrix Yt Yt' (once) and X Yt' (every iteration)."""

    def start(self, cross: Array) -> Array:
        """The first T; cross is X Yt' for X = H(Yt)."""

    def resume(self, factor: Array) -> Array:
        """The first T where one learnt before is given."""

    def update(self, factor: Array, cross: Array) -> Array:
        """The next T, given X Yt' for X = H(factor Yt)."""

    def deliver(self, factor: Array) -> Array:
        """The T handed to the user: with every bound of the method kept."""

    def state(self) -> State:
        """What is carried from one update to the next, apart from T; copies, contiguous."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on as the method whose state this was."""


class Dct:
    """T = I: nothing is learnt."""

    def __init__(self, gram: Array) -> None:
        self.n = len(gram)

    def start(self, cross: Array) -> Array:
        return np.eye(self.n)

    def resume(self, factor: Array) -> Array:
        return factor

    def update(self, factor: Array, cross: Array) -> Array:
        return factor

    def deliver(self, factor: Array) -> Array:
        return factor

    def state(self) -> State:
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        pass


def make_method(gram: Array, config: LearnConfig) -> Method:
    """The method named in `config` for patches with this Gram matrix Yt Yt' (n, n)."""
    from dstl_cli.learning.bresler import Bresler
    from dstl_cli.learning.conditioned import Conditioned
    from dstl_cli.learning.dsect import Dsect

    norm = config.norm_for(len(gram))
    if config.method == "bresler":
        return Bresler(gram, config.logdet_weight)
    if config.method == "sparse-bresler":
        return Bresler(gram, config.logdet_weight, density=config.density or 0.2)
    if config.method == "conditioned":
        return Conditioned(gram, config.max_condition, norm, density=config.density)
    if config.method == "dsect":
        return Dsect(gram, config, norm)
    return Dct(gram)
