"""How much memory a run may take, and arrays on disk where that is not enough."""

import math
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dstl_cli.base.atomic import nameless_file, remove_stale_temporaries
from dstl_cli.base.threads import allocated
from dstl_cli.errors import FileProblem

SHARE = 0.5  # of the machine's memory that a run may take where nothing is said


def machine_memory() -> int:
    """Bytes of memory of this machine; a guess where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


@dataclass(frozen=True)
class Memory:
    """most: bytes that the arrays of a run may take; None: a share of the machine's. scratch: where others go."""

    most: int | None = None
    scratch: Path | None = None

    def holds(self, needed: int) -> bool:
        """Whether so many bytes fit."""
        return needed <= (self.most if self.most is not None else SHARE * machine_memory())

    def allocator(self, needed: int) -> Callable[[tuple[int, int], Any], Any]:
        """What makes arrays for work that needs so many bytes: in memory, or in files that nobody else sees."""
        if self.holds(needed):
            return allocated
        folder = self.scratch or Path(tempfile.gettempdir())
        remove_stale_temporaries(folder)
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise FileProblem(
                f"The folder {folder} cannot be used ({error.strerror}); choose another --scratch."
            ) from None
        if free < needed:
            raise FileProblem(
                f"The scratch folder {folder} has {free / 2**20:.0f} MiB free and {needed / 2**20:.0f} MiB are needed; "
                "choose another with --scratch, or allow more with --max-memory."
            )

        def on_disk(shape: tuple[int, int], dtype: Any) -> Any:
            try:
                return _on_disk(folder, shape, dtype)
            except OSError as error:
                raise FileProblem(
                    f"The folder {folder} cannot be used ({error.strerror}); choose another --scratch."
                ) from None

        return on_disk


def _on_disk(folder: Path, shape: tuple[int, int], dtype: Any) -> Any:
    """An array in a file that goes with the last use of it, however the program ends."""
    import numpy as np

    with nameless_file(folder) as stream:
        if hasattr(os, "posix_fallocate"):  # a disk that is full says so now, and not by ending the program later
            os.posix_fallocate(stream.fileno(), 0, max(1, math.prod(shape) * np.dtype(dtype).itemsize))
        return np.asarray(np.memmap(stream, dtype, "w+", shape=shape))  # kernels are compiled for plain arrays
