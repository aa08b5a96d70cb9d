"""`dstl profile`: the noise of a camera from its pictures, as a model for `dstl denoise --noise`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.base.names import display_name
from dstl_cli.cli import options
from dstl_cli.cli.console import print_json, progress_bar, report_error, tell
from dstl_cli.cli.options import EVERYDAY, option

if TYPE_CHECKING:
    from dstl_cli.run.pooling import Profile, ProfileRun

MADE_SUFFIX = "_denoised"  # results of ours are not taken from folders


def profile(
    *,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="PICTURE...", help="Pictures of one camera and ISO, folders, patterns like '*.jpg'."),
    ],
    output: Annotated[Path, option(EVERYDAY, "The noise model to write.", "-o", "--output", metavar="FILE.json")],
    recursive: options.Recursive = False,
    force: options.Force = False,
    plot: options.Plot = None,
    jobs: options.Jobs = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    trust_files: options.TrustFiles = False,
    debug: options.Debug = False,
) -> None:
    """Measure the noise of a camera over several pictures, for `dstl denoise --noise FILE.json`.

    Pictures of an even surface (a grey card, a wall out of focus, in several exposures) tell most and are used alone.

    Example: dstl profile shots/*.jpg -o camera.json
    """
    options.check_noise_output("--output", output)
    from dstl_cli.picture.inputs import find_inputs
    from dstl_cli.run.noise import save_noise
    from dstl_cli.run.pooling import ProfileRun

    found = find_inputs(inputs, recursive=recursive, made_suffix=MADE_SUFFIX)
    files = [item.path for item in found.inputs if isinstance(item.path, Path)]
    options.check_plot(plot, files, force=force)
    options.check_outputs({"--output": output, "--plot": plot}, files, force=force)
    run = ProfileRun(found, jobs)
    with progress_bar("profile", shown=not (quiet or json)) as (progress, describe):
        for sentence in run.read(progress, describe):
            report_error(sentence)
    made = run.finish()
    save_noise(output, made.pool.model, made.made_from, overwrite=force)
    if plot is not None:
        from dstl_cli.report.plots import plot_noise

        plot_noise(made.pool.model, display_name(output.name), plot, units=made.kind.units, overwrite=force)
    if json:
        print_json("profile", output=str(output), **_report(run, made))
    elif not quiet:
        _say_result(run, made, output, plot)
    if run.errors:
        raise typer.Exit(1)


def _say_result(run: "ProfileRun", made: "Profile", output: Path, plot: Path | None) -> None:
    """What was found, over how many pictures, and how far they agree."""
    what = _counted(len(made.pages), "flat field" if made.flat_fields else "picture")
    words = (f"{display_name(output)}: {made.pool.model.describe()}, from {what}", made.pool.describe())
    tell(", ".join(filter(None, words)))
    if made.unneeded:
        tell(f"{_counted(made.unneeded, 'other picture')} not used: flat fields tell more.")
    if run.without_noise:
        tell(f"No noise was found in {_counted(len(run.without_noise), 'picture')}.")
    if plot is not None:
        tell(f"The plot is in {display_name(plot)}.")
    for name, ratio, left_out in made.far:
        end = " and is left out" if left_out else ""
        report_error(f"{name} has {ratio:.2g} times the noise of the others{end}; is it of this camera and ISO?")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _report(run: "ProfileRun", made: "Profile") -> dict[str, Any]:
    """The same for a program."""
    from dstl_cli.run.pooling import pool_facts

    ratios = zip(made.pages, made.pool.ratios, strict=True)
    used = [
        {"input": page.source.name, "page": page.page + 1, "ratio": ratio, "left_out": index in made.pool.left_out}
        for index, (page, ratio) in enumerate(ratios)
    ]
    told = {"pictures": len(made.pages), "flat_fields": made.made_from["flat_fields"], "units": made.kind.units}
    errors = [{"input": name, "error": sentence} for name, sentence in run.errors]
    return told | pool_facts(made.pool) | {"files": used, "without_noise": run.without_noise, "errors": errors}
