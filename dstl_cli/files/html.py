"""The report of `dstl evaluate` as one HTML page that needs nothing else: no network, no other file."""

import base64
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from dstl_cli.files.atomic import atomic_output
from dstl_cli.files.images import picture_from_array, write_picture
from dstl_cli.version import __version__

if TYPE_CHECKING:
    from dstl_cli.evaluation import Mean
    from dstl_cli.exhibits import Bytes, Exhibit, Shot

NOTHING = "\N{EN DASH}"
KINDS = {"picture": "name", "method": "name", "noisy PSNR": "extra", "seconds": "extra"}  # extra: not on a phone
COLOURS = 6
CHART_WIDTH, CHART_HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 48, 14, 12, 34
MOST_OPEN_ROWS = 12
ENLARGED_WIDTH = 640  # small pictures are enlarged by whole numbers up to this width
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Report:
    """What the page tells."""

    title: str
    summary: str  # what was measured
    measures: tuple[str, ...]  # how, and what to know about it
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
    """The page as text."""
    noise = any(mean.sigma is not None for mean in report.means)
    parts = [
        _head(report.title),
        f"<body>\n<header>\n<h1>{escape(report.title)}</h1>\n<p>{escape(report.summary)}</p>",
        *(f'<p class="soft">{escape(sentence)}</p>' for sentence in report.measures),
        "</header>\n<main>",
        _means_card(report, noise),
        _each_card(report, noise),
        *(_exhibit(report, exhibit, index) for index, exhibit in enumerate(report.exhibits)),
        "</main>",
        f"<footer><p>Made by dstl {escape(__version__)}. This page is one file and loads nothing.</p></footer>",
        f"<script>\n{_resource('report.js')}</script>\n</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _head(title: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f'<meta name="generator" content="dstl {escape(__version__)}">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>\n{_resource('report.css')}</style>\n</head>"
    )


def _resource(name: str) -> str:
    return files("dstl_cli").joinpath("data", name).read_text(encoding="utf-8")


# Tables


def _means_card(report: Report, noise: bool) -> str:
    heading = "Mean of all pictures" if len(report.titles) > 1 else "Result"
    table = _table(report.means, None, noise)
    return f'<section class="card">\n<h2>{heading}</h2>\n{table}\n{_charts(report.means)}</section>'


def _each_card(report: Report, noise: bool) -> str:
    """The table of every picture, where there are several."""
    if len(report.titles) < 2:
        return ""
    table = _table(report.each, report.titles, noise)
    opened = " open" if len(report.each) <= MOST_OPEN_ROWS else ""
    return (
        f'<section class="card">\n<details{opened}>\n<summary>Every picture</summary>\n{table}\n</details>\n</section>'
    )


def _table(means: "Sequence[Mean]", titles: dict[tuple[str | None, int | None], str] | None, noise: bool) -> str:
    """A table of means; titles: the pictures' names where there is a row for each."""
    headings = ["picture"] if titles is not None else []
    headings += ["sigma", "method", "noisy PSNR", "PSNR", "gain", "SSIM", "seconds"] if noise else ["PSNR", "SSIM"]
    head = "".join(f'<th scope="col"{_class(KINDS.get(heading, ""))}>{heading}</th>' for heading in headings)
    best: dict[tuple[object, ...], float] = {}
    for mean in means:
        key = (mean.image, mean.page, mean.sigma)
        best[key] = max(best.get(key, -math.inf), mean.psnr)
    several = len({mean.method for mean in means}) > 1
    lines = []
    for mean in means:
        winner = several and mean.psnr == best[mean.image, mean.page, mean.sigma]
        cells = {
            "picture": "" if titles is None else _cell(titles[mean.image, mean.page], "name"),
            "sigma": _cell(number(mean.sigma, "g")),
            "method": _cell(mean.method or "", "name"),
            "noisy PSNR": _cell(number(mean.noisy_psnr, ".2f"), "extra"),
            "PSNR": _cell(decibels(mean.psnr), "best" if winner else "", spread=number(mean.psnr_deviation, ".2f")),
            "gain": _cell(number(_gain(mean), "+.2f")),
            "SSIM": _cell(number(mean.ssim, ".4f"), spread=number(mean.ssim_deviation, ".4f")),
            "seconds": _cell(number(mean.seconds, ".2f"), "extra"),
        }
        lines.append("<tr>" + "".join(cells[heading] for heading in headings) + "</tr>")
    body = "\n".join(lines)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _cell(text: str, kind: str = "", *, spread: str = NOTHING) -> str:
    """A cell of a table, with the standard deviation where there is one."""
    title = f' title="{escape(text)}"' if kind == "name" else ""
    more = "" if spread == NOTHING else f' <span class="spread">&#177;&#160;{spread}</span>'
    return f"<td{_class(kind)}{title}>{escape(text)}{more}</td>"


