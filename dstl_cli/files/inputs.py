"""Which pictures a command works on and where each result goes, settled before any work."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dstl_cli.errors import FileProblem, UsageProblem
from dstl_cli.files.atomic import same_file
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
    """One picture and where its result goes (None: standard output)."""

    source: Input
    output: Path | None

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


def find_inputs(arguments: Sequence[str], *, recursive: bool, made_suffix: str) -> Found:
    """Expand files, folders, unexpanded globs and `-`. Files whose stem ends in `made_suffix` are our own results."""
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
                own = found.stem.endswith(made_suffix)
                if is_picture_path(found) and not own:
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


def plan_jobs(found: Found, output: str | None, *, suffix: str) -> list[Job]:
    """Where each input's result goes; refuses what would overwrite an input or write one file twice."""
    if output == STANDARD_STREAM and len(found.inputs) > 1:
        raise UsageProblem("Only one picture can go to standard output; give a folder with --output.")
    into_folder = output is not None and output != STANDARD_STREAM and _is_folder(output, found.several)
    jobs = [Job(item, _output_of(item, output, into_folder, suffix)) for item in found.inputs]
    _check_collisions(jobs)
    return jobs


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


def _check_collisions(jobs: Sequence[Job]) -> None:
    written: dict[str, Job] = {}
    for job in jobs:
        if job.output is None:
            continue
        key = os.path.normcase(os.path.realpath(job.output))
        other = written.setdefault(key, job)
        if other is not job:
            raise UsageProblem(
                f"{other.source.name} and {job.source.name} would both be written to {job.output}; "
                "give other names or folders."
            )
    sources = {os.path.normcase(os.path.realpath(job.source.path)): job.source for job in jobs if job.source.path}
    for key, job in written.items():
        own = job.source.path
        if key in sources or (own is not None and job.output is not None and same_file(own, job.output)):
            raise UsageProblem(f"{job.output} is an input and is never overwritten; choose another output.")


def split_done(jobs: Sequence[Job], *, resume: bool, force: bool) -> tuple[list[Job], list[Job]]:
    """Jobs to do, and jobs whose output is there already (with resume); without it or force that is an error."""
    present = [job for job in jobs if job.output is not None and os.path.lexists(job.output)]
    if resume:
        done = set(map(id, present))
        return [job for job in jobs if id(job) not in done], present
    if present and not force:
        more = f" (and {len(present) - 1} more)" if len(present) > 1 else ""
        raise UsageProblem(f"{present[0].output}{more} exists; use --force to overwrite or --resume to skip.")
    return list(jobs), []


def prepare_folders(jobs: Sequence[Job]) -> None:
    """Make the output folders and clear away what killed runs left in them."""
    from dstl_cli.files.atomic import remove_stale_temporaries

    for folder in dict.fromkeys(job.output.parent for job in jobs if job.output is not None):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            name = display_name(folder)
            raise FileProblem(f"The folder {name} cannot be made ({error.strerror}); choose another output.") from None
        remove_stale_temporaries(folder)
