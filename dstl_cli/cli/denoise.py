"""`dstl denoise`: pictures in, denoised pictures out."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import progress_bar, report_error
from dstl_cli.config import AdaptiveConfig, DenoiseConfig, LearnConfig
from dstl_cli.errors import DstlError, UsageProblem
from dstl_cli.progress import Progress, part_of

if TYPE_CHECKING:
    from dstl_cli.batch import Finished, Order
    from dstl_cli.files.inputs import Found, Job

RECORD = (
    "input", "output", "width", "height", "pages", "channels", "dtype", "sigma", "sigma_channels", "sigma_source",
    "seconds", "warnings", "transform", "error",
)  # fmt: skip
FILES, NOISE = "Files", "Noise"
LEARNING, OUTPUT = options.LEARNING, options.OUTPUT


def denoise(
    inputs: Annotated[list[str], typer.Argument(help="Pictures, folders, patterns like '*.png', or - for stdin.")],
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="File, folder, or - for stdout.",
            show_default="NAME_denoised beside it",
            rich_help_panel=FILES,
        ),
    ] = None,
    sigma: Annotated[
        str,
        typer.Option(
            help="Noise deviation on the 0-255 scale at any depth (float files: in their units), or auto.",
            rich_help_panel=NOISE,
        ),
    ] = "auto",
    recursive: Annotated[
        bool,
        typer.Option("--recursive", "-r", help="Go into sub-folders, kept under the output.", rich_help_panel=FILES),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip pictures whose output exists.", rich_help_panel=FILES)
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Overwrite existing outputs (never an input).", rich_help_panel=FILES)
    ] = False,
    suffix: Annotated[
        str, typer.Option(help="What is added to the name beside the input.", rich_help_panel=FILES)
    ] = "_denoised",
    strip: Annotated[
        bool, typer.Option("--strip", help="Leave out profile, EXIF, resolution and comments.", rich_help_panel=FILES)
    ] = False,
    residual: Annotated[
        Path | None,
        typer.Option(
            help="Also write what was removed: a file, or a folder for several pictures.", rich_help_panel=FILES
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            help="Also write noisy, denoised and residual side by side: a file, or a folder for several pictures.",
            rich_help_panel=FILES,
        ),
    ] = None,
    quality: Annotated[
        options.Quality | None,
        typer.Option(
            help="Fast has a ready transform, standard learns one on the picture, best uses groups of similar patches.",
            show_default="standard",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    method: Annotated[
        options.Method | None,
        typer.Option(help="How the transform is learnt.", show_default="dsect", rich_help_panel=LEARNING),
    ] = None,
    preset: Annotated[
        options.Preset | None,
        typer.Option(
            help="Settings by name instead of a quality: paper is the paper's protocol.", rich_help_panel=LEARNING
        ),
    ] = None,
    transform: Annotated[
        Path | None,
        typer.Option(help="Use this learnt transform (.npz) instead of learning one.", rich_help_panel=LEARNING),
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option("--adapt", help="Learn on the picture, starting from --transform.", rich_help_panel=LEARNING),
    ] = False,
    save_transform: Annotated[
        Path | None,
        typer.Option(help="Keep the learnt transform in this .npz file (one picture).", rich_help_panel=LEARNING),
    ] = None,
    patch_size: Annotated[
        int | None,
        typer.Option(help="Side of a patch in pixels.", show_default="11, 8 for best", rich_help_panel=LEARNING),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            help="Step between patches (rows of patches, but for paper); 1 is best.",
            show_default="1, 2 for fast",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    error_scale: Annotated[
        float | None,
        typer.Option(help="C of the coder: larger removes more.", show_default="1.04", rich_help_panel=LEARNING),
    ] = None,
    max_condition: Annotated[
        float | None,
        typer.Option(
            help="Bound on the condition number of the transform.",
            show_default=f"{AdaptiveConfig().max_condition:g}, {LearnConfig().max_condition:g} for paper",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(
            help="Share of nonzero entries the learnt factor may have.",
            show_default=f"{AdaptiveConfig().density:g}, by the l1 weight for paper",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            help="Learning iterations (for paper: in a round).",
            show_default=f"{AdaptiveConfig().iterations}, {LearnConfig().iterations} for paper",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Only for paper: learning rounds, each on new patches.",
            show_default="20, 5 above sigma 50",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    train_patches: Annotated[
        int | None,
        typer.Option(
            help="Patches to learn from (for paper: in a round).",
            show_default=f"{AdaptiveConfig().train_patches}, {DenoiseConfig().train_patches} for paper",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the learning, iteration by iteration.", rich_help_panel=OUTPUT)
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Denoise pictures; depth, colour, alpha, profile and pages stay as they are.

    Example: dstl denoise noisy.png --sigma 20
    """
    if quality is not None and preset is not None:
        raise UsageProblem("--quality and --preset both name the settings; give one of them.")
    name = str(preset or quality or options.Quality.STANDARD)
    config = options.build_config(
        name,
        {
            "method": method and str(method), "patch_size": patch_size, "stride": stride, "error_scale": error_scale,
            "max_condition": max_condition, "density": density, "iterations": iterations, "rounds": rounds,
            "train_patches": train_patches, "seed": seed,
        },
    )  # fmt: skip
    _check_adapting(adapt, transform, name, method)
    deviation = options.parse_sigma(sigma)
    _check_names(suffix, output or ("-" if "-" in inputs else ""), json)
    from dstl_cli.batch import Order
    from dstl_cli.denoising import Tools
    from dstl_cli.files.inputs import find_inputs, plan_jobs, prepare_folders, split_done
    from dstl_cli.files.ready import ready_transform
    from dstl_cli.files.transforms import load_transform

    given = load_transform(transform).transform if transform else None
    tools = Tools(transform=given, adapting=adapt, ready=ready_transform, jobs=jobs)
    order = Order(sigma=deviation, config=config, tools=tools, strip=strip, force=force, resume=resume)
    folders = [Path(path) for path in (output, residual, compare) if path is not None and path != "-"]
    found = find_inputs(inputs, recursive=recursive, made_suffix=suffix, results=folders)
    if save_transform is not None and len(found.inputs) != 1:
        raise UsageProblem("--save-transform keeps the transform of one picture; give one picture.")
    others = [] if save_transform is None else [save_transform]
    planned = plan_jobs(found, output, suffix=suffix, residual=residual, compare=compare, others=others)
    todo, done_before = split_done(planned, resume=resume, force=force, others=others)
    prepare_folders(todo, done_before)
    to_stderr = "-" in inputs or any(job.output is None for job in planned)
    run = _Run(order, found, save_transform, to_stderr=to_stderr, quiet=quiet or json, verbose=verbose)
    run.all(todo, done_before)
    if json:
        from dstl_cli.files.reports import to_json

        settings = {
            "sigma": sigma, "quality": None if preset else name, "preset": preset and str(preset), **asdict(config),
            "transform": transform and str(transform), "adapt": adapt,
        }  # fmt: skip
        typer.echo(to_json("denoise", settings=settings, files=run.records, summary=run.summary))
    if run.summary["failed"]:
        raise typer.Exit(1)


