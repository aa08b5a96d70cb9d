"""`dstl train`: what it reads, what it writes, and that nothing is lost when it is stopped."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from running import Outcome, command, environment, refused, run, run_process, temporaries

from dstl_cli import learn_transform
from dstl_cli.learning.methods import METHODS
from dstl_cli.learning.on_collection import PatchSample, Training
from dstl_cli.pixels.colour import luminance
from dstl_cli.run import training as train_run
from dstl_cli.run.collections import files_of, find_collection, without
from dstl_cli.transforms.files import load_transform

Pixels = NDArray[Any]

SMALL = ("--patch-size", 5, "--train-patches", 800, "--iterations", 12, "--batches", 3)


def drawing(seed: int, shape: tuple[int, ...] = (40, 48)) -> Pixels:
    """Bars at a random angle with a little noise, in 8 bit."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    a, b = rng.uniform(-0.5, 0.5, 2)
    bars = 128.0 + 70 * np.sign(np.sin(a * x + b * y + seed))
    grey = np.clip(bars + 3 * rng.standard_normal(bars.shape), 0, 255)
    return (grey if len(shape) == 2 else np.stack([grey, grey * 0.8, 255 - grey], axis=-1)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six pictures in a folder and folders below it."""
    top = tmp_path / "pictures"
    (top / "below" / "deep").mkdir(parents=True)
    for number, place in enumerate(("a.png", "b.png", "c.png", "below/a.png", "below/d.png", "below/deep/e.png")):
        Image.fromarray(drawing(number)).save(top / place)
    return top


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "T.npz"


def train(*arguments: str | Path | float) -> Outcome:
    return run("train", *arguments)


# What it makes.


def test_a_folder_becomes_a_transform_that_denoises(folder: Path, target: Path, tmp_path: Path) -> None:
    done = train(folder, "-o", target, *SMALL)
    assert done.code == 0, done.stderr
    assert "6 pictures, 800 patches, 12 iterations" in done.text
    assert done.stderr == ""
    stored = load_transform(target)
    transform = stored.transform
    assert (transform.method, transform.patch_size) == ("procrustes", 5)
    assert transform.condition <= 1.25
    assert transform.density <= 0.3
    assert len(stored.history) == 12
    assert stored.provenance["pictures"] == 6
    assert stored.provenance["cost"] < stored.provenance["canonical_cost"]
    assert not target.with_name("T.npz.checkpoint").exists()
    assert not temporaries(tmp_path)
    denoised = run("denoise", folder / "a.png", "--transform", target, "--sigma", 10, "-o", tmp_path / "out.png")
    assert denoised.code == 0, denoised.stderr


def test_the_same_command_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        assert train(folder, "-o", tmp_path / name, *SMALL, "--seed", seed).code == 0
    first = (tmp_path / "one").read_bytes()
    assert first == (tmp_path / "two").read_bytes()
    assert first != (tmp_path / "other").read_bytes()


def test_the_number_of_threads_does_not_matter(folder: Path, target: Path) -> None:
    from threadpoolctl import threadpool_limits

    found = set()
    for threads in (1, 2, 4):
        for seed in (0, 1):
            with threadpool_limits(limits=threads, user_api="blas"):
                options = ("--train-patches", 3000, "--iterations", 3, "--seed", seed)
                assert train(folder, "-o", target, *options, "--force").code == 0
            found.add(target.read_bytes())
    assert len(found) == 2  # one for each seed


@pytest.mark.parametrize("method", METHODS.names)
def test_every_method_trains(method: str, folder: Path, target: Path) -> None:
    done = train(folder, "-o", target, *(SMALL if METHODS[method].learns else ()), "--method", method)
    assert done.code == 0, done.stderr
    assert load_transform(target).transform.method == method


OTHER: dict[str, str | float] = {
    "--canonical": "fourier",
    "--patch-size": 6,
    "--sigma": 12.0,
    "--sparsity-level": 4,
    "--train-patches": 300,
    "--batches": 2,
    "--patience": 1,
    "--seed": 5,
    "--density": 0.5,
    "--max-condition": 1.1,
    "--frobenius-norm": 2.0,
    "--iterations": 4,
    "--l1-weight": 0.1,
    "--homotopy-steps": 3,
    "--clip": 0.01,
    "--freeze-at": 2,
    "--step-rule": "lipschitz",
    "--logdet-weight": 0.01,
}


def short(*options: str | float) -> list[str | float]:
    """The options, and those of a short training that are not among them and are taken with their method."""
    learns = METHODS[str(options[options.index("--method") + 1]) if "--method" in options else "procrustes"].learns
    others = {**dict(zip(SMALL[::2], SMALL[1::2], strict=True)), "--iterations": 100} if learns else {}
    return [*options, *(item for pair in others.items() if pair[0] not in options for item in pair)]


@pytest.mark.parametrize("method", METHODS.names)
def test_every_option_is_refused_or_changes_the_transform(method: str, folder: Path, target: Path) -> None:
    """The seed alone is taken by all: it promises the same bytes again."""
    assert train(folder, "-o", target, *short("--method", method)).code == 0
    plain = load_transform(target)
    taken = set()
    for option, value in OTHER.items():
        unread = run("train", "nowhere", "-o", target, "--method", method, option, value, "--force")
        assert unread.code == 2
        if "nowhere" not in unread.stderr:  # refused before any file was looked for
            assert option in unread.sentences[0]
            continue
        taken.add(option)
        done = train(folder, "-o", target, *short("--method", method, option, value), "--force")
        assert done.code == 0, done.stderr
        stored = load_transform(target)
        settings = stored.provenance["settings"]
        assert (settings | settings["learn"])[option[2:].replace("-", "_")] == value
        changed = not np.array_equal(stored.transform.matrix, plain.transform.matrix)
        if option == "--patience":  # the best T may have come before
            changed = len(stored.history) < len(plain.history)
        assert changed or (method, option) == ("dct", "--seed"), option
    own = {f"--{key.replace('_', '-')}" for key in METHODS[method].uses}
    every = {"--sigma", "--sparsity-level", "--train-patches", "--batches", "--patience", "--iterations"}
    expected = (own | every if METHODS[method].learns else set()) | {"--canonical", "--patch-size", "--seed"}
    assert taken == expected & OTHER.keys()


def test_the_settings_of_a_penalty_are_refused_beside_a_density(folder: Path, target: Path) -> None:
    for option in ("--l1-weight", "--homotopy-steps", "--clip"):
        for order in (("--density", 0.3, option, OTHER[option]), (option, OTHER[option], "--density", 0.3)):
            done = train(folder, "-o", target, "--method", "dsect", *order)
            refused(done, 2, f"{option} has no effect beside density")


def test_python_learns_as_the_program_does(folder: Path, target: Path) -> None:
    settings: dict[str, Any] = {"patch_size": 5, "train_patches": 800, "iterations": 12, "batches": 3}
    paths = [folder / place for place in ("a.png", "b.png", "c.png", "below/a.png")]
    pictures = [np.asarray(Image.open(path)) for path in paths]
    for changes in ({}, {"method": "dsect", "canonical": "fourier", "l1_weight": 0.02, "sigma": 10.0}):
        options = [(f"--{key.replace('_', '-')}", value) for key, value in (settings | changes).items()]
        done = train(*paths, "-o", target, *(item for pair in options for item in pair), "--force")
        assert done.code == 0, done.stderr
        stored, learnt = load_transform(target).transform, learn_transform(pictures, **settings | changes)
        np.testing.assert_array_equal(learnt.factor, stored.factor)
        assert (learnt.method, learnt.canonical) == (stored.method, stored.canonical)


def test_patience_stops_and_says_so(folder: Path, target: Path) -> None:
    changes = ("--patch-size", 5, "--train-patches", 500, "--iterations", 500, "--batches", 1, "--patience", 4)
    done = train(folder, "-o", target, *changes)
    assert done.code == 0, done.stderr
    assert "no better cost since" in done.text
    stored = load_transform(target)
    assert stored.provenance["stop_reason"] == "no improvement"
    assert len(stored.history) < 500


# Reading.


def test_any_format_depth_and_colour_is_read(tmp_path: Path, target: Path) -> None:
    import tifffile

    top = tmp_path / "mixed"
    top.mkdir()
    Image.fromarray(drawing(0, (40, 40, 3))).save(top / "colour.jpg", quality=95)
    Image.fromarray(drawing(1)).convert("RGBA").save(top / "alpha.webp", lossless=True)
    Image.fromarray(drawing(2)).save(top / "grey.bmp")
    np.save(top / "float.npy", drawing(3).astype(np.float32))
    tifffile.imwrite(top / "stack.tif", np.stack([drawing(n).astype(np.uint16) * 257 for n in (4, 5)]))
    done = run("train", top, "-o", target, *SMALL, "--json")
    assert done.code == 0, done.stderr
    assert done.report["summary"]["pictures"] == 5
    assert [text for text in done.sentences if "mixed" in text]


def test_pictures_are_learnt_from_as_the_denoiser_sees_them() -> None:
    grey, colour = drawing(0), drawing(0, (40, 48, 3))
    np.testing.assert_array_equal(luminance(grey), grey)
    np.testing.assert_array_equal(luminance(np.stack([grey] * 3, axis=-1)), grey)
    np.testing.assert_allclose(luminance(grey.astype(np.uint16) * 257).astype(np.float64), grey, rtol=1e-6)
    expected = colour.astype(np.float64).sum(axis=2) / np.sqrt(3)
    np.testing.assert_allclose(luminance(colour).astype(np.float64), expected, rtol=1e-5)


def test_unreadable_files_are_skipped_counted_and_named(folder: Path, target: Path) -> None:
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:300])
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "notes.txt").write_text("not a picture")
    Image.fromarray(drawing(0, (3, 60))).save(folder / "below" / "narrow.png")
    done = run("train", folder, "-o", target, *SMALL)
    assert done.code == 0
    assert len(done.sentences) == 3
    for name in ("broken.png", "empty.jpg", "narrow.png"):
        assert len([text for text in done.sentences if name in text and text.endswith(".")]) == 1
    assert "6 pictures" in done.text
    assert "3 files not readable, 1 other files skipped." in done.text
    report = run("train", folder, "-o", target, *SMALL, "--force", "--json").report
    assert (report["summary"]["unreadable"], report["summary"]["skipped"]) == (3, 1)
    assert {Path(item["input"]).name for item in report["errors"]} == {"broken.png", "empty.jpg", "narrow.png"}


def test_nothing_readable_is_a_wrong_usage(tmp_path: Path, target: Path) -> None:
    top = tmp_path / "bad"
    top.mkdir()
    refused(train(top, "-o", target), 2, "no pictures in", "bad")
    (top / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (top / "b.jpg").write_bytes(b"")
    done = train(top, "-o", target)
    assert done.code == 2
    assert len(done.sentences) == 3
    assert "None of the 2 files of PATH" in done.sentences[-1]
    assert os.listdir(tmp_path) == ["bad"]


def test_pictures_that_teach_nothing_are_a_wrong_usage(tmp_path: Path, target: Path) -> None:
    np.save(tmp_path / "unit.npy", drawing(0).astype(np.float32) / 255)
    refused(train(tmp_path / "unit.npy", "-o", target), 2, "stands out of noise of deviation 20", "smaller --sigma")
    done = train(tmp_path / "unit.npy", "-o", target, *SMALL, "--sigma", 0.08)
    assert done.code == 0, done.stderr
    np.save(tmp_path / "flat.npy", np.full((30, 30), 9, dtype=np.uint8))
    other = target.with_name("other.npz")
    refused(train(tmp_path / "flat.npy", "-o", other, "--sparsity-level", 3), 2, "flat")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), ("nowhere", "does not exist")),
        (("-",), ("standard input",)),
        (("*.nothing",), ("no pictures",)),
        (("",), ("empty name",)),
    ],
)
def test_wrong_inputs_are_refused(
    arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(train(*arguments, "-o", "T.npz"), 2, *words)


# Held-out pictures.


def test_held_out_pictures_measure_and_do_not_teach(folder: Path, target: Path) -> None:
    done = run("train", folder, "-o", target, *SMALL, "--validation", folder / "below", "--json")
    assert done.code == 0, done.stderr
    summary = done.report["summary"]
    assert (summary["pictures"], summary["held_out_pictures"]) == (3, 3)
    assert summary["held_out_patches"] == 80
    costs = [record["held_out_cost"] for record in done.report["history"]]
    assert len(costs) == 12
    assert summary["best_iteration"] == int(np.argmin(costs)) + 1
    stored = load_transform(target).provenance
    assert stored["held_out_cost"] == summary["held_out_cost"] < summary["held_out_canonical_cost"]
    alone = target.with_name("alone.npz")
    files = [folder / name for name in ("a.png", "b.png", "c.png")]
    assert train(*files, "-o", alone, *SMALL, "--validation", folder / "below").code == 0
    assert alone.read_bytes() == target.read_bytes()


def test_all_pictures_held_out_leave_none(folder: Path, target: Path) -> None:
    refused(train(folder, "-o", target, "--validation", folder), 2, "no pictures")


def test_a_collection_leaves_out_files_by_what_they_are(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "below")
    rest = without(find_collection([str(folder)]), find_collection([str(tmp_path / "link" / "a.png")]))
    assert [path.relative_to(folder).as_posix() for path in files_of(rest)] == [
        "a.png",
        "b.png",
        "c.png",
        "below/d.png",
        "below/deep/e.png",
    ]


# What it says.


def test_json(folder: Path, target: Path) -> None:
    done = run("train", folder, "-o", target, *SMALL, "--json")
    assert done.code == 0
    report = done.report
    assert report["command"] == "train"
    assert {"version", "settings", "output", "transform", "summary", "history", "errors"} <= report.keys()
    stored = load_transform(target)
    assert report["transform"]["condition"] == stored.transform.condition
    assert report["summary"]["coded_patches"] == 800 * (2 + 12 / 3)
    assert [record["number"] for record in report["history"]] == list(range(1, 13))


def test_verbose_shows_every_update_and_quiet_nothing(folder: Path, target: Path) -> None:
    loud = train(folder, "-o", target, *SMALL, "-v", "--validation", folder / "a.png")
    lines = loud.stderr.splitlines()
    assert len(lines) == 13
    assert {"error", "relative", "held", "condition", "density"} <= set(lines[0].split())
    assert [int(line.split()[0]) for line in lines[1:]] == list(range(1, 13))
    quiet = train(folder, "-o", target, *SMALL, "-q", "--force")
    assert (quiet.code, quiet.text, quiet.stderr) == (0, "", "")


def test_a_transform_that_is_no_better_than_the_dct_is_told(folder: Path, target: Path) -> None:
    done = train(folder, "-o", target, *SMALL, "--max-condition", 1, "--density", 0.04)
    assert done.code == 0
    assert [text for text in done.sentences if "no better than dct alone" in text]


def test_held_out_pictures_that_do_not_gain_are_told(folder: Path, target: Path) -> None:
    done = train(folder, "-o", target, *SMALL, "--validation", folder / "b.png")
    assert done.code == 0
    stored = load_transform(target).provenance
    assert stored["cost"] < stored["canonical_cost"]
    assert stored["held_out_cost"] >= stored["held_out_canonical_cost"]
    assert [text for text in done.sentences if "codes the held-out patches no better than dct alone" in text]


@pytest.mark.skipif(sys.platform != "linux", reason="others may promise memory they do not have")
def test_a_sample_that_does_not_fit_into_memory_is_told(folder: Path, target: Path) -> None:
    refused(train(folder, "-o", target, "--train-patches", 10**14), 1, "does not fit into memory", "--train-patches")


def test_a_disk_that_cannot_be_written_is_told_before_the_work(
    folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There even a checkpoint that is not there cannot be removed."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Training, "step", lambda training: pytest.fail("it began to learn"))
    refused(train(folder, "-o", target, *SMALL), 1, "T.npz cannot be written (Read-only file system)")


def test_force_forgets_an_unfinished_training(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else, stopped again at once, it would go on from the older one: pictures may have changed with the same size."""
    checkpoint = target.with_name("T.npz.checkpoint")
    checkpoint.write_bytes(b"older")
    stopping(monkeypatch, PatchSample, "add", 1, crash)
    with pytest.raises(PowerCut):
        train(folder, "-o", target, *SMALL, "--force")
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--patch-size", 0),
        ("--patch-size", 99),
        ("--density", 0),
        ("--density", "nan"),
        ("--max-condition", 0.5),
        ("--sigma", 0),
        ("--sigma", "inf"),
        ("--sparsity-level", 0),
        ("--sparsity-level", 500),
        ("--iterations", -1),
        ("--patience", 0),
        ("--train-patches", 0),
        ("--batches", 0),
        ("--seed", -1),
        ("--method", "magic"),
        ("--frobenius-norm", 0),
        ("--method", "dsect", "--freeze-at", 200),
        ("--method", "dsect", "--step-rule", "big"),
        ("--method", "dsect", "--l1-weight", -1),
        ("--sigma", 20, "--sparsity-level", 4),
        ("--resume", "--force"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    arguments: tuple[str | float, ...], folder: Path, target: Path
) -> None:
    done = train(folder, "-o", target, *arguments)
    assert done.code == 2
    assert done.text == ""
    assert str(arguments[0]) in done.stderr or arguments[0] == "--method"
    assert not target.exists()


def test_help_and_wrong_options_need_no_numbers() -> None:
    for arguments in (("--help",), ("x", "-o", "T.npz", "--density", "0")):
        program = f"import sys; sys.argv = {['dstl', 'train', *arguments]!r}\n"
        program += "from dstl_cli.cli.app import main\ntry: main()\nexcept SystemExit: print('numpy' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True
        )
        assert done.stdout.splitlines()[-1] == "False"


