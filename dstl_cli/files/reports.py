"""Reports: JSON documents, CSV tables, and pictures of curves."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstl_cli.errors import DstlError
from dstl_cli.files.atomic import atomic_output
from dstl_cli.version import __version__

if TYPE_CHECKING:
    from dstl_cli.reproduction import Curve


def to_json(command: str, **parts: Any) -> str:
    """One JSON document with the command and version first; numbers that are not finite become null."""
    document = {"command": command, "version": __version__, **parts}
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def write_csv(rows: Sequence[Any], path: Path, *, overwrite: bool = False) -> None:
    """Write a CSV table of dataclass rows under their field names; None is an empty cell, infinite is inf."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(rows[0]))
    writer.writerows(asdict(row).values() for row in rows)
    with atomic_output(path, overwrite=overwrite) as stream:
        stream.write(text.getvalue().encode())


def plot_curves(curves: "Sequence[Curve]", path: Path) -> None:
    """The convergence figure as a picture: a row for absolute and relative error, a column for each bound."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DstlError("Plots need matplotlib; install it with: pip install 'dstl[plot]'.") from None
    weights = list(dict.fromkeys(curve.logdet_weight for curve in curves))
    figure = Figure(figsize=(5 * len(weights), 8), layout="constrained")
    axes = figure.subplots(2, len(weights), squeeze=False)
    colours = {"dct": "tab:gray", "bresler": "tab:blue", "conditioned": "tab:orange", "dsect": "tab:green"}
    for curve in curves:
        column = weights.index(curve.logdet_weight)
        for row, kind in enumerate(("error", "relative")):
            axis = axes[row][column]
            for part, line in (("train", "-"), ("test", "--")):
                numbers = [point.iteration for point in curve.points]
                values = [getattr(point, f"{part}_{kind}") for point in curve.points]
                label = f"{curve.method}, {part}"
                colour = colours.get(curve.method)
                if curve.method == "dct":
                    axis.axhline(values[-1], color=colour, linestyle=line, label=label)
                else:
                    axis.plot(numbers, values, color=colour, linestyle=line, label=label)
            axis.set_yscale("log")
            axis.set_xlabel("iteration")
            axis.set_ylabel("||WY - X||" if kind == "error" else "||WY - X|| / ||WY||")
        bounds = f"condition <= {curve.max_condition:.5g}, norm {curve.frobenius_norm:.4g}"
        axes[0][column].set_title(f"log-det weight {curve.logdet_weight:g}\n{bounds}")
    axes[0][0].legend(fontsize="small")
    with atomic_output(path) as stream:
        FigureCanvasAgg(figure).print_png(stream)
