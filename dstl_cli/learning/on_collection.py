"""Learning from collections: a bounded sample of their patches, then updates of T on one batch of it at a time.

Every method is driven by Yt Yt', which is summed once over the sample, and by X Yt', for which each update of T has

    S <- (1 - g) S + g (N / N_b) X_b Yt_b',      X_b = H(T Yt_b),

with the newest batch b weighted by g: one half at first, in the end the batch's share of the sample, so that S is
then an average over the last pass. With a single batch g = 1, which is learning as in `loop.learn`.

The cost that is watched is what the method makes small: ||T Yt - X|| / ||Yt||, beside which Phi is scaled to the norm
of T; for methods that fit their spectrum up to a common scale, ||T Yt - X|| / ||T Yt||.

Patches have no mean, so there is nothing to learn about its coefficient. Where it is the first of Phi it is left out,
m = n - 1 coefficients are learnt from, and the delivered T has an entry of its own for it; else m = n.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.base.archives import entries_under, named_under
from dstl_cli.base.arrays import Array, Array32, Arrays, Levels
from dstl_cli.base.checks import require
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.learning.loop import Shard, code_shards, gram_matrix, iteration_of
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import ERROR_SCALE, CollectionSettings, LearnSettings, most_coefficients
from dstl_cli.patches.coding import Coder, CodingPass
from dstl_cli.patches.grid import positions
from dstl_cli.transforms.canonical import CANONICAL
from dstl_cli.transforms.transform import Iteration, Transform

ROWS = 8192  # patches taken from a picture or worked on at a time
FIDELITY = 0.01 / 20  # mu of the coder that sets the levels; the DCT's levels hardly depend on it
FIRST_SHARE = 0.5  # weight of the newest batch in the first update
# The state of a training beside its history and what the method carries.
STATE = ("factor", "best", "moments", "left_out", "energy", "canonical_cost", "coded_patches")
LARGEST = 1e100  # number of a state: products of larger ones are infinite, with which some libraries never end
GAIN = 1e-4  # a cost that is lower by less than this share of it is not better


class PatchSet(Protocol):
    """Patches to learn from, wherever they are: what `Training` wants of them."""

    @property
    def count(self) -> int: ...

    @property
    def mean_level(self) -> float: ...

    @property
    def norm(self) -> float: ...

    @property
    def finite(self) -> bool: ...

    def gram(self) -> Array:
        """Yt Yt'."""

    def batches(self, config: CollectionSettings) -> int:
        """In how many batches they are cut."""

    def batch_size(self, batch: int, batches: int) -> int:
        """How many patches a batch has."""

    def coded(self, factor: Array, batch: int | None = None, batches: int = 1) -> CodingPass:
        """X = H(T Yt) over a batch, or over all."""


def least_energy(settings: CollectionSettings) -> float:
    """The sum of squares that the coder leaves out of any patch: those without more teach nothing."""
    norm = (1 + FIDELITY) * ERROR_SCALE * settings.sigma * settings.patch_size
    return norm**2 if settings.sparsity_level is None else 0.0


def level_rule(settings: CollectionSettings) -> Callable[[Array32], Levels]:
    """What tells the sparsity level of each patch (N, n): the same for all, or as many as the coder takes."""
    size, level = settings.patch_size, settings.sparsity_level
    if level is not None:
        return lambda patches: np.full(len(patches), level, dtype=np.int64)
    most = most_coefficients(size)
    coder = Coder.build(Transform.fixed(size), error_scale=ERROR_SCALE, fidelity=FIDELITY, most=most)

    def levels(patches: Array32) -> Levels:
        with one_blas_thread():
            taken = coder.leave_out(patches / np.float32(settings.sigma))[1]
        return np.minimum(taken.astype(np.int64), size**2 - 1)

    return levels


