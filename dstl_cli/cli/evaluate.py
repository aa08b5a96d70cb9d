"""`dstl evaluate`: PSNR and SSIM of pictures against clean ones, or of denoising after seeded noise was added."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import compact_table, progress_bar, report_error, stdout_console
from dstl_cli.config import METHODS, PRESETS, QUALITIES
from dstl_cli.errors import DstlError, UsageProblem
from dstl_cli.progress import Progress, part_of

if TYPE_CHECKING:
    from dstl_cli.evaluation import Array, Configuration, Mean, Pixels, Row
    from dstl_cli.exhibits import Exhibit, Plan
    from dstl_cli.files.html import Report
    from dstl_cli.files.images import Picture
    from dstl_cli.files.inputs import Input

    Measured = tuple[Row, Array, Array]  # a row, and the picture before and after

BELOW = 3  # the exit code of --min-psnr
MADE_SUFFIX = "_denoised"
NO_SUFFIX = "/"  # no file name ends in it: nothing is left out as our own result
NOISE, OUTPUT = "Adding noise", options.OUTPUT


class Ssim(StrEnum):
    """The conventions of SSIM, as choices."""

    WANG = "wang"
    DOWNSAMPLED = "downsampled"


SSIM_WORDS = {
    Ssim.WANG: "SSIM as Wang et al. define it (Gaussian 11x11 window)",
    Ssim.DOWNSAMPLED: "SSIM after averaging to about 256 pixels on the shorter side",
}


def evaluate(
    inputs: Annotated[
        list[str],
        typer.Argument(help="Clean and denoised picture, or two folders; with --sigma: clean pictures and folders."),
    ],
    sigma: Annotated[
        str | None,
        typer.Option(help="Add noise of these deviations, e.g. 5,10,20, and denoise it.", rich_help_panel=NOISE),
    ] = None,
    quality: Annotated[
        str | None,
        typer.Option(
            help="Qualities to denoise with, separated by commas: fast, standard, best, or paper for its protocol.",
            show_default="standard",
            rich_help_panel=NOISE,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"Methods to denoise with, separated by commas: {', '.join(METHODS)}.",
            show_default="dsect",
            rich_help_panel=NOISE,
        ),
    ] = None,
    transform: Annotated[
        list[Path] | None,
        typer.Option(help="Also denoise with this learnt transform (.npz); may be repeated.", rich_help_panel=NOISE),
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Repeat with so many different noises.", min=1, rich_help_panel=NOISE)
    ] = 1,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Go into sub-folders.")] = False,
    ssim: Annotated[Ssim, typer.Option(help="SSIM as Wang et al. define it, or the down-sampled variant.")] = Ssim.WANG,
    peak: Annotated[float, typer.Option(help="The value of white in float pictures.")] = 255.0,
    min_psnr: Annotated[
        float | None,
        typer.Option(help=f"Exit with {BELOW} when a mean PSNR is below this.", rich_help_panel=OUTPUT),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write every row to this CSV file.", rich_help_panel=OUTPUT)] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write tables and pictures to this HTML page.", rich_help_panel=OUTPUT)
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Measure pictures against clean ones: PSNR and SSIM, for each and in the mean.

    Examples: dstl evaluate clean.png denoised.png; dstl evaluate clean/ --sigma 5,10,20 --method dct,dsect
    """
    if not (math.isfinite(peak) and peak > 0):
        raise UsageProblem(f"--peak takes a positive number, not {peak:g}.")
    if min_psnr is not None and not math.isfinite(min_psnr):
        raise UsageProblem(f"--min-psnr takes a number of decibels, not {min_psnr:g}.")
    sigmas = None if sigma is None else list(dict.fromkeys(options.parse_numbers(sigma, "--sigma")))
    if sigmas is None and (quality is not None or method is not None or transform or repeats > 1):
        raise UsageProblem("--quality, --method, --transform and --repeats need --sigma, the noise to add.")
    from dstl_cli.files.reports import to_json, write_csv

    task: _Pairs | _Noise
    if sigmas is None:
        task = _Pairs(_pairs(inputs, recursive))
    else:
        chosen = configurations(quality, method, transform or [], seed)
        task = _Noise(_clean_pictures(inputs, recursive), sigmas, chosen, repeats, seed, jobs)
    files = [item.path for item in task.inputs if item.path is not None]
    options.check_outputs({"--csv": csv, "--report": report}, files, force=force)
    run = _Run(task, ssim, peak, wants_pictures=report is not None)
    run.all()
    if csv is not None and run.rows:
        write_csv(run.rows, csv, overwrite=force)
    if report is not None and run.rows:
        from dstl_cli.files.html import write_report

        write_report(run.report(), report, overwrite=force)
    if json:
        settings = {**task.settings, "peak": peak, "ssim": str(ssim), "min_psnr": min_psnr}
        typer.echo(to_json("evaluate", settings=settings, rows=run.rows, mean=run.means, errors=run.errors))
    elif run.rows:
        _print(run, csv, report)
    if run.errors:
        raise typer.Exit(1)
    _check_floor(run.means, min_psnr)


