"""What an engine works on, and what it gives back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.progress import Progress, part_of
from dstl_cli.base.threads import in_order
from dstl_cli.denoising.settings import Settings
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import PictureTransform, ReadySource
from dstl_cli.transforms.transform import Iteration, Transform

Floats = NDArray[np.floating[Any]]
Array32 = NDArray[np.float32]
Pixel = TypeVar("Pixel", bound=np.generic)
Learner = Callable[..., PictureTransform]  # see `learning.on_picture.learn_transform_on`
Part = TypeVar("Part")
Result = TypeVar("Result")

NEGLIGIBLE_SHARE = 1e-9  # noise below this share of the largest value is none
SMALLEST_SIGMA = 1e-15  # and so is noise below this: single precision hardly holds its square
LARGEST_SIGMA = 1e6  # noise of this deviation hides all there is: more makes no difference


@dataclass(frozen=True)
class Plane:
    """One channel: as it is stored (H, W), mirrored until a patch fits in, and with noise of deviation sigma."""

    stored: NDArray[np.generic]
    image: NDArray[np.generic]
    sigma: float
    data_range: tuple[float, float] | None

    @cached_property
    def deviation(self) -> float:
        """Sigma as far as it matters: 0 for what single precision cannot tell, at most what hides all."""
        least = max(NEGLIGIBLE_SHARE * float(np.abs(self.image).max()), SMALLEST_SIGMA)
        return 0.0 if self.sigma <= least else min(self.sigma, LARGEST_SIGMA)

    @cached_property
    def centre(self) -> float:
        """The mean of the image."""
        return float(self.image.mean(dtype=np.float64))

    @cached_property
    def centred(self) -> Array32:
        """The image without its mean: single precision is for what differs from it."""
        difference: Floats = np.subtract(self.image, self.centre, dtype=result_type(self.image))
        return difference.astype(np.float32, copy=False)

    def unchanged(self) -> Floats:
        """The estimate where there is no noise."""
        return self.stored.astype(result_type(self.stored))

    def restored(self, estimate: Array32) -> Floats:
        """An estimate of the centred image as one of the stored, within the range it can have; overwritten."""
        height, width = self.stored.shape
        result: Floats = estimate[:height, :width].astype(result_type(self.stored), copy=False)
        result += self.centre
        return result if self.data_range is None else np.clip(result, *self.data_range, out=result)


@dataclass(frozen=True)
class TransformSource:
    """Where the transform comes from: given and used as it is, given as the start of learning, ready, or learnt."""

    given: Transform | None = None
    adapt: bool = False
    ready: ReadySource | None = None

    def patch_size(self, settings: Settings) -> int:
        """The side of the patches: the given transform's, where there is one."""
        return settings.patch_size if self.given is None else self.given.patch_size

    def found(self, learn: Learner, image: NDArray[Any], sigma: float, settings: Any, threads: int) -> PictureTransform:
        """The transform given, or what is learnt on a channel, or the canonical one where the method learns nothing."""
        if METHODS[settings.method].learns and (self.given is None or self.adapt):
            return learn(image, sigma, settings, start=self.given, ready=self.ready, jobs=threads)
        return PictureTransform(self.given or Transform.fixed(settings.patch_size, settings.canonical))


@dataclass(frozen=True)
class Execution:
    """How many threads work, and who is told how far they are."""

    threads: int = 1
    progress: Progress | None = None

    def split(self, sizes: Sequence[float]) -> "Iterator[Execution]":
        """The execution of each step of the work, given how large they are."""
        for number, size in enumerate(sizes):
            yield replace(self, progress=part_of(self.progress, sum(sizes[:number]), sum(sizes), size))

    def in_order(self, run: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
        """Results of `run` over `parts` in order; each is told to `progress` when it is used up."""
        for done, result in enumerate(in_order(run, parts, self.threads), start=1):
            yield result
            if self.progress is not None:
                self.progress(done / len(parts))

    def with_canonical(self, transform: Transform, estimate: "Callable[[Transform, Execution], Array32]") -> Array32:
        """An estimate by the transform; where few patches spoke for it, averaged with that of the canonical one."""
        if not transform.average_with_canonical:
            return estimate(transform, self)
        canonical = Transform.fixed(transform.patch_size, transform.canonical)
        first, second = self.split([1, 1])
        return np.float32(0.5) * (estimate(transform, first) + estimate(canonical, second))


@dataclass(frozen=True)
class Estimate:
    """The denoised channels, and the transform that the first one was denoised with (None: it has no noise)."""

    images: list[Floats]
    transform: Transform | None
    history: tuple[Iteration, ...] = ()


Single = Callable[[Plane, TransformSource, Execution], tuple[Floats, PictureTransform]]  # denoises one channel


@dataclass(frozen=True)
class Channels:
    """The working channels of one picture, luminance first.

    plane: gives a channel (H, W) by its number. sigmas: the deviation of the noise in each, in its units.
    data_range: the smallest and largest value a pixel can have, where known.
    """

    plane: Callable[[int], NDArray[np.generic]]
    sigmas: tuple[float, ...]
    data_range: tuple[float, float] | None = None

    def planes(self, patch_size: int) -> Iterator[Plane]:
        """The channels one after the other, for patches of this size."""
        for index, sigma in enumerate(self.sigmas):
            stored = self.plane(index)
            yield Plane(stored, mirrored(stored, patch_size, patch_size), sigma, self.data_range)

    def one_by_one(self, settings: Any, source: TransformSource, execution: Execution, run: Single) -> Estimate:
        """Denoise one channel after the other; the transform of the first serves the others."""
        size = source.patch_size(settings)
        if settings.stride > size:
            raise ValueError(f"stride must be at most the transform's patch size {size}, not {settings.stride}.")
        steps = list(execution.split([1] * len(self.sigmas)))
        images: list[Floats] = []
        transform: Transform | None = None
        history: tuple[Iteration, ...] = ()
        for index, plane in enumerate(self.planes(size)):
            if not plane.deviation:
                images.append(plane.unchanged())
                continue
            estimate, found = run(plane, source, steps[index])
            images.append(estimate[: plane.stored.shape[0], : plane.stored.shape[1]])
            source = replace(source, given=found.transform, adapt=False)
            if index == 0:
                transform, history = found.transform, found.history
        return Estimate(images, transform, history)


# Denoises the channels of one picture; settings are resolved, see `settings.Settings`.
Engine = Callable[[Channels, Any, TransformSource, Execution], Estimate]


def mirrored(image: NDArray[Pixel], height: int, width: int) -> NDArray[Pixel]:
    """The image, mirrored at its lower and right border where it is lower or narrower than this."""
    missing = [(0, max(0, length - side)) for length, side in zip((height, width), image.shape, strict=True)]
    return np.pad(image, missing, mode="symmetric") if np.any(missing) else image


def result_type(image: NDArray[np.generic]) -> type[np.float32] | type[np.float64]:
    """The dtype of an estimate: single precision holds all that integers and single-precision floats tell."""
    return np.float64 if image.dtype == np.float64 else np.float32
