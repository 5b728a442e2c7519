"""Digests: machine code and numpy give the same, and parts add up to their whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.llvm.kernels import digest as module
from disttrain.backends.llvm.kernels.digest import EMPTY, digest

KINDS = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8"]
KINDS += ["bool", "complex64", "complex128", "uint32", "float8_e4m3fn"]
SHAPES = [(0,), (), (1,), (7,), (33,), (5, 17), (3, 4, 35)]


def array(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, kind)) if hasattr(ml_dtypes, kind) else np.dtype(kind)
    numbers = np.random.default_rng(0).standard_normal(shape) * 50
    return np.asarray(abs(numbers) if kind == "uint32" else numbers).astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_numpy_gives_what_machine_code_gives(kind, shape, monkeypatch):
    x = array(kind, shape)
    fast = digest(x)
    monkeypatch.setattr(module, "_code", lambda kind: None)
    module._plan.cache_clear()
    plain = digest(x)
    module._plan.cache_clear()
    assert fast._replace(squares=0, sketch=0) == plain._replace(squares=0, sketch=0)
    assert fast.squares == pytest.approx(plain.squares, rel=1e-12)
    assert fast.sketch == pytest.approx(plain.sketch, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_add_up_to_the_whole(kind, axis):
    x = array(kind, (3, 4, 35))
    strides, middle, total = (140, 35, 1), x.shape[axis] // 2, EMPTY
    for begin, end in ((0, middle), (middle, None)):
        part = [slice(None)] * 3
        part[axis] = slice(begin, end)
        total += digest(x[tuple(part)], begin * strides[axis], strides)
    whole = digest(x)
    assert total._replace(squares=0, sketch=0) == whole._replace(squares=0, sketch=0)
    assert total.squares == pytest.approx(whole.squares, rel=1e-12)
    assert total.sketch == pytest.approx(whole.sketch, rel=1e-12, abs=1e-9)


def test_every_bit_and_every_place_counts():
    x = array("float32", (40,))
    seen = {digest(x).hash}
    raw = x.view(np.uint32)
    for at in range(40):
        for bit in range(32):
            raw[at] ^= np.uint32(1 << bit)
            seen.add(digest(x).hash)
            raw[at] ^= np.uint32(1 << bit)
    for at in range(39):
        x[[at, at + 1]] = x[[at + 1, at]]
        seen.add(digest(x).hash)
        x[[at, at + 1]] = x[[at + 1, at]]
    assert len(seen) == 1 + 40 * 32 + 39


def test_statistics_leave_nan_out():
    found = digest(np.array([1.0, np.nan, -3.0, np.inf], np.float32))
    assert (found.nans, found.low, found.high) == (1, -3.0, float("inf"))
    assert digest(np.full(3, np.nan)) == digest(np.full(3, np.nan))
    assert digest(np.full(3, np.nan)).low == float("inf")


def test_the_order_of_memory_does_not_count():
    x = array("float64", (6, 7))
    assert digest(np.asfortranarray(x)) == digest(x)
    assert digest(x[::2, ::3]) == digest(x[::2, ::3].copy())


def test_objects_are_refused():
    with pytest.raises(TypeError, match="no bytes of its own"):
        digest(np.array([object()]))


def test_the_order_of_bytes_does_not_count():
    x = array("float32", (5, 3))
    assert digest(x.astype(">f4")) == digest(x)


def test_threads_have_states_of_their_own():
    arrays = [np.full(1 << 16, k, np.float32) for k in range(4)]
    want = [digest(a) for a in arrays]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            assert list(pool.map(digest, arrays)) == want


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
def test_sketches_differ_by_about_the_norm_of_the_difference(kind):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(200):
        a, b = (rng.standard_normal(501).astype(array(kind, ()).dtype) for _ in range(2))
        gap = np.linalg.norm(a.astype(np.float64) - b.astype(np.float64))
        found.append((digest(a).sketch - digest(b).sketch) / gap)
    assert abs(np.mean(found)) < 0.3
    assert 0.7 < np.std(found) < 1.3
