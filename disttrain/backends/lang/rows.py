"""Kernels and expressions one after the other as one kernel, row by row.

    rows = Rows({"y": "y0"})                    the values that are wanted, and their arrays
    rows.take(Array("x", "float32"))
    rows.define("scaled", var("x") * 0.5)       a value: an expression of others, and of arrays
    rows.run(softmax_kernel, {"x": "scaled"}, {"out": "p"}, {})
    rows.define("y", var("p") + 1)
    kernel = rows.kernel("chain")

A value is no array: its expression stands where it is used. What several loops of a kernel need,
and what takes long, is kept for the row: in the array where it is wanted, or where another one
comes later, or else in a line of its own, which each row uses again (``Rows.lines``). Loops keep
the order in which they add numbers up, so that the bits are those of the kernels by themselves.

Pure data, as the kernels are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from .expr import Expr, substitute, var, variables, walk
from .kernel import COSTLY, Array, Kernel, Let, Loop, Put, Reduce, Scalar, Store, copies_of

_CHEAP = 2  # operations that are done again rather than kept


class _Pending(NamedTuple):
    """A store that the next loop makes; ``value``: what lies in the array after it, if all does."""

    store: Store
    value: str | None


class Rows:
    """Builds a kernel. ``wanted``: the arrays of the values that are to be written."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self.wanted = dict(wanted)
        self.given: list[Array | Scalar] = []
        self.made: dict[str, Array] = {}
        self.lines: list[Array] = []  # of a row's numbers that are kept
        self.steps: list[Loop | Let | Put] = []
        self.values: dict[str, Expr] = {}
        self.kinds: dict[str, str] = {}
        self.places: dict[str, str] = {}  # the arrays that hold values from here on
        self.pending: list[_Pending] = []
        self.known: dict[Expr, Expr] = {}  # what is at hand between two loops
        self.runs = 0

    # --- values -----------------------------------------------------------------------------
    def take(self, param: Array | Scalar) -> None:
        """An array that is read, or a number."""
        self.given.append(param)

    def define(self, name: str, value: Expr, kind: str) -> None:
        """A value with an element for each column, of a type."""
        self.values[name], self.kinds[name] = value, kind
        if name in self.wanted:
            self._write(self.wanted[name], name)

    def add_up(self, array: Array, name: str) -> None:
        """Add a value to the lines of ``array``, row after row."""
        self.made[array.name] = array
        self.pending.append(_Pending(Store(array.name, var(name), add=True), None))

    def _write(self, array: str, name: str) -> None:
        self.made.setdefault(array, Array(array, self.kinds[name], writes=True))
        self.pending.append(_Pending(Store(array, var(name)), name))

    def _line(self, kind: str) -> str:
        line = Array(f"line{len(self.lines)}", kind, "col", writes=True)
        self.lines.append(line)
        return line.name

    def at_hand(self, expr: Expr) -> Expr:
        """``expr`` of what there is: arrays, numbers, and what rows have in common."""
        if expr not in self.known:
            env = {}
            for name in variables(expr):
                if name in self.places:
                    env[name] = var(self.places[name])
                elif name in self.values:
                    env[name] = self.at_hand(self.values[name])
            self.known[expr] = substitute(expr, env) if env else expr
        return self.known[expr]

    # --- kernels ----------------------------------------------------------------------------
    def run(
        self,
        kernel: Kernel,
        given: Mapping[str, str],
        made: Mapping[str, str],
        sums: Mapping[str, Array],
    ) -> None:
        """All steps of a kernel. ``given``: the values or arrays that it reads; ``made``: the
        values that its arrays become; ``sums``: the arrays for its sums over rows that are wanted.
        Its numbers become parameters (``number_of``)."""
        self.runs += 1
        run = _Run(self, kernel, f"r{self.runs}", made, sums)
        run.env.update((name, var(value)) for name, value in given.items())
        for step in kernel.steps:
            run.step(step)

    def loop(self, body: list[Store | Reduce], copies: int) -> None:
        """One pass over the row, which also makes what is pending."""
        stores = [replace(p.store, value=self.at_hand(p.store.value)) for p in self.pending]
        self.steps.append(Loop((*body, *stores), copies))
        self.places.update((p.value, p.store.array) for p in self.pending if p.value is not None)
        self.pending, self.known = [], {}

    def keep(self, name: str) -> None:
        """Have a value in an array from the next loop on, where it takes long to compute again."""
        if name not in self.values or name in self.places:
            return
        if any(p.value == name for p in self.pending) or not _is_costly(self.at_hand(var(name))):
            return
        self.pending.append(_Pending(Store(self._line(self.kinds[name]), var(name)), name))

    def ahead(self, names: Iterable[str]) -> None:
        """Make what takes long in a loop of its own before one that adds up the values: that has
        copies of its body side by side, for which there are too few registers then."""
        for name in names:
            if name in self.values and _has_functions(self.at_hand(var(name))):
                self.keep(name)
        if any(_has_functions(self.at_hand(p.store.value)) for p in self.pending):
            self.loop([], 0)

    def kernel(self, name: str) -> Kernel:
        """What has been built. Its parameters: what was given, results and sums as they came,
        lines."""
        if self.pending:
            self.loop([], 0)
        steps = tuple(self.steps)
        for line in self.lines[::-1]:
            room = _room_for(line, steps, self.made)
            if room is not None:
                steps = tuple(renamed(step, line.name, room) for step in steps)
                self.lines.remove(line)
        return Kernel(name, (*self.given, *self.made.values(), *self.lines), steps)


