"""A row of a table makes a function of JAX's arrays: which parameters are arrays, in what type they
meet, whether a weak type stays weak."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....errors import CaptureError, DimError, DTypeError, EscapedValue, LinAlgError, ShapeError
from ....ops import api as ops
from .. import types
from ..array import Array, wrap
from ..errors import ConcretizationTypeError
from ..tracing import is_traced
from .lifting import given_back, no_out, operands, refused, to_tensor, weak_of

RULES: dict[str, Callable | None] = {
    "same": None, "own": None, "inexact": types.inexact, "floating": types.floating,
    "numeric": types.numeric, "complex": types.complexed, "summed": types.summed,
}  # fmt: skip
_IGNORED = set(  # options that mean nothing here
    "precision preferred_element_type out_sharding device kind method unique_indices copy inplace "
    "indices_are_sorted nan_policy overwrite_a overwrite_b check_finite lapack_driver unroll "
    "overwrite_data optimize".split()
)
_PLAIN = (list, tuple, slice, str)
_CAST = set(  # functions whose results go into a ``dtype``
    "concatenate stack vstack hstack cross cov corrcoef linspace logspace geomspace argsort".split()
)


def function(where: str, fn: Callable, arrays: str, rule: str, weak: bool = False) -> Callable:
    """``fn`` of tensors as a function of arrays. ``arrays``: its parameters that are arrays; those
    between bars meet in a type of their own, a star says that it is a sequence of arrays, a mark
    after a colon a rule of its own (``weights:inexact``)."""
    groups = [[_named(p) for p in group.split()] for group in arrays.split("|")]
    parameters = inspect.signature(fn).parameters
    order = [p for p, v in parameters.items() if v.kind is not v.VAR_KEYWORD]
    names = {name for group in groups for name, _, _ in group}
    special = names | {"out", "dtype"} | (_IGNORED - set(order))
    first, many, own = groups[0][0]
    alone = first == order[0] and not many and len(groups[0]) == 1
    free = next((k for k, p in enumerate(order) if k and p in special), len(order))
    to = RULES[own or rule]

    def run(*args: Any, **given: Any) -> Any:
        if alone and 0 < len(args) <= free and special.isdisjoint(given):
            (value,), is_weak = operands(where, args[:1], to)
            out = _called(where, fn, (value, *args[1:]), given, value)
            return given_back(out, weak and is_weak)
        bound = _bound(where, order, args, given)
        if "out" in bound:
            no_out(where, bound.pop("out"))
        for name in _IGNORED:
            if name in bound and name not in parameters:
                del bound[name]
        found: list[Any] = []
        is_weak, *_ = (_fill(where, bound, group, rule, found) for group in groups)
        kind = bound.pop("dtype", None) if where in _CAST else None
        if bound.get("dtype") is not None:
            bound["dtype"] = types.dtypes.of(types.asked(bound["dtype"], where))
            is_weak = False
        out = _called(where, fn, (), bound, *bound.values())
        if kind is not None:
            out = typed(out, types.asked(kind, where))
        return given_back(out, weak and is_weak and kind is None)

    run.__name__ = run.__qualname__ = where
    run.__module__, run.__doc__ = "jax.numpy", fn.__doc__
    run.__signature__ = _signature(parameters)  # type: ignore[attr-defined]
    return run


def _bound(where: str, order: list[str], args: tuple, given: dict[str, Any]) -> dict[str, Any]:
    if len(args) > len(order):
        raise TypeError(
            f"{where}() takes {len(order)} positional arguments but {len(args)} were given"
        )
    bound = dict(zip(order, args))
    for name, value in given.items():
        if name in bound:
            raise TypeError(f"{where}() got multiple values for argument '{name}'")
        bound[name] = value
    return bound


def _called(where: str, fn: Callable, args: tuple, given: dict[str, Any], *xs: Any) -> Any:
    """The result of ``fn``, or its error as JAX's class for it."""
    try:
        return fn(*args, **given)
    except (DimError, LinAlgError) as error:
        raise ValueError(f"{where}: {error}") from None
    except ShapeError as error:
        raise TypeError(f"{where}: {error}") from None
    except DTypeError:
        raise refused(where, next(x for x in xs if isinstance(x, Tensor))) from None
    except CaptureError as error:
        traced = next((x for x in xs if isinstance(x, Tensor) and is_traced(x)), None)
        if traced is None or isinstance(error, EscapedValue):
            raise
        more = f"It arose in jax.numpy.{where}: how large its result is depends on values."
        raise ConcretizationTypeError(wrap(traced), more) from None


def typed(out: Any, kind: np.dtype) -> Any:
    """A result, or the first of several, in another type; whole numbers are floored."""
    if isinstance(out, (tuple, list)):
        return type(out)([typed(out[0], kind), *out[1:]])
    floored = kind.kind in "iu" and out.is_floating_point()
    return to_tensor(ops.floor(out) if floored else out, kind)


def _signature(parameters: Any) -> inspect.Signature:
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters.values()]
    return inspect.Signature(plain)


def _named(text: str) -> tuple[str, bool, str]:
    name, _, rule = text.partition(":")
    return name.rstrip("*"), name.endswith("*"), rule


def _fill(where: str, bound: dict[str, Any], group: list, rule: str, found: list[Any]) -> bool:
    """Put tensors in the places of arrays; whether their type is weak."""
    xs: list[Any] = []
    for name, many, _ in group:
        value = bound.get(name)
        if not many and isinstance(value, _PLAIN) and _own(group):
            bound[name] = _unwrapped(value)
            continue
        if value is None:
            continue
        if many:
            if isinstance(value, (Array, np.ndarray)):
                given: Any = value
                value = bound[name] = list(given) if value.ndim else [value]
            if not isinstance(value, (list, tuple)):
                raise TypeError(f"{where} requires a sequence of arrays, got {type(value)}.")
            xs += _leaves(value)
        else:
            xs.append(value)
    if not xs:
        return False
    own = next((r for _, _, r in group if r), "") or rule
    if own == "own":
        tensors = [operands(where, (x,))[0][0] for x in xs]
        weak = all(weak_of(x) for x in xs)
    else:
        tensors, weak = operands(where, xs, RULES[own])
    found += xs
    queue = iter(tensors)
    for name, many, _ in group:
        if bound.get(name) is not None and (many or not isinstance(bound[name], _PLAIN)):
            bound[name] = _filled(bound[name], queue) if many else next(queue)
    return weak


def _unwrapped(value: Any) -> Any:
    """A plain sequence, in which tensors stand for arrays."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_unwrapped, value))
    return value._value if value.__class__ is Array else value


def _own(group: list) -> bool:
    """Whether a parameter may be a sequence of plain numbers."""
    return any(r == "own" for _, _, r in group)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def _filled(value: Any, queue: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_filled(part, queue) for part in value]
    return next(queue)


def table(text: str, sources: Iterable[Any]) -> dict[str, Callable]:
    """Functions by rows ``name[=function][!] parameters -> rule``, between semicolons; ``!`` keeps
    weak types."""
    places, out = list(sources), {}
    for line in text.strip().replace("\n", "; ").split("; "):
        left, _, rule = line.rpartition("->")
        name, _, arrays = left.strip().partition(" ")
        keeps, (name, _, source) = name.endswith("!"), name.rstrip("!").partition("=")
        home = next(p for p in places if hasattr(p, source or name))
        out[name] = function(name, getattr(home, source or name), arrays, rule.strip(), keeps)
    return out
