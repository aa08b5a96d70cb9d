"""TIFF directories (IFDs): the container of TIFF files and of EXIF blocks, read and written tag by tag.

Values are kept as the bytes they are, so that tags nobody here understands survive a rewrite. In
memory they are always little-endian; the file's byte order is applied on reading and writing.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from dstl_cli.errors import FileProblem
from dstl_cli.picture.problems import damaged, truncated

# Field types and their values: one number, or two for fractions.
_CODES = {1: "u1", 2: "S1", 3: "<u2", 4: "<u4", 5: "2<u4", 6: "i1", 7: "V1", 8: "<i2", 9: "<i4", 10: "2<i4", 11: "<f4"}
TYPES = {
    kind: np.dtype(code) for kind, code in (_CODES | {12: "<f8", 13: "<u4", 16: "<u8", 17: "<i8", 18: "<u8"}).items()
}
ASCII, SHORT, LONG, RATIONAL, UNDEFINED, LONG8 = 2, 3, 4, 5, 7, 16

EXIF_TAG, GPS_TAG, INTEROPERABILITY_TAG = 34665, 34853, 40965
_CHILD_TAGS = (EXIF_TAG, GPS_TAG, INTEROPERABILITY_TAG)
_DEEPEST = 3
_MAX_DIRECTORIES = 2**20
_SPARE_BYTES = 2**24


@dataclass(frozen=True)
class Entry:
    """One tag's value: field type, number of values, and the values as little-endian bytes."""

    type: int
    count: int
    data: bytes

    def integers(self) -> npt.NDArray[np.int64]:
        """The values as whole numbers; an empty array for other types."""
        whole = TYPES[self.type].kind in "iu"
        return np.frombuffer(self.data, TYPES[self.type]).astype(np.int64) if whole else np.empty(0, np.int64)

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
    repeated: tuple[tuple[int, Entry], ...] = ()
    place: int = 0

    def numbers(self, tag: int) -> list[int]:
        """The whole numbers of a tag; empty when it is missing."""
        entry = self.entries.get(tag)
        return [] if entry is None else [int(value) for value in entry.integers()]

    def number(self, tag: int, default: int) -> int:
        """The first whole number of a tag."""
        values = self.numbers(tag)
        return values[0] if values else default

    def texts(self, tag: int) -> list[str]:
        """All texts of a tag."""
        first = [self.entries[tag]] if tag in self.entries else []
        return [entry.text() for entry in (*first, *(entry for other, entry in self.repeated if other == tag))]


def short(*values: int) -> Entry:
    """A SHORT tag."""
    return Entry(SHORT, len(values), struct.pack(f"<{len(values)}H", *values))


def long(*values: int, big: bool = False) -> Entry:
    """A LONG tag, or one of 64-bit numbers."""
    return Entry(LONG8 if big else LONG, len(values), struct.pack(f"<{len(values)}{'Q' if big else 'I'}", *values))


def rational(value: float) -> Entry:
    """A RATIONAL tag that is as close to the value as 32 bits allow."""
    from fractions import Fraction

    fraction = Fraction(min(max(value, 0.0), 2.0**32 - 1)).limit_denominator(10_000)
    return Entry(RATIONAL, 1, struct.pack("<II", fraction.numerator, fraction.denominator))


def _swap(data: bytes, field_type: int) -> bytes:
    """Reverse the bytes of every number in a value."""
    unit = TYPES[field_type].base.itemsize
    return data if unit == 1 else np.frombuffer(data, f"<u{unit}").byteswap().tobytes()


# --- reading ------------------------------------------------------------------------------------------