def configurations(
    quality: str | None, method: str | None, transforms: Sequence[Path], seed: int
) -> "list[Configuration]":
    """The ways of denoising that are to be compared, each under the name it has in the table.

    Every quality with every method, then every quality with every transform.
    """
    from dstl_cli.denoising import Tools
    from dstl_cli.evaluation import Configuration
    from dstl_cli.files.names import display_name
    from dstl_cli.files.ready import ready_transform
    from dstl_cli.files.transforms import load_transform

    qualities = list(dict.fromkeys(options.parse_names(quality or "standard", "--quality", (*QUALITIES, *PRESETS))))
    methods: list[str | None] = [None] if method is None else []
    if method is not None:
        methods += dict.fromkeys(options.parse_names(method, "--method", METHODS))
    elif transforms and quality is None:
        methods = []
    tools = Tools(ready=ready_transform)
    found = [
        Configuration(
            _label(name, chosen, several=len(qualities) > 1),
            options.build_config(name, {"method": chosen, "seed": seed}),
            tools,
        )
        for name in qualities
        for chosen in methods
    ]
    short = [path.name for path in transforms]
    for path in dict.fromkeys(transforms):
        label = display_name(path.name if short.count(path.name) == 1 else path)
        given = Tools(transform=load_transform(path).transform)
        for name in qualities:
            config = options.build_config(name, {"seed": seed})
            found.append(Configuration(_label(name, label, several=len(qualities) > 1), config, given))
    return found


def _label(quality: str, part: str | None, *, several: bool) -> str:
    """What a way of denoising is called: by its quality, by its method or transform, or by both."""
    if part is None:
        return quality
    return f"{quality} {part}" if several else part


# What is measured


@dataclass(frozen=True)
class _Pairs:
    """Clean pictures and what is measured against them."""

    pairs: "list[tuple[Input, Input]]"
    shots_each: int = 1

    @property
    def inputs(self) -> "list[Input]":
        return [item for pair in self.pairs for item in pair]

    @property
    def clean(self) -> "list[Input]":
        return [first for first, _ in self.pairs]

    @property
    def settings(self) -> dict[str, Any]:
        return {"mode": "pair"}


@dataclass(frozen=True)
class _Noise:
    """Clean pictures, and the noise that is added to them and removed again."""

    clean: "list[Input]"
    sigmas: list[float]
    configurations: "list[Configuration]"
    repeats: int
    seed: int
    jobs: int | None

    @property
    def inputs(self) -> "list[Input]":
        return self.clean

    @property
    def shots_each(self) -> int:
        return len(self.sigmas) * len(self.configurations)

    @property
    def settings(self) -> dict[str, Any]:
        methods = {item.label: asdict(item.config) for item in self.configurations}
        return {"mode": "noise", "sigma": self.sigmas, "method": methods, "repeats": self.repeats, "seed": self.seed}


def _clean_pictures(arguments: list[str], recursive: bool) -> "list[Input]":
    from dstl_cli.files.inputs import find_inputs

    found = find_inputs(arguments, recursive=recursive, made_suffix=MADE_SUFFIX)
    if found.problems:
        raise UsageProblem(found.problems[0][1])
    if not found.inputs:
        raise UsageProblem(f"There are no pictures in {', '.join(arguments)}; give clean pictures.")
    return list(found.inputs)


