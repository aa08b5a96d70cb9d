"""Fuzz the readers: `python -m tests.fuzz --minutes 5`; with Atheris (the extra `fuzz`) where it is installed."""

import argparse
import importlib.util
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType

from dstl_cli.picture.decoding.asking import end_children

from . import corpus, mutate, targets

HANGS = 60  # seconds


def mutants(kinds: list[str], seed: int) -> Iterator[tuple[str, int, bytes]]:
    """Mutants without end, of each kind in turn, and their numbers: the same for the same seed."""
    known = corpus.seeds()
    for number in count():
        kind = kinds[number % len(kinds)]
        rng = random.Random(f"{seed} {number}")
        yield kind, number, mutate.mutant(rng.choice(known[kind]), known[kind], kind, rng)


def _hang(number: int, frame: FrameType | None) -> None:
    raise targets.Violation(f"hung for {HANGS} s")


def plain(kinds: list[str], most: int | None, seconds: float | None, seed: int, kept: Path) -> int:
    """Fuzz with the seeded mutator: print what is wrong, and a line of JSON with how much was tried."""
    tried: Counter[str] = Counter()
    liked: Counter[str] = Counter()
    failures, slowest, start = 0, 0.0, time.monotonic()
    before = targets.peak_bytes()
    signal.signal(signal.SIGALRM, _hang)
    for kind, number, data in mutants(kinds, seed):
        if number == most or (seconds is not None and time.monotonic() - start > seconds):
            break
        began = time.process_time()
        (kept / "last").write_bytes(data)  # what a crash of the process was due to
        signal.alarm(HANGS)
        try:
            liked[kind] += not targets.check(kind, data)
        except targets.Violation as wrong:
            failures += 1
            (kept / f"{kind}-{seed}-{number}").write_bytes(data)
            print(f"{kind}, mutant {number} of seed {seed}: {wrong}", flush=True)
        signal.alarm(0)
        tried[kind] += 1
        slowest = max(slowest, time.process_time() - began)
    (kept / "last").unlink(missing_ok=True)
    grown = targets.peak_bytes() - before
    end_children()  # then their memory is known
    of_children = targets.peak_bytes(resource.RUSAGE_CHILDREN)
    told = {"mutants": sum(tried.values()), "failures": failures, "liked": liked, "slowest": round(slowest, 3)}
    told |= {"memory_MiB": round(grown / 2**20), "memory_of_decoders_MiB": round(of_children / 2**20)}
    print(json.dumps({**told, "seconds": round(time.monotonic() - start, 1)}))
    return min(failures, 1)


def main() -> int:
    """Fuzz the kinds that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(targets.TARGETS)} (all of them if none is given)")
    parser.add_argument("--minutes", type=float, help="how long")
    parser.add_argument("--mutants", type=int, help="how many, with the seeded mutator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="the seeded mutator, though Atheris is there")
    parser.add_argument("--kept", type=Path, default=Path("fuzz-findings"), help="folder for what is found")
    options = parser.parse_args()
    kinds = options.kinds or list(targets.TARGETS)
    options.kept.mkdir(exist_ok=True, parents=True)
    try:
        seconds = None if options.minutes is None else 60 * options.minutes
        if options.plain or options.mutants is not None or importlib.util.find_spec("atheris") is None:
            return plain(kinds, options.mutants, seconds, options.seed, options.kept)
        each = max(1, round((seconds or 300) / len(kinds)))
        codes = []
        for kind in kinds:
            words = [kind, "--seconds", str(each), "--seed", str(options.seed), "--kept", str(options.kept)]
            codes.append(subprocess.run([sys.executable, "-m", "tests.fuzz.guided", *words], check=False).returncode)
            print(f"{kind}: {'nothing found' if codes[-1] == 0 else f'see {options.kept}'}", flush=True)
        return int(any(codes))
    finally:
        shutil.rmtree(targets.folder(), ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
