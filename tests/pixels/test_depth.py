"""Depth: every number of every type comes back from the units of the numerics, and what units mean."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dstl_cli import denoise
from dstl_cli.base.depths import PIXEL_TYPES
from dstl_cli.pixels.colour import working_channel
from dstl_cli.pixels.depth import Depth, working_type

WHOLE = [name for name in PIXEL_TYPES if "int" in name]
UNSCALED = [name for name in PIXEL_TYPES if name not in ("uint8", "uint16")]
EVERY = pytest.mark.parametrize("dtype", PIXEL_TYPES)


def limits(dtype: str) -> tuple[float, float]:
    known = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
    return float(known.min), float(known.max)


@pytest.mark.parametrize("dtype", WHOLE)
@given(st.data())
def test_whole_numbers_come_back_through_any_unit(dtype: str, data: st.DataObject) -> None:
    """Counted from a centre as planes are, in the precision that they are worked on in."""
    pixels = data.draw(arrays(dtype, st.tuples(st.integers(1, 6), st.integers(1, 6))))
    pixels = np.append(pixels.ravel(), [np.iinfo(dtype).min, np.iinfo(dtype).max]).astype(dtype)[None]
    depth = Depth.of(pixels.dtype).for_sigma(data.draw(st.sampled_from([0.01, 1.0, 20.0, 1e3, 1e7])))
    units: NDArray[Any] = np.asarray(working_channel(pixels, 0, depth), dtype=working_type(pixels.dtype))
    again = depth.restore(units)
    assert again.dtype == pixels.dtype
    np.testing.assert_array_equal(again, pixels)


@pytest.mark.parametrize("bits", [9, 10, 12, 14, 15, 16])
def test_packed_whole_numbers_come_back(bits: int) -> None:
    depth = Depth.of(np.dtype(np.uint16), bits)
    pixels = np.arange(2**bits, dtype=np.uint16)[None]
    units: NDArray[Any] = np.asarray(working_channel(pixels, 0, depth))
    assert units[0, -1] == pytest.approx(255, rel=1e-6)
    np.testing.assert_array_equal(depth.restore(units), pixels)
    above = np.array([[-1.0, 255.1, 400.0]])
    np.testing.assert_array_equal(depth.restore(above), [[0, 2**bits - 1, 2**bits - 1]])


def test_every_number_of_half_precision_comes_back() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    pixels = every[np.isfinite(every)][None]
    for depth in (Depth.of(pixels.dtype), Depth.of(pixels.dtype).for_sigma(1e-3)):
        units: NDArray[Any] = np.asarray(working_channel(pixels, 0, depth), dtype=np.float32)
        np.testing.assert_array_equal(depth.restore(units), pixels)


@EVERY
def test_values_beyond_the_type_are_held_at_its_limits(dtype: str) -> None:
    if dtype in ("float32", "float64"):
        assert Depth.of(np.dtype(dtype)).stored_range is None
        return
    depth = Depth.of(np.dtype(dtype))
    assert depth.stored_range == limits(dtype)
    assert depth.data_range is not None
    low, high = depth.data_range
    wide: NDArray[Any] = np.array([[2 * low - 1.0, low, high, 2 * high + 1.0]], dtype=working_type(np.dtype(dtype)))
    np.testing.assert_array_equal(
        depth.restore(wide).astype(np.float64), [[*limits(dtype)[:1] * 2, *[limits(dtype)[1]] * 2]]
    )


def test_what_a_deviation_of_noise_means() -> None:
    for dtype, bits, told in (("uint8", None, 1.0), ("uint16", None, 257.0), ("uint16", 12, 4095 / 255)):
        depth = Depth.of(np.dtype(dtype), bits)
        assert depth.scaled
        assert depth.told_unit == depth.unit == told
        assert depth.for_sigma(1e4) == depth
    for dtype in UNSCALED:
        depth = Depth.of(np.dtype(dtype))
        fine = depth.for_sigma(0.01)
        assert depth.told_unit == fine.told_unit == 1
        assert fine.unit == 0.01 / 20
        assert fine.stored_range == depth.stored_range  # a limit of the type, whatever the unit


def test_differences_are_shown_around_the_middle_of_unsigned_numbers() -> None:
    middles = {dtype: Depth.of(np.dtype(dtype)).middle for dtype in PIXEL_TYPES}
    expected = {"uint8": 128, "uint16": 128 * 257, "uint32": 2**31}
    assert middles == dict.fromkeys(PIXEL_TYPES, 0) | expected


@pytest.mark.parametrize("dtype", WHOLE)
def test_working_precision_tells_neighbours_apart(dtype: str) -> None:
    top = np.iinfo(dtype).max
    values = np.array([top - 1, top], dtype=dtype).astype(working_type(np.dtype(dtype)))
    assert values[1] - values[0] == 1


@pytest.mark.parametrize("sigma", [3e38, 1e40, 1.7e308])
@pytest.mark.parametrize("dtype", [name for name in UNSCALED if "float" in name])
def test_more_noise_than_numbers_can_hold_gives_numbers(dtype: str, sigma: float) -> None:
    pixels = np.random.default_rng(0).uniform(0, 255, (24, 24)).astype(dtype)
    result = denoise(pixels, sigma=sigma, quality="fast")
    assert result.dtype == pixels.dtype
    assert np.isfinite(result).all()
    assert pixels.min() <= result.min() <= result.max() <= pixels.max()
