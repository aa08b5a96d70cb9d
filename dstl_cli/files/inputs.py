"""Which pictures a command works on and where each result goes, settled before any work."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dstl_cli.errors import FileProblem, UsageProblem
from dstl_cli.files.atomic import remove_stale_temporaries
from dstl_cli.files.images import SUPPORTED_SUFFIXES, is_picture_path
from dstl_cli.files.names import display_name

STANDARD_STREAM = "-"


@dataclass(frozen=True)
class Input:
    """One picture to read; `relative` is its place under the folder it was found in."""

    path: Path | None  # None: standard input
    relative: Path

    @property
    def name(self) -> str:
        """How messages and reports call it."""
        return "standard input" if self.path is None else display_name(self.path)


@dataclass(frozen=True)
class Job:
    """One picture, where its result goes (None: standard output), and the extra pictures asked for."""

    source: Input
    output: Path | None
    residual: Path | None = None
    compare: Path | None = None

    @property
    def extras(self) -> tuple[Path, ...]:
        """The files written beside the result."""
        return tuple(path for path in (self.residual, self.compare) if path is not None)

    @property
    def targets(self) -> tuple[Path, ...]:
        """Every file this job writes."""
        return self.extras if self.output is None else (self.output, *self.extras)

    @property
    def output_name(self) -> str:
        """How messages and reports call the output."""
        return STANDARD_STREAM if self.output is None else display_name(self.output)


@dataclass(frozen=True)
class Found:
    """The inputs in order, how many other files the folders hold, and what could not be looked at."""

    inputs: tuple[Input, ...]
    skipped: int
    problems: tuple[tuple[str, str], ...]  # (name, sentence)
    several: bool  # a folder, a glob or more than one name was given


def find_inputs(arguments: Sequence[str], *, recursive: bool, made_suffix: str, results: Sequence[Path] = ()) -> Found:
    """Expand files, folders, unexpanded globs and `-`.

    Our own results are not taken from folders: files whose stem ends in `made_suffix`, and what lies in `results`.
    """
    if not all(arguments):
        raise UsageProblem("An input has an empty name; give files or folders, or . for the current folder.")
    own_folders = [Path(os.path.realpath(folder)) for folder in results if os.path.isdir(folder)]
    inputs: list[Input] = []
    problems: list[tuple[str, str]] = []
    skipped = 0
    several = len(arguments) > 1
    for argument in arguments:
        path = Path(argument)
        if argument == STANDARD_STREAM:
            inputs.append(Input(None, Path("stdin")))
        elif os.path.isdir(path):
            several = True
            for found in _walk(path, recursive, problems):
                if is_picture_path(found) and not _is_own(found, path, made_suffix, own_folders):
                    inputs.append(Input(found, found.relative_to(path)))
                else:
                    skipped += 1
        elif not os.path.lexists(path) and glob.has_magic(argument):
            matches = sorted(glob.glob(argument, recursive=recursive))
            several = True
            if not matches:
                problems.append((argument, f"No file matches {argument}; check the pattern."))
            inputs.extend(Input(Path(match), Path(Path(match).name)) for match in matches if os.path.isfile(match))
        else:
            inputs.append(Input(path, Path(path.name)))
    return Found(_without_repeats(inputs), skipped, tuple(problems), several)


def _is_own(found: Path, top: Path, made_suffix: str, own_folders: Sequence[Path]) -> bool:
    """Whether a file below the folder `top` is a result of ours; an output folder that holds `top` does not count."""
    here, above = Path(os.path.realpath(found.parent)), Path(os.path.realpath(top))
    inside = [folder for folder in own_folders if folder != above and above in folder.parents]
    return found.stem.endswith(made_suffix) or any(folder == here or folder in here.parents for folder in inside)


def _without_repeats(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """The inputs with those named twice taken once."""
    return tuple({item.path if item.path is None else os.path.abspath(item.path): item for item in inputs}.values())


def _walk(folder: Path, recursive: bool, problems: list[tuple[str, str]]) -> Iterator[Path]:
    """Files below a folder in a fixed order; unreadable folders are named, links to folders not followed."""

    def note(error: OSError) -> None:
        name = display_name(error.filename or folder)
        problems.append((name, f"The folder {name} cannot be read ({error.strerror}); check its permissions."))

    for here, folders, names in os.walk(folder, onerror=note):
        folders.sort()
        if not recursive:
            folders.clear()
        yield from (Path(here) / name for name in sorted(names) if not name.startswith("."))


def plan_jobs(
    found: Found,
    output: str | None,
    *,
    suffix: str,
    residual: Path | None = None,
    compare: Path | None = None,
    others: Sequence[Path] = (),
) -> list[Job]:
    """Where each input's results go; refuses what would overwrite an input or write one file twice.

    others: further files that the run writes.
    """
    if output == STANDARD_STREAM and len(found.inputs) > 1:
        raise UsageProblem("Only one picture can go to standard output; give a folder with --output.")
    into_folder = output is not None and output != STANDARD_STREAM and _is_folder(output, found.several)
    jobs = [
        Job(
            item,
            _output_of(item, output, into_folder, suffix),
            _extra_of(item, residual, found.several, "residual"),
            _extra_of(item, compare, found.several, "compare"),
        )
        for item in found.inputs
    ]
    _check_collisions(jobs, others)
    return jobs


def _extra_of(item: Input, target: Path | None, several: bool, kind: str) -> Path | None:
    """The extra picture of an input: the given file, or one in the given folder."""
    if target is None or not (several or os.path.isdir(target)):
        return target
    return target / item.relative.with_name(f"{item.relative.stem}_{kind}{item.relative.suffix}")


def _is_folder(output: str, several: bool) -> bool:
    """Whether an output argument means a folder: it is one, ends like one, or has to hold several pictures."""
    if os.path.isdir(output) or output.endswith(("/", os.sep)):
        return True
    if several and Path(output).suffix.lower() in SUPPORTED_SUFFIXES:
        raise UsageProblem(f"Several pictures cannot go into the one file {output}; give a folder with --output.")
    return several


def _output_of(item: Input, output: str | None, into_folder: bool, suffix: str) -> Path | None:
    if output == STANDARD_STREAM or (output is None and item.path is None):
        return None
    if output is None:
        assert item.path is not None
        return item.path.with_name(f"{item.path.stem}{suffix}{item.path.suffix}")
    return Path(output) / item.relative if into_folder else Path(output)


def _check_collisions(jobs: Sequence[Job], others: Sequence[Path]) -> None:
    writers = [(job.source.name, path) for job in jobs for path in job.targets]
    writers += [("the transform", path) for path in others]
    written: dict[str, str] = {}
    for name, path in writers:
        key = os.path.normcase(os.path.realpath(path))
        if key in written:
            raise UsageProblem(
                f"{written[key]} and {name} would both be written to {display_name(path)}; give other names or folders."
                if written[key] != name
                else f"Two results of {name} would be written to {display_name(path)}; give them different names."
            )
        written[key] = name
    inputs = {identity for job in jobs if job.source.path for identity in _identities(job.source.path)}
    for _, path in writers:
        if not inputs.isdisjoint(_identities(path)):
            raise UsageProblem(f"{display_name(path)} is an input and is never overwritten; choose another output.")


def _identities(path: Path) -> list[str | tuple[int, int]]:
    """What tells a file from others: its real name, and where it exists its number (hard links share it)."""
    names: list[str | tuple[int, int]] = [os.path.normcase(os.path.realpath(path))]
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return names
    return [*names, (found.st_dev, found.st_ino)]


def split_done(
    jobs: Sequence[Job], *, resume: bool, force: bool, others: Sequence[Path] = ()
) -> tuple[list[Job], list[Job]]:
    """Jobs to do, and jobs whose output is there already (with resume); without it or force that is an error."""
    done = [job for job in jobs if job.output is not None and os.path.lexists(job.output)] if resume else []
    finished = set(map(id, done))
    todo = [job for job in jobs if id(job) not in finished]
    # What an interrupted job left beside its missing output is its own to replace when it is resumed.
    targets = [] if force else [*([] if resume else [path for job in todo for path in job.targets]), *others]
    present = [path for path in targets if os.path.lexists(path)]
    if present:
        more = f" (and {len(present) - 1} more)" if len(present) > 1 else ""
        raise UsageProblem(f"{display_name(present[0])}{more} exists; use --force to overwrite or --resume to skip.")
    return todo, done


def prepare_folders(todo: Sequence[Job], done: Sequence[Job] = ()) -> None:
    """Make the folders of the results and clear away what killed runs left in them."""
    for folder in dict.fromkeys(path.parent for job in todo for path in job.targets):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            name = display_name(folder)
            raise FileProblem(f"The folder {name} cannot be made ({error.strerror}); choose another output.") from None
    for folder in dict.fromkeys(path.parent for job in (*todo, *done) for path in job.targets):
        remove_stale_temporaries(folder)
