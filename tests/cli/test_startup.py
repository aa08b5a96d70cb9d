"""The program starts fast and everywhere: without a cache, without standard streams; and a slip is told in one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from running import (
    COMPILING,
    PACKAGE_FOLDER,
    Outcome,
    command,
    environment,
    refused,
    run,
    run_process,
    scene,
    temporaries,
    without_notice,
)
from typer.main import get_command

from dstl_cli.base.kernels import machine
from dstl_cli.base.progress import compiling
from dstl_cli.cli import app
from dstl_cli.cli.ending import interrupts
from dstl_cli.version import __version__

DCT = ("--method", "dct", "--patch-size", "6", "--sigma", "20")

NUMBERS = {"numpy", "numba", "llvmlite", "scipy", "threadpoolctl"}
PICTURES = {"PIL", "tifffile", "imagecodecs", "skimage", "matplotlib", "imageio"}
WATCHED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
"""


def imported(program: str, *arguments: str) -> tuple[Outcome, set[str]]:
    """Run a program in a fresh interpreter; what it printed, and the packages it imported."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WATCHED + program, *arguments],
        capture_output=True, env=environment(), check=False, timeout=300,
    )  # fmt: skip
    *lines, modules = done.stderr.decode().splitlines()
    names: list[str] = json.loads(modules)
    return Outcome(done.returncode, done.stdout, "\n".join(lines)), set(names)


MAIN = "from dstl_cli.cli.app import main\nmain()"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--version",), 0),
        (("--help",), 0),
        (("-h",), 0),
        (("denoise", "--help"), 0),
        (("reproduce", "-h"), 0),
        (("reproduce", "figure", "--help"), 0),
        (("denoise", "a.png", "--sigma=-1"), 2),
        (("denoise", "a.png", "--density", "0"), 2),
        (("denoise", "a.png", "--nonsense"), 2),
        (("denoise", "a.png", "-q", "-v"), 2),
        (("-V",), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_help_version_and_wrong_usage_import_nothing_heavy(arguments: tuple[str, ...], code: int) -> None:
    done, modules = imported(MAIN, *arguments)
    assert done.code == code
    assert not modules & (NUMBERS | PICTURES)
    assert not any(name.startswith("rich.progress") for name in modules)
    if "help" not in arguments[-1] and arguments[-1] != "-h":
        assert "rich" not in modules
    if arguments[0] in ("--version", "-V"):
        assert done.text == f"dstl {__version__}\n"


def test_the_package_alone_imports_nothing() -> None:
    program = "import dstl_cli\nassert dstl_cli.__version__\nassert 'denoise' in dstl_cli.__all__"
    done, modules = imported(program)
    assert done.code == 0, done.stderr
    assert not modules & (NUMBERS | PICTURES | {"typer", "rich"})
    done, modules = imported("from dstl_cli import *")
    assert done.code == 0, done.stderr
    assert "numpy" in modules
    assert not modules & ({"typer", "rich", "scipy"} | PICTURES)


@pytest.mark.parametrize("arguments", [DCT, ("--quality", "fast")], ids=["told", "estimated"])
def test_a_run_leaves_out_what_it_does_not_need(arguments: tuple[str, ...], tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    done, modules = imported(MAIN, "denoise", str(tmp_path / "a.png"), *arguments)
    assert done.code == 0, done.stderr
    assert "numpy" in modules
    assert not modules & {"skimage", "matplotlib", "imageio", "pandas"}
    unneeded = {"scipy.fft", "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal"}
    assert not modules & unneeded  # numba asks scipy for its version
    done, modules = imported(MAIN, "denoise", str(tmp_path / "a.png"), *arguments, "--force")
    assert done.code == 0, done.stderr
    assert ("numba" in modules) != machine.SUPPORTED  # what was compiled is there by now


def test_little_is_loaded_before_the_program_hears_ctrl_c() -> None:
    """What comes before is Python's own, whose traceback nobody can keep back."""
    (_, before), (done, modules) = imported("pass"), imported("import dstl_cli.__main__")
    assert done.code == 0
    assert {name for name in modules - before if not name.startswith("dstl_cli")} == set()


def test_module_and_version() -> None:
    assert run_process("--version") == Outcome(0, f"dstl {__version__}\n".encode(), "")


