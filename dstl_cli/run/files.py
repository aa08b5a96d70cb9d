"""A run of `dstl denoise`: every picture is read, denoised and written; it says nothing to anyone."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.addresses import Address, Place
from dstl_cli.base.atomic import claim
from dstl_cli.base.names import display_name
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.base.threads import available_cores, in_order, one_blas_thread
from dstl_cli.denoising.pipeline import DenoiseRecord, denoised_rows
from dstl_cli.denoising.plan import Plan
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.errors import DstlError, refusals
from dstl_cli.noise.model import NoiseModel
from dstl_cli.picture.crop import cropped
from dstl_cli.picture.formats import FORMATS, format_of_folder, format_to_write, is_written_in_tiles
from dstl_cli.picture.formats.exif import exif_orientation
from dstl_cli.picture.inputs import Input, Job, Selection, is_done
from dstl_cli.picture.model import ImageInfo, Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import Writer, lost_metadata, natural_format, open_tiles, open_writer
from dstl_cli.pixels.colour import root_mean_square
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Box
from dstl_cli.run.cluster import Cluster, Means
from dstl_cli.run.journal import Journal
from dstl_cli.run.large import Crew, PageWork, denoised_by, write_reduced, write_tiles
from dstl_cli.run.noise import NoiseFile, noise_for
from dstl_cli.run.pages import PageSource, page_of, read_input
from dstl_cli.transforms.files import TransformFile, save_transform
from dstl_cli.transforms.transform import Iteration

if TYPE_CHECKING:
    from dstl_cli.run.pooling import SharedNoise

Pixels = NDArray[Any]

PICTURE_KEYS = ("width", "height", "pages", "channels", "dtype", "sigma", "sigma_channels", "sigma_source")
MADE_KEYS = ("noise", "unchanged", "seconds", "warnings", "settings", "transform", "error")
RECORD_KEYS = ("input", "output", *PICTURE_KEYS, *MADE_KEYS)
LOOKED_AT = 64  # files whose headers are looked at before they are denoised
LARGE_PIXELS = 32_000_000  # pages of this size are denoised in tiles where there are several workers ...
LARGE_BYTES = 2**20  # ... in files of more bytes, whose headers are looked at
SMALL_PIXELS = 500_000  # pictures up to this size are denoised side by side, one on each thread; others by themselves


@dataclass(frozen=True)
class FirstPage:
    """What is told of how a page was denoised: little, so that it can be sent, and not the transform itself."""

    sigmas: tuple[float, ...]
    noise: NoiseModel  # in the units in which deviations are told
    settings: dict[str, Any] | None
    transform: dict[str, Any] | None
    history: tuple[Iteration, ...]
    plan: dict[str, Any]

    @classmethod
    def of(cls, page: DenoiseRecord) -> "FirstPage":
        """What is told of a page."""
        transform = None if page.transform is None else page.transform.facts()
        told = page.plan.noise_as_told, page.settings, transform
        return cls(page.sigmas, *told, page.history, page.plan.to_json())


@dataclass(frozen=True)
class DenoisedFile:
    """A written picture: what it is, how its first page with noise was denoised, what there is to say, each once."""

    info: ImageInfo
    first_page: FirstPage
    warnings: tuple[str, ...]
    seconds: float
    sigma_source: str  # "given", "estimated" or "shared"
    unchanged: bool  # there was no noise to remove
    copied: bool  # ... and the file is that which was read, to the byte

    @property
    def sigma(self) -> float:
        """One number for the noise removed: over the channels of that page."""
        return root_mean_square(list(self.first_page.sigmas))

    def facts(self) -> dict[str, Any]:
        """What reports tell of it, by name."""
        page = self.first_page
        size = {key: getattr(self.info, key) for key in ("width", "height", "pages", "channels")}
        noise = {"sigma": self.sigma, "sigma_channels": list(page.sigmas), "sigma_source": self.sigma_source}
        noise |= {"noise": page.plan["noise"]["kind"] if page.transform else None, "unchanged": self.unchanged}
        made = {"settings": page.settings, "transform": page.transform}
        more = {"dtype": self.info.dtype.name, "seconds": self.seconds, "warnings": list(self.warnings)}
        return size | noise | made | more


@dataclass
class DenoiseRun:
    """Goes through the pictures in order; a failed one does not stop the rest.

    noise: a model of it, or the deviation of white noise; estimated where it is None. save_transform: where the
    transform of the only picture goes. jpeg_quality: of JPEG outputs, coded as their inputs where it is None.
    shared: what the pictures of the run have in common, in the place of noise.
    crop: the part of every page that is denoised and written; what is found out before is that of the whole page.
    executor: who does the work, in any order, if not this process. journal: where each end is noted.
    sharing: with resume, pictures that another run does meanwhile need not be done here.
    cluster: whose workers denoise the tiles of a picture; this process only surveys it, and writes what is a file.
    keeps_records: whether all of them are wanted in the end; of a million pictures they would take gigabytes.
    """

    found: Selection
    todo: Sequence[Job]
    done_before: Sequence[Job]
    noise: float | NoiseModel | NoiseFile | None
    request: Request
    save_transform: Path | None
    strip: bool
    force: bool
    resume: bool
    jpeg_quality: int | None = None
    shared: "SharedNoise | None" = None
    crop: Box | None = None
    executor: "Executor | None" = None
    journal: Journal | None = None
    sharing: bool = True
    cluster: Cluster | None = None
    keeps_records: bool = True
    records: list[dict[str, Any]] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def all(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[dict[str, Any], DenoisedFile | None]]:
        """Denoise every picture, after those of the arguments that cannot be looked into.

        Of each, what the JSON report tells of it, and what it has become: None where its record has an error. In the
        end the records have the order of the pictures, whoever did the work.
        """
        for name, sentence in self.found.problems:
            yield self._recorded(name, None, error=sentence), None
        first, came = len(self.records), list[int]()
        finish = DenoiseRun.on_this_machine if self.executor is None else self.executor
        for job, finished in finish(self, progress, describe):
            if isinstance(finished, DoneElsewhere):
                self.done_before = [*self.done_before, job]
                continue
            came.append(id(job))
            if isinstance(finished, DstlError):
                yield self._recorded(job.source.name, job.output_name, error=str(finished)), None
            else:
                yield self._recorded(job.source.name, job.output_name, **finished.facts()), finished
        if self.keeps_records:
            known = dict(zip(came, self.records[first:], strict=True))
            self.records[first:] = [known[id(job)] for job in self.todo if id(job) in known]

    def on_this_machine(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[Job, DenoisedFile | DstlError]]:
        """What becomes of each picture, in order; small ones that follow each other are denoised side by side.

        Those that another run is working on come last: if it has done them, so much the better.
        """
        with one_blas_thread():  # once for all of them: its threads are slow to come and go
            yield from self._in_turn(progress, describe)

    def _in_turn(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[Job, DenoisedFile | DstlError]]:
        """The same with BLAS as it is."""
        threads, total, done = self.request.jobs or available_cores(), len(self.todo), 0
        several = threads > 1 and total > 1
        batches = (self.todo[start : start + LOOKED_AT] for start in range(0, total, LOOKED_AT))
        runs = (run for batch in batches for run in groupby(batch, key=lambda job: several and is_small(job.source)))
        put_off: list[tuple[PictureWork, Job]] = []
        for small, run in runs:
            jobs = list(run)
            request = replace(self.request, jobs=1 if small else threads)
            shares = [None if small else part_of(progress, done + index, total) for index in range(len(jobs))]
            works = [PictureWork(self, request, *pair) for pair in zip(jobs, shares, strict=True)]
            beside = several and request.memory.most is None
            results = in_order(PictureWork.whole, works, threads) if small else one_by_one(works, beside=beside)
            for job in jobs:
                describe(job.source.name)
                finished = next(results)
                if isinstance(finished, BeingDone):
                    put_off.append((PictureWork(self, replace(request, jobs=threads), job, None, patient=True), job))
                    continue
                yield job, finished
                done += 1
                if progress is not None:
                    progress(done / total)
        for work, job in put_off:
            describe(job.source.name)
            yield job, work.whole()

    def _recorded(self, name: str, output: str | None, **facts: Any) -> dict[str, Any]:
        record = dict.fromkeys(RECORD_KEYS) | {"input": name, "output": output} | facts
        self.ends["failed" if record["error"] is not None else "unchanged" if record["unchanged"] else "done"] += 1
        if self.journal is not None:
            self.journal.add(record)
        if self.keeps_records:
            self.records.append(record)
        return record

    def noise_of(self, job: Job, page: int) -> float | NoiseModel | NoiseFile | None:
        """What is known of the noise of a page."""
        return self.noise if self.shared is None else self.shared.model_of(job.source, page)

    def stays(self, picture: Picture, job: Job) -> bool:
        """Whether the file itself is the result where there is no noise to remove."""
        kept = picture.format if job.output is None else format_to_write(job.output).name
        plain = len(picture.specs) == 1 and not self.strip and self.jpeg_quality is None and self.crop is None
        return plain and not FORMATS[kept].marks and kept == picture.format

    @property
    def summary(self) -> dict[str, int]:
        """How many pictures met which end."""
        return {
            **{end: self.ends[end] for end in ("done", "unchanged", "failed")},
            "resumed": len(self.done_before),
            "skipped": self.found.skipped,
        }


Executor = Callable[
    [DenoiseRun, Progress | None, Callable[[str], None]], Iterator[tuple[Job, DenoisedFile | DstlError]]
]


class PictureWork:
    """One picture of a run in three steps: read, denoise, write. Its results appear complete or not at all.

    What a step refuses is kept: those after it do nothing, and `write` gives it back. patient: wait for a run that is
    working on the same picture.
    """

    def __init__(
        self, run: DenoiseRun, request: Request, job: Job, progress: Progress | None, *, patient: bool = False
    ) -> None:
        self.run, self.request, self.job, self.progress, self.patient = run, request, job, progress, patient
        self.name = job.source.name
        self.seconds = 0.0
        self._refused: DstlError | None = None
        self._warnings: list[str] = []
        self._first: DenoiseRecord | None = None
        self._unchanged, self._copied = True, False  # as long as no page has noise; the file as it was
        self._files = ExitStack()  # closed in reverse: the main output appears last, as the sign that all is done
        self._writers: list[Writer] = []
        self._waiting: list[Callable[[], None]] = []  # rows that the writers do not have yet
        self._picture: Picture | None = None

    def whole(self) -> DenoisedFile | DstlError:
        """All three steps."""
        self.read()
        self.denoise()
        return self.write()

    def read(self) -> None:
        """Look at the headers, and decode the first page unless it is read in parts."""
        self._take(self._read)

    def denoise(self) -> None:
        """Denoise every page; all but the last rows are handed to the writers."""
        self._take(self._denoise)

    def write(self) -> DenoisedFile | DstlError:
        """Hand over the last rows, with which most formats are encoded, and let the files appear."""
        self._take(self._write)
        self._picture = None
        return self._refused or replace(self._finished, seconds=self.seconds)

    def abandon(self) -> None:
        """Leave nothing behind of files that have not appeared."""
        with suppress(_Abandoned), self._files:
            raise _Abandoned

    def _take(self, step: Callable[[], None]) -> None:
        """Take a step, unless one before was refused; outputs that are open outlive it only if nothing is wrong."""
        if self._refused is not None:
            return
        start = perf_counter()
        try:
            with refusals(self.name, "cannot be denoised"), ExitStack() as opened:
                opened.push(self._files)
                step()
                opened.pop_all()
        except DstlError as error:
            self._refused = error
        self.seconds += perf_counter() - start

    def _claim(self) -> None:
        """Keep other runs off the output until it is there; with --resume what they do need not be done here."""
        run, output = self.run, self.job.output
        if not isinstance(output, Path) or run.force or (os.path.exists(output) and not os.path.isfile(output)):
            return
        free = self._files.enter_context(claim(output, wait=self.patient))
        if not (run.resume and run.sharing):
            return
        if not free:
            raise BeingDone(f"{self.name} is being denoised by another run.")
        others = () if run.save_transform is None else (run.save_transform,)
        if is_done(self.job, others):
            raise DoneElsewhere(f"{self.name} was denoised by another run.")

    def _read(self) -> None:
        self._claim()
        self._picture = read_input(self.job.source, self.name, keep_invalid=self.request.keep_invalid)
        if self._picture.decode_part is None:
            self._picture.page(0)  # stays at hand

    def _denoise(self) -> None:
        picture, run, job = self._picture, self.run, self.job
        assert picture is not None
        result = picture if run.crop is None else cropped(picture, run.crop.rows, run.crop.columns)
        self._warnings += [*result.notes, *_losses(result, job, strip=run.strip, jpeg_quality=run.jpeg_quality)]
        self._info = result.info
        if is_written_in_tiles(job.output):
            self._denoise_into_folder(picture, result)
            return
        main = self._opened(result, job.output)
        residual = self._opened(_derived(result, "residual", 1), job.residual) if job.residual else None
        compare = self._opened(_derived(result, "comparison", 3), job.compare) if job.compare else None
        for index in range(len(picture.specs)):
            source, plan = self._surveyed(picture, index)
            self._copied = plan.transform is None and run.stays(picture, job)
            if self._copied:
                main.copy()
                if residual is None and compare is None:
                    continue
            else:
                self._warnings += plan.warnings
            for box, rows in self._denoised_rows(source, plan, index):
                noisy, alpha = source.part(box) if residual or compare or picture.has_alpha else (rows, None)
                self._hand_over()
                if not self._copied:
                    self._waiting.append(partial(main.add_rows, rows, alpha))
                if residual is not None:
                    self._waiting.append(partial(residual.add_rows, residual_picture(noisy, rows, source.depth)))
                if compare is not None:
                    beside = (noisy, rows, residual_picture(noisy, rows, source.depth))
                    self._waiting.append(partial(compare.add_rows, np.concatenate(beside, axis=1)))

    def _denoise_into_folder(self, picture: Picture, result: Picture) -> None:
        """Denoise every page tile by tile; whoever denoises a tile writes it."""
        job, run, crew = self.job, self.run, self._crew
        assert job.output is not None
        opened = open_tiles(result, job.output, strip=run.strip, overwrite=run.force, resume=run.resume)
        folder = self._files.enter_context(opened)
        for index in range(len(picture.specs)):
            source, plan = self._surveyed(picture, index)
            self._warnings += plan.warnings
            share = part_of(self.progress, index, len(picture.specs))
            part = run.crop or Box.whole(plan.shape)
            write_tiles(crew, self._work(source, plan, index), part, folder, share)
        write_reduced(crew, folder)

    def _surveyed(self, picture: Picture, index: int) -> tuple[PageSource, Plan]:
        """A page, and the plan for it."""
        source, run = PageSource(picture, index), self.run
        noise = noise_for(run.noise_of(self.job, index), source.depth)
        plan = survey(source, noise, self.request, depth=source.depth, hints=source.hints)
        if index == 0 and run.save_transform is not None and plan.transform is None:
            kept = display_name(run.save_transform)
            raise DstlError(f"{self.name} has no noise to learn from and is not written; {kept} neither.")
        if self._first is None or (self._first.transform is None and plan.transform is not None):
            self._first = DenoiseRecord.of(plan)
        self._unchanged = self._unchanged and plan.transform is None
        return source, plan

    def _denoised_rows(self, source: PageSource, plan: Plan, index: int) -> Iterator[tuple[Box, Pixels]]:
        """The denoised page in pieces of whole rows, from top to bottom."""
        assert self._picture is not None
        share = part_of(self.progress, index, len(self._picture.specs))
        if self.run.cluster is None:
            return denoised_rows(
                source, plan, self.request.jobs, progress=share, memory=self.request.memory, part=self.run.crop
            )
        return denoised_by(self._crew, self._work(source, plan, index), self.run.crop or Box.whole(plan.shape), share)

    def _work(self, source: PageSource, plan: Plan, index: int) -> PageWork:
        """What is told of a page to those who denoise its tiles: here the page itself, elsewhere how to open it."""
        if self.run.cluster is None:
            return PageWork(lambda: source, index, plan, self.request.memory)
        opened = partial(
            page_of, self.job.source.for_workers(), self.name, index, keep_invalid=self.request.keep_invalid
        )
        return PageWork(opened, index, plan, self.request.memory)

    @property
    def _crew(self) -> Crew:
        """Who denoises tiles."""
        return Crew(Means(self.request.jobs or available_cores(), None), self.run.cluster)

    def _opened(self, content: Picture, target: Place | None) -> Writer:
        """A writer that is closed with the others."""
        run = self.run
        quality = run.jpeg_quality
        writer = open_writer(
            content, target, strip=run.strip, overwrite=run.force, resume=run.resume, jpeg_quality=quality
        )
        self._writers.append(self._files.enter_context(writer))
        return self._writers[-1]

    def _hand_over(self) -> None:
        """Give the rows that wait to their writers."""
        for add in self._waiting:
            add()
        self._waiting.clear()

    def _write(self) -> None:
        run = self.run
        self._hand_over()
        for writer in self._writers:
            writer.close()  # each of them may appear, before one does
        self._files.close()
        told = "given" if run.shared is None else "shared"
        source = "estimated" if run.noise_of(self.job, 0) is None else told
        page, said = self._first, tuple(dict.fromkeys(self._warnings))
        assert page is not None
        ends = source, self._unchanged, self._copied
        self._finished = DenoisedFile(self._info, FirstPage.of(page), said, self.seconds, *ends)
        if run.save_transform is not None and page.transform is not None:
            facts = {"settings": page.settings, "sigma": self._finished.sigma, "images": 1, "source": "denoise"}
            kept = TransformFile(page.transform, facts, page.history)
            save_transform(run.save_transform, kept, overwrite=run.force)


class BeingDone(DstlError):
    """Another run is working on a picture."""


class DoneElsewhere(DstlError):
    """Another run has done a picture since this one began."""


class _Abandoned(Exception):
    """Nobody waits for a picture any more."""


def one_by_one(works: Sequence[PictureWork], *, beside: bool) -> Iterator[DenoisedFile | DstlError]:
    """What becomes of pictures in order; beside: while one is denoised the next is read and the last one written."""
    if not beside or len(works) == 1:
        yield from map(PictureWork.whole, works)
        return
    try:
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(works[0].read)]
            writing: list[Future[DenoisedFile | DstlError]] = []
            for work, following in zip(works, [*works[1:], None], strict=True):
                reading.pop().result()
                if following is not None:
                    reading.append(pool.submit(following.read))
                work.denoise()
                writing.append(pool.submit(work.write))
                if len(writing) > 1:
                    yield writing.pop(0).result()
            yield writing.pop().result()
    finally:
        for work in works:
            work.abandon()


def is_small(item: Input) -> bool:
    """Whether the headers of a file tell of one small page; a file without such headers is no work at all.

    At an address the size of the file has to do, as headers would be read through the network twice.
    """
    if isinstance(item.path, Address):
        return (item.size or SMALL_PIXELS) < SMALL_PIXELS
    try:
        specs = read_picture(item.path, name=item.name).specs if item.path else ()
    except DstlError:
        return True
    return len(specs) == 1 and specs[0].height * specs[0].width <= SMALL_PIXELS


def is_large(item: Input) -> bool:
    """Whether a file has a page to be denoised in tiles on several workers: one that can be read in windows."""
    with suppress(DstlError, OSError):
        path = item.path
        if path is not None and (format_of_folder(path) or _is_long(path)):
            picture = read_picture(path)
            most = max(spec.height * spec.width for spec in picture.specs)
            return picture.decode_part is not None and most >= LARGE_PIXELS
    return False


def _is_long(path: Place) -> bool:
    """Whether a file of this machine has enough bytes to be looked at."""
    return isinstance(path, Path) and os.path.getsize(path) > LARGE_BYTES


def _derived(picture: Picture, kind: str, times: int) -> Picture:
    """A picture to write whose pages are so many times as wide, without alpha and metadata."""
    specs = tuple(replace(spec, width=times * spec.width, extra=0) for spec in picture.specs)
    return Picture(f"The {kind} of {picture.name}", specs)


def _losses(picture: Picture, job: Job, *, strip: bool, jpeg_quality: int | None) -> list[str]:
    """What the output cannot hold of the input."""
    entry = format_to_write(job.output) if job.output is not None else FORMATS[natural_format(picture)]
    lost = () if strip else lost_metadata(picture, entry)
    losses = [f"{job.output_name} cannot hold {what} of the input." for what in lost]
    if strip and exif_orientation(picture.metadata.exif) > 1:
        losses.append(
            f"{job.output_name} is shown as it is stored; its EXIF data turned it upright, and --strip drops them."
        )
    source = FORMATS[picture.format]
    bits = picture.specs[0].bits
    if bits is not None and entry.name != picture.format:
        losses.append(f"{entry.label} has no {bits}-bit pixels; the numbers stay as they are, white is {2**bits - 1}.")
    if not source.written:
        losses.append(f"{source.label} is only read; the result is {entry.label}.")
    if source.name == entry.name == "jpeg" and jpeg_quality is None:
        losses += entry.load().coding_changes(picture)
    return losses


def residual_picture(noisy: Pixels, denoised: Pixels, depth: Depth) -> Pixels:
    """noisy - denoised in the same dtype; around zero, or middle grey where no number is negative.

    What is no finite number, and stays so, is the same in the residual.
    """
    told = np.isfinite(noisy)
    difference = np.subtract(noisy, denoised, out=np.zeros(noisy.shape), where=told, dtype=np.float64)
    residual = depth.restore((difference + depth.middle) / depth.unit)
    return residual if told.all() else np.where(told, residual, noisy)
