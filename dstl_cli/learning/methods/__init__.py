"""The learning methods by name: how T is updated, and which settings each one uses.

To add one: a module here with a `FactorUpdate`, and an entry in `METHODS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dstl_cli.base.registry import Registry, load

if TYPE_CHECKING:
    from dstl_cli.base.arrays import Array, Arrays
    from dstl_cli.learning.settings import LearnSettings


class FactorUpdate:
    """One way to learn T from second moments: the Gram matrix Yt Yt' (once) and X Yt' (every iteration).

    As it stands T = I stays: the method `dct`. Others have their own `update`, and what else is not as here.
    carried: the attributes that go from one update to the next: arrays, or numbers.
    """

    carried: tuple[str, ...] = ()

    def __init__(self, gram: "Array", settings: "LearnSettings") -> None:
        """gram: Yt Yt', (n, n)."""
        self.gram = gram
        self.settings = settings

    def start(self, cross: "Array") -> "Array":
        """The first T; cross is X Yt' for X = H(Yt)."""
        import numpy as np

        return np.eye(len(cross))

    def resume(self, factor: "Array") -> "Array":
        """The first T where one learnt before is given."""
        return factor

    def update(self, factor: "Array", cross: "Array") -> "Array":
        """The next T, given X Yt' for X = H(factor Yt)."""
        return factor

    def deliver(self, factor: "Array") -> "Array":
        """The T handed to the user: with every bound of the method kept."""
        return factor

    def state(self) -> "Arrays":
        """What is carried from one update to the next, apart from T; copies, contiguous."""
        import numpy as np

        return {key: np.array(getattr(self, key), order="C") for key in self.carried}

    def restore(self, state: "Arrays") -> None:
        """Go on as the method whose state this was."""
        for key in self.carried:
            setattr(self, key, state[key][()])


@dataclass(frozen=True)
class LearningMethod:
    """A registered method.

    update: the class of its updates, or what makes one from the Gram matrix (n, n) and the settings.
    uses: the settings it has besides those of every method that learns. excludes: which of them have no effect where
    another one is given, by that one.
    learns: False where T = I stays. penalises: sparse by a penalty of its own, so that no density is set by default.
    scale_free: its spectrum is fitted up to a common scale, so that errors are compared relative to ||T Yt||.
    """

    name: str
    help: str
    update: "str | Callable[[Array, LearnSettings], FactorUpdate]"
    uses: frozenset[str] = frozenset()
    excludes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    learns: bool = True
    penalises: bool = False
    scale_free: bool = False

    def make(self, gram: "Array", settings: "LearnSettings") -> FactorUpdate:
        """The update for patches with this Gram matrix Yt Yt' (n, n)."""
        made: FactorUpdate = load(self.update)(gram, settings)
        return made


_HERE = "dstl_cli.learning.methods"
_BOUNDS = frozenset({"max_condition", "frobenius_norm"})
_PENALTY = frozenset({"l1_weight", "l1_units", "homotopy_steps", "clip"})

METHODS: Registry[LearningMethod] = Registry(
    "method",
    LearningMethod("dct", "nothing is learnt: the canonical transform itself", FactorUpdate, learns=False),
    LearningMethod("bresler", "dense, by a log-det penalty", f"{_HERE}.bresler:Bresler", frozenset({"logdet_weight"})),
    LearningMethod(
        "conditioned",
        "dense, with a bound on the condition number",
        f"{_HERE}.conditioned:Conditioned",
        _BOUNDS,
        scale_free=True,
    ),
    LearningMethod(
        "sparse-bresler",
        "doubly sparse, by a log-det penalty",
        f"{_HERE}.bresler:SparseBresler",
        frozenset({"logdet_weight", "density"}),
    ),
    LearningMethod(
        "dsect",
        "doubly sparse and conditioned: Algorithm 1 of the paper",
        f"{_HERE}.dsect:Dsect",
        _BOUNDS | _PENALTY | {"density", "freeze_at", "step_rule"},
        {"density": _PENALTY},
        penalises=True,
    ),
    LearningMethod(
        "procrustes",
        "doubly sparse and conditioned, by closed-form updates: dstl's own",
        f"{_HERE}.conditioned:Procrustes",
        _BOUNDS | {"density"},
        scale_free=True,
    ),
)
PAPER_METHODS = ("dct", "bresler", "conditioned", "sparse-bresler", "dsect")  # the columns of its table