def test_without_arguments_the_help_is_shown() -> None:
    done = run_process()
    assert "denoise" in done.text + done.stderr
    assert "Traceback" not in done.stderr


# --- compiling ----------------------------------------------------------------------------------------


def test_the_first_run_says_that_it_compiles(tmp_path: Path) -> None:
    """A damaged cache is compiled anew, once."""
    Image.fromarray(scene((20, 20))).save(tmp_path / "a.png")
    arguments = command("denoise", tmp_path / "a.png", "-o", tmp_path / "b.png", "--force", *DCT)
    kept = tmp_path / "kept"

    def stderr() -> str:
        own = environment() | {"NUMBA_CACHE_DIR": str(kept)}
        done = subprocess.run(arguments, capture_output=True, text=True, env=own, check=True, timeout=300)
        return done.stderr

    assert stderr() == COMPILING
    result = (tmp_path / "b.png").read_bytes()
    for path in kept.rglob("*.kernel"):
        path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    assert stderr() == COMPILING
    assert stderr() == ""
    assert (tmp_path / "b.png").read_bytes() == result


@pytest.mark.parametrize("wish", ["", "quiet", "json"])
def test_compiling_is_told_once_and_not_to_those_who_want_silence(wish: str, capfd: pytest.CaptureFixture[str]) -> None:
    def command(quiet: bool, json: bool) -> None:
        compiling()
        compiling()

    app.guarded(command)(quiet=wish == "quiet", json=wish == "json")
    assert capfd.readouterr().err == ("" if wish else COMPILING)
    compiling()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="a folder that no file can be put into is made the POSIX way")
