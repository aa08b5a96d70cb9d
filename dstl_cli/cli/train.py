"""`dstl train`: a transform learnt from collections of pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.command import EVERYDAY, EXPERTS, FILES, LEARNING, OUTPUT
from dstl_cli.cli.console import progress_bar, report_error
from dstl_cli.cli.options import option
from dstl_cli.errors import DstlError, Interrupted, UsageProblem
from dstl_cli.learning.collection_settings import CollectionSettings
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import STEP_RULES

if TYPE_CHECKING:
    from dstl_cli.learning.on_collection import Trained
    from dstl_cli.run.training import SampledPictures, TrainRun

ALGORITHM_1 = "Algorithm 1 of the paper (--method dsect)"
DEFAULTS = CollectionSettings()


def setting(panel: str, help: str, name: str, *, shown: str | None = None, metavar: str | None = None) -> Any:
    """An option for a setting, with its default and, where not all methods have it, those that do."""
    owners = [entry.name for entry in METHODS if name in entry.uses]
    if owners and panel != ALGORITHM_1:
        help = f"{help} For {', '.join(owners)}."
    value = getattr(DEFAULTS, name, getattr(DEFAULTS.learn, name, None))
    default = f"{value:g}" if isinstance(value, float) else str(value)
    return option(panel, help, shown=shown or default, metavar=metavar)


def train(
    inputs: Annotated[list[str], typer.Argument(metavar="PATH...", help="Pictures, folders with all below them.")],
    output: Annotated[Path, option(EVERYDAY, "The transform file to write.", "-o", "--output", metavar="T.npz")],
    validation: Annotated[
        list[str] | None,
        option(EVERYDAY, "Pictures held out of the learning, to measure the cost on; may be repeated.", metavar="PATH"),
    ] = None,
    sigma: Annotated[
        float | None,
        setting(EVERYDAY, "Learn for noise of this deviation: it sets how many coefficients a patch gets.", "sigma"),
    ] = None,
    resume: Annotated[bool, option(FILES, "Go on from the checkpoint of a stopped training.", "--resume")] = False,
    force: options.Force = False,
    method: Annotated[str | None, setting(LEARNING, "How the transform is learnt.", "method")] = None,
    canonical: options.Canonical = None,
    density: Annotated[
        float | None,
        setting(
            LEARNING,
            "Share of nonzero entries T may have.",
            "density",
            shown=f"{DEFAULTS.learn.density:g}; dsect: none, a penalty instead",
        ),
    ] = None,
    max_condition: Annotated[
        float | None, setting(LEARNING, "Bound on the condition number of T (rho).", "max_condition")
    ] = None,
    frobenius_norm: Annotated[
        float | None,
        setting(LEARNING, "Frobenius norm of T (tau).", "frobenius_norm", shown="root of half the pixels of a patch"),
    ] = None,
    sparsity_level: Annotated[
        int | None,
        setting(LEARNING, "Give every patch so many coefficients (r).", "sparsity_level", shown="as --sigma says"),
    ] = None,
    iterations: Annotated[int | None, setting(LEARNING, "Updates of T (M).", "iterations")] = None,
    patience: Annotated[
        int | None, setting(LEARNING, "Stop after so many updates without a better cost.", "patience")
    ] = None,
    l1_weight: Annotated[
        float | None,
        setting(ALGORITHM_1, "Weight of ||T||_1 (lambda), in units of the mean energy of a coefficient.", "l1_weight"),
    ] = None,
    homotopy_steps: Annotated[
        int | None, setting(ALGORITHM_1, "Updates over which lambda comes down (N_h).", "homotopy_steps")
    ] = None,
    clip: Annotated[float | None, setting(ALGORITHM_1, "Smaller entries of T become zero (eps).", "clip")] = None,
    freeze_at: Annotated[
        int | None, setting(ALGORITHM_1, "Update after which the zeros of T stay (K).", "freeze_at", shown="never")
    ] = None,
    step_rule: Annotated[
        str | None,
        setting(
            ALGORITHM_1,
            "Step along the gradient (alpha): the best one, or one over its Lipschitz constant.",
            "step_rule",
            metavar="|".join(STEP_RULES),
        ),
    ] = None,
    patch_size: Annotated[int | None, setting(EXPERTS, "Side of a patch in pixels.", "patch_size")] = None,
    train_patches: Annotated[
        int | None, setting(EXPERTS, "Patches sampled from all pictures together.", "train_patches")
    ] = None,
    batches: Annotated[
        int | None,
        setting(
            EXPERTS, "Parts of the sample, one of which an update codes.", "batches", shown="of about 5000 patches"
        ),
    ] = None,
    logdet_weight: Annotated[
        float | None, setting(EXPERTS, "Weight of the log-det penalty (lambda_0).", "logdet_weight")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: Annotated[bool, option(OUTPUT, "Show the learning, update by update.", "--verbose", "-v")] = False,
    debug: options.Debug = False,
) -> None:
    """Learn a transform from pictures, for `dstl denoise --transform`.

    Ctrl-C writes the best transform so far; --resume goes on from there.

    Example: dstl train pictures/ -o pictures.npz
    """
    given = {
        "method": method,
        "canonical": canonical,
        "patch_size": patch_size,
        "sigma": sigma,
        "sparsity_level": sparsity_level,
        "density": density,
        "max_condition": max_condition,
        "frobenius_norm": frobenius_norm,
        "l1_weight": l1_weight,
        "homotopy_steps": homotopy_steps,
        "clip": clip,
        "freeze_at": freeze_at,
        "step_rule": step_rule,
        "logdet_weight": logdet_weight,
        "iterations": iterations,
        "patience": patience,
        "train_patches": train_patches,
        "batches": batches,
        "seed": seed,
    }
    settings = options.checked(CollectionSettings.of, given, ("patch_size",))
    from dstl_cli.run.collections import find_collection
    from dstl_cli.run.training import TrainRun, check_unfinished, checkpoint_of

    resumed = check_unfinished(output, resume=resume, force=force)
    held_out = find_collection(validation or [])
    pictures = find_collection(inputs).without(held_out)
    for collection, where in ((pictures, inputs), (held_out, validation)):
        if where and not collection.files:
            raise UsageProblem(f"There are no pictures in {', '.join(where)}; give files or folders with pictures.")
    files = (*pictures.files, *held_out.files)
    options.check_outputs({"--output": output}, files, force=force or resumed)
    options.check_outputs({"--output": checkpoint_of(output)}, files, force=True)
    try:
        run = TrainRun(settings, output, pictures, held_out)
        if resumed:
            run.take_up()
        else:
            run.forget()
        _View(run, quiet=quiet or json, verbose=verbose).show(json=json)
    except MemoryError:
        raise DstlError("The sample does not fit into memory; lower --train-patches or --patch-size.") from None


class _View:
    """What a training says on the terminal."""

    def __init__(self, run: "TrainRun", *, quiet: bool, verbose: bool) -> None:
        self.run, self.quiet, self.verbose = run, quiet, verbose

    def show(self, *, json: bool) -> None:
        """Do the training and tell how it goes."""
        run = self.run
        with run.stoppable():
            self._read(run.pictures, "reading pictures")
            self._read(run.held_out, "reading held-out pictures")
            self._learn()
        trained = run.finish()
        if json:
            from dstl_cli.report.tables import to_json

            typer.echo(to_json("train", **run.report(trained)))
        elif not self.quiet:
            self._say_result(trained)
        if trained.stop_reason == "stopped":
            raise Interrupted(
                f"Interrupted after iteration {len(trained.history)} of {run.settings.learn.iterations}: "
                f"{run.output} holds the best transform so far; the same command with --resume goes on."
            )
        for sentence in run.warnings(trained):
            report_error(sentence)

    def _read(self, part: "SampledPictures", title: str) -> None:
        for sentence in part.collection.problems if part.read == 0 else ():
            report_error(sentence)
        with progress_bar(title, shown=not self.quiet and part.count > 0) as (progress, _):
            for file in self.run.read(part):
                if file.problem is not None:
                    report_error(file.problem)
                if progress is not None:
                    progress(part.read / part.count)

    def _learn(self) -> None:
        total, watched = self.run.settings.learn.iterations, self.run.held_out.count > 0
        if self.verbose:
            typer.echo(f"iteration         error  relative{'  held out' * watched}  condition  density", err=True)
        with progress_bar("learning", shown=not (self.quiet or self.verbose)) as (progress, describe):
            for record in self.run.learn():
                if progress is not None and self.run.training is not None:
                    cost = self.run.training.costs.costs[-1]
                    describe(f"cost {cost:.4f}  condition {record.condition:.3f}  density {record.density:.2f}")
                    progress(record.number / total)
                if self.verbose and self.run.training is not None:
                    held_out = f"  {self.run.training.held_out[-1]:8.5f}" if watched else ""
                    typer.echo(
                        f"{record.number:9d}  {record.error:12.6g}  {record.relative_error:8.5f}{held_out}"
                        f"  {record.condition:9.5g}  {record.density:7.3f}",
                        err=True,
                    )

    def _say_result(self, trained: "Trained") -> None:
        facts, transform = self.run.summary(trained), trained.transform
        phi, held_out = transform.canonical, ""
        if trained.held_out_cost is not None:
            held_out = f"; held out {trained.held_out_cost:.4f} ({phi} {trained.held_out_canonical_cost:.4f})"
        why = ", no better cost since" if trained.stop_reason == "no improvement" else ""
        typer.echo(
            f"{facts['pictures']} pictures, {facts['patches']} patches, {facts['iterations']} iterations{why} -> "
            f"{self.run.output}  ({self.run.seconds:.1f} s)"
        )
        typer.echo(
            f"cost {trained.cost:.4f} ({phi} {trained.canonical_cost:.4f}){held_out}; "
            f"condition {transform.condition:.4g}, density {transform.density:.3f}"
        )
        if facts["unreadable"] or facts["skipped"]:
            typer.echo(f"{facts['unreadable']} files not readable, {facts['skipped']} other files skipped.")