def _pairs(arguments: list[str], recursive: bool) -> "list[tuple[Input, Input]]":
    """Two pictures, or the pictures of two folders paired by name."""
    from dstl_cli.files.inputs import Input

    if len(arguments) != 2:
        raise UsageProblem("Give a clean and a denoised picture or folder, or --sigma with the noise to add.")
    first, second = map(Path, arguments)
    if first.is_dir() != second.is_dir():
        raise UsageProblem("A picture is compared with a picture, a folder with a folder; give two of one kind.")
    if not first.is_dir():
        return [(Input(first, Path(first.name)), Input(second, Path(second.name)))]
    return _paired_by_name(first, second, recursive)


def _paired_by_name(first: Path, second: Path, recursive: bool) -> "list[tuple[Input, Input]]":
    """Each picture of one folder with its namesake in the other, whatever the suffixes.

    A name with _denoised is taken before the plain one, which is then its noisy input. A picture without a partner,
    on either side, is an error.
    """
    clean = _by_stem(first, recursive, MADE_SUFFIX)
    others = _by_stem(second, recursive, NO_SUFFIX)
    made = {stem.removesuffix(MADE_SUFFIX): item for stem, item in others.items() if stem.endswith(MADE_SUFFIX)}
    partners = {stem: item for stem, item in others.items() if not stem.endswith(MADE_SUFFIX)} | made
    for here, there, folder in ((clean, partners, second), (partners, clean, first)):
        alone = [item for stem, item in here.items() if stem not in there]
        if alone:
            more = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
            raise UsageProblem(f"{alone[0].name}{more} has no partner of the same name in {folder}; add or remove it.")
    if not clean:
        raise UsageProblem(f"There are no pictures in {first}; give clean pictures.")
    return [(item, partners[stem]) for stem, item in clean.items()]


def _by_stem(folder: Path, recursive: bool, made_suffix: str) -> "dict[str, Input]":
    """The pictures of a folder by their relative path without the suffix."""
    from dstl_cli.files.inputs import find_inputs

    found = find_inputs([str(folder)], recursive=recursive, made_suffix=made_suffix)
    if found.problems:
        raise UsageProblem(found.problems[0][1])
    pictures: dict[str, Input] = {}
    for item in found.inputs:
        other = pictures.setdefault(item.relative.with_suffix("").as_posix(), item)
        if other is not item:
            raise UsageProblem(f"{other.name} and {item.name} have the same name; keep one of them in the folder.")
    return pictures


# Measuring


