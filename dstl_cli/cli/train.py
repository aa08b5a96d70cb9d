"""`dstl train`: a transform learnt from collections of pictures."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import progress_bar, report_error
from dstl_cli.errors import DstlError, Interrupted, UsageProblem
from dstl_cli.train_config import TrainConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dstl_cli.files.collections import Collection
    from dstl_cli.training import Trained, Training, TrainingSet

    Arrays = dict[str, NDArray[Any]]

FILES, LEARNING, OUTPUT = "Files", options.LEARNING, options.OUTPUT
DEFAULTS = TrainConfig()
DEFAULT_METHOD = options.Method(DEFAULTS.learn.method)
CHECKPOINT = ".checkpoint"  # what is added to the output's name
CHECKPOINT_SECONDS = 10.0  # between two checkpoints, and longer where writing one takes long
WRITING_SHARE = 0.05  # of the time, at most, for writing checkpoints


def train(
    inputs: Annotated[list[str], typer.Argument(metavar="PATH...", help="Pictures, folders with all below them.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The transform file (.npz) to write.", rich_help_panel=FILES)
    ],
    validation: Annotated[
        list[str] | None,
        typer.Option(
            help="Pictures or a folder held out of the learning, to measure the cost on; may be repeated.",
            rich_help_panel=FILES,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint of a stopped training.", rich_help_panel=FILES)
    ] = False,
    force: options.Force = False,
    method: Annotated[
        options.Method, typer.Option(help="How the transform is learnt.", rich_help_panel=LEARNING)
    ] = DEFAULT_METHOD,
    patch_size: Annotated[int, typer.Option(help="Side of a patch in pixels.", rich_help_panel=LEARNING)] = (
        DEFAULTS.patch_size
    ),
    density: Annotated[
        float | None,
        typer.Option(
            help="Share of nonzero entries the learnt factor may have.",
            show_default=f"{DEFAULTS.learn.density:g}, where the method knows it",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    max_condition: Annotated[
        float | None,
        typer.Option(
            help="Bound on the condition number of the transform.",
            show_default=f"{DEFAULTS.learn.max_condition:g}, where the method knows it",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Learn for noise of this deviation: it sets how many coefficients each patch gets.",
            show_default=f"{DEFAULTS.sigma:g}",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    sparsity_level: Annotated[
        int | None,
        typer.Option(help="Give every patch so many coefficients instead.", rich_help_panel=LEARNING),
    ] = None,
    iterations: Annotated[int, typer.Option(help="Updates of the transform.", rich_help_panel=LEARNING)] = (
        DEFAULTS.learn.iterations
    ),
    patience: Annotated[
        int, typer.Option(help="Stop after so many updates without a better cost.", rich_help_panel=LEARNING)
    ] = DEFAULTS.patience,
    train_patches: Annotated[
        int, typer.Option(help="Patches sampled from all pictures together.", rich_help_panel=LEARNING)
    ] = DEFAULTS.train_patches,
    batches: Annotated[
        int | None,
        typer.Option(
            help="Parts of the sample, one of which each update codes.",
            show_default="of about 5000 patches",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing but errors.", rich_help_panel=OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the learning, update by update.", rich_help_panel=OUTPUT)
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Learn a transform from pictures, for `dstl denoise --transform`.

    Ctrl-C writes the best transform so far; --resume goes on from there.

    Example: dstl train pictures/ -o pictures.npz
    """
    if sigma is not None and sparsity_level is not None:
        raise UsageProblem("--sigma and --sparsity-level both set how many coefficients a patch gets; give one.")
    config = _config(
        {
            "method": str(method), "patch_size": patch_size, "density": density, "max_condition": max_condition,
            "sigma": sigma, "sparsity_level": sparsity_level, "iterations": iterations, "patience": patience,
            "train_patches": train_patches, "batches": batches, "seed": seed,
        }
    )  # fmt: skip
    _check_places(output, resume=resume, force=force)
    from dstl_cli.files.collections import find_collection

    held_out = find_collection(validation or [])
    pictures = find_collection(inputs).without(held_out)
    for collection, where in ((pictures, inputs), (held_out, validation)):
        if where and not collection.files:
            raise UsageProblem(f"There are no pictures in {', '.join(where)}; give files or folders with pictures.")
    resumed = resume and os.path.lexists(checkpoint_of(output))
    options.check_outputs({"--output": output}, (*pictures.files, *held_out.files), force=force or resumed)
    run = _Run(config, output, pictures, held_out, quiet=quiet or json, verbose=verbose)
    try:
        run.all(resumed=resumed)
    except MemoryError:
        raise DstlError("The sample does not fit into memory; lower --train-patches or --patch-size.") from None
    finally:
        if json and run.trained is not None:
            typer.echo(run.report())


