"""`dstl denoise` on pictures that are read in windows and written in rows: the same bytes, in little memory."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from running import command, environment, refused, run, scene, without_notice

from dstl_cli.denoising import pipeline
from dstl_cli.pixels import source as pixel_source

FAST = ("--quality", "fast", "--sigma", "20", "--jobs", "2")


def rgba() -> np.ndarray[Any, Any]:
    alpha = np.tile(np.arange(130, dtype=np.uint8), (230, 1))
    return np.dstack((scene((230, 130, 3)), alpha))


def write(path: Path, kind: str) -> Path:
    """A picture of the kind; its place."""
    target = path / ("x.npy" if kind.startswith("npy") else "x.tif")
    if kind == "npy":
        np.save(target, rgba())
    elif kind == "npy float":
        np.save(target, scene((230, 130)).astype(">f4") / 7)
    elif kind == "tiles":
        tifffile.imwrite(target, rgba(), photometric="rgb", extrasamples=[2], tile=(32, 48), compression="zlib")
    elif kind == "planes":
        values = np.moveaxis(rgba().astype(np.uint16) * 257, 2, 0)
        tifffile.imwrite(
            target, values, photometric="rgb", extrasamples=[2], planarconfig="separate", tile=(16, 16), bigtiff=True
        )
    else:
        pages = np.stack([scene((230, 130), seed=seed) for seed in range(3)])
        tifffile.imwrite(target, pages, photometric="minisblack", rowsperstrip=7, byteorder=">")
    return target


@pytest.fixture
def small_strips(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every picture is large: worked on in strips of 64 rows, looked at 11 rows at a time."""
    monkeypatch.setattr(pipeline, "STRIP_PIXELS", 64 * 130)
    monkeypatch.setattr(pipeline, "LARGEST_OVERHEAD", 100.0)
    monkeypatch.setattr(pixel_source, "BAND_PIXELS", 11 * 130)
    return monkeypatch


@pytest.mark.parametrize("kind", ["tiles", "planes", "stack", "npy", "npy float"])
def test_large_pictures_come_out_as_small_ones(kind: str, tmp_path: Path, small_strips: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, kind)
    found = []
    for _ in range(2):
        targets = [tmp_path / f"{name}{path.suffix}" for name in ("out", "residual", "compare")]
        extra = ("-o", targets[0], "--residual", targets[1], "--compare", targets[2], "--force", "--json")
        done = run("denoise", path, *FAST, *extra)
        assert done.code == 0, done.stderr
        report = done.report["files"][0]
        found.append(([target.read_bytes() for target in targets], report | {"seconds": 0}))
        small_strips.undo()
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["tiles", "npy"])
def test_values_that_are_no_numbers_are_told_with_file_and_count(
    kind: str, tmp_path: Path, small_strips: pytest.MonkeyPatch
) -> None:
    values = scene((230, 130)).astype(np.float32)
    values[3, 3] = values[200:, 7] = np.nan
    path = tmp_path / ("x.npy" if kind == "npy" else "x.tif")
    if kind == "npy":
        np.save(path, values)
    else:
        tifffile.imwrite(path, values, tile=(32, 32), compression="zlib")
    refused(run("denoise", path, *FAST), 1, f"{path} has 31 values that are NaN or infinite; replace them")
    assert list(tmp_path.iterdir()) == [path]


MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss, file=sys.stderr)
os._exit(os.waitstatus_to_exitcode(status))
"""


def peak_mebibytes(*arguments: str | Path) -> float:
    """The most memory that the real program took."""
    words = [sys.executable, "-c", MEASURE, *command(*arguments)]
    done = subprocess.run(words, capture_output=True, env=environment(), check=False, timeout=1500)
    *lines, peak = done.stderr.decode().splitlines()
    assert done.returncode == 0, without_notice("\n".join(lines))
    return int(peak) / (2**20 if sys.platform == "darwin" else 2**10)


needs_wait4 = pytest.mark.skipif(not hasattr(os, "wait4"), reason="the peak of a child is told on POSIX systems only")


@pytest.mark.slow
@needs_wait4
def test_a_tiled_tiff_of_100_megapixels_takes_little_memory(tmp_path: Path) -> None:
    path, out = tmp_path / "x.tif", tmp_path / "out.tif"
    tile = scene((256, 256), sigma=15)
    tiles = (tile for _ in range(40 * 40))
    tifffile.imwrite(path, tiles, shape=(10_000, 10_000), dtype=np.uint8, tile=(256, 256), photometric="minisblack")
    assert peak_mebibytes("denoise", path, "-o", out, "--quality", "fast", "--sigma", "15", "-q") < 600
    with tifffile.TiffFile(out) as file:
        assert (file.pages[0].shape, file.pages[0].tile) == ((10_000, 10_000), (256, 256))


@pytest.mark.slow
@needs_wait4
def test_copying_a_file_takes_little_memory(tmp_path: Path) -> None:
    """289 MB without noise."""
    path, out = tmp_path / "x.npy", tmp_path / "out.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (17_000, 17_000)).flush()
    assert peak_mebibytes("denoise", path, "-o", out, "--sigma", "0", "-q") < 250
    assert out.stat().st_size == path.stat().st_size


@pytest.mark.slow
@needs_wait4
def test_a_colour_jpeg_of_24_megapixels_takes_little_memory(tmp_path: Path) -> None:
    path, out = tmp_path / "x.jpg", tmp_path / "out.jpg"
    Image.fromarray(np.tile(scene((400, 600, 3), sigma=15), (10, 10, 1))).save(path, quality=90)
    assert peak_mebibytes("denoise", path, "-o", out, "--quality", "fast", "--sigma", "15", "-q") < 700
    with Image.open(out) as picture:
        assert picture.size == (6000, 4000)
