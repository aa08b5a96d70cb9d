"""What is fuzzed: each reader on bytes. It must end with a result or one sentence, in little time and memory."""

import io
import os
import resource
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dstl_cli.errors import DstlError, refusals
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import open_tiles, write_picture
from dstl_cli.run.collections import find_collection, sampled
from dstl_cli.run.journal import last_words
from dstl_cli.run.noise import load_noise
from dstl_cli.run.training import TrainRun
from dstl_cli.transforms.files import load_transform

MOST_PIXELS = 4_000_000  # of pictures that the bounds hold for
MOST_SECONDS = 10.0
MOST_BYTES = 2**30


class Violation(AssertionError):
    """Something that a reader promises does not hold."""


@cache
def folder() -> Path:
    """A place for the files of readers that want a path; in memory, where there is such a disk."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=place))


def picture(data: bytes) -> None:
    """Read a picture of any format to its last page, and write it again as what it can be written."""
    found = read_picture(data, name="fuzzed")
    if sum(spec.height * spec.width for spec in found.specs) <= MOST_PIXELS:
        write_picture(found, io.BytesIO())


def zarr(data: bytes) -> None:
    """Read a Zarr folder, which comes in an archive, to its last page, and lay out another with all levels of it."""
    place, other = folder() / "x.zarr", folder() / "y.zarr"
    for path in (place, other):
        shutil.rmtree(path, ignore_errors=True)
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as packed:
        packed.extractall(place)
    found = read_picture(place, name="fuzzed")
    if sum(spec.height * spec.width for spec in found.specs) > MOST_PIXELS:
        return
    with refusals("fuzzed", "cannot be denoised"), open_tiles(found, other) as made:
        for index in range(len(found.specs)):
            colour, extra = found.page(index)
            made.put(index, slice(0, len(colour)), slice(0, colour.shape[1]), colour, extra)
        for level in range(1, len(made.levels)):
            made.reduce(level, *(slice(0, side) for side in made.size(level)))


def transform(data: bytes) -> None:
    """Read a transform file."""
    load_transform(_file("t.npz", data))


def checkpoint(data: bytes) -> None:
    """Take up a training from a checkpoint, and go on with it."""
    run = training_in(folder())
    _file("t.npz.checkpoint", data)
    run.take_up()
    next(run.learn(), None)


def noise(data: bytes) -> None:
    """Read a noise profile."""
    load_noise(_file("n.json", data))


def journal(data: bytes) -> None:
    """Read a journal."""
    last_words(_file("j.jsonl", data))


TARGETS: dict[str, Callable[[bytes], None]] = {
    **dict.fromkeys(("png", "jpeg", "webp", "bmp", "netpbm", "npy", "tiff", "other"), picture),
    "transform": transform,
    "checkpoint": checkpoint,
    "noise": noise,
    "journal": journal,
    **({"zarr": zarr} if find_spec("zarr") else {}),
}


def training_in(place: Path) -> TrainRun:
    """A small training on a picture in a folder."""
    path = place / "picture.npy"
    if not path.exists():
        np.save(path, np.random.default_rng(0).integers(0, 256, (24, 24), np.uint8))
    settings = CollectionSettings.of(patch_size=4, train_patches=200, iterations=3)
    return TrainRun(settings, place / "t.npz", *sampled(settings, find_collection([str(path)]), find_collection([])))


def _file(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def peak_bytes(who: int = resource.RUSAGE_SELF) -> int:
    """The most memory that this process has had, or one of its children that have ended."""
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def check(kind: str, data: bytes) -> str:
    """Give bytes to the reader of a kind: the sentence it said, empty where it liked them. Violation otherwise."""
    start, before, sentence = time.process_time(), peak_bytes(), ""  # the child has a limit of its own for each file
    try:
        TARGETS[kind](data)
    except DstlError as error:
        sentence = str(error)
        if not sentence.endswith(".") or not sentence.isprintable() or len(sentence) > 1000 or "unforeseen" in sentence:
            raise Violation(f"no good sentence: {sentence!r}") from error
    except Exception as error:
        raise Violation(f"{type(error).__name__}: {error}") from error
    seconds = time.process_time() - start
    if seconds > MOST_SECONDS:
        raise Violation(f"took {seconds:.1f} s")
    if peak_bytes() - before > MOST_BYTES:
        raise Violation(f"took {(peak_bytes() - before) / 2**20:.0f} MiB")
    return sentence
