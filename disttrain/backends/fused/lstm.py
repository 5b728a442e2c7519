"""An LSTM over a whole sequence (see ``recurrence.py``, which says what it is given and gives).

Gates stand as the input's part has them, (T, N, 4 H): the state's part is added there by one
product a step, and the kernel of a step leaves what backward needs in its place. In backward,
gradients of the gates are those of the input's part.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from ..addresses import address
from ..family import Family
from ..lang.expr import sigmoid, tanh, var
from ..lang.kernel import Array, Kernel, Loop, Store
from . import few_rows


def _step(dtype: str) -> Kernel:
    """The gates become what they are after their functions."""
    gates = [Array(f"a{k}", dtype, writes=True) for k in range(4)]
    new = [Array(name, dtype, writes=True) for name in ("h1", "c1")]
    i, f, o = (sigmoid(var(name)) for name in ("a0", "a1", "a3"))
    g = tanh(var("a2"))
    c = f * var("c0") + i * g
    stores = {"a0": i, "a1": f, "a2": g, "a3": o, "h1": o * tanh(c), "c1": c}
    loop = Loop(tuple(Store(name, value) for name, value in stores.items()))
    return Kernel("lstm", (*gates, Array("c0", dtype), *new), (loop,), flat=True)


def _back(dtype: str) -> Kernel:
    """``dh``, ``dc``: what comes from the step behind (the latter turns into what the step before
    gets), ``gh``, ``gc``: from the outputs."""
    names = ("i", "f", "g", "o", "c1", "c0", "dh", "gh", "gc")
    writes = [Array(f"d{k}", dtype, writes=True) for k in range(4)]
    i, f, g, o, c1, c0, dh, gh, gc = map(var, names)
    d, t = dh + gh, tanh(c1)
    dc = (var("dc") + gc) + d * o * (1 - t * t)
    stores = {
        "d0": dc * g * i * (1 - i), "d1": dc * c0 * f * (1 - f), "d2": dc * i * (1 - g * g),
        "d3": d * t * o * (1 - o), "dc": dc * f,
    }  # fmt: skip
    loop = Loop(tuple(Store(name, value) for name, value in stores.items()))
    params = (*(Array(n, dtype) for n in names), Array("dc", dtype, writes=True), *writes)
    return Kernel("lstm_backward", params, (loop,), flat=True)


_STEP, _BACK = Family(_step), Family(_back)


def _gates(a: ndarray) -> list[ndarray]:
    """(..., 4 H) as four views (..., H)."""
    width = a.shape[-1] // 4
    return [a[..., k * width : (k + 1) * width] for k in range(4)]


def _repeated(a: ndarray, count: int) -> ndarray:
    """The same memory for each of ``count`` steps."""
    return np.lib.stride_tricks.as_strided(a, (count, *a.shape), (0, *a.strides))


def _places(a: ndarray) -> list[int]:
    """Where each step's part begins."""
    return [address(a) + t * a.strides[0] for t in range(len(a))]


def _products(
    ys: ndarray, first: ndarray, rest: ndarray, w: ndarray, old: int
) -> Callable[[int], object]:
    """f(t): ys[t] = x @ w, or ys[t] += x @ w where ``old`` is 1; x is ``first``, then those of
    ``rest``. All lie in order, and must live as long as it."""
    run = few_rows.into(len(first), w)
    if run is not None:
        to, source = _places(ys), [address(first), *_places(rest)]
        return lambda t: run(to[t], source[t], old)
    between = np.empty((len(first), w.shape[1]), w.dtype)

    def multiply(t: int) -> None:
        x = rest[t - 1] if t else first
        np.matmul(x, w, out=between if old else ys[t])
        if old:
            np.add(ys[t], between, out=ys[t])

    return multiply


def forward(
    x: ndarray, h: ndarray, c: ndarray, w: ndarray, b: ndarray | None
) -> tuple[list[ndarray], ndarray]:
    """All values of h and c, and the gates of each step, (T, N, 4 H)."""
    count, rows, _ = x.shape
    gates = np.empty(x.shape, x.dtype)
    np.add(x, x.dtype.type(0) if b is None else b, out=gates)
    hs, cs = (np.empty((count, rows, w.shape[1]), x.dtype) for _ in range(2))
    h, c = np.ascontiguousarray(h), np.ascontiguousarray(c)
    step = _STEP[x.dtype].steps(
        (*_gates(gates[0]), c, hs[0], cs[0]), (*_gates(gates[1:]), cs[:-1], hs[1:], cs[1:])
    )
    add = _products(gates, h, hs[:-1], np.ascontiguousarray(w.T), 1)
    for t in range(count):
        add(t)
        step(t)
    return [hs, cs], gates


def backward(
    gs: tuple[ndarray | None, ...], gates: ndarray, states: tuple[ndarray, ...], w: ndarray,
    outs: list[ndarray],
) -> tuple[ndarray, list[ndarray], ndarray, ndarray]:  # fmt: skip
    """The gradients of x, of the first state, of w and of b."""
    (hs, cs), dtype = outs, gates.dtype
    count, rows, width = hs.shape
    h, c = (np.ascontiguousarray(s) for s in states)
    dh, dc = (np.zeros((rows, width), dtype) for _ in range(2))
    given = [np.broadcast_to(dtype.type(0), hs.shape) if g is None else g for g in gs]
    dgates = np.empty(gates.shape, dtype)
    (gh, gc), (all_dh, all_dc) = given, (_repeated(a, count - 1) for a in (dh, dc))
    step = _BACK[dtype].steps(
        (*_gates(gates[0]), cs[0], c, dh, gh[0], gc[0], dc, *_gates(dgates[0])),
        (*_gates(gates[1:]), cs[1:], cs[:-1], all_dh, gh[1:], gc[1:], all_dc, *_gates(dgates[1:])),
    )
    pull = _products(_repeated(dh, count), dgates[0], dgates[1:], np.ascontiguousarray(w), 0)
    for t in reversed(range(count)):
        step(t)
        pull(t)
    flat = dgates.reshape(count * rows, 4 * width)
    before = np.concatenate([h[None], hs[:-1]]).reshape(count * rows, width)
    return dgates, [dh, dc], flat.T @ before, np.add.reduce(flat, axis=0)


__all__ = ["backward", "forward"]
