"""Zarr folders: pages of any axes, windows of them, tiles of outputs, and everything else as it was."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zarr_folders import array_folder, ome_folder

from dstl_cli.errors import FileProblem
from dstl_cli.picture.blocks import block_means
from dstl_cli.picture.formats import zarr as zarr_module
from dstl_cli.picture.model import picture_from_array
from dstl_cli.picture.read import read_picture
from dstl_cli.picture.write import open_tiles, open_writer

zarr = pytest.importorskip("zarr")


def noise(shape: tuple[int, ...], dtype: Any = np.uint16, seed: int = 0) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(seed).integers(0, 251, shape)
    return values.astype(dtype)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def fill(folder: Any, values: np.ndarray[Any, Any]) -> None:
    """Write pages, (N, H, W), into a laid out folder in tiles of its unit, the last ones first, and reduce them."""
    for level in range(len(folder.levels)):
        (high, wide), (height, width) = folder.unit(level), folder.size(level)
        corners = [(y, x) for y in range(0, height, high) for x in range(0, width, wide)]
        for y, x in reversed(corners):
            rows, columns = slice(y, min(y + high, height)), slice(x, min(x + wide, width))
            if level:
                folder.reduce(level, rows, columns)
                continue
            for page, plane in enumerate(values):
                folder.put(page, rows, columns, plane[rows, columns], None)


@pytest.mark.parametrize("version", [2, 3])
def test_axes_before_rows_are_pages(version: int, tmp_path: Path) -> None:
    values = noise((2, 3, 2, 70, 45))
    picture = read_picture(ome_folder(tmp_path / "x.zarr", values, version=version))
    assert (len(picture.specs), picture.format, picture.info.bits) == (12, "zarr", 16)
    for index, plane in enumerate(values.reshape(12, 70, 45)):
        np.testing.assert_array_equal(picture.pages[index], plane)
    rows, columns = slice(33, 64), slice(31, 45)
    np.testing.assert_array_equal(picture.window(7, rows, columns)[0], values.reshape(12, 70, 45)[7][rows, columns])


@pytest.mark.parametrize("dtype", ["<u1", ">u2", "<i4", "<f4", ">f8"])
@pytest.mark.parametrize("samples", [0, 3, 4])
def test_plain_arrays_are_pictures_too(dtype: str, samples: int, tmp_path: Path) -> None:
    shape = (40, 50, samples) if samples else (40, 50)
    values = noise(shape, dtype)
    picture = read_picture(array_folder(tmp_path / "x", values, version=2))  # known by what is in it
    colour, alpha = picture.page(0)
    np.testing.assert_array_equal(colour, values[..., :3] if samples else values)
    assert colour.dtype == np.dtype(dtype).newbyteorder("=")
    assert (alpha is None) == (samples < 4)
    assert alpha is None or (alpha == values[..., 3]).all()


@pytest.mark.parametrize("shard", [None, 64])
@pytest.mark.parametrize("version", [2, 3])
def test_what_is_written_is_what_was_read_but_for_the_pixels(version: int, shard: int | None, tmp_path: Path) -> None:
    if version == 2 and shard is not None:
        pytest.skip("Zarr 2 has no shards")
    values = noise((2, 1, 75, 101))
    source = ome_folder(tmp_path / "x.zarr", values, version=version, shard=shard)
    picture, new = read_picture(source), noise((2, 75, 101), seed=1)
    with open_tiles(picture, tmp_path / "y.zarr") as folder:
        assert folder.unit(0) == ((shard or 32),) * 2
        fill(folder, new)
        assert not (tmp_path / "y.zarr").exists()
    written, before = files_of(tmp_path / "y.zarr"), files_of(source)
    assert set(written) == set(before)
    kept = [name for name in before if name.rpartition("/")[2] in (".zattrs", ".zarray", ".zgroup", "zarr.json")]
    assert len(kept) >= 4
    assert all(written[name] == before[name] for name in [*kept, "labels/about.json"])
    group = zarr.open(store=str(tmp_path / "y.zarr"), mode="r")
    large = new.reshape(2, 1, 75, 101)
    for level in range(3):
        np.testing.assert_array_equal(group[f"s{level}"][:], large)
        large = block_means(large, (1, 1, 2, 2))
    assert not list(tmp_path.glob(".*"))


def test_means_of_blocks_are_those_of_each_block() -> None:
    for dtype in ("uint8", "int16", "float32"):
        values = noise((3, 11, 14), dtype) - np.array(5, dtype) * (dtype != "uint8")
        found = block_means(values, (2, 3, 4))
        assert (found.shape, found.dtype) == ((2, 4, 4), values.dtype)
        for z, y, x in np.ndindex(found.shape):
            block = values[2 * z : 2 * z + 2, 3 * y : 3 * y + 3, 4 * x : 4 * x + 4]
            mean = block.astype(np.float64).mean()
            assert found[z, y, x] == (np.float32(mean) if dtype == "float32" else np.rint(mean))
    wrong = np.array([[np.nan, 1, np.nan, np.inf], [3, 2, np.nan, np.nan]], np.float32)
    np.testing.assert_array_equal(block_means(wrong, (2, 2)), np.array([[2, np.nan]], np.float32))


def test_levels_of_volumes_and_other_factors(tmp_path: Path) -> None:
    """Factors come from the shapes: here 2, 3 and 4 along z, y and x, some rounded down."""
    values = noise((5, 31, 40))
    path = ome_folder(tmp_path / "x.zarr", values, levels=1)
    group = zarr.open_group(store=str(path), mode="r+")
    group.create_array("s1", shape=(2, 10, 10), chunks=(1, 8, 8), dtype="uint16")
    said = dict(group.attrs["ome"])
    said["multiscales"][0]["datasets"].append({"path": "s1"})
    group.attrs["ome"] = said
    with open_tiles(read_picture(path), tmp_path / "y.zarr") as folder:
        fill(folder, values)
    found = zarr.open(store=str(tmp_path / "y.zarr"), mode="r")["s1"][:]
    np.testing.assert_array_equal(found, block_means(values[:4, :30], (2, 3, 4)))


def test_stripping_leaves_what_is_needed_to_read(tmp_path: Path) -> None:
    for version in (2, 3):
        values = noise((70, 45))
        source = ome_folder(tmp_path / f"x{version}.zarr", values, version=version)
        target = tmp_path / f"y{version}.zarr"
        with open_tiles(read_picture(source), target, strip=True) as folder:
            fill(folder, values[None])
        np.testing.assert_array_equal(read_picture(target).pages[0], values)
        assert not (target / "labels").exists()
        said = dict(zarr.open(store=str(target), mode="r").attrs)
        assert "omero" not in said.get("ome", said)
        assert len(said.get("ome", said)["multiscales"][0]["datasets"]) == 3


def test_other_pictures_are_laid_out_with_reduced_copies(tmp_path: Path) -> None:
    values = noise((2100, 1030), np.uint8)
    with open_tiles(picture_from_array(values), tmp_path / "y.ome.zarr") as folder:
        assert (folder.unit(0), folder.size(2)) == ((1024, 1024), (525, 258))
        fill(folder, values[None])
    picture = read_picture(tmp_path / "y.ome.zarr")
    np.testing.assert_array_equal(picture.pages[0], values)
    said: Any = zarr.open(store=str(tmp_path / "y.ome.zarr"), mode="r").attrs["ome"]
    assert [axis["name"] for axis in said["multiscales"][0]["axes"]] == ["y", "x"]
    assert [dataset["path"] for dataset in said["multiscales"][0]["datasets"]] == ["0", "1", "2"]
    with (
        pytest.raises(FileProblem, match=r"RGB pixels, but \.ome\.zarr holds the other kind"),
        open_tiles(picture_from_array(noise((9, 9, 3), np.uint8)), tmp_path / "z.ome.zarr"),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plate": {}}, "several pictures"),
        ({"multiscales": [{"axes": [{"name": "x"}, {"name": "y"}], "datasets": [{"path": "s0"}]}]}, "axes x, y"),
        (
            {"multiscales": [{"axes": ["y", "\x1b[31m\n"], "datasets": [{"path": "s0"}]}]},
            r"axes y, \\x1b\[31m\\n, which",
        ),
        ({"multiscales": [{"datasets": [{"path": "s9"}]}]}, "damaged"),
        ({"multiscales": []}, "3 pictures"),
    ],
)
def test_folders_that_are_not_understood_say_why(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = ome_folder(tmp_path / "x.zarr", noise((70, 45)), version=2)
    attributes = json.loads((path / ".zattrs").read_text())
    (path / ".zattrs").write_text(json.dumps(attributes | change))
    with pytest.raises(FileProblem, match=words) as refused:
        read_picture(path)
    assert str(refused.value).startswith(str(path))


def test_levels_that_are_no_whole_fractions_and_odd_types_are_refused(tmp_path: Path) -> None:
    path = ome_folder(tmp_path / "x.zarr", noise((70, 45)), levels=1)
    group = zarr.open_group(store=str(path), mode="r+")
    group.create_array("s1", shape=(50, 30), chunks=(8, 8), dtype="uint16")
    said = dict(group.attrs["ome"])
    said["multiscales"][0]["datasets"].append({"path": "s1"})
    group.attrs["ome"] = said
    with pytest.raises(FileProblem, match=r"level of \(50, 30\)"):
        read_picture(path)
    with pytest.raises(FileProblem, match="complex64"):
        read_picture(array_folder(tmp_path / "c.zarr", noise((9, 9), np.complex64)))
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(FileProblem, match="holds no Zarr array"):
        read_picture(tmp_path / "empty.zarr")


@pytest.mark.parametrize("version", [2, 3])
def test_levels_are_never_those_of_another_folder(version: int, tmp_path: Path) -> None:
    """An absolute path is one below the folder; what a link leads to is not read, and not written to."""
    victim = array_folder(tmp_path / "victim", noise((70, 45), seed=1), version=version)
    kept, path = files_of(victim), ome_folder(tmp_path / "x.zarr", noise((70, 45)), version=version, levels=1)
    group = zarr.open_group(store=str(path), mode="r+")
    said = dict(group.attrs["ome"] if version == 3 else group.attrs)
    said["multiscales"][0]["datasets"] = [{"path": str(victim)}]
    group.attrs.update({"ome": said} if version == 3 else said)
    inner = path / str(victim).lstrip("/")
    inner.parent.mkdir(parents=True)
    (path / "s0").rename(inner)
    picture = read_picture(path)
    with open_tiles(picture, tmp_path / "new.zarr") as folder:
        fill(folder, noise((1, 70, 45), seed=2))
    assert files_of(victim) == kept
    shutil.rmtree(inner)
    inner.symlink_to(victim)
    with pytest.raises(FileProblem, match="links or lie outside"):
        read_picture(path)


def test_chunks_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    path = array_folder(tmp_path / "x.zarr", noise((40, 40)), version=2)
    said = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps(said | {"chunks": [10**6, 10**6]}))
    with pytest.raises(FileProblem, match=r"x\.zarr claims 1000000000000 x 1 pixels, more than the limit"):
        read_picture(path)


@pytest.mark.parametrize("level", [0, 1])
def test_chunks_and_shards_of_any_level_that_no_memory_holds_are_refused(level: int, tmp_path: Path) -> None:
    """A reduced copy is written in its own chunks, and a shard with the list of all chunks that it may have."""
    flat = ome_folder(tmp_path / "x.zarr", noise((40, 40)), version=2)
    said = json.loads((flat / f"s{level}" / ".zarray").read_text())
    (flat / f"s{level}" / ".zarray").write_text(json.dumps(said | {"chunks": [2**31, 8]}))
    with pytest.raises(FileProblem, match=r"x\.zarr claims 17179869184 x 1 pixels, more than the limit"):
        read_picture(flat)
    sharded = ome_folder(tmp_path / "y.zarr", noise((64, 64)), shard=32, chunk=16)
    said = json.loads((sharded / "s0" / "zarr.json").read_text())
    said["chunk_grid"]["configuration"]["chunk_shape"] = [2**20, 32]
    (sharded / "s0" / "zarr.json").write_text(json.dumps(said))
    with pytest.raises(FileProblem, match=r"y\.zarr claims 131072 chunks in a shard, more than 65536"):
        read_picture(sharded)


@pytest.mark.parametrize("level", [0, 1])
def test_chunks_of_a_few_pixels_are_refused_where_they_are_many(level: int, tmp_path: Path) -> None:
    """Each costs as much as a large one, also where there is none; this one would take minutes."""
    path = ome_folder(tmp_path / "x.zarr", noise((1000, 2000), np.uint8), version=2, chunk=500)
    read_picture(ome_folder(tmp_path / "small.zarr", noise((100, 100)), chunk=4)).page(0)
    said = json.loads((path / f"s{level}" / ".zarray").read_text())
    (path / f"s{level}" / ".zarray").write_text(json.dumps(said | {"chunks": [1, 1]}))
    with pytest.raises(FileProblem, match=rf"x\.zarr has {2_000_000 >> 2 * level} chunks of 1 x 1 pixels"):
        read_picture(path)


def test_codecs_that_read_and_do_not_write_are_one_sentence(tmp_path: Path) -> None:
    path = array_folder(tmp_path / "x.zarr", noise((20, 20)), version=2)
    said = json.loads((path / ".zarray").read_text())
    coder = {"id": "blosc", "cname": "lz4", "clevel": 10, "shuffle": 1, "blocksize": "no number"}
    (path / ".zarray").write_text(json.dumps(said | {"compressor": coder}))
    with pytest.raises(FileProblem, match="is coded by blosc at a level that is none"):
        read_picture(path)
    (path / ".zarray").write_text(json.dumps(said | {"compressor": coder | {"clevel": 5}}))
    (path / "0.0").unlink()  # what is not there needs no decoder
    picture = read_picture(path)
    with (
        pytest.raises(ValueError, match=r"^its codecs do not write \(TypeError an integer is required\); save it with"),
        open_tiles(picture, tmp_path / "y.zarr") as folder,
    ):
        fill(folder, noise((1, 20, 20)))
    assert [place.name for place in tmp_path.iterdir()] == ["x.zarr"]


@pytest.mark.parametrize("count", [1_000_001, 10**9, 2**63 - 1])
def test_pages_that_nobody_can_go_through_are_refused(count: int, tmp_path: Path) -> None:
    path = array_folder(tmp_path / "x.zarr", noise((2, 40, 40)), version=2)
    said = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps(said | {"shape": [count, 40, 40]}))
    with pytest.raises(FileProblem, match=f"claims {count} pages, more than 1000000"):
        read_picture(path)


class Program:
    """What runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_chunk_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    path = array_folder(tmp_path / "x.zarr", noise((20, 20), np.uint8), version=2)
    said = json.loads((path / ".zarray").read_text())
    (path / "0.0").write_bytes(pickle.dumps(Program(tmp_path / "ran")))
    for change in ({"compressor": {"id": "pickle"}}, {"compressor": None, "filters": [{"id": "pickle"}]}):
        (path / ".zarray").write_text(json.dumps(said | change))
        with pytest.raises(FileProblem, match=r"x\.zarr is "):
            read_picture(path).page(0)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("version", [2, 3])
