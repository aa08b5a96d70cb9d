"""`dstl inspect`: what a transform file, a picture or a noise model is, in numbers and as a plot."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.base.names import display_name, display_number
from dstl_cli.base.regular import open_regular
from dstl_cli.cli import options
from dstl_cli.cli.console import print_json, print_table, report_error, say, tell
from dstl_cli.cli.options import FILES, option
from dstl_cli.errors import UsageProblem, refusals

if TYPE_CHECKING:
    from dstl_cli.measure.inspection import ChannelStatistics
    from dstl_cli.noise.model import NoiseModel
    from dstl_cli.picture.model import Picture
    from dstl_cli.transforms.files import TransformFile

ZIP = b"PK\x03\x04"  # how a .npz begins
CHANNEL_HEADINGS = ("page", "channel", "min", "mean", "max", "saturated", "sigma")
METADATA = {"icc": "ICC profile", "exif": "EXIF", "xmp": "XMP", "dpi": "resolution", "description": "description"}


def inspect(
    path: Annotated[
        Path, typer.Argument(help="A picture, a transform (.npz) or a noise model (.json).", metavar="FILE")
    ],
    plot: options.Plot = None,
    save_noise: Annotated[
        Path | None, option(FILES, "Keep the noise of a picture for --noise.", metavar="FILE.json")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    trust_files: options.TrustFiles = False,
    debug: options.Debug = False,
) -> None:
    """Tell what a file is: a picture (size, depth, range and noise), a learnt transform, or a noise model.

    Example: dstl inspect photo.jpg --plot noise.png --save-noise photo.json
    """
    options.check_local("inspect", path)
    options.check_plot(plot, [path], force=force)
    options.check_noise_output("--save-noise", save_noise)
    options.check_outputs({"--plot": plot, "--save-noise": save_noise}, [path], force=force)
    kept = _is_transform(path), path.suffix.lower() == ".json"
    if save_noise is not None and any(kept):
        raise UsageProblem(f"--save-noise keeps the noise of a picture, which {display_name(path)} is not.")
    if any(kept):
        (_inspect_transform if kept[0] else _inspect_noise)(path, plot, force, json)
    else:
        _inspect_picture(path, plot, save_noise, force=force, json=json)
    if plot is not None and not json:
        tell(f"The plot is in {plot}.")
    if save_noise is not None and not json:
        tell(f"The noise is in {display_name(save_noise)}.")


def _is_transform(path: Path) -> bool:
    """Whether a file is to be read as a transform: by its name, or as it begins like a .npz."""
    if path.suffix.lower() == ".npz":
        return True
    with suppress(OSError), open_regular(path) as stream:  # what is wrong is said when it is read as a picture
        return stream.read(len(ZIP)) == ZIP
    return False


def _inspect_transform(path: Path, plot: Path | None, force: bool, json: bool) -> None:
    from dstl_cli.report.tables import transform_facts
    from dstl_cli.transforms.files import load_transform

    stored = load_transform(path)
    facts = transform_facts(stored)
    if plot is not None:
        from dstl_cli.report.plots import plot_transform

        plot_transform(stored, facts["condition_bound"], plot, overwrite=force)
    if json:
        parts = {"transform": facts, "provenance": stored.provenance, "history": stored.history}
        print_json("inspect", file=str(path), kind="transform", **parts)
    else:
        _print_lines(path, _transform_in_words(stored, facts))


def _transform_in_words(stored: "TransformFile", facts: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of a transform, how it was learnt, and all settings that made it."""
    from dstl_cli.report.tables import flattened

    size, bound = facts["patch_size"], facts["condition_bound"]
    lines = {
        "method": facts["method"],
        "canonical": facts["canonical"] + (", averaged with it" if facts["average_with_canonical"] else ""),
        "patches": f"{size} x {size} pixels",
        "condition": f"{facts['condition']:.6g}" + ("" if bound is None else f" (bound {bound:g})"),
        "density": f"{facts['density']:.4f} ({facts['nonzeros']} of {size**4} entries of T)",
        "norm": f"{facts['frobenius_norm']:.6g}",
        "spectrum": f"{facts['smallest_singular_value']:.6g} to {facts['largest_singular_value']:.6g}",
    }
    if stored.history:
        first, last = stored.history[0], stored.history[-1]
        lines["learning"] = (
            f"{len(stored.history)} iterations, error {first.error:.6g} to {last.error:.6g}, "
            f"relative {first.relative_error:.4f} to {last.relative_error:.4f}"
        )
    for name, value in flattened(stored.provenance):
        lines[f"made: {name}"] = f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
    return lines


def _inspect_noise(path: Path, plot: Path | None, force: bool, json: bool) -> None:
    from dstl_cli.run.noise import load_noise_file

    model, made_from = load_noise_file(path)
    if plot is not None:
        from dstl_cli.report.plots import plot_noise

        units = str(made_from.get("units", "0-255"))
        plot_noise(model, display_name(path.name), plot, units=units, overwrite=force)
    if json:
        print_json("inspect", file=str(path), kind="noise", noise=model.to_json(), made_from=made_from)
    else:
        made = {f"made from: {name}": str(value) for name, value in made_from.items() if value is not None}
        _print_lines(path, _noise_in_words(model) | made)


