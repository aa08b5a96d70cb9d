"""`dstl reproduce`: the paper's table and its convergence figure."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_cli.cli import options
from dstl_cli.cli.console import number_or_dash, print_json, print_table, progress_bar, say, tell
from dstl_cli.cli.options import EVERYDAY, EXPERTS, option
from dstl_cli.errors import DstlError, UsageProblem, refusals
from dstl_cli.learning.methods import METHODS, PAPER_METHODS
from dstl_cli.transforms.canonical import CANONICAL

if TYPE_CHECKING:
    from dstl_cli.base.arrays import Array
    from dstl_cli.measure.paper_experiments import Curve, TableRow

IMAGES = ("cameraman", "hill", "baboon", "barbara")
HELP = "Run the experiments of the paper and print them beside the printed numbers."

Folders = Annotated[
    list[Path], typer.Argument(help="Folders (or files) with the pictures, e.g. barbara.png.", metavar="FOLDER...")
]


def table(
    folders: Folders,
    images: Annotated[str, option(EVERYDAY, "Pictures by name.", metavar="NAME,...")] = ",".join(IMAGES),
    sigmas: Annotated[str, option(EVERYDAY, "Noise deviations.", metavar="X,...")] = "5,10,15,20,100",
    methods: Annotated[str, option(EVERYDAY, "Learning methods.", metavar="NAME,...")] = ",".join(PAPER_METHODS),
    canonical: options.Canonical = None,
    error_scale: Annotated[float, option(EXPERTS, "C of the coder; the printed table was made with 1.15.")] = 1.15,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The denoising table: PSNR and SSIM, measured beside printed.

    Reads NAME.png and, where present, NAME_sigmaS.tiff; else seeded noise is added to the clean picture.

    Example: dstl reproduce table pictures/ --sigmas 10,20
    """
    from dstl_cli.measure.paper_experiments import table_means, table_row

    names = options.parse_names(images, "--images")
    deviations = options.parse_numbers(sigmas, "--sigmas")
    chosen = options.parse_names(methods, "--methods", METHODS.names)
    given = {"error_scale": error_scale, "canonical": canonical, "seed": seed}
    requests = [options.build_request("paper", {"method": method, **given}, jobs=jobs) for method in chosen]
    rows: list[TableRow] = []
    total = len(names) * len(deviations) * len(requests)
    with progress_bar("table") as (progress, describe):
        for name in names:
            clean = _read_grey(_find(folders, f"{name}.png"))
            for sigma in deviations:
                noisy = _noisy(folders, name, clean, sigma, seed)
                for request in requests:
                    describe(f"{name}, sigma {sigma:g}, {request.settings.method}")
                    with refusals(name, "cannot be used"):
                        rows.append(table_row(name, clean, noisy, sigma, request))
                    progress(len(rows) / total)
    means = table_means(rows)
    if json:
        settings = {"preset": "paper", "ssim": "downsampled", **given, "canonical": canonical or "dct"}
        print_json("reproduce table", settings=settings, rows=rows, mean=means)
    else:
        _print_table(rows, means)


