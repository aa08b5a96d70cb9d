"""Learning on the noisy picture itself: closed-form updates on many of its patches, then the budget and the bound.

Patches without their means, in the DCT domain and in units of the noise deviation, are the columns of Yt (n-1, N):
the mean is apart, T acts on the rest. With hard thresholding H at t deviations and the T0 that learning starts from,

    X = H(Z Yt)
    T = argmin ||T Yt - X||^2 + p ||T - T0||^2  over T'T = I,   which is polar(X Yt' + p T0)
    Z = polar(T + m (T - T_before))

so that condition number 1 is kept throughout and noise, which gives X nothing but its rare large values, moves T
little. The delivered T is a near one with its nonzero entries and condition number within their bounds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dstl_cli.config import AdaptiveConfig
from dstl_cli.learning.bresler import Bresler
from dstl_cli.learning.conditioned import within_budget
from dstl_cli.learning.learner import Iteration
from dstl_cli.learning.spectrum import TOLERANCE, condition_number, project_spectrum
from dstl_cli.scales import Scale, pyramid
from dstl_cli.threads import in_order
from dstl_cli.transforms import Transform, dct_matrix

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

THRESHOLD = 3.0  # t
MOMENTUM = 0.9  # m
PULL = 50.0  # p: so many patches with a coefficient at the threshold, for each row of T; more where patches are few
LOGDET_WEIGHT = 0.031  # lambda0 of the log-det methods
LEARN_SIGMA = 60.0  # learning looks at the first scale with no more noise than this, and at the next coarser one
SMALLEST_SIDE = 24  # of a scale
PART = 4096  # patches coded at a time
TRIED = 4000  # patches on which transforms are compared
SIGNAL = 12.0  # with less excess than this many times that of pure noise there is nothing to learn from
BETTER = 1.0  # a ready transform must exceed the DCT by this many times the excess of pure noise
SCARCE = 10_000  # with fewer patches than this, learning starts from a ready transform or not at all
FEWEST = 1_500  # with fewer than this, nothing is chosen or learnt


ReadySource = Callable[[float, int], Transform | None]  # a transform learnt elsewhere for this sigma and patch size


@dataclass(frozen=True)
class Adapted:
    """The transform for one picture, and how it came about."""

    transform: Transform
    history: tuple[Iteration, ...] = ()
    sure: bool = True  # False: few patches speak for it, so the DCT's answer deserves to be heard too


def choose_transform(image: Array32, sigma: float, patch_size: int, *, ready: ReadySource | None, seed: int) -> Adapted:
    """The ready transform for this noise, or the DCT where the picture's patches do not gain by it."""
    fitting = ready(sigma, patch_size) if ready is not None else None
    if fitting is not None:
        data = training_patches(image, sigma, patch_size, TRIED, seed)
        if data.shape[1] >= FEWEST and _has_signal(data) and _is_better(data, fitting.factor):
            return Adapted(fitting, sure=data.shape[1] >= TRIED)
    return Adapted(Transform.dct(patch_size))


def adapt(
    image: Array32,
    sigma: float,
    config: AdaptiveConfig,
    *,
    start: Transform | None = None,
    ready: ReadySource | None = None,
    jobs: int = 1,
) -> Adapted:
    """The transform learnt on one noisy picture; what it starts from where there is not enough to learn from.

    start: what learning starts from; without it the better of the ready transform and the DCT.
    """
    size = start.patch_size if start is not None else config.patch_size
    data = training_patches(image, sigma, size, config.train_patches, config.seed)
    before = start or Transform.dct(size)
    if data.shape[1] < min(FEWEST, config.train_patches) or not _has_signal(data):
        return Adapted(before)
    scarce = data.shape[1] < min(SCARCE, config.train_patches)
    if start is None:
        fitting = ready(sigma, size) if ready is not None else None
        if fitting is not None and _is_better(data, fitting.factor):
            before = fitting
        elif scarce:
            return Adapted(before)
    strong = np.maximum(data.max(axis=0), -data.min(axis=0)) > 0.8 * THRESHOLD
    factor, history = _updated(np.ascontiguousarray(data[:, strong]), before.factor[1:, 1:], config, jobs)
    return Adapted(Transform(size, _delivered(factor, config), config.method), history, sure=not scarce)


