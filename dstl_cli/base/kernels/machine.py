"""What is compiled of kernels, kept on disk; and machine code, called without numba.

What numba compiles is an object file with a function that takes and gives Python objects. LLVM links it again in a
later process; the few functions of numba's C library that it needs are found without importing the rest of numba.
Everything that the code depends on counts in its checksum. Only where this was tried, Linux on x86-64 with the numba of
`TRIED`, as it leans on what numba promises to nobody; elsewhere the files hold what numba itself would keep.
"""

import builtins
import contextlib
import ctypes
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dstl_cli.base.atomic import atomic_output, remove_stale_temporaries

TRIED = '"version": "0.68.'  # as numba's _version.py says it
EXTENSIONS = ("_helperlib", "_dynfunc", "core/runtime/_nrt_python")  # numba's C library
OPERATIONS = Path(__file__).with_name("vectors.py")  # what kernels may be made of, beside their own source
MARK = b"machine code\n"
SYMBOL_TABLE, UNDEFINED = 2, 0  # in ELF files: type of a section, and the section of what is to be found elsewhere


@lru_cache(maxsize=1)
def _numba_folder() -> Path:
    spec = importlib.util.find_spec("numba")
    if spec is None or spec.origin is None:
        raise ImportError("numba is not installed")
    return Path(spec.origin).parent


def _is_supported() -> bool:
    """Whether this system and this numba are those on which code was run without numba."""
    system = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.implementation.name == "cpython"
    return system and TRIED in (_numba_folder() / "_version.py").read_text()


SUPPORTED = _is_supported()


@dataclass(frozen=True)
class MachineCode:
    """An object file, the name of its function for Python, those of its environments, and what it needs from outside.

    Environments are where numba's code finds constants; these have none.
    """

    code: bytes
    function: str
    environments: list[str]
    needed: list[str]

    @classmethod
    def of(cls, code: bytes, function: str, environments: list[str]) -> "MachineCode":
        """The same with what the object file says that it needs."""
        return cls(code, function, environments, undefined_symbols(code))

    def to_bytes(self) -> bytes:
        """A line that says what it is, one of JSON, and the object file."""
        names = {name: value for name, value in asdict(self).items() if name != "code"}
        return MARK + json.dumps(names).encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, content: bytes | None) -> "MachineCode | None":
        """The opposite; None for other content."""
        if content is None or not content.startswith(MARK):
            return None
        names, _, code = content[len(MARK) :].partition(b"\n")
        return cls(code, **json.loads(names))


