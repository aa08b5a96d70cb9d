"""TIFF directories (IFDs): the container of TIFF files and of EXIF blocks, read and written tag by tag.

Values are kept as the bytes they are, so that tags nobody here understands survive a rewrite. In
memory they are always little-endian; the file's byte order is applied on reading and writing.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import numpy as np

from dstl_cli.errors import FileProblem
from dstl_cli.picture.problems import damaged, truncated

# Field types and their values: one number, or two for fractions.
_CODES = ("u1", "S1", "<u2", "<u4", "2<u4", "i1", "V1", "<i2", "<i4", "2<i4", "<f4", "<f8", "<u4")
TYPES = {kind: np.dtype(code) for kind, code in (*enumerate(_CODES, 1), (16, "<u8"), (17, "<i8"), (18, "<u8"))}
ASCII, SHORT, LONG, RATIONAL, UNDEFINED, DOUBLE, LONG8 = 2, 3, 4, 5, 7, 12, 16

EXIF_TAG, GPS_TAG, INTEROPERABILITY_TAG = 34665, 34853, 40965
_CHILD_TAGS = (EXIF_TAG, GPS_TAG, INTEROPERABILITY_TAG)
_DEEPEST = 3
_MAX_DIRECTORIES = 2**20
_SPARE_BYTES = 2**20


@dataclass(frozen=True)
class Entry:
    """One tag's value: field type, number of values, and the values as little-endian bytes."""

    type: int
    count: int
    data: bytes

    def integers(self, most: int | None = None) -> list[int]:
        """The values as whole numbers, or the first of them; empty for other types."""
        kind = TYPES[self.type]
        end = len(self.data) if most is None else most * kind.itemsize
        return [int(value) for value in np.frombuffer(self.data[:end], kind)] if kind.kind in "iu" else []

    def text(self) -> str:
        """The value of a text tag."""
        return self.data.split(b"\x00", 1)[0].decode("utf-8", "replace") if self.type in (ASCII, 1, 7) else ""

    def rational(self) -> float | None:
        """The first value of a RATIONAL tag, or None."""
        if self.type != RATIONAL or len(self.data) < 8:
            return None
        top, bottom = struct.unpack("<II", self.data[:8])
        return top / bottom if bottom else None


@dataclass(frozen=True)
class Ifd:
    """One directory: its tags, and the EXIF, GPS and interoperability directories it points to.

    `repeated` are further values of tags that stand more than once in the directory, as tifffile's
    second description does. `place` is its offset in the file.
    """

    entries: dict[int, Entry]
    children: dict[int, "Ifd"] = field(default_factory=dict)
    repeated: list[tuple[int, Entry]] = field(default_factory=list)
    place: int = 0

    def numbers(self, tag: int, most: int | None = None) -> list[int]:
        """The whole numbers of a tag, or the first of them; empty when it is missing."""
        return self.entries[tag].integers(most) if tag in self.entries else []

    def number(self, tag: int, default: int) -> int:
        """The first whole number of a tag."""
        return next(iter(self.numbers(tag, 1)), default)

    def texts(self, tag: int) -> list[str]:
        """All texts of a tag."""
        return [entry.text() for other, entry in (*self.entries.items(), *self.repeated) if other == tag]


