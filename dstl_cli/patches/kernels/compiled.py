"""Kernels: plain functions that run as machine code, kept from an earlier process or else compiled by numba.

Numba is imported only where something has to be compiled: its import and its own way of loading what it kept take half
a second, most of a short run.
"""

import contextlib
import threading
from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any

import numpy as np

from dstl_cli.patches.kernels.machine import KernelFiles, MachineCode, callable_from

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
            call = self._calls[kinds] = self._found(signature_of(arguments))
        return call(arguments)

    def _found(self, signature: str) -> Callable[[tuple[Any, ...]], Any]:
        """What is called with arguments of these types: machine code as it was kept; numba in any doubt."""
        with _lock:
            call = None
            with contextlib.suppress(Exception):
                kept = MachineCode.from_bytes(self.files.load(signature))
                call = None if kept is None else callable_from(kept)
            return call or partial(_spread_out, self.dispatcher)

    @property
    def dispatcher(self) -> Any:
        """Numba's own form of the kernel."""
        with _lock:
            if self._dispatcher is None:
                from dstl_cli.patches.kernels.compiler import numba_dispatcher

                self._dispatcher = numba_dispatcher(self.function, self.options, self.files)
            return self._dispatcher

    @property
    def _numba_type_(self) -> Any:
        """What numba asks for where a kernel calls another one."""
        return self.dispatcher._numba_type_


def instructions(define: Callable[..., Any]) -> Any:
    """What kernels call that is written in LLVM's own instructions; define: as numba's `intrinsic` takes it."""
    return Instructions(define)


class Instructions:
    """The same for numba, which asks for it where it compiles a kernel that calls it."""

    def __init__(self, define: Callable[..., Any]) -> None:
        self._define = define

    @cached_property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target
        from numba.extending import intrinsic

        made = intrinsic(self._define)
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(made)


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
