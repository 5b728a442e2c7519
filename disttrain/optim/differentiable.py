"""An update as operations on Tensors, recorded for backward: ``differentiable=True``.

The same expressions and the same numbers as the kernels have; hyperparameters may be Tensors that
require grad, and then backward reaches them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import ops
from ..backends.lang.expr import Expr, walk
from ..core import Primitive, Tensor
from ..ops.primitives.aliases import view_as_complex, view_as_real
from .rules import BEHIND


def _larger(a: Tensor, b: Tensor | float) -> Any:
    return ops.maximum(a, b) if isinstance(b, Tensor) else ops.clamp(a, min=b)


def _smaller(a: Tensor, b: float) -> Any:
    return ops.minimum(a, b) if isinstance(b, Tensor) else ops.clamp(a, max=b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "abs": abs,
    "sqrt": lambda a: a**0.5,
    "gt": lambda a, b: a > b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "max": _larger,
    "min": _smaller,
}


def differentiable_update(
    prim: Primitive, p: object, g: Any, state: list[Any], hyper: Mapping[str, Any]
) -> None:
    """Do to ``p`` and ``state`` (in the order of the rule) what the rule says, recorded.

    Needs ``p`` to be no leaf that requires grad: such a tensor cannot be changed in place.
    """
    rule = BEHIND[prim]
    update, numbers = rule.update, rule.numbers
    t = 0
    if rule.counted:
        step = state[-1]
        step.add_(1)
        t = int(step.item())
    arrays = state[: len(update.state)]
    if rule.moving:
        singles = state[len(arrays) : len(arrays) + len(rule.moving)]
        moving = [s.clone() if s.requires_grad else s.array[()] for s in singles]
        values, after = numbers(t, moving, **hyper)
        for s, value in zip(singles, after):
            s.copy_(value if isinstance(value, Tensor) else ops.full_like(s, value))
    else:
        values = numbers(t, **hyper)
    targets = dict(zip(("p", *update.state), (p, *arrays)))
    names = dict(zip(update.scalars, values))
    names.update((k, _real(v.clone())) for k, v in targets.items())
    names["g"] = _real(g)
    results = [(s.array, evaluate(s.value, names)) for s in update.stores]
    for name, value in results:
        target = targets[name]
        target.copy_(view_as_complex(value) if target.is_complex() else value)


def _real(t: Tensor) -> Any:
    """Complex numbers as pairs of reals, which the updates see one by one."""
    return view_as_real(t) if t.is_complex() else t


def evaluate(expr: Expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression whose variables are Tensors and numbers."""
    done: dict[Expr, Any] = {}
    for node in walk(expr):
        if node.op == "var":
            done[node] = names[node.attr]
        elif node.op == "const":
            done[node] = node.attr
        elif node.op == "where":
            done[node] = _where(names["p"], *[done[a] for a in node.args])
        else:
            done[node] = _FUNCTIONS[node.op](*[done[a] for a in node.args])
    return done[expr]


def _where(like: Any, condition: object, a: Any, b: Any) -> Any:
    """``a`` or ``b``; numbers get the type of the parameter, as in the kernels."""
    if not isinstance(condition, Tensor):
        return a if condition else b
    return ops.where(condition, a if isinstance(a, Tensor) else ops.full_like(like, a), b)
