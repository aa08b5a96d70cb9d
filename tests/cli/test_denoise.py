"""`dstl denoise` on one picture: every option does what it says, every mistake gets one sentence."""

import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest
import tifffile
from PIL import Image
from running import Outcome, command, environment, refused, run, run_process, scene

from dstl_cli import denoise
from dstl_cli.learning.methods import METHODS, PAPER_METHODS
from dstl_cli.version import __version__

FAST = ("--method", "dct", "--sigma", "20", "--patch-size", "6")
LEARNING = ("--iterations", "5", "--train-patches", "300")
SMALL = ("--preset", "paper", "--rounds", "2", *LEARNING, "--patch-size", "6", "--sigma", "20")
QUALITIES = (("--quality", "fast"), (), ("--quality", "best"), ("--preset", "paper", "--rounds", "2"))
DCT_QUALITIES = tuple((*quality[:2], "--method", "dct") for quality in QUALITIES)


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (40, 2), (3, 5), (10, 11), (11, 11), (1, 1, 3), (9, 30, 3)])
@pytest.mark.parametrize("quality", [*QUALITIES, *DCT_QUALITIES, ("--method", "dsect")], ids=str)
def test_any_size_works(shape: tuple[int, ...], quality: tuple[str, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene(shape))
    for sigma in ("auto", "20"):
        done = run("denoise", tmp_path / "a.npy", "--sigma", sigma, *quality, "--force")
        assert done.code == 0, done.stderr
        result = np.load(tmp_path / "a_denoised.npy")
        assert (result.shape, result.dtype) == (shape, np.uint8)


# --- depth and sigma ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 3)])
@pytest.mark.parametrize("quality", QUALITIES, ids=str)
def test_sixteen_and_eight_bits_give_the_same_picture(
    shape: tuple[int, ...], quality: tuple[str, ...], tmp_path: Path
) -> None:
    eight = scene(shape)
    np.save(tmp_path / "eight.npy", eight)
    np.save(tmp_path / "sixteen.npy", eight.astype(np.uint16) * 257)
    done = run("denoise", tmp_path / "eight.npy", tmp_path / "sixteen.npy", "--sigma", 20, *quality)
    assert done.code == 0
    low, high = (np.load(tmp_path / f"{name}_denoised.npy") for name in ("eight", "sixteen"))
    assert high.dtype == np.uint16
    difference = np.abs(low - high / 257)
    assert np.quantile(difference, 0.99) <= 0.5 + 0.5 / 257 + 0.01  # rounding
    assert difference.max() <= 1.5  # a coefficient at the threshold may fall to the other side


def test_the_depth_is_that_of_the_dtype_not_of_the_content(tmp_path: Path) -> None:
    np.save(tmp_path / "dark.npy", scene().astype(np.uint16))  # 16 bits of which 8 are used
    done = run("denoise", tmp_path / "dark.npy", "--method", "dct", "--patch-size", 6, "--sigma", 20)
    assert done.code == 0
    flat = np.load(tmp_path / "dark_denoised.npy")  # at this depth its contrast is far below the noise
    assert (flat.dtype, flat.shape) == (np.uint16, (48, 64))
    assert flat.std() < 0.7 * scene().std()
    record = run("denoise", tmp_path / "dark.npy", "--method", "dct", "--force", "--json").report["files"][0]
    assert record["sigma"] == pytest.approx(20 / 257, rel=0.2)


def test_sigma_auto_is_estimated_and_said(tmp_path: Path) -> None:
    Image.fromarray(scene((120, 160))).save(tmp_path / "a.png")
    done = run("denoise", tmp_path / "a.png", "--method", "dct")
    assert done.code == 0
    assert "estimated" in done.text
    record = run("denoise", tmp_path / "a.png", "--method", "dct", "--force", "--json").report["files"][0]
    assert record["sigma_source"] == "estimated"
    assert record["sigma"] == pytest.approx(20, rel=0.1)
    given = run("denoise", tmp_path / "a.png", *FAST, "--force")
    assert "20 given" in given.text


def test_warnings_about_the_estimate_go_to_stderr(tmp_path: Path) -> None:
    dark = np.clip(scene((120, 160)).astype(int) - 150, 0, 255).astype(np.uint8)
    Image.fromarray(dark).save(tmp_path / "dark.png")
    done = run("denoise", tmp_path / "dark.png", "--method", "dct")
    assert done.code == 0
    assert any("dark.png" in line and "limits of the range" in line for line in done.sentences)
    loud = run("denoise", tmp_path / "dark.png", "--method", "dct", "--force", "--json")
    assert any("limits of the range" in text for text in loud.report["files"][0]["warnings"])
    assert run("denoise", tmp_path / "dark.png", "--method", "dct", "--force", "-q").stderr == ""


@pytest.mark.parametrize("sigma", ["1e-300", "1e-30", "1e-6", "1e6", "1e30", "1e200", "1e300"])
@pytest.mark.parametrize("quality", DCT_QUALITIES, ids=str)
def test_an_absurd_sigma_is_refused_or_does_what_it_must(sigma: str, quality: tuple[str, ...], tmp_path: Path) -> None:
    noisy = scene()
    np.save(tmp_path / "a.npy", noisy)
    done = run("denoise", tmp_path / "a.npy", "--sigma", sigma, *quality)
    if done.code != 0:
        refused(done, done.code, "sigma")
        assert done.code in (1, 2)
        return
    result = np.load(tmp_path / "a_denoised.npy").astype(int)
    if float(sigma) < 1:
        assert np.abs(result - noisy).max() <= 1
    else:  # all is noise: local means are left
        assert noisy.min() <= result.min() <= result.mean() <= result.max() <= noisy.max()
        assert abs(result.mean() - noisy.mean()) < 3


# --- where the result goes ----------------------------------------------------------------------------


def test_the_real_program_writes_beside_the_input_and_says_so(tmp_path: Path) -> None:
    noisy = scene()
    Image.fromarray(noisy).save(tmp_path / "a.png")
    before = (tmp_path / "a.png").read_bytes()
    done = run_process("denoise", "a.png", *SMALL, cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert done.text.startswith("a.png -> a_denoised.png  (sigma 20 given")
    assert (tmp_path / "a.png").read_bytes() == before
    result = np.asarray(Image.open(tmp_path / "a_denoised.png"))
    np.testing.assert_array_equal(
        result, denoise(noisy, sigma=20, quality="paper", rounds=2, iterations=5, train_patches=300, patch_size=6)
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a_denoised.png"]


def test_nothing_half_done_reaches_a_pipe() -> None:
    refused(run("denoise", "-", *FAST, stdin=b""), 1, "standard input", "empty")
    refused(run("denoise", "-", *FAST, stdin=b"hello, this is text"), 1, "standard input")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("redirection", ["> /dev/full", "<&-"])
def test_standard_streams_that_are_full_or_closed(redirection: str, tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    source = "-" if redirection == "<&-" else str(tmp_path / "a.png")
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command("denoise", source, "-o", "-", *FAST)]
    done = subprocess.run(line, capture_output=True, env=environment(), check=False, timeout=300)
    refused(Outcome(done.returncode, done.stdout, done.stderr.decode()), 1, "standard")


def test_an_empty_name_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an unset variable leaves of `dstl denoise "$FOLDER"`."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(scene()).save("a.png")
    refused(run("denoise", "", *FAST), 2)
    refused(run("denoise", "a.png", "-o", "", *FAST), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_suffix_and_force(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    assert run("denoise", tmp_path / "a.png", *FAST, "--suffix", "-clean").code == 0
    assert (tmp_path / "a-clean.png").exists()
    old = (tmp_path / "a-clean.png").read_bytes()
    refused(run("denoise", tmp_path / "a.png", *FAST, "--suffix", "-clean"), 2, "a-clean.png", "--force")
    assert run("denoise", tmp_path / "a.png", "--method", "dct", "--sigma", 5, "--suffix", "-clean", "-f").code == 0
    assert (tmp_path / "a-clean.png").read_bytes() != old
    for suffix in ("", "a/b"):
        refused(run("denoise", tmp_path / "a.png", *FAST, "--suffix", suffix), 2, "--suffix")


def test_the_output_folder_is_made(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    assert run("denoise", tmp_path / "a.png", "-o", f"{tmp_path}/new/deep/", *FAST).code == 0
    assert (tmp_path / "new" / "deep" / "a.png").is_file()
    assert run("denoise", tmp_path / "a.png", "-o", tmp_path / "other" / "b.png", *FAST).code == 0
    (tmp_path / "wall").write_text("a file")
    refused(run("denoise", tmp_path / "a.png", "-o", tmp_path / "wall" / "b.png", *FAST), 1, "wall")


@pytest.mark.parametrize("link", ["itself", "another spelling", "symbolic", "hard", "symbolic folder"])
def test_the_input_is_never_the_output(link: str, tmp_path: Path) -> None:
    source = tmp_path / "a.png"
    Image.fromarray(scene()).save(source)
    before = source.read_bytes()
    target = tmp_path / "out.png"
    if link == "itself":
        target = source
    elif link == "another spelling":
        (tmp_path / "sub").mkdir()
        target = tmp_path / "sub" / ".." / "a.png"
    elif link == "symbolic":
        target.symlink_to(source)
    elif link == "hard":
        os.link(source, target)
    else:
        (tmp_path / "again").symlink_to(tmp_path)
        target = tmp_path / "again" / "a.png"
    for force in ((), ("--force",)):
        refused(run("denoise", source, "-o", target, *FAST, *force), 2, "input")
    assert source.read_bytes() == before


@pytest.mark.parametrize("option", ["--residual", "--compare", "--save-transform"])
def test_no_option_overwrites_an_input(option: str, tmp_path: Path) -> None:
    source = tmp_path / "a.png"
    Image.fromarray(scene()).save(source)
    before = source.read_bytes()
    done = run("denoise", source, "-o", tmp_path / "out.png", *FAST, option, source, "--force")
    assert source.read_bytes() == before
    refused(done, 2, "a.png")


@pytest.mark.parametrize("pair", [("-o", "--residual"), ("-o", "--compare"), ("--residual", "--compare")])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_two_results_never_go_to_one_file(pair: tuple[str, str], force: tuple[str, ...], tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    same = tmp_path / "same.png"
    arguments = {"-o": tmp_path / "out.png"} | dict.fromkeys(pair, same)
    flat = [part for item in arguments.items() for part in item]
    refused(run("denoise", tmp_path / "a.png", *flat, *FAST, *force), 2, "same.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("option", ["--residual", "--compare", "--save-transform"])
def test_other_results_are_not_overwritten_either(option: str, tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    target = tmp_path / "kept.png"
    target.write_text("precious")
    done = run("denoise", tmp_path / "a.png", *FAST, option, target)
    assert target.read_text() == "precious"
    refused(done, 2, "kept.png", "--force")
    assert not (tmp_path / "a_denoised.png").exists()  # refused before any work
    assert run("denoise", tmp_path / "a.png", *FAST, option, target, "--force").code == 0
    assert target.read_bytes() != b"precious"


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="Linux has names that are no text")
@pytest.mark.parametrize("name", [b"bad\xff.png", b"two\nlines.png", "Überschuß 写真.png".encode()])
def test_strange_file_names(name: bytes, tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(name)
    Image.fromarray(scene()).save(source, "png")
    done = run("denoise", source, *FAST)  # stdout takes proper text only, as on a UTF-8 terminal
    assert (done.code, done.stderr) == (0, "")
    assert len(done.text.splitlines()) == 1
    assert source.with_name(f"{source.stem}_denoised.png").exists()
    report = run("denoise", source, *FAST, "--force", "--json").report
    assert report["files"][0]["error"] is None


def test_a_name_that_is_too_long_for_the_disk_is_told(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    for option in ("-o", "--residual", "--compare"):
        done = run("denoise", tmp_path / "a.png", *FAST, option, tmp_path / f"{'x' * 300}.png")
        refused(done, 1, "xxx.png cannot be written (File name too long); choose another output.")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


# --- residual and comparison --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_residual_and_comparison(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    unit = 257 if dtype == "uint16" else 1
    noisy = scene(shape).astype(dtype) * np.dtype(dtype).type(unit)
    np.save(tmp_path / "a.npy", noisy)
    residual, compare = tmp_path / "r.npy", tmp_path / "c.npy"
    done = run("denoise", tmp_path / "a.npy", *FAST, "--residual", residual, "--compare", compare)
    assert done.code == 0
    denoised, removed, joined = (np.load(path) for path in (tmp_path / "a_denoised.npy", residual, compare))
    assert removed.dtype == noisy.dtype
    middle = 0 if dtype == "float32" else 128 * unit
    np.testing.assert_allclose(noisy.astype(float), denoised.astype(float) + removed - middle, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(joined, np.concatenate((noisy, denoised, removed), axis=1))
    assert (removed.astype(float) - middle).std() == pytest.approx(20 * unit, rel=0.2)


def test_residual_of_sigma_zero_is_flat_grey(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    assert run("denoise", tmp_path / "a.png", "--sigma", 0, "--residual", tmp_path / "r.png").code == 0
    assert set(np.unique(np.asarray(Image.open(tmp_path / "r.png")))) == {128}


# --- seeds and threads --------------------------------------------------------------------------------


LEARNT_BEST = ("--quality", "best", "--method", "procrustes")


@pytest.mark.parametrize("quality", [SMALL, ("--sigma", "10"), ("--sigma", "10", *LEARNT_BEST)], ids=str)
def test_the_seed_decides_and_the_threads_do_not(quality: tuple[str, ...], tmp_path: Path) -> None:
    Image.fromarray(scene((90, 300))).save(tmp_path / "a.png")  # several bands of work
    results = {}
    for jobs, seed in ((1, 0), (3, 0), (1, 1)):
        out = tmp_path / f"{jobs}_{seed}.png"
        done = run("denoise", tmp_path / "a.png", "-o", out, *quality, "--jobs", jobs, "--seed", seed)
        assert done.code == 0
        results[jobs, seed] = out.read_bytes()
    assert results[1, 0] == results[3, 0]
    assert results[1, 0] != results[1, 1]


# --- options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quality", "method"),
    [
        *((("--preset", "paper", "--sigma", "20"), method) for method in PAPER_METHODS),
        *(((*quality, "--sigma", "10"), method) for quality in ((), ("--quality", "best")) for method in METHODS.names),
    ],
    ids=str,
)
def test_every_method_denoises(method: str, quality: tuple[str, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene((140, 160)))
    more = LEARNING if METHODS[method].learns else ()
    done = run("denoise", tmp_path / "a.npy", *quality, "--patch-size", 6, *more, "--method", method, "--json")
    assert done.report["files"][0]["transform"]["method"] == method
    assert np.load(tmp_path / "a_denoised.npy").std() < 0.9 * scene().std()


@pytest.mark.parametrize(
    ("quality", "option", "value"),
    [
        (LEARNT_BEST, "--density", 0.2),
        (("--quality", "fast"), "--error-scale", 0.9),
        ((), "--max-condition", 1.1),
        ((), "--method", "dsect"),
        (("--preset", "paper"), "--rounds", 1),
        (("--preset", "paper"), "--iterations", 3),
        (("--preset", "paper", "--method", "dct"), "--canonical", "haar"),
    ],
    ids=str,
)
def test_settings_are_reported(quality: tuple[str, ...], option: str, value: float | str, tmp_path: Path) -> None:
    """Once for the run as they were asked for, and for each file as they were used; their effect: see the matrix."""
    np.save(tmp_path / "a.npy", scene((40, 50)))
    size = ("--patch-size", 8) if option == "--canonical" else ()
    report = run("denoise", tmp_path / "a.npy", "--sigma", 10, *quality, *size, option, value, "--json").report
    key = option.removeprefix("--").replace("-", "_")
    for settings in (report["settings"], report["files"][0]["settings"]):
        assert (settings | settings.get("learn", {}))[key] == value


def test_bounds_of_standard_are_kept_exactly(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene((120, 130)))
    for options, condition, density in (((), 1.25, 0.3), (("--max-condition", 1.1, "--density", 0.15), 1.1, 0.15)):
        done = run("denoise", tmp_path / "a.npy", "--sigma", 10, *options, "--force", "--json")
        transform = done.report["files"][0]["transform"]
        assert 1 < transform["condition"] <= condition
        assert 1 / 121 < transform["density"] <= density


@pytest.mark.parametrize("quality", [(), LEARNT_BEST, ("--preset", "paper", "--rounds", 2)], ids=str)
def test_a_transform_can_be_the_start_of_learning(quality: tuple[str | int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene((120, 130)))
    common: tuple[str | int, ...] = ("--sigma", 10, "--json", "--force", *quality)
    first = run("denoise", tmp_path / "a.npy", *common, "--save-transform", tmp_path / "t.npz", "--patch-size", 7)
    used = np.load(tmp_path / "a_denoised.npy")
    assert first.report["files"][0]["transform"]["patch_size"] == 7
    more = ("--transform", tmp_path / "t.npz", "--adapt", "--save-transform", tmp_path / "u.npz")
    done = run("denoise", tmp_path / "a.npy", *common, *more)
    assert done.code == 0, done.stderr
    assert done.report["settings"]["adapt"] is True
    assert done.report["files"][0]["transform"]["patch_size"] == 7
    assert not np.array_equal(np.load(tmp_path / "a_denoised.npy"), used)
    assert (tmp_path / "t.npz").read_bytes() != (tmp_path / "u.npz").read_bytes()


def test_adapting_needs_something_to_start_from_and_to_learn(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene())
    Image.fromarray(scene()).save(tmp_path / "a.png")
    assert run("denoise", tmp_path / "a.png", *SMALL, "--save-transform", tmp_path / "t.npz").code == 0
    given = ("denoise", tmp_path / "a.npy", "--adapt")
    refused(run(*given), 2, "--adapt", "transform")
    for more in (("--quality", "fast"), ("--method", "dct")):
        refused(run(*given, "--transform", tmp_path / "t.npz", *more), 2, "--adapt", more[1])


def test_a_quality_and_a_preset_are_not_given_together(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene())
    refused(run("denoise", tmp_path / "a.npy", "--quality", "best", "--preset", "paper"), 2, "--quality", "--preset")
    refused(run("denoise", tmp_path / "a.npy", "--rounds", 3), 2, "--rounds", "paper", "standard")


def test_bounds_are_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", scene())
    options = ("--max-condition", 3, "--density", 0.1, "--patch-size", 8)
    transform = run("denoise", tmp_path / "a.npy", *SMALL, *options, "--json").report["files"][0]["transform"]
    assert transform["condition"] <= 3
    assert transform["density"] <= 0.1
    assert transform["patch_size"] == 8


# --- what is printed ----------------------------------------------------------------------------------


def test_json_has_the_promised_keys_and_stdout_nothing_else(tmp_path: Path) -> None:
    Image.fromarray(scene((48, 64, 3))).save(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes(b"")
    done = run_process("denoise", tmp_path / "a.png", tmp_path / "broken.png", *SMALL, "--json")
    assert done.code == 1
    report = done.report
    assert list(report) == ["command", "version", "settings", "files", "summary"]
    assert (report["command"], report["version"]) == ("denoise", __version__)
    assert report["summary"] == {"done": 1, "unchanged": 0, "failed": 1, "resumed": 0, "skipped": 0}
    assert {"sigma", "seed", "patch_size", "learn"} <= report["settings"].keys()
    good, bad = report["files"]
    picture = {"input", "output", "width", "height", "pages", "channels", "dtype"}
    assert picture | {"sigma", "sigma_source", "seconds", "warnings", "settings", "transform", "error"} <= good.keys()
    assert (good["input"], good["output"]) == (str(tmp_path / "a.png"), str(tmp_path / "a_denoised.png"))
    assert (good["width"], good["height"], good["channels"], good["dtype"]) == (64, 48, 3, "uint8")
    assert (good["sigma"], good["sigma_source"], good["error"]) == (20, "given", None)
    assert good["seconds"] > 0
    transform = good["transform"]
    assert {"method", "patch_size", "condition", "density", "frobenius_norm"} <= transform.keys()
    assert (transform["method"], transform["patch_size"]) == ("dsect", 6)
    assert transform["condition"] == pytest.approx(1, abs=1e-9)
    assert 0 < transform["density"] <= 1
    assert transform["frobenius_norm"] == pytest.approx(np.sqrt(36 / 2))
    assert bad["input"] == str(tmp_path / "broken.png")
    assert bad["error"] == done.sentences[0]
    assert len(done.sentences) == 1


def test_json_of_an_unchanged_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((30, 40), 7.0))
    for sigma in ("0", "auto"):
        record = run("denoise", tmp_path / "a.npy", "--sigma", sigma, "--force", "--json").report["files"][0]
        assert (record["sigma"], record["transform"], record["error"]) == (0, None, None)
        np.testing.assert_array_equal(np.load(tmp_path / "a_denoised.npy"), np.full((30, 40), 7.0))


def test_json_and_a_picture_never_share_stdout(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    refused(run("denoise", tmp_path / "a.png", "-o", "-", *FAST, "--json"), 2, "--json")
    refused(run("denoise", "-", "-o", "-", *FAST, "--json", stdin=data), 2, "--json")
    report = run("denoise", "-", "-o", tmp_path / "b.png", *FAST, "--json", stdin=data).report
    assert report["files"][0]["output"] == str(tmp_path / "b.png")
    refused(run("denoise", "-", *FAST, "--json", stdin=data), 2, "--json")  # the picture goes to stdout here too


def test_the_sigma_given_is_the_sigma_told(tmp_path: Path) -> None:
    """To the last digit, in colour too."""
    np.save(tmp_path / "a.npy", scene((24, 30, 3)))
    for sigma in (20, 0.1, 7.3):
        done = run("denoise", tmp_path / "a.npy", "--method", "dct", "--sigma", sigma, "--force", "--json")
        record = done.report["files"][0]
        assert (record["sigma"], record["sigma_channels"]) == (sigma, [sigma] * 3)


def test_a_warning_about_colour_comes_once(tmp_path: Path) -> None:
    """All three channels have correlated noise, each of another strength."""
    noise = np.random.default_rng(0).standard_normal((150, 160, 3))
    blurred = np.sum([np.roll(noise, (i, j), (0, 1)) for i in range(3) for j in range(3)], axis=0) / 3
    Image.fromarray(np.uint8(np.clip(128 + blurred * (10, 15, 20), 0, 255))).save(tmp_path / "a.png")
    white = ("denoise", tmp_path / "a.png", "--quality", "fast", "--noise", "white", "--force")
    done = run(*white)
    assert done.code == 0
    assert len(done.sentences) == 1
    assert "scales disagree" in done.sentences[0]
    assert not run("denoise", tmp_path / "a.png", "--quality", "fast", "--force").sentences  # read as what it is
    record = run(*white, "--json").report["files"][0]
    assert record["warnings"] == [done.sentences[0].removeprefix(f"{tmp_path / 'a.png'}: ")]


def test_quiet_says_nothing(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    assert run("denoise", tmp_path / "a.png", *FAST, "-q") == Outcome(0, b"", "")
    assert run("denoise", tmp_path, *FAST, "--quiet", "--force") == Outcome(0, b"", "")
    refused(run("denoise", tmp_path / "missing.png", *FAST, "-q"), 1, "missing.png")


def test_quiet_and_verbose_contradict_each_other(tmp_path: Path) -> None:
    refused(run("denoise", tmp_path / "missing.png", "--quiet", "--verbose"), 2, "--quiet", "--verbose")
    refused(run("denoise", tmp_path / "missing.png", "-q", "-v"), 2, "--quiet", "--verbose")


@pytest.mark.parametrize("quality", [SMALL, ("--sigma", "10")], ids=str)
def test_verbose_shows_the_learning_and_then_the_delivered_transform_on_stderr(
    quality: tuple[str, ...], tmp_path: Path
) -> None:
    Image.fromarray(scene((120, 130))).save(tmp_path / "a.png")
    done = run("denoise", tmp_path / "a.png", *quality, "--iterations", 4, "-v")
    assert done.code == 0
    *updates, delivered = (line.split() for line in done.stderr.splitlines())
    assert [int(line[0]) for line in updates] == [1, 2, 3, 4]
    assert all({"error", "condition", "density"} <= set(line) for line in updates)
    assert len(done.text.splitlines()) == 1
    transform = run("denoise", tmp_path / "a.png", *quality, "--iterations", 4, "--force", "--json").report["files"][0][
        "transform"
    ]
    assert delivered == [
        "transform",
        "condition",
        f"{transform['condition']:.4f}",
        "density",
        f"{transform['density']:.3f}",
    ]


# --- dry run ------------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder with what is in them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_lists_what_the_run_then_does(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.png", "b.png", "deep/c.png"):
        Image.fromarray(scene()).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    out = tmp_path / "out"
    done = ("-o", f"{out}/", "--residual", tmp_path / "removed" / "a_residual.png")
    assert run("denoise", folder / "a.png", *done, *FAST).code == 0
    before = tree(tmp_path)
    common = ("denoise", folder, "-o", out, "--recursive", "--resume", "--residual", tmp_path / "removed", *FAST)
    planned = run(*common, "--dry-run")
    assert (planned.code, planned.stderr) == (0, "")
    assert tree(tmp_path) == before
    assert not (tmp_path / "removed" / "deep").exists()
    lines = planned.text.splitlines()
    assert len(lines) == 4
    assert run(*common).code == 0
    made = sorted(set(tree(tmp_path)) - set(before))
    listed = [part for line in lines[:-1] if " -> " in line for part in line.split(" -> ")[1].split(", ")]
    assert sorted(listed) == [str(tmp_path / name) for name in made]
    assert "1 other file" in lines[-1]


def test_a_dry_run_skips_what_is_done(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.fromarray(scene()).save(tmp_path / name)
    assert run("denoise", tmp_path / "a.png", *FAST).code == 0
    before = tree(tmp_path)
    planned = run("denoise", tmp_path / "a.png", tmp_path / "b.png", *FAST, "--resume", "--dry-run")
    assert planned.code == 0
    first, second, summary = sorted(planned.text.splitlines(), key=lambda line: "a.png" not in line)
    assert "a.png" in first
    assert "skipped" in first
    assert second == f"{tmp_path / 'b.png'} -> {tmp_path / 'b_denoised.png'}"
    assert summary.startswith("1 to denoise, 1 done before")
    assert tree(tmp_path) == before


def test_a_dry_run_refuses_what_the_run_would(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    (tmp_path / "a_denoised.png").write_text("precious")
    refused(run("denoise", tmp_path / "a.png", *FAST, "--dry-run"), 2, "a_denoised.png", "--force")
    refused(run("denoise", tmp_path / "a.png", *FAST, "--rounds", 2, "--dry-run"), 2, "--rounds")
    missing = run("denoise", tmp_path / "missing.png", *FAST, "--dry-run")
    assert missing.code == 1
    assert missing.sentences == [f"{tmp_path / 'missing.png'} does not exist; check the name."]
    assert "missing" not in missing.text


# --- mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", ["-1", "nan", "inf", "-inf", "twenty", "", "20,30", "1e999"])
def test_sigma_must_be_a_number_of_at_least_zero(sigma: str, tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    refused(run("denoise", tmp_path / "a.png", f"--sigma={sigma}"), 2, "--sigma", repr(sigma))
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


OUT_OF_RANGE = {
    "--density": ["0", "1.5", "nan"],
    "--max-condition": ["0.5", "nan"],
    "--patch-size": ["0", "33"],
    "--stride": ["0", "12"],
    "--error-scale": ["0", "nan", "inf"],
    "--iterations": ["-1"],
    "--train-patches": ["0"],
}


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option, bad in OUT_OF_RANGE.items() for value in bad]
)
def test_values_out_of_range(option: str, value: str, tmp_path: Path) -> None:
    refused(run("denoise", tmp_path / "missing.png", option, value), 2, option, value)


def test_sizes_that_do_not_fit_are_refused_by_the_option_that_says_them(tmp_path: Path) -> None:
    for options in (
        ("--quality", "best", "--patch-size", 3),
        ("--canonical", "hadamard"),
        ("--canonical", "haar", "--patch-size", 12),
        ("--quality", "fast", "--patch-size", 9),
    ):
        refused(run("denoise", tmp_path / "missing.png", *options), 2, "--patch-size")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sigma",),
        ("--no-such-option",),
        ("--sigm", "3"),
        ("--method", "bm3d"),
        ("--canonical", "wavelet"),
        ("--quality", "paper"),
        ("--preset", "none"),
        ("--jobs", "0"),
        ("--jobs", "many"),
        ("--seed", "-1"),
        ("--seed", "1.5"),
        ("--patch-size", "eight"),
        ("--density", "thin"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    done = run("denoise", tmp_path / "a.png", *arguments)
    assert (done.code, done.stdout) == (2, b"")
    assert "Traceback" not in done.stderr
    assert arguments[0] in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_wrong_usage_of_the_real_program(tmp_path: Path) -> None:
    for arguments in (("denoise",), ("denoise", "a.png", "--density", "0"), ("denois", "a.png"), ("--nonsense",)):
        done = run_process(*arguments, cwd=tmp_path)
        assert done.code == 2, arguments
        assert "Traceback" not in done.stderr
        assert done.stderr


def test_did_you_mean() -> None:
    assert "'denoise'" in run("denois", "a.png").stderr
    assert "--sigma" in run("denoise", "a.png", "--sigm", "3").stderr


def test_broken_pictures_get_one_sentence(tmp_path: Path) -> None:
    cmyk = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 4), np.uint8), "CMYK").save(cmyk, "jpeg")
    (tmp_path / "cmyk.jpg").write_bytes(cmyk.getvalue())
    np.save(tmp_path / "nan.npy", np.array([[1.0, np.nan], [np.inf, 2.0]]))
    np.save(tmp_path / "int.npy", np.zeros((4, 4), np.int64))
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty.png").touch()
    bad = {"cmyk.jpg": "CMYK", "nan.npy": "2 values", "int.npy": "int64", "text.png": "not a picture"}
    for name, words in (bad | {"empty.png": "empty", "missing.png": "does not exist"}).items():
        refused(run("denoise", tmp_path / name, *FAST), 1, name, words)
    refused(run_process("denoise", tmp_path / "text.png", *FAST), 1, "text.png")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run_process("denoise", tmp_path / "a.png", "--transform", tmp_path / "missing.npz", "--debug")
    assert done.code == 1
    assert "Traceback" in done.stderr
    assert "missing.npz" in done.stderr


# --- transform files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(60, 64), (60, 64, 3), (120, 130, 3)])
@pytest.mark.parametrize("quality", [*QUALITIES, ("--quality", "best", "--patch-size", "11")], ids=str)
def test_a_kept_transform_gives_the_bytes_of_the_run_that_made_it(
    quality: tuple[str, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """On small pictures too, where the result is averaged with that of the canonical transform."""
    Image.fromarray(scene(shape)).save(tmp_path / "a.png")
    kept, common = tmp_path / "t.npz", ("denoise", tmp_path / "a.png", "--json")
    first = run(*common, *quality, "--save-transform", kept)
    again = run(*common, *quality[:2], "-o", tmp_path / "b.png", "--transform", kept)
    assert again.report["files"][0]["transform"] == first.report["files"][0]["transform"]
    assert again.report["settings"]["transform"] == str(kept)
    assert (tmp_path / "b.png").read_bytes() == (tmp_path / "a_denoised.png").read_bytes()


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_a_kept_transform_of_any_method_gives_the_bytes_of_the_run_that_made_it(method: str, tmp_path: Path) -> None:
    Image.fromarray(scene((48, 64, 3))).save(tmp_path / "a.png")
    kept, paper = tmp_path / "t.npz", ("--preset", "paper", "--sigma", "20")
    learning = ("--rounds", "2", *LEARNING) if METHODS[method].learns else ()
    options = (*paper, *learning, "--patch-size", "6", "--method", method, "--save-transform", kept)
    assert run("denoise", tmp_path / "a.png", *options).code == 0
    done = run("denoise", tmp_path / "a.png", "-o", tmp_path / "b.png", *paper, "--transform", kept, "--json")
    assert done.report["files"][0]["transform"]["method"] == method
    assert (tmp_path / "b.png").read_bytes() == (tmp_path / "a_denoised.png").read_bytes()


def test_a_kept_transform_says_where_it_is_from(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    options = (*SMALL, "--seed", 5, "--iterations", 7, "--save-transform", tmp_path / "t.npz")
    done = run("denoise", tmp_path / "a.png", *options, "--json")
    with np.load(tmp_path / "t.npz", allow_pickle=False) as stored:
        about = json.loads(str(stored["provenance"]))
        assert about["settings"]["seed"] == 5
        assert about["sigma"] == 20
        assert stored["history"].shape == (7, 5)
        reported = done.report["files"][0]["transform"]
        assert float(stored["condition"]) == reported["condition"]
        assert float(stored["density"]) == reported["density"] == len(stored["values"]) / 36**2
        assert float(stored["frobenius_norm"]) == reported["frobenius_norm"]
        assert (str(stored["method"]), int(stored["patch_size"])) == ("dsect", 6)


def test_one_transform_is_kept_of_one_picture(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    shutil.copy(tmp_path / "a.png", tmp_path / "b.png")
    both = run("denoise", tmp_path / "a.png", tmp_path / "b.png", *FAST, "--save-transform", tmp_path / "t.npz")
    refused(both, 2, "--save-transform")
    assert not (tmp_path / "t.npz").exists()


def test_nothing_is_learnt_with_sigma_0_and_so_nothing_is_kept(tmp_path: Path) -> None:
    """Refused before any work: also where there is no such picture."""
    Image.fromarray(scene()).save(tmp_path / "a.png")
    for name in ("a.png", "missing.png"):
        done = run("denoise", tmp_path / name, "--sigma", 0, "--save-transform", tmp_path / "t.npz")
        refused(done, 2, "--save-transform", "--sigma")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_picture_without_noise_and_a_transform_to_keep(tmp_path: Path) -> None:
    """That there is none is seen on the way: nothing is written, neither the picture nor an empty transform."""
    Image.fromarray(np.full((40, 50), 99, np.uint8)).save(tmp_path / "a.png")
    options = ("--save-transform", tmp_path / "t.npz", "--residual", tmp_path / "r.png")
    refused(run("denoise", tmp_path / "a.png", *options), 1, "a.png", "no noise", "t.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("kind", ["text", "cut", "an array", "newer", "singular", "a folder", "missing"])
def test_a_wrong_transform_file_stops_the_run(kind: str, tmp_path: Path) -> None:
    """More of them are in tests/transforms/test_transform_files.py."""
    Image.fromarray(scene()).save(tmp_path / "a.png")
    path = tmp_path / "t.npz"
    assert run("denoise", tmp_path / "a.png", "-o", "-", *FAST, "--save-transform", path).code == 0
    data = path.read_bytes()
    with np.load(path) as stored:
        entries = dict(stored)
    if kind == "text":
        path.write_text("no transform")
    elif kind == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "an array":
        path = tmp_path / "t.npy"
        np.save(path, np.eye(36))
    elif kind == "newer":
        np.savez(path, **(entries | {"format": np.int64(99)}))
    elif kind == "singular":
        np.savez(path, **(entries | {"values": np.r_[0.0, entries["values"][1:]]}))
    else:
        path = tmp_path if kind == "a folder" else tmp_path / "no.npz"
    refused(run("denoise", tmp_path / "a.png", "--sigma", 20, "--transform", path), 1, path.name)
    assert not (tmp_path / "a_denoised.png").exists()


def test_a_wrong_transform_file_and_the_real_program(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    (tmp_path / "t.npz").write_text("no transform")
    refused(run_process("denoise", tmp_path / "a.png", "--transform", tmp_path / "t.npz"), 1, "t.npz")


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_an_extreme_transform_is_refused_or_gives_a_picture(scale: float, tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    path, out = tmp_path / "t.npz", tmp_path / "b.png"
    assert run("denoise", tmp_path / "a.png", "-o", "-", *FAST, "--save-transform", path).code == 0
    with np.load(path) as stored:
        entries = dict(stored)
    np.savez(path, **(entries | {"values": entries["values"] * scale}))
    done = run("denoise", tmp_path / "a.png", "-o", out, "--sigma", 20, "--transform", path)
    if done.code == 0:
        result = np.asarray(Image.open(out)).astype(int)
        assert abs(result.mean() - scene().mean()) < 3
        assert result.std() < 1.05 * scene().std()
    else:
        refused(done, 1)


def test_the_plan_is_told_on_request(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    iio.imwrite(tmp_path / "a.png", pixels)
    plain = run("denoise", tmp_path / "a.png", *FAST, "--json").report["files"][0]
    assert "plan" not in plain
    plan = run("denoise", tmp_path / "a.png", *FAST, "--json", "-v", "--force").report["files"][0]["plan"]
    assert plan["shape"] == [40, 50]
    assert plan["noise"] == {"kind": "white", "sigmas": [20.0] * 3}
    assert plan["statistics"]["clipped"] == np.mean((pixels == 0) | (pixels == 255))


@pytest.mark.parametrize("amount", ["600M", "2G", "1.5 GiB", "4000000"])
def test_little_memory_gives_the_same_bytes(amount: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    iio.imwrite(tmp_path / "a.png", np.random.default_rng(0).integers(0, 256, (90, 80)).astype(np.uint8))
    for name, options in (
        ("b", ()),
        ("c", ("--max-memory", amount, "--scratch", scratch)),
        ("d", ("--max-memory", "9K")),
    ):
        assert run("denoise", tmp_path / "a.png", *FAST, "-o", tmp_path / f"{name}.png", *options).code == 0
    assert len({(tmp_path / f"{name}.png").read_bytes() for name in "bcd"}) == 1
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("wrong", ["0", "much", "-1M", "nan", "1X", ""])
def test_amounts_that_are_none_are_refused(wrong: str) -> None:
    refused(run("denoise", "missing.png", f"--max-memory={wrong}"), 2, "--max-memory", "600M")
    refused(run("denoise", "missing.png", "--scratch", "missing"), 2, "--scratch", "folder")


def noisy_photograph(path: Path) -> None:
    """A photograph with strong white noise."""
    clean = scene((96, 128, 3)).astype(float)
    noisy = clean + np.random.default_rng(0).normal(0, 20, clean.shape)
    iio.imwrite(path, np.clip(np.rint(noisy), 0, 255).astype(np.uint8))


def test_strength_and_models_have_their_effect(tmp_path: Path) -> None:
    noisy_photograph(tmp_path / "a.png")
    white = ("denoise", tmp_path / "a.png", "--quality", "fast", "-o")
    told = run(*white, tmp_path / "1.png", "--sigma", 20, "--json", "-v").report["files"][0]
    (tmp_path / "model.json").write_text(json.dumps(told["plan"]["noise"]))
    (tmp_path / "plan.json").write_text(json.dumps(told["plan"]))
    for name, options in {
        "2": ("--noise", tmp_path / "model.json"),
        "3": ("--noise", tmp_path / "plan.json"),
        "4": ("--sigma", 40, "--strength", 0.5),
        "5": ("--sigma", 20, "--strength", 1.5),
        "6": ("--sigma", 20, "--chroma-strength", 2),
    }.items():
        assert run(*white, tmp_path / f"{name}.png", *options).code == 0
    pictures = {name: iio.imread(tmp_path / f"{name}.png") for name in "123456"}
    for name in "234":
        np.testing.assert_array_equal(pictures[name], pictures["1"])
    assert (pictures["5"] != pictures["1"]).any()
    assert (pictures["6"] != pictures["1"]).any()
    spread = {name: float(np.diff(pictures[name].astype(float), axis=0).std()) for name in "15"}
    assert spread["5"] < spread["1"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("no json", "JSON"), ("[1]", "JSON"), ("{}", "kind"), ('{"kind": "pink"}', "pink")],
)
def test_files_that_hold_no_model_are_refused(content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "m.json").write_text(content)
    done = run("denoise", tmp_path / "missing.png", "--noise", tmp_path / "m.json")
    refused(done, 1, "m.json", words)


def test_noise_is_told_once(tmp_path: Path) -> None:
    for noise in ("white", "poisson", "m.json"):
        refused(run("denoise", "missing.png", "--sigma", 20, "--noise", noise), 2, "--sigma", "--noise")
    refused(run("denoise", "missing.png", "--strength", 3), 2, "--strength")


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "bmp", "webp"])
def test_a_picture_without_noise_is_copied_and_counted_apart(suffix: str, tmp_path: Path) -> None:
    clean, noisy = tmp_path / f"clean.{suffix}", tmp_path / "noisy.png"
    Image.fromarray(np.tile(np.linspace(0, 255, 96).astype(np.uint8), (80, 1))).convert("RGB").save(clean)
    noisy_photograph(noisy)
    done = run("denoise", clean, noisy, "-o", tmp_path / "out", "--quality", "fast")
    assert done.code == 0
    assert "no noise found: copied unchanged" in done.text
    assert done.text.splitlines()[-1].startswith("1 denoised, 1 unchanged, 0 failed")
    assert (tmp_path / "out" / clean.name).read_bytes() == clean.read_bytes()
    report = run("denoise", clean, "-o", tmp_path / "b.png", "--quality", "fast", "--json").report
    assert report["summary"] == {"done": 0, "unchanged": 1, "failed": 0, "resumed": 0, "skipped": 0}
    assert report["files"][0]["unchanged"] is True
    np.testing.assert_array_equal(iio.imread(tmp_path / "b.png"), iio.imread(clean))


def test_what_lies_beside_a_copy_does_not_keep_it_from_being_one(tmp_path: Path) -> None:
    clean, out = tmp_path / "clean.jpg", tmp_path / "out.jpg"
    Image.fromarray(np.tile(np.linspace(0, 255, 96).astype(np.uint8), (80, 1))).save(clean)
    beside = ("--residual", tmp_path / "r.png", "--compare", tmp_path / "c.png")
    done = run("denoise", clean, "-o", out, *beside, "--quality", "fast")
    assert "no noise found: copied unchanged" in done.text
    assert out.read_bytes() == clean.read_bytes()
    assert set(np.unique(iio.imread(tmp_path / "r.png"))) == {128}
    assert iio.imread(tmp_path / "c.png").shape == (80, 3 * 96)


def test_sigma_zero_copies_a_jpeg_and_does_not_count_as_denoised(tmp_path: Path) -> None:
    noisy, out = tmp_path / "noisy.jpg", tmp_path / "out.jpg"
    Image.fromarray(scene((80, 96, 3))).save(noisy, quality=75)
    done = run("denoise", noisy, "-o", out, "--sigma", 0)
    assert "(sigma 0 given: copied unchanged, " in done.text
    assert out.read_bytes() == noisy.read_bytes()
    report = run("denoise", noisy, "-o", out, "--sigma", 0, "--force", "--json").report
    assert (report["summary"]["done"], report["summary"]["unchanged"]) == (0, 1)


@pytest.mark.parametrize("options", [("--strip",), ("--jpeg-quality", "50"), ("--crop", "8,8,40,40")], ids=str)
def test_what_is_written_anew_is_not_called_a_copy(options: tuple[str, ...], tmp_path: Path) -> None:
    clean = tmp_path / "clean.jpg"
    Image.fromarray(np.tile(np.linspace(0, 255, 96).astype(np.uint8), (80, 1))).save(clean)
    done = run("denoise", clean, *options, "--quality", "fast")
    assert "no noise found: nothing removed" in done.text
    assert "copied" not in done.text


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_turned_picture_that_loses_its_exif_data_is_told(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(scene((48, 64, 3))).save(tmp_path / "a.jpg", exif=exif)
    assert run("denoise", tmp_path / "a.jpg", "--sigma", 20, "--quality", "fast").sentences == []
    told = run("denoise", tmp_path / "a.jpg", "--sigma", 20, "--quality", "fast", "--force", "--strip").sentences
    assert len(told) == (orientation > 1)
    assert all("its EXIF data turned it upright" in line for line in told)


def test_strengths_are_told_beside_the_noise_that_they_change(tmp_path: Path) -> None:
    Image.fromarray(scene((48, 64, 3))).save(tmp_path / "a.png")
    options = ("--sigma", 20, "--quality", "fast", "--force")
    plain = run("denoise", tmp_path / "a.png", *options).text
    assert "(sigma 20 given, " in plain
    assert " at strength" not in plain
    half = run("denoise", tmp_path / "a.png", *options, "--strength", 0.5).text
    assert "(sigma 10 given at strength 0.5, " in half
    both = run("denoise", tmp_path / "a.png", *options, "--strength", 0.5, "--chroma-strength", 1.5).text
    assert " given at strength 0.5 and chroma strength 1.5, " in both


def test_the_sigma_to_try_is_in_the_units_of_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((64, 64), 0.5, np.float32))
    in_words = "--sigma X, in the units of the file,"
    assert f"copied unchanged; {in_words} would remove" in run("denoise", tmp_path / "a.npy").text
    refused(run("denoise", tmp_path / "a.npy", "--preview", tmp_path / "s.png"), 1, in_words)


def test_the_noise_of_a_later_page_is_told_where_the_first_has_none(tmp_path: Path) -> None:
    flat = np.full((80, 96), 100, np.uint8)
    tifffile.imwrite(tmp_path / "pages.tif", np.stack([flat, scene((80, 96)), flat]), photometric="minisblack")
    record = run("denoise", tmp_path / "pages.tif", "--quality", "fast", "--json").report["files"][0]
    assert record["unchanged"] is False
    assert record["sigma"] == pytest.approx(20, rel=0.2)
    assert record["transform"] is not None
    assert "(sigma 0 " not in run("denoise", tmp_path / "pages.tif", "--quality", "fast", "--force").text