def number(value: float | None, form: str) -> str:
    """A number in a table; a dash where there is none."""
    return NOTHING if value is None else f"{value:{form}}".replace("inf", "\N{INFINITY}")


def decibels(value: float) -> str:
    """A PSNR in a table; identical pictures are called so."""
    return "identical" if math.isinf(value) else f"{value:.2f}"


# Curves


def _charts(means: "Sequence[Mean]") -> str:
    """Curves over sigma, where there are several: PSNR, gain and SSIM of each method."""
    sigmas = sorted({mean.sigma for mean in means if mean.sigma is not None})
    if len(sigmas) < 2:
        return ""
    methods = list(dict.fromkeys(mean.method for mean in means))
    noisy = [Series("noisy", "noisy", _points(means, methods[0], lambda mean: mean.noisy_psnr))]
    quiet = [Series("noisy", "noisy", _points(means, methods[0], lambda mean: mean.noisy_ssim))]

    def of(value: "Callable[[Mean], float | None]", spread: "Callable[[Mean], float | None]") -> list[Series]:
        return [
            Series(method or "", f"s{index % COLOURS}", _points(means, method, value, spread))
            for index, method in enumerate(methods)
        ]

    charts = [
        _chart("PSNR in dB", sigmas, noisy + of(lambda mean: mean.psnr, lambda mean: mean.psnr_deviation)),
        _chart("Gain over the noisy picture in dB", sigmas, of(_gain, lambda mean: mean.psnr_deviation)),
        _chart("SSIM", sigmas, quiet + of(lambda mean: mean.ssim, lambda mean: mean.ssim_deviation)),
    ]
    sample = '<svg viewBox="0 0 28 12" aria-hidden="true"><path class="curve" d="M0 6H28"/></svg>'
    legend = "".join(
        f'<li class="{kind}">{sample}<span>{escape(label)}</span></li>'
        for label, kind in [
            ("noisy", "noisy"),
            *((method or "", f"s{index % COLOURS}") for index, method in enumerate(methods)),
        ]
    )
    return f'<div class="charts">\n{"".join(charts)}</div>\n<ul class="legend">{legend}</ul>\n'


@dataclass(frozen=True)
class Series:
    """One curve: its name, its style, and (sigma, value, deviation) of its points."""

    label: str
    kind: str
    points: list[tuple[float, float, float]]


def _gain(mean: "Mean") -> float | None:
    return None if mean.noisy_psnr is None else mean.psnr - mean.noisy_psnr


def _points(
    means: "Iterable[Mean]",
    method: str | None,
    value: "Callable[[Mean], float | None]",
    spread: "Callable[[Mean], float | None]" = lambda mean: None,
) -> list[tuple[float, float, float]]:
    """The finite points of one method's curve, by rising sigma."""
    found = []
    for mean in means:
        y = value(mean)
        if mean.method == method and mean.sigma is not None and y is not None and math.isfinite(y):
            found.append((mean.sigma, y, spread(mean) or 0.0))
    return sorted(found)


def _chart(title: str, sigmas: Sequence[float], series: Sequence[Series]) -> str:
    """One diagram over sigma as inline SVG; empty where there is nothing to draw."""
    lows = [y - spread for line in series for _, y, spread in line.points]
    highs = [y + spread for line in series for _, y, spread in line.points]
    if not lows:
        return ""
    ticks = nice_ticks(min(lows), max(highs))
    low, high = min(ticks[0], *lows), max(ticks[-1], *highs)
    x_of = _scale(sigmas[0], sigmas[-1], LEFT, CHART_WIDTH - RIGHT)
    y_of = _scale(low, high, CHART_HEIGHT - BOTTOM, TOP)
    decimals = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9))
    parts = []
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{CHART_WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.{decimals}f}</text>')
    last = -math.inf
    for sigma in sigmas:
        x = x_of(sigma)
        if x - last > 24:
            parts.append(f'<text x="{x:.1f}" y="{CHART_HEIGHT - 16}" text-anchor="middle">{sigma:g}</text>')
            last = x
    parts.append(
        f'<text x="{(LEFT + CHART_WIDTH - RIGHT) / 2}" y="{CHART_HEIGHT - 2}" text-anchor="middle">sigma</text>'
    )
    for line in series:
        parts.append(_curve(line, x_of, y_of))
    drawing = "\n".join(parts)
    return (
        f'<figure>\n<figcaption>{escape(title)}</figcaption>\n<svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" '
        f'role="img" aria-label="{escape(title)} over sigma">\n{drawing}\n</svg>\n</figure>\n'
    )