def training_patches(image: Array32, sigma: float, patch_size: int, count: int, seed: int) -> Array32:
    """DCT coefficients without the mean, in units of sigma, of about `count` patches: (n-1, N).

    They are drawn from the first scale that is clean enough and the next coarser one; there the same structures are
    larger and less noisy.
    """
    rng = np.random.default_rng(seed)
    depth = 2 + max(0, math.ceil(math.log2(sigma / LEARN_SIGMA)))
    scales = pyramid(image, sigma, depth, max(SMALLEST_SIDE, patch_size))
    usable = [scale for scale in scales if scale.sigma <= LEARN_SIGMA][:2] or scales[-1:]
    analysis = dct_matrix(patch_size)[1:]
    parts = [
        (analysis / scale.sigma).astype(np.float32) @ _sampled(scale, patch_size, (count + index) // len(usable), rng)
        for index, scale in enumerate(usable)
    ]
    return np.concatenate(parts, axis=1)


def _sampled(scale: Scale, size: int, count: int, rng: np.random.Generator) -> Array32:
    """Random patches as columns, (n, count); all of them where there are no more."""
    image = scale.image
    rows, columns = image.shape[0] - size + 1, image.shape[1] - size + 1
    many = rows * columns
    places = rng.permutation(many)[:count] if many < 4 * count else rng.integers(0, many, count)
    corners = places // columns * image.shape[1] + places % columns
    within = (np.arange(size)[:, None] * image.shape[1] + np.arange(size)).ravel()
    return np.asarray(np.take(image.ravel(), corners[None, :] + within[:, None]))


# Comparing transforms: the larger the energy above the threshold, the smaller the cost sum_j min(z_j^2, t^2).


def excess(data: Array32, factor: Array) -> float:
    """Mean over the patches of sum_j max(z_j^2 - t^2, 0), z = T y, for an orthonormal T."""
    z = factor.astype(np.float32) @ data
    return float(np.maximum(z * z - np.float32(THRESHOLD**2), 0).sum(dtype=np.float64) / data.shape[1])


def noise_excess(count: int) -> float:
    """The excess of `count` standard normal coefficients."""
    t: float = THRESHOLD
    density = math.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    tail = 0.5 * math.erfc(t / math.sqrt(2))
    return 2 * count * (t * density + (1 - t * t) * tail)


def _some(data: Array32) -> Array32:
    return data[:, :: max(1, data.shape[1] // TRIED)]


def _has_signal(data: Array32) -> bool:
    """Whether the patches hold more than noise."""
    return excess(_some(data), np.eye(len(data))) > SIGNAL * noise_excess(len(data))


def _is_better(data: Array32, factor: Array) -> bool:
    """Whether T (n, n) exceeds the DCT on these patches by more than chance."""
    some = _some(data)
    gain = excess(some, _orthonormal(factor[1:, 1:])) - excess(some, np.eye(len(data)))
    return gain > BETTER * noise_excess(len(data))


# Learning


def _orthonormal(matrix: Array) -> Array:
    """The polar factor: the nearest orthonormal matrix."""
    return project_spectrum(matrix, 1.0, math.sqrt(len(matrix)))


def _updated(data: Array32, start: Array, config: AdaptiveConfig, jobs: int) -> tuple[Array, tuple[Iteration, ...]]:
    """T after all updates (n-1, n-1), and the history; the first half of the updates sees every second part only."""
    start = _orthonormal(start)
    edges = np.linspace(0, data.shape[1], max(1, data.shape[1] // PART) + 1).round().astype(int)
    parts = [np.ascontiguousarray(data[:, a:b]) for a, b in pairwise(edges)]
    logdet = _logdet_method(data, config)
    pull = PULL * THRESHOLD**2 * min(3.0, max(1.0, config.train_patches / max(1, data.shape[1])))
    factor = before = start
    history = []
    for number in range(1, config.iterations + 1):
        every = 2 if 2 * (number - 1) < config.iterations and len(parts) > 1 else 1
        ahead = _orthonormal(factor + MOMENTUM * (factor - before)) if logdet is None and number > 1 else factor
        cross, kept, energy = _coded(ahead, parts[::every], jobs)
        before = factor
        factor = _orthonormal(cross + pull * start) if logdet is None else logdet.update(factor, cross * every)
        error = math.sqrt(max(energy - kept, 0.0))
        history.append(
            Iteration(
                number=number,
                error=error * math.sqrt(every),
                relative_error=error / math.sqrt(energy) if energy > 0 else 0.0,
                condition=1.0 if logdet is None else condition_number(factor),
                density=float(np.count_nonzero(factor) / factor.size),
            )
        )
    return factor if logdet is None else logdet.deliver(factor), tuple(history)


def _coded(factor: Array, parts: Sequence[Array32], jobs: int) -> tuple[Array, float, float]:
    """X Yt' over the parts, and the energies of X and of T Yt."""
    from dstl_cli._pass_kernels import keep_above

    analysis = factor.astype(np.float32)
    thresholds = np.asarray(THRESHOLD * np.linalg.norm(factor, axis=1), dtype=np.float32)

    def one(part: Array32) -> tuple[Array32, float, float]:
        codes = analysis @ part
        kept, energy = keep_above(codes, thresholds)
        return np.asarray(codes @ part.T), kept, energy

    cross, kept, energy = np.zeros_like(factor), 0.0, 0.0
    for part_cross, part_kept, part_energy in in_order(one, parts, jobs):
        cross += part_cross
        kept += part_kept
        energy += part_energy
    return cross, kept, energy


def _logdet_method(data: Array32, config: AdaptiveConfig) -> Bresler | None:
    """The update of the log-det methods, which have no bound on the condition number."""
    if config.method not in ("bresler", "sparse-bresler"):
        return None
    gram = np.asarray(data @ data.T, dtype=np.float64)
    return Bresler(gram, LOGDET_WEIGHT, density=config.density if config.method == "sparse-bresler" else None)


def _delivered(factor: Array, config: AdaptiveConfig) -> Array:
    """T (n, n) with the mean's entry, of as many nonzero entries and the condition number that the method promises."""
    n = len(factor) + 1
    full = np.eye(n)
    full[1:, 1:] = factor
    if config.method == "dsect":
        budget = max(n, int(config.density * n * n))
        within = max(1.0, config.max_condition * (1 - 2 * TOLERANCE))  # so that rounding does not exceed the bound
        return within_budget(full, budget, within, math.sqrt(n), aim=1.0)
    return full