def test_a_run_where_no_cache_can_be_written(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE_FOLDER / "dstl_cli", tmp_path / "dstl_cli", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (tmp_path / "dstl_cli").rglob("*"):
        if folder.is_dir():
            (folder / "__pycache__").touch()  # a file where the cache folder would be
    nowhere = {"PYTHONPATH": str(tmp_path), "HOME": os.devnull, "XDG_CACHE_HOME": os.devnull}
    cleared = {key: value for key, value in environment().items() if key != "NUMBA_CACHE_DIR"}
    Image.fromarray(scene((20, 20))).save(tmp_path / "a.png")
    done = subprocess.run(
        command("denoise", tmp_path / "a.png", *DCT),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=cleared | nowhere,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, COMPILING)
    assert (tmp_path / "a_denoised.png").exists()
    assert not list(tmp_path.rglob("*.kernel"))


# --- standard streams ---------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="streams are closed the POSIX way")
@pytest.mark.parametrize("redirection", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_the_work_is_done_without_standard_streams(redirection: str, tmp_path: Path) -> None:
    """What is to be said is dropped, never said elsewhere, and never written into a file of ours."""
    Image.fromarray(scene()).save(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")

    def redirected(*arguments: str | Path | float) -> Outcome:
        shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*arguments)]
        done = subprocess.run(shell, capture_output=True, cwd=tmp_path, env=environment(), check=False, timeout=300)
        return Outcome(done.returncode, done.stdout, without_notice(done.stderr.decode()))

    assert run("denoise", tmp_path / "a.png", *DCT, "-o", tmp_path / "expected.png").code == 0
    done = redirected("denoise", "a.png", "broken.png", "-o", "out", *DCT, "--json")
    assert done.code == 1
    assert (tmp_path / "out" / "a.png").read_bytes() == (tmp_path / "expected.png").read_bytes()
    if ">&-" in redirection.split():
        assert done.stdout == b""
    else:
        assert done.report["summary"]["done"] == 1
    assert done.stderr == ""
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.png"]
    if redirection == "2>/dev/full":
        return
    assert redirected("denoise", "a.png", *DCT, "--sigma", "-5").code == 2
    assert redirected("evaluate", "a.png", "out/a.png").code == 0
    assert redirected("inspect", "a.png").code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full stdout is made the POSIX way")
@pytest.mark.parametrize(
    "arguments",
    [
        ("denoise", "a.png", "b.png", "-o", "out", *DCT),
        ("denoise", "a.png", "b.png", "-o", "out", *DCT, "--json"),
        ("evaluate", "a.png", "b.png"),
        ("inspect", "a.png"),
        ("--help",),
    ],
    ids=" ".join,
)
def test_a_full_stdout_costs_a_sentence_and_no_work(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for seed, name in enumerate(("a.png", "b.png")):
        Image.fromarray(scene(seed=seed)).save(tmp_path / name)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(*arguments), stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(), check=False
        )
    outcome = Outcome(done.returncode, b"", without_notice(done.stderr.decode()))
    ours = "" if arguments == ("--help",) else "What was to be said cannot be written"  # help is the library's to say
    refused(outcome, 1, ours, "No space left on device")
    if arguments[0] == "denoise":
        assert len(list((tmp_path / "out").iterdir())) == 2


def test_names_that_stdout_has_no_letters_for_are_told_all_the_same(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "ü.png")
    poor = environment() | {"PYTHONIOENCODING": "ascii"}
    for arguments in (("denoise", "ü.png", *DCT), ("evaluate", "ü.png", "ü_denoised.png")):
        done = subprocess.run(command(*arguments), capture_output=True, cwd=tmp_path, env=poor, check=False)
        assert (done.returncode, without_notice(done.stderr.decode())) == (0, "")
        assert rb"\xfc" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("denoise", "{}*"),
        ("denoise", "a.png", "b.png", "-o", "{}.png"),
        ("denoise", "a.png", "-o", "{}.png", *DCT),
        ("inspect", "a.png", "--plot", "{}.png"),
        ("inspect", "{}"),
        ("evaluate", "a.png", "a.png", "--csv", "{}.csv"),
        ("train", "{}", "-o", "t.npz"),
        ("train", "a.png", "-o", "{}.npz", "--iterations", "1", "--train-patches", "500"),
        ("profile", "{}", "-o", "camera.json"),
        ("{}",),
        ("denoise", "--{}"),
    ],
    ids=" ".join,
)
def test_nothing_that_is_said_commands_the_terminal(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names may hold escape sequences; they are shown, not obeyed."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("a.png", "b.png")):
        Image.fromarray(scene(seed=seed)).save(name)
    done = run(*(word.replace("{}", "\x1b]0;red\x07\x9b31m") for word in arguments))
    said = done.text + done.stderr
    assert "0;red" in said
    assert all(character.isprintable() or character == "\n" for character in said)


# --- slips --------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[list[str], Any]]:
    """The words that call each command, and the command."""
    waiting: list[tuple[list[str], Any]] = [([], get_command(app.app))]
    while waiting:
        words, found = waiting.pop()
        waiting += [([*words, name], below) for name, below in getattr(found, "commands", {}).items()]
        yield words, found


COMMANDS = pytest.mark.parametrize(
    ("words", "found"), [pytest.param(*pair, id=" ".join(["dstl", *pair[0]])) for pair in commands()]
)


@COMMANDS
def test_a_slip_in_an_option_suggests_the_one_that_was_meant(words: list[str], found: Any) -> None:
    names = [name for option in found.params for name in option.opts if name.startswith("--")]
    slips = {name[:4] + name[5:]: name for name in names} | {name + "x": name for name in names}
    for slip, name in slips.items():
        if slip not in names:
            refused(run(*words, slip), 2, f"There is no option {slip} (did you mean", name)
    refused(run(*words, "--\x1b[31mred"), 2, "--\\x1b[31mred")


def test_names_that_other_programs_use_suggest_ours() -> None:
    refused(run("denoise", "a.png", "--noise", 20), 2, "a number goes to --sigma")
    refused(run("denoise", "a.png", "--threads", 2), 2, "did you mean --jobs?")
    refused(run("denoise", "a.png", "--xyzzy"), 2, "There is no option --xyzzy; see dstl denoise --help.")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("denois",), "'denoise'"),
        (("denoise",), "Missing argument"),
        (("train", "a.png"), "--output"),
        (("denoise", "a.png", "--jobs", "0"), "'--jobs'"),
        (("denoise", "a.png", "--jobs", "many"), "'--jobs'"),
        (("denoise", "a.png", "--seed", "-1"), "'--seed'"),
        (("denoise", "a.jpg", "--jpeg-quality", "0"), "'--jpeg-quality'"),
        (("denoise", "a.jpg", "--jpeg-quality", "101"), "'--jpeg-quality'"),
        (("denoise", "a.png", "--sigma"), "'--sigma'"),
    ],
)
def test_every_wrong_call_gets_one_sentence(arguments: tuple[str, ...], word: str) -> None:
    refused(run(*arguments), 2, word, "--help.")


