"""Workers behind a Dask scheduler: connecting to them, and giving them parts of the work.

Nothing of Dask is imported without `--scheduler`. Parts go out in a sliding window, so that neither the scheduler nor
this process ever holds more than a few for each worker; a part is run by a function of a module with plain arguments.
"""

import json
import logging
import re
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from queue import Empty, Queue
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import uuid4

from dstl_cli.base.names import display_name
from dstl_cli.base.regular import open_regular
from dstl_cli.base.scratch import SHARE, Memory
from dstl_cli.base.threads import available_cores
from dstl_cli.errors import DstlError, UsageProblem
from dstl_cli.picture.decoding.asking import reading
from dstl_cli.version import __version__

Part = TypeVar("Part")
Result = TypeVar("Result")
Item = TypeVar("Item")

CONNECT_SECONDS = 10
HERE = "127.0.0.1"
WAIT_SECONDS = 0.1  # between two looks whether there are workers
VERSION_THERE = "__import__('dstl_cli.version').version.__version__"  # what a worker finds out; it may not have dstl
MOST_BYTES = 1_000_000  # of the file that a scheduler wrote
COUNT_SECONDS = 2  # after which the workers are counted again
WINDOW = 4  # parts for each worker that are out at a time
_here = threading.Lock()  # held by the task that runs in this worker process: one at a time, its threads are ours


@dataclass(frozen=True)
class Lost:
    """A part without a result: its workers died, as often as the scheduler allows, or something unforeseen happened."""

    reason: str

    def sentence(self, name: str) -> str:
        """What is told of it."""
        return f"{name} is left out: {self.reason}, also when it was tried alone."


@dataclass(frozen=True)
class Means:
    """What a worker has for a part: threads, and memory where its process is limited."""

    threads: int
    memory: int | None

    def limits(self, memory: Memory) -> Memory:
        """How much memory the work on a picture may take there: what was asked for, else its share of the process's."""
        if memory.most is not None or self.memory is None:
            return memory
        return replace(memory, most=int(SHARE * self.memory))


Task = Callable[[Part, Means], Result]


