"""A training from picture files to a transform file, with checkpoints on the way; it says nothing to anyone."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.errors import UsageProblem
from dstl_cli.files.checkpoints import load_checkpoint, save_checkpoint, unusable
from dstl_cli.files.collections import Collection, FileRead, read_collection
from dstl_cli.files.names import display_name
from dstl_cli.files.transforms import TransformFile, save_transform
from dstl_cli.learning.learner import Iteration
from dstl_cli.threads import one_blas_thread
from dstl_cli.train_config import TrainConfig
from dstl_cli.training import PatchSample, Trained, Training, TrainingSet

Arrays = dict[str, NDArray[Any]]

CHECKPOINT = ".checkpoint"  # what is added to the output's name
CHECKPOINT_SECONDS = 10.0  # between two checkpoints, and longer where writing one takes long
WRITING_SHARE = 0.05  # of the time, at most, for writing checkpoints


def checkpoint_of(output: Path) -> Path:
    """Where the state of an unfinished training is kept."""
    return output.with_name(output.name + CHECKPOINT)


@dataclass
class Part:
    """The pictures to learn from, or those held out: how many were read, and the sample they gave."""

    number: int  # goes into the random numbers
    collection: Collection
    sample: PatchSample
    read: int = 0  # files
    floats: int = 0  # files that could be read and are in floating point
    unreadable: list[dict[str, str]] = field(default_factory=list)  # input and error of each

    @property
    def readable(self) -> int:
        """How many files could be learnt from so far."""
        return self.read - len(self.unreadable)

    def progress(self) -> dict[str, Any]:
        """How far it has come, for JSON."""
        return {"read": self.read, "floats": self.floats, "unreadable": self.unreadable}

    def restore(self, progress: Mapping[str, Any], sample: Arrays) -> None:
        """Go on from there."""
        self.read, self.floats = int(progress["read"]), int(progress["floats"])
        self.unreadable = [{key: str(item[key]) for key in ("input", "error")} for item in progress["unreadable"]]
        self.sample.restore(sample)


class TrainRun:
    """One training. After `take_up`, if it was stopped before: `read` every part, `begin`, `learn`, `write`, `close`.

    `read` and `learn` stop after every file and update, and can be left there: `save` keeps all that was done.
    """

    def __init__(self, config: TrainConfig, output: Path, pictures: Collection, held_out: Collection) -> None:
        self.config, self.output = config, output
        self.pictures = Part(0, pictures, PatchSample.for_training(config))
        self.held_out = Part(1, held_out, PatchSample.for_validation(config))
        self.training: Training | None = None
        self._stopped: Arrays = {}  # the state of the learning that was stopped
        self._saved_at, self._saving = monotonic(), 0.0

    @property
    def parts(self) -> dict[str, Part]:
        """Both parts by name."""
        return {"pictures": self.pictures, "held_out": self.held_out}

    @property
    def unreadable(self) -> list[dict[str, str]]:
        """Input and error of every file that could not be learnt from."""
        return self.pictures.unreadable + self.held_out.unreadable

    def read(self, part: Part) -> Iterator[FileRead]:
        """Sample the patches of the files that have not been read yet."""

        def visit(page: NDArray[np.generic], file: int, index: int) -> None:
            part.sample.add(page, part.number, file, index)

        for file in read_collection(part.collection, visit, start=part.read):
            part.read += 1
            if file.problem is None:
                part.floats += file.floats
            else:
                part.unreadable.append({"input": file.name, "error": file.problem})
            yield file
            self._save_if_due()

    def begin(self) -> Training:
        """Make the first transform, or take up the one that was learnt so far."""
        held_out = self._taken(self.held_out) if self.held_out.collection.files else None
        training = Training(self._taken(self.pictures), self.config, held_out)
        if self._stopped:
            self._restored(lambda: training.restore(self._stopped))
        else:
            training.begin()
        self.training = training
        return training

    def learn(self) -> Iterator[Iteration]:
        """Update the transform until there is no further step."""
        assert self.training is not None
        while self.training.stop_reason is None:
            yield self.training.step()
            self._save_if_due()

    def write(self) -> Trained:
        """Write the best transform so far."""
        assert self.training is not None
        trained = self.training.finish()
        provenance = {"source": "train", "settings": asdict(self.config), **self.summary(trained)}
        with one_blas_thread():  # what is measured for the file must not depend on the number of cores either
            save_transform(self.output, TransformFile(trained.transform, provenance, trained.history), overwrite=True)
        return trained

    def close(self) -> None:
        """Forget the checkpoint: there is nothing to go on with."""
        checkpoint_of(self.output).unlink(missing_ok=True)

    def summary(self, trained: Trained) -> dict[str, Any]:
        """What a transform was made from and what it is worth; the same for the same settings, resumed or not."""
        training = self.training
        assert training is not None
        return {
            "pictures": self.pictures.readable, "held_out_pictures": self.held_out.readable,
            "unreadable": len(self.unreadable),
            "skipped": sum(part.collection.skipped for part in self.parts.values()),
            "patches": len(training.data.levels),
            "held_out_patches": 0 if training.validation is None else len(training.validation.levels),
            "mean_level": float(training.data.levels.mean()), "batches": training.batches,
            "iterations": len(trained.history), "best_iteration": trained.best_iteration,
            "stop_reason": trained.stop_reason, "coded_patches": trained.coded_patches,
            "cost": trained.cost, "dct_cost": trained.dct_cost,
            "held_out_cost": trained.held_out_cost, "held_out_dct_cost": trained.held_out_dct_cost,
        }  # fmt: skip

    def save(self) -> None:
        """Write the checkpoint."""
        start = monotonic()
        progress = {name: part.progress() for name, part in self.parts.items()}
        arrays: Arrays = {}
        for name, part in self.parts.items():
            arrays |= _named(name, part.sample.state())
        if self.training is not None:
            arrays |= _named("training", self.training.state())
        save_checkpoint(checkpoint_of(self.output), {**self._facts(), "progress": progress}, arrays)
        self._saved_at = monotonic()
        self._saving = self._saved_at - start

    def take_up(self) -> None:
        """Go on from the checkpoint; one of another training is refused."""
        name = display_name(checkpoint_of(self.output))
        facts, arrays = load_checkpoint(checkpoint_of(self.output))
        now = json.loads(json.dumps(self._facts()))  # as it comes back
        for key, words in (("settings", "other settings"), ("pictures", "other pictures")):
            if facts.get(key) != now[key]:
                raise UsageProblem(f"{name} was made with {words}; give the same ones, or --force to begin anew.")

        def restore() -> None:
            for key, part in self.parts.items():
                part.restore(facts["progress"][key], _of(key, arrays))

        self._restored(restore)
        self._stopped = _of("training", arrays)

    def _taken(self, part: Part) -> TrainingSet:
        """The sample of a part to learn from."""
        return TrainingSet.from_patches(part.sample.patches(), self.config)

    def _facts(self) -> dict[str, Any]:
        """What must be the same when a training goes on."""
        fingerprints = {name: part.collection.fingerprint() for name, part in self.parts.items()}
        return {"settings": asdict(self.config), "pictures": fingerprints}

    def _save_if_due(self) -> None:
        if monotonic() - self._saved_at > max(CHECKPOINT_SECONDS, self._saving / WRITING_SHARE):
            self.save()

    def _restored(self, restore: Callable[[], None]) -> None:
        """Take up a part of the checkpoint; one that does not fit is told in one sentence."""
        try:
            restore()
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise unusable(checkpoint_of(self.output)) from None


def _named(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays under `prefix.` and their names."""
    return {f"{prefix}.{key}": value for key, value in arrays.items()}


def _of(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays under `prefix.`, by their own names."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