def _curve(line: Series, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> str:
    path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y, _ in line.points)
    parts = [f'<polyline class="curve" points="{path}"/>']
    for x, y, spread in line.points:
        if spread:
            parts.append(
                f'<line class="spike" x1="{x_of(x):.1f}" x2="{x_of(x):.1f}" '
                f'y1="{y_of(y - spread):.1f}" y2="{y_of(y + spread):.1f}"/>'
            )
        told = f"{escape(line.label)}, sigma {x:g}: {y:.4g}"
        parts.append(
            f'<circle class="dot" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5"><title>{told}</title></circle>'
        )
    return f'<g class="{line.kind}">{"".join(parts)}</g>'


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """The straight line that takes low to start and high to end."""
    span = high - low or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def nice_ticks(low: float, high: float) -> list[float]:
    """Four to seven multiples of 1, 2 or 5 times a power of ten that span low to high."""
    span = max(high - low, 1e-9 * max(abs(low), abs(high)), 1e-6)
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [k * step for k in range(first, max(last, first + 1) + 1)]


# Pictures


def _exhibit(report: Report, exhibit: "Exhibit", index: int) -> str:
    """The card of one picture: what to choose from, the slider, the difference, and the crops."""
    sigmas = list(dict.fromkeys(shot.row.sigma for shot in exhibit.shots))
    methods = list(dict.fromkeys(shot.row.method for shot in exhibit.shots))
    choices = _choice(f"p{index}", "sigma", [number(sigma, "g") for sigma in sigmas])
    choices += _choice(f"p{index}", "method", [method or "" for method in methods])
    size = f"{exhibit.width} \N{MULTIPLICATION SIGN} {exhibit.height} pixels"
    if exhibit.factor > 1:
        size += f", averaged to 1/{exhibit.factor} of its size here, which hides noise; the crops are at full size"
    parts = [
        f'<section class="card exhibit" id="picture-{index}">',
        f'<div class="head"><h2>{escape(exhibit.title)}</h2><span class="soft">{size}</span></div>',
        f'<div class="choices">{choices}</div>' if choices else "",
    ]
    for number_of_sigma, sigma in enumerate(sigmas):
        shots = [shot for shot in exhibit.shots if shot.row.sigma == sigma]
        hidden = " hidden" if number_of_sigma else ""
        parts.append(f'<div data-sigma="{number_of_sigma}"{hidden}>')
        parts.append('<div class="pair">')
        parts.append(_slider(report, exhibit, shots))
        parts.append(_differences(report, exhibit, shots))
        parts.append("</div>")
        parts.append(_crops(report, exhibit, shots))
        parts.append("</div>")
    parts.append("</section>")
    return "\n".join(part for part in parts if part)


def _choice(picture: str, kind: str, labels: Sequence[str]) -> str:
    """Radio buttons, where there is something to choose."""
    if len(labels) < 2:
        return ""
    buttons = "".join(
        f'<label class="pick"><input type="radio" name="{picture}-{kind}" value="{index}" data-chooses="{kind}"'
        f"{' checked' if index == 0 else ''}><span>{escape(label)}</span></label>"
        for index, label in enumerate(labels)
    )
    return f"<fieldset><legend>{kind}</legend>{buttons}</fieldset>"


def _of_method(index: int) -> str:
    """The attributes of what belongs to one method."""
    return f'data-method="{index}"' + (" hidden" if index else "")


