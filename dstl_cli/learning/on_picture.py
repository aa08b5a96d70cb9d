"""Learning on the noisy picture itself: closed-form updates on many of its patches, then the budget and the bound.

Patches without their means, in the domain of Phi and in units of the noise deviation, are the columns of Yt (m, N):
m = n - 1 where the mean is a coefficient of Phi, which stays apart, else n. With hard thresholding H at t deviations
and the T0 that learning starts from,

    X = H(Z Yt)
    T = argmin ||T Yt - X||^2 + p ||T - T0||^2  over T'T = I,   which is polar(X Yt' + p T0)
    Z = polar(T + m (T - T_before))

so that condition number 1 is kept throughout and noise, which gives X nothing but its rare large values, moves T
little. The delivered T is a near one with its nonzero entries and condition number within their bounds. That is the
method `procrustes`; the others have their own update in the place of the second and third line.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.threads import in_order
from dstl_cli.learning.loop import iteration_of
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import LearnSettings, PictureLearning
from dstl_cli.learning.spectrum import entry_budget, project_spectrum, within_budget
from dstl_cli.noise.model import ChannelNoise
from dstl_cli.patches.coding import CodingPass
from dstl_cli.pixels.planes import Plane
from dstl_cli.pixels.scales import NOISE_GAIN, SHARP, SHARP_NOISE_GAIN, halved, halved_shape
from dstl_cli.transforms.canonical import CANONICAL
from dstl_cli.transforms.transform import Iteration, Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

CLOSED_FORM = "procrustes"  # the method that is this module's own
THRESHOLD = 3.0  # t
MOMENTUM = 0.9  # m
PULL = 50.0  # p: so many patches with a coefficient at the threshold, for each row of T; more where patches are few
LOGDET_WEIGHT = 0.031  # lambda0 of the log-det methods
LEARN_SIGMA = 60.0  # learning looks at the first scale with no more noise than this, and at the next coarser one
SMALLEST_SIDE = 24  # of a scale
PART = 4096  # patches coded at a time
VECTORS = 64  # numbers that the loops of kernels take at a time
PATCH_PIXELS = 5.5  # a small picture gives a patch for so many pixels: more say the same again ...
FEW_PATCHES = 12_000  # ... but this many at least
COMPARED_PATCHES = 4000  # on which transforms are compared
LEAST_SIGNAL = 12.0  # with less excess than this many times that of pure noise there is nothing to learn from
LEAST_GAIN = 1.0  # a ready transform must exceed the DCT by this many times the excess of pure noise
SCARCE_PATCHES = 10_000  # with fewer than this, learning starts from a ready transform or not at all
FEWEST_PATCHES = 1_500  # with fewer than this, nothing is chosen or learnt


ReadySource = Callable[[float, int], Transform | None]  # a transform learnt elsewhere for this sigma and patch size


@dataclass(frozen=True)
class PictureTransform:
    """The transform for one picture, and how it was learnt."""

    transform: Transform
    history: tuple[Iteration, ...] = ()


def choose_transform(
    plane: Plane, noise: ChannelNoise, patch_size: int, *, ready: ReadySource | None, seed: int
) -> PictureTransform:
    """The ready transform for this noise, or the DCT where the picture's patches do not gain by it."""
    fitting = ready(noise.deviation(), patch_size) if ready is not None else None
    if fitting is not None:
        data = training_patches(plane, noise, Transform.fixed(patch_size), COMPARED_PATCHES, seed)
        if data.shape[1] >= FEWEST_PATCHES and _has_signal(data) and _is_better(data, fitting.factor[1:, 1:]):
            few = data.shape[1] < COMPARED_PATCHES
            return PictureTransform(replace(fitting, average_with_canonical=True) if few else fitting)
    return PictureTransform(Transform.fixed(patch_size))


