"""What CuPy takes, as ``record.py`` wrote it down: parameters of functions and methods, and the
types that ufuncs have loops for. Knows no array."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {np.dtype(c) for c in "?bBhHiIlLqQefdFD"} | {BFLOAT16}
WEAK = {int: np.dtype("l"), float: np.dtype("d"), complex: np.dtype("D")}
SCALARS = (bool, int, float, complex, np.generic)
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


class Unsupported(TypeError):
    """CuPy cannot do this."""


@functools.cache
def table() -> dict[str, Any]:
    """The record."""
    return json.loads(Path(__file__).with_name("cupy.json").read_text())


def dtype_of(kind: Any) -> np.dtype:
    """``kind`` as numpy's dtype, if CuPy's arrays can be of it."""
    found = np.dtype(kind)
    if found not in TYPES:
        raise Unsupported(f"CuPy has no arrays of {found}")
    return found


@functools.cache
def signature(text: str) -> inspect.Signature:
    """Python's signature from the record's text."""
    kinds, found, keyword_only = inspect.Parameter, [], False
    for word in text.split():
        if word == "/":
            found = [p.replace(kind=kinds.POSITIONAL_ONLY) for p in found]
        elif word == "*":
            keyword_only = True
        elif word.startswith("**"):
            found.append(kinds(word[2:], kinds.VAR_KEYWORD))
        elif word.startswith("*"):
            found.append(kinds(word[1:], kinds.VAR_POSITIONAL))
            keyword_only = True
        else:
            kind = kinds.KEYWORD_ONLY if keyword_only else kinds.POSITIONAL_OR_KEYWORD
            default = None if word.endswith("=") else kinds.empty
            found.append(kinds(word.removesuffix("="), kind, default=default))
    return inspect.Signature(_defaults_last(found))


def _defaults_last(found: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Cython lets a parameter without a default follow one with; Python does not."""
    seen, result = False, []
    for p in found:
        seen = seen or p.default is None
        late = seen and p.kind == p.POSITIONAL_OR_KEYWORD
        result.append(p.replace(default=None) if late else p)
    return result


def bind(what: str, name: str, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments by CuPy's names. ``what``: "functions" or "methods"."""
    known = table()[what]
    if name not in known:
        raise Unsupported(f"CuPy has no {what[:-1]} {name}")
    try:
        return signature(known[name]).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise Unsupported(f"cupy.{name}({known[name]}): {error}") from None


Op = tuple[tuple[np.dtype, ...], tuple[np.dtype, ...]]


@functools.cache
def loops(name: str, what: str = "ufuncs") -> tuple[Op, ...]:
    """(types in, types out) of each loop of a ufunc. ``what``: "ufuncs" or "special"."""
    types = table()[what].get(name)
    if types is None:
        raise Unsupported(f"CuPy has no ufunc {name}")

    def read(chars: str) -> tuple[np.dtype, ...]:
        return tuple(BFLOAT16 if c == "E" else np.dtype(c) for c in chars)

    sides = (t.split("->") for t in types.split())
    return tuple((read(left), read(right)) for left, right in sides)


def _typed(value: Any) -> tuple[np.dtype, type | None]:
    """Type of an argument, and Python's where that is weak."""
    if value.__class__ in WEAK:
        return WEAK[value.__class__], value.__class__
    return (np.dtype(bool) if value.__class__ is bool else value.dtype), None


def choose(name: str, args: tuple, dtype: Any = None, what: str = "ufuncs") -> Op:
    """The loop that CuPy takes (``_Ops.guess_routine`` in ``cupy/_core/_kernel.pyx``)."""
    if dtype is not None:
        wanted = dtype_of(dtype)
        for op in loops(name):
            if all(t == wanted for t in op[1]):
                return op
        raise Unsupported(f"cupy.{name} has no loop with results of {wanted}")
    typed = [_typed(a) for a in args]
    return _choose(name, what, tuple(t for t, _ in typed), tuple(w for _, w in typed))


@functools.cache
def _choose(name: str, what: str, types: tuple, weak: tuple) -> Op:
    strong = [_KINDS[t.kind] for t, w in zip(types, weak) if w is None]
    loose = [_KINDS[t.kind] for t, w in zip(types, weak) if w is not None]
    if not (strong and loose and max(strong) >= max(loose)):
        weak = (None,) * len(types)
    for op in loops(name, what):
        if all(_fits(t, w, o) for t, w, o in zip(types, weak, op[0])):
            return op
    raise Unsupported(f"cupy.{name} has no loop for {', '.join(map(str, types))}")


def _fits(given: np.dtype, weak: type | None, taken: np.dtype) -> bool:
    if np.can_cast(given, taken):
        return True
    return weak is not None and np.result_type(weak(0), taken) == taken
