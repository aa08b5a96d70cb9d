"""Settings of learning, checked once: the only place with their defaults. Imports nothing heavy.

The paper's letters stand beside the names.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dstl_cli.base.checks import check_patch_size, require
from dstl_cli.learning.methods import METHODS
from dstl_cli.transforms.canonical import CANONICAL

STEP_RULES = ("exact", "lipschitz")
L1_UNITS = ("absolute", "energy")
EVERY_METHOD = frozenset({"iterations", "train_patches", "rounds", "patience", "batches", "sigma", "sparsity_level"})


@dataclass(frozen=True, kw_only=True)
class LearnSettings:
    """How T is learnt from given patches. The defaults are those of the paper's denoising table."""

    method: str = "dsect"
    iterations: int = 20  # M
    max_condition: float = 1.0  # rho
    frobenius_norm: float | None = None  # tau; None: sqrt(n/2), the norm of the log-det methods' answer
    density: float | None = None  # ||T||_0 as a share of n^2; None: the method's own
    l1_weight: float = 1e4  # lambda of Algorithm 1; not used where density is given
    l1_units: str = "absolute"  # of l1_weight: as it stands, or times ||Yt||^2 / n, which is free of the data's scale
    homotopy_steps: int = 10  # N_h
    clip: float = 1e-6  # eps: smaller entries of T become zero
    freeze_at: int | None = None  # K: the support of T is kept from this iteration on; None: never
    step_rule: str = "exact"  # alpha: the best step along the gradient, or 1 / ||Yt Yt'||_2
    logdet_weight: float = 32e6  # lambda0 of the log-det methods

    def __post_init__(self) -> None:
        METHODS[self.method]
        require(self.iterations >= 0, f"iterations must be at least 0, not {self.iterations}.")
        require(self.max_condition >= 1, f"max_condition must be at least 1, not {self.max_condition}.")
        tau, d, k, m = self.frobenius_norm, self.density, self.freeze_at, self.iterations
        require(tau is None or 0 < tau < math.inf, f"frobenius_norm must be positive and finite, not {tau}.")
        require(0 <= self.l1_weight < math.inf, f"l1_weight must be finite and at least 0, not {self.l1_weight}.")
        require(self.l1_units in L1_UNITS, f"l1_units must be one of {', '.join(L1_UNITS)}, not {self.l1_units!r}.")
        require(d is None or 0 < d <= 1, f"density must be above 0 and at most 1, not {d}.")
        require(self.homotopy_steps >= 1, f"homotopy_steps must be at least 1, not {self.homotopy_steps}.")
        require(0 <= self.clip < math.inf, f"clip must be finite and at least 0, not {self.clip}.")
        require(k is None or 1 <= k < m, f"freeze_at must be at least 1 and below the {m} iterations, not {k}.")
        rule, weight = self.step_rule, self.logdet_weight
        require(rule in STEP_RULES, f"step_rule must be one of {', '.join(STEP_RULES)}, not {rule!r}.")
        require(0 < weight < math.inf, f"logdet_weight must be positive and finite, not {weight}.")

    def norm_for(self, n: int) -> float:
        """tau for patches of n pixels."""
        return math.sqrt(n / 2) if self.frobenius_norm is None else self.frobenius_norm


@dataclass(frozen=True, kw_only=True)
class PictureLearning:
    """How a transform is learnt on one noisy picture."""

    method: str = "procrustes"
    canonical: str = "dct"  # Phi
    patch_size: int = 11
    iterations: int = 18
    max_condition: float | None = 1.25  # rho; None: the method knows no bound
    density: float | None = 0.30  # share of the n^2 entries of T that may be nonzero; None: the method knows none
    train_patches: int = 36_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_patch_size(self.patch_size)
        CANONICAL[self.canonical].check_size(self.patch_size)
        rho = 1.0 if self.max_condition is None else self.max_condition
        LearnSettings(method=self.method, iterations=self.iterations, max_condition=rho, density=self.density)
        require(self.train_patches >= 1, f"train_patches must be at least 1, not {self.train_patches}.")
        require(self.seed >= 0, f"seed must be at least 0, not {self.seed}.")


def first_coefficients(patch_size: int, share: float = 0.1) -> int:
    """Coefficients of a patch before anything is known of it: so large a share of its pixels."""
    return max(1, round(share * patch_size**2))


def most_coefficients(patch_size: int, share: float = 0.1) -> int:
    """The most coefficients that the coder gives a patch."""
    return min(6 * first_coefficients(patch_size, share), patch_size**2)


def used_settings(method: str, present: Collection[str] = ()) -> frozenset[str]:
    """The settings of learning that a method uses beside those present."""
    entry = METHODS[method]
    if not entry.learns:
        return frozenset()
    return (EVERY_METHOD | entry.uses).difference(*(_excluded(method, key) for key in present))


def check_used(given: Collection[str], method: str) -> None:
    """Refuse settings of learning without effect: unknown to the method, or beside another one."""
    for key in given:
        if not METHODS[method].learns:
            raise ValueError(f"{key} is a setting of learning, and method {method} learns nothing; leave it out.")
        if key not in used_settings(method):
            owners = ", ".join(entry.name for entry in METHODS if key in used_settings(entry.name))
            raise ValueError(f"{key} is a setting of the methods {owners}, not of {method}.")
        for other in given:
            if key in _excluded(method, other):
                raise ValueError(f"{key} has no effect beside {other}; leave one of them out.")


def _excluded(method: str, key: str) -> frozenset[str]:
    """The settings that have no effect with a method where this one is given."""
    return frozenset({"sigma"}) if key == "sparsity_level" else METHODS[method].excludes.get(key, frozenset())


def with_method_defaults(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings of a kind, and None for the bounds that their method does not know."""
    own = {item.name: item.default for item in fields(kind)}
    uses = METHODS[given.get("method", own["method"])].uses
    return {**{key: None for key in ("density", "max_condition") if key in own and key not in uses}, **given}
