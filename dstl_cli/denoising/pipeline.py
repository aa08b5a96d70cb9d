"""One road for every picture: the survey makes the plan, and with the plan any part of the picture is denoised."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.progress import Progress
from dstl_cli.base.scratch import Memory
from dstl_cli.base.threads import Execution, available_cores, in_order, one_blas_thread
from dstl_cli.denoising.plan import Plan, with_base_apart
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.noise.blind import NO_HINTS, Hints
from dstl_cli.noise.model import NoiseModel
from dstl_cli.pixels.colour import from_channels
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.invalid import FilledSource, put_back
from dstl_cli.pixels.planes import Box, LazyPlane, Plane
from dstl_cli.pixels.source import ArraySource, LockedSource, PixelSource, bands
from dstl_cli.transforms.transform import Iteration, Transform

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]

STRIP_PIXELS = 8_000_000  # denoised at a time, where little is needed around them
STRIP_ROWS = 64  # strips are as high as some rows of tiles
RESULT_PIXELS = 1_000_000  # read or finished by a thread at a time
LARGEST_OVERHEAD = 1.3  # windows of strips may have so many times the pixels of the strips


@dataclass(frozen=True)
class DenoiseRecord:
    """How a picture was denoised.

    sigmas: one for grey; luminance and two chrominances for colour. settings: all that made the result, by name.
    """

    sigmas: tuple[float, ...]
    warnings: tuple[str, ...]
    transform: Transform | None
    history: tuple[Iteration, ...]
    settings: dict[str, Any] | None
    plan: Plan

    @classmethod
    def of(cls, plan: Plan) -> "DenoiseRecord":
        """What a plan tells."""
        settings = plan.facts() if plan.transform is not None else None
        return cls(plan.sigmas, plan.warnings, plan.transform, plan.history, settings, plan)


@dataclass(frozen=True)
class Denoised:
    """A denoised picture in its own dtype, and how it was done."""

    pixels: Pixels
    record: DenoiseRecord


def denoise_pixels(
    pixels: Pixels,
    noise: float | NoiseModel | None,
    request: Request,
    *,
    depth: Depth | None = None,
    progress: Progress | None = None,
    hints: Hints = NO_HINTS,
) -> Denoised:
    """Denoise a grey (H, W) or RGB (H, W, 3) picture; dtype and shape stay. For noise, depth and hints see `survey`."""
    source = ArraySource(pixels)
    plan = survey(source, noise, request, depth=depth, hints=hints)
    result = _joined(source, Box.whole(plan.shape), plan, request.jobs, progress, request.memory)
    return Denoised(result, DenoiseRecord.of(plan))


def denoised_rows(
    source: PixelSource,
    plan: Plan,
    jobs: int | None = None,
    *,
    progress: Progress | None = None,
    memory: Memory | None = None,
    part: Box | None = None,
) -> Iterator[tuple[Box, Pixels]]:
    """The denoised picture, or a part of it, in pieces of whole rows, from top to bottom, each with its box."""
    memory = memory or Memory()
    boxes = strips(plan, memory, part)
    execution = Execution(jobs or available_cores(), progress, memory.allocator(plan.working_bytes(boxes[0])))
    for number, box in enumerate(boxes):
        yield from _denoised_box(source, box, plan, execution.part(number, len(boxes)))


def strips(plan: Plan, memory: Memory, part: Box | None = None) -> list[Box]:
    """The lowest strips of a picture, or of a part of it, whose windows, together, are not much larger than its own.

    Perhaps all of it is one strip.
    """
    whole = part or Box.whole(plan.shape)
    height, width = whole.shape
    if plan.transform is None or (height * width <= STRIP_PIXELS and memory.holds(plan.working_bytes(whole))):
        return [whole]
    rows = max(1, STRIP_PIXELS // (width * STRIP_ROWS)) * STRIP_ROWS
    while rows > STRIP_ROWS and not memory.holds(plan.working_bytes(_strip(whole, whole.top, rows))):
        rows = rows // (2 * STRIP_ROWS) * STRIP_ROWS or STRIP_ROWS
    most = LARGEST_OVERHEAD * plan.window(whole).shape[0]
    for count in range(-(-height // rows), 1, -1):
        rows = -(-height // (count * STRIP_ROWS)) * STRIP_ROWS  # about equal, so that the largest window is small
        boxes = [_strip(whole, top, rows) for top in range(whole.top, whole.bottom, rows)]
        if sum(plan.window(box).shape[0] for box in boxes) <= most:
            return boxes
    return [whole]


def _strip(whole: Box, top: int, rows: int) -> Box:
    """So many rows of a box, or those that are left."""
    return Box(top, whole.left, min(top + rows, whole.bottom), whole.right)


def denoise_region(
    window: Pixels, box: Box, plan: Plan, *, jobs: int | None = None, memory: Memory | None = None
) -> Pixels:
    """Denoise a box of a picture, given the pixels of `plan.window(box)`: the same bytes as in the whole picture."""
    at_hand = plan.window(box)
    if window.shape[:2] != at_hand.shape:
        raise ValueError(
            f"This box needs a window of {at_hand.shape[1]} x {at_hand.shape[0]} pixels, "
            f"not {window.shape[1]} x {window.shape[0]}."
        )
    return _joined(ArraySource(window, at_hand.top, at_hand.left), box, plan, jobs, None, memory)


def _joined(
    source: PixelSource, box: Box, plan: Plan, jobs: int | None, progress: Progress | None, memory: Memory | None
) -> Pixels:
    """A denoised box in one piece."""
    result = np.empty((*box.shape, *source.shape[2:]), plan.depth.dtype)
    for rows, part in denoised_rows(source, plan, jobs, progress=progress, memory=memory, part=box):
        result[rows.top - box.top : rows.bottom - box.top] = part
    return result


def _denoised_box(source: PixelSource, box: Box, plan: Plan, execution: Execution) -> Iterator[tuple[Box, Pixels]]:
    """A box of the picture, in pieces of whole rows."""
    if plan.transform is None:
        for rows in bands(box):
            yield rows, source.window(rows).astype(plan.depth.dtype)
        return
    statistics = plan.statistics
    source = LockedSource(source)
    seen = FilledSource(source, plan.shape, statistics.means) if statistics.invalid else source
    planes = [_plane(seen, index, plan.worked_on(box), plan, execution) for index in range(len(plan.centres))]
    apart = [with_base_apart(plane.made, True) if plan.steep else (plane, None) for plane in planes]
    del planes
    with one_blas_thread():
        wanted = box if plan.padded_shape == plan.shape else None
        denoised = plan.stages([plane for plane, _ in apart], replace(execution, wanted=wanted))
    bases = [base for _, base in apart]
    del apart

    def finished(rows: Box) -> Pixels:
        images = [_values(*parts, rows, plan) for parts in zip(denoised, bases, plan.centres, strict=True)]
        pixels = from_channels(images, plan.depth)
        if statistics.equal_channels and len(source.shape) == 3:
            pixels = np.stack([pixels] * 3, axis=-1)
        if statistics.invalid:
            put_back(pixels, source.window(rows))
        return pixels

    parts = list(bands(box, RESULT_PIXELS))
    yield from zip(parts, in_order(finished, parts, execution.threads), strict=True)


def _values(plane: Plane, base: Plane | None, centre: float, rows: Box, plan: Plan) -> Floats:
    """A denoised working channel in a box, within its range."""
    values: Floats = np.array(plane.window(rows), dtype=plan.result_type)
    if base is not None:
        values += base.window(rows)
    values += centre
    if plan.data_range is not None:
        np.clip(values, *plan.data_range, out=values)
    return values


def _plane(source: PixelSource, index: int, box: Box, plan: Plan, execution: Execution) -> Plane:
    """A working channel in a box, counted from its centre; read where it is asked for."""
    kind = plan.result_type if plan.steep else np.float32  # a base is taken off first
    if plan.padded_shape != plan.shape:  # too small for the patches: it is all at hand
        return Plane.whole(plan.padded(plan.channel(source.window(box), index)).astype(kind, copy=False))

    def part(rows: Box) -> Floats:
        return plan.channel(source.window(rows), index).astype(kind, copy=False)

    def whole() -> Floats:
        values: Floats = execution.allocate(box.shape, kind)

        def fill(rows: Box) -> None:
            values[rows.top - box.top : rows.bottom - box.top] = part(rows)

        for _ in in_order(fill, bands(box, RESULT_PIXELS), execution.threads):
            pass
        return values

    return LazyPlane(part, box, plan.shape, whole)
