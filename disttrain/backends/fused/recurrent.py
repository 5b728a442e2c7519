"""Steps of recurrent networks over a whole sequence: one product and one kernel each.

    forward(mode, x, h, c, w, b, backwards) -> states, cells, gates
    backward(mode, g, dc, states, cells, gates, w, backwards) -> dx, dp, dh, dc

``x`` is the input's part of all gates (time, N, gates * H), ``w`` the weight of the state's part
(gates * H, H). ``states`` and ``cells`` (time + 1, N, H) have the initial ones, too: in front, or
behind where time runs backwards. ``dx`` is the gradient of the input's part, ``dp`` that of the
state's part (the same but for a GRU). Where ``generated`` says no, neither can be called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..family import Family
from ..lang.expr import Expr, as_expr, sigmoid, tanh, var, where
from ..lang.expr import max as larger
from ..lang.kernel import Array, Kernel, Loop, Store

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
_KEPT = {"RNN_TANH": 0, "RNN_RELU": 0, "LSTM": 4, "GRU": 4}  # values of a step that backward reads
_Results = dict[str, Expr]


def _names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{k}" for k in range(count))


def _kernel(mode: str, dtype: str, inputs: tuple[str, ...], results: _Results) -> Kernel:
    """``inputs`` that are results are read before they are written."""
    params = [
        Array(n, dtype, "col" if n.startswith("b") else "full", writes=n in results) for n in inputs
    ]
    params += [Array(n, dtype, writes=True) for n in results if n not in inputs]
    stores = tuple(Store(name, value) for name, value in results.items())
    return Kernel(f"{mode.lower()}_step", tuple(params), (Loop(stores),))


# --- one step: x* the input's part, p* the state's, b* its bias, s* what backward reads ---------
def _forward(dtype: str, mode: str, bias: bool) -> Kernel:
    count = GATES[mode]
    xs, ps, bs = (_names(letter, count) for letter in "xpb")
    state = [var(p) + var(b) if bias else var(p) for p, b in zip(ps, bs)]
    sums = [var(x) + s for x, s in zip(xs, state)]
    inputs = xs + ps + (bs if bias else ())
    if mode == "LSTM":
        i, f, g, o = (tanh(s) if k == 2 else sigmoid(s) for k, s in enumerate(sums))
        c = f * var("c_old") + i * g
        results = {"s0": i, "s1": f, "s2": g, "s3": o, "c": c, "h": o * tanh(c)}
        return _kernel(mode, dtype, (*inputs, "c_old"), results)
    if mode == "GRU":
        r, z, q = sigmoid(sums[0]), sigmoid(sums[1]), state[2]
        n = tanh(var("x2") + r * q)
        results = {"s0": r, "s1": z, "s2": n, "s3": q, "h": n + z * (var("h_old") - n)}
        return _kernel(mode, dtype, (*inputs, "h_old"), results)
    h = tanh(sums[0]) if mode == "RNN_TANH" else larger(sums[0], as_expr(0.0))
    return _kernel(mode, dtype, inputs, {"h": h})


def _backward(dtype: str, mode: str) -> Kernel:
    """g: the gradient of the result, dh: that by the next step's product, dc and rest: what the
    next step hands on besides; d*: gradients of the input's part, e*: of the state's."""
    dh, one = var("g") + var("dh"), as_expr(1.0)
    if mode == "LSTM":
        i, f, g, o = (var(s) for s in _names("s", 4))
        t = tanh(var("c"))
        dc = var("dc") + dh * o * (one - t * t)
        results = {
            "d0": dc * g * i * (one - i),
            "d1": dc * var("c_old") * f * (one - f),
            "d2": dc * i * (one - g * g),
            "d3": dh * t * o * (one - o),
            "dc": dc * f,
        }
        return _kernel(mode, dtype, ("g", "dh", "dc", *_names("s", 4), "c_old", "c"), results)
    if mode == "GRU":
        r, z, n, q = (var(s) for s in _names("s", 4))
        dh = dh + var("rest")
        dn = dh * (one - z) * (one - n * n)
        dr, dz = dn * q * r * (one - r), dh * (var("h_old") - n) * z * (one - z)
        results = {
            "d0": dr, "d1": dz, "d2": dn, "e0": dr, "e1": dz, "e2": dn * r, "rest": dh * z,
        }  # fmt: skip
        return _kernel(mode, dtype, ("g", "dh", "rest", *_names("s", 4), "h_old"), results)
    h = var("h")
    slope = dh * (one - h * h) if mode == "RNN_TANH" else where(h > 0, dh, 0.0)
    return _kernel(mode, dtype, ("g", "dh", "h"), {"d0": slope})


_FORWARD = {
    (m, b): Family(partial(_forward, mode=m, bias=b)) for m in GATES for b in (True, False)
}
_BACKWARD = {m: Family(partial(_backward, mode=m)) for m in GATES}


def generated(mode: str, dtype: np.dtype, bias: bool) -> bool:
    """Whether code can be made here."""
    native: bool = _FORWARD[mode, bias][dtype].native
    return native


# --- whole sequences ----------------------------------------------------------------------------
class _Places:
    """Arrays by the kernels' names, at the first step, and how far each moves with every step."""

    def __init__(self, steps: int, backwards: bool) -> None:
        self.first, self.sign = (steps - 1, -1) if backwards else (0, 1)
        self.steps = steps
        self.known: dict[str, tuple[np.ndarray, int]] = {}

    def still(self, name: str, a: Any) -> None:
        self.known[name] = (a, 0)

    def moving(self, name: str, a: np.ndarray) -> None:
        """``a`` has one part per step."""
        self.known[name] = (a[self.first], self.sign * a.strides[0])

    def states(self, name: str, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One more than steps: ``name`` is the state behind a step, ``name``_old that ahead."""
        old, new = (a[1:], a[:-1]) if self.sign < 0 else (a[:-1], a[1:])
        self.moving(name, new)
        self.moving(f"{name}_old", old)
        return old, new

    def gates(self, letter: str, a: np.ndarray, count: int) -> None:
        """The last axis in ``count`` equal parts; ``a`` moves if it has an axis of time."""
        width = a.shape[-1] // max(count, 1)
        for k in range(count):
            part = a[..., k * width : (k + 1) * width]
            (self.moving if a.ndim == 3 else self.still)(f"{letter}{k}", part)

    def call(self, program: Any) -> Callable[[int], None]:
        pairs = [self.known[p.name] for p in program.kernel.params]
        run: Callable[[int], None] = program.along(
            [a for a, _ in pairs], [move for _, move in pairs], self.steps
        )
        return run


def _beside(initial: np.ndarray, steps: int, backwards: bool) -> np.ndarray:
    """Room for all states, with the initial one at its end."""
    out = np.empty((steps + 1, *initial.shape), initial.dtype)
    out[steps if backwards else 0] = initial
    return out


def forward(
    mode: str, x: np.ndarray, h: np.ndarray, c: np.ndarray | None, w: np.ndarray,
    b: np.ndarray | None, backwards: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """All steps."""
    steps, rows, width = x.shape
    places, count = _Places(steps, backwards), GATES[mode]
    states = _beside(h, steps, backwards)
    cells = np.empty(0, x.dtype) if c is None else _beside(c, steps, backwards)
    gates = np.empty((steps, rows, _KEPT[mode] * h.shape[-1]), x.dtype)
    product = np.empty((rows, width), x.dtype)
    places.gates("x", x, count)
    places.gates("p", product, count)
    places.gates("s", gates, _KEPT[mode])
    old, _ = places.states("h", states)
    if c is not None:
        places.states("c", cells)
    if b is not None:
        for k, part in enumerate(np.split(b, count)):
            places.still(f"b{k}", part)
    step = places.call(_FORWARD[mode, b is not None][x.dtype])
    turned = np.ascontiguousarray(w.T)
    for k in range(steps):
        np.matmul(old[places.first + places.sign * k], turned, out=product)
        step(k)
    return states, cells, gates


def backward(
    mode: str, g: np.ndarray, dc: np.ndarray | None, states: np.ndarray, cells: np.ndarray,
    gates: np.ndarray, w: np.ndarray, backwards: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:  # fmt: skip
    """All steps, the last first."""
    steps, rows, width = g.shape
    places, count = _Places(steps, not backwards), GATES[mode]
    dx = np.empty((steps, rows, count * width), g.dtype)
    dp = np.empty_like(dx) if mode == "GRU" else dx
    dh, rest = np.zeros((2, rows, width), g.dtype)
    places.moving("g", g)
    places.gates("d", dx, count)
    places.gates("e", dp, count)
    places.gates("s", gates, _KEPT[mode])
    for name, a in (("h", states), ("c", cells)):
        if a.size:  # seen from the end: what lies ahead of a step stands behind it
            new, old = places.states(name, a)
            places.moving(name, new)
            places.moving(f"{name}_old", old)
    dc = None if dc is None else dc.copy()
    for name, a in (("dh", dh), ("rest", rest), ("dc", dc)):
        places.still(name, a)
    step = places.call(_BACKWARD[mode][g.dtype])
    for k in range(steps):
        step(k)
        np.matmul(dp[places.first + places.sign * k], w, out=dh)
    if mode == "GRU":
        dh += rest
    return dx, dp, dh, dc


__all__ = ["GATES", "backward", "forward", "generated"]
