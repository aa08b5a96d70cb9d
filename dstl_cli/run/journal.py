"""The journal of a run over many pictures: a line of JSON for each, beside the output, as soon as it is known.

What is done is read off the outputs, which are complete or absent; the journal says what failed, why, and when.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from dstl_cli.base.addresses import Place
from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem
from dstl_cli.version import __version__

SUFFIX = ".journal.jsonl"  # what is added to the name of the output folder
MARK = b'{"dstl": '  # how the first line of every run begins
KEPT = ("input", "output", "seconds", "unchanged", "error")  # of what a report tells of a picture


def journal_of(folder: Place, part: str = "") -> Place:
    """Where the journal of a run into a folder is: beside it, as clean.journal.jsonl.

    part: what tells the runs of an array job from each other, as clean.3-of-64.journal.jsonl.
    """
    whole = Path(os.path.abspath(folder)) if isinstance(folder, Path) else folder
    return whole.with_name(".".join(filter(None, (whole.name, part))) + SUFFIX)


@contextmanager
def opened_journal(place: Place, **first: Any) -> Iterator["Journal"]:
    """The open journal at a place; at an address, which nothing can be added to, it is put when the block ends."""
    if isinstance(place, Path):
        with Journal(place, **first) as journal:
            yield journal
        return
    before = b"" if place.size() is None else place.read()
    with TemporaryDirectory(prefix="dstl-") as folder:
        path = Path(folder, place.name)
        path.write_bytes(before)
        try:
            with Journal(path, **first) as journal:
                yield journal
        finally:
            place.put(path.read_bytes(), overwrite=True)


class Journal:
    """An open journal; each line is written at once and whole, after those of earlier runs.

    first: what is told of the run in its own first line.
    """

    def __init__(self, path: Path, **first: Any) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with self._writing():
            self._handle = os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
        try:
            with self._writing():
                started = self._line_begun()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._write(b"" if started else b"\n", {"dstl": __version__, "time": now, **first})
        except BaseException:
            os.close(self._handle)
            raise

    def add(self, record: Mapping[str, Any]) -> None:
        """What has become of a picture; of what its record tells, no more than is worth keeping."""
        self._write(b"", {key: record.get(key) for key in KEPT})

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def _line_begun(self) -> bool:
        """Whether the next byte begins a line; a file that is no journal is refused."""
        size = os.lseek(self._handle, 0, os.SEEK_END)
        if size == 0:
            return True
        os.lseek(self._handle, 0, os.SEEK_SET)
        if os.read(self._handle, len(MARK)) != MARK:
            name = display_name(self.path)
            raise FileProblem(f"{name} is no journal of dstl and is not written to; move it or choose another output.")
        os.lseek(self._handle, -1, os.SEEK_END)
        return os.read(self._handle, 1) == b"\n"

    def _write(self, before: bytes, line: Mapping[str, Any]) -> None:
        """One line in one call, so that lines of runs side by side do not mix."""
        text = before + json.dumps(line, allow_nan=False).encode() + b"\n"
        with self._writing():
            written = os.write(self._handle, text)
            if written < len(text):
                os.write(self._handle, text[written:])  # says why, as on a full disk

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What the system answers, as one sentence."""
        try:
            yield
        except OSError as error:
            what = f"The journal {display_name(self.path)} cannot be written ({error.strerror or error})"
            raise FileProblem(f"{what}; free some space or choose another output.") from error


def last_words(path: Path) -> Sequence[dict[str, Any]]:
    """What a journal says last of each picture, in the order in which they came first; broken lines are passed over."""
    found: dict[str, dict[str, Any]] = {}
    try:
        with path.open("rb") as stream:
            for line in stream:
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):  # torn by a kill or a crash
                    continue
                if isinstance(entry, dict) and isinstance(entry.get("input"), str):
                    found[entry["input"]] = entry
    except OSError as error:
        raise FileProblem(f"The journal {display_name(path)} cannot be read ({error.strerror or error}).") from None
    return list(found.values())
