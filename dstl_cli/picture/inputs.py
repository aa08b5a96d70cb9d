"""Which pictures a command works on and where each result goes, settled before any work."""

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import compress
from pathlib import Path

from dstl_cli.base.addresses import Address, Place, place_of, sizes_below, stays_below
from dstl_cli.base.atomic import identities, remove_stale_temporaries
from dstl_cli.base.names import display_name
from dstl_cli.base.threads import in_order
from dstl_cli.errors import DstlError, FileProblem, UsageProblem
from dstl_cli.picture.formats import (
    FORMATS,
    format_of_folder,
    format_of_suffix,
    holds_pictures,
    is_there_in_tiles,
    is_written_in_tiles,
    not_replaced,
    split_suffix,
)

STANDARD_STREAM = "-"
LOOKED_AT_TOGETHER = 16  # addresses


def from_root(place: Place | None) -> Place | None:
    """A path that is the same in every folder."""
    return Path(os.path.abspath(place)) if isinstance(place, Path) else place


@dataclass(frozen=True)
class Input:
    """One picture to read; `relative` is its place under the folder it was found in; size: in bytes, where known.

    called: how messages call it where that is not its path.
    """

    path: Place | None  # None: standard input
    relative: Path
    size: int | None = field(default=None, compare=False)
    called: str | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """How messages and reports call it."""
        return self.called or ("standard input" if self.path is None else display_name(self.path))

    @property
    def stem(self) -> Path:
        """Its place without the suffix of its format."""
        return self.relative.with_name(split_suffix(self.relative.name)[0])

    def for_workers(self) -> "Input":
        """The same, under the name that it has here, with its path from the root: others have other current folders."""
        return replace(self, path=from_root(self.path), called=self.name)

    def result(self, addition: str = "") -> Path:
        """The place of a result: with an addition to the stem, and a suffix whose format can be written.

        That is the input's own; where its format is only read, that of what its picture is written as.
        """
        suffix, entry = split_suffix(self.relative.name)[1], format_of_suffix(self.relative)
        if self.path is not None and entry is not None and not entry.written:
            from dstl_cli.picture.read import read_picture
            from dstl_cli.picture.write import natural_format

            suffix = ".png"
            with suppress(DstlError):  # said when its turn comes
                suffix = FORMATS[natural_format(read_picture(self.path))].suffixes[0]
        return self.stem.with_name(f"{self.stem.name}{addition}{suffix}")


def size_of(item: Input) -> int:
    """Bytes of a file; 0 where that is not known."""
    with suppress(OSError, ValueError):
        return os.path.getsize(item.path) if isinstance(item.path, Path) else item.size or 0
    return 0


@dataclass(frozen=True)
class Job:
    """One picture, where its result goes (None: standard output), and the extra pictures asked for."""

    source: Input
    output: Place | None
    residual: Place | None = None
    compare: Place | None = None

    @property
    def extras(self) -> tuple[Place, ...]:
        """The files written beside the result."""
        return tuple(path for path in (self.residual, self.compare) if path is not None)

    @property
    def targets(self) -> tuple[Place, ...]:
        """Every file this job writes."""
        return self.extras if self.output is None else (self.output, *self.extras)

    @property
    def output_name(self) -> str:
        """How messages and reports call the output."""
        return STANDARD_STREAM if self.output is None else display_name(self.output)


@dataclass(frozen=True)
class Selection:
    """The inputs in order, the other files in the folders, and what is wrong with the arguments."""

    inputs: tuple[Input, ...]
    others: tuple[Place, ...]
    problems: tuple[tuple[str, str], ...]  # (name, sentence)
    several: bool  # a folder, a glob or more than one name was given

    @property
    def skipped(self) -> int:
        """How many files of the folders are left alone."""
        return len(self.others)


