"""Settings of the qualities, checked once: the only place with their defaults. Imports nothing heavy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from dstl_cli.base.checks import check_patching, check_sigma, require
from dstl_cli.learning.settings import LearnSettings, PictureLearning
from dstl_cli.transforms.canonical import CANONICAL


class Settings(Protocol):
    """What the settings of every quality have: a frozen dataclass with these fields."""

    @property
    def method(self) -> str: ...

    @property
    def canonical(self) -> str: ...

    @property
    def patch_size(self) -> int: ...

    def resolved(self, sigmas: Sequence[float], patch_size: int, coarse: bool = False) -> Self:
        """The same with every choice made that the noise of the channels and the patch size decide.

        coarse: much of the noise is beyond the reach of a patch.
        """


@dataclass(frozen=True, kw_only=True)
class PatchCoding:
    """What the qualities share that code every patch by itself."""

    canonical: str = "dct"  # Phi
    patch_size: int = 11
    stride: int = 1  # between patches; in fast and standard there is one in stride**2 pixels
    error_scale: float | None = None  # C; None: 1.04, or what matches it for other patch sizes
    seed: int = 0

    def __post_init__(self) -> None:
        check_patching(self.patch_size, self.stride)
        CANONICAL[self.canonical].check_size(self.patch_size)
        c = 1.04 if self.error_scale is None else self.error_scale
        require(0 < c < math.inf, f"error_scale must be positive and finite, not {c}.")
        require(self.seed >= 0, f"seed must be at least 0, not {self.seed}.")

    def resolved(self, sigmas: Sequence[float], patch_size: int, coarse: bool = False) -> Self:
        """With the error scale of the patch size."""
        return replace(self, error_scale=self.error_scale or matched_error_scale(patch_size))


@dataclass(frozen=True, kw_only=True)
class PaperSettings(PatchCoding):
    """The paper's protocol, with C = 1.04 as its text says."""

    error_scale: float = 1.04
    rounds: int | None = None  # learning rounds; None: 20, or 5 above sigma 50
    train_patches: int = 500  # patches drawn for a round
    first_level: float = 0.1  # share of n: sparsity in the first round, and a sixth of the most a patch may take
    learn: LearnSettings = field(default_factory=LearnSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.rounds is None or self.rounds >= 0, f"rounds must be at least 0, not {self.rounds}.")
        require(self.train_patches >= 1, f"train_patches must be at least 1, not {self.train_patches}.")
        require(0 < self.first_level <= 1, f"first_level must be above 0 and at most 1, not {self.first_level}.")

    @property
    def method(self) -> str:
        """How the transform is learnt."""
        return self.learn.method

    def resolved(self, sigmas: Sequence[float], patch_size: int, coarse: bool = False) -> Self:
        """With the number of rounds."""
        return replace(self, rounds=(20 if sigmas[0] <= 50 else 5) if self.rounds is None else self.rounds)


@dataclass(frozen=True, kw_only=True)
class FastSettings(PatchCoding):
    """Both passes with a ready transform, or with the DCT where that codes the picture as well."""

    method: str = "procrustes"  # by which the ready transforms were learnt; or dct
    stride: int = 3


@dataclass(frozen=True, kw_only=True)
class StandardSettings(PatchCoding, PictureLearning):
    """Both passes with a transform learnt on the picture."""

    stride: int = 2

    def __post_init__(self) -> None:
        PatchCoding.__post_init__(self)
        PictureLearning.__post_init__(self)


@dataclass(frozen=True)
class Removal:
    """How much noise one pass over the groups removes: by what the noise of patches and of group means is taken for."""

    penalty: float  # times the power of a patch's noise
    mean_penalty: float  # times that of a group mean's; 0: the mean stays as it is
    noise_left: float  # share of the noise that stays for the next pass