class KernelFiles:
    """The files of one kernel, one for each signature: a SHA-256 of the content and of all it was made from, the rest.

    They lie where numba would put its own.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.source, line = Path(function.__code__.co_filename), function.__code__.co_firstlineno
        version = "".join(map(str, sys.version_info[:2]))
        self.name = f"{self.source.stem}.{function.__qualname__}-{line}.py{version}".translate({60: "", 62: ""})
        self.options = sorted((key, sorted(map(str, value))) for key, value in options.items())

    def load(self, signature: str) -> bytes | None:
        """What was kept for a signature; None where nothing was, or it is damaged or of another source."""
        folder = cache_folder(self.source)
        path = self._path(folder, signature) if folder else None
        if path is None or not path.is_file():
            return None
        kept = path.read_bytes()
        return kept[32:] if kept[:32] == self._checksum(signature, kept[32:]) else None

    def save(self, signature: str, content: bytes) -> None:
        """Keep the content for a signature, in place of what was there before, if there is a folder for it."""
        folder = cache_folder(self.source)
        if folder is not None:
            remove_stale_temporaries(folder)
            with atomic_output(self._path(folder, signature)) as stream:
                stream.write(self._checksum(signature, content) + content)

    def _path(self, folder: Path, signature: str) -> Path:
        number = hashlib.sha256(repr((signature, processor())).encode()).hexdigest()[:16]
        return folder / f"{self.name}.{number}.kernel"

    def _checksum(self, signature: str, data: bytes) -> bytes:
        sources = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (self.source, OPERATIONS)]
        made_from = signature, processor(), sources, self.name, self.options, compiler_stamp()
        return hashlib.sha256(repr(made_from).encode() + data).digest()


def cache_folder(source: Path) -> Path | None:
    """Where what is compiled from a source file is kept: the folder that is told, beside it, the user's, or nowhere."""
    beside = os.path.dirname(os.path.abspath(source))
    own = f"{os.path.basename(beside)}_{hashlib.sha1(beside.encode()).hexdigest()}"
    told = os.environ.get("NUMBA_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    first = [Path(told, own)] if told else []
    for folder in [*first, Path(beside, "__pycache__"), Path(user, "numba", own)]:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


@lru_cache(maxsize=1)
def processor() -> tuple[str, str, str]:
    """What machine code is for."""
    import llvmlite.binding as llvm

    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@lru_cache(maxsize=1)
def compiler_stamp() -> tuple[Any, ...]:
    """What tells one installation of the compiler from another, and its settings, without importing it."""
    import llvmlite

    files = [_numba_folder() / "_version.py", *(map(_extension_file, EXTENSIONS) if SUPPORTED else ())]
    stamps = [(str(path), os.stat(path).st_mtime_ns, os.stat(path).st_size) for path in files]
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    told = [item for item in settings if item[0] != "NUMBA_CACHE_DIR"] + [os.path.exists(".numba_config.yaml")]
    return sys.version, np.__version__, llvmlite.__version__, stamps, told


def undefined_symbols(code: bytes) -> list[str]:
    """The names that a 64-bit ELF object file leaves to the linker."""
    if code[:6] != b"\x7fELF\x02\x01":
        raise ValueError("This is no little-endian 64-bit ELF file.")
    (start,), (size, count) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + size * number) for number in range(count)]
    found = []
    for _, kind, _, _, first, length, strings, _, _, entry in sections:
        for place in range(first + entry, first + length, entry) if kind == SYMBOL_TABLE else ():
            name, _, _, section = struct.unpack_from("<IBBH", code, place)
            if section == UNDEFINED:
                text = sections[strings][4] + name
                found.append(code[text : code.index(b"\0", text)].decode())
    return found


_kept: list[Any] = []  # what linked code needs as long as the process lives


def callable_from(machine: MachineCode) -> Callable[[tuple[Any, ...]], Any] | None:
    """The function, to be called with a tuple of arguments of its own types; None where something it needs is missing.

    A name that the linker does not find would end the process, so they are looked for first.
    """
    if not SUPPORTED:
        return None
    import llvmlite.binding as llvm

    environment = _runtime()
    process = ctypes.CDLL(None)
    if not all(llvm.address_of_symbol(name) or hasattr(process, name) for name in machine.needed):
        return None
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine.code))
    engine.finalize_object()
    _kept.append(engine)
    for name in machine.environments:
        if place := engine.get_global_value_address(name):
            ctypes.c_void_p.from_address(place).value = id(environment)
    address = engine.get_function_address(machine.function)
    if not address:
        return None
    # Of (closure, arguments, keywords), as Python has them in C: it raises Python's errors, and drops the GIL inside.
    run = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(address)
    return lambda arguments: run(None, arguments, None)


@lru_cache(maxsize=1)
def _runtime() -> Any:
    """Tell LLVM where numba's C library and Python's own objects are, as numba does; an empty environment."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    helpers, functions, memory = map(_extension, EXTENSIONS)
    named = {f"numba_{name}": place for part in (helpers, functions) for name, place in part.c_helpers.items()}
    named |= {name if name[0] == "_" else f"NRT_{name}": place for name, place in memory.c_helpers.items()}
    errors = [
        value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)
    ]
    named |= {f"PyExc_{error.__name__}": id(error) for error in errors} | {"_Py_NoneStruct": id(None)}
    for name, place in named.items():
        llvm.add_symbol(name, place)
    _kept.append(functions.Environment({}))
    return _kept[-1]


def _extension_file(name: str) -> Path:
    """The file of one of numba's modules in C."""
    beginning = str(_numba_folder() / name)
    return next(path for end in importlib.machinery.EXTENSION_SUFFIXES if (path := Path(beginning + end)).is_file())


def _extension(name: str) -> Any:
    """One of numba's modules in C, without the package around it; the same object that numba would import."""
    dotted = "numba." + name.replace("/", ".")
    if dotted not in sys.modules:
        spec = importlib.util.spec_from_file_location(dotted, _extension_file(name))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[dotted] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[dotted])
    return sys.modules[dotted]
