"""Python's own functions of sizes, which are C code and would take the value of a symbolic number.

While symbolic runs go on, ``len`` and functions of ``math`` are replaced (for all threads, to which
they do what they always do) by ones that give a symbolic number for one. What somebody has put in
their place stays there: it is a function of Python's, which symbolic numbers go through.
"""

from __future__ import annotations

import builtins
import math
import os
import threading
from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ...symbolic import Symbolic
from ..guards.kinds import Replacement

_FLOATS = (
    "acos acosh asin asinh atan atan2 atanh cbrt copysign cos cosh degrees erf erfc exp exp2 expm1 "
    "fabs fmod hypot log log10 log1p log2 pow radians remainder sin sinh sqrt tan tanh"
).split()
_INTS = ("isqrt", "gcd", "comb")


def _len(x: Any) -> Any:
    return type(x).__len__(x) if isinstance(x, Tensor) else _plain_len(x)


_plain_len = len


def _of_numbers(name: str) -> Replacement:
    """``math``'s function of this name."""
    plain = getattr(math, name)

    def run(*given: Any) -> Any:
        if not any(type(x) is Symbolic for x in given):
            return plain(*given)
        return _applied(f"math.{name}", plain, given)

    return Replacement(plain, run)


def _applied(name: str, how: Callable[..., float], given: tuple) -> Any:
    """``how(*given)``, of numbers some of which are symbolic."""
    scope = next(x.scope for x in given if type(x) is Symbolic)
    values = [x.value if type(x) is Symbolic else x for x in given]
    text = f"{name}({', '.join(x.text if type(x) is Symbolic else repr(x) for x in given)})"

    def of(symbols: Any) -> Any:
        return how(*[x.of(symbols) if type(x) is Symbolic else x for x in given])

    found = how(*values)
    if type(found) is int:
        scope.atoms.add(text)
        return Symbolic(scope, text, found, of, {(text,): 1})
    return Symbolic(scope, text, found, of)


class replaced:  # noqa: N801  (used like a function)
    """Inside, they are. Blocks of several threads may overlap."""

    _lock = threading.Lock()
    _count = 0

    def __enter__(self) -> None:
        with replaced._lock:
            replaced._count += 1
            _put(_OURS, _PLAIN)

    def __exit__(self, *exc: object) -> None:
        with replaced._lock:
            replaced._count -= 1
            if not replaced._count:
                _put(_PLAIN, _OURS)

    @staticmethod
    def forked() -> None:
        """In a new process: the threads whose blocks these were are not in it."""
        replaced._lock, replaced._count = threading.Lock(), 0
        _put(_PLAIN, _OURS)


_Functions = dict[tuple[Any, str], Any]


def _put(functions: _Functions, instead: _Functions) -> None:
    """Put functions in the place of those that are theirs, and of no others."""
    for (module, name), function in functions.items():
        if getattr(module, name, None) is instead[module, name]:
            setattr(module, name, function)


_OURS: _Functions = {
    (builtins, "len"): Replacement(len, _len),
    **{(math, n): _of_numbers(n) for n in (*_FLOATS, *_INTS) if hasattr(math, n)},
}
_PLAIN: _Functions = {where: function.plain for where, function in _OURS.items()}
os.register_at_fork(after_in_child=replaced.forked)

__all__ = ["replaced"]