def figure(
    folders: Folders,
    iterations: Annotated[int, option(EVERYDAY, "Iterations of each method.", min=1)] = 1000,
    plot: options.Plot = None,
    force: options.Force = False,
    canonical: options.Canonical = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """The convergence figure: errors on training and test patches under three bounds.

    Needs barbara, couple and cameraman to learn from, hill and man to test on.

    Example: dstl reproduce figure pictures/ --plot figure.png
    """
    from dstl_cli.measure.paper_experiments import FIGURE_TEST, FIGURE_TRAIN, figure_curves
    from dstl_cli.report.plots import plot_curves

    phi = canonical or "dct"
    options.checked(lambda canonical: CANONICAL[canonical], {"canonical": phi})
    paths = {name: _find(folders, f"{name}.png") for name in (*FIGURE_TRAIN, *FIGURE_TEST)}
    options.check_plot(plot, paths.values(), force=force)
    train, test = ([_read_grey(paths[name]) for name in names] for names in (FIGURE_TRAIN, FIGURE_TEST))
    with progress_bar("figure") as (progress, _), refusals("The figure", "cannot be used"):
        curves = list(figure_curves(train, test, iterations=iterations, canonical=phi, progress=progress))
    if plot is not None:
        plot_curves(curves, plot, overwrite=force)
    if json:
        settings = {"iterations": iterations, "canonical": phi, "train": FIGURE_TRAIN, "test": FIGURE_TEST}
        print_json("reproduce figure", settings=settings, rows=curves)
        return
    _print_figure(curves)
    if plot is not None:
        tell(f"The figure is in {plot}.")


def _find(folders: list[Path], name: str) -> Path:
    """The file called `name` among the given files and in the given folders."""
    for folder in folders:
        path = folder if folder.is_file() and folder.name == name else folder / name
        if path.is_file():
            return path
    raise UsageProblem(f"There is no {name} in {', '.join(map(str, folders))}; give the folder that has it.")


def _read_grey(path: Path) -> "Array":
    from dstl_cli.picture.read import read_picture

    page = read_picture(path).pages[0]
    if page.ndim != 2 or page.dtype.name == "uint16":
        raise DstlError(f"{path} must be a grey picture on the 0-255 scale.")
    return page.astype("float64")


def _noisy(folders: list[Path], name: str, clean: "Array", sigma: float, seed: int) -> "Array":
    """The noisy picture that lies beside the clean one, or the clean one with seeded noise."""
    from dstl_cli.noise.synthetic import add_noise

    try:
        path = _find(folders, f"{name}_sigma{sigma:g}.tiff")
    except UsageProblem:
        return add_noise(clean, sigma, seed=seed)
    noisy = _read_grey(path)
    if noisy.shape != clean.shape:
        raise DstlError(f"{path} and {name}.png differ in size; give the files of one picture.")
    return noisy


def _print_table(rows: "list[TableRow]", means: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        psnr = [f"{row.psnr:.3f}", number_or_dash(row.printed_psnr, ".3f"), number_or_dash(row.difference, "+.3f")]
        ssim = [f"{row.ssim:.3f}", number_or_dash(row.printed_ssim, ".3f")]
        cells.append([row.image, f"{row.sigma:g}", row.method, *psnr, *ssim, f"{row.seconds:.1f}"])
    say("PSNR in dB (peak 255, not rounded) and SSIM (Wang, down-sampled), measured beside printed")
    print_table(("image", "sigma", "method", "PSNR", "printed", "diff", "SSIM", "printed", "s"), cells)
    for mean in means:
        difference = "" if mean["difference"] is None else f", {mean['difference']:+.3f} dB to the printed ones"
        say(f"{mean['method']}: mean PSNR {mean['psnr']:.3f} dB, SSIM {mean['ssim']:.3f}{difference}")


def _print_figure(curves: "list[Curve]") -> None:
    say("||WY - X|| and ||WY - X|| / ||WY|| on training and test patches")
    for weight in dict.fromkeys(curve.logdet_weight for curve in curves):
        part = [curve for curve in curves if curve.logdet_weight == weight]
        bounds = max(part, key=lambda curve: curve.max_condition)
        limits = f"condition at most {bounds.max_condition:.6g}, norm {bounds.frobenius_norm:.5g}"
        say(f"\nlog-det weight {weight:g}: {limits}")
        rows = []
        for curve in part:
            for point in curve.points:
                final = point is curve.points[-1]
                if final or point.iteration in (1, 10, 100):
                    train = [f"{point.train_error:.5g}", f"{point.train_relative:.3g}"]
                    test = [f"{point.test_error:.5g}", f"{point.test_relative:.3g}"]
                    delivered = [f"{curve.condition:.6g}", f"{curve.density:.3f}"] if final else []
                    rows.append([curve.method, str(point.iteration), *train, *test, *delivered])
        print_table(("method", "iter", "train", "relative", "test", "relative", "condition", "density"), rows)
