"""Archives of arrays: `.npz` files of ours, never pickled."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dstl_cli.base.arrays import Arrays
from dstl_cli.base.regular import open_regular


class NotAnArchive(ValueError):
    """The file is something else."""


@contextmanager
def open_archive(path: Path) -> Iterator[Any]:
    """The entries of a `.npz` file; NotAnArchive for any other file."""
    with open_regular(path) as stream:  # opened here: numpy would leave a broken archive open
        if not zipfile.is_zipfile(stream):
            raise NotAnArchive("it is no .npz archive")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as entries:
            yield entries


def named_under(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays under `prefix.` and their names."""
    return {f"{prefix}.{key}": value for key, value in arrays.items()}


def entries_under(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays under `prefix.`, by their own names."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
