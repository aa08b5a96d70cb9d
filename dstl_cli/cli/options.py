"""Options: those that several commands share, the checks that turn them into settings, and a help in words."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from dstl_cli.base.addresses import Address, place_of
from dstl_cli.base.checks import NAN_CHOICES, check_sigma, keeps_invalid
from dstl_cli.base.names import display_name
from dstl_cli.base.scratch import Memory
from dstl_cli.base.shards import Shard
from dstl_cli.cli.console import tell
from dstl_cli.denoising.qualities import DEFAULT_QUALITY, QUALITIES
from dstl_cli.errors import UsageProblem
from dstl_cli.learning.methods import METHODS
from dstl_cli.transforms.canonical import CANONICAL

if TYPE_CHECKING:
    from dstl_cli.denoising.survey import Request
    from dstl_cli.pixels.planes import Box
    from dstl_cli.run.noise import NoiseFile

Made = TypeVar("Made")
Item = TypeVar("Item")
EVERYDAY, FILES, LEARNING, EXPERTS, OUTPUT = "Everyday", "Folders and files", "Learning", "Experts", "What is said"
CLUSTER = "Many machines"
_ONE_SLASH = re.compile(r"^([a-z][a-z0-9+.-]+):/(?!/)")
KINDS = {"int": "N", "float": "X", "str": "TEXT", "path": "PATH"}


def choices(option: str) -> list[str]:
    """The names that an option takes, as they are registered now; none for other options."""
    names = {
        "quality": [entry.name for entry in QUALITIES if not entry.preset],
        "preset": [entry.name for entry in QUALITIES if entry.preset],
        "method": list(METHODS.names),
        "canonical": list(CANONICAL.names),
    }
    return names.get(option, [])


def option(panel: str, help: str, *names: str, shown: str | bool = True, **more: Any) -> Any:
    """An option of a panel; shown: its default in words where None stands for it."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=shown, **more)


def setting_option(name: str, help: str, *, panel: str = EXPERTS, shown: str = "", **more: Any) -> Any:
    """An option for a setting, its default in words, and the registered names as choices."""
    completion = {"autocompletion": lambda: choices(name)} if choices(name) else {}
    return option(panel, help, shown=shown or defaults(name) or True, **completion, **more)


def setting(name: str, kind: type[Any], help: str, **more: Any) -> Parameter:
    """The same as a parameter for `with_settings`, None where it is not given."""
    annotation = Annotated[kind | None, setting_option(name, help, **more)]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_settings(*added: Parameter) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options in the place of its parameter `settings`, which gets their values by name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**options: Any) -> None:
            command(settings={item.name: options.pop(item.name) for item in added}, **options)

        own = signature(command, eval_str=True).parameters.values()
        every = [part for item in own for part in (added if item.name == "settings" else [item])]
        run.__signature__ = Signature(every)  # type: ignore[attr-defined]
        return run

    return decorate


def defaults(name: str) -> str:
    """The defaults of a setting in the qualities that have it, in words: that of most first."""
    found: dict[str, list[str]] = {}
    for entry in QUALITIES:
        if name in entry.setting_names:
            made = entry.settings()
            value = getattr(made, name, getattr(getattr(made, "learn", None), name, None))
            if value is not None:
                found.setdefault(f"{value:g}" if isinstance(value, float) else str(value), []).append(entry.name)
    first, *others = sorted(found.items(), key=lambda item: -len(item[1])) or [("", [])]
    return ", ".join([first[0], *(f"{value} for {' and '.join(names)}" for value, names in others)])


def in_words(entries: Iterable[Any]) -> str:
    """What each entry of a registry is, in a line."""
    return "; ".join(f"{entry.name}: {entry.help}" for entry in entries) + "."


Json = Annotated[bool, option(OUTPUT, "Print one JSON document on stdout.", "--json")]
Quiet = Annotated[bool, option(OUTPUT, "Say nothing but errors.", "--quiet", "-q")]
Debug = Annotated[bool, option(OUTPUT, "Show the traceback of an error.", "--debug")]
TrustFiles = Annotated[
    bool,
    option(FILES, "Decode files in the program itself: without limits, and a crash ends it.", "--trust-files"),
]
Seed = Annotated[int, option(EXPERTS, "Seed of the random patches (and of added noise).", min=0)]
Jobs = Annotated[
    int | None, option(EXPERTS, "Threads; the result is the same for any number.", min=1, shown="all cores")
]
MaxMemory = Annotated[
    str | None, option(EXPERTS, "Memory for the work on a picture.", metavar="600M|2G", shown="half of the machine's")
]
Scratch = Annotated[
    Path | None, option(EXPERTS, "Folder for what does not fit into memory.", metavar="DIR", shown="TMPDIR")
]
Scheduler = Annotated[
    str | None,
    option(CLUSTER, "Let Dask workers do it, or N processes here (local).", metavar="ADDRESS|FILE|local[:N]"),
]
ShardOf = Annotated[
    str | None,
    option(CLUSTER, "Only part I of N; slurm: the part that SLURM's array job says.", "--shard", metavar="I/N|slurm"),
]
Force = Annotated[bool, option(FILES, "Overwrite existing outputs (never an input).", "--force", "-f")]
Plot = Annotated[Path | None, option(FILES, "Draw it as a PNG too.", metavar="FILE.png")]
Recursive = Annotated[bool, option(FILES, "Go into sub-folders.", "--recursive", "-r")]
Canonical = Annotated[str | None, setting_option("canonical", "The fixed factor of the transform.", panel=LEARNING)]


