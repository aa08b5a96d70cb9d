"""Parts on threads: results in order, errors out, never many waiting, and one BLAS thread meanwhile."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from dstl_cli import denoise
from dstl_cli.base import threads
from dstl_cli.base.threads import in_order, one_blas_thread

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


@pytest.fixture
def own_number() -> Iterator[list[int]]:
    """BLAS with a number of threads that no guard would set, whatever the machine has."""
    with threadpool_limits(limits=3, user_api="blas"):
        yield blas_threads()


@given(st.lists(st.integers(0, 3), max_size=20))
def test_the_first_in_sets_the_limit_and_the_last_out_restores_it(steps: list[int]) -> None:
    """Holders come and go in any order, the same one several times: as threads do."""
    with threadpool_limits(limits=3, user_api="blas"):
        before = blas_threads()
        holders: dict[int, list[ExitStack]] = {number: [] for number in range(4)}
        for number in steps:
            if len(holders[number]) < 2:
                holder = ExitStack()
                holder.enter_context(one_blas_thread())
                holders[number].append(holder)
            else:
                holders[number].pop(0).close()
            inside = sum(map(len, holders.values()))
            assert blas_threads() == ([1] * len(before) if inside else before)
        for held in holders.values():
            for holder in held:
                holder.close()
        assert blas_threads() == before


def test_two_threads_that_overlap_leave_the_number_as_it_was(own_number: list[int]) -> None:
    first_inside, second_inside, first_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with one_blas_thread():
            first_inside.set()
            assert second_inside.wait(10)
        first_out.set()

    def second() -> list[int]:
        assert first_inside.wait(10)
        with one_blas_thread():
            second_inside.set()
            assert first_out.wait(10)
            return blas_threads()

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(first), pool.submit(second)
        one.result()
        assert set(other.result()) == {1}
    assert blas_threads() == own_number


def test_threads_that_denoise_leave_the_number_as_it_was(own_number: list[int]) -> None:
    noisy = np.random.default_rng(0).normal(128, 20, (40, 40))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: denoise(noisy, sigma=20, quality="fast"), range(8)))
    assert blas_threads() == own_number
    for result in results:
        np.testing.assert_array_equal(result, results[0])


@JOBS
def test_errors_and_listeners_that_leave_give_the_number_back(jobs: int, own_number: list[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda part: 1 // part, [1, 0, 1], jobs))
    assert blas_threads() == own_number
    results = in_order(str, range(100), jobs)
    next(results)
    assert set(blas_threads()) == {1}
    del results
    assert blas_threads() == own_number
    with pytest.raises(KeyboardInterrupt), one_blas_thread(), one_blas_thread():
        raise KeyboardInterrupt
    assert blas_threads() == own_number


class NumberInEachThread(threading.local):
    """A BLAS over OpenMP: every thread has its own number of threads, and begins with four."""

    number = 4

    def get_num_threads(self) -> int:
        return self.number

    def set_num_threads(self, number: int) -> None:
        self.number = number


def test_numbers_that_each_thread_has_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    library = NumberInEachThread()
    monkeypatch.setattr(threads, "_blas_libraries", lambda: ([], [library]))
    first_inside, second_out = threading.Event(), threading.Event()

    def first() -> list[int]:
        with one_blas_thread():
            first_inside.set()
            assert second_out.wait(10)
            inside = library.number
        return [inside, library.number]

    def second() -> list[int]:
        assert first_inside.wait(10)
        with one_blas_thread():
            inside = library.number
        second_out.set()
        return [inside, library.number]

    with ThreadPoolExecutor(2) as pool:
        assert [future.result() for future in (pool.submit(first), pool.submit(second))] == [[1, 4], [1, 4]]
    for jobs in (1, 3):
        assert set(in_order(lambda _: library.number, range(6), jobs)) == {1}
    ahead, behind = in_order(str, range(9), 1), in_order(str, range(9), 1)
    assert next(ahead) + next(behind) == "00"
    del ahead
    assert library.number == 1
    del behind
    assert library.number == 4
