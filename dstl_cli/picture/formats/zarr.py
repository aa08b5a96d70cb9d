"""Zarr folders, versions 2 and 3: plain arrays, and the pictures of OME-NGFF with their reduced copies.

A page is a plane of the last two axes, or of those before the colours of a plain array; the axes before (t, c, z) are
gone through. The first level is the picture; the others are made anew as means of the one before. Tiles are written
from any process, as long as one writer has all of a chunk, or of a shard. What else is in the folder is copied.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from dstl_cli.base.addresses import Address, Place
from dstl_cli.base.depths import PIXEL_TYPES, in_words
from dstl_cli.base.names import display_name
from dstl_cli.base.threads import in_order
from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.picture.blocks import RecentBlocks, block_means, touching
from dstl_cli.picture.formats import FORMATS, zarr_chunks
from dstl_cli.picture.formats.zarr_stores import (
    METADATA,
    MOST_COPIED,
    beside_pixels,
    content_of,
    is_below,
    is_file,
    joined,
    put,
    store_to_read,
    store_to_write,
    zarr_package,
)
from dstl_cli.picture.model import Page, PageSpec, Picture, Pixels, join_alpha, split_alpha
from dstl_cli.picture.problems import damaged, decoding, unsupported
from dstl_cli.picture.source import SMALL_BYTES, Source, max_pixels

FEW_CHUNKS, CHUNK_PIXELS = 1024, 256  # of a page: so many may be small; others have so many pixels on an average
MOST_INNER = 65_536  # chunks of a shard, which has a list of all of them
READ_SIDE = 512  # chunks that are smaller are read together
MOST_PAGES = 1_000_000  # chunks that are not there cost a file nothing
FRESH_SIDE = 1024  # of the chunks of pictures from other formats, and of the smallest level of theirs
CODECS = frozenset(
    {
        *("blosc", "bz2", "gzip", "lz4", "lzma", "packbits", "zlib", "zstd"),
        *("astype", "bitround", "delta", "fixedscaleoffset", "quantize", "shuffle", "transpose"),
        *("adler32", "bytes", "crc32", "crc32c", "fletcher32", "jenkins_lookup3", "sharding_indexed"),
    }
)  # of numbers alone: others hold objects of Python, which may be programs, or are not kept well
CLAIM = ".dstl-run"  # the object that tells which run writes the others
REMOVED_TOGETHER = 16  # objects
_NUMBERS = re.compile(r"\d{1,18}")
TYPES_OF_AXES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


class ZarrExtras(NamedTuple):
    """The folder that a picture came from; where its arrays are in there: the picture, then its reduced copies.

    before: how many axes there are before those of a page.
    """

    root: Place
    levels: tuple[str, ...]
    before: int


def read(source: Source) -> Picture:
    """Read the metadata of a Zarr folder."""
    name, root = source.name, source.folder
    assert root is not None
    if isinstance(root, Address) and "::" in root.rest:
        raise unsupported(name, "is Zarr within an archive", "unpack it to a folder and give that")
    if not any(is_file(root / mark) for mark in METADATA):
        raise unsupported(name, "is called Zarr and holds no Zarr array", "give the folder that holds the picture")
    with decoding(name, "its Zarr metadata make no sense"):
        zarr = zarr_package(f"{name} is a Zarr picture and")
        store = store_to_read(root)
        node = zarr.open(store=store, mode="r")
        levels, axes = _levels(name, root, node)
        arrays = [node[level] if level else node for level in levels]
        levels = tuple(str(array.path) for array in arrays)  # where they were found, whatever the metadata call it
        for codec, settings in (step for array in arrays for step in zarr_chunks.steps(array.metadata)):
            if codec not in CODECS:
                raise unsupported(name, f"is coded by {display_name(codec)}", "save it with blosc or zstd")
            if codec == "blosc" and settings.get("clevel", 5) not in range(10):  # the library would print about it
                raise unsupported(name, "is coded by blosc at a level that is none", "save it with one from 0 to 9")
            if not zarr_chunks.types_are_numbers(settings):
                raise unsupported(name, f"is coded by {codec} of no plain numbers", "save it with blosc or zstd")
        zarr_chunks.bound(arrays[0])
        store.most_bytes = zarr_chunks.most_bytes(arrays[0])
        spec, pages = _spec(name, arrays[0], axes)
        for large, small in pairwise(arrays):
            if _factors(large.shape, small.shape) is None:
                what = f"has a level of {small.shape} values beside one of {large.shape}"
                raise unsupported(name, what, "remove it, or give the array of the first level")
    if isinstance(root, Path) and _leads_elsewhere(root, levels):
        raise unsupported(name, "has levels that are links or lie outside of it", "copy them into the folder")
    if math.prod(pages) > MOST_PAGES:
        raise unsupported(name, f"claims {math.prod(pages)} pages, more than {MOST_PAGES}", "give a part of it")
    source.check_size(spec.width, spec.height, 0)
    for array in arrays:
        _check_chunks(source, array, len(pages))
    _check_bytes(source, arrays)
    reader = _Reader(arrays[0], spec, pages)
    whole = slice(0, spec.height), slice(0, spec.width)
    return Picture(
        name,
        (spec,) * math.prod(pages),
        lambda index: reader.read(index, *whole),
        native=ZarrExtras(root, levels, len(pages)),
        decode_part=reader.read,
    )


def _leads_elsewhere(root: Path, levels: tuple[str, ...]) -> bool:
    """Whether some level is not in the folder itself."""
    inside = Path(os.path.realpath(root))
    return any(Path(os.path.realpath(inside / level)) != inside / level for level in levels)


def _check_chunks(source: Source, array: Any, before: int) -> None:
    """Refuse chunks, and lists of them, that no memory holds, and so many that going through them takes for ever.

    before: how many axes there are before those of a page.
    """
    source.check_size(math.prod(array.chunks), 1, 0)  # a chunk is decoded, and coded, whole
    inner = zarr_chunks.chunks_in_shard(array)
    if inner > MOST_INNER:
        what = f"claims {inner} chunks in a shard, more than {MOST_INNER}"
        raise unsupported(source.name, what, "save it with smaller shards")
    (height, width), (high, wide) = array.shape[before : before + 2], array.chunks[before : before + 2]
    count = -(-height // high) * -(-width // wide)
    if count > max(FEW_CHUNKS, height * width // CHUNK_PIXELS):
        raise unsupported(source.name, f"has {count} chunks of {high} x {wide} pixels", "save it with larger chunks")


def _check_bytes(source: Source, arrays: list[Any]) -> None:
    """Refuse chunks that are far larger than the picture: each is unpacked whole, whatever is needed of it."""
    widest = max(map(zarr_chunks.widest_number, arrays))
    largest = max(math.prod(array.chunks) for array in arrays) * widest
    if max_pixels() is None and largest > max(SMALL_BYTES, 4 * math.prod(arrays[0].shape) * widest):
        raise damaged(source.name, "its chunks are far larger than its pages")


def cropped_native(picture: Picture, rows: slice, columns: slice) -> None:
    """A part is laid out anew: the reduced copies and what is said of places do not fit it."""
    del picture, rows, columns


def create(picture: Picture, folder: Path, strip: bool) -> "ZarrFolder":
    """Lay out an empty folder for a picture: everything but its pixels, as in the folder it came from."""
    extras: ZarrExtras | None = picture.native
    if extras is None:
        return ZarrFolder(folder, _lay_out(picture, str(folder)), int(len(picture.specs) > 1))
    for name, content in _laid_out(extras, strip):
        there, source = folder / name, extras.root / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if content is None and isinstance(source, Path):
            _check_regular(picture.name, source)
            shutil.copyfile(source, there)
        else:
            there.write_bytes(_object(source) if content is None else content)
    return ZarrFolder(folder, extras.levels, extras.before)


@contextmanager
def created_at(picture: Picture, address: Address, strip: bool, *, same: bool) -> "Iterator[ZarrFolder]":
    """Lay out objects for a picture; what makes them one is put when the block ends without an error, last of all.

    same: objects are not written, but must be there with the same bytes.
    """
    extras: ZarrExtras | None = picture.native
    metadata, others = dict[str, bytes](), list[str]()
    if extras is None:
        levels = _lay_out(picture, store_to_write(address, metadata))
        before = int(len(picture.specs) > 1)
    else:
        levels, before = extras.levels, extras.before
        for name, content in _laid_out(extras, strip):
            if PurePosixPath(name).name not in METADATA:
                others.append(name)
                continue
            metadata[name] = _beside(picture.name, extras.root / name) if content is None else content
    arrays = {joined(level, name) for level in levels for name in METADATA}
    folder = ZarrFolder(address, levels, before, {name: metadata[name] for name in arrays & metadata.keys()}, same)
    left = _chunks_there(folder, {*metadata, *others, CLAIM})
    claim = uuid4().hex.encode()
    if not same:
        (address / CLAIM).put(claim, overwrite=True)
        for _ in in_order(lambda name: (address / name).remove(), left, REMOVED_TOGETHER):
            pass  # zarr would read them, and add to them
    for name in others:
        assert extras is not None
        put(address / name, _beside(picture.name, extras.root / name), same=same)
    yield folder
    if not same:
        if (address / CLAIM).part(0) != claim:
            raise FileProblem(f"{address} is being written by a run that began later, which completes it.")
        (address / CLAIM).remove()
    marks = FORMATS["zarr"].marks
    for name in sorted(metadata, key=lambda name: (-name.count("/"), name in marks, name)):
        if name in marks and not same:
            (address / name).put(metadata[name], overwrite=False)
        else:
            put(address / name, metadata[name], same=same)


def _laid_out(extras: ZarrExtras, strip: bool) -> Iterator[tuple[str, bytes | None]]:
    """The files that a picture has beside its pixels, by their places in its folder, and their bytes if they are new.

    strip: only what is needed to read it.
    """
    for here, folders, files in beside_pixels(extras.root, extras.levels):
        is_level = here in extras.levels
        if is_level:
            folders.clear()
        if strip:
            folders[:] = [
                name for name in folders if any(is_below(joined(here, name), level) for level in extras.levels)
            ]
        for file in files if not is_level and not strip else (name for name in files if name in METADATA):
            name = joined(here, file)
            if not strip:
                yield name, None
            elif file != ".zmetadata":  # which has everything a second time
                content = json.loads(content_of(extras.root / name) or b"")
                yield name, json.dumps(_stripped(file, content), indent=2).encode()


def _beside(name: str, place: Place) -> bytes:
    """The bytes of a file of a picture that is copied."""
    if isinstance(place, Path):
        _check_regular(name, place)
        return place.read_bytes()
    return _object(place)


def _object(place: Place) -> bytes:
    """The bytes of an object that is copied."""
    assert isinstance(place, Address)
    content = place.part(0, MOST_COPIED + 1)
    if content is None or len(content) > MOST_COPIED:
        raise FileProblem(f"{place} is not there any more, or has more than {MOST_COPIED} bytes; remove it.")
    return content


def _check_regular(name: str, place: Path) -> None:
    """Refuse pipes and devices, which copying might never end with."""
    if not place.is_file():
        raise unsupported(name, f"has {display_name(place.name)} in it, which is no regular file", "remove it")


def _chunks_there(folder: "ZarrFolder", own: set[str]) -> list[str]:
    """The chunks that a run has left at an address. Objects that are not those of the picture to be are refused."""
    assert isinstance(folder.root, Address)
    names = folder.root.files(recursive=True) if folder.root.is_folder() else {}
    arrays = [(level, folder.array(number)) for number, level in enumerate(folder.levels)]
    chunks = [name for name in names if name not in own]
    for name in chunks:
        if not any(
            is_below(level, name) and _is_chunk(array, name[len(level) :].strip("/")) for level, array in arrays
        ):
            what = f"{folder.root} has {display_name(name)} in it, which this run does not write"
            raise FileProblem(f"{what}; delete it, or give another name.")
    return chunks


def _is_chunk(array: Any, name: str) -> bool:
    """Whether a file of this name in the folder of an array is one of its chunks, or shards."""
    place = tuple(map(int, _NUMBERS.findall(name)))[-array.ndim :]
    grid = [-(-side // step) for side, step in zip(array.shape, array.shards or array.chunks, strict=True)]
    inside = len(place) == array.ndim and all(at < count for at, count in zip(place, grid, strict=True))
    return inside and bool(name == array.metadata.encode_chunk_key(place))


@dataclass(frozen=True)
class ZarrFolder:
    """A folder that is written tile by tile, each tile by one writer, in any process that sees the folder.

    metadata: of the arrays, at an address, where they are put last. same: tiles are only compared with what is there.
    """

    root: Place
    levels: tuple[str, ...]
    before: int
    metadata: dict[str, bytes] = field(default_factory=dict)
    same: bool = False

    def unit(self, level: int) -> tuple[int, int]:
        """Height and width of what one writer has to itself: a shard, or else a chunk."""
        array = self.array(level)
        high, wide = (array.shards or array.chunks)[self.before : self.before + 2]
        return int(high), int(wide)

    def size(self, level: int) -> tuple[int, int]:
        """Height and width of a level."""
        high, wide = self.array(level).shape[self.before : self.before + 2]
        return int(high), int(wide)

    def put(self, page: int, rows: slice, columns: slice, colour: Pixels, extra: Pixels | None) -> None:
        """Write a part of a page."""
        array = self.array(0)
        place = np.unravel_index(page, array.shape[: self.before]) if self.before else ()
        with _coding():
            array[(*map(int, place), rows, columns)] = join_alpha(colour, extra)

    def reduce(self, level: int, rows: slice, columns: slice) -> None:
        """Write a part of all pages of a level, from the level before."""
        large, small = self.array(level - 1), self.array(level)
        factors = _factors(large.shape, small.shape)
        assert factors is not None
        for place in np.ndindex(*small.shape[: self.before]):
            here = (*(slice(at, at + 1) for at in place), rows, columns)
            spans = zip(here, factors, large.shape, strict=True)
            there = tuple(slice(a.start * f, min(a.stop * f, length)) for a, f, length in spans)
            with _coding():
                small[here] = block_means(large[there], factors)

    def array(self, level: int) -> Any:
        """A level as an array of zarr."""
        path = self.levels[level]
        if isinstance(self.root, Path):
            return zarr_package().open_array(store=str(self.root / path), mode="r+")
        store = store_to_write(self.root, self.metadata, same=self.same)
        return zarr_package().open_array(store=store, path=path, mode="r+")


@contextmanager
def _coding() -> Iterator[None]:
    """What the codecs of an input, which may only ever have been read, cannot do, as a ValueError in words."""
    try:
        yield
    except (DstlError, MemoryError, OSError):
        raise
    except Exception as error:
        what = " ".join(f"{type(error).__name__} {error}".split())
        raise ValueError(f"its codecs do not write ({what}); save it with blosc or zstd.") from error


class _Reader:
    """Reads parts of the pages of an array; the blocks read last stay at hand."""

    def __init__(self, array: Any, spec: PageSpec, pages: tuple[int, ...]) -> None:
        self._array, self._spec, self._pages = array, spec, pages
        sides = array.chunks[len(pages) : len(pages) + 2]
        self._block = tuple(int(side) * max(1, READ_SIDE // int(side)) for side in sides)
        self._recent = RecentBlocks()

    def read(self, index: int, rows: slice, columns: slice) -> Page:
        """A part of a page."""
        spec, samples = self._spec, self._array.shape[len(self._pages) + 2 :]
        values = np.empty((rows.stop - rows.start, columns.stop - columns.start, *samples), spec.dtype)
        for row, column, there, here in touching(rows, columns, *self._block):
            values[there] = self._part(index, row, column)[here]
        return split_alpha(values)

    def _part(self, index: int, row: int, column: int) -> Pixels:
        """A block of a page."""
        key = index, row, column
        known = self._recent.get(key)
        if known is not None:
            return known
        high, wide = self._block
        place = map(int, np.unravel_index(index, self._pages)) if self._pages else ()
        found = self._array[(*place, slice(row * high, (row + 1) * high), slice(column * wide, (column + 1) * wide))]
        block = np.asarray(found)
        self._recent.keep(key, block, high * self._spec.width * max(1, block[0, 0].nbytes))
        return block


def _levels(name: str, root: Place, node: Any) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Where the arrays of a picture are, the largest first, and what its axes are called; None for a plain array."""
    if hasattr(node, "shape"):
        return ("",), None
    said = dict(node.attrs)
    ome: Mapping[str, Any] = said.get("ome", said)
    if "plate" in ome or "bioformats2raw.layout" in ome:
        raise unsupported(name, "is a Zarr folder with several pictures", "give one of those in it, such as its 0")
    found = ome.get("multiscales", [])
    arrays = [inner for inner in _folders(root) if _is_array(root / inner)] if not found else []
    if not found and len(arrays) == 1:
        return (arrays[0],), None
    if len(found) != 1:
        raise unsupported(name, f"is a Zarr folder with {len(found) or len(arrays)} pictures", "give one of its arrays")
    names = tuple(axis if isinstance(axis, str) else axis["name"] for axis in found[0].get("axes", "tczyx"))
    if names[-2:] != ("y", "x"):
        raise unsupported(
            name, f"has the axes {', '.join(map(display_name, names))}", "save it with y and x as the last ones"
        )
    return tuple(dataset["path"] for dataset in found[0]["datasets"]), names


