"""`dstl denoise` on many pictures: the good ones done, each bad one named, nothing half-written, whatever happens."""

import contextlib
import errno
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from running import (
    Outcome,
    Pixels,
    command,
    environment,
    refused,
    run,
    run_process,
    scene,
    temporaries,
    without_notice,
)

from dstl_cli.base.atomic import claim
from dstl_cli.picture.decoding import asking

FAST = ("--method", "dct", "--sigma", "20", "--patch-size", "6")
SMALL = (
    "--preset",
    "paper",
    "--rounds",
    "2",
    "--iterations",
    "5",
    "--train-patches",
    "300",
    "--patch-size",
    "6",
    "--sigma",
    "20",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pictures, one of them in a sub-folder, and a text."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "b.png", "sub/c.png")):
        Image.fromarray(scene(seed=seed)).save(tmp_path / "in" / name)
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    return tmp_path / "in"


def tree(path: Path) -> list[str]:
    return sorted(str(item.relative_to(path)) for item in path.rglob("*") if item.is_file())


# --- many inputs --------------------------------------------------------------------------------------


def test_a_folder_beside_itself_and_again(folder: Path) -> None:
    done = run("denoise", folder, *FAST)
    assert done.code == 0
    assert done.text.splitlines()[-1] == "2 denoised, 0 failed, 0 done before, 1 other files skipped."
    assert tree(folder) == ["a.png", "a_denoised.png", "b.png", "b_denoised.png", "notes.txt", "sub/c.png"]
    before = {name: (folder / name).read_bytes() for name in tree(folder)}
    refused(run("denoise", folder, *FAST), 2, "--force", "--resume")
    again = run("denoise", folder, *FAST, "--resume", "--json").report
    assert again["files"] == []
    assert again["summary"] == {
        "done": 0,
        "unchanged": 0,
        "failed": 0,
        "resumed": 2,
        "skipped": 3,
    }  # the text and two of our own
    assert {name: (folder / name).read_bytes() for name in tree(folder)} == before


def test_sub_folders_are_kept_under_the_output(folder: Path) -> None:
    out = folder.parent / "out"
    report = run("denoise", folder, "-o", out, *FAST, "--recursive", "--json").report
    assert tree(out) == ["a.png", "b.png", "sub/c.png"]
    assert [item["output"] for item in report["files"]] == [str(out / name) for name in tree(out)]
    assert report["summary"] == {"done": 3, "unchanged": 0, "failed": 0, "resumed": 0, "skipped": 1}
    assert run("denoise", folder, *FAST, "-r", "--suffix", ".clean").code == 0
    assert (folder / "sub" / "c.clean.png").read_bytes() == (out / "sub" / "c.png").read_bytes()


def test_a_picture_in_a_folder_gets_what_it_gets_alone(folder: Path) -> None:
    out = folder.parent / "out"
    assert run("denoise", folder, "-o", out, *SMALL).code == 0
    assert run("denoise", folder / "b.png", *SMALL).code == 0
    assert (out / "b.png").read_bytes() == (folder / "b_denoised.png").read_bytes()


def test_patterns_that_the_shell_left_alone(folder: Path) -> None:
    out = folder.parent / "out"
    assert run("denoise", folder / "[ab].png", "-o", out, *FAST).code == 0
    assert tree(out) == ["a.png", "b.png"]
    refused(run("denoise", folder / "*.tiff", *FAST, "-q"), 1, "*.tiff")
    mixed = run("denoise", folder / "*.tiff", folder / "sub" / "*.png", "-o", out, *FAST, "--json")
    assert (mixed.code, mixed.report["summary"]["done"], mixed.report["summary"]["failed"]) == (1, 1, 1)


def test_one_broken_file_does_not_stop_the_rest(folder: Path) -> None:
    (folder / "aa.png").write_text("no picture either")
    done = run("denoise", folder, folder / "missing.png", "-o", folder.parent / "out", *FAST)
    assert done.code == 1
    assert done.text.splitlines()[-1] == "2 denoised, 2 failed, 0 done before, 1 other files skipped."
    assert [next(name for name in ("aa.png", "missing.png") if name in text) for text in done.sentences] == [
        "aa.png",
        "missing.png",
    ]
    assert tree(folder.parent / "out") == ["a.png", "b.png"]


def test_collisions_are_refused_before_any_work(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    Image.fromarray(scene()).save(other / "a.png")
    before = tree(folder.parent)
    out = folder.parent / "out"
    refused(run("denoise", folder, other, "-o", out, *FAST), 2, str(folder / "a.png"), str(other / "a.png"))
    refused(run("denoise", folder / "a.png", folder / "b.png", "-o", folder.parent / "x.png", *FAST), 2, "x.png")
    refused(run("denoise", folder, "-o", folder.parent / "x.png", *FAST), 2, "x.png")
    refused(run("denoise", folder, "-o", "-", *FAST), 2, "standard output")
    refused(run("denoise", folder, "-o", folder, *FAST, "--force"), 2, "input")
    assert tree(folder.parent) == before
    assert not out.exists()


def test_an_existing_output_stops_all_of_them_before_any_work(folder: Path) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / "b.png").write_text("precious")
    refused(run("denoise", folder, "-o", out, *FAST), 2, "b.png", "--force")
    assert tree(out) == ["b.png"]
    done = run("denoise", folder, "-o", out, *FAST, "--resume")
    assert "1 denoised, 0 failed, 1 done before" in done.text
    assert (out / "b.png").read_text() == "precious"
    assert run("denoise", folder, "-o", out, *FAST, "--force").code == 0
    assert np.asarray(Image.open(out / "b.png")).shape == (48, 64)


def test_an_output_folder_within_the_input_can_be_resumed(folder: Path) -> None:
    out = folder / "clean"
    assert run("denoise", folder, "-o", out, *FAST, "--recursive").code == 0
    assert tree(out) == ["a.png", "b.png", "sub/c.png"]
    (out / "b.png").unlink()
    again = run("denoise", folder, "-o", out, *FAST, "--recursive", "--resume", "--json")
    assert again.code == 0, again.stderr
    assert (again.report["summary"]["done"], again.report["summary"]["resumed"]) == (1, 2)
    assert tree(out) == ["a.png", "b.png", "sub/c.png"]  # its own results were not denoised again


# --- residuals and comparisons ------------------------------------------------------------------------


def test_residuals_and_comparisons_of_a_folder(folder: Path) -> None:
    out, residual, compare = (folder.parent / name for name in ("out", "residual", "compare"))
    extras = ("--residual", residual, "--compare", compare)
    assert run("denoise", folder, "-o", out, *FAST, *extras, "--recursive").code == 0
    assert tree(residual) == ["a_residual.png", "b_residual.png", "sub/c_residual.png"]
    assert tree(compare) == ["a_compare.png", "b_compare.png", "sub/c_compare.png"]
    for name in ("a", "b", "sub/c"):
        noisy, denoised, removed, joined = (
            np.asarray(Image.open(path)).astype(int)
            for path in (
                folder / f"{name}.png",
                out / f"{name}.png",
                residual / f"{name}_residual.png",
                compare / f"{name}_compare.png",
            )
        )
        np.testing.assert_array_equal(noisy, denoised + removed - 128)
        np.testing.assert_array_equal(joined, np.concatenate((noisy, denoised, removed), axis=1))


def test_a_residual_folder_that_is_a_file(folder: Path) -> None:
    wall = folder.parent / "wall"
    wall.write_text("a file")
    for option in ("--residual", "--compare"):
        done = run("denoise", folder, "-o", folder.parent / "out", *FAST, option, wall, "--force")
        assert done.code in (1, 2)
        assert all("wall" in text for text in done.sentences)
        assert done.sentences
    assert wall.read_text() == "a file"


def test_a_run_with_residuals_can_be_resumed(folder: Path) -> None:
    """The residual is written before the picture: a run killed between the two leaves it behind."""
    out, residual = folder.parent / "out", folder.parent / "residual"
    assert run("denoise", folder, "-o", out, *FAST, "--residual", residual).code == 0
    expected = (out / "a.png").read_bytes()
    (out / "a.png").unlink()
    again = run("denoise", folder, "-o", out, *FAST, "--residual", residual, "--resume")
    assert again.code == 0, again.stderr
    assert (out / "a.png").read_bytes() == expected


def test_an_output_whose_residual_is_missing_is_not_done(folder: Path) -> None:
    out, residual = folder.parent / "out", folder.parent / "residual"
    assert run("denoise", folder, "-o", out, *FAST).code == 0
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    again = run("denoise", folder, "-o", out, *FAST, "--residual", residual, "--resume", "--json")
    assert (again.code, again.report["summary"]["done"]) == (0, 2)
    assert tree(residual) == ["a_residual.png", "b_residual.png"]
    finished = run("denoise", folder, "-o", out, *FAST, "--residual", residual, "--resume", "--json")
    assert (finished.code, finished.report["summary"]["resumed"]) == (0, 2)
    assert set(before) == {path.name for path in out.iterdir()}


def test_a_kept_transform_that_is_missing_is_written_again(folder: Path) -> None:
    """The transform is written after the picture: a run killed between the two leaves the picture alone."""
    out, kept = folder.parent / "out.png", folder.parent / "t.npz"
    arguments = ("denoise", folder / "a.png", "-o", out, *FAST, "--save-transform", kept)
    assert run(*arguments).code == 0
    expected = {path: path.read_bytes() for path in (out, kept)}
    kept.unlink()
    done = run(*arguments, "--resume", "--json")
    assert (done.code, done.report["summary"]["resumed"]) == (0, 0)
    assert {path: path.read_bytes() for path in (out, kept)} == expected
    assert run(*arguments, "--resume", "--json").report["summary"]["resumed"] == 1


@pytest.mark.parametrize("option", ["--residual", "--compare", "-o"])
def test_resuming_replaces_no_file_by_another(option: str, folder: Path) -> None:
    """A file that is there is left by an unfinished job if it is what the job writes; else it is someone's own."""
    kept = folder.parent / "kept.png"
    kept.write_text("precious")
    others = {"--residual": folder.parent / "r.png", "-o": folder.parent / "o.png"} | {option: kept}
    arguments = [part for item in others.items() for part in item]
    refused(run("denoise", folder / "a.png", *arguments, *FAST, "--resume", "-q"), 1, "kept.png", "--force")
    assert kept.read_text() == "precious"
    assert tree(folder.parent) == sorted(["kept.png", *(f"in/{name}" for name in tree(folder))])
    assert run("denoise", folder / "a.png", *arguments, *FAST, "--resume", "--force").code == 0
    assert np.asarray(Image.open(kept)).shape[0] == 48


def test_an_empty_output_is_not_done(folder: Path) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / "a.png").touch()
    done = run("denoise", folder, "-o", out, *FAST, "--resume", "--json")
    assert (done.code, done.report["summary"]["done"], done.report["summary"]["resumed"]) == (0, 2, 0)
    assert np.asarray(Image.open(out / "a.png")).shape == (48, 64)


