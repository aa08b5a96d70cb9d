"""Pictures in a bucket, in and out, against a real S3 server on this machine: the bytes of local files."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("s3fs")
pytest.importorskip("moto")
pytest.importorskip("distributed")
pytest.importorskip("zarr")

import numpy as np
from clusters import contents, scheduler_with_workers, wait_until, worker_processes, write_pictures
from running import command, environment, refused, run, run_process, scene
from zarr_folders import ome_folder

from dstl_cli.base.addresses import Address
from dstl_cli.run import files, large
from dstl_cli.run.cluster import Cluster
from dstl_cli.run.journal import last_words

pytestmark = pytest.mark.slow
COUNT = 50
HOW = ("--quality", "fast", "--sigma", "20", "-r")
KEYS = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing", "AWS_DEFAULT_REGION": "us-east-1"}


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pictures in `in` and in s3://pictures/in, what one machine makes of them in `alone`, and the server running."""
    import fsspec

    top = tmp_path_factory.mktemp("bucket")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (top / "log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
            patch.setenv(name, value)
        server = subprocess.Popen(told, stdout=log, stderr=log)
        try:
            wait_until(lambda: answers(port))
            fsspec.filesystem("s3").mkdir("pictures")
            paths = write_pictures(top / "in", COUNT)
            for index, path in enumerate(paths):
                place = Address("s3://", f"pictures/in/{'below/' if index % 3 else ''}{path.name}")
                place.put(path.read_bytes(), overwrite=False)
                if index % 3:
                    path.parent.joinpath("below").mkdir(exist_ok=True)
                    path.rename(path.parent / "below" / path.name)
            done = run_process("denoise", top / "in", "-o", top / "alone", *HOW, "-q")
            assert (done.code, done.stderr) == (0, "")
            yield top
        finally:
            server.terminate()
            server.wait()


def objects(name: str) -> dict[str, bytes]:
    """All objects below a name in the bucket."""
    place = Address("s3://", f"pictures/{name}")
    return {below: (place / below).read() for below in place.files(recursive=True)}


def kill_at_work(asked: tuple[str, ...], out: Address) -> None:
    """Begin a run, and kill it and its workers once there are five objects at its output."""
    with subprocess.Popen(
        command(*asked), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
    ) as process:
        wait_until(lambda: out.is_folder() and len(out.files(recursive=True)) >= 5)
        os.killpg(process.pid, signal.SIGKILL)


def test_bucket_to_bucket_with_a_kill_and_resume(folder: Path, tmp_path: Path) -> None:
    asked = ("denoise", "s3://pictures/in/", "-o", "s3://pictures/out/", *HOW, "--scheduler", "local:2")
    out = Address("s3://", "pictures/out")
    kill_at_work(asked, out)
    there, whole = objects("out"), contents(folder / "alone")
    assert 5 <= len(there) < COUNT
    assert there == {name: whole[name] for name in there}
    refused(run_process(*asked, "-q"), 2, "s3://pictures/out/", "--resume")
    again = run_process(*asked, "--resume", "--json")
    assert (again.code, again.stderr) == (0, "")
    assert again.report["summary"]["resumed"] + again.report["summary"]["done"] == COUNT
    assert objects("out") == whole
    journal = tmp_path / "journal"
    journal.write_bytes(Address("s3://", "pictures/out.journal.jsonl").read())
    assert len(last_words(journal)) == again.report["summary"]["done"]


def test_bucket_to_folder_and_back_on_one_machine(folder: Path, tmp_path: Path) -> None:
    whole = contents(folder / "alone")
    done = run_process("denoise", "s3://pictures/in", "-o", tmp_path / "out", *HOW, "-q")
    assert (done.code, done.stderr) == (0, "")
    assert contents(tmp_path / "out") == whole
    done = run_process("denoise", folder / "in", "-o", "s3://pictures/back", *HOW, "-q", "--shard", "2/5")
    assert (done.code, done.stderr) == (0, "")
    assert objects("back") == {name: whole[name] for name in objects("back")}
    assert len(objects("back")) == COUNT // 5


def test_what_is_not_there_is_one_sentence(folder: Path) -> None:
    refused(run_process("denoise", "s3://pictures/none.png", "-o", "x.png", "-q"), 1, "s3://pictures/none.png")
    refused(run_process("denoise", "s3://nowhere/", "-o", "x", "-q"), 1, "s3://nowhere")
    in_bucket = "s3://pictures/in/0000.png"
    refused(run_process("denoise", in_bucket, "-o", "s3://nowhere/x.png", "-q"), 1, "s3://nowhere/x.png")
    refused(run_process("denoise", in_bucket, "-o", in_bucket, "-q", "--force"), 2, "is an input")
    refused(run_process("train", "s3://pictures/in", "-o", "x.npz"), 2, "s3://pictures/in")


def uploaded(folder: Path, name: str) -> str:
    """A folder as objects in the bucket."""
    for below, content in contents(folder).items():
        Address("s3://", f"pictures/{name}/{below}").put(content, overwrite=False)
    return f"s3://pictures/{name}"


def test_a_zarr_picture_in_tiles_on_workers_of_which_one_dies(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In and out, and into a file of this machine."""
    pixels = np.tile(scene((600, 600)).astype(np.uint16) * 200, (2, 2))
    source = uploaded(ome_folder(tmp_path / "x.ome.zarr", pixels, chunk=128, shard=256), "slides/x.ome.zarr")
    how = ("--quality", "fast", "--sigma", "20", "-q")
    for name in ("x.ome.zarr", "x.tif"):
        assert run("denoise", tmp_path / "x.ome.zarr", "-o", tmp_path / "alone" / name, *how).code == 0
    monkeypatch.setattr(files, "LARGE_PIXELS", 600**2)
    monkeypatch.setattr(large, "TILE_PIXELS", 512**2)
    with scheduler_with_workers(tmp_path) as file:
        killed, completed = list[int](), Cluster.completed

        def watched(*given: Any) -> Any:
            for found in completed(*given):
                if not killed:
                    killed.append(worker_processes(file)[0])
                    os.kill(killed[0], signal.SIGKILL)
                yield found

        monkeypatch.setattr(Cluster, "completed", watched)
        for target in ("s3://pictures/tiles/x.ome.zarr", tmp_path / "out" / "x.tif"):
            done = run("denoise", source, "-o", target, *how, "--scheduler", file)
            assert (done.code, done.stderr) == (0, "")
    assert killed
    assert objects("tiles/x.ome.zarr") == contents(tmp_path / "alone" / "x.ome.zarr")
    assert contents(tmp_path / "out")["x.tif"] == (tmp_path / "alone" / "x.tif").read_bytes()


def test_a_zarr_picture_whose_run_is_killed_is_none_until_it_is_complete(folder: Path, tmp_path: Path) -> None:
    volume = np.stack([scene((350, 600), seed=seed) for seed in range(4)]).reshape(2, 2, 350, 600)
    uploaded(ome_folder(tmp_path / "in" / "x.ome.zarr", volume, version=2, chunk=128), "volumes/x.ome.zarr")
    how = ("--quality", "fast", "--sigma", "20")
    assert run("denoise", tmp_path / "in", "-o", tmp_path / "alone", *how, "-q").code == 0
    asked = ("denoise", "s3://pictures/volumes", "-o", "s3://pictures/made", *how, "--scheduler", "local:2")
    out = Address("s3://", "pictures/made/x.ome.zarr")
    kill_at_work(asked, out)
    there = objects("made/x.ome.zarr")
    assert len(there) >= 5
    assert not [name for name in there if name.rpartition("/")[2] in (".zgroup", ".zattrs", ".zarray")]
    refused(run("denoise", str(out), "-o", tmp_path / "x.tif", *how, "-q"), 1, "holds no Zarr array")
    again = run_process(*asked, "--json")
    assert (again.code, again.stderr) == (0, "")
    assert again.report["summary"]["done"] == 1
    assert objects("made") == contents(tmp_path / "alone")
    assert run(*asked[:-2], "--resume", "--json").report["summary"]["resumed"] == 1
