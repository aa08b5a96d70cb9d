"""`dstl inspect`: the numbers of transforms and pictures, and their plots."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image
from running import refused, run, scene

from dstl_cli.measure.inspection import atom_grid, channel_statistics, histogram
from dstl_cli.noise.estimate import estimate_sigma
from dstl_cli.report.tables import flattened
from dstl_cli.transforms.files import TransformFile, save_transform
from dstl_cli.transforms.transform import Iteration, Transform

MakeTransform = Callable[..., Transform]


def stored(path: Path, transform: Transform, **provenance: Any) -> Path:
    history = [Iteration(number, 90.0 / number, 0.6 / number, 1.5, 0.9) for number in (1, 2, 3)]
    save_transform(path, TransformFile(transform, provenance, history))
    return path


# --- transforms ---------------------------------------------------------------------------------------


def test_the_numbers_of_a_transform(make_transform: MakeTransform, tmp_path: Path) -> None:
    made = make_transform(5, 3.0, 2.0)
    factor = made.factor.copy()
    factor[0, :5] = 0
    transform = Transform(5, factor, "dsect")
    path = stored(tmp_path / "t.npz", transform, settings={"learn": {"max_condition": 4.0}}, images=7)
    report = run("inspect", path, "--json").report
    assert (report["command"], report["kind"], report["file"]) == ("inspect", "transform", str(path))
    facts = report["transform"]
    assert (facts["method"], facts["patch_size"], facts["nonzeros"]) == ("dsect", 5, 620)
    assert facts["condition"] == pytest.approx(np.linalg.cond(factor))
    assert facts["condition_bound"] == 4.0
    assert facts["density"] == 620 / 625
    assert facts["frobenius_norm"] == pytest.approx(np.linalg.norm(factor))
    assert facts["largest_singular_value"] / facts["smallest_singular_value"] == pytest.approx(facts["condition"])
    assert report["provenance"]["images"] == 7
    assert [record["error"] for record in report["history"]] == [90.0, 45.0, 30.0]
    text = run("inspect", path).text
    for words in ("dsect", "5 x 5", "bound 4", "620 of 625", "3 iterations", "90 to 30", "images"):
        assert words in text


@pytest.mark.parametrize(
    ("method", "provenance", "bound"),
    [
        ("dsect", {"settings": {"max_condition": 2}}, 2.0),
        ("procrustes", {"settings": {"passes": {"learn": {"max_condition": 3.5}}}}, 3.5),
        ("dsect", {"settings": {"max_condition": None}}, None),
        ("unheard-of", {"settings": {"max_condition": 2}}, None),
        ("conditioned", {"settings": {"learn": {"max_condition": 9.5}}}, 9.5),
        ("bresler", {"settings": {"learn": {"max_condition": 9.5}}}, None),
        ("dsect", {}, None),
        ("dsect", {"settings": ["max_condition"]}, None),
        ("dsect", {"settings": {"learn": {"max_condition": "much"}}}, None),
    ],
)
def test_the_bound_comes_from_the_settings(
    method: str, provenance: dict[str, Any], bound: float | None, tmp_path: Path
) -> None:
    path = stored(tmp_path / "t.npz", Transform(3, np.eye(9), method), **provenance)
    assert run("inspect", path, "--json").report["transform"]["condition_bound"] == bound
    assert run("inspect", path).code == 0


def test_all_settings_that_made_a_transform_are_shown(tmp_path: Path) -> None:
    made = {
        "settings": {"rounds": 3, "learn": {"density": None, "method": "dsect", "stages": [{"a": 1.5}, {"b": [4, 5]}]}},
        "source": "denoise",
        "nothing": {},
    }
    path = stored(tmp_path / "t.npz", Transform.fixed(3), **made)
    assert run("inspect", path, "--json").report["provenance"] == made
    words = [line.split(maxsplit=2) for line in run("inspect", path).text.splitlines()]
    assert {line[1]: line[2] for line in words if line[0] == "made:"} == {
        "settings.rounds": "3",
        "settings.learn.density": "none",
        "settings.learn.method": "dsect",
        "settings.learn.stages.1.a": "1.5",
        "settings.learn.stages.2.b": "[4, 5]",
        "source": "denoise",
        "nothing": "{}",
    }


@pytest.mark.parametrize("options", [("--iterations", 2), ("--quality", "best")], ids=str)
def test_what_a_run_was_made_with_is_told_by_all_three(options: tuple[str | int, ...], tmp_path: Path) -> None:
    """The JSON of the run, the transform file, and its inspection."""
    Image.fromarray(scene()).save(tmp_path / "a.png")
    command = ("denoise", tmp_path / "a.png", "--save-transform", tmp_path / "t.npz", "--json")
    (record,) = run(*command, *options).report["files"]
    report = run("inspect", tmp_path / "t.npz", "--json").report
    assert report["provenance"]["settings"] == record["settings"]
    assert report["transform"].items() >= record["transform"].items()
    text = run("inspect", tmp_path / "t.npz").text
    assert all(name in text for name, _ in flattened(record["settings"]))


def test_control_characters_in_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = stored(tmp_path / "t.npz", Transform(2, np.eye(4), "\x1b[31mred"), note="\x1b]0;title\x07")
    assert "\x1b" not in run("inspect", path).text


def test_a_transform_is_known_by_its_bytes_too(tmp_path: Path) -> None:
    path = stored(tmp_path / "t.npz", Transform.fixed(3))
    path.rename(tmp_path / "other.bin")
    assert run("inspect", tmp_path / "other.bin", "--json").report["kind"] == "transform"
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and nothing more")
    refused(run("inspect", tmp_path / "broken.npz"), 1, "broken.npz")
    refused(run("inspect", tmp_path / "none.npz"), 1, "none.npz")


def test_the_plot_of_a_transform(make_transform: MakeTransform, tmp_path: Path) -> None:
    path = stored(tmp_path / "t.npz", make_transform(4, 2.0), settings={"max_condition": 3.0})
    done = run("inspect", path, "--plot", tmp_path / "t.png")
    assert (done.code, done.stderr) == (0, "")
    assert "t.png" in done.text
    with Image.open(tmp_path / "t.png") as image:
        assert image.width >= 1000
        assert len(np.unique(np.asarray(image))) > 50
    refused(run("inspect", path, "--plot", tmp_path / "t.png"), 2, "--force")
    plain = tmp_path / "plain.npz"
    save_transform(plain, TransformFile(Transform.fixed(1)))
    assert run("inspect", plain, "--plot", tmp_path / "t.png", "--force", "--json").report["history"] == []


def test_atoms_are_the_rows_of_the_matrix_in_order(make_transform: MakeTransform) -> None:
    transform = make_transform(3, 2.0)
    grid = atom_grid(transform)
    assert grid.shape == (11, 11)
    for index, atom in enumerate(transform.matrix):
        row, column = divmod(index, 3)
        shown = grid[4 * row : 4 * row + 3, 4 * column : 4 * column + 3]
        np.testing.assert_allclose(shown, (atom / np.abs(atom).max()).reshape(3, 3))
    assert np.isnan(grid[3]).all()
    assert np.isnan(grid[:, 7]).all()


# --- pictures -----------------------------------------------------------------------------------------


def test_the_numbers_of_a_grey_picture(tmp_path: Path) -> None:
    pixels = scene((120, 160))
    Image.fromarray(pixels).save(tmp_path / "a.png")
    report = run("inspect", tmp_path / "a.png", "--json").report
    assert report["kind"] == "image"
    assert report["image"] == {
        "width": 160,
        "height": 120,
        "pages": 1,
        "channels": 1,
        "has_alpha": False,
        "dtype": "uint8",
        "format": "png",
        "bits": 8,
    }
    (channel,) = report["channels"]
    assert (channel["page"], channel["name"]) == (1, "grey")
    assert (channel["smallest"], channel["largest"]) == (pixels.min(), pixels.max())
    assert channel["mean"] == pytest.approx(pixels.mean())
    assert channel["sigma"] == report["sigma"] == estimate_sigma(pixels, data_range=(0, 255)).sigma
    assert channel["sigma"] == pytest.approx(20, rel=0.1)
    done = run("inspect", tmp_path / "a.png")
    assert (done.code, done.stderr) == (0, "")
    for words in ("160 x 120", "grey", "8 bit", f"{channel['sigma']:.3g}"):
        assert words in done.text


def test_sigma_is_what_denoise_would_take(tmp_path: Path) -> None:
    pixels = scene((90, 120, 3))
    pixels[..., 2] = np.clip(pixels[..., 2], 100, 160)
    np.save(tmp_path / "a.npy", pixels.astype(np.uint16) * 257)
    report = run("inspect", tmp_path / "a.npy", "--json").report
    assert [channel["name"] for channel in report["channels"]] == ["red", "green", "blue"]
    assert report["channels"][0]["sigma"] == pytest.approx(20, rel=0.15)
    assert report["channels"][0]["largest"] > 300  # in the file's own numbers
    taken = run("denoise", tmp_path / "a.npy", "--method", "dct", "--patch-size", 4, "--json").report["files"][0]
    assert report["sigma"] == pytest.approx(taken["sigma"])


def test_pages_alpha_and_floats(tmp_path: Path) -> None:
    pages = np.stack([scene(sigma=sigma) for sigma in (5, 20)]).astype(np.float32) / 255
    tifffile.imwrite(tmp_path / "a.tif", pages, photometric="minisblack")
    report = run("inspect", tmp_path / "a.tif", "--json").report
    assert (report["image"]["pages"], report["image"]["dtype"]) == (2, "float32")
    assert [channel["page"] for channel in report["channels"]] == [1, 2]
    assert report["channels"][1]["sigma"] > 2 * report["channels"][0]["sigma"]
    text = run("inspect", tmp_path / "a.tif").text
    assert "2 pages" in text
    assert "in the units of the file" in text
    Image.fromarray(np.dstack([scene((48, 64, 3)), scene()]), "RGBA").save(tmp_path / "b.png", dpi=(300, 300))
    text = run("inspect", tmp_path / "b.png").text
    assert "RGB with alpha" in text
    assert "resolution" in text


def test_warnings_of_the_estimate_are_told(tmp_path: Path) -> None:
    dark = np.clip(scene((120, 160)).astype(int) - 150, 0, 255).astype(np.uint8)
    Image.fromarray(dark).save(tmp_path / "dark.png")
    done = run("inspect", tmp_path / "dark.png")
    assert done.code == 0
    assert any("dark.png" in line and "limits of the range" in line for line in done.sentences)
    assert run("inspect", tmp_path / "dark.png", "--json").report["channels"][0]["warnings"]


def test_warnings_are_those_of_denoise_and_not_one_a_channel(tmp_path: Path) -> None:
    dark = np.clip(scene((120, 160, 3)).astype(int) - np.array([140, 150, 160]), 0, 255).astype(np.uint8)
    Image.fromarray(dark).save(tmp_path / "dark.png")
    channels = run("inspect", tmp_path / "dark.png", "--json").report["channels"]
    assert len({text for channel in channels for text in channel["warnings"]}) == 3
    (sentence,) = run("inspect", tmp_path / "dark.png").sentences
    record = run("denoise", tmp_path / "dark.png", "--method", "dct", "--patch-size", 4, "--json").report["files"][0]
    (warning,) = record["warnings"]
    assert sentence.endswith(f"dark.png: {warning}")


def test_the_numbers_of_channels_are_not_told_as_what_denoise_takes(tmp_path: Path) -> None:
    Image.fromarray(scene((60, 80, 3))).save(tmp_path / "a.png")
    assert "sigma: each channel's noise if it were white, on the 0-255 scale" in run("inspect", tmp_path / "a.png").text


@pytest.mark.parametrize(
    "pixels", [scene(), scene((40, 50, 3)), scene().astype(np.float64) / 7, np.zeros((9, 9), np.uint8)]
)
def test_the_plot_of_a_picture(pixels: NDArray[Any], tmp_path: Path) -> None:
    np.save(tmp_path / "a_$x$.npy", pixels)  # not a formula
    done = run("inspect", tmp_path / "a_$x$.npy", "--plot", tmp_path / "a.png")
    assert done.code == 0, done.stderr
    with Image.open(tmp_path / "a.png") as image:
        assert image.width >= 1000


def test_the_histogram_counts_every_pixel() -> None:
    for pixels in (scene((40, 50, 3)), scene().astype(np.uint16) * 257, scene() / 3.0, np.full((4, 5), 2.5)):
        edges, counts = histogram(pixels)
        assert len(edges) == 257
        assert all(values.sum() == pixels.shape[0] * pixels.shape[1] for _, values in counts)
    _, [(_, values)] = histogram(scene())
    np.testing.assert_array_equal(values, np.bincount(scene().ravel(), minlength=256))


def test_the_histogram_of_deep_numbers_covers_those_there_are() -> None:
    pixels = 100 + 15 * scene().astype(np.uint16)
    pixels[0, :2] = 100, 3925
    edges, [(_, values)] = histogram(pixels)
    assert edges[0] == 100
    assert 3925 < edges[-1] <= 3925 + 256
    assert values.sum() == pixels.size
    np.testing.assert_array_equal(np.diff(edges), edges[1] - edges[0])
    assert edges[1] - edges[0] == 15  # whole numbers, so that each bin has as many of them


def test_channels_refuse_what_is_no_picture() -> None:
    with pytest.raises(ValueError, match="empty"):
        channel_statistics(1, np.empty((0, 3)))
    with pytest.raises(ValueError, match="finite numbers"):
        channel_statistics(1, np.array([[np.nan, np.inf]]))


@pytest.mark.parametrize("shape", [(120, 160), (120, 160, 3)], ids=["grey", "colour"])
def test_pixels_that_are_no_numbers_are_counted_and_left_out(shape: tuple[int, ...], tmp_path: Path) -> None:
    pixels = scene(shape).astype(np.float32)
    pixels[10:20, 30:40], pixels[50, 60] = np.nan, np.inf
    np.save(tmp_path / "holes.npy", pixels)
    report = run("inspect", tmp_path / "holes.npy", "--json").report
    values = pixels.reshape(120 * 160, -1)[np.isfinite(pixels).reshape(120 * 160, -1).all(axis=1)]
    for index, channel in enumerate(report["channels"]):
        assert channel["invalid"] == 101
        assert (channel["smallest"], channel["largest"]) == (values[:, index].min(), values[:, index].max())
        assert channel["mean"] == pytest.approx(values[:, index].mean(dtype=float))
        assert channel["sigma"] == pytest.approx(20, rel=0.1)
    done = run("inspect", tmp_path / "holes.npy", "--plot", tmp_path / "holes.png")
    assert (done.code, done.stderr) == (0, "")
    assert "101 pixels, left out" in done.text
    taken = run("denoise", tmp_path / "holes.npy", "--nan", "keep", "--quality", "fast", "--json").report["files"][0]
    assert report["sigma"] == pytest.approx(taken["sigma"])


def test_a_picture_without_a_number_cannot_be_inspected(tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.full((20, 20), np.nan))
    refused(run("inspect", tmp_path / "none.npy"), 1, "none.npy", "finite numbers")


# --- mistakes -----------------------------------------------------------------------------------------


def test_mistakes_get_one_sentence(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    os.link(tmp_path / "a.png", tmp_path / "b.png")
    before = (tmp_path / "a.png").read_bytes()
    refused(run("inspect", tmp_path / "none.png"), 1, "none.png")
    refused(run("inspect", tmp_path), 1, tmp_path.name)
    refused(run("inspect", tmp_path / "a.png", "--plot", tmp_path / "a.png", "--force"), 2, "never overwritten")
    refused(run("inspect", tmp_path / "a.png", "--plot", tmp_path / "b.png", "--force"), 2, "never overwritten")
    refused(run("inspect", tmp_path / "a.png", "--plot", tmp_path / "p.pdf"), 2, "--plot", ".png")
    refused(run("inspect", tmp_path / "a.png", "--plot", tmp_path / "no" / "p.png"), 2, "--plot")
    (tmp_path / "text.txt").write_text("hello")
    refused(run("inspect", tmp_path / "text.txt"), 1, "text.txt")
    assert (tmp_path / "a.png").read_bytes() == before


def test_the_plot_never_replaces_the_transform_it_shows(tmp_path: Path) -> None:
    path = stored(tmp_path / "t.npz", Transform.fixed(3))
    before = path.read_bytes()
    (tmp_path / "linked.png").symlink_to(path)
    refused(run("inspect", path, "--plot", path, "--force"), 2, "--plot")
    refused(run("inspect", path, "--plot", tmp_path / "linked.png", "--force"), 2, "never overwritten")
    refused(run("inspect", tmp_path / "linked.png", "--plot", tmp_path / "linked.png", "--force"), 2)
    assert path.read_bytes() == before
    assert (tmp_path / "linked.png").is_symlink()