# --- folders without pictures -------------------------------------------------------------------------


def test_folders_without_pictures_say_what_they_hold(tmp_path: Path) -> None:
    folders = {
        "empty": ("empty", ()),
        "texts": ("other files such as a.txt (2 in all)", ("a.txt", "b.doc")),
        "ours": ("results of dstl such as a_denoised.png (1 in all)", ("a_denoised.png",)),
        "deep": ("--recursive", ("sub/a.png",)),
        "data.zarr": ("Zarr", ("0/0.0",)),
        "unnamed": ("Zarr", ("zarr.json", "c/0/0")),
    }
    for name, (words, files) in folders.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
        refused(run("denoise", tmp_path / name, *FAST, "-q"), 1, name, words)
        done = run("denoise", tmp_path / name, *FAST, "--json")
        assert (done.code, done.report["summary"]["failed"]) == (1, 1)
        assert words in done.report["files"][0]["error"]
    Image.fromarray(scene()).save(tmp_path / "a.png")
    mixed = run("denoise", tmp_path / "a.png", tmp_path / "empty", *FAST)
    assert mixed.code == 1
    assert "1 denoised, 1 failed" in mixed.text
    refused(run("denoise", tmp_path / "te*s", *FAST, "-q"), 1, "te*s")  # a pattern that only a folder matches


