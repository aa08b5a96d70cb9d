"""`dstl denoise`: pictures in, denoised pictures out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.base.addresses import place_of
from dstl_cli.base.checks import NAN_CHOICES
from dstl_cli.base.names import display_name, display_number
from dstl_cli.cli import options
from dstl_cli.cli.console import print_json, progress_bar, report_error, tell
from dstl_cli.cli.options import EVERYDAY, FILES, LEARNING, OUTPUT, option, setting, setting_option, with_settings
from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.errors import UsageProblem
from dstl_cli.learning.methods import METHODS
from dstl_cli.picture.formats import holds_pictures

if TYPE_CHECKING:
    from dstl_cli.base.shards import Shard
    from dstl_cli.denoising.survey import Request
    from dstl_cli.pixels.planes import Box
    from dstl_cli.run.files import DenoisedFile, DenoiseRun, FirstPage
    from dstl_cli.run.noise import NoiseFile

QUALITY_HELP = f"How much work it may be. {options.in_words(entry for entry in QUALITIES if not entry.preset)}"
JPEG_HELP = "Quality of JPEG outputs (no effect on others); colours: 4:4:4 from 90 on, 4:2:0 below."
NOISE_KINDS = "auto|white|poisson|shared|FILE.json"
NOISE_HELP = "What to look for (poisson: growing with brightness; shared: what all pictures have), or a model of it."
NAN_METAVAR = "|".join(NAN_CHOICES)
METHOD_HELP = f"How the transform is learnt. {options.in_words(METHODS)}"


@with_settings(
    setting("preset", str, "Settings by name instead of a quality: paper is the paper's protocol."),
    setting("patch_size", int, "Side of a patch in pixels."),
    setting("stride", int, "Step between patches (rows of patches, but for paper); 1 is best."),
    setting("error_scale", float, "C of the coder: larger removes more."),
    setting("max_condition", float, "Bound on the condition number of T (rho)."),
    setting("density", float, "Share of nonzero entries T may have."),
    setting("iterations", int, "Learning iterations (for paper: in a round)."),
    setting("rounds", int, "Only for paper: rounds, each on new patches.", shown="20, 5 above sigma 50"),
    setting("train_patches", int, "Patches to learn from (for paper: in a round)."),
)
def denoise(
    *,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="PICTURE...", help="Pictures, folders, patterns like '*.png', or - for stdin."),
    ],
    output: Annotated[
        str | None,
        option(EVERYDAY, "File, folder, or - for stdout.", "-o", "--output", metavar="PATH", shown="NAME_denoised"),
    ] = None,
    sigma: Annotated[
        str,
        option(
            EVERYDAY,
            "Noise deviation on the 0-255 scale (float, signed and 32-bit files: in their units).",
            metavar="X|auto",
        ),
    ] = "auto",
    noise: Annotated[
        str,
        option(EVERYDAY, NOISE_HELP, metavar=NOISE_KINDS),
    ] = "auto",
    strength: Annotated[float, option(EVERYDAY, "Remove less (0.5) or more (2) of it.", min=0.5, max=2.0)] = 1.0,
    chroma_strength: Annotated[float, option(EVERYDAY, "The same for colours alone.", min=0.5, max=2.0)] = 1.0,
    quality: Annotated[str | None, setting_option("quality", QUALITY_HELP, panel=EVERYDAY, shown="standard")] = None,
    nan: Annotated[
        str, option(EVERYDAY, "NaN and infinite pixels: refuse such files, or keep the pixels.", metavar=NAN_METAVAR)
    ] = "refuse",
    compare: Annotated[
        str | None,
        option(EVERYDAY, "Also write noisy, denoised and residual side by side: a file or a folder.", metavar="PATH"),
    ] = None,
    residual: Annotated[
        str | None, option(EVERYDAY, "Also write what was removed: a file or a folder.", metavar="PATH")
    ] = None,
    crop: Annotated[
        str | None, option(EVERYDAY, "Denoise and write this part only, as it is in the whole.", metavar="X,Y,W,H")
    ] = None,
    preview: Annotated[
        Path | None,
        option(EVERYDAY, "Only draw a part of one picture in several strengths and qualities.", metavar="SHEET.png"),
    ] = None,
    recursive: Annotated[
        bool, option(FILES, "Go into sub-folders, kept under the output.", "--recursive", "-r")
    ] = False,
    resume: Annotated[bool, option(FILES, "Skip pictures whose outputs exist.", "--resume")] = False,
    force: options.Force = False,
    dry_run: Annotated[bool, option(FILES, "Only list what would be read, written and skipped.", "--dry-run")] = False,
    suffix: Annotated[str, option(FILES, "What is added to the name beside the input.", metavar="_WORD")] = "_denoised",
    strip: Annotated[bool, option(FILES, "Leave out profile, EXIF, resolution and comments.", "--strip")] = False,
    jpeg_quality: Annotated[
        int | None, option(FILES, JPEG_HELP, min=1, max=100, shown="coded as the input, else 95")
    ] = None,
    method: Annotated[str | None, setting_option("method", METHOD_HELP, panel=LEARNING, metavar="NAME")] = None,
    transform: Annotated[
        Path | None, option(LEARNING, "Use this learnt transform instead of learning one.", metavar="T.npz")
    ] = None,
    adapt: Annotated[bool, option(LEARNING, "Learn on the picture, starting from --transform.", "--adapt")] = False,
    save_transform: Annotated[
        Path | None, option(LEARNING, "Keep the learnt transform (one picture).", metavar="T.npz")
    ] = None,
    canonical: options.Canonical = None,
    settings: Mapping[str, Any],
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    max_memory: options.MaxMemory = None,
    scratch: options.Scratch = None,
    scheduler: options.Scheduler = None,
    shard: options.ShardOf = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: Annotated[
        bool, option(OUTPUT, "Show the learning, iteration by iteration (and with --json the plan).", "--verbose", "-v")
    ] = False,
    trust_files: options.TrustFiles = False,
    debug: options.Debug = False,
) -> None:
    """Denoise pictures; depth, colour, alpha, profile and pages stay as they are.

    Example: dstl denoise noisy.png --sigma 20
    """
    given = {"method": method, "canonical": canonical, **settings, "seed": seed}
    preset = given.pop("preset")
    name = options.chosen_quality(quality, preset)
    chosen_shard = options.parse_shard(shard)
    known, keep_invalid = options.chosen_noise(sigma, noise), options.parse_nan(nan)
    part = options.parse_crop(crop)
    if preview is not None:
        no_run: dict[str, object] = {"--output": output, "--residual": residual, "--compare": compare}
        no_run |= {"--save-transform": save_transform, "--resume": resume, "--dry-run": dry_run, "--strip": strip}
        no_run |= {"--jpeg-quality": jpeg_quality}
        no_run |= {"--scheduler": scheduler, "--shard": shard}
        no_run |= {"--suffix": suffix != "_denoised", "--strength": strength != 1, "--recursive": recursive}
        _check_preview(preview, inputs, part, no_run | {"--json": json, "--verbose": verbose}, force=force)
    if not suffix or "/" in suffix or "\\" in suffix:
        raise UsageProblem(f"--suffix is a piece of a file name such as _denoised, not {suffix!r}.")
    if scheduler is not None and ("-" in (output, *inputs) or save_transform is not None):
        raise UsageProblem("--scheduler works on files and keeps no transform; leave out - and --save-transform.")
    if json and (output == "-" or (not output and "-" in inputs)):
        raise UsageProblem("--json and the picture cannot both go to standard output; give a file with --output.")
    if known == 0 and save_transform is not None:
        raise UsageProblem("--save-transform keeps what is learnt, which is nothing with --sigma 0; leave one out.")
    memory = options.chosen_memory(max_memory, scratch)
    request = options.build_request(name, given, transform=transform, adapt=adapt, jobs=jobs, memory=memory)
    if noise == "shared" and "-" in inputs:
        raise UsageProblem("--noise shared reads every picture twice, standard input only once; save it to a file.")
    kind = noise if known is None and noise != "shared" else "auto"
    request = replace(request, noise_kind=kind, keep_invalid=keep_invalid)
    request = replace(request, strength=strength, chroma_strength=chroma_strength)
    if preview is not None:
        _draw_preview(inputs, known, request, part, preview, force=force, quiet=quiet)
        return
    from dstl_cli.picture.inputs import find_inputs, plan_jobs, prepare_folders, split_done
    from dstl_cli.run.files import DenoiseRun

    folders = [place_of(path) for path in (output, residual, compare) if path is not None and path != "-"]
    found = find_inputs(inputs, recursive=recursive, made_suffix=suffix, results=folders)
    if save_transform is not None and len(found.inputs) != 1:
        raise UsageProblem("--save-transform keeps the transform of one picture; give one picture.")
    others = [] if save_transform is None else [save_transform]
    beside = [None if path is None else place_of(path) for path in (residual, compare)]
    planned = plan_jobs(found, output, suffix=suffix, residual=beside[0], compare=beside[1], others=others)
    mine = options.chosen_part(chosen_shard, planned, quiet=quiet)
    todo, done_before = split_done(mine, resume=resume, force=force, others=others)
    run = DenoiseRun(
        *(found, todo, done_before, known, request, save_transform, strip, force, resume, jpeg_quality),
        crop=part,
        keeps_records=json,
    )
    if dry_run:
        _list_plan(run)
        return
    prepare_folders(todo, done_before, others)
    to_stderr = "-" in inputs or any(job.output is None for job in planned)
    say = partial(tell, to_stderr=to_stderr)
    if noise == "shared":
        _share_noise(run, say, quiet=quiet or json)
    with ExitStack() as around:
        if scheduler is not None or chosen_shard is not None:
            around.enter_context(_noted(run, output, chosen_shard))
        around.enter_context(_on_workers(run, scheduler, jobs, trust_files))
        _show(run, say, quiet=quiet or json, verbose=verbose)
    if json:
        named: dict[str, Any] = {"sigma": sigma, "noise": noise, "nan": nan}
        named |= {"strength": strength, "chroma_strength": chroma_strength}
        named |= {"quality": None if preset else name, "preset": preset, "crop": crop}
        named |= {} if chosen_shard is None else {"shard": str(chosen_shard)}
        settings = {**named, **request.facts, "transform": transform and str(transform), "adapt": adapt}
        shared = {} if run.shared is None else {"shared_noise": run.shared.facts()}
        print_json("denoise", settings=settings, files=run.records, summary=run.summary, **shared)
    if run.summary["failed"]:
        raise typer.Exit(1)


def _check_preview(
    sheet: Path, inputs: Sequence[str], part: "Box | None", no_run: Mapping[str, object], *, force: bool
) -> None:
    """Refuse, before any work, a sheet that cannot be written, and options that it has no use for."""
    if sheet.suffix.lower() != ".png":
        raise UsageProblem(f"--preview takes a name that ends in .png, not {display_name(sheet)}.")
    useless = [name for name, value in no_run.items() if value not in (None, False)]
    if useless:
        raise UsageProblem(f"--preview only draws its sheet, in which {useless[0]} has no effect; leave one out.")
    options.check_local("--preview", sheet, *inputs)
    if len(inputs) != 1 or holds_pictures(Path(inputs[0])):
        raise UsageProblem("--preview shows one picture; give one picture.")
    from dstl_cli.report.sheet import SHOWN_SIDE

    if part is not None and max(part.shape) > SHOWN_SIDE:
        most = f"{SHOWN_SIDE} x {SHOWN_SIDE} pixels"
        raise UsageProblem(f"--preview shows at most {most}, so that its sheet fits a screen; give a smaller --crop.")
    options.check_outputs({"--preview": sheet}, [Path(name) for name in inputs if name != "-"], force=force)


def _draw_preview(
    inputs: Sequence[str],
    noise: "float | NoiseFile | None",
    request: "Request",
    part: "Box | None",
    sheet: Path,
    *,
    force: bool,
    quiet: bool,
) -> None:
    """Draw the sheet and tell what is on it."""
    from dstl_cli.run.preview import make_preview

    path = None if inputs[0] == "-" else Path(inputs[0])
    name = "standard input" if path is None else display_name(path)
    with progress_bar("preview", shown=not quiet) as (progress, describe):
        describe(name)
        made = make_preview(path, name, noise, request, part, sheet, overwrite=force, progress=progress)
    if quiet:
        return
    left, top, (height, width) = made.part.left, made.part.top, made.part.shape
    shown = f"--crop {left},{top},{width},{height}, {made.noise}"
    tell(f"{name} -> {display_name(sheet)}  ({shown}, {made.seconds:.2f} s)")
    for text in made.warnings:
        report_error(f"{name}: {text}")


@contextmanager
def _on_workers(run: "DenoiseRun", scheduler: str | None, jobs: int | None, trusted: bool) -> Iterator[None]:
    """Have the workers behind a scheduler do the work of a run, if one is given and there is work."""
    if scheduler is None or not run.todo:
        yield
        return
    from dstl_cli.picture.inputs import clear_folders
    from dstl_cli.run.batches import OnCluster
    from dstl_cli.run.cluster import connected

    try:
        with connected(scheduler, jobs, trusted=trusted) as cluster:
            run.executor = OnCluster(cluster)
            yield
    finally:
        clear_folders(run.todo)  # of what workers that died had begun


@contextmanager
def _noted(run: "DenoiseRun", output: str | None, shard: "Shard | None") -> Iterator[None]:
    """Keep a journal of a run into a folder, beside it."""
    from dstl_cli.run.journal import journal_of, opened_journal

    if output is None or output == "-" or not run.found.several:
        yield
        return
    part = "" if shard is None else shard.file_part
    place = journal_of(place_of(output), part)
    with opened_journal(place, command="denoise", pictures=len(run.todo)) as run.journal:
        yield


def _list_plan(run: "DenoiseRun") -> None:
    """What a run would do."""
    missing = [job for job in run.todo if isinstance(job.source.path, Path) and not job.source.path.exists()]
    problems = [sentence for _, sentence in run.found.problems]
    problems += [f"{job.source.name} does not exist; check the name." for job in missing]
    for sentence in problems:
        report_error(sentence)
    there = [job for job in run.todo if job not in missing]
    for job in there:
        tell(f"{job.source.name} -> {', '.join([job.output_name, *map(display_name, job.extras)])}")
    for job in run.done_before:
        tell(f"{job.source.name}: done before, skipped")
    skipped = f"{len(run.done_before)} done before, {run.found.skipped} other files skipped"
    tell(f"{len(there)} to denoise, {skipped}.")
    if problems:
        raise typer.Exit(1)


def _share_noise(run: "DenoiseRun", say: Callable[[str], None], *, quiet: bool) -> None:
    """Look at all pictures, those done before too, and tell what they share."""
    from dstl_cli.noise.pool import DISAGREE
    from dstl_cli.run.pooling import share_noise

    request = run.request
    with progress_bar("noise", shown=not quiet) as (progress, _):
        run.shared = share_noise(
            run.found.inputs, request.jobs, request.settings.seed, progress, keep_invalid=request.keep_invalid
        )
    if not (quiet or run.shared.pools):
        say("Shared: no noise was found in any picture")
    for kind, pool in run.shared.pools.items() if not quiet else ():
        count = run.shared.counts[kind]
        who = f"{count} {kind.words} picture{'s' if count > 1 else ''}"
        if pool.agreement == DISAGREE:
            say(f"Nothing is shared by {who}, {pool.describe()}: each has its own noise")
        else:
            told = ", ".join(filter(None, (f"Shared: {pool.model.describe()}, from {who}", pool.describe())))
            others = sum(known == kind for known in run.shared.kinds.values()) - count
            get = f"{others} other{'s' if others > 1 else ''}, which get{'' if others > 1 else 's'} it too"
            say(f"{told}; no noise was found in {get}" if others else told)


def _show(run: "DenoiseRun", say: Callable[[str], None], *, quiet: bool, verbose: bool) -> None:
    """Do the run and tell how it goes."""
    with progress_bar("denoise", shown=not quiet) as (progress, describe):
        for record, finished in run.all(progress, describe):
            if finished is None:
                report_error(record["error"])
                continue
            if not quiet:
                told = _in_short(finished) + ("" if finished.unchanged else _strengths(run.request))
                say(f"{record['input']} -> {record['output']}  ({told}, {finished.seconds:.2f} s)")
                for text in finished.warnings:
                    report_error(f"{record['input']}: {text}")
            if verbose:
                _show_learning(finished.first_page)
                record["plan"] = finished.first_page.plan
    if run.found.several and not quiet:
        copied = "{unchanged} unchanged, " if run.summary["unchanged"] else ""
        ends = "{done} denoised, " + copied + "{failed} failed, {resumed} done before, {skipped} other files skipped."
        say(ends.format_map(run.summary))


def _in_short(finished: "DenoisedFile") -> str:
    """What noise was removed."""
    from dstl_cli.pixels.depth import Depth
    from dstl_cli.run.noise import sigma_to_try

    model = finished.first_page.noise
    given = finished.sigma_source == "given"
    if finished.unchanged:
        done = "copied unchanged" if finished.copied else "nothing removed"
        if given:
            return f"sigma 0 given: {done}"
        try_this = sigma_to_try(Depth.of(finished.info.dtype, finished.info.bits))
        return f"no noise found: {done}; {try_this} would remove some all the same"
    white = f"sigma {display_number(finished.sigma)}" if model.kind == "white" else model.describe()
    return f"{white} {finished.sigma_source}"


def _strengths(request: "Request") -> str:
    """By how much the noise that was found or given is made less or more, where it is."""
    both = {"strength": request.strength, "chroma strength": request.chroma_strength}
    told = " and ".join(f"{name} {value:g}" for name, value in both.items() if value != 1)
    return told and f" at {told}"


def _show_learning(page: "FirstPage") -> None:
    for record in page.history:
        tell(
            f"  {record.number:4d}  error {record.error:.6g}  relative {record.relative_error:.4f}  "
            f"condition {record.condition:.4f}  density {record.density:.3f}",
            to_stderr=True,
        )
    if page.transform is not None:
        made = page.transform
        tell(f"  transform  condition {made['condition']:.4f}  density {made['density']:.3f}", to_stderr=True)
