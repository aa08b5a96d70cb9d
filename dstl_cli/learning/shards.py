"""Learning from more patches than fit beside each other: they lie in shards, and each shard keeps the pictures.

A patch is taken from its picture, freed of its mean and brought into the domain of Phi whenever it is coded, so that a
shard needs some ten bytes a patch. An update of T needs no more of each shard than X Yt' and two energies. They are
added in the order of the shards, so that the result does not depend on who has them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array, Array32
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.learning.loop import Shard, code_shards, gram_matrix
from dstl_cli.learning.on_collection import ROWS, least_energy, level_rule
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.patches.coding import CodingPass
from dstl_cli.patches.grid import positions
from dstl_cli.transforms.canonical import CANONICAL

MOST_BATCHES = 40  # as in a sample of the usual size: larger collections have larger batches, not more of them


@dataclass(frozen=True)
class PatchPlaces:
    """Patches of one picture: the picture (H, W), and of each patch its number in reading order and its level."""

    image: Array32
    places: NDArray[np.int32]
    levels: NDArray[np.int16]

    @classmethod
    def chosen(cls, image: NDArray[np.generic], config: CollectionSettings, share: float, *place: int) -> "PatchPlaces":
        """A share of the patches of a grey picture in random order, without those that the coder gives nothing.

        place: numbers the picture, and with the seed decides the order.
        """
        height, width = (len(positions(length, config.patch_size)) for length in image.shape)
        rng = np.random.default_rng([config.seed, *place])
        wanted = min(height * width, math.ceil(height * width * share))
        drawn = rng.choice(height * width, size=wanted, replace=False).astype(np.int32)
        kept = cls(np.asarray(image, np.float32), drawn, np.zeros(wanted, np.int16))
        least, rule = least_energy(config), level_rule(config)
        some = np.zeros(wanted, bool)
        for start in range(0, wanted, ROWS):
            part = slice(start, start + ROWS)
            patches = kept.patches(part, config.patch_size)
            some[part] = np.einsum("ij,ij->i", patches, patches) > least
            kept.levels[part] = rule(patches.astype(np.float32))
        return cls(kept.image, kept.places[some], kept.levels[some])

    def patches(self, part: slice, size: int) -> Array:
        """Some of the patches without their means, (N, n)."""
        windows = sliding_window_view(self.image, (size, size))
        found = windows[np.divmod(self.places[part], windows.shape[1])].astype(np.float64).reshape(-1, size**2)
        found -= found.mean(axis=1, keepdims=True)
        return found


@dataclass(frozen=True)
class ShardFacts:
    """What must be known of a shard before learning begins."""

    count: int  # patches
    levels: int  # the sum of theirs
    gram: Array  # Yt Yt'
    squares: float  # ||Yt||^2


@dataclass(frozen=True)
class PatchShard:
    """The patches of some pictures."""

    pictures: tuple[PatchPlaces, ...]
    patch_size: int
    canonical: str

    @property
    def count(self) -> int:
        """How many patches there are."""
        return sum(len(picture.places) for picture in self.pictures)

    def facts(self) -> ShardFacts:
        """Of all patches."""
        with one_blas_thread():
            size = self.patch_size**2 - CANONICAL[self.canonical].first_learnt
            empty = Shard(np.zeros((0, size)), np.zeros(0, np.int64))
            gram = gram_matrix([empty, *self.parts()]) if not self.count else gram_matrix(self.parts())
        levels = sum(int(picture.levels.sum(dtype=np.int64)) for picture in self.pictures)
        return ShardFacts(self.count, levels, gram, float(np.trace(gram)))

    def coded(self, factor: Array, batch: int, batches: int) -> CodingPass:
        """X = H(T Yt) over a batch of so many, the patches of all pictures dealt out to them in turn."""
        with one_blas_thread():
            return code_shards(factor, self.parts(batch, batches))

    def parts(self, batch: int = 0, batches: int = 1) -> Iterator[Shard]:
        """The patches of a batch in the domain of Phi, some at a time."""
        size, canonical = self.patch_size, CANONICAL[self.canonical]
        phi, before = canonical.matrix(size)[canonical.first_learnt :].T, 0
        for picture in self.pictures:
            first = (batch - before) % batches
            before += len(picture.places)
            for start in range(first, len(picture.places), ROWS * batches):
                part = slice(start, start + ROWS * batches, batches)
                yield Shard(picture.patches(part, size) @ phi, picture.levels[part].astype(np.int64))


@dataclass(frozen=True)
class ShardedSet:
    """Patches that lie in shards elsewhere, as `Training` wants them.

    code: gives X = H(T Yt) of each shard, in their order, for T, a batch, and how many batches there are.
    """

    facts: Sequence[ShardFacts]
    code: Callable[[Array, int, int], Iterable[CodingPass]]

    finite = True  # pictures are refused where they are not

    @cached_property
    def count(self) -> int:
        """How many patches there are."""
        return sum(facts.count for facts in self.facts)

    @property
    def mean_level(self) -> float:
        """The mean of their sparsity levels."""
        return sum(facts.levels for facts in self.facts) / self.count

    @property
    def norm(self) -> float:
        """||Yt||."""
        return math.sqrt(sum(facts.squares for facts in self.facts))

    def gram(self) -> Array:
        """Yt Yt'."""
        return np.asarray(sum(facts.gram for facts in self.facts))

    def batches(self, config: CollectionSettings) -> int:
        """In how many batches they are cut: each shard is, so that none of them is empty."""
        most = MOST_BATCHES if config.batches is None else config.batches
        return min(most, config.batches_for(self.count), max(facts.count for facts in self.facts))

    def batch_size(self, batch: int, batches: int) -> int:
        """How many patches a batch has."""
        return sum(len(range(batch, facts.count, batches)) for facts in self.facts)

    def coded(self, factor: Array, batch: int | None = None, batches: int = 1) -> CodingPass:
        """X = H(T Yt) over a batch, or over all."""
        cross: Any = np.zeros_like(factor)
        left_out = energy = 0.0
        for part in self.code(factor, batch or 0, batches):
            cross = cross + part.cross
            left_out += part.error**2
            energy += part.energy**2
        return CodingPass(cross, math.sqrt(left_out), math.sqrt(energy))
