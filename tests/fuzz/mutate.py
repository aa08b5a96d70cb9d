"""A seeded mutator: bytes change, and what would give that away (checksums, lengths, offsets) is made right again."""

import bz2
import gzip
import io
import json
import lzma
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

TELLING = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
REPAIRED = 0.75  # of the mutants
MOST_BYTES = 200_000


def mutant(seed: bytes, others: list[bytes], kind: str, rng: random.Random) -> bytes:
    """A file a little different from `seed`, perhaps with parts of others, most often with good checksums."""
    if kind in INSIDE and (kind == "zarr" or rng.random() < 0.5):
        return INSIDE[kind](seed, rng)[:MOST_BYTES]
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        rng.choice(STEPS)(data, others, rng)
    changed = bytes(data[:MOST_BYTES])
    return REPAIRS[kind](changed) if kind in REPAIRS and rng.random() < REPAIRED else changed


def _place(data: bytearray, rng: random.Random, size: int = 1) -> int:
    """Somewhere, more often near the beginning, where headers are."""
    end = max(1, len(data) - size + 1)
    return rng.randrange(min(end, 200) if rng.random() < 0.5 else end)


def _flip(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _number(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    at = _place(data, rng, size)
    value = rng.choice(TELLING) + rng.choice((0, 0, 0, -1, 1))
    data[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))


def _remove(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 2, 4, 12, 100))]


