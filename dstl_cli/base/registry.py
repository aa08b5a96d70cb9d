"""Tables of named things that can be extended in one place: qualities, learning methods, canonical transforms, formats.

Entries import nothing heavy: what they need is named as "module:attribute" and loaded on use.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar


class Named(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """Entries by name, in the order they were registered."""

    def __init__(self, what: str, *entries: Entry) -> None:
        """what: how messages call an entry, e.g. "method"."""
        self.what = what
        self._entries: dict[str, Entry] = {}
        for entry in entries:
            self.register(entry)

    def register(self, entry: Entry) -> Entry:
        """Add an entry; a name is taken once."""
        if entry.name in self._entries:
            raise ValueError(f"There is a {self.what} {entry.name} already; choose another name.")
        self._entries[entry.name] = entry
        return entry

    def remove(self, name: str) -> None:
        """Take an entry out again."""
        del self._entries[name]

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise ValueError(f"{self.what} must be one of {', '.join(self._entries)}, not {name!r}.")
        return self._entries[name]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all entries."""
        return tuple(self._entries)


def load(target: object) -> Any:
    """What "module:attribute" names; anything else is returned as it is."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)
