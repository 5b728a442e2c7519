"""How many threads numpy's BLAS takes, and how to change that while it runs.

A BLAS reads environment variables when numpy is loaded. What is known only later (how many ranks
share this machine, whether a sum must have the same bits everywhere) is told to it by its own
functions, which OpenBLAS, MKL and BLIS have under names of their own. Knows no ranks.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # what it reads

# How it is asked, and how it is told. Builds with 64-bit integers, and numpy's own, add to names.
_NAMES = [
    (f"{before}openblas_get_num_threads{after}", f"{before}openblas_set_num_threads{after}")
    for before in ("scipy_", "")
    for after in ("64_", "_64_", "", "_")
]
_NAMES += [
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
]


@functools.cache
def _library() -> ctypes.CDLL | None:
    """What numpy is linked to."""
    try:
        numpy = importlib.import_module("numpy._core._multiarray_umath")
        return ctypes.CDLL(numpy.__file__)  # finds what it needs, too
    except (ImportError, OSError):
        return None


@functools.cache
def kernels() -> str:
    """For which processor an OpenBLAS's kernels are that run here; empty where that cannot be
    told."""
    library = _library()
    for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_",
                 "openblas_get_corename"):  # fmt: skip
        if hasattr(library, name):
            ask = getattr(library, name)
            ask.restype = ctypes.c_char_p
            return str(ask().decode())
    return ""


@functools.cache
def _calls() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """(asks, tells), of the BLAS that numpy is linked to; None where it is none of these."""
    library = _library()
    if library is None:
        return None
    for ask, tell in _NAMES:
        if hasattr(library, ask) and hasattr(library, tell):
            return getattr(library, ask), getattr(library, tell)
    return None


def num_threads() -> int | None:
    """Threads that a large product takes; None where the BLAS cannot be asked."""
    calls = _calls()
    return None if calls is None else int(calls[0]())


def set_num_threads(count: int) -> bool:
    """Let it take ``count`` from now on, in this process; whether it could be told."""
    calls = _calls()
    if calls is not None:
        calls[1](count)
    return calls is not None