# --- a folder of forty mixed files --------------------------------------------------------------------


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def write_good(folder: Path) -> list[str]:
    """Two pictures of each of twelve kinds."""
    for copy in (1, 2):
        grey, rgb = scene(seed=copy), scene((48, 64, 3), seed=copy)
        for name, pixels in {
            "grey.png": grey,
            "rgb.png": rgb,
            "rgb.jpg": rgb,
            "grey.jpeg": grey,
            "rgb.webp": rgb,
            "grey.bmp": grey,
            "rgb.ppm": rgb,
        }.items():
            Image.fromarray(pixels).save(folder / f"good{copy}_{name}")
        stacks: dict[str, Pixels] = {
            "grey16.tif": grey * np.uint16(257),
            "float.tiff": grey.astype(np.float32),
            "pages.tif": np.stack([grey] * 3),
        }
        for name, pixels in stacks.items():
            tifffile.imwrite(folder / f"good{copy}_{name}", pixels, photometric="minisblack")
        np.save(folder / f"good{copy}_double.npy", grey.astype(np.float64))
        (folder / f"good{copy}_rgb16.png").write_bytes(imagecodecs.png_encode(rgb * np.uint16(257)))
    return sorted(path.name for path in folder.iterdir())


def write_bad(folder: Path) -> dict[str, str]:
    """Sixteen files with something wrong, and a word that the sentence about each must have."""
    grey = scene()
    whole = {}
    for suffix in ("png", "jpg", "bmp"):
        Image.fromarray(grey).save(folder / f"whole.{suffix}")
    tifffile.imwrite(folder / "whole.tif", grey)
    np.save(folder / "whole.npy", grey)
    for path in folder.glob("whole.*"):
        whole[path.suffix[1:]] = path.read_bytes()
        path.unlink()
    files = {f"cut.{kind}": data[: len(data) * 2 // 3] for kind, data in whole.items()}
    words = dict.fromkeys(files, "truncated")
    files |= {
        "empty.png": b"",
        "empty.tiff": b"",
        "text.png": b"This is not a picture.\n",
        "text.jpg": b"Nor is this.\n",
    }
    words |= {"empty.png": "empty", "empty.tiff": "empty", "text.png": "not a picture", "text.jpg": "not a picture"}
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10_000))) + chunk(b"IEND", b"")
    files["bomb.png"] = b"\x89PNG\r\n\x1a\n" + bomb
    files["bomb.bmp"] = whole["bmp"][:18] + struct.pack("<ii", 60_000, 60_000) + whole["bmp"][26:]
    words |= {"bomb.png": "60000 x 60000", "bomb.bmp": "60000 x 60000", "bomb.tif": "60000 x 60000"}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    tifffile.imwrite(folder / "bomb.tif", grey)
    with tifffile.TiffFile(folder / "bomb.tif", mode="r+b") as file:
        for tag in ("ImageWidth", "ImageLength"):
            file.pages.first.tags[tag].overwrite(60_000)
    holes = grey.astype(np.float32)
    holes[3:5, 7] = np.nan
    tifffile.imwrite(folder / "holes.tif", holes)
    Image.fromarray(np.zeros((8, 8, 4), np.uint8), "CMYK").save(folder / "print.jpg")
    (folder / "loop.png").symlink_to("pool.png")
    (folder / "pool.png").symlink_to("loop.png")
    words |= {"holes.tif": "2 values", "print.jpg": "CMYK", "loop.png": "link", "pool.png": "link"}
    return words


MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss, file=sys.stderr)
os._exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the peak memory of a child is told on POSIX systems only")
def test_a_folder_of_forty_mixed_files(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    good, bad = write_good(folder), write_bad(folder)
    assert len(good) + len(bad) == 40
    (folder / "notes.txt").write_text("not counted among the forty")
    (folder / "loop").symlink_to(folder)
    if os.geteuid() != 0:  # root may read everything
        Image.fromarray(scene()).save(folder / "locked.png")
        (folder / "locked.png").chmod(0)
        bad["locked.png"] = "permissions"

    arguments = command("denoise", folder, "-o", out, *FAST, "--recursive")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], capture_output=True, env=environment(), check=False, timeout=300
    )
    *lines, peak = done.stderr.decode().splitlines()
    result = Outcome(done.returncode, done.stdout, without_notice("\n".join(lines)))

    assert result.code == 1
    assert result.text.splitlines()[-1] == f"24 denoised, {len(bad)} failed, 0 done before, 1 other files skipped."
    assert sorted(path.name for path in out.iterdir()) == sorted(good)
    for name in good:
        assert (out / name).stat().st_size > 0
    assert np.asarray(tifffile.imread(out / "good1_pages.tif")).shape == (3, 48, 64)
    assert imagecodecs.png_decode((out / "good2_rgb16.png").read_bytes()).dtype == np.uint16
    assert len(result.stderr.splitlines()) == len(result.sentences) == len(bad)  # one sentence each, nothing else
    for name, word in bad.items():
        [sentence] = [text for text in result.sentences if str(folder / name) in text]
        assert word in sentence
        assert sentence.endswith(".")
    kibibytes = int(peak) / (1024 if sys.platform == "darwin" else 1)
    assert kibibytes < 2**20
    assert not temporaries(tmp_path)