@dataclass
class PatchSample:
    """A random sample of at most `count` patches of a stream of pictures, in memory that does not grow with it.

    Each picture offers min(its patches, count) of them, each offer with a random key; the smallest keys of all are
    kept. So every offer has the same chance, whatever the order and number of the pictures.
    """

    patch_size: int
    count: int
    seed: int
    least_energy: float = 0.0  # patches whose sum of squares, without their mean, is not above it are not taken

    def __post_init__(self) -> None:
        self._keys = np.full(self.count, np.inf)  # infinite: there is no patch yet
        self._patches = np.empty((self.count, self.patch_size**2), dtype=np.float32)

    @classmethod
    def of(cls, settings: CollectionSettings, *, held_out: bool = False) -> Self:
        """The sample to learn from, or the smaller one for the held-out cost.

        Patches that the coder gives no coefficient at all are not taken; there are none where levels are fixed.
        """
        count = max(1, settings.train_patches // 10) if held_out else settings.train_patches
        return cls(settings.patch_size, count, settings.seed, least_energy(settings))

    def add(self, image: NDArray[np.generic], *place: int) -> None:
        """Let a grey picture offer its patches; `place` numbers it, and with the seed decides its random numbers."""
        height, width = (len(positions(length, self.patch_size)) for length in image.shape)
        rng = np.random.default_rng([self.seed, *place])
        keys = rng.random(min(height * width, self.count))
        keys = keys[keys < self._keys.max()]
        chosen = rng.choice(height * width, size=len(keys), replace=False, shuffle=False)
        windows = sliding_window_view(image, (self.patch_size, self.patch_size))
        for start in range(0, len(keys), ROWS):
            part = slice(start, start + ROWS)
            patches = windows[np.divmod(chosen[part], width)].astype(np.float64).reshape(-1, self.patch_size**2)
            patches -= patches.mean(axis=1, keepdims=True)
            wanted = np.einsum("ij,ij->i", patches, patches) > self.least_energy
            self._keep(keys[part][wanted], patches[wanted])

    @property
    def filled(self) -> int:
        """How many patches there are."""
        return int(np.isfinite(self._keys).sum())

    def patches(self) -> Array32:
        """The sample in random order: (N, n), without their means."""
        return self._patches[np.argsort(self._keys)[: self.filled]]

    def state(self) -> Arrays:
        """What there is so far, as arrays."""
        there = np.isfinite(self._keys)
        return {"keys": self._keys[there], "patches": self._patches[there]}

    def restore(self, state: Arrays) -> None:
        """Go on from what there was."""
        keys, patches = state["keys"], state["patches"]
        fits = keys.ndim == 1 and len(keys) <= self.count and patches.shape == (len(keys), self.patch_size**2)
        require(fits, "the sample does not have the size asked for")
        require(bool(np.isfinite(patches).all()), "the sample has numbers that no picture has")
        self._keys[: len(keys)], self._patches[: len(keys)] = keys, patches

    def _keep(self, keys: Array, patches: Array) -> None:
        """Take the new patches; of all, those with the smallest keys stay, in place."""
        kept = np.argpartition(np.concatenate((self._keys, keys)), self.count - 1)[: self.count]
        incoming = kept[kept >= self.count] - self.count
        free = np.ones(self.count, bool)  # np.setdiff1d hashes numbers, which takes long for those in a row
        free[kept[kept < self.count]] = False
        self._keys[free], self._patches[free] = keys[incoming], patches[incoming]


@dataclass(frozen=True)
class TrainingSet:
    """A sample in the domain of Phi (N, m), in single precision, and the sparsity level of each patch (N,)."""

    coefficients: Array32
    levels: Levels

    @classmethod
    def from_patches(cls, patches: Array32, config: CollectionSettings) -> Self:
        """The set of these patches without means (N, n), which are overwritten."""
        size = config.patch_size
        levels, rule = np.empty(len(patches), dtype=np.int64), level_rule(config)
        canonical = CANONICAL[config.canonical]
        first, phi = canonical.first_learnt, canonical.matrix(size)
        for start in range(0, len(patches), ROWS):
            part = slice(start, start + ROWS)
            levels[part] = rule(patches[part])
            with one_blas_thread():
                patches[part, first:] = patches[part].astype(np.float64) @ phi[first:].T
        return cls(patches[:, first:], levels)

    def part(self, start: int, stop: int) -> Shard:
        """Some of the patches in double precision."""
        return Shard(self.coefficients[start:stop].astype(np.float64), self.levels[start:stop])

    def parts(self) -> Iterator[Shard]:
        """All of them, some at a time."""
        return (self.part(start, start + ROWS) for start in range(0, len(self.levels), ROWS))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.levels)

    @property
    def mean_level(self) -> float:
        """The mean of their sparsity levels."""
        return float(self.levels.mean())

    @property
    def finite(self) -> bool:
        """Whether all coefficients are numbers."""
        return bool(np.isfinite(self.coefficients).all())

    def gram(self) -> Array:
        """Yt Yt'."""
        return gram_matrix(self.parts())

    def batches(self, config: CollectionSettings) -> int:
        """In how many batches they are cut."""
        return config.batches_for(self.count)

    def batch_size(self, batch: int, batches: int) -> int:
        """How many patches a batch has."""
        start, stop = self._edges(batches)[batch : batch + 2]
        return stop - start

    def coded(self, factor: Array, batch: int | None = None, batches: int = 1) -> CodingPass:
        """X = H(T Yt) over a batch, or over all."""
        if batch is None:
            return code_shards(factor, self.parts())
        start, stop = self._edges(batches)[batch : batch + 2]
        return code_shards(factor, [self.part(start, stop)])

    def _edges(self, batches: int) -> list[int]:
        """Where batches begin and end."""
        return [int(edge) for edge in np.linspace(0, self.count, batches + 1).round()]

    @cached_property
    def norm(self) -> float:
        """||Yt||."""
        return float(np.sqrt(sum(np.sum(part.coefficients**2) for part in self.parts())))


