"""How the tests of the command line run it, and the small pictures they run it on."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dstl_cli
from dstl_cli.cli import app

PACKAGE_FOLDER = Path(dstl_cli.__file__).resolve().parents[1]
TEMPORARY_PATTERN = "**/.*.dstl-tmp"
COMPILING = "dstl: The kernels are being compiled for this computer; this takes some seconds and is done once.\n"

Pixels = NDArray[Any]


@dataclass(frozen=True)
class Outcome:
    """What a run left behind on its three channels."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def sentences(self) -> list[str]:
        """The complaints on stderr, without the name of the program."""
        return [line.removeprefix("dstl: ") for line in self.stderr.splitlines() if line.startswith("dstl: ")]

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document = json.loads(self.text)
        assert isinstance(document, dict)
        return document


def run(*arguments: str | Path | float, stdin: bytes = b"") -> Outcome:
    """Run the program in this process: fast, and an unforeseen exception shows in the test."""
    stdout = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    stderr = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    code: object = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dstl", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        try:
            app.main()
        except SystemExit as error:
            code = error.code or 0
    assert isinstance(code, int)
    out, err = (stream.detach() for stream in (stdout, stderr))
    assert isinstance(out, io.BytesIO)
    assert isinstance(err, io.BytesIO)
    return Outcome(code, out.getvalue(), without_notice(err.getvalue().decode()))


def without_notice(stderr: str) -> str:
    """What a run said, but for the line that depends on whether another one has compiled the kernels before."""
    return stderr.replace(COMPILING, "", 1)


def command(*arguments: str | Path | float) -> list[str]:
    """The real program as a command line; warnings are errors there too."""
    return [sys.executable, "-W", "error", "-m", "dstl_cli", *map(str, arguments)]


def environment() -> dict[str, str]:
    """The environment of the real program: this package first, text as on a UTF-8 terminal, wide, without colours."""
    paths = [str(PACKAGE_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "200", "NO_COLOR": "1"}
    return os.environ | own


def run_process(*arguments: str | Path | float, stdin: bytes = b"", cwd: Path | None = None) -> Outcome:
    """Run the real program as a process of its own."""
    return outcome_of(command(*arguments), stdin=stdin, cwd=cwd)


def outcome_of(told: list[str], *, stdin: bytes = b"", cwd: Path | None = None) -> Outcome:
    """Run any command line with the environment of the real program."""
    done = subprocess.run(told, input=stdin, capture_output=True, cwd=cwd, env=environment(), check=False, timeout=300)
    return Outcome(done.returncode, done.stdout, without_notice(done.stderr.decode()))


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """The run ended with this code and one sentence that has the words; nothing on stdout, no traceback."""
    assert outcome.code == code, outcome
    assert outcome.stdout == b""
    assert "Traceback" not in outcome.stderr
    assert len(outcome.sentences) == 1, outcome.stderr
    assert outcome.stderr.strip() == f"dstl: {outcome.sentences[0]}"
    assert outcome.sentences[0].endswith(".")
    for word in words:
        assert word in outcome.sentences[0]


def scene(shape: tuple[int, ...] = (48, 64), sigma: float = 20.0, seed: int = 0) -> Pixels:
    """Slow waves around middle grey with noise, rounded to uint8; far enough from 0 and 255 not to clip."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    waves = 40 * np.sin(rows / 7) * np.cos(columns / 9)
    clean = 128 + (waves if len(shape) == 2 else waves[..., None] * np.linspace(1, 0.3, shape[2]))
    noise = np.clip(np.random.default_rng(seed).standard_normal(shape), -3.5, 3.5)
    return np.asarray(np.rint(np.clip(clean + sigma * noise, 0, 255)), dtype=np.uint8)


def temporaries(folder: Path) -> list[Path]:
    """Unfinished files below a folder."""
    return list(folder.glob(TEMPORARY_PATTERN))