def parse_sigma(text: str) -> float | None:
    """A noise deviation, or None for `auto`."""
    if text.strip().lower() == "auto":
        return None
    try:
        return check_sigma(float(text))
    except ValueError:
        raise UsageProblem(f"--sigma takes a number of at least 0, or auto, not {text!r}.") from None


def parse_nan(text: str) -> bool:
    """Whether NaN and infinite pixels are kept."""
    if text not in NAN_CHOICES:
        raise UsageProblem(f"--nan takes {' or '.join(NAN_CHOICES)}, not {text!r}.")
    return keeps_invalid(text)


def chosen_memory(most: str | None, scratch: Path | None) -> Memory:
    """How much memory the work may take, given as 600M or 2G, and where the rest goes."""
    if scratch is not None and not scratch.is_dir():
        raise UsageProblem(f"--scratch takes a folder that exists, not {display_name(scratch)}.")
    scratch = scratch and Path(os.path.abspath(scratch))  # workers are somewhere else
    if most is None:
        return Memory(None, scratch)
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?", most.strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise UsageProblem(f"--max-memory takes an amount such as 600M or 2G, not {most!r}.")
    return Memory(int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")), scratch)


def check_local(option: str, *paths: Path | str | None) -> None:
    """Refuse addresses where only files of this machine are taken; as a Path they have one slash left of two."""
    for path in paths:
        if path is None or os.path.lexists(path):
            continue
        text = path if isinstance(path, str) else _ONE_SLASH.sub(r"\1://", path.as_posix())
        place = place_of(text)
        if isinstance(place, Address):
            raise UsageProblem(f"{option} takes files of this machine, not {place}; copy it first.")


def chosen_noise(sigma: str, noise: str) -> "float | NoiseFile | None":
    """The noise that is told: the deviation of white noise or a model from a file; None where it is to be found."""
    deviation = parse_sigma(sigma)
    if noise in ("auto", "white", "poisson", "shared"):
        if deviation is not None and noise != "auto":
            raise UsageProblem("--sigma X is white noise of that deviation; leave out --noise.")
        return deviation
    check_local("--noise", noise)
    path = Path(noise)
    if path.suffix.lower() != ".json":
        takes = "auto, white, poisson, shared or a FILE.json (a number goes to --sigma)"
        raise UsageProblem(f"--noise takes {takes}, not {noise!r}.")
    if deviation is not None:
        raise UsageProblem("--sigma and --noise both tell the noise; give one of them.")
    from dstl_cli.run.noise import NoiseFile, load_noise_file

    model, made_from = load_noise_file(path)
    return NoiseFile(display_name(path), model, made_from.get("units"))


def parse_crop(text: str | None) -> "Box | None":
    """A part of a picture from X,Y,W,H: left upper corner, width and height; None where none is given."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,9})\s*,\s*(\d{1,9})\s*,\s*(\d{1,9})\s*,\s*(\d{1,9})\s*", text)
    left, top, width, height = map(int, found.groups()) if found else (0, 0, 0, 0)
    if not width or not height:
        takes = "X,Y,W,H in pixels (left upper corner, width, height), such as 100,50,640,480"
        raise UsageProblem(f"--crop takes {takes}, not {text!r}.")
    from dstl_cli.pixels.planes import Box

    return Box(top, left, top + height, left + width)


def parse_shard(text: str | None) -> Shard | None:
    """A part of a run: I/N, or slurm, of which SLURM says the part in an array job."""
    if text is None:
        return None
    if text == "slurm":
        return _shard_of_array(os.environ)
    found = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text)
    number, count = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= count:
        raise UsageProblem(f"--shard takes I/N with I from 1 to N, such as 3/64, or slurm, not {text!r}.")
    return Shard(number, count)


def chosen_part(part: Shard | None, items: list[Item], *, quiet: bool = False) -> list[Item]:
    """The items of a part, or all; it is said where a part has none."""
    own = items if part is None else part.of(items)
    if items and not own and not quiet:
        pictures = "1 picture" if len(items) == 1 else f"{len(items)} pictures"
        tell(f"Part {part} is empty: of {pictures} there is none in it.", to_stderr=True)
    return own


def _shard_of_array(variables: Mapping[str, str]) -> Shard:
    """The part of a SLURM array job, whose numbers begin anywhere and may have a step."""
    names = [f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "COUNT", "STEP")]
    given = [variables.get(name, "") for name in names]
    if not all(text.isascii() and text.isdigit() for text in given[:3]):
        raise UsageProblem("--shard slurm needs an array job (sbatch --array=1-64); give I/N elsewhere.")
    task, first, count = map(int, given[:3])
    number, rest = divmod(task - first, int(given[3]) if given[3].isdigit() and int(given[3]) else 1)
    if rest or not 0 <= number < count:
        raise UsageProblem("--shard slurm needs an array without gaps, such as --array=1-64; give I/N for others.")
    return Shard(number + 1, count)


def parse_numbers(text: str, option: str) -> list[float]:
    """Comma-separated noise deviations."""
    numbers = [parse_sigma(part) for part in text.split(",") if part.strip()]
    if not numbers or None in numbers:
        raise UsageProblem(f"{option} takes numbers separated by commas, not {text!r}.")
    return [number for number in numbers if number is not None]


def parse_names(text: str, option: str, known: Sequence[str] = ()) -> list[str]:
    """Comma-separated names, each once; known: what they may be, if not anything."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    strange = [name for name in names if known and name not in known]
    if strange:
        raise UsageProblem(f"{option} knows {', '.join(known)}, not {strange[0]!r}.")
    if not names:
        raise UsageProblem(f"{option} needs at least one name.")
    return list(dict.fromkeys(names))


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse, before any work, files that cannot or must not be written; outputs: by the option that asks for them.

    What killed runs left beside them goes.
    """
    from dstl_cli.base.atomic import identities, remove_stale_temporaries

    written: dict[str, str] = {}
    sources = set().union(*map(identities, inputs))
    for option, path in outputs.items():
        if path is None:
            continue
        name = display_name(path)
        other = written.setdefault(os.path.normcase(os.path.realpath(path)), option)
        if other != option:
            raise UsageProblem(f"{other} and {option} would both write {name}; give two names.")
        if not sources.isdisjoint(identities(path)):
            raise UsageProblem(f"{name} is an input and is never overwritten; give another name to {option}.")
        if path.is_dir() or not path.parent.is_dir():
            raise UsageProblem(f"{option} takes a file name in a folder that exists, not {name}.")
        if path.is_file() and not force:
            raise UsageProblem(f"{name} exists; use --force to overwrite it.")
        remove_stale_temporaries(path.parent)


def check_plot(plot: Path | None, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse, before any work, a --plot that is no PNG or must not be written."""
    if plot is not None and plot.suffix.lower() != ".png":
        raise UsageProblem(f"--plot takes a name that ends in .png, not {display_name(plot)}.")
    check_outputs({"--plot": plot}, inputs, force=force)


def check_noise_output(option: str, path: Path | None) -> None:
    """Refuse a name for a noise model that --noise would not take."""
    if path is not None and path.suffix.lower() != ".json":
        raise UsageProblem(f"{option} takes a name that ends in .json, as --noise does, not {display_name(path)}.")


def chosen_quality(quality: str | None, preset: str | None) -> str:
    """The name of the settings: of a quality or of a preset."""
    if quality is not None and preset is not None:
        raise UsageProblem("--quality and --preset both name the settings; give one of them.")
    for option, name in (("quality", quality), ("preset", preset)):
        if name is not None and name not in choices(option):
            raise UsageProblem(f"--{option} must be one of {', '.join(choices(option))}, not {name!r}.")
    return preset or quality or DEFAULT_QUALITY


def build_request(
    quality: str,
    settings: Mapping[str, object],
    *,
    transform: Path | None = None,
    adapt: bool = False,
    jobs: int | None = None,
    memory: Memory | None = None,
) -> "Request":
    """The request that the options make; what has no effect or is out of range is refused before a file is read."""
    check_local("--transform", transform)
    entry, kept = QUALITIES[quality], transform is not None
    made = checked(lambda **given: entry.make(given, transform=kept, adapt=adapt), settings, ("adapt",))
    from dstl_cli.denoising.plan import TransformSource
    from dstl_cli.denoising.survey import Request
    from dstl_cli.transforms.files import load_transform
    from dstl_cli.transforms.ready import ready_transform

    loaded = load_transform(transform).transform if transform is not None else None
    return Request(entry, made, TransformSource(loaded, adapt, ready_transform), jobs, memory or Memory())


def checked(make: Callable[..., Made], settings: Mapping[str, object], others: tuple[str, ...] = ()) -> Made:
    """What `make` gives for the options that were given; a value out of range is a wrong usage.

    Names of settings in its sentence become those of options; others: further ones.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    try:
        return make(**given)
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        option = f"--{name.replace('_', '-')}" if name in (*settings, *others) else name
        raise UsageProblem(f"{option} {rest}") from None


class _HelpInWords:
    """What names the kinds of values of all parameters before the help is printed."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        for param in self.get_params(ctx):  # type: ignore[attr-defined]
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None
                param._usage_display_name = lambda name=param.display_name_raw: name
            elif param.is_flag:
                param.metavar = ""
            elif param.metavar is None:
                kind = param.display_type(ctx).strip("<>").split()[0]
                param.metavar = "|".join(choices(param.name)) or KINDS.get(kind, kind)
            if param.name == "help":
                param.rich_help_panel = OUTPUT
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_HelpInWords, TyperCommand):
    """A command with such a help."""


class Group(_HelpInWords, TyperGroup):
    """Commands with such a help."""
