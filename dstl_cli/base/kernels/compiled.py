"""Kernels: plain functions that run as machine code, kept from an earlier process or else compiled by numba.

Numba is imported only where something has to be compiled: its import and its own way of loading what it kept take half
a second, most of a short run.
"""

import contextlib
import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

import numpy as np

from dstl_cli.base.kernels.machine import KernelFiles, MachineCode, callable_from

_lock = threading.RLock()  # numba, too, compiles one kernel at a time


def compiled(**options: Any) -> Any:
    """A kernel without the GIL; where its machine code cannot be kept, every process compiles anew."""
    return lambda function: Kernel(function, options)


class Kernel:
    """A function whose machine code is found, or made, at the first call with arguments of some types."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.function, self.options = function, options
        self.files = KernelFiles(function, options)
        self._calls: dict[tuple[Any, ...], Callable[[tuple[Any, ...]], Any]] = {}
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        kinds = tuple(map(_kind_of, arguments))
        call = self._calls.get(kinds)
        if call is None:
            call = self._calls[kinds] = self._found(arguments)
        return call(arguments)

    def _found(self, arguments: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """What is called with arguments of these types: machine code as it was kept, or is now; numba in any doubt."""
        signature = signature_of(arguments)
        with _lock:
            call = None
            with contextlib.suppress(Exception):
                kept = MachineCode.from_bytes(self.files.load(signature))
                call = None if kept is None else callable_from(kept)
                call = call or self._compiled(signature, arguments)
            return call or partial(_spread_out, self.dispatcher)

    def _compiled(self, signature: str, arguments: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], Any] | None:
        """Machine code made now, called as if it had been kept; None where numba alone can call it.

        Numba would link it with what else it has compiled, whose last bits may differ: results would depend on which
        process compiled them.
        """
        kernel = self.dispatcher
        kernel.compile(tuple(map(kernel.typeof_pyval, arguments)))
        made = kernel._cache.made.get(signature)
        return None if made is None else callable_from(made)

    @property
    def dispatcher(self) -> Any:
        """Numba's own form of the kernel."""
        with _lock:
            if self._dispatcher is None:
                from dstl_cli.base.kernels.compiler import numba_dispatcher

                self._dispatcher = numba_dispatcher(self.function, self.options, self.files)
            return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What numba asks for where a kernel calls another one."""
        return self.dispatcher._numba_type_


def _spread_out(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def _kind_of(value: Any) -> Any:
    """What tells arguments of different signatures apart, in less time than it takes to put a type into words."""
    if type(value) is np.ndarray:
        return value.dtype.str, value.ndim, value.flags.num
    return -(2**63) <= value < 2**63 if type(value) is int else type(value)


def signature_of(arguments: tuple[Any, ...]) -> str:
    """The types of arguments in numba's words; what is not known here gets words that numba does not have."""
    return ", ".join(map(_type_of, arguments))


def _type_of(value: Any) -> str:
    if type(value) is np.ndarray:
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        kind = value.dtype.name if value.dtype.isnative else value.dtype.str
        return f"Array({kind}, {value.ndim}, {layout!r}, {not flags.writeable}, aligned={flags.aligned})"
    if type(value) is int:
        return "int64" if -(2**63) <= value < 2**63 else "larger"
    if type(value) is float:
        return "float64"
    return value.dtype.name if isinstance(value, np.number) else str(type(value))
