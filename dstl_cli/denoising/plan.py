"""The plan: all that must be known of a whole picture before any part of it is denoised, and all that decides a pixel.

It is small, immutable, can be printed (`to_json`) and pickled; with it, any part of the picture can be denoised
anywhere, to the same bytes.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.registry import load
from dstl_cli.base.threads import Execution
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.denoising.settings import Settings
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import PictureTransform, ReadySource, learn_transform_on
from dstl_cli.noise.model import ChannelNoise, NoiseModel
from dstl_cli.pixels.colour import working_channel
from dstl_cli.pixels.depth import Depth, working_type
from dstl_cli.pixels.invalid import FILL_REACH
from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.pixels.scales import BASE_REACH, SMALLEST_BASE, smooth_base
from dstl_cli.transforms.transform import Iteration, Transform

Pixels = NDArray[np.generic]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class TransformSource:
    """Where the transform comes from: given and used as it is, given as the start of learning, ready, or learnt."""

    given: Transform | None = None
    adapt: bool = False
    ready: ReadySource | None = None

    def patch_size(self, settings: Settings) -> int:
        """The side of the patches: the given transform's, where there is one."""
        return settings.patch_size if self.given is None else self.given.patch_size

    def found(self, plane: Plane, noise: ChannelNoise, settings: Any, threads: int) -> PictureTransform:
        """The transform given, or learnt on a channel, or the canonical one where the method learns nothing."""
        if METHODS[settings.method].learns and (self.given is None or self.adapt):
            return learn_transform_on(plane, noise, settings, start=self.given, ready=self.ready, jobs=threads)
        return PictureTransform(self.given or Transform.fixed(settings.patch_size, settings.canonical))


@dataclass(frozen=True)
class Statistics:
    """What one look at every pixel tells, in the numbers of the file.

    means: of each stored channel. clipped: share of the values at the limits of the depth, 0 where it has none.
    equal_channels: the picture is grey but stored as three equal channels. invalid: pixels that are no finite numbers,
    which stay as they are; the others are what all this is about.
    """

    means: tuple[float, ...]
    smallest: float
    largest: float
    clipped: float
    equal_channels: bool
    invalid: int = 0

    @property
    def spread(self) -> float:
        """How far values are from the means at most."""
        return max(self.largest - min(self.means), max(self.means) - self.smallest)


