"""`dstl evaluate`: pairs and noise runs, their tables, files and page; every mistake gets one sentence."""

import csv
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image
from running import refused, run, run_process, scene, temporaries
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from dstl_cli.cli.evaluate import configurations
from dstl_cli.errors import FileProblem, UsageProblem
from dstl_cli.picture.read import read_picture
from dstl_cli.transforms.files import TransformFile, save_transform
from dstl_cli.transforms.transform import Transform

Pixels = NDArray[Any]
ROW_KEYS = {
    "image", "page", "noise", "sigma", "method", "repeat", "noise_seed", "psnr", "ssim", "identical", "noisy_psnr",
    "noisy_ssim", "seconds",
}  # fmt: skip


def save(path: Path, pixels: Pixels) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return save(tmp_path / "clean.png", scene(sigma=0)), save(tmp_path / "other.png", scene(sigma=10))


@pytest.fixture
def transform(tmp_path: Path) -> Path:
    """A small transform that needs no learning."""
    path = tmp_path / "small.npz"
    save_transform(path, TransformFile(Transform.fixed(4)))
    return path


# --- pairs --------------------------------------------------------------------------------------------


def test_a_pair_is_measured_as_scikit_image_does(pair: tuple[Path, Path]) -> None:
    done = run("evaluate", *pair, "--json")
    assert (done.code, done.stderr) == (0, "")
    report = done.report
    assert (report["command"], report["settings"]["mode"], report["settings"]["ssim"]) == ("evaluate", "pair", "wang")
    (row,), (mean,) = report["rows"], report["mean"]
    assert row.keys() == ROW_KEYS
    clean, other = (np.asarray(Image.open(path)) for path in pair)
    assert row["psnr"] == pytest.approx(peak_signal_noise_ratio(clean, other), abs=1e-4)
    expected = structural_similarity(clean, other, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
    assert row["ssim"] == pytest.approx(expected, abs=1e-4)
    assert (mean["psnr"], mean["ssim"], mean["rows"]) == (row["psnr"], row["ssim"], 1)
    text = run("evaluate", *pair).text
    assert f"{row['psnr']:.3f}" in text
    assert f"{row['ssim']:.4f}" in text
    assert "peak 255" in text
    assert "Wang" in text
    assert "Colour" not in text


def test_the_other_ssim_and_the_colour_convention_are_named(tmp_path: Path) -> None:
    shape = (300, 400, 3)
    first, second = (save(tmp_path / f"{sigma}.png", scene(shape, sigma)) for sigma in (0, 20))
    wang, other = (run("evaluate", first, second, "--ssim", kind, "--json").report for kind in ("wang", "downsampled"))
    assert wang["rows"][0]["psnr"] == other["rows"][0]["psnr"]
    assert wang["rows"][0]["ssim"] == other["rows"][0]["ssim"]  # 300 pixels are not averaged
    text = run("evaluate", first, second, "--ssim", "downsampled").text
    assert "256 pixels" in text
    assert "all red, green and blue values, SSIM of the luma" in text
    refused(run("evaluate", first, second, "--peak", "0"), 2, "--peak")


@pytest.mark.parametrize("begin", ["=1+1", "+1", "-1", "@SUM(1)", "\uff1d1"])
def test_names_that_look_like_formulas_are_text_in_csv(begin: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    """As OWASP advises; everything else, numbers below zero too, is as it was."""
    first, second = (tmp_path / kind / f"{begin}, a.png" for kind in ("clean", "denoised"))
    for source, target in zip(pair, (first, second), strict=True):
        target.parent.mkdir()
        shutil.copy(source, target)
    row = run("evaluate", first, second, "--json", "--csv", tmp_path / "a.csv").report["rows"][0]
    with (tmp_path / "a.csv").open(newline="") as stream:
        (line,) = csv.DictReader(stream)
    assert line["image"] == f"'{begin}, a.png" == f"'{row['image']}"
    assert float(line["psnr"]) == row["psnr"]


def test_identical_pictures_are_null_in_json_and_called_so(pair: tuple[Path, Path], tmp_path: Path) -> None:
    report = run("evaluate", pair[0], pair[0], "--json", "--csv", tmp_path / "a.csv", "--min-psnr", 99).report
    (row,), (mean,) = report["rows"], report["mean"]
    assert (row["psnr"], row["identical"], row["ssim"]) == (None, True, 1.0)
    assert (mean["psnr"], mean["identical"], mean["identical_rows"]) == (None, True, 1)
    assert ",inf," in (tmp_path / "a.csv").read_text()
    text = run("evaluate", pair[0], pair[0], "--report", tmp_path / "r.html").text
    assert "inf" in text
    assert "1 identical of 1" in text
    assert ">identical<" in (tmp_path / "r.html").read_text()


def test_folders_are_paired_by_name_not_by_order(tmp_path: Path) -> None:
    for index, name in enumerate(("a", "b", "c")):
        save(tmp_path / "clean" / f"{name}.png", scene(sigma=0, seed=index))
    save(tmp_path / "other" / "a_denoised.png", scene(sigma=10))
    save(tmp_path / "other" / "a.png", scene(sigma=50))  # the noisy input of a_denoised.png
    save(tmp_path / "other" / "b.bmp", scene(sigma=20))
    tifffile.imwrite(tmp_path / "other" / "c_denoised.tif", scene(sigma=30))
    (tmp_path / "other" / "notes.txt").write_text("not a picture")
    done = run("evaluate", tmp_path / "clean", tmp_path / "other", "--json")
    assert done.code == 0
    rows = done.report["rows"]
    assert [row["image"] for row in rows] == ["a.png", "b.png", "c.png"]
    for row, sigma in zip(rows, (10, 20, 30), strict=True):
        assert row["psnr"] == pytest.approx(20 * math.log10(255 / sigma), abs=0.5)
    assert done.report["mean"][0]["psnr"] == pytest.approx(sum(row["psnr"] for row in rows) / 3)
    shown = run("evaluate", tmp_path / "clean", tmp_path / "other").text
    assert shown.index("a.png") < shown.index("b.png") < shown.index("c.png") < shown.index("mean")


def test_sub_folders_count_when_asked_for(tmp_path: Path) -> None:
    for folder, sigma in (("clean", 0), ("other", 10)):
        for place in ("a.png", "deep/a.png"):
            save(tmp_path / folder / place, scene(sigma=sigma))
    one, both = (run("evaluate", tmp_path / "clean", tmp_path / "other", *more, "--json") for more in ((), ("-r",)))
    assert [row["image"] for row in one.report["rows"]] == ["a.png"]
    assert [row["image"] for row in both.report["rows"]] == ["a.png", "deep/a.png"]


def test_a_missing_partner_is_an_error_on_either_side(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / "clean" / f"{name}.png", scene())
    save(tmp_path / "other" / "a.png", scene())
    refused(run("evaluate", tmp_path / "clean", tmp_path / "other"), 2, "b.png", "no partner", str(tmp_path / "other"))
    save(tmp_path / "other" / "b.png", scene())
    save(tmp_path / "other" / "c.png", scene())
    refused(run("evaluate", tmp_path / "clean", tmp_path / "other"), 2, "c.png", str(tmp_path / "clean"))
    save(tmp_path / "other" / "c.bmp", scene())
    refused(run("evaluate", tmp_path / "clean", tmp_path / "other"), 2, "c.bmp", "c.png", "same name")


def test_pages_are_compared_one_by_one(tmp_path: Path) -> None:
    clean = np.stack([scene(sigma=0)] * 3)
    other = np.stack([scene(sigma=sigma) for sigma in (0, 10, 20)])
    for name, pages in (("a", clean), ("b", other), ("short", other[:2])):
        tifffile.imwrite(tmp_path / f"{name}.tif", pages, photometric="minisblack")
    rows = run("evaluate", tmp_path / "a.tif", tmp_path / "b.tif", "--json").report["rows"]
    assert [(row["page"], row["identical"]) for row in rows] == [(1, True), (2, False), (3, False)]
    assert rows[1]["psnr"] > rows[2]["psnr"]
    assert "a.tif, page 3" in run("evaluate", tmp_path / "a.tif", tmp_path / "b.tif").text
    refused(run("evaluate", tmp_path / "a.tif", tmp_path / "short.tif"), 1, "3 pages", "2")


def test_depths_mix_and_floats_have_their_own_peak(tmp_path: Path) -> None:
    clean, other = scene(sigma=0), scene(sigma=10)
    save(tmp_path / "clean.png", clean)
    np.save(tmp_path / "sixteen.npy", other.astype(np.uint16) * 257)
    np.save(tmp_path / "unit.npy", (other / 255).astype(np.float32))
    expected = peak_signal_noise_ratio(clean, other)
    for name, more in (("sixteen", ()), ("unit", ("--peak", 1))):
        report = run("evaluate", tmp_path / "clean.png", tmp_path / f"{name}.npy", *more, "--json").report
        assert report["rows"][0]["psnr"] == pytest.approx(expected, abs=1e-4)
    assert "floats 1" in run("evaluate", tmp_path / "clean.png", tmp_path / "unit.npy", "--peak", 1).text


def test_different_shapes_are_an_error(pair: tuple[Path, Path], tmp_path: Path) -> None:
    wide = save(tmp_path / "wide.png", scene((48, 65)))
    refused(run("evaluate", pair[0], wide), 1, "clean.png", "wide.png", "64 x 48", "65 x 48")
    colour = save(tmp_path / "colour.png", scene((48, 64, 3)))
    refused(run("evaluate", pair[0], colour), 1, "grey", "colour")
    document = json.loads(run("evaluate", pair[0], wide, "--json").stdout)
    assert document["rows"] == document["mean"] == []
    assert document["errors"][0]["image"] == "clean.png"


def test_a_broken_picture_does_not_stop_the_rest(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save(tmp_path / "clean" / f"{name}.png", scene(sigma=0))
        save(tmp_path / "other" / f"{name}.png", scene(sigma=10))
    (tmp_path / "other" / "b.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    page = tmp_path / "r.html"
    done = run("evaluate", tmp_path / "clean", tmp_path / "other", "--report", page, "--min-psnr", 99)
    assert done.code == 1
    assert len(done.sentences) == 1
    assert "b.png" in done.sentences[0]
    assert "a.png" in done.text
    assert "c.png" in done.text
    assert "1 more could not be measured" in page.read_text()


# --- noise --------------------------------------------------------------------------------------------


def test_noise_is_added_and_removed_for_each_sigma_and_method(tmp_path: Path, transform: Path) -> None:
    save(tmp_path / "clean" / "grey.png", scene(sigma=0))
    save(tmp_path / "clean" / "colour.png", scene((40, 50, 3), sigma=0))
    save(tmp_path / "clean" / "grey_denoised.png", scene())  # our own result
    arguments = ("evaluate", tmp_path / "clean", "--sigma", "10,20,10", "--method", "dct", "--transform", transform)
    done = run(*arguments, "--repeats", 2, "--seed", 5, "--json", "--csv", tmp_path / "rows.csv")
    assert (done.code, done.stderr) == (0, "")
    rows, means = done.report["rows"], done.report["mean"]
    assert len(rows) == 2 * 2 * 2 * 2
    assert all(row.keys() == ROW_KEYS for row in rows)
    assert {row["image"] for row in rows} == {"grey.png", "colour.png"}
    assert {(row["repeat"], row["noise_seed"]) for row in rows} == {(1, 5), (2, 6)}
    assert all(row["psnr"] > row["noisy_psnr"] + 3 for row in rows)
    assert [(mean["sigma"], mean["method"]) for mean in means] == [
        (10, "dct"), (10, "small.npz"), (20, "dct"), (20, "small.npz"),
    ]  # fmt: skip
    for mean in means:
        part = [row for row in rows if (row["sigma"], row["method"]) == (mean["sigma"], mean["method"])]
        by_repeat = [np.mean([row["psnr"] for row in part if row["repeat"] == repeat]) for repeat in (1, 2)]
        assert mean["psnr"] == pytest.approx(np.mean(by_repeat))
        assert mean["psnr_deviation"] == pytest.approx(np.std(by_repeat, ddof=1))
    settings = done.report["settings"]
    assert (settings["sigma"], settings["repeats"], settings["seed"]) == ([10, 20], 2, 5)
    with (tmp_path / "rows.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert table[0].keys() == ROW_KEYS
    assert [float(line["psnr"]) for line in table] == [row["psnr"] for row in rows]
    text = run(*arguments, "--repeats", 2).text
    assert "+-" in text
    assert "seed 0 to 1" in text


def test_the_same_seed_gives_the_same_numbers_for_any_number_of_threads(tmp_path: Path) -> None:
    save(tmp_path / "a.png", scene(sigma=0))
    arguments = ("evaluate", tmp_path / "a.png", "--sigma", 20, "--method", "dct", "--json")
    first, second, third = (
        [row["psnr"] for row in run(*arguments, *more).report["rows"]] for more in ((), ("--jobs", 2), ("--seed", 1))
    )
    assert first == second != third


def test_configurations_are_named_by_what_differs(transform: Path, tmp_path: Path) -> None:
    def labels(quality: str | None, method: str | None, canonical: str | None, *files: Path) -> list[str]:
        given = {"quality": quality, "method": method, "canonical": canonical, "transform": files}
        made = configurations({**given, "seed": 3})
        assert all(request.settings.seed == 3 for _, request in made)
        return [label for label, _ in made]

    assert labels(None, None, None) == ["standard"]
    assert labels(None, "dct,dsect,dct", None, transform) == ["dct", "dsect", "small.npz"]
    assert labels(None, None, None, transform) == ["small.npz"]
    assert labels("fast,paper,fast", None, None) == ["fast", "paper"]
    assert labels("best,paper", "dct,dsect", None, transform) == [
        *("best dct", "best dsect", "paper dct", "paper dsect"),
        *("best small.npz", "paper small.npz"),
    ]
    assert labels(None, None, "dct,fourier") == ["dct", "fourier"]
    assert labels(None, "procrustes", "dct,fourier") == ["procrustes dct", "procrustes fourier"]
    other = tmp_path / "other" / "small.npz"
    other.parent.mkdir()
    other.write_bytes(transform.read_bytes())
    assert labels(None, None, None, transform, other) == [str(transform), str(other)]
    for wrong in ((None, "dct,nonsense", None), ("fast,nonsense", None, None), (None, None, "dct,nonsense")):
        with pytest.raises(UsageProblem, match=r"knows .*, not 'nonsense'"):
            labels(*wrong)
    with pytest.raises(UsageProblem, match="--method must be one of procrustes, dct for fast, not 'bresler'"):
        labels("fast", "bresler", None)
    with pytest.raises(UsageProblem, match="patch_size must be a power of two for the canonical transform haar"):
        labels(None, None, "haar")


def test_floats_are_measured_in_their_own_units(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", (scene(sigma=0) / 255).astype(np.float32))
    arguments = ("evaluate", tmp_path / "a.tif", "--sigma", 0.1, "--method", "dct", "--peak", 1, "--json")
    (row,) = run(*arguments).report["rows"]
    assert row["noisy_psnr"] == pytest.approx(20, abs=0.3)
    assert row["psnr"] > 25


def test_pictures_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [save(tmp_path / folder / "a.png", scene(sigma=0)) for folder in ("one", "two")]
    rows = run("evaluate", *paths, "--sigma", 20, "--method", "dct", "--json").report["rows"]
    assert [row["image"] for row in rows] == list(map(str, paths))


def test_a_picture_can_come_through_a_pipe(pair: tuple[Path, Path]) -> None:
    done = run("evaluate", "-", "--sigma", 20, "--method", "dct", "--json", stdin=pair[0].read_bytes())
    assert done.code == 0
    assert len(done.report["rows"]) == 1


def test_names_with_brackets_are_no_markup(tmp_path: Path) -> None:
    path = save(tmp_path / "[bold]x[red].png", scene(sigma=0))
    assert "[bold]x[red].png" in run("evaluate", path, path).text


def test_named_noises_are_removed_blind_or_with_what_is_told(tmp_path: Path) -> None:
    save(tmp_path / "a.png", scene((48, 64, 3), sigma=0))
    tifffile.imwrite(tmp_path / "b.tif", scene(sigma=0).astype(np.uint16) * 257)
    noises = ["white:20", "poisson:2,9", "camera:12800"]
    arguments = ("evaluate", tmp_path, "--noise", ",".join(noises), "--quality", "fast", "--seed", 3, "--json")
    done = run_process(*arguments, "--csv", tmp_path / "rows.csv", "--report", tmp_path / "r.html")
    assert (done.code, done.stderr) == (0, "")
    rows, settings = done.report["rows"], done.report["settings"]
    assert [(row["image"], row["noise"]) for row in rows] == [(a, n) for a in ("a.png", "b.tif") for n in noises]
    assert {(row["sigma"], row["repeat"], row["noise_seed"]) for row in rows} == {(None, 1, 3)}
    assert all(row["psnr"] > row["noisy_psnr"] + 3 for row in rows if row["noise"] == "white:20")
    assert (settings["mode"], settings["noise"], settings["sigma"]) == ("noise", noises, [None])
    assert [mean["noise"] for mean in done.report["mean"]] == noises
    with (tmp_path / "rows.csv").open(newline="") as stream:
        assert {line["noise"] for line in csv.DictReader(stream)} == set(noises)
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert len(list(page.of("input", type="radio", name="p0-noise"))) == 3
    assert [part["data-noise"] for part in page.of("div") if "data-noise" in part] == ["0", "1", "2"] * 2
    assert list(page.of("svg", role="img")) == []  # no curves: the noises have no order
    assert "camera:12800, sigma auto" in page.words
    told = run(*arguments[:-1], "--sigma", "auto,20", "--repeats", 2, "--min-psnr", 60)
    assert told.code == 3
    assert len(told.sentences) == 6
    assert "fast at white:20, sigma auto is" in told.sentences[0]
    assert "seed 3 to 4" in told.text
    blind = {(row["image"], row["noise"]): row["psnr"] for row in rows}
    again = run(*arguments, "--sigma", "20,auto").report["rows"]
    assert {(row["image"], row["noise"]): row["psnr"] for row in again if row["sigma"] is None} == blind


# --- noisy pictures -----------------------------------------------------------------------------------


def test_noisy_pictures_are_denoised_as_denoise_does_and_compared_with_the_clean_ones(tmp_path: Path) -> None:
    """Written by `denoise` and measured as pairs, they give the same numbers: 8 bits, JPEG, 16 bits, float."""
    clean, noisy, made = (tmp_path / name for name in ("clean", "noisy", "made"))
    shape = (48, 64, 3)
    save(clean / "a.png", scene(shape, sigma=0))
    save(noisy / "a.png", scene(shape, sigma=20))
    save(clean / "b_clean.png", scene(shape, sigma=0))
    noisy_jpeg = noisy / "b-noisy.jpg"
    Image.fromarray(scene(shape, sigma=15)).save(noisy_jpeg, quality=95)
    save(clean / "c.png", scene(sigma=0))
    tifffile.imwrite(noisy / "c_noisy.tif", scene(sigma=20).astype(np.uint16) * 257)
    np.save(clean / "d.npy", scene(sigma=0).astype(np.float32))
    np.save(noisy / "d.npy", scene(sigma=10).astype(np.float32))
    for told in ((), ("--sigma", 12)):
        arguments = ("evaluate", clean, "--noisy", noisy, "--quality", "fast", *told)
        done = run(*arguments, "--json")
        assert (done.code, done.stderr) == (0, "")
        rows = done.report["rows"]
        assert [row["image"] for row in rows] == ["a.png", "b_clean.png", "c.png", "d.npy"]
        assert all(row["seconds"] > 0 and row["psnr"] > row["noisy_psnr"] + 2 for row in rows)
        assert {(row["noise"], row["sigma"], row["repeat"]) for row in rows} == {
            (None, told[1] if told else None, None)
        }
        for row, path in zip(rows, sorted(noisy.iterdir()), strict=True):
            output = made / f"{path.stem}.png" if path.suffix == ".jpg" else made / path.name
            output.parent.mkdir(exist_ok=True)
            assert run("denoise", path, "--quality", "fast", *told, "-o", output, "-f", "-q").code == 0
            (pair,) = run("evaluate", clean / row["image"], output, "--json").report["rows"]
            assert [row["psnr"], row["ssim"]] == pytest.approx(
                [pair["psnr"], pair["ssim"]], abs=1e-6
            )  # last bits of floats
            (before,) = run("evaluate", clean / row["image"], path, "--json").report["rows"]
            assert (row["noisy_psnr"], row["noisy_ssim"]) == (before["psnr"], before["ssim"])
        assert done.report["settings"]["mode"] == "noisy"
        assert done.report["mean"][0]["noisy_psnr"] == pytest.approx(np.mean([row["noisy_psnr"] for row in rows]))
    report = tmp_path / "r.html"
    assert run(*arguments, "--quality", "fast,standard", "--report", report, "--min-psnr", 99).code == 3
    page = Page(report.read_text(encoding="utf-8"))
    assert len(list(page.of("img", class_="after"))) == 4 * 2
    assert {"noisy", "clean", "fast", "standard"} <= set(page.words)


def test_clean_and_noisy_pictures_in_one_folder(tmp_path: Path) -> None:
    for name, sigma in (("b", 10), ("a", 20), ("c-d", 30)):
        save(tmp_path / f"{name}_clean.png", scene(sigma=0))
        save(tmp_path / f"{name}_noisy.bmp", scene(sigma=sigma))
        save(tmp_path / f"{name}_noisy_denoised.png", scene(sigma=3))
    arguments = ("evaluate", tmp_path, "--noisy", tmp_path, "--method", "dct", "--json")
    rows = run_process(*arguments).report["rows"]
    assert [row["image"] for row in rows] == ["a_clean.png", "b_clean.png", "c-d_clean.png"]
    for row, sigma in zip(rows, (20, 10, 30), strict=True):
        assert row["noisy_psnr"] == pytest.approx(20 * math.log10(255 / sigma), abs=0.5)
    alone = save(tmp_path / "a-b_noisy.png", scene())
    refused(run(*arguments), 2, "a-b_noisy.png", "no partner")
    alone.rename(tmp_path / "e_clean.png")
    refused(run(*arguments), 2, "e_clean.png", "no partner")
    (tmp_path / "e_clean.png").rename(tmp_path / "e.png")
    refused(run(*arguments), 2, "e.png", "_noisy")
    (tmp_path / "e.png").rename(tmp_path / "a-noisy.png")
    refused(run(*arguments), 2, "a-noisy.png", "a_noisy.bmp", "same name")


def test_one_side_may_have_the_plain_names(tmp_path: Path) -> None:
    for clean, noisy in (("a", "a_noisy"), ("a_clean", "a")):
        folder = tmp_path / clean
        save(folder / f"{clean}.png", scene(sigma=0))
        save(folder / f"{noisy}.png", scene(sigma=20))
        (row,) = run("evaluate", folder, "--noisy", folder, "--method", "dct", "--json").report["rows"]
        assert (row["image"], round(row["noisy_psnr"])) == (f"{clean}.png", 22)
    swapped = run("evaluate", tmp_path / "a", "--noisy", save(tmp_path / "n" / "a_clean.png", scene()).parent)
    refused(swapped, 2, "only pictures whose names end in _clean")


def test_clean_pictures_can_be_their_own_partners(tmp_path: Path) -> None:
    """How far denoising goes where there is nothing to remove."""
    save(tmp_path / "a.png", scene(sigma=0))
    done = run("evaluate", tmp_path, "--noisy", tmp_path, "--json", "--report", tmp_path / "r.html")
    (row,) = done.report["rows"]
    assert row["noisy_psnr"] is None
    assert "nan" not in (tmp_path / "r.html").read_text()


def test_noisy_pictures_that_do_not_fit_are_named(tmp_path: Path) -> None:
    clean = save(tmp_path / "clean.png", scene())
    wide = save(tmp_path / "wide.png", scene((48, 65)))
    refused(run("evaluate", clean, "--noisy", wide), 1, "64 x 48", "65 x 48")
    refused(run("evaluate", clean, "--noisy", tmp_path / "none.png"), 1, "none.png")
    np.save(tmp_path / "nan.npy", np.full((48, 64), np.nan))
    refused(run("evaluate", clean, "--noisy", tmp_path / "nan.npy"), 1, "nan.npy")
    assert run("evaluate", clean, "--noisy", clean, "--min-psnr", 1).code == 0


# --- exit codes ---------------------------------------------------------------------------------------


def test_a_floor_under_the_mean_psnr(pair: tuple[Path, Path], tmp_path: Path) -> None:
    psnr = run("evaluate", *pair, "--json").report["mean"][0]["psnr"]
    assert run("evaluate", *pair, "--min-psnr", psnr - 0.01).code == 0
    below = run("evaluate", *pair, "--min-psnr", psnr + 0.01, "--csv", tmp_path / "a.csv")
    assert below.code == 3
    assert "--min-psnr" in below.sentences[0]
    assert f"{psnr:.3f}" in below.text
    assert (tmp_path / "a.csv").exists()
    noise = run("evaluate", pair[0], "--sigma", "5,90", "--method", "dct", "--min-psnr", 30, "--json")
    assert noise.code == 3
    assert len(noise.sentences) == 1
    assert "dct at sigma 90" in noise.sentences[0]
    assert len(noise.report["rows"]) == 2
    assert run_process("evaluate", *pair, "--min-psnr", 99).code == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{clean}",), ("--sigma",)),
        (("{clean}", "{clean}", "{clean}"), ("--sigma",)),
        (("{clean}", "{folder}"), ("folder",)),
        (("{clean}", "{clean}", "--method", "dct"), ("--sigma",)),
        (("{clean}", "{clean}", "--repeats", "2"), ("--sigma",)),
        (("{clean}", "--sigma", "auto"), ("--sigma", "'auto'", "--noise or --noisy")),
        (("{clean}", "--sigma", "5,auto"), ("--sigma", "'5,auto'")),
        (("{missing}", "--noise", "white:5", "--noisy", "{clean}"), ("--noise", "--noisy", "one of them")),
        (("{missing}", "--noise", "pink:5"), ("--noise must be one of white, poisson, camera, not 'pink'",)),
        (("{missing}", "--noise", "poisson:5"), ("--noise takes poisson:A,B",)),
        (("{missing}", "--noise", "white:5", "--sigma", "x"), ("--sigma", "'x'")),
        (("{missing}", "--noise", "white:5", "--sigma", ","), ("--sigma takes numbers or auto",)),
        (("{missing}", "--noise", "white:5", "--quality", "fast", "--patch-size", "9"), ("--patch-size",)),
        (("{missing}", "{missing}", "--noisy", "{missing}"), ("--noisy", "one clean picture")),
        (("{missing}", "--noisy", "{missing}", "--repeats", "2"), ("--repeats", "--sigma or --noise")),
        (("{missing}", "--noisy", "{missing}", "--quality", "x"), ("--quality",)),
        (("{folder}", "--noisy", "{clean}"), ("folder",)),
        (("{empty}", "--noisy", "{empty}"), ("no pictures",)),
        (("{clean}", "--noisy", "{clean}", "--csv", "{link}"), ("never overwritten",)),
        (("{clean}", "--sigma", "5,x"), ("--sigma", "'x'")),
        (("{clean}", "--sigma", "-3"), ("--sigma",)),
        (("{clean}", "--sigma", ","), ("--sigma",)),
        (("{clean}", "--sigma", "5", "--method", "bm3d"), ("--method", "'bm3d'", "dsect")),
        (("{clean}", "{clean}", "--min-psnr", "nan"), ("--min-psnr",)),
        (("{clean}", "{clean}", "--peak", "-1"), ("--peak",)),
        (("{empty}", "{empty}"), ("no pictures",)),
        (("{empty}", "--sigma", "5"), ("no pictures",)),
        (("{folder}/*.webp", "--sigma", "5"), ("*.webp",)),
        (("{clean}", "{clean}", "--csv", "{clean}"), ("never overwritten",)),
        (("{clean}", "{clean}", "--csv", "{link}"), ("never overwritten",)),
        (("{clean}", "{clean}", "--report", "{folder}"), ("--report",)),
        (("{clean}", "{clean}", "--report", "{folder}/no/r.html"), ("--report",)),
        (("{clean}", "{clean}", "--report", "{folder}/a", "--csv", "{folder}/a"), ("--csv", "--report")),
    ],
)
def test_wrong_usage_is_told_before_any_work(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path
) -> None:
    clean = save(tmp_path / "clean.png", scene())
    (tmp_path / "empty").mkdir()
    os.link(clean, tmp_path / "link.csv")
    places = {"clean": clean, "folder": tmp_path, "empty": tmp_path / "empty", "link": tmp_path / "link.csv"}
    places |= {"missing": tmp_path / "missing.png"}
    before = clean.read_bytes()
    refused(run("evaluate", *(argument.format(**places) for argument in arguments)), 2, *words)
    assert clean.read_bytes() == before


def test_missing_files_are_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    refused(run("evaluate", pair[0], tmp_path / "none.png"), 1, "none.png")
    refused(run("evaluate", tmp_path / "none.png", "--sigma", 5, "--method", "dct"), 1, "none.png")
    refused(run("evaluate", pair[0], "--sigma", 5, "--transform", tmp_path / "none.npz"), 1, "none.npz")


@pytest.mark.parametrize("option", ["--csv", "--report"])
def test_existing_files_are_overwritten_only_with_force(option: str, pair: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("precious")
    refused(run("evaluate", *pair, option, target), 2, "--force")
    assert target.read_text() == "precious"
    assert run("evaluate", *pair, option, target, "--force").code == 0
    assert "precious" not in target.read_text()
    assert temporaries(tmp_path) == []


@pytest.mark.parametrize("option", ["--csv", "--report"])
def test_a_transform_that_is_measured_is_never_overwritten(
    option: str, transform: Path, pair: tuple[Path, Path]
) -> None:
    before = transform.read_bytes()
    done = run("evaluate", pair[0], "--sigma", 10, "--transform", transform, option, transform, "--force")
    assert transform.read_bytes() == before
    refused(done, 2, transform.name, "never overwritten", option)


# --- the page -----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Reads a page strictly: every element closed in its turn, no attribute twice."""

    VOID = frozenset({"meta", "link", "img", "input", "line", "circle", "path", "polyline"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID or (tag == "circle" and not self.get_starttag_text().endswith("/>")):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def of(self, tag: str, **attributes: str) -> Iterator[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return (found for name, found in self.elements if name == tag and wanted.items() <= found.items())


def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path, transform: Path) -> None:
    wicked = '<script>alert(1)<\u2215script> & "x"\'.png'
    save(tmp_path / "clean" / wicked, scene((60, 110), sigma=0))
    save(tmp_path / "clean" / "colour.png", scene((50, 60, 3), sigma=0))
    arguments = ("--sigma", "10,30", "--method", "dct", "--transform", transform, "--report", tmp_path / "r.html")
    done = run("evaluate", tmp_path / "clean", *arguments)
    assert done.code == 0, done.stderr
    assert str(tmp_path / "r.html") in done.text
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert "alert(1)<" not in text
    assert any(wicked in words for words in page.words)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) == 2
    sources = [
        source for _, found in page.elements for key in ("src", "href") if (source := found.get(key)) is not None
    ]
    assert all(source.startswith("data:") for source in sources)
    assert not re.search(r"https?://|@import|url\((?!data:)", text)
    images = list(page.of("img"))
    assert all(image["alt"] and image["width"] and image["height"] for image in images)
    sliders = list(page.of("input", type="range"))
    assert len(sliders) == 2 * 2  # a slider for each picture and sigma
    assert all(slider["aria-label"] for slider in sliders)
    assert len(list(page.of("img", class_="after"))) + len(list(page.of("svg", role="img"))) >= 4 + 3
    assert len(list(page.of("input", type="radio", name="p0-method"))) == 2
    assert "prefers-color-scheme: dark" in text
    assert "viewport" in {found.get("name") for found in page.of("meta")}
    assert len(list(page.of("circle"))) == 2 * 3 * 3 - 2  # two sigmas, three curves, three charts; no gain of the noisy


def test_the_page_of_pairs(pair: tuple[Path, Path], tmp_path: Path) -> None:
    assert run("evaluate", *pair, "--report", tmp_path / "r.html").code == 0
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert list(page.of("input", type="radio")) == []
    assert list(page.of("svg", role="img")) == []
    assert len(list(page.of("input", type="range"))) == 1
    assert "clean" in page.words


def test_large_pictures_are_shrunk_for_the_page_and_it_says_so(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{sigma}.png", scene((40, 3000), sigma)) for sigma in (0, 10)]
    assert run("evaluate", *paths, "--report", tmp_path / "r.html").code == 0
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "1/4 of its size" in text
    assert {image["width"] for image in page.of("img")} == {"750", "40"}


def test_the_pictures_in_the_page_are_those_that_were_measured(pair: tuple[Path, Path], tmp_path: Path) -> None:
    import base64
    import io

    assert run("evaluate", *pair, "--report", tmp_path / "r.html").code == 0
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    first, second = list(page.of("img"))[:2]
    for shown, path in ((first, pair[0]), (second, pair[1])):
        data = base64.b64decode(str(shown["src"]).partition(",")[2])
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(Image.open(path)))


def test_which_pictures_are_shown_depends_on_their_headers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker draws without knowing what became of the others."""
    from dstl_cli.report import exhibits

    for folder, name in product(("clean", "other"), "abcde"):
        (tmp_path / folder).mkdir(exist_ok=True)
        side = 50 if (folder, name) == ("other", "b") else 60
        Image.fromarray(scene((side, side), seed=ord(name))).save(tmp_path / folder / f"{name}.png")
    monkeypatch.setattr(exhibits, "MOST_SAMPLES", 3 * exhibits.SHORTEST_SIDE**2)
    done = run("evaluate", tmp_path / "clean", tmp_path / "other", "--report", tmp_path / "r.html")
    assert done.code == 1
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Only the first 2 are shown below" in text
    assert [name for name in "abcde" if f'alt="{name}.png' in text] == ["a", "c"]


def test_a_picture_that_can_be_read_only_later_is_on_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("clean", "noisy"):
        Image.fromarray(scene((40, 50))).save(tmp_path / f"{name}.png")
    arguments = ("evaluate", tmp_path / "clean.png", tmp_path / "noisy.png", "--report")
    assert run(*arguments, tmp_path / "whole.html").code == 0
    asked: list[object] = []

    def failing_first(*given: Any, **told: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            raise FileProblem("clean.png cannot be read now.")
        return read_picture(*given, **told)

    monkeypatch.setattr("dstl_cli.run.evaluation.read_picture", failing_first)
    assert run(*arguments, tmp_path / "later.html").code == 0
    assert len(asked) > 1
    assert (tmp_path / "later.html").read_bytes() == (tmp_path / "whole.html").read_bytes()