def without_mean(config: LearnSettings, n: int) -> LearnSettings:
    """What is left of the bounds on T (n, n) for T without the mean's row and column."""
    density = config.density
    if density is not None:
        density = min(1.0, max(density, (density * n**2 - 1) / (n - 1) ** 2))
    return replace(config, density=density, frobenius_norm=config.norm_for(n) * math.sqrt((n - 1) / n))


@dataclass(frozen=True)
class Trained:
    """A transform learnt from a collection, how it came about, and its cost beside that of Phi.

    The costs are those of the delivered T, not of the iterate it was made from.
    """

    transform: Transform
    history: tuple[Iteration, ...]
    held_out: tuple[float, ...]  # the held-out cost after every iteration; empty without a validation set
    stop_reason: str  # "iterations", "no improvement" or "stopped"
    best_iteration: int
    cost: float
    canonical_cost: float
    held_out_cost: float | None
    held_out_canonical_cost: float | None
    coded_patches: int  # the work: patches coded to learn, held-out ones not counted

    @property
    def beats_canonical(self) -> bool:
        """Whether it costs less than Phi: on the held-out patches where there are any."""
        if self.held_out_cost is not None and self.held_out_canonical_cost is not None:
            return self.held_out_cost < self.held_out_canonical_cost
        return self.cost < self.canonical_cost


def best_and_waited(costs: Sequence[float]) -> tuple[int, int]:
    """The first iteration of the lowest cost (0: none yet), and how many ago the cost was last clearly better."""
    mark, last = math.inf, 0
    for number, cost in enumerate(costs, start=1):
        if cost < mark * (1 - GAIN):
            mark, last = cost, number
    return (int(np.argmin(costs)) + 1 if costs else 0), len(costs) - last


