"""Branches, loops, and functions of each element along the first dimension: Python's where no
function is traced; in one, operations (``control``), and elements that are told apart by number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .. import tree
from ..arrays import pieces
from ..func.vmap import vmap
from . import control
from .graph import CURRENT
from .operations import Operations


def as_list(found: Any) -> list:
    """What a function gives, as a list of results."""
    return list(found) if isinstance(found, (list, tuple)) else [found]


class Structured:
    """Control flow of what ``made`` says are tensors. A subclass says in which words."""

    # of operations: branches by a flag and by a number; putting together, taking apart
    kinds: ClassVar[tuple[str, str, str, str]] = ("If", "Case", "Stack", "Unbind")
    names = "branches"
    called: ClassVar[dict[str, str]] = {}  # what parameters that are functions are called
    unknown = "the number of elements along the first dimension is not known"

    def __init__(self, made: Operations | None = None) -> None:
        self.made = Operations() if made is None else made
        self.is_value, self.value, self.plain = (
            self.made.is_tensor, self.made.tensor, self.made.inner)  # fmt: skip

    def stack(self, values: list) -> Any:
        kind = self.kinds[2]
        return self.made.execute(kind, lambda *v: pieces.stack(v), self.made.alike(kind, values))

    def unstack(self, value: Any) -> list:
        return list(self.made.execute(self.kinds[3], pieces.unstack, [self.value(value)]))

    def _check(self, **functions: Any) -> None:
        for word, fn in functions.items():
            if not callable(fn):
                raise TypeError(f"'{self.called.get(word, word)}' must be callable.")

    # --- branches -------------------------------------------------------------------------------
    def cond(self, test: Any, yes: Any = None, no: Any = None) -> Any:
        """``yes()`` if ``test``, else ``no()``."""
        self._check(yes=yes, no=no)
        if CURRENT.get() is None or not self.is_value(test):
            return yes() if bool(test) else no()
        return control.cond(self.kinds[0], self.value(test), yes, no, self.names)

    def switch(self, index: Any, branches: Any, default: Any = None) -> Any:
        """The result of the function that ``index`` names (in a list, a dict, or pairs);
        ``default``, or the last, for other numbers."""
        pairs = branches.items() if isinstance(branches, dict) else (
            enumerate(branches) if callable(branches[0]) else branches)  # fmt: skip
        table = dict(pairs)
        fallback = default or table[max(table)]
        fns = [table.get(i, fallback) for i in range(max(table) + 1)] + [fallback]
        if CURRENT.get() is None:
            n = int(index)
            return fns[n if 0 <= n < len(fns) else -1]()
        graphs = [control.traced(f"branch_{i}", fn, []) for i, fn in enumerate(fns)]
        return control.branch(
            self.kinds[1], self.value(index), [g for g, _ in graphs], graphs[0][1]
        )

    def case(self, pairs: Any, default: Any = None) -> Any:
        """The result of the first function (of pairs: test, function) whose test holds."""
        pairs = list(pairs.items() if isinstance(pairs, dict) else pairs)
        if not pairs:
            return default()
        (test, fn), *rest = pairs
        last = fn if default is None and not rest else default
        return self.cond(test, fn, (lambda: self.case(rest, default)) if rest else last)

    def while_loop(self, test: Callable, body: Callable, start: Any, limit: Any = None) -> Any:
        """``values = body(*values)`` while ``test(*values)``, from ``start``, ``limit`` times at
        most."""
        self._check(test=test, body=body)
        most, count, values = None if limit is None else int(limit), 0, start
        if CURRENT.get() is None:
            while test(*values) and (most is None or count < most):
                values, count = as_list(body(*values)), count + 1
            values = tree.map(self.value, list(values))
        else:
            values = control.while_loop(test, lambda *v: as_list(body(*v)), list(start), most)
        return tuple(values) if isinstance(start, tuple) else values

    # --- elements -------------------------------------------------------------------------------
    def _over(self, elements: Any, step: Callable, values: list) -> Any:
        """``values = step(element, *values)`` for each element."""
        leaves, rebuild = tree.flatten(elements)
        parts = [self.value(t) for t in leaves]
        count = parts[0].shape[0]
        if count is None:
            raise NotImplementedError(self.unknown)
        columns = [self.unstack(t) for t in parts]
        for i in range(count):
            values = step(rebuild([c[i] for c in columns]), *values)
        return values

    def _together(self, found: list) -> Any:
        rows = [tree.leaves(tree.by_key(f)) for f in found]
        rebuild = tree.flatten(tree.by_key(found[0]))[1]
        return rebuild([self.stack(list(column)) for column in zip(*rows, strict=True)])

    def _backward(self, elements: Any) -> Any:
        return tree.map(lambda t: self.stack(self.unstack(self.value(t))[::-1]), elements)

    def _start(self, state: Any) -> list:
        return [] if state is None else [tree.map(self.value, state)]

    def map(self, fn: Callable, elements: Any) -> Any:
        """``fn`` of each element, stacked."""
        found: list[Any] = []

        def step(x: Any) -> list:
            found.append(fn(x))
            return []

        self._over(elements, step, [])
        return self._together(found)

    def scan(self, fn: Callable, elements: Any, state: Any = None, reverse: bool = False) -> Any:
        """``state = fn(state, element)``, which begins with the first element where no state is
        given: all states, stacked."""
        states: list[Any] = []

        def step(x: Any, *before: Any) -> list:
            states.append(tree.map(self.value, fn(before[0], x) if before else x))
            return [states[-1]]

        self._over(self._backward(elements) if reverse else elements, step, self._start(state))
        return self._together(states[::-1] if reverse else states)

    def fold(self, fn: Callable, elements: Any, state: Any = None) -> Any:
        """The last state of ``scan``."""
        step = lambda x, *s: [fn(s[0], x) if s else x]  # noqa: E731
        return self._over(elements, step, self._start(state))[0]

    def fold_back(self, fn: Callable, elements: Any, state: Any = None) -> Any:
        """As ``fold``, from the last element on."""
        return self.fold(fn, self._backward(elements), state)

    def at_once(self, fn: Callable, elements: Any) -> Any:
        """``fn`` of all elements at once, where no function is traced."""
        if CURRENT.get() is not None:
            return self.map(fn, elements)
        leaves, rebuild = tree.flatten(elements)
        out: list[Any] = []

        def one(*values: Any) -> tuple:
            found = fn(rebuild([self.value(v) for v in values]))
            rows, out[:] = _apart(tree.map(self.value, found))
            return tuple(self.plain(r) for r in rows)

        results = vmap(one)(*[self.plain(t) for t in leaves])
        return out[0]([self.value(r) for r in results])


def _apart(found: Any) -> tuple[list, list]:
    leaves, rebuild = tree.flatten(found)
    return leaves, [rebuild]


__all__ = ["Structured", "as_list"]