# --- killed and interrupted ---------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Thirty pictures of some size, so that writing them takes a while too."""
    folder = tmp_path / "in"
    folder.mkdir()
    for seed in range(30):
        tifffile.imwrite(folder / f"{seed:02d}.tif", scene((120, 160), seed=seed).astype(np.float64))
    return folder


def complete(out: Path) -> list[str]:
    """The names of the outputs, each of them checked to be a whole picture."""
    names = sorted(path.name for path in out.glob("*.tif"))
    for name in names:
        pixels = np.asarray(tifffile.imread(out / name))
        assert pixels.shape == (120, 160)
        assert pixels.dtype == np.float64
        assert np.isfinite(pixels).all()
    return names


def wait_for_new_output(process: subprocess.Popen[Any], out: Path, before: int) -> None:
    """Return when the process has finished another picture (or has ended)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if out.is_dir() and len(list(out.glob("*.tif"))) > before:
            return
        time.sleep(0.002)


def kill_and_resume(folder: Path, times: int, seed: int) -> None:
    out = folder.parent / "out"
    rng = random.Random(seed)
    arguments = command("denoise", folder, "-o", out, *FAST, "--resume", "-q")
    killed = 0
    for _ in range(times):
        done = len(complete(out))
        if done > 24:  # leave something to do
            for path in sorted(out.glob("*.tif"))[:done]:
                path.unlink()
            done = 0
        with subprocess.Popen(arguments, env=environment()) as process:
            wait_for_new_output(process, out, done)
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
        killed += process.returncode == -signal.SIGKILL
        assert len(complete(out)) > done
    assert killed >= times // 2
    last = run_process("denoise", folder, "-o", out, *FAST, "--resume", "--json")
    assert (last.code, last.stderr) == (0, "")
    summary = last.report["summary"]
    assert summary["done"] + summary["resumed"] == 30
    assert complete(out) == sorted(path.name for path in folder.iterdir())
    assert not temporaries(out)
    whole = folder.parent / "whole.tif"
    assert run("denoise", folder / "07.tif", "-o", whole, *FAST).code == 0
    assert (out / "07.tif").read_bytes() == whole.read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is for POSIX systems")
def test_kill_at_random_moments(many: Path) -> None:
    kill_and_resume(many, 4, seed=1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is for POSIX systems")
def test_kill_at_twenty_random_moments(many: Path) -> None:
    kill_and_resume(many, 20, seed=2)


STALE = ".a.png.999999999-0123456789abcdef.dstl-tmp"


def test_what_a_killed_run_left_is_cleared_by_the_next(folder: Path) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / STALE).write_bytes(b"half a picture")
    assert run("denoise", folder, "-o", out, *FAST).code == 0
    assert not temporaries(out)


def test_what_a_killed_run_left_is_cleared_even_if_all_was_done(folder: Path) -> None:
    """A run killed right after its last picture got its name leaves the temporary name of that picture."""
    out = folder.parent / "out"
    assert run("denoise", folder, "-o", out, *FAST).code == 0
    (out / STALE).write_bytes(b"half a picture")
    assert run("denoise", folder, "-o", out, *FAST, "--resume").code == 0
    assert not temporaries(out)


@pytest.mark.parametrize("option", ["--residual", "--compare"])
def test_what_a_killed_run_left_beside_other_results_is_cleared(option: str, folder: Path) -> None:
    extra = folder.parent / "extra"
    extra.mkdir()
    (extra / STALE).write_bytes(b"half a picture")
    assert run("denoise", folder, "-o", folder.parent / "out", *FAST, option, extra).code == 0
    assert not temporaries(folder.parent)


def test_what_a_killed_run_left_is_cleared_by_any_command(tmp_path: Path) -> None:
    for seed, name in enumerate(("a.png", "b.png")):
        Image.fromarray(scene((64, 64), seed=seed)).save(tmp_path / name)
    small = ("--iterations", "1", "--train-patches", "300", "--patch-size", "4")
    picture, place = tmp_path / "a.png", tmp_path / "place"
    denoised = ("denoise", picture, "-o", tmp_path / "out.png", *SMALL)
    commands: list[tuple[str | Path, ...]] = [
        ("train", picture, *small, "-o", place / "t.npz"),
        ("evaluate", picture, tmp_path / "b.png", "--csv", place / "a.csv"),
        ("profile", picture, "-o", place / "camera.json"),
        ("inspect", picture, "--save-noise", place / "noise.json"),
        (*denoised, "--save-transform", place / "t.npz"),
    ]
    for arguments in commands:
        place.mkdir()
        (place / STALE).write_bytes(b"half a file")
        assert run(*arguments).code == 0
        assert list(place.iterdir()) == [arguments[-1]]
        shutil.rmtree(place)


@pytest.mark.skipif(sys.platform == "win32", reason="claims need locks")
def test_two_runs_side_by_side_share_the_work(many: Path) -> None:
    """Neither fails, each does a part, and no picture is done twice."""
    out = many.parent / "out"
    arguments = command("denoise", many, "-o", out, *FAST, "--resume", "--json", "--jobs", 1)
    children = [subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    reports = [json.loads(child.communicate(timeout=300)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    summaries = [report["summary"] for report in reports]
    assert all(summary["done"] + summary["resumed"] == 30 for summary in summaries)
    assert sum(summary["done"] for summary in summaries) == 30
    assert len(complete(out)) == 30
    assert not temporaries(out)


def test_what_another_run_is_doing_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes last; and is not done again if the other run has done it then."""
    out = folder.parent / "out"
    out.mkdir()
    assert run("denoise", folder / "a.png", "-o", folder.parent / "a.png", *FAST).code == 0
    claimed = claim(out / "a.png")
    claimed.__enter__()

    def end_the_other(seconds: float) -> None:
        (out / "a.png").write_bytes((folder.parent / "a.png").read_bytes())
        claimed.__exit__(None, None, None)

    monkeypatch.setattr("time.sleep", end_the_other)
    report = run("denoise", folder, "-o", out, *FAST, "--resume", "--json").report
    assert report["summary"] == {"done": 1, "unchanged": 0, "failed": 0, "resumed": 1, "skipped": 1}
    assert [Path(record["input"]).name for record in report["files"]] == ["b.png"]
    assert tree(out) == ["a.png", "b.png"]


