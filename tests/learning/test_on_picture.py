"""Learning on the noisy picture: never from noise, never beyond its bounds, better than the DCT where there is more."""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import naive
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.integrate import quad

from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_picture import (
    COMPARED_PATCHES,
    FEWEST_PATCHES,
    LEARN_SIGMA,
    SCARCE_PATCHES,
    THRESHOLD,
    PictureTransform,
    ReadySource,
    excess,
    noise_excess,
)
from dstl_cli.learning.on_picture import choose_transform as choose_on_plane
from dstl_cli.learning.on_picture import learn_transform_on as learn_on_plane
from dstl_cli.learning.on_picture import training_patches as patches_of_plane
from dstl_cli.learning.settings import PictureLearning, with_method_defaults
from dstl_cli.noise.model import WhiteChannel
from dstl_cli.pixels.planes import Plane
from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.ready import ready_transform
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]

SIZE, SIGMA = 6, 20.0
# White noise, which `sigma` tells all of, and whole pictures.


def choose_transform(
    image: Array32, sigma: float, patch_size: int, *, ready: ReadySource | None, seed: int
) -> PictureTransform:
    return choose_on_plane(Plane.whole(image), WhiteChannel(sigma), patch_size, ready=ready, seed=seed)


def learn_transform_on(
    image: Array32,
    sigma: float,
    settings: PictureLearning,
    *,
    start: Transform | None = None,
    ready: ReadySource | None = None,
    jobs: int = 1,
) -> PictureTransform:
    return learn_on_plane(Plane.whole(image), WhiteChannel(sigma), settings, start=start, ready=ready, jobs=jobs)


def training_patches(image: Array32, sigma: float, fixed: Transform, count: int, seed: int) -> Array32:
    return patches_of_plane(Plane.whole(image), WhiteChannel(sigma), fixed, count, seed)


LEARNING = [entry.name for entry in METHODS if entry.learns]


