"""A run of `dstl denoise`: every picture is read, denoised and written; it says nothing to anyone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.names import display_name
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.base.threads import available_cores, in_order
from dstl_cli.denoising import pipeline
from dstl_cli.denoising.pipeline import DenoiseRecord, denoised_rows
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.errors import DstlError, refusals
from dstl_cli.noise.blind import Hints
from dstl_cli.noise.model import NoiseModel
from dstl_cli.picture.crop import cropped
from dstl_cli.picture.formats import FORMATS, format_to_write
from dstl_cli.picture.formats.exif import exif_iso
from dstl_cli.picture.formats.jpeg import jpeg_coding
from dstl_cli.picture.inputs import Input, Job, Selection
from dstl_cli.picture.model import ImageInfo, Page, Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import Writer, lost_metadata, natural_format, open_writer
from dstl_cli.pixels.colour import root_mean_square
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Box
from dstl_cli.transforms.files import TransformFile, save_transform

if TYPE_CHECKING:
    from dstl_cli.run.pooling import SharedNoise

Pixels = NDArray[Any]

PICTURE_KEYS = ("width", "height", "pages", "channels", "dtype", "sigma", "sigma_channels", "sigma_source")
MADE_KEYS = ("noise", "unchanged", "seconds", "warnings", "settings", "transform", "error")
RECORD_KEYS = ("input", "output", *PICTURE_KEYS, *MADE_KEYS)
LOOKED_AT = 64  # files whose headers are looked at before they are denoised
SMALL_PIXELS = 500_000  # pictures up to this size are denoised side by side, one on each thread; others by themselves


@dataclass(frozen=True)
class DenoisedFile:
    """A written picture: what it is, how its first page was denoised, and what there is to say, each sentence once."""

    info: ImageInfo
    first_page: DenoiseRecord
    warnings: tuple[str, ...]
    seconds: float
    sigma_source: str  # "given", "estimated" or "shared"
    unchanged: bool  # no noise was found

    @property
    def sigma(self) -> float:
        """One number for the noise removed: over the channels of the first page."""
        return root_mean_square(list(self.first_page.sigmas))

    def facts(self) -> dict[str, Any]:
        """What reports tell of it, by name."""
        page = self.first_page
        size = {key: getattr(self.info, key) for key in ("width", "height", "pages", "channels")}
        noise = {"sigma": self.sigma, "sigma_channels": list(page.sigmas), "sigma_source": self.sigma_source}
        noise |= {"noise": page.plan.noise.to_json()["kind"] if page.transform else None, "unchanged": self.unchanged}
        made = {"settings": page.settings, "transform": None if page.transform is None else page.transform.facts()}
        more = {"dtype": self.info.dtype.name, "seconds": self.seconds, "warnings": list(self.warnings)}
        return size | noise | made | more


@dataclass
class DenoiseRun:
    """Goes through the pictures in order; a failed one does not stop the rest.

    noise: a model of it, or the deviation of white noise; estimated where it is None. save_transform: where the
    transform of the only picture goes. jpeg_quality: of JPEG outputs, coded as their inputs where it is None.
    shared: what the pictures of the run have in common, in the place of noise.
    crop: the part of every page that is denoised and written; what is found out before is that of the whole page.
    """

    found: Selection
    todo: Sequence[Job]
    done_before: Sequence[Job]
    noise: float | NoiseModel | None
    request: Request
    save_transform: Path | None
    strip: bool
    force: bool
    resume: bool
    jpeg_quality: int | None = None
    shared: "SharedNoise | None" = None
    crop: Box | None = None
    records: list[dict[str, Any]] = field(default_factory=list)

    def all(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[dict[str, Any], DenoisedFile | None]]:
        """Denoise every picture, after those of the arguments that cannot be looked into.

        Of each, what the JSON report tells of it, and what it has become: None where its record has an error.
        """
        for name, sentence in self.found.problems:
            yield self._recorded(name, None, error=sentence), None
        for job, finished in self._finished(progress, describe):
            if isinstance(finished, DstlError):
                yield self._recorded(job.source.name, job.output_name, error=str(finished)), None
            else:
                yield self._recorded(job.source.name, job.output_name, **finished.facts()), finished

    def _finished(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[Job, DenoisedFile | DstlError]]:
        """What becomes of each picture, in order; small ones that follow each other are denoised side by side."""
        threads, total, done = self.request.jobs or available_cores(), len(self.todo), 0
        several = threads > 1 and total > 1
        batches = (self.todo[start : start + LOOKED_AT] for start in range(0, total, LOOKED_AT))
        runs = (run for batch in batches for run in groupby(batch, key=lambda job: several and is_small(job.source)))
        for small, run in runs:
            jobs = list(run)
            request = replace(self.request, jobs=1 if small else threads)
            shares = [None if small else part_of(progress, done + index, total) for index in range(len(jobs))]
            tasks = [partial(self._attempt, request, *pair) for pair in zip(jobs, shares, strict=True)]
            results = in_order(lambda task: task(), tasks, threads if small else 1)
            for job in jobs:
                describe(job.source.name)
                yield job, next(results)
                done += 1
                if progress is not None:
                    progress(done / total)

    def _attempt(self, request: Request, job: Job, progress: Progress | None) -> DenoisedFile | DstlError:
        """A denoised picture file, or why it is none."""
        try:
            with refusals(job.source.name, "cannot be denoised"):
                return self._denoise(job, request, progress)
        except DstlError as error:
            return error

    def _recorded(self, name: str, output: str | None, **facts: Any) -> dict[str, Any]:
        self.records.append(dict.fromkeys(RECORD_KEYS) | {"input": name, "output": output} | facts)
        return self.records[-1]

    def _denoise(self, job: Job, request: Request, progress: Progress | None) -> DenoisedFile:
        """Denoise one picture file; its results appear complete or not at all."""
        start = perf_counter()
        picture = read_picture(job.source.path, name=job.source.name)
        picture = replace(picture, allows_invalid=request.keep_invalid)
        result = picture if self.crop is None else cropped(picture, self.crop.rows, self.crop.columns)
        warnings = [*result.notes, *_losses(result, job, strip=self.strip, jpeg_quality=self.jpeg_quality)]
        first: DenoiseRecord | None = None
        unchanged = self.noise is None
        with ExitStack() as files:  # closed in reverse: the main output appears last, as the sign that all is done

            def opened(content: Picture, target: Path | None) -> Writer:
                writer = open_writer(
                    content,
                    target,
                    strip=self.strip,
                    overwrite=self.force,
                    resume=self.resume,
                    jpeg_quality=self.jpeg_quality,
                )
                return files.enter_context(writer)

            main = opened(result, job.output)
            residual = opened(_derived(result, "residual", 1), job.residual) if job.residual else None
            compare = opened(_derived(result, "comparison", 3), job.compare) if job.compare else None
            for index in range(len(picture.specs)):
                source = PageSource(picture, index)
                plan = survey(source, self._noise_of(job, index), request, depth=source.depth, hints=source.hints)
                if index == 0 and self.save_transform is not None and plan.transform is None:
                    name = display_name(self.save_transform)
                    raise DstlError(f"{job.source.name} has no noise to learn from and is not written; {name} neither.")
                if plan.transform is None and not (job.residual or job.compare) and self._stays(picture, job):
                    main.copy()
                    first = DenoiseRecord.of(plan)
                    continue
                share = part_of(progress, index, len(picture.specs))
                for box, rows in denoised_rows(
                    source, plan, request.jobs, progress=share, memory=request.memory, part=self.crop
                ):
                    noisy, alpha = source.part(box) if residual or compare or picture.has_alpha else (rows, None)
                    main.add_rows(rows, alpha)
                    if residual is not None:
                        residual.add_rows(residual_picture(noisy, rows, source.depth))
                    if compare is not None:
                        removed = residual_picture(noisy, rows, source.depth)
                        compare.add_rows(np.concatenate((noisy, rows, removed), axis=1))
                warnings += plan.warnings
                first = first or DenoiseRecord.of(plan)
                unchanged = unchanged and plan.transform is None
            for writer in filter(None, (main, residual, compare)):
                writer.close()  # each of them may appear, before one does
        told = "given" if self.shared is None else "shared"
        sigma_source = "estimated" if self._noise_of(job, 0) is None else told
        said = tuple(dict.fromkeys(warnings))
        assert first is not None
        finished = DenoisedFile(result.info, first, said, perf_counter() - start, sigma_source, unchanged)
        page = finished.first_page
        if self.save_transform is not None and page.transform is not None:
            provenance = {"settings": page.settings, "sigma": finished.sigma, "images": 1, "source": "denoise"}
            kept = TransformFile(page.transform, provenance, page.history)
            save_transform(self.save_transform, kept, overwrite=self.force)
        return finished

    def _noise_of(self, job: Job, page: int) -> float | NoiseModel | None:
        """What is known of the noise of a page."""
        return self.noise if self.shared is None else self.shared.model_of(job.source, page)

    def _stays(self, picture: Picture, job: Job) -> bool:
        """Whether the file itself is the result where nothing is to be done."""
        kept = picture.format if job.output is None else format_to_write(job.output).name
        plain = len(picture.specs) == 1 and not self.strip and self.jpeg_quality is None and self.crop is None
        return plain and self.noise is None and kept == picture.format

    @property
    def summary(self) -> dict[str, int]:
        """How many pictures met which end."""
        failed = sum(record["error"] is not None for record in self.records)
        unchanged = sum(bool(record["unchanged"]) for record in self.records)
        done = len(self.records) - failed - unchanged
        return {
            "done": done,
            "unchanged": unchanged,
            "failed": failed,
            "resumed": len(self.done_before),
            "skipped": self.found.skipped,
        }


class PageSource:
    """The colours of one page of a picture as a PixelSource: of a small page at hand, else read in windows."""

    def __init__(self, picture: Picture, index: int) -> None:
        self._picture, self._index = picture, index
        spec = picture.specs[index]
        self.shape, self.dtype = spec.shape, spec.dtype
        self.depth = Depth.of(spec.dtype, spec.bits)
        self.hints = hints_of(picture)
        if spec.height * spec.width <= pipeline.STRIP_PIXELS:
            picture.page(index)  # stays at hand

    def window(self, box: Box) -> Pixels:
        """The colours in a box."""
        return self.part(box)[0]

    def part(self, box: Box) -> Page:
        """The colours in a box, and the samples beside them."""
        return self._picture.window(self._index, box.rows, box.columns)


def hints_of(picture: Picture) -> Hints:
    """What the file of a picture says that bears on its noise."""
    coding = jpeg_coding(picture)
    steps = None if coding is None or coding.rgb else coding.tables[0]
    return Hints(iso=exif_iso(picture.metadata.exif), steps=steps)


def is_small(item: Input) -> bool:
    """Whether the headers of a file tell of one small page; a file without such headers is no work at all."""
    try:
        specs = read_picture(item.path, name=item.name).specs if item.path else ()
    except DstlError:
        return True
    return len(specs) == 1 and specs[0].height * specs[0].width <= SMALL_PIXELS


def _derived(picture: Picture, kind: str, times: int) -> Picture:
    """A picture to write whose pages are so many times as wide, without alpha and metadata."""
    specs = tuple(replace(spec, width=times * spec.width, extra=0) for spec in picture.specs)
    return Picture(f"The {kind} of {picture.name}", specs)


def _losses(picture: Picture, job: Job, *, strip: bool, jpeg_quality: int | None) -> list[str]:
    """What the output cannot hold of the input."""
    entry = format_to_write(job.output) if job.output is not None else FORMATS[natural_format(picture)]
    lost = () if strip else lost_metadata(picture, entry)
    losses = [f"{job.output_name} cannot hold {what} of the input." for what in lost]
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
