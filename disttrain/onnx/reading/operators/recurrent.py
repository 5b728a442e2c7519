"""Recurrent networks: RNN, GRU, LSTM, with ONNX's order of gates, its functions and lengths.

Networks with the usual functions, without peepholes, clipping and lengths, run as the kernels of
``nn``'s layers do; all other ones step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....errors import OperatorError, ShapeError
from ....nn import functional as F
from ....nn.recurrence import Step, along
from ....ops import api
from ..table import operator

Unary = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: Any, beta: Any) -> Unary:
    """A function by ONNX's name, without regard to case."""
    usual = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0}
    a = usual.get(name.lower(), 1.0) if alpha is None else alpha
    b = (0.5 if name.lower() == "hardsigmoid" else 1.0) if beta is None else beta
    table: dict[str, Unary] = {
        "sigmoid": api.sigmoid,
        "tanh": api.tanh,
        "relu": F.relu,
        "affine": lambda x: x * a + (0.0 if beta is None else b),
        "leakyrelu": lambda x: F.leaky_relu(x, a),
        "thresholdedrelu": lambda x: api.where(x > a, x, api.zeros_like(x)),
        "scaledtanh": lambda x: a * api.tanh(b * x),
        "hardsigmoid": lambda x: api.clamp(x * a + b, 0.0, 1.0),
        "elu": lambda x: F.elu(x, a),
        "softsign": F.softsign,
        "softplus": F.softplus,
    }
    if name.lower() not in table:
        raise OperatorError(f"activation {name!r}; known are {', '.join(table)}")
    return table[name.lower()]


_NEEDS_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
_NEEDS_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def _activations(names: Any, alphas: Any, betas: Any) -> list[Unary]:
    """The functions of all directions; their numbers are listed for those that have any."""
    a, b = iter(alphas or ()), iter(betas or ())
    out = []
    for name in names:
        alpha = next(a, None) if name.lower() in _NEEDS_ALPHA else None
        beta = next(b, None) if name.lower() in _NEEDS_BETA else None
        out.append(_activation(name, alpha, beta))
    return out


class _Pass:
    """One direction of a network: its weights and what stands around its steps."""

    def __init__(
        self, w: Tensor, r: Tensor, b: Tensor | None, p: Tensor | None, hidden: int, gates: int,
        functions: list[Unary], clip: float | None,
    ) -> None:  # fmt: skip
        self.w, self.r, self.p, self.hidden, self.clip = w, r, p, hidden, clip
        self.functions = functions
        half = gates * hidden
        self.wb = None if b is None else b[:half]
        self.rb = None if b is None else b[half:]

    def clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else api.clamp(x, -self.clip, self.clip)

    def inputs(self, x: Tensor) -> Tensor:
        """Of all steps at once: what the gates get from the input."""
        return F.linear(x, self.w, self.wb)

    def gate(self, i: int, t: Tensor) -> Tensor:
        return t[..., i * self.hidden : (i + 1) * self.hidden]


def _rnn_step(d: _Pass, x: Tensor, h: Tensor, c: Any) -> tuple[Tensor, Any]:
    return d.functions[0](d.clipped(x + F.linear(h, d.r, d.rb))), c


def _gru_step(linear_before_reset: int) -> Callable:
    def step(d: _Pass, x: Tensor, h: Tensor, c: Any) -> tuple[Tensor, Any]:
        f, g = d.functions
        n = d.hidden
        bias = [None] * 3 if d.rb is None else [d.rb[i * n : (i + 1) * n] for i in range(3)]
        z = f(d.clipped(d.gate(0, x) + F.linear(h, d.r[:n], bias[0])))
        r = f(d.clipped(d.gate(1, x) + F.linear(h, d.r[n : 2 * n], bias[1])))
        if linear_before_reset:
            new = d.gate(2, x) + r * F.linear(h, d.r[2 * n :], bias[2])
        else:
            new = d.gate(2, x) + F.linear(r * h, d.r[2 * n :], bias[2])
        return (1 - z) * g(d.clipped(new)) + z * h, c

    return step


