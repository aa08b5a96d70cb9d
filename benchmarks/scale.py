"""Many pictures on many workers: `python benchmarks/scale.py WHAT...`, of

    workers     wall seconds of `dstl denoise --scheduler local:N` for N = 1, 2, 4, beside this machine's own threads
    tasks       what the scheduler takes for a part and for a file, with tasks that do nothing, and the memory it takes
    listing     processor seconds and memory to find a folder of empty files and to settle where their results go
    training    bytes that a training iteration sends to the workers and back, for each shard

docs/growth.md starts from these numbers. The scheduler of `local` lives in the client's process: their memory is one
number.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import imageio.v3 as iio
import numpy as np
import skimage.data

from dstl_cli.run.cluster import Cluster, Means, connected


def memory() -> float:
    """MiB that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def timed(*arguments: str | Path) -> float:
    """Wall seconds of the program."""
    start = perf_counter()
    subprocess.run([sys.executable, "-m", "dstl_cli", *map(str, arguments), "-q"], check=True)
    return perf_counter() - start


def measure_workers(pictures: int) -> None:
    """How long a folder of pictures of 256 x 256 takes."""
    with tempfile.TemporaryDirectory() as folder:
        top, rng = Path(folder), np.random.default_rng(0)
        (top / "in").mkdir()
        for index in range(pictures):
            left = 16 * (index % 16)
            noisy = skimage.data.camera()[left : left + 256, 128:384] + 20 * rng.standard_normal((256, 256))
            iio.imwrite(top / "in" / f"{index:05}.png", np.clip(np.rint(noisy), 0, 255).astype(np.uint8))
        base = ("denoise", top / "in", "--quality", "fast", "--sigma", "20", "-o")
        timed(*base, top / "warm")
        for jobs in (1, 2):
            print(f"threads {jobs}: {timed(*base, top / f'threads{jobs}', '--jobs', str(jobs)):.1f} s", flush=True)
        for count in (1, 2, 4):
            told = ("--scheduler", f"local:{count}", "--jobs", "1")
            print(f"workers {count}: {timed(*base, top / f'workers{count}', *told):.1f} s", flush=True)


def nothing(part: list[int], means: Means) -> list[int]:
    """A task without work."""
    return part


def groups(items: Any, most: int) -> Iterator[list[int]]:
    """Numbers in lists of at most so many."""
    for start in range(0, len(items), most):
        yield list(items[start : start + most])


def measure_tasks(files: int) -> None:
    """What the scheduler takes, which is a thread of this process."""
    with connected("local:2", 1) as cluster:
        assert sum(1 for _ in cluster.each(nothing, range(1000), groups, list)) == 1000
        for most in (1, 64):
            before, start, worked = memory(), perf_counter(), process_time()
            count = sum(1 for _ in cluster.each(nothing, range(files), groups, list, most))
            seconds, worked = perf_counter() - start, process_time() - worked
            assert count == files
            parts = -(-files // most)
            each = f"{1e3 * seconds / parts:.2f} ms a part, {1e3 * worked / parts:.2f} ms of processor here"
            told = f"{seconds:.1f} s, {each}; {before:.0f} -> {memory():.0f} MiB"
            print(f"{files} files in parts of {most}: {told}", flush=True)


def measure_listing(files: int) -> None:
    """What it takes to know what is to be done."""
    from dstl_cli.picture.inputs import find_inputs, plan_jobs, split_done

    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for start in range(0, files, 10_000):
            (top / "in" / f"{start:08}").mkdir(parents=True)
            for index in range(start, min(start + 10_000, files)):
                (top / "in" / f"{start:08}" / f"{index:08}.png").touch()
        base, start_time = memory(), process_time()
        found = find_inputs([str(top / "in")], recursive=True, made_suffix="_denoised")
        at_found = process_time() - start_time
        jobs = plan_jobs(found, str(top / "out"), suffix="_denoised")
        at_planned = process_time() - start_time
        todo, _ = split_done(jobs, resume=True, force=False)
        at_split = process_time() - start_time
        assert len(todo) == files
        told = f"found after {at_found:.1f} s, planned after {at_planned:.1f} s, results after {at_split:.1f} s"
        print(f"{files} names: {told}; {memory() - base:.0f} MiB more", flush=True)


def measure_training() -> None:
    """What an iteration of training sends, pickled, for each shard."""
    submitted, outcome = Cluster._submitted, Cluster._outcome

    def counted(self: Any, task: Any, parts: Any, *given: Any) -> Any:
        futures = submitted(self, task, parts, *given)
        print(f"{task.__name__} to {len(futures)} shards: {len(pickle.dumps(given))} bytes to each", end="", flush=True)
        return futures

    def weighed(self: Any, future: Any) -> Any:
        result = outcome(self, future)
        print(f", {len(pickle.dumps(result))} back", flush=True)
        return result

    Cluster._submitted, Cluster._outcome = counted, weighed  # type: ignore[method-assign]
    from dstl_cli.cli import app

    with tempfile.TemporaryDirectory() as folder:
        for index in range(4):
            iio.imwrite(Path(folder, f"{index}.png"), skimage.data.camera())
        told = ("--scheduler", "local:2", "--iterations", "2", "--patch-size", "8", "-o", f"{folder}/t.npz", "-q")
        sys.argv = ["dstl", "train", folder, *told]
        with suppress(SystemExit):
            app.main()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["workers", "tasks", "listing", "training"])
    parser.add_argument("--pictures", type=int, default=400, help="of `workers`")
    parser.add_argument("--files", type=int, default=100_000, help="of `tasks` and `listing`")
    given = parser.parse_args()
    for what in given.what:
        if what == "workers":
            measure_workers(given.pictures)
        elif what == "tasks":
            measure_tasks(given.files)
        elif what == "listing":
            measure_listing(given.files)
        else:
            measure_training()


if __name__ == "__main__":
    main()
