"""`dstl profile` and `--noise shared`: one model out of many pictures, kept in a file or shared by a run."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from running import Outcome, Pixels, refused, run, run_process, scene, temporaries
from skimage import data

from dstl_cli.noise.model import NoiseModel, WhiteNoise
from dstl_cli.noise.synthetic import add_poisson_noise, photograph
from dstl_cli.run.noise import load_noise

DCT = ("--method", "dct", "--patch-size", "6")
SIZE = (160, 200)


def saved(folder: Path, **sigmas: float) -> Path:
    """Pictures of white noise by their names."""
    folder.mkdir(exist_ok=True)
    for seed, (name, sigma) in enumerate(sigmas.items()):
        Image.fromarray(scene(SIZE, sigma, seed=seed)).save(folder / f"{name}.png")
    return folder


def profiled(*arguments: Any) -> tuple[Outcome, dict[str, Any]]:
    done = run("profile", *arguments, "--json")
    return done, done.report if done.stdout else {}


# --- profiles -----------------------------------------------------------------------------------------


def test_a_profile_is_made_and_taken(tmp_path: Path) -> None:
    """As a process of its own: from pictures to a file to a denoised picture."""
    saved(tmp_path / "in", a=15, b=15.5, c=14.5)
    done = run_process("profile", "in", "-o", "camera.json", "--plot", "camera.png", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    first, second = done.text.splitlines()
    assert first.startswith("camera.json: white noise of 1")
    assert "from 3 pictures, which agree well (spread" in first
    assert second == "The plot is in camera.png."
    model = load_noise(tmp_path / "camera.json")
    assert model.sigmas == pytest.approx((15,), rel=0.07)
    with Image.open(tmp_path / "camera.png") as image:
        assert image.width >= 1000
        assert len(np.unique(np.asarray(image))) > 50
    made = json.loads((tmp_path / "camera.json").read_text())["made_from"]
    assert (made["pictures"], made["flat_fields"], made["units"]) == (3, 0, "0-255")
    taken = run_process("denoise", "in/a.png", "-o", "a.png", "--noise", "camera.json", *DCT, "--json", cwd=tmp_path)
    (record,) = taken.report["files"]
    assert (record["sigma"], record["sigma_source"]) == (pytest.approx(model.sigmas[0]), "given")
    told = run_process("inspect", "camera.json", cwd=tmp_path)
    assert model.describe() in told.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "camera.json", "camera.png", "in"]


def test_a_picture_that_does_not_belong_is_named_and_left_out(tmp_path: Path) -> None:
    alone = saved(tmp_path / "alone", a=10, b=10.4, c=9.7)
    mixed = saved(tmp_path / "mixed", a=10, b=10.4, c=9.7, strange=40)
    done = run("profile", mixed, "-o", tmp_path / "mixed.json")
    assert done.code == 0
    (sentence,) = done.sentences
    assert "strange.png has 4" in sentence or "strange.png has 3.9" in sentence
    assert "is left out" in sentence
    report = run("profile", mixed, "-o", tmp_path / "mixed.json", "--force", "--json").report
    assert {Path(row["input"]).stem for row in report["files"] if row["left_out"]} == {"strange"}
    assert report["left_out"] == 1
    assert run("profile", alone, "-o", tmp_path / "alone.json", "-q").stdout == b""
    models = [json.loads((tmp_path / name).read_text())["sigmas"] for name in ("mixed.json", "alone.json")]
    assert models[0] == models[1]


def test_pictures_that_disagree_are_said_to(tmp_path: Path) -> None:
    saved(tmp_path / "in", a=5, b=20)
    done = run("profile", tmp_path / "in", "-o", tmp_path / "m.json")
    assert "which disagree (spread" in done.text
    assert [Path(sentence.split()[0]).name for sentence in done.sentences] == ["a.png", "b.png"]


def test_all_pages_count_and_so_do_sub_folders_when_asked_for(tmp_path: Path) -> None:
    pages = np.stack([scene(SIZE, sigma, seed=3) for sigma in (9.7, 10, 10.3)])
    saved(tmp_path / "in", a=10)
    saved(tmp_path / "in" / "sub", b=10)
    tifffile.imwrite(tmp_path / "in" / "sub" / "stack.tif", pages, photometric="minisblack")
    Image.fromarray(scene(SIZE, 30)).save(tmp_path / "in" / "a_denoised.png")  # a result is no picture of the camera
    _, flat = profiled(tmp_path / "in", "-o", tmp_path / "m.json")
    _, deep = profiled(tmp_path / "in", "-o", tmp_path / "m.json", "--force", "--recursive")
    assert [(Path(row["input"]).name, row["page"]) for row in flat["files"]] == [("a.png", 1)]
    assert flat["spread"] is None
    pages_of = [(Path(row["input"]).name, row["page"]) for row in deep["files"]]
    assert pages_of == [("a.png", 1), ("b.png", 1), ("stack.tif", 1), ("stack.tif", 2), ("stack.tif", 3)]


def test_a_broken_picture_and_a_strange_kind_do_not_stop_the_rest(tmp_path: Path) -> None:
    saved(tmp_path / "in", a=10, b=10)
    (tmp_path / "in" / "broken.png").write_bytes(b"no picture")
    Image.fromarray(scene((*SIZE, 3), 10)).save(tmp_path / "in" / "colour.png")
    done, report = profiled(tmp_path / "in", "-o", tmp_path / "m.json")
    assert done.code == 1
    assert [Path(row["input"]).name for row in report["errors"]] == ["broken.png", "colour.png"]
    assert "colour" in done.sentences[1]
    assert "grey" in done.sentences[1]
    assert len(done.sentences) == 2
    assert report["pictures"] == 2
    assert len(load_noise(tmp_path / "m.json").sigmas) == 1


def test_pictures_without_noise_are_counted(tmp_path: Path) -> None:
    saved(tmp_path / "in", a=10, b=10)
    Image.fromarray(np.full(SIZE, 99, np.uint8)).save(tmp_path / "in" / "blank.png")
    done = run("profile", tmp_path / "in", "-o", tmp_path / "m.json")
    assert (done.code, done.stderr) == (0, "")
    assert "from 2 pictures" in done.text
    assert "No noise was found in 1 picture." in done.text
    assert profiled(tmp_path / "in", "-o", tmp_path / "m.json", "-f")[1]["without_noise"] == [
        str(tmp_path / "in" / "blank.png")
    ]
    refused(run("profile", tmp_path / "in" / "blank.png", "-o", tmp_path / "none.json"), 1, "No noise was found")
    assert not (tmp_path / "none.json").exists()
    assert not temporaries(tmp_path)


def wall(level: float, iso: float, seed: int) -> Pixels:
    return photograph(np.full((224, 256, 3), level), iso, seed=seed)


def test_flat_fields_are_believed_and_used_alone(tmp_path: Path) -> None:
    """Exposures of a wall give a level function; that of a simulated camera falls with the brightness."""
    for number, level in enumerate((35, 110, 190)):
        Image.fromarray(wall(level, 3200, number)).save(tmp_path / f"wall{number}.png")
    Image.fromarray(photograph(data.astronaut()[:200, :240], 3200, seed=9)).save(tmp_path / "astronaut.png")
    done = run("profile", tmp_path, "-o", tmp_path / "m.json")
    assert (done.code, done.stderr) == (0, "")
    assert "stronger in the shadows" in done.text
    assert "from 3 flat fields, each at a brightness of its own" in done.text
    assert "1 other picture not used" in done.text
    alone = run("profile", *tmp_path.glob("wall*.png"), "-o", tmp_path / "alone.json", "--json").report
    assert alone["noise"].items() <= json.loads((tmp_path / "m.json").read_text()).items()
    assert alone["flat_fields"] == 3
    for index in range(3):
        factors = load_noise(tmp_path / "m.json").channel(index).level_factors(np.sqrt(3) * np.array([35, 110, 190]))
        assert factors is not None
        assert factors[0] > factors[1] > factors[2]


def test_a_profile_of_flat_fields_denoises_what_the_camera_took(tmp_path: Path) -> None:
    for number, level in enumerate((35, 110, 190)):
        Image.fromarray(wall(level, 6400, number)).save(tmp_path / f"wall{number}.png")
    clean = data.astronaut()[:200, 120:320]
    noisy = photograph(clean, 6400, seed=9)
    Image.fromarray(noisy).save(tmp_path / "shot.png")
    assert run("profile", *tmp_path.glob("wall*.png"), "-o", tmp_path / "m.json").code == 0
    options = ("--quality", "fast", "--noise", tmp_path / "m.json", "-o", tmp_path / "out.png")
    assert run("denoise", tmp_path / "shot.png", *options).code == 0
    with Image.open(tmp_path / "out.png") as image:
        errors = [float(np.mean((pixels - clean.astype(float)) ** 2)) for pixels in (noisy, np.asarray(image))]
    assert errors[1] < 0.75 * errors[0]


def test_mistakes_get_one_sentence(tmp_path: Path) -> None:
    folder = saved(tmp_path / "in", a=10)
    picture = folder / "a.png"
    before = picture.read_bytes()
    os.link(picture, folder / "linked.json")
    refused(run("profile", picture, "-o", tmp_path / "m.txt"), 2, "--output", ".json")
    refused(run("profile", picture, "-o", folder / "linked.json", "--force"), 2, "never overwritten")
    refused(run("profile", picture, "-o", tmp_path / "no" / "m.json"), 2, "--output")
    refused(run("profile", picture, "-o", tmp_path / "m.json", "--plot", tmp_path / "p.pdf"), 2, "--plot")
    refused(run("profile", picture, "-o", tmp_path / "m.json", "--plot", picture, "--force"), 2, "never overwritten")
    assert run("profile", picture, "-o", tmp_path / "m.json").code == 0
    refused(run("profile", picture, "-o", tmp_path / "m.json"), 2, "m.json exists", "--force")
    (tmp_path / "empty").mkdir()
    done = run("profile", tmp_path / "empty", "-o", tmp_path / "n.json")
    assert (done.code, done.stdout, len(done.sentences)) == (1, b"", 2)
    assert picture.read_bytes() == before
    assert not (tmp_path / "n.json").exists()


# --- shared by a run ----------------------------------------------------------------------------------


def shared_run(source: Path, output: Path, *options: Any) -> Outcome:
    return run("denoise", source, "-o", output, "--noise", "shared", *DCT, *options)


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_pictures_of_a_run_share_a_model(tmp_path: Path) -> None:
    saved(tmp_path / "in", a=14, b=15, c=16.5)
    done = run_process("denoise", "in", "-o", "out", "--noise", "shared", *DCT, cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    lines = done.text.splitlines()
    assert lines[0].startswith("Shared: white noise of 1")
    assert "others" not in lines[0]
    assert "from 3 grey pictures, which agree well (spread" in lines[0]
    assert all("shared" in line for line in lines[1:4])
    report = shared_run(tmp_path / "in", tmp_path / "again", "--json").report
    assert {record["sigma_source"] for record in report["files"]} == {"shared"}
    (sigma,) = {record["sigma"] for record in report["files"]}
    (pool,) = report["shared_noise"]
    assert pool["noise"]["sigmas"] == [pytest.approx(sigma)]
    assert (pool["pictures"], pool["channels"], pool["units"]) == (3, 1, "0-255")
    assert results(tmp_path / "again") == results(tmp_path / "out")
    run("profile", tmp_path / "in", "-o", tmp_path / "m.json")
    assert load_noise(tmp_path / "m.json").sigmas[0] == pytest.approx(sigma)


def test_pictures_without_noise_that_share_that_of_others_are_told(tmp_path: Path) -> None:
    saved(tmp_path / "in", a=14, b=15)
    for name in ("x", "y"):
        Image.fromarray(np.full(SIZE, 90, np.uint8)).save(tmp_path / "in" / f"{name}.png")
    first = shared_run(tmp_path / "in", tmp_path / "out").text.splitlines()[0]
    assert "from 2 grey pictures, which agree well (spread" in first
    assert first.endswith("; no noise was found in 2 others, which get it too")


def test_one_picture_shares_with_itself(tmp_path: Path) -> None:
    """Byte for byte what auto gives, also where there is nothing to remove."""
    noisy = np.clip(add_poisson_noise(data.camera()[:256, :256].astype(float), 2, 9, seed=0), 0, 255)
    for name, pixels in (("noisy", noisy.astype(np.uint8)), ("blank", np.full(SIZE, 9, np.uint8))):
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
        for noise in ("auto", "shared"):
            target = tmp_path / f"{name}_{noise}.png"
            assert run("denoise", tmp_path / f"{name}.png", "-o", target, "--noise", noise, *DCT).code == 0
        first, second = ((tmp_path / f"{name}_{noise}.png").read_bytes() for noise in ("auto", "shared"))
        assert first == second
    assert shared_run(tmp_path / "blank.png", tmp_path / "x.png", "--json").report["summary"]["unchanged"] == 1
    assert "Shared: no noise was found" in shared_run(tmp_path / "blank.png", tmp_path / "x.png", "--force").text


def test_resumed_or_in_one_go_the_bytes_are_the_same(tmp_path: Path) -> None:
    saved(tmp_path / "in", a=12, b=15, c=18)
    assert shared_run(tmp_path / "in", tmp_path / "whole").code == 0
    assert shared_run(tmp_path / "in", tmp_path / "parts", "--jobs", 1).code == 0
    (tmp_path / "parts" / "b.png").unlink()
    done = shared_run(tmp_path / "in", tmp_path / "parts", "--resume")
    assert "2 done before" in done.text
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_kinds_share_among_themselves(tmp_path: Path) -> None:
    """8 and 16 bits are on one scale; colours and floats are kinds of their own; a broken picture is told once."""
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "eight.npy", scene(SIZE, 10, seed=1))
    np.save(tmp_path / "in" / "sixteen.npy", scene(SIZE, 12, seed=2).astype(np.uint16) * 257)
    np.save(tmp_path / "in" / "float.npy", scene(SIZE, 25, seed=3).astype(np.float32) / 255)
    np.save(tmp_path / "in" / "colour.npy", scene((*SIZE, 3), 18, seed=4))
    (tmp_path / "in" / "broken.npy").write_bytes(b"no picture")
    done = shared_run(tmp_path / "in", tmp_path / "out", "--json")
    assert done.code == 1
    assert len(done.sentences) == 1
    sigmas = {Path(record["input"]).stem: record["sigma"] for record in done.report["files"]}
    assert sigmas["eight"] == sigmas["sixteen"] == pytest.approx(11, rel=0.08)
    assert sigmas["float"] == pytest.approx(25 / 255, rel=0.1)
    assert sigmas["colour"] == pytest.approx(18, rel=0.1)
    kinds = [(pool["channels"], pool["units"], pool["pictures"]) for pool in done.report["shared_noise"]]
    assert kinds == [(1, "0-255", 2), (1, "of the file", 1), (3, "0-255", 1)]


def test_pictures_that_disagree_share_nothing(tmp_path: Path) -> None:
    """Then each is denoised by what is found in it, as without --noise shared."""
    saved(tmp_path / "in", a=4, b=10, c=25, d=60)
    done = shared_run(tmp_path / "in", tmp_path / "out")
    assert "Nothing is shared by 4 grey pictures, which disagree" in done.text
    assert "shared," not in done.text.partition("\n")[2]
    assert run("denoise", tmp_path / "in", "-o", tmp_path / "auto", *DCT).code == 0
    for path in (tmp_path / "auto").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


def test_what_cannot_be_shared_is_refused(tmp_path: Path) -> None:
    refused(run("denoise", "-", "--noise", "shared", stdin=b"x"), 2, "standard input")
    refused(run("denoise", tmp_path / "a.png", "--noise", "shared", "--sigma", 20), 2, "--sigma")


# --- noise models in inspect --------------------------------------------------------------------------


def test_the_noise_of_a_picture_is_told_kept_and_drawn(tmp_path: Path) -> None:
    Image.fromarray(wall(100, 6400, 1)).save(tmp_path / "a.png")
    kept, plot = tmp_path / "a.json", tmp_path / "plot.png"
    done = run_process("inspect", "a.png", "--save-noise", "a.json", "--plot", "plot.png", cwd=tmp_path)
    assert (done.code, done.stderr.count("Traceback")) == (0, 0)
    model = load_noise(kept)
    for words in (model.describe(), f"({model.kind})", f"luminance {model.sigmas[0]:.3g}", "chrominance 2", "a.json"):
        assert words in done.text
    assert run("inspect", tmp_path / "a.png", "--json").report["noise"] == model.to_json()
    taken = run("denoise", tmp_path / "a.png", "-o", tmp_path / "b.png", "--json", "-v", *DCT).report["files"][0]
    assert taken["plan"]["noise"] == model.to_json()
    with Image.open(plot) as image:
        assert image.height >= 900
    refused(run("inspect", tmp_path / "a.png", "--save-noise", kept), 2, "--force")
    refused(run("inspect", tmp_path / "a.png", "--save-noise", tmp_path / "a.txt"), 2, "--save-noise", ".json")
    refused(run("inspect", tmp_path / "a.png", "--save-noise", plot, "-f"), 2, ".json")
    refused(run("inspect", kept, "--save-noise", tmp_path / "c.json"), 2, "--save-noise")
    assert run("inspect", tmp_path / "a.png", "--save-noise", kept, "--force").code == 0


@pytest.mark.parametrize("name", ["white", "profile", "float"])
def test_a_noise_model_is_told_and_drawn(name: str, tmp_path: Path) -> None:
    models: dict[str, NoiseModel] = {"white": WhiteNoise((3.0, 2.0, 2.0))}
    path = tmp_path / "m.json"
    if name == "white":  # as somebody would write it by hand
        path.write_text(json.dumps(models["white"].to_json()))
    else:
        noisy = add_poisson_noise(data.camera()[:256, :256].astype(float), 2, 9, seed=0)
        np.save(tmp_path / "a.npy", noisy.astype(np.uint8) if name == "profile" else noisy / 255)
        assert run("profile", tmp_path / "a.npy", "-o", path).code == 0
    done = run("inspect", path, "--plot", tmp_path / "m.png")
    assert (done.code, done.stderr) == (0, "")
    assert load_noise(path).describe() in done.text
    report = run("inspect", path, "--json").report
    assert (report["kind"], report["noise"]) == ("noise", load_noise(path).to_json())
    assert report["made_from"].get("units") == {"white": None, "profile": "0-255", "float": "of the file"}[name]
    with Image.open(tmp_path / "m.png") as image:
        assert image.width >= 1000
    path.write_text('{"kind": "white"}')
    refused(run("inspect", path), 1, "m.json")


@pytest.mark.parametrize("made_of", ["uint8", "float32"])
def test_a_model_in_other_units_than_the_pictures_is_refused(made_of: str, tmp_path: Path) -> None:
    noisy = add_poisson_noise(data.camera()[:200, :200].astype(float), 2, 9, seed=0)
    pictures: dict[str, Pixels] = {
        "uint8": np.clip(noisy, 0, 255).astype(np.uint8),
        "float32": (noisy / 255).astype(np.float32),
    }
    for name, pixels in pictures.items():
        np.save(tmp_path / f"{name}.npy", pixels)
    (other,) = set(pictures) - {made_of}
    model, options = tmp_path / "m.json", ("--quality", "fast", "--noise", tmp_path / "m.json")
    assert run("profile", tmp_path / f"{made_of}.npy", "-o", model).code == 0
    assert run("denoise", tmp_path / f"{made_of}.npy", *options).code == 0
    refused(run("denoise", tmp_path / f"{other}.npy", *options), 1, "m.json", "make one of its kind")
    sheet = ("--preview", tmp_path / "sheet.png")
    refused(run("denoise", tmp_path / f"{other}.npy", *options, *sheet), 1, "m.json", "make one of its kind")
    told = json.loads(model.read_text())
    del told["made_from"]  # by hand: nobody says what it is
    model.write_text(json.dumps(told))
    assert run("denoise", tmp_path / f"{other}.npy", *options).code == 0
