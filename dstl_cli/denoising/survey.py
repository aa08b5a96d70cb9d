"""The survey: one look at every pixel of a picture in bands, and one at a bounded sample of it, which make the plan."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.checks import check_sigma
from dstl_cli.base.registry import load
from dstl_cli.base.scratch import Memory
from dstl_cli.base.threads import available_cores, one_blas_thread
from dstl_cli.denoising.plan import Plan, Statistics, TransformSource, with_base_apart
from dstl_cli.denoising.qualities import QUALITIES, Quality
from dstl_cli.noise.estimate import estimate_channels
from dstl_cli.noise.model import WhiteNoise
from dstl_cli.pixels.colour import BASIS, channel_count, check_finite, check_shape, in_working_basis, is_grey
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.pixels.source import PixelSource, bands, sample_of

Pixels = NDArray[np.generic]

NEGLIGIBLE_SHARE = 1e-9  # noise below this share of the largest value is none
SMALLEST_SIGMA = 1e-15  # and so is noise below this: single precision hardly holds its square
LARGEST_SIGMA = 1e6  # noise of this deviation hides all there is: more makes no difference
STEEP = 2e5  # values beyond so many deviations of the noise


@dataclass(frozen=True)
class Request:
    """How pictures are to be denoised: the quality with its settings, the transform's source, threads and memory.

    jobs: threads, all cores if not given. The result is the same for any number of them, and for any memory.
    """

    quality: Quality
    settings: Any
    source: TransformSource = field(default_factory=TransformSource)
    jobs: int | None = None
    memory: Memory = field(default_factory=Memory)

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


def survey(source: PixelSource, sigma: float | None, request: Request, *, depth: Depth | None = None) -> Plan:
    """The plan for a grey (H, W) or RGB (H, W, 3) picture.

    sigma: noise deviation on the 0-255 scale for whole numbers, in the array's own units for floats; None: it is
    estimated, channel by channel. One transform, learnt on the luminance, serves all channels.
    depth: what the numbers mean where the dtype does not tell it.
    """
    deviation = None if sigma is None else check_sigma(sigma)
    own = depth or Depth.of(source.dtype)
    seen = look_at(source, own)
    sample = sample_of(source, request.settings.seed)
    grey = sample[..., 0] if seen.equal_channels else sample
    sigmas, warnings = channel_sigmas(grey, deviation, own)
    scaled = own.for_sigma(max(sigmas))
    sigma_unit = 1.0 if scaled.data_range is not None else scaled.unit  # whole numbers have it on the 0-255 scale
    largest = max(abs(seen.smallest), abs(seen.largest)) / scaled.unit
    known = tuple(effective_sigma(value / sigma_unit, largest) for value in sigmas)
    means = np.array(seen.means) / scaled.unit
    plan = Plan(
        quality=request.quality.name,
        settings=request.settings.resolved(known, request.source.patch_size(request.settings)),
        shape=(source.shape[0], source.shape[1]),
        depth=scaled,
        colour=grey.ndim == 3,
        statistics=seen,
        noise=WhiteNoise(known),
        centres=tuple(float(mean) for mean in (BASIS @ means if grey.ndim == 3 else means[:1])),
        sigmas=sigmas if sigma != 0 else (0.0,),
        steep=largest > STEEP * max(known) > 0,
        warnings=warnings,
    )
    return with_transform(plan, grey, request) if any(known) else plan


def with_transform(plan: Plan, sample: Pixels, request: Request) -> Plan:
    """The plan with the transform that a sample of the picture asks for, from its first noisy channel."""
    size, stride = request.source.patch_size(plan.settings), getattr(plan.settings, "stride", 1)
    if stride > size:
        raise ValueError(f"stride must be at most the transform's patch size {size}, not {stride}.")
    index = next(number for number, value in enumerate(plan.noise.sigmas) if value)
    channel = plan.channel(sample, index)
    whole = plan.padded(channel) if channel.shape == plan.shape else channel
    plane, _ = with_base_apart(Plane.whole(whole), plan.steep)
    engine, threads = load(request.quality.engine), request.jobs or available_cores()
    with one_blas_thread():
        found = engine.transform_for(plane, plan.noise.channel(index), plan.settings, request.source, threads)
    return replace(plan, transform=found.transform, history=found.history)


def look_at(source: PixelSource, depth: Depth) -> Statistics:
    """Look at every pixel once; pictures that are none are refused."""
    check_shape(source.shape, source.dtype)
    colours = 1 if len(source.shape) == 2 else source.shape[2]
    totals, smallest, largest, clipped, equal, wrong = np.zeros(colours), np.inf, -np.inf, 0, colours > 1, 0
    for band in bands(Box.whole(source.shape)):
        pixels: NDArray[Any] = source.window(band)
        if not np.isfinite(pixels).all():
            wrong += pixels.size - int(np.count_nonzero(np.isfinite(pixels)))
            continue
        totals += pixels.reshape(-1, colours).sum(axis=0, dtype=np.float64)
        smallest, largest = min(smallest, float(pixels.min())), max(largest, float(pixels.max()))
        if depth.stored_range is not None:
            low, high = depth.stored_range
            clipped += int(np.count_nonzero(pixels <= low) + np.count_nonzero(pixels >= high))
        equal = equal and is_grey(pixels)
    check_finite(wrong)
    count = source.shape[0] * source.shape[1]
    return Statistics(tuple(map(float, totals / count)), smallest, largest, clipped / (count * colours), equal)


def effective_sigma(sigma: float, largest: float) -> float:
    """The deviation as far as it matters: 0 for what single precision cannot tell, at most what hides all."""
    return 0.0 if sigma <= max(NEGLIGIBLE_SHARE * largest, SMALLEST_SIGMA) else min(sigma, LARGEST_SIGMA)


def channel_sigmas(
    pixels: Pixels, sigma: float | None, depth: Depth | None = None
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Noise deviation of each working channel, given or else estimated, and what to say about the estimates.

    Colour is estimated in red, green and blue, where clipping can be seen, and carried over to the working basis.
    """
    if sigma is not None:
        return (float(sigma),) * channel_count(pixels), ()
    deviations, warnings = estimate_channels(pixels, depth or Depth.of(pixels.dtype))
    return tuple(deviations if pixels.ndim == 2 else in_working_basis(deviations)), warnings
