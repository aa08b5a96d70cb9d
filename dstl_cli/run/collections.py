"""Collections of pictures: which files they are, and their luminance one page at a time."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem, UsageProblem
from dstl_cli.picture.inputs import STANDARD_STREAM, find_inputs
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.colour import luminance

NO_SUFFIX = "/"  # no file name ends in it: nothing is left out as our own result

Page = NDArray[Any]


@dataclass(frozen=True)
class Collection:
    """The picture files of some arguments in a fixed order, and what else was found there."""

    files: tuple[Path, ...]
    relative: tuple[Path, ...]  # the place of each below the folder it was found in
    skipped: int  # files in folders that do not end like pictures
    problems: tuple[str, ...]  # a sentence for every folder that could not be looked into

    def without(self, other: "Collection") -> "Collection":
        """The collection without the files that another one has too, be it under other names."""
        taken = {os.path.realpath(path) for path in other.files}
        kept = [pair for pair in zip(self.files, self.relative, strict=True) if os.path.realpath(pair[0]) not in taken]
        return Collection(
            tuple(path for path, _ in kept), tuple(place for _, place in kept), self.skipped, self.problems
        )

    def fingerprint(self) -> str:
        """A text that changes when a file is added, removed, moved within the collection, or changes its size."""
        digest = hashlib.sha256()
        for path, place in zip(self.files, self.relative, strict=True):
            try:
                size = path.stat().st_size
            except OSError:
                size = -1
            digest.update(f"{place.as_posix()}\0{size}\0".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def find_collection(arguments: Sequence[str]) -> Collection:
    """The pictures among files, folders (with all below them) and unexpanded patterns; wrong names are refused."""
    for argument in arguments:
        if argument == STANDARD_STREAM:
            raise UsageProblem("Pictures to learn from are given as files and folders, not on standard input.")
    found = find_inputs(arguments, recursive=True, made_suffix=NO_SUFFIX)
    files = [(item.path, item.relative) for item in found.inputs if item.path is not None]
    for path, _ in files:
        if not os.path.lexists(path):
            raise UsageProblem(f"{display_name(path)} does not exist; check the name.")
    return Collection(
        tuple(path for path, _ in files),
        tuple(place for _, place in files),
        found.skipped,
        tuple(sentence for _, sentence in found.problems),
    )


@dataclass(frozen=True)
class FileRead:
    """One file of a collection after it was read."""

    name: str
    problem: str | None  # the sentence that says why it, or a part of it, cannot be learnt from
    floats: bool  # its pixels have no scale of their own


def read_collection(
    collection: Collection, visit: Callable[[Page, int, int], None], *, start: int = 0
) -> Iterator[FileRead]:
    """Read the files from number `start` on: each page's luminance goes to `visit` with its file and page numbers.

    Yields once for every file. A ValueError of `visit` is a reason not to learn from it. Only one page is in memory at
    a time.
    """
    for number in range(start, len(collection.files)):
        name = display_name(collection.files[number])
        sentence, floats = None, False
        try:
            picture = read_picture(collection.files[number])
            floats = picture.specs[0].dtype.kind == "f"
            for page in range(len(picture.specs)):
                visit(luminance(picture.pages[page]), number, page)
        except FileProblem as error:
            sentence = str(error)
        except ValueError as error:
            sentence = f"{name} cannot be learnt from: {error}"
        except MemoryError:
            sentence = f"{name} does not fit into memory; crop it or close other programs."
        yield FileRead(name, sentence, floats)
