"""`dstl inspect`: what a transform file or a picture is, in numbers and as a plot."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import compact_table, report_error, stdout_console
from dstl_cli.errors import DstlError, UsageProblem

if TYPE_CHECKING:
    from dstl_cli.files.images import ImageInfo, Picture
    from dstl_cli.files.transforms import TransformFile
    from dstl_cli.inspection import Channel

BOUNDED = ("conditioned", "dsect")  # the methods that know a bound on the condition
ZIP = b"PK\x03\x04"


def inspect(
    path: Annotated[Path, typer.Argument(help="A transform (.npz) or a picture.", metavar="FILE")],
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Write a PNG: atoms, pattern, spectrum and convergence, or the histogram.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Tell what a learnt transform or a picture is: size, depth, range and noise, or condition, density and history.

    Example: dstl inspect pictures.npz --plot pictures.png
    """
    if plot is not None and plot.suffix.lower() != ".png":
        raise UsageProblem(f"--plot takes a name that ends in .png, not {plot}.")
    options.check_outputs({"--plot": plot}, [path], force=force)
    if _is_transform(path):
        _inspect_transform(path, plot, force, json)
    else:
        _inspect_image(path, plot, force, json)
    if plot is not None and not json:
        typer.echo(f"The plot is in {plot}.")


def _is_transform(path: Path) -> bool:
    """Whether a file is to be read as a transform: by its name, or as it begins like a .npz."""
    if path.suffix.lower() == ".npz":
        return True
    try:
        with path.open("rb") as stream:
            return stream.read(len(ZIP)) == ZIP
    except OSError:
        return False  # what is wrong is said when it is read as a picture


# Transforms


def _inspect_transform(path: Path, plot: Path | None, force: bool, json: bool) -> None:
    from dstl_cli.files.reports import to_json
    from dstl_cli.files.transforms import load_transform

    stored = load_transform(path)
    facts = _transform_facts(stored)
    if plot is not None:
        from dstl_cli.files.plots import plot_transform

        plot_transform(stored, facts["condition_bound"], plot, overwrite=force)
    if json:
        typer.echo(
            to_json(
                "inspect", file=str(path), kind="transform", transform=facts, provenance=stored.provenance,
                history=stored.history,
            )
        )  # fmt: skip
        return
    _print_transform(path, stored, facts)


def _transform_facts(stored: "TransformFile") -> dict[str, Any]:
    transform = stored.transform
    values = transform.singular_values
    return {
        "method": transform.method,
        "patch_size": transform.patch_size,
        "condition": transform.condition,
        "condition_bound": condition_bound(stored),
        "density": transform.density,
        "nonzeros": round(transform.density * transform.factor.size),
        "frobenius_norm": transform.frobenius_norm,
        "largest_singular_value": float(values[0]),
        "smallest_singular_value": float(values[-1]),
    }


def condition_bound(stored: "TransformFile") -> float | None:
    """The bound the transform was learnt under, where its method knows one and its settings tell it."""
    if stored.transform.method not in BOUNDED:
        return None
    settings = stored.provenance.get("settings")
    for table in (settings, settings.get("learn") if isinstance(settings, dict) else None):
        bound = table.get("max_condition") if isinstance(table, dict) else None
        if isinstance(bound, (int, float)) and 1 <= bound < float("inf"):
            return float(bound)
    return None


