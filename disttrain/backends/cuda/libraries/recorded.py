"""cuBLAS's products while a graph is recorded, which CuPy refuses to ask for.

The calls are those of CuPy's binding, with its handle, made on the library that it has loaded.
cuBLAS is given a workspace out of the graph's memory: with its own, it would put allocations into
the graph, and replays of several graphs would share one. Knows addresses and numbers.
"""

from __future__ import annotations

import ctypes
from typing import Any

WORKSPACE = 32 << 20  # bytes: what NVIDIA advises for Hopper; a multiple of 256
_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_SIDE = [_P, _I, _I]  # address, type, leading dimension
_PART = [*_SIDE, _L]  # and the distance of matrices
_SIZES = [_P, *[_I] * 5]  # handle, operations, m, n, k
_TYPES = {
    "cublasSetStream_v2": [_P, _P],
    "cublasSetWorkspace_v2": [_P, _P, ctypes.c_size_t],
    "cublasGemmEx": [*_SIZES, _P, *_SIDE, *_SIDE, _P, *_SIDE, _I, _I],
    "cublasGemmStridedBatchedEx": [*_SIZES, _P, *_PART, *_PART, _P, *_PART, _I, _I, _I],
}


class Recorded:
    """``cublas``: CuPy's binding, by which the library is known; ``library`` is given by tests."""

    def __init__(self, cupy: Any, cublas: Any, library: Any = None) -> None:
        self.cuda, self.cublas = cupy.cuda, cublas
        if library is None:
            handle = cupy.cuda.device.get_cublas_handle()
            library = ctypes.CDLL(f"libcublas.so.{cublas.getVersion(handle) // 10000}")
        self.calls = {name: getattr(library, name) for name in _TYPES}
        for name, types in _TYPES.items():
            self.calls[name].argtypes, self.calls[name].restype = types, _I

    def gemm(self, handle: int, *args: int) -> None:
        """``gemmEx``'s arguments."""
        self._ask("cublasGemmEx", handle, args)

    def gemm_batched(self, handle: int, *args: int) -> None:
        """``gemmStridedBatchedEx``'s arguments."""
        self._ask("cublasGemmStridedBatchedEx", handle, args)

    def _ask(self, what: str, handle: int, args: tuple) -> None:
        memory = self.cuda.alloc(WORKSPACE)  # given back behind the product, in its stream
        self._call("cublasSetStream_v2", handle, self.cuda.get_current_stream().ptr)
        self._call("cublasSetWorkspace_v2", handle, memory.ptr, WORKSPACE)
        try:
            self._call(what, handle, *args)
        finally:  # the workspace is cuBLAS's own again
            self._call("cublasSetStream_v2", handle, self.cuda.get_current_stream().ptr)

    def _call(self, what: str, *args: int) -> None:
        self.cublas.check_status(self.calls[what](*args))