@dataclass(frozen=True)
class Cluster:
    """A thin client of a scheduler.

    threads: of a part on a worker; None: as many as the worker has. trusted: whether workers decode files themselves.
    """

    client: Any
    address: str
    threads: int | None
    trusted: bool = False

    @property
    def workers(self) -> int:
        """How many worker processes there are now."""
        return len(self.client.nthreads())

    def completed(
        self, task: Task[Part, Result], parts: Iterable[Part], most: int | None = None
    ) -> Iterator[tuple[Part, Result | Lost]]:
        """The results of `task` over the parts, as they come.

        task: a function of a module, which the workers have. most: parts that are out at a time, where that is not to
        follow the number of workers. What of ours is wrong on a worker ends the whole; parts that are out when nobody
        asks any more are cancelled.
        """
        from distributed import as_completed

        name, waiting, out = f"{task.__name__}-{uuid4().hex}", enumerate(parts), dict[Any, Part]()
        finished, workers, counted = as_completed(loop=self.client.loop), self.checked_workers(), monotonic()
        try:
            while True:
                if monotonic() > counted + COUNT_SECONDS:
                    workers, counted = self.workers, monotonic()
                room = (most or WINDOW * max(1, workers)) - len(out)
                for number, part in islice(waiting, max(0, room)):
                    future = self._submit((name, number), _run, task, part)
                    out[future] = part
                    finished.add(future)
                if not out:
                    return
                future = next(finished)
                if future.status in ("lost", "pending"):  # its worker has died with the result, and it runs again
                    finished.add(future)
                    continue
                yield out.pop(future), self._outcome(future)
        finally:
            self.client.cancel(list(out), force=True)

    def each(
        self,
        task: Task[Part, list[Result]],
        items: Iterable[Item],
        cut: Callable[[Iterable[Item], int], Iterator[list[Item]]],
        make: Callable[[list[Item]], Part],
        most: int = 1,
    ) -> Iterator[tuple[Item, Result | Lost]]:
        """The result of each item, as they come; they travel in parts.

        First in parts of at most so many items; the items of lost parts one by one; what is lost again alone, with
        nothing of ours beside it. So an item is blamed for dead workers only if it was alone with them.

        cut: items into batches of at most so many. make: a batch into a part, of which the task gives a result for each
        item.
        """
        left, lost = items, list[tuple[Item, Lost]]()
        for size, at_a_time in dict.fromkeys(((most, None), (1, None), (1, 1))):
            out: dict[int, list[Item]] = {}
            parts = _noted(cut(left, size), make, out)
            lost.clear()
            for part, results in self.completed(task, parts, at_a_time):
                batch = out.pop(id(part))
                if isinstance(results, Lost):
                    lost += [(item, results) for item in batch]
                else:
                    yield from zip(batch, results, strict=True)
            left = [item for item, _ in lost]
            if not left:
                return
        yield from lost

    def checked_workers(self) -> int:
        """How many workers there are, once there is one; all of them must have this version of dstl.

        Dask itself never says so where a worker cannot load what it is sent.
        """
        wanted = self.client.submit(abs, 0, pure=False)  # what makes clusters that grow with the work begin
        while not self.workers:
            sleep(WAIT_SECONDS)
        wanted.release()
        told = self.client.run(eval, VERSION_THERE, on_error="return")
        for found in told.values():
            if isinstance(found, ImportError):
                remedy = f"install dstl-cli[cluster] {__version__} where they run"
                raise DstlError(f"The workers cannot load dstl ({found}); {remedy}.")
            if not isinstance(found, Exception):  # of a worker that dies meanwhile
                _check_version(found)
        return len(told)

    def held(self, task: Callable[[Part], Any], parts: Iterable[Part]) -> list[Any]:
        """The results of a task over parts, which stay with the workers; what is lost with a worker is made again."""
        self.checked_workers()
        return self._submitted(task, parts)

    def over(self, held: Iterable[Any], task: Callable[..., Result], *given: Any) -> Iterator[Result]:
        """The results of `task(part, *given)` over parts that workers hold, in their order."""
        futures = deque(self._submitted(task, held, *given))
        while futures:
            result = self._outcome(futures.popleft())
            if isinstance(result, Lost):
                raise DstlError(f"A part of the work was not done: {result.reason}; look at the logs of the workers.")
            yield result

    def _submitted(self, task: Callable[..., Any], parts: Iterable[Any], *given: Any) -> list[Any]:
        """A task over parts, or what workers hold, as Dask's futures."""
        name = f"{task.__name__}-{uuid4().hex}"
        return [self._submit((name, number), _run_on, task, part, given) for number, part in enumerate(parts)]

    def _submit(self, key: tuple[str, int], run: Callable[..., Any], *given: Any) -> Any:
        """What a worker is to run, with what all of ours is run with, as Dask's future."""
        return self.client.submit(run, *given, self.threads, self.trusted, key=key, pure=False)

    def _outcome(self, future: Any) -> Any:
        """The result of a part, or why there is none."""
        try:
            result = future.result()
        except CancelledError:
            gone = f"The scheduler {self.address} has gone away"
            raise DstlError(f"{gone}; the same command with --resume goes on.") from None
        except Exception as error:
            died = type(error).__name__ == "KilledWorker"
            return Lost("the workers that had it died" if died else " ".join(f"{type(error).__name__} {error}".split()))
        if isinstance(result, DstlError):
            raise result
        return result


