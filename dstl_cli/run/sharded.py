"""Training on all patches of a collection, or a share of them: in shards that stay where they were read.

How the files are cut into shards depends on the collection alone, so that the result is the same for any workers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.arrays import Array, Arrays
from dstl_cli.base.threads import available_cores, in_order
from dstl_cli.errors import DstlError
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.learning.shards import PatchPlaces, PatchShard, ShardedSet, ShardFacts
from dstl_cli.patches.coding import CodingPass
from dstl_cli.picture.inputs import Input, Selection
from dstl_cli.picture.read import read_picture
from dstl_cli.run.cluster import Cluster
from dstl_cli.run.collections import CollectionPart, learn_from

SHARD_PATCHES = 1_000_000  # of the files of a shard, where one alone has no more: some ten megabytes


@dataclass(frozen=True)
class ShardFile:
    """A file of a shard: where it is, its number in the collection, and how it is called here."""

    source: Input
    number: int
    name: str


@dataclass(frozen=True)
class ShardWork:
    """What a shard is read from. part: 0 for those to learn from, 1 for those held out; share: of their patches."""

    files: tuple[ShardFile, ...]
    settings: CollectionSettings
    part: int
    share: float


@dataclass(frozen=True)
class ReadShard:
    """A shard, and of each of its files whether it has floats, and what is wrong with it."""

    patches: PatchShard
    files: tuple[tuple[bool, str | None], ...]


def read_shard(work: ShardWork) -> ReadShard:
    """Read the files of a shard."""
    chosen: list[PatchPlaces] = []
    told = []
    for file in work.files:

        def take(image: NDArray[np.generic], page: int, number: int = file.number) -> None:
            chosen.append(PatchPlaces.chosen(image, work.settings, work.share, work.part, number, page))

        told.append(learn_from(file.source, file.name, take))
    patches = PatchShard(tuple(chosen), work.settings.patch_size, work.settings.canonical)
    return ReadShard(patches, tuple(told))


def facts_of(shard: ReadShard) -> tuple[ShardFacts, tuple[tuple[bool, str | None], ...]]:
    """What is known of a shard and its files."""
    return shard.patches.facts(), shard.files


def code_shard(shard: ReadShard, factor: Array, batch: int, batches: int) -> CodingPass:
    """X = H(T Yt) over a batch of a shard."""
    return shard.patches.coded(factor, batch, batches)


class Holder(Protocol):
    """Who has shards, and works on them where they are."""

    def hold(self, works: Sequence[ShardWork]) -> Sequence[Any]:
        """Have shards read, which stay; what stands for each."""

    def over(self, shards: Sequence[Any], task: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """The results of `task(shard, *given)`, in the order of the shards."""


@dataclass(frozen=True)
class Here:
    """This process, with its threads."""

    threads: int

    def hold(self, works: Sequence[ShardWork]) -> Sequence[ReadShard]:
        """Read shards into memory."""
        return list(in_order(read_shard, works, self.threads))

    def over(self, shards: Sequence[Any], task: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """The results of a task over the shards."""
        yield from in_order(lambda shard: task(shard, *given), shards, self.threads)


@dataclass(frozen=True)
class OnWorkers:
    """The workers of a cluster. The shards of one that dies are read again by others."""

    cluster: Cluster

    def hold(self, works: Sequence[ShardWork]) -> Sequence[Any]:
        """Have the workers read shards."""
        return self.cluster.held(read_shard, works)

    def over(self, shards: Sequence[Any], task: Callable[..., Any], *given: Any) -> Iterator[Any]:
        """The results of a task over the shards."""
        return self.cluster.over(shards, task, *given)


@dataclass
class ShardedPictures(CollectionPart):
    """The pictures to learn from, or those held out, in shards that a holder has."""

    settings: CollectionSettings
    holder: Holder
    share: float
    sizes: Sequence[int]  # how many patches each file says it has
    _facts: list[ShardFacts] = field(default_factory=list)
    _shards: Sequence[Any] = ()

    def read_on(self) -> Iterator[str | None]:
        """Have all files read; of each, the sentence that says why it cannot be learnt from."""
        works = self._works()
        self._shards = self.holder.hold(works)
        for work, (facts, told) in zip(works, self.holder.over(self._shards, facts_of), strict=True):
            self._facts.append(facts)
            for file, (floats, problem) in zip(work.files, told, strict=True):
                self.take_down(file.name, floats, problem)
                yield problem

    @property
    def filled(self) -> int:
        """How many patches there are."""
        return sum(facts.count for facts in self._facts)

    @property
    def shards(self) -> int:
        """In how many shards the patches lie."""
        return len(self._works())

    def state(self) -> Arrays:
        """Nothing of the patches is kept in checkpoints: they are read again."""
        return {}

    def restore(self, progress: Mapping[str, Any], state: Arrays) -> None:
        """Go on from a checkpoint, which here is to read everything."""
        del progress, state

    def patches(self) -> ShardedSet:
        """The patches, as they are learnt from."""
        return ShardedSet(tuple(self._facts), partial(self.holder.over, self._shards, code_shard))

    def _works(self) -> list[ShardWork]:
        """The files in shards, in their order."""
        works, files, room = list[ShardWork](), list[ShardFile](), SHARD_PATCHES
        for number, (item, size) in enumerate(zip(self.collection.inputs, self.sizes, strict=True)):
            assert item.path is not None
            if files and size > room:  # a shard holds whole pictures, however few of their patches are learnt from
                works.append(ShardWork(tuple(files), self.settings, self.number, self.share))
                files, room = [], SHARD_PATCHES
            room -= size
            files.append(ShardFile(item.for_workers(), number, item.name))
        return [*works, ShardWork(tuple(files), self.settings, self.number, self.share)] if files else works


def patches_of(item: Input, size: int) -> int:
    """How many patches a file has, as its headers say; none where they cannot be read."""
    try:
        specs = read_picture(item.path).specs
    except DstlError:
        return 0
    return sum(max(0, spec.height - size + 1) * max(0, spec.width - size + 1) for spec in specs)


def in_shards(
    settings: CollectionSettings,
    pictures: Selection,
    held_out: Selection,
    holder: Holder,
    *,
    wanted: int | None,
) -> tuple[CollectionSettings, ShardedPictures, ShardedPictures]:
    """Both parts of a training in shards, and its settings with the number of patches (wanted: None: all there are)."""
    count = partial(patches_of, size=settings.patch_size)
    sizes = [list(in_order(count, part.inputs, available_cores())) for part in (pictures, held_out)]
    totals = [max(1, sum(part)) for part in sizes]
    settings = replace(settings, train_patches=min(wanted or totals[0], totals[0]))
    shares = (settings.train_patches / totals[0], min(1.0, max(1, settings.train_patches // 10) / totals[1]))
    parts = [
        ShardedPictures(number, option, part, settings, holder, share, own)
        for number, option, part, share, own in zip(
            (0, 1), ("PATH", "--validation"), (pictures, held_out), shares, sizes, strict=True
        )
    ]
    return settings, parts[0], parts[1]
