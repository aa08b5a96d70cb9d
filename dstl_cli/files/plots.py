"""Pictures for `dstl inspect`: a transform and its learning, or the histogram of a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dstl_cli.errors import DstlError
from dstl_cli.files.atomic import atomic_output
from dstl_cli.inspection import Channel, atom_grid, histogram

if TYPE_CHECKING:
    from dstl_cli.files.transforms import TransformFile
    from dstl_cli.inspection import Pixels

FAINTEST = -6.0  # log10 of the smallest entry that is told apart
COLOURS = {"grey": "0.35", "red": "tab:red", "green": "tab:green", "blue": "tab:blue"}


def plot_transform(stored: "TransformFile", bound: float | None, path: Path, *, overwrite: bool = False) -> None:
    """Four panels: the atoms of W, the pattern of T, its spectrum against the bound, and the convergence."""
    figure = _new_figure((11, 10.5))
    axes = figure.subplots(2, 2)
    transform = stored.transform
    size = transform.patch_size
    atoms = axes[0][0]
    atoms.imshow(atom_grid(transform), cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
    atoms.set_axis_off()
    atoms.set_title(f"Atoms: rows of W as {size} x {size} patches")
    pattern = axes[0][1]
    shown = pattern.imshow(
        _magnitudes(transform.factor), cmap="viridis_r", vmin=FAINTEST, vmax=0, interpolation="nearest"
    )
    figure.colorbar(shown, ax=pattern, shrink=0.8, label="log10 of the size, largest = 0; white: zero")
    pattern.set_title(f"Pattern of T: {100 * transform.density:.1f} % are not zero")
    pattern.set_xlabel("DCT coefficient")
    pattern.set_ylabel("coefficient of W")
    _draw_spectrum(axes[1][0], transform.singular_values, bound)
    _draw_convergence(axes[1][1], stored)
    figure.suptitle(f"{transform.method}, condition {transform.condition:.4g}, norm {transform.frobenius_norm:.4g}")
    _save(figure, path, overwrite)


def _magnitudes(factor: Any) -> Any:
    """log10 of the entries' sizes relative to the largest, at least FAINTEST; NaN for zeros."""
    sizes = np.abs(factor) / np.abs(factor).max()
    return np.where(sizes > 0, np.log10(np.maximum(sizes, 10.0**FAINTEST)), np.nan)


def _draw_spectrum(axis: Any, values: Any, bound: float | None) -> None:
    """The singular values relative to the smallest; the bound is the most the largest may be."""
    axis.plot(np.arange(1, len(values) + 1), values / values[-1], ".-", color="tab:blue", label="singular values")
    if bound is not None:
        axis.axhline(bound, color="tab:red", linestyle="--", label=f"bound {bound:.4g}")
    axis.set_yscale("log")
    top = max(float(values[0] / values[-1]), bound or 1.0)
    axis.set_ylim(0.95, 1.05 * max(top, 1.1))
    axis.minorticks_off()
    ticks = [1.0, *(tick for tick in (1.1, 1.5, 2, 5, 10, 100, 1e3, 1e6) if tick <= 1.05 * max(top, 1.1))]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_title("Spectrum")
    axis.set_xlabel("number")
    axis.set_ylabel("relative to the smallest")
    axis.legend()


def _draw_convergence(axis: Any, stored: "TransformFile") -> None:
    """The relative error over the iterations."""
    axis.set_title("Convergence")
    if not stored.history:
        axis.text(0.5, 0.5, "no history in the file", ha="center", va="center", transform=axis.transAxes)
        axis.set_axis_off()
        return
    numbers = [record.number for record in stored.history]
    axis.plot(numbers, [record.relative_error for record in stored.history], ".-", color="tab:green")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("iteration")
    axis.set_ylabel("||WY - X|| / ||WY||")


def plot_image(pixels: "Pixels", channels: Sequence[Channel], title: str, path: Path, *, overwrite: bool) -> None:
    """Two panels: the histogram of the first page, and the noise of each channel."""
    figure = _new_figure((11, 4.5))
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    edges, counts = histogram(pixels)
    for name, values in counts:
        left.stairs(values, edges, color=COLOURS[name], label=name, fill=len(counts) == 1)
    left.set_title(f"Histogram of {_printable(title)}", parse_math=False)
    left.set_xlabel("value")
    left.set_ylabel("pixels")
    left.legend()
    first = [channel for channel in channels if channel.page == 1]
    bars = right.bar([c.name for c in first], [c.sigma for c in first], color=[COLOURS[c.name] for c in first])
    right.bar_label(bars, fmt="%.2f", padding=2)
    right.set_title("Estimated noise")
    right.set_ylabel("sigma")
    right.margins(x=0.4 if len(first) == 1 else 0.1, y=0.15)
    _save(figure, path, overwrite)


def _printable(text: str, longest: int = 60) -> str:
    """A name short enough for a title."""
    return text if len(text) <= longest else f"...{text[-longest:]}"


def _new_figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DstlError("Plots need matplotlib; install it with: pip install 'dstl[plot]'.") from None
    return Figure(figsize=size, dpi=120, layout="constrained")


def _save(figure: Any, path: Path, overwrite: bool) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with atomic_output(path, overwrite=overwrite) as stream:
        FigureCanvasAgg(figure).print_png(stream)