@dataclass
class _Run:
    """Goes through the pictures one by one and keeps the account; a picture that fails does not stop the rest."""

    task: _Pairs | _Noise
    ssim: Ssim
    peak: float
    wants_pictures: bool
    rows: "list[Row]" = field(default_factory=list)
    exhibits: "list[Exhibit]" = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    pages: int = 0  # pages seen
    colour: bool = False  # some page has colours

    def all(self) -> None:
        """Measure everything."""
        names = self._names()
        plan = self._plan() if self.wants_pictures else None
        if isinstance(self.task, _Noise):
            from dstl_cli.evaluation import warm_up

            for configuration in self.task.configurations:
                warm_up(configuration)
        with progress_bar("evaluate") as (progress, describe):
            for index, (item, name) in enumerate(zip(self.task.clean, names, strict=True)):
                describe(name)
                try:
                    self._one(index, item, name, plan, part_of(progress, index, len(names)))
                except DstlError as error:
                    self._failed(name, str(error))
                except MemoryError:
                    self._failed(name, f"{item.name} does not fit into memory; crop it or close other programs.")

    def _failed(self, name: str, sentence: str) -> None:
        self.errors.append({"image": name, "error": sentence})
        report_error(sentence)

    def _names(self) -> list[str]:
        """What the pictures are called: the place in their folder where that is clear, else the whole path."""
        from dstl_cli.files.names import display_name

        short = [display_name(item.relative.as_posix()) for item in self.task.clean]
        return short if len(set(short)) == len(short) else [item.name for item in self.task.clean]

    def _plan(self) -> "Plan":
        """How many pictures the page can show, and how large."""
        from dstl_cli.exhibits import plan_page
        from dstl_cli.files.images import probe

        channels: list[int] = []
        for item in self.task.clean:
            try:
                info = probe(item.path) if item.path is not None else None
            except DstlError:
                continue  # it is reported when it is read
            channels += [3] if info is None else [info.channels] * info.pages
        return plan_page(channels or [1], self.task.shots_each)

    def _one(self, index: int, item: "Input", name: str, plan: "Plan | None", progress: Progress | None) -> None:
        """Measure the pages of one picture."""
        picture = _read(item)
        count = len(picture.specs)
        partner = None
        if isinstance(self.task, _Pairs):
            partner = _read(self.task.pairs[index][1])
            if len(partner.specs) != count:
                raise DstlError(f"{picture.name} has {count} pages and {partner.name} {len(partner.specs)}.")
        rows: list[Row] = []
        exhibits: list[Exhibit] = []
        for page in range(count):
            self.pages += 1
            self.colour = self.colour or picture.specs[page].channels == 3
            title = name if count == 1 else f"{name}, page {page + 1}"
            longest = plan.longest if plan is not None and self.pages <= plan.shown else None
            measured = self._measured(name, page, picture, partner, part_of(progress, page, count))
            try:
                exhibits += self._page(title, picture.pages[page], measured, longest, rows)
            except ValueError as error:
                raise DstlError(_sentence(picture, partner, error)) from error
        self.rows += rows  # all pages of a picture or none
        self.exhibits += exhibits

    def _page(
        self, title: str, pixels: "Pixels", measured: "Iterable[Measured]", longest: int | None, rows: "list[Row]"
    ) -> "list[Exhibit]":
        """Take the rows of one page, and make its exhibit where its pictures may have a longest side."""
        from dstl_cli.evaluation import with_white_at_255
        from dstl_cli.exhibits import make_exhibit, make_shot, places_to_look_at

        if longest is None:
            rows += [row for row, _, _ in measured]
            return []
        clean = with_white_at_255(pixels, self.peak)
        places = places_to_look_at(clean)
        shots = []
        for row, before, after in measured:
            rows.append(row)
            if row.repeat in (None, 1):
                shots.append(make_shot(row, before, after, places, longest))
        return [make_exhibit(title, clean, places, shots, longest)]

    def _measured(
        self, name: str, page: int, picture: "Picture", partner: "Picture | None", progress: Progress | None
    ) -> "Iterator[Measured]":
        """The rows of one page, each with the picture before and after."""
        from dstl_cli.evaluation import measure_pair, noise_trials, with_white_at_255

        pixels = picture.pages[page]
        if partner is not None:
            other = partner.pages[page]
            row = measure_pair(name, page + 1, pixels, other, peak=self.peak, ssim_kind=self.ssim)
            yield row, with_white_at_255(pixels, self.peak), with_white_at_255(other, self.peak)
        elif isinstance(self.task, _Noise):
            for trial in noise_trials(
                name, page + 1, pixels, self.task.sigmas, self.task.configurations, repeats=self.task.repeats,
                seed=self.task.seed, peak=self.peak, ssim_kind=self.ssim, jobs=self.task.jobs, progress=progress,
            ):  # fmt: skip
                yield trial.row, trial.noisy, trial.denoised

    # What there is to say

    @property
    def means(self) -> "list[Mean]":
        """The means of each sigma and method over all pictures."""
        from dstl_cli.evaluation import mean_rows

        return mean_rows(self.rows)

    @property
    def each(self) -> "list[Mean]":
        """The means of each picture over the repeats."""
        from dstl_cli.evaluation import mean_rows

        return mean_rows(self.rows, of_each_picture=True)

    @property
    def titles(self) -> dict[tuple[str | None, int | None], str]:
        """Names of the measured pages: those of pictures with several have their number."""
        several = {row.image for row in self.rows if row.page > 1}
        return {
            (row.image, row.page): f"{row.image}, page {row.page}" if row.image in several else row.image
            for row in self.rows
        }

    @property
    def measures(self) -> tuple[str, ...]:
        """How the numbers are meant, a sentence each."""
        scale = "255" if self.peak == 255 else f"255, floats {self.peak:g}"
        sentences = [f"PSNR in dB (peak {scale}) and {SSIM_WORDS[self.ssim]}."]
        if self.colour:
            sentences.append("Colour: PSNR over all red, green and blue values, SSIM of the luma (Rec. 601).")
        if isinstance(self.task, _Noise):
            noise = f"White Gaussian noise of seed {self.task.seed}"
            if self.task.repeats > 1:
                last = self.task.seed + self.task.repeats - 1
                noise += f" to {last}; after each mean stands its standard deviation over these {self.task.repeats}"
            sentences.append(f"{noise}. Seconds are those of denoising alone.")
        identical = sum(row.identical for row in self.rows)
        if identical:
            sentences.append(f"{identical} identical of {len(self.rows)}: not in the mean PSNR.")
        return tuple(sentences)

    def report(self) -> "Report":
        """What the HTML page tells."""
        from dstl_cli.files.html import Report

        count = len(self.titles)
        pictures = f"{count} picture{'s' if count > 1 else ''}"
        noise = isinstance(self.task, _Noise)
        if isinstance(self.task, _Noise):
            sigmas = ", ".join(f"{sigma:g}" for sigma in self.task.sigmas)
            methods = ", ".join(item.label for item in self.task.configurations)
            summary = f"{pictures}, noise of sigma {sigmas} added and removed again with {methods}."
        else:
            summary = f"{pictures} compared with the clean {'ones' if count > 1 else 'one'}."
        measures = list(self.measures)
        if len(self.exhibits) < count:
            measures.append(
                f"Only the first {len(self.exhibits)} are shown below, to keep the page small; the tables have all."
            )
        if self.errors:
            measures.append(f"{len(self.errors)} more could not be measured.")
        return Report(
            title="How well was it denoised?", summary=summary, measures=tuple(measures),
            before="noisy" if noise else "clean", clean="clean" if noise else None,
            difference="what was removed (noisy - denoised)" if noise else "the difference (clean - compared)",
            means=self.means, each=self.each, titles=self.titles, exhibits=self.exhibits,
        )  # fmt: skip