def gratings(shape: tuple[int, int], seed: int) -> Array:
    """Stripes in three directions that the DCT has not, of random phase and length, in tiles of 16x16 pixels."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((16, 16))
    picture = np.zeros((-(-shape[0] // 16) * 16, -(-shape[1] // 16) * 16))
    for r, c in np.ndindex(picture.shape[0] // 16, picture.shape[1] // 16):
        angle = rng.choice([0.6, 1.0, 2.2])
        along = np.cos(angle) * rows + np.sin(angle) * columns
        stripes = 50 * np.cos(2 * np.pi * along / rng.uniform(3.5, 4.5) + rng.uniform(0, 6))
        picture[16 * r : 16 * r + 16, 16 * c : 16 * c + 16] = stripes
    return picture[: shape[0], : shape[1]]


def noise(shape: tuple[int, int], sigma: float, seed: int) -> Array32:
    return (sigma * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@lru_cache(maxsize=4)
def striped(side: int = 128, seed: int = 0) -> Array32:
    """Gratings with noise of deviation SIGMA, read-only."""
    picture = gratings((side, side), seed).astype(np.float32) + noise((side, side), SIGMA, seed)
    picture.flags.writeable = False
    return picture


def small(**changes: object) -> PictureLearning:
    """Settings for patches of 6x6 pixels that take a moment."""
    settings: dict[str, object] = {"patch_size": SIZE, "train_patches": 6000, "iterations": 10}
    return PictureLearning(**with_method_defaults(PictureLearning, settings | changes))


@lru_cache(maxsize=16)
def learnt(method: str = "procrustes", seed: int = 0) -> PictureTransform:
    return learn_transform_on(striped(), SIGMA, small(method=method, seed=seed))


def turned(size: int, seed: int = 0) -> Transform:
    """A random orthonormal T with the mean apart."""
    n = size**2
    factor = np.eye(n)
    factor[1:, 1:] = np.linalg.qr(np.random.default_rng(seed).standard_normal((n - 1, n - 1)))[0]
    return Transform(size, factor, "turned")


def assert_is_dct(adapted: PictureTransform) -> None:
    np.testing.assert_array_equal(adapted.transform.factor, np.eye(len(adapted.transform.factor)))
    assert adapted.history == ()
    assert not adapted.transform.average_with_canonical


def assert_mean_apart(factor: Array) -> None:
    assert factor[0, 0] > 0
    assert not factor[0, 1:].any()
    assert not factor[1:, 0].any()


# The patches.


def test_small_pictures_give_each_patch_once() -> None:
    """Sides below twice the smallest have one scale."""
    image = noise((30, 33), SIGMA, 0)
    data = training_patches(image, SIGMA, Transform.fixed(SIZE), 10_000, 0)
    windows = sliding_window_view(image.astype(np.float64), (SIZE, SIZE)).reshape(-1, SIZE**2)
    expected = (windows @ dct_matrix(SIZE)[1:].T / SIGMA).T
    assert data.shape == expected.shape == (SIZE**2 - 1, 25 * 28)
    order, expected_order = np.lexsort(np.round(data, 3)), np.lexsort(np.round(expected, 3))
    np.testing.assert_allclose(data[:, order], expected[:, expected_order], atol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 1000, 2001, 5999])
@pytest.mark.parametrize("sigma", [5.0, 100.0])
def test_as_many_patches_as_asked_where_there_are(count: int, sigma: float) -> None:
    assert training_patches(noise((300, 200), sigma, 0), sigma, Transform.fixed(SIZE), count, 0).shape == (
        SIZE**2 - 1,
        count,
    )


@pytest.mark.parametrize("sigma", [1.0, 50.0, 2 * LEARN_SIGMA, 8 * LEARN_SIGMA, 1e5])
def test_noise_has_deviation_1_in_every_coefficient(sigma: float) -> None:
    data = training_patches(noise((256, 256), sigma, 1), sigma, Transform.fixed(SIZE), 4000, 0)
    assert np.sqrt(np.mean(data.astype(np.float64) ** 2)) == pytest.approx(1.0, abs=0.04)


def test_patches_depend_on_the_seed_alone() -> None:
    image = striped()
    one = training_patches(image, SIGMA, Transform.fixed(SIZE), 500, 1)
    np.testing.assert_array_equal(training_patches(image, SIGMA, Transform.fixed(SIZE), 500, 1), one)
    assert not np.array_equal(training_patches(image, SIGMA, Transform.fixed(SIZE), 500, 2), one)


def test_a_constant_added_changes_no_patch() -> None:
    image = striped()
    shifted = training_patches(image + np.float32(64.0), SIGMA, Transform.fixed(SIZE), 500, 1)
    np.testing.assert_allclose(shifted, training_patches(image, SIGMA, Transform.fixed(SIZE), 500, 1), atol=1e-3)


# The measure.


def test_excess_is_its_definition() -> None:
    rng = np.random.default_rng(0)
    data = (3 * rng.standard_normal((8, 5))).astype(np.float32)
    factor = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    expected = sum(max(float(z) ** 2 - THRESHOLD**2, 0.0) for column in data.T for z in factor @ column) / 5
    assert excess(data, factor) == pytest.approx(expected, rel=1e-5)


def test_the_excess_of_noise_is_the_expected_one() -> None:
    def integrand(z: float) -> float:
        return float((z * z - THRESHOLD**2) * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))

    assert noise_excess(1) == pytest.approx(2 * quad(integrand, THRESHOLD, np.inf)[0], rel=1e-9)
    assert noise_excess(120) == pytest.approx(120 * noise_excess(1))
    assert noise_excess(0) == 0.0
    drawn = np.random.default_rng(0).standard_normal((100, 40_000), dtype=np.float32)
    assert excess(drawn, np.eye(100)) == pytest.approx(noise_excess(100), rel=0.05)  # three deviations of chance


# Nothing to learn from.


@pytest.mark.parametrize("sigma", [0.7, 20.0, 100.0, 1000.0])
@pytest.mark.parametrize(("shape", "size"), [((64, 64), 8), ((130, 190), 11), ((260, 260), 6), ((40, 600), 11)])
def test_noise_gives_the_dct(shape: tuple[int, int], size: int, sigma: float) -> None:
    for seed in (0, 1):
        image = noise(shape, sigma, seed)
        config = PictureLearning(patch_size=size, seed=seed, iterations=3)
        for ready in (None, ready_transform, lambda sigma, size: turned(size)):
            assert_is_dct(learn_transform_on(image, sigma, config, ready=ready))
            assert_is_dct(choose_transform(image, sigma, size, ready=ready, seed=seed))


@pytest.mark.parametrize("shape", [(11, 11), (11, 12), (12, 11), (23, 23), (11, 500), (48, 48)])
@pytest.mark.parametrize("sigma", [5.0, 200.0])
def test_tiny_pictures_give_the_dct(shape: tuple[int, int], sigma: float) -> None:
    image = gratings(shape, 0).astype(np.float32)
    assert_is_dct(learn_transform_on(image, sigma, PictureLearning(), ready=ready_transform))
    assert_is_dct(choose_transform(image, sigma, 11, ready=ready_transform, seed=0))


@pytest.mark.parametrize("value", [0.0, 200.0])
def test_flat_pictures_give_the_dct(value: float) -> None:
    image = np.full((90, 90), value, np.float32)
    assert_is_dct(learn_transform_on(image, 10.0, PictureLearning(), ready=ready_transform))


@pytest.mark.parametrize("size", [1, 2])
def test_patches_of_few_pixels(size: int) -> None:
    """A patch of one pixel has nothing but its mean."""
    adapted = learn_transform_on(striped(), SIGMA, small(patch_size=size))
    assert adapted.transform.patch_size == size
    assert_mean_apart(adapted.transform.factor)
    if size == 1:
        assert_is_dct(adapted)
        assert_is_dct(choose_transform(striped(), SIGMA, size, ready=lambda sigma, size: Transform.fixed(1), seed=0))


def test_without_signal_the_start_is_what_is_given_back() -> None:
    start = turned(5)
    for image in (noise((90, 90), SIGMA, 0), noise((7, 8), SIGMA, 0)):
        adapted = learn_transform_on(image, SIGMA, small(), start=start)
        assert adapted.transform is start
        assert adapted.history == ()


# What is learnt.


def threshold_error(transform: Transform, seed: int) -> float:
    """Squared error of unseen patches of such gratings after dropping what is within three deviations."""
    clean = gratings((96, 96), seed)
    windows = [
        sliding_window_view(picture, (SIZE, SIZE)).reshape(-1, SIZE**2)[::7]
        for picture in (clean, clean + noise((96, 96), SIGMA, seed))
    ]
    truth, noisy = (patches - patches.mean(axis=1, keepdims=True) for patches in windows)
    codes = transform.apply(noisy)
    codes[np.abs(codes) <= 3 * SIGMA * np.linalg.norm(transform.matrix, axis=1)] = 0.0
    return float(np.mean((transform.inverse(codes) - truth) ** 2))


@pytest.mark.parametrize("method", LEARNING)
def test_every_method_codes_unseen_patches_better_than_the_dct(method: str) -> None:
    adapted = learnt(method)
    assert adapted.transform.method == method
    assert adapted.transform.patch_size == SIZE
    assert not adapted.transform.average_with_canonical
    assert_mean_apart(adapted.transform.factor)
    assert threshold_error(adapted.transform, 77) < 0.9 * threshold_error(Transform.fixed(SIZE), 77)


@pytest.mark.parametrize("method", LEARNING)
def test_the_history_tells_of_every_iteration(method: str) -> None:
    history = learnt(method).history
    assert [record.number for record in history] == list(range(1, 11))
    errors = [record.error for record in history]
    assert errors[-1] < errors[0]
    for before, after in pairwise(errors[1:]):  # the first is of the start, far from the others
        assert after <= 1.05 * before
    for record in history:
        assert 0 < record.relative_error < 1
        assert 1 <= record.condition < 10
        assert 0 < record.density <= 1


@pytest.mark.parametrize("density", [0.01, 0.05, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("rho", [1.01, 1.25, 3.0, 1e6])
def test_the_bounds_are_kept_exactly(density: float, rho: float) -> None:
    transform = learn_transform_on(striped(), SIGMA, small(density=density, max_condition=rho, iterations=5)).transform
    n = SIZE**2
    assert transform.method == "procrustes"
    assert np.count_nonzero(transform.factor) <= max(n, density * n * n)
    assert naive.keeps_bound(transform.factor, rho)
    assert naive.keeps_bound(transform.matrix, rho)
    assert transform.frobenius_norm == pytest.approx(SIZE, rel=1e-9)
    assert_mean_apart(transform.factor)


@pytest.mark.parametrize("density", [0.05, 0.3])
def test_condition_1_is_kept_to_rounding(density: float) -> None:
    transform = learn_transform_on(striped(), SIGMA, small(density=density, max_condition=1.0, iterations=5)).transform
    assert naive.keeps_bound(transform.factor, 1.0)
    assert transform.density <= density


@pytest.mark.parametrize("density", [0.05, 0.3])
def test_sparse_logdet_keeps_its_share(density: float) -> None:
    transform = learn_transform_on(striped(), SIGMA, small(method="sparse-bresler", density=density)).transform
    assert transform.density <= density


def test_the_same_seed_gives_the_same_transform_on_any_number_of_threads() -> None:
    first = learn_transform_on(striped(), SIGMA, small(train_patches=20_000))
    for jobs in (1, 3):
        again = learn_transform_on(striped(), SIGMA, small(train_patches=20_000), jobs=jobs)
        np.testing.assert_array_equal(again.transform.factor, first.transform.factor)
        assert again.history == first.history
    assert not np.array_equal(learnt(seed=1).transform.factor, learnt(seed=0).transform.factor)


def test_learning_starts_from_the_start() -> None:
    start = turned(SIZE)
    config = small(iterations=0, density=1.0)
    unchanged = learn_transform_on(striped(), SIGMA, config, start=start)
    assert unchanged.history == ()
    np.testing.assert_allclose(unchanged.transform.factor, start.factor, atol=1e-9)
    np.testing.assert_allclose(
        learn_transform_on(striped(), SIGMA, config).transform.factor, np.eye(SIZE**2), atol=1e-9
    )
    good = learnt(seed=0).transform
    more = learn_transform_on(striped(), SIGMA, small(), start=good)
    assert more.history[0].relative_error < 0.98 * learnt(seed=0).history[0].relative_error


def test_the_patch_size_is_the_starts() -> None:
    adapted = learn_transform_on(striped(), SIGMA, small(patch_size=9), start=turned(5))
    assert adapted.transform.patch_size == 5
    assert len(adapted.history) == 10


def test_odd_numbers_of_patches_are_learnt_from_too() -> None:
    for count in (FEWEST_PATCHES, FEWEST_PATCHES + 1, 4999):
        adapted = learn_transform_on(striped(), SIGMA, small(train_patches=count, iterations=2))
        assert len(adapted.history) == 2
        assert not adapted.transform.average_with_canonical


def test_the_picture_stays_as_it_is() -> None:
    image = striped().copy()
    learn_transform_on(image, SIGMA, small(iterations=2))
    np.testing.assert_array_equal(image, striped())


# Ready transforms.


def source(transform: Transform | None, asked: list[tuple[float, int]]) -> Callable[[float, int], Transform | None]:
    def ready(sigma: float, patch_size: int) -> Transform | None:
        asked.append((sigma, patch_size))
        return transform

    return ready


def test_a_better_ready_transform_is_chosen() -> None:
    """One learnt on another picture of the kind."""
    asked: list[tuple[float, int]] = []
    good = learn_transform_on(striped(seed=5), SIGMA, small()).transform
    chosen = choose_transform(striped(), SIGMA, SIZE, ready=source(good, asked), seed=0)
    assert chosen.transform is good
    assert chosen.history == ()
    assert not chosen.transform.average_with_canonical
    assert asked == [(SIGMA, SIZE)]


@pytest.mark.parametrize("ready", [None, turned(SIZE), Transform.fixed(SIZE)])
def test_a_ready_transform_that_is_not_better_is_not_chosen(ready: Transform | None) -> None:
    asked: list[tuple[float, int]] = []
    assert_is_dct(choose_transform(striped(), SIGMA, SIZE, ready=source(ready, asked), seed=0))
    assert asked == [(SIGMA, SIZE)]
    assert_is_dct(choose_transform(striped(), SIGMA, SIZE, ready=None, seed=0))


def test_learning_starts_from_a_better_ready_transform() -> None:
    asked: list[tuple[float, int]] = []
    good = learn_transform_on(striped(seed=5), SIGMA, small()).transform
    adapted = learn_transform_on(striped(), SIGMA, small(), ready=source(good, asked))
    assert asked == [(SIGMA, SIZE)]
    started = learn_transform_on(striped(), SIGMA, small(), start=good)
    np.testing.assert_array_equal(adapted.transform.factor, started.transform.factor)
    assert not np.array_equal(adapted.transform.factor, learnt().transform.factor)


@pytest.mark.parametrize("ready", [None, turned(SIZE), Transform.fixed(SIZE)])
def test_learning_does_not_start_from_a_worse_ready_transform(ready: Transform | None) -> None:
    adapted = learn_transform_on(striped(), SIGMA, small(), ready=source(ready, []))
    np.testing.assert_array_equal(adapted.transform.factor, learnt().transform.factor)


def test_a_start_needs_no_ready_transform() -> None:
    asked: list[tuple[float, int]] = []
    learn_transform_on(striped(), SIGMA, small(iterations=1), start=turned(SIZE), ready=source(None, asked))
    assert asked == []


def test_few_patches_are_learnt_from_only_with_a_better_ready_transform() -> None:
    good = learn_transform_on(striped(seed=5), SIGMA, small()).transform
    few = striped()[:58, :58]
    config = small(train_patches=36_000)
    assert (
        FEWEST_PATCHES
        <= training_patches(few, SIGMA, Transform.fixed(SIZE), 36_000, 0).shape[1]
        < min(SCARCE_PATCHES, COMPARED_PATCHES)
    )
    assert_is_dct(learn_transform_on(few, SIGMA, config))
    assert_is_dct(learn_transform_on(few, SIGMA, config, ready=source(turned(SIZE), [])))
    adapted = learn_transform_on(few, SIGMA, config, ready=source(good, []))
    assert len(adapted.history) == 10
    assert adapted.transform.average_with_canonical
    chosen = choose_transform(few, SIGMA, SIZE, ready=source(good, []), seed=0)
    np.testing.assert_array_equal(chosen.transform.factor, good.factor)
    assert chosen.transform.average_with_canonical
    fewer = striped()[:40, :40]
    assert training_patches(fewer, SIGMA, Transform.fixed(SIZE), 36_000, 0).shape[1] < FEWEST_PATCHES
    assert_is_dct(learn_transform_on(fewer, SIGMA, config, ready=source(good, [])))
    assert_is_dct(choose_transform(fewer, SIGMA, SIZE, ready=source(good, []), seed=0))