def find_inputs(
    arguments: Sequence[str], *, recursive: bool, made_suffix: str, results: Sequence[Place] = ()
) -> Selection:
    """Expand files, folders, unexpanded globs, addresses and `-`.

    Our own results are not taken from folders: files whose stem ends in `made_suffix`, and what lies in `results`.
    """
    if not all(arguments):
        raise UsageProblem("An input has an empty name; give files or folders, or . for the current folder.")
    paths = [folder for folder in results if isinstance(folder, Path)]
    own_folders = [Path(os.path.realpath(folder)) for folder in paths if os.path.isdir(folder)]
    inputs: dict[str | None, Input] = {}  # by where they are: those named twice are taken once
    others: list[Place] = []
    problems: list[tuple[str, str]] = []
    several = len(arguments) > 1
    for argument in arguments:
        path = place_of(argument)
        if argument == STANDARD_STREAM:
            found = [Input(None, Path("stdin"))]
        elif isinstance(path, Address):
            found, beside, is_folder = _at_address(path, recursive, made_suffix, results, problems)
            several, others = several or is_folder, others + beside
        elif holds_pictures(path):
            several, known = True, len(problems)
            files = list(_walk(path, recursive, problems))
            kinds = [format_of_suffix(file) or format_of_folder(file) for file in files]
            own = [_is_own(file, path, made_suffix, own_folders) for file in files]
            taken = [kind is not None and not made for kind, made in zip(kinds, own, strict=True)]
            found = [Input(file, file.relative_to(path)) for file in compress(files, taken)]
            left = [file for file, take in zip(files, taken, strict=True) if not take]
            others.extend(left)
            if not found and len(problems) == known:
                problems.append((display_name(path), _without_pictures(path, left, recursive)))
        elif not os.path.lexists(path) and glob.has_magic(argument):
            several = True
            matches = map(Path, sorted(glob.glob(argument, recursive=recursive)))
            found = [Input(match, Path(match.name)) for match in matches if match.is_file() or format_of_folder(match)]
            if not found:
                problems.append((argument, f"No file matches {argument}; check the pattern."))
        else:
            found = [Input(path, Path(path.name))]
        inputs |= {None if item.path is None else _whole_name(item.path): item for item in found}
    return Selection(tuple(inputs.values()), tuple(others), tuple(problems), several)


def _whole_name(place: Place) -> str:
    """What tells a place from others, whatever the current folder is."""
    return f"{place}{place.rest}" if isinstance(place, Address) else os.path.abspath(place)


def _at_address(
    address: Address, recursive: bool, made_suffix: str, results: Sequence[Place], problems: list[tuple[str, str]]
) -> tuple[list[Input], list[Place], bool]:
    """The pictures at an address, the other files, and whether it is a folder."""
    try:
        if format_of_folder(address) or not address.is_folder():
            return [Input(address, Path(address.name))], [], False
        files = _listed(address, recursive)
    except FileProblem as error:
        problems.append((str(address), str(error)))
        return [], [], False
    own = [place for place in results if isinstance(place, Address) and address.holds(place)]
    inputs, others, known = list[Input](), list[Place](), len(problems)
    for name, size in files.items():
        found = address / name
        made = split_suffix(found.name)[0].endswith(made_suffix)
        if format_of_suffix(found) is None or made or any(place.holds(found) for place in own):
            others.append(found)
        elif not stays_below(name):
            problems.append((str(found), f"{found} has a name that leads out of its folder; rename it."))
        elif not found.name.startswith("."):
            inputs.append(Input(found, Path(name), size))
    if not inputs and len(problems) == known:
        problems.append((str(address), f"{address} holds no pictures to take; give another address."))
    return inputs, others, True


def _listed(address: Address, recursive: bool) -> dict[str, int]:
    """The files in a folder at an address and the folders that are one picture, with their sizes where they are known.

    Both are in the order of their names.
    """
    found = address.files(recursive=True) if recursive else address.entries()

    @cache
    def picture_above(folder: str) -> str | None:
        """The outermost picture that a folder is, or is in."""
        above = picture_above(folder.rpartition("/")[0]) if folder else None
        return above or (folder if is_written_in_tiles(address / folder) else None) if folder else None

    sizes: dict[str, int] = {}
    for name, size in found.items():
        picture = picture_above(name if size is None else name.rpartition("/")[0])
        if size is not None or picture is not None:
            sizes[picture or name] = sizes.get(picture or name, 0) + (size or 0)
    return {name: sizes[name] for name in sorted(sizes)}


def _without_pictures(folder: Path, others: Sequence[Path], recursive: bool) -> str:
    """What there is instead in a folder without pictures."""
    name = display_name(folder)
    if others:
        made = [path for path in others if format_of_suffix(path) is not None]
        kind, files = ("results of dstl", made) if made else ("other files", others)
        example = f"{display_name(files[0].name)} ({len(files)} in all)"
        return f"{name} holds no pictures to take, only {kind} such as {example}; give other pictures."
    if not recursive and any(map(os.path.isdir, folder.iterdir())):
        return f"{name} holds no pictures itself, only folders; use --recursive to look into them."
    return f"{name} holds no pictures, it is empty; give another folder."