def numbers(kind: int, *values: int) -> Entry:
    """A tag of whole numbers: of shorts, longs, or fractions, which are two of them."""
    data = np.array(values, TYPES[kind].base).tobytes()
    return Entry(kind, len(data) // TYPES[kind].itemsize, data)


def _swap(data: bytes, field_type: int) -> bytes:
    """Reverse the bytes of every number in a value."""
    unit = TYPES[field_type].base.itemsize
    return data if unit == 1 else np.frombuffer(data, f"<u{unit}").byteswap().tobytes()


def _structs(order: str, big: bool) -> list[struct.Struct]:
    """How the numbers of directories are packed: their length, an entry (its last field as bytes), an offset."""
    return [struct.Struct(order + form) for form in (("Q", "HHQ8s", "Q") if big else ("H", "HHI4s", "I"))]


class IfdReader:
    """Reads the directories of a TIFF structure in a seekable stream of known size."""

    def __init__(self, stream: BinaryIO, size: int, name: str) -> None:
        self._stream, self._size, self.name = stream, size, name
        self._values: dict[tuple[int, int, int], bytes] = {}
        self._held = 0
        self.notes: list[str] = []
        lead = self._bytes(0, 8)
        self.order: Literal["<", ">"] = "<" if lead[:2] == b"II" else ">"
        version, *sizes = struct.unpack(self.order + "HHH", lead[2:])
        self.big = version == 43
        if lead[:2] not in (b"II", b"MM") or version not in (42, 43):
            raise damaged(name, "its TIFF header is wrong")
        if self.big and sizes != [8, 0]:
            raise damaged(name, "its BigTIFF header is wrong")
        self._length, self._row, self._offset = _structs(self.order, self.big)

    def directories(self) -> list[Ifd]:
        """The chain of main directories."""
        found: dict[int, Ifd] = {}
        offset = self._number(self._offset, 8 if self.big else 4)
        while offset:
            if offset in found or len(found) >= _MAX_DIRECTORIES:
                raise damaged(self.name, "its directories run in a circle")
            found[offset], offset = self.directory(offset)
        return list(found.values())

    def directory(self, offset: int, depth: int = 0) -> tuple[Ifd, int]:
        """The directory at an offset, and the offset of the next one (0: none)."""
        length, row = self._length, self._row
        count = self._number(length, offset)
        if count == 0 or count > 65_535:
            raise damaged(self.name, "a directory has no sensible length")
        self._count_bytes(count * row.size)
        table = self._bytes(offset + length.size, count * row.size)
        ifd = Ifd({}, place=offset)
        for tag, kind, values, last in row.iter_unpack(table):
            if kind not in TYPES:  # a reader skips what it does not know
                continue
            entry = Entry(kind, values, self._value(last, values * TYPES[kind].itemsize, kind))
            if tag in _CHILD_TAGS:
                if tag not in ifd.children and (child := self._child(entry, depth)) is not None:
                    ifd.children[tag] = child
            elif tag in ifd.entries:
                ifd.repeated.append((tag, entry))
            else:
                ifd.entries[tag] = entry
        return ifd, self._number(self._offset, offset + length.size + len(table))

    def _child(self, pointer: Entry, depth: int) -> Ifd | None:
        """A directory inside a directory; a damaged one is left out with a note."""
        where = pointer.integers(2)
        if depth >= _DEEPEST or len(where) != 1:
            return None
        try:
            return self.directory(int(where[0]), depth + 1)[0]
        except FileProblem:
            self.notes.append("Damaged EXIF data was left out.")
            return None

    def _value(self, field: bytes, nbytes: int, kind: int) -> bytes:
        """The value in an entry's last field, or where that points to; equal ranges are held only once."""
        if nbytes <= len(field):
            return _swap(field[:nbytes], kind) if self.order == ">" else field[:nbytes]
        key = (*self._offset.unpack(field), nbytes, kind)
        if key not in self._values:
            self._count_bytes(nbytes)
            data = self._bytes(key[0], nbytes)
            self._values[key] = _swap(data, kind) if self.order == ">" else data
        return self._values[key]

    def _count_bytes(self, count: int) -> None:
        """Stop at files whose directories overlap so much that together they exceed the file."""
        self._held += count
        if self._held > self._size + _SPARE_BYTES:
            raise damaged(self.name, "its tags claim more bytes than the file has")

    def _number(self, form: struct.Struct, offset: int) -> int:
        """The number at an offset."""
        return int(form.unpack(self._bytes(offset, form.size))[0])

    def _bytes(self, offset: int, count: int) -> bytes:
        """Bytes of the file, all of them or an error."""
        if not 0 <= offset <= self._size - count:
            raise truncated(self.name)
        self._stream.seek(offset)
        data = self._stream.read(count)
        if len(data) < count:
            raise truncated(self.name)
        return data


class IfdWriter:
    """Writes a TIFF structure to a seekable stream whose position 0 is the start of the structure."""

    def __init__(self, stream: BinaryIO, order: Literal["<", ">"], big: bool, name: str) -> None:
        self.stream, self.big = stream, big
        self._order, self._name = order, name
        self._length, self._row, self._offset = _structs(order, big)
        self._placed: dict[bytes, int] = {}
        mark = b"II" if order == "<" else b"MM"
        stream.write(mark + (struct.pack(order + "HHHQ", 43, 8, 0, 0) if big else struct.pack(order + "HI", 42, 0)))
        self._link = 8 if big else 4

    def begin(self) -> int:
        """Move to an even offset at the end of what is written, and return it."""
        position = self.stream.seek(0, 2)
        return position + self.stream.write(b"\x00" * (position & 1))

    def append(self, ifd: Ifd) -> dict[int, int]:
        """Write a directory and link it to the one before; return where each tag's value field lies."""
        offset, fields = self._write(ifd)
        self.patch(self._link, offset)
        self._link = self.stream.tell() - self._offset.size
        return fields

    def patch(self, position: int, offset: int) -> None:
        """Write a file offset over the bytes at a position."""
        self.stream.seek(position)
        self.stream.write(self._pack_offset(offset))
        self.stream.seek(0, 2)

    def _write(self, ifd: Ifd) -> tuple[int, dict[int, int]]:
        """Write a directory, whose last bytes are its link; return its offset and the positions of its value fields."""
        length, row, link = self._length, self._row, self._offset
        kind = LONG8 if self.big else LONG
        rows = [(tag, kind, 1, self._pack_offset(self._write(child)[0])) for tag, child in ifd.children.items()]
        for tag, entry in (*ifd.entries.items(), *ifd.repeated):
            data = _swap(entry.data, entry.type) if self._order == ">" else entry.data
            value = data if len(data) <= link.size else self._pack_offset(self._place(data))
            rows.append((tag, entry.type, entry.count, value))
        rows.sort(key=lambda item: item[0])
        offset = self.begin()
        self.stream.write(length.pack(len(rows)) + b"".join(row.pack(*item) for item in rows) + bytes(link.size))
        first = offset + length.size - link.size
        return offset, {item[0]: first + row.size * number for number, item in enumerate(rows, 1)}

    def _place(self, data: bytes) -> int:
        """Write a long value once, and return its offset."""
        if data not in self._placed:
            self._placed[data] = self.begin()
            self.stream.write(data)
        return self._placed[data]

    def _pack_offset(self, offset: int) -> bytes:
        if offset >= 2**32 and not self.big:
            raise FileProblem(f"{self._name} would be larger than the 4 GiB of a TIFF file; crop it first.")
        return self._offset.pack(offset)


def pick(entries: dict[int, Any], tags: Iterable[int]) -> dict[int, Any]:
    """The entries that have one of the tags."""
    return {tag: entries[tag] for tag in tags if tag in entries}