def _config(settings: dict[str, Any]) -> TrainConfig:
    """The settings that were given over the defaults; a value out of range is a wrong usage."""
    given = {key: value for key, value in settings.items() if value is not None}
    try:
        return TrainConfig.of(**given)
    except ValueError as error:
        text = str(error)
        name = text.split(" ", 1)[0]
        raise UsageProblem(f"--{name.replace('_', '-')}{text[len(name) :]}" if name in given else text) from None


def checkpoint_of(output: Path) -> Path:
    """Where the state of an unfinished training is kept."""
    return output.with_name(output.name + CHECKPOINT)


def _check_places(output: Path, *, resume: bool, force: bool) -> None:
    """Refuse what would lose an older transform or an unfinished training."""
    from dstl_cli.files.names import display_name

    if output.name in ("", "-", ".."):
        raise UsageProblem("--output takes the name of a file such as pictures.npz.")
    checkpoint = checkpoint_of(output)
    name, unfinished = display_name(output), display_name(checkpoint)
    if resume and force:
        raise UsageProblem("--resume goes on from a checkpoint and --force begins anew; give one of them.")
    if force:
        return
    there = os.path.lexists(checkpoint)
    if there and not resume:
        raise UsageProblem(
            f"{unfinished} holds an unfinished training; use --resume to go on or --force to begin anew."
        )
    if resume and not there and os.path.lexists(output):
        raise UsageProblem(f"{name} exists and no training of it is unfinished; use --force to train it anew.")


class _Stop:
    """Whether the user asked for the end."""

    asked = False


@contextmanager
def _stoppable() -> Iterator[_Stop]:
    """Ctrl-C asks for the end at the next good place; a second Ctrl-C ends at once."""
    stop = _Stop()
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for background jobs
        yield stop
        return

    def ask(number: int, frame: object) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


