"""Settings, checked once: the only place with defaults. Imports nothing heavy: the command line reads it."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

METHODS = ("dct", "bresler", "conditioned", "sparse-bresler", "dsect")
PRESETS = ("paper",)
QUALITIES = ("fast", "standard", "best")


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


def matched_error_scale(patch_size: int) -> float:
    """C by which ||noise|| <= C sigma sqrt(n) is as likely as for 11x11 patches and C = 1.04.

    The chi-square quantile of n degrees of freedom by Wilson and Hilferty: C^2 = (1 - 2/(9n) + z sqrt(2/(9n)))^3.
    """
    width = 2 / (9 * 11**2)
    z = (1.04 ** (2 / 3) - 1 + width) / math.sqrt(width)
    width = 2 / (9 * patch_size**2)
    return float((1 - width + z * math.sqrt(width)) ** 1.5)


@dataclass(frozen=True, kw_only=True)
class FastConfig:
    """Both passes with a ready transform, or with the DCT where that codes the picture as well."""

    method: str = "dsect"  # or dct
    patch_size: int = 11  # others than that of the ready transforms have the DCT
    stride: int = 2  # between rows of patches
    error_scale: float | None = None  # C; None: 1.04, or what matches it for other patch sizes
    seed: int = 0

    def __post_init__(self) -> None:
        _check_passes(self.patch_size, self.stride, self.error_scale, self.seed)
        _require(
            self.method in ("dct", "dsect"),
            f"method must be dct or dsect where nothing is learnt, not {self.method!r}.",
        )


@dataclass(frozen=True, kw_only=True)
class AdaptiveConfig:
    """How a transform is adapted to one noisy picture."""

    method: str = "dsect"
    patch_size: int = 11
    iterations: int = 18
    max_condition: float = 1.25  # rho
    density: float = 0.30  # share of the n^2 entries of T that may be nonzero
    train_patches: int = 36_000
    seed: int = 0

    def __post_init__(self) -> None:
        _check_passes(self.patch_size, 1, None, self.seed)
        LearnConfig(
            method=self.method, iterations=self.iterations, max_condition=self.max_condition, density=self.density
        )
        _require(self.train_patches >= 1, f"train_patches must be at least 1, not {self.train_patches}.")


@dataclass(frozen=True, kw_only=True)
class StandardConfig(AdaptiveConfig):
    """Both passes with a transform adapted to the picture."""

    stride: int = 1  # between rows of patches
    error_scale: float | None = None  # C; None: 1.04, or what matches it for other patch sizes

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_passes(self.patch_size, self.stride, self.error_scale, self.seed)


@dataclass(frozen=True, kw_only=True)
class BestConfig(AdaptiveConfig):
    """Groups of similar patches: a first stage with a transform adapted to the picture, then ridge passes."""

    patch_size: int = 8  # of the first stage


def _check_passes(patch_size: int, stride: int, error_scale: float | None, seed: int) -> None:
    """The checks that all settings share."""
    DenoiseConfig(
        patch_size=patch_size, stride=stride, error_scale=1.04 if error_scale is None else error_scale, seed=seed
    )


Settings = DenoiseConfig | FastConfig | StandardConfig | BestConfig

_NAMED: dict[str, type[Settings]] = {
    "paper": DenoiseConfig, "fast": FastConfig, "standard": StandardConfig, "best": BestConfig,
}  # fmt: skip


def named_config(name: str, **changes: Any) -> Settings:
    """The settings called `name` (a quality or a preset) with some of them changed."""
    _require(name in _NAMED, f"quality must be one of {', '.join(QUALITIES)}, or the preset paper, not {name!r}.")
    kind = _NAMED[name]
    for key in changes:
        if key not in _names_of(kind):
            owners = [other for other, its in _NAMED.items() if key in _names_of(its)]
            if not owners:
                raise TypeError(f"{key} is not a setting.")
            raise ValueError(f"{key} is a setting of {', '.join(owners)}, not of {name}.")
    return paper_config(**changes) if kind is DenoiseConfig else kind(**changes)


def paper_config(**changes: Any) -> DenoiseConfig:
    """The paper's protocol with some settings changed, be they of denoising or of learning."""
    own = {item.name for item in fields(DenoiseConfig)}
    config = DenoiseConfig(**{key: value for key, value in changes.items() if key in own})
    learning = {key: value for key, value in changes.items() if key not in own}
    return replace(config, learn=replace(config.learn, **learning))


def _names_of(kind: type[Settings]) -> set[str]:
    """The settings that a kind knows, those of its learning among them."""
    names = {item.name for item in fields(kind)}
    return names | {item.name for item in fields(LearnConfig)} if kind is DenoiseConfig else names
