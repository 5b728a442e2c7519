"""Products of matrices as cuBLAS is asked for them: every layout of the operands, held against
numpy by a stand-in of the two calls that reads memory as cuBLAS would; types and settings."""

from __future__ import annotations

import ctypes
import itertools
import sys
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.cuda.libraries.blas import COMPUTE_32F, COMPUTE_32F_FAST_TF32, Blas, binding
from disttrain.backends.cuda.libraries.recorded import WORKSPACE, Recorded
from disttrain.backends.device import precision
from disttrain.errors import ConfigError

KINDS = {2: np.float16, 14: ml_dtypes.bfloat16, 0: np.float32, 1: np.float64, 4: np.complex64}


class Raw(np.ndarray):
    """numpy's array with an address where CuPy's have it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


def raw(a):
    return a.view(Raw)


class Calls:
    """cuBLAS's two calls (signatures of CuPy's bindings), on the host's memory, by columns."""

    def __init__(self):
        self.seen = []

    def gemmEx(self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C,
               Ctype, ldc, computeType, algo):  # noqa: N802, N803  # fmt: skip
        self.gemmStridedBatchedEx(
            handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C,
            Ctype, ldc, 0, 1, computeType, algo,
        )  # fmt: skip

    def gemmStridedBatchedEx(self, handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA,
                             B, Btype, ldb, strideB, beta, C, Ctype, ldc, strideC, batchCount,
                             computeType, algo):  # noqa: N802, N803  # fmt: skip
        self.seen.append((computeType, batchCount))
        assert lda >= max(1, k if transa else m) and ldb >= max(1, n if transb else k) and ldc >= m
        kind, into = np.dtype(KINDS[Atype]), np.dtype(KINDS[Ctype])
        factor = np.float32 if kind.itemsize == 2 else kind
        one, add = _memory(alpha, 1, factor)[0], _memory(beta, 1, factor)[0]
        assert one == 1
        for i in range(batchCount):
            a = _columns(A + i * strideA * kind.itemsize, k if transa else m, m if transa else k,
                         lda, kind)  # fmt: skip
            b = _columns(B + i * strideB * kind.itemsize, n if transb else k, k if transb else n,
                         ldb, kind)  # fmt: skip
            c = _columns(C + i * strideC * into.itemsize, m, n, ldc, into)
            a, b = a.T if transa else a, b.T if transb else b
            wide = np.result_type(kind, np.float32) if kind.kind != "V" else np.float32
            product = a.astype(wide) @ b.astype(wide)
            c[...] = (product + c.astype(wide) if add else product).astype(into)

    def setMathMode(self, handle, mode):  # noqa: N802
        self.seen.append(("math", mode))


def _memory(address, count, kind):
    kind = np.dtype(kind)
    cells = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(cells, np.uint8).view(kind)


def _columns(address, rows, columns, ld, kind):
    cells = _memory(address, (columns - 1) * ld + rows, kind)
    return np.lib.stride_tricks.as_strided(
        cells, (rows, columns), (kind.itemsize, ld * kind.itemsize)
    )


@pytest.fixture
def blas():
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(device=SimpleNamespace(get_cublas_handle=lambda: 7)),
        ndarray=lambda shape, dtype: raw(np.full(shape, 7, dtype)),
        broadcast_to=lambda x, shape: np.broadcast_to(x, shape, subok=True),
        ascontiguousarray=lambda x: raw(np.array(x, order="C")),
        matmul=np.matmul,
    )
    return Blas(cupy, Calls())


def layouts(rng, shape, kind):
    """Arrays of one shape: contiguous, transposed, with gaps, of several orders, repeated."""

    def fresh(s):
        return rng.normal(size=s).astype(kind)

    yield fresh(shape)
    yield fresh((*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    yield fresh((*shape[:-1], shape[-1] + 3))[..., :-3]
    yield fresh((*shape[:-1], shape[-1] * 2))[..., ::2]
    yield np.broadcast_to(fresh((*shape[:-1], 1)), shape)
    if len(shape) > 2:
        yield fresh((shape[-2], *shape[:-2], shape[-1])).transpose(
            *range(1, len(shape) - 1), 0, len(shape) - 1
        )
        yield np.broadcast_to(fresh((1, *shape[1:])), shape)


@pytest.mark.parametrize("kind", ["f4", "f2", ml_dtypes.bfloat16, "f8", "c8"], ids=str)
def test_every_layout(blas, kind):
    rng = np.random.default_rng(2)
    pairs = [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 4), (4, 1)),
             ((2, 1, 3, 4), (3, 4, 2)), ((2, 3, 3, 4), (1, 3, 4, 2)), ((5, 1), (1, 5))]  # fmt: skip
    tol = 2e-2 if np.dtype(kind).itemsize == 2 else 1e-5
    for (sa, sb), flags in itertools.product(pairs, (True, False)):
        for a, b in itertools.product(layouts(rng, sa, kind), layouts(rng, sb, kind)):
            wide = np.result_type(a, np.float32) if a.dtype.kind != "V" else np.float32
            want = a.astype(wide) @ b.astype(wide)
            if flags:
                got = blas.matmul(raw(a), raw(b))
            else:
                out = raw(np.ones(want.shape, kind))
                got, want = blas.matmul(raw(a), raw(b), out, add=True), want + 1
                assert got is out
            assert got.dtype == a.dtype and got.shape == want.shape
            np.testing.assert_allclose(np.asarray(got).astype(wide), want, rtol=tol, atol=tol)