def _is_own(found: Path, top: Path, made_suffix: str, own_folders: Sequence[Path]) -> bool:
    """Whether a file below the folder `top` is a result of ours; an output folder that holds `top` does not count."""
    here, above = Path(os.path.realpath(found.parent)), Path(os.path.realpath(top))
    inside = [folder for folder in own_folders if folder != above and above in folder.parents]
    stem = split_suffix(found.name)[0]
    return stem.endswith(made_suffix) or any(folder == here or folder in here.parents for folder in inside)


def _walk(folder: Path, recursive: bool, problems: list[tuple[str, str]]) -> Iterator[Path]:
    """Files below a folder in a fixed order, and folders that are one picture; unreadable folders are named.

    Links to folders are not followed.
    """

    def note(error: OSError) -> None:
        name = display_name(error.filename or folder)
        problems.append((name, f"The folder {name} cannot be read ({error.strerror}); check its permissions."))

    for here, folders, names in os.walk(folder, onerror=note):
        pictures = {name for name in folders if format_of_folder(Path(here) / name)}
        folders[:] = sorted(set(folders) - pictures) if recursive else []
        yield from (Path(here) / name for name in sorted([*names, *pictures]) if not name.startswith("."))


def plan_jobs(
    found: Selection,
    output: str | None,
    *,
    suffix: str,
    residual: Place | None = None,
    compare: Place | None = None,
    others: Sequence[Path] = (),
) -> list[Job]:
    """Where each input's results go; refuses what would overwrite an input or write one file twice.

    others: further files that the run writes.
    """
    if output == STANDARD_STREAM and len(found.inputs) > 1:
        raise UsageProblem("Only one picture can go to standard output; give a folder with --output.")
    into_folder = output is not None and output != STANDARD_STREAM and _is_folder(output, found.several)

    def extra(item: Input, target: Place | None, kind: str) -> Place | None:
        """The extra picture of an input: the given file, or one in the given folder."""
        in_folder = target is not None and (found.several or _is_there(target))
        return target / item.result(f"_{kind}") if target is not None and in_folder else target

    jobs = []
    for item in found.inputs:
        place = _output_of(item, output, into_folder, suffix)
        if is_written_in_tiles(place) and (residual or compare):
            useless = "--residual" if residual else "--compare"
            raise UsageProblem(f"{useless} is not written beside Zarr; leave it out, or give an --output in .tiff.")
        jobs.append(Job(item, place, extra(item, residual, "residual"), extra(item, compare, "compare")))
    _check_collisions(jobs, others)
    return jobs


def _is_folder(output: str, several: bool) -> bool:
    """Whether an output argument means a folder: it is one, ends like one, or has to hold several pictures.

    A name of a picture that is a folder does not.
    """
    if is_written_in_tiles(place_of(output)) and not several:
        return False
    if output.endswith(("/", os.sep)) or _is_there(place_of(output)):
        return True
    if several and format_of_suffix(Path(output)) is not None:
        raise UsageProblem(f"Several pictures cannot go into the one file {output}; give a folder with --output.")
    return several


def _is_there(folder: Place) -> bool:
    """Whether a place is a folder that exists."""
    return folder.is_folder() if isinstance(folder, Address) else os.path.isdir(folder)


def _output_of(item: Input, output: str | None, into_folder: bool, suffix: str) -> Place | None:
    if output == STANDARD_STREAM or (output is None and item.path is None):
        return None
    if output is None:
        assert item.path is not None
        return item.path.with_name(item.result(suffix).name)
    return place_of(output) / item.result() if into_folder else place_of(output)


