"""Many pictures on the workers of a cluster: denoised in batches, or measured one by one.

A worker takes the same road as this machine (`DenoiseRun.on_this_machine`), so the files are the same to the byte.
"""

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dstl_cli.base.locks import one_process_at_a_time
from dstl_cli.base.progress import FilesDone, Progress, part_of
from dstl_cli.denoising.survey import Request
from dstl_cli.errors import DstlError
from dstl_cli.measure.trials import warm_up
from dstl_cli.picture.inputs import Job, Selection, from_root, size_of
from dstl_cli.run.cluster import Cluster, Lost, Means, batches_of_one
from dstl_cli.run.evaluation import Evaluation, Measured, MeasureWork
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
    ends = {id(job): finished for job, finished in here.on_this_machine(None, lambda text: None)}
    return [ends[id(job)] for job in run.todo]


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
        files = FilesDone(len(run.todo))
        for job, finished in self._ended(run, progress):
            yield job, finished
            describe(files.add(size_of(job.source), failed=isinstance(finished, DstlError)))
            if progress is not None:
                progress(files.count / files.total)

    def _ended(self, run: DenoiseRun, progress: Progress | None) -> Iterator[Ended]:
        """The small pictures in batches, then the large ones, one at a time on all workers."""
        large: list[Job] = []
        small = _without_large(run.todo, large)
        share = math.ceil(len(run.todo) / (BATCHES_EACH * max(1, self.cluster.workers)))
        most = min(max(1, share), BATCH_FILES)
        for job, end in self.cluster.each(denoise_batch, small, batches, partial(part_of_run, run), most):
            yield job, DstlError(end.sentence(job.source.name)) if isinstance(end, Lost) else end
        in_tiles = replace(run, todo=large, cluster=self.cluster, executor=None, journal=None)
        before, total = len(run.todo) - len(large), len(run.todo)
        yield from in_tiles.on_this_machine(part_of(progress, before, total, len(large)), lambda text: None)


def _without_large(jobs: Sequence[Job], large: list[Job]) -> Iterator[Job]:
    """The pictures that go into batches; those that do not are put into `large`. Files are looked at on the way."""
    for job in jobs:
        if is_large(job.source):
            large.append(job)
        else:
            yield job


def batches(jobs: Iterable[Job], most: int) -> Iterator[list[Job]]:
    """Pictures in groups of at most so many, and not of many bytes either; each made when it is asked for."""
    batch, size = list[Job](), 0
    for job in jobs:
        own = size_of(job.source)
        if batch and (len(batch) == most or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += own
    if batch:
        yield batch


def part_of_run(run: DenoiseRun, jobs: Sequence[Job]) -> DenoiseRun:
    """Some pictures of a run as a run for a worker, which has a current folder of its own: all paths are whole.

    With resume: what a worker wrote before it died is made again and must be the same.
    """
    there = [for_workers(job) for job in jobs]
    shared = run.shared
    if shared is not None:
        shared = shared.limited_to({here.source: job.source for here, job in zip(jobs, there, strict=True)})
    return replace(
        run,
        found=NOTHING,
        todo=there,
        done_before=(),
        keeps_records=False,
        records=[],
        shared=shared,
        executor=None,
        journal=None,
        resume=True,
        sharing=run.resume,
    )


def for_workers(job: Job) -> Job:
    """A picture with its paths from the root, under the name that it has here."""
    return Job(job.source.for_workers(), *map(from_root, (job.output, job.residual, job.compare)))


def measure_one(work: MeasureWork, means: Means) -> list[Measured | DstlError]:
    """Measure a picture in a worker process."""
    plan = work.plan
    if plan is not None:
        for _, request in plan.configurations:
            warm_once(request)
        own = [(label, replace(request, jobs=means.threads)) for label, request in plan.configurations]
        work = replace(work, plan=replace(plan, configurations=own))
    return [work.attempt()]


@dataclass(frozen=True)
class MeasuredOnCluster:
    """Does the work of an evaluation on a cluster, as its `executor`."""

    cluster: Cluster

    def __call__(
        self,
        run: Evaluation,
        works: Sequence[MeasureWork],
        progress: Progress | None,
        describe: Callable[[str], None],
    ) -> Iterator[tuple[MeasureWork, Measured | DstlError]]:
        """What is measured of each picture, as soon as it is known."""
        ended = self.cluster.each(measure_one, works, batches_of_one, work_from_root)
        files = FilesDone(len(works))
        for work, end in ended:
            yield work, DstlError(end.sentence(work.item.name)) if isinstance(end, Lost) else end
            describe(files.add(size_of(work.item), failed=isinstance(end, (DstlError, Lost))))
            if progress is not None:
                progress(files.count / files.total)


def work_from_root(works: Sequence[MeasureWork]) -> MeasureWork:
    """The only one of some works, with its paths from the root."""
    (work,) = works
    return replace(work, item=work.item.for_workers(), other=None if work.other is None else work.other.for_workers())