def test_codecs_that_are_not_on_the_list_are_refused(version: int, tmp_path: Path, monkeypatch: Any) -> None:
    path = ome_folder(tmp_path / "x.zarr", noise((70, 45)), version=version, shard=64 if version == 3 else None)
    assert read_picture(path).page(0)
    used = "blosc" if version == 2 else "zstd"  # what zarr takes where nothing is said, in shards too
    monkeypatch.setattr(zarr_module, "CODECS", zarr_module.CODECS - {used})
    with pytest.raises(FileProblem, match=rf"is coded by {used}, which dstl does not handle; save it"):
        read_picture(path)


def test_nobody_waits_for_pipes_or_devices_among_chunks(tmp_path: Path) -> None:
    for version, name in ((2, "0.0"), (3, "c/0/0"), (2, ".zattrs")):
        path = array_folder(tmp_path / f"{version}{name[:2]}.zarr", noise((20, 20)), version=version)
        for make in (lambda place: place.symlink_to("/dev/zero"), os.mkfifo):
            (path / name).unlink(missing_ok=True)
            make(path / name)
            with pytest.raises(FileProblem):
                read_picture(path).page(0)


def test_pipes_and_devices_beside_the_pixels_are_not_copied(tmp_path: Path) -> None:
    path = ome_folder(tmp_path / "x.zarr", noise((70, 45)))
    picture = read_picture(path)
    (path / "labels" / "endless").symlink_to("/dev/zero")
    with (
        pytest.raises(FileProblem, match="has endless in it, which is no regular file"),
        open_tiles(picture, tmp_path / "y.zarr"),
    ):
        pass
    assert [place.name for place in tmp_path.iterdir()] == ["x.zarr"]


