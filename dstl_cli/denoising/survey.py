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
from dstl_cli.noise.blind import NO_HINTS, Hints, estimate_model
from dstl_cli.noise.model import NoiseModel, WhiteNoise, is_coarse
from dstl_cli.pixels.colour import BASIS, channel_count, check_finite, check_shape, is_grey
from dstl_cli.pixels.depth import Depth
from dstl_cli.pixels.invalid import invalid_pixels, valid_part, without_invalid
from dstl_cli.pixels.planes import Box, Plane
from dstl_cli.pixels.source import SAMPLE_PIXELS, PixelSource, bands, sample_of
from dstl_cli.transforms.transform import Transform

Pixels = NDArray[np.generic]

NEGLIGIBLE_SHARE = 1e-9  # noise below this share of the largest value is none
SMALLEST_SIGMA = 1e-15  # and so is noise below this: single precision hardly holds its square
LARGEST_SIGMA = 1e6  # noise of this deviation hides all there is: more makes no difference
STEEP = 2e5  # values further from the mean than so many deviations of the noise
UNEVEN_SIGMA = 50.0  # few photons are hidden in dark and low pictures: 0.1 dB over their deviation's on 8 micrographs
LEVEL_MARGIN = 1.3  # noise that follows the brightness counts so much more in learning, which takes it as even ...
WIDEST_LEARNT = 3.0  # ... and where it differs by more over the picture, nothing is learnt


@dataclass(frozen=True)
class Request:
    """How pictures are to be denoised: the quality with its settings, the transform's source, threads and memory.

    jobs: threads, all cores if not given. The result is the same for any number of them, and for any memory.
    noise_kind: what is looked for where the noise is estimated, see `estimate_model`.
    keep_invalid: pixels that are no finite numbers stay as they are, and nothing else sees them; else they are refused.
    strength, chroma_strength: by what the noise is taken to be stronger than it is, and in the chrominances further.
    """

    quality: Quality
    settings: Any
    source: TransformSource = field(default_factory=TransformSource)
    jobs: int | None = None
    memory: Memory = field(default_factory=Memory)
    noise_kind: str = "auto"
    strength: float = 1.0
    chroma_strength: float = 1.0
    keep_invalid: bool = False

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


def survey(
    source: PixelSource,
    noise: float | NoiseModel | None,
    request: Request,
    *,
    depth: Depth | None = None,
    seen: Statistics | None = None,
    hints: Hints = NO_HINTS,
) -> Plan:
    """The plan for a grey (H, W) or RGB (H, W, 3) picture.

    noise: a model of it, in units of the depth; or the deviation of white noise, on the 0-255 scale for depths that
    have it, in the array's own units for others; None: it is estimated. One transform, learnt on the luminance, serves
    all channels. depth: what the numbers mean where the dtype does not tell it. seen: what `look_at` told, if it did.
    hints: what the file says, for the estimate.
    """
    own = depth or Depth.of(source.dtype)
    told = noise if noise is None or isinstance(noise, NoiseModel) else check_sigma(float(noise))
    seen = seen or look_at(source, own, keep_invalid=request.keep_invalid)
    grey = sample_for_noise(source, seen, request.settings.seed)
    model, warnings = _model_of(grey, told, own, request, hints)
    model = model.scaled(request.strength, request.chroma_strength)
    scaled = own.for_sigma(max(model.sigmas) * own.sigma_unit)
    largest = max(abs(seen.smallest), abs(seen.largest)) / scaled.unit
    known = _effective(model.in_units(scaled.unit / own.unit), largest)
    means = np.array(seen.means) / scaled.unit
    plan = Plan(
        quality=request.quality.name,
        settings=request.settings.resolved(
            _strengths(known), request.source.patch_size(request.settings), is_coarse(known)
        ),
        shape=(source.shape[0], source.shape[1]),
        depth=scaled,
        colour=grey.ndim == 3,
        statistics=seen,
        noise=known,
        centres=tuple(float(mean) for mean in (BASIS @ means if grey.ndim == 3 else means[:1])),
        sigmas=(0.0,) if told == 0 else tuple(value * scaled.sigma_unit for value in known.sigmas),
        steep=seen.spread / scaled.unit > STEEP * max(known.sigmas) > 0,
        warnings=warnings,
    )
    return with_transform(plan, grey, request) if any(known.sigmas) else plan


def noise_of(
    source: PixelSource, request: Request, seen: Statistics, depth: Depth, hints: Hints = NO_HINTS
) -> tuple[NoiseModel, tuple[str, ...]]:
    """The noise that is found in a picture, in units of its depth and before any strength, and what to say about it."""
    sample = sample_for_noise(source, seen, request.settings.seed)
    return _model_of(sample, None, depth, request, hints)


def sample_for_noise(source: PixelSource, seen: Statistics, seed: int) -> Pixels:
    """A bounded sample of a picture: of its valid pixels where some are not, and one channel of equal ones."""
    large = source.shape[0] * source.shape[1] > SAMPLE_PIXELS
    sample = sample_of(source, seed, valid_part(source) if large and seen.invalid else None)
    valid = without_invalid(sample) if seen.invalid else sample
    return valid[..., 0] if seen.equal_channels else valid