class IfdReader:
    """Reads the directories of a TIFF structure in a seekable stream of known size."""

    def __init__(self, stream: BinaryIO, size: int, name: str) -> None:
        self._stream, self._size, self.name = stream, size, name
        self._values: dict[tuple[int, int, int], bytes] = {}
        self._held = 0
        self.notes: list[str] = []
        lead = self._bytes(0, 8)
        self.order: Literal["<", ">"] = "<" if lead[:2] == b"II" else ">"
        version = self._number(lead[2:4])
        if lead[:2] not in (b"II", b"MM") or version not in (42, 43):
            raise damaged(name, "its TIFF header is wrong")
        self.big = version == 43
        if self.big and struct.unpack(self.order + "HH", lead[4:8]) != (8, 0):
            raise damaged(name, "its BigTIFF header is wrong")
        self._first = self._number(self._bytes(8, 8) if self.big else lead[4:8])

    def directories(self) -> list[Ifd]:
        """The chain of main directories."""
        found: list[Ifd] = []
        seen: set[int] = set()
        offset = self._first
        while offset:
            if offset in seen or len(found) >= _MAX_DIRECTORIES:
                raise damaged(self.name, "its directories run in a circle")
            seen.add(offset)
            ifd, offset = self.directory(offset)
            found.append(ifd)
        return found

    def directory(self, offset: int, depth: int = 0) -> tuple[Ifd, int]:
        """The directory at an offset, and the offset of the next one (0: none)."""
        count_size, entry_size, inline = (8, 20, 8) if self.big else (2, 12, 4)
        count = self._number(self._bytes(offset, count_size))
        if count == 0 or count > 65_535:
            raise damaged(self.name, "a directory has no sensible length")
        self._count_bytes(count * entry_size)
        table = self._bytes(offset + count_size, count * entry_size)
        entries: dict[int, Entry] = {}
        children: dict[int, Ifd] = {}
        repeated: list[tuple[int, Entry]] = []
        for position in range(0, len(table), entry_size):
            row = table[position : position + entry_size]
            tag, kind, values = struct.unpack_from(self.order + ("HHQ" if self.big else "HHI"), row)
            if kind not in TYPES:  # a reader skips what it does not know
                continue
            entry = Entry(kind, values, self._value(row[-inline:], values * TYPES[kind].itemsize, kind))
            if tag in _CHILD_TAGS:
                if tag not in children and (child := self._child(entry, depth)) is not None:
                    children[tag] = child
            elif tag in entries:
                repeated.append((tag, entry))
            else:
                entries[tag] = entry
        word = self._bytes(offset + count_size + len(table), inline)
        return Ifd(entries, children, tuple(repeated), offset), self._number(word)

    def _child(self, pointer: Entry, depth: int) -> Ifd | None:
        """A directory inside a directory; a damaged one is left out with a note."""
        where = pointer.integers()
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
            return self._little_endian(field[:nbytes], kind)
        key = (self._number(field), nbytes, kind)
        if key not in self._values:
            self._count_bytes(nbytes)
            self._values[key] = self._little_endian(self._bytes(key[0], nbytes), kind)
        return self._values[key]

    def _little_endian(self, data: bytes, kind: int) -> bytes:
        return _swap(data, kind) if self.order == ">" else data

    def _count_bytes(self, count: int) -> None:
        """Stop at files whose directories overlap so much that together they exceed the file."""
        self._held += count
        if self._held > self._size + _SPARE_BYTES:
            raise damaged(self.name, "its tags claim more bytes than the file has")

    def _number(self, data: bytes) -> int:
        """A whole number in the file's byte order."""
        return int.from_bytes(data, "little" if self.order == "<" else "big")

    def _bytes(self, offset: int, count: int) -> bytes:
        """Bytes of the file, all of them or an error."""
        if not 0 <= offset <= self._size - count:
            raise truncated(self.name)
        self._stream.seek(offset)
        data = self._stream.read(count)
        if len(data) < count:
            raise truncated(self.name)
        return data


# --- writing ------------------------------------------------------------------------------------------


class IfdWriter:
    """Writes a TIFF structure to a seekable stream whose position 0 is the start of the structure."""

    def __init__(self, stream: BinaryIO, order: Literal["<", ">"], big: bool, name: str) -> None:
        self.stream = stream
        self.order = order
        self.big = big
        self._name = name
        self._placed: dict[bytes, int] = {}
        mark = b"II" if order == "<" else b"MM"
        stream.write(mark + (struct.pack(order + "HHHQ", 43, 8, 0, 0) if big else struct.pack(order + "HI", 42, 0)))
        self._link = 8 if big else 4

    def begin(self) -> int:
        """Move to an even offset at the end of what is written, and return it."""
        position = self.stream.seek(0, 2)
        if position & 1:
            self.stream.write(b"\x00")
            position += 1
        return position

    def append(self, ifd: Ifd) -> dict[int, int]:
        """Write a directory and link it to the one before; return where each tag's value field lies."""
        offset, fields, link = self._write(ifd)
        self.patch(self._link, offset)
        self._link = link
        return fields

    def patch(self, position: int, offset: int) -> None:
        """Write a file offset over the bytes at a position."""
        self.stream.seek(position)
        self.stream.write(self._pack_offset(offset))
        self.stream.seek(0, 2)

    def _write(self, ifd: Ifd) -> tuple[int, dict[int, int], int]:
        """Write a directory; return its offset, the positions of its value fields and of its link."""
        inline = 8 if self.big else 4
        rows: list[tuple[int, bytes]] = []
        for tag, child in ifd.children.items():
            where = self._write(child)[0]
            rows.append((tag, self._row(tag, LONG8 if self.big else LONG, 1, self._pack_offset(where))))
        for tag, entry in (*ifd.entries.items(), *ifd.repeated):
            data = _swap(entry.data, entry.type) if self.order == ">" else entry.data
            value = data.ljust(inline, b"\x00") if len(data) <= inline else self._pack_offset(self._place(data))
            rows.append((tag, self._row(tag, entry.type, entry.count, value)))
        rows.sort(key=lambda row: row[0])
        offset = self.begin()
        count_size, entry_size = (8, 20) if self.big else (2, 12)
        self.stream.write(struct.pack(self.order + ("Q" if self.big else "H"), len(rows)))
        self.stream.write(b"".join(row for _, row in rows))
        link = offset + count_size + entry_size * len(rows)
        self.stream.write(b"\x00" * inline)
        first = offset + count_size + entry_size - inline
        fields = {tag: first + entry_size * index for index, (tag, _) in enumerate(rows)}
        return offset, fields, link

    def _row(self, tag: int, kind: int, count: int, value: bytes) -> bytes:
        return struct.pack(self.order + ("HHQ" if self.big else "HHI"), tag, kind, count) + value

    def _place(self, data: bytes) -> int:
        """Write a long value once, and return its offset."""
        if data not in self._placed:
            position = self.begin()
            self.stream.write(data)
            self._placed[data] = position
        return self._placed[data]

    def _pack_offset(self, offset: int) -> bytes:
        if offset >= 2**32 and not self.big:
            raise FileProblem(f"{self._name} would be larger than the 4 GiB of a TIFF file; crop it first.")
        return struct.pack(self.order + ("Q" if self.big else "I"), offset)


def pick(entries: dict[int, Any], tags: Iterable[int]) -> dict[int, Any]:
    """The entries that have one of the tags."""
    return {tag: entries[tag] for tag in tags if tag in entries}
