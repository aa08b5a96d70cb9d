"""The canonical transforms are the bases they are called, and keep what learning relies on."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.fft import dct, rfft
from scipy.linalg import hadamard

from dstl_cli.transforms.canonical import CANONICAL, Canonical
from dstl_cli.transforms.transform import Transform

Array = NDArray[np.float64]

POWERS, ANY = (1, 2, 4, 8, 16, 32), (1, 2, 3, 4, 5, 8, 11, 16)
SIZES = [(entry.name, size) for entry in CANONICAL for size in ANY if entry.fits(size)]


def cosines(size: int) -> Array:
    return np.asarray(dct(np.eye(size), type=2, norm="ortho", axis=0))


def square_waves(size: int) -> Array:
    return np.asarray(hadamard(size) / np.sqrt(size))


def haar_wavelets(size: int) -> Array:
    """The constant, then psi_jk of height 2^(j/2) / sqrt(p), positive and then negative on a p/2^j-th of the line."""
    rows = np.zeros((size, size))
    rows[0] = 1 / np.sqrt(size)
    for scale in range(size.bit_length() - 1):
        half = size >> (scale + 1)
        for place in range(2**scale):
            start = 2 * half * place
            rows[2**scale + place, start : start + half] = np.sqrt(2**scale / size)
            rows[2**scale + place, start + half : start + 2 * half] = -np.sqrt(2**scale / size)
    return rows


def waves(size: int) -> Array:
    """Real and negative imaginary parts of the discrete Fourier transform, each of norm 1."""
    spectrum = rfft(np.eye(size), norm="ortho", axis=0)
    parts = np.stack((spectrum.real, -spectrum.imag), axis=1).reshape(-1, size)
    parts = np.delete(parts, 1, axis=0)[:size]  # the constant has no sine; nor has the highest of an even size
    return np.asarray(parts / np.linalg.norm(parts, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("name", "rows", "sizes"),
    [
        ("dct", cosines, ANY),
        ("hadamard", square_waves, POWERS),
        ("haar", haar_wavelets, POWERS),
        ("fourier", waves, ANY),
        ("identity", np.eye, ANY),
    ],
)
def test_a_basis_is_that_of_its_name(name: str, rows: object, sizes: tuple[int, ...]) -> None:
    """Coefficient (i, j) of a patch Y is c_i' Y c_j, with the rows c of the one-dimensional basis."""
    assert callable(rows)
    for size in sizes:
        c = rows(size)
        patch = np.random.default_rng(size).standard_normal((size, size))
        np.testing.assert_allclose(CANONICAL[name].matrix(size) @ patch.ravel(), (c @ patch @ c.T).ravel(), atol=1e-13)


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_every_basis_is_orthonormal_and_tells_where_the_mean_is(name: str, size: int) -> None:
    entry = CANONICAL[name]
    phi = entry.matrix(size)
    np.testing.assert_allclose(phi @ phi.T, np.eye(size**2), atol=1e-13)
    sums = phi @ np.ones(size**2)
    if entry.mean_first:
        np.testing.assert_allclose(phi[0], 1 / size, atol=1e-15)
        np.testing.assert_allclose(sums[1:], 0, atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        phi[0, 0] = 1.0


@pytest.mark.parametrize("name", ["hadamard", "haar"])
@pytest.mark.parametrize("size", [3, 6, 11, 12, 31])
def test_sizes_that_a_basis_has_not_are_refused(name: str, size: int) -> None:
    sentence = f"^patch_size must be a power of two for the canonical transform {name}, not {size}\\.$"
    for make in (CANONICAL[name].matrix, lambda size: Transform.fixed(size, name)):
        with pytest.raises(ValueError, match=sentence):
            make(size)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=f"^canonical must be one of {', '.join(CANONICAL.names)}, not 'magic'\\.$"):
        CANONICAL["magic"]


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="There is a canonical dct already"):
        CANONICAL.register(Canonical("dct", "another", np.eye))


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_a_fixed_transform_is_its_basis(name: str, size: int) -> None:
    transform = Transform.fixed(size, name)
    np.testing.assert_array_equal(transform.matrix, CANONICAL[name].matrix(size))
    assert (transform.canonical, transform.condition) == (name, 1.0)
