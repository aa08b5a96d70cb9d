"""Mutants of every kind of file: a result or one sentence, in bounded time and memory, and the process lives.

`python -m tests.fuzz` is the same by hand, and for longer.
"""

import io
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from . import corpus, mutate, targets

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = ROOT.parent / "shared" / "data" / "odd_files" / "hostile"
KINDS = {".npz": "transform", ".checkpoint": "checkpoint"}


def fuzzed(kept: Path, *arguments: str) -> None:
    """Run the seeded mutator in a process of its own, which must find nothing and live."""
    words = [sys.executable, "-m", "tests.fuzz", "--plain", "--kept", str(kept), *arguments]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    *wrong, last = done.stdout.splitlines() or [""]
    assert (done.returncode, wrong) == (0, []), done.stderr
    report = json.loads(last)
    assert report["failures"] == 0
    assert max(report["memory_MiB"], report["memory_of_decoders_MiB"]) < 1024


def test_two_thousand_mutants(tmp_path: Path) -> None:
    fuzzed(tmp_path, "--mutants", "2000", "--seed", "7")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_mutants(seed: int, tmp_path: Path) -> None:
    fuzzed(tmp_path, "--mutants", "25000", "--seed", str(seed))


@pytest.mark.parametrize("kind", targets.TARGETS)
def test_the_corpus_is_good_and_most_mutants_get_past_the_first_check(kind: str) -> None:
    """Else the mutants would try nothing: readers refuse what is not theirs at the first bytes."""
    for data in corpus.seeds()[kind]:
        assert targets.check(kind, data) == ""
    rng, known = random.Random(kind), corpus.seeds()[kind]
    mutants = [mutate.mutant(rng.choice(known), known, kind, rng) for _ in range(60)]
    assert len(set(mutants)) > 40
    if kind == "png":
        chunks = [mutate.png_chunks(data) for data in mutants if data.startswith(b"\x89PNG")]
        assert sum(mutate.joined_png(some) in mutants for some in chunks) > 30


@pytest.mark.parametrize("name", ["moments", "method.d", "method.v", "factor"])
def test_a_checkpoint_of_endless_numbers_is_refused(name: str) -> None:
    """Their products are infinite, with which the library of the singular values never ended; found by this fuzzer."""
    (data,) = corpus.seeds()["checkpoint"]
    with np.load(io.BytesIO(data)) as entries:
        arrays = dict(entries)
    key = f"training.{name}"
    if key not in arrays:
        pytest.skip("the method carries no such thing")
    arrays[key] = arrays[key] * 1e200 + 1e200
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    assert "not a usable checkpoint" in targets.check("checkpoint", stream.getvalue())


def test_a_checkpoint_whose_header_does_not_end_is_refused() -> None:
    """Numpy takes such headers apart as Python code, which raises errors of its own; found by this fuzzer."""
    (data,) = corpus.seeds()["checkpoint"]
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"(", b"((", 1).replace(b"  ", b" ", 1))
    assert "not a usable checkpoint" in targets.check("checkpoint", stream.getvalue())


@pytest.mark.slow
@pytest.mark.skipif(not HOSTILE.is_dir(), reason="the hostile files are not here")
def test_hostile_files_of_the_first_attack() -> None:
    """One process reads all of them; memory and time of each are within the bounds that `check` holds."""
    files = sorted(path for path in HOSTILE.iterdir() if path.is_file())
    assert len(files) > 50
    for path in files:
        targets.check(KINDS.get(path.suffix, "png"), path.read_bytes())
