"""Control flow inside of graphs: branches and loops as operations, whose bodies are graphs of their
own. What these use of outside becomes inputs of the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import tree
from ..arrays import pieces
from ..compile.autograph import Border
from ..core.tensor import Tensor
from ..core.types import dtypes
from ..func import control_flow
from ..func.instructions import is_staging
from ..ops import api as ops
from .graph import CURRENT, Graph, Symbol, blank, linked, outside
from .operations import Operations
from .streams import stand_ins


def traced(name: str, fn: Callable, given: Sequence[Any]) -> tuple[Graph, Callable]:
    """The graph of ``fn`` of what has the shapes of ``given``, and how its results are rebuilt."""
    outer = CURRENT.get()
    graph = type(outer)(name, outer)
    with graph:
        inputs = []
        for i, t in enumerate(given):
            staged = isinstance(t, Symbol)
            one = t._value if staged else graph.value_of(t)
            inputs.append(graph.placeholder(one, t._twin if staged else one, f"args_{i}"))
        leaves, rebuild = tree.flatten(tree.by_key(fn(*inputs)))
        graph.finish(leaves)
    return graph, rebuild


def _captures(graphs: Sequence[Graph]) -> tuple[list, list[list[int]]]:
    """What graphs use of outside, once each, and where each finds its own among it."""
    found: list[Any] = []
    places = []
    for graph in graphs:
        mine = []
        for t, _ in graph.captured:
            at = next((i for i, f in enumerate(found) if f is t), None)
            if at is None:
                at = len(found)
                found.append(t)
            mine.append(at)
        places.append(mine)
    return found, places


def _is_staged(*values: Any) -> bool:
    """Whether a capture takes branches and loops over tensors as instructions."""
    return is_staging() and all(isinstance(t, Tensor) for t in tree.leaves(values))


def _kind(t: Symbol) -> str:
    return str(t._value.dtype).rpartition(".")[2]


def branch(
    kind: str, index: Any, branches: Sequence[Graph], rebuild: Callable, flag: bool = False,
    words: str = "branches",
) -> Any:  # fmt: skip
    """An operation that runs one of ``branches``: that of the number ``index``, the last for
    numbers that none has; or where ``index`` is a ``flag``, the first if it holds, else the
    second."""
    first, *others = outs = [g.outputs for g in branches]
    for other in others:
        if len(other) != len(first):
            raise TypeError(f"{words} must have the same number, type, and overall structure of "
                            f"return values; {len(first)} and {len(other)} given")  # fmt: skip
        for a, b in zip(first, other, strict=True):
            if a._value.dtype != b._value.dtype:
                raise TypeError(f"{words} must return the same types: {_kind(a)} and {_kind(b)} "
                                "given")  # fmt: skip
    held, places = _captures(branches)

    def call(at: Any, *values: Any, run: Any) -> tuple:
        if flag and _is_staged(at, values):
            yes, no = [
                lambda *v, g=g, p=p: tuple(g.run([v[i] for i in p], run))
                for g, p in zip(branches, places, strict=True)
            ]
            return tuple(control_flow.cond(at, yes, no, values))
        if run.trial:
            rows = [g.run([values[i] for i in p], run)
                    for g, p in zip(branches, places, strict=True)]  # fmt: skip
            return tuple(linked(rows[0], *rows[1:]))
        n = int(not at) if flag else int(at)
        n = n if 0 <= n < len(branches) else len(branches) - 1
        return tuple(branches[n].run([values[i] for i in places[n]], run))

    examples = tuple(linked([t._value for t in first], *([t._value for t in o] for o in others)))
    alike = [all(o[i].sizes() == t.sizes() for o in outs) for i, t in enumerate(first)]
    twins = [t._twin if same else None for t, same in zip(first, alike, strict=True)]
    found = CURRENT.get().record(
        kind, call, [index, *held], "cond", examples=examples, controlled=True, twins=twins
    )
    return rebuild(list(found))


def cond(kind: str, test: Any, yes: Callable, no: Callable, words: str = "branches") -> Any:
    """``yes()`` where ``test`` holds, ``no()`` elsewhere."""
    one, rebuild = traced("cond_true", yes, [])
    other, _ = traced("cond_false", no, [])
    return branch(kind, test, [one, other], rebuild, True, words)


def while_loop(
    test: Callable, body: Callable, values: list, limit: int | None = None, names: Any = None
) -> Any:
    """A loop as one operation: ``test`` and ``body`` take and give the nested ``values``."""
    graph = CURRENT.get()
    leaves, rebuild = tree.flatten(tree.by_key(values))
    start = [graph.inside(v) for v in leaves]
    tests, _ = traced("while_cond", lambda *v: test(*rebuild(list(v))), start)
    steps, _ = traced("while_body", lambda *v: body(*rebuild(list(v))), start)
    _check_loop(start, steps.outputs, names)
    held, (for_test, for_step) = _captures([tests, steps])
    count = len(start)

    def call(*given: Any, run: Any) -> tuple:
        now, around = list(given[:count]), given[count:]
        extra, more = [around[i] for i in for_test], [around[i] for i in for_step]
        if run.trial:
            after = steps.run([*now, *more], run)
            return tuple(linked(after, after, now))
        if limit is None and _is_staged(*given):
            found = control_flow.while_loop(
                lambda *v: tests.run([*v, *extra], run)[0],
                lambda *v: tuple(steps.run([*v, *more], run)),
                tuple(now),
            )
            return tuple(found)
        done = 0
        while bool(tests.run([*now, *extra], run)[0]) and (limit is None or done < limit):
            now = steps.run([*now, *more], run)
            done += 1
        return tuple(now)

    return _loop(call, start, steps.outputs, held, rebuild)


def for_loop(
    over: Any, body: Callable, values: list, names: Any = None, go_on: Callable | None = None
) -> Any:
    """A loop over the first dimension of a symbol, or over the elements that an iterable gives at
    each run, as one operation. ``body(element, *values)`` gives the next values; ``go_on(*values)``
    whether it goes on."""
    graph = CURRENT.get()
    rows = isinstance(over, Symbol)
    counted = rows and over.op.type == "Range" and over.graph is graph
    fed = over.op.inputs if counted else [over] if rows else []
    leaves, rebuild = tree.flatten(tree.by_key(values))
    start = [graph.inside(v) for v in leaves]
    ends_of = partial(_ends, over._value.dtype if counted else None)
    first = graph.record("First", lambda *e: ends_of(*e)[0], fed, role="pure") if counted else (
        first_of(over))  # fmt: skip
    parts, whole = tree.flatten(first)
    here = len(parts)
    steps, _ = traced(
        "for_body", lambda *v: body(whole(list(v[:here])), *rebuild(list(v[here:]))),
        [*parts, *start],
    )  # fmt: skip
    graphs = [steps]
    if go_on is not None:
        graphs.append(traced("for_cond", lambda *v: go_on(*rebuild(list(v))), start)[0])
    _check_loop(start, steps.outputs, names)
    held, (for_step, *for_test) = _captures(graphs)
    count = len(start)

    def call(*given: Any, run: Any) -> tuple:
        source, given = given[: len(fed)], given[len(fed) :]
        now, around = list(given[:count]), given[count:]
        more = [around[i] for i in for_step]
        extra = [around[i] for places in for_test for i in places]
        if run.trial:
            after = steps.run([*map(blank, steps.inputs[:here]), *now, *more], run)
            return tuple(linked(after, after, now, source))
        goes = lambda *v: graphs[1].run([*v, *extra], run)[0]  # noqa: E731
        if counted and _is_staged(*source, *given):
            step = lambda i, *v: steps.run([i, *v, *more], run)  # noqa: E731
            return _counted(ends_of(*source), goes if for_test else None, step, now)
        lines = _numbers(*ends_of(*source)) if counted else source[0].unbind(0) if rows else over
        for line in lines:
            if for_test and not bool(goes(*now)):
                break
            element = [line] if rows else [graph.value_of(v) for v in tree.leaves(line)]
            now = steps.run([*element, *now, *more], run)
        return tuple(now)

    return _loop(call, [*fed, *start], steps.outputs, held, rebuild)


def _ends(kind: Any, low: Any, high: Any = None, step: Any = None) -> tuple:
    """Where a range begins and ends, and its step."""
    low, high = (low * 0, low) if high is None else (low, high)
    step = ops.ones_like(low) if step is None else step
    return tuple(t.to(kind) for t in (low, high, step))


def _numbers(low: Any, high: Any, step: Any) -> Iterator[Any]:
    """The numbers of a range, each of which is the one before it and the step."""
    size = step.item()
    if not low.dtype.is_floating_point:
        whole = range(low.item(), high.item(), size) if size else range(0)
        yield from ops.tensor(list(whole), dtype=low.dtype).unbind(0)
    while low.dtype.is_floating_point and size and bool(low < high if size > 0 else low > high):
        yield low
        low = low + step


def _counted(ends: tuple, goes: Callable | None, step: Callable, values: list) -> tuple:
    """The loop over a range as an instruction of a program."""
    low, high, by = ends

    def test(i: Any, *now: Any) -> Any:
        within = ((by > 0) & (i < high)) | ((by < 0) & (i > high))
        return within if goes is None else within & goes(*now)

    turn = lambda i, *now: (i + by, *step(i, *now))  # noqa: E731
    return tuple(control_flow.while_loop(test, turn, (low, *values)))[1:]


def _first(value: Any) -> Any:
    shape = tuple(value.shape[1:])
    return value[0] if len(value) else ops.zeros(shape, dtype=value.dtype)


def first_of(over: Any, graph: Any = None) -> Any:
    """An element of what a loop goes over; of an iterator, what stands for one in ``graph``."""
    if isinstance(over, Symbol):
        return CURRENT.get().record("StridedSlice", _first, [over])
    if hasattr(over, "element_spec") and hasattr(over, "__next__"):  # which must not be drawn now
        return stand_ins(over.element_spec, graph or type(CURRENT.get())("element"))
    with outside():
        return next(iter(over))


def _loop(call: Any, inputs: list, outs: list, held: list, rebuild: Callable) -> Any:
    start = inputs[len(inputs) - len(outs) :]
    same = [s.sizes() == o.sizes() for s, o in zip(start, outs, strict=True)]
    twins = [o._twin if alike else None for o, alike in zip(outs, same, strict=True)]
    found = CURRENT.get().record(
        "While", call, [*inputs, *held], "while", controlled=True, twins=twins,
        examples=tuple(linked(*[[t._value for t in row] for row in (outs, outs, start)])),
    )  # fmt: skip
    return rebuild(list(found))


def _check_loop(start: list, outs: list, names: Any) -> None:
    if len(start) != len(outs):
        raise ValueError(f"The two structures don't have the same nested structure: {len(start)} "
                         f"loop variables, and {len(outs)} after one iteration")  # fmt: skip
    for i, (a, b) in enumerate(zip(start, outs, strict=True)):
        if a._value.dtype != b._value.dtype:
            word = names[i] if names and i < len(names) else f"loop_vars[{i}]"
            raise TypeError(f"'{word}' has dtype {_kind(a)} before the loop, but dtype {_kind(b)} "
                            "after one iteration")  # fmt: skip


# --- AutoGraph ----------------------------------------------------------------------------------
class Staging(Border):
    """Python's statements over symbols, as operations of the graph that is being traced.

    ``made`` says which other values there are; a subclass has the operations of logic."""

    kind_of_branch = "If"

    def __init__(self, made: Operations | None = None) -> None:
        self.made = Operations() if made is None else made
        staged: dict[Any, Callable] = {
            len: self.length, enumerate: self.enumerate, range: self.arange,
            int: lambda value: self.cast(value, "int32"),
            float: lambda value: self.cast(value, "float32"),
        }  # fmt: skip
        self.builtins = {fn: self._either(fn, other) for fn, other in staged.items()}

    def _either(self, fn: Callable, staged: Callable) -> Callable:
        """Python's ``fn``, or of staged values what is in its place."""

        def called(*args: Any) -> Any:
            return (staged if any(map(self.is_staged, args)) else fn)(*args)

        return called

    def length(self, value: Any) -> Any:
        """The first size."""
        t = self.made.tensor(value)
        known = t.sizes()[0] if isinstance(t, Symbol) and t.sizes().rank else len(t)
        if known is not None:
            return known
        return self.made.execute("Length", lambda v: ops.tensor(len(v), dtype=dtypes.int32), [t])

    def enumerate(self, value: Any, start: int = 0) -> Any:
        """The rows with their numbers."""
        rows = self.made.execute("Unpack", pieces.unstack, [self.made.tensor(value)])
        return enumerate(rows, start)

    def arange(self, *ends: Any) -> Any:
        """Numbers up to, or between, values."""
        given = ends if len(ends) > 1 else (0, *ends)
        parts = self.made.alike("Range", [*given, 1][:3])
        return self.made.execute("Range", pieces.arange, parts)

    def cast(self, value: Any, kind: str) -> Any:
        """Numbers of another type."""
        call = lambda v: v.to(getattr(dtypes, kind))  # noqa: E731
        return self.made.execute("Cast", call, [self.made.tensor(value)])

    def is_staged(self, value: Any) -> bool:
        if isinstance(value, Symbol):
            return True
        return CURRENT.get() is not None and self.is_value(value)

    def is_value(self, value: Any) -> bool:
        return self.made.is_tensor(value)

    def value(self, value: Any) -> Any:
        return value if self.is_value(value) else self.made.tensor(value)

    def kind(self, value: Any) -> str:
        return self.made.type_name(self.value(value))

    def is_sequence(self, value: Any) -> bool:
        within = CURRENT.get() is not None and hasattr(value, "element_spec")
        return within or self.is_staged(value)

    def begin(self, body: Callable) -> Any:
        outer = CURRENT.get()
        graph = type(outer)("branch", outer)
        with graph:
            body()
        return graph

    def finish(self, program: Any, values: list) -> Any:
        with program:
            program.finish(tree.leaves(tree.by_key(values)))
        return program

    def choose(self, test: Any, programs: list, rebuild: Callable) -> Any:
        return branch(self.kind_of_branch, self.value(test), programs, rebuild, True)

    def cond(self, test: Any, yes: Callable, no: Callable) -> Any:
        return cond(self.kind_of_branch, self.value(test), yes, no)

    def blank(self, value: Any) -> Any:
        value = self.value(value)
        if not isinstance(value, Symbol):
            return value
        example = value._value
        if isinstance(example, np.ndarray):  # of texts
            return self.value(np.full(example.shape, b"", object))
        return self.value(ops.zeros_like(example.detach()))

    def element(self, over: Any) -> Any:
        return first_of(self._sequence(over), CURRENT.get())

    def while_loop(self, test: Callable, body: Callable, values: list, names: list) -> list:
        found: list = while_loop(lambda *v: self.value(test(*v)), body, values, names=names)
        return found

    def for_loop(
        self, over: Any, body: Callable, values: list, names: list, go_on: Callable | None
    ) -> list:
        more = None if go_on is None else (lambda *v: self.value(go_on(*v)))
        found: list = for_loop(self._sequence(over), body, values, names, more)
        return found

    def _sequence(self, over: Any) -> Any:
        return CURRENT.get().inside(self.value(over)) if self.is_value(over) else over