class _Run:
    """Reads the pictures, learns, keeps checkpoints, writes the transform."""

    def __init__(
        self, config: TrainConfig, output: Path, pictures: "Collection", held_out: "Collection",
        *, quiet: bool, verbose: bool,
    ) -> None:  # fmt: skip
        from dstl_cli.training import PatchSample

        self.config, self.output, self.quiet, self.verbose = config, output, quiet, verbose
        self.collections = {"pictures": pictures, "held_out": held_out}
        self.samples = {
            "pictures": PatchSample.for_training(config),
            "held_out": PatchSample.for_validation(config),
        }
        self.read = {"pictures": 0, "held_out": 0}  # files
        self.floats = 0  # files that could be read and are in floating point
        self.unreadable: list[dict[str, str]] = []
        self.training: Training | None = None
        self.trained: Trained | None = None
        self.started = perf_counter()
        self.saved_at, self.saving = monotonic(), 0.0

    def all(self, *, resumed: bool) -> None:
        """Do everything there is to do, or go on with it."""
        learning = self._take_up() if resumed else None
        with _stoppable() as stop:
            for number, part in enumerate(self.collections):
                self._gather(part, number, stop)
            self._learn(learning, stop)
        assert self.training is not None
        unfinished = self.training.stop_reason is None
        if unfinished and not self.training.history:
            raise Interrupted("Interrupted before the first update; the same command with --resume goes on.")
        self._write()
        if unfinished:
            raise Interrupted(
                f"Interrupted after iteration {len(self.training.history)} of {self.training.iterations}: "
                f"{self.output} holds the best transform so far; the same command with --resume goes on."
            )
        checkpoint_of(self.output).unlink(missing_ok=True)

    # Reading

    def _gather(self, part: str, number: int, stop: _Stop) -> None:
        """Sample the patches of one collection, file by file."""
        from dstl_cli.files.collections import read_collection

        collection, sample = self.collections[part], self.samples[part]
        if not collection.files:
            return
        if self.read[part] == 0:
            for sentence in collection.problems:
                report_error(sentence)

        def visit(page: "NDArray[np.generic]", file: int, index: int) -> None:
            sample.add(page, number, file, index)

        title = "reading pictures" if part == "pictures" else "reading held-out pictures"
        with progress_bar(title, shown=not self.quiet) as (progress, _):
            for file in read_collection(collection, visit, start=self.read[part]):
                if file.problem is not None:
                    self.unreadable.append({"input": file.name, "error": file.problem})
                    report_error(file.problem)
                self.floats += file.floats and file.problem is None
                self.read[part] += 1
                if progress is not None:
                    progress(self.read[part] / len(collection.files))
                if stop.asked:
                    self._save()
                    raise Interrupted(
                        f"Interrupted after reading {self.read[part]} of {len(collection.files)} files; "
                        "the same command with --resume goes on."
                    )
                self._save_if_due()
        self._check_sample(part)

    def _check_sample(self, part: str) -> None:
        """Refuse a collection that gave nothing."""
        count, config = len(self.collections[part].files), self.config
        if self.samples[part].filled:
            return
        checkpoint_of(self.output).unlink(missing_ok=True)
        option = "PATH" if part == "pictures" else "--validation"
        unreadable = len([item for item in self.unreadable if item["input"] in self._names(part)])
        if unreadable == count:
            raise UsageProblem(f"None of the {count} files of {option} can be learnt from; give other pictures.")
        if config.sparsity_level is None:
            raise UsageProblem(
                f"No patch of {option} stands out of noise of deviation {config.sigma:g}; give a smaller --sigma"
                " (float pictures have it in their own units)."
            )
        raise UsageProblem(f"The pictures of {option} are flat: there is nothing to learn; give other pictures.")

    def _names(self, part: str) -> set[str]:
        from dstl_cli.files.names import display_name

        return {display_name(path) for path in self.collections[part].files}

    # Learning

    def _learn(self, state: "Arrays | None", stop: _Stop) -> None:
        """Update the transform until the training ends or is stopped."""
        from dstl_cli.training import Training, TrainingSet

        def taken(part: str) -> "TrainingSet":
            return TrainingSet.from_patches(self.samples[part].patches(), self.config)

        held_out = taken("held_out") if self.collections["held_out"].files else None
        training = Training(taken("pictures"), self.config, held_out)
        if state is None:
            training.begin()
        else:
            self._restored(lambda: training.restore(state))
        self.training = training
        if self.verbose:
            self._say_heading(training)
        with progress_bar("learning", shown=not (self.quiet or self.verbose)) as (progress, describe):
            while not stop.asked and training.stop_reason is None:
                record = training.step()
                share = record.number / training.iterations
                describe(
                    f"cost {training.costs[-1]:.4f}  condition {record.condition:.3f}  density {record.density:.2f}"
                )
                if progress is not None:
                    progress(share)
                if self.verbose:
                    self._say_record(training)
                self._save_if_due()
        if training.stop_reason is None:
            self._save()

    def _say_heading(self, training: "Training") -> None:
        held_out = "  held out" if training.validation is not None else ""
        typer.echo(f"iteration         error  relative{held_out}  condition  density", err=True)

    def _say_record(self, training: "Training") -> None:
        record = training.history[-1]
        held_out = f"  {training.held_out[-1]:8.5f}" if training.validation is not None else ""
        typer.echo(
            f"{record.number:9d}  {record.error:12.6g}  {record.relative_error:8.5f}{held_out}"
            f"  {record.condition:9.5g}  {record.density:7.3f}",
            err=True,
        )

    # Checkpoints

    def _facts(self) -> dict[str, Any]:
        """What must be the same when a training goes on."""
        return {
            "settings": asdict(self.config),
            "pictures": {part: collection.fingerprint() for part, collection in self.collections.items()},
        }

    def _save_if_due(self) -> None:
        if monotonic() - self.saved_at > max(CHECKPOINT_SECONDS, self.saving / WRITING_SHARE):
            self._save()

    def _save(self) -> None:
        """Write the checkpoint."""
        from dstl_cli.files.checkpoints import save_checkpoint

        start = monotonic()
        progress = {"read": self.read, "unreadable": self.unreadable, "floats": self.floats}
        arrays: Arrays = {}
        for part, sample in self.samples.items():
            arrays |= {f"{part}.{key}": value for key, value in sample.state().items()}
        if self.training is not None:
            arrays |= {f"training.{key}": value for key, value in self.training.state().items()}
        save_checkpoint(checkpoint_of(self.output), {**self._facts(), "progress": progress}, arrays)
        self.saved_at = monotonic()
        self.saving = self.saved_at - start

    def _take_up(self) -> "Arrays | None":
        """Go on from the checkpoint; returns the state of the learning if it had begun."""
        from dstl_cli.files.checkpoints import load_checkpoint
        from dstl_cli.files.names import display_name

        name = display_name(checkpoint_of(self.output))
        facts, arrays = load_checkpoint(checkpoint_of(self.output))
        now = _plain(self._facts())
        for key, words in (("settings", "other settings"), ("pictures", "other pictures")):
            if facts.get(key) != now[key]:
                raise UsageProblem(f"{name} was made with {words}; give the same ones, or --force to begin anew.")

        def restore() -> None:
            progress = facts["progress"]
            self.read = {part: int(progress["read"][part]) for part in self.read}
            self.floats = int(progress["floats"])
            self.unreadable = [{key: str(item[key]) for key in ("input", "error")} for item in progress["unreadable"]]
            for part, sample in self.samples.items():
                sample.restore(_under(part, arrays))

        self._restored(restore)
        return _under("training", arrays) or None

    def _restored(self, restore: Callable[[], None]) -> None:
        """Take up a part of the checkpoint; one that does not fit is told in one sentence."""
        from dstl_cli.files.checkpoints import unusable

        try:
            restore()
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise unusable(checkpoint_of(self.output)) from None

    # The result

    def _write(self) -> None:
        """Write the best transform so far and say what it is."""
        from dstl_cli.files.transforms import TransformFile, save_transform

        assert self.training is not None
        trained = self.trained = self.training.finish()
        stored = TransformFile(trained.transform, self._provenance(), trained.history)
        save_transform(self.output, stored, overwrite=True)
        if not self.quiet:
            self._say(trained)
        if trained.cost >= trained.dct_cost and self.config.learn.method != "dct":
            report_error(
                f"{self.output} codes the patches no better than the DCT; allow a larger --density or --max-condition, "
                "more --iterations, or other pictures."
            )
        if 0 < self.floats < self._readable("pictures") + self._readable("held_out"):
            report_error(
                "Pictures of whole numbers and of floats were mixed; floats count in their own units, so check that"
                " white is about 255 in them."
            )

    def _summary(self) -> dict[str, Any]:
        """What the transform was made from and what it is worth; the same for the same command, resumed or not."""
        trained, training = self.trained, self.training
        assert trained is not None
        assert training is not None
        return {
            "pictures": self._readable("pictures"), "held_out_pictures": self._readable("held_out"),
            "unreadable": len(self.unreadable), "skipped": sum(item.skipped for item in self.collections.values()),
            "patches": len(training.data.levels),
            "held_out_patches": 0 if training.validation is None else len(training.validation.levels),
            "mean_level": float(training.data.levels.mean()), "batches": training.batches,
            "iterations": len(trained.history), "best_iteration": trained.best_iteration,
            "stop_reason": trained.stop_reason, "coded_patches": trained.coded_patches,
            "cost": trained.cost, "dct_cost": trained.dct_cost,
            "held_out_cost": trained.held_out_cost, "held_out_dct_cost": trained.held_out_dct_cost,
        }  # fmt: skip

    def _readable(self, part: str) -> int:
        names = self._names(part)
        return len(names) - len({item["input"] for item in self.unreadable} & names)

    def _provenance(self) -> dict[str, Any]:
        return {"source": "train", "settings": asdict(self.config), **self._summary()}

    def _say(self, trained: "Trained") -> None:
        facts, transform = self._summary(), trained.transform
        held_out = ""
        if trained.held_out_cost is not None:
            held_out = f"; held out {trained.held_out_cost:.4f} (DCT {trained.held_out_dct_cost:.4f})"
        why = ", no better cost since" if trained.stop_reason == "no improvement" else ""
        typer.echo(
            f"{facts['pictures']} pictures, {facts['patches']} patches, {facts['iterations']} iterations{why} -> "
            f"{self.output}  ({perf_counter() - self.started:.1f} s)"
        )
        typer.echo(
            f"cost {trained.cost:.4f} (DCT {trained.dct_cost:.4f}){held_out}; "
            f"condition {transform.condition:.4g}, density {transform.density:.3f}"
        )
        if facts["unreadable"] or facts["skipped"]:
            typer.echo(f"{facts['unreadable']} files not readable, {facts['skipped']} other files skipped.")

    def report(self) -> str:
        """The JSON document."""
        from dstl_cli.files.reports import to_json

        trained = self.trained
        assert trained is not None
        transform = trained.transform
        history = [asdict(record) for record in trained.history]
        for record, cost in zip(history, trained.held_out, strict=False):
            record["held_out_cost"] = cost
        return to_json(
            "train", settings=asdict(self.config), output=str(self.output),
            transform={
                "method": transform.method, "patch_size": transform.patch_size, "condition": transform.condition,
                "density": transform.density, "frobenius_norm": transform.frobenius_norm,
            },
            summary={**self._summary(), "seconds": perf_counter() - self.started},
            history=history, errors=self.unreadable,
        )  # fmt: skip


def _under(prefix: str, arrays: "Arrays") -> "Arrays":
    """The arrays whose names begin with `prefix.`, without it."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts as they come back from JSON."""
    import json

    plain = json.loads(json.dumps(facts))
    assert isinstance(plain, dict)
    return plain
