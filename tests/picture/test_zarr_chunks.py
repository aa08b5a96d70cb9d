"""Chunks of Zarr folders: honest ones of all codecs are read to the bit, none unpacks to more than it holds."""

import bz2
import gzip
import json
import lzma
import time
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dstl_cli.errors import FileProblem
from dstl_cli.picture.formats import zarr as zarr_module
from dstl_cli.picture.read import read_picture

zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")

SIDE = 64
BOMB = 2**28  # bytes that a chunk of 64 x 64 unpacks to
ZEROS = bytes(2**23)
V3 = {"blosc", "gzip", "zstd", "crc32c", "transpose"}  # codecs that Zarr 3 has names of its own for
FILTERS: dict[str, dict[str, Any]] = {
    "astype": {"encode_dtype": "<u4", "decode_dtype": "<u2"},
    "bitround": {"keepbits": 10},
    "delta": {"dtype": "<u2", "astype": "<i4"},
    "fixedscaleoffset": {"offset": 0, "scale": 1, "dtype": "<u2", "astype": "<u4"},
    "packbits": {},
    "quantize": {"digits": 3, "dtype": "<f4"},
    "shuffle": {"elementsize": 2},
    "adler32": {},
    "crc32": {},
    "crc32c": {},
    "fletcher32": {},
    "jenkins_lookup3": {},
}
PACKERS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
CHECKSUMS = ("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3")
ARRAY_FILTERS = ("astype", "bitround", "delta", "fixedscaleoffset", "quantize")  # of arrays of numbers, for Zarr 3


def pictures(dtype: str = "<u2") -> list[np.ndarray[Any, Any]]:
    """What packs badly, what packs well, and a size that no chunk of 64 x 64 divides."""
    noise = np.random.default_rng(0).integers(0, 65_536, (SIDE, SIDE))
    return [noise.astype(dtype), np.full((SIDE, SIDE), 3, dtype), np.tile(noise, (2, 3))[:100, :150].astype(dtype)]


def folder(path: Path, values: np.ndarray[Any, Any], **told: Any) -> Path:
    """An array in chunks of 64 x 64, coded as it is told."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns of codecs that are not in the specification
        array = zarr.create_array(str(path), shape=values.shape, chunks=(SIDE, SIDE), dtype=values.dtype, **told)
        array[:] = values
    return path


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The folder after a change of what is said of its array."""
    file = next(path.glob("zarr.json"), path / ".zarray")
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))
    return path


def named(name: str, **settings: Any) -> dict[str, Any]:
    """A codec in the metadata of Zarr 3."""
    return {"name": name if name in V3 else f"numcodecs.{name}", "configuration": settings}


def read(path: Path) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_picture(path).pages[0]


def frame(blocks: list[tuple[int, int, bytes]]) -> bytes:
    """A zstd frame that does not say how much it holds, of blocks: their type, size and bytes."""
    body = b"".join(
        (((size << 3) | kind << 1 | (at == len(blocks) - 1)).to_bytes(3, "little") + data)
        for at, (kind, size, data) in enumerate(blocks)
    )
    return b"\x28\xb5\x2f\xfd\x00\x38" + body  # a window of 128 KiB


# --- honest chunks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("version", [2, 3])
def test_chunks_of_every_packer_are_read_to_the_bit(version: int, name: str, tmp_path: Path) -> None:
    for number, values in enumerate(pictures()):
        coder = {"id": name} if version == 2 else named(name)
        path = folder(tmp_path / f"{number}.zarr", values, zarr_format=version, compressors=coder)
        np.testing.assert_array_equal(read(path), values)


@pytest.mark.parametrize("name", [*FILTERS])
def test_chunks_of_every_filter_of_zarr_2_are_read_to_the_bit(name: str, tmp_path: Path) -> None:
    dtype = {"bitround": "<f4", "quantize": "<f4", "packbits": "|u1"}.get(name, "<u2")
    for number, values in enumerate(pictures(dtype)):
        if name == "packbits":
            values &= 1
        coder = numcodecs.get_codec({"id": name} | FILTERS[name])
        path = folder(tmp_path / f"{number}.zarr", values, zarr_format=2, filters=[coder], compressors={"id": "bz2"})
        expected = zarr.open(str(path), mode="r")[:]
        assert name in ("bitround", "quantize") or (expected == values).all()
        np.testing.assert_array_equal(read(path), expected)