# Places.


def test_an_existing_transform_is_overwritten_only_with_force(folder: Path, target: Path) -> None:
    target.write_bytes(b"precious")
    refused(train(folder, "-o", target, *SMALL), 2, "T.npz exists", "--force")
    assert target.read_bytes() == b"precious"
    assert train(folder, "-o", target, *SMALL, "--force").code == 0
    load_transform(target)


def test_an_input_is_never_overwritten(folder: Path, tmp_path: Path) -> None:
    before = (folder / "a.png").read_bytes()
    refused(train(folder, "-o", folder / "a.png", "--force"), 2, "is an input")
    (tmp_path / "link.npz").symlink_to(folder / "a.png")
    refused(train(folder, "-o", tmp_path / "link.npz", "--force"), 2, "is an input")
    assert (folder / "a.png").read_bytes() == before


@pytest.mark.parametrize("link", [None, "soft", "hard"])
@pytest.mark.parametrize("option", ["PATH", "--validation"])
@pytest.mark.parametrize("how", ["--force", "--resume"])
def test_an_input_is_never_taken_for_a_checkpoint(
    link: str | None, option: str, how: str, folder: Path, target: Path
) -> None:
    """A checkpoint is written and removed; one that is an input would be lost."""
    checkpoint = target.with_name("T.npz.checkpoint")
    picture = checkpoint if link is None else target.with_name("precious.png")
    picture.write_bytes((folder / "a.png").read_bytes())
    if link == "soft":
        checkpoint.symlink_to(picture)
    elif link == "hard":
        checkpoint.hardlink_to(picture)
    given = (picture, folder) if option == "PATH" else (folder, "--validation", picture)
    refused(train(*given, "-o", target, *SMALL, how), 2, "T.npz.checkpoint is an input", "--output")
    assert picture.read_bytes() == checkpoint.read_bytes() == (folder / "a.png").read_bytes()
    assert not target.exists()


