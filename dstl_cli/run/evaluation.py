"""A run of `dstl evaluate`: which pictures are measured against which, the rows, and what the page shows of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from dstl_cli.base.names import display_name
from dstl_cli.base.progress import Progress, part_of
from dstl_cli.errors import DstlError, UsageProblem, refusals
from dstl_cli.measure import trials
from dstl_cli.noise.blind import NO_HINTS
from dstl_cli.picture.formats import holds_pictures
from dstl_cli.picture.inputs import Input, find_inputs
from dstl_cli.picture.model import Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.pixels.depth import Depth
from dstl_cli.report.exhibits import Exhibit, page_budget
from dstl_cli.report.page import Report
from dstl_cli.run.collections import NO_SUFFIX
from dstl_cli.run.pages import hints_of

Pair = tuple[Input, Input | None]  # a clean picture and what is compared with it, if not the clean one with noise

MADE = ("_denoised",)
CLEAN, NOISY = ("_clean", "-clean"), ("_noisy", "-noisy")
SSIM_WORDS = {
    "wang": "SSIM as Wang et al. define it (Gaussian 11x11 window)",
    "downsampled": "SSIM after averaging to about 256 pixels on the shorter side",
}


def clean_pictures(arguments: Sequence[str], *, recursive: bool) -> list[Pair]:
    """The pictures among files and folders, our own results left out."""
    return [(item, None) for item in _inputs(arguments, recursive, MADE[0])]


def paired(first: Path, second: Path, *, recursive: bool, noisy: bool) -> list[Pair]:
    """Two pictures, or the pictures of two folders: each with its namesake in the other, whatever the suffixes.

    noisy: whether the second are noisy, or denoised. Names with _denoised are taken before plain ones, which are then
    their noisy inputs; of noisy pictures, names with _clean and _noisy. A picture without a partner, on either side, is
    an error.
    """
    if holds_pictures(first) != holds_pictures(second):
        raise UsageProblem("A picture is compared with a picture, a folder with a folder; give two of one kind.")
    if not holds_pictures(first):
        return [(Input(first, Path(first.name)), Input(second, Path(second.name)))]
    second = first if first.samefile(second) else second
    clean = _by_stem(first, recursive, CLEAN if noisy else (), (*NOISY, *MADE) if noisy else MADE)
    partners = _by_stem(second, recursive, NOISY if noisy else MADE, (*CLEAN, *MADE) if noisy else ())
    own = [item.name for stem, item in clean.items() if noisy and item == partners.get(stem)]
    if 0 < len(own) < len(clean):
        raise UsageProblem(f"{own[0]} has no partner that ends in _noisy in {second}; add or remove it.")
    for here, there, folder in ((clean, partners, second), (partners, clean, first)):
        alone = [item for stem, item in here.items() if stem not in there]
        if alone:
            more = f" (and {len(alone) - 1} more)" if len(alone) > 1 else ""
            raise UsageProblem(f"{alone[0].name}{more} has no partner of the same name in {folder}; add or remove it.")
    return [(item, partners[stem]) for stem, item in clean.items()]


def _by_stem(folder: Path, recursive: bool, marks: tuple[str, ...], others: tuple[str, ...]) -> dict[str, Input]:
    """The pictures of a folder by their relative path without the suffix and a mark at the end of the name.

    A name with a mark is taken before the same one without; those that end in `others` are left out.
    """
    pictures: dict[str, tuple[str, Input]] = {}
    for item in _inputs([str(folder)], recursive, MADE[0] if MADE[0] in others else NO_SUFFIX):
        stem = item.stem.as_posix()
        if stem.endswith(others):
            continue
        mark = next((mark for mark in marks if stem.endswith(mark)), "")
        name = stem.removesuffix(mark)
        known, other = pictures.get(name, ("", None))
        if other is not None and bool(known) == bool(mark):
            raise UsageProblem(f"{other.name} and {item.name} have the same name; keep one of them in the folder.")
        if mark or other is None:
            pictures[name] = mark, item
    if not pictures:
        raise UsageProblem(f"{folder} holds only pictures whose names end in {others[0]}; give other pictures.")
    return {name: item for name, (_, item) in pictures.items()}


def _inputs(arguments: Sequence[str], recursive: bool, made_suffix: str) -> list[Input]:
    found = find_inputs(arguments, recursive=recursive, made_suffix=made_suffix)
    if found.problems:
        raise UsageProblem(found.problems[0][1])
    return list(found.inputs)


@dataclass(frozen=True)
class Measured:
    """What is measured of a picture: the rows, what its pages are called, and some of them to be shown."""

    rows: list[trials.Row]
    titles: dict[tuple[str | None, int | None], str]
    exhibits: list[Exhibit]
    colour: bool


@dataclass(frozen=True)
class MeasureWork:
    """One picture of an evaluation, under its name in the tables; see `Evaluation`.

    shown: how many of its pages are, and how large.
    """

    name: str
    item: Input
    other: Input | None
    plan: trials.NoisePlan | None
    measures: trials.Measures
    shown: tuple[int, int] = (0, 0)

    def attempt(self, progress: Progress | None = None) -> Measured | DstlError:
        """What is measured, or why it is not."""
        failure = "cannot be measured" if self.other is None else f"and {self.other.name} cannot be compared"
        try:
            with refusals(self.item.name, failure):
                return self._measured(progress)
        except DstlError as error:
            return error

    def _measured(self, progress: Progress | None) -> Measured:
        """Measure the pages: all of them, or none counts."""
        item, other = self.item, self.other
        picture = read_picture(item.path, name=item.name)
        partner = None if other is None else read_picture(other.path, name=other.name)
        count = len(picture.specs)
        if partner is not None and len(partner.specs) != count:
            raise DstlError(f"{picture.name} has {count} pages and {partner.name} {len(partner.specs)}.")
        made = Measured([], {}, [], any(spec.channels == 3 for spec in picture.specs))
        for page in range(count):
            made.titles[self.name, page + 1] = title = self.name if count == 1 else f"{self.name}, page {page + 1}"
            exhibit = None
            if page < self.shown[0]:
                spec = picture.specs[page]
                depth = Depth.of(spec.dtype, spec.bits)
                clean = trials.with_white_at_255(picture.pages[page], self.measures.peak, depth=depth)
                exhibit = Exhibit.of(title, clean, self.shown[1])
                made.exhibits.append(exhibit)
            for measured in self._measurements(picture, partner, page, part_of(progress, page, count)):
                made.rows.append(measured.row)
                if exhibit is not None and measured.row.repeat in (None, 1):
                    exhibit.add(measured)
        return made

    def _measurements(
        self, picture: Picture, partner: Picture | None, page: int, progress: Progress | None
    ) -> Iterable[trials.Measurement]:
        """Those of a page."""
        clean, noisy = picture.pages[page], None if partner is None else partner.pages[page]
        specs = [None if whole is None else whole.specs[page] for whole in (picture, partner)]
        own, theirs = (None if spec is None else Depth.of(spec.dtype, spec.bits) for spec in specs)
        if self.plan is not None:
            return trials.noise_trials(
                *(self.name, page + 1, clean, self.plan, self.measures, progress),
                noisy=noisy,
                depths=(own, theirs),
                hints=NO_HINTS if partner is None else hints_of(partner),
            )
        if noisy is None:
            return ()
        return [trials.measure_pair(self.name, page + 1, clean, noisy, self.measures, depths=(own, theirs))]


@dataclass
class Evaluation:
    """Goes through the pictures one by one and keeps the rows; a picture that fails does not stop the rest.

    plan: how the partners, or the clean pictures with noise, are denoised; None: the partners are compared as they are.
    executor: who does the work, in any order, if not this process.
    """

    pairs: Sequence[Pair]
    measures: trials.Measures
    plan: trials.NoisePlan | None = None
    wants_pictures: bool = False
    rows: list[trials.Row] = field(default_factory=list)
    titles: dict[tuple[str | None, int | None], str] = field(default_factory=dict)  # by name and page
    exhibits: list[Exhibit] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)
    colour: bool = False  # some page has colours
    executor: "Executor | None" = None

    def all(self, progress: Progress | None, describe: Callable[[str], None]) -> Iterator[str]:
        """Measure everything; gives a sentence for each picture that fails."""
        names = [display_name(item.relative.as_posix()) for item, _ in self.pairs]
        if len(set(names)) < len(names):  # the places in their folders are not clear
            names = [item.name for item, _ in self.pairs]
        how = self.plan, self.measures
        shown = self._shown() if self.wants_pictures else [(0, 0)] * len(names)
        told = zip(names, self.pairs, shown, strict=True)
        works = [MeasureWork(name, *pair, *how, shown=pages) for name, pair, pages in told]
        ended: dict[int, Measured | DstlError] = {}
        measure = Evaluation.on_this_machine if self.executor is None else self.executor
        for work, end in measure(self, works, progress, describe):
            ended[id(work)] = end
            if isinstance(end, DstlError):
                yield str(end)
        for work in works:
            self._add(work.name, ended[id(work)])

    def on_this_machine(
        self, works: "Sequence[MeasureWork]", progress: Progress | None, describe: Callable[[str], None]
    ) -> "Iterator[tuple[MeasureWork, Measured | DstlError]]":
        """What is measured of each picture, one after the other."""
        for _, request in self.plan.configurations if self.plan is not None else ():
            trials.warm_up(request)
        for index, work in enumerate(works):
            describe(work.name)
            yield work, work.attempt(part_of(progress, index, len(works)))

    def _add(self, name: str, end: "Measured | DstlError") -> None:
        """Keep what is measured of a picture."""
        if isinstance(end, DstlError):
            self.errors.append({"image": name, "error": str(end)})
            return
        self.rows += end.rows
        self.titles |= end.titles
        self.exhibits += end.exhibits
        self.colour = self.colour or end.colour

    def _shown(self) -> list[tuple[int, int]]:
        """How many pages of each picture are on the report, and how large: the first that fit, by the headers alone."""
        channels: list[list[int]] = []
        for item, _ in self.pairs:
            pages = [1]  # if it cannot be looked at, which is reported when it is read, unless it then can be
            with suppress(DstlError):
                info = read_picture(item.path).info if item.path is not None else None
                pages = [3] if info is None else [info.channels] * info.pages
            channels.append(pages)
        each = 1 if self.plan is None else len(self.plan.cases) * len(self.plan.configurations)
        most, side = page_budget([count for pages in channels for count in pages] or [1], each)
        before = accumulate(map(len, channels), initial=0)
        return [(min(len(pages), max(0, most - count)), side) for pages, count in zip(channels, before, strict=False)]

    @property
    def mode(self) -> str:
        """Whether partners are compared (pair), denoised (noisy), or noise is added and removed again (noise)."""
        return "pair" if self.plan is None else "noise" if self.pairs[0][1] is None else "noisy"

    @property
    def settings(self) -> dict[str, Any]:
        """All that makes the numbers, by name."""
        settings: dict[str, Any] = {"mode": self.mode}
        if self.plan is not None:
            methods = {label: request.facts for label, request in self.plan.configurations}
            settings |= {"noise": self.plan.noise_names, "sigma": list(self.plan.sigmas), "method": methods}
            settings |= {"repeats": self.plan.repeats, "seed": self.plan.seed}
        return settings | {"peak": self.measures.peak, "ssim": self.measures.ssim_kind}

    @property
    def means(self) -> list[trials.Mean]:
        """The means of each sigma and method over all pictures."""
        return trials.mean_rows(self.rows)

    @property
    def sentences(self) -> list[str]:
        """How the numbers are meant."""
        peak = self.measures.peak
        scale = "255" if peak == 255 else f"255, floats {peak:g}"
        sentences = [f"PSNR in dB (peak {scale}) and {SSIM_WORDS[self.measures.ssim_kind]}."]
        if self.colour:
            sentences.append("Colour: PSNR over all red, green and blue values, SSIM of the luma (Rec. 601).")
        if self.plan is not None:
            seed, repeats = self.plan.seed, self.plan.repeats
            noise = f"{'Added' if self.plan.noise_names else 'White Gaussian'} noise of seed {seed}"
            if repeats > 1:
                noise += f" to {seed + repeats - 1}; after each mean stands its standard deviation over these {repeats}"
            seconds = "Seconds are those of denoising alone."
            sentences.append(seconds if self.mode == "noisy" else f"{noise}. {seconds}")
        identical = sum(row.identical for row in self.rows)
        if identical:
            sentences.append(f"{identical} identical of {len(self.rows)}: not in the mean PSNR.")
        return sentences

    def report(self) -> Report:
        """What the HTML page tells."""
        clean: str | None
        count = len(self.titles)
        pictures, ones = ("1 picture", "one") if count == 1 else (f"{count} pictures", "ones")
        if self.plan is None:
            summary = f"{pictures} compared with the clean {ones}."
            before, clean, difference = "clean", None, "the difference (clean - compared)"
        else:
            told = "sigma " + ", ".join("auto" if sigma is None else f"{sigma:g}" for sigma in self.plan.sigmas)
            noises = ", ".join(self.plan.noise_names)
            done = f"denoised, told {told},"
            if self.mode == "noise":
                done = f"noise {noises or f'of {told}'} added and removed again{f', told {told},' if noises else ''}"
            summary = f"{pictures}, {done} with {', '.join(label for label, _ in self.plan.configurations)}."
            before, clean, difference = "noisy", "clean", "what was removed (noisy - denoised)"
        sentences = self.sentences
        if len(self.exhibits) < count:
            shown = f"Only the first {len(self.exhibits)} are shown below, to keep the page small"
            sentences.append(f"{shown}; the tables have all.")
        if self.errors:
            sentences.append(f"{len(self.errors)} more could not be measured.")
        numbers = (self.means, trials.mean_rows(self.rows, of_each_picture=True), self.titles)
        return Report(summary, sentences, before, clean, difference, *numbers, self.exhibits)


Executor = Callable[
    [Evaluation, Sequence[MeasureWork], Progress | None, Callable[[str], None]],
    Iterator[tuple[MeasureWork, Measured | DstlError]],
]