def test_what_nobody_foresaw_costs_one_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dstl_cli.denoising.survey import survey as plain

    def stumble(source: Any, *arguments: Any, **options: Any) -> Any:
        if source.shape == (48, 65):
            raise RuntimeError("not\nforeseen")
        return plain(source, *arguments, **options)

    Image.fromarray(scene((48, 65))).save(folder / "ab.png")
    monkeypatch.setattr("dstl_cli.run.files.survey", stumble)
    done = run("denoise", folder, "-o", folder.parent / "out", *FAST)
    assert done.code == 1
    (sentence,) = done.sentences
    assert sentence.endswith("ab.png cannot be denoised: something unforeseen happened (RuntimeError not foreseen);"
                             " please report it.")  # fmt: skip
    assert tree(folder.parent / "out") == ["a.png", "b.png"]


def test_what_the_system_refuses_is_told_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be opened any more, nothing is to be reported to us."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "module.py")

    before = tree(folder)
    monkeypatch.setattr("dstl_cli.run.files.survey", refuse)
    done = run("denoise", folder / "a.png", *FAST)
    refused(done, 1, "a.png cannot be denoised: the system says Too many open files (module.py); check")
    assert tree(folder) == before


# Shells start background processes with SIGINT ignored; this one always starts as in the foreground.
FOREGROUND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from dstl_cli.cli.app import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT to another process is for POSIX systems")
@pytest.mark.parametrize(
    "options", [FAST, ("--sigma", "20", "--patch-size", "8")], ids=["while coding", "while learning"]
)
def test_interrupt(options: tuple[str, ...], many: Path) -> None:
    out = many.parent / "out"
    arguments = [sys.executable, "-W", "error", "-c", FOREGROUND, "denoise", str(many), "-o", str(out), *options]
    with subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_new_output(process, out, 0)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert [line for line in without_notice(stderr).splitlines() if line.strip()] == [
        "dstl: Interrupted; nothing was left half-written."
    ]
    assert 1 <= len(complete(out)) < 30
    assert not temporaries(many.parent)


