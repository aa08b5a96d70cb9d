"""`dstl denoise --preview`: one part of one picture, denoised with several strengths and qualities, on one sheet."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.arrays import Bytes
from dstl_cli.base.names import display_number
from dstl_cli.base.progress import Progress
from dstl_cli.denoising.pipeline import denoised_rows
from dstl_cli.denoising.plan import Plan, Statistics
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.denoising.survey import Request, look_at, noise_of, survey
from dstl_cli.errors import DstlError, refusals
from dstl_cli.noise.model import NoiseModel
from dstl_cli.picture.crop import check_part
from dstl_cli.picture.formats.exif import exif_orientation
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.colour import root_mean_square
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import ArraySource, PixelSource, bands
from dstl_cli.report.sheet import Tile, draw_sheet
from dstl_cli.run.noise import NoiseFile, noise_for, sigma_to_try
from dstl_cli.run.pages import PageSource

Pixels = NDArray[Any]
Floats = NDArray[np.float64]

STRENGTHS = (0.5, 1.0, 1.5)
SIDE = 192  # of the part that is chosen
NEAR = 80  # pixels around the part that `best` gets: with those beyond, one pixel in a thousand changes by more than
# a grey level
CELL = 16  # pixels of a side of the squares that are flat, detailed or neither ...
BLOCK = 4  # ... judged by the means of such blocks, in which there is less noise
FLAT, DETAILED = 1.5, 3.0  # times the deviation of block means in the flattest cells
FLATTEST = 0.1  # share of the cells that tells it
EXTREME = 0.03  # of the range at its ends: clipped, or so dark that nothing is seen
SHOWN_SHARE = 0.005  # of the values at each end may be beyond black and white


@dataclass(frozen=True)
class PreviewMade:
    """What a sheet shows: which part, what noise, and what there is to say."""

    part: Box
    noise: str
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Variant:
    """One way to denoise the part: what it is called on the sheet, and its request."""

    title: str
    request: Request


def make_preview(
    path: Path | None,
    name: str,
    noise: float | NoiseModel | NoiseFile | None,
    request: Request,
    part: Box | None,
    sheet: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PreviewMade:
    """Write the sheet of the first page of a picture; part: what is shown, else the most telling place.

    The noise is estimated once and on the whole page, so that each tile is the part of what `dstl denoise` gives;
    that of `best` but for a grey level here and there, see `denoised_part`.
    """
    start = perf_counter()
    picture = replace(read_picture(path, name=name), allows_invalid=request.keep_invalid)
    if part is not None:
        check_part(picture, part.rows, part.columns)
    with refusals(name, "cannot be denoised"):
        source = PageSource(picture, 0)
        seen = look_at(source, source.depth, keep_invalid=request.keep_invalid)
        told = noise_for(noise, source.depth)
        found = noise_of(source, request, seen, source.depth, source.hints) if told is None else (told, ())
        model, warnings = found
        box = part or telling_box(block_means(source), source.shape, (seen.smallest, seen.largest))
        plans, parts = _denoised(source, model, variants(request), box, seen, progress)
    if plans[0].transform is None:
        try_this = sigma_to_try(source.depth)
        raise DstlError(f"{name} has no noise to remove, so there is nothing to compare; {try_this} removes some.")
    noisy = source.window(box)
    limits = shown_range(noisy)
    orientation = exif_orientation(picture.metadata.exif)

    def shown(pixels: Pixels) -> Bytes:
        return upright(to_bytes(pixels, limits), orientation)

    middle = plans[STRENGTHS.index(1.0)]
    white = f"sigma {display_number(root_mean_square(list(middle.sigmas)))}" if middle.noise.kind == "white" else ""
    about_noise = white or middle.noise_as_told.describe()
    tiles: list[Tile | None] = [Tile("noisy", about_noise, shown(noisy))]
    for variant, plan, pixels in zip(variants(request), plans, parts, strict=True):
        tiles.append(Tile(variant.title, _about(variant, plan), shown(pixels)))
    tiles.insert(1 + len(STRENGTHS), None)
    about = _lines(name, picture.specs[0].width, picture.specs[0].height, box, about_noise, limits, source.dtype)
    if orientation > 1:
        about.append("turned upright as its EXIF data say; --crop counts pixels as they are stored")
    icc = picture.metadata.icc if picture.specs[0].channels == 3 else None
    draw_sheet(tiles, about, sheet, overwrite=overwrite, icc=icc)
    said = tuple(dict.fromkeys((*picture.notes, *warnings, *(text for plan in plans for text in plan.warnings))))
    return PreviewMade(box, about_noise, said, perf_counter() - start)


def variants(request: Request) -> list[Variant]:
    """The strengths at the quality that was asked for, and the qualities at strength 1."""
    strengths = [request if value == request.strength else replace(request, strength=value) for value in STRENGTHS]
    found = [Variant(f"strength {own.strength:g}", own) for own in strengths]
    for entry in QUALITIES:
        if not entry.preset:
            own = request.quality.name == entry.name
            plain = replace(request, quality=entry, settings=entry.make({"seed": request.settings.seed}))
            plain = replace(plain, source=replace(plain.source, given=None, adapt=False))
            found.append(Variant(entry.name, request if own else plain))
    return found


def _denoised(
    source: PageSource,
    noise: float | NoiseModel,
    wanted: list[Variant],
    box: Box,
    seen: Statistics,
    progress: Progress | None,
) -> tuple[list[Plan], list[Pixels]]:
    """The plan of each variant, and the part as it makes it; what is the same is made once."""
    plans: list[Plan] = []
    parts: list[Pixels] = []
    requests = [variant.request for variant in wanted]
    for number, request in enumerate(requests):
        asked_before = next((plan for plan, other in zip(plans, requests, strict=False) if other is request), None)
        plan = asked_before or survey(source, noise, request, depth=source.depth, seen=seen)
        twin = next((i for i, other in enumerate(plans) if _makes_the_same(other, plan)), None)
        if twin is None:
            parts.append(denoised_part(source, plan, box, request))
        else:
            parts.append(parts[twin])
        plans.append(plan)
        if progress is not None:
            progress((number + 1) / len(requests))
    return plans, parts


def denoised_part(source: PixelSource, plan: Plan, box: Box, request: Request) -> Pixels:
    """A part of the denoised picture; where the quality looks far, from the pixels near it, which changes it little."""
    cut = plan.cut_near(box, NEAR)
    if cut is not None:
        plan, near = cut
        source = ArraySource(source.window(near))
        box = Box(box.top - near.top, box.left - near.left, box.bottom - near.top, box.right - near.left)
    rows = denoised_rows(source, plan, request.jobs, memory=request.memory, part=box)
    return np.concatenate([pixels for _, pixels in rows])


def _makes_the_same(first: Plan, second: Plan) -> bool:
    """Whether two plans of one picture give the same pixels."""
    if first.transform is None or second.transform is None:
        return first.transform is second.transform
    same = np.array_equal(first.transform.factor, second.transform.factor)
    return bool(same) and first.to_json() == second.to_json()


def _about(variant: Variant, plan: Plan) -> str:
    """A line about a denoised tile."""
    asked = variant.request
    if variant.title != asked.quality.name:
        return f"{plan.quality}"
    return f"strength {asked.strength:g}" if plan.quality == asked.quality.name else f"is {plan.quality} for this noise"


def _lines(
    name: str, width: int, height: int, box: Box, noise: str, limits: tuple[float, float], dtype: np.dtype[Any]
) -> list[str]:
    """What the sheet says about itself."""
    shown = f"{box.shape[1]} x {box.shape[0]} pixels"
    crop = f"--crop {box.left},{box.top},{box.shape[1]},{box.shape[0]}"
    lines = [Path(name).name, f"{width} x {height} pixels, {dtype.name}", f"noise: {noise}", f"shown: {shown}", crop]
    if dtype != np.uint8:
        lines.append(f"{limits[0]:.6g} is shown as black, {limits[1]:.6g} as white")
    return lines


def shown_range(pixels: Pixels) -> tuple[float, float]:
    """What is shown as black and as white: 0 and 255 for bytes; else where nearly all values of these pixels lie."""
    if pixels.dtype == np.uint8:
        return 0.0, 255.0
    told = pixels[np.isfinite(pixels)]
    if not told.size:
        return 0.0, 1.0
    low, high = (float(value) for value in np.quantile(told, (SHOWN_SHARE, 1 - SHOWN_SHARE)))
    return (low, high) if high > low else (low, low + 1.0)


def to_bytes(pixels: Pixels, limits: tuple[float, float]) -> Bytes:
    """Pixels of any depth as bytes: from black to white between the limits; what is no finite number is black."""
    told = np.where(np.isfinite(pixels), pixels, limits[0])
    scaled = (told.astype(np.float64) - limits[0]) * (255.0 / (limits[1] - limits[0]))
    return np.asarray(np.rint(np.clip(scaled, 0, 255)), np.uint8)


def upright(pixels: Bytes, orientation: int) -> Bytes:
    """Pixels as stored, turned as EXIF orientation 1 to 8 says: from 5 on rows are columns, then mirrored both ways."""
    turned = np.swapaxes(pixels, 0, 1) if orientation > 4 else pixels
    down, across = (-1 if orientation in mirrored else 1 for mirrored in ((3, 4, 7, 8), (2, 3, 6, 7)))
    return np.ascontiguousarray(turned[::down, ::across])


# --- the most telling place ---------------------------------------------------------------------------


def block_means(source: PixelSource) -> Floats:
    """A grey picture of the means over small blocks, NaN where a pixel is; pixels that fill no block are left out."""
    height, width = (side // BLOCK * BLOCK for side in source.shape[:2])
    means = np.empty((height // BLOCK, width // BLOCK))
    done = 0
    for band in bands(Box(0, 0, height, width)):
        until = band.bottom // BLOCK * BLOCK
        if until == done or not width:
            continue
        pixels: Pixels = source.window(Box(done, 0, until, width))
        if pixels.dtype.kind == "f":
            pixels = np.where(np.isfinite(pixels), pixels, np.nan)
        blocks = pixels.reshape((until - done) // BLOCK, BLOCK, width // BLOCK, -1)
        means[done // BLOCK : until // BLOCK] = blocks.mean(axis=(1, 3), dtype=np.float64)
        done = until
    return means


def telling_box(means: Floats, shape: tuple[int, ...], limits: tuple[float, float], side: int = SIDE) -> Box:
    """The box of a picture, from its block means, that has most of both: flat cells, where noise shows, and detail.

    Cells at the ends of the range (limits: smallest and largest value) count as neither, if others are there. Of equal
    boxes the one nearest to the middle is taken; where nothing tells them apart, the middle itself.
    """
    height, width = min(side, shape[0]), min(side, shape[1])
    middle = np.array([(shape[0] - height) / 2, (shape[1] - width) / 2])
    per_cell = CELL // BLOCK
    down, across = (length // per_cell for length in means.shape)
    if min(down * CELL - height, across * CELL - width) < 0 or min(down, across) < 1:
        top, left = (int(value) for value in middle)
        return Box(top, left, top + height, left + width)
    cells = means[: down * per_cell, : across * per_cell].reshape(down, per_cell, across, per_cell)
    flat, detailed = _judged(cells.mean(axis=(1, 3)), cells.std(axis=(1, 3)), limits)
    high, wide = height // CELL, width // CELL
    scores = np.round(_box_sums(flat, high, wide) * _box_sums(detailed, high, wide))
    corners = CELL * np.argwhere(scores == scores.max())
    corners = np.minimum(corners, [shape[0] - height, shape[1] - width])
    if scores.max() == 0:
        corners = middle[np.newaxis].astype(int)
    nearest = np.argmin(((corners - middle) ** 2).sum(axis=1))
    top, left = (int(value) for value in corners[nearest])
    return Box(top, left, top + height, left + width)


def _judged(levels: Floats, deviations: Floats, limits: tuple[float, float]) -> tuple[Floats, Floats]:
    """Which cells are flat and which detailed, as ones and zeros."""
    margin = EXTREME * (limits[1] - limits[0])
    usable = (levels >= limits[0] + margin) & (levels <= limits[1] - margin)
    if not usable.any():
        usable = np.isfinite(levels)
    if not usable.any():
        return np.zeros(levels.shape), np.zeros(levels.shape)
    floor = float(np.quantile(deviations[usable], FLATTEST))
    flat = usable & (deviations <= FLAT * floor)
    detailed = usable & (deviations > DETAILED * floor)
    return flat.astype(np.float64), detailed.astype(np.float64)


def _box_sums(values: Floats, high: int, wide: int) -> Floats:
    """The sums over all boxes of high x wide cells."""
    table = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
    table[1:, 1:] = values.cumsum(axis=0).cumsum(axis=1)
    return np.asarray(table[high:, wide:] - table[:-high, wide:] - table[high:, :-wide] + table[:-high, :-wide])
