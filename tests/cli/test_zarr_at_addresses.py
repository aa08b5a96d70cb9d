"""Zarr pictures at addresses, in and out, without a network: the bytes of folders, and never half a picture."""

import json
import shutil
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from running import Outcome, refused, scene
from running import run as run_with
from zarr_folders import array_folder, ome_folder

from dstl_cli.base.addresses import Address
from dstl_cli.picture.formats import zarr_chunks
from dstl_cli.picture.read import read_picture
from dstl_cli.run import files, large

fsspec = pytest.importorskip("fsspec")
zarr = pytest.importorskip("zarr")
FAST = ("--quality", "fast", "--sigma", "20", "-q")
OUT = Address("memory://", "out/x.ome.zarr")


def run(*arguments: str | Path | Address) -> Outcome:
    return run_with(*map(str, arguments))


@pytest.fixture(autouse=True)
def store() -> Iterator[Any]:
    """The objects of memory://, which are gone after each test."""
    yield fsspec.filesystem("memory").store
    fsspec.filesystem("memory").store.clear()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def objects(place: Address) -> dict[str, bytes]:
    return {name: (place / name).read() for name in place.files(recursive=True)}


def uploaded(folder: Path, place: Address) -> Address:
    for name, content in contents(folder).items():
        (place / name).put(content, overwrite=False)
    return place


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """x.ome.zarr, also at memory://in, and what one machine makes of the folder: alone.ome.zarr."""
    pixels = np.tile(scene((70, 60)).astype(np.uint16) * 200, (2, 2))
    uploaded(ome_folder(tmp_path / "x.ome.zarr", pixels, shard=64), Address("memory://", "in/x.ome.zarr"))
    done = run("denoise", tmp_path / "x.ome.zarr", "-o", tmp_path / "alone.ome.zarr", *FAST)
    assert (done.code, done.stderr) == (0, "")
    return tmp_path


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("strip", [(), ("--strip",)])
def test_the_bytes_are_those_of_folders(version: int, strip: tuple[str, ...], tmp_path: Path) -> None:
    volume = np.stack([scene((75, 60)), scene((75, 60), seed=1)])[None] * np.uint16(200)
    volume[..., 40:, 40:] = 0  # chunks that hold nothing are not there
    uploaded(ome_folder(tmp_path / "x.ome.zarr", volume, version=version), Address("memory://", "in/x.ome.zarr"))
    how = (*FAST, *strip)
    assert run("denoise", tmp_path / "x.ome.zarr", "-o", tmp_path / "alone.ome.zarr", *how).code == 0
    for source, target in (
        ("memory://in/x.ome.zarr", "memory://out/x.ome.zarr"),
        (tmp_path / "x.ome.zarr", "memory://out/up.ome.zarr"),
        ("memory://in/x.ome.zarr", tmp_path / "down.ome.zarr"),
    ):
        done = run("denoise", source, "-o", target, *how)
        assert (done.code, done.stderr) == (0, "")
    whole = contents(tmp_path / "alone.ome.zarr")
    assert objects(OUT) == objects(Address("memory://", "out/up.ome.zarr")) == whole
    assert contents(tmp_path / "down.ome.zarr") == whole


def test_other_formats_in_and_out(tmp_path: Path) -> None:
    rgb = scene((60, 50, 3))
    tifffile.imwrite(tmp_path / "grey.tif", scene((1100, 30)))
    np.save(tmp_path / "rgb.npy", rgb)
    for name, suffix in (("grey.tif", "ome.zarr"), ("rgb.npy", "zarr")):
        assert run("denoise", tmp_path / name, "-o", tmp_path / f"{name}.{suffix}", *FAST).code == 0
        assert run("denoise", tmp_path / name, "-o", f"memory://out/{name}.{suffix}", *FAST).code == 0
        assert objects(Address("memory://", f"out/{name}.{suffix}")) == contents(tmp_path / f"{name}.{suffix}")
    assert run("denoise", "memory://out/rgb.npy.zarr", "-o", tmp_path / "twice.tif", *FAST).code == 0
    assert run("denoise", tmp_path / "rgb.npy.zarr", "-o", tmp_path / "alone.tif", *FAST).code == 0
    assert (tmp_path / "twice.tif").read_bytes() == (tmp_path / "alone.tif").read_bytes()


