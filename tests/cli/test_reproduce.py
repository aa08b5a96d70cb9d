"""`dstl reproduce`: the paper's table and figure on small made-up pictures."""

import io
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image
from running import refused, run, run_process
from skimage.metrics import peak_signal_noise_ratio

from dstl_cli.version import __version__

NAMES = ("barbara", "couple", "cameraman", "hill", "man")


def clean(seed: int, shape: tuple[int, int] = (64, 64)) -> NDArray[np.uint8]:
    """Waves and an edge, different for every seed."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    waves = 128 + 50 * np.sin(rows / (4 + seed)) * np.cos(columns / (7 + seed)) + 30 * (columns > 10 * seed + 12)
    grain = np.random.default_rng(seed).normal(0, 3, shape)
    return np.asarray(np.clip(np.rint(waves + grain), 0, 255), dtype=np.uint8)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for seed, name in enumerate(NAMES):
        Image.fromarray(clean(seed)).save(tmp_path / f"{name}.png")
    return tmp_path


def test_table_with_seeded_noise(pictures: Path) -> None:
    arguments = ("reproduce", "table", pictures, "--images", "cameraman,hill", "--sigmas", "10,20", "--methods", "dct")
    done = run(*arguments, "--json")
    assert (done.code, done.stderr) == (0, "")
    report = done.report
    assert {"command", "version", "settings", "rows", "mean"} <= report.keys()
    assert (report["command"], report["version"]) == ("reproduce table", __version__)
    assert report["settings"]["error_scale"] == 1.15
    rows = report["rows"]
    assert [(row["image"], row["sigma"], row["method"]) for row in rows] == [
        (image, sigma, "dct") for image in ("cameraman", "hill") for sigma in (10, 20)
    ]
    for row in rows:
        assert {"image", "sigma", "method", "psnr", "ssim", "noisy_psnr", "seconds"} <= row.keys()
        assert row["psnr"] > row["noisy_psnr"] + 2
        assert 0 < row["ssim"] <= 1
        assert row["noisy_psnr"] == pytest.approx(20 * np.log10(255 / row["sigma"]), abs=0.6)
    [mean] = report["mean"]
    assert mean["method"] == "dct"
    assert mean["psnr"] == pytest.approx(np.mean([row["psnr"] for row in rows]))
    assert mean["ssim"] == pytest.approx(np.mean([row["ssim"] for row in rows]))
    assert mean["difference"] == pytest.approx(np.mean([row["psnr"] - row["printed_psnr"] for row in rows]))

    again, other = (run(*arguments, "--json", "--seed", seed).report["rows"] for seed in (0, 1))
    assert [row["psnr"] for row in again] == [row["psnr"] for row in rows]
    assert [row["psnr"] for row in other] != [row["psnr"] for row in rows]


def test_table_takes_the_noise_files_that_lie_there(pictures: Path) -> None:
    noisy = clean(2).astype(np.float64) + np.random.default_rng(77).normal(0, 10, (64, 64))
    tifffile.imwrite(pictures / "cameraman_sigma10.tiff", noisy)
    arguments = (
        "reproduce",
        "table",
        pictures,
        "--images",
        "cameraman",
        "--sigmas",
        "10",
        "--methods",
        "dct",
        "--json",
    )
    [row] = run(*arguments).report["rows"]
    expected = peak_signal_noise_ratio(clean(2).astype(float), np.clip(noisy, 0, 255), data_range=255)
    assert row["noisy_psnr"] == pytest.approx(expected, abs=1e-9)
    [other] = run(*arguments, "--seed", 5).report["rows"]  # the seed has nothing to say here
    assert other["psnr"] == row["psnr"]
    (pictures / "elsewhere").mkdir()
    (pictures / "cameraman_sigma10.tiff").rename(pictures / "elsewhere" / "cameraman_sigma10.tiff")
    [found] = run(*arguments[:2], pictures, pictures / "elsewhere", *arguments[3:]).report["rows"]
    assert found["psnr"] == row["psnr"]


def test_table_is_printed_for_people(pictures: Path) -> None:
    arguments = (
        "reproduce",
        "table",
        pictures,
        "--images",
        "hill,unknown",
        "--sigmas",
        "100",
        "--methods",
        "dct,dsect",
    )
    refused(run(*arguments), 2, "unknown.png")
    Image.fromarray(clean(9)).save(pictures / "unknown.png")
    done = run_process(*arguments)
    assert (done.code, done.stderr) == (0, "")
    lines = done.text.splitlines()
    for image in ("hill", "unknown"):
        for method in ("dct", "dsect"):
            assert any({image, method} <= set(line.split()) for line in lines)
    assert any(line.startswith("dsect: mean PSNR") for line in lines)
    assert not any("hill" in line and "-" in line.split() for line in lines)  # the paper has these cells
    assert all(line.split().count("-") == 3 for line in lines if "unknown" in line)  # but not these


def test_table_without_noise_is_exact(pictures: Path) -> None:
    done = run("reproduce", "table", pictures, "--images", "hill", "--sigmas", "0", "--methods", "dct", "--json")
    [row] = done.report["rows"]
    assert (row["psnr"], row["noisy_psnr"]) == (None, None)  # identical
    assert row["ssim"] == pytest.approx(1)
    assert run("reproduce", "table", pictures, "--images", "hill", "--sigmas", "0", "--methods", "dct").code == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--images", "nobody"), "nobody.png"),
        (("--images", ""), "--images"),
        (("--sigmas", "ten"), "ten"),
        (("--sigmas", "-5"), "-5"),
        (("--sigmas", "auto"), "--sigmas"),
        (("--sigmas", ""), "--sigmas"),
        (("--methods", "bm3d"), "bm3d"),
        (("--methods", ","), "--methods"),
        (("--error-scale", "0"), "--error-scale"),
    ],
)
def test_wrong_usage_of_the_table(arguments: tuple[str, str], word: str, pictures: Path) -> None:
    refused(run("reproduce", "table", pictures, f"{arguments[0]}={arguments[1]}"), 2, word)


def test_pictures_that_do_not_fit_the_table(tmp_path: Path) -> None:
    arguments = ("reproduce", "table", tmp_path, "--images", "hill", "--sigmas", "10", "--methods", "dct")
    hill = tmp_path / "hill.png"
    Image.fromarray(np.dstack([clean(1)] * 3)).save(hill)
    refused(run(*arguments), 1, "hill.png", "grey")
    Image.fromarray(clean(1).astype(np.uint16) * 257).save(hill)
    refused(run(*arguments), 1, "hill.png", "grey")
    hill.write_text("no picture")
    refused(run(*arguments), 1, "hill.png")
    Image.fromarray(clean(1)).save(hill)
    tifffile.imwrite(tmp_path / "hill_sigma10.tiff", np.zeros((60, 64)))
    refused(run(*arguments), 1, "hill_sigma10.tiff", "size")


@pytest.mark.parametrize("command", ["table", "figure"])
def test_pictures_smaller_than_a_patch_get_a_sentence(command: str, tmp_path: Path) -> None:
    for seed, name in enumerate(NAMES):
        Image.fromarray(clean(seed, (6, 64))).save(tmp_path / f"{name}.png")
    options = ("--images", "hill", "--sigmas", "10", "--methods", "dct") if command == "table" else ("--iterations", 2)
    done = run("reproduce", command, tmp_path, *options)
    refused(done, 1)


def test_figure(pictures: Path) -> None:
    plot = pictures / "figure.png"
    done = run("reproduce", "figure", pictures, "--iterations", 3, "--json", "--plot", plot)
    assert (done.code, done.stderr) == (0, "")
    assert plot.exists()
    report = done.report  # all that is on stdout
    assert report["command"] == "reproduce figure"
    assert report["settings"]["iterations"] == 3
    curves = report["rows"]
    assert [curve["method"] for curve in curves] == ["dct", "bresler", "conditioned", "dsect"] * 3
    assert [curve["logdet_weight"] for curve in curves[::4]] == [2.1e-4, 2.1e-7, 2.1e-12]
    for curve in curves:
        numbers = [point["iteration"] for point in curve["points"]]
        assert numbers == ([1] if curve["method"] == "dct" else [1, 2, 3])
        for point in curve["points"]:
            assert 0 <= point["train_relative"] <= 1
            assert 0 <= point["test_relative"] <= 1
            assert point["train_error"] > 0
    for start in range(0, 12, 4):
        dense = curves[start + 1]
        for bounded in curves[start + 2 : start + 4]:
            assert bounded["max_condition"] == dense["condition"]
            assert bounded["condition"] <= dense["condition"] * (1 + 1e-6)


def test_figure_for_people_and_as_a_picture(pictures: Path) -> None:
    plot = pictures / "figure.png"
    done = run_process("reproduce", "figure", pictures, "--iterations", 1, "--plot", plot)
    assert (done.code, done.stderr) == (0, "")
    assert "conditioned" in done.text
    assert str(plot) in done.text.replace("\n", "")
    with Image.open(io.BytesIO(plot.read_bytes())) as image:
        assert image.format == "PNG"
        assert min(image.size) > 400
        assert np.asarray(image.convert("L")).std() > 5
    assert sorted(path.name for path in pictures.iterdir()) == sorted(
        [*(f"{name}.png" for name in NAMES), "figure.png"]
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_plot_never_replaces_a_picture(name: str, pictures: Path) -> None:
    before = {path: path.read_bytes() for path in pictures.iterdir()}
    (pictures / "linked.png").hardlink_to(pictures / f"{name}.png")
    command = ("reproduce", "figure", pictures, "--iterations", 1, "--plot")
    refused(run(*command, pictures / f"{name}.png"), 2, f"{name}.png")
    refused(run(*command, pictures / f"{name}.png", "--force"), 2, f"{name}.png", "never overwritten")
    refused(run(*command, pictures / "linked.png", "--force"), 2, "linked.png", "never overwritten")
    assert {path: path.read_bytes() for path in before} == before


def test_the_plot_is_refused_before_any_work(pictures: Path) -> None:
    (pictures / "man.png").write_text("no picture")  # what is wrong with it is never reached
    (pictures / "old.png").write_bytes(b"precious")
    command = ("reproduce", "figure", pictures, "--plot")
    refused(run(*command, pictures / "old.png"), 2, "old.png", "--force")
    refused(run(*command, pictures / "figure.pdf"), 2, "--plot", ".png")
    refused(run(*command, pictures / "no" / "figure.png"), 2, "--plot")
    assert (pictures / "old.png").read_bytes() == b"precious"


def test_wrong_usage_of_the_figure(pictures: Path) -> None:
    (pictures / "man.png").unlink()
    refused(run("reproduce", "figure", pictures, "--iterations", 2), 2, "man.png")
    done = run("reproduce", "figure", pictures, "--iterations", 0)
    assert done.code == 2
    assert "--iterations" in done.stderr
    done = run("reproduce", "chart", pictures)
    assert done.code == 2
