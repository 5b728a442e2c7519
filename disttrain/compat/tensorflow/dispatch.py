"""How functions of TensorFlow's names are made: conversion of arguments, types that must agree, the
graph that is traced, and failures in TensorFlow's words."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

from ... import tree
from ...context import thread
from ...core.tensor import Tensor as Inner
from ..tables import Parameters
from .errors import FAILURES, OpError, failed
from .tensor import GRAPH, SymbolicTensor, convert, inner_type, matched, out_of_scope, wrap

# Whether code of Keras runs: gradients may be wanted without a tape then.
IN_KERAS: contextvars.ContextVar[bool] = contextvars.ContextVar("in_keras", default=False)


@contextlib.contextmanager
def in_keras() -> Iterator[None]:
    """Let what runs be recorded without a tape."""
    token = IN_KERAS.set(True)
    try:
        yield
    finally:
        IN_KERAS.reset(token)


FLOATS = frozenset("bfloat16 float16 float32 float64".split())
COMPLEX = FLOATS | {"complex64", "complex128"}
_ORDER = ("bfloat16", "float16", "float32", "float64", "complex64", "complex128")


def execute(
    kind: str, call: Callable, inputs: list, name: str | None = None, arguments: tuple = ()
) -> Any:
    """Run ``call`` on the values of ``inputs`` (tensors), or write it down where a function is
    being traced."""
    graph = GRAPH.get()
    if graph is not None:
        try:
            return graph.record(kind, call, inputs, name, arguments=arguments)
        except OpError as error:
            raise ValueError(str(error)) from error
        except FAILURES as error:
            raise ValueError(_told(kind, inputs, error)) from error
    values = [_value(t) for t in inputs]
    try:
        found = call(*values)
    except OpError:
        raise
    except FAILURES as error:
        raise failed(kind, _told(kind, inputs, error)) from error
    if isinstance(found, Inner):
        return wrap(_settled(found))
    return tree.map(lambda v: wrap(_settled(v)), found)


def _value(t: Any) -> Any:
    if t.__class__ is SymbolicTensor:
        raise out_of_scope(t)
    return t._value


def _settled(value: Any) -> Any:
    """A result: outside of tapes nothing is recorded."""
    if isinstance(value, Inner) and not thread.tapes and value.requires_grad:
        return value if IN_KERAS.get() else value.detach()
    return value


def _told(kind: str, inputs: list, error: BaseException) -> str:
    shapes = ["[" + ",".join(map(str, t.shape)) + "]" for t in inputs]
    if kind in _BROADCAST and len(shapes) == 2:
        return f"Incompatible shapes: {shapes[0]} vs. {shapes[1]}"
    if kind in ("MatMul", "BatchMatMulV2") and len(shapes) == 2:
        if min(t.ndim for t in inputs) < 2:
            return "In[0] ndims must be >= 2"
        return f"Matrix size-incompatible: In[0]: {shapes[0]}, In[1]: {shapes[1]}"
    return str(error)


_BROADCAST: set[str] = set()
TEXT: dict[str, Callable] = {}  # the same of arrays of bytes


def allow(kind: str, t: Any, allowed: frozenset | None) -> None:
    """Raise where an operation is not there for the type of ``t``."""
    if allowed is not None and t.dtype.name not in allowed:
        words = ", ".join({"float16": "half", "float32": "float", "float64": "double"}.get(n, n)
                          for n in _ORDER if n in allowed)  # fmt: skip
        raise failed(
            kind,
            f"Value for attr 'T' of {t.dtype.word} is not in the list of allowed values: {words}",
        )


def unary(word: str, kind: str, fn: Callable, allowed: frozenset | None = None) -> Callable:
    """``tf.word(x, name=None)`` of one tensor."""

    def function(x: Any, name: str | None = None) -> Any:
        t = convert(x)
        allow(kind, t, allowed)
        return execute(kind, fn, [t], name)

    return named(function, word)


def binary(
    word: str, kind: str, fn: Callable, allowed: frozenset | None = None, first: bool = False
) -> Callable:
    """``tf.word(x, y, name=None)`` of two tensors of one type."""
    _BROADCAST.add(kind)

    def function(x: Any, y: Any, name: str | None = None) -> Any:
        pair = matched(kind, [x, y], first)
        if pair[0].dtype.name == "string" and kind in TEXT:
            return execute(kind, TEXT[kind], pair, name, ("x", "y"))
        allow(kind, pair[0], allowed)
        return execute(kind, fn, pair, name, ("x", "y"))

    return named(function, word)


def named(function: Callable, word: str) -> Callable:
    function.__name__ = function.__qualname__ = word
    return function


_NUMBERS = {int, float, bool, str, type(None)}


def op(
    word: str, kind: str, fn: Callable, text: str, types: frozenset | None = None,
    out: Callable | None = None,
) -> Callable:  # fmt: skip
    """``tf.word`` of a function of disttrain's tensors, to which arguments go by position.

    ``text``: TensorFlow's parameters, with marks: ``x!`` a tensor, ``x*`` a list of tensors of one
    type, ``x~`` those that agree in type, ``x@`` a type. The others are as they come, but tensors
    among them become Python's numbers where they have them. ``types``: what the first tensor may
    be of. ``out``: of what it gives.
    """
    row = Parameters(word, text, *(() if "_name=" in text else ("_name=None",)))
    tensors = [n for n, m in row.marks.items() if m in ("!", "*")]
    alike, kinds, passed = row.marked("~"), row.marked("@"), row.passed
    others, at_name = [row.names.index(n) for n in passed[1:]], row.names.index("name")
    single = passed[:1] == row.marked("!") == tensors and not alike + kinds
    alone = row.names.index(passed[0]) if single else None

    def function(*args: Any, **kwargs: Any) -> Any:
        values = row.values(args, kwargs)
        if alone is not None:  # one tensor, and often numbers beside it
            rest = [values[i] for i in others]
            if _NUMBERS.issuperset([v.__class__ for v in rest]):
                t = convert(values[alone])
                if types is not None:
                    allow(kind, t, types)
                found = execute(kind, lambda v: fn(v, *rest), [t], values[at_name])
                return found if out is None else out(found)
        words = dict(zip(row.names, values, strict=True))
        parts = _parts(kind, words, tensors, alike, row.marks)
        if types is not None:
            allow(kind, tree.leaves(parts)[0], types)
        for n in kinds:
            words[n] = None if words[n] is None else inner_type(words[n])
        static = {n: plain(words[n]) for n in passed if n not in parts}
        late = {k: tree.map(convert, v) for k, v in static.items() if _has_symbol(v)}
        held, rebuild = tree.flatten({**parts, **late})

        def call(*values: Any) -> Any:
            found = rebuild(list(values))
            known = {**static, **found, **{k: _numbers(found[k]) for k in late}}
            return fn(*[known[n] for n in passed])

        result = execute(kind, call, held, words["name"])
        return result if out is None else out(result)

    function.__signature__ = row.signature  # type: ignore[attr-defined]
    function.__doc__ = fn.__doc__
    return named(function, word)


def table(rows: dict[str, tuple]) -> dict[str, Callable]:
    """Names with the functions of their rows: (kind, function, parameters, what ``op`` takes)."""
    return {word: op(word, *row) for word, row in rows.items()}


def _parts(kind: str, words: dict, tensors: list, alike: list, marks: dict) -> dict:
    parts: dict[str, Any] = {}
    if alike:
        present = [w for w in alike if words[w] is not None]
        found = matched(kind, [words[w] for w in present]) if present else []
        parts |= dict(zip(present, found, strict=True))
    for word in tensors:
        value = words[word]
        if marks[word] == "*":
            values = list(value) if isinstance(value, (list, tuple)) else [convert(value)]
            parts[word] = matched(kind, values) if values else []
        elif value is not None:
            parts[word] = convert(value)
    return parts


def plain(value: Any) -> Any:
    """A parameter that is no tensor: numbers of tensors, where they can be read."""
    if isinstance(value, SymbolicTensor):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value) if not hasattr(value, "_fields") else value
    if hasattr(value, "_as_tensor") or isinstance(value, (Inner,)) or hasattr(value, "_value"):
        t = convert(value)
        return t if isinstance(t, SymbolicTensor) else t.numpy().tolist()
    return value


def _has_symbol(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_symbol, value))
    return isinstance(value, SymbolicTensor)


def _numbers(value: Any) -> Any:
    """The Python numbers of tensors, in nested lists."""
    if isinstance(value, (list, tuple)):
        return [_numbers(v) for v in value]
    return value.detach().tolist() if isinstance(value, Inner) else value
