"""The region law: however a picture is cut, whoever works on it and wherever its planes are kept, the same bytes.

Tiles and groups are small here, so that windows are much smaller than these small pictures; tests/slow has the law with
those that are used.
"""

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.base import scratch
from dstl_cli.base.progress import Progress
from dstl_cli.base.scratch import Memory
from dstl_cli.denoising import grouped, passes, pipeline
from dstl_cli.denoising.pipeline import denoise_pixels, denoise_region, denoised_rows, strips
from dstl_cli.denoising.plan import Plan, TransformSource
from dstl_cli.denoising.settings import GroupSettings
from dstl_cli.denoising.survey import Request, survey
from dstl_cli.noise.model import NoiseModel, SpectralChannel, SpectralNoise, model_from_json
from dstl_cli.pixels.planes import Box
from dstl_cli.pixels.source import ArraySource
from dstl_cli.transforms.ready import ready_transform

Pixels = NDArray[Any]

SETTINGS: dict[str, dict[str, Any]] = {
    "fast": {},
    "standard": {"train_patches": 1600, "iterations": 2, "patch_size": 6},
    "paper": {"rounds": 1, "train_patches": 200, "stride": 3, "patch_size": 7},
    "best": {},
}
GROUPS = GroupSettings(window_radius=6, near_radius=4, first_radius=5, first_group=4, group=8, passes=3, matchings=2)
HALVED = replace(GROUPS, half=replace(GROUPS, window_radius=3, near_radius=2, first_radius=3, passes=2, matchings=1))


# Stronger in the lights and in coarse structures, which asks for one coarser scale; chrominances as their own.
LUMINANCE = SpectralChannel((0.09, 0.5), (20.0, 8.0), 3.0, (0.0, 128.0, 255.0), (0.6, 1.0, 1.5))
CHROMINANCE = SpectralChannel((0.09, 0.4), (30.0, 5.0), 0.0, (20.0, 200.0), (1.5, 0.7))


@dataclass(frozen=True)
class Case:
    """A picture and how it is denoised."""

    quality: str
    colour: bool
    dtype: str
    sigma: float | None
    shape: tuple[int, int] = (151, 203)
    kind: str = "photograph"

    @property
    def noise(self) -> float | NoiseModel | None:
        """What the survey is told."""
        if self.kind == "spectral":
            return SpectralNoise((LUMINANCE, CHROMINANCE, CHROMINANCE) if self.colour else (LUMINANCE,))
        return self.sigma

    def __str__(self) -> str:
        colour = "colour" if self.colour else "grey"
        return f"{self.quality}-{colour}-{self.dtype}-{self.sigma}-{self.kind}-{self.shape[0]}x{self.shape[1]}"


LONG = (47, 603)  # windows of coarser scales are large; along this side they are not all of it
CASES = [
    Case("fast", False, "uint8", 5.0),
    Case("fast", False, "float32", 100.0, LONG),
    Case("fast", True, "float64", 100.0, LONG),
    Case("fast", True, "uint8", None, (101, 151)),
    Case("standard", False, "float64", 5.0),
    Case("standard", False, "uint8", 100.0, (603, 47)),
    Case("standard", True, "float32", 5.0),
    Case("standard", True, "uint8", 100.0, LONG),
    Case("paper", False, "uint8", 5.0),
    Case("paper", False, "float64", 100.0),
    Case("paper", True, "float32", 5.0),
    Case("paper", True, "uint8", 100.0),
    Case("best", False, "float32", 5.0),
    Case("best", False, "uint8", 100.0),
    Case("best", True, "uint8", 5.0, (101, 151)),
    Case("best", True, "float64", 100.0, (101, 151)),
    Case("fast", False, "float64", 5.0, (301, 97), "ramp"),
    Case("best", False, "float64", 5.0, (301, 97), "ramp"),
    Case("fast", True, "uint16", 20.0, kind="equal channels"),
    Case("standard", False, "uint8", 20.0, (5, 203)),
    Case("best", True, "float32", 20.0, (9, 8)),
    Case("paper", True, "uint8", 0.0),
    Case("fast", False, "float32", 15.0, LONG, "spectral"),
    Case("standard", True, "uint8", 15.0, LONG, "spectral"),
    Case("fast", False, "int16", 20.0),
    Case("standard", True, "int32", 5.0),
    Case("best", False, "uint32", 20.0),
    Case("fast", False, "float32", 20.0, LONG, "holes"),
    Case("fast", True, "float16", None, LONG, "holes"),
    Case("standard", True, "float64", 5.0, (151, 403), "holes"),
    Case("best", False, "float32", 20.0, (151, 403), "holes"),
    Case("paper", False, "float32", 20.0, kind="holes"),
    Case("standard", True, "float32", 20.0, (9, 8), "holes"),
    Case("fast", False, "float32", 0.0, kind="holes"),
    Case("best", False, "float32", 15.0, LONG, "spectral"),
    Case("best", True, "uint8", 15.0, LONG, "spectral"),
    Case("best", False, "float32", 15.0, LONG, "halves"),
    Case("best", True, "uint8", 15.0, LONG, "halves"),
]
SMALL = [case for case in CASES if min(case.shape) < 10]  # worked on as a whole
EVERY = pytest.mark.parametrize("case", CASES, ids=str)


