"""Many pictures on many workers: `python benchmarks/scale.py WHAT...`, of

    workers     wall and processor seconds of `dstl denoise --scheduler local:N` for N = 1, 2, 4, and of its own
                threads
    tasks       what the scheduler takes for a part and for a file, with tasks that do nothing, and the memory it takes
    listing     processor seconds and memory to find a folder of empty files and to settle where their results go
    training    bytes that a training iteration sends to the workers and back, for each shard
    tiles       a picture of 20 000 x 20 000 as tiled BigTIFF and as Zarr, here and on two workers of 700 MiB: processor
                seconds, peaks, and whether ten windows of 512 x 512 are the same

docs/growth.md starts from these numbers. The scheduler of `local` lives in the client's process: their memory is one
number.
"""

import argparse
import os
import pickle
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import imageio.v3 as iio
import numpy as np
import skimage.data

from dstl_cli.run.cluster import Cluster, Means, connected

TILE, WINDOWS = 512, 10  # of `tiles`: of the files, and of what is compared
WORKER_MEMORY = "700 MiB"
CONSUMED = """
import resource, subprocess, sys, time  # small: a process begins with the peak of the one that starts it
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def memory() -> float:
    """MiB that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def consumed(*arguments: str | Path) -> tuple[float, float, float]:
    """Wall seconds and processor seconds of the program, and the largest peak among its processes in MiB."""
    told = [sys.executable, "-c", CONSUMED, sys.executable, "-m", "dstl_cli", *map(str, arguments), "-q"]
    wall, processor, peak = subprocess.run(told, capture_output=True, text=True, check=True).stdout.split()
    return float(wall), float(processor), float(peak)


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
        consumed(*base, top / "warm")
        ways: dict[str, tuple[str, ...]] = {f"threads {jobs}": ("--jobs", str(jobs)) for jobs in (1, 2)}
        ways |= {f"workers {count}": ("--scheduler", f"local:{count}", "--jobs", "1") for count in (1, 2, 4)}
        for way, told in ways.items():
            wall, processor, _ = consumed(*base, top / way, *told)
            print(f"{way}: {wall:.1f} s, {processor:.1f} s of processor", flush=True)


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


def write_large(folder: Path, side: int) -> None:
    """The camera picture again and again with noise of its own, 16 bits, as x.tif and x.ome.zarr in tiles of 512."""
    import tifffile
    import zarr

    names, rng = ("full", "half", "quarter"), np.random.default_rng(0)
    group = zarr.create_group(store=str(folder / "x.ome.zarr"), zarr_format=2)
    lengths = [-(-side // 2**level) for level in range(len(names))]
    levels = [
        group.create_array(name, shape=(length, length), chunks=(TILE, TILE), dtype="uint16")
        for name, length in zip(names, lengths, strict=True)
    ]
    axes = [{"name": name, "type": "space"} for name in "yx"]
    datasets = [
        {"path": name, "coordinateTransformations": [{"type": "scale", "scale": [2.0**level] * 2}]}
        for level, name in enumerate(names)
    ]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]
    clean = np.tile(skimage.data.camera() * 200.0, (1, -(-side // TILE)))[:, :side]

    def tiles() -> Iterator[Any]:
        for top in range(0, side, TILE):
            rows = clean[: side - top]
            noisy = rows + 4000 * rng.standard_normal(rows.shape, np.float32)
            band = np.clip(np.rint(noisy), 0, 65535).astype(np.uint16)
            levels[0][top : top + TILE] = band
            whole = np.zeros((TILE, TILE * -(-side // TILE)), np.uint16)
            whole[: len(band), :side] = band
            yield from (whole[:, left : left + TILE] for left in range(0, side, TILE))

    tifffile.imwrite(
        folder / "x.tif",
        tiles(),
        shape=(side, side),
        dtype=np.uint16,
        tile=(TILE, TILE),
        bigtiff=True,
        photometric="minisblack",
    )


@contextmanager
def two_workers(folder: Path) -> Iterator[Path]:
    """A scheduler and two workers of WORKER_MEMORY as processes of their own; gives the scheduler's file."""
    file, here = folder / "scheduler.json", ("--scheduler-file", folder / "scheduler.json", "--host", "127.0.0.1")
    limits = ("--nworkers", "2", "--nthreads", "1", "--memory-limit", WORKER_MEMORY, "--local-directory", folder)
    told = [("dask_scheduler", *here, "--port", "0", "--no-dashboard"), ("dask_worker", *here, *limits)]
    with (folder / "log").open("wb") as log:
        started = [
            subprocess.Popen([sys.executable, "-m", f"distributed.cli.{name}", *map(str, more)], stdout=log, stderr=log)
            for name, *more in told
        ]
        try:
            while not file.exists():
                sleep(0.1)
            yield file
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()


def usage_there() -> tuple[int, float, float]:
    """The process of a worker, its processor seconds so far, and its peak in MiB."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return os.getpid(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure_tiles(side: int) -> None:
    """One large picture in two formats, here and on two workers."""
    import tifffile
    import zarr
    from distributed import Client

    def part(path: Path, rows: slice, columns: slice) -> Any:
        """A window of a picture, by neither of our own readers."""
        store = zarr.open(str(path), mode="r") if path.is_dir() else zarr.open(tifffile.imread(path, aszarr=True))
        return (store["full"] if path.is_dir() else store)[rows, columns]

    names = ("x.tif", "x.ome.zarr")
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        write_large(top, side)
        for name in names:
            limits = ("--jobs", "1", "--max-memory", "700M")
            _, processor, peak = consumed(
                "denoise", top / name, "-o", top / "here" / name, "--quality", "fast", *limits
            )
            print(f"{name} here: {processor:.0f} s of processor, peak {peak:.0f} MiB", flush=True)
        with two_workers(top) as file, Client(scheduler_file=str(file), set_as_default=False) as client:
            for name in names:
                given = ("--quality", "fast", "--scheduler", file)
                _, processor, peak = consumed("denoise", top / name, "-o", top / "there" / name, *given)
                told = f"this process {processor:.0f} s of processor, peak {peak:.0f} MiB"
                print(f"{name} on workers: {told}", flush=True)
                for process, seconds, peak in client.run(usage_there).values():
                    print(f"    worker {process}: {seconds:.0f} s of processor so far, peak {peak:.0f} MiB", flush=True)
        rng, same = np.random.default_rng(1), 0
        for y, x in rng.integers(0, side - TILE + 1, (WINDOWS, 2)):
            box = slice(y, y + TILE), slice(x, x + TILE)
            windows = [part(top / where / name, *box) for where in ("here", "there") for name in names]
            noisy = part(top / "x.tif", *box)
            same += all((window == windows[0]).all() for window in windows) and (windows[0] != noisy).any()
        print(f"{same} of {WINDOWS} windows are the same in all four results")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=["workers", "tasks", "listing", "training", "tiles"])
    parser.add_argument("--pictures", type=int, default=400, help="of `workers`")
    parser.add_argument("--files", type=int, default=100_000, help="of `tasks` and `listing`")
    parser.add_argument("--side", type=int, default=20_000, help="of the picture of `tiles`")
    given = parser.parse_args()
    for what in given.what:
        if what == "workers":
            measure_workers(given.pictures)
        elif what == "tasks":
            measure_tasks(given.files)
        elif what == "listing":
            measure_listing(given.files)
        elif what == "tiles":
            measure_tiles(given.side)
        else:
            measure_training()


if __name__ == "__main__":
    main()
