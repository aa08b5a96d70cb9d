"""Where the files of a Zarr picture are, as stores of the package zarr: a folder of this machine, or objects.

Files are read if they are regular ones, objects in as many bytes as they may have. Objects are put whole.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, MutableMapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from dstl_cli.base.addresses import Address, Place
from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.picture.problems import BadPixels
from dstl_cli.picture.source import SMALL_BYTES

METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")  # the files that are not pixels
MOST_COPIED = 2**30  # bytes of an object beside the pixels, which is in memory whole


def zarr_package(what: str = "A Zarr picture") -> Any:
    """The package that reads and writes chunks; its absence is told in one sentence."""
    try:
        import zarr
    except ImportError:
        raise DstlError(f"{what} needs the package zarr; pip install 'dstl-cli[cluster]' has it.") from None
    return zarr


def store_to_read(root: Place) -> Any:
    """The files of a folder, to be read.

    With `most_bytes` it reads so many of a file of pixels, or of a piece of one, and refuses longer ones.
    """
    return _objects_class()(root) if isinstance(root, Address) else _files_class()(root, read_only=True)


def store_to_write(root: Address, metadata: MutableMapping[str, bytes], *, same: bool = False) -> Any:
    """The objects below an address, to be written. What is no pixels is only kept in `metadata`.

    same: objects are not written, but must be there with the same bytes.
    """
    return _objects_class()(root, metadata, same)


def content_of(place: Place) -> bytes | None:
    """The bytes of a file of metadata; None where no regular file is."""
    if isinstance(place, Path):
        return place.read_bytes() if place.is_file() else None
    content = place.part(0, SMALL_BYTES + 1)
    if content is not None and len(content) > SMALL_BYTES:
        raise BadPixels("its metadata are far too long")
    return content


def is_file(place: Place) -> bool:
    """Whether a regular file, or an object, is there."""
    return place.is_file() if isinstance(place, Path) else place.size() is not None


def joined(*parts: str) -> str:
    """The place of a file in a folder from those of the folders that it is in."""
    return "/".join(part for part in parts if part)


def beside_pixels(root: Place, levels: Iterable[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders of a picture as os.walk gives them, by their places in it: each with those in it, and its files.

    Of levels, of which a store has a list as long as their pixels, only metadata are given, and so of all where nothing
    tells what a folder holds.
    """
    if isinstance(root, Path):
        for here, folders, files in os.walk(root):
            place = Path(here).relative_to(root).as_posix()
            yield "" if place == "." else place, folders, files
        return
    known, waiting = set(levels), [""]
    while waiting:
        here = waiting.pop()
        folder = root / here if here else root
        if here in known or not root.lists_folders:
            below = [level[len(here) :].strip("/") for level in known if level != here and is_below(here, level)]
            folders = sorted({level.partition("/")[0] for level in below})
            files = [name for name in METADATA if is_file(folder / name)]
        else:
            found = folder.entries()
            _check_names(root, found)
            folders, files = ([name for name in found if (found[name] is None) == kind] for kind in (True, False))
        yield here, folders, files
        waiting += [joined(here, name) for name in reversed(folders)]


def is_below(folder: str, place: str) -> bool:
    """Whether a place is a folder, or below it."""
    return not folder or PurePosixPath(place).is_relative_to(folder)


def _check_names(root: Address, names: Iterable[str]) -> None:
    """Refuse names that mean something else in a folder of this machine."""
    for name in names:
        if name in (".", "..") or "\\" in name or "\0" in name or Path(name).anchor:
            raise FileProblem(f"{root} has a name in it that leads out of its folder; rename it.")


@cache
def _files_class() -> Any:
    """Zarr's store of files without those that one waits for (pipes) and that may not end (devices)."""
    plain = zarr_package().storage.LocalStore

    def checked(store: Any, key: str, within: Any = None) -> None:
        path = store.root / key
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ValueError(f"{key} is not a regular file")
        if store.most_bytes is None:
            return
        whole, piece = store.most_bytes
        if within is None and path.is_file() and path.stat().st_size > whole:
            raise _too_long()
        if within is not None:
            _check_piece(within, piece)

    class Files(plain):  # type: ignore[misc, valid-type]
        most_bytes: tuple[int, int] | None = None

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            checked(self, key, byte_range)
            return await super().get(key, prototype, byte_range)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            wanted = list(key_ranges)
            for key, within in wanted:
                checked(self, key, within)
            return await super().get_partial_values(prototype, wanted)

    return Files