def _model_of(
    sample: Pixels, noise: float | NoiseModel | None, depth: Depth, request: Request, hints: Hints
) -> tuple[NoiseModel, tuple[str, ...]]:
    """The noise of a sample in units of the depth, given or else estimated, and what to say about the estimate."""
    channels = channel_count(sample)
    if noise is None:
        threads = request.jobs or available_cores()
        return estimate_model(sample, depth, kind=request.noise_kind, hints=hints, threads=threads)
    if isinstance(noise, float):
        return WhiteNoise((noise / depth.sigma_unit,) * channels), ()
    if len(noise.sigmas) not in (1, channels):
        raise ValueError(
            f"The noise model is of {len(noise.sigmas)} channels, the picture has {channels}; make one of its kind."
        )
    return noise.for_channels(channels), ()


def _strengths(model: NoiseModel) -> tuple[float, ...]:
    """The deviations that choose settings: where noise follows the brightness, at least those of strong noise."""
    even = model.channel(0).level_factors(np.zeros(1)) is None
    return tuple(sigma if even or not sigma else max(sigma, UNEVEN_SIGMA) for sigma in model.sigmas)


def _effective(model: NoiseModel, largest: float) -> NoiseModel:
    """The noise as far as it matters: none where single precision cannot tell it, at most what hides all."""
    if isinstance(model, WhiteNoise):
        return WhiteNoise(tuple(effective_sigma(value, largest) for value in model.sigmas))
    tells = max(model.sigmas) > max(NEGLIGIBLE_SHARE * largest, SMALLEST_SIGMA)
    return model if tells else WhiteNoise((0.0,) * len(model.sigmas))


def with_transform(plan: Plan, sample: Pixels, request: Request) -> Plan:
    """The plan with the transform that a sample of the picture asks for, from its first noisy channel."""
    size, stride = request.source.patch_size(plan.settings), getattr(plan.settings, "stride", 1)
    if stride > size:
        raise ValueError(f"stride must be at most the transform's patch size {size}, not {stride}.")
    index = next(number for number, value in enumerate(plan.noise.sigmas) if value)
    channel = plan.channel(sample, index)
    whole = plan.padded(channel) if channel.shape == plan.shape else channel
    plane, _ = with_base_apart(Plane.whole(whole), plan.steep)
    noise, source = plan.noise.channel(index).counted_from(plan.centres[0]), request.source
    factors = noise.level_factors(np.quantile(plan.channel(sample, 0), (0.05, 0.95)))
    if factors is not None:
        noise = noise.scaled(LEVEL_MARGIN)
        if source.given is None and factors.max() > WIDEST_LEARNT * factors.min():
            source = replace(source, given=Transform.fixed(size, plan.settings.canonical), adapt=False)
    engine, threads = load(request.quality.engine), request.jobs or available_cores()
    with one_blas_thread():
        found = engine.transform_for(plane, noise, plan.settings, source, threads)
    return replace(plan, transform=found.transform, history=found.history)


def look_at(source: PixelSource, depth: Depth, *, keep_invalid: bool = False) -> Statistics:
    """Look at every pixel once; pictures that are none are refused."""
    check_shape(source.shape, source.dtype)
    colours = 1 if len(source.shape) == 2 else source.shape[2]
    totals, smallest, largest, clipped, equal = np.zeros(colours), np.inf, -np.inf, 0, colours > 1
    wrong, invalid = 0, 0
    for band in bands(Box.whole(source.shape)):
        pixels: NDArray[Any] = source.window(band)
        if not np.isfinite(pixels).all():
            missing = invalid_pixels(pixels)
            wrong += pixels.size - int(np.count_nonzero(np.isfinite(pixels)))
            invalid += int(np.count_nonzero(missing))
            pixels = pixels[~missing][None]  # in one row
            if not keep_invalid or not pixels.size:
                continue
        totals += _totals(pixels, colours)
        smallest, largest = min(smallest, float(pixels.min())), max(largest, float(pixels.max()))
        if depth.stored_range is not None:
            low, high = depth.stored_range
            clipped += int(np.count_nonzero(pixels <= low) + np.count_nonzero(pixels >= high))
        equal = equal and is_grey(pixels)
    check_finite(0 if keep_invalid else wrong)
    count = source.shape[0] * source.shape[1] - invalid
    if not count:
        raise ValueError("The picture has no pixel that is a finite number; there is nothing to denoise.")
    return Statistics(tuple(map(float, totals / count)), smallest, largest, clipped / (count * colours), equal, invalid)


def _totals(pixels: Pixels, colours: int) -> NDArray[np.float64]:
    """The sum of each stored channel; of whole numbers row by row first, which is many times as fast and as exact."""
    if pixels.dtype.kind == "f":
        return np.asarray(pixels.reshape(-1, colours).sum(axis=0, dtype=np.float64))
    columns = pixels.reshape(len(pixels), -1).sum(axis=0, dtype=np.int64)
    return np.asarray(columns.reshape(-1, colours).sum(axis=0), dtype=np.float64)


def effective_sigma(sigma: float, largest: float) -> float:
    """The deviation as far as it matters: 0 for what single precision cannot tell, at most what hides all."""
    return 0.0 if sigma <= max(NEGLIGIBLE_SHARE * largest, SMALLEST_SIGMA) else min(sigma, LARGEST_SIGMA)
