"""What a program does with a number that it has read, as far as its code tells.

A number that is compared with others, or asked whether it is finite, decides by the answers alone;
one that is handed back decides nothing. The bytecode of the function that reads it is followed from
there, along all ways; a number that goes anywhere else may be used for anything.

This file knows code (its stack, its local names), and no tensors.
"""

from __future__ import annotations

import bisect
import dis
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_SILENT = frozenset("CACHE EXTENDED_ARG NOP RESUME NOT_TAKEN".split())
_PUSHES = frozenset("LOAD_CONST LOAD_FAST LOAD_GLOBAL LOAD_DEREF LOAD_NAME PUSH_NULL".split())
# How many values from the top of the stack an instruction looks at.
_TAKES = {
    **dict.fromkeys(_PUSHES, 0),
    **dict.fromkeys("BINARY_OP COMPARE_OP BINARY_SUBSCR IS_OP CONTAINS_OP".split(), 2),
    **dict.fromkeys("LOAD_ATTR LOAD_METHOD UNARY_NOT UNARY_NEGATIVE TO_BOOL".split(), 1),
    **dict.fromkeys("POP_TOP STORE_FAST BEFORE_WITH RETURN_VALUE".split(), 1),
    **dict.fromkeys("PRECALL KW_NAMES JUMP_FORWARD JUMP_BACKWARD".split(), 0),
}
_NAMES = {
    "LOAD_FAST_CHECK": "LOAD_FAST", "LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_SMALL_INT": "LOAD_CONST",
    "LOAD_COMMON_CONSTANT": "LOAD_CONST",
}  # fmt: skip
_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_MAKES = frozenset("BUILD_LIST BUILD_MAP BUILD_CONST_KEY_MAP".split())
_LOOKERS = frozenset("locals vars eval exec _getframe currentframe f_locals".split())
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ORDERS: dict[Any, Callable] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_TESTS = (math.isfinite, math.isnan, math.isinf, np.isfinite, np.isnan, np.isinf)
_MOST = 400  # instructions that one number is followed through


class Check(NamedTuple):
    """``how(number, other)``; of the number alone where there is no other."""

    how: Callable
    other: float | None = None

    def __str__(self) -> str:
        return f"{self.how.__name__}({'' if self.other is None else self.other})"

    def __call__(self, number: float) -> bool:
        """The answer for ``number``."""
        return bool(self.how(number) if self.other is None else self.how(number, self.other))


class Uses(NamedTuple):
    """All that becomes of a number: the tests that it takes, and whether it is handed back."""

    tests: tuple[Check, ...]
    returned: bool


class _Lost(Exception):  # noqa: N818  (an answer)
    """The number goes where nobody can follow."""


class _Ins(NamedTuple):
    """``effect``: on the height of the stack."""

    name: str
    arg: int
    value: Any
    effect: int


@functools.lru_cache(maxsize=1024)
def _listed(code: types.CodeType) -> tuple[list[_Ins], dict[int, int]]:
    """The instructions, and their places by offset."""
    found: list[_Ins] = []
    places: dict[int, int] = {}
    for ins in dis.get_instructions(code):
        places[ins.offset] = len(found)
        name, arg = _NAMES.get(ins.opname, ins.opname), ins.arg or 0
        if name in _PAIRS:
            for part, value in zip(_PAIRS[name], ins.argval, strict=True):
                found.append(_Ins(part, 0, value, 1 if part == "LOAD_FAST" else -1))
        elif name not in _SILENT:
            effect = dis.stack_effect(ins.opcode, ins.arg, jump=False)
            found.append(_Ins(name, arg, ins.argval, effect))
    return found, places


