"""Expressions and kernels evaluated by numpy.

It is the meaning of the kernel language: the tests hold generated code against it, and it runs
where no code can be generated (another processor, no llvmlite, memory that may not be executed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .expr import Expr, walk
from .kernel import COMPUTE, Array, Kernel, Let, Loop, Reduce, Scalar, Types, floating, resolve

_erf = np.frompyfunc(math.erf, 1, 1)


def storage(name: str) -> np.dtype:
    """The numpy type of that name; the extension types come from ml_dtypes, loaded when asked."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of a float array, computed in double precision."""
    return np.asarray(_erf(x), np.float64).astype(x.dtype)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "erf": erf,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "isnan": np.isnan,
    "not": np.logical_not,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "fma": lambda a, b, c: a * b + c,
}
_FOLDS = {
    "sum": lambda x: np.sum(x, axis=-1, keepdims=True, dtype=x.dtype),
    "max": lambda x: np.max(x, axis=-1, keepdims=True),
    "min": lambda x: np.min(x, axis=-1, keepdims=True),
    "maxnum": lambda x: np.fmax.reduce(x, axis=-1, keepdims=True, initial=_least(x.dtype)),
}


def _least(kind: np.dtype) -> Any:
    if kind.kind == "b":
        return False
    return kind.type(-math.inf) if kind.kind == "f" else np.iinfo(kind).min


class Evaluator:
    """Values of expressions, given those of the names."""

    def __init__(self, types: Types, names: Mapping[str, Any], columns: int) -> None:
        self.types, self.names, self.columns = types, dict(names), columns

    def __call__(self, expr: Expr) -> np.ndarray:
        done: dict[Expr, Any] = {}
        with np.errstate(all="ignore"):
            for node in walk(expr):
                done[node] = self._node(node, [done[a] for a in node.args])
        return done[expr]

    def _node(self, node: Expr, args: list) -> Any:
        op = node.op
        if op == "var":
            return self.names[node.attr]
        if op == "const":
            return np.asarray(node.attr)
        if op == "index":
            return np.arange(self.columns)
        if op == "load":
            return self._load(self.names[node.attr], args[0])
        if op == "cast":
            return args[0].astype(storage(node.attr)).astype(COMPUTE[node.attr])
        kind = self.types.operands(node)
        if op == "where":
            return np.where(args[0], args[1].astype(kind), args[2].astype(kind))
        if op in ("and", "or", "not"):
            kind = "bool"
        elif kind == "bool" and op not in ("eq", "ne"):
            kind = "int32"
        if op in ("floor", "ceil") and "int" in kind:
            return args[0]
        if op == "isnan":
            kind = floating(kind)
        return FUNCTIONS[op](*[a.astype(kind) for a in args])

    def _load(self, array: np.ndarray, at: np.ndarray) -> np.ndarray:
        rows = np.broadcast_shapes(array.shape[:-1], at.shape[:-1])
        array = np.broadcast_to(array, (*rows, self.columns))
        at = np.broadcast_to(at, (*rows, *(at.shape[-1:] or (1,))))
        inside = (at >= 0) & (at < self.columns)
        found = np.take_along_axis(array, np.where(inside, at, 0).astype(np.int64), -1)
        if found.dtype.kind == "f":
            return np.where(inside, found, np.asarray(np.nan, found.dtype))
        return np.where(inside, found, np.asarray(0, found.dtype))


def interpret(expr: Expr, arrays: Mapping[str, Any]) -> np.ndarray:
    """The value of ``expr`` where its variables have the values that ``arrays`` names."""
    values = {name: np.asarray(a) for name, a in arrays.items()}
    params = tuple(Array(name, a.dtype.name) for name, a in values.items())
    types = Types(Kernel("expression", params, ()))
    values = {p.name: _computing(values[p.name], p.dtype) for p in params}
    columns = max((a.shape[-1] for a in values.values() if a.ndim), default=1)
    return Evaluator(types, values, columns)(expr)


def _computing(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.astype(COMPUTE[dtype], copy=False)


def run(kernel: Kernel, args: tuple) -> None:
    """Run ``kernel`` on numpy arrays and numbers, in the order of its parameters."""
    views: dict[str, np.ndarray] = {}
    names: dict[str, Any] = {}
    first = next(a for p, a in zip(kernel.params, args) if _is_full(p))
    columns = first.size if kernel.flat else first.shape[-1]
    if first.size == 0:
        return
    for p, value in zip(kernel.params, args):
        if isinstance(p, Scalar):
            names[p.name] = np.asarray(value, p.dtype)
        else:
            views[p.name] = _view(kernel, p, value)
            names[p.name] = _computing(views[p.name], p.dtype)
    state = Evaluator(Types(kernel), names, columns)
    for step in kernel.steps:
        body = step.body if isinstance(step, Loop) else (step,)
        for s, value in [(s, _kept(state(s.value), kernel, views)) for s in body]:
            _perform(s, value, state, views, kernel)


def _kept(value: np.ndarray, kernel: Kernel, views: dict[str, np.ndarray]) -> np.ndarray:
    """``value`` in memory of its own, where it is that of an array which the kernel writes to."""
    written = (views[a.name] for a in kernel.arrays if a.writes)
    return value.copy() if any(np.may_share_memory(value, w) for w in written) else value


def _is_full(p: Array | Scalar) -> bool:
    return isinstance(p, Array) and p.space == "full"


def _view(kernel: Kernel, p: Array, array: np.ndarray) -> np.ndarray:
    """``array`` with the column axis last (of size 1 where it has no columns)."""
    if kernel.flat and p.space == "full":
        return array if array.ndim else array[None]
    if p.space == "row":
        return array[..., None]
    return array.reshape(1) if p.space == "one" else array


def _summed(
    name: str, value: np.ndarray, views: dict[str, np.ndarray], kernel: Kernel
) -> np.ndarray:
    """What is added to an array: where it has no rows, the sum over them, each of which adds."""
    target = views[name]
    space = next(p.space for p in kernel.arrays if p.name == name)
    if space in ("full", "row") or kernel.flat:
        return np.broadcast_to(value, target.shape)
    full = next(v for p, v in zip(kernel.arrays, views.values()) if p.space == "full")
    lines = next(p.every for p in kernel.arrays if p.name == name)
    if lines:
        rows = np.broadcast_to(value, full.shape).reshape(-1, full.shape[-1])
        return np.add.reduceat(rows, range(0, len(rows), lines), axis=0)
    value = np.broadcast_to(value, (*full.shape[:-1], *target.shape))
    return value.reshape(-1, *target.shape).sum(0, dtype=np.result_type(value, target))


def _perform(
    s: Any, value: np.ndarray, state: Evaluator, views: dict[str, np.ndarray], kernel: Kernel
) -> None:
    if isinstance(s, (Let, Reduce)):
        state.types.names[s.name] = resolve(state.types[s.value])
        if isinstance(s, Reduce):
            wide = next(v for p, v in zip(kernel.arrays, views.values()) if p.space == "full")
            value = np.broadcast_to(value, wide.shape)
            value = _FOLDS[s.op](value.reshape(-1) if kernel.flat else value)
        state.names[s.name] = value
        return
    target = views[s.array]
    if s.add:
        added = _computing(_summed(s.array, value, views, kernel), target.dtype.name)
        value = _computing(target, target.dtype.name) + added
    target[...] = value.astype(target.dtype)
    state.names[s.array] = _computing(target, target.dtype.name)
