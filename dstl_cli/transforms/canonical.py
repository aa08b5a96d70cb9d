"""Canonical transforms Phi, the fixed factor of W = T Phi: orthonormal bases of p x p patches by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dstl_cli.base.checks import require
from dstl_cli.base.registry import Registry, load


@dataclass(frozen=True)
class Canonical:
    """One orthonormal basis of patches.

    rows: gives the (n, n) matrix Phi of a patch size, n = patch_size**2, one basis patch a row.
    sizes: what the patch size must be, in words, where not every size will do; fits: whether one will.
    mean_first: the first row is the constant patch, so that the others see patches without their means.
    """

    name: str
    help: str
    rows: "str | Callable[[int], Any]"
    sizes: str = "any"
    fits: Callable[[int], bool] = lambda patch_size: True
    mean_first: bool = True

    @property
    def first_learnt(self) -> int:
        """The first row that says anything of patches without their means."""
        return 1 if self.mean_first else 0

    def check_size(self, patch_size: int) -> None:
        """Refuse a patch size that the basis does not have."""
        wanted = f"{self.sizes} for the canonical transform {self.name}"
        require(self.fits(patch_size), f"patch_size must be {wanted}, not {patch_size}.")

    def matrix(self, patch_size: int) -> Any:
        """Phi for patches of patch_size x patch_size pixels, (n, n)."""
        self.check_size(patch_size)
        return load(self.rows)(patch_size)


def _is_power_of_two(patch_size: int) -> bool:
    return patch_size & (patch_size - 1) == 0


_BASES = "dstl_cli.transforms.bases"
CANONICAL: Registry[Canonical] = Registry(
    "canonical",
    Canonical("dct", "cosines: the usual choice", f"{_BASES}:dct_matrix"),
    Canonical(
        "hadamard", "products of +1/-1 square waves", f"{_BASES}:hadamard_matrix", "a power of two", _is_power_of_two
    ),
    Canonical("haar", "the Haar wavelet", f"{_BASES}:haar_matrix", "a power of two", _is_power_of_two),
    Canonical("fourier", "sines and cosines of whole periods", f"{_BASES}:fourier_matrix"),
    Canonical("identity", "the pixels themselves", f"{_BASES}:identity_matrix", mean_first=False),
)