@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """How groups of similar patches are found and denoised.

    The first stage thresholds groups in the domain of the learnt transform, whose patch size it takes; the passes
    after it combine the patches of each group, and take away the noise little by little.
    """

    window_radius: int = 30  # similar patches are at most this far away, in rows and in columns
    first_radius: int = 19  # the same in the first stage
    near_radius: int = 15  # up to this far away all places are looked at
    far_step: int = 3  # further away every such row and column
    first_stride: int = 4  # pixels from one reference patch to the next in the first stage
    first_group: int = 16  # patches in a group of the first stage, at most; a power of two is used
    threshold: float = 2.6  # in deviations of a coefficient's noise
    chroma_threshold: float = 4.0  # the same for all channels but the first: they are smoother
    patch_size: int = 6  # of the passes, as all that follow
    stride: int = 5  # at most the size of the patches
    group: int = 64
    passes: int = 6
    matchings: int = 3  # the first passes find groups, on a shifted grid each; the others use the last two in turn
    grid_shift: int = 2
    size_steps: tuple[int, ...] = (1, -1, 0)  # by what the patches of each matching are larger than patch_size
    noise_kept: float = 0.75  # share of the noise that would be left by a pass before the first; it falls evenly to 0
    guide_noise: float = 0.2  # share of the noise put back into the first result to find the groups of the first pass
    pilot_noise: float = 0.3  # by what share the first pass takes the noise's power for larger; it falls evenly to 0
    mean_penalty: float = 0.5  # share of the noise in a group's mean patch that counts in the last `mean_passes`
    mean_passes: int = 2
    overshoot: float = 0.15  # the result is moved on by this share of its way from the first stage's
    half: "GroupSettings | None" = None  # of the picture of half the size, which comes first in white noise

    def __post_init__(self) -> None:
        least = {"first_stride": 1, "first_group": 2, "group": 1, "passes": 0, "matchings": 1, "grid_shift": 0}
        least |= {"mean_passes": 0, "near_radius": 0, "far_step": 1}
        for name, value in least.items():
            require(getattr(self, name) >= value, f"{name} must be at least {value}, not {getattr(self, name)}.")
        for name in ("threshold", "chroma_threshold", "mean_penalty"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name} must be finite and at least 0, not {value}.")
        for name in ("window_radius", "first_radius"):
            value = getattr(self, name)
            require(1 <= value <= 64, f"{name} must be between 1 and 64, not {value}.")
        check_patching(self.patch_size, self.stride)
        require(0 <= self.noise_kept < 1, f"noise_kept must be at least 0 and below 1, not {self.noise_kept}.")
        for name in ("guide_noise", "pilot_noise", "overshoot"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must be between 0 and 1, not {value}.")
        require(
            len(self.size_steps) > 0 and self.patch_size + min(self.size_steps) >= 1,
            f"size_steps must be one or more that leave patches of a pixel or more, not {self.size_steps}.",
        )

    def noise_after(self, number: int) -> float:
        """Share of the noise that pass `number` (from 0) leaves for the next ones; none after the last."""
        return self.noise_kept * (1 - (number + 1) / self.passes)

    def removal(self, number: int) -> Removal:
        """What pass `number` (from 0) removes; early pilots have lost texture that is still in the mean of a group."""
        late = number >= self.passes - self.mean_passes
        return Removal(self.penalty_of(number), self.mean_penalty if late else 0.0, self.noise_after(number))

    def penalty_of(self, number: int) -> float:
        """By what pass `number` (from 0) takes the noise's power for larger: early pilots have noise of their own."""
        return 1 + self.pilot_noise * (1 - number / self.passes)

    def matching_of(self, number: int) -> int:
        """Whose groups pass `number` (both from 0) uses: its own, later those of the last two matchings in turn."""
        beyond = number - self.matchings
        return number if beyond < 0 else max(0, self.matchings - 2 + beyond % 2)

    def patch_size_of(self, matching: int) -> int:
        """Side of the patches of the given matching (from 0) of the passes."""
        return self.patch_size + self.size_steps[min(matching, len(self.size_steps) - 1)]

    def stride_of(self, matching: int) -> int:
        """Pixels from one reference patch to the next in the given matching (from 0) of the passes."""
        return min(self.stride, self.patch_size_of(matching))

    def shift_of(self, matching: int) -> int:
        """Where the grid of reference patches begins in the given matching (from 0) of the passes."""
        return self.grid_shift * matching % self.stride_of(matching)

    @classmethod
    def for_sigma(
        cls, sigma: float, channels: int = 1, *, coarse: bool = False, halvings: int = 2, **changes: Any
    ) -> Self:
        """The settings for noise of this deviation on the 0-255 scale, with some of them changed.

        coarse: most of it is left to smaller pictures. halvings: how many of those there are; each has half the noise
        of the one before.
        """
        check_sigma(sigma)
        chosen = next(settings for highest, settings in _BY_SIGMA if sigma <= highest)
        if channels > 1:
            chosen = chosen | _COLOUR | {"guide_noise": COLOUR_GUIDE * chosen.get("guide_noise", cls.guide_noise)}
            if sigma <= LITTLE_NOISE:
                chosen |= {"passes": chosen.get("passes", cls.passes) - 1, "group": 48}
        elif not coarse:
            chosen = chosen | _GREY
        if coarse:
            chosen = chosen | _COARSE
        if halvings:
            half = cls.for_sigma(sigma / 2, channels, coarse=coarse, halvings=halvings - 1, **changes)
            chosen = chosen | {"half": half}
        return cls(**(chosen | changes))


LITTLE_NOISE = 12  # up to this deviation colour has one pass less, and smaller groups
COLOUR_GUIDE = 0.25  # of the noise put back to find groups: distances over three channels hide less of it

_COLOUR = {  # colour gains less by more than it costs
    "stride": 6,
    "window_radius": GroupSettings.window_radius,
    "near_radius": 9,
    "overshoot": 0.1,
}
_GREY = {"window_radius": 40, "matchings": 4, "size_steps": (1, -1, 0, 0)}  # which colour gains nothing by
_COARSE = {"first_stride": 6, "passes": 3, "matchings": 2, "group": 48, "overshoot": 0.0}  # more gains next to nothing
_MODERATE = {"window_radius": 28, "near_radius": 19, "mean_passes": 3, "mean_penalty": 0.3}  # up to sigma 35
_BY_SIGMA: tuple[tuple[float, dict[str, Any]], ...] = (  # up to a deviation: what differs from the defaults
    (7, {"passes": 5, "guide_noise": 1.0, "noise_kept": 0.8, **_MODERATE}),
    (12, {"guide_noise": 1.0, "noise_kept": 0.8, **_MODERATE}),
    (18, {"guide_noise": 0.5, "noise_kept": 0.8, **_MODERATE}),
    (35, _MODERATE),
    (
        70,
        {"patch_size": 7, "stride": 6, "guide_noise": 0.1, "noise_kept": 0.7, "pilot_noise": 0.15, "overshoot": 0.1},
    ),
    (
        math.inf,
        {"patch_size": 8, "stride": 6, "group": 96, "passes": 5, "guide_noise": 0.05, "noise_kept": 0.65}
        | {"pilot_noise": 0.0, "mean_penalty": 0.0, "overshoot": 0.1},
    ),
)


@dataclass(frozen=True, kw_only=True)
class BestSettings(PictureLearning):
    """Groups of similar patches: a first stage with the canonical transform, then ridge passes."""

    method: str = "dct"  # groups hold what a transform could learn: 0.003 dB for a tenth of the time (docs/results.md)
    patch_size: int = 8  # of the first stage
    train_patches: int = 12_000  # groups hold most of what more of them teach
    groups: GroupSettings | None = None  # None: by the noise

    def __post_init__(self) -> None:
        super().__post_init__()
        step = (self.groups or GroupSettings()).first_stride
        require(
            self.patch_size >= step,
            f"patch_size must be at least {step}, the step from group to group, not {self.patch_size}.",
        )

    def resolved(self, sigmas: Sequence[float], patch_size: int, coarse: bool = False) -> Self:
        """With the groups for this noise."""
        return replace(self, groups=self.groups or GroupSettings.for_sigma(max(sigmas), len(sigmas), coarse=coarse))


def matched_error_scale(patch_size: int) -> float:
    """C by which ||noise|| <= C sigma sqrt(n) is as likely as for 11x11 patches and C = 1.04.

    The chi-square quantile of n degrees of freedom by Wilson and Hilferty: C^2 = (1 - 2/(9n) + z sqrt(2/(9n)))^3.
    """
    width = 2 / (9 * 11**2)
    z = (1.04 ** (2 / 3) - 1 + width) / math.sqrt(width)
    width = 2 / (9 * patch_size**2)
    return float((1 - width + z * math.sqrt(width)) ** 1.5)
