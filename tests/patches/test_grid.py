"""Patches are where they should be and come out right, some of them or all."""

from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.patches.grid import patches_at, positions, sample


def corners(shape: tuple[int, int], size: int, stride: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the patches' corners."""
    return positions(shape[0], size, stride), positions(shape[1], size, stride)


# Where patches are.


@given(st.integers(1, 80), st.integers(1, 12), st.integers(1, 15))
def test_positions_are_the_multiples_of_the_stride_and_the_last(length: int, size: int, stride: int) -> None:
    if size > length:
        with pytest.raises(ValueError, match="does not fit into an image"):
            positions(length, size, stride)
        return
    starts = positions(length, size, stride)
    assert starts.tolist() == naive.positions(length, size, stride)
    assert starts[0] == 0
    assert starts[-1] + size == length  # the last row or column is always covered
    if stride <= size:
        covered = {start + offset for start in starts.tolist() for offset in range(size)}
        assert covered == set(range(length))


# Out of the image.


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (4, 3), (5, 5), (9, 2)])
def test_patches_equal_the_loops(dtype: type[np.generic], size: int, stride: int) -> None:
    image: NDArray[Any] = np.random.default_rng(size).integers(0, 256, (13, 9)).astype(dtype)
    rows, columns = corners((13, 9), size, stride)
    expected, _ = naive.extract(image, size, rows.tolist(), columns.tolist())
    patches = patches_at(image, size, np.repeat(rows, len(columns)), np.tile(columns, len(rows)))
    assert patches.dtype == np.float64
    np.testing.assert_allclose(patches, expected.reshape(-1, size**2), rtol=0, atol=1e-10)
    np.testing.assert_allclose(patches.mean(axis=1), 0, atol=1e-12)


def test_patches_are_taken_in_any_order_and_more_than_once() -> None:
    image = np.random.default_rng(0).random((13, 14))
    rows, columns = np.array([9, 0, 9, 3]), np.array([10, 0, 10, 7])
    patches = patches_at(image, 4, rows, columns)
    for r, c, patch in zip(rows, columns, patches, strict=True):
        np.testing.assert_array_equal(patch, patches_at(image[r : r + 4, c : c + 4], 4, *np.zeros((2, 1), int))[0])


def test_patches_of_any_memory_layout() -> None:
    image = np.random.default_rng(0).random((14, 26))
    rows, columns = (places.ravel() for places in np.indices((10, 11)))
    turned = image[:, ::2].T
    turned.flags.writeable = False
    same = patches_at(np.ascontiguousarray(turned), 4, rows, columns)
    np.testing.assert_array_equal(patches_at(turned, 4, rows, columns), same)


def test_patches_on_a_high_level_keep_their_small_differences() -> None:
    image = np.random.default_rng(0).standard_normal((6, 6))
    low, high = (patches_at(picture, 6, *np.zeros((2, 1), int)) for picture in (image, image + 1e9))
    np.testing.assert_allclose(high, low, rtol=0, atol=1e-6)


# Samples.


def unique_image(shape: tuple[int, int]) -> NDArray[np.float64]:
    """An image no two patches of which are alike."""
    return np.random.default_rng(9).permutation(shape[0] * shape[1]).reshape(shape).astype(np.float64)


def places(patches: NDArray[np.float64], image: NDArray[np.float64], size: int) -> list[int]:
    """Which patch of the image each row of `patches` is."""
    rows, columns = (naive.positions(length, size, 1) for length in image.shape)
    everything = naive.extract(image, size, rows, columns)[0].reshape(-1, size**2)
    distances = np.abs(patches[:, None] - everything[None]).max(axis=2)
    assert (distances.min(axis=1) < 1e-9).all()
    return [int(place) for place in distances.argmin(axis=1)]


def test_samples_are_different_patches_of_the_image() -> None:
    image = unique_image((17, 12))
    chosen = places(sample(image, 4, 60, np.random.default_rng(0)), image, 4)
    assert len(set(chosen)) == 60


def test_samples_follow_the_seed() -> None:
    image = unique_image((17, 12))
    first, again, other = (sample(image, 4, 20, np.random.default_rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert set(places(first, image, 4)) != set(places(other, image, 4))


def test_a_generator_gives_new_samples_each_time() -> None:
    image, rng = unique_image((17, 12)), np.random.default_rng(0)
    assert places(sample(image, 4, 20, rng), image, 4) != places(sample(image, 4, 20, rng), image, 4)


def test_asking_for_more_samples_than_patches_gives_each_once() -> None:
    image = unique_image((6, 9))
    chosen = places(sample(image, 4, 1000, np.random.default_rng(0)), image, 4)
    assert sorted(chosen) == list(range(3 * 6))


def test_all_places_are_sampled_alike() -> None:
    image, rng = unique_image((5, 6)), np.random.default_rng(0)
    counts = np.bincount([p for _ in range(300) for p in places(sample(image, 3, 4, rng), image, 3)], minlength=12)
    assert counts.min() > 60  # 100 expected
    assert counts.max() < 140


def test_samples_of_integer_images_have_exact_means() -> None:
    image = np.array([[0, 255], [255, 255]], dtype=np.uint8)
    patch = sample(image, 2, 1, np.random.default_rng(0))
    np.testing.assert_array_equal(patch, [[-191.25, 63.75, 63.75, 63.75]])
