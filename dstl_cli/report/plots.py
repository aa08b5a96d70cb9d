"""Plots as PNG files: a transform and its learning, a picture, its noise, the paper's convergence figure."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dstl_cli.base.atomic import atomic_output
from dstl_cli.base.names import display_number
from dstl_cli.measure.inspection import ChannelStatistics, atom_grid, finite_range, histogram, working_names

if TYPE_CHECKING:
    from dstl_cli.base.arrays import Array, Pixels
    from dstl_cli.measure.paper_experiments import Curve
    from dstl_cli.noise.model import NoiseModel, SpectralChannel
    from dstl_cli.pixels.depth import Depth
    from dstl_cli.transforms.files import TransformFile

CHANNEL_COLOURS = {"grey": "0.35", "red": "tab:red", "green": "tab:green", "blue": "tab:blue"}
RELATIVE_ERROR = "||WY - X|| / ||WY||"
FAINT_SHARE = 0.02  # of the nonzero entries of T, the smallest: they share the faintest colour
LOWEST_FREQUENCY = 1 / 64  # cycles per pixel
FULL_RANGE = (0.0, 255.0)  # of the grey levels of whole numbers
LONGEST_NAME = 60  # of a picture in a title


@contextmanager
def _png(path: Path, size: tuple[float, float], *, overwrite: bool) -> Iterator[Any]:
    """A new figure of so many inches, written when the block ends, complete or not at all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120, layout="constrained")
    yield figure
    with atomic_output(path, overwrite=overwrite) as stream:
        figure.savefig(stream, format="png")


