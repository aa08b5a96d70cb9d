"""One picture file from start to end, page by page and large pages in parts; and what there is to say about it."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.names import display_name
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.base.scratch import Memory
from dstl_cli.denoising import pipeline
from dstl_cli.denoising.pipeline import DenoiseRecord, denoised_rows
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.errors import DstlError
from dstl_cli.picture.formats import FORMATS, format_to_write
from dstl_cli.picture.inputs import Job
from dstl_cli.picture.model import ImageInfo, Page, Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import Writer, lost_metadata, natural_format, open_writer
from dstl_cli.pixels.colour import root_mean_square
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Box

Pixels = NDArray[Any]


@dataclass(frozen=True)
class DenoiseOptions:
    """How every picture of a run is denoised and written; save_transform keeps the transform of the only one."""

    sigma: float | None
    request: Request
    save_transform: Path | None = None
    strip: bool = False
    force: bool = False
    resume: bool = False
    memory: Memory = field(default_factory=Memory)


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


def denoise_file(job: Job, options: DenoiseOptions, *, progress: Progress | None = None) -> DenoisedFile:
    """Denoise one picture file; its results appear complete or not at all."""
    start = perf_counter()
    picture = read_picture(job.source.path, name=job.source.name)
    warnings = [*picture.notes, *_losses(picture, job, options)]
    records: list[DenoiseRecord] = []
    with ExitStack() as files:  # closed in reverse: the main output appears last, as the sign that all is done

        def opened(content: Picture, target: Path | None) -> Writer:
            writer = open_writer(content, target, strip=options.strip, overwrite=options.force, resume=options.resume)
            return files.enter_context(writer)

        main = opened(picture, job.output)
        residual = opened(_derived(picture, "residual", 1), job.residual) if job.residual else None
        compare = opened(_derived(picture, "comparison", 3), job.compare) if job.compare else None
        for index in range(len(picture.specs)):
            source = PageSource(picture, index)
            plan = survey(source, options.sigma, options.request)
            if index == 0 and options.save_transform is not None and plan.transform is None:
                name = display_name(options.save_transform)
                raise DstlError(f"{job.source.name} has no noise to learn from and is not written; {name} neither.")
            share = part_of(progress, index, len(picture.specs))
            for box, rows in denoised_rows(source, plan, options.request.jobs, progress=share, memory=options.memory):
                noisy, alpha = source.part(box) if residual or compare or picture.has_alpha else (rows, None)
                main.add_rows(rows, alpha)
                if residual is not None:
                    residual.add_rows(residual_picture(noisy, rows))
                if compare is not None:
                    compare.add_rows(side_by_side(noisy, rows))
            warnings += plan.warnings
            records = records or [DenoiseRecord.of(plan)]
        for writer in filter(None, (main, residual, compare)):
            writer.close()  # each of them may appear, before one does
    sigma_source = "estimated" if options.sigma is None else "given"
    said = tuple(dict.fromkeys(warnings))
    return DenoisedFile(picture.info, records[0], said, perf_counter() - start, sigma_source)


class PageSource:
    """The colours of one page of a picture as a PixelSource: of a small page at hand, else read in windows."""

    def __init__(self, picture: Picture, index: int) -> None:
        self._picture, self._index = picture, index
        spec = picture.specs[index]
        self.shape, self.dtype = spec.shape, spec.dtype
        if spec.height * spec.width <= pipeline.STRIP_PIXELS:
            picture.page(index)  # stays at hand

    def window(self, box: Box) -> Pixels:
        """The colours in a box."""
        return self.part(box)[0]

    def part(self, box: Box) -> Page:
        """The colours in a box, and the samples beside them."""
        return self._picture.window(self._index, slice(box.top, box.bottom), slice(box.left, box.right))


def _derived(picture: Picture, kind: str, times: int) -> Picture:
    """A picture to write whose pages are so many times as wide, without alpha and metadata."""
    specs = tuple(replace(spec, width=times * spec.width, extra=0) for spec in picture.specs)
    return Picture(f"The {kind} of {picture.name}", specs)


def _losses(picture: Picture, job: Job, options: DenoiseOptions) -> list[str]:
    """What the output cannot hold of the input."""
    entry = format_to_write(job.output) if job.output is not None else FORMATS[natural_format(picture)]
    lost = () if options.strip else lost_metadata(picture, entry)
    losses = [f"{job.output_name} cannot hold {what} of the input." for what in lost]
    source = FORMATS[picture.format]
    if not source.written:
        losses.append(f"{source.label} is only read; the result is {entry.label}.")
    return losses


def side_by_side(noisy: Pixels, denoised: Pixels) -> Pixels:
    """Noisy, denoised and what was removed, (H, 3 W) or (H, 3 W, 3)."""
    return np.concatenate((noisy, denoised, residual_picture(noisy, denoised)), axis=1)


def residual_picture(noisy: Pixels, denoised: Pixels) -> Pixels:
    """noisy - denoised in the same dtype; around middle grey for integers, around zero for floats."""
    depth = Depth.of(noisy.dtype)
    difference = noisy.astype(np.float64) - denoised.astype(np.float64)
    return depth.restore(difference if depth.data_range is None else difference / depth.unit + 128.0)