def test_what_makes_it_a_picture_comes_last(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    put = Address.put

    def noted(self: Address, content: bytes, *, overwrite: bool) -> None:
        order.append(str(self))
        put(self, content, overwrite=overwrite)

    monkeypatch.setattr(Address, "put", noted)
    assert run("denoise", "memory://in/x.ome.zarr", "-o", OUT, *FAST).code == 0
    names = [name.removeprefix(f"{OUT}/") for name in order]
    assert (names[0], names.count(".dstl-run")) == (".dstl-run", 1)
    arrays = ["s0/zarr.json", "s1/zarr.json", "s2/zarr.json"]
    assert names[-4:] == [*arrays, "zarr.json"]
    assert not any(name.endswith("zarr.json") for name in names[:-4])
    assert len(names) == len(set(names))  # two writers never share an object


def test_a_run_that_ends_early_leaves_no_picture_and_the_same_command_goes_on(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "TILE_PIXELS", 64 * 64)
    with monkeypatch.context() as stopped:
        tiles: list[Any] = []
        denoise = large.denoise_tile

        def failing(*told: Any) -> Any:
            if len(tiles) == 3:
                raise OSError("The power is gone")
            tiles.append(told)
            return denoise(*told)

        stopped.setattr(large, "denoise_tile", failing)
        assert run("denoise", "memory://in/x.ome.zarr", "-o", OUT, *FAST).code == 1
    left = objects(OUT)
    assert not any(name.endswith("zarr.json") for name in left)
    assert len([name for name in left if "/c/" in name]) == 3
    refused(run("denoise", OUT, "-o", local / "y.tif", *FAST), 1, f"{OUT} is called Zarr and holds no Zarr array")
    (OUT / "s0/c/0/0").put(b"what a run with other settings left", overwrite=True)
    assert run("denoise", "memory://in/x.ome.zarr", "-o", OUT, *FAST).code == 0
    assert objects(OUT) == contents(local / "alone.ome.zarr")
    assert run("denoise", "memory://in/x.ome.zarr", *FAST).code == 0
    assert objects(Address("memory://", "in/x_denoised.ome.zarr")) == objects(OUT)


def test_of_two_runs_the_later_one_completes_the_picture(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it has removed what the first one had written."""
    asked = ("denoise", "memory://in/x.ome.zarr", "-o", OUT, *FAST)
    reduce, later = large.write_reduced, list[int]()

    def meanwhile(*told: Any) -> None:
        reduce(*told)
        if not later:
            later.append(1)
            with monkeypatch.context() as stopped:
                stopped.setattr(large, "denoise_tile", lambda *_: 1 / 0)
                assert run(*asked).code == 1

    monkeypatch.setattr(files, "write_reduced", meanwhile)
    refused(run(*asked), 1, f"{OUT} is being written by a run that began later")
    refused(run("denoise", OUT, "-o", local / "y.tif", *FAST), 1, "holds no Zarr array")
    assert run(*asked).code == 0
    assert objects(OUT) == contents(local / "alone.ome.zarr")


def test_what_is_there_is_never_replaced(local: Path) -> None:
    asked = ("denoise", "memory://in/x.ome.zarr", "-o", OUT)
    (OUT / "s0/c/0/0/thesis.txt").put(b"precious", overwrite=False)
    refused(run(*asked, *FAST), 1, f"{OUT} has s0/c/0/0/thesis.txt in it, which this run does not write; delete it")
    (OUT / "s0/c/0/0/thesis.txt").remove()
    assert run(*asked, *FAST).code == 0
    whole = objects(OUT)
    refused(run(*asked, *FAST), 2, f"{OUT} exists; use --force")
    refused(run(*asked, *FAST, "--force"), 2, f"{OUT} exists, and no store replaces", "delete it first")
    done = run(*asked, "--quality", "fast", "--sigma", "20", "--resume", "--json")
    assert done.report["summary"]["resumed"] == 1
    assert objects(OUT) == whole


def test_a_picture_that_a_dead_worker_had_completed_may_be_made_again(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its batch is: what is there must be the same, to the byte."""
    from dstl_cli.picture import inputs

    asked = ("denoise", "memory://in/x.ome.zarr", "-o", OUT, *FAST)
    assert run(*asked).code == 0
    whole = objects(OUT)
    monkeypatch.setattr(inputs, "is_there_in_tiles", lambda address: False)
    assert run(*asked, "--resume").code == 0
    assert objects(OUT) == whole
    (OUT / "s0/c/0/0").put(other := whole["s0/c/1/1"], overwrite=True)
    refused(run(*asked, "--resume"), 1, f"{OUT}/s0/c/0/0 is not what this run writes", "delete")
    refused(run(*asked), 1, f"{OUT} exists, and no store replaces")
    assert objects(OUT) == {**whole, "s0/c/0/0": other}


@pytest.mark.parametrize("recursive", [(), ("-r",)])
def test_they_are_found_in_listings(recursive: tuple[str, ...], local: Path) -> None:
    uploaded(local / "x.ome.zarr", Address("memory://", "in/sub/y.zarr"))
    uploaded(local / "x.ome.zarr", Address("memory://", "in/x_denoised.ome.zarr"))
    Address("memory://", "in/notes.txt").put(b"no picture", overwrite=False)
    done = run(
        "denoise", "memory://in", "-o", "memory://out", "--quality", "fast", "--sigma", "20", *recursive, "--json"
    )
    assert (done.code, done.stderr) == (0, "")
    assert done.report["summary"]["skipped"] == 2
    whole = contents(local / "alone.ome.zarr")
    assert objects(OUT) == whole
    assert sorted(record["output"] for record in done.report["files"]) == [
        *(["memory://out/sub/y.zarr"] if recursive else []),
        "memory://out/x.ome.zarr",
    ]
    listed = run("evaluate", "memory://in", "--sigma", "20", "--quality", "fast", "--json").report["rows"]
    assert {row["image"] for row in listed} == {"x.ome.zarr"}


def test_inputs_are_never_overwritten(local: Path) -> None:
    name = "memory://in/x.ome.zarr"
    for told in ((name, "-o", name), (name, "-o", f"{name}/s0/y.zarr"), (f"{name}/s0/y.zarr", "-o", name)):
        refused(run("denoise", *told, *FAST, "--force"), 2, "is an input and is never overwritten")
    refused(run("denoise", name, "-o", "https://host/x.zarr", *FAST), 2, "in one step")
    refused(run("denoise", f"zip://x.zarr::{local}/all.zip", "-o", local / "y.tif", *FAST), 1, "within an archive")


def test_the_bounds_of_hostile_pictures_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = array_folder(tmp_path / "x.zarr", scene((64, 64)), version=2, chunk=64)
    place = uploaded(flat, Address("memory://", "in/x.zarr"))
    said = json.loads((flat / ".zarray").read_text())

    def changed(name: str, content: bytes) -> str:
        (place / name).put(content, overwrite=True)
        done = run("denoise", place, "-o", tmp_path / "y.tif", *FAST)
        assert done.code == 1
        (place / name).put((flat / name).read_bytes(), overwrite=True)
        return done.stderr

    coder = json.dumps(said | {"compressor": {"id": "pickle"}}).encode()
    assert "x.zarr is " in changed(".zarray", coder)
    assert "more than the limit" in changed(".zarray", json.dumps(said | {"chunks": [10**6, 10**6]}).encode())
    monkeypatch.setattr(zarr_chunks, "SMALL_BYTES", 1000)
    assert "is a file far larger than it holds" in changed("0.0", bytes(10**5))
    (place / "0.0").put(zlib.compress(bytes(10**6)), overwrite=True)
    bomb = json.dumps(said | {"compressor": {"id": "zlib", "level": 9}}).encode()
    assert "a chunk of it unpacks to more than it holds" in changed(".zarray", bomb)
    assert not (tmp_path / "y.tif").exists()


def test_pieces_of_shards_are_bounded(tmp_path: Path) -> None:
    """The list of a shard may claim that every chunk is as long as the shard."""
    from numcodecs.checksum32 import CRC32C

    zarr.create_array(str(tmp_path / "x.zarr"), shape=(512, 512), chunks=(16, 16), shards=(1024, 1024), dtype="u1")
    place = uploaded(tmp_path / "x.zarr", Address("memory://", "in/x.zarr"))
    index = np.array([[0, 2**20]] * 64**2, "<u8").tobytes()
    (place / "c/0/0").put(bytes(2**20) + bytes(CRC32C().encode(index)), overwrite=False)
    refused(run("denoise", place, "-o", tmp_path / "y.tif", *FAST), 1, "takes more of a shard than it holds")


def test_names_in_stores_never_lead_out_of_the_output(local: Path, store: Any) -> None:
    from fsspec.implementations.memory import MemoryFile

    store["/in/x.ome.zarr/../../evil.txt"] = MemoryFile(None, "/in/x.ome.zarr/../../evil.txt", b"evil")
    before = {path for path in local.rglob("*") if "evil" in path.name}
    done = run("denoise", "memory://in/x.ome.zarr", "-o", local / "deep" / "y.ome.zarr", *FAST)
    refused(done, 1, "leads out of its folder")
    assert {path for path in local.rglob("*") if "evil" in path.name} == before
    assert not list((local / "deep").iterdir())


class Quiet(SimpleHTTPRequestHandler):
    """A web server that says nothing."""

    def log_message(self, *_: Any) -> None:
        pass


def test_a_picture_on_a_web_server_is_read(tmp_path: Path) -> None:
    """Which lists no folders: what lies beside the arrays is not known there."""
    pytest.importorskip("aiohttp")
    path = ome_folder(tmp_path / "x.ome.zarr", scene((70, 60)), version=2)
    shutil.rmtree(path / "labels")
    sharded = zarr.create_array(
        str(tmp_path / "shards.zarr"), shape=(512, 512), chunks=(16, 16), shards=(1024, 1024), dtype="u1"
    )
    sharded[:] = scene((512, 512))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        name = f"http://127.0.0.1:{server.server_port}/x.ome.zarr"
        done = run("denoise", name, "-o", tmp_path / "y.ome.zarr", *FAST)
        assert (done.code, done.stderr) == (0, "")
        refused(run("denoise", f"{name[:-10]}none.zarr", "-o", tmp_path / "z.tif", *FAST), 1, "holds no Zarr array")
        shards = run("denoise", f"{name[:-10]}shards.zarr", "-o", tmp_path / "z.tif", *FAST)
        refused(shards, 1, "is on a server that gives no parts of files; copy it here first")
    finally:
        server.shutdown()
        server.server_close()
    assert run("denoise", path, "-o", tmp_path / "alone.ome.zarr", *FAST).code == 0
    assert contents(tmp_path / "y.ome.zarr") == contents(tmp_path / "alone.ome.zarr")
    assert read_picture(tmp_path / "y.ome.zarr").info.pages == 1
