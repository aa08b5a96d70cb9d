"""`dstl reproduce`: the paper's table and its convergence figure."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import compact_table, progress_bar, stdout_console
from dstl_cli.config import METHODS, paper_config
from dstl_cli.errors import DstlError, UsageProblem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dstl_cli.reproduction import Curve, TableRow

HELP = "Run the experiments of the paper and print them beside the printed numbers."

Folders = Annotated[list[Path], typer.Argument(help="Folders (or files) with the pictures, e.g. barbara.png.")]


def table(
    folders: Folders,
    images: Annotated[
        str, typer.Option(help="Pictures by name, separated by commas.")
    ] = "cameraman,hill,baboon,barbara",
    sigmas: Annotated[str, typer.Option(help="Noise deviations, separated by commas.")] = "5,10,15,20,100",
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = ",".join(METHODS),
    error_scale: Annotated[float, typer.Option(help="C of the coder; the printed table was made with 1.15.")] = 1.15,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The denoising table: PSNR and SSIM, measured beside printed.

    Reads NAME.png and, where present, NAME_sigmaS.tiff; else seeded noise is added to the clean picture.
    """
    from dstl_cli.files.reports import to_json
    from dstl_cli.reproduction import table_row

    names = options.parse_names(images, "--images")
    deviations = options.parse_numbers(sigmas, "--sigmas")
    chosen = options.parse_names(methods, "--methods", METHODS)
    configs = [
        options.checked(paper_config, {"method": method, "error_scale": error_scale, "seed": seed}) for method in chosen
    ]
    rows: list[TableRow] = []
    total = len(names) * len(deviations) * len(configs)
    with progress_bar("table") as (progress, describe):
        for name in names:
            clean = _read_grey(_find(folders, f"{name}.png"))
            for sigma in deviations:
                noisy = _noisy(folders, name, clean, sigma, seed)
                for config in configs:
                    describe(f"{name}, sigma {sigma:g}, {config.learn.method}")
                    with numeric_problems(name):
                        rows.append(table_row(name, clean, noisy, sigma, config, jobs=jobs))
                    if progress is not None:
                        progress(len(rows) / total)
    if json:
        settings = {"error_scale": error_scale, "seed": seed, "preset": "paper", "ssim": "downsampled"}
        typer.echo(to_json("reproduce table", settings=settings, rows=rows, mean=_means(rows)))
        return
    _print_table(rows)