class _Following:
    """One number, from the call in ``frame`` that reads it. ``whole``: what the frame returns is
    the result of the program."""

    def __init__(self, frame: types.FrameType, whole: bool) -> None:
        self.frame, self.whole = frame, whole
        self.listed, self.places = _listed(frame.f_code)
        offsets = sorted(self.places)
        # (a call of Python code stands behind its instruction, in what is cached for it)
        self.at = self.places[offsets[bisect.bisect_right(offsets, frame.f_lasti) - 1]]
        code, several = frame.f_code, inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
        count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & several).bit_count()
        self.given = code.co_varnames[:count]
        self.tests: list[Check] = []
        self.returned = False
        self.names: set[tuple[str, bool]] = set()
        self.todo: list[tuple[int, int, bool]] = []
        stored = (ins.value for ins in self.listed if ins.name in ("STORE_FAST", "DELETE_FAST"))
        self.changed = set(stored)

    def uses(self) -> Uses:
        """Of the number that the call leaves on the stack."""
        code = self.frame.f_code
        if code.co_flags & _GENERATORS or _LOOKERS & {*code.co_names} or not self._reads():
            raise _Lost
        self.todo.append((self.at + 1, 0, False))
        seen: set[tuple[int, int, bool]] = set()
        while self.todo:
            state = self.todo.pop()
            if len(seen) > _MOST or not 0 <= state[0] < len(self.listed):
                raise _Lost
            if state not in seen:
                seen.add(state)
                self._follow(*state)
        return Uses(tuple(self.tests), self.returned)

    def _reads(self) -> bool:
        """Whether the call is ``t.item()`` or ``float(t)``, and nothing that calls these."""
        call = self.listed[self.at]
        if call.name != "CALL":
            return False
        if call.arg == 0:
            before = self.listed[self.at - 1]
            before = self.listed[self.at - 2] if before.name == "PRECALL" else before
            return before.name in ("LOAD_METHOD", "LOAD_ATTR") and before.value == "item"
        return call.arg == 1 and self._called(self.at) is float

    def _follow(self, at: int, above: int, packed: bool) -> None:
        """The instruction ``at``, with ``above`` values on top of the number, or of a tuple, list
        or dict that it is in (``packed``)."""
        ins = self.listed[at]
        if ins.name in _PUSHES and not above and not packed and self._compared(at):
            return
        if ins.name.startswith("BUILD_"):
            self._built(ins, at, above, packed)
        elif ins.name == "SWAP" and above in (0, ins.arg - 1):
            self.todo.append((at + 1, ins.arg - 1 - above, packed))
        elif ins.name == "CALL":
            self._passed(ins, at, above, packed)
        elif ins.name == "STORE_SUBSCR" and above == 2:
            self._put_into(self.listed[at - 2], self.listed[at - 1])
        elif packed and (
            (ins.name == "STORE_SUBSCR" and above == 1) or (above == 0 and _appends(ins))
        ):
            return  # something else is put there, too
        elif above >= _taken(ins):
            self._gone_on(ins, at, above, packed)
        elif ins.name == "RETURN_VALUE" and self.whole:
            self.returned = True
        elif ins.name == "STORE_FAST":
            self._named(ins.value, packed)
        elif ins.name != "POP_TOP":
            raise _Lost

    def _passed(self, ins: _Ins, at: int, above: int, packed: bool) -> None:
        """A call: of something above the number, or of a test of it."""
        if above >= ins.arg + 2:
            self.todo.append((at + 1, above - ins.arg - 1, packed))
        elif not above and ins.arg == 1 and not packed and self._called(at) in _TESTS:
            self.tests.append(Check(self._called(at)))
        elif not above and ins.arg == 1:
            self._appended(self._callee(at))
        else:
            raise _Lost

    def _appended(self, callee: int) -> None:
        """The number is given to what instruction ``callee`` gives: ``append`` of a list."""
        if _appends(self.listed[callee]):
            self._put_into(self.listed[callee - 1])
        elif _appends(self.listed[callee + 1]):  # (names that are imported, too, have this form)
            self._put_into(self.listed[callee])
        else:
            raise _Lost

    def _put_into(self, where: _Ins, key: _Ins | None = None) -> None:
        """The number is put into what ``where`` gives: a list or dict that the function has made
        for one local name (and nothing else)."""
        if where.name != "LOAD_FAST" or (key is not None and key.name != "LOAD_CONST"):
            raise _Lost
        name = where.value
        stores = [
            i for i, ins in enumerate(self.listed) if (ins.name, ins.value) == ("STORE_FAST", name)
        ]
        made = all(self.listed[i - 1].name in _MAKES for i in stores)
        if not made or name in self.given:
            raise _Lost
        self._named(name, True)

    def _gone_on(self, ins: _Ins, at: int, above: int, packed: bool) -> None:
        """To what comes after an instruction that does not look at the number."""
        if ins.name == "RETURN_VALUE":
            return
        height = above + (0 if ins.name == "PRECALL" else ins.effect)
        if "JUMP" in ins.name:
            self.todo.append((self.places[ins.value], height, packed))
        if ins.name not in ("JUMP_FORWARD", "JUMP_BACKWARD"):
            self.todo.append((at + 1, height, packed))

    def _built(self, ins: _Ins, at: int, above: int, packed: bool) -> None:
        """A tuple, list or dict is made, with the number in it or of other values."""
        kind = ins.name.removeprefix("BUILD_")
        taken = {"TUPLE": ins.arg, "LIST": ins.arg, "MAP": 2 * ins.arg}.get(kind, -1)
        taken = ins.arg + 1 if kind == "CONST_KEY_MAP" else taken
        if taken < 0 or (kind == "MAP" and above < taken and above % 2):
            raise _Lost
        inside = above < taken
        self.todo.append((at + 1, 0 if inside else above - taken + 1, packed or inside))

    def _named(self, name: str, packed: bool) -> None:
        """The number has a local name: it goes wherever that is looked up."""
        if (name, packed) not in self.names:
            self.names.add((name, packed))
            for at, ins in enumerate(self.listed):
                if ins.value == name and ins.name == "LOAD_FAST":
                    self.todo.append((at + 1, 0, packed))
                elif ins.value == name and ins.name.startswith("LOAD_FAST"):
                    raise _Lost

    def _compared(self, at: int) -> bool:
        """Whether the number is compared with the one that instruction ``at`` gives."""
        after = self.listed[at + 1]
        if after.name != "COMPARE_OP" or after.value not in _ORDERS:
            return False
        other = self._value(self.listed[at], at == self.at + 1)
        if not isinstance(other, (int, float)) or type(other) not in (int, float):
            return False
        self.tests.append(Check(_ORDERS[after.value], other))
        return True

    def _value(self, ins: _Ins, now: bool) -> object:
        """What an instruction puts on the stack, as far as that is known before it runs. ``now``:
        nothing runs before."""
        frame = self.frame
        if ins.name == "LOAD_CONST":
            return ins.value
        if ins.name == "LOAD_FAST" and (now or ins.value not in self.changed):
            return frame.f_locals.get(ins.value)
        if ins.name == "LOAD_DEREF" and now:
            return frame.f_locals.get(ins.value)
        if ins.name == "LOAD_GLOBAL" and now:
            return self._global(ins.value)
        return None

    def _global(self, name: str) -> Any:
        return self.frame.f_globals.get(name, self.frame.f_builtins.get(name))

    def _callee(self, at: int) -> int:
        """The instruction that gives what the call ``at``, of one argument, calls."""
        height = 1
        j = at - (self.listed[at - 1].name == "PRECALL")
        while height >= 0:
            j -= 1
            if j < 0 or "JUMP" in self.listed[j].name:
                raise _Lost
            height -= self.listed[j].effect
        return j - (self.listed[j].name == "PUSH_NULL")  # (newer Pythons push it behind)

    def _called(self, at: int) -> Any:
        """What the call ``at``, of one argument, calls, where that has a global name."""
        j = self._callee(at)
        if j and self.listed[j].name in ("LOAD_METHOD", "LOAD_ATTR"):  # (pushes two values)
            j -= 1
        found = self._global(self.listed[j].value) if self.listed[j].name == "LOAD_GLOBAL" else None
        after = self.listed[j + 1]
        if after.name not in ("LOAD_METHOD", "LOAD_ATTR"):
            return found
        return getattr(found, after.value, None) if isinstance(found, types.ModuleType) else None


def _appends(ins: _Ins) -> bool:
    return ins.name in ("LOAD_METHOD", "LOAD_ATTR") and ins.value == "append"


def _taken(ins: _Ins) -> int:
    """How many values from the top of the stack an instruction looks at; all, where that is not
    known."""
    if ins.name.startswith("POP_JUMP"):
        return 1
    return ins.arg if ins.name in ("SWAP", "COPY") else _TAKES.get(ins.name, 1 << 30)


def uses_of(frame: types.FrameType, whole: bool) -> Uses | None:
    """What becomes of the number that the running call in ``frame`` reads; None where its code does
    not tell."""
    try:
        return _Following(frame, whole).uses()
    except _Lost:
        return None
