"""The noise of many pictures: estimated one by one, pooled into a profile, or shared by the pictures of a run."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from dstl_cli.base.progress import Progress
from dstl_cli.base.threads import available_cores, in_order, one_blas_thread
from dstl_cli.denoising.survey import effective_sigma, look_at, sample_for_noise
from dstl_cli.errors import DstlError, refusals
from dstl_cli.noise.blind import estimate_model
from dstl_cli.noise.flat import flat_field_noise
from dstl_cli.noise.model import NoiseModel
from dstl_cli.noise.pool import DISAGREE, PooledNoise, pooled, pooled_flat_fields
from dstl_cli.picture.inputs import Input, Selection
from dstl_cli.picture.model import Picture
from dstl_cli.picture.read import read_picture
from dstl_cli.run.files import LOOKED_AT, is_small
from dstl_cli.run.noise import UNITS
from dstl_cli.run.pages import PageSource


@dataclass(frozen=True, order=True)
class PictureKind:
    """What pictures must have in common for their noise to be one: working channels, and the scale of the numbers."""

    channels: int
    own_units: bool  # of the file; others are on the 0-255 scale

    @property
    def words(self) -> str:
        """Of a picture of this kind."""
        return ("grey" if self.channels == 1 else "colour") + (" in units of its own" if self.own_units else "")

    @property
    def units(self) -> str:
        """What its noise is counted in."""
        return UNITS[not self.own_units]


@dataclass(frozen=True)
class PageNoise:
    """The noise of one page by itself; flat: as it is read where the page is a flat field."""

    source: Input
    page: int  # from 0
    pages: int
    kind: PictureKind
    model: NoiseModel
    flat: NoiseModel | None
    found: bool
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.source.name if self.pages == 1 else f"{self.source.name} (page {self.page + 1})"


def noise_of(item: Input, *, seed: int, flat_fields: bool, keep_invalid: bool) -> list[PageNoise]:
    """The noise of every page of a picture; flat_fields: whether they are looked for."""
    with refusals(item.name, "cannot be looked at"):
        picture = replace(read_picture(item.path, name=item.name), allows_invalid=keep_invalid)
        pages = range(len(picture.specs))
        return [noise_of_page(item, picture, page, seed=seed, flat_fields=flat_fields) for page in pages]


def noise_of_page(item: Input, picture: Picture, index: int, *, seed: int = 0, flat_fields: bool = False) -> PageNoise:
    """The noise of a page as denoising with this seed estimates it, in units of its depth."""
    source = PageSource(picture, index)
    depth = source.depth
    seen = look_at(source, depth, keep_invalid=picture.allows_invalid)
    sample = sample_for_noise(source, seen, seed)
    model, warnings = estimate_model(sample, depth, hints=source.hints)
    with one_blas_thread():
        flat = flat_field_noise(sample, depth) if flat_fields else None
    largest = max(abs(seen.smallest), abs(seen.largest)) / depth.unit
    found = flat is not None or effective_sigma(max(model.sigmas), largest) > 0
    kind = PictureKind(len(model.sigmas), not depth.scaled)
    return PageNoise(item, index, len(picture.specs), kind, model, flat, found, warnings)


def estimates(
    inputs: Sequence[Input],
    jobs: int | None,
    *,
    seed: int = 0,
    flat_fields: bool = False,
    keep_invalid: bool = False,
) -> Iterator[tuple[Input, list[PageNoise] | DstlError]]:
    """The noise of each picture in order, or why there is none; small ones are looked at side by side."""

    def attempt(item: Input) -> list[PageNoise] | DstlError:
        try:
            return noise_of(item, seed=seed, flat_fields=flat_fields, keep_invalid=keep_invalid)
        except DstlError as error:
            return error

    threads = jobs or available_cores()
    several = threads > 1 and len(inputs) > 1
    for start in range(0, len(inputs), LOOKED_AT):
        for small, run in groupby(inputs[start : start + LOOKED_AT], key=lambda item: several and is_small(item)):
            items = list(run)
            yield from zip(items, in_order(attempt, items, threads if small else 1), strict=True)


# Shared by the pictures of a run


@dataclass(frozen=True)
class SharedNoise:
    """What the pictures of a run have in common, each kind by itself."""

    pools: Mapping[PictureKind, PooledNoise]
    kinds: Mapping[tuple[Input, int], PictureKind]  # of every page that could be read
    counts: Mapping[PictureKind, int]  # pages in which noise was found

    def limited_to(self, places: Mapping[Input, Input]) -> "SharedNoise":
        """The same for some pictures alone, each under the name that it has elsewhere."""
        kinds = {(places[item], page): kind for (item, page), kind in self.kinds.items() if item in places}
        return replace(self, kinds=kinds)

    def model_of(self, source: Input, page: int) -> NoiseModel | None:
        """The noise of a page; None where nothing was found in any of its kind, or too different things."""
        pool = self.pools.get(self.kinds.get((source, page), PictureKind(0, False)))
        return None if pool is None or pool.agreement == DISAGREE else pool.model

    def facts(self) -> list[dict[str, Any]]:
        """What reports tell of it."""
        return [
            {"channels": kind.channels, "units": kind.units, "pictures": self.counts[kind]} | pool_facts(pool)
            for kind, pool in self.pools.items()
        ]


def pool_facts(pool: PooledNoise) -> dict[str, Any]:
    """What reports tell of a pool."""
    left_out = len(pool.left_out)
    return {"left_out": left_out, "spread": pool.spread, "agreement": pool.agreement, "noise": pool.model.to_json()}


def share_noise(
    inputs: Sequence[Input],
    jobs: int | None,
    seed: int,
    progress: Progress | None = None,
    *,
    keep_invalid: bool = False,
) -> SharedNoise:
    """Look at all pictures of a run and pool what is found; those that cannot be read have no part in it."""
    kinds: dict[tuple[Input, int], PictureKind] = {}
    models: dict[PictureKind, list[NoiseModel]] = {}
    for number, (item, pages) in enumerate(estimates(inputs, jobs, seed=seed, keep_invalid=keep_invalid), start=1):
        for page in pages if isinstance(pages, list) else ():
            kinds[item, page.page] = page.kind
            if page.found:
                models.setdefault(page.kind, []).append(page.model)
        if progress is not None:
            progress(number / len(inputs))
    pools = {kind: pooled(models[kind]) for kind in sorted(models)}
    return SharedNoise(pools, kinds, {kind: len(models[kind]) for kind in pools})


# Profiles


@dataclass(frozen=True)
class Profile:
    """The noise of a camera: the pool, and the pages that it was made from."""

    pool: PooledNoise
    pages: tuple[PageNoise, ...]
    flat_fields: bool  # they are all flat fields, and others were not needed
    unneeded: int  # other pages with noise

    @property
    def kind(self) -> PictureKind:
        """Of its pictures."""
        return self.pages[0].kind

    @property
    def made_from(self) -> dict[str, Any]:
        """What its file says of it."""
        count = len(self.pages)
        flat = count if self.flat_fields else 0
        return {"pictures": count, "flat_fields": flat, "spread": self.pool.spread, "units": self.kind.units}

    @property
    def far(self) -> list[tuple[str, float, bool]]:
        """The pages that have far more or less noise: name, how many times the others', whether they are left out."""
        return [(self.pages[i].name, ratio, i in self.pool.left_out) for i, ratio in self.pool.far.items()]