def figure(
    folders: Folders,
    iterations: Annotated[int, typer.Option(help="Iterations of each method.", min=1)] = 1000,
    plot: Annotated[
        Path | None, typer.Option(help="Write the figure to this PNG file.", rich_help_panel=options.OUTPUT)
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an existing plot (never a picture).")] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The convergence figure: errors on training and test patches under three bounds.

    Needs barbara, couple and cameraman to learn from, hill and man to test on.
    """
    from dstl_cli.files.reports import plot_curves, to_json
    from dstl_cli.reproduction import FIGURE_TEST, FIGURE_TRAIN, figure_curves

    train, test = (
        [_read_grey(_find(folders, f"{name}.png")) for name in names] for names in (FIGURE_TRAIN, FIGURE_TEST)
    )
    if plot is not None and plot.exists() and not force:
        raise UsageProblem(f"{plot} already exists; use --force to overwrite it.")
    with progress_bar("figure") as (progress, _), numeric_problems("The figure"):
        curves = list(figure_curves(train, test, iterations=iterations, progress=progress))
    if plot is not None:
        plot_curves(curves, plot)
    if json:
        settings = {"iterations": iterations, "train": FIGURE_TRAIN, "test": FIGURE_TEST}
        typer.echo(to_json("reproduce figure", settings=settings, rows=curves))
        return
    _print_figure(curves)
    if plot is not None:
        typer.echo(f"The figure is in {plot}.")


@contextmanager
def numeric_problems(name: str) -> Iterator[None]:
    """What the numerics refuse, as an error with the picture's name."""
    try:
        yield
    except ValueError as error:
        raise DstlError(f"{name} cannot be used: {error}") from error


def _find(folders: list[Path], name: str, *, needed: bool = True) -> Path | None:
    """The file called `name` among the given files and in the given folders."""
    for folder in folders:
        candidate = folder if folder.is_file() and folder.name == name else folder / name
        if candidate.is_file():
            return candidate
    if needed:
        raise UsageProblem(f"There is no {name} in {', '.join(map(str, folders))}; give the folder that has it.")
    return None


def _read_grey(path: Path | None) -> "NDArray[np.float64]":
    import numpy as np

    from dstl_cli.files.images import read_picture

    assert path is not None
    page = read_picture(path).pages[0]
    if page.ndim != 2 or page.dtype.name == "uint16":
        raise DstlError(f"{path} must be a grey picture on the 0-255 scale.")
    return page.astype(np.float64)


def _noisy(
    folders: list[Path], name: str, clean: "NDArray[np.float64]", sigma: float, seed: int
) -> "NDArray[np.float64]":
    """The noisy picture that lies beside the clean one, or the clean one with seeded noise."""
    from dstl_cli.noise import add_noise

    path = _find(folders, f"{name}_sigma{sigma:g}.tiff", needed=False)
    noisy = add_noise(clean, sigma, seed=seed) if path is None else _read_grey(path)
    if noisy.shape != clean.shape:
        raise DstlError(f"{path} and {name}.png differ in size; give the files of one picture.")
    return noisy


def _means(rows: "list[TableRow]") -> list[dict[str, Any]]:
    """Mean PSNR, SSIM and difference to the printed PSNR of each method."""
    means = []
    for method in dict.fromkeys(row.method for row in rows):
        part = [row for row in rows if row.method == method]
        differences = [row.psnr - row.printed_psnr for row in part if row.printed_psnr is not None]
        means.append(
            {
                "method": method,
                "psnr": sum(row.psnr for row in part) / len(part),
                "ssim": sum(row.ssim for row in part) / len(part),
                "difference": sum(differences) / len(differences) if differences else None,
            }
        )
    return means


def _print_table(rows: "list[TableRow]") -> None:
    view = compact_table("image", "sigma", "method", "PSNR", "printed", "diff", "SSIM", "printed", "s")
    for row in rows:
        view.add_row(
            row.image, f"{row.sigma:g}", row.method, f"{row.psnr:.3f}", _number(row.printed_psnr, ".3f"),
            _number(None if row.printed_psnr is None else row.psnr - row.printed_psnr, "+.3f"),
            f"{row.ssim:.3f}", _number(row.printed_ssim, ".3f"), f"{row.seconds:.1f}",
        )  # fmt: skip
    console = stdout_console()
    console.print("PSNR in dB (peak 255, not rounded) and SSIM (Wang, down-sampled), measured beside printed")
    console.print(view)
    for mean in _means(rows):
        difference = "" if mean["difference"] is None else f", {mean['difference']:+.3f} dB to the printed ones"
        console.print(f"{mean['method']}: mean PSNR {mean['psnr']:.3f} dB, SSIM {mean['ssim']:.3f}{difference}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _print_figure(curves: "list[Curve]") -> None:
    console = stdout_console()
    console.print("||WY - X|| and ||WY - X|| / ||WY|| on training and test patches")
    for weight in dict.fromkeys(curve.logdet_weight for curve in curves):
        part = [curve for curve in curves if curve.logdet_weight == weight]
        bounds = max(part, key=lambda curve: curve.max_condition)
        limits = f"condition at most {bounds.max_condition:.6g}, norm {bounds.frobenius_norm:.5g}"
        console.print(f"\nlog-det weight {weight:g}: {limits}")
        view = compact_table("method", "iter", "train", "relative", "test", "relative", "condition", "density")
        for curve in part:
            last = curve.points[-1].iteration
            for point in curve.points:
                if point.iteration not in (1, 10, 100, last):
                    continue
                final = point.iteration == last
                view.add_row(
                    curve.method, str(point.iteration), f"{point.train_error:.5g}", f"{point.train_relative:.3g}",
                    f"{point.test_error:.5g}", f"{point.test_relative:.3g}",
                    f"{curve.condition:.6g}" if final else "", f"{curve.density:.3f}" if final else "",
                )  # fmt: skip
        console.print(view)
