"""Transform files: `.npz`, readable with numpy alone and never pickled.

Entries: format (2), patch_size, method, canonical (the name of Phi), average_with_canonical, rows, columns and values
of the nonzero entries of T, the measured condition, density and frobenius_norm, provenance (JSON: settings, seed,
sources), and history, one row an iteration (number, error, relative error, condition, density). Format 1 had neither
canonical, which was always the DCT, nor average_with_canonical.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dstl_cli.base.archives import NotAnArchive, open_archive
from dstl_cli.base.atomic import atomic_output
from dstl_cli.base.checks import require
from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem
from dstl_cli.transforms.transform import Iteration, Transform

FORMAT = 2
READ_FORMATS = (1, 2)
LARGEST_PATCH = 32
LARGEST_FILE = 64 * 2**20
LONGEST_HISTORY = 100_000  # iterations, the last ones, that a file tells of
DEEPEST = 20  # tables within tables of the provenance
LONGEST_REASON = 150  # characters of what a library says of a file


@dataclass(frozen=True)
class TransformFile:
    """A transform with where it comes from."""

    transform: Transform
    provenance: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Iteration] = ()


def save_transform(path: str | os.PathLike[str], stored: TransformFile, *, overwrite: bool = False) -> None:
    """Write a transform file, complete or not at all."""
    transform = stored.transform
    rows, columns = np.nonzero(transform.factor)
    history = stored.history[-LONGEST_HISTORY:]
    with atomic_output(Path(path), overwrite=overwrite) as stream:
        np.savez_compressed(
            stream,
            format=np.int64(FORMAT),
            patch_size=np.int64(transform.patch_size),
            method=np.str_(transform.method),
            canonical=np.str_(transform.canonical),
            average_with_canonical=np.bool_(transform.average_with_canonical),
            rows=rows.astype(np.int32),
            columns=columns.astype(np.int32),
            values=transform.factor[rows, columns],
            condition=np.float64(transform.condition),
            density=np.float64(transform.density),
            frobenius_norm=np.float64(transform.frobenius_norm),
            provenance=np.str_(json.dumps(dict(stored.provenance), sort_keys=True)),
            history=np.array([astuple(record) for record in history], dtype=np.float64).reshape(-1, 5),
        )


def load_transform(path: str | os.PathLike[str]) -> TransformFile:
    """Read a transform file; whatever is wrong with it is told in one sentence."""
    path = Path(path)
    name = display_name(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise FileProblem(f"{name} is too large to be a transform file; give a .npz written by dstl.")
        with open_archive(path) as entries:
            return _checked(name, entries)
    except FileProblem:
        raise
    except NotAnArchive:
        raise FileProblem(f"{name} is not a transform file; give a .npz written by dstl.") from None
    except FileNotFoundError:
        raise FileProblem(f"There is no transform file {name}; check the path.") from None
    except OSError as error:
        raise FileProblem(f"{name} cannot be read ({_brief(error)}); check the file.") from None
    except Exception as error:  # a damaged or hostile archive can make the zip and array readers raise anything
        sentence = f"{name} is not a usable transform file ({_brief(error)}); make it again with dstl."
        raise FileProblem(sentence) from error


def _brief(error: Exception) -> str:
    """The first line of an error's message, or the beginning of a long one, without its full stop."""
    text = ((error.strerror or "") if isinstance(error, OSError) else str(error)).strip("'\"")
    line = display_name(text.splitlines()[0]) if text else type(error).__name__
    return line.rstrip(".") if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."


def _depth(value: Any) -> int:
    """How many tables and lists lie within each other."""
    depth, layer = 0, [value]
    while layer := [inner for inner in layer if isinstance(inner, dict | list)]:
        layer = [deeper for inner in layer for deeper in (inner.values() if isinstance(inner, dict) else inner)]
        depth += 1
    return depth


def _checked(name: str, entries: Any) -> TransformFile:
    def entry(key: str) -> Any:
        if key not in entries.files:
            raise FileProblem(f"{name} is not a transform file (no entry {key!r}); give a .npz written by dstl.")
        return np.asarray(entries[key])

    require(all(info.file_size <= LARGEST_FILE for info in entries.zip.infolist()), "an entry is too large")
    version = int(entry("format"))
    if version not in READ_FORMATS:
        known = " and ".join(map(str, READ_FORMATS))
        raise FileProblem(f"{name} has transform format {version}, this dstl reads formats {known}; update dstl.")
    patch_size, method = int(entry("patch_size")), str(entry("method"))
    require(1 <= patch_size <= LARGEST_PATCH, f"patch size {patch_size}")
    n = patch_size**2
    rows, columns, values = entry("rows"), entry("columns"), entry("values")
    together = rows.ndim == 1 and rows.shape == columns.shape == values.shape and values.dtype == np.float64
    require(together, "its entries do not fit together")
    for index in (rows, columns):
        require(index.dtype.kind in "iu" and bool(((index >= 0) & (index < n)).all()), "an index is out of range")
    factor = np.zeros((n, n))
    factor[rows, columns] = values
    history = entry("history")
    require(history.shape[1:] == (5,) and history.dtype == np.float64, "its history has the wrong shape")
    require(len(history) <= LONGEST_HISTORY, "its history is too long")
    provenance = json.loads(str(entry("provenance")))
    require(isinstance(provenance, dict), "its provenance is not a table")
    require(_depth(provenance) <= DEEPEST, "its provenance is nested too deeply")
    records = tuple(Iteration(int(row[0]), *map(float, row[1:])) for row in history)
    basis = ("dct", False) if version == 1 else (str(entry("canonical")), bool(entry("average_with_canonical")))
    return TransformFile(Transform(patch_size, factor, method, *basis), provenance, records)