def _read(item: "Input") -> "Picture":
    from dstl_cli.files.images import read_picture

    return read_picture(item.path if item.path is not None else sys.stdin.buffer.read(), name=item.name)


def _sentence(picture: "Picture", partner: "Picture | None", error: ValueError) -> str:
    """What is wrong with a picture, with its name."""
    if partner is None:
        return f"{picture.name} cannot be measured: {error}"
    return f"{picture.name} and {partner.name} cannot be compared: {error}"


# Telling


def _print(run: _Run, csv: Path | None, report: Path | None) -> None:
    from rich.text import Text

    noise = isinstance(run.task, _Noise)
    headings = ["image", "sigma", "method", "noisy", "PSNR", "SSIM", "s"] if noise else ["image", "PSNR", "SSIM"]
    view = compact_table(*headings)
    titles = run.titles
    for mean in [*run.each, *run.means]:
        last = mean.image is None
        if last and len(titles) < 2:
            continue
        cells = {
            "image": Text("mean" if last else titles[mean.image, mean.page]),
            "sigma": Text("" if mean.sigma is None else f"{mean.sigma:g}"),
            "method": Text(mean.method or ""),
            "noisy": Text(_number(mean.noisy_psnr, ".3f")),
            "PSNR": Text(_number(mean.psnr, ".3f", mean.psnr_deviation)),
            "SSIM": Text(_number(mean.ssim, ".4f", mean.ssim_deviation)),
            "s": Text(_number(mean.seconds, ".2f")),
        }
        view.add_row(*(cells[heading] for heading in headings), style="bold" if last else None)
    console = stdout_console()
    for sentence in run.measures:
        console.print(Text(sentence))
    console.print(view)
    for path in (csv, report):
        if path is not None:
            console.print(Text(f"Written: {path}"))


def _number(value: float | None, form: str, spread: float | None = None) -> str:
    text = "-" if value is None else format(value, form)
    return text if spread is None else f"{text} +-{spread:{form}}"


def _check_floor(means: "list[Mean]", min_psnr: float | None) -> None:
    """Exit when a mean PSNR is below what was asked for."""
    below = [mean for mean in means if min_psnr is not None and mean.psnr < min_psnr]
    for mean in below:
        which = "" if mean.sigma is None else f" of {mean.method} at sigma {mean.sigma:g}"
        report_error(f"The mean PSNR{which} is {mean.psnr:.3f} dB, below the {min_psnr:g} dB of --min-psnr.")
    if below:
        raise typer.Exit(BELOW)