class _Run:
    """One kernel among others: its names get a prefix."""

    def __init__(
        self, rows: Rows, kernel: Kernel, prefix: str, made: Mapping[str, str],
        sums: Mapping[str, Array],
    ) -> None:  # fmt: skip
        self.rows, self.kernel, self.prefix = rows, kernel, prefix
        self.made, self.sums = made, sums
        self.arrays = {a.name: a for a in kernel.arrays}
        self.env: dict[str, Expr] = {}
        for s in kernel.scalars:
            self._own(s.name)
            rows.take(replace(s, name=number_of(rows.runs, s.name)))
        self.last = {s.array: i for i, s in _stores(kernel) if not s.add}

    def _own(self, name: str) -> str:
        own = f"{self.prefix}_{name}"
        self.env[name] = var(own)
        return own

    def _value(self, expr: Expr) -> Expr:
        return substitute(expr, self.env)

    def step(self, step: Loop | Let | Put) -> None:
        """Add a step of the kernel to the rows."""
        if isinstance(step, Loop):
            self._loop(step)
        elif isinstance(step, Let):
            value = self.rows.at_hand(self._value(step.value))
            self.rows.steps.append(Let(self._own(step.name), value))
        else:
            self._put(step)

    def _put(self, s: Put) -> None:
        """A number of the row: a name for it, and its array where it is wanted."""
        rows, name = self.rows, self.made.get(s.array)
        value = rows.at_hand(self._value(s.value))
        if name is None:
            return
        rows.steps.append(Let(self._own(s.array), value))
        rows.values[name] = self.env[s.array]
        if name in rows.wanted:
            array = replace(self.arrays[s.array], name=rows.wanted[name])
            rows.made[array.name] = array
            rows.steps.append(Put(array.name, self.env[s.array]))

    def _loop(self, step: Loop) -> None:
        rows, here = self.rows, self.kernel.steps.index(step)
        for name in self._read_often(step, here):
            rows.keep(name)
        if any(isinstance(s, Reduce) for s in step.body):
            rows.ahead(self._read(step))
        body: list[Store | Reduce] = []
        for s in step.body:
            if isinstance(s, Reduce):
                body.append(replace(s, value=rows.at_hand(self._value(s.value))))
            elif s.add and s.array in self.sums:
                rows.made[self.sums[s.array].name] = self.sums[s.array]
                value = rows.at_hand(self._value(s.value))
                body.append(Store(self.sums[s.array].name, value, add=True))
        finals = [s for s in step.body if isinstance(s, Store) and not s.add]
        body += [self._early(s) for s in finals if self.last[s.array] != here]
        for s in finals:
            if self.last[s.array] == here:
                rows.define(self.made[s.array], self._value(s.value), self.arrays[s.array].dtype)
        if body:
            rows.loop([self._named(s) for s in body], copies_of(step))

    def _early(self, s: Store) -> Store:
        """What is written to a result and replaced later: kept for the row."""
        line = self.rows._line(self.arrays[s.array].dtype)
        value = self.rows.at_hand(self._value(s.value))
        self.env[s.array] = var(line)
        return Store(line, value)

    def _named(self, s: Store | Reduce) -> Store | Reduce:
        return replace(s, name=self._own(s.name)) if isinstance(s, Reduce) else s

    def _read_often(self, step: Loop, here: int) -> Iterator[str]:
        """The values that this loop reads, and a later one, too."""
        again = {name for other in self.kernel.steps[here + 1 :] for name in reads(other)}
        yield from self._read(step, again)

    def _read(self, step: Loop, among: set[str] | None = None) -> Iterator[str]:
        """The values that a loop reads."""
        for name in dict.fromkeys(n for s in step.body for n in variables(s.value)):
            value = self.env.get(name)
            if value is not None and value.op == "var" and (among is None or name in among):
                yield value.attr


def number_of(run: int, name: str) -> str:
    """The parameter that a number of the kernel that was run as number ``run`` (from 1) has."""
    return f"r{run}_{name}"


def _body(step: Loop | Let | Put) -> tuple:
    return step.body if isinstance(step, Loop) else (step,)


def _stores(kernel: Kernel) -> Iterator[tuple[int, Store]]:
    for i, step in enumerate(kernel.steps):
        yield from ((i, s) for s in _body(step) if isinstance(s, Store))


def _is_costly(expr: Expr) -> bool:
    nodes = [n for n in walk(expr) if n.op not in ("var", "const")]
    return len(nodes) > _CHEAP or _has_functions(expr)


def _has_functions(expr: Expr) -> bool:
    return any(n.op in COSTLY for n in walk(expr))


def reads(step: Loop | Let | Put) -> set[str]:
    """The names whose values a step looks at."""
    return {name for s in _body(step) for name in variables(s.value)}


def writes(step: Loop | Let | Put) -> set[str]:
    """The arrays that a step writes to."""
    return {s.array for s in _body(step) if isinstance(s, (Store, Put))}


def _room_for(line: Array, steps: tuple, made: Mapping[str, Array]) -> str | None:
    """A result that is not written before ``line`` was looked at for the last time."""
    last = max(i for i, step in enumerate(steps) if line.name in reads(step))
    for a in made.values():
        first = next((i for i, step in enumerate(steps) if a.name in writes(step)), -1)
        if a.space == "full" and a.dtype == line.dtype and first >= last:
            return a.name
    return None


def renamed(step: Loop | Let | Put, old: str, new: str) -> Loop | Let | Put:
    """``step`` with an array of another name."""
    if not isinstance(step, Loop):
        return step
    env = {old: var(new)}
    body = []
    for s in step.body:
        s = replace(s, value=substitute(s.value, env))
        body.append(replace(s, array=new) if isinstance(s, Store) and s.array == old else s)
    return replace(step, body=tuple(body))
