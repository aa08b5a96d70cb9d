"""What has no effect is refused in one sentence with exit code 2, before any file is read; the rest is taken.

The matrix of tests/denoising/test_options_matrix.py, through the command line.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from running import refused, run

from dstl_cli.denoising.qualities import QUALITIES
from dstl_cli.learning.methods import METHODS

OPTIONS: dict[str, Any] = {
    "canonical": "fourier",
    "patch_size": 6,
    "stride": 3,
    "error_scale": 0.8,
    "max_condition": 1.05,
    "density": 0.06,
    "iterations": 6,
    "rounds": 3,
    "train_patches": 1200,
    "seed": 5,
}


def quality_option(quality: str) -> tuple[str, str]:
    return ("--preset" if QUALITIES[quality].preset else "--quality"), quality


@pytest.fixture(scope="module")
def known_options() -> set[str]:
    """The options that the help names."""
    return set(re.findall(r"--[a-z][a-z-]+", run("denoise", "--help").text))


@pytest.mark.parametrize("quality", QUALITIES.names)
@pytest.mark.parametrize("method", [None, *METHODS.names])
@pytest.mark.parametrize("source", ["learnt", "given", "adapted"])
def test_every_cell_is_refused_before_any_file_is_read_or_taken(
    quality: str, method: str | None, source: str, known_options: set[str], tmp_path: Path
) -> None:
    """Neither the picture nor the transform exists: what is taken fails for that, with exit code 1."""
    missing = tmp_path / "missing.png"
    more = {
        "learnt": (),
        "given": ("--transform", tmp_path / "t.npz"),
        "adapted": ("--transform", tmp_path / "t.npz", "--adapt"),
    }
    for key, value in [("", None), *OPTIONS.items()]:
        given = ({} if method is None else {"method": method}) | ({key: value} if key else {})
        arguments = [part for name, item in given.items() for part in (f"--{name.replace('_', '-')}", item)]
        done = run("denoise", missing, *quality_option(quality), *more[source], *arguments)
        try:
            QUALITIES[quality].make(given, transform=source != "learnt", adapt=source == "adapted")
        except ValueError:
            refused(done, 2)
            named = set(re.findall(r"--[a-z][a-z-]+", done.sentences[0]))
            assert named
            assert named <= known_options
        else:
            refused(done, 1, "missing.png" if source == "learnt" else "t.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "bresler", "--density", 0.2),
        ("--method", "bresler", "--max-condition", 2),
        ("--method", "conditioned", "--density", 0.2),
        ("--method", "sparse-bresler", "--max-condition", 2),
        ("--method", "dct", "--iterations", 3),
        ("--method", "dct", "--train-patches", 3000),
        ("--quality", "fast", "--patch-size", 9),
        ("--quality", "fast", "--canonical", "haar"),
        ("--quality", "fast", "--method", "bresler"),
        ("--quality", "fast", "--iterations", 3),
        ("--quality", "best", "--stride", 2),
        ("--quality", "best", "--error-scale", 1.1),
        ("--rounds", 2),
        ("--preset", "paper", "--method", "bresler", "--max-condition", 2),
        ("--preset", "paper", "--method", "bresler", "--density", 0.2),
        ("--preset", "paper", "--method", "dct", "--rounds", 2),
        ("--preset", "paper", "--method", "procrustes"),
        *[
            ("--transform", "t.npz", *option)
            for option in (
                ("--method", "bresler"),
                ("--patch-size", 8),
                ("--canonical", "haar"),
                ("--iterations", 3),
                ("--density", 0.2),
                ("--max-condition", 2),
                ("--train-patches", 3000),
                ("--adapt", "--patch-size", 8),
                ("--adapt", "--method", "dct"),
            )
        ],
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_options_that_had_no_effect_are_refused(options: tuple[Any, ...], tmp_path: Path) -> None:
    refused(run("denoise", tmp_path / "missing.png", *options), 2)