class _Objects:
    """What a store of the objects below an address does."""

    supports_writes = supports_deletes = supports_listing = True
    most_bytes: tuple[int, int] | None = None
    root: Address
    metadata: MutableMapping[str, bytes] | None  # None: only read
    same: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Objects) and (self.root, self.metadata is None) == (
            other.root,
            other.metadata is None,
        )

    def __str__(self) -> str:
        return str(self.root)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        if self.metadata is not None and _is_metadata(key):
            content = self.metadata.get(key)
        else:
            limits = (SMALL_BYTES, SMALL_BYTES) if _is_metadata(key) else self.most_bytes
            content = await asyncio.to_thread(_within_limits, self.root / key, byte_range, limits)
        return None if content is None else prototype.buffer.from_bytes(content)

    async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
        return await asyncio.gather(*(self.get(key, prototype, within) for key, within in key_ranges))

    async def exists(self, key: str) -> bool:
        if self.metadata is not None and _is_metadata(key):
            return key in self.metadata
        return await asyncio.to_thread(is_file, self.root / key)

    async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
        assert self.metadata is not None
        if _is_metadata(key):
            self.metadata[key] = value.to_bytes()
        else:
            await asyncio.to_thread(put, self.root / key, value.to_bytes(), same=self.same)

    async def delete(self, key: str) -> None:
        assert self.metadata is not None
        if _is_metadata(key):
            self.metadata.pop(key, None)
        else:
            await asyncio.to_thread(put, self.root / key, None, same=self.same)

    async def list(self) -> AsyncIterator[str]:
        for key in [*(self.metadata or ())]:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self.list():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = prefix.strip("/")
        below = [key[len(folder) :].strip("/") for key in (self.metadata or ()) if is_below(folder, key)]
        for name in dict.fromkeys(key.partition("/")[0] for key in below):
            yield name


@cache
def _objects_class() -> Any:
    """Zarr's kind of store of the objects below an address."""
    zarr_package()
    from zarr.abc.store import Store

    class Objects(_Objects, Store):  # type: ignore[misc]
        def __init__(
            self, root: Address, metadata: MutableMapping[str, bytes] | None = None, same: bool = False
        ) -> None:
            super().__init__(read_only=metadata is None)
            self.root, self.metadata, self.same = root, metadata, same

    return Objects


def put(place: Address, content: bytes | None, *, same: bool) -> None:
    """Put an object, or have none (None); same: it must be there with these bytes, or not there, already."""
    if same and place.part(0) != content:
        raise FileProblem(f"{place} is not what this run writes; delete the Zarr picture that it is in first.")
    if not same and content is None:
        place.remove()
    elif not same and content is not None:
        place.put(content, overwrite=True)


def _is_metadata(key: str) -> bool:
    return key.rpartition("/")[2] in METADATA


def _within_limits(place: Address, within: Any, limits: tuple[int, int] | None) -> bytes | None:
    """An object, or a piece of it, that has no more bytes than the limits of objects and pieces."""
    if limits is None:
        return place.part(*_ends(within))
    whole, piece = limits
    if within is not None:
        _check_piece(within, piece)
        start, end = _ends(within)
        return place.part(start, start + piece if end is None and start >= 0 else end)
    content = place.part(0, whole + 1)
    if content is not None and len(content) > whole:
        raise _too_long()
    return content


def _ends(within: Any) -> tuple[int, int | None]:
    """Where a piece that zarr asks for begins and ends; a start below zero counts from the end."""
    if within is None:
        return 0, None
    if hasattr(within, "suffix"):
        return -within.suffix, None
    return (within.offset, None) if hasattr(within, "offset") else (within.start, within.end)


def _check_piece(within: Any, most: int) -> None:
    """Refuse pieces of shards that are larger than a chunk can be."""
    if getattr(within, "end", 0) - getattr(within, "start", 0) > most:
        raise BadPixels("a chunk of it takes more of a shard than it holds")


def _too_long() -> BadPixels:
    """The error for a file that would take memory without end."""
    return BadPixels("a chunk of it is a file far larger than it holds")
