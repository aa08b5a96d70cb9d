"""Many pictures on the workers of a cluster: in batches, tried again where workers die, and what kills them is named.

A worker takes the same road as this machine (`DenoiseRun.on_this_machine`), so the files are the same to the byte.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dstl_cli.base.locks import one_process_at_a_time
from dstl_cli.base.progress import Progress
from dstl_cli.denoising.survey import Request
from dstl_cli.errors import DstlError
from dstl_cli.measure.trials import warm_up
from dstl_cli.picture.inputs import Input, Job, Selection, from_root
from dstl_cli.run.cluster import Cluster, Lost, Means
from dstl_cli.run.files import DenoisedFile, DenoiseRun, is_large

Ended = tuple[Job, DenoisedFile | DstlError]

BATCH_FILES, BATCH_BYTES = 64, 64 * 2**20  # of a batch at most
BATCHES_EACH = 8  # for each worker at least, where there are enough pictures: then all of them end together
NOTHING = Selection((), (), (), several=True)
_warm: set[str] = set()  # qualities whose kernels this process has


def denoise_batch(run: DenoiseRun, means: Means) -> list[DenoisedFile | DstlError]:
    """Denoise the pictures of a batch in a worker process."""
    warm_once(run.request)
    request = replace(run.request, jobs=means.threads, memory=means.limits(run.request.memory))
    here = replace(run, request=request)
    return [finished for _, finished in here.on_this_machine(None, lambda text: None)]


def warm_once(request: Request) -> None:
    """Load the kernels of a quality; the first process of a machine compiles them, and the others wait for it."""
    if request.quality.name not in _warm:
        user = os.getuid() if hasattr(os, "getuid") else "all"
        with one_process_at_a_time(Path(tempfile.gettempdir(), f".dstl-kernels-{user}")):
            warm_up(request)
        _warm.add(request.quality.name)


@dataclass(frozen=True)
class OnCluster:
    """Does the work of a run on a cluster, as its `executor`."""

    cluster: Cluster

    def __call__(self, run: DenoiseRun, progress: Progress | None, describe: Callable[[str], None]) -> Iterator[Ended]:
        """What becomes of each picture, as soon as it is known."""
        done, failed, read, total = 0, 0, 0, len(run.todo)
        for job, finished in self._ended(run):
            yield job, finished
            done, failed, read = done + 1, failed + isinstance(finished, DstlError), read + size_of(job.source)
            describe(f"{done} of {total} files, {read / 2**20:.0f} MiB" + (f", {failed} failed" if failed else ""))
            if progress is not None:
                progress(done / total)

    def _ended(self, run: DenoiseRun) -> Iterator[Ended]:
        """First in batches; the files of lost batches one by one; what is lost again alone, with nothing beside it.

        So a file is blamed for dead workers only if it was alone with them. Large pictures come last, one at a time on
        all workers.
        """
        large = [job for job in run.todo if is_large(job.source)]
        apart = set(map(id, large))
        left: Sequence[Job] = [job for job in run.todo if id(job) not in apart]
        share = math.ceil(len(left) / (BATCHES_EACH * max(1, self.cluster.workers)))
        reasons: list[str] = []
        for files, at_a_time in ((min(share, BATCH_FILES), None), (1, None), (1, 1)):
            tried, lost = Batches(run, left, files), list[Job]()
            reasons.clear()
            for part, result in self.cluster.completed(denoise_batch, tried.parts(), at_a_time):
                jobs = tried.taken_back(part)
                if isinstance(result, Lost):
                    lost += jobs
                    reasons += [result.reason] * len(jobs)
                else:
                    yield from zip(jobs, result, strict=True)
            left = lost
        for job, reason in zip(left, reasons, strict=True):
            yield job, DstlError(f"{job.source.name} is left out: {reason}, also when it was tried alone.")
        in_tiles = replace(run, todo=large, cluster=self.cluster, executor=None, journal=None)
        yield from in_tiles.on_this_machine(None, lambda text: None)


@dataclass
class Batches:
    """The pictures of a run as runs for workers, which have their own folders: all paths are whole."""

    run: DenoiseRun
    jobs: Sequence[Job]
    files: int  # of a batch at most
    _out: dict[int, list[Job]] = field(default_factory=dict)

    def parts(self) -> Iterator[DenoiseRun]:
        """One batch after the other, made when it is asked for."""
        batch, size = list[Job](), 0
        for job in self.jobs:
            own = size_of(job.source)
            if batch and (len(batch) == self.files or size + own > BATCH_BYTES):
                yield self._part(batch)
                batch, size = [], 0
            batch.append(job)
            size += own
        if batch:
            yield self._part(batch)

    def taken_back(self, part: DenoiseRun) -> list[Job]:
        """The pictures of a part that is no longer out, as this machine calls them."""
        return self._out.pop(id(part))

    def _part(self, jobs: list[Job]) -> DenoiseRun:
        """A batch as a run.

        With resume: what a worker wrote before it died is made again and must be the same.
        """
        there = [for_workers(job) for job in jobs]
        shared = self.run.shared
        if shared is not None:
            shared = shared.limited_to({here.source: job.source for here, job in zip(jobs, there, strict=True)})
        part = replace(
            self.run,
            found=NOTHING,
            todo=there,
            done_before=(),
            records=[],
            shared=shared,
            executor=None,
            journal=None,
            resume=True,
        )
        self._out[id(part)] = jobs
        return part


def for_workers(job: Job) -> Job:
    """A picture with its paths from the root, under the name that it has here."""
    return Job(job.source.for_workers(), *map(from_root, (job.output, job.residual, job.compare)))


def size_of(item: Input) -> int:
    """Bytes of a file; 0 where that is not known."""
    with suppress(OSError, ValueError):
        return os.path.getsize(item.path) if isinstance(item.path, Path) else item.size or 0
    return 0
