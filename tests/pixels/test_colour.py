"""Depth and colour: the working basis is orthonormal, so that noise stays white, and the way back is exact."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dstl_cli.base.depths import PIXEL_TYPES
from dstl_cli.pixels.colour import (
    BASIS,
    channel_count,
    check_pixels,
    from_channels,
    in_working_basis,
    root_mean_square,
    working_channel,
)
from dstl_cli.pixels.depth import Depth

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9))


def channels_of(pixels: Any) -> list[Any]:
    return [working_channel(pixels, index) for index in range(channel_count(pixels))]


def test_the_basis_is_orthonormal_and_starts_with_luminance() -> None:
    np.testing.assert_allclose(BASIS @ BASIS.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(BASIS[0], 1 / np.sqrt(3))


@given(st.data())
@pytest.mark.parametrize("dtype", [name for name in PIXEL_TYPES if "int" in name])
@pytest.mark.parametrize("colour", [False, True])
def test_integers_come_back_exactly(dtype: str, colour: bool, data: st.DataObject) -> None:
    shape = data.draw(SHAPES) + ((3,) if colour else ())
    pixels = data.draw(arrays(dtype, shape))
    channels = channels_of(pixels)
    assert len(channels) == (3 if colour else 1)
    assert all(channel.shape == shape[:2] for channel in channels)
    again = from_channels([np.asarray(channel, dtype=np.float64) for channel in channels], Depth.of(pixels.dtype))
    assert again.dtype == pixels.dtype
    np.testing.assert_array_equal(again, pixels)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 3)])
def test_floats_come_back_up_to_rounding(dtype: str, tolerance: float, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).normal(0, 1000, shape).astype(dtype)
    again = from_channels(
        [np.asarray(channel, dtype=np.float64) for channel in channels_of(pixels)], Depth.of(pixels.dtype)
    )
    assert again.dtype == pixels.dtype
    np.testing.assert_allclose(np.asarray(again, dtype=np.float64), pixels, rtol=0, atol=3000 * tolerance)


def test_channels_are_the_product_with_the_basis() -> None:
    pixels = np.random.default_rng(1).integers(0, 65536, (7, 8, 3), np.uint16)
    expected = np.einsum("kc,hwc->khw", BASIS, pixels / 257)
    np.testing.assert_allclose(channels_of(pixels), expected, atol=2e-4)


@pytest.mark.parametrize("shape", [(16, 16), (16, 16, 3)])
def test_both_depths_are_on_one_scale(shape: tuple[int, ...]) -> None:
    eight = np.random.default_rng(2).integers(0, 256, shape, np.uint8)
    for low, high in zip(channels_of(eight), channels_of(eight.astype(np.uint16) * 257), strict=True):
        np.testing.assert_allclose(low, high, atol=1e-4)


def test_white_noise_stays_white() -> None:
    noise = np.random.default_rng(3).normal(0, 20, (300, 300, 3))
    channels = np.stack([channel.ravel() for channel in channels_of(noise)])
    np.testing.assert_allclose(np.cov(channels), 400 * np.eye(3), atol=8)


def test_grey_has_no_chrominance() -> None:
    grey = np.random.default_rng(4).integers(0, 256, (6, 6), np.uint8)
    luminance, *chrominance = channels_of(np.dstack([grey] * 3))
    np.testing.assert_allclose(luminance, grey * np.sqrt(3), rtol=1e-6)
    np.testing.assert_allclose(chrominance, 0, atol=1e-4)


def test_results_are_rounded_and_clipped_to_the_depth() -> None:
    values = np.array([[-3.0, 0.49, 0.51, 1.6, 254.6, 300.0]])
    np.testing.assert_array_equal(Depth.of(np.dtype("uint8")).restore(values), [[0, 0, 1, 2, 255, 255]])
    fine = Depth.of(np.dtype("uint16")).restore(np.array([[-1.0, 0.001, 1.0, 254.999, 255.0, 256.0]]))
    np.testing.assert_array_equal(fine, [[0, 0, 257, 65535, 65535, 65535]])
    floats = Depth.of(np.dtype("float32")).restore(values)
    assert floats.dtype == np.float32
    np.testing.assert_array_equal(floats, values.astype(np.float32))
    assert values[0, 0] == -3  # not changed in place


@pytest.mark.parametrize("dtype", ["uint64", "int64", "complex128", "bool"])
def test_other_types_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"not {dtype}"):
        Depth.of(np.dtype(dtype))


@pytest.mark.parametrize("shape", [(5,), (5, 6, 1), (5, 6, 2), (5, 6, 4), (2, 5, 6, 3), ()])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="height, width"):
        check_pixels(np.zeros(shape))


def test_empty_and_infinite_pictures_are_refused() -> None:
    for shape in ((0, 5), (5, 0), (0, 5, 3)):
        with pytest.raises(ValueError, match="empty"):
            check_pixels(np.zeros(shape))
    bad = np.zeros((4, 4, 3))
    bad[0, 0, 0], bad[1, 1, 2] = np.nan, -np.inf
    with pytest.raises(ValueError, match=r"\b2 pixel values"):
        check_pixels(bad)
    for dtype in PIXEL_TYPES:
        check_pixels(np.zeros((1, 1), dtype))


@given(st.lists(st.floats(0, 100), min_size=3, max_size=3))
def test_deviations_come_into_the_working_basis_like_variances(deviations: list[float]) -> None:
    expected = np.sqrt(np.diag(BASIS @ np.diag(np.square(deviations)) @ BASIS.T))
    np.testing.assert_allclose(in_working_basis(deviations), expected, rtol=1e-12, atol=1e-12)
    assert root_mean_square(in_working_basis(deviations)) == pytest.approx(root_mean_square(deviations))


def test_equal_deviations_stay_equal() -> None:
    assert in_working_basis([7.0, 7.0, 7.0]) == pytest.approx([7.0, 7.0, 7.0])
    assert root_mean_square([3.0, 4.0]) == pytest.approx(np.sqrt(12.5))