# --- the terminal -------------------------------------------------------------------------------------


def run_on_terminal(*arguments: str | Path) -> tuple[Outcome, str]:
    """Run the real program with its stderr on a terminal; the second item is what was shown there."""
    import pty

    own, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while data := os.read(own, 65536):
                shown.append(data)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with subprocess.Popen(
        command(*arguments), env=environment() | {"TERM": "xterm"}, stdout=subprocess.PIPE, stderr=terminal
    ) as process:
        os.close(terminal)
        stdout, _ = process.communicate(timeout=300)
    reader.join(timeout=10)
    os.close(own)
    text = b"".join(shown).decode()
    return Outcome(process.returncode, stdout, text), text


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are for POSIX systems")
def test_progress_is_shown_on_a_terminal_only(folder: Path) -> None:
    assert run("denoise", folder, *FAST).stderr == ""
    done, shown = run_on_terminal("denoise", folder, *FAST, "--force")
    assert done.code == 0
    assert "%" in shown
    assert "a.png" in shown
    assert not {"%", "\x1b"} & set(done.text)
    assert done.text.splitlines()[-1].startswith("2 denoised")


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are for POSIX systems")
def test_progress_takes_names_as_they_are(folder: Path) -> None:
    folder = folder.rename(folder.with_name("in ["))
    (folder / "a.png").rename(folder / "c].png")  # the path has [/c] in it, which looks like a closing tag
    done, shown = run_on_terminal("denoise", folder, *FAST)
    assert done.code == 0, shown[-300:]
    assert "in [/c].png" in shown


# --- large pictures: one is denoised while the next is read and the last one written --------------------


