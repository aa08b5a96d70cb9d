"""Settings of learning, checked once: the only place with their defaults. Imports nothing heavy.

The paper's letters stand beside the names.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from dstl_cli.base.checks import check_bounds, check_patch_size, require
from dstl_cli.learning.methods import METHODS
from dstl_cli.transforms.canonical import CANONICAL

STEP_RULES = ("exact", "lipschitz")
L1_UNITS = ("absolute", "energy")
OF_EVERY_TRANSFORM = ("canonical", "patch_size", "seed")  # the settings that are not of learning
ERROR_SCALE = 1.04  # C of the coder that sets the levels of the patches
SMALLEST_BATCH = 5000  # patches; fewer than 40 for each pixel of a patch would teach more noise than structure
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
        check_bounds(self.max_condition, self.norm_for(1))
        d, k, m, rule, weight = self.density, self.freeze_at, self.iterations, self.step_rule, self.logdet_weight
        require(0 <= self.l1_weight < math.inf, f"l1_weight must be finite and at least 0, not {self.l1_weight}.")
        require(self.l1_units in L1_UNITS, f"l1_units must be one of {', '.join(L1_UNITS)}, not {self.l1_units!r}.")
        require(d is None or 0 < d <= 1, f"density must be above 0 and at most 1, not {d}.")
        require(self.homotopy_steps >= 1, f"homotopy_steps must be at least 1, not {self.homotopy_steps}.")
        require(0 <= self.clip < math.inf, f"clip must be finite and at least 0, not {self.clip}.")
        require(k is None or 1 <= k < m, f"freeze_at must be at least 1 and below the {m} iterations, not {k}.")
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


COLLECTION_LEARNING = LearnSettings(
    method="procrustes", iterations=200, max_condition=1.25, density=0.3, l1_weight=0.007, l1_units="energy"
)


@dataclass(frozen=True, kw_only=True)
class CollectionSettings:
    """How a transform is learnt from a collection of pictures.

    Patches get `sparsity_level` coefficients each; without it, as many as the coder takes at noise of deviation
    `sigma`, and patches that vanish in such noise are not learnt from.
    """

    canonical: str = "dct"  # Phi
    patch_size: int = 11
    sparsity_level: int | None = None  # r
    sigma: float = 20.0
    train_patches: int = 200_000  # sampled from all pictures together
    batches: int | None = None  # parts of the sample, one of which an iteration codes; None: by the sample's size
    patience: int = 50  # iterations without a better cost that end the training
    seed: int = 0
    learn: LearnSettings = COLLECTION_LEARNING

    def __post_init__(self) -> None:
        require(self.patch_size != 1, "patch_size must be at least 2: a single pixel is nothing but its mean.")
        check_patch_size(self.patch_size)
        CANONICAL[self.canonical].check_size(self.patch_size)
        require(self.train_patches >= 1, f"train_patches must be at least 1, not {self.train_patches}.")
        require(self.seed >= 0, f"seed must be at least 0, not {self.seed}.")
        most, level, batches = self.patch_size**2 - 1, self.sparsity_level, self.batches
        levels = f"between 1 and {most}, as many as a patch without its mean has"
        require(level is None or 1 <= level <= most, f"sparsity_level must be {levels}, not {level}.")
        require(0 < self.sigma < math.inf, f"sigma must be positive and finite, not {self.sigma}.")
        numbers = f"between 1 and the number of patches {self.train_patches}"
        require(batches is None or 1 <= batches <= self.train_patches, f"batches must be {numbers}, not {batches}.")
        require(self.patience >= 1, f"patience must be at least 1, not {self.patience}.")

    def batches_for(self, count: int) -> int:
        """In how many batches a sample of `count` patches is cut."""
        if self.batches is not None:
            return min(self.batches, count)
        return max(1, count // max(SMALLEST_BATCH, 40 * self.patch_size**2))

    def facts(self) -> dict[str, Any]:
        """The settings that count, by name."""
        table = asdict(self)
        learn = table.pop("learn") | {"frobenius_norm": self.learn.norm_for(self.patch_size**2)}
        used = used_settings(self.learn.method, [key for key, value in (table | learn).items() if value is not None])
        counted = {key: value for key, value in table.items() if key in OF_EVERY_TRANSFORM or key in used}
        return counted | {"learn": {key: value for key, value in learn.items() if key == "method" or key in used}}

    @classmethod
    def of(cls, **changes: Any) -> Self:
        """The defaults with some of them changed, be they of the collection or of learning.

        A setting that the method does not use is refused; the defaults of such settings do not count.
        """
        own = {item.name for item in fields(cls)}
        learning = {key: value for key, value in changes.items() if key not in own}
        method = METHODS[learning.get("method", COLLECTION_LEARNING.method)]
        check_used([key for key in changes if key != "method" and key not in OF_EVERY_TRANSFORM], method.name)
        if method.penalises or "density" not in method.uses:
            learning.setdefault("density", None)
        if "max_condition" not in method.uses:
            learning.setdefault("max_condition", LearnSettings().max_condition)
        return cls(
            learn=replace(COLLECTION_LEARNING, **learning), **{key: changes[key] for key in changes if key in own}
        )
