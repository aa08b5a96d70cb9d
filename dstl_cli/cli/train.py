"""`dstl train`: a transform learnt from collections of pictures."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.base.progress import FilesDone
from dstl_cli.cli import options
from dstl_cli.cli.console import print_json, progress_bar, report_error, tell
from dstl_cli.cli.options import EVERYDAY, EXPERTS, FILES, LEARNING, OUTPUT, option
from dstl_cli.errors import DstlError, Interrupted, UsageProblem
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.settings import STEP_RULES, CollectionSettings

if TYPE_CHECKING:
    from dstl_cli.learning.on_collection import Trained
    from dstl_cli.picture.inputs import Selection
    from dstl_cli.run.collections import CollectionPart
    from dstl_cli.run.training import TrainRun

ALGORITHM_1 = "Algorithm 1 of the paper (--method dsect)"
DEFAULTS = CollectionSettings()


def setting(name: str, kind: type[Any], help: str, panel: str, *, shown: str = "", **more: Any) -> Any:
    """An option for a setting, with its default and, where not all methods have it, those that do."""
    owners = [entry.name for entry in METHODS if name in entry.uses]
    if owners and panel != ALGORITHM_1:
        help = f"{help} For {', '.join(owners)}."
    value = getattr(DEFAULTS, name, getattr(DEFAULTS.learn, name, None))
    default = f"{value:g}" if isinstance(value, float) else str(value)
    return options.setting(name, kind, help, panel=panel, shown=shown or default, **more)


DENSITY = f"{DEFAULTS.learn.density:g}; dsect: none, a penalty instead"
L1_HELP = "Weight of ||T||_1 (lambda), in units of the mean energy of a coefficient."
STEP_HELP = "Step along the gradient (alpha): the best one, or one over its Lipschitz constant."


@options.with_settings(
    setting("sigma", float, "Learn for noise of this deviation: it sets how many coefficients a patch gets.", EVERYDAY),
    setting("method", str, "How the transform is learnt.", LEARNING),
    setting("canonical", str, "The fixed factor of the transform.", LEARNING),
    setting("density", float, "Share of nonzero entries T may have.", LEARNING, shown=DENSITY),
    setting("max_condition", float, "Bound on the condition number of T (rho).", LEARNING),
    setting(
        "frobenius_norm", float, "Frobenius norm of T (tau).", LEARNING, shown="root of half the pixels of a patch"
    ),
    setting("sparsity_level", int, "Give every patch so many coefficients (r).", LEARNING, shown="as --sigma says"),
    setting("iterations", int, "Updates of T (M).", LEARNING),
    setting("patience", int, "Stop after so many updates without a better cost.", LEARNING),
    setting("l1_weight", float, L1_HELP, ALGORITHM_1),
    setting("homotopy_steps", int, "Updates over which lambda comes down (N_h).", ALGORITHM_1),
    setting("clip", float, "Smaller entries of T become zero (eps).", ALGORITHM_1),
    setting("freeze_at", int, "Update after which the zeros of T stay (K).", ALGORITHM_1, shown="never"),
    setting("step_rule", str, STEP_HELP, ALGORITHM_1, metavar="|".join(STEP_RULES)),
    setting("patch_size", int, "Side of a patch in pixels.", EXPERTS),
    setting(
        *("train_patches", int, "Patches sampled from all pictures together.", EXPERTS),
        shown=f"{DEFAULTS.train_patches}; all with --scheduler",
    ),
    setting(
        "batches", int, "Parts of the sample, one of which an update codes.", EXPERTS, shown="of about 5000 patches"
    ),
    setting("logdet_weight", float, "Weight of the log-det penalty (lambda_0).", EXPERTS),
)
def train(
    *,
    inputs: Annotated[list[str], typer.Argument(metavar="PATH...", help="Pictures, folders with all below them.")],
    output: Annotated[Path, option(EVERYDAY, "The transform file to write.", "-o", "--output", metavar="T.npz")],
    validation: Annotated[
        list[str] | None,
        option(EVERYDAY, "Pictures held out of the learning, to measure the cost on; may be repeated.", metavar="PATH"),
    ] = None,
    resume: Annotated[bool, option(FILES, "Go on from the checkpoint of a stopped training.", "--resume")] = False,
    force: options.Force = False,
    settings: Mapping[str, Any],
    seed: options.Seed = 0,
    scheduler: options.Scheduler = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: Annotated[bool, option(OUTPUT, "Show the learning, update by update.", "--verbose", "-v")] = False,
    trust_files: options.TrustFiles = False,
    debug: options.Debug = False,
) -> None:
    """Learn a transform from pictures, for `dstl denoise --transform`.

    Ctrl-C writes the best transform so far; --resume goes on from there.

    Example: dstl train pictures/ -o pictures.npz
    """
    chosen = options.checked(CollectionSettings.of, {**settings, "seed": seed})
    from dstl_cli.run.collections import files_of, find_collection, without
    from dstl_cli.run.training import TrainRun, check_unfinished, checkpoint_of

    resumed = check_unfinished(output, resume=resume, force=force)
    held_out = find_collection(validation or [])
    pictures = without(find_collection(inputs), held_out)
    for collection, where in ((pictures, inputs), (held_out, validation)):
        if where and not collection.inputs:
            raise UsageProblem(f"There are no pictures in {', '.join(where)}; give files or folders with pictures.")
    files = files_of(pictures) + files_of(held_out)
    options.check_outputs({"--output": output}, files, force=force or resumed)
    options.check_outputs({"--output": checkpoint_of(output)}, files, force=True)
    every = settings["train_patches"] is None
    try:
        with _parts(chosen, pictures, held_out, scheduler, every=every, trusted=trust_files) as (settled, *parts):
            run = TrainRun(settled, output, *parts)
            (run.take_up if resumed else run.forget)()
            _show(run, quiet=quiet or json, verbose=verbose, json=json)
    except MemoryError:
        raise DstlError("The sample does not fit into memory; lower --train-patches or --patch-size.") from None
    except ValueError as error:
        raise DstlError(f"The sample cannot be learnt from: {error}") from error


@contextmanager
def _parts(
    settings: CollectionSettings,
    pictures: "Selection",
    held_out: "Selection",
    scheduler: str | None,
    *,
    every: bool,
    trusted: bool,
) -> Iterator[tuple[CollectionSettings, "CollectionPart", "CollectionPart"]]:
    """The settings and both parts of a training: a sample in this process, or shards on the workers of a scheduler.

    Where there are workers: every: whether all patches are learnt from; trusted: whether they decode files themselves.
    """
    if scheduler is None:
        from dstl_cli.run.collections import sampled

        learnt_from, beside = sampled(settings, pictures, held_out)
        yield settings, learnt_from, beside
        return
    from dstl_cli.run.cluster import connected
    from dstl_cli.run.sharded import OnWorkers, in_shards

    wanted = None if every else settings.train_patches
    with connected(scheduler, trusted=trusted) as cluster:
        cluster.checked_workers()  # here Ctrl-C ends the waiting; later it asks for the end of the training
        yield options.checked(
            lambda **given: in_shards(settings, pictures, held_out, OnWorkers(cluster), wanted=wanted), {}, ("batches",)
        )


def _show(run: "TrainRun", *, quiet: bool, verbose: bool, json: bool) -> None:
    """Do the training and tell how it goes."""
    with run.stoppable():
        _read(run, run.pictures, "reading pictures", quiet)
        _read(run, run.held_out, "reading held-out pictures", quiet)
        _learn(run, quiet, verbose)
    trained = run.finish()
    if json:
        print_json("train", **run.report(trained))
    elif not quiet:
        _say_result(run, trained)
    if trained.stop_reason == "stopped":
        raise Interrupted(
            f"Interrupted after iteration {len(trained.history)} of {run.settings.learn.iterations}: "
            f"{run.output} holds the best transform so far; the same command with --resume goes on."
        )
    for sentence in run.warnings(trained):
        report_error(sentence)


def _read(run: "TrainRun", part: "CollectionPart", title: str, quiet: bool) -> None:
    for _, sentence in part.collection.problems if part.read == 0 else ():
        report_error(sentence)
    from dstl_cli.picture.inputs import size_of

    inputs = part.collection.inputs
    files = FilesDone(part.count, part.read, sum(map(size_of, inputs[: part.read])), len(part.unreadable))
    with progress_bar(title, shown=not quiet and part.count > 0) as (progress, describe):
        for problem, item in zip(run.read(part), inputs[part.read :], strict=False):
            if problem is not None:
                report_error(problem)
            describe(f"{title}: {files.add(size_of(item), failed=problem is not None)}")
            progress(part.read / part.count)


def _learn(run: "TrainRun", quiet: bool, verbose: bool) -> None:
    if verbose:
        held_out = "  held out" if run.held_out.count else ""
        tell(f"iteration         error  relative{held_out}  condition  density", to_stderr=True)
    with progress_bar("learning", shown=not (quiet or verbose)) as (progress, describe):
        for training in run.learn():
            record = training.history[-1]
            cost = training.costs[-1]
            describe(f"cost {cost:.4f}  condition {record.condition:.3f}  density {record.density:.2f}")
            progress(record.number / training.iterations)
            if verbose:
                held_out = f"  {training.held_out[-1]:8.5f}" if training.held_out else ""
                tell(
                    f"{record.number:9d}  {record.error:12.6g}  {record.relative_error:8.5f}{held_out}"
                    f"  {record.condition:9.5g}  {record.density:7.3f}",
                    to_stderr=True,
                )


def _say_result(run: "TrainRun", trained: "Trained") -> None:
    facts, transform = run.summary(trained), trained.transform
    phi, held_out = transform.canonical, ""
    if trained.held_out_cost is not None:
        held_out = f"; held out {trained.held_out_cost:.4f} ({phi} {trained.held_out_canonical_cost:.4f})"
    why = ", no better cost since" if trained.stop_reason == "no improvement" else ""
    tell(
        f"{facts['pictures']} pictures, {facts['patches']} patches, {facts['iterations']} iterations{why} -> "
        f"{run.output}  ({run.seconds:.1f} s)"
    )
    tell(
        f"cost {trained.cost:.4f} ({phi} {trained.canonical_cost:.4f}){held_out}; "
        f"condition {transform.condition:.4g}, density {transform.density:.3f}"
    )
    if facts["unreadable"] or facts["skipped"]:
        tell(f"{facts['unreadable']} files not readable, {facts['skipped']} other files skipped.")
