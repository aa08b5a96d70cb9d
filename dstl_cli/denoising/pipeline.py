"""One road for every picture: pixels to working channels, the engine of the quality, and back to pixels."""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.checks import check_sigma
from dstl_cli.base.progress import Progress
from dstl_cli.base.registry import load
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.denoising.channels import Channels, Estimate, Execution, TransformSource
from dstl_cli.denoising.qualities import QUALITIES, Quality
from dstl_cli.noise.estimate import estimate_channels
from dstl_cli.pixels import colour
from dstl_cli.pixels.depth import Depth
from dstl_cli.transforms.transform import Iteration, Transform

Pixels = NDArray[np.generic]


@dataclass(frozen=True)
class Request:
    """How pictures are to be denoised: the quality with its settings, the transform's source, and the threads.

    jobs: threads, all cores if not given; the result is the same for any number.
    """

    quality: Quality
    settings: Any
    source: TransformSource = field(default_factory=TransformSource)
    jobs: int | None = None

    @classmethod
    def named(
        cls, quality: str, *, source: TransformSource | None = None, jobs: int | None = None, **given: Any
    ) -> "Request":
        """The request for a quality by its name, with some settings changed."""
        entry, source = QUALITIES[quality], source or TransformSource()
        settings = entry.make(given, transform=source.given is not None, adapt=source.adapt)
        return cls(entry, settings, source, jobs)

    @property
    def facts(self) -> dict[str, Any]:
        """The settings that count, by name."""
        return self.quality.facts(self.settings)


@dataclass(frozen=True)
class DenoiseRecord:
    """How a picture was denoised.

    sigmas: one for grey; luminance and two chrominances for colour. settings: all that made the result, by name.
    """

    sigmas: tuple[float, ...]
    warnings: tuple[str, ...] = ()
    transform: Transform | None = None
    history: tuple[Iteration, ...] = ()
    settings: dict[str, Any] | None = None


@dataclass(frozen=True)
class Denoised:
    """A denoised picture in its own dtype, and how it was done."""

    pixels: Pixels
    record: DenoiseRecord


def denoise_pixels(
    pixels: Pixels,
    sigma: float | None,
    request: Request,
    *,
    depth: Depth | None = None,
    progress: Progress | None = None,
) -> Denoised:
    """Denoise a grey (H, W) or RGB (H, W, 3) picture; dtype and shape stay.

    sigma: noise deviation on the 0-255 scale for whole numbers, in the array's own units for floats; None: it is
    estimated, channel by channel. One transform, learnt on the luminance, serves all channels.
    depth: what the numbers mean where the dtype does not tell it.
    """
    colour.check_pixels(pixels)
    if sigma is not None and check_sigma(sigma) == 0:
        return Denoised(pixels.copy(), DenoiseRecord((0.0,)))
    if pixels.ndim == 3 and colour.is_grey(pixels):
        grey = denoise_pixels(pixels[..., 0], sigma, request, depth=depth, progress=progress)
        return Denoised(np.stack([grey.pixels] * 3, axis=-1), grey.record)
    own = depth or Depth.of(pixels.dtype)
    sigmas, warnings = channel_sigmas(pixels, sigma, own)
    if not any(sigmas):
        return Denoised(pixels.copy(), DenoiseRecord(sigmas, warnings))
    scaled = own.for_sigma(max(sigmas))
    sigma_unit = 1.0 if scaled.data_range is not None else scaled.unit  # whole numbers have it on the 0-255 scale
    channels = Channels(
        lambda index: colour.working_channel(pixels, index, scaled),
        tuple(deviation / sigma_unit for deviation in sigmas),
        scaled.data_range if colour.channel_count(pixels) == 1 else None,
    )
    estimate, settings = denoise_channels(channels, request, progress=progress)
    record = DenoiseRecord(sigmas, warnings, estimate.transform, estimate.history, settings)
    return Denoised(colour.from_channels(estimate.images, scaled), record)


def denoise_channels(
    channels: Channels, request: Request, *, progress: Progress | None = None
) -> tuple[Estimate, dict[str, Any]]:
    """Denoise the working channels of one picture; also all settings that made the result."""
    settings = request.settings.resolved(channels.sigmas, request.source.patch_size(request.settings))
    execution = Execution(request.jobs or available_cores(), progress)
    with one_blas_thread():
        estimate: Estimate = load(request.quality.engine)(channels, settings, request.source, execution)
    return estimate, request.quality.facts(settings)


def channel_sigmas(
    pixels: Pixels, sigma: float | None, depth: Depth | None = None
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Noise deviation of each working channel, given or else estimated, and what to say about the estimates.

    Colour is estimated in red, green and blue, where clipping can be seen, and carried over to the working basis.
    """
    if sigma is not None:
        return (float(sigma),) * colour.channel_count(pixels), ()
    deviations, warnings = estimate_channels(pixels, depth or Depth.of(pixels.dtype))
    return tuple(deviations if pixels.ndim == 2 else colour.in_working_basis(deviations)), warnings


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
