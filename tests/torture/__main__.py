"""Torture the jobs: `python -m tests.torture` goes through all calls of all jobs; see --help for less."""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .faults import lay

HOW = ("once", "lasting", "kill", "end")


def cases(calls: list[str], how: list[str], count: int | None, seed: int) -> list[tuple[int, str]]:
    """Which call fails and how: all, or so many drawn with a seed. Where memory is taken, no file is any different."""
    every = [
        (at, way)
        for way in how
        for at, kind in enumerate(calls, start=1)
        if kind != "allocate" or way in ("once", "lasting")
    ]
    return every if count is None or count >= len(every) else random.Random(seed).sample(every, count)


def main() -> int:
    """Torture; print what is wrong, a line each, and at the end how much was tried, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", help="names of jobs (all of them if none is given)")
    parser.add_argument("--how", default=",".join(HOW), help="what a call does: once, lasting, kill, end")
    parser.add_argument("--count", type=int, help="so many cases of each job, drawn with the seed")
    parser.add_argument("--moments", type=int, default=0, help="kills and SIGTERMs at so many moments of each job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, help="a folder on the disk that the jobs are to run on")
    options = parser.parse_args()
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    lay()
    from dstl_cli.run import training

    from .jobs import JOBS
    from .runner import Runner

    training.CHECKPOINT_SECONDS, training.WRITING_SHARE = 0.0, 1e9  # a checkpoint after every file and update
    tried: Counter[str] = Counter()
    calls: dict[str, int] = {}
    failures = 0
    for job in JOBS:
        if options.jobs and job.name not in options.jobs:
            continue
        with tempfile.TemporaryDirectory(prefix="torture-", dir=options.place) as place:
            runner = Runner(job, Path(place))
            calls[job.name] = len(runner.calls)
            found = [
                (f"{runner.calls[at - 1]} {at} {how}", runner.failing(at, how))
                for at, how in cases(runner.calls, options.how.split(","), options.count, options.seed)
            ]
            rng = random.Random(options.seed)
            for number in range(options.moments):
                how, after = ("kill", "end")[number % 2], rng.uniform(0, 1.1 * runner.seconds)
                found.append((f"{how} after {after:.4f} s", runner.stopped(after, how)))
        for what, wrong in found:
            tried[f"{job.name} {what.split()[0]}"] += 1
            for sentence in wrong:
                failures += 1
                print(f"{job.name}, {what}: {sentence}", flush=True)
    print(json.dumps({"cases": sum(tried.values()), "failures": failures, "tried": tried, "calls": calls}))
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
