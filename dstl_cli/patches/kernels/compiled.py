"""The compiler of the kernels: machine code is kept on disk, and checked before it is loaded."""

import contextlib
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.core.serialize import dumps

from dstl_cli.base.atomic import atomic_output
from dstl_cli.base.progress import compiling

try:
    from numba.core.caching import FunctionCache
except ImportError:  # numba's own affair; without these classes its plain cache has to do
    FunctionCache = object

Key = tuple[Any, ...]  # signature, processor, hashes of the code


def compiled(**options: Any) -> Any:
    """njit for kernels without the GIL; where their machine code cannot be kept, every process compiles anew."""

    def decorate(function: Any) -> Any:
        if FunctionCache is object:
            return njit(cache=True, nogil=True, **options)(function)
        kernel = njit(nogil=True, **options)(function)
        kernel._cache = CheckedCache(function)
        return kernel

    return decorate


class KernelFiles:
    """The files of one kernel, one for each signature: a SHA-256 of the data and of what it was made from, the data."""

    def __init__(self, folder: str, name: str, source: object) -> None:
        self.folder, self.name, self.source = Path(folder), name, source

    def load(self, key: Key) -> Any:
        """What was saved for a key; None where it is damaged or from another source."""
        kept = self._path(key).read_bytes()
        checksum, data = kept[:32], kept[32:]
        return pickle.loads(data) if checksum == self._checksum(key, data) else None

    def save(self, key: Key, content: Any) -> None:
        """Keep the content for a key, in the place of what was there before."""
        data = dumps(content)
        with atomic_output(self._path(key)) as stream:
            stream.write(self._checksum(key, data) + data)

    def _path(self, key: Key) -> Path:
        number = hashlib.sha256(repr(key[:2]).encode()).hexdigest()[:16]
        return self.folder / f"{self.name}.{number}.kernel"

    def _checksum(self, key: Key, data: bytes) -> bytes:
        return hashlib.sha256(repr((key, self.source)).encode() + data).digest()


class CheckedCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one kernel over `KernelFiles`; whatever fails in it, the kernel is compiled without it."""

    def __init__(self, function: Any) -> None:
        try:
            super().__init__(function)
        except RuntimeError:  # there is no folder that may be written to
            self.disable()
            return
        source = self._impl.locator.get_source_stamp(), numba.__version__
        self._cache_file = KernelFiles(self._cache_path, self._impl.filename_base, source)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The kernel for a signature, None where it has to be compiled."""
        loaded = None
        with contextlib.suppress(Exception):
            loaded = super().load_overload(signature, target_context)
        if loaded is None:
            compiling()
        return loaded

    def save_overload(self, signature: Any, kernel: Any) -> None:
        """Keep the compiled kernel for a signature if that is possible."""
        with contextlib.suppress(Exception):
            super().save_overload(signature, kernel)


def _defer_blas() -> None:
    """Keep numba from importing scipy.linalg, where it looks for BLAS, before a kernel needs it; ours never do.

    It is imported for nothing but to know whether it is there: a quarter of a short run.
    """
    from numba.np import linalg

    look = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        from numba.np import arraymath  # noqa: F401
    finally:
        linalg.ensure_blas = look


with contextlib.suppress(ImportError, AttributeError):
    _defer_blas()
