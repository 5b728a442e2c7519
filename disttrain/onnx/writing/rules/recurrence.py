"""A pass of a recurrent layer over a sequence: LSTM, GRU or RNN.

Gates stand in another order there (LSTM i o f c, GRU z r h), so that weights are new constants,
named after the parameters that they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..types import INT64, Ref, Unmapped, is_number
from ..writer import RULES, Body, Writer, rule

_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}
_ACTIVATIONS = {"RNN_RELU": "Relu"}
_KINDS = {"LSTM": "LSTM", "GRU": "GRU", "RNN_TANH": "RNN", "RNN_RELU": "RNN"}


@rule("recurrence")
def _recurrence(
    w: Writer, x: Ref, weight: Ref, b: Ref | None, h: Ref, c: Ref | None, p: Ref | None,
    v: Ref | None, mode: str, backwards: bool, keep: bool,
) -> tuple:  # fmt: skip
    """(all states, (time, N, H); the last states, (1, N, H) each; what backward needs)."""
    found = passes(w, mode, [Pass(w, (x, weight, b, h, c, p, v), mode)], backwards)
    assert found is not None
    rest = [None] * (len(w.outs) - len(found))
    return w.squeeze(found[0], (1,)), *found[1:], *rest


class Pass:
    """One direction: its input, and its weights, biases and first states as the operators have
    them, (1, ...) each."""

    def __init__(self, w: Writer, args: Sequence[Any], mode: str) -> None:
        x, weight, b, h, c, p, v = args
        if p is not None:
            raise Unmapped("an LSTM with proj_size")
        width = h.shape[-1]
        if not is_number(width):
            raise Unmapped("a recurrent layer whose width depends on the input")
        self.width, order, bias = int(width), _ORDERS[mode], None
        if v is None:
            v, x, bias = _input_part(w, x)
        self.x = x
        self.matrices = [_ordered(w, a, order, self.width) for a in (v, weight)]
        self.bias = _biases(w, bias, b, order, self.width, x.dtype)
        self.states = [w.unsqueeze(s, (0,)) for s in (h, c) if s is not None]


def passes(w: Writer, mode: str, both: list[Pass], backwards: bool) -> tuple | None:
    """One operator for one direction, or for both: (all states, (time, directions, N, H); the last
    states, (directions, N, H) each). None where the two do not go together."""
    first = both[0]
    if any(p.x.name != first.x.name or p.width != first.width for p in both):
        return None
    if len({p.bias is None for p in both}) > 1:
        return None
    how: dict[str, Any] = {"hidden_size": first.width}
    if backwards or len(both) > 1:
        how["direction"] = "reverse" if len(both) == 1 else "bidirectional"
    if mode == "GRU":
        how["linear_before_reset"] = 1
    if mode in _ACTIVATIONS:
        how["activations"] = [_ACTIVATIONS[mode]] * len(both)
    matrices = [_together(w, parts) for parts in zip(*(p.matrices for p in both), strict=True)]
    bias = None if first.bias is None else _together(w, [p.bias for p in both])
    states = [_together(w, parts) for parts in zip(*(p.states for p in both), strict=True)]
    given = (first.x, *matrices, bias, None, *states)
    found: tuple = w.node(_KINDS[mode], *given, outputs=1 + len(states), **how)
    return found


def _together(w: Writer, parts: Any) -> Ref:
    """Parts of both directions as one tensor."""
    first, *rest = parts
    if not rest:
        return first  # type: ignore[no-any-return]
    known = [w.values.get(p.name) if p.name in w.fixed else None for p in parts]
    if all(k is not None for k in known):
        return w.named(f"{first.name}.both", np.concatenate(known))  # type: ignore[arg-type]
    made: Ref = w.node("Concat", *parts, axis=0)
    return made


def _input_part(w: Writer, x: Ref) -> tuple[Ref, Ref, Ref | None]:
    """The weight, the input and the bias whose product ``x`` is; else the identity, and ``x``."""
    made = w.products.get(x.name)
    if made is not None:
        source, weight, bias = made
        return weight, source, bias
    n = (x.shape or ())[-1]
    if not is_number(n):
        raise Unmapped("a recurrent layer whose width depends on the input")
    return w.constant(np.eye(int(n), dtype=x.dtype)), x, None


def _ordered(w: Writer, a: Ref, order: tuple, width: int) -> Ref:
    """(gates H, ...) with the gates in ONNX's order, (1, gates H, ...)."""
    numbers = w.known(a)
    if numbers is not None:
        return w.named(f"{a.name}.gates", _turned(numbers, order, width)[None])
    if order == (0,):
        return w.unsqueeze(a, (0,))
    parts = w.node("Split", a, w.constant([width] * len(order), INT64), outputs=len(order), axis=0)
    return w.unsqueeze(w.node("Concat", *(parts[i] for i in order), axis=0), (0,))