def plot_transform(stored: "TransformFile", bound: float | None, path: Path, *, overwrite: bool = False) -> None:
    """Four panels: the atoms of W, the entries of T, its spectrum against the bound, and the convergence."""
    transform = stored.transform
    with _png(path, (11, 10.5), overwrite=overwrite) as figure:
        (atoms, entries), (spectrum, convergence) = figure.subplots(2, 2)
        atoms.imshow(atom_grid(transform), cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
        atoms.set_axis_off()
        atoms.set_title(f"Atoms: rows of W as {transform.patch_size} x {transform.patch_size} patches")
        _draw_entries(entries, transform.factor)
        entries.set(xlabel=f"coefficient of Phi ({transform.canonical})", ylabel="coefficient of W")
        entries.set_title(f"Entries of T: {100 * transform.density:.1f} % are not zero")
        _draw_spectrum(spectrum, transform.singular_values, bound)
        convergence.set_title("Convergence")
        if stored.history:
            numbers = [record.number for record in stored.history]
            convergence.plot(numbers, [record.relative_error for record in stored.history], ".-", color="tab:green")
            convergence.xaxis.get_major_locator().set_params(integer=True)
            convergence.set(xlabel="iteration", ylabel=RELATIVE_ERROR)
        else:
            place = {"ha": "center", "va": "center", "transform": convergence.transAxes}
            convergence.text(0.5, 0.5, "no history in the file", **place)
            convergence.set_axis_off()
        figure.suptitle(f"{transform.method}, condition {transform.condition:.4g}, norm {transform.frobenius_norm:.4g}")


def magnitude_limits(factor: "Array") -> tuple[float, float]:
    """Between which magnitudes the nonzero entries of a matrix lie, but for the faintest; a decade at least."""
    magnitudes = np.abs(factor[factor != 0])
    largest = float(magnitudes.max())
    return min(float(np.quantile(magnitudes, FAINT_SHARE, method="lower")), largest / 10), largest


def _draw_entries(axis: Any, factor: "Array") -> None:
    """Magnitudes on a logarithmic scale, darker for larger ones; zeros are white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    colours = ListedColormap(colormaps["magma_r"](np.linspace(0.2, 1, 256)))  # nothing near white
    magnitudes = np.where(factor != 0, np.abs(factor), np.nan)
    low, high = magnitude_limits(factor)
    shown = axis.imshow(magnitudes, cmap=colours, norm=LogNorm(low, high), interpolation="nearest")
    axis.figure.colorbar(shown, ax=axis, shrink=0.8, extend="min", label="magnitude; white: zero")


def _draw_spectrum(axis: Any, values: "Array", bound: float | None) -> None:
    """The singular values relative to the smallest; the bound is the most the largest may be."""
    axis.plot(np.arange(1, len(values) + 1), values / values[-1], ".-", color="tab:blue", label="singular values")
    if bound is not None:
        axis.axhline(bound, color="tab:red", linestyle="--", label=f"bound {bound:.4g}")
    axis.set_yscale("log")
    top = 1.05 * max(float(values[0] / values[-1]), bound or 1.0, 1.1)
    axis.set_ylim(0.95, top)
    axis.minorticks_off()
    ticks = [tick for tick in (1, 1.1, 1.5, 2, 5, 10, 100, 1e3, 1e6) if tick <= top]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set(title="Spectrum", xlabel="number", ylabel="relative to the smallest")
    axis.legend()


def plot_image(
    pixels: "Pixels",
    channels: Sequence[ChannelStatistics],
    noise: "NoiseModel",
    title: str,
    path: Path,
    *,
    depth: "Depth | None" = None,
    overwrite: bool = False,
) -> None:
    """Four panels: the histogram of the first page, the noise of each channel, the noise over level and frequency."""
    first = [channel for channel in channels if channel.page == 1]
    edges, counts = histogram(pixels, depth)
    with _png(path, (11, 8.5), overwrite=overwrite) as figure:
        upper, lower = figure.subfigures(2, 1)
        left, right = upper.subplots(1, 2, width_ratios=(3, 1))
        for name, values in counts:
            left.stairs(values, edges, color=CHANNEL_COLOURS[name], label=name, fill=len(counts) == 1)
        left.set_title(f"Histogram of {_short(title)}", parse_math=False)
        left.set(xlabel="value", ylabel="pixels")
        left.legend()
        draw_white_noise(right, first)
        lower.suptitle(noise.describe())
        from dstl_cli.pixels.depth import Depth

        own = depth or Depth.of(pixels.dtype)
        _draw_noise(lower.subplots(1, 2), noise, levels_of(pixels, own), scaled=own.scaled)


def levels_of(pixels: "Pixels", depth: "Depth") -> tuple[float, float]:
    """The darkest and the brightest grey level of pixels: on the 0-255 scale where their depth has it."""
    smallest, largest = finite_range(pixels)
    return smallest / depth.unit, largest / depth.unit


def levels_known(noise: "NoiseModel", *, scaled: bool) -> tuple[float, float]:
    """The darkest and the brightest grey level that a model tells the noise of; all where it is the same for all."""
    knots = [knot / len(noise.sigmas) ** 0.5 for channel in _spectra(noise) for knot in channel.levels]
    whole = FULL_RANGE if scaled else (0.0, 1.0)
    return (min(knots), max(knots)) if knots else whole


def draw_white_noise(axis: Any, channels: Sequence[ChannelStatistics]) -> None:
    """A bar a channel: the deviation of its noise taken as white."""
    names, sigmas = [channel.name for channel in channels], [channel.sigma for channel in channels]
    bars = axis.bar(names, sigmas, color=[CHANNEL_COLOURS[name] for name in names])
    axis.bar_label(bars, [display_number(sigma) for sigma in sigmas], padding=2)
    axis.set(title="Taken as white noise", ylabel="sigma", ylim=(0, 1.15 * max(sigmas) or 1.0))
    axis.margins(x=0.4 if len(channels) == 1 else 0.1)


def plot_noise(noise: "NoiseModel", title: str, path: Path, *, units: str = "0-255", overwrite: bool = False) -> None:
    """Two panels: a noise model over level and over frequency, each working channel; units: 0-255, or of the file."""
    scaled = units == "0-255"
    with _png(path, (11, 4.5), overwrite=overwrite) as figure:
        figure.suptitle(f"{_short(title)}: {noise.describe()}", parse_math=False)
        _draw_noise(figure.subplots(1, 2), noise, levels_known(noise, scaled=scaled), scaled=scaled)


def _short(title: str) -> str:
    return title if len(title) <= LONGEST_NAME else f"...{title[-LONGEST_NAME:]}"


def _spectra(noise: "NoiseModel") -> "list[SpectralChannel]":
    """The channels of a model that have a spectrum; white ones have none."""
    from dstl_cli.noise.model import SpectralChannel

    channels = (noise.channel(index) for index in range(len(noise.sigmas)))
    return [channel for channel in channels if isinstance(channel, SpectralChannel)]


def _draw_noise(axes: Any, noise: "NoiseModel", limits: tuple[float, float], *, scaled: bool) -> None:
    """The deviation of each working channel over grey levels and over frequencies.

    limits: of the grey levels. scaled: whether they are on the 0-255 scale.
    """
    over_level, over_frequency = axes
    count, spectra = len(noise.sigmas), _spectra(noise)
    levels = np.linspace(*limits, 256) if limits[1] > limits[0] else limits[0] + np.linspace(-0.5, 0.5, 256)
    frequencies = np.geomspace(LOWEST_FREQUENCY, 0.5, 200)
    for index, (name, line) in enumerate(zip(working_names(count), ("-", "--", ":"), strict=False)):
        channel = noise.channel(index)
        factors = channel.level_factors(levels * count**0.5)
        style = {"color": f"C{index}", "linestyle": line, "label": name, "linewidth": 2}
        over_level.plot(levels, channel.deviation() * (np.ones(len(levels)) if factors is None else factors), **style)
        own = [spectra[index].at_frequency(f) for f in frequencies] if spectra else [noise.sigmas[index]] * 200
        over_frequency.plot(frequencies, own, **style)
    words = "0-255 scale" if scaled else "as in the file"
    over_level.set(title="Noise over brightness", xlabel=f"grey level, {words}", ylabel="deviation of a pixel")
    over_frequency.set(title="Noise over frequency", ylabel="deviation of white noise as strong")
    over_frequency.set_xscale("log", base=2)
    ticks = [0.5 / 2**k for k in range(5, -1, -1)]
    over_frequency.set_xticks(ticks, [f"1/{round(1 / tick)}" for tick in ticks])
    over_frequency.set_xlabel("cycles per pixel: coarse to fine")
    for axis in axes:
        axis.set_ylim(0, 1.1 * max(axis.get_ylim()[1], 1e-12))
        axis.grid(alpha=0.3)
        axis.legend()


def plot_curves(curves: "Sequence[Curve]", path: Path, *, overwrite: bool = False) -> None:
    """The paper's convergence figure: a row for absolute and relative error, a column for each bound."""
    weights = list(dict.fromkeys(curve.logdet_weight for curve in curves))
    methods = list(dict.fromkeys(curve.method for curve in curves))
    with _png(path, (5 * len(weights), 8), overwrite=overwrite) as figure:
        axes = figure.subplots(2, len(weights), squeeze=False, sharex="col")
        for curve in curves:
            upper, lower = axes[:, weights.index(curve.logdet_weight)]
            for axis, kind in ((upper, "error"), (lower, "relative")):
                _draw_curve(axis, curve, kind, f"C{methods.index(curve.method)}")
            upper.set_ylabel("||WY - X||")
            lower.set(xlabel="iteration", ylabel=RELATIVE_ERROR)
            bounds = f"condition <= {curve.max_condition:.5g}, norm {curve.frobenius_norm:.4g}"
            upper.set_title(f"log-det weight {curve.logdet_weight:g}\n{bounds}")
        axes[0][0].legend(fontsize="small")


def _draw_curve(axis: Any, curve: "Curve", kind: str, colour: str) -> None:
    """One kind of error of a method, of training patches solid and of test patches dashed."""
    numbers = [point.iteration for point in curve.points]
    for part, line in (("train", "-"), ("test", "--")):
        values = [getattr(point, f"{part}_{kind}") for point in curve.points]
        style = {"color": colour, "linestyle": line, "label": f"{curve.method}, {part}"}
        if len(values) == 1:  # nothing is learnt
            axis.axhline(values[0], **style)
        else:
            axis.plot(numbers, values, **style)
    axis.set_yscale("log")
