"""Patches are where they should be, come out right, and go back exactly, in any order."""

from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dstl_cli.patches.grid import extract, positions, sample, summation_step
from dstl_cli.patches.kernels import coding as _kernels


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, int], int, int]:
    """Image shape, patch size and a stride that leaves no gaps."""
    size = draw(st.integers(1, 7))
    shape = draw(st.tuples(st.integers(size, 19), st.integers(size, 19)))
    return shape, size, draw(st.integers(1, size))


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
def test_extract_equals_the_loops(dtype: type[np.generic], size: int, stride: int) -> None:
    image: NDArray[Any] = np.random.default_rng(size).integers(0, 256, (13, 9)).astype(dtype)
    rows, columns = corners((13, 9), size, stride)
    patches, means = extract(image, size, rows, columns)
    expected, expected_means = naive.extract(image, size, rows.tolist(), columns.tolist())
    np.testing.assert_allclose(patches, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(means, expected_means, rtol=1e-14)
    np.testing.assert_allclose(patches.mean(axis=2), 0, atol=1e-12)


def test_extract_reads_any_memory_layout() -> None:
    image = np.random.default_rng(0).random((14, 26))
    rows, columns = corners((13, 14), 4, 1)
    turned = image[:, ::2].T
    turned.flags.writeable = False
    patches, means = extract(turned, 4, rows, columns)
    same_patches, same_means = extract(np.ascontiguousarray(turned), 4, rows, columns)
    np.testing.assert_array_equal(patches, same_patches)
    np.testing.assert_array_equal(means, same_means)


# And back.


@given(layouts(), st.integers(0, 2**32 - 1))
def test_added_patches_give_8_bit_images_back_exactly(layout: tuple[tuple[int, int], int, int], seed: int) -> None:
    shape, size, stride = layout
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    rows, columns = corners(shape, size, stride)
    patches, means = extract(image, size, rows, columns)
    total, step = np.zeros(shape), summation_step(255.0, size)
    _kernels.add_patches(patches, 1.0, means, -np.inf, np.inf, step, size, rows, columns, total)
    _, count = naive.aggregate(patches, rows.tolist(), columns.tolist(), shape)
    np.testing.assert_array_equal(total / count, image)


@given(layouts(), st.integers(0, 2**32 - 1), st.sampled_from([1e-30, 1e-3, 1.0, 6e4, 1e30]))
def test_added_patches_give_float_images_back(
    layout: tuple[tuple[int, int], int, int], seed: int, scale: float
) -> None:
    shape, size, stride = layout
    image = scale * np.random.default_rng(seed).standard_normal(shape)
    rows, columns = corners(shape, size, stride)
    patches, means = extract(image, size, rows, columns, scale=0.25)
    total, step = np.zeros(shape), summation_step(float(np.abs(image).max()), size)
    _kernels.add_patches(patches, 4.0, means, -np.inf, np.inf, step, size, rows, columns, total)
    _, count = naive.aggregate(patches, rows.tolist(), columns.tolist(), shape)
    np.testing.assert_allclose(total / count, image, rtol=0, atol=1e-11 * np.abs(image).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("data_range", [(-np.inf, np.inf), (20.0, 200.0)])
def test_add_patches_equals_the_loops_in_any_order(
    dtype: type[np.floating[Any]], data_range: tuple[float, float]
) -> None:
    size, shape = 4, (15, 11)
    rng = np.random.default_rng(5)
    rows, columns = corners(shape, size, 3)
    grid = (len(rows), len(columns))
    patches: NDArray[np.floating[Any]] = (30 * rng.standard_normal((*grid, size**2))).astype(dtype)
    means = rng.uniform(0, 255, grid)
    values = np.clip(means[..., None] + 2.0 * patches.astype(np.float64), *data_range)
    step = summation_step(4 * 255.0, size)

    def add(cuts: list[tuple[NDArray[np.intp], NDArray[np.intp]]]) -> bytes:
        """The sums of the patches added cut by cut: (indices of rows, indices of columns)."""
        total = np.zeros(shape)
        for i, j in cuts:
            part = np.ix_(i, j)
            _kernels.add_patches(patches[part], 2.0, means[part], *data_range, step, size, rows[i], columns[j], total)
        expected, _ = naive.aggregate(values, rows.tolist(), columns.tolist(), shape)
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-10)
        return total.tobytes()

    i, j = np.arange(grid[0]), np.arange(grid[1])
    at_once = add([(i, j)])
    assert add([(i[::-1], j[::-1])]) == at_once
    assert add([(rng.permutation(i), rng.permutation(j))]) == at_once
    assert add([(i[k : k + 1], j) for k in i]) == at_once
    assert add([(i[3:], j), (i[:3], j[2:]), (i[:3], j[:2])]) == at_once
    assert add([(i, j[k : k + 1]) for k in rng.permutation(j)]) == at_once


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