def _folders(root: Place) -> list[str]:
    """The names of what may be a folder in a folder, in their order."""
    if isinstance(root, Path):
        return sorted(inner.name for inner in root.iterdir())
    return [name for name, size in root.entries().items() if size is None] if root.lists_folders else []


def _is_array(folder: Place) -> bool:
    """Whether a folder is an array of its own."""
    if is_file(folder / ".zarray"):
        return True
    about = content_of(folder / "zarr.json")
    return about is not None and json.loads(about).get("node_type") == "array"


def _spec(name: str, array: Any, axes: tuple[str, ...] | None) -> tuple[PageSpec, tuple[int, ...]]:
    """What each page is, and the lengths of the axes that the pages are gone through by."""
    dtype = np.dtype(array.dtype).newbyteorder("=")
    if dtype.name not in PIXEL_TYPES:
        raise unsupported(name, f"holds values of type {dtype.name}", f"save it as {in_words()}")
    shape = tuple(map(int, array.shape))
    samples = shape[-1] if axes is None and len(shape) > 2 and shape[-1] in (3, 4) else 1
    last = 3 if samples > 1 else 2
    if len(shape) < last or not all(shape):
        raise unsupported(name, f"holds an array of shape {shape}", "save it with rows and columns")
    height, width = shape[len(shape) - last :][:2]
    return PageSpec(height, width, min(samples, 3), dtype, int(samples == 4)), shape[: len(shape) - last]


