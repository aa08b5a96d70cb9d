"""Settings of `--quality best`, checked once: the only place with these defaults. Imports nothing heavy."""

import math
from dataclasses import dataclass
from typing import Any, Self

from dstl_cli.config import check_sigma


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """How groups of similar patches are found and denoised.

    The first stage thresholds groups in the domain of the learnt transform, whose patch size it takes; the passes
    after it combine the patches of each group, and take away the noise little by little.
    """

    window_radius: int = 19  # similar patches are at most this far away, in rows and in columns
    first_stride: int = 4  # pixels from one reference patch to the next in the first stage
    first_group: int = 16  # patches in a group of the first stage, at most; a power of two is used
    threshold: float = 2.6  # in deviations of a coefficient's noise
    chroma_threshold: float = 3.4  # the same for all channels but the first: they are smoother
    patch_size: int = 6  # of the passes, as all that follow
    stride: int = 6
    group: int = 64
    passes: int = 6
    matchings: int = 3  # the first passes find groups, on a shifted grid each; the others use those of the last one
    grid_shift: int = 2
    noise_kept: float = 0.7  # share of the noise that would be left by a pass before the first; it falls evenly to 0
    guide_noise: float = 0.2  # share of the noise put back into the first result to find the groups of the first pass

    def __post_init__(self) -> None:
        radius, side = self.window_radius, self.patch_size
        _require(1 <= radius <= 64, f"window_radius must be between 1 and 64, not {radius}.")
        _require(self.first_stride >= 1, f"first_stride must be at least 1, not {self.first_stride}.")
        _require(self.first_group >= 2, f"first_group must be at least 2, not {self.first_group}.")
        for name in ("threshold", "chroma_threshold"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, f"{name} must be finite and at least 0, not {value}.")
        _require(1 <= side <= 32, f"patch_size must be between 1 and 32, not {side}.")
        _require(1 <= self.stride <= side, f"stride must be between 1 and the patch size {side}, not {self.stride}.")
        _require(self.group >= 1, f"group must be at least 1, not {self.group}.")
        _require(self.passes >= 0, f"passes must be at least 0, not {self.passes}.")
        _require(self.matchings >= 1, f"matchings must be at least 1, not {self.matchings}.")
        _require(self.grid_shift >= 0, f"grid_shift must be at least 0, not {self.grid_shift}.")
        _require(0 <= self.noise_kept < 1, f"noise_kept must be at least 0 and below 1, not {self.noise_kept}.")
        _require(0 <= self.guide_noise <= 1, f"guide_noise must be between 0 and 1, not {self.guide_noise}.")

    def noise_after(self, number: int) -> float:
        """Share of the noise that pass `number` (from 0) leaves for the next ones; none after the last."""
        return self.noise_kept * (1 - (number + 1) / self.passes)

    def shift_of(self, matching: int) -> int:
        """Where the grid of reference patches begins in the given matching (from 0) of the passes."""
        return self.grid_shift * matching % self.stride

    @classmethod
    def for_sigma(cls, sigma: float, **changes: Any) -> Self:
        """The settings for noise of this deviation on the 0-255 scale, with some of them changed."""
        check_sigma(sigma)
        chosen: dict[str, Any] = {}
        if sigma <= 7:
            chosen = {"passes": 5, "guide_noise": 1.0}
        elif sigma <= 12:
            chosen = {"guide_noise": 1.0}
        elif sigma <= 18:
            chosen = {"guide_noise": 0.5}
        elif sigma > 70:
            chosen = {
                "patch_size": 8, "stride": 7, "group": 96, "passes": 5, "guide_noise": 0.05, "noise_kept": 0.65
            }  # fmt: skip
        elif sigma > 35:
            chosen = {"patch_size": 7, "guide_noise": 0.1}
        return cls(**(chosen | changes))
