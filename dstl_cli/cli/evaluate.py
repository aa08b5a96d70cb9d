"""`dstl evaluate`: PSNR and SSIM of pictures against clean ones, or of denoising noise that is there or was added."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.base.names import display_name
from dstl_cli.cli import options
from dstl_cli.cli.console import number_or_dash, print_json, print_table, progress_bar, report_error, say, tell
from dstl_cli.cli.options import EVERYDAY, EXPERTS, option, setting, with_settings
from dstl_cli.denoising.qualities import DEFAULT_QUALITY, QUALITIES
from dstl_cli.errors import UsageProblem
from dstl_cli.learning.methods import METHODS
from dstl_cli.transforms.canonical import CANONICAL

if TYPE_CHECKING:
    from dstl_cli.measure.trials import Configuration, Mean, NoisePlan
    from dstl_cli.run.evaluation import Evaluation

BELOW = 3  # the exit code of --min-psnr
NOISE = "Denoising"
SSIM_KINDS = ("wang", "downsampled")
QUALITY_HELP = f"Qualities: {', '.join(QUALITIES.names)}."
METHOD_HELP = f"Methods: {', '.join(METHODS.names)}."
CANONICAL_HELP = f"Canonical transforms: {', '.join(CANONICAL.names)}."
NOISE_HELP = (
    "Noise to add: white:SIGMA, poisson:A,B (variance A x + B), camera:ISO; a comma before a name begins the next."
)
FILE_HELP = "Also denoise with this learnt transform; may be repeated."


@with_settings(
    setting("quality", str, QUALITY_HELP, panel=EVERYDAY, metavar="NAME,...", shown=DEFAULT_QUALITY),
    setting("method", str, METHOD_HELP, panel=NOISE, metavar="NAME,...", shown="that of the quality"),
    setting("transform", list[Path], FILE_HELP, panel=NOISE, metavar="T.npz"),
    setting("canonical", str, CANONICAL_HELP, panel=NOISE, metavar="NAME,..."),
    setting("patch_size", int, "Side of a patch in pixels.", panel=NOISE),
)
def evaluate(
    *,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="PICTURE...", help="Clean and denoised picture or folder; to denoise: only clean ones."),
    ],
    sigma: Annotated[
        str | None,
        option(EVERYDAY, "Add white noise of these deviations; with --noise, --noisy: what is told.", metavar="X,..."),
    ] = None,
    noise: Annotated[str | None, option(EVERYDAY, NOISE_HELP, metavar="KIND:X,...")] = None,
    noisy: Annotated[
        Path | None, option(EVERYDAY, "Denoise these partners of the clean picture or folder.", metavar="PATH")
    ] = None,
    recursive: options.Recursive = False,
    force: options.Force = False,
    settings: Mapping[str, Any],
    report: Annotated[
        Path | None, option(EVERYDAY, "Write tables and pictures to this HTML page.", metavar="FILE.html")
    ] = None,
    csv: Annotated[Path | None, option(EVERYDAY, "Write every row to this CSV file.", metavar="FILE.csv")] = None,
    repeats: Annotated[int, option(NOISE, "Repeat with so many different noises.", min=1)] = 1,
    ssim: Annotated[
        str,
        option(EXPERTS, "SSIM as Wang et al. define it, or the down-sampled variant.", metavar="|".join(SSIM_KINDS)),
    ] = "wang",
    peak: Annotated[float, option(EXPERTS, "The value of white in float, signed and 32-bit pictures.")] = 255.0,
    min_psnr: Annotated[float | None, option(EXPERTS, f"Exit with {BELOW} when a mean PSNR is below this.")] = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    scheduler: options.Scheduler = None,
    shard: options.ShardOf = None,
    json: options.Json = False,
    trust_files: options.TrustFiles = False,
    debug: options.Debug = False,
) -> None:
    """Measure pictures against clean ones: PSNR and SSIM, for each and in the mean.

    Examples: dstl evaluate clean.png denoised.png; dstl evaluate clean/ --sigma 5,10,20 --method dct,procrustes;
    dstl evaluate clean/ --noise white:20,camera:3200; dstl evaluate clean/ --noisy noisy/ --quality fast,best
    """
    if not (math.isfinite(peak) and peak > 0):
        raise UsageProblem(f"--peak takes a positive number, not {peak:g}.")
    if min_psnr is not None and not math.isfinite(min_psnr):
        raise UsageProblem(f"--min-psnr takes a number of decibels, not {min_psnr:g}.")
    options.parse_names(ssim, "--ssim", SSIM_KINDS)
    _check_count(inputs, sigma, noise, noisy)
    part = options.parse_shard(shard)
    plan = noise_plan(sigma, noise, noisy, {**settings, "seed": seed}, repeats, jobs)
    from dstl_cli.measure.trials import Measures
    from dstl_cli.report.page import write_report
    from dstl_cli.report.tables import write_csv
    from dstl_cli.run.evaluation import Evaluation, clean_pictures, paired

    if plan is None or noisy is not None:
        options.check_local("evaluate", *inputs, noisy)
        partners = Path(inputs[1]) if noisy is None else noisy
        pairs = paired(Path(inputs[0]), partners, recursive=recursive, noisy=noisy is not None)
    else:
        pairs = clean_pictures(inputs, recursive=recursive)
    files = [item.path for pair in pairs for item in pair if item is not None and isinstance(item.path, Path)]
    options.check_outputs({"--csv": csv, "--report": report}, files + (settings["transform"] or []), force=force)
    pairs = options.chosen_part(part, pairs)
    run = Evaluation(pairs, Measures(peak, ssim), plan, wants_pictures=report is not None)
    with _on_workers(run, scheduler, jobs, trust_files), progress_bar("evaluate") as (progress, describe):
        for sentence in run.all(progress, describe):
            report_error(sentence)
    if csv is not None and run.rows:
        write_csv(run.rows, csv, overwrite=force)
    if report is not None and run.rows:
        write_report(run.report(), report, overwrite=force)
    if json:
        settings = {**run.settings, "min_psnr": min_psnr} | ({} if part is None else {"shard": str(part)})
        print_json("evaluate", settings=settings, rows=run.rows, mean=run.means, errors=run.errors)
    elif run.rows:
        _print(run)
        for path in filter(None, (csv, report)):
            tell(f"Written: {path}")
    if run.errors:
        raise typer.Exit(1)
    _check_floor(run.means, min_psnr)


@contextmanager
def _on_workers(run: "Evaluation", scheduler: str | None, jobs: int | None, trusted: bool) -> Iterator[None]:
    """Have the workers behind a scheduler do the work, if one is given."""
    if scheduler is None:
        yield
        return
    from dstl_cli.run.batches import MeasuredOnCluster
    from dstl_cli.run.cluster import connected

    with connected(scheduler, jobs, trusted=trusted) as cluster:
        run.executor = MeasuredOnCluster(cluster)
        yield


def _check_count(inputs: list[str], sigma: str | None, noise: str | None, noisy: Path | None) -> None:
    """Refuse arguments that do not say what is compared with what."""
    if noise is not None and noisy is not None:
        raise UsageProblem("--noise adds noise to clean pictures, --noisy has some of its own; give one of them.")
    if noisy is not None and len(inputs) != 1:
        raise UsageProblem("--noisy goes with one clean picture or folder; give one.")
    if sigma is None and noise is None and noisy is None and len(inputs) != 2:
        remedy = "--sigma or --noise with the noise to add, or --noisy"
        raise UsageProblem(f"Give a clean and a denoised picture or folder, or {remedy}.")


def noise_plan(
    sigma: str | None,
    noise: str | None,
    noisy: Path | None,
    settings: Mapping[str, Any],
    repeats: int = 1,
    jobs: int | None = None,
) -> "NoisePlan | None":
    """What is denoised and how: the cases of noise with the configurations; None where pictures are only compared."""
    added, seed = noise is not None or noisy is not None, settings["seed"]
    if noisy is not None and repeats > 1:
        raise UsageProblem("--repeats needs noise to add, --sigma or --noise.")
    if sigma is None and not added:
        if any(settings[key] for key in settings if key != "seed") or repeats > 1:
            names = "--quality, --method, --canonical, --patch-size, --transform and --repeats"
            raise UsageProblem(f"{names} need --sigma or --noise, the noise to add, or --noisy.")
        return None
    parts = [part for part in (sigma or "auto").split(",") if part.strip()]
    told = list(dict.fromkeys(map(options.parse_sigma, parts)))
    if not told or (None in told and not added):
        what = "numbers or auto" if added else "numbers (auto needs --noise or --noisy)"
        raise UsageProblem(f"--sigma takes {what}, separated by commas, not {sigma!r}.")
    from dstl_cli.measure.trials import NoisePlan
    from dstl_cli.noise.synthetic import parse_noises

    noises = [None] if noise is None else options.checked(lambda noise: [*parse_noises(noise)], {"noise": noise})
    return NoisePlan(told, configurations(settings, jobs), repeats, seed, noises)


def configurations(settings: Mapping[str, Any], jobs: int | None = None) -> "list[Configuration]":
    """The ways of denoising that are to be compared, each under the name it has in the table.

    Every quality with every method and canonical transform, then every quality with every transform file.
    """

    def names(text: str | None, option: str, known: tuple[str, ...]) -> list[str | None]:
        return [None] if text is None else [*options.parse_names(text, option, known)]

    others = dict(settings)
    named = ("quality", "method", "canonical", "transform")
    quality, method, canonical, transforms = (others.pop(key, None) for key in named)
    qualities = options.parse_names(quality or DEFAULT_QUALITY, "--quality", QUALITIES.names)
    methods = names(method, "--method", METHODS.names)
    bases = names(canonical, "--canonical", CANONICAL.names)
    alone = bool(transforms) and quality is None and method is None and canonical is None
    found = []
    for name, chosen, basis in product(qualities, methods, bases) if not alone else ():
        request = options.build_request(name, {"method": chosen, "canonical": basis, **others}, jobs=jobs)
        parts = [name if len(qualities) > 1 or (chosen is None and basis is None) else None, chosen, basis]
        found.append((" ".join(part for part in parts if part), request))
    short = [path.name for path in transforms or ()]
    for path in dict.fromkeys(transforms or ()):
        label = display_name(path.name if short.count(path.name) == 1 else path)
        for name in qualities:
            request = options.build_request(name, {"seed": settings["seed"]}, transform=path, jobs=jobs)
            found.append((f"{name} {label}" if len(qualities) > 1 else label, request))
    return found


def _print(run: "Evaluation") -> None:
    """How the numbers are meant, and the means of each picture and of all."""
    from dstl_cli.measure.trials import mean_rows

    of_noise = ["sigma", "method", "noisy", "PSNR", "SSIM", "s"]
    headings = ["PSNR", "SSIM"] if run.plan is None else of_noise
    headings = ["image", *(["noise"] if run.plan is not None and run.plan.noise_names else []), *headings]
    totals = run.means if len(run.titles) > 1 else []
    rows = []
    for mean in [*mean_rows(run.rows, of_each_picture=True), *totals]:
        cells = {
            "image": "mean" if mean.image is None else run.titles[mean.image, mean.page],
            "noise": mean.noise or "",
            "sigma": mean.told,
            "method": mean.method or "",
            "noisy": number_or_dash(mean.noisy_psnr, ".3f"),
            "PSNR": number_or_dash(mean.psnr, ".3f", mean.psnr_deviation),
            "SSIM": number_or_dash(mean.ssim, ".4f", mean.ssim_deviation),
            "s": number_or_dash(mean.seconds, ".2f"),
        }
        rows.append([cells[heading] for heading in headings])
    for sentence in run.sentences:
        say(sentence)
    print_table(headings, rows, totals=len(totals))


def _check_floor(means: "list[Mean]", min_psnr: float | None) -> None:
    """Exit when a mean PSNR is below what was asked for."""
    below = [mean for mean in means if min_psnr is not None and mean.psnr < min_psnr]
    for mean in below:
        which = "" if mean.method is None else f" of {mean.method} at {'' if mean.noise else 'sigma '}{mean.case}"
        report_error(f"The mean PSNR{which} is {mean.psnr:.3f} dB, below the {min_psnr:g} dB of --min-psnr.")
    if below:
        raise typer.Exit(BELOW)
