"""Work cut into parts, on several threads, with the results in the order of the parts."""

import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from dstl_cli.base.progress import Progress, part_of

LARGE = 2**24  # bytes of an array that has memory of its own

Part = TypeVar("Part")
Result = TypeVar("Result")


class _OneThread:
    """One thread for some BLAS libraries while anybody holds it: the first in sets it, the last out restores."""

    holders = 0
    before: Sequence[int] = ()

    def count(self, step: int, libraries: list[Any]) -> None:
        """Somebody comes (1) or goes (-1)."""
        if self.holders == 0:
            self.before = [library.get_num_threads() for library in libraries]
            _set_threads(libraries, [1] * len(libraries))
        self.holders += step
        if self.holders == 0:
            _set_threads(libraries, self.before)


class _OneThreadHere(_OneThread, threading.local):
    """The same for each thread by itself."""


_in_process, _in_thread, _lock = _OneThread(), _OneThreadHere(), threading.Lock()


@lru_cache(maxsize=1)
def _blas_libraries() -> tuple[list[Any], list[Any]]:
    """Those loaded that have one number of threads in the whole process, and those with one in each thread (OpenMP)."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers  # looking for them takes a while
    own = [library for library in found if getattr(library, "threading_layer", "") == "openmp"]
    return [library for library in found if library not in own], own


def _set_threads(libraries: list[Any], numbers: Sequence[int]) -> None:
    for library, number in zip(libraries, numbers, strict=True):
        # From threadpoolctl 3.8 on only the thread that was first may set it, and others fail silently.
        free = getattr(library, "clear_controlling_thread", lambda force: None)
        free(force=True)
        library.set_num_threads(number)
        free(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS in one thread: our own threads share the cores, and products do not depend on how many there are.

    However many threads of the process are in it at a time, the numbers of before are back when all are out.
    """
    shared, own = _blas_libraries()
    with _lock:
        _in_process.count(1, shared)
        _in_thread.count(1, own)
    try:
        yield
    finally:
        with _lock:
            _in_thread.count(-1, own)
            _in_process.count(-1, shared)


def in_order(run: Callable[[Part], Result], parts: Iterable[Part], jobs: int) -> Iterator[Result]:
    """Results of `run` over `parts` in order, on `jobs` threads, never many more of them waiting than threads."""
    with one_blas_thread():
        if jobs == 1:
            yield from map(run, parts)
            return
        with ThreadPoolExecutor(jobs, initializer=lambda: _in_thread.count(1, _blas_libraries()[1])) as pool:
            waiting: deque[Future[Result]] = deque()
            try:
                for part in parts:
                    waiting.append(pool.submit(run, part))
                    if len(waiting) > 2 * jobs:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def allocated(shape: tuple[int, int], dtype: Any) -> Any:
    """An array in memory; that of a large one goes back to the system with its last use, which malloc may put off."""
    import numpy as np

    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


@dataclass(frozen=True)
class Execution:
    """How work is done: on how many threads, who is told how far it is, and where large arrays are kept.

    wanted: the box of the picture (`pixels/planes.py: Box`) that is asked for; None: all that the window allows.
    """

    threads: int = 1
    progress: Progress | None = None
    allocate: "Callable[[tuple[int, int], Any], Any]" = allocated
    wanted: Any = None

    def over(self, parts: Sequence[Part], run: Callable[[Part], Result]) -> Iterator[Result]:
        """Results of `run` over the parts in order."""
        for done, result in enumerate(in_order(run, parts, self.threads), start=1):
            yield result
            if self.progress is not None:
                self.progress(done / len(parts))

    def part(self, index: int, count: int) -> "Execution":
        """The execution of the index-th of `count` equal parts of the work."""
        return replace(self, progress=part_of(self.progress, index, count))
