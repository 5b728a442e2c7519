"""One step of recurrent networks, and its gradients, as kernels.

Forward: ``x*`` the input's parts of the gates, ``s*`` the state's parts, ``h``, ``c`` the state;
``y*`` the new state, ``k*`` what backward reads of the step; without ``x*`` the sum of both parts
is ``s*``. Backward: ``s0`` the gradient of the
new h from the step behind, ``gh``, ``gc`` those of what the step gave, ``y*`` the new state, ``e``
what goes on to the step before by another way than the product (it holds what came from the step
behind); ``g*`` the gradients of the input's parts, ``q*`` of the state's parts where those differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...family import Family
from ...lang.expr import Expr, max, sigmoid, tanh, var, where
from ...lang.kernel import Array, Kernel, Loop, Store

Expressions = dict[str, Expr]


def _gate(v: Expressions, k: int) -> Expr:
    return v[f"x{k}"] + v[f"s{k}"] if f"x{k}" in v else v[f"s{k}"]


def _lstm(v: Expressions) -> Expressions:
    i, f, o = (sigmoid(_gate(v, k)) for k in (0, 1, 3))
    g = tanh(_gate(v, 2))
    c = f * v["c"] + i * g
    return {"y0": o * tanh(c), "y1": c, "k0": i, "k1": f, "k2": g, "k3": o}


def _lstm_back(v: Expressions) -> Expressions:
    i, f, g, o = (v[f"k{k}"] for k in range(4))
    d, t = v["s0"] + v["gh"], tanh(v["y1"])
    dc = (v["e"] + v["gc"]) + d * o * (1 - t * t)
    return {
        "g0": dc * g * i * (1 - i), "g1": dc * v["c"] * f * (1 - f), "g2": dc * i * (1 - g * g),
        "g3": d * t * o * (1 - o), "e": dc * f,
    }  # fmt: skip


def _gru(v: Expressions) -> Expressions:
    r, z = sigmoid(_gate(v, 0)), sigmoid(_gate(v, 1))
    n = tanh(v["x2"] + r * v["s2"])
    return {"y0": n + z * (v["h"] - n), "k0": r, "k1": z, "k2": n, "k3": v["s2"]}


def _gru_back(v: Expressions) -> Expressions:
    r, z, n = v["k0"], v["k1"], v["k2"]
    d = (v["s0"] + v["e"]) + v["gh"]
    dn = d * (1 - z) * (1 - n * n)
    dr, dz = dn * v["k3"] * r * (1 - r), d * (v["h"] - n) * z * (1 - z)
    return {"g0": dr, "g1": dz, "g2": dn, "q0": dr, "q1": dz, "q2": dn * r, "e": d * z}


def _tanh(v: Expressions) -> Expressions:
    return {"y0": tanh(_gate(v, 0))}


def _tanh_back(v: Expressions) -> Expressions:
    return {"g0": (v["s0"] + v["gh"]) * (1 - v["y0"] * v["y0"])}


def _relu(v: Expressions) -> Expressions:
    return {"y0": max(_gate(v, 0), 0.0)}


def _relu_back(v: Expressions) -> Expressions:
    return {"g0": where(v["y0"] <= 0, 0.0, v["s0"] + v["gh"])}


def _copied(v: Expressions) -> Expressions:
    return {"y0": v["s0"]}


def _added(v: Expressions) -> Expressions:
    return {"y0": v["s0"] + v["gh"]}


def _kernel(
    name: str, given: str, fn: Callable[[Expressions], Expressions], kept: bool = True
) -> Family:
    """A kernel on arrays of the names in ``given``, then those that ``fn`` makes; without what
    backward reads unless ``kept``."""

    def of(dtype: str) -> Kernel:
        names = given.split()
        made = fn({n: var(n) for n in names})
        made = {n: value for n, value in made.items() if kept or n[0] != "k"}
        reads = [Array(n, dtype) for n in names if n not in made]
        writes = [Array(n, dtype, writes=True) for n in made]
        loop = Loop(tuple(Store(n, value) for n, value in made.items()))
        return Kernel(name, (*reads, *writes), (loop,), flat=True)

    return Family(of)


class Mode(NamedTuple):
    """``gates`` of a step, tensors of its state, arrays that backward reads of it, and whether the
    gradients of the gates' two parts differ. ``steps``: by whether the input's parts come apart,
    and whether something is kept."""

    gates: int
    states: int
    kept: int
    apart: bool
    steps: dict[tuple[bool, bool], Family]
    back: Family


def _steps(
    name: str, given: str, fn: Callable[[Expressions], Expressions]
) -> dict[tuple[bool, bool], Family]:
    together = " ".join(n for n in given.split() if n[0] != "x")
    return {
        (apart, kept): _kernel(f"{name}_{apart:d}{kept:d}", given if apart else together, fn, kept)
        for apart in (True, False)
        for kept in (True, False)
        if apart or name != "gru"
    }


MODES = {
    "LSTM": Mode(
        4, 2, 4, False, _steps("lstm", "x0 x1 x2 x3 s0 s1 s2 s3 c", _lstm),
        _kernel("lstm_backward", "s0 gh gc k0 k1 k2 k3 y1 c e", _lstm_back),
    ),
    "GRU": Mode(
        3, 1, 4, True, _steps("gru", "x0 x1 x2 s0 s1 s2 h", _gru),
        _kernel("gru_backward", "s0 gh k0 k1 k2 k3 h e", _gru_back),
    ),
    "RNN_TANH": Mode(
        1, 1, 0, False, _steps("rnn_tanh", "x0 s0", _tanh),
        _kernel("rnn_tanh_backward", "s0 gh y0", _tanh_back),
    ),
    "RNN_RELU": Mode(
        1, 1, 0, False, _steps("rnn_relu", "x0 s0", _relu),
        _kernel("rnn_relu_backward", "s0 gh y0", _relu_back),
    ),
}  # fmt: skip

# What a projection of the state is: a product alone, and its gradient, which adds the outputs'.
COPIED, ADDED = _kernel("projected", "s0", _copied), _kernel("added", "s0 gh", _added)

__all__ = ["ADDED", "COPIED", "MODES", "Mode"]