def _check_adapting(adapt: bool, transform: Path | None, name: str, method: options.Method | None) -> None:
    """Refuse --adapt where there is nothing to start from or nothing is learnt."""
    if not adapt:
        return
    if transform is None:
        raise UsageProblem("--adapt starts from a learnt transform; give it with --transform.")
    if name == options.Quality.FAST or method == options.Method.DCT:
        what = "--quality fast" if name == options.Quality.FAST else "--method dct"
        raise UsageProblem(f"--adapt learns and {what} does not; leave one of them out.")


def _check_names(suffix: str, output: str, json: bool) -> None:
    if not suffix or "/" in suffix or "\\" in suffix:
        raise UsageProblem(f"--suffix is a piece of a file name such as _denoised, not {suffix!r}.")
    if output == "-" and json:
        raise UsageProblem("--json and the picture cannot both go to standard output; give a file with --output.")


class _Run:
    """Goes through the pictures one by one and keeps the account."""

    def __init__(
        self,
        order: "Order",
        found: "Found",
        save_transform: Path | None,
        *,
        to_stderr: bool,
        quiet: bool,
        verbose: bool,
    ) -> None:
        self.order, self.found, self.save_transform = order, found, save_transform
        self.to_stderr, self.quiet, self.verbose = to_stderr, quiet, verbose
        self.records: list[dict[str, Any]] = []
        self.summary = {"done": 0, "failed": 0, "resumed": 0, "skipped": found.skipped}

    def all(self, todo: "list[Job]", done_before: "list[Job]") -> None:
        """Work through the jobs; a failed one does not stop the rest."""
        for name, sentence in self.found.problems:
            self._failed({"input": name}, sentence)
        self.summary["resumed"] = len(done_before)
        with progress_bar("denoise", shown=not self.quiet) as (progress, describe):
            for index, job in enumerate(todo):
                describe(job.source.name)
                self._one(job, part_of(progress, index, len(todo)))
        if self.found.several and not self.quiet:
            counts = self.summary
            self._say(
                f"{counts['done']} denoised, {counts['failed']} failed, {counts['resumed']} done before, "
                f"{counts['skipped']} other files skipped."
            )

    def _one(self, job: "Job", progress: Progress | None) -> None:
        from dstl_cli.batch import denoise_file

        record: dict[str, Any] = {"input": job.source.name, "output": job.output_name}
        try:
            done = denoise_file(job, self.order, progress=progress)
            if self.save_transform is not None:
                self._keep_transform(done, job)
        except DstlError as error:
            self._failed(record, str(error))
            return
        except MemoryError:
            self._failed(record, f"{job.source.name} does not fit into memory; crop it or close other programs.")
            return
        self.summary["done"] += 1
        self.records.append(record | _facts(done, self.order) | {"error": None})
        if not self.quiet:
            how = "estimated" if self.order.sigma is None else "given"
            self._say(f"{job.source.name} -> {job.output_name}  (sigma {done.sigma:.3g} {how}, {done.seconds:.2f} s)")
        for text in done.warnings:
            if not self.quiet:
                report_error(f"{job.source.name}: {text}")
        if self.verbose:
            self._show_learning(done)

    def _failed(self, record: dict[str, Any], sentence: str) -> None:
        self.summary["failed"] += 1
        self.records.append(dict.fromkeys(RECORD) | record | {"error": sentence})
        report_error(sentence)

    def _say(self, text: str) -> None:
        typer.echo(text, err=self.to_stderr)

    def _keep_transform(self, done: "Finished", job: "Job") -> None:
        from dstl_cli.files.transforms import TransformFile, save_transform

        page = done.pages[0]
        if page.transform is None or self.save_transform is None:
            raise DstlError(f"{job.source.name} has no noise to learn from; no transform was kept.")
        provenance = {"settings": asdict(self.order.config), "sigma": done.sigma, "images": 1, "source": "denoise"}
        stored = TransformFile(page.transform, provenance, page.history)
        save_transform(self.save_transform, stored, overwrite=self.order.force)

    def _show_learning(self, done: "Finished") -> None:
        for record in done.pages[0].history:
            typer.echo(
                f"  {record.number:4d}  error {record.error:.6g}  relative {record.relative_error:.4f}  "
                f"condition {record.condition:.4f}  density {record.density:.3f}",
                err=True,
            )


def _facts(done: "Finished", order: "Order") -> dict[str, Any]:
    """The report of one picture."""
    info = done.info
    transform = done.pages[0].transform
    return {
        "width": info.width, "height": info.height, "pages": info.pages, "channels": info.channels,
        "dtype": info.dtype.name,
        "sigma": done.sigma, "sigma_channels": list(done.pages[0].sigmas),
        "sigma_source": "estimated" if order.sigma is None else "given", "seconds": done.seconds,
        "warnings": list(done.warnings),
        "transform": None if transform is None else {
            "method": transform.method, "patch_size": transform.patch_size, "condition": transform.condition,
            "density": transform.density, "frobenius_norm": transform.frobenius_norm,
        },
    }  # fmt: skip