@dataclass(frozen=True)
class Plan:
    """How one picture is denoised.

    shape: its height and width. depth: what its numbers mean. colour: worked on in luminance and chrominances.
    noise: of the working channels, in units of the depth. centres: the mean of each working channel, which its planes
    are counted from. sigmas: the deviations as a user gives them. steep: the values range so wide that single precision
    holds their noise only beside a smooth base. transform: None where there is no noise. halvings: how often a picture
    was halved of which this is a smaller version.
    """

    quality: str
    settings: Any
    shape: tuple[int, int]
    depth: Depth
    colour: bool
    statistics: Statistics
    noise: NoiseModel
    centres: tuple[float, ...]
    sigmas: tuple[float, ...]
    steep: bool = False
    warnings: tuple[str, ...] = ()
    transform: Transform | None = None
    history: tuple[Iteration, ...] = field(default=(), repr=False)
    halvings: int = 0

    @property
    def data_range(self) -> tuple[float, float] | None:
        """The smallest and largest value of a pixel in a working channel, where known."""
        return None if self.colour else self.depth.data_range

    @property
    def result_type(self) -> type[np.float32] | type[np.float64]:
        """Of the denoised channels."""
        return working_type(self.depth.dtype)

    @property
    def patch_size(self) -> int:
        """The side of the transform's patches."""
        size: int = self.settings.patch_size if self.transform is None else self.transform.patch_size
        return size

    @property
    def transforms(self) -> list[Transform]:
        """Those whose results are averaged: T Phi, and Phi where few patches spoke for T."""
        used = [] if self.transform is None else [self.transform]
        canonical = [Transform.fixed(t.patch_size, t.canonical) for t in used if t.average_with_canonical]
        return used + canonical

    @property
    def padded_shape(self) -> tuple[int, int]:
        """The shape of the planes: small pictures are mirrored until the patches fit."""
        least = self._engine.least_side(self)
        return max(self.shape[0], least), max(self.shape[1], least)

    def padded(self, image: Floats) -> Floats:
        """The whole image, mirrored at its lower and right border up to the padded shape."""
        missing = [(0, max(0, long - side)) for long, side in zip(self.padded_shape, image.shape, strict=True)]
        return np.pad(image, missing, mode="symmetric") if np.any(missing) else image

    def channel(self, pixels: Pixels, index: int) -> Floats:
        """A working channel of some pixels, counted from its centre; in double precision where they ask for it."""
        if self.statistics.equal_channels and pixels.ndim == 3:
            pixels = pixels[..., 0]
        values = working_channel(pixels, index, self.depth)
        return np.subtract(values, self.centres[index], dtype=working_type(values.dtype))

    def window(self, box: Box) -> Box:
        """The pixels that are needed to denoise a box of the picture; others are refused."""
        worked_on = self.worked_on(box)
        return worked_on.grown(FILL_REACH, self.shape) if self.statistics.invalid else worked_on

    def worked_on(self, box: Box) -> Box:
        """The pixels that the stages see for a box."""
        if min(box.shape) <= 0 or not Box.whole(self.shape).holds(box):
            height, width = self.shape
            raise ValueError(f"{box} is not a part of a picture of {width} x {height} pixels.")
        if self.transform is None:
            return box
        if self.padded_shape != self.shape:  # so small that it is worked on as a whole
            return Box.whole(self.shape)
        needed = self._engine.window(box, self)
        return needed.grown(BASE_REACH, self.shape) if self.steep else needed

    def working_bytes(self, box: Box) -> int:
        """About how much memory denoising a box takes."""
        height, width = self.window(box).shape
        planes = len(self.centres) + self._engine.planes(self)
        return int(planes * height * width * np.dtype(self.result_type).itemsize)

    def cut_near(self, box: Box, reach: int) -> tuple["Plan", Box] | None:
        """A plan for the pixels up to `reach` around a box, as if they were the picture, and these pixels.

        Patches lie there as they do in the picture. None where the engine has no such place nearby.
        """
        period = self._engine.period(self)
        if period is None or self.transform is None:
            return None
        near = box.grown(reach, self.shape)
        near = Box(near.top // period * period, near.left // period * period, near.bottom, near.right)
        return replace(self, shape=near.shape), near

    def stages(self, planes: list[Plane], execution: Execution) -> list[Plane]:
        """The denoised planes, as far as their windows allow."""
        engine = self._engine
        return engine.run(planes if engine.one_by_one else [plane.made for plane in planes], self, execution)

    def facts(self) -> dict[str, Any]:
        """The settings that count, by name."""
        return QUALITIES[self.quality].facts(self.settings)

    @property
    def noise_as_told(self) -> NoiseModel:
        """The noise in the units in which deviations are told: on the 0-255 scale, or in the picture's own."""
        return self.noise.in_units(1 / self.depth.sigma_unit)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; of the transform what is measured of it."""
        return {
            "quality": self.quality,
            "settings": self.facts(),
            "shape": list(self.shape),
            "dtype": self.depth.dtype.name,
            "unit": self.depth.unit,
            "data_range": self.depth.data_range,
            "colour": self.colour,
            "statistics": asdict(self.statistics),
            "noise": self.noise.to_json(),
            "centres": list(self.centres),
            "steep": self.steep,
            "transform": None if self.transform is None else self.transform.facts(),
        }

    @property
    def _engine(self) -> "Engine":
        engine: Engine = load(QUALITIES[self.quality].engine)
        return engine


class Engine(ABC):
    """What stands behind a quality. Its own are `run`, and `window` or `reach`; the rest fits most.

    one_by_one: it takes up each plane once; those that are made on demand then need not be in memory together.
    """

    one_by_one = False

    @abstractmethod
    def run(self, planes: list[Plane], plan: Plan, execution: Execution) -> list[Plane]:
        """The stages: denoised planes of all channels, smaller by what their windows lack."""

    def window(self, box: Box, plan: Plan) -> Box:
        """The pixels that the stages need, together, for the result in a box."""
        return box.grown(self.reach(plan), plan.shape)

    def reach(self, plan: Plan) -> int:
        """How many pixels beyond a box the stages look, where that is the same everywhere."""
        return 0

    def transform_for(
        self, plane: Plane, noise: ChannelNoise, settings: Any, source: TransformSource, threads: int
    ) -> PictureTransform:
        """The transform for a picture, from its luminance: what the engine needs of the survey."""
        return source.found(plane, noise, settings, threads)

    def least_side(self, plan: Plan) -> int:
        """Pictures are mirrored until their sides are as long: a patch."""
        return plan.patch_size

    def period(self, plan: Plan) -> int | None:
        """So many pixels further down or to the right patches lie the same; None where that is too far to be of use."""
        return None

    def planes(self, plan: Plan) -> float:
        """How many planes the stages hold at a time, beside those they begin with: results, and two to work on."""
        return 2.0 + len(plan.centres)


def with_base_apart(plane: Plane, steep: bool) -> tuple[Plane, Plane | None]:
    """A plane in single precision, and the base that was taken off it first where it is steep."""
    base = smooth_base(plane) if steep and min(plane.shape) >= SMALLEST_BASE else None
    values = plane.values if base is None else plane.window(base.box) - base.values
    return Plane(values.astype(np.float32, copy=False), base.box if base else plane.box, plane.shape), base