def _slider(report: Report, exhibit: "Exhibit", shots: "Sequence[Shot]") -> str:
    """Before and after on top of each other, with a bar to move, and what was measured."""
    title, before = escape(exhibit.title), escape(report.before)
    overlays = tags = captions = ""
    for index, shot in enumerate(shots):
        after = escape(shot.row.method or "compared")
        overlays += _image(shot.after, f"{title}, {after}", f'class="after" {_of_method(index)}')
        tags += f'<span class="tag right" {_of_method(index)}>{after}</span>'
        captions += f"<span {_of_method(index)}>{escape(_numbers(shot))}</span>"
    label = f"{title}: how much of the picture is shown {before}, in percent"
    return (
        f'<figure>\n<div class="compare{_enlarged(shots[0].before)}">{_image(shots[0].before, f"{title}, {before}")}'
        f'{overlays}<span class="tag left">{before}</span>{tags}<div class="bar"></div>'
        f'<input type="range" min="0" max="100" value="50" aria-label="{label}"></div>\n'
        f'<figcaption class="numbers">{captions}</figcaption>\n</figure>'
    )


def _numbers(shot: "Shot") -> str:
    """What was measured of one shot, in a line."""
    row = shot.row
    told = "identical" if row.identical else f"PSNR {row.psnr:.2f} dB"
    if row.noisy_psnr is not None and math.isfinite(row.noisy_psnr):
        told += f" (noisy {row.noisy_psnr:.2f} dB)"
    if row.ssim is not None:
        told += f", SSIM {row.ssim:.4f}"
    if row.seconds is not None:
        told += f", {row.seconds:.2f} s"
    return told


def _differences(report: Report, exhibit: "Exhibit", shots: "Sequence[Shot]") -> str:
    """What lies between before and after, with the places of the crops marked."""
    height, width = (length // exhibit.factor * exhibit.factor or length for length in (exhibit.height, exhibit.width))
    marks = "".join(
        f'<div class="mark{"" if place.row else " top"}" aria-hidden="true" '
        f'style="left:{100 * place.column / width:.2f}%;'
        f"top:{100 * place.row / height:.2f}%;width:{100 * place.side / width:.2f}%;"
        f'height:{100 * place.side / height:.2f}%"><span>{index}</span></div>'
        for index, place in enumerate(exhibit.places, start=1)
    )
    parts = ""
    for index, shot in enumerate(shots):
        words = f"{report.difference}, around grey and amplified {shot.gain:g} times"
        picture = _image(shot.difference, escape(f"{exhibit.title}: {words}"))
        parts += (
            f'<figure {_of_method(index)}>\n<div class="marked{_enlarged(shot.difference)}">{picture}{marks}</div>\n'
            f"<figcaption>{escape(words[:1].upper() + words[1:])}</figcaption>\n</figure>\n"
        )
    return f"<div>\n{parts}</div>"


def _crops(report: Report, exhibit: "Exhibit", shots: "Sequence[Shot]") -> str:
    """The marked places enlarged: before, after each method, and clean."""
    parts = ""
    for index, place in enumerate(exhibit.places):
        crops = [(shots[0].before_crops[index], report.before)]
        crops += [(shot.after_crops[index], shot.row.method or "compared") for shot in shots]
        if report.clean is not None:
            crops.append((exhibit.crops[index], report.clean))
        figures = "".join(
            f"<figure>{_image(crop, escape(f'{exhibit.title}, {place.what}, {name}'))}"
            f"<figcaption>{escape(name)}</figcaption></figure>"
            for crop, name in crops
        )
        size = f"{place.side} \N{MULTIPLICATION SIGN} {place.side} pixels"
        told = f'<p><b>{index + 1}</b>{escape(place.what)} <span class="soft">{size}</span></p>'
        across, narrow = min(len(crops), 6), 2 if len(crops) in (2, 4) else 3
        style = f"--across:{across};--narrow:{narrow}"
        parts += f'<div class="place" style="{style}">\n{told}\n<div class="crops">{figures}</div>\n</div>\n'
    return f'<div class="places">\n{parts}</div>'


def _enlarged(picture: "Bytes") -> str:
    """The class of pictures that are narrower than the place they are shown in."""
    return " pixels" if 2 * picture.shape[1] <= ENLARGED_WIDTH else ""


def _image(picture: "Bytes", words: str, attributes: str = "") -> str:
    """An image element with the picture in it; `words` are escaped already."""
    height, width = picture.shape[:2]
    more = f" {attributes}" if attributes else ""
    return f'<img src="{data_uri(picture)}" alt="{words}" width="{width}" height="{height}" draggable="false"{more}>'


def data_uri(picture: "Bytes") -> str:
    """A grey or RGB picture of uint8 as a PNG within the page."""
    stream = io.BytesIO()
    write_picture(picture_from_array(picture), stream, format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