def _check_collisions(jobs: Sequence[Job], others: Sequence[Path]) -> None:
    """Refuse files that are written twice, and inputs that are written."""
    writers = [(job.source.name, path) for job in jobs for path in job.targets]
    writers += [("the transform", path) for path in others]
    written: dict[str, str] = {}
    inputs = set().union(*(_identities(job.source.path) for job in jobs if job.source.path))
    for name, path in writers:
        if isinstance(path, Address):
            path.check_writable()
        key = _whole_name(path) if isinstance(path, Address) else os.path.normcase(os.path.realpath(path))
        shown = display_name(path)
        if written.get(key) == name:
            raise UsageProblem(f"Two results of {name} would be written to {shown}; give them different names.")
        if key in written:
            both = f"{written[key]} and {name} would both be written to {shown}"
            raise UsageProblem(f"{both}; give other names or folders.")
        written[key] = name
    tiled = any(is_written_in_tiles(path) for _, path in writers)
    around = set().union(*(_above(job.source.path) for job in jobs if tiled and job.source.path))
    for _, path in writers:
        own = _identities(path)
        replaced = is_written_in_tiles(path) and not around.isdisjoint(own)  # with all that is in the folder
        if replaced or not inputs.isdisjoint(own | _above(path)):
            raise UsageProblem(f"{display_name(path)} is an input and is never overwritten; choose another output.")


def _above(place: Place) -> set[object]:
    """The folders that a path is in, as `_identities` calls them: an input may be one of them."""
    if isinstance(place, Address):
        parts = place.path.split("/")
        return {_whole_name(replace(place, path="/".join(parts[:count]))) for count in range(1, len(parts))}
    return {os.path.normcase(folder) for folder in Path(os.path.realpath(place)).parents}


def _identities(place: Place) -> set[object]:
    """What tells a file from others."""
    return {_whole_name(place)} if isinstance(place, Address) else identities(place)


def split_done(
    jobs: Sequence[Job], *, resume: bool, force: bool, others: Sequence[Path] = ()
) -> tuple[list[Job], list[Job]]:
    """Jobs to do, and (with resume) jobs whose files are all there, none of them empty; nothing is written.

    A file of a job to do that exists is an error, but for force, and for resume: then it is checked when it is written.
    """
    addresses = [path for job in jobs for path in job.targets if isinstance(path, Address)]
    tiled = [path for path in addresses if is_written_in_tiles(path)]
    sizes = sizes_below(path for path in addresses if not is_written_in_tiles(path))
    whole = set(compress(tiled, in_order(is_there_in_tiles, tiled, LOOKED_AT_TOGETHER) if tiled else ()))

    def has_bytes(path: Place) -> bool:
        return path in whole or sizes.get(path, 0) > 0 if isinstance(path, Address) else _has_bytes(path)

    done = [job for job in jobs if resume and is_done(job, others, has_bytes)]
    finished = set(map(id, done))
    todo = [job for job in jobs if id(job) not in finished]
    targets = [path for job in todo for path in job.targets if not resume] + [path for path in others if todo]
    if force and whole:
        raise UsageProblem(str(not_replaced(next(path for path in addresses if path in whole))))
    known = sizes.keys() | whole
    present = [p for p in targets if not force and (p in known if isinstance(p, Address) else os.path.lexists(p))]
    if present:
        more = f" (and {len(present) - 1} more)" if len(present) > 1 else ""
        raise UsageProblem(f"{display_name(present[0])}{more} exists; use --force to overwrite or --resume to skip.")
    return todo, done


def _has_bytes(path: Place) -> bool:
    """Whether a file is there and not empty, or a folder is, which is made at once."""
    with suppress(OSError, ValueError):
        if isinstance(path, Address):
            return is_there_in_tiles(path) if is_written_in_tiles(path) else bool(path.size())
        return path.is_dir() or os.path.getsize(path) > 0
    return False


def is_done(job: Job, others: Sequence[Path] = (), has_bytes: Callable[[Place], bool] = _has_bytes) -> bool:
    """Whether all files of a job, and others, are there, and none is empty."""
    return job.output is not None and all(map(has_bytes, (*job.targets, *others)))


def prepare_folders(todo: Sequence[Job], done: Sequence[Job] = (), others: Sequence[Path] = ()) -> None:
    """Make the folders of the results and clear away what killed runs left in them, and beside other files."""
    for folder in folders_of(todo):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            name = display_name(folder)
            raise FileProblem(f"The folder {name} cannot be made ({error.strerror}); choose another output.") from None
    clear_folders((*todo, *done), others)


def clear_folders(jobs: Sequence[Job], others: Sequence[Path] = ()) -> None:
    """Clear away what killed processes left in the folders of the results and of other files."""
    for folder in dict.fromkeys((*folders_of(jobs), *(path.parent for path in others))):
        remove_stale_temporaries(folder)


def folders_of(jobs: Sequence[Job]) -> list[Path]:
    """The folders of this machine that results go to."""
    return list(dict.fromkeys(path.parent for job in jobs for path in job.targets if isinstance(path, Path)))
