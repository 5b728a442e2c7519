"""Functions of Tensors as ``lax`` has them: of arrays, with weak types, over trees.

A native function says by its annotations what its arguments are: ``Tensor`` and ``Tensors`` decide
about the result's weakness, ``Index`` does not. An argument called ``...dtype`` or ``..._type`` is
an element type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....func.axes import in_groups
from .. import tree
from ..array import Array, wrap
from ..transforms import as_array
from ..types import asked

_DECIDING = ("Tensor", "Tensor | Tensors", "Tensors", "Sequence[Tensor]")
_STRONG = frozenset(
    "argmax argmin top_k convert_element_type bitcast_convert_type real imag iota "
    "broadcasted_iota approx_max_k approx_min_k empty".split()
)


def value_of(name: str, x: Any, place: int) -> Array:
    """An operand as an Array."""
    try:
        return as_array(x)
    except TypeError:
        raise TypeError(
            f"Error interpreting argument to {name} as a JAX value. The problematic value is of "
            f"type {type(x)} and was passed to {name} at position {place}."
        ) from None


def plain(x: Any) -> Any:
    """``x`` with Tensors for the Arrays in it, also in lists and tuples."""
    if isinstance(x, Array):
        return x._value
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(map(plain, x))
    return x


def lifted(name: str, fn: Callable) -> Callable:
    """``fn`` of tensors as a function of arrays."""
    signature = inspect.signature(fn)
    kinds = {p.name: str(p.annotation) for p in signature.parameters.values()}

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        for ignored in ("precision", "out_sharding", "sharding"):
            if ignored not in kinds:
                kwargs.pop(ignored, None)
        bound = signature.bind(*args, **kwargs)
        deciding: list[Array] = []
        for place, (key, x) in enumerate(bound.arguments.items()):
            kind = kinds[key]
            if kind in _DECIDING or kind == "Index":
                many = isinstance(x, (list, tuple)) or signature.parameters[key].kind == 2
                arrays = [value_of(name, v, place + i) for i, v in enumerate(x if many else [x])]
                deciding += arrays if kind != "Index" else []
                values = [a._value for a in arrays]
                bound.arguments[key] = tuple(values) if many else values[0]
            elif key.endswith(("dtype", "_type")) and x is not None:
                bound.arguments[key] = asked(x, name)
            else:
                bound.arguments[key] = plain(x)
        typed = any(bound.arguments.get(k) is not None for k in ("dtype", "preferred_element_type"))
        return _left(fn(*bound.args, **bound.kwargs), deciding, typed or name in _STRONG)

    run.__module__, run.__name__, run.__qualname__ = "jax.lax", name, name
    return run


def _left(out: Any, given: list[Array], strong: bool) -> Any:
    if isinstance(out, Tensor):
        return wrap(out, not strong and bool(given) and all(a.weak_type for a in given))
    if isinstance(out, (tuple, list)) and all(isinstance(t, Tensor) for t in out):
        if len(out) == len(given) and not strong:
            return type(out)(wrap(t, a.weak_type) for t, a in zip(out, given, strict=True))
        return type(out)(_left(t, given, strong) for t in out)
    return out


_OF_GROUPS: dict[str, Callable] = {
    "psum": lambda rows: rows.sum(0, dtype=rows.dtype), "pmean": lambda rows: rows.mean(0),
    "pmax": lambda rows: rows.amax(0), "pmin": lambda rows: rows.amin(0),
    "all_gather": lambda rows: rows,
}  # fmt: skip


def of_leaves(name: str, fn: Callable) -> Callable:
    """``fn`` of one tensor, and of what else there is, as a function of each leaf of a tree."""

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        groups = kwargs.pop("axis_index_groups", None)
        if groups is not None and "axis_name" in kwargs:
            args = (kwargs.pop("axis_name"),)
        if groups is not None and (kwargs or name not in _OF_GROUPS):
            raise NotImplementedError(f"axis_index_groups of {name}")

        def one(leaf: Any) -> Array:
            a = as_array(leaf)
            if groups is not None:
                return wrap(_OF_GROUPS[name](in_groups(a._value, args[0], groups)), a.weak_type)
            return wrap(fn(a._value, *args, **kwargs), a.weak_type)

        return tree.tree_map(one, x)

    run.__module__, run.__name__, run.__qualname__ = "jax.lax", name, name
    run.__doc__ = fn.__doc__
    return run


def over_trees(name: str, fn: Callable) -> Callable:
    """``fn(operands, init_values, computation, ...)`` of lists of tensors, as one of trees."""

    def run(operands: Any, init_values: Any, computation: Callable, *args: Any, **kw: Any) -> Any:
        (leaves, form), (starts, other) = map(tree.tree_flatten, (operands, init_values))
        if form != other:
            raise ValueError(
                f"Operands must have the same tree structure as init_values: {form} vs. {other}"
            )
        given, begin = [as_array(x) for x in leaves], [as_array(x) for x in starts]

        def combine(a: list, b: list) -> list:
            one, two = (form.unflatten([wrap(t) for t in part]) for part in (a, b))
            return [as_array(x)._value for x in tree.tree_leaves(computation(one, two))]

        outs = fn([a._value for a in given], [s._value for s in begin], combine, *args, **kw)
        rows = zip(outs, given, begin, strict=True)
        return form.unflatten([wrap(o, a.weak_type and s.weak_type) for o, a, s in rows])

    run.__module__, run.__name__, run.__qualname__, run.__doc__ = "jax.lax", name, name, fn.__doc__
    return run