@dataclass
class ProfileRun:
    """Goes through pictures of one camera; a broken one does not stop the rest."""

    found: Selection
    jobs: int | None = None
    pages: list[PageNoise] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)  # name, sentence

    def read(self, progress: Progress, describe: Callable[[str], None]) -> Iterator[str]:
        """Look at every picture; the sentences about those that cannot be."""
        fail = partial(map, self._failed)
        yield from fail(self.found.problems)
        inputs = self.found.inputs
        for number, (item, pages) in enumerate(estimates(inputs, self.jobs, flat_fields=True), start=1):
            describe(item.name)
            if isinstance(pages, DstlError):
                yield self._failed((item.name, str(pages)))
            else:
                self.pages += pages
            progress(number / len(inputs))
        yield from fail(self._strange())

    def _failed(self, problem: tuple[str, str]) -> str:
        self.errors.append(problem)
        return problem[1]

    @property
    def without_noise(self) -> list[str]:
        """The pages in which nothing was found."""
        return [page.name for page in self.pages if not page.found]

    @property
    def _kind(self) -> PictureKind | None:
        """That of most pages with noise."""
        counts = Counter(page.kind for page in self.pages if page.found)
        return max(counts, key=lambda kind: (counts[kind], kind), default=None)

    def _strange(self) -> Iterable[tuple[str, str]]:
        """The pages of another kind than most: a model is of one kind."""
        most = self._kind
        for page in self.pages:
            if most is not None and page.found and page.kind != most:
                what = f"{page.name} is {page.kind.words}, most others are {most.words}"
                yield page.name, f"{what}; give it a profile of its own."

    def finish(self) -> Profile:
        """Pool what was found: flat fields alone where there are any."""
        own = [page for page in self.pages if page.found and page.kind == self._kind]
        if not own:
            what = "No picture could be looked at" if not self.pages else "No noise was found in any picture"
            raise DstlError(f"{what}: nothing is written; give noisy pictures of one camera.")
        flat = [page for page in own if page.flat is not None]
        if flat:
            pool = pooled_flat_fields([page.flat for page in flat if page.flat is not None])
            return Profile(pool, tuple(flat), True, len(own) - len(flat))
        return Profile(pooled([page.model for page in own]), tuple(own), False, 0)
