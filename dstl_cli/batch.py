"""One picture file from start to end: read, denoise page by page, write; and what there is to say about it."""

import sys
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.colour import Depth, root_mean_square
from dstl_cli.config import Settings
from dstl_cli.denoising import Account, Tools, denoise_pixels
from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.files.images import (
    ImageInfo,
    Picture,
    check_format,
    format_of_path,
    lost_metadata,
    picture_from_array,
    read_picture,
    write_picture,
)
from dstl_cli.files.inputs import Job
from dstl_cli.progress import Progress, part_of

Pixels = NDArray[Any]


@dataclass(frozen=True)
class Order:
    """What is to be done with every picture of a run."""

    sigma: float | None
    config: Settings
    tools: Tools = field(default_factory=Tools)
    strip: bool = False
    force: bool = False
    resume: bool = False


@dataclass(frozen=True)
class Finished:
    """A written picture: what it is and how each page was denoised."""

    info: ImageInfo
    notes: tuple[str, ...]  # what the file layer has to say
    pages: tuple[Account, ...]
    seconds: float

    @property
    def sigma(self) -> float:
        """One number for the noise removed: over the channels of the first page."""
        return root_mean_square(list(self.pages[0].sigmas))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to say about the noise estimates and the file, each sentence once."""
        return tuple(dict.fromkeys([*self.notes, *(text for page in self.pages for text in page.warnings)]))


def denoise_file(
    job: Job,
    order: Order,
    *,
    progress: Progress | None = None,
) -> Finished:
    """Denoise one picture file; the result appears complete or not at all."""
    start = perf_counter()
    source = job.source.path if job.source.path is not None else _read_stdin()
    picture = read_picture(source, name=job.source.name)
    notes = list(picture.notes)
    if job.output is not None:
        written = format_of_path(job.output)
        check_format(picture, written, strip=order.strip, suffix=job.output.suffix)
        if not order.strip:
            notes += [f"{job.output.name} cannot hold {what} of the input." for what in lost_metadata(picture, written)]
    done: list[Account] = []

    def denoised_page(index: int, page: Pixels) -> Pixels:
        share = part_of(progress, index, len(picture.specs))
        try:
            result = denoise_pixels(page, order.sigma, order.config, order.tools, progress=share)
        except ValueError as error:
            raise DstlError(f"{job.source.name} cannot be denoised: {error}") from error
        if index == 0:
            _write_extras(page, result.pixels, job, overwrite=order.force or order.resume)
        done.append(result.account)
        return result.pixels

    result = picture.map_pages(denoised_page)
    if job.output is None:
        _write_stdout(result, order.strip)
    else:
        write_picture(result, job.output, strip=order.strip, overwrite=order.force)
    return Finished(picture.info, tuple(notes), tuple(done), perf_counter() - start)


def _write_extras(noisy: Pixels, denoised: Pixels, job: Job, *, overwrite: bool) -> None:
    """The pictures of what was removed, and of before, after and difference side by side."""
    if not job.extras:
        return
    removed = residual_picture(noisy, denoised)
    if job.residual is not None:
        write_picture(picture_from_array(removed, name="the residual"), job.residual, overwrite=overwrite)
    if job.compare is not None:
        joined = np.concatenate((noisy, denoised, removed), axis=1)
        write_picture(picture_from_array(joined, name="the comparison"), job.compare, overwrite=overwrite)


def _read_stdin() -> bytes:
    """All of standard input."""
    if sys.stdin is None:
        raise FileProblem("There is no standard input to read a picture from; give a file.")
    return sys.stdin.buffer.read()


def _write_stdout(picture: Picture, strip: bool) -> None:
    """The picture to standard output."""
    if sys.stdout is None:
        raise FileProblem("There is no standard output to write the picture to; give a file with --output.")
    try:
        write_picture(picture, sys.stdout.buffer, strip=strip)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise FileProblem(f"The picture cannot be written to standard output ({reason}); give a file.") from None


def residual_picture(noisy: Pixels, denoised: Pixels) -> Pixels:
    """noisy - denoised in the same dtype; around middle grey for integers, around zero for floats."""
    depth = Depth.of(noisy.dtype)
    difference = noisy.astype(np.float64) - denoised.astype(np.float64)
    return depth.restore(difference if depth.data_range is None else difference / depth.unit + 128.0)
