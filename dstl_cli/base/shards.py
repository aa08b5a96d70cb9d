"""A part of a list that several runs share, each by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Shard:
    """The number-th of `count` parts, from 1."""

    number: int
    count: int

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Every count-th of the items: each item is in one shard, and what is large beside each other is spread."""
        return list(items[self.number - 1 :: self.count])

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def file_part(self) -> str:
        """The same as a part of a file name."""
        return f"{self.number}-of-{self.count}"
