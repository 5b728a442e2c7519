"""Sized numbers: what instructions and shapes hold where a number depends on sizes that may change.

A sized number is the number that it was at capture, for all that only compute with it, and knows
the expression (a text over symbols, see ``disttrain.symbolic``) that it is for other sizes.
``annotate`` puts them where a second, symbolic run of the program had symbolic numbers;
``substitute`` takes the numbers for given sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from ..context import thread
from ..core.node import Node
from ..symbolic import Symbolic
from ..trace import call_site
from .originals import original_code
from .pull import Rule


class SizedInt(int):
    """An int with its expression."""

    text: str

    def __repr__(self) -> str:
        return self.text


class SizedFloat(float):
    """A float with its expression."""

    text: str

    def __repr__(self) -> str:
        return self.text


SIZED = (SizedInt, SizedFloat)


class Unlike(BaseException):  # noqa: N818  (an answer; few programs catch it)
    """The symbolic run is not what was captured, or asks what cannot be told for other sizes."""

    def __init__(self, why: str) -> None:
        runs: list[Any] = [interp for interp in thread.stack if hasattr(interp, "unlike")]
        if runs and " at " not in why:
            why = f"{why}, at {call_site()}"
        super().__init__(why)
        for run in runs:  # whoever runs the program learns of it in any case
            run.unlike = why


def _sized(number: float, text: str) -> Any:
    made = SizedInt(number) if type(number) is int else SizedFloat(number)
    made.text = text
    return made


def annotate(was: Any, now: Any) -> Any:
    """``was``, of the capture, with expressions where ``now``, of the symbolic run, has them. They
    must be equal otherwise."""
    if type(now) is Symbolic:
        if type(was) not in (int, float) or repr(was) != repr(now.value) or (
            type(was) is not type(now.value)
        ):  # fmt: skip
            raise Unlike(f"{was!r} is {now.value!r} in a run with sizes as symbols")
        return _sized(was, now.text)
    if isinstance(was, Rule):
        return _annotated_rule(was, now)
    if isinstance(was, slice) and isinstance(now, slice):
        return slice(*map(annotate, (was.start, was.stop, was.step),
                          (now.start, now.stop, now.step)))  # fmt: skip
    if isinstance(was, (tuple, list)):
        if not isinstance(now, (tuple, list)) or len(was) != len(now):
            raise Unlike("a sequence has another length with sizes as symbols")
        return _rebuilt(was, [annotate(a, b) for a, b in zip(was, now, strict=True)])
    if isinstance(was, dict):
        if not isinstance(now, dict) or list(was) != list(now):
            raise Unlike("a dict has other keys with sizes as symbols")
        parts = {k: annotate(v, now[k]) for k, v in was.items()}
        return was if all(parts[k] is was[k] for k in was) else parts
    if not _equal(was, now):
        raise Unlike(f"{type(was).__name__} is another with sizes as symbols")
    return was


def _rebuilt(was: Any, parts: list) -> Any:
    if all(a is b for a, b in zip(was, parts, strict=True)):
        return was
    return type(was)(*parts) if hasattr(was, "_fields") else type(was)(parts)


def _equal(a: Any, b: Any) -> bool:
    """Whether two static values are the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        same = a.shape == b.shape and a.dtype == b.dtype
        return same and a.tobytes() == b.tobytes()
    if isinstance(a, FunctionType):
        if original_code(a.__code__) is not original_code(b.__code__):
            return False
        return not a.__closure__ and a.__defaults__ is b.__defaults__
    if isinstance(a, (int, float, complex, str, bytes, np.generic, np.dtype, type(Ellipsis))):
        return repr(a) == repr(b)
    return False


def _annotated_rule(was: Rule, now: Any) -> Rule:
    if not isinstance(now, Rule) or was.node.prim is not now.node.prim:
        raise Unlike("another gradient is computed with sizes as symbols")
    if (was.gradients, was.results, was.needs) != (now.gradients, now.results, now.needs):
        raise Unlike("other gradients are computed with sizes as symbols")
    parts = annotate(_parts(was), _parts(now))
    return _with_parts(was, parts) if _any(parts) else was


def _parts(rule: Rule) -> tuple:
    """What depends on sizes in a rule."""
    node = rule.node
    edges = tuple(None if e is None else e.shape for e in node.edges)
    return node.params, node.shape, node.shapes, edges


def _with_parts(rule: Rule, parts: tuple) -> Rule:
    params, shape, shapes, shown = parts
    old = rule.node
    edges = []
    for e, sizes in zip(old.edges, shown, strict=True):
        edge: Any = e
        if e is not None:
            edge = copy.copy(e)
            edge.shape = sizes
        edges.append(edge)
    new = copy.copy(rule)
    new.node = Node(old.prim, tuple(edges), (), params, shape, old.dtype)
    new.node.shapes = shapes
    new.found = old.prim.vjp_all or new._one_by_one
    return new


def numbers(x: Any) -> Iterator[Any]:
    """The sized numbers in a value."""
    kind = type(x)
    if kind in SIZED:
        yield x
    elif isinstance(x, (tuple, list)):
        for y in x:
            yield from numbers(y)
    elif kind is dict:
        for y in x.values():
            yield from numbers(y)
    elif kind is slice:
        yield from numbers((x.start, x.stop, x.step))
    elif kind is Rule:
        yield from numbers(_parts(x))


def _any(x: Any) -> bool:
    return next(numbers(x), None) is not None


def is_sized(x: Any) -> bool:
    """Whether a value, or a part of it, depends on sizes."""
    return _any(x)


def substitute(x: Any, values: Mapping[str, Any]) -> Any:
    """``x`` for other sizes; ``values``: of expressions. The same object, where none is in it."""
    kind = type(x)
    if kind in SIZED:
        return values[x.text]
    if isinstance(x, (tuple, list)):
        return _rebuilt(x, [substitute(y, values) for y in x])
    if kind is dict:
        parts = {k: substitute(v, values) for k, v in x.items()}
        return x if all(parts[k] is v for k, v in x.items()) else parts
    if kind is slice and _any(x):
        return slice(*(substitute(y, values) for y in (x.start, x.stop, x.step)))
    if kind is Rule and _any(x):
        return _plain_rule(x, values)
    return x


def _plain_rule(rule: Rule, values: Mapping[str, Any]) -> Rule:
    params, shape, shapes, edges = (substitute(part, values) for part in _parts(rule))
    return _with_parts(rule, (params, shape, shapes, edges))


def text_of(n: Any) -> str:
    """A size as an expression."""
    return n.text if type(n) in SIZED else str(int(n))
