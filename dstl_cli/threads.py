"""Work cut into parts, on several threads, with the results in the order of the parts."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks through all loaded libraries, which takes longer than a small product


def one_blas_thread() -> AbstractContextManager[object]:
    """BLAS in one thread: our own threads share the cores, and products do not depend on how many there are."""
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


def in_order(run: Callable[[Part], Result], parts: Iterable[Part], jobs: int) -> Iterator[Result]:
    """Results of `run` over `parts` in order, on `jobs` threads, never many more of them waiting than threads."""
    with one_blas_thread():
        if jobs == 1:
            yield from map(run, parts)
            return
        with ThreadPoolExecutor(jobs) as pool:
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
