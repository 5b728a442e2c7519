"""Recurrent networks over whole sequences: what depends on the state, step by step.

    outs, kept = forward(mode, x, states, w, b)          mode: "LSTM", "GRU", "RNN_TANH", "RNN_RELU"
    dx, dstates, dw, db = backward(mode, gs, kept, states, w, outs)

``x``: the input's part of all gates, (T, N, gates * H), in PyTorch's order (LSTM i f g o, GRU r z
n); ``states``: the tensors of the first state, (N, H) each; ``w`` (gates * H, H) and ``b``
(gates * H): the state's part. ``outs``: for each tensor of the state its values after all steps,
(T, N, H). A step is one product per gate and one generated kernel; ``dw`` and ``db`` are one
product for all steps. float32 and float64.

Gates stand apart, (T, gates, N, H), so that each kernel reads and writes whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ..family import Family
from ..lang.expr import Expr, max, sigmoid, tanh, where
from ..lang.kernel import Array, Kernel, Loop, Store
from . import lstm

Expressions = dict[str, Expr]


# --- one step, and its gradients -----------------------------------------------------------------
# Forward: ``x*`` the input's parts, ``s*`` the state's parts, ``h``, ``c`` the state. Backward:
# ``d*`` are gradients of the new state, ``y*`` its values, ``k*`` what was kept of the step.


def _gru(v: Expressions) -> Expressions:
    r, z = sigmoid(v["x0"] + v["s0"]), sigmoid(v["x1"] + v["s1"])
    n = tanh(v["x2"] + r * v["s2"])
    return {"y0": n + z * (v["h"] - n), "k0": r, "k1": z, "k2": n, "k3": v["s2"]}


def _gru_back(v: Expressions) -> Expressions:
    d, r, z, n = v["d0"], v["k0"], v["k1"], v["k2"]
    dn = d * (1 - z) * (1 - n * n)
    dr = dn * v["k3"] * r * (1 - r)
    return {
        "g0": dr, "g1": d * (v["h"] - n) * z * (1 - z), "g2": dn, "g3": dn * r, "e0": d * z,
    }  # fmt: skip


def _tanh(v: Expressions) -> Expressions:
    return {"y0": tanh(v["x0"] + v["s0"])}


def _tanh_back(v: Expressions) -> Expressions:
    return {"g0": v["d0"] * (1 - v["y0"] * v["y0"])}


def _relu(v: Expressions) -> Expressions:
    return {"y0": max(v["x0"] + v["s0"], 0.0)}


def _relu_back(v: Expressions) -> Expressions:
    return {"g0": where(v["y0"] > 0, v["d0"], 0.0)}


# --- kernels -------------------------------------------------------------------------------------


def _kernel(name: str, given: str, fn: Callable[[Expressions], Expressions]) -> Family:
    """A kernel on rows: arrays of the names in ``given``, then those that ``fn`` makes."""

    def of(dtype: str) -> Kernel:
        reads = [Array(n, dtype) for n in given.split()]
        made = fn({a.name: _var(a.name) for a in reads})
        writes = [Array(n, dtype, writes=True) for n in made]
        loop = Loop(tuple(Store(n, value) for n, value in made.items()))
        return Kernel(name, (*reads, *writes), (loop,), flat=True)

    return Family(of)


def _var(name: str) -> Expr:
    return Expr("var", (), name)


class Mode(NamedTuple):
    """``gates`` of the product with the state; ``kept``: arrays of a step that backward reads;
    ``own``: whether the last gate's gradient differs between the input's part and the state's."""

    gates: int
    states: int
    kept: int
    own: bool
    step: Any  # Families
    back: Any


MODES = {
    "LSTM": Mode(4, 2, 0, False, None, None),  # by ``lstm.py``
    "GRU": Mode(
        3, 1, 4, True,
        _kernel("gru", "x0 x1 x2 s0 s1 s2 h", _gru),
        _kernel("gru_backward", "k0 k1 k2 k3 h d0", _gru_back),
    ),
    "RNN_TANH": Mode(
        1, 1, 0, False, _kernel("rnn_tanh", "x0 s0", _tanh),
        _kernel("rnn_tanh_backward", "y0 d0", _tanh_back),
    ),
    "RNN_RELU": Mode(
        1, 1, 0, False, _kernel("rnn_relu", "x0 s0", _relu),
        _kernel("rnn_relu_backward", "y0 d0", _relu_back),
    ),
}  # fmt: skip


# --- sequences -----------------------------------------------------------------------------------


