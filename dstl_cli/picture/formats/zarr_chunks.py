"""Chunks of Zarr arrays unpack to what they hold and no more, whatever their bytes say.

The codecs of zarr unpack all that there is; those of an array that is read are replaced by ours, which know a limit:
the bytes of a chunk's numbers, and a little more for headers and checksums. The other steps of decoding are known to
give no more bytes than they get, or so many times more.
"""

import asyncio
import bz2
import dataclasses
import lzma
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from dstl_cli.picture.problems import BadPixels
from dstl_cli.picture.source import SMALL_BYTES

CODED_TYPES = ("astype", "encode_dtype", "dtype")  # settings of filters: what is kept, the first that there is
STATED_TYPES = ("dtype", "astype", "encode_dtype", "decode_dtype")
WIDEST = 8  # bytes of a number that a filter may calculate with
HEADERS, INNER_HEADERS = 4096, 256  # bytes that codecs may add to a chunk, and to each chunk within a shard
PIECE = 2**18  # of packed bytes that are unpacked at a time
FEW_STREAMS, BYTES_PER_STREAM = 16, 2**14  # that a chunk may be packed in; bgzip has 64 KiB in each


def steps(metadata: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the chunks of an array are coded by, one in another too: names without prefix, and settings."""
    told = metadata.to_dict()
    waiting = [*told.get("codecs", ()), *(told.get("filters") or ()), told.get("compressor")]
    while waiting:
        codec = waiting.pop()
        if codec is not None:
            inner = codec.get("configuration", codec)
            waiting += [*inner.get("codecs", ()), *inner.get("index_codecs", ())]
            yield _name(codec), inner


def chunks_in_shard(array: Any) -> int:
    """How many chunks are in a shard of an array, those in shards in shards too; 1 where it has none."""
    whole = math.prod(array.shards or array.chunks)
    shapes = (settings["chunk_shape"] for name, settings in steps(array.metadata) if name == "sharding_indexed")
    return int(whole // max(1, min(map(math.prod, shapes), default=whole)))


def widest_number(array: Any) -> int:
    """The most bytes that a number of an array takes in any step of decoding."""
    stated = any(key in settings for _, settings in steps(array.metadata) for key in STATED_TYPES)
    return WIDEST if stated else np.dtype(array.dtype).itemsize


def types_are_numbers(settings: Mapping[str, Any]) -> bool:
    """Whether a filter calculates with plain numbers, and not with texts of any length."""
    types = [np.dtype(settings[key]) for key in STATED_TYPES if settings.get(key) is not None]
    return all(found.kind in "biuf" and found.itemsize <= WIDEST for found in types)


def bound(array: Any) -> None:
    """Have an array, which is only read, unpack its chunks by the codecs of this module."""
    from zarr.codecs._v2 import V2Codec

    plain, widest = array._async_array, widest_number(array)
    if array.metadata.zarr_format == 2:
        limit = _limit(math.prod(array.chunks) * widest)
        filters = tuple(_Step(codec, limit) for codec in array.metadata.filters or ())
        packer = array.metadata.compressor
        codecs = [V2Codec(filters=filters or None, compressor=None if packer is None else _Step(packer, limit))]
    else:
        inner = chunks_in_shard(array)
        codecs = [_bounded(codec, widest, inner) for codec in array.metadata.codecs]
    object.__setattr__(plain, "codec_pipeline", type(plain.codec_pipeline).from_codecs(codecs))


def most_bytes(array: Any) -> tuple[int, int]:
    """What is read at most of a file of pixels, which may have parts that nothing points to, and of a piece of one.

    A piece is a chunk in a shard, or the list of all: 16 bytes for each, and a checksum.
    """
    widest, inner = widest_number(array), chunks_in_shard(array)
    whole = _limit(math.prod(array.shards or array.chunks) * widest, inner)
    return max(SMALL_BYTES, 4 * whole), max(_limit(math.prod(array.chunks) * widest), 16 * inner + HEADERS)


def _limit(numbers: int, inner: int = 1) -> int:
    """How many bytes a chunk of so many bytes of numbers may have, before and after any step of decoding."""
    return numbers + numbers // 16 + HEADERS + INNER_HEADERS * inner


def _bounded(codec: Any, widest: int, inner: int) -> Any:
    """A codec of Zarr 3 that knows a limit, if it unpacks. inner: how many chunks are in a shard."""
    from zarr.codecs import ShardingCodec

    if isinstance(codec, ShardingCodec):  # zarr itself refuses packers of the index
        return dataclasses.replace(codec, codecs=tuple(_bounded(each, widest, 1) for each in codec.codecs))
    told = codec.to_dict()
    name = _name(told)
    return _packed_class()(name, told.get("configuration", {}), widest, inner) if name in UNPACK else codec


def _name(told: Mapping[str, Any]) -> str:
    """What a codec is called in Zarr 2, from its metadata in either version."""
    return str(told.get("name", told.get("id"))).removeprefix("numcodecs.")


@cache
def _packed_class() -> Any:
    """The class of packers of Zarr 3, which unpack up to a limit: that of the chunk they are given."""
    from zarr.abc.codec import BytesBytesCodec

    @dataclasses.dataclass(frozen=True)
    class Packed(BytesBytesCodec):  # type: ignore[misc]
        name: str
        settings: Mapping[str, Any]
        widest: int
        inner: int
        is_fixed_size = False

        async def _decode_single(self, chunk: Any, spec: Any) -> Any:
            number = max(self.widest, spec.dtype.to_native_dtype().itemsize)
            limit = _limit(math.prod(spec.shape) * number, self.inner)
            unpacked = await asyncio.to_thread(unpack, self.name, chunk.as_numpy_array(), limit, self.settings)
            return spec.prototype.buffer.from_bytes(unpacked)

    return Packed


@dataclasses.dataclass(frozen=True)
class _Step:
    """A packer or a filter of Zarr 2: gives no more bytes than its limit."""

    codec: Any
    limit: int

    def decode(self, chunk: Any) -> Any:
        """The chunk as it was before this step."""
        settings = self.codec.get_config()
        name = _name(settings)
        if name in UNPACK:
            return unpack(name, chunk, self.limit, settings)
        if memoryview(chunk).nbytes * _growth(name, settings) > self.limit:
            raise too_much()
        return self.codec.decode(chunk)


def _growth(name: str, settings: Mapping[str, Any]) -> int:
    """How many times more bytes a filter takes than it gets."""
    if name == "packbits":
        return 8
    coded = next((settings[key] for key in CODED_TYPES if settings.get(key) is not None), None)
    return 1 if coded is None else WIDEST // np.dtype(coded).itemsize


def unpack(name: str, chunk: Any, limit: int, settings: Mapping[str, Any]) -> Any:
    """The bytes that a packer made a chunk of; a chunk that has more than limit, before or after, is refused."""
    packed = np.ascontiguousarray(chunk).data.cast("B")
    if packed.nbytes > limit:
        raise too_much()
    return UNPACK[name](packed, limit, settings)


def too_much() -> BadPixels:
    """The error for a chunk that would take memory without end."""
    return BadPixels("a chunk of it unpacks to more than it holds")


def _streams(packed: memoryview, limit: int, start: Callable[[], Any]) -> bytes:
    """What streams of the standard library unpack to, one after the other, perhaps with zeros at the end."""
    parts: list[bytes] = []
    at = size = 0
    for _ in range(FEW_STREAMS + limit // BYTES_PER_STREAM):
        stream = start()
        while not stream.eof:
            piece = packed[at : at + PIECE]
            if not piece:
                raise EOFError("the chunk ends before its stream")
            parts.append(stream.decompress(piece, limit + 1 - size))
            at, size = at + len(piece), size + len(parts[-1])
            if size > limit:
                raise too_much()
        at -= len(stream.unused_data)
        if not any(packed[at : at + PIECE]):
            return b"".join(parts)
    raise BadPixels("a chunk of it has too many streams")


def _lzma(packed: memoryview, limit: int, settings: Mapping[str, Any]) -> bytes:
    told = settings.get("format", lzma.FORMAT_XZ), None, settings.get("filters")
    return _streams(packed, limit, lambda: lzma.LZMADecompressor(*told))


def _zstd(packed: memoryview, limit: int, settings: Mapping[str, Any]) -> Any:
    import imagecodecs

    try:
        return imagecodecs.zstd_decode(bytes(packed), out=np.empty(limit, np.uint8).data)
    except imagecodecs.ZstdError as error:
        raise (too_much() if "too small" in str(error) else error) from None


def _blosc(packed: memoryview, limit: int, settings: Mapping[str, Any]) -> Any:
    """Its header has the size at byte 4; what does not fit into it is an error."""
    if len(packed) < 16 or int.from_bytes(packed[4:8], "little") > limit:
        raise too_much()
    from numcodecs import blosc

    return blosc.decompress(packed)


def _lz4(packed: memoryview, limit: int, settings: Mapping[str, Any]) -> Any:
    """A header of its own has the size; what does not fit into it is an error."""
    if int.from_bytes(packed[:4], "little") > limit:
        raise too_much()
    from numcodecs import lz4

    return lz4.decompress(packed)


UNPACK: dict[str, Callable[[memoryview, int, Mapping[str, Any]], Any]] = {
    "gzip": lambda packed, limit, _: _streams(packed, limit, lambda: zlib.decompressobj(31)),
    "zlib": lambda packed, limit, _: _streams(packed, limit, zlib.decompressobj),
    "bz2": lambda packed, limit, _: _streams(packed, limit, bz2.BZ2Decompressor),
    "lzma": _lzma,
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
}