def _lstm_step(input_forget: int) -> Callable:
    def step(d: _Pass, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, g, k = d.functions
        all_gates = x + F.linear(h, d.r, d.rb)
        i, o, forget, new = (d.gate(j, all_gates) for j in range(4))
        n = d.hidden
        peep = None if d.p is None else [d.p[j * n : (j + 1) * n] for j in range(3)]
        if peep is not None:
            i, forget = i + peep[0] * c, forget + peep[2] * c
        i = f(d.clipped(i))
        forget = 1 - i if input_forget else f(d.clipped(forget))
        c = forget * c + i * g(d.clipped(new))
        if peep is not None:
            o = o + peep[1] * c
        return f(d.clipped(o)) * k(c), c

    return step


def _direction(
    d: _Pass, step: Callable, x: Tensor, h: Tensor, c: Any, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Any]:
    """All steps of one direction; after its length a row stands still, and gives 0."""
    times = x.shape[0]
    gates = d.inputs(x)
    out: list[Any] = [None] * times
    for t in reversed(range(times)) if reverse else range(times):
        new_h, new_c = step(d, gates[t], h, c)
        if lengths is None:
            h, c, out[t] = new_h, new_c, new_h
            continue
        on = (lengths > t).reshape(-1, 1)
        h = api.where(on, new_h, h)
        c = c if c is None else api.where(on, new_c, c)
        out[t] = api.where(on, new_h, api.zeros_like(new_h))
    return api.stack(out), h, c


def _run(
    kind: str, x: Tensor, w: Tensor, r: Tensor, b: Any, lengths: Any, h: Any, c: Any, p: Any,
    words: dict[str, Any], step: Callable, gates: int, usual: tuple[str, ...], node: Any,
) -> tuple:  # fmt: skip
    layout, direction = words.get("layout", 0), words.get("direction", "forward")
    if layout:
        x = x.transpose(0, 1)
        h, c = (None if s is None else s.transpose(0, 1) for s in (h, c))
    directions = w.shape[0]
    hidden, batch = r.shape[2], x.shape[1]
    _check(x, w, r, b, h, gates)
    names = words.get("activations") or usual * directions
    functions = _activations(names, words.get("activation_alpha"), words.get("activation_beta"))
    per = len(usual)
    if len(functions) != per * directions:
        raise OperatorError(f"{len(functions)} activations; needed are {per * directions}")
    zeros = api.zeros((batch, hidden), dtype=x.dtype, device=x.device)
    outs, hs, cs = [], [], []
    for i in range(directions):
        one = _Pass(
            w[i], r[i], None if b is None else b[i], None if p is None else p[i], hidden, gates,
            functions[i * per : (i + 1) * per], words.get("clip"),
        )  # fmt: skip
        first_h = zeros if h is None else h[i]
        first_c = None if kind != "LSTM" else zeros if c is None else c[i]
        reverse = direction == "reverse" or i == 1
        out, last_h, last_c = _direction(one, step, x, first_h, first_c, lengths, reverse)
        outs.append(out)
        hs.append(last_h)
        cs.append(last_c)
    y, y_h = api.stack(outs, 1), api.stack(hs)
    y_c = api.stack(cs) if kind == "LSTM" else None
    if layout:
        y, y_h = y.permute(2, 0, 1, 3), y_h.transpose(0, 1)
        y_c = None if y_c is None else y_c.transpose(0, 1)
    return y, y_h, y_c


def _check(x: Tensor, w: Tensor, r: Tensor, b: Any, h: Any, gates: int) -> None:
    """Whether input, weights, bias and state belong together."""
    n, rows, hidden = w.shape[0], w.shape[1], r.shape[-1]
    fits = x.ndim == 3 and w.ndim == 3 and r.ndim == 3 and n in (1, 2)
    fits = fits and rows == gates * hidden and tuple(r.shape) == (n, rows, hidden)
    fits = fits and x.shape[2] == w.shape[2] and x.dtype == w.dtype == r.dtype
    if b is not None:
        fits = fits and tuple(b.shape) == (n, 2 * rows)
    if h is not None:
        fits = fits and h.ndim == 3 and h.shape[0] == n and h.shape[2] == hidden
    if not fits:
        raise ShapeError(
            f"input {tuple(x.shape)}, weights {tuple(w.shape)} and {tuple(r.shape)}; needed are "
            "(time, batch, features), (directions, gates, features), (directions, gates, hidden)"
        )


@operator("RNN")
def _rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h: Any = None, *,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: Any = None, direction: str = "forward", hidden_size: int = 0, layout: int = 0, node: Any,
) -> tuple:  # fmt: skip
    words = {
        "activations": activations, "activation_alpha": activation_alpha, "clip": clip,
        "activation_beta": activation_beta, "direction": direction, "layout": layout,
    }  # fmt: skip
    usual = ("Tanh",)
    if _fused(words, usual, lengths, None):
        return _layer("RNN", x, w, r, b, h, None, words)
    return _run("RNN", x, w, r, b, lengths, h, None, None, words, _rnn_step, 1, usual, node)