def _apart(x: ndarray, gates: int) -> ndarray:
    """(T, N, gates * H) as (T, gates, N, H), in rows."""
    steps, rows, width = x.shape
    parted = x.reshape(steps, rows, gates, width // gates).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(parted)


def _together(parts: ndarray) -> ndarray:
    """The inverse of ``_apart``."""
    steps, gates, rows, width = parts.shape
    return np.ascontiguousarray(parts.transpose(0, 2, 1, 3)).reshape(steps, rows, gates * width)


def forward(
    mode: str, x: ndarray, states: tuple[ndarray, ...], w: ndarray, b: ndarray | None
) -> tuple[list[ndarray], ndarray]:
    """All states, and what backward needs of each step: (T, kept, N, H); an LSTM's gates."""
    if mode == "LSTM":
        return lstm.forward(x, states[0], states[1], w, b)
    kind = MODES[mode]
    steps, rows, _ = x.shape
    width = w.shape[1]
    shape = (steps, rows, width)
    parts = _apart(x, kind.gates)
    # (Small products with a matrix that is turned take twice as long.)
    weights = np.ascontiguousarray(w.reshape(kind.gates, width, width).transpose(0, 2, 1))
    bias = None if b is None else b.reshape(kind.gates, 1, width)
    outs = [np.empty(shape, x.dtype) for _ in range(kind.states)]
    kept = np.empty((steps, kind.kept, rows, width), x.dtype)
    product = np.empty((kind.gates, rows, width), x.dtype)
    program = kind.step[x.dtype]
    state = [np.ascontiguousarray(s) for s in states]
    for t in range(steps):
        np.matmul(state[0], weights, out=product)
        if bias is not None:
            np.add(product, bias, out=product)
        new = [o[t] for o in outs]
        own = (state[0],) if mode == "GRU" else ()
        program(*parts[t], *product, *own, *new, *kept[t])
        state = new
    return outs, kept


def backward(
    mode: str,
    gs: tuple[ndarray | None, ...],
    kept: ndarray,
    states: tuple[ndarray, ...],
    w: ndarray,
    outs: list[ndarray],
) -> tuple[ndarray, list[ndarray], ndarray, ndarray]:
    """The gradients of x, of the first state, of w and of b (where it has one). ``gs``: those of
    ``outs``; None is zero."""
    if mode == "LSTM":
        return lstm.backward(gs, kept, states, w, outs)
    kind = MODES[mode]
    steps, rows, width = outs[0].shape
    dtype = outs[0].dtype
    weights = w.reshape(kind.gates, width, width)
    parts = np.empty((steps, kind.gates + kind.own, rows, width), dtype)
    given = [None if g is None else np.ascontiguousarray(g) for g in gs]
    first = [np.ascontiguousarray(s) for s in states]
    carry = [np.zeros((rows, width), dtype) for _ in outs]
    sums = [np.empty((rows, width), dtype) for _ in outs]
    product = np.empty((kind.gates, rows, width), dtype)
    program, run = kind.back[dtype], _BACK[mode]
    for t in reversed(range(steps)):
        last = [o[t - 1] for o in outs] if t else first
        for total, passed, g in zip(sums, carry, given, strict=True):
            if g is None:
                total[...] = passed
            else:
                np.add(passed, g[t], out=total)
        run(program, kept[t], [o[t] for o in outs], last, sums, parts[t], carry)
        np.matmul(_of_state(parts[t], kind), weights, out=product)
        passed = carry[0]
        if mode == "GRU":
            np.add.reduce(product, axis=0, out=sums[0])
            passed += sums[0]
        else:
            np.add.reduce(product, axis=0, out=passed)
    dx = _together(parts[:, : kind.gates])
    flat = dx if not kind.own else _together(_of_state(parts, kind))
    flat = flat.reshape(steps * rows, -1)
    before = np.concatenate([first[0][None], outs[0][:-1]]).reshape(steps * rows, width)
    return dx, carry, flat.T @ before, np.add.reduce(flat, axis=0)


def _of_state(parts: ndarray, kind: Mode) -> ndarray:
    """Gradients of the product with the state: a GRU's last gate has one of its own."""
    if not kind.own:
        return parts
    return parts[..., [*range(kind.gates - 1), kind.gates], :, :]


def _gru_run(
    program: Any, kept: Any, new: object, before: Any, ds: Any, gs: Any, carry: Any
) -> None:
    program(*kept, before[0], *ds, *gs, carry[0])


def _rnn_run(
    program: Any, kept: object, new: Any, before: object, ds: Any, gs: Any, carry: Any
) -> None:
    program(*new, *ds, *gs)


_BACK = {"GRU": _gru_run, "RNN_TANH": _rnn_run, "RNN_RELU": _rnn_run}

__all__ = ["MODES", "backward", "forward"]
