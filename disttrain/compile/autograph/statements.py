"""What converted functions call (see ``conversion``): Python's statements, of staged values or
not."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import tree
from .conversion import converted


class Undefined:
    """A variable that has no value yet."""

    def __init__(self, name: str, where: str = "") -> None:
        self.name, self.where = name, where  # the branch that left it so

    def error(self) -> Exception:
        """What is raised when it is read."""
        if self.where:
            return ValueError(f"'{self.name}' must also be initialized in the {self.where} branch")
        return UnboundLocalError(f"local variable {self.name!r} referenced before assignment")

    def __getattr__(self, word: str) -> Any:
        raise self.error()

    def __bool__(self) -> bool:
        raise self.error()


class Border:
    """What those who stage values tell of them, and the operations that stand for statements."""

    builtins: dict[Any, Any] = {}  # what is called in place of Python's own functions

    def is_staged(self, value: Any) -> bool:
        """Whether ``value`` is one whose number Python cannot ask for."""
        raise NotImplementedError

    def is_value(self, value: Any) -> bool:
        """Whether it is a value, staged or not, and no object of Python's."""
        raise NotImplementedError

    def value(self, value: Any) -> Any:
        """The value of a number, or a value."""
        raise NotImplementedError

    def kind(self, value: Any) -> str:
        """What is to be alike in both branches: the name of its type."""
        raise NotImplementedError

    def is_sequence(self, value: Any) -> bool:
        """Whether a loop over ``value`` is one operation."""
        raise NotImplementedError

    def begin(self, body: Callable) -> Any:
        """A program of ``body()``, whose results are not known yet."""
        raise NotImplementedError

    def finish(self, program: Any, values: list) -> Any:
        """The program with its results."""
        raise NotImplementedError

    def choose(self, test: Any, programs: list, rebuild: Callable) -> Any:
        """The results of the first of two programs if ``test``, else of the second."""
        raise NotImplementedError

    def cond(self, test: Any, yes: Callable, no: Callable) -> Any:
        """``yes()`` if ``test``, else ``no()``."""
        raise NotImplementedError

    def blank(self, value: Any) -> Any:
        """Zeros of the type and shape of ``value``."""
        raise NotImplementedError

    def element(self, over: Any) -> Any:
        """What stands for an element of a sequence that is staged."""
        raise NotImplementedError

    def while_loop(self, test: Callable, body: Callable, values: list, names: list) -> list:
        """``values = body(*values)`` while ``test(*values)``."""
        raise NotImplementedError

    def for_loop(
        self, over: Any, body: Callable, values: list, names: list, go_on: Callable | None
    ) -> list:
        """``values = body(element, *values)`` for each element, while ``go_on(*values)``."""
        raise NotImplementedError

    def logical(self, word: str, *values: Any) -> Any:
        """``and``, ``or``, ``not`` of values."""
        raise NotImplementedError

    def check(self, test: Any, message: Any) -> None:
        """Raise unless ``test``, when the program runs."""
        raise NotImplementedError


