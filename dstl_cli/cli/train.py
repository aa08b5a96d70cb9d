"""`dstl train`: a transform learnt from collections of pictures."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import progress_bar, report_error
from dstl_cli.errors import DstlError, Interrupted, UsageProblem
from dstl_cli.train_config import TrainConfig

if TYPE_CHECKING:
    from dstl_cli.train_run import Part, TrainRun
    from dstl_cli.training import Trained, Training

FILES, LEARNING, OUTPUT = "Files", options.LEARNING, options.OUTPUT
DEFAULTS = TrainConfig()
DEFAULT_METHOD = options.Method(DEFAULTS.learn.method)


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
    quiet: options.Quiet = False,
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
    config = options.checked(
        TrainConfig.of,
        {
            "method": str(method), "patch_size": patch_size, "density": density, "max_condition": max_condition,
            "sigma": sigma, "sparsity_level": sparsity_level, "iterations": iterations, "patience": patience,
            "train_patches": train_patches, "batches": batches, "seed": seed,
        },
    )  # fmt: skip
    from dstl_cli.files.collections import find_collection
    from dstl_cli.train_run import TrainRun, checkpoint_of

    _check_places(output, resume=resume, force=force)
    held_out = find_collection(validation or [])
    pictures = find_collection(inputs).without(held_out)
    for collection, where in ((pictures, inputs), (held_out, validation)):
        if where and not collection.files:
            raise UsageProblem(f"There are no pictures in {', '.join(where)}; give files or folders with pictures.")
    resumed = resume and os.path.lexists(checkpoint_of(output))
    options.check_outputs({"--output": output}, (*pictures.files, *held_out.files), force=force or resumed)
    try:
        run = TrainRun(config, output, pictures, held_out)
        if resumed:
            run.take_up()
        else:
            run.close()
        _Account(run, json=json, quiet=quiet or json, verbose=verbose).go()
    except MemoryError:
        raise DstlError("The sample does not fit into memory; lower --train-patches or --patch-size.") from None


def _check_places(output: Path, *, resume: bool, force: bool) -> None:
    """Refuse what would lose an older transform or an unfinished training."""
    from dstl_cli.files.names import display_name
    from dstl_cli.train_run import checkpoint_of

    if output.name in ("", "-", ".."):
        raise UsageProblem("--output takes the name of a file such as pictures.npz.")
    if resume and force:
        raise UsageProblem("--resume goes on from a checkpoint and --force begins anew; give one of them.")
    if force:
        return
    checkpoint = checkpoint_of(output)
    unfinished = os.path.lexists(checkpoint)
    if unfinished and not resume:
        raise UsageProblem(
            f"{display_name(checkpoint)} holds an unfinished training; use --resume to go on or --force to begin anew."
        )
    if resume and not unfinished and os.path.lexists(output):
        raise UsageProblem(
            f"{display_name(output)} exists and no training of it is unfinished; use --force to train it anew."
        )


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


class _Account:
    """Does a training and says how it goes."""

    def __init__(self, run: "TrainRun", *, json: bool, quiet: bool, verbose: bool) -> None:
        self.run, self.json, self.quiet, self.verbose = run, json, quiet, verbose
        self.started = perf_counter()

    def go(self) -> None:
        """Read, learn, write."""
        with _stoppable() as stop:
            self._read(self.run.pictures, "PATH", stop)
            self._read(self.run.held_out, "--validation", stop)
            training = self._learn(stop)
        trained = self.run.write()
        if not self.quiet:
            self._say_result(trained)
        if self.json:
            typer.echo(self._report(trained))
        if training.stop_reason is None:
            raise Interrupted(
                f"Interrupted after iteration {len(trained.history)} of {training.iterations}: "
                f"{self.run.output} holds the best transform so far; the same command with --resume goes on."
            )
        self._warn(trained)
        self.run.close()

    def _read(self, part: "Part", option: str, stop: _Stop) -> None:
        """Sample the patches of the pictures that were given with an option."""
        count = len(part.collection.files)
        if not count:
            return
        if part.read == 0:
            for sentence in part.collection.problems:
                report_error(sentence)
        title = "reading pictures" if part is self.run.pictures else "reading held-out pictures"
        with progress_bar(title, shown=not self.quiet) as (progress, _):
            for file in self.run.read(part):
                if file.problem is not None:
                    report_error(file.problem)
                if progress is not None:
                    progress(part.read / count)
                if stop.asked:
                    self.run.save()
                    raise Interrupted(
                        f"Interrupted after reading {part.read} of {count} files; "
                        "the same command with --resume goes on."
                    )
        if not part.sample.filled:
            self.run.close()
            raise UsageProblem(_why_empty(part, option, self.run.config))

    def _learn(self, stop: _Stop) -> "Training":
        """Update the transform until the training ends or is stopped."""
        training = self.run.begin()
        if self.verbose:
            held_out = "  held out" if training.validation is not None else ""
            typer.echo(f"iteration         error  relative{held_out}  condition  density", err=True)
        with progress_bar("learning", shown=not (self.quiet or self.verbose)) as (progress, describe):
            for record in self.run.learn():
                cost = training.watch.costs[-1]
                describe(f"cost {cost:.4f}  condition {record.condition:.3f}  density {record.density:.2f}")
                if progress is not None:
                    progress(record.number / training.iterations)
                if self.verbose:
                    held_out = f"  {training.held_out[-1]:8.5f}" if training.validation is not None else ""
                    typer.echo(
                        f"{record.number:9d}  {record.error:12.6g}  {record.relative_error:8.5f}{held_out}"
                        f"  {record.condition:9.5g}  {record.density:7.3f}",
                        err=True,
                    )
                if stop.asked:
                    break
        if training.stop_reason is None:
            self.run.save()
        return training

    def _say_result(self, trained: "Trained") -> None:
        facts, transform = self.run.summary(trained), trained.transform
        held_out = ""
        if trained.held_out_cost is not None:
            held_out = f"; held out {trained.held_out_cost:.4f} (DCT {trained.held_out_dct_cost:.4f})"
        why = ", no better cost since" if trained.stop_reason == "no improvement" else ""
        typer.echo(
            f"{facts['pictures']} pictures, {facts['patches']} patches, {facts['iterations']} iterations{why} -> "
            f"{self.run.output}  ({perf_counter() - self.started:.1f} s)"
        )
        typer.echo(
            f"cost {trained.cost:.4f} (DCT {trained.dct_cost:.4f}){held_out}; "
            f"condition {transform.condition:.4g}, density {transform.density:.3f}"
        )
        if facts["unreadable"] or facts["skipped"]:
            typer.echo(f"{facts['unreadable']} files not readable, {facts['skipped']} other files skipped.")

    def _warn(self, trained: "Trained") -> None:
        if not trained.beats_dct and self.run.config.learn.method != "dct":
            which = "patches" if trained.held_out_cost is None else "held-out patches"
            report_error(
                f"{self.run.output} codes the {which} no better than the DCT; allow a larger --density or "
                "--max-condition, more --iterations, or give other pictures."
            )
        parts = self.run.parts.values()
        if 0 < sum(part.floats for part in parts) < sum(part.readable for part in parts):
            report_error(
                "Pictures of whole numbers and of floats were mixed; floats count in their own units, so check that"
                " white is about 255 in them."
            )

    def _report(self, trained: "Trained") -> str:
        """The JSON document."""
        from dstl_cli.files.reports import to_json

        transform = trained.transform
        history = [asdict(record) for record in trained.history]
        for record, cost in zip(history, trained.held_out, strict=False):
            record["held_out_cost"] = cost
        return to_json(
            "train", settings=asdict(self.run.config), output=str(self.run.output),
            transform={
                "method": transform.method, "patch_size": transform.patch_size, "condition": transform.condition,
                "density": transform.density, "frobenius_norm": transform.frobenius_norm,
            },
            summary={**self.run.summary(trained), "seconds": perf_counter() - self.started},
            history=history, errors=self.run.unreadable,
        )  # fmt: skip


def _why_empty(part: "Part", option: str, config: TrainConfig) -> str:
    """Why the pictures of an option gave no patch."""
    if not part.readable:
        return f"None of the {part.read} files of {option} can be learnt from; give other pictures."
    if config.sparsity_level is None:
        return (
            f"No patch of {option} stands out of noise of deviation {config.sigma:g}; give a smaller --sigma"
            " (float pictures have it in their own units)."
        )
    return f"The pictures of {option} are flat: there is nothing to learn; give other pictures."
