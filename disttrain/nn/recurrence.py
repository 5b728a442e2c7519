"""Recurrent layers over a sequence.

``Step`` is one step; ``along`` a pass over all of them. On the host's arrays a pass is one
operation (``backends/fused/recurrent/``); elsewhere, and for second derivatives, it is spelled
out. Gates stand in PyTorch's order: LSTM i f g o, GRU r z n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..backends.fused.recurrent import recurrence
from ..context import thread
from ..core import Tensor
from ..core.backward.autograd import grad
from ..core.grad_mode import enable_grad
from ..ops.declare import declare_apart
from ..ops.functions.index_arrays import visible


def product(x: Tensor, w: Any, b: Tensor | None) -> Tensor:
    """x wᵀ + b. ``w``: a weight, or a function of x and b (of a weight that was rounded, say)."""
    found: Tensor = ops.linear(x, w, b) if isinstance(w, Tensor) else w(x, b)
    return found


# --- one step: (input part, state, weight_hh, bias_hh) -> new state ----------------------------
def _tanh_step(x: Tensor, state: tuple, w: Any, b: Tensor | None) -> tuple:
    return (ops.tanh(x + product(state[0], w, b)),)


def _relu_step(x: Tensor, state: tuple, w: Any, b: Tensor | None) -> tuple:
    return (ops.relu(x + product(state[0], w, b)),)


def _lstm_step(x: Tensor, state: tuple, w: Any, b: Tensor | None) -> tuple:
    h, c = state
    i, f, g, o = ops.chunk(x + product(h, w, b), 4, -1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


def _gru_step(x: Tensor, state: tuple, w: Any, b: Tensor | None) -> tuple:
    (h,) = state
    x_r, x_z, x_n = ops.chunk(x, 3, -1)
    h_r, h_z, h_n = ops.chunk(product(h, w, b), 3, -1)
    z = ops.sigmoid(x_z + h_z)
    n = ops.tanh(x_n + ops.sigmoid(x_r + h_r) * h_n)
    return (n + z * (h - n),)


_ROWS = 6  # from which products with a step's input are as fast as one for all steps (measured)
_FEW = 1 << 19  # products with all inputs up to which it is the call of its own that costs
STEPS: dict[str, tuple[Callable[..., tuple], int, int]] = {  # step, gates, tensors of state
    "RNN_TANH": (_tanh_step, 1, 1),
    "RNN_RELU": (_relu_step, 1, 1),
    "LSTM": (_lstm_step, 4, 2),
    "GRU": (_gru_step, 3, 1),
}


class Step:
    """One step of a layer: (the input's part of the gates, the state) -> the new state. ``w``,
    ``b``: the state's part; ``projection``: what the first tensor of the state goes through.
    ``input``: the weight and the bias that make the input's part, where that is not known yet."""

    def __init__(
        self, mode: str, w: Any, b: Tensor | None, projection: Tensor | None = None,
        input: tuple[Any, Tensor | None] | None = None,
    ) -> None:  # fmt: skip
        self.mode, self.w, self.b, self.projection = mode, w, b, projection
        self.input = input

    def of_input(self, x: Tensor) -> Tensor:
        """The input's part of the gates."""
        return x if self.input is None else product(x, *self.input)

    def __call__(self, x: Tensor, state: tuple) -> tuple:
        new = STEPS[self.mode][0](x, state, self.w, self.b)
        if self.projection is None:
            return new
        return (ops.linear(new[0], self.projection), *new[1:])

    def is_one_operation(self, x: Tensor, state: tuple) -> bool:
        """Whether a pass over ``x`` is: of float32 or float64 on the host, and no transform's."""
        given = [x, *state, self.w, self.b, self.projection, *(self.input or ())]
        given = [t for t in given if t is not None]
        if thread.autocast is not None or (self.projection is not None and self.mode != "LSTM"):
            return False
        if not all(isinstance(t, Tensor) and visible(t) for t in given):
            return False
        return {t.array.dtype.char for t in given} in ({"f"}, {"d"}) and x.array.size > 0

    def as_one(self, x: Tensor, state: tuple, backwards: bool) -> tuple | None:
        """What ``along`` gives for the input's part ``x``, by an operation that subclasses have;
        None where there is none."""
        return None

    def takes_input(self, x: Tensor) -> bool:
        """Whether the product with the input is done step by step, too: where there are rows enough
        for that, or little to do, and nothing comes between both products."""
        if self.input is None or self.input[1] is not None or self.mode == "GRU":
            return False
        few = x.array.size * self.w.array.shape[0] <= _FEW
        return x.array.dtype.char == "f" and (few or x.array.shape[1] >= _ROWS)


def along(x: Tensor, state: tuple, step: Step, backwards: bool) -> tuple[Tensor, tuple]:
    """A pass over (time, N, features) or, without ``step.input``, (time, N, gates): the first
    tensor of the state after each step, and the state after the last one, (1, N, H) each."""
    if not step.is_one_operation(x, state):
        x = step.of_input(x)
        made = step.as_one(x, state, backwards)
        return _spelled_out(x, state, step, backwards) if made is None else made
    v = None
    if step.input is not None and step.takes_input(x):
        v = step.input[0]
    else:
        x = step.of_input(x)
    h, c = state if len(state) == 2 else (*state, None)
    given = x, step.w, step.b, h, c, step.projection, v
    keep = thread.grad_enabled and any(t is not None and t.requires_grad for t in given)
    out, *made = _recurrence(*given, mode=step.mode, backwards=backwards, keep=keep)
    # The rule reads what it was; programs may write to it, but to an LSTM's, as in PyTorch.
    return (out if step.mode == "LSTM" else ops.clone(out)), tuple(made[: len(state)])


def _spelled_out(x: Tensor, state: tuple, step: Step, backwards: bool) -> tuple[Tensor, tuple]:
    steps = list(ops.unbind(x, 0))
    outs = []
    for part in reversed(steps) if backwards else steps:
        state = step(part, state)
        outs.append(state[0])
    return ops.stack(outs[::-1] if backwards else outs), tuple(ops.unsqueeze(s, 0) for s in state)


# --- the pass as one operation -------------------------------------------------------------------


def _forward(
    x: Any, w: Any, b: Any, h: Any, c: Any, p: Any, v: Any, mode: str, backwards: bool, keep: bool
) -> tuple:
    """The first tensor of the state after each step, (time, N, H), the state after the last one,
    (1, N, H) each, and what backward needs."""
    states = (h,) if c is None else (h, c)
    outs, kept = recurrence.forward(mode, x, states, w, b, p, backwards, keep, v)
    at = slice(0, 1) if backwards else slice(-1, None)
    return outs[0], *(o[at].copy() for o in outs), *outs[1:], kept


def _rule(
    g: Any, x: Any, w: Any, b: object, h: Any, c: Any, p: Any, v: Any, out: Any, needs: tuple,
    mode: str, backwards: bool, keep: bool,
) -> tuple:  # fmt: skip
    states = (h,) if c is None else (h, c)
    g = g[: 1 + len(states)]
    if any(isinstance(each, Tensor) for each in g):
        return _rule_on_tensors(g, (x, w, b, h, c, p, v), needs, mode, backwards)
    ends = tuple(None if end is None else end[0] for end in g[1:])
    outs = [out[0], *out[1 + len(states) : -1]]
    dx: Any
    dx, dstates, dw, db, dp = recurrence.backward(
        mode, g[0], ends, out[-1], states, w, outs, p, backwards
    )
    dc, dv = dstates[1] if c is not None else None, None
    if v is not None:
        flat = dx.reshape(-1, len(v))
        dx = recurrence.product(flat, v).reshape(x.shape) if needs[0] else None
        dv = recurrence.product(flat.T, x.reshape(-1, v.shape[1])) if needs[6] else None
    return dx, dw, db if needs[2] else None, dstates[0], dc, dp, dv


def _rule_on_tensors(gs: tuple, given: tuple, needs: tuple, mode: str, backwards: bool) -> tuple:
    """The same as something that can be differentiated: by way of the steps."""
    recorded = thread.grad_enabled
    with enable_grad():
        # Names of this pass alone: the state may itself be made of the weights.
        part = (lambda t: t.view_as(t)) if recorded else (lambda t: t.detach().requires_grad_())
        values = [part(t) if n else t for t, n in zip(given, needs)]
        x, w, b, *state, p, v = values
        first = tuple(s for s in state if s is not None)
        x = x if v is None else ops.linear(x, v)
        out, last = _spelled_out(x, first, Step(mode, w, b, p), backwards)
        outs = [out, *last]
    pairs = [(o, g) for o, g in zip(outs, gs, strict=True) if g is not None]
    wanted = [v for v, n in zip(values, needs, strict=False) if n]
    found = iter(
        grad([o for o, _ in pairs], wanted, [g for _, g in pairs],
             create_graph=recorded, allow_unused=True)
    )  # fmt: skip
    return tuple(next(found) if n else None for n in needs)


def _shapes(
    x: Any, w: Any, b: Any, h: Any, c: Any, p: Any, v: Any, mode: str, backwards: bool, keep: bool
) -> list:
    (steps, rows, _), states = x.shape, [h] if c is None else [h, c]
    kept = keep * recurrence.kept_parts(mode, p) * (w.shape[0] // recurrence.MODES[mode].gates)
    outs = [(steps, rows, s.shape[1]) for s in states]
    shapes = [outs[0], *((1, *o[1:]) for o in outs), *outs[1:], (steps, rows, kept)]
    return [(shape, x.dtype) for shape in shapes]


_recurrence = declare_apart("recurrence", _forward, "x w b h c p v", _rule)
# The states after the last step are the program's own: nothing reads them again.
_recurrence.multi = True
_recurrence.kept = lambda out: (0, *range(1 + len(out) // 2, len(out)))
_recurrence.shape = _shapes

__all__ = ["STEPS", "Step", "along"]
