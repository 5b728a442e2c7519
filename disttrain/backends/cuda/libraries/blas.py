"""Products of matrices by cuBLAS, through CuPy's bindings of it.

float16 and bfloat16 are added up in float32; float32 is exact unless ``precision`` allows TF32.
Transposed and strided views go in without copies (``gemm.py``). Results have the same bits on every
run: cuBLAS promises it for one stream, and with a workspace of its own per handle for several.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ...device.precision import matmul_precision, reduced_reduction
from .gemm import Copies, Gemm, Side, gemm, result_side
from .recorded import Recorded

# cublasComputeType_t, cudaDataType, cublasMath_t, cublasGemmAlgo_t, by their names in cublas_api.h.
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70
DATA_TYPES = {"float16": 2, "bfloat16": 14, "float32": 0, "float64": 1, "complex64": 4,
              "complex128": 5}  # fmt: skip
MATH_DEFAULT, MATH_DISALLOW_REDUCED_REDUCTION = 0, 16
GEMM_DEFAULT = -1
OP_N, OP_T = 0, 1
# 8 buffers of 4 MiB per handle: what cuBLAS takes by itself on sm_90, made definite.
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class Blas:
    """The products of one CuPy."""

    def __init__(self, cupy: Any, cublas: Any = None) -> None:
        os.environ.setdefault(*WORKSPACE)  # cuBLAS reads it when its first handle is made
        self.xp = cupy
        self.cublas = cublas or binding()
        self.maths: dict[int, int] = {}  # of handles, where another than the default was set
        # 0 and 1 of each type, on the host, where the calls read them; and their addresses.
        self.factors = [np.array([0, 1], _number_type(name)) for name in DATA_TYPES]
        self.at = {
            name: (f.ctypes.data, f.ctypes.data + f.itemsize)
            for name, f in zip(DATA_TYPES, self.factors, strict=True)
        }

    def matmul(self, a: Any, b: Any, out: Any = None, add: bool = False) -> Any:
        """``a (..., m, k) @ b (..., k, n)``, into ``out`` where given (with ``add``: added to what
        is there), of the same type, or float32 where they are halves. Types that cuBLAS has no
        product of go by CuPy's own kernels."""
        name = a.dtype.name
        if name not in DATA_TYPES or b.dtype != a.dtype:
            return self._other(a, b, out, add)
        call = gemm(a.shape, a.strides, b.shape, b.strides, a.dtype.itemsize)
        if isinstance(call, Copies):
            a, b = self._copied(a, call.a, call.lead), self._copied(b, call.b, call.lead)
            call = gemm(a.shape, a.strides, b.shape, b.strides, a.dtype.itemsize)
            assert isinstance(call, Gemm)
        shape = (*call.lead, a.shape[-2], call.n)
        into, side = out, None if out is None else self._side(call, out, shape, a.dtype)
        if side is None:
            into, side = self.xp.ndarray(shape, a.dtype), call.c
            if add:
                into[...] = out
        if not into.size:
            pass
        elif not call.k:
            if not add:
                into.fill(0)
        else:
            self._run(call._replace(c=side), name, a, b, into, add)
        if out is not None and into is not out:
            out[...] = into
            return out
        return into

    def _side(self, call: Gemm, out: np.ndarray, shape: tuple, dtype: np.dtype) -> Side | None:
        """How ``out`` can be written to as it is; None where it cannot. (Products of half types may
        go to float32.)"""
        wide = dtype.itemsize == 2 and out.dtype == np.float32
        if out.shape != shape or not (out.dtype == dtype or wide):
            return None
        return result_side(call, out.shape, out.strides, out.dtype.itemsize)

    def _copied(self, x: np.ndarray, wanted: bool, lead: tuple) -> Any:
        if not wanted:
            return x
        if x.shape[:-2] != lead and any(n != 1 for n in x.shape[:-2]):
            x = self.xp.broadcast_to(x, (*lead, *x.shape[-2:]))
        return self.xp.ascontiguousarray(x)

    def _other(self, a: np.ndarray, b: np.ndarray, out: Any, add: bool) -> Any:
        product = self.xp.matmul(a, b)
        if out is None:
            return product
        out[...] = out + product if add else product
        return out

    def _run(self, call: Gemm, name: str, a: object, b: object, c: Any, add: bool) -> None:
        kind, into = DATA_TYPES[name], DATA_TYPES[c.dtype.name]
        handle = self.xp.cuda.device.get_cublas_handle()
        self._set_math(handle, name)
        compute = _compute_type(name)
        zero, one = self.at[name]
        beta = one if add else zero
        left, right = _passed(call.b, b, kind), _passed(call.a, a, kind)
        ops = (_op(call.b), _op(call.a))
        sizes = (call.n, call.m, call.k)
        if call.batch == 1:
            self._ask(
                "gemm", self.cublas.gemmEx, handle, *ops, *sizes, one, *left[:3], *right[:3], beta,
                c.data.ptr, into, call.c.ld, compute, GEMM_DEFAULT,
            )  # fmt: skip
        else:
            self._ask(
                "gemm_batched", self.cublas.gemmStridedBatchedEx, handle, *ops, *sizes, one, *left,
                *right, beta, c.data.ptr, into, call.c.ld, call.c.stride, call.batch, compute,
                GEMM_DEFAULT,
            )  # fmt: skip

    def _ask(self, name: str, call: Callable[..., Any], *args: int) -> None:
        try:
            call(*args)
        except NotImplementedError:  # CuPy's, of every product while a graph is recorded
            getattr(self.recorded, name)(*args)

    @functools.cached_property
    def recorded(self) -> Recorded:
        return Recorded(self.xp, self.cublas)

    def _set_math(self, handle: int, name: str) -> None:
        exact = name in ("float16", "bfloat16") and not reduced_reduction(name)
        mode = MATH_DISALLOW_REDUCED_REDUCTION if exact else MATH_DEFAULT
        if self.maths.get(handle, MATH_DEFAULT) != mode:
            self.cublas.setMathMode(handle, mode)
            self.maths[handle] = mode


def binding() -> Any:
    """CuPy's binding of cuBLAS. Asked of its package, which first loads the library from NVIDIA's
    wheels: imported by its own name, it would find only a library on the system's paths."""
    return importlib.import_module("cupy_backends.cuda.libs").cublas


def _number_type(name: str) -> Any:
    """The type of the factors that go with a product."""
    return "float32" if name in ("float16", "bfloat16") else name


def _compute_type(name: str) -> int:
    if name in ("float64", "complex128"):
        return COMPUTE_64F
    if name in ("float32", "complex64") and matmul_precision() != "highest":
        return COMPUTE_32F_FAST_TF32
    return COMPUTE_32F


def _op(side: Side) -> int:
    return OP_T if side.flipped else OP_N


def _passed(side: Side, x: Any, kind: int) -> tuple[int, int, int, int]:
    return x.data.ptr, kind, side.ld, side.stride
