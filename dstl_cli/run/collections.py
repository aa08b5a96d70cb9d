"""Collections of pictures to learn from: which files they are, and the sample of their patches, one page at a time."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.addresses import Address, place_of
from dstl_cli.base.arrays import Arrays
from dstl_cli.base.names import display_name
from dstl_cli.errors import DstlError, UsageProblem, refusals
from dstl_cli.learning.on_collection import PatchSample, PatchSet, TrainingSet
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.picture.inputs import STANDARD_STREAM, Input, Selection, find_inputs
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.colour import luminance
from dstl_cli.pixels.depth import Depth

PROGRESS = ("read", "floats", "unreadable")  # how far `SampledPictures` have come
NO_SUFFIX = "/"  # no file name ends in it: nothing is left out as our own result


def find_collection(arguments: Sequence[str]) -> Selection:
    """The pictures among files, folders (with all below them) and unexpanded patterns; wrong names are refused."""
    if STANDARD_STREAM in arguments:
        raise UsageProblem("Pictures to learn from are given as files and folders, not on standard input.")
    remote = [argument for argument in arguments if isinstance(place_of(argument), Address)]
    if remote:
        raise UsageProblem(f"Pictures to learn from are files of this machine, not {remote[0]}; copy them first.")
    found = find_inputs(arguments, recursive=True, made_suffix=NO_SUFFIX)
    for path in files_of(found):
        if not os.path.lexists(path):
            raise UsageProblem(f"{display_name(path)} does not exist; check the name.")
    return found


def files_of(collection: Selection) -> list[Path]:
    """The files of a collection, in a fixed order."""
    return [item.path for item in collection.inputs if isinstance(item.path, Path)]


def without(collection: Selection, other: Selection) -> Selection:
    """A collection without the files that another one has too, be it under other names."""
    taken = {os.path.realpath(path) for path in files_of(other)}
    kept = tuple(item for item in collection.inputs if os.path.realpath(str(item.path or "")) not in taken)
    return replace(collection, inputs=kept)


def fingerprint(collection: Selection) -> str:
    """A text that changes when a file is added, removed, moved within the collection, or changes its size."""
    digest = hashlib.sha256()
    for path, item in zip(files_of(collection), collection.inputs, strict=True):
        try:
            size = path.stat().st_size
        except OSError:
            size = -1
        digest.update(f"{item.relative.as_posix()}\0{size}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def learn_from(item: Input, name: str, take: Callable[[NDArray[np.generic], int], None]) -> tuple[bool, str | None]:
    """Hand the grey channel of every page of a file, and its number, to `take`.

    Whether its pixels have no scale of their own, as floats; and why it cannot be learnt from, if it cannot.
    """
    try:
        with refusals(name, "cannot be learnt from"):
            picture = read_picture(item.path, name=name)
            for page in range(len(picture.specs)):
                depth = Depth.of(picture.specs[page].dtype, picture.specs[page].bits)
                take(luminance(picture.pages[page], depth), page)
            return not Depth.of(picture.specs[0].dtype).scaled, None
    except DstlError as error:
        return False, str(error)


@dataclass
class CollectionPart(ABC):
    """The pictures to learn from, or those held out, how many were read, and the patches they give."""

    number: int  # goes into the random numbers
    option: str  # by which they were given
    collection: Selection
    read: int = field(default=0, kw_only=True)  # files
    floats: int = field(default=0, kw_only=True)  # files whose pixels have no scale of their own, as floats
    unreadable: list[dict[str, str]] = field(default_factory=list, kw_only=True)  # input and error of each

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self.collection.inputs)

    @property
    def readable(self) -> int:
        """How many files could be learnt from so far."""
        return self.read - len(self.unreadable)

    def take_down(self, name: str, floats: bool, problem: str | None) -> None:
        """Count a file that was read, and what is wrong with it."""
        self.read += 1
        self.floats += floats
        if problem is not None:
            self.unreadable.append({"input": name, "error": problem})

    def why_empty(self, settings: CollectionSettings) -> str:
        """Why no patch was sampled, in a sentence."""
        if not self.readable:
            return f"None of the {self.read} files of {self.option} can be learnt from; give other pictures."
        if settings.sparsity_level is None:
            return (
                f"No patch of {self.option} stands out of noise of deviation {settings.sigma:g}; give a smaller --sigma"
                " (float pictures have it in their own units)."
            )
        return f"The pictures of {self.option} are flat: there is nothing to learn; give other pictures."

    @abstractmethod
    def read_on(self) -> Iterator[str | None]:
        """Read the files that have not been read yet; of each, the sentence that says why it cannot be learnt from."""

    @property
    @abstractmethod
    def filled(self) -> int:
        """How many patches there are."""

    @property
    @abstractmethod
    def shards(self) -> int:
        """In how many shards the patches lie; 0 for a sample."""

    @abstractmethod
    def state(self) -> Arrays:
        """What checkpoints keep of the patches."""

    @abstractmethod
    def restore(self, progress: Mapping[str, Any], state: Arrays) -> None:
        """Go on from what a checkpoint holds: PROGRESS, and the state."""

    @abstractmethod
    def patches(self) -> PatchSet:
        """The patches, as they are learnt from."""


@dataclass
class SampledPictures(CollectionPart):
    """The same with the sample that they gave."""

    settings: CollectionSettings
    sample: PatchSample

    def read_on(self) -> Iterator[str | None]:
        """Read the files that have not been read yet; of each, the sentence that says why it cannot be learnt from."""
        for item in self.collection.inputs[self.read :]:

            def take(image: NDArray[np.generic], page: int) -> None:
                self.sample.add(image, self.number, self.read, page)

            floats, problem = learn_from(item, item.name, take)
            self.take_down(item.name, floats, problem)
            yield problem

    @property
    def filled(self) -> int:
        """How many patches there are."""
        return self.sample.filled

    @property
    def shards(self) -> int:
        """None: this is a sample."""
        return 0

    def state(self) -> Arrays:
        """The sample, as checkpoints keep it."""
        return self.sample.state()

    def restore(self, progress: Mapping[str, Any], state: Arrays) -> None:
        """Go on from what a checkpoint holds: PROGRESS, and the state of the sample."""
        self.read, self.floats = int(progress["read"]), int(progress["floats"])
        self.unreadable = [{key: str(item[key]) for key in ("input", "error")} for item in progress["unreadable"]]
        self.sample.restore(state)

    def patches(self) -> TrainingSet:
        """The patches, as they are learnt from."""
        return TrainingSet.from_patches(self.sample.patches(), self.settings)


def sampled(
    settings: CollectionSettings, pictures: Selection, held_out: Selection
) -> tuple[SampledPictures, SampledPictures]:
    """Both parts of a training from a bounded sample."""
    return (
        SampledPictures(0, "PATH", pictures, settings, PatchSample.of(settings)),
        SampledPictures(1, "--validation", held_out, settings, PatchSample.of(settings, held_out=True)),
    )