def learn_transform_on(
    plane: Plane,
    noise: ChannelNoise,
    settings: PictureLearning,
    *,
    start: Transform | None = None,
    ready: ReadySource | None = None,
    jobs: int = 1,
) -> PictureTransform:
    """The transform learnt on one noisy picture; what it starts from where there is not enough to learn from.

    start: what learning starts from; without it the better of the ready transform and the canonical one.
    """
    before = start or Transform.fixed(settings.patch_size, settings.canonical)
    most = max(FEW_PATCHES, int(math.prod(plane.shape) / PATCH_PIXELS))
    settings = replace(settings, train_patches=min(settings.train_patches, most))
    data = training_patches(plane, noise, before, settings.train_patches, settings.seed)
    first = CANONICAL[before.canonical].first_learnt
    if data.shape[1] < min(FEWEST_PATCHES, settings.train_patches) or not _has_signal(data):
        return PictureTransform(before)
    scarce = data.shape[1] < min(SCARCE_PATCHES, settings.train_patches)
    if start is None:
        fitting = ready(noise.deviation(), before.patch_size) if ready and before.canonical == "dct" else None
        if fitting is not None and _is_better(data, fitting.factor[1:, 1:]):
            before = fitting
        elif scarce:
            return PictureTransform(before)
    strong = np.maximum(data.max(axis=0), -data.min(axis=0)) > 0.8 * THRESHOLD
    learn = _closed_form if settings.method == CLOSED_FORM else _by_method
    factor, history = learn(np.ascontiguousarray(data[:, strong]), before.factor[first:, first:], settings, jobs)
    n = len(before.factor)
    whole = np.eye(n)
    whole[first:, first:] = factor
    if settings.method == CLOSED_FORM:
        budget = entry_budget(settings.density or 1.0, n)
        whole = within_budget(whole, budget, settings.max_condition or 1.0, math.sqrt(n), aim=1.0)
    return PictureTransform(Transform(before.patch_size, whole, settings.method, before.canonical, scarce), history)


def training_patches(plane: Plane, noise: ChannelNoise, fixed: Transform, count: int, seed: int) -> Array32:
    """Coefficients under Phi without the mean, in units of their noise, of about `count` patches: (m, N).

    They are drawn from the first scale that is clean enough and the next coarser one; there the same structures are
    larger and less noisy. fixed: tells the patch size and Phi.
    """
    size = fixed.patch_size
    rng = np.random.default_rng(seed)
    scales = [plane]
    while noise.deviation(len(scales) - 2) > LEARN_SIGMA or len(scales) < 2:
        if min(halved_shape(scales[-1].shape)) < max(SMALLEST_SIDE, size):
            break
        scales.append(halved(scales[-1], SHARP))
    usable = [number for number in range(len(scales)) if noise.deviation(number) <= LEARN_SIGMA][:2]
    usable = usable or [len(scales) - 1]
    phi = fixed.canonical_matrix
    analysis = phi[1:] if CANONICAL[fixed.canonical].mean_first else phi - phi.mean(axis=1, keepdims=True)
    # The filter here leaves less noise than the one the model tells of: at the first halving, as low ones pass both.
    sharper = SHARP_NOISE_GAIN / NOISE_GAIN
    parts = []
    for number, drawn in zip(usable, _shares([scales[number].values for number in usable], size, count), strict=True):
        patches = _sampled(scales[number].values, size, drawn, rng)
        deviations = noise.deviations(analysis, number) * (sharper if number else 1)
        parts.append((analysis / deviations[:, None]).astype(np.float32) @ patches)
        factors = noise.level_factors(patches.mean(axis=0), number)
        if factors is not None:
            parts[-1] /= factors
    return np.concatenate(parts, axis=1)


