"""The qualities by name: their settings, which of these count with which method, and the engine behind each.

To add one: a settings class (see `settings.Settings`), an engine (see `plan.Engine`), and an entry in `QUALITIES`.
Everything the command line knows of qualities comes from here. Imports nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dstl_cli.base.registry import Registry
from dstl_cli.denoising.settings import BestSettings, FastSettings, PaperSettings, Settings, StandardSettings
from dstl_cli.learning.methods import METHODS, PAPER_METHODS
from dstl_cli.learning.settings import LearnSettings, check_used, used_settings, with_method_defaults

OF_THE_TRANSFORM = frozenset({"patch_size", "canonical"})  # what a given transform decides
FROM_NOTHING = frozenset({"homotopy_steps"})  # what counts only where learning does not start from a transform


@dataclass(frozen=True)
class Quality:
    """A registered quality.

    engine: see `plan.Engine`. preset: chosen with --preset instead of --quality.
    methods: those it accepts; None: all. coding: the settings that count with every method.
    learning: the settings that count where something is learnt; of those the method has of its own, the ones it uses.
    by_method: settings that count with one method only. warm_up: settings that make a first run short.
    """

    name: str
    help: str
    settings: type[Any]
    engine: object  # "module:attribute", or the engine itself
    preset: bool = False
    methods: tuple[str, ...] | None = None
    coding: frozenset[str] = OF_THE_TRANSFORM
    learning: frozenset[str] = frozenset()
    by_method: Mapping[str, frozenset[str]] = field(default_factory=dict)
    warm_up: Mapping[str, Any] = field(default_factory=dict)

    @property
    def default_method(self) -> str:
        """The method where none is given."""
        made: Settings = self.settings()
        return made.method

    @property
    def setting_names(self) -> frozenset[str]:
        """Everything that can be set."""
        return frozenset({"method", "seed"}).union(self.coding, self.learning, *self.by_method.values())

    def make(self, given: Mapping[str, Any], *, transform: bool = False, adapt: bool = False) -> Any:
        """The settings with those given changed; one without effect is refused with a sentence.

        transform: one is given, and used as it is, or with `adapt` as the start of learning.
        """
        method = METHODS[str(given.get("method", self.default_method))]
        for key in given:
            refusal = self._refusal(key, method.name, transform=transform, adapt=adapt)
            if refusal is not None:
                raise ValueError(refusal)
        if self.methods is not None and method.name not in self.methods:
            raise ValueError(f"method must be one of {', '.join(self.methods)} for {self.name}, not {method.name!r}.")
        if adapt and not transform:
            raise ValueError("adapt starts learning from a given transform; give one, or leave it out.")
        if adapt and not (self.learning and method.learns):
            what = f"method {method.name}" if self.learning else self.name
            raise ValueError(f"adapt learns and {what} does not; leave one of them out.")
        check_used([key for key in given if key in self.learning - self._always(method.name)], method.name)
        return _built(self.settings, given)

    def facts(self, settings: Any) -> dict[str, Any]:
        """The settings that count, by name; nested ones are tables."""
        everything = asdict(settings)
        learn = everything.get("learn")
        present = [key for key, value in (everything | (learn or {})).items() if value is not None]
        unused = self.learning - used_settings(settings.method, present) - self._always(settings.method)
        if learn is not None:
            everything["learn"] = {key: value for key, value in learn.items() if key not in unused}
        return {key: value for key, value in everything.items() if key not in unused}

    def _always(self, method: str) -> frozenset[str]:
        """The settings that count with a method whether or not something is learnt."""
        return self.coding.union({"method", "seed"}, self.by_method.get(method, ()))

    def _refusal(self, key: str, method: str, *, transform: bool, adapt: bool) -> str | None:
        """Why a setting has no effect with a method and a transform that is given, in a sentence."""
        if key not in self.setting_names:
            owners = [other.name for other in QUALITIES if key in other.setting_names]
            if not owners:
                raise TypeError(f"{key} is not a setting.")
            return f"{key} is a setting of {', '.join(owners)}, not of {self.name}."
        if transform and key in OF_THE_TRANSFORM:
            return f"{key} is that of the given transform; leave it out."
        if transform and key in FROM_NOTHING:
            return f"{key} has no effect where learning starts from a transform; leave it out."
        if transform and not adapt and (key == "method" or key in self.learning - self.coding):
            return f"{key} has no effect on a transform that is used as it is; leave it out, or adapt."
        owners = [name for name, keys in self.by_method.items() if key in keys]
        if owners and key not in self._always(method):
            return f"{key} can be changed with method {', '.join(owners)} only in {self.name}."
        return None


def _built(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """Settings of a kind; those of learning go into its `learn` where it has one."""
    own = {item.name for item in fields(kind)}
    if "learn" not in own:
        return kind(**with_method_defaults(kind, given))
    learn = LearnSettings(**{key: value for key, value in given.items() if key not in own})
    return kind(**{key: value for key, value in given.items() if key in own}, learn=learn)


_LEARNT_ON_PICTURE = frozenset({"iterations", "max_condition", "density", "train_patches"})
_PASSES = frozenset({"stride", "error_scale"})
_HERE = "dstl_cli.denoising"

QUALITIES: Registry[Quality] = Registry(
    "quality",
    Quality(
        "fast",
        "a ready transform, nothing learnt",
        FastSettings,
        f"{_HERE}.sliding:FAST",
        methods=("procrustes", "dct"),
        coding=_PASSES,
        by_method={"dct": OF_THE_TRANSFORM},
    ),
    Quality(
        "standard",
        "a transform learnt on the picture",
        StandardSettings,
        f"{_HERE}.sliding:STANDARD",
        coding=OF_THE_TRANSFORM | _PASSES,
        learning=_LEARNT_ON_PICTURE,
    ),
    Quality(
        "best",
        "groups of similar patches, slowest",
        BestSettings,
        f"{_HERE}.grouped:BEST",
        learning=_LEARNT_ON_PICTURE,
    ),
    Quality(
        "paper",
        "the paper's protocol",
        PaperSettings,
        f"{_HERE}.paper:PAPER",
        preset=True,
        methods=PAPER_METHODS,
        warm_up={"rounds": 1},
        coding=OF_THE_TRANSFORM | _PASSES | {"first_level"},
        learning=frozenset({"rounds", "train_patches"}).union(item.name for item in fields(LearnSettings)) - {"method"},
    ),
)
DEFAULT_QUALITY = "standard"
