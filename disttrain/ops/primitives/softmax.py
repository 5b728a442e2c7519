"""Softmax and its logarithm along a dimension; gelu, silu, softplus. Kernels do the arithmetic.

A fused backward is a primitive of its own, with its own derivative, so that gradients of gradients
are right too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused import elementwise as fused_elementwise
from ...backends.fused import softmax as fused_softmax
from ...core.annotations import Value
from ...core.gate import Primitive
from ..declare import binary, primitive, unary
from .batching import fronted
from .elementwise import exp, sigmoid
from .reduce import sum_
from .views import Batched, up


def dense(a: np.ndarray) -> Any:
    """``a`` with its memory in order: kernels take such arrays the short way. (The gradient of a
    sum is one number seen many times.)"""
    return a if a.flags.c_contiguous else a.copy()


# --- softmax -----------------------------------------------------------------------------------
def _over_last(kernel: Callable) -> Callable:
    """``kernel(arrays...)`` over dimension ``dim`` instead of the last one."""

    def forward(*arrays: Any, dim: int) -> Any:
        if dim == arrays[0].ndim - 1:
            return kernel(*map(dense, arrays))
        moved = kernel(*(np.moveaxis(a, dim, -1) for a in arrays))
        return np.moveaxis(moved, -1, dim)

    return forward


def _same(a: Value, *rest: object, dim: int) -> tuple:
    return a.shape, a.dtype


def _two_batch(prim_of: Callable[[], Primitive]) -> Callable[..., tuple]:
    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        g, y = (fronted(x, d, size) for x, d in zip(args, dims, strict=True))
        return prim_of()(g, y, dim=params["dim"] + 1), 0

    return rule


def _matrix(rng: np.random.Generator) -> list:
    return [((rng.normal(size=(3, 4)),), {"dim": d}) for d in (0, 1)]


def _gradient_and_result(rng: np.random.Generator) -> list:
    return [((rng.normal(size=(3, 4)), rng.uniform(0.1, 0.9, (3, 4))), {"dim": 1})]


softmax_: Primitive = primitive(
    "softmax", _over_last(fused_softmax.softmax), "a",
    vjp={"a": lambda g, out, dim: softmax_backward(g, out, dim=dim)},
    jvp=lambda primals, tangents, params: softmax_backward(
        tangents[0], softmax_(primals[0], **params), **params
    ),
    batch=Batched(lambda: softmax_, up("dim")), shape=_same, samples=_matrix,
)  # fmt: skip


def _total(x: object, dim: int) -> Any:
    return sum_(x, dims=(dim,), keepdim=True)


softmax_backward: Primitive = primitive(
    "softmax_backward", _over_last(fused_softmax.softmax_backward), "g_out y",
    vjp={
        "g_out": lambda g, y, dim: softmax_backward(g, y, dim=dim),
        "y": lambda g, g_out, y, dim: (
            g * (g_out - _total(g_out * y, dim)) - g_out * _total(g * y, dim)
        ),
    },
    batch=_two_batch(lambda: softmax_backward), shape=_same, samples=_gradient_and_result,
)  # fmt: skip

log_softmax_: Primitive = primitive(
    "log_softmax", _over_last(fused_softmax.log_softmax), "a",
    vjp={"a": lambda g, out, dim: log_softmax_backward(g, out, dim=dim)},
    jvp=lambda primals, tangents, params: tangents[0] - _total(
        softmax_(primals[0], **params) * tangents[0], params["dim"]
    ),
    batch=Batched(lambda: log_softmax_, up("dim")), shape=_same, samples=_matrix,
)  # fmt: skip

log_softmax_backward: Primitive = primitive(
    "log_softmax_backward", _over_last(fused_softmax.log_softmax_backward), "g_out y",
    vjp={
        "g_out": lambda g, y, dim: g - _total(g * exp(y), dim),
        "y": lambda g, g_out, y, dim: -g * exp(y) * _total(g_out, dim),
    },
    batch=_two_batch(lambda: log_softmax_backward), shape=_same,
    samples=_gradient_and_result,
)  # fmt: skip


# --- gelu, silu, softplus ----------------------------------------------------------------------
_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715
_DENSITY = 1 / math.sqrt(2 * math.pi)


def _gelu_tanh_second(g: Value, g_out: Value, a: Value) -> Any:
    """The derivative of the derivative of x s(k (x + c x^3)), s the logistic function."""
    square = a * a
    s = sigmoid(a * (_SLOPE + (_SLOPE * _CUBIC) * square))
    d = _SLOPE + (3 * _SLOPE * _CUBIC) * square
    inner = d * 2 + (6 * _SLOPE * _CUBIC) * square + a * d * d * (1 - s * 2)
    return g * g_out * (s * (1 - s)) * inner


def _gelu_erf_second(g: Value, g_out: Value, a: Value) -> Any:
    square = a * a
    return g * g_out * (exp(square * -0.5) * _DENSITY) * (2 - square)


def _silu_second(g: Value, g_out: Value, a: Value) -> Any:
    s = sigmoid(a)
    return g * g_out * (s * (1 - s)) * (2 + a * (1 - s * 2))


def _kernel(fn: Callable, *options: str) -> Callable:
    return lambda *arrays: fn(*map(_gapless, arrays), *options)


def _gapless(a: Any) -> Any:
    """``a`` where its memory has no gaps, in whichever order; else a copy."""
    if a.__class__ is np.ndarray and fused_elementwise.order_of(a) is not None:
        return a
    return dense(a)


gelu_tanh = unary(
    "gelu_tanh", _kernel(fused_elementwise.gelu, "tanh"),
    lambda g, a: gelu_tanh_backward(g, a), expr=fused_elementwise.gelu_tanh, floating=True,
)  # fmt: skip
gelu_tanh_backward: Primitive = binary(
    "gelu_tanh_backward", _kernel(fused_elementwise.gelu_backward, "tanh"),
    lambda g, b: gelu_tanh_backward(g, b), lambda g, a, b: _gelu_tanh_second(g, a, b),
    expr=fused_elementwise.gelu_tanh_backward,
)  # fmt: skip
gelu_erf = unary(
    "gelu", _kernel(fused_elementwise.gelu, "none"),
    lambda g, a: gelu_erf_backward(g, a), expr=fused_elementwise.gelu_erf, floating=True,
)  # fmt: skip
gelu_erf_backward: Primitive = binary(
    "gelu_backward", _kernel(fused_elementwise.gelu_backward, "none"),
    lambda g, b: gelu_erf_backward(g, b), lambda g, a, b: _gelu_erf_second(g, a, b),
    expr=fused_elementwise.gelu_erf_backward,
)  # fmt: skip
silu_ = unary(
    "silu", _kernel(fused_elementwise.silu), lambda g, a: silu_backward(g, a),
    expr=fused_elementwise.silu_value, floating=True,
)  # fmt: skip
silu_backward: Primitive = binary(
    "silu_backward", _kernel(fused_elementwise.silu_backward),
    lambda g, b: silu_backward(g, b), lambda g, a, b: _silu_second(g, a, b),
    expr=fused_elementwise.silu_gradient,
)  # fmt: skip
softplus_ = unary(
    "softplus", fused_elementwise.softplus, lambda g, a: g * sigmoid(a),
    expr=fused_elementwise.softplus_value, floating=True, takes="biufV",
)  # fmt: skip
