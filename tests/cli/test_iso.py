"""The ISO number in a file: where the pixels leave a doubt it counts, in every command alike, and nowhere else."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from running import Pixels, refused, run, run_process, scene
from skimage import data

from dstl_cli import denoise
from dstl_cli.pixels.colour import root_mean_square
from dstl_cli.run.noise import load_noise

FAST = ("--quality", "fast", "--json")


def save(path: Path, pixels: Pixels, iso: int | None = None, **options: Any) -> Path:
    """A picture file with the ISO number in its EXIF data, if one is given."""
    exif = Image.Exif()
    if iso is not None:
        exif[0x010F] = "Maker"  # Pillow leaves out EXIF data whose main directory is empty
        exif.get_ifd(0x8769)[0x8827] = iso
        options["exif"] = exif
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture(scope="module")
def doubtful() -> Pixels:
    """A picture whose texture, after JPEG, may as well be noise."""
    stream = io.BytesIO()
    Image.fromarray(data.chelsea()).save(stream, "JPEG", quality=75)
    return np.asarray(Image.open(stream))


def test_a_doubtful_photograph_is_noisy_at_iso_6400_and_stays_as_it_is_at_iso_100(tmp_path: Path) -> None:
    for iso, noise in ((100, None), (6400, "spectral")):
        path = save(tmp_path / f"{iso}.jpg", data.chelsea(), iso, quality=75)
        made = tmp_path / f"{iso}_denoised.jpg"
        done = run_process("denoise", path, "-o", made, *FAST)
        assert done.code == 0, done.stderr
        (record,) = done.report["files"]
        assert (record["noise"], record["unchanged"]) == (noise, noise is None)
        assert (made.read_bytes() == path.read_bytes()) == (noise is None)


@pytest.mark.parametrize("iso", [None, 800, 0])
def test_without_a_number_or_at_the_neutral_one_nothing_changes(
    iso: int | None, doubtful: Pixels, tmp_path: Path
) -> None:
    path = save(tmp_path / "a.png", doubtful, iso)
    assert run("denoise", path, *FAST).code == 0
    made = np.asarray(Image.open(tmp_path / "a_denoised.png"))
    np.testing.assert_array_equal(made, denoise(doubtful, quality="fast"))
    assert (made != doubtful).any()


def test_white_noise_is_the_same_at_any_iso_number(tmp_path: Path) -> None:
    for iso in (None, 100, 51200):
        assert run("denoise", save(tmp_path / f"{iso}.png", scene((90, 120)), iso), *FAST).code == 0
    one, *others = (np.asarray(Image.open(tmp_path / f"{iso}_denoised.png")) for iso in (None, 100, 51200))
    assert all(np.array_equal(one, other) for other in others)


@pytest.mark.parametrize(("iso", "found"), [(100, False), (6400, True)])
def test_all_commands_find_the_same_noise(iso: int, found: bool, doubtful: Pixels, tmp_path: Path) -> None:
    path, kept = save(tmp_path / "a.png", doubtful, iso), tmp_path / "noise.json"
    assert run("inspect", path, "--save-noise", kept).code == 0
    model = load_noise(kept)
    assert (max(model.sigmas) > 1) == found
    made = [tmp_path / f"{number}.png" for number in range(3)]
    for output, told in zip(made, ("auto", str(kept), "shared"), strict=True):
        done = run("denoise", path, "-o", output, "--noise", told, *FAST)
        assert done.code == 0, done.stderr
        assert done.report["files"][0]["sigma"] == pytest.approx(root_mean_square(list(model.sigmas)))
    first, *others = (np.asarray(Image.open(output)) for output in made)
    assert all(np.array_equal(first, other) for other in others)
    (row,) = run("evaluate", made[0], "--noisy", path, "--sigma", "auto", *FAST).report["rows"]
    assert row["identical"]
    profile = run("profile", path, "-o", tmp_path / "camera.json")
    if found:
        assert profile.code == 0, profile.stderr
        assert load_noise(tmp_path / "camera.json").sigmas == pytest.approx(model.sigmas)
    else:
        refused(run("denoise", path, "--preview", tmp_path / "sheet.png"), 1, "no noise")
        assert "No noise was found" in profile.stderr