@pytest.mark.parametrize("output", ["-", "missing/T.npz", "."])
def test_impossible_outputs_are_refused(
    output: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(train(folder, "-o", output), 2, "--output")


# Stopping and going on.


@pytest.fixture
def whole(folder: Path, tmp_path: Path) -> bytes:
    """The transform of a training that was not stopped."""
    assert train(folder, "-o", tmp_path / "whole.npz", *SMALL, "--validation", folder / "b.png").code == 0
    return (tmp_path / "whole.npz").read_bytes()


def stopping(patch: pytest.MonkeyPatch, owner: type, name: str, call: int, stop: Callable[[], None]) -> None:
    """Let the call-th call of a method stop the program after it has done its work."""
    plain = getattr(owner, name)
    calls = iter(range(1, 10**6))

    def counted(*arguments: Any) -> Any:
        result = plain(*arguments)
        if next(calls) == call:
            stop()
        return result

    patch.setattr(owner, name, counted)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


class PowerCut(BaseException):
    """Nothing in the program handles it."""


def crash() -> None:
    raise PowerCut


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works as in a terminal, also where the tests themselves run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("call", [1, 5, 11])
def test_ctrl_c_keeps_the_best_and_resuming_ends_the_same(
    call: int, folder: Path, target: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (folder, "-o", target, *SMALL, "--validation", folder / "b.png")
    with monkeypatch.context() as patch:
        stopping(patch, Training, "step", call, interrupt)
        done = run("train", *arguments, "--json")
    assert done.code == 130
    assert len(done.sentences) == 1
    assert f"iteration {call} of 12" in done.sentences[0]
    assert "T.npz holds the best transform so far" in done.sentences[0]
    assert done.report["summary"]["stop_reason"] == "stopped"
    assert len(load_transform(target).history) == call
    refused(train(*arguments), 2, "unfinished", "--resume", "--force")
    resumed = train(*arguments, "--resume")
    assert resumed.code == 0, resumed.stderr
    assert target.read_bytes() == whole
    assert not target.with_name("T.npz.checkpoint").exists()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("call", [1, 4, 6])
def test_ctrl_c_while_reading_loses_nothing(
    call: int, folder: Path, target: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (folder, "-o", target, *SMALL, "--validation", folder / "b.png")
    with monkeypatch.context() as patch:
        stopping(patch, PatchSample, "add", call, interrupt)
        refused(train(*arguments), 130, "after reading", "--resume")
    assert not target.exists()
    read: list[int] = []
    plain = PatchSample.add

    def counted(self: PatchSample, image: Pixels, *place: int) -> None:
        read.append(place[0])
        plain(self, image, *place)

    monkeypatch.setattr(PatchSample, "add", counted)
    assert train(*arguments, "--resume").code == 0
    assert len(read) == 6 - call  # of five pictures to learn from and one held out
    assert target.read_bytes() == whole


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_ends_at_once(folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        interrupt()
        interrupt()

    stopping(monkeypatch, Training, "step", 3, twice)
    refused(train(folder, "-o", target, *SMALL), 130, "Interrupted")
    assert not target.exists()


def test_a_training_that_was_killed_goes_on_from_its_last_checkpoint(
    folder: Path, target: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (folder, "-o", target, *SMALL, "--validation", folder / "b.png")
    with monkeypatch.context() as patch:
        patch.setattr(train_run, "CHECKPOINT_SECONDS", 0.0)
        patch.setattr(train_run, "WRITING_SHARE", 1e9)
        stopping(patch, Training, "step", 8, crash)
        with pytest.raises(PowerCut):
            train(*arguments)
    assert not target.exists()
    with np.load(target.with_name("T.npz.checkpoint"), allow_pickle=False) as entries:
        assert len(entries["training.history"]) == 7
    assert train(*arguments, "--resume").code == 0
    assert target.read_bytes() == whole


EAGER = (
    "from dstl_cli.run import training\n"
    "training.CHECKPOINT_SECONDS, training.WRITING_SHARE = 0.0, 1e9\n"
    "from dstl_cli.__main__ import program\n"
    "program()"
)  # the program with a checkpoint after every file and update


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_real_program_stops_and_goes_on(kind: signal.Signals, folder: Path, target: Path) -> None:
    arguments = (folder, "-o", target, "--patch-size", 6, "--train-patches", 800, "--batches", 2, "--iterations", 300)
    options = ("--patience", 1000, "-v")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", EAGER, "train", *map(str, (*arguments, *options))],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.split()[0] == "20":
                process.send_signal(kind)
                break
        rest = process.stderr.read()
    if kind != signal.SIGKILL:
        assert process.returncode == 130, rest
        assert "T.npz holds the best transform so far" in rest.splitlines()[-1]
    else:
        assert process.returncode == -signal.SIGKILL, rest
        assert not target.exists()
    resumed = run_process("train", *arguments, *options, "--resume")
    assert resumed.code == 0, resumed.stderr
    assert int(resumed.stderr.splitlines()[1].split()[0]) >= 20
    other = target.with_name("other.npz")
    uninterrupted = run_process("train", folder, "-o", other, *arguments[3:], *options)
    assert uninterrupted.code == 0
    assert target.read_bytes() == other.read_bytes()


@pytest.mark.usefixtures("interruptible")
def test_a_checkpoint_of_another_training_is_refused(
    folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stopping(patch, Training, "step", 2, interrupt)
        assert train(folder, "-o", target, *SMALL).code == 130
    refused(train(folder, "-o", target, *SMALL, "--resume", "--seed", 1), 2, "other settings", "--force")
    Image.fromarray(drawing(77)).save(folder / "new.png")
    refused(train(folder, "-o", target, *SMALL, "--resume"), 2, "other pictures", "--force")
    assert train(folder, "-o", target, *SMALL, "--force").code == 0
    assert not target.with_name("T.npz.checkpoint").exists()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("kind", ["empty", "text", "cut", "no facts", "wrong shape", "list", "array", "objects"])
def test_a_spoilt_checkpoint_gets_one_sentence(
    kind: str, folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stopping(patch, Training, "step", 2, interrupt)
        assert train(folder, "-o", target, *SMALL).code == 130
    path = target.with_name("T.npz.checkpoint")
    whole = path.read_bytes()
    with np.load(path) as entries:
        arrays: dict[str, Any] = dict(entries)
    if kind in ("empty", "text", "cut"):
        path.write_bytes({"empty": b"", "text": b"hello", "cut": whole[: len(whole) // 2]}[kind])
    else:
        kinds: dict[str, dict[str, Any]] = {
            "no facts": {"checkpoint": np.str_("{}")},
            "list": {"checkpoint": np.str_("[1]")},
            "wrong shape": {"training.factor": np.eye(3)},
            "array": {"pictures.keys": np.eye(3)},
            "objects": {"training.factor": np.array([None])},
        }
        with path.open("wb") as stream:
            np.savez(stream, **arrays | kinds[kind])
    refused(train(folder, "-o", target, *SMALL, "--resume"), 1, "T.npz.checkpoint", "--force")


@pytest.mark.usefixtures("interruptible")
def test_too_little_memory_for_a_checkpoint_is_no_reason_to_give_it_up(
    folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        stopping(patch, Training, "step", 2, interrupt)
        assert train(folder, "-o", target, *SMALL).code == 130
    path = target.with_name("T.npz.checkpoint")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("dstl_cli.base.archives.np.load", no_memory)
        done = train(folder, "-o", target, *SMALL, "--resume")
    refused(done, 1, "T.npz.checkpoint", "memory")
    assert "--force" not in done.stderr
    assert path.read_bytes() == before
    assert train(folder, "-o", target, *SMALL, "--resume").code == 0


def test_resuming_what_was_never_begun_begins_and_what_is_done_is_left(folder: Path, target: Path) -> None:
    assert train(folder, "-o", target, *SMALL, "--resume").code == 0
    before = target.read_bytes()
    refused(train(folder, "-o", target, *SMALL, "--resume"), 2, "no training of it is unfinished")
    assert target.read_bytes() == before


# The whole of it, on photographs.


def photographs() -> dict[str, Pixels]:
    from skimage import data

    names = (
        "astronaut",
        "brick",
        "camera",
        "cell",
        "chelsea",
        "clock",
        "coffee",
        "coins",
        "grass",
        "gravel",
        "hubble_deep_field",
        "immunohistochemistry",
        "moon",
        "page",
        "retina",
        "rocket",
        "text",
    )
    return {name: np.asarray(getattr(data, name)()) for name in names}


@pytest.mark.slow
def test_photographs_denoise_better_with_what_others_taught(tmp_path: Path) -> None:
    for number, (name, pixels) in enumerate(photographs().items()):
        half = tmp_path / ("known", "new")[number % 2]
        half.mkdir(exist_ok=True)
        Image.fromarray(pixels if number % 2 == 0 else pixels[:512, :512]).save(half / f"{name}.png")
    target = tmp_path / "T.npz"
    done = run_process("train", tmp_path / "known", "-o", target, "--validation", tmp_path / "new", "--json")
    assert done.code == 0, done.stderr
    summary = done.report["summary"]
    assert summary["held_out_cost"] < summary["held_out_canonical_cost"]
    measured = run_process(
        "evaluate", tmp_path / "new", "--sigma", 20, "--method", "dct", "--transform", target, "--json"
    )
    assert measured.code == 0, measured.stderr
    means = {row["method"]: row["psnr"] for row in json.loads(measured.text)["mean"]}
    assert means["T.npz"] >= means["dct"] + 0.05


@pytest.mark.slow
def test_memory_does_not_grow_with_the_collection(tmp_path: Path) -> None:
    """A tenth of the 2000 pictures of a megapixel that were measured once; the sample is the same."""
    rng = np.random.default_rng(0)
    tile = drawing(1, (1024, 1024))
    peaks = []
    for count in (20, 200):
        top = tmp_path / str(count)
        top.mkdir()
        for number in range(count):
            pixels = np.roll(tile, tuple(rng.integers(0, 1024, 2)), axis=(0, 1))
            (top / f"{number}.pgm").write_bytes(b"P5\n1024 1024\n255\n" + pixels.tobytes())
        program = (
            "import resource, subprocess, sys\n"
            "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
            "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        whole = command("train", top, "-o", tmp_path / f"{count}.npz", "--iterations", 3)
        done = subprocess.run(
            [sys.executable, "-c", program, *whole], capture_output=True, text=True, env=environment(), check=True
        )
        code, peak = map(int, done.stdout.split())
        assert code == 0, done.stderr
        peaks.append(peak / 1024)
    assert max(peaks) < 1024
    assert peaks[1] < peaks[0] + 50
