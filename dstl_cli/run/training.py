"""A training from picture files to a transform file, with checkpoints on the way; it says nothing to anyone."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstl_cli.base.names import display_name
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.errors import Interrupted, UsageProblem
from dstl_cli.learning.collection_settings import CollectionSettings
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_collection import PatchSample, Trained, Training, TrainingSet
from dstl_cli.run.checkpoints import load_checkpoint, save_checkpoint, unusable
from dstl_cli.run.collections import Collection, FileRead, read_collection
from dstl_cli.transforms.files import TransformFile, save_transform
from dstl_cli.transforms.transform import Iteration

Arrays = dict[str, NDArray[Any]]

CHECKPOINT = ".checkpoint"  # what is added to the output's name
CHECKPOINT_SECONDS = 10.0  # between two checkpoints, and longer where writing one takes long
WRITING_SHARE = 0.05  # of the time, at most, for writing checkpoints


def checkpoint_of(output: Path) -> Path:
    """Where the state of an unfinished training is kept."""
    return output.with_name(output.name + CHECKPOINT)


def check_unfinished(output: Path, *, resume: bool, force: bool) -> bool:
    """Whether to go on from a checkpoint; what would lose an older transform or an unfinished training is refused."""
    if output.name in ("", "-", ".."):
        raise UsageProblem("--output takes the name of a file such as pictures.npz.")
    if resume and force:
        raise UsageProblem("--resume goes on from a checkpoint and --force begins anew; give one of them.")
    checkpoint = checkpoint_of(output)
    unfinished = os.path.lexists(checkpoint)
    if unfinished and not (resume or force):
        raise UsageProblem(
            f"{display_name(checkpoint)} holds an unfinished training; use --resume to go on or --force to begin anew."
        )
    if resume and not unfinished and os.path.lexists(output):
        raise UsageProblem(
            f"{display_name(output)} exists and no training of it is unfinished; use --force to train it anew."
        )
    return resume and unfinished


@dataclass
class SampledPictures:
    """The pictures to learn from, or those held out: how many were read, and the sample they gave."""

    number: int  # goes into the random numbers
    option: str  # by which they were given
    collection: Collection
    sample: PatchSample
    read: int = 0  # files
    floats: int = 0  # files that could be read and are in floating point
    unreadable: list[dict[str, str]] = field(default_factory=list)  # input and error of each

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self.collection.files)

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


class TrainRun:
    """One training: `take_up` if it was stopped before; `read` both parts and `learn`, `stoppable`; `finish`.

    `read` and `learn` yield after every file and update. Once asked to stop they end there, and all that was done is in
    the checkpoint.
    """

    def __init__(self, settings: CollectionSettings, output: Path, pictures: Collection, held_out: Collection) -> None:
        self.settings, self.output = settings, output
        self.pictures = SampledPictures(0, "PATH", pictures, PatchSample.for_training(settings))
        self.held_out = SampledPictures(1, "--validation", held_out, PatchSample.for_validation(settings))
        self.training: Training | None = None
        self.stop_asked = False
        self._stopped: Arrays = {}  # the state of the learning that was stopped
        self._started = self._saved_at = monotonic()
        self._saving = 0.0

    @property
    def parts(self) -> dict[str, SampledPictures]:
        """The pictures to learn from and those held out, by name."""
        return {"pictures": self.pictures, "held_out": self.held_out}

    @property
    def unreadable(self) -> list[dict[str, str]]:
        """Input and error of every file that could not be learnt from."""
        return self.pictures.unreadable + self.held_out.unreadable

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return monotonic() - self._started

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Ctrl-C asks for the end at the next good place; a second Ctrl-C ends at once."""
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for background jobs
            yield
            return

        def ask(number: int, frame: object) -> None:
            self.stop_asked = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def read(self, part: SampledPictures) -> Iterator[FileRead]:
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
            if self.stop_asked:
                self.save()
                raise Interrupted(
                    f"Interrupted after reading {part.read} of {part.count} files; "
                    "the same command with --resume goes on."
                )
            self._save_if_due()
        if part.count and not part.sample.filled:
            self.forget()
            raise UsageProblem(part.why_empty(self.settings))

    def learn(self) -> Iterator[Iteration]:
        """Update the transform until there is no further step."""
        training = self._begun()
        while training.stop_reason is None:
            yield training.step()
            if self.stop_asked:
                self.save()
                return
            self._save_if_due()

    def finish(self) -> Trained:
        """Write the best transform so far; the checkpoint goes where there is nothing to go on with."""
        assert self.training is not None
        trained = self.training.finish()
        provenance = {"source": "train", "settings": self.settings.facts(), **self.summary(trained)}
        with one_blas_thread():  # what is measured for the file must not depend on the number of cores either
            save_transform(self.output, TransformFile(trained.transform, provenance, trained.history), overwrite=True)
        if self.training.stop_reason is not None:
            self.forget()
        return trained

    def forget(self) -> None:
        """Remove the checkpoint."""
        checkpoint_of(self.output).unlink(missing_ok=True)

    def warnings(self, trained: Trained) -> list[str]:
        """What the user should know of the result, in sentences."""
        found = []
        if not trained.beats_canonical and METHODS[self.settings.learn.method].learns:
            which = "patches" if trained.held_out_cost is None else "held-out patches"
            found.append(
                f"{self.output} codes the {which} no better than {self.settings.canonical} alone; allow a larger"
                " --density or --max-condition, more --iterations, or give other pictures."
            )
        parts = self.parts.values()
        if 0 < sum(part.floats for part in parts) < sum(part.readable for part in parts):
            found.append(
                "Pictures of whole numbers and of floats were mixed; floats count in their own units, so check that"
                " white is about 255 in them."
            )
        return found

    def summary(self, trained: Trained) -> dict[str, Any]:
        """What a transform was made from and what it is worth; the same for the same settings, resumed or not."""
        training = self.training
        assert training is not None
        return {
            "pictures": self.pictures.readable,
            "held_out_pictures": self.held_out.readable,
            "unreadable": len(self.unreadable),
            "skipped": sum(part.collection.skipped for part in self.parts.values()),
            "patches": len(training.data.levels),
            "held_out_patches": 0 if training.validation is None else len(training.validation.levels),
            "mean_level": float(training.data.levels.mean()),
            "batches": training.batches,
            "iterations": len(trained.history),
            "best_iteration": trained.best_iteration,
            "stop_reason": trained.stop_reason,
            "coded_patches": trained.coded_patches,
            "cost": trained.cost,
            "canonical_cost": trained.canonical_cost,
            "held_out_cost": trained.held_out_cost,
            "held_out_canonical_cost": trained.held_out_canonical_cost,
        }

    def report(self, trained: Trained) -> dict[str, Any]:
        """Everything about the training, for JSON."""
        history = [asdict(record) for record in trained.history]
        for record, cost in zip(history, trained.held_out, strict=False):
            record["held_out_cost"] = cost
        return {
            "settings": self.settings.facts(),
            "output": str(self.output),
            "transform": trained.transform.facts(),
            "summary": {**self.summary(trained), "seconds": self.seconds},
            "history": history,
            "errors": self.unreadable,
        }

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

    def _begun(self) -> Training:
        """The training with its first transform, or the one that was learnt so far."""
        held_out = self._taken(self.held_out) if self.held_out.collection.files else None
        training = Training(self._taken(self.pictures), self.settings, held_out)
        if self._stopped:
            self._restored(lambda: training.restore(self._stopped))
        else:
            training.begin()
        self.training = training
        return training

    def _taken(self, part: SampledPictures) -> TrainingSet:
        """The sample of a part to learn from."""
        return TrainingSet.from_patches(part.sample.patches(), self.settings)

    def _facts(self) -> dict[str, Any]:
        """What must be the same when a training goes on."""
        fingerprints = {name: part.collection.fingerprint() for name, part in self.parts.items()}
        return {"settings": self.settings.facts(), "pictures": fingerprints}

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
