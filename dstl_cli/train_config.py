"""Settings of `dstl train`, checked once. Imports nothing heavy: the command line reads it."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from dstl_cli.config import DenoiseConfig, LearnConfig

BUDGETED = ("conditioned", "sparse-bresler", "dsect")  # methods that take a density
BOUNDED = ("conditioned", "dsect")  # methods that take a bound on the condition number
SMALLEST_BATCH = 5000  # patches; fewer than 40 for each pixel of a patch would teach more noise than structure


def _default_learning() -> LearnConfig:
    return LearnConfig(method="conditioned", iterations=200, max_condition=1.25, density=0.3)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a transform is learnt from a collection of pictures.

    Patches get `sparsity_level` coefficients each; without it, as many as the coder takes at noise of deviation
    `sigma`, and patches that vanish in such noise are not learnt from.
    """

    patch_size: int = 11
    sparsity_level: int | None = None
    sigma: float = 20.0
    train_patches: int = 100_000  # sampled from all pictures together
    batches: int | None = None  # parts of the sample, one of which an iteration codes; None: by the sample's size
    patience: int = 50  # iterations without a better cost that end the training
    seed: int = 0
    learn: LearnConfig = field(default_factory=_default_learning)

    def __post_init__(self) -> None:
        coding = DenoiseConfig(patch_size=self.patch_size, train_patches=self.train_patches, seed=self.seed)
        if coding.patch_size == 1:
            raise ValueError("patch_size must be at least 2: a single pixel is nothing but its mean.")
        most = coding.patch_size**2 - 1
        level = self.sparsity_level
        if level is not None and not 1 <= level <= most:
            raise ValueError(
                f"sparsity_level must be between 1 and {most}, as many as a patch without its mean has, not {level}."
            )
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma must be positive and finite, not {self.sigma}.")
        if self.batches is not None and not 1 <= self.batches <= self.train_patches:
            raise ValueError(
                f"batches must be between 1 and the number of patches {self.train_patches}, not {self.batches}."
            )
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1, not {self.patience}.")

    @property
    def held_out_patches(self) -> int:
        """The most patches that the held-out cost is measured on."""
        return max(1, self.train_patches // 10)

    @property
    def coding(self) -> DenoiseConfig:
        """The coder's settings, whose C and bound on the coefficients set the patches' levels."""
        return DenoiseConfig(patch_size=self.patch_size)

    def batches_for(self, count: int) -> int:
        """In how many batches a sample of `count` patches is cut."""
        if self.batches is not None:
            return min(self.batches, count)
        return max(1, count // max(SMALLEST_BATCH, 40 * self.patch_size**2))

    @classmethod
    def of(cls, **changes: Any) -> Self:
        """The defaults with some of them changed, be they of training or of learning.

        A bound that the method does not know is refused, and left out where only the defaults have it.
        """
        own = {item.name for item in fields(cls)}
        learning = {key: value for key, value in changes.items() if key not in own}
        method = learning.get("method", _default_learning().method)
        for key, methods in (("density", BUDGETED), ("max_condition", BOUNDED)):
            if method not in methods:
                if key in learning:
                    raise ValueError(f"{key} is known to the methods {', '.join(methods)}, not to {method!r}.")
                learning[key] = getattr(LearnConfig(), key)
        learn = replace(_default_learning(), **learning)
        return cls(learn=learn, **{key: value for key, value in changes.items() if key in own})