@pytest.mark.parametrize("name", [*ARRAY_FILTERS, *CHECKSUMS, "shuffle", "transpose"])
def test_chunks_of_every_filter_of_zarr_3_are_read_to_the_bit(name: str, tmp_path: Path) -> None:
    dtype = "<f4" if name in ("bitround", "quantize") else "<u2"
    for number, values in enumerate(pictures(dtype)):
        coder = named(name, **({"order": [1, 0]} if name == "transpose" else FILTERS[name]))
        of_bytes = name in CHECKSUMS or name == "shuffle"
        told: dict[str, Any] = {"compressors": [coder, named("gzip", level=1)]}
        if not of_bytes:
            told = {"filters": [coder], "compressors": [named("gzip", level=1)]}
        path = folder(tmp_path / f"{number}.zarr", values, zarr_format=3, **told)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = zarr.open(str(path), mode="r")[:]
        np.testing.assert_array_equal(read(path), expected)


@pytest.mark.parametrize("name", PACKERS)
def test_shards_are_read_to_the_bit(name: str, tmp_path: Path) -> None:
    for number, values in enumerate(pictures()):
        told: dict[str, Any] = {"compressors": named(name), "shards": (2 * SIDE, 2 * SIDE)}
        path = folder(tmp_path / f"{number}.zarr", values, zarr_format=3, **told)
        np.testing.assert_array_equal(read(path), values)
        np.testing.assert_array_equal(read(folder_of_packed_shards(tmp_path / f"p{number}.zarr", values, name)), values)