def _noise_in_words(model: "NoiseModel") -> dict[str, str]:
    """The kind of noise, a line about it, and its deviation in each working channel."""
    from dstl_cli.measure.inspection import working_names

    names = zip(working_names(len(model.sigmas)), model.sigmas, strict=True)
    told = {"noise": f"{model.describe()} ({model.kind})"}
    return told | {"deviation": ", ".join(f"{name} {display_number(sigma)}" for name, sigma in names)}


def _inspect_picture(path: Path, plot: Path | None, save_noise: Path | None, *, force: bool, json: bool) -> None:
    from dstl_cli.measure.inspection import channel_statistics
    from dstl_cli.picture.inputs import Input
    from dstl_cli.picture.read import read_picture
    from dstl_cli.pixels.colour import root_mean_square
    from dstl_cli.pixels.depth import Depth
    from dstl_cli.run import noise
    from dstl_cli.run.pooling import noise_of_page

    picture = replace(read_picture(path), allows_invalid=True)
    channels: list[ChannelStatistics] = []
    depths = [Depth.of(spec.dtype, spec.bits) for spec in picture.specs]
    for index, depth in enumerate(depths):
        with refusals(picture.name, "cannot be inspected"):
            channels += channel_statistics(index + 1, picture.pages[index], depth)
    with refusals(picture.name, "cannot be inspected"):
        found = noise_of_page(Input(path, Path(path.name)), picture, 0)
    if plot is not None:
        from dstl_cli.report.plots import plot_image

        plot_image(
            picture.pages[0], channels, found.model, display_name(path.name), plot, depth=depths[0], overwrite=force
        )
    if save_noise is not None:
        made_from = {"pictures": 1, "flat_fields": 0, "spread": None, "units": found.kind.units}
        noise.save_noise(save_noise, found.model, made_from, overwrite=force)
    if json:
        facts = asdict(picture.info) | {"dtype": picture.info.dtype.name}
        sigma = root_mean_square([channel.sigma for channel in channels if channel.page == 1])
        told = {"image": facts, "sigma": sigma, "noise": found.model.to_json(), "channels": channels}
        print_json("inspect", file=str(path), kind="image", **told)
    else:
        _print_lines(path, _picture_in_words(picture) | _invalid_in_words(channels) | _noise_in_words(found.model))
        warnings = [*picture.notes, *found.warnings]
        _print_channels(
            picture, channels, warnings, "on the 0-255 scale" if depths[0].scaled else "in the units of the file"
        )


def _picture_in_words(picture: "Picture") -> dict[str, str]:
    info = picture.info
    kind = {"f": "floating point", "i": "signed whole numbers"}.get(info.dtype.kind, "whole numbers")
    kept = [name for key, name in METADATA.items() if getattr(picture.metadata, key) is not None]
    return {
        "format": info.format,
        "size": f"{info.width} x {info.height} pixels" + (f", {info.pages} pages" if info.pages > 1 else ""),
        "colours": ("grey" if info.channels == 1 else "RGB") + (" with alpha" if info.has_alpha else ""),
        "depth": f"{info.bits} bit, {kind} ({info.dtype.name})",
        "kept with it": ", ".join(kept) or "nothing",
    }


def _invalid_in_words(channels: "list[ChannelStatistics]") -> dict[str, str]:
    """How many pixels of all pages are no finite numbers, where there are any."""
    count = sum({channel.page: channel.invalid for channel in channels}.values())
    return {"no finite numbers": f"{count} pixels, left out of all below"} if count else {}


def _print_channels(
    picture: "Picture", channels: "list[ChannelStatistics]", warnings: Sequence[str], units: str
) -> None:
    """The table of the channels, and what is to be known about the picture and its noise."""
    rows = []
    for channel in channels:
        numbers = [f"{value:.6g}" for value in (channel.smallest, channel.mean, channel.largest)]
        shares = [f"{100 * channel.saturated:.1f} %", display_number(channel.sigma)]
        rows.append([str(channel.page), channel.name, *numbers, *shares])
    first = 0 if picture.info.pages > 1 else 1  # the page is told where there are several
    print_table(CHANNEL_HEADINGS[first:], [row[first:] for row in rows])
    say(f"sigma: each channel's noise if it were white, {units}, as --sigma takes it")
    for text in dict.fromkeys(warnings):
        report_error(f"{picture.name}: {text}")


def _print_lines(path: Path, lines: Mapping[str, str]) -> None:
    """A heading and the facts under it, in two columns."""
    tell(display_name(path))
    width = max(map(len, lines))
    for key, value in lines.items():
        tell(f"  {display_name(key):{width}}  {display_name(value)}")