def _repeat(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    at, size = _place(data, rng), rng.choice((1, 4, 12, 100))
    data[at:at] = data[at : at + size] * rng.choice((1, 2, 50))


def _random(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    at, size = _place(data, rng), rng.choice((1, 4, 16))
    data[at : at + size] = rng.randbytes(size)


def _splice(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    other = rng.choice(others)
    at, size = rng.randrange(len(other)), rng.choice((4, 12, 64, 1000))
    to = _place(data, rng)
    data[to : to + rng.choice((0, size))] = other[at : at + size]


def _cut(data: bytearray, others: list[bytes], rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


STEPS = (_flip, _number, _number, _remove, _repeat, _random, _splice, _cut)


# --- what is made right -------------------------------------------------------------------------------


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG file, as far as there are any."""
    chunks, at = [], 8
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return chunks


def joined_png(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file of chunks, with their lengths and checksums."""
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _riff(data: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", max(0, len(data) - 8) & 0xFFFFFFFF) + data[8:]


def _tiff(data: bytes) -> bytes:
    """The first directory lies within the file."""
    if len(data) < 16 or data[:2] not in (b"II", b"MM") or data[2:4] not in (b"*\0", b"\0*"):
        return data
    order = "<" if data[:2] == b"II" else ">"
    (first,) = struct.unpack(f"{order}I", data[4:8])
    return data[:4] + struct.pack(f"{order}I", first % max(8, len(data) - 2)) + data[8:]


def _npy(data: bytes) -> bytes:
    """The length of the header is right."""
    end = data.find(b"\n")
    if end < 10 or end > 10_000:
        return data
    return data[:8] + struct.pack("<H", end + 1 - 10) + data[10:]


REPAIRS: dict[str, Callable[[bytes], bytes]] = {
    "png": lambda data: joined_png(png_chunks(data)),
    "webp": _riff,
    "tiff": _tiff,
    "npy": _npy,
}


# --- changes behind checksums and compression ---------------------------------------------------------


def _few_steps(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(STEPS)(changed, [data or b"\0"], rng)
    return bytes(changed)


def _in_png(data: bytes, rng: random.Random) -> bytes:
    """Chunks change, and what is packed in them."""
    chunks = png_chunks(data)
    at = rng.randrange(len(chunks))
    kind, body = chunks[at]
    if kind == b"IDAT":
        body = zlib.compress(_few_steps(zlib.decompress(body), rng), rng.randrange(10))
    else:
        body = _few_steps(body, rng)
    chunks[at] = kind, body
    if rng.random() < 0.2:
        chunks.insert(rng.randrange(len(chunks)), rng.choice(chunks))
    return joined_png(chunks)


def _in_zip(data: bytes, rng: random.Random) -> bytes:
    """An entry changes; checksums and lengths are those of what it has become."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        changed = rng.choice(names)
        for name in names:
            body = old.read(name)
            if name == changed:
                if rng.random() < 0.1:
                    continue
                text = re.search(rb"\{.*\}", body, re.DOTALL)
                body = _npy(_few_steps(body, rng)) if text is None or rng.random() < 0.7 else _few_steps(body, rng)
            new.writestr(name, body)
    return stream.getvalue()


@cache
def bombs() -> tuple[bytes, ...]:
    """Small files that unpack to 2 GiB: streams of zeros, one after the other, and a frame of zstd of unknown size."""
    few, times = bytes(2**24), 2**7
    block = (2**17 << 3 | 2).to_bytes(3, "little") + b"\0"
    frame = b"\x28\xb5\x2f\xfd\x00\x38" + block * 2**14 + b"\x01\0\0"
    return frame, *(pack(few) * times for pack in (gzip.compress, bz2.compress, lzma.compress))


def _in_folder(data: bytes, rng: random.Random) -> bytes:
    """A file of a packed folder changes: in JSON a value, in others anything; or a chunk unpacks to far too much."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        files = {name: old.read(name) for name in old.namelist()}
        told = [name for name, body in files.items() if body.startswith(b"{")]
        packed = [name for name in files if name not in told]
        bomb = bool(packed) and rng.random() < 0.1
        if bomb:
            files[rng.choice(packed)] = rng.choice(bombs())
        for changed in rng.choices(told if rng.random() < 0.7 else list(files), k=0 if bomb else rng.choice((1, 1, 2))):
            in_json = changed in told and rng.random() < 0.9
            files[changed] = (_in_json if in_json else _few_steps)(files[changed], rng)
        for name, body in files.items():
            if rng.random() > 0.005:
                new.writestr(zipfile.ZipInfo(name), body)
    return stream.getvalue()


def _in_json(data: bytes, rng: random.Random) -> bytes:
    """One value, somewhere, becomes another, or is gone, or is there twice."""
    with suppress(ValueError):
        whole = json.loads(data)
        if isinstance(whole, dict) and whole:
            _change(whole, rng)
            return json.dumps(whole).encode()
    return _few_steps(data, rng)


def _change(whole: dict[str, Any], rng: random.Random) -> None:
    place: Any = whole
    while True:
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not (isinstance(place[key], dict | list) and place[key]) or rng.random() < 0.1:
            break
        place = place[key]
    what = rng.randrange(5)
    if what == 0:
        del place[key]
    elif what == 1 and isinstance(place, list):
        place.append(place[key])
    elif what == 2 and isinstance(place[key], str):
        place[key] = _few_steps(place[key].encode(), rng).decode("utf-8", "replace")
    else:
        place[key] = rng.choice((*TELLING, -1, 0.5, 1e300, float("nan"), None, True, "", "<f4", [], [1], [8, 8], {}))


def _in_tiff(data: bytes, rng: random.Random) -> bytes:
    """Entries of the first directory get another type, count or value."""
    big, order = data[2:4] in (b"+\0", b"\0+"), "<" if data[:2] == b"II" else ">"
    offset, count, size = ("Q", "Q", 20) if big else ("I", "H", 12)
    first = struct.unpack_from(f"{order}{offset}", data, 8 if big else 4)[0]
    entries = struct.unpack_from(f"{order}{count}", data, first)[0]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        start = first + struct.calcsize(f"{order}{count}") + size * rng.randrange(entries)
        at, width = rng.choice(((0, 2), (2, 2), (4, size // 2 - 2), (size // 2 + 2, size // 2 - 2)))
        value = rng.choice((*TELLING, len(data), first, rng.randrange(70_000))) % 2 ** (8 * width)
        changed[start + at : start + at + width] = value.to_bytes(width, "little" if order == "<" else "big")
    return bytes(changed)


def _in_jpeg(data: bytes, rng: random.Random) -> bytes:
    """A segment changes, with its length."""
    segments, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        segments.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    place = rng.randrange(len(segments))
    segments[place] = segments[place][0], _few_steps(segments[place][1], rng)[:65_533]
    if rng.random() < 0.2:
        segments.insert(rng.randrange(len(segments)), rng.choice(segments))
    parts = [bytes((0xFF, kind)) + (len(body) + 2).to_bytes(2, "big") + body for kind, body in segments]
    rest = data[at:]
    return data[:2] + b"".join(parts) + (rest if rng.random() < 0.7 else _few_steps(rest, rng))


INSIDE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "png": _in_png,
    "transform": _in_zip,
    "checkpoint": _in_zip,
    "tiff": _in_tiff,
    "jpeg": _in_jpeg,
    "zarr": _in_folder,
}
