"""The compiler of the kernels, numba: what it compiles is kept as machine code, or in its own way where that fails."""

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from dstl_cli.base.kernels.machine import KernelFiles, MachineCode, callable_from
from dstl_cli.base.progress import compiling

try:
    from numba.core.caching import NullCache
except ImportError:  # numba's own affair; without this class its plain cache has to do
    NullCache = object


def numba_dispatcher(function: Callable[..., Any], options: dict[str, Any], files: KernelFiles) -> Any:
    """The kernel as numba makes it."""
    if NullCache is object:
        return njit(cache=True, nogil=True, **options)(function)
    kernel = njit(nogil=True, **options)(function)
    kernel._cache = KernelCache(files)
    return kernel


class KernelCache(NullCache):  # type: ignore[misc]
    """Numba's cache of one kernel over `KernelFiles`; whatever fails in it, the kernel is compiled without it."""

    def __init__(self, files: KernelFiles) -> None:
        self.files = files
        self.made: dict[str, MachineCode] = {}  # by this process, for each signature

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The kernel for a signature as numba keeps it; None where it has to be compiled."""
        loaded = None
        with contextlib.suppress(Exception):
            kept = self.files.load(_in_words(signature))
            if kept is not None and MachineCode.from_bytes(kept) is None:
                target_context.refresh()
                loaded = CompileResult._rebuild(target_context, *pickle.loads(kept))
        if loaded is None:
            compiling()
        return loaded

    def save_overload(self, signature: Any, kernel: Any) -> None:
        """Keep the compiled kernel for a signature if that is possible."""
        with contextlib.suppress(Exception):
            if kernel.library.has_dynamic_globals or kernel.lifted:
                return
            machine = machine_code(kernel)
            if machine is not None:
                self.made[_in_words(signature)] = machine
            content = dumps(kernel._reduce()) if machine is None else machine.to_bytes()
            self.files.save(_in_words(signature), content)


def machine_code(kernel: Any) -> MachineCode | None:
    """What numba compiled as machine code that runs without it; None where it does not."""
    with contextlib.suppress(Exception):
        environments = [kernel.environment, *(kernel.referenced_envs or ())]
        if kernel.reload_init or any(environment.consts for environment in environments):
            return None
        names = [environment.env_name for environment in environments]
        code = kernel.library._get_compiled_object()
        made = MachineCode.of(code, kernel.fndesc.llvm_cpython_wrapper_name, names)
        return None if callable_from(made) is None else made
    return None


def _in_words(signature: Any) -> str:
    """As `compiled.py: signature_of` tells it of arguments."""
    return ", ".join(map(repr, signature))


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