@pytest.fixture
def none_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture is worked on by itself, as large ones are."""
    monkeypatch.setattr("dstl_cli.run.files.SMALL_PIXELS", 0)


@pytest.mark.usefixtures("none_is_small")
def test_large_pictures_have_the_bytes_of_one_by_one(folder: Path, tmp_path: Path) -> None:
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:200])
    for name, jobs in (("alone", 1), ("beside", 2)):
        done = run(
            "denoise", folder, "-o", tmp_path / name, "-r", "--residual", tmp_path / f"{name}_r", *FAST, "--jobs", jobs
        )
        assert done.code == 1
        assert [line.split(" ->")[0].rsplit("/")[-1] for line in done.text.splitlines()[:-1]] == [
            "a.png",
            "b.png",
            "c.png",
        ]
        assert len(done.sentences) == 1
        assert "broken.png" in done.sentences[0]
    for kind in ("", "_r"):
        alone, beside = tmp_path / f"alone{kind}", tmp_path / f"beside{kind}"
        assert tree(alone) == tree(beside) != []
        assert all((alone / name).read_bytes() == (beside / name).read_bytes() for name in tree(alone))


@pytest.mark.usefixtures("none_is_small")
def test_while_one_is_denoised_the_next_is_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dstl_cli.run.files import PictureWork

    read, seen = threading.Event(), []
    plain_read, plain_denoise = PictureWork.read, PictureWork.denoise

    def reading(work: PictureWork) -> None:
        plain_read(work)
        if work.name.endswith("b.png"):
            read.set()

    def denoising(work: PictureWork) -> None:
        seen.append(read.wait(20))  # of the first picture too
        plain_denoise(work)

    monkeypatch.setattr(PictureWork, "read", reading)
    monkeypatch.setattr(PictureWork, "denoise", denoising)
    assert run("denoise", folder, "-o", tmp_path / "out", *FAST, "--jobs", 2).code == 0
    assert seen == [True, True]


@pytest.mark.usefixtures("none_is_small")
def test_an_interrupt_between_two_steps_leaves_nothing_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dstl_cli.run.files import PictureWork

    plain, seen = PictureWork.denoise, []

    def denoise(work: PictureWork) -> None:
        plain(work)
        seen.append(work.name)
        if len(seen) == 2:  # before it is written
            raise KeyboardInterrupt

    monkeypatch.setattr(PictureWork, "denoise", denoise)
    assert run("denoise", folder, "-r", "-o", tmp_path / "out", *FAST, "--jobs", 2).code == 130
    assert tree(tmp_path / "out") == ["a.png"]
    assert temporaries(tmp_path) == []


@pytest.mark.skipif(asking._State.trusted, reason="this system has no means to limit a child")
def test_a_crash_in_a_decoder_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And with --trust-files no child is there to crash."""
    for name, depth in (("a.png", np.uint8), ("b.png", np.uint16), ("c.png", np.uint8)):
        (tmp_path / name).write_bytes(imagecodecs.png_encode(scene((32, 40)).astype(depth)))
    crashing = (
        "import os; from dstl_cli.picture.decoding.decoders import DECODERS, png;"
        "DECODERS['png'] = lambda packed, out, **facts:"
        "os.abort() if facts['depth'] == 16 else png(packed, out, **facts); from dstl_cli.picture.decoding.child"
    )
    monkeypatch.setattr(asking, "_START", asking._START.replace(f"from {asking._MODULE}", crashing))
    asking.end_children()
    options = ("--sigma", "20", "--quality", "fast")
    done = run("denoise", tmp_path, "-o", tmp_path / "out", *options)
    assert done.code == 1
    assert len(done.sentences) == 1
    assert "b.png could not be decoded: the decoder crashed;" in done.sentences[0]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.png", "c.png"]
    asking.end_children()
    assert run("denoise", tmp_path, "-o", tmp_path / "out", *options, "--resume", "--trust-files").code == 0
    assert asking._State.children is None
    assert not asking._State.trusted
