"""The transforms shipped with the program keep what the program promises of them."""

from collections.abc import Mapping
from importlib.resources import as_file, files

import numpy as np
import pytest

from dstl_cli.transforms.files import TransformFile, load_transform
from dstl_cli.transforms.ready import RANGES, ready_transform

NAMES = ("ready_low.npz", "ready_middle.npz", "ready_high.npz")


def load(name: str) -> TransformFile:
    with as_file(files("dstl_cli.transforms.ready") / name) as path:
        return load_transform(path)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_transforms_are_sparse_and_well_conditioned(name: str) -> None:
    transform = load(name).transform
    assert transform.patch_size == 11
    assert transform.density <= 0.30
    assert transform.condition <= 1.1
    assert np.linalg.cond(transform.matrix) <= 1.1
    assert (transform.method, transform.canonical) == ("procrustes", "dct")
    assert not np.array_equal(transform.factor, np.eye(121))


@pytest.mark.parametrize("name", NAMES)
def test_shipped_transforms_have_the_mean_apart(name: str) -> None:
    factor = load(name).transform.factor
    assert factor[0, 0] > 0
    assert not factor[0, 1:].any()
    assert not factor[1:, 0].any()


@pytest.mark.parametrize("name", NAMES)
def test_shipped_transforms_say_where_they_come_from(name: str) -> None:
    provenance = load(name).provenance
    assert isinstance(provenance, Mapping)
    assert provenance["source"] == "train"
    assert provenance["pictures"] == 30
    assert provenance["settings"]["learn"]["density"] == 0.3


@pytest.mark.parametrize(
    ("sigma", "name"),
    [
        (0.0, "ready_low.npz"),
        (1e-9, "ready_low.npz"),
        (15.0, "ready_low.npz"),
        (np.nextafter(15.0, 16.0), "ready_middle.npz"),
        (25.0, "ready_middle.npz"),
        (60.0, "ready_middle.npz"),
        (np.nextafter(60.0, 61.0), "ready_high.npz"),
        (1e300, "ready_high.npz"),
        (np.inf, "ready_high.npz"),
    ],
)
def test_the_noise_decides_which_one_it_is(sigma: float, name: str) -> None:
    chosen = ready_transform(sigma, 11)
    assert chosen is not None
    np.testing.assert_array_equal(chosen.factor, load(name).transform.factor)
    assert ready_transform(sigma, 11) is chosen  # read once


def test_the_three_differ() -> None:
    low, middle, high = (load(name).transform.factor for name in NAMES)
    assert not np.array_equal(low, middle)
    assert not np.array_equal(middle, high)
    assert not np.array_equal(low, high)
    assert tuple(name for name, _ in RANGES) == NAMES


@pytest.mark.parametrize("patch_size", [1, 8, 10, 12, 32])
@pytest.mark.parametrize("sigma", [5.0, 30.0, 100.0])
def test_other_patch_sizes_have_none(sigma: float, patch_size: int) -> None:
    assert ready_transform(sigma, patch_size) is None
