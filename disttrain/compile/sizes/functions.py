"""Python's own functions of sizes, which are C code and would take the value of a symbolic number.

While a symbolic run goes on, the functions of the program that is run have other code: the same,
but that it calls ``len``, ``int``, ``float``, ``type`` and functions of ``math`` by ones that give
a symbolic number for one, and do what they always do with all else. Nothing outside of the program
is touched, and other threads that run its functions meanwhile cannot tell. What somebody has put in
the place of such a function stays there: it is a function of Python's, which symbolic numbers go
through.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import opcode
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...core.tensor import Tensor
from ...symbolic import Symbolic, as_float, as_int
from ..guards.holders import Holder
from ..guards.readers import function_parts
from ..originals import Original, original_code

_FLOATS = (
    "acos acosh asin asinh atan atan2 atanh cbrt copysign cos cosh degrees erf erfc exp exp2 expm1 "
    "fabs fmod hypot log log10 log1p log2 pow radians remainder sin sinh sqrt tan tanh"
).split()
_INTS = ("isqrt", "gcd", "comb")
_NOP, _PUSH_NULL = opcode.opmap["NOP"], opcode.opmap["PUSH_NULL"]
_LOAD_CONST, _EXTENDED_ARG = opcode.opmap["LOAD_CONST"], opcode.opmap["EXTENDED_ARG"]
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


# --- what is called instead -----------------------------------------------------------------------
def _len(x: Any, /) -> Any:
    return type(x).__len__(x) if isinstance(x, Tensor) else len(x)


def _int(*given: Any, **words: Any) -> Any:
    alone = len(given) == 1 and not words and type(given[0]) is Symbolic
    return as_int(given[0]) if alone else int(*given, **words)


def _float(*given: Any) -> Any:
    alone = len(given) == 1 and type(given[0]) is Symbolic
    return as_float(given[0]) if alone else float(*given)


def _type(*given: Any, **words: Any) -> Any:
    alone = len(given) == 1 and type(given[0]) is Symbolic
    return given[0].__class__ if alone else type(*given, **words)


def _of_numbers(name: str) -> Callable[..., Any]:
    """``math``'s function of this name."""
    plain = getattr(math, name)

    def run(*given: Any) -> Any:
        if not any(type(x) is Symbolic for x in given):
            return plain(*given)
        return _applied(f"math.{name}", plain, given)

    return run


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


class _Math:
    """The module, with those functions."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(math, name)
        return _CALLED.get(id(found), found)


_math = _Math()
# By id of what a global name may stand for.
_CALLED: dict[int, Any] = {
    id(len): _len, id(int): _int, id(float): _float, id(type): _type,
    **{id(getattr(math, n)): _of_numbers(n) for n in (*_FLOATS, *_INTS) if hasattr(math, n)},
}  # fmt: skip


# --- code that calls it ---------------------------------------------------------------------------
def rewritten(code: types.CodeType, space: dict) -> types.CodeType:
    """``code``, run on the globals ``space``, with calls of those functions in place of Python's;
    itself where it has none."""
    constants = [
        rewritten(c, space) if isinstance(c, types.CodeType) else c for c in code.co_consts
    ]
    text = bytearray(code.co_code)
    listed = [ins for ins in dis.get_instructions(code) if ins.opname != "CACHE"]
    ends = [*(ins.offset for ins in listed[1:]), len(text)]
    for i, ins in enumerate(listed):
        other = _instead(ins, listed[i + 1 : i + 2], space)
        if other is None or (ins.arg or 0) > 255 or len(constants) > 0xFFFF:
            continue
        loads = _loads(len(constants), bool((ins.arg or 0) & 1))
        room = (ends[i] - ins.offset) // 2
        if len(loads) <= room:  # (what is cached for a global takes more room than this)
            constants.append(other)
            loads += [(_NOP, 0)] * (room - len(loads))
            text[ins.offset : ends[i]] = bytes(b for pair in loads for b in pair)
    if all(a is b for a, b in zip(constants, code.co_consts, strict=False)) and (
        len(constants) == len(code.co_consts)
    ):
        return code
    return code.replace(co_code=bytes(text), co_consts=(*constants, Original(code)))


def _instead(ins: dis.Instruction, after: list[dis.Instruction], space: dict) -> Any:
    """What to load for an instruction that loads one of those functions to call it, or their
    module; None for all others."""
    if ins.opname != "LOAD_GLOBAL":
        return None
    value = space.get(ins.argval, getattr(builtins, ins.argval, None))
    if value is math:
        return _math if after and after[0].opname in _ATTRIBUTES else None
    return _CALLED.get(id(value)) if (ins.arg or 0) & 1 else None


def _loads(number: int, with_null: bool) -> list[tuple[int, int]]:
    """Instructions that push a constant, and beneath it (above, since 3.13) what a call needs."""
    more = [(_EXTENDED_ARG, number >> 8)] if number > 255 else []
    load, null = [*more, (_LOAD_CONST, number & 255)], [(_PUSH_NULL, 0)] * with_null
    return load + null if sys.version_info >= (3, 13) else null + load


# --- functions that have it -----------------------------------------------------------------------
class replaced:  # noqa: N801  (used like a function)
    """Inside, functions that ``holders`` hold have that code. Blocks of several threads may
    overlap."""

    _lock = threading.Lock()
    _inside: dict[int, list] = {}  # by id: a function, its code of then, and how many blocks

    def __init__(self, holders: Iterable[Holder]) -> None:
        self.functions = list({id(f): f for f in _functions(holders)}.values())

    def __enter__(self) -> None:
        with replaced._lock:
            for f in self.functions:
                known = replaced._inside.setdefault(id(f), [f, f.__code__, 0])
                known[2] += 1
                if known[2] == 1:
                    code = rewritten(f.__code__, f.__globals__)
                    if code is not f.__code__:
                        f.__code__ = code

    def __exit__(self, *exc: object) -> None:
        with replaced._lock:
            for f in self.functions:
                known = replaced._inside[id(f)]
                known[2] -= 1
                if not known[2]:
                    _put_back(*replaced._inside.pop(id(f)))

    @staticmethod
    def forked() -> None:
        """In a new process: the threads whose blocks these were are not in it."""
        for known in replaced._inside.values():
            _put_back(*known)
        replaced._lock, replaced._inside = threading.Lock(), {}


def _put_back(f: types.FunctionType, code: types.CodeType, count: int) -> None:
    if (
        f.__code__ is not code and original_code(f.__code__) is code
    ):  # (else somebody has replaced it)
        f.__code__ = code


def _functions(holders: Iterable[Holder]) -> Iterator[types.FunctionType]:
    for h in holders:
        if isinstance(h.reader, functools.partial) and h.reader.func is function_parts:
            yield h.reader.args[0]


os.register_at_fork(after_in_child=replaced.forked)

__all__ = ["replaced", "rewritten"]
