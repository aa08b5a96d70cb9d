"""Pictures of every format in small, and a real Dask scheduler with real worker processes on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import tifffile
from PIL import Image
from running import environment, scene

# What a worker is told to load first: reading a picture with this in its name ends the process, as a fault in a
# decoder would.
POISON = """
import os
from dstl_cli.run import pages
if pages.read_picture.__name__ != "poisoned":  # it is loaded more than once
    read = pages.read_picture
    def poisoned(source, *, name=None):
        if "poison" in os.fspath(source or ""):
            os._exit(139)
        return read(source, name=name)
    pages.read_picture = poisoned
"""


def write_pictures(folder: Path, count: int) -> list[Path]:
    """Small noisy pictures in every format that is read from a file, grey and in colour, of several depths, with pages.

    HEIC is not there: nothing that the tests need can write it.
    """
    folder.mkdir(parents=True)
    writers = [_png, _png16, _rgba, _jpeg, _webp, _bmp, _pgm, _ppm, _npy, _tiff_float, _tiff_pages, _gif, _qoi]
    writers += [_avif, _jpeg2000, _tga, _pcx, _pbm, _pfm]
    paths = []
    for index in range(count):
        path = writers[index % len(writers)](folder / f"{index:04}", index)
        paths.append(path)
    return paths


def _png(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32), seed=seed)).save(path := stem.with_suffix(".png"))
    return path


def _png16(stem: Path, seed: int) -> Path:
    path = stem.with_suffix(".png")
    path.write_bytes(imagecodecs.png_encode(scene((24, 32, 3), seed=seed).astype(np.uint16) * 257))
    return path


def _rgba(stem: Path, seed: int) -> Path:
    pixels = np.dstack((scene((24, 32, 3), seed=seed), np.full((24, 32), 200, np.uint8)))
    Image.fromarray(pixels).save(path := stem.with_suffix(".png"))
    return path


def _jpeg(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".jpg"), quality=90)
    return path


def _webp(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".webp"), lossless=True)
    return path


def _bmp(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".bmp"))
    return path


def _pgm(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32), seed=seed)).save(path := stem.with_suffix(".pgm"))
    return path


def _ppm(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".ppm"))
    return path


def _npy(stem: Path, seed: int) -> Path:
    np.save(path := stem.with_suffix(".npy"), scene((24, 32), seed=seed).astype(np.float32))
    return path


def _tiff_float(stem: Path, seed: int) -> Path:
    tifffile.imwrite(path := stem.with_suffix(".tif"), scene((24, 32), seed=seed).astype(np.float32))
    return path


def _tiff_pages(stem: Path, seed: int) -> Path:
    pages = np.stack([scene((24, 32), seed=seed + page) for page in range(2)])
    tifffile.imwrite(path := stem.with_suffix(".tiff"), pages, photometric="minisblack", compression="zlib")
    return path


def _gif(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32), seed=seed)).save(path := stem.with_suffix(".gif"))
    return path


def _qoi(stem: Path, seed: int) -> Path:
    path = stem.with_suffix(".qoi")
    path.write_bytes(imagecodecs.qoi_encode(scene((24, 32, 3), seed=seed)))
    return path


def _avif(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".avif"), quality=95)
    return path


def _jpeg2000(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".jp2"), irreversible=False)
    return path


def _tga(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32, 3), seed=seed)).save(path := stem.with_suffix(".tga"))
    return path


def _pcx(stem: Path, seed: int) -> Path:
    Image.fromarray(scene((24, 32), seed=seed)).save(path := stem.with_suffix(".pcx"))
    return path


def _pbm(stem: Path, seed: int) -> Path:
    path = stem.with_suffix(".pbm")
    path.write_bytes(b"P4\n32 24\n" + np.packbits(scene((24, 32), seed=seed) > 128, axis=1).tobytes())
    return path


def _pfm(stem: Path, seed: int) -> Path:
    path = stem.with_suffix(".pfm")
    path.write_bytes(b"Pf\n32 24\n-1.0\n" + scene((24, 32), seed=seed).astype("<f4").tobytes())
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextmanager
def scheduler_with_workers(folder: Path, workers: int = 2, preload: str = "", memory: str = "0") -> Iterator[Path]:
    """A scheduler and worker processes that are started again when they die; gives the scheduler's file."""
    file, loaded = folder / "scheduler.json", folder / "preload.py"
    loaded.write_text(preload)
    told = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(file)]
    told += ["--dashboard-address", "127.0.0.1:0"]  # it is served in any case; not at the same port beside others
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard"]
    worker += ["--nworkers", str(workers), "--nthreads", "1", "--host", "127.0.0.1", "--memory-limit", memory]
    worker += ["--preload", str(loaded), "--local-directory", str(folder / "workers")]
    with (folder / "cluster.log").open("wb") as log:
        told_once = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}  # fewer deaths until a file is blamed
        quiet: dict[str, Any] = {"stdout": log, "stderr": log, "env": environment() | told_once, "cwd": folder}
        started = [subprocess.Popen([*told, "--host", "127.0.0.1", "--port", "0"], **quiet)]
        try:
            if workers:
                started.append(subprocess.Popen(worker, **quiet))
            wait_until(lambda: file.exists() and file.read_text().endswith("}"))
            yield file
        finally:
            for process in reversed(started):
                process.send_signal(signal.SIGTERM)
            for process in reversed(started):
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def worker_processes(file: Path) -> list[int]:
    """The process numbers of the workers that live now."""
    from distributed import Client

    with Client(json.loads(file.read_text())["address"], set_as_default=False, timeout=20) as client:
        return list(client.run(os.getpid).values())


def tasks_of(file: Path) -> list[str]:
    """The names of what a scheduler has to do."""
    from distributed import Client

    with Client(json.loads(file.read_text())["address"], set_as_default=False, timeout=20) as client:
        return [str(key) for key in client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))]


def wait_until(true: Any, seconds: float = 150) -> None:
    """Wait for something that has to happen."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
