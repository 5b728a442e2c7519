"""Where a program asks whether two things are one object, which no symbolic number can answer.

``n is 3`` is true of small ints that are equal, as it happens; a symbol for ``n`` is another object
than any. So a program that may ask so of a number is captured for each size. That it does not is
told by its code: one side is no number (None, a text, a class, a function, ``type(x)``). Functions
that ask so (``id`` among them) are known by what they are, whatever the program calls them.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import operator
import types
from collections.abc import Iterable, Sequence
from typing import Any

from ..guards.kinds import USER, file_kind

_SILENT = frozenset("CACHE EXTENDED_ARG NOP RESUME PRECALL PUSH_NULL".split())
_LOADS = frozenset("LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_DEREF LOAD_GLOBAL".split())
_NUMBERS = (int, float, complex)
_FUNCTIONS = (operator.is_, operator.is_not, id)
_NAMES = frozenset({"is_", "is_not"})


def asked_at(codes: Iterable[tuple[types.CodeType, dict]]) -> str | None:
    """Where code of the program, each with its globals, may ask so of a number."""
    for code, space in codes:
        if file_kind(code.co_filename) == USER:
            for line, chain in _loaded(code):
                if _asks_so(_found(chain, space)):
                    return f"{code.co_filename}:{line} in {code.co_name}"
            for line, before in _asks(code):
                if not any(_is_none(part, space) for part in _operands(before)):
                    return f"{code.co_filename}:{line} in {code.co_name}"
    return None


@functools.lru_cache(maxsize=4096)
def _asks(code: types.CodeType) -> list[tuple[int, list[dis.Instruction]]]:
    """The lines of all such questions, with the instructions before each, the last one first."""
    listed = [ins for ins in dis.get_instructions(code) if ins.opname not in _SILENT]
    found, line = [], code.co_firstlineno
    for i, ins in enumerate(listed):
        line = (ins.positions.lineno if ins.positions else None) or line
        if ins.opname == "IS_OP":
            found.append((line, listed[max(0, i - 8) : i][::-1]))
        elif ins.argval in _NAMES and ins.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"):
            found.append((line, []))
    return found


@functools.lru_cache(maxsize=4096)
def _loaded(code: types.CodeType) -> list[tuple[int, list[str]]]:
    """The names of globals, each with the attributes that are looked up on it, and their lines."""
    found, line, open_ = list[tuple[int, list[str]]](), code.co_firstlineno, False
    for ins in dis.get_instructions(code):
        line = (ins.positions.lineno if ins.positions else None) or line
        if ins.opname == "LOAD_GLOBAL":
            found.append((line, [ins.argval]))
        elif open_ and ins.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            found.append((line, [*found[-1][1], ins.argval]))
        elif ins.opname in _SILENT:
            continue
        open_ = ins.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD") and bool(found)
    return found


def _found(chain: list[str], space: dict) -> Any:
    """What such names stand for, where no code of a class tells it; else None."""
    value = space.get(chain[0], getattr(builtins, chain[0], None))
    for name in chain[1:]:
        value = inspect.getattr_static(value, name, None)
    return value


def _asks_so(value: Any) -> bool:
    while isinstance(value, (functools.partial, staticmethod)):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    return any(value is f for f in _FUNCTIONS)


def _operands(before: list[dis.Instruction]) -> list[Sequence[dis.Instruction]]:
    """The instructions that make both operands, each the last one first; only the right one's where
    that is not to be told."""
    length = _length(before)
    if length is None:
        return [before[:1]]
    return [before[:length], before[length:][: _length(before[length:]) or 1]]


def _length(before: list[dis.Instruction]) -> int | None:
    """How many instructions make what is on top of the stack, where these are simple ones."""
    count = 0
    while count < len(before) and before[count].opname == "LOAD_ATTR":
        count += 1
    if count == len(before):
        return None
    ins = before[count]
    if ins.opname.startswith("CALL") and ins.arg == 1:
        return count + 3
    simple = ins.opname in _LOADS or ins.opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT"))
    return count + 1 if simple else None


def _is_none(part: Sequence[dis.Instruction], space: dict) -> bool:
    """Whether what these instructions make is no number."""
    if not part:
        return False
    last, first = part[0], part[-1]
    if last.opname == "LOAD_ATTR":
        if last.argval in ("__class__", "dtype", "device"):
            return True
        value = _global(first, space)
        return isinstance(value, types.ModuleType) and not _counts(getattr(value, last.argval, 0))
    if last.opname.startswith("CALL"):
        return len(part) == 3 and _global(first, space) is type
    if last.opname.startswith("LOAD_CONST"):
        return not _counts(last.argval)
    return last.opname == "LOAD_GLOBAL" and not _counts(_global(last, space))


def _global(ins: dis.Instruction, space: dict) -> Any:
    if ins.opname != "LOAD_GLOBAL":
        return 0
    return space.get(ins.argval, getattr(builtins, ins.argval, 0))


def _counts(value: object) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


__all__ = ["asked_at"]