TILES: dict[tuple[ModuleType, str], Any] = {
    (passes, "TILE_HEIGHT"): 16,
    (passes, "TILE_WIDTH"): 24,
    (grouped, "TILE"): (16, 24),
}
USUAL = {(module, name): getattr(module, name) for module, name in TILES}


@pytest.fixture(autouse=True, scope="module")
def small_tiles() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in TILES.items():
            patch.setattr(module, name, value)
        yield


def picture(case: Case) -> Pixels:
    """A part of a photograph, or a steep ramp, with the noise."""
    from skimage import data

    height, width = case.shape
    rng = np.random.default_rng(height)
    if case.kind == "ramp":
        clean: NDArray[Any] = np.linspace(0, 1e9, height)[:, None] + np.linspace(0, 1e8, width)
    else:
        photograph = data.astronaut() if case.colour else data.camera()
        mirrored = np.pad(photograph, [(0, 300), (0, 300), (0, 0)][: photograph.ndim], mode="symmetric")
        clean = mirrored[90 : 90 + height, 60 : 60 + width]
    if case.kind == "equal channels":
        clean = clean[..., :1]
    noisy = clean + (20.0 if case.sigma is None else case.sigma) * rng.standard_normal(clean.shape)
    if case.kind == "equal channels":
        noisy = np.repeat(noisy, 3, axis=2)
    if case.dtype == "uint8":
        return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
    if case.dtype == "uint16":
        return np.clip(np.rint(257 * noisy), 0, 65535).astype(np.uint16)
    if "int" in case.dtype:
        noisy = np.clip(np.rint(noisy), np.iinfo(case.dtype).min, np.iinfo(case.dtype).max)
    noisy = noisy.astype(case.dtype)
    if case.kind == "holes":
        noisy[rng.random(case.shape) < 0.05] = np.nan
        noisy[: height // 3, width // 4 : width // 2] = np.inf
        noisy[-3:, -2] = -np.inf
        noisy[height // 2, : width // 2, ...] = np.nan
    return noisy


def request(case: Case, jobs: int = 1) -> Request:
    source = TransformSource(ready=ready_transform)
    wanted = Request.named(case.quality, source=source, jobs=jobs, **SETTINGS[case.quality])
    wanted = replace(wanted, keep_invalid=case.kind == "holes")
    if case.quality == "best":
        groups = HALVED if case.kind in ("halves", "spectral") else GROUPS
        return replace(wanted, settings=replace(wanted.settings, groups=groups))
    return wanted


@cache
def surveyed(case: Case) -> Plan:
    return survey(ArraySource(picture(case)), case.noise, request(case))


def denoised(case: Case, wanted: Request, progress: Progress | None = None) -> Pixels:
    """The picture, surveyed and denoised as a whole."""
    source = ArraySource(picture(case))
    plan = survey(source, case.noise, wanted)
    parts = denoised_rows(source, plan, wanted.jobs, progress=progress, memory=wanted.memory)
    return np.concatenate([part for _, part in parts])


@cache
def whole(case: Case) -> Pixels:
    """The result in one piece, on one thread, in memory."""
    result = denoised(case, request(case))
    assert result.shape == picture(case).shape
    assert result.dtype == case.dtype
    return result


def cut(pixels: Pixels, box: Box) -> Pixels:
    return pixels[box.top : box.bottom, box.left : box.right]


def region(case: Case, box: Box, plan: Plan, jobs: int = 1) -> Pixels:
    """A box, denoised from its window and nothing else."""
    window = np.array(cut(picture(case), plan.window(box)))
    return denoise_region(window, box, plan, jobs=jobs)


# Regions.


@EVERY
def test_regions_together_are_the_whole(case: Case) -> None:
    height, width = case.shape
    plan, pixels = surveyed(case), picture(case)
    result = np.zeros_like(pixels)
    rows, columns = sorted({0, height // 2 - 1, height}), sorted({0, width // 3, width})
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            box = Box(top, left, bottom, right)
            cut(result, box)[:] = region(case, box, plan, jobs=1 + top % 2)
    assert result.tobytes() == whole(case).tobytes()


@EVERY
def test_regions_of_few_pixels_have_small_windows(case: Case) -> None:
    height, width = case.shape
    plan = surveyed(case)
    places = [
        Box(height - 1, width - 1, height, width),
        Box(height // 2, width // 2, height // 2 + 1, width // 2 + 1),
        Box(height // 3, 0, height // 3 + 2, 3),
    ]
    shares = []
    for box in places:
        assert region(case, box, plan).tobytes() == cut(whole(case), box).tobytes()
        seen = plan.window(box)
        assert seen.holds(box)
        assert Box.whole(case.shape).holds(seen)
        shares.append(seen.shape[0] * seen.shape[1] / (height * width))
    if case in SMALL:
        assert min(shares) == 1.0
    else:
        assert min(shares) < 0.75


@EVERY
def test_pixels_outside_the_window_do_not_matter(case: Case) -> None:
    """Whoever has the whole picture gets the same for a box as whoever has its window alone."""
    plan, pixels = surveyed(case), picture(case).copy()
    box = Box(0, 0, 1, 1)
    seen = plan.window(box)
    other = pixels[::-1, ::-1].copy()
    cut(other, seen)[:] = cut(pixels, seen)
    rows = next(denoised_rows(ArraySource(other), plan, 1))[1]
    assert cut(rows, box).tobytes() == cut(whole(case), box).tobytes()


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "spectral"], ids=str)
def test_noise_with_a_spectrum_is_worked_on_as_it_is(case: Case) -> None:
    """It follows the level in every channel, and has a coarser scale: the window is larger than that of one scale."""
    plan = surveyed(case)
    assert isinstance(plan.noise, SpectralNoise)
    for channel in plan.noise.channels:
        assert channel.level_factors(np.zeros(1)) is not None
        assert channel.coarser_scales == 1
    fine = tuple(replace(channel, deviations_at=(5.0, 15.0)) for channel in plan.noise.channels)
    place = Box(20, 300, 21, 301)
    assert plan.window(place).shape[1] > replace(plan, noise=SpectralNoise(fine)).window(place).shape[1]
    even = SpectralNoise(tuple(replace(channel, levels=(), factors=()) for channel in plan.noise.channels))
    other = np.concatenate([part for _, part in denoised_rows(ArraySource(picture(case)), replace(plan, noise=even))])
    difference = np.abs(other.astype(np.float64) - whole(case).astype(np.float64))
    assert difference.max() > 1.0


# Threads, strips, scratch files.


@EVERY
def test_threads_do_not_change_a_bit(case: Case) -> None:
    assert denoised(case, request(case, jobs=3)).tobytes() == whole(case).tobytes()


@EVERY
def test_scratch_files_do_not_change_a_bit(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    on_disk = scratch._on_disk

    def counted(folder: Path, shape: tuple[int, int], dtype: Any) -> Any:
        made.append(shape)
        return on_disk(folder, shape, dtype)

    monkeypatch.setattr(scratch, "_on_disk", counted)
    memory = Memory(most=1000, scratch=tmp_path)
    result = denoised(case, replace(request(case), memory=memory))
    assert result.tobytes() == whole(case).tobytes()
    assert made or case in SMALL or case.sigma == 0
    assert not list(tmp_path.iterdir())


@EVERY
def test_strips_do_not_change_a_bit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "STRIP_PIXELS", case.shape[0] * case.shape[1] // 2)
    monkeypatch.setattr(pipeline, "STRIP_ROWS", 16)
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 1e9)
    boxes = strips(surveyed(case), Memory())
    assert len(boxes) > 1 or case in SMALL or case.sigma == 0
    shares: list[float] = []
    result = denoised(case, request(case), shares.append)
    assert result.tobytes() == whole(case).tobytes()
    assert shares == sorted(set(shares))
    assert case.sigma == 0 or shares[-1] == pytest.approx(1.0)


def test_strips_over_scratch_files_do_not_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "STRIP_PIXELS", 3000)
    monkeypatch.setattr(pipeline, "STRIP_ROWS", 32)
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 1e9)
    for case in (CASES[0], CASES[10], CASES[14]):
        memory = Memory(most=1000, scratch=tmp_path)
        assert denoised(case, replace(request(case, 2), memory=memory)).tobytes() == whole(case).tobytes()
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_leaves_no_scratch_file(tmp_path: Path) -> None:
    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    case = CASES[0]
    with pytest.raises(KeyboardInterrupt):
        denoise_pixels(
            picture(case),
            5.0,
            replace(request(case, 2), memory=Memory(most=1000, scratch=tmp_path)),
            progress=interrupt,
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", [1, 64, 10_000])
def test_strips_are_the_picture(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = surveyed(CASES[0])
    monkeypatch.setattr(pipeline, "STRIP_PIXELS", rows * plan.shape[1])
    for overhead in (1.0, 1e9):
        monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", overhead)
        for memory in (Memory(), Memory(most=1)):
            boxes = strips(plan, memory)
            assert boxes[0].top == 0
            assert boxes[-1].bottom == plan.shape[0]
            assert all(above.bottom == below.top for above, below in pairwise(boxes))
            assert {(box.left, box.right) for box in boxes} == {(0, plan.shape[1])}


def test_strips_are_about_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left for the last one is not little: its window would be in vain."""
    plan = surveyed(CASES[0])
    height, width = plan.shape
    monkeypatch.setattr(pipeline, "STRIP_ROWS", 1)
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 1e9)
    for rows in range(height // 5, height):
        monkeypatch.setattr(pipeline, "STRIP_PIXELS", rows * width)
        heights = [box.shape[0] for box in strips(plan, Memory())]
        assert len(heights) == -(-height // rows)
        assert max(heights) - min(heights) < len(heights)


# Windows that do not fit.


@pytest.mark.parametrize("case", [case for case in CASES if case.sigma != 0], ids=str)
def test_other_windows_are_refused(case: Case) -> None:
    plan, pixels = surveyed(case), picture(case)
    box = Box(2, 3, 4, 5)
    seen = plan.window(box)
    height, width = seen.shape
    for window in (cut(pixels, seen)[:-1], cut(pixels, seen)[:, 1:], cut(pixels, seen)[:0]):
        with pytest.raises(ValueError, match=f"^This box needs a window of {width} x {height} pixels, not .*\\.$"):
            denoise_region(window, box, plan)


@pytest.mark.parametrize("quality", ["fast", "paper", "best"])
@pytest.mark.parametrize(
    "box", [(0, 0, 152, 203), (-1, 0, 10, 10), (0, 0, 10, 204), (5, 5, 5, 9), (9, 5, 5, 9), (300, 0, 310, 9)]
)
def test_boxes_that_are_not_in_the_picture_are_refused(quality: str, box: tuple[int, int, int, int]) -> None:
    case = next(case for case in CASES if case.quality == quality and case.shape == (151, 203))
    plan = surveyed(case)

    def part() -> Pixels:
        return denoise_region(cut(picture(case), plan.window(Box(*box))), Box(*box), plan)

    with pytest.raises(ValueError, match=r"^[A-Z].*\bbox\b.*\.$"):
        part()


# The plan.


@EVERY
def test_plans_can_be_pickled(case: Case) -> None:
    plan = surveyed(case)
    again: Plan = pickle.loads(pickle.dumps(plan))
    box = Box(1, 2, 4, 7)
    assert again.window(box) == plan.window(box)
    assert region(case, box, again).tobytes() == cut(whole(case), box).tobytes()
    assert len(pickle.dumps(plan)) < 1e6


@EVERY
def test_plans_tell_everything_as_json(case: Case) -> None:
    plan = surveyed(case)
    facts = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert facts["quality"] == case.quality
    assert tuple(facts["shape"]) == case.shape
    assert facts["dtype"] == case.dtype
    assert facts["steep"] == (case.kind == "ramp")
    assert facts["colour"] == (case.colour and case.kind != "equal channels")
    assert model_from_json(facts["noise"]) == plan.noise
    assert (facts["transform"] is None) == (case.sigma == 0)
    if case.quality == "best":
        assert facts["settings"]["groups"]["window_radius"] == GROUPS.window_radius


def test_the_settings_of_best_are_in_the_plan() -> None:
    """Those that the noise decides too."""
    pixels = picture(CASES[0])[:40, :40]
    plan = survey(ArraySource(pixels), 100.0, Request.named("best", jobs=1))
    assert json.loads(json.dumps(plan.to_json()))["settings"]["groups"]["group"] == GroupSettings.for_sigma(100.0).group


# Values that range wide.


@pytest.mark.parametrize("quality", ["fast", "standard", "best", "paper"])
@pytest.mark.parametrize("direction", ["rows", "columns", "diagonal"])
def test_small_noise_on_a_steep_ramp_is_removed(quality: str, direction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 0 to 1e9 with noise of deviation 5, with the usual tiles."""
    for (module, name), value in USUAL.items():
        monkeypatch.setattr(module, name, value)
    along = np.linspace(0, 1e9, 300)
    clean = {
        "rows": np.repeat(along[:, None], 300, axis=1),
        "columns": np.repeat(along[None], 300, axis=0),
        "diagonal": (along[:, None] + along) / 2,
    }[direction]
    noisy = clean + 5 * np.random.default_rng(0).standard_normal(clean.shape)
    settings: dict[str, Any] = {"standard": {"iterations": 2}, "paper": {"rounds": 1}}.get(quality, {})
    result = denoise_pixels(noisy, 5.0, Request.named(quality, jobs=2, **settings)).pixels
    assert result.dtype == np.float64
    assert np.sqrt(np.mean((result.astype(np.float64) - clean) ** 2)) < 5