def _factors(large: tuple[int, ...], small: tuple[int, ...]) -> tuple[int, ...] | None:
    """By what each axis of one level is shorter than that of another; None where that is no whole number."""
    factors = [max(1, round(a / b)) if b else 0 for a, b in zip(large, small, strict=True)]
    fits = (f and b in (a // f, -(-a // f)) for a, b, f in zip(large, small, factors, strict=True))
    return tuple(factors) if all(fits) else None


def _stripped(file: str, content: dict[str, Any]) -> dict[str, Any]:
    """A metadata file without what is not needed to read the picture: of the attributes the multiscales stay."""
    if file in (".zarray", ".zgroup"):
        return content
    said = content if file == ".zattrs" else content.get("attributes", {})
    kept = {key: said[key] for key in ("multiscales",) if key in said}
    if "ome" in said:
        kept["ome"] = {key: said["ome"][key] for key in ("version", "multiscales") if key in said["ome"]}
    if file == ".zattrs":
        return kept
    return {key: value for key, value in content.items() if key != "consolidated_metadata"} | {"attributes": kept}


# --- pictures from other formats ----------------------------------------------------------------------


def _lay_out(picture: Picture, store: Any) -> tuple[str, ...]:
    """Make the arrays of a picture from another format: grey ones as OME-NGFF 0.5 with reduced copies, others plain."""
    spec, pages = picture.specs[0], len(picture.specs)
    before = (pages,) if pages > 1 else ()
    samples = spec.channels + spec.extra
    if samples > 1:
        _make(store, "", (*before, spec.height, spec.width, samples), spec.dtype, len(before))
        return ("",)
    sizes = list(_halved(spec.height, spec.width))
    axes = "zyx"[1 - len(before) :]
    datasets = []
    zarr_package().create_group(store=store, zarr_format=3, overwrite=True)
    for number, (height, width) in enumerate(sizes):
        _make(store, str(number), (*before, height, width), spec.dtype, len(before), axes)
        scale = [1.0] * len(before) + [spec.height / height, spec.width / width]
        transformations = [{"type": "scale", "scale": scale}]
        datasets.append({"path": str(number), "coordinateTransformations": transformations})
    named = [{"name": axis, "type": TYPES_OF_AXES[axis]} for axis in axes]
    multiscales = [{"name": "", "axes": named, "datasets": datasets, "type": "mean"}]
    group = zarr_package().open_group(store=store, mode="r+")
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales}
    return tuple(str(number) for number in range(len(sizes)))


def _halved(height: int, width: int) -> Iterator[tuple[int, int]]:
    """The sizes of a picture and of its reduced copies, until one fits a chunk."""
    yield height, width
    while max(height, width) > FRESH_SIDE and min(height, width) > 1:
        height, width = -(-height // 2), -(-width // 2)
        yield height, width


def _make(store: Any, path: str, shape: tuple[int, ...], dtype: Any, before: int, axes: str | None = None) -> None:
    """Make an array whose chunks are parts of one page."""
    sides = [min(side, FRESH_SIDE) for side in shape[before : before + 2]]
    zarr_package().create_array(
        store=store,
        name=path or None,
        shape=shape,
        chunks=(*(1,) * before, *sides, *shape[before + 2 :]),
        dtype=dtype,
        zarr_format=3,
        dimension_names=None if axes is None else list(axes),
        overwrite=not path,
    )