def learn_from_pictures(images: Sequence[NDArray[np.generic]], settings: CollectionSettings) -> Trained:
    """Learn from grey pictures (H, W) that are all in memory."""
    require(len(images) > 0, "There are no pictures to learn from.")
    sample = PatchSample.of(settings)
    for number, image in enumerate(images):
        sample.add(image, 0, number, 0)
    training = Training(TrainingSet.from_patches(sample.patches(), settings), settings)
    training.begin()
    while training.stop_reason is None:
        training.step()
    return training.finish()


class Training:
    """Learning with mini-batches, one update a step; its state can be kept and taken up again.

    The state passes through `state` and `restore` of the method in every step, so that a training that was
    interrupted and resumed cannot differ from one that was not.
    """

    def __init__(self, data: PatchSet, config: CollectionSettings, validation: PatchSet | None = None) -> None:
        """Make ready; `begin` or `restore` comes next."""
        require(all(part.count for part in (data, validation) if part), "There are no patches to learn from.")
        require(data.finite, "The patches to learn from hold numbers that are not finite.")
        self.data = data
        self.config = config
        self.validation = validation
        self.iterations = config.learn.iterations if METHODS[config.learn.method].learns else 0
        self.batches = data.batches(config)
        self.apart = CANONICAL[config.canonical].first_learnt  # rows of T that are not learnt: the mean's
        learn = without_mean(config.learn, config.patch_size**2) if self.apart else config.learn
        with one_blas_thread():
            gram = data.gram()
            self.method = METHODS[learn.method].make(gram, learn)
        self.identity = np.eye(len(gram))
        self.factor = self.best = self.identity  # T, without the mean's row and column
        self.moments = np.zeros_like(gram)  # S
        self.relative = METHODS[config.learn.method].scale_free  # which cost is watched
        self.left_out = np.zeros(self.batches)  # of every batch when it was last coded
        self.energy = np.zeros(self.batches)
        self.canonical_cost = 0.0  # at its own norm
        self.history: list[Iteration] = []
        self.held_out: list[float] = []
        self.coded_patches = 0

    @property
    def costs(self) -> list[float]:
        """The cost after every iteration: of the held-out patches, else of those learnt from."""
        if self.validation is not None:
            return self.held_out
        return [item.relative_error if self.relative else item.error / self.data.norm for item in self.history]

    @property
    def stop_reason(self) -> str | None:
        """Why there is no further step; None while there is one."""
        if len(self.history) >= self.iterations:
            return "iterations"
        return "no improvement" if best_and_waited(self.costs)[1] >= self.config.patience else None

    def begin(self) -> None:
        """The first T, and the codes of all batches under it."""
        with one_blas_thread():
            self.factor = np.ascontiguousarray(self.method.start(self._code_all(self.identity)))
            self.canonical_cost = self._newest_codes().relative_error
            self.moments = self._code_all(self.factor)
            self.best = self.factor

    def step(self) -> Iteration:
        """One update of T, and one batch coded under it."""
        number = len(self.history)
        turn, place = divmod(number, self.batches)  # every pass codes all batches, in a new random order
        batch = int(np.random.default_rng([self.config.seed, turn]).permutation(self.batches)[place])
        last = 1 / self.batches
        first = max(FIRST_SHARE, last)
        share = first + (last - first) * number / max(1, self.iterations - 1)  # g
        with one_blas_thread():
            factor = np.ascontiguousarray(self.method.update(self.factor, self.moments))
            self.method.restore(self.method.state())
            scale = self.data.count / self.data.batch_size(batch, self.batches)
            coded = self._code(factor, batch)
            self.moments = (1 - share) * self.moments + share * scale * coded.cross
            _check_size(self.moments)
            self.history.append(iteration_of(number + 1, factor, self._newest_codes(), apart=self.apart))
            if self.validation is not None:
                self.held_out.append(self._cost(self.validation, factor))
            self.factor = factor
            if best_and_waited(self.costs)[0] == number + 1:
                self.best = factor
        return self.history[-1]

    def finish(self) -> Trained:
        """The best T so far, brought within its bounds, and what it is worth."""
        with one_blas_thread():
            factor = self.method.deliver(self.best)
            root_mean_square = float(np.linalg.norm(factor)) / np.sqrt(len(factor))
            scale = 1.0 if self.relative else root_mean_square
            held_out = held_out_canonical = None
            if self.validation is not None:
                held_out = self._cost(self.validation, factor)
                held_out_canonical = scale * self.validation.coded(self.identity).relative_error
            whole = np.pad(factor, ((self.apart, 0), (self.apart, 0)))
            whole[: self.apart, : self.apart] = root_mean_square  # changes neither it nor the condition
            return Trained(
                transform=Transform(self.config.patch_size, whole, self.config.learn.method, self.config.canonical),
                history=tuple(self.history),
                held_out=tuple(self.held_out),
                stop_reason=self.stop_reason or "stopped",
                best_iteration=best_and_waited(self.costs)[0],
                cost=self._cost(self.data, factor),
                canonical_cost=scale * self.canonical_cost,
                held_out_cost=held_out,
                held_out_canonical_cost=held_out_canonical,
                coded_patches=int(self.coded_patches),
            )

    def state(self) -> Arrays:
        """Everything a later training on the same data needs to go on, as arrays."""
        own = {key: np.array(getattr(self, key)) for key in STATE}
        own["history"] = np.array([astuple(record) for record in self.history]).reshape(-1, 5)
        own["held_out"] = np.array(self.held_out)
        return own | named_under("method", self.method.state())

    def restore(self, state: Arrays) -> None:
        """Go on from such a state instead of from `begin`."""
        rows = len(state["history"])
        shapes: dict[str, tuple[int, ...]] = {key: np.shape(getattr(self, key)) for key in STATE}
        shapes |= {"history": (rows, 5), "held_out": (0 if self.validation is None else rows,)}
        for key, shape in shapes.items():
            singular = key == "history"  # as T may have been
            usable = ~np.isnan(state[key]) if singular else np.abs(state[key]) < LARGEST
            require(state[key].shape == shape and bool(usable.all()), f"its entry {key} is not what this training left")
        for value in entries_under("method", state).values():
            require(bool((np.abs(value) < LARGEST).all()), "its method has numbers that no training leaves")
        for key in STATE:
            setattr(self, key, state[key].copy()[()])
        self.history = [Iteration(int(row[0]), *map(float, row[1:])) for row in state["history"]]
        self.held_out = [float(cost) for cost in state["held_out"]]
        self.method.restore(entries_under("method", state))

    def _code(self, factor: Array, batch: int) -> CodingPass:
        """Code a batch and take down what it leaves out."""
        coded = self.data.coded(factor, batch, self.batches)
        self.left_out[batch], self.energy[batch] = coded.error**2, coded.energy**2
        self.coded_patches += self.data.batch_size(batch, self.batches)
        return coded

    def _code_all(self, factor: Array) -> Array:
        """X Yt' over all batches."""
        cross = np.zeros_like(factor)
        for batch in range(self.batches):
            cross += self._code(factor, batch).cross
        _check_size(cross)
        return cross

    def _newest_codes(self) -> CodingPass:
        """S, and the errors of every batch when it was last coded, taken together."""
        return CodingPass(self.moments, *map(float, np.sqrt((self.left_out.sum(), self.energy.sum()))))

    def _cost(self, data: PatchSet, factor: Array) -> float:
        """The cost of T on a whole set of patches."""
        coded = data.coded(factor)
        return coded.relative_error if self.relative else coded.error / data.norm


def _check_size(cross: Array) -> None:
    """Refuse to learn from numbers that are too large to multiply."""
    require(bool((np.abs(cross) < LARGEST).all()), "its numbers are too large.")