@COMMANDS
def test_quiet_and_verbose_contradict_each_other(words: list[str], found: Any) -> None:
    if {"quiet", "verbose"} <= {option.name for option in found.params}:
        output = ("--output", "t.npz") if words == ["train"] else ()
        refused(run(*words, "missing.png", *output, "--quiet", "--verbose"), 2, "--quiet", "--verbose")


# --- ended from outside -------------------------------------------------------------------------------


WRITING = """
import os, sys, time
from dstl_cli.__main__ import program

def stall(handle):
    print("writing", file=sys.stderr, flush=True)
    time.sleep(60)

os.fsync = stall
program()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals to other processes are for POSIX systems")
@pytest.mark.parametrize("deaf", [False, True], ids=["foreground", "background"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_being_ended_by_the_system_is_like_ctrl_c(name: str, deaf: bool, tmp_path: Path) -> None:
    """In the middle of writing: no temporary file stays. Shells start background jobs with SIGINT ignored."""
    Image.fromarray(scene()).save(tmp_path / "a.png")
    how = signal.SIG_IGN if deaf else signal.SIG_DFL

    def started() -> None:
        """As a shell does it, whatever these tests themselves were told to ignore (by nohup)."""
        signal.signal(signal.SIGINT, how)
        signal.signal(signal.Signals[name], signal.SIG_DFL)

    arguments = ("denoise", str(tmp_path / "a.png"), "--sigma", "20", "--quality", "fast")
    assert run_process(*arguments, "-o", "-").code == 0  # from here on nothing is compiled, and written, in between
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITING, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=started,
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline() not in ("writing\n", ""):
            pass
        assert temporaries(tmp_path)
        process.send_signal(signal.Signals[name])
        stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "dstl: Interrupted; nothing was left half-written.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.skipif(os.name != "posix", reason="nohup is for POSIX systems")
def test_a_signal_that_is_ignored_stays_so() -> None:
    """As under nohup; and whoever calls the program from Python finds the handlers as they were."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


LOADING = """
import sys
from dstl_cli.__main__ import program

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {error}

sys.meta_path.insert(0, Stop())
program()
"""


def stopped_at(module: str, error: str, *arguments: str) -> Outcome:
    """Run the real program with an error at the import of a module."""
    program = LOADING.format(module=module, error=error)
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, env=environment(), check=False, timeout=300
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize("module", ["dstl_cli.base.atomic", "typer", "numpy"])
def test_ctrl_c_while_the_program_is_loaded(module: str, tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    done = stopped_at(module, "KeyboardInterrupt", "denoise", str(tmp_path / "a.png"), *DCT)
    refused(done, 130, "Interrupted; nothing was left half-written.")


SWALLOWED = """
import signal, sys, weakref
from dstl_cli.__main__ import program

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            thing = Stop()
            weakref.finalize(thing, signal.raise_signal, signal.{name})  # what a callback raises is only reported

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
sys.meta_path.insert(0, Stop())
program()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_that_python_swallows_ends_the_program_too(name: str, tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED.format(name=name), "denoise", str(tmp_path / "a.png"), *DCT],
        capture_output=True, env=environment(), check=False, timeout=300,
    )  # fmt: skip
    refused(Outcome(done.returncode, done.stdout, done.stderr.decode()), 130, "Interrupted; nothing was left")
    assert len(list(tmp_path.iterdir())) == 1


def test_ctrl_c_while_the_options_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(get_command(app.app).__class__, "make_context", wait)
    refused(run("denoise", "a.png"), 130, "Interrupted; nothing was left half-written.")


def test_what_nobody_foresaw_is_one_sentence_too(tmp_path: Path) -> None:
    Image.fromarray(scene()).save(tmp_path / "a.png")
    arguments = ("numpy", "RuntimeError('not \\n foreseen')", "denoise", str(tmp_path / "a.png"), *DCT)
    refused(stopped_at(*arguments), 1, "RuntimeError not foreseen", "--debug")
    done = stopped_at(*arguments, "--debug")
    assert done.code == 1
    assert "Traceback" in done.stderr