class Statements:
    """The statements of one border."""

    Undefined = Undefined

    def __init__(self, border: Border) -> None:
        self.border = border

    def if_stmt(
        self, test: Any, yes: Callable, no: Callable, get: Callable, put: Callable, names: list
    ) -> None:
        """``if test: yes() else: no()``, which set the variables ``names``."""
        if not self.border.is_staged(test):
            (yes if test else no)()
            return
        before = get()
        ends: list[list] = []
        programs = []
        for body in (yes, no):
            put(before)
            programs.append(self.border.begin(_ending(body, get, ends)))
        changed = [i for i in range(len(names)) if not (ends[0][i] is before[i] is ends[1][i])]
        changed = [i for i in changed if not _same(ends[0][i], ends[1][i])]
        changed = [i for i in changed if not self._left_out(names[i], ends, i)]
        for i in changed:
            self._alike(names[i], ends[0][i], ends[1][i])
        done = [self.border.finish(p, [e[i] for i in changed])
                for p, e in zip(programs, ends, strict=True)]  # fmt: skip
        _, rebuild = tree.flatten(tree.by_key([ends[0][i] for i in changed]))
        found = self.border.choose(test, done, rebuild)
        known = dict(zip(changed, found, strict=True))
        put(tuple(known.get(i, ends[0][i]) for i in range(len(names))))

    def _left_out(self, name: str, ends: list[list], i: int) -> bool:
        """Whether a branch gives no value: who reads the variable later is told."""
        for end, where in zip(ends, ("main", "else"), strict=True):
            if isinstance(end[i], Undefined):
                ends[0][i] = Undefined(name, where)
                return True
        return False

    def _alike(self, name: str, a: Any, b: Any) -> None:
        """Raise unless both branches leave values of one type."""
        for value, where in ((a, "main"), (b, "else")):
            if value is None:
                raise ValueError(f"'{name}' must also be initialized in the {where} branch")
        for x, y in zip(*(tree.leaves(tree.by_key(v)) for v in (a, b)), strict=False):
            one, other = self.border.kind(x), self.border.kind(y)
            if one != other:
                raise TypeError(f"'{name}' has dtype {one} in the main branch, but dtype "
                                f"{other} in "
                                "the else branch")  # fmt: skip

    def if_return(
        self, test: Any, yes: Callable, no: Callable, get: Callable, put: Callable, names: list
    ) -> Any:
        """``if`` whose branches return."""
        if not self.border.is_staged(test):
            return (yes if test else no)()
        before = get()
        return self.border.cond(test, _from(before, put, yes), _from(before, put, no))

    def if_exp(self, test: Any, yes: Callable, no: Callable) -> Any:
        """``yes() if test else no()``."""
        if self.border.is_staged(test):
            return self.border.cond(test, yes, no)
        return yes() if test else no()

    # --- loops ----------------------------------------------------------------------------------
    def _live(self, values: tuple) -> list[int]:
        """Which variables of a loop are its state: those that are values or numbers before it."""
        return [
            i for i, v in enumerate(values)
            if not isinstance(v, Undefined) and v is not None and all(map(self._is_state,
                tree.leaves(v)))
        ]  # fmt: skip

    def _begun(
        self, get: Callable, put: Callable, names: list, later: Sequence, body: Callable
    ) -> tuple:
        """The variables before a loop. Those that only the loop sets, and that are read ``later``,
        have zeros, of the type that one iteration leaves."""
        before = get()
        open_ = [i for i, v in enumerate(before) if isinstance(v, Undefined) and names[i] in later]
        if not open_:
            return before
        ends: list[list] = []
        self.border.begin(_ending(body, get, ends))
        now = list(before)
        for i in open_:
            if all(map(self._is_state, tree.leaves(ends[0][i]))):
                now[i] = tree.map(self.border.blank, ends[0][i])
        put(tuple(now))
        return tuple(now)

    def _is_state(self, value: Any) -> bool:
        numbers = (int, float, complex, np.ndarray, np.generic)
        return isinstance(value, numbers) or self.border.is_value(value)

    def while_stmt(
        self, test: Callable, body: Callable, get: Callable, put: Callable, names: list,
        later: Sequence = (),
    ) -> None:  # fmt: skip
        """``while test(): body()``."""
        found = test()
        if not self.border.is_staged(found):
            while found:
                body()
                found = test()
            return
        before = self._begun(get, put, names, later, body)
        live = self._live(before)
        found = self.border.while_loop(
            lambda *v: _with(before, live, v, put, test),
            lambda *v: self._step(before, live, v, get, put, body),
            [before[i] for i in live], [names[i] for i in live],
        )  # fmt: skip
        _with(before, live, found, put)

    def for_stmt(
        self, over: Any, body: Callable, get: Callable, put: Callable, names: list,
        later: Sequence = (), go_on: Callable | None = None,
    ) -> None:  # fmt: skip
        """``for x in over: body(x)``, while ``go_on()``."""
        if not self.border.is_sequence(over):
            for item in over:
                if go_on is not None and not go_on():
                    break
                body(item)
            return
        before = self._begun(get, put, names, later, lambda: body(self.border.element(over)))
        live = self._live(before)
        more = None if go_on is None else (lambda *v: _with(before, live, v, put, go_on))
        found = self.border.for_loop(
            over, lambda x, *v: self._step(before, live, v, get, put, lambda: body(x)),
            [before[i] for i in live], [names[i] for i in live], more,
        )  # fmt: skip
        _with(before, live, found, put)

    def _step(
        self, before: tuple, live: list, values: tuple, get: Callable, put: Callable, body: Callable
    ) -> list:
        _with(before, live, values, put, body)
        after = get()
        return [tree.map(self.border.value, after[i]) for i in live]

    # --- variables ------------------------------------------------------------------------------
    def read(self, value: Any) -> Any:
        """A variable, which has to have a value."""
        if value.__class__ is Undefined:
            raise value.error()
        return value

    def place(self, get: Callable, name: str) -> Any:
        """An attribute or an item, if it is there."""
        try:
            return get()
        except (AttributeError, LookupError, NameError, TypeError):
            return Undefined(name)

    # --- expressions ----------------------------------------------------------------------------
    def and_(self, a: Callable, b: Callable) -> Any:
        """``a() and b()``."""
        first = a()
        return self.border.logical("and", first, b()) if self.border.is_staged(first) else (
            first and b())  # fmt: skip

    def or_(self, a: Callable, b: Callable) -> Any:
        """``a() or b()``."""
        first = a()
        return self.border.logical("or", first, b()) if self.border.is_staged(first) else (
            first or b())  # fmt: skip

    def not_(self, a: Any) -> Any:
        """``not a``."""
        return self.border.logical("not", a) if self.border.is_staged(a) else not a

    def assert_(self, test: Any, message: Callable) -> None:
        """``assert test, message()``."""
        if self.border.is_staged(test):
            self.border.check(test, message() or "assertion failed")
        else:
            assert test, message()

    def call(self, fn: Any) -> Any:
        """What is called in place of ``fn``: its converted form."""
        if isinstance(fn, (types.FunctionType, types.MethodType)):
            return converted(fn, self)
        if isinstance(fn, (type, types.BuiltinFunctionType)):
            return self.border.builtins.get(fn, fn)
        if isinstance(fn, functools.partial):
            return functools.partial(self.call(fn.func), *fn.args, **fn.keywords)
        own = getattr(type(fn), "__call__", None)  # noqa: B004  (the function, not whether)
        if inspect.isfunction(own) and not hasattr(fn, "python_function"):
            inner = converted(own, self)
            return fn if inner is own else types.MethodType(inner, fn)
        return fn


def _ending(body: Callable, get: Callable, ends: list[list]) -> Callable:
    def branch() -> None:
        body()
        ends.append(list(get()))

    return branch


def _from(before: tuple, put: Callable, body: Callable) -> Callable:
    def branch() -> Any:
        put(before)
        return body()

    return branch


def _with(before: tuple, live: list, values: Any, put: Callable, fn: Callable | None = None) -> Any:
    """Set the variables to ``before``, those that are ``live`` to ``values``, and call ``fn``."""
    now = list(before)
    for i, v in zip(live, values, strict=True):
        now[i] = v
    put(tuple(now))
    return None if fn is None else fn()


def _same(a: Any, b: Any) -> bool:
    """Whether two branches leave one value of Python's."""
    if a is b or (isinstance(a, Undefined) and isinstance(b, Undefined)):
        return True
    plain = (int, float, str, bool, bytes, type(None))
    return type(a) is type(b) and isinstance(a, plain) and a == b
