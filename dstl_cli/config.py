"""Settings, checked once: the only place with defaults. Imports nothing heavy: the command line reads it."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

METHODS = ("dct", "bresler", "conditioned", "sparse-bresler", "dsect")
PRESETS = ("paper",)


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


def check_sigma(sigma: float) -> float:
    """The noise deviation as a float, refused unless finite and not negative."""
    _require(math.isfinite(sigma) and sigma >= 0, f"sigma must be a finite number of at least 0, not {sigma}.")
    return float(sigma)


@dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """How one transform is learnt from given patches."""

    method: str = "dsect"
    iterations: int = 20
    max_condition: float = 1.0  # rho
    frobenius_norm: float | None = None  # tau; None: sqrt(n/2), the norm of the log-det methods' answer
    l1_weight: float = 1e4  # lam of Algorithm 1; not used where density is given
    density: float | None = None  # share of the n^2 entries of T that may be nonzero; None: by l1_weight (dsect)
    homotopy_steps: int = 10  # N_h
    clip: float = 1e-6  # eps
    freeze_at: int | None = None  # K: the support of T is kept from this iteration on; None: never
    logdet_weight: float = 32e6  # lambda0 of the log-det methods
    tolerance: float = 0.0  # stop when the error changes by less than this share of it

    def __post_init__(self) -> None:
        _require(self.method in METHODS, f"method must be one of {', '.join(METHODS)}, not {self.method!r}.")
        _require(self.iterations >= 0, f"iterations must be at least 0, not {self.iterations}.")
        _require(self.max_condition >= 1, f"max_condition must be at least 1, not {self.max_condition}.")
        tau = self.frobenius_norm
        _require(tau is None or 0 < tau < math.inf, f"frobenius_norm must be positive and finite, not {tau}.")
        _require(0 <= self.l1_weight < math.inf, f"l1_weight must be finite and at least 0, not {self.l1_weight}.")
        d = self.density
        _require(d is None or 0 < d <= 1, f"density must be above 0 and at most 1, not {d}.")
        _require(self.homotopy_steps >= 1, f"homotopy_steps must be at least 1, not {self.homotopy_steps}.")
        _require(0 <= self.clip < math.inf, f"clip must be finite and at least 0, not {self.clip}.")
        k = self.freeze_at
        _require(k is None or k >= 1, f"freeze_at must be at least 1, not {k}.")
        _require(
            0 < self.logdet_weight < math.inf, f"logdet_weight must be positive and finite, not {self.logdet_weight}."
        )
        _require(0 <= self.tolerance < 1, f"tolerance must be at least 0 and below 1, not {self.tolerance}.")

    def norm_for(self, n: int) -> float:
        """tau for patches of n pixels."""
        return math.sqrt(n / 2) if self.frobenius_norm is None else self.frobenius_norm


@dataclass(frozen=True, kw_only=True)
class DenoiseConfig:
    """How one picture is denoised. The defaults are the paper's protocol, with C = 1.04 as its text says."""

    patch_size: int = 11
    stride: int = 1
    error_scale: float = 1.04  # C
    rounds: int | None = None  # learning rounds; None: 20, or 5 above sigma 50
    train_patches: int = 500  # patches drawn for a round
    first_level: float = 0.1  # share of n: sparsity in the first round, and a sixth of the most a patch may take
    seed: int = 0
    learn: LearnConfig = field(default_factory=LearnConfig)

    def __post_init__(self) -> None:
        _require(1 <= self.patch_size <= 32, f"patch_size must be between 1 and 32, not {self.patch_size}.")
        _require(
            1 <= self.stride <= self.patch_size,
            f"stride must be between 1 and the patch size {self.patch_size}, not {self.stride}.",
        )
        _require(0 < self.error_scale < math.inf, f"error_scale must be positive and finite, not {self.error_scale}.")
        _require(self.rounds is None or self.rounds >= 0, f"rounds must be at least 0, not {self.rounds}.")
        _require(self.train_patches >= 1, f"train_patches must be at least 1, not {self.train_patches}.")
        _require(0 < self.first_level <= 1, f"first_level must be above 0 and at most 1, not {self.first_level}.")
        _require(self.seed >= 0, f"seed must be at least 0, not {self.seed}.")

    def first_coefficients(self, patch_size: int) -> int:
        """Sparsity of every patch in the first learning round."""
        return max(1, round(self.first_level * patch_size**2))

    def most_coefficients(self, patch_size: int) -> int:
        """The most coefficients the coder gives a patch."""
        return min(6 * self.first_coefficients(patch_size), patch_size**2)

    def rounds_at(self, sigma: float) -> int:
        """How many learning rounds noise of this deviation gets; the DCT needs none."""
        if self.learn.method == "dct":
            return 0
        if self.rounds is not None:
            return self.rounds
        return 20 if sigma <= 50 else 5

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """The settings called `name` with some of them changed, be they of denoising or of learning."""
        _require(name in PRESETS, f"preset must be one of {', '.join(PRESETS)}, not {name!r}.")
        own = {f.name for f in fields(cls)}
        learn = {key: value for key, value in changes.items() if key not in own}
        config = cls(**{key: value for key, value in changes.items() if key in own})
        return replace(config, learn=replace(config.learn, **learn))
