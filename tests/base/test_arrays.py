"""Small functions of arrays against what scipy makes of the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import maximum_filter

from dstl_cli.base.arrays import largest_around


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([(1, 1), (3, 3), (5, 5), (3, 5)]), st.integers(0, 2**32))
def test_the_largest_around_is_that_of_the_maximum_filter(
    height: int, width: int, sides: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((height, width)) < 0.1, np.inf, rng.standard_normal((height, width)))
    footprint = rng.random(sides) < 0.5
    footprint[rng.integers(sides[0]), rng.integers(sides[1])] = True
    expected = maximum_filter(values, footprint=footprint, mode="nearest")
    assert (largest_around(values, footprint) == expected).all()
