"""The learning loop: code, update, record; it knows no terminal and no file."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dstl_cli.base.arrays import Array, Levels
from dstl_cli.base.checks import require
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import LearnSettings
from dstl_cli.learning.spectrum import condition_number
from dstl_cli.patches.coding import CodingPass, check_levels, keep_largest
from dstl_cli.transforms.canonical import CANONICAL
from dstl_cli.transforms.transform import Iteration, Transform


@dataclass(frozen=True)
class Shard:
    """Training patches in the domain of Phi without their means (N, n), and the sparsity level of each (N,)."""

    coefficients: Array
    levels: Levels

    @classmethod
    def from_patches(cls, patches: Array, levels: Levels | int, canonical: str = "dct") -> "Shard":
        """The shard of pixel patches (N, n); one level for all, or one each."""
        count, n = patches.shape
        all_levels = np.broadcast_to(np.asarray(levels, dtype=np.int64), (count,))
        check_levels(all_levels, n)
        return cls(patches @ CANONICAL[canonical].matrix(round(np.sqrt(n))).T, all_levels)


@dataclass(frozen=True)
class Learnt:
    """A learnt transform, how it came about, and why the loop ended."""

    transform: Transform
    history: tuple[Iteration, ...]
    stop_reason: str  # "iterations" or "no variance"


def gram_matrix(shards: Iterable[Shard]) -> Array:
    """Yt Yt' over all shards, (n, n)."""
    return np.asarray(sum(shard.coefficients.T @ shard.coefficients for shard in shards))


def code_shards(factor: Array, shards: Iterable[Shard]) -> CodingPass:
    """X = H(T Yt) over all shards, reduced to what the updates and the record need."""
    cross = np.zeros_like(factor)
    left_out = energy = 0.0
    for shard in shards:
        codes, shard_left_out, shard_energy = keep_largest(shard.coefficients @ factor.T, shard.levels)
        cross += codes.T @ shard.coefficients
        left_out += shard_left_out
        energy += shard_energy
    return CodingPass(cross, float(np.sqrt(left_out)), float(np.sqrt(energy)))


def iteration_of(
    number: int, factor: Array, coded: CodingPass, *, apart: int = 0, condition: float | None = None
) -> Iteration:
    """The line of the history for T and its codes.

    apart: rows of T, with one entry each, that are not learnt. condition: where known; measured if not.
    """
    density = float((np.count_nonzero(factor) + apart) / (len(factor) + apart) ** 2)
    measured = condition_number(factor) if condition is None else condition
    return Iteration(number, coded.error, coded.relative_error, measured, density)


def learn(
    shards: Sequence[Shard],
    config: LearnSettings,
    *,
    canonical: str = "dct",
    start: Array | None = None,
    final: bool = True,
    observer: Callable[[Iteration, Array], None] | None = None,
) -> Learnt:
    """Learn a transform from `shards`; the observer sees every record and its T as they come.

    start: the T to begin from instead of the method's own choice. final: False where learning goes on from the
    result later; then it is not brought within the bounds yet, and no history is kept.
    """
    require(any(len(shard.coefficients) for shard in shards), "There are no patches to learn from.")
    finite = all(np.isfinite(shard.coefficients).all() for shard in shards)
    require(finite, "The patches to learn from hold numbers that are not finite.")
    gram = gram_matrix(shards)
    n = len(gram)
    patch_size = round(np.sqrt(n))
    if not np.trace(gram) > 0:
        scale = config.norm_for(n) / np.sqrt(n) if METHODS[config.method].learns else 1.0
        return Learnt(Transform(patch_size, np.eye(n) * scale, config.method, canonical), (), "no variance")
    method = METHODS[config.method].make(gram, config)
    factor = method.start(code_shards(np.eye(n), shards).cross) if start is None else method.resume(start)
    coded = code_shards(factor, shards)
    history: list[Iteration] = []
    for number in range(1, config.iterations + 1):
        factor = method.update(factor, coded.cross)
        coded = code_shards(factor, shards)
        if final:
            history.append(iteration_of(number, factor, coded))
            if observer is not None:
                observer(history[-1], factor)
    if final:
        factor = method.deliver(factor)
    return Learnt(Transform(patch_size, factor, config.method, canonical), tuple(history), "iterations")
