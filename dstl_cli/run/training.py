"""A training from picture files to a transform file, with checkpoints on the way; it says nothing to anyone."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from dstl_cli.base.archives import entries_under, named_under, open_archive
from dstl_cli.base.arrays import Arrays
from dstl_cli.base.atomic import atomic_output, writing_errors
from dstl_cli.base.names import display_name
from dstl_cli.base.threads import one_blas_thread
from dstl_cli.errors import DstlError, FileProblem, Interrupted, UsageProblem
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_collection import Trained, Training
from dstl_cli.learning.settings import CollectionSettings
from dstl_cli.run.collections import PROGRESS, CollectionPart, fingerprint
from dstl_cli.transforms.files import TransformFile, save_transform

FORMAT = 2  # of checkpoints
FACTS = "checkpoint"  # the entry with everything that is not an array, as JSON
CHECKPOINT = ".checkpoint"  # what is added to the output's name
CHECKPOINT_SECONDS = 10.0  # between two checkpoints, and longer where writing one takes long
WRITING_SHARE = 0.05  # of the time, at most, for writing checkpoints
COSTS = ("cost", "canonical_cost", "held_out_cost", "held_out_canonical_cost")
OF_THE_RESULT = ("best_iteration", "stop_reason", "coded_patches", *COSTS)  # what is told of it in every summary


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
    unfinished, name = os.path.lexists(checkpoint), display_name(checkpoint)
    if unfinished and not (resume or force):
        raise UsageProblem(f"{name} holds an unfinished training; use --resume to go on or --force to begin anew.")
    if resume and not unfinished and os.path.lexists(output):
        done = f"{display_name(output)} exists and no training of it is unfinished"
        raise UsageProblem(f"{done}; use --force to train it anew.")
    return resume and unfinished


class TrainRun:
    """One training: `take_up` if it was stopped before; `read` both parts and `learn`, `stoppable`; `finish`.

    `read` and `learn` yield after every file and update. Once asked to stop they end there, and all that was done is in
    the checkpoint.
    """

    def __init__(
        self, settings: CollectionSettings, output: Path, pictures: CollectionPart, held_out: CollectionPart
    ) -> None:
        self.settings, self.output = settings, output
        self.pictures, self.held_out = pictures, held_out
        self.parts = {"pictures": self.pictures, "held_out": self.held_out}
        self.training: Training | None = None
        self.stop_asked = False
        self._stopped: Arrays = {}  # the state of the learning that was stopped
        self._started = self._saved_at = monotonic()
        self._saving = 0.0

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return monotonic() - self._started

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and SIGHUP ask for the end at the next good place; a second one ends at once."""
        main = threading.current_thread() is threading.main_thread()
        numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if main and hasattr(signal, name)]
        before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}

        def back() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def ask(number: int, frame: object) -> None:
            self.stop_asked = True
            back()

        try:
            for number in before:  # those that end the program, which it does not where they are ignored
                signal.signal(number, ask)
            yield
        finally:
            back()

    def read(self, part: CollectionPart) -> Iterator[str | None]:
        """Sample the patches of the files that have not been read yet; of each, what is wrong with it."""
        for problem in part.read_on():
            yield problem
            if self._stops():
                done = f"{part.read} of {part.count} files"
                raise Interrupted(f"Interrupted after reading {done}; the same command with --resume goes on.")
        if part.count and not part.filled:
            self.forget()
            raise UsageProblem(part.why_empty(self.settings))

    def learn(self) -> Iterator[Training]:
        """Update the first transform, or the one that was learnt so far, until there is no further step."""
        held_out = self.held_out.patches() if self.held_out.count else None
        training = Training(self.pictures.patches(), self.settings, held_out)
        if self._stopped:
            with self._readable():
                training.restore(self._stopped)
        else:
            training.begin()
        self.training = training
        while training.stop_reason is None:
            with self._readable() if self._stopped else nullcontext():  # a hostile state fails here too
                training.step()
            yield training
            if self._stops():
                return

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
        checkpoint = checkpoint_of(self.output)
        try:
            checkpoint.unlink(missing_ok=True)
        except OSError as error:
            if not os.path.lexists(checkpoint):  # nothing to remove, where nothing can be written either
                with writing_errors(self.output):
                    raise
            reason = f"{display_name(checkpoint)} cannot be removed ({error.strerror or error})"
            raise FileProblem(f"{reason}; it is not needed any more, remove it.") from None

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
                "Pictures of 8 or 16 bits and of floats, signed or 32-bit numbers were mixed; the latter count in"
                " their own units, so check that white is about 255 in them."
            )
        return found

    def summary(self, trained: Trained) -> dict[str, Any]:
        """What a transform was made from and what it is worth; the same for the same settings, resumed or not."""
        training = self.training
        assert training is not None
        sources = {
            "pictures": self.pictures.readable,
            "held_out_pictures": self.held_out.readable,
            "unreadable": sum(len(part.unreadable) for part in self.parts.values()),
            "skipped": sum(part.collection.skipped for part in self.parts.values()),
            "patches": training.data.count,
            "held_out_patches": 0 if training.validation is None else training.validation.count,
            "mean_level": training.data.mean_level,
            "batches": training.batches,
            "iterations": len(trained.history),
        }
        return sources | {key: getattr(trained, key) for key in OF_THE_RESULT}

    def report(self, trained: Trained) -> dict[str, Any]:
        """Everything about the training, for JSON."""
        records: list[dict[str, Any]] = [asdict(record) for record in trained.history]
        costs = [{"held_out_cost": cost} for cost in trained.held_out] or [{}] * len(records)
        return {
            "settings": self.settings.facts(),
            "output": str(self.output),
            "transform": trained.transform.facts(),
            "summary": {**self.summary(trained), "seconds": self.seconds},
            "history": [record | cost for record, cost in zip(records, costs, strict=True)],
            "errors": self.pictures.unreadable + self.held_out.unreadable,
        }

    def save(self) -> None:
        """Write the checkpoint, complete or not at all: `.npz`, readable with numpy alone and never pickled."""
        start = monotonic()
        progress = {name: {key: getattr(part, key) for key in PROGRESS} for name, part in self.parts.items()}
        states = {name: part.state() for name, part in self.parts.items()}
        if self.training is not None:
            states["training"] = self.training.state()
        arrays = {key: value for name, state in states.items() for key, value in named_under(name, state).items()}
        facts = {"format": FORMAT, **self._facts(), "progress": progress}
        entries: dict[str, Any] = {FACTS: np.str_(json.dumps(facts, sort_keys=True)), **arrays}
        with atomic_output(checkpoint_of(self.output), overwrite=True) as stream:
            np.savez(stream, **entries)
        self._saved_at = monotonic()
        self._saving = self._saved_at - start

    def take_up(self) -> None:
        """Go on from the checkpoint; one of another training is refused."""
        checkpoint = checkpoint_of(self.output)
        with self._readable():
            with open_archive(checkpoint) as entries:
                arrays = {key: np.asarray(entries[key]) for key in entries.files}
            facts = json.loads(str(arrays.pop(FACTS)))
            if facts["format"] != FORMAT:
                raise ValueError("another format")
        now = json.loads(json.dumps(self._facts()))  # as it comes back
        for key, words in (("settings", "other settings"), ("pictures", "other pictures")):
            if facts.get(key) != now[key]:
                sentence = f"was made with {words}; give the same ones, or --force to begin anew."
                raise UsageProblem(f"{display_name(checkpoint)} {sentence}")
        with self._readable():
            for key, part in self.parts.items():
                part.restore(facts["progress"][key], entries_under(key, arrays))
        self._stopped = entries_under("training", arrays)

    def _facts(self) -> dict[str, Any]:
        """What must be the same when a training goes on."""
        fingerprints = {name: fingerprint(part.collection) for name, part in self.parts.items()}
        shards = {f"{name}_shards": part.shards for name, part in self.parts.items() if part.shards}
        return {"settings": self.settings.facts() | shards, "pictures": fingerprints}

    def _stops(self) -> bool:
        """Whether to end here, as was asked; the checkpoint is written then, and where it is due."""
        due = monotonic() - self._saved_at > max(CHECKPOINT_SECONDS, self._saving / WRITING_SHARE)
        if due or self.stop_asked:
            self.save()
        return self.stop_asked

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Whatever is wrong with the checkpoint is told in one sentence."""
        name = display_name(checkpoint_of(self.output))
        try:
            yield
        except OSError as error:
            raise FileProblem(f"{name} cannot be read ({error.strerror or error}); check the file.") from None
        except MemoryError:  # no reason to give up a training
            raise FileProblem(f"{name} does not fit into memory; close other programs.") from None
        except DstlError:
            raise
        except Exception:  # a damaged or hostile archive can make the zip and array readers raise anything
            raise FileProblem(f"{name} is not a usable checkpoint; use --force to begin anew.") from None
