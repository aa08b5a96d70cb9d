"""Settings of learning from collections (`dstl train`), checked once. Imports nothing heavy."""

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from dstl_cli.base.checks import check_patch_size, require
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import LearnSettings, check_used, used_settings
from dstl_cli.transforms.canonical import CANONICAL

OF_EVERY_TRANSFORM = ("canonical", "patch_size", "seed")  # the settings that are not of learning
ERROR_SCALE = 1.04  # C of the coder that sets the levels of the patches
SMALLEST_BATCH = 5000  # patches; fewer than 40 for each pixel of a patch would teach more noise than structure


def _default_learning() -> LearnSettings:
    return LearnSettings(
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
    train_patches: int = 100_000  # sampled from all pictures together
    batches: int | None = None  # parts of the sample, one of which an iteration codes; None: by the sample's size
    patience: int = 50  # iterations without a better cost that end the training
    seed: int = 0
    learn: LearnSettings = field(default_factory=_default_learning)

    def __post_init__(self) -> None:
        require(self.patch_size != 1, "patch_size must be at least 2: a single pixel is nothing but its mean.")
        check_patch_size(self.patch_size)
        CANONICAL[self.canonical].check_size(self.patch_size)
        require(self.train_patches >= 1, f"train_patches must be at least 1, not {self.train_patches}.")
        require(self.seed >= 0, f"seed must be at least 0, not {self.seed}.")
        most, level, batches = self.patch_size**2 - 1, self.sparsity_level, self.batches
        require(
            level is None or 1 <= level <= most,
            f"sparsity_level must be between 1 and {most}, as many as a patch without its mean has, not {level}.",
        )
        require(0 < self.sigma < math.inf, f"sigma must be positive and finite, not {self.sigma}.")
        require(
            batches is None or 1 <= batches <= self.train_patches,
            f"batches must be between 1 and the number of patches {self.train_patches}, not {batches}.",
        )
        require(self.patience >= 1, f"patience must be at least 1, not {self.patience}.")

    @property
    def held_out_patches(self) -> int:
        """The most patches that the held-out cost is measured on."""
        return max(1, self.train_patches // 10)

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
        defaults = _default_learning()
        method = METHODS[learning.get("method", defaults.method)]
        check_used([key for key in changes if key != "method" and key not in OF_EVERY_TRANSFORM], method.name)
        if method.penalises or "density" not in method.uses:
            learning.setdefault("density", None)
        if "max_condition" not in method.uses:
            learning.setdefault("max_condition", LearnSettings().max_condition)
        return cls(learn=replace(defaults, **learning), **{key: changes[key] for key in changes if key in own})