def batches_of_one(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Items in batches of one, however many they may be of."""
    del most
    yield from ([item] for item in items)


def _noted(
    batches: Iterator[list[Item]], make: Callable[[list[Item]], Part], out: dict[int, list[Item]]
) -> Iterator[Part]:
    """The parts that batches make, each noted in `out` when it is asked for."""
    for batch in batches:
        part = make(batch)
        out[id(part)] = batch
        yield part


def _check_version(worker: str) -> None:
    """Refuse workers of another version, which may give other bytes."""
    if worker != __version__:
        both = f"A worker has dstl {worker} and this command is {__version__}"
        raise DstlError(f"{both}; install the same version on all machines.")


def _run(task: Task[Part, Result], part: Part, threads: int | None, trusted: bool) -> Result | DstlError | Lost:
    """Run a part in a worker process, one at a time.

    Errors are results: what goes wrong where Dask sends an exception with its traceback is never heard of.
    """
    from distributed import get_worker

    worker = get_worker()
    means = Means(threads or worker.state.nthreads, worker.memory_manager.memory_limit or None)
    try:
        with _here, warnings.catch_warnings(), reading(trusted=True) if trusted else nullcontext():
            warnings.simplefilter("ignore")  # those of libraries: workers of `local` share our terminal
            return task(part, means)
    except DstlError as error:
        return error
    except Exception as error:
        return Lost(" ".join(f"{type(error).__name__} {error}".split()))


def _run_on(task: Callable[..., Any], part: Any, given: tuple[Any, ...], threads: int | None, trusted: bool) -> Any:
    """Run a task on what a worker holds, or on a part; what went wrong before stays wrong."""
    if isinstance(part, (DstlError, Lost)):
        return part
    return _run(lambda own, means: task(own, *given), part, threads, trusted)


@contextmanager
def connected(address: str, threads: int | None = None, *, trusted: bool = False) -> Iterator[Cluster]:
    """The workers behind an address: a scheduler's own, the file it wrote, or `local[:N]` for N processes here.

    threads: of a part on a worker; None: all that the worker has. trusted: whether workers decode files themselves.
    """
    try:
        import distributed
    except ImportError:
        raise UsageProblem("--scheduler needs Dask; install dstl-cli[cluster].") from None
    import dask

    for name in ("distributed", "distributed.client"):  # those that Dask gives levels of their own
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters of it is told in our own words
    local = re.fullmatch(r"local(?::(\d{1,4}))?", address)
    if local is not None and local[1] is not None and int(local[1]) == 0:
        raise UsageProblem(f"--scheduler local:N takes at least one process, not {address}.")
    with dask.config.set({"logging.distributed": "critical", "distributed.comm.timeouts.connect": CONNECT_SECONDS}):
        if local is None:
            target = scheduler_address(address)
            with _client_of(target) as client:
                yield Cluster(client, target, threads, trusted)
            return
        cores, count = available_cores(), int(local[1] or 0)
        count = count or max(1, cores // (threads or 1))
        each = threads or max(1, cores // count)
        with _local_workers(count) as workers, distributed.Client(workers, set_as_default=False) as client:
            yield Cluster(client, address, each, trusted)


@contextmanager
def _local_workers(count: int) -> Iterator[Any]:
    """A scheduler in this process and so many worker processes of one task each."""
    import distributed

    with _without_ctrl_c():
        workers = distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host=HERE,
            dashboard_address=f"{HERE}:0",  # Dask serves its state in any case: to nobody else, and at a free port
            worker_dashboard_address=f"{HERE}:0",
            silence_logs=logging.CRITICAL,
            scheduler_kwargs={"allowed_failures": 1},
        )
    with workers:
        yield workers


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Threads and processes that are begun here never hear of Ctrl-C, which a terminal sends to all of them.

    This process hears of it at the end of the block, and ends the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would open the signals again where it is begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def scheduler_address(address: str) -> str:
    """Where a scheduler listens, from its address or the file that it wrote."""
    if "://" in address:
        return address
    path = Path(address)
    if not path.exists():
        if re.fullmatch(r"[\w.-]+:\d{1,5}", address):
            return f"tcp://{address}"
        takes = "the address of a Dask scheduler such as tcp://host:8786, the file that it wrote, or local[:N]"
        raise UsageProblem(f"--scheduler takes {takes}, not {display_name(address)}.")
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError), open_regular(path) as stream:
        found = json.loads(stream.read(MOST_BYTES))["address"]
        if isinstance(found, str):
            return found
    raise UsageProblem(f"{display_name(path)} is not the file of a Dask scheduler; give another one.")


def _client_of(address: str) -> Any:
    """A client of a scheduler that answers in time; asked for in a thread, as it waits for ever for silent ones."""
    import distributed

    answers: Queue[Any] = Queue()

    def ask() -> None:
        try:
            answers.put(distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    answer: Any = None
    with suppress(Empty):
        answer = answers.get(timeout=CONNECT_SECONDS + 1)
    if answer is None or isinstance(answer, Exception):
        what = f"No Dask scheduler answers at {display_name(address)} within {CONNECT_SECONDS} s"
        raise UsageProblem(f"{what}; check the address and that it runs.") from answer
    return answer
