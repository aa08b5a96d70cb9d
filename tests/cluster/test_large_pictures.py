"""One picture in tiles on real workers: the bytes of one machine, in little memory, whatever dies on the way."""

import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

pytest.importorskip("distributed")
pytest.importorskip("zarr")

from clusters import contents, scheduler_with_workers, worker_processes
from running import run, scene, temporaries
from zarr_folders import ome_folder

from dstl_cli.run import files, large
from dstl_cli.run.cluster import Cluster, Means, connected
from dstl_cli.run.large import Crew

pytestmark = pytest.mark.slow
SIDE = 2000
NAMES = ("x.ome.zarr", "x.tif", "volume.ome.zarr")
HOW = ("--quality", "fast", "--sigma", "20", "-q")
MOST = 700  # MiB of a worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture as x.ome.zarr in shards and as x.tif with tiles, a volume, and what one machine makes of each."""
    top = tmp_path_factory.mktemp("large")
    pixels = np.tile(scene((1000, 1000)).astype(np.uint16) * 200, (2, 2))
    ome_folder(top / "x.ome.zarr", pixels, chunk=128, shard=256)
    tifffile.imwrite(top / "x.tif", pixels, tile=(256, 256), bigtiff=True, compression="zlib")
    volume = pixels[: 4 * 350, :600].reshape(2, 2, 350, 600)
    ome_folder(top / "volume.ome.zarr", volume, version=2, chunk=128)
    for name in NAMES:
        done = run("denoise", top / name, "-o", top / "alone" / name, *HOW)
        assert (done.code, done.stderr) == (0, "")
    return top


def killing(times: int, file: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have a worker killed whenever three tiles are done, so many times; the processes that were."""
    killed: list[int] = []
    completed, done = Cluster.completed, 0

    def watched(*given: Any) -> Any:
        nonlocal done
        for found in completed(*given):
            done += 1
            if len(killed) < times and done % 3 == 0:
                killed.append(worker_processes(file)[0])
                os.kill(killed[-1], signal.SIGKILL)
            yield found

    monkeypatch.setattr(Cluster, "completed", watched)
    return killed


def deadly_twice(part: tuple[Path, int], means: Means) -> list[int]:
    """What the first part does to its worker, until it is tried a third time."""
    del means
    folder, number = part
    if number == 0 and len(list(folder.iterdir())) < 2:
        (folder / f"{os.getpid()}").touch()
        os._exit(139)
    return [number]


def test_a_tile_that_was_lost_twice_is_tried_alone(tmp_path: Path) -> None:
    """As happens where a tile waits at one worker after the other that dies."""
    with connected("local:2", 1) as cluster:  # whose scheduler gives up after the second time
        found = Crew(Means(1, None), cluster).completed(deadly_twice, [(tmp_path, number) for number in range(8)])
        assert sorted(number for _, number in found) == list(range(8))
    assert len(list(tmp_path.iterdir())) == 2


def test_tiles_on_two_workers_are_the_bytes_of_one_machine(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGE_PIXELS", 350 * 600)
    monkeypatch.setattr(large, "TILE_PIXELS", 600**2)
    with scheduler_with_workers(tmp_path, memory=f"{MOST} MiB") as file:
        killed = killing(2, file, monkeypatch)
        for name in NAMES:
            done = run("denoise", folder / name, "-o", tmp_path / "out" / name, *HOW, "--scheduler", file)
            assert (done.code, done.stderr) == (0, "")
        from distributed import Client

        with Client(scheduler_file=str(file), set_as_default=False) as client:
            peaks = [usage.ru_maxrss / 1024 for usage in client.run(resource.getrusage, resource.RUSAGE_SELF).values()]
    assert len(killed) == 2
    assert 0 < max(peaks) < MOST
    assert contents(tmp_path / "out") == contents(folder / "alone")
    assert not temporaries(tmp_path / "out")