def _print_transform(path: Path, stored: "TransformFile", facts: Mapping[str, Any]) -> None:
    size = facts["patch_size"]
    bound = facts["condition_bound"]
    entries = stored.transform.factor.size
    lines = {
        "method": facts["method"],
        "patches": f"{size} x {size} pixels",
        "condition": f"{facts['condition']:.6g}" + ("" if bound is None else f" (bound {bound:g})"),
        "density": f"{facts['density']:.4f} ({facts['nonzeros']} of {entries} entries of T)",
        "norm": f"{facts['frobenius_norm']:.6g}",
        "spectrum": f"{facts['smallest_singular_value']:.6g} to {facts['largest_singular_value']:.6g}",
    }
    if stored.history:
        first, last = stored.history[0], stored.history[-1]
        lines["learning"] = (
            f"{len(stored.history)} iterations, error {first.error:.6g} to {last.error:.6g}, "
            f"relative {first.relative_error:.4f} to {last.relative_error:.4f}"
        )
    lines |= {f"made: {key}": text for key, text in _flat(stored.provenance)}
    _print_lines(path, lines)


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The entries of nested tables, each in a line."""
    found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            found.append((f"{prefix}{key}", f"{value:g}" if isinstance(value, float) else str(value)))
    return found


# Pictures


def _inspect_image(path: Path, plot: Path | None, force: bool, json: bool) -> None:
    from dstl_cli.colour import root_mean_square
    from dstl_cli.files.images import read_picture
    from dstl_cli.files.names import display_name
    from dstl_cli.files.reports import to_json
    from dstl_cli.inspection import channels_of

    picture = read_picture(path)
    channels: list[Channel] = []
    for index in range(len(picture.specs)):
        try:
            channels += channels_of(index + 1, picture.pages[index])
        except ValueError as error:
            raise DstlError(f"{picture.name} cannot be inspected: {error}") from error
    if plot is not None:
        from dstl_cli.files.plots import plot_image

        plot_image(picture.pages[0], channels, display_name(path.name), plot, overwrite=force)
    sigma = root_mean_square([channel.sigma for channel in channels if channel.page == 1])
    if json:
        facts = asdict(picture.info) | {"dtype": picture.info.dtype.name}
        typer.echo(to_json("inspect", file=str(path), kind="image", image=facts, sigma=sigma, channels=channels))
        return
    _print_image(path, picture, channels)


def _print_image(path: Path, picture: "Picture", channels: "list[Channel]") -> None:
    info = picture.info
    _print_lines(
        path,
        {
            "format": info.format,
            "size": f"{info.width} x {info.height} pixels" + (f", {info.pages} pages" if info.pages > 1 else ""),
            "colours": ("grey" if info.channels == 1 else "RGB") + (" with alpha" if info.has_alpha else ""),
            "depth": _depth(info),
            "kept with it": ", ".join(_metadata(picture)) or "nothing",
        },
    )
    paged = info.pages > 1
    view = compact_table(*(["page"] if paged else []), "channel", "min", "mean", "max", "saturated", "sigma")
    for channel in channels:
        numbers = [f"{value:.6g}" for value in (channel.smallest, channel.mean, channel.largest)]
        page = [str(channel.page)] if paged else []
        view.add_row(*page, channel.name, *numbers, f"{100 * channel.saturated:.1f} %", f"{channel.sigma:.3g}")
    view.columns[int(paged)].justify = "left"
    console = stdout_console()
    console.print(view)
    units = "in the units of the file" if info.dtype.kind == "f" else "on the 0-255 scale"
    console.print(f"sigma is the estimated deviation of the noise, {units}, as --sigma takes it")
    for text in dict.fromkeys([*picture.notes, *(text for channel in channels for text in channel.warnings)]):
        report_error(f"{picture.name}: {text}")


def _depth(info: "ImageInfo") -> str:
    kind = "floating point" if info.dtype.kind == "f" else "whole numbers"
    return f"{8 * info.dtype.itemsize} bit, {kind} ({info.dtype.name})"


def _metadata(picture: "Picture") -> list[str]:
    """What a picture carries beside its pixels."""
    names = {"icc": "ICC profile", "exif": "EXIF", "xmp": "XMP", "dpi": "resolution", "description": "description"}
    return [name for key, name in names.items() if getattr(picture.metadata, key) is not None]


def _print_lines(path: Path, lines: Mapping[str, str]) -> None:
    """A heading and the facts under it, in two columns."""
    from dstl_cli.files.names import display_name

    typer.echo(display_name(path))
    width = max(map(len, lines))
    for key, value in lines.items():
        typer.echo(f"  {display_name(key):{width}}  {display_name(value)}")
