"""Machine code from the cache of kernels, or compiled and put there."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

from .. import cache, host
from .compiler import compile_ir
from .objfile import load


def kept(known_by: str, ir: Callable[[], str], resolve: Callable[[str], int]) -> dict[str, int]:
    """The addresses of the functions of ``ir()``, which is asked for only where nothing is kept for
    ``known_by``: all that the code depends on, but for the processor and the compiler. ``resolve``
    gives the addresses of C functions that it calls.

    Raises ``ImportError`` where llvmlite is missing, ``RuntimeError`` where LLVM refuses the text,
    ``ObjectError`` where what it makes cannot be loaded."""
    key = hashlib.sha256(f"{known_by}\n{_compiled_by()}".encode()).hexdigest()
    folder = cache.directory()
    code = cache.read(folder, key)
    if code is None:
        code = compile_ir(ir())
        cache.write(folder, key, code)
    return load(code, resolve)


@functools.cache
def _compiled_by() -> str:
    """What the code of a text depends on: machines of one model that share a home may differ in
    what they are allowed to use."""
    cpu, llvmlite = host.cpu(), host.llvmlite_version()
    return f"{cpu.model}\n{' '.join(sorted(cpu.features))}\n{llvmlite}"


__all__ = ["kept"]