def folder_of_packed_shards(path: Path, values: np.ndarray[Any, Any], name: str) -> Path:
    """Shards of small chunks that are packed, and packed again as one."""
    inner = {"chunk_shape": [4, 4], "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, named(name)]}
    inner["index_codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}, named("crc32c")]
    codecs = [{"name": "sharding_indexed", "configuration": inner | {"index_location": "end"}}, named(name)]

    def pack(said: dict[str, Any]) -> None:
        said["codecs"] = codecs

    changed(folder(path, np.zeros_like(values), zarr_format=3), pack)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.open(str(path), mode="r+")[:] = values
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_streams_one_after_the_other_are_read(version: int, tmp_path: Path) -> None:
    """Parallel packers cut a chunk into streams, some fill up with zeros, and zstd need not say how much it holds."""
    values = pictures("|u1")[0]
    halves = values.tobytes()[:1000], values.tobytes()[1000:]
    whole = values.tobytes()
    packed = {
        "gzip": (b"".join(map(gzip.compress, halves)), gzip.compress(whole) + bytes(100)),
        "bz2": (b"".join(map(bz2.compress, halves)),),
        "lzma": (b"".join(map(lzma.compress, halves)),),
        "zstd": (
            b"".join(map(numcodecs.zstd.compress, halves)),
            frame([(0, len(half), half) for half in halves]),
            frame([(0, 9, whole[:9])]) + frame([(0, len(whole) - 9, whole[9:])]),
        ),
    }
    for name, contents in packed.items():
        coder = {"id": name} if version == 2 else named(name)
        path = folder(tmp_path / f"{name}.zarr", values, zarr_format=version, compressors=coder)
        for content in contents:
            (path / ("0.0" if version == 2 else "c/0/0")).write_bytes(content)
            np.testing.assert_array_equal(read(path), values)


# --- bombs --------------------------------------------------------------------------------------------


def bombs() -> dict[str, bytes]:
    """What each packer makes of 256 MiB of zeros, or a little less."""
    times = BOMB // len(ZEROS)
    deflate = zlib.compressobj(9)
    return {
        "gzip": gzip.compress(ZEROS) * times,
        "zlib": b"".join(map(deflate.compress, [ZEROS] * times)) + deflate.flush(),
        "bz2": bz2.compress(ZEROS) * times,
        "lzma": lzma.compress(ZEROS, preset=0) * times,
        "zstd": numcodecs.zstd.compress(bytes(BOMB)),
        "zstd frames": numcodecs.zstd.compress(ZEROS) * times,
        "zstd of unknown size": frame([(1, 2**17, b"\0")] * (BOMB // 2**17)),
        "blosc": numcodecs.blosc.compress(bytes(BOMB), b"lz4", 5),
        "lz4": numcodecs.lz4.compress(bytes(BOMB)),
    }


@pytest.fixture(scope="module")
def all_bombs() -> dict[str, bytes]:
    return bombs()


def refused(path: Path, words: str, seconds: float = 1.5, mebibytes: int = 16) -> None:
    """Reading ends with one sentence, soon and in little memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = read_picture(path)
        tracemalloc.start()
        start = time.process_time()
        try:
            with pytest.raises(FileProblem, match=words):
                picture.page(0)
        finally:
            spent, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert spent < seconds
    assert peak < mebibytes * 2**20


KINDS = ("gzip", "zlib", "bz2", "lzma", "zstd", "zstd frames", "zstd of unknown size", "blosc", "lz4")
SENTENCE = r"is damaged \(a chunk of it unpacks to more than it holds\)"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["compressor", "filter", "3", "shard", "around shards"])
def test_chunks_that_unpack_to_more_than_they_hold(
    kind: str, place: str, all_bombs: dict[str, bytes], tmp_path: Path
) -> None:
    values, name, bomb = np.ones((SIDE, SIDE), np.uint8), kind.split()[0], all_bombs[kind]
    path = tmp_path / "x.zarr"
    if place in ("compressor", "filter"):
        coder = numcodecs.get_codec({"id": name})
        told = {"compressors": coder} if place == "compressor" else {"filters": [coder], "compressors": None}
        folder(path, values, zarr_format=2, **told)
        (path / "0.0").write_bytes(bomb)
    elif place == "3":
        folder(path, values, zarr_format=3, compressors=named(name))
        (path / "c/0/0").write_bytes(bomb)
    elif place == "shard":
        folder(path, values, zarr_format=3, compressors=named(name), shards=(SIDE, SIDE))
        index = np.array([0, len(bomb)], "<u8").tobytes()
        (path / "c/0/0").write_bytes(bomb + bytes(numcodecs.checksum32.CRC32C().encode(index)))
    else:
        folder_of_packed_shards(path, values, name)
        (path / "c/0/0").write_bytes(bomb)
    refused(path, SENTENCE)


@pytest.mark.parametrize("filters", [["packbits"] * 6, ["astype"] * 5, ["packbits", "gzip"], ["delta", "gzip"] * 3])
def test_filters_that_make_more_and_more(filters: list[str], tmp_path: Path) -> None:
    values, settings = np.ones((SIDE, SIDE), np.uint8), FILTERS | {"gzip": {}}
    settings |= {
        "astype": {"encode_dtype": "|u1", "decode_dtype": "<f8"},
        "delta": {"dtype": "<f8", "astype": "|u1"},
    }
    path = folder(tmp_path / "x.zarr", values, zarr_format=2, compressors=None)
    changed(path, lambda said: said.update(filters=[{"id": name} | settings[name] for name in filters]))
    body = bytes(SIDE * SIDE)
    (path / "0.0").write_bytes(gzip.compress(body) if "gzip" in filters else body)
    refused(path, "is damaged")


@pytest.mark.parametrize("version", [2, 3])
def test_filters_of_long_texts_are_refused(version: int, tmp_path: Path) -> None:
    settings = {"encode_dtype": "|u1", "decode_dtype": "|S100000"}
    path = folder(tmp_path / "x.zarr", np.ones((SIDE, SIDE), np.uint8), zarr_format=version)

    def change(said: dict[str, Any]) -> None:
        if version == 2:
            said["filters"] = [{"id": "astype"} | settings]
        else:
            said["codecs"].insert(0, named("astype", **settings))

    changed(path, change)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(FileProblem):
            read_picture(path)


@pytest.mark.parametrize(("name", "empty"), [("gzip", gzip.compress(b"", mtime=0)), ("bz2", bz2.compress(b""))])
def test_streams_of_nothing_are_counted(name: str, empty: bytes, tmp_path: Path) -> None:
    values = np.ones((2048, 2048), np.uint8)
    path = tmp_path / "x.zarr"
    zarr.create_array(
        str(path), shape=values.shape, chunks=values.shape, dtype="u1", zarr_format=2, compressors={"id": name}
    )
    (path / "0.0").write_bytes(empty * (values.size // len(empty)))
    refused(path, "is damaged", mebibytes=64)


def test_a_chunk_packed_to_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "x.zarr", np.ones((SIDE, SIDE), np.uint8), zarr_format=2, compressors={"id": "zlib"})
    (path / "0.0").write_bytes(bytes(2**20))
    refused(path, "is damaged")


def test_numbers_that_are_kept_wider_than_they_are_read(tmp_path: Path) -> None:
    values = pictures("|u1")[0]
    coders = [{"id": "astype", "encode_dtype": "<f8", "decode_dtype": "|u1"}, {"id": "delta", "dtype": "<f8"}]
    filters = [numcodecs.get_codec(coder) for coder in coders]
    np.testing.assert_array_equal(read(folder(tmp_path / "x.zarr", values, zarr_format=2, filters=filters)), values)


def test_chunks_of_a_shard_that_are_all_the_whole_file(tmp_path: Path) -> None:
    """Each would be read by itself: a thousand of them are a thousand times the file."""
    path = tmp_path / "x.zarr"
    zarr.create_array(str(path), shape=(512, 512), chunks=(16, 16), shards=(1024, 1024), dtype="u1")
    size = 2**20
    index = np.array([[0, size]] * 64**2, "<u8").tobytes()
    (path / "c/0").mkdir(parents=True)
    (path / "c/0/0").write_bytes(bytes(size) + bytes(numcodecs.checksum32.CRC32C().encode(index)))
    refused(path, "takes more of a shard than it holds")


@pytest.mark.parametrize("version", [2, 3])
def test_files_of_chunks_far_larger_than_a_chunk_are_not_read(version: int, tmp_path: Path) -> None:
    path = folder(tmp_path / "x.zarr", np.ones((SIDE, SIDE), np.uint8), zarr_format=version, compressors=None)
    with (path / ("0.0" if version == 2 else "c/0/0")).open("r+b") as stream:
        stream.truncate(2**33)
    refused(path, "is a file far larger than it holds")


@pytest.mark.parametrize("version", [2, 3])
def test_chunks_far_larger_than_their_picture_are_refused(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB are taken for any picture; more are unpacked where they are asked for."""
    sides = {"4096.zarr": [4096, 4096], "8192.zarr": [8192, 8193]}
    paths = [folder(tmp_path / name, np.ones((SIDE, SIDE), np.uint8), zarr_format=version) for name in sides]
    for path in paths:
        (path / ("0.0" if version == 2 else "c/0/0")).unlink()

        def change(said: dict[str, Any], path: Path = path) -> None:
            grid = said if version == 2 else said["chunk_grid"]["configuration"]
            grid["chunks" if version == 2 else "chunk_shape"] = sides[path.name]

        changed(path, change)
    assert not read(paths[0]).any()
    with pytest.raises(FileProblem, match=r"is damaged \(its chunks are far larger than its pages\)"):
        read_picture(paths[1])
    monkeypatch.setenv("DSTL_MAX_PIXELS", "100000000")
    assert not read(paths[1]).any()


def test_shards_that_are_packed_have_their_chunks_counted_too(tmp_path: Path) -> None:
    path = folder_of_packed_shards(tmp_path / "x.zarr", np.ones((SIDE, SIDE), np.uint8), "gzip")

    def change(said: dict[str, Any]) -> None:
        said["chunk_grid"]["configuration"]["chunk_shape"] = [512, 512]
        said["codecs"][0]["configuration"]["chunk_shape"] = [1, 2]

    with pytest.raises(FileProblem, match="claims 131072 chunks in a shard, more than 65536"):
        read(changed(path, change))


def test_every_allowed_codec_is_tried_here() -> None:
    assert set(PACKERS) | set(FILTERS) | {"transpose", "bytes", "sharding_indexed"} == zarr_module.CODECS