@operator("GRU")
def _gru(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h: Any = None, *,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: Any = None, direction: str = "forward", hidden_size: int = 0, layout: int = 0,
    linear_before_reset: int = 0, node: Any,
) -> tuple:  # fmt: skip
    words = {
        "activations": activations, "activation_alpha": activation_alpha, "clip": clip,
        "activation_beta": activation_beta, "direction": direction, "layout": layout,
    }  # fmt: skip
    usual = ("Sigmoid", "Tanh")
    if linear_before_reset and _fused(words, usual, lengths, None):
        return _layer("GRU", x, w, r, b, h, None, words)
    step = _gru_step(linear_before_reset)
    return _run("GRU", x, w, r, b, lengths, h, None, None, words, step, 3, usual, node)


@operator("LSTM")
def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h: Any = None,
    c: Any = None, p: Any = None, *,
    activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: Any = None, direction: str = "forward", hidden_size: int = 0, input_forget: int = 0,
    layout: int = 0, node: Any,
) -> tuple:  # fmt: skip
    """A network of LSTM cells."""
    words = {
        "activations": activations, "activation_alpha": activation_alpha, "clip": clip,
        "activation_beta": activation_beta, "direction": direction, "layout": layout,
    }  # fmt: skip
    usual = ("Sigmoid", "Tanh", "Tanh")
    if not input_forget and _fused(words, usual, lengths, p):
        return _layer("LSTM", x, w, r, b, h, c, words)
    step = _lstm_step(input_forget)
    return _run("LSTM", x, w, r, b, lengths, h, c, p, words, step, 4, usual, node)


def _fused(words: dict[str, Any], usual: tuple[str, ...], lengths: Any, p: Any) -> bool:
    """Whether a network is one of those that ``nn``'s layers have."""
    names = words["activations"]
    per = len(usual)
    asked = names is None or all(n.lower() == usual[i % per].lower() for i, n in enumerate(names))
    return asked and lengths is None and p is None and words["clip"] is None


# Where the rows of a gate of ours lie among those of ONNX.
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}


def _reordered(t: Tensor, kind: str) -> Tensor:
    order = _ORDER[kind]
    if len(order) == 1:
        return t
    parts = api.chunk(t, len(order), 0)
    return api.cat([parts[i] for i in order], 0)


def _layer(
    kind: str, x: Tensor, w: Tensor, r: Tensor, b: Any, h: Any, c: Any, words: dict[str, Any]
) -> tuple:
    """A network by the kernels of ``nn``'s layers."""
    if words["layout"]:
        x = x.transpose(0, 1)
        h, c = (None if s is None else s.transpose(0, 1) for s in (h, c))
    hidden, batch = r.shape[2], x.shape[1]
    _check(x, w, r, b, h, len(_ORDER[kind]))
    zeros = api.zeros((batch, hidden), dtype=x.dtype, device=x.device)
    outs, lasts = [], []
    for i in range(w.shape[0]):
        bias = [None, None] if b is None else [_reordered(t, kind) for t in api.chunk(b[i], 2, 0)]
        step = Step("RNN_TANH" if kind == "RNN" else kind, _reordered(r[i], kind), bias[1])
        start: tuple[Tensor, ...] = (zeros if h is None else h[i],)
        if kind == "LSTM":
            start += (zeros if c is None else c[i],)
        gates = F.linear(x, _reordered(w[i], kind), bias[0])
        backwards = i == 1 or words["direction"] == "reverse"
        out, last = along(gates, start, step, backwards)
        outs.append(out)
        lasts.append(last)
    y, y_h = api.stack(outs, 1), api.cat([s[0] for s in lasts], 0)
    y_c = api.cat([s[1] for s in lasts], 0) if kind == "LSTM" else None
    if words["layout"]:
        y, y_h = y.permute(2, 0, 1, 3), y_h.transpose(0, 1)
        y_c = None if y_c is None else y_c.transpose(0, 1)
    return y, y_h, y_c
