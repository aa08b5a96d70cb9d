"""Checkpoints: the state of an interrupted training as `.npz`, readable with numpy alone and never pickled."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dstl_cli.base.archives import open_archive
from dstl_cli.base.arrays import Arrays
from dstl_cli.base.atomic import atomic_output
from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem

FORMAT = 1
_FACTS = "checkpoint"  # the entry with everything that is not an array, as JSON


def save_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a checkpoint, complete or not at all; an older one is replaced."""
    entries: dict[str, Any] = {_FACTS: np.str_(json.dumps({"format": FORMAT, **facts}, sort_keys=True)), **arrays}
    with atomic_output(path, overwrite=True) as stream:
        np.savez(stream, **entries)


def load_checkpoint(path: Path) -> tuple[dict[str, Any], Arrays]:
    """The facts and arrays of a checkpoint; whatever is wrong with the file is told in one sentence."""
    try:
        with open_archive(path) as entries:
            arrays = {key: np.asarray(entries[key]) for key in entries.files}
        facts = json.loads(str(arrays.pop(_FACTS)))
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error}); check the file"
        raise FileProblem(f"{display_name(path)} {reason}.") from None
    except MemoryError:  # no reason to give up a training
        raise FileProblem(f"{display_name(path)} does not fit into memory; close other programs.") from None
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError):  # what damaged archives raise
        raise unusable(path) from None
    if not isinstance(facts, dict) or facts.pop("format", None) != FORMAT:
        raise unusable(path)
    return facts, arrays


def unusable(path: Path) -> FileProblem:
    """The error for a file that no training of this version has left."""
    return FileProblem(f"{display_name(path)} is not a usable checkpoint; use --force to begin anew.")
