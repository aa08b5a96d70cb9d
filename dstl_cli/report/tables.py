"""Results as tables: JSON documents, CSV, and what there is to tell of a transform file."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dstl_cli.base.atomic import atomic_output
from dstl_cli.learning.methods import METHODS
from dstl_cli.version import __version__

FORMULA_BEGINS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)  # the last four are wide

if TYPE_CHECKING:
    from dstl_cli.transforms.files import TransformFile


def to_json(command: str, **parts: Any) -> str:
    """One JSON document with the command and version first; numbers that are not finite become null."""
    document = {"command": command, "version": __version__, **parts}
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_csv(rows: Sequence[Any], path: Path, *, overwrite: bool = False) -> None:
    """Write a CSV table of dataclass rows under their field names; None is an empty cell, infinite is inf.

    A text that a spreadsheet would take for a formula gets a ' in front, as OWASP advises: then it is shown as text.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(rows[0]))
    writer.writerows(map(_harmless, asdict(row).values()) for row in rows)
    with atomic_output(path, overwrite=overwrite) as stream:
        stream.write(text.getvalue().encode())


def _harmless(value: Any) -> Any:
    """A cell that no spreadsheet calculates: with a ' before what begins a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_BEGINS) else value


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of nested tables under dotted names; those of a list of tables are numbered."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            value = dict(enumerate(value, start=1))
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{name}.")
        else:
            yield name, value


def transform_facts(stored: "TransformFile") -> dict[str, Any]:
    """The numbers of a transform file: those of every report, its spectrum, and the bound it was learnt under.

    That is known where its method has one and its settings tell it.
    """
    transform, values = stored.transform, stored.transform.singular_values
    known = transform.method in METHODS and "max_condition" in METHODS[transform.method].uses
    settings = flattened({"settings": stored.provenance.get("settings") if known else None})
    bounds = [value for name, value in settings if name.endswith(".max_condition") and isinstance(value, (int, float))]
    return {
        **transform.facts(),
        "condition_bound": next((float(bound) for bound in bounds if 1 <= bound < math.inf), None),
        "nonzeros": round(transform.density * transform.factor.size),
        "largest_singular_value": float(values[0]),
        "smallest_singular_value": float(values[-1]),
    }