def _shares(images: list[NDArray[Any]], size: int, count: int) -> list[int]:
    """How many of `count` patches come from each picture: as many from each; the first gives what others lack."""
    rooms = [math.prod(side - size + 1 for side in image.shape) for image in images]
    shares = [min((count + index) // len(images), room) for index, room in enumerate(rooms)]
    return [count - sum(shares[1:]), *shares[1:]]


def _sampled(image: NDArray[Any], size: int, count: int, rng: np.random.Generator) -> Array32:
    """Random patches as columns, (n, count); all of them where there are no more."""
    rows, columns = image.shape[0] - size + 1, image.shape[1] - size + 1
    many = rows * columns
    places = rng.permutation(many)[:count] if many < 4 * count else rng.integers(0, many, count)
    corners = places // columns * image.shape[1] + places % columns
    within = (np.arange(size)[:, None] * image.shape[1] + np.arange(size)).ravel()
    return np.asarray(np.take(image.ravel(), corners[None, :] + within[:, None]), dtype=np.float32)


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
    return data[:, :: max(1, data.shape[1] // COMPARED_PATCHES)]


def _has_signal(data: Array32) -> bool:
    """Whether the patches hold more than noise."""
    return excess(_some(data), np.eye(len(data))) > LEAST_SIGNAL * noise_excess(len(data))


def _is_better(data: Array32, factor: Array) -> bool:
    """Whether T (m, m) exceeds T = I on these patches by more than chance."""
    some = _some(data)
    gain = excess(some, _orthonormal(factor)) - excess(some, np.eye(len(data)))
    return gain > LEAST_GAIN * noise_excess(len(data))


# Learning


def _orthonormal(matrix: Array) -> Array:
    """The polar factor: the nearest orthonormal matrix."""
    return project_spectrum(matrix, 1.0, math.sqrt(len(matrix)))


Learning = tuple[Array, tuple[Iteration, ...]]  # T without the mean's row and column (m, m), and the history


def _closed_form(data: Array32, start: Array, settings: PictureLearning, jobs: int) -> Learning:
    """`procrustes`: orthonormal T with momentum, drawn to the start."""
    first = _orthonormal(start)
    pull = PULL * THRESHOLD**2 * min(3.0, max(1.0, settings.train_patches / max(1, data.shape[1])))
    factor = before = first
    history = []
    for number, parts, weight in _schedule(data, settings.iterations):
        ahead = _orthonormal(factor + MOMENTUM * (factor - before)) if number > 1 else factor
        coded = _coded(ahead, parts, weight, jobs)
        before, factor = factor, _orthonormal(coded.cross + pull * first)
        history.append(iteration_of(number, factor, coded, condition=1.0))
    return factor, tuple(history)


def _by_method(data: Array32, start: Array, settings: PictureLearning, jobs: int) -> Learning:
    """Any other method: its updates, driven by the same codes."""
    gram = np.asarray(data @ data.T, dtype=np.float64)
    learn = LearnSettings(
        method=settings.method,
        max_condition=settings.max_condition or 1.0,
        frobenius_norm=math.sqrt(len(gram)),
        density=settings.density,
        logdet_weight=LOGDET_WEIGHT,
    )
    update = METHODS[settings.method].make(gram, learn)
    factor = update.resume(_orthonormal(start))
    history = []
    for number, parts, weight in _schedule(data, settings.iterations):
        coded = _coded(factor, parts, weight, jobs)
        factor = update.update(factor, coded.cross * weight)
        history.append(iteration_of(number, factor, coded))
    return update.deliver(factor), tuple(history)


def _schedule(data: Array32, iterations: int) -> Iterator[tuple[int, list[Array32], int]]:
    """The number of each update, the parts of the data it sees, and how many times as many there are in all.

    A part has a patch a row, (N, m) and zeros up to a whole number of vectors. The first half of the updates sees
    every second part only.
    """
    edges = np.linspace(0, data.shape[1], max(1, data.shape[1] // PART) + 1).round().astype(int)
    rows = np.pad(data, ((0, -len(data) % VECTORS), (0, 0)))
    parts = [np.ascontiguousarray(rows[:, a:b].T) for a, b in pairwise(edges)]
    for number in range(1, iterations + 1):
        every = 2 if 2 * (number - 1) < iterations and len(parts) > 1 else 1
        yield number, parts[::every], every


def _coded(factor: Array, parts: Sequence[Array32], weight: int, jobs: int) -> CodingPass:
    """Hard-thresholded codes of the parts under T; the errors are those of `weight` times as many patches."""
    from dstl_cli.patches.kernels.sliding import add_kept

    m = len(factor)
    analysis = np.ascontiguousarray(factor.T, dtype=np.float32)
    thresholds = np.asarray(THRESHOLD * np.linalg.norm(factor, axis=1), dtype=np.float32)

    def one(part: Array32) -> tuple[Array32, float, float]:
        part_cross = np.zeros((m, part.shape[1]), np.float32)
        kept, energy = add_kept(part[:, :m] @ analysis, thresholds, part, part_cross)
        return part_cross[:, :m], kept, energy

    cross, kept, energy = np.zeros_like(factor), 0.0, 0.0
    for part_cross, part_kept, part_energy in in_order(one, parts, jobs):
        cross += part_cross
        kept += part_kept
        energy += part_energy
    return CodingPass(cross, math.sqrt(weight * max(energy - kept, 0.0)), math.sqrt(weight * energy))
