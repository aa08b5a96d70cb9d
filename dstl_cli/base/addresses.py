"""Files that are no paths of this machine: s3://, gs://, https://, zip:// and all else that fsspec opens.

Nothing of fsspec is imported before an address is given. An object is read whole and put whole: it is never half there.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeAlias

from dstl_cli.errors import FileProblem, UsageProblem

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+://)((?:(?!::)[^?])*)((?:\?|::).*)?", re.DOTALL)
_QUERY = re.compile(r"\?.*?(?=::|\Z)", re.DOTALL)
_QUERY_IN_WORDS = re.compile(r"\?(?:(?!::)[^\s'\"])*")
_SECRET = re.compile(r"://[^/]*@")
WHOLE_OBJECTS = ("s3://", "s3a://", "gs://", "gcs://", "az://", "abfs://", "abfss://", "memory://")  # put in one step
MOST_UNPACKED = 2**30  # bytes of a file in an archive, which is read whole


class FileNotThere(FileProblem):
    """There is nothing at an address."""


@dataclass(frozen=True)
class Address:
    """A file or folder as fsspec names it, such as s3://bucket/a.png or zip://a.png::https://host/all.zip.

    scheme: with its colon and slashes. rest: what follows the path, a query or what the file lies in.
    """

    scheme: str
    path: str
    rest: str = ""

    def __str__(self) -> str:
        """The address as messages and reports show it: what follows a question mark may be a secret."""
        return f"{self.scheme}{self.path}{_QUERY.sub('', self.rest)}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> "Address":
        """The folder it is in."""
        return replace(self, path=self.path.rstrip("/").rpartition("/")[0])

    def with_name(self, name: str) -> "Address":
        """Another file of the same folder."""
        return self.parent / name

    def __truediv__(self, below: str | os.PathLike[str]) -> "Address":
        path = f"{self.path.rstrip('/')}/{PurePosixPath(below)}" if self.path else str(PurePosixPath(below))
        return replace(self, path=path)

    def holds(self, other: "Address") -> bool:
        """Whether another address is below this folder."""
        own = (self.scheme, self.rest) == (other.scheme, other.rest)
        return own and other.path.startswith(self.path.rstrip("/") + "/")

    def is_folder(self) -> bool:
        """Whether files are below it."""
        if not self.lists_folders:
            return False
        with self._answers("looked at"):
            system, path = self._opened()
            return bool(system.isdir(path))

    def size(self) -> int | None:
        """Bytes of the file; None where there is none."""
        with self._answers("looked at"):
            system, path = self._opened()
            try:
                found = system.info(path)
            except FileNotFoundError:
                return None
            return None if found["type"] == "directory" else int(found.get("size") or 0)

    def files(self, *, recursive: bool) -> dict[str, int]:
        """The files in a folder, by their places below it, with their sizes; in the order of their names."""
        with self._answers("listed"):
            system, path = self._opened()
            system.invalidate_cache()
            found: Mapping[str, Any] = system.find(path, maxdepth=None if recursive else 1, detail=True)
        top = path.strip("/")
        places = {name.strip("/").removeprefix(top).lstrip("/"): facts for name, facts in found.items()}
        return {place: int(places[place].get("size") or 0) for place in sorted(places) if place}

    @property
    def lists_folders(self) -> bool:
        """Whether the store tells what is in its folders."""
        return self.scheme not in ("http://", "https://")

    def entries(self) -> dict[str, int | None]:
        """The names of what is directly in a folder, in their order, with the sizes of files; None for folders."""
        with self._answers("listed"):
            system, path = self._opened()
            system.invalidate_cache()
            found = {
                facts["name"].strip("/").rpartition("/")[2]: facts
                for facts in system.ls(path, detail=True)
                if facts["name"].strip("/") != path.strip("/")
            }
        sizes = {
            name: None if facts["type"] == "directory" else int(facts.get("size") or 0) for name, facts in found.items()
        }
        return {name: sizes[name] for name in sorted(sizes) if name}

    def part(self, start: int, end: int | None = None) -> bytes | None:
        """The bytes from one place to another, or fewer where there are no more; None where there is no file.

        A start below zero counts from the end of the file.
        """
        with self._answers("read"):
            system, path = self._opened()
            try:
                content: bytes = system.cat_file(path, start=start, end=end)
            except FileNotFoundError:
                return None
        wanted = -start if start < 0 else None if end is None else end - start
        if wanted is not None and len(content) > wanted:
            raise FileProblem(f"{self} is on a server that gives no parts of files; copy it here first.")
        return content

    def read(self) -> bytes:
        """All the bytes."""
        with self._answers("read"):
            system, path = self._opened()
            within = "::" in self.rest  # what an archive claims to hold may be a thousand times its own size
            content: bytes = system.cat_file(path, end=MOST_UNPACKED + 1) if within else system.cat_file(path)
        if within and len(content) > MOST_UNPACKED:
            raise FileProblem(f"{self} has more than {MOST_UNPACKED} bytes; unpack it to a folder and give that.")
        return content

    def put(self, content: bytes, *, overwrite: bool) -> None:
        """Write all the bytes in one step; without `overwrite` an object that is there is an error."""
        with self._answers("written"):
            system, path = self._opened()
            system.pipe_file(path, content, mode="overwrite" if overwrite else "create")

    def remove(self) -> None:
        """Have no file there."""
        with self._answers("removed"):
            system, path = self._opened()
            with suppress(FileNotFoundError, KeyError):
                system.rm_file(path)

    def check_writable(self) -> None:
        """Refuse to write where a file may be seen half."""
        if self.scheme not in WHOLE_OBJECTS or self.rest:
            known = ", ".join(WHOLE_OBJECTS)
            raise UsageProblem(f"{self} cannot be written to in one step; give a folder, or an address of {known}.")

    def _opened(self) -> tuple[Any, str]:
        """The file system, and the path there."""
        from fsspec.core import url_to_fs

        system, path = url_to_fs(f"{self.scheme}{self.path}{self.rest}")
        return system, str(path)

    @contextmanager
    def _answers(self, done: str) -> Iterator[None]:
        """What the other side answers, or why it does not, as one sentence."""
        try:
            yield
        except ImportError as error:
            missing = "fsspec" if getattr(error, "name", "") == "fsspec" else _QUERY_IN_WORDS.sub("", str(error))
            remedy = "install dstl-cli[cluster], and the package of that store (s3fs, gcsfs, adlfs, aiohttp)"
            raise UsageProblem(f"{self} needs what is not installed ({missing}); {remedy}.") from error
        except FileNotFoundError as error:
            raise FileNotThere(f"{self} does not exist; check the address.") from error
        except FileExistsError as error:
            raise FileProblem(f"{self} already exists; use --force to overwrite it.") from error
        except Exception as error:  # stores have exceptions of their own
            what = " ".join(f"{type(error).__name__} {_QUERY_IN_WORDS.sub('', str(error))}".split())
            raise FileProblem(f"{self} cannot be {done} ({what}); check the address and your credentials.") from error


Place: TypeAlias = Path | Address


def place_of(text: str) -> Place:
    """The path or address that a user gives; file:// is a path."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return Path(text)
    if _SECRET.search(text):
        raise UsageProblem(
            f"{_SECRET.sub('://...@', text)} has a password in it; give credentials as fsspec takes them."
        )
    address = Address(found[1], found[2].strip("/") if found[1] != "file://" else found[2], found[3] or "")
    return Path(address.path) if found[1] == "file://" else address


def stays_below(name: str) -> bool:
    """Whether a name in a folder, which archives and stores take as it is, is that of a file below it."""
    place = Path(name)
    return not place.anchor and ".." not in place.parts


@contextmanager
def whole_object(address: Address, *, overwrite: bool, same: bool = False) -> Iterator[BinaryIO]:
    """A stream whose bytes become an object when the block ends without an error.

    same: an object that is there may be empty, or hold these very bytes.
    """
    address.check_writable()
    stream = io.BytesIO()
    yield stream
    content = stream.getvalue()
    if same and not overwrite and address.size() is not None:
        if (there := address.read()) == content:
            return
        if there:
            raise FileProblem(f"{address} exists and is not what this run writes; use --force to overwrite it.")
        overwrite = True
    address.put(content, overwrite=overwrite)


def sizes_below(addresses: Iterable[Address]) -> dict[Address, int]:
    """The sizes of those addresses that are there, and of others beside them; each folder is listed once."""
    found: dict[Address, int] = {}
    for folder in dict.fromkeys(address.parent for address in addresses):
        with suppress(FileNotThere):
            found |= {folder / name: size for name, size in folder.files(recursive=False).items()}
    return found