def test_only_a_zarr_folder_is_replaced(tmp_path: Path) -> None:
    source = read_picture(array_folder(tmp_path / "x.zarr", noise((40, 40))))
    (tmp_path / "y.zarr").mkdir()
    (tmp_path / "y.zarr" / "thesis.txt").write_text("precious")
    with (
        pytest.raises(FileProblem, match=r"is a folder that is no Zarr picture"),
        open_tiles(source, tmp_path / "y.zarr", overwrite=True),
    ):
        pass
    old = array_folder(tmp_path / "z.zarr", noise((9, 9)))
    with pytest.raises(FileProblem, match="already exists"), open_tiles(source, old, overwrite=False):
        pass
    with open_tiles(source, old, overwrite=True) as folder:
        fill(folder, noise((1, 40, 40), seed=3))
    np.testing.assert_array_equal(read_picture(old).pages[0], noise((40, 40), seed=3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.zarr", "y.zarr", "z.zarr"]
    with pytest.raises(FileProblem, match="goes into one file"), open_writer(source, tmp_path / "w.zarr"):
        pass


def test_without_the_package_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from dstl_cli.errors import DstlError

    path = array_folder(tmp_path / "x.zarr", noise((9, 9)))
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(
        DstlError, match=r"x\.zarr is a Zarr picture and needs the package zarr; pip install 'dstl-cli\[cluster\]'"
    ):
        read_picture(path)