def _turned(a: np.ndarray, order: tuple, width: int) -> np.ndarray:
    return np.concatenate([a[i * width : (i + 1) * width] for i in order])


def _biases(
    w: Writer, of_input: Ref | None, of_state: Ref | None, order: tuple, width: int, dtype: Any
) -> Ref | None:
    """Both biases in a row."""
    if of_input is None and of_state is None:
        return None
    zeros = w.constant(np.zeros(width * len(order), dtype))
    both = [zeros if b is None else b for b in (of_input, of_state)]
    known = [w.known(b) for b in both]
    if all(n is not None for n in known):
        rows = [_turned(n, order, width) for n in known if n is not None]
        name = next(b.name for b in both if b is not zeros)
        return w.named(f"{name}.gates", np.concatenate(rows)[None])
    turned = [_ordered(w, b, order, width) for b in both]
    return w.node("Concat", *turned, axis=1)


# --- products of integers ------------------------------------------------------------------------
def _lstm(w: Writer, x: Ref, s: Ref, state: Sequence[Ref], width: int) -> list[Ref]:
    i, f, g, o = _parts(w, w.node("Add", x, s), 4, width)
    kept = w.node("Mul", w.node("Sigmoid", f), state[1])
    c = w.node("Add", kept, w.node("Mul", w.node("Sigmoid", i), w.node("Tanh", g)))
    return [w.node("Mul", w.node("Sigmoid", o), w.node("Tanh", c)), c]


def _gru(w: Writer, x: Ref, s: Ref, state: Sequence[Ref], width: int) -> list[Ref]:
    (x_r, x_z, x_n), (s_r, s_z, s_n) = _parts(w, x, 3, width), _parts(w, s, 3, width)
    r, z = (w.node("Sigmoid", w.node("Add", *p)) for p in ((x_r, s_r), (x_z, s_z)))
    n = w.node("Tanh", w.node("Add", x_n, w.node("Mul", r, s_n)))
    return [w.node("Add", n, w.node("Mul", z, w.node("Sub", state[0], n)))]


_STEPS = {"LSTM": _lstm, "GRU": _gru}


def _parts(w: Writer, a: Ref, count: int, width: int) -> tuple:
    found: tuple = w.node("Split", a, w.constant([width] * count, INT64), outputs=count, axis=-1)
    return found


@rule("integer_recurrence")
def _integer_recurrence(
    w: Writer, x: Ref, weight: Ref, scale: Ref, sums: Ref | None, b: Ref | None, h: Ref,
    c: Ref | None, mode: str, backwards: bool,
) -> tuple:  # fmt: skip
    """The product of integers in each turn of a ``Scan``."""
    states, inner = [s for s in (h, c) if s is not None], w.inside()
    names = ("h", "c", "gates")
    given = [
        Ref(inner.fresh(inner.scope + name), a.dtype, shape)
        for name, a, shape in zip(names, states, (s.shape for s in states))
    ]
    part = Ref(inner.fresh(inner.scope + names[2]), x.dtype, (x.shape or ())[1:])
    made = RULES["dynamic_linear"](
        inner, given[0], weight, scale, sums, b, own=0, symmetric=False, low=0, high=255
    )
    ends = _STEPS[mode](inner, part, made, given, int((h.shape or ())[-1]))
    ends = [replace(e, shape=s.shape) for e, s in zip(ends, states, strict=True)]
    row = inner.node("Identity", ends[0], shape=h.shape)
    turned = [1] if backwards else None
    found = w.node(
        "Scan", *states, x, outputs=len(ends) + 1, num_scan_inputs=1,
        scan_input_directions=turned, scan_output_directions=turned,
        body=Body(inner.ops, [*given, part], [*ends, row]),
    )  # fmt: skip
    return found[-1], *(w.unsqueeze(s, (0,)) for s in found[:-1])
