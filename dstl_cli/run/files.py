"""A run of `dstl denoise`: every picture is read, denoised and written; it says nothing to anyone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.names import display_name
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.denoising.pipeline import DenoiseRecord, denoise_pixels
from dstl_cli.denoising.survey import Request
from dstl_cli.errors import DstlError, refusals
from dstl_cli.picture.formats import FORMATS, format_to_write
from dstl_cli.picture.inputs import Job, Selection
from dstl_cli.picture.model import ImageInfo, Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import Writer, lost_metadata, natural_format, open_writer
from dstl_cli.pixels.colour import root_mean_square
from dstl_cli.pixels.depth import Depth
from dstl_cli.transforms.files import TransformFile, save_transform

Pixels = NDArray[Any]

PICTURE_KEYS = ("width", "height", "pages", "channels", "dtype", "sigma", "sigma_channels", "sigma_source")
RECORD_KEYS = ("input", "output", *PICTURE_KEYS, "seconds", "warnings", "settings", "transform", "error")


@dataclass(frozen=True)
class DenoisedFile:
    """A written picture: what it is, how its first page was denoised, and what there is to say, each sentence once."""

    info: ImageInfo
    first_page: DenoiseRecord
    warnings: tuple[str, ...]
    seconds: float
    sigma_source: str  # "given" or "estimated"

    @property
    def sigma(self) -> float:
        """One number for the noise removed: over the channels of the first page."""
        return root_mean_square(list(self.first_page.sigmas))

    def facts(self) -> dict[str, Any]:
        """What reports tell of it, by name."""
        page = self.first_page
        size = {key: getattr(self.info, key) for key in ("width", "height", "pages", "channels")}
        noise = {"sigma": self.sigma, "sigma_channels": list(page.sigmas), "sigma_source": self.sigma_source}
        made = {"settings": page.settings, "transform": None if page.transform is None else page.transform.facts()}
        more = {"dtype": self.info.dtype.name, "seconds": self.seconds, "warnings": list(self.warnings)}
        return size | noise | made | more


@dataclass
class DenoiseRun:
    """Goes through the pictures one by one; a failed one does not stop the rest.

    sigma: of the noise, estimated where it is None. save_transform: where the transform of the only picture goes.
    jpeg_quality: of JPEG outputs, coded as their inputs where it is None.
    """

    found: Selection
    todo: Sequence[Job]
    done_before: Sequence[Job]
    sigma: float | None
    request: Request
    save_transform: Path | None
    strip: bool
    force: bool
    resume: bool
    jpeg_quality: int | None = None
    records: list[dict[str, Any]] = field(default_factory=list)

    def all(
        self, progress: Progress | None, describe: Callable[[str], None]
    ) -> Iterator[tuple[dict[str, Any], DenoisedFile | None]]:
        """Denoise every picture, after those of the arguments that cannot be looked into.

        Of each, what the JSON report tells of it, and what it has become: None where its record has an error.
        """
        for name, sentence in self.found.problems:
            yield self._recorded(name, None, error=sentence), None
        for index, job in enumerate(self.todo):
            name = job.source.name
            describe(name)
            try:
                with refusals(name, "cannot be denoised"):
                    finished = self._denoise(job, part_of(progress, index, len(self.todo)))
            except DstlError as error:
                yield self._recorded(name, job.output_name, error=str(error)), None
            else:
                yield self._recorded(name, job.output_name, **finished.facts()), finished

    def _recorded(self, name: str, output: str | None, **facts: Any) -> dict[str, Any]:
        self.records.append(dict.fromkeys(RECORD_KEYS) | {"input": name, "output": output} | facts)
        return self.records[-1]

    def _denoise(self, job: Job, progress: Progress | None) -> DenoisedFile:
        """Denoise one picture file; its results appear complete or not at all."""
        start = perf_counter()
        picture = read_picture(job.source.path, name=job.source.name)
        warnings = [*picture.notes, *_losses(picture, job, strip=self.strip, jpeg_quality=self.jpeg_quality)]
        records: list[DenoiseRecord] = []
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

            main = opened(picture, job.output)
            residual = opened(_derived(picture, "residual", 1), job.residual) if job.residual else None
            compare = opened(_derived(picture, "comparison", 3), job.compare) if job.compare else None
            for index in range(len(picture.specs)):
                noisy, alpha = picture.page(index)
                share = part_of(progress, index, len(picture.specs))
                result = denoise_pixels(noisy, self.sigma, self.request, progress=share)
                if index == 0 and self.save_transform is not None and result.record.transform is None:
                    name = display_name(self.save_transform)
                    raise DstlError(f"{job.source.name} has no noise to learn from and is not written; {name} neither.")
                main.add(result.pixels, alpha)
                if residual is not None:
                    residual.add(residual_picture(noisy, result.pixels))
                if compare is not None:
                    removed = residual_picture(noisy, result.pixels)
                    compare.add(np.concatenate((noisy, result.pixels, removed), axis=1))
                warnings += result.record.warnings
                records = records or [result.record]
            for writer in filter(None, (main, residual, compare)):
                writer.close()  # each of them may appear, before one does
        sigma_source = "estimated" if self.sigma is None else "given"
        said = tuple(dict.fromkeys(warnings))
        finished = DenoisedFile(picture.info, records[0], said, perf_counter() - start, sigma_source)
        page = finished.first_page
        if self.save_transform is not None and page.transform is not None:
            provenance = {"settings": page.settings, "sigma": finished.sigma, "images": 1, "source": "denoise"}
            kept = TransformFile(page.transform, provenance, page.history)
            save_transform(self.save_transform, kept, overwrite=self.force)
        return finished

    @property
    def summary(self) -> dict[str, int]:
        """How many pictures met which end."""
        failed = sum(record["error"] is not None for record in self.records)
        done = len(self.records) - failed
        return {"done": done, "failed": failed, "resumed": len(self.done_before), "skipped": self.found.skipped}


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
    if not source.written:
        losses.append(f"{source.label} is only read; the result is {entry.label}.")
    if source.name == entry.name == "jpeg" and jpeg_quality is None:
        losses += entry.load().coding_changes(picture)
    return losses


def residual_picture(noisy: Pixels, denoised: Pixels) -> Pixels:
    """noisy - denoised in the same dtype; around middle grey for integers, around zero for floats."""
    depth = Depth.of(noisy.dtype)
    difference = noisy.astype(np.float64) - denoised.astype(np.float64)
    return depth.restore(difference if depth.data_range is None else difference / depth.unit + 128.0)
