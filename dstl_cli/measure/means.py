"""Means of measurements: over pictures, and over repeats."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from dstl_cli.measure.trials import Row


@dataclass(frozen=True)
class Mean:
    """The mean of several rows. Identical pictures, whose PSNR is infinite, are counted but not in the mean PSNR."""

    image: str | None  # None: over all pictures
    page: int | None
    sigma: float | None
    method: str | None
    rows: int
    identical_rows: int
    identical: bool  # all of them
    psnr: float  # infinite where all are identical
    psnr_deviation: float | None  # sample standard deviation, over repeats, of the mean over the pictures
    ssim: float | None
    ssim_deviation: float | None
    noisy_psnr: float | None
    noisy_ssim: float | None
    seconds: float | None

    @property
    def gain(self) -> float | None:
        """By how many dB the PSNR rose above that of the noisy picture."""
        return None if self.noisy_psnr is None else self.psnr - self.noisy_psnr


def mean_rows(rows: Iterable[Row], *, of_each_picture: bool = False) -> list[Mean]:
    """Means for each sigma and method in the order they come, over all pictures or for each picture."""
    groups: dict[tuple[str | None, int | None, float | None, str | None], list[Row]] = {}
    for row in rows:
        picture = (row.image, row.page) if of_each_picture else (None, None)
        groups.setdefault((*picture, row.sigma, row.method), []).append(row)
    return [Mean(*key, **_facts(part)) for key, part in groups.items()]


def _facts(rows: list[Row]) -> dict[str, Any]:
    """What the mean of some rows tells."""
    identical = sum(row.identical for row in rows)
    psnr = _mean_of(row.psnr for row in rows if not row.identical)
    plain = {
        key: _mean_of(getattr(row, key) for row in rows) for key in ("ssim", "noisy_psnr", "noisy_ssim", "seconds")
    }
    return plain | {
        "rows": len(rows),
        "identical_rows": identical,
        "identical": identical == len(rows),
        "psnr": math.inf if psnr is None else psnr,
        "psnr_deviation": _deviation_over_repeats(rows, lambda row: None if row.identical else row.psnr),
        "ssim_deviation": _deviation_over_repeats(rows, lambda row: row.ssim),
    }


def _mean_of(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return fmean(present) if present else None


def _deviation_over_repeats(rows: list[Row], value: Callable[[Row], float | None]) -> float | None:
    """Sample standard deviation of the repeats' means; None for fewer than two."""
    repeats = dict.fromkeys(row.repeat for row in rows)
    means = [_mean_of(value(row) for row in rows if row.repeat == repeat) for repeat in repeats]
    present = [mean for mean in means if mean is not None]
    return stdev(present) if len(present) > 1 else None
