"""A transform is the linear map it says it is."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from dstl_cli.transforms.bases import dct_matrix
from dstl_cli.transforms.transform import Transform


@pytest.mark.parametrize("condition", [1.0, 3.0, 1e4])
def test_adjoint_and_inverse(make_transform: Callable[..., Transform], condition: float) -> None:
    transform = make_transform(5, condition, scale=2.0)
    rng = np.random.default_rng(1)
    y, a = rng.standard_normal((2, 7, 25))
    np.testing.assert_allclose(np.sum(transform.apply(y) * a), np.sum(y * transform.adjoint(a)), rtol=1e-12)
    np.testing.assert_allclose(transform.inverse(transform.apply(y)), y, atol=1e-11 * condition)
    np.testing.assert_allclose(transform.apply(y)[3], transform.factor @ dct_matrix(5) @ y[3], atol=1e-13)


@pytest.mark.parametrize("condition", [1.0, 3.0, 1e4])
def test_what_a_transform_says_of_itself(make_transform: Callable[..., Transform], condition: float) -> None:
    transform = make_transform(5, condition, scale=2.0)
    assert transform.condition == pytest.approx(condition, rel=1e-9)
    assert np.linalg.cond(transform.matrix) == pytest.approx(condition, rel=1e-9)
    assert transform.frobenius_norm == pytest.approx(np.linalg.norm(transform.matrix), rel=1e-12)
    assert transform.singular_values[0] == pytest.approx(2.0, rel=1e-12)
    assert transform.density == 1.0


def test_density_counts_the_entries_of_the_factor() -> None:
    factor = np.eye(9)
    factor[0, 5] = 1e-12
    assert Transform(3, factor, "test").density == pytest.approx(10 / 81)


@pytest.mark.parametrize(
    ("size", "factor", "sentence"),
    [
        (3, np.eye(8), "needs a 9x9 factor, not 8x8"),
        (3, np.ones(9), "needs a 9x9 factor, not 9"),
        (2, np.diag([1, 1, 1, np.nan]), "not finite numbers"),
        (2, np.diag([1, 1, 1, np.inf]), "not finite numbers"),
        (2, np.zeros((4, 4)), "cannot be inverted"),
        (2, np.diag([1.0, 1, 1, 0]), "cannot be inverted"),
        (2, np.diag([1.0, 1, 1, 1e-16]), "cannot be inverted"),
    ],
)
def test_bad_factors_are_refused_in_a_sentence(size: int, factor: NDArray[np.float64], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Transform(size, factor, "test")
