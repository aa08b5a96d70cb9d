"""`dstl denoise` on Zarr folders: the pixels of any other file, tile by tile, and folders that appear as files do."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
from running import Pixels, refused, run, scene, temporaries
from zarr_folders import array_folder, ome_folder

from dstl_cli.picture.formats import zarr as zarr_format
from dstl_cli.pixels import source as pixel_source
from dstl_cli.run import large

zarr = pytest.importorskip("zarr")

FAST = ("--quality", "fast", "--sigma", "20")


@pytest.fixture
def pages(tmp_path: Path) -> Pixels:
    """Two pages, as x.tif and as x.ome.zarr in the folder."""
    values = np.stack([scene((230, 170)), scene((230, 170), seed=1)])
    tifffile.imwrite(tmp_path / "x.tif", values, photometric="minisblack")
    ome_folder(tmp_path / "x.ome.zarr", values, chunk=32, shard=64)
    return values


def level(path: Path, name: str = "s0") -> Pixels:
    return np.asarray(zarr.open(store=str(path), mode="r")[name][:])


def test_a_zarr_picture_is_denoised_as_a_file_is(
    pages: Pixels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("denoise", tmp_path / "x.tif", *FAST).code == 0
    expected = tifffile.imread(tmp_path / "x_denoised.tif")
    monkeypatch.setattr(large, "TILE_PIXELS", 100 * 100)
    monkeypatch.setattr(pixel_source, "BAND_PIXELS", 11 * 170)
    done = run("denoise", tmp_path / "x.ome.zarr", *FAST, "--json")
    assert (done.code, done.report["files"][0]["pages"]) == (0, 2)
    np.testing.assert_array_equal(level(tmp_path / "x_denoised.ome.zarr"), expected)
    assert level(tmp_path / "x_denoised.ome.zarr", "s1")[0, 3, 4] == np.rint(expected[0, 6:8, 8:10].mean())
    assert run("denoise", tmp_path / "x.ome.zarr", "-o", tmp_path / "back.tif", *FAST).code == 0
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "back.tif"), expected)
    assert run("denoise", tmp_path / "x.tif", "-o", tmp_path / "new.ome.zarr", *FAST).code == 0
    np.testing.assert_array_equal(level(tmp_path / "new.ome.zarr", "0"), expected)
    crop = ("--crop", "33,41,100,90")
    assert run("denoise", tmp_path / "x.ome.zarr", "-o", tmp_path / "part.zarr", *FAST, *crop).code == 0
    np.testing.assert_array_equal(level(tmp_path / "part.zarr", "0"), expected[:, 41:131, 33:133])


@pytest.mark.parametrize("kind", ["colours", "alpha", "noise-free", "nan"])
def test_plain_arrays_of_all_kinds(kind: str, tmp_path: Path) -> None:
    values: Pixels = scene((70, 80, 3))
    options: tuple[str, ...] = FAST
    if kind == "alpha":
        values = np.dstack((values, np.tile(np.arange(80, dtype=np.uint8), (70, 1))))
    elif kind == "noise-free":
        values, options = np.full((70, 80), 77, np.uint8), ("--quality", "fast")
    elif kind == "nan":
        values, options = scene((70, 80)).astype(np.float32), (*FAST, "--nan", "keep")
        values[9, 9] = np.nan
    array_folder(tmp_path / "x.zarr", values)
    np.save(tmp_path / "x.npy", values)
    for name in ("x.zarr", "x.npy"):
        done = run("denoise", tmp_path / name, *options)
        assert done.code == 0, done.stderr
    found = np.asarray(zarr.open(store=str(tmp_path / "x_denoised.zarr"), mode="r")[:])
    np.testing.assert_array_equal(found, np.load(tmp_path / "x_denoised.npy"))


def test_folders_are_found_skipped_resumed_and_replaced_as_files_are(pages: Pixels, tmp_path: Path) -> None:
    (tmp_path / "x.tif").unlink()
    out = tmp_path / "out"
    listed = run("denoise", tmp_path, "-o", out, *FAST, "--dry-run")
    assert f"{tmp_path / 'x.ome.zarr'} -> {out / 'x.ome.zarr'}\n1 to denoise" in listed.text
    first = run("denoise", tmp_path, "-o", out, *FAST, "--json")
    assert (first.code, first.report["summary"]["done"]) == (0, 1)
    kept = (out / "x.ome.zarr" / "s0").stat().st_mtime_ns
    refused(run("denoise", tmp_path / "x.ome.zarr", "-o", out / "x.ome.zarr", *FAST), 2, "exists; use --force")
    again = run("denoise", tmp_path, "-o", out, *FAST, "--resume", "--json")
    assert again.report["summary"]["resumed"] == 1
    assert (out / "x.ome.zarr" / "s0").stat().st_mtime_ns == kept
    shutil.rmtree(out / "x.ome.zarr" / "s1" / "c")
    assert run("denoise", tmp_path / "x.ome.zarr", "-o", f"{out / 'x.ome.zarr'}/", *FAST, "--force").code == 0
    assert (out / "x.ome.zarr" / "s1" / "c").exists()
    assert not temporaries(tmp_path)


def test_what_cannot_be_is_told_before_any_work(pages: Pixels, tmp_path: Path) -> None:
    path = tmp_path / "x.ome.zarr"
    refused(run("denoise", path, *FAST, "--residual", tmp_path / "r.tif"), 2, "--residual is not written beside Zarr")
    refused(run("denoise", path, *FAST, "-o", path), 2, "is an input and is never overwritten")
    refused(run("denoise", path, *FAST, "-o", path / "s0" / "y.zarr"), 2, "is an input and is never overwritten")
    inside = (path / "s0", "-o", path, *FAST, "--force")
    refused(run("denoise", *inside), 2, "is an input and is never overwritten")
    np.testing.assert_array_equal(level(path), pages)
    (path / "s0" / "zarr.json").write_text("{")
    refused(run("denoise", path, *FAST, "-q"), 1, "x.ome.zarr is damaged")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.ome.zarr", "x.tif"]


def test_a_damaged_chunk_leaves_nothing_behind(tmp_path: Path) -> None:
    path = array_folder(tmp_path / "x.zarr", scene((70, 80)))
    (path / "c" / "1" / "1").write_bytes(b"nothing")
    refused(run("denoise", path, *FAST, "-q"), 1, "x.zarr is damaged (its pixels do not decode)")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.zarr"]


def test_a_full_disk_costs_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = array_folder(tmp_path / "x.zarr", scene((70, 80)))
    monkeypatch.setattr(zarr_format.ZarrFolder, "put", full)
    refused(run("denoise", path, *FAST, "-q"), 1, "x_denoised.zarr cannot be written (No space left", "free some space")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.zarr"]


def test_other_commands_take_zarr(pages: Pixels, tmp_path: Path) -> None:
    (tmp_path / "x.tif").unlink()
    path = tmp_path / "x.ome.zarr"
    told = run("inspect", path)
    assert "170 x 230 pixels, 2 pages" in told.text
    options = ("--iterations", "1", "--patch-size", "4", "--train-patches", "500")
    trained = run("train", tmp_path, "-o", tmp_path / "t.npz", *options, "--json")
    assert trained.report["summary"]["pictures"] == 1
    compared = run("evaluate", path, path, "--json")
    assert compared.report["mean"][0]["identical_rows"] == 2
