"""The report of `dstl evaluate` as one HTML page that needs nothing else: no network, no other file."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstl_cli.base.atomic import atomic_output
from dstl_cli.picture.model import picture_from_array
from dstl_cli.picture.write import write_picture
from dstl_cli.version import __version__

if TYPE_CHECKING:
    from dstl_cli.base.arrays import Bytes
    from dstl_cli.measure.trials import Mean
    from dstl_cli.report.exhibits import Exhibit

NOTHING = "\N{EN DASH}"
COLOURS = 6  # of curves, as report.css has them
CHARTS = {  # the values, their deviations and those of the noisy picture, by the title
    "PSNR in dB": ("psnr", "psnr_deviation", "noisy_psnr"),
    "Gain over the noisy picture in dB": ("gain", "psnr_deviation", ""),
    "SSIM": ("ssim", "ssim_deviation", "noisy_ssim"),
}
LABEL_GAP = 0.07  # between labels under a chart, as a share of its width


@dataclass(frozen=True)
class Report:
    """What the page tells."""

    summary: str  # what was measured
    measures: Sequence[str]  # how, and what to know about it
    before: str  # what the left of a slider is called
    clean: str | None  # what the last crop is called; None where the left of the slider is the clean picture
    difference: str
    means: "Sequence[Mean]"
    each: "Sequence[Mean]"  # of each picture
    titles: dict[tuple[str | None, int | None], str]  # of the pictures in `each`
    exhibits: "Sequence[Exhibit]"


def write_report(report: Report, path: Path, *, overwrite: bool = False) -> None:
    """Write the page, complete or not at all."""
    with atomic_output(path, overwrite=overwrite) as stream:
        stream.write(render(report).encode())


def render(report: Report) -> str:
    """The page as text: the template page.html with the report's values, all of them escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {function.__name__: function for function in (number, winners, data_uri)}
    denoised = any(mean.method is not None for mean in report.means)
    noises = any(mean.noise is not None for mean in report.means)
    page = environment.get_template("page.html")
    known = {"denoised": denoised, "noises": noises, "charts": charts(report.means), "version": __version__}
    return page.render(report=report, **known).lstrip()


def number(value: float | None, form: str, missing: str | None = NOTHING) -> str | None:
    """A number as text; a dash, or what else stands for a missing one."""
    return missing if value is None else f"{value:{form}}".replace("inf", "\N{INFINITY}")


def winners(means: "Sequence[Mean]") -> "set[Mean]":
    """The highest PSNR for each picture and case of noise, where several methods compete."""
    best = {(mean.image, mean.page, mean.case): mean.psnr for mean in sorted(means, key=lambda mean: mean.psnr)}
    if len({mean.method for mean in means}) < 2:
        return set()
    return {mean for mean in means if mean.psnr == best[mean.image, mean.page, mean.case]}


def data_uri(picture: "Bytes") -> str:
    """A grey or RGB picture of uint8 as a PNG within the page."""
    stream = io.BytesIO()
    write_picture(picture_from_array(picture), stream, format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


Point = tuple[float, float, float]  # sigma, value, deviation
Curve = tuple[str, str, list[Point]]  # its name, its CSS class, and its points by rising sigma


def charts(means: "Sequence[Mean]") -> list[dict[str, Any]]:
    """PSNR, gain and SSIM of each method over sigma, where there are several; charts without a point are left out."""
    if len({mean.sigma for mean in means} - {None}) < 2 or len({mean.noise for mean in means}) > 1:
        return []
    methods = list(dict.fromkeys(mean.method for mean in means))
    sigmas = sorted(mean.sigma for mean in means if mean.method == methods[0] and mean.sigma is not None)
    drawn = []
    for title, (value, deviation, noisy) in CHARTS.items():
        curves: list[Curve] = [("noisy", "noisy", _points(means, methods[0], noisy))] if noisy else []
        for index, method in enumerate(methods):
            curves.append((method or "", f"s{index % COLOURS}", _points(means, method, value, deviation)))
        if any(points for _, _, points in curves):
            drawn.append({"title": title, "curves": curves, **_axes(sigmas, curves)})
    return drawn


def _axes(sigmas: Sequence[float], curves: Sequence[Curve]) -> dict[str, Any]:
    """What is written at the axes of a diagram, and its ends: all points and their deviations find room."""
    points = [point for _, _, points in curves for point in points]
    low = min(value - deviation for _, value, deviation in points)
    high = max(value + deviation for _, value, deviation in points)
    ticks = nice_ticks(low, high)
    decimals = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    written = [sigmas[0]]
    for sigma in sigmas:
        if sigma - written[-1] > LABEL_GAP * (sigmas[-1] - sigmas[0]):
            written.append(sigma)
    ends = {"left": sigmas[0], "right": sigmas[-1], "bottom": min(ticks[0], low), "top": max(ticks[-1], high)}
    return {"sigmas": written, "ticks": ticks, "tick_format": f".{decimals}f", **ends}


def _points(means: "Sequence[Mean]", method: str | None, value: str, deviation: str = "") -> list[Point]:
    """The finite points of one method's curve, by rising sigma."""
    points = []
    for mean in means:
        y, spread = getattr(mean, value), getattr(mean, deviation, None)
        if mean.method == method and mean.sigma is not None and y is not None and math.isfinite(y):
            points.append((mean.sigma, y, spread or 0.0))
    return sorted(points)


def nice_ticks(low: float, high: float) -> list[float]:
    """Four to seven multiples of 1, 2 or 5 times a power of ten that span low to high."""
    span = max(high - low, 1e-9 * max(abs(low), abs(high)), 1e-6)
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, max(last, first + 1) + 1)]
