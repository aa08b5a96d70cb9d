"""Parts on threads: results in order, errors out, never many waiting, and one BLAS thread meanwhile."""

import random
import threading
import time
from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_info

from dstl_cli.threads import in_order, one_blas_thread

JOBS = pytest.mark.parametrize("jobs", [1, 2, 5])


@JOBS
def test_results_come_in_the_order_of_the_parts(jobs: int) -> None:
    rng = random.Random(0)
    naps = [rng.uniform(0, 0.003) for _ in range(40)]

    def run(index: int) -> int:
        time.sleep(naps[index])
        return index * index

    assert list(in_order(run, range(40), jobs)) == [index * index for index in range(40)]


@JOBS
def test_no_parts_give_no_results(jobs: int) -> None:
    assert list(in_order(str, [], jobs)) == []
    assert list(in_order(str, [7], jobs)) == ["7"]


@JOBS
def test_an_error_comes_out_and_ends_the_work(jobs: int) -> None:
    started: list[int] = []

    def run(index: int) -> int:
        started.append(index)
        time.sleep(0.001)
        if index == 3:
            raise ValueError("the fourth part failed")
        return index

    seen: list[int] = []
    with pytest.raises(ValueError, match="the fourth part failed"):
        seen.extend(in_order(run, range(1000), jobs))
    assert seen == [0, 1, 2]
    assert len(started) <= 3 + 1 + 2 * jobs + 1
    threads = threading.active_count()
    time.sleep(0.01)
    assert len(started) <= 3 + 1 + 2 * jobs + 1, "the work went on"
    assert threading.active_count() <= threads


def test_parts_that_wait_when_another_fails_are_never_begun() -> None:
    """Two threads have a few parts waiting when the first fails: what one of them may begin meanwhile is the last."""
    begun: list[int] = []
    handed_over = threading.Event()

    def parts() -> Iterator[int]:
        yield from range(4)
        handed_over.set()
        yield from range(4, 100)

    def run(index: int) -> int:
        begun.append(index)
        if index == 0:
            handed_over.wait(10)
            raise ValueError("the first part failed")
        time.sleep(0.3)
        return index

    with pytest.raises(ValueError, match="the first part failed"):
        list(in_order(run, parts(), 2))
    assert begun[:2] == [0, 1]
    assert len(begun) <= 3


@JOBS
def test_errors_of_the_parts_themselves_come_out(jobs: int) -> None:
    def parts() -> Iterator[int]:
        yield 1
        raise OSError("no more parts")

    with pytest.raises(OSError, match="no more parts"):
        list(in_order(str, parts(), jobs))


@JOBS
def test_who_stops_listening_stops_the_work(jobs: int) -> None:
    started: list[int] = []

    def run(index: int) -> int:
        started.append(index)
        time.sleep(0.001)
        return index

    results = in_order(run, range(1000), jobs)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    count = len(started)
    assert count <= 2 * jobs + 1
    time.sleep(0.01)
    assert len(started) == count


@JOBS
def test_parts_are_taken_only_as_they_are_needed(jobs: int) -> None:
    """However slowly the results are fetched, only a few parts are ahead of them."""
    taken = 0

    def parts() -> Iterator[int]:
        nonlocal taken
        for index in range(60):
            taken += 1
            yield index

    for done, _ in enumerate(in_order(lambda index: index, parts(), jobs), start=1):
        time.sleep(0.0005)
        assert taken - done <= 2 * jobs


def test_no_more_parts_run_at_once_than_there_are_threads() -> None:
    lock = threading.Lock()
    running = most = 0

    def run(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1

    list(in_order(run, range(30), 3))
    assert 2 <= most <= 3


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@JOBS
def test_blas_has_one_thread_in_every_part_and_its_own_number_afterwards(jobs: int) -> None:
    before = blas_threads()
    assert before, "numpy's BLAS must be found"
    for inside in in_order(lambda _: blas_threads(), range(4), jobs):
        assert set(inside) == {1}
    assert blas_threads() == before
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