def test_results_that_do_not_fit(blas):
    """Into a view with gaps, or another type, by way of an array of its own."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2)
    out = raw(np.ones((2, 4)))[:, ::2]
    blas.matmul(raw(a), raw(b), out, add=True)
    np.testing.assert_array_equal(out, a @ b + 1)
    whole = blas.matmul(raw(a.astype("i8")), raw(b.astype("i8")))
    np.testing.assert_array_equal(whole, (a @ b).astype("i8"))


def test_results_with_strides_and_in_float32(blas):
    """A part of a batch and one of its groups, as convolution writes them; halves into float32."""
    rng = np.random.default_rng(5)
    for kind in ("f4", ml_dtypes.bfloat16):
        a = rng.integers(-4, 4, (2, 3)).astype(kind)
        b = rng.integers(-4, 4, (4, 3, 5)).astype(kind)
        out = raw(np.ones((6, 2, 2, 5), "f4"))
        made = blas.xp.ndarray
        blas.xp.ndarray = None  # nothing may be made for it
        blas.matmul(raw(a), raw(b), out[1:5, 1], add=True)
        blas.xp.ndarray = made
        want = np.ones((6, 2, 2, 5), "f4")
        want[1:5, 1] += a.astype("f4") @ b.astype("f4")
        np.testing.assert_array_equal(out, want)
    flat = raw(np.zeros((2, 3, 8), "f4"))[..., :4]
    x, w = raw(np.ones((2, 3, 5), "f4")), raw(np.ones((5, 4), "f4"))
    blas.matmul(x, w, flat)
    np.testing.assert_array_equal(flat, np.full((2, 3, 4), 5))


def test_empty_products(blas):
    assert blas.matmul(raw(np.ones((0, 3))), raw(np.ones((3, 2)))).shape == (0, 2)
    np.testing.assert_array_equal(
        blas.matmul(raw(np.ones((2, 0))), raw(np.ones((0, 3)))), np.zeros((2, 3))
    )
    kept = raw(np.ones((2, 3)))
    np.testing.assert_array_equal(
        blas.matmul(raw(np.ones((2, 0))), raw(np.ones((0, 3))), kept, add=True), np.ones((2, 3))
    )


def test_settings(blas):
    a = raw(np.ones((2, 2), "f4"))
    blas.matmul(a, a)
    precision.set_matmul_precision("high")
    try:
        blas.matmul(a, a)
    finally:
        precision.set_matmul_precision("highest")
    assert blas.cublas.seen == [(COMPUTE_32F, 1), (COMPUTE_32F_FAST_TF32, 1)]
    with pytest.raises(ConfigError, match="highest, high, medium"):
        precision.set_matmul_precision("exact")
    h = raw(np.ones((2, 2), "f2"))
    precision.set_reduced_reduction("float16", False)
    try:
        blas.matmul(h, h)
        blas.matmul(h, h)
    finally:
        precision.set_reduced_reduction("float16", True)
    blas.matmul(h, h)
    modes = [s for s in blas.cublas.seen if s[0] == "math"]
    assert modes == [("math", 16), ("math", 0)]


def test_the_binding_is_asked_of_its_package(monkeypatch):
    """Which loads cuBLAS first, from NVIDIA's wheels; the module by its own name does not."""
    libraries = ModuleType("cupy_backends.cuda.libs")
    libraries.__getattr__ = lambda name: f"loaded {name}"
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, libraries.__name__, libraries)
    assert binding() == "loaded cublas"


def test_products_that_are_recorded(blas, monkeypatch):
    """CuPy refuses them: they go to the library, with a workspace of the graph's memory."""

    def refused(*args):
        raise NotImplementedError("calling cuBLAS API during stream capture is unsupported")

    calls, said = Calls(), []
    library = SimpleNamespace(
        cublasGemmEx=lambda *args: calls.gemmEx(*args) or 0,
        cublasGemmStridedBatchedEx=lambda *args: calls.gemmStridedBatchedEx(*args) or 0,
        cublasSetStream_v2=lambda handle, stream: said.append(("stream", stream)) or 0,
        cublasSetWorkspace_v2=lambda handle, at, size: said.append((at, size)) or 0,
    )
    cuda = SimpleNamespace(
        alloc=lambda size: SimpleNamespace(ptr=512), get_current_stream=lambda: calls
    )
    calls.ptr = 11
    calls.check_status = lambda status: said.append(status) if status else None
    blas.recorded = Recorded(SimpleNamespace(cuda=cuda), calls, library)
    for name in ("gemmEx", "gemmStridedBatchedEx"):
        monkeypatch.setattr(blas.cublas, name, refused)
    rng = np.random.default_rng(5)
    for lead in ((), (2,)):
        a, b = rng.normal(size=(*lead, 3, 4)), rng.normal(size=(*lead, 4, 5))
        np.testing.assert_allclose(blas.matmul(raw(a), raw(b)), a @ b)
    assert said == [("stream", 11), (512, WORKSPACE), ("stream", 11)] * 2
    for name, count in (("cublasGemmEx", 19), ("cublasGemmStridedBatchedEx", 23)):
        assert len(getattr(library, name).argtypes) == count  # as in cublas_api.h
