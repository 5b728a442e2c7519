"""What a traced function is: a list of operations, recorded as they are asked for and run again.

Tracing runs every operation once on examples of its inputs, for shapes and types (and once more on
others, where sizes are unknown: what differs is ``None``). Running calls the same functions on the
values of a call, so a tape around it records, as does a transform or the compiler.
"""

from __future__ import annotations

import contextlib
import contextvars
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from .. import tree
from ..core.tensor import Tensor
from ..errors import CommError, DisttrainError
from ..ops import api as ops
from ..partial_shape import PartialShape

# Whether a call is tried on examples: cells keep what they hold.
TRIAL: contextvars.ContextVar[bool] = contextvars.ContextVar("trial", default=False)
# The graph that is being traced.
CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("graph", default=None)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Run as if no function were being traced."""
    token = CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(token)


class Symbol:
    """A value of the function that ``graph`` is traced from. ``_value`` is an example of it, by
    which its type and shape are known; ``_twin`` one for other sizes, where some are unknown."""

    __slots__ = ("__weakref__", "_twin", "_value", "graph", "name", "op")

    _twin: Any
    _value: Any
    graph: Any
    name: str
    op: Any

    @property
    def dtype(self) -> Any:
        """Its type."""
        return self._value.dtype

    @property
    def shape(self) -> Any:
        """What is known of the shape."""
        return self.sizes()

    @property
    def value_index(self) -> int:
        """Which result of its operation it is."""
        return int(self.name.rpartition(":")[2])

    def refused(self, question: str) -> BaseException:
        """What is raised where Python asks for numbers: "bool", "len", "iter", "array" ..."""
        return TypeError(f"{question} of {self.name}: a value of a traced function has no numbers")

    def consumers(self) -> list[Operation]:
        """The operations that it goes into."""
        return [op for op in self.graph.operations if any(i is self for i in op.inputs)]

    def sizes(self) -> PartialShape:
        """What is known of the shape."""
        one, other = self._value, self._twin
        if other is one:
            return PartialShape(tuple(one.shape))
        if other is None:
            return PartialShape([None] * len(one.shape))
        if len(other.shape) != len(one.shape):
            return PartialShape(None)
        pairs = zip(one.shape, other.shape, strict=True)
        return PartialShape([a if a == b else None for a, b in pairs])


def _refusing(question: str) -> Callable:
    def ask(self: Symbol, *args: Any, **kwargs: Any) -> Any:
        raise self.refused(question)

    return ask


for _question in ("bool", "int", "float", "complex", "index", "len", "iter", "array"):
    setattr(Symbol, f"__{_question}__", _refusing(_question))


class Operation:
    """One line of a graph."""

    def __init__(self, name: str, kind: str, call: Any, inputs: list, graph: Any) -> None:
        self.name, self.type, self.call, self.inputs, self.graph = name, kind, call, inputs, graph
        self.outputs: list[Any] = []
        self.places: list[int] = []  # of its inputs among the values of a run
        self.results: list[int] = []
        self.rebuild: Callable[[list], Any] | None = None
        self.controlled = False  # whether ``call`` is given the run, too
        self.shown = False  # whether examples of its results were given: a trial is not to call it
        # "pure": of its inputs alone; "read": of a cell, before anything else; "": what it likes
        self.role = ""

    @property
    def input_names(self) -> list[str]:
        """The operations whose results go in; with a number, where it is not the first result."""
        return [t.name.removesuffix(":0") for t in self.inputs]

    def described(self) -> str:
        """Its name, its kind and its inputs, as text."""
        lines = [f'name: "{self.name}"', f'op: "{self.type}"']
        return "".join(f"{n}\n" for n in [*lines, *(f'input: "{i}"' for i in self.input_names)])


class Listing:
    """Operations as rows (``node``) with ``name``, ``op``, ``input`` and ``op_def``; as text."""

    def __init__(self, operations: list[Operation]) -> None:
        self.node = [SimpleNamespace(name=op.name, op=op.type, input=op.input_names,
                                     op_def=op.described()) for op in operations]  # fmt: skip

    def __repr__(self) -> str:
        return "".join(f"node {{\n{textwrap.indent(n.op_def, '  ')}}}\n" for n in self.node)


class Run:
    """One run of a graph: the tapes that are open in it. A ``trial`` finds out, on examples, what
    gradients go through: nothing is changed outside, and all branches run."""

    def __init__(self, tapes: dict | None = None, trial: bool = False) -> None:
        self.tapes: dict[int, Any] = {} if tapes is None else tapes
        self.trial = trial

    def close(self) -> None:
        """Close the tapes that an error has left open."""
        for tape in reversed(self.tapes.values()):
            paused = getattr(tape, "paused", None)
            if paused is not None:
                paused.__exit__(None, None, None)
            tape.__exit__()


class Graph:
    """The operations of a function, in order; ``outer``: the graph that it was traced inside.

    A subclass says what its values are (``symbol``, ``value_of``) and how errors are told.
    """

    symbol: ClassVar[type[Symbol]] = Symbol
    operation: ClassVar[type[Operation]] = Operation
    # What is raised by what computes, and stands for wrong arguments.
    failures: ClassVar[tuple] = (DisttrainError, ValueError, TypeError, IndexError, RuntimeError,
                                 ZeroDivisionError)  # fmt: skip

    def __init__(self, name: str, outer: Graph | None = None) -> None:
        self.name, self.outer_graph = name, outer
        self.operations: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.captured: list[tuple[Any, Any]] = []
        self.variables: list[Any] = []
        self.created: list[Any] = []
        self.building, self.taped = True, False
        self.children: list[Graph] = []
        if outer is not None:
            outer.children.append(self)
        self._names: dict[str, int] = {}
        self._slots: dict[int, int] = {}

    def listing(self) -> Listing:
        """Its operations as text."""
        return Listing(self.operations)

    def operation_named(self, name: str) -> Any:
        """The operation of that name."""
        found = next((op for op in self.operations if op.name == name), None)
        if found is None:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
        return found

    def symbol_named(self, name: str) -> Any:
        """The result of that name: the operation's, and which of its results."""
        title, _, place = name.partition(":")
        return self.operation_named(title).outputs[int(place or 0)]

    # --- what a subclass may say otherwise ------------------------------------------------------
    def value_of(self, value: Any) -> Any:
        """The Tensor that a program's ``value`` stands for."""
        return value if isinstance(value, (Tensor, np.ndarray)) else ops.as_tensor(value)

    def failed(self, op: Operation, error: BaseException) -> BaseException:
        """What is raised where ``op`` has raised ``error``."""
        return type(error)(f"{error} (at {op.name} of {self.name})")

    def out_of_scope(self, symbol: Symbol) -> BaseException:
        """What is raised where a value of another graph is used."""
        return RuntimeError(f"{symbol.name}: a value of {symbol.graph.name}, used outside of it")

    # --- tracing --------------------------------------------------------------------------------
    def __enter__(self) -> Graph:
        self._token = CURRENT.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        CURRENT.reset(self._token)

    def unique(self, name: str) -> str:
        """``name``, with a number where there is one of it."""
        count = self._names.get(name.lower(), -1) + 1
        self._names[name.lower()] = count
        return f"{name}_{count}" if count else name

    def placeholder(self, example: Any, twin: Any, name: str) -> Any:
        """A new input."""
        op = self._operation(name or "args_0", "Placeholder", None, [])
        out = self._output(op, example, twin)
        self.inputs.append(out)
        return out

    def uses(self, variable: Any) -> None:
        """Note that a variable is read or written."""
        if not any(v is variable for v in self.variables):
            self.variables.append(variable)

    def has_tape(self) -> None:
        """Note that a tape runs in it, for whose sake all is recorded."""
        graph: Graph | None = self
        while graph is not None and not graph.taped:
            graph.taped, graph = True, graph.outer_graph

    def record(
        self, kind: str, call: Callable, inputs: list, name: str | None = None,
        examples: Any = None, controlled: bool = False, arguments: tuple = (), twins: Any = None,
        role: str = "",
    ) -> Any:  # fmt: skip
        """Write down ``call`` of ``inputs``; what stands for its results.

        ``examples``: the structure of its results, where it must not run now. ``arguments``: what
        the inputs are called, for those that become constants. ``controlled``: ``call`` takes the
        ``run``, too.
        """
        title = self.unique(name or kind)
        words = [*arguments, *("input",) * (len(inputs) - len(arguments))]
        held = [self.inside(t, f"{title}/{w}") for t, w in zip(inputs, words, strict=True)]
        op = self._operation(title, kind, call, held, named=True)
        op.controlled, op.role, op.shown = controlled, role, examples is not None
        found = self._tried(call, [t._value for t in held]) if examples is None else examples
        if twins is None:
            twins = self._twins(call, held, found) if examples is None else found
        leaves, op.rebuild = tree.flatten(found)
        others = leaves if twins is found else twins
        outs = [self._output(op, v, o) for v, o in zip(leaves, others, strict=True)]
        return op.rebuild(outs)

    def _tried(self, call: Callable, values: list) -> Any:
        """Results for examples; where these will not do (an index of a branch that is not taken),
        for others of their shapes and types."""
        try:
            return call(*values)
        except self.failures as error:
            ranks = any(isinstance(e, CommError) for e in (error, error.__cause__))
            for others in () if ranks else _others(values):
                with contextlib.suppress(*self.failures):
                    found = call(*others)
                    return tree.map(lambda v: linked([v], values)[0], found)
            raise

    def _twins(self, call: Callable, held: list, found: Any) -> Any:
        if all(t._twin is t._value for t in held):
            return found
        count = len(tree.leaves(found))
        if any(t._twin is None for t in held):
            return [None] * count
        try:
            return tree.leaves(call(*[t._twin for t in held]))
        except self.failures:
            return [None] * count

    def inside(self, t: Any, name: str = "Const") -> Any:
        """What stands for ``t`` in this graph: itself, a constant, or what is captured."""
        if not isinstance(t, Symbol):
            value = self.value_of(t)
            op = self._operation(self.unique(name), "Const", lambda: value, [], named=True)
            op.rebuild, op.role = lambda values: values[0], "pure"
            return self._output(op, value, value)
        if t.graph is self:
            return t
        self._check_outer(t)
        found = next((inner for outer, inner in self.captured if outer is t), None)
        if found is None:
            op = self._operation(f"captured_{len(self.captured)}", "Placeholder", None, [])
            found = self._output(op, t._value, t._twin)
            self.captured.append((t, found))
        return found

    def _check_outer(self, t: Symbol) -> None:
        graph = self.outer_graph
        while graph is not None and graph is not t.graph:
            graph = graph.outer_graph
        if graph is None:
            raise self.out_of_scope(t)

    def _operation(
        self, name: str, kind: str, call: Any, inputs: list, named: bool = False
    ) -> Operation:
        op = self.operation(name if named else self.unique(name), kind, call, inputs, self)
        op.places = [self._slots[id(t)] for t in inputs]
        self.operations.append(op)
        return op

    def _output(self, op: Operation, value: Any, twin: Any) -> Any:
        t = self.symbol()
        t._value, t._twin, t.graph, t.op = value, twin, self, op
        t.name = f"{op.name}:{len(op.outputs)}"
        op.outputs.append(t)
        self._slots[id(t)] = len(self._slots)
        op.results.append(self._slots[id(t)])
        return t

    def forget(self) -> None:
        """Let go of the examples, but for their shapes and types."""
        for graph in (self, *self.children):
            for op in graph.operations:
                for t in op.outputs:
                    known = t._twin is t._value
                    t._value = _outline(t._value)
                    t._twin = t._value if known else None if t._twin is None else _outline(t._twin)
        for graph in self.children:
            graph.forget()
        self.children = []

    def is_open(self) -> bool:
        """Whether the shape of an output is not known whole."""
        return not all(t.sizes().is_fully_defined() for t in self.outputs)

    # --- running --------------------------------------------------------------------------------
    def finish(self, outputs: list) -> None:
        """The function has returned ``outputs``."""
        self.outputs = [self.inside(t) for t in outputs]
        self.building = False
        kept = {self._slots[id(t)] for t in self.outputs}
        last = {place: op for op in self.operations for place in (*op.results, *op.places)}
        self._ends: dict[int, list[int]] = {}
        for place, op in last.items():
            if place not in kept:
                self._ends.setdefault(id(op), []).append(place)
        for op in reversed(self.operations):  # what nobody needs
            if op.role == "pure" and not kept.intersection(op.results):
                op.call = None
            elif op.call is not None:
                kept.update(op.places)

    def run(self, values: list, run: Run | None = None) -> list:
        """The outputs for ``values`` of the inputs and of what is captured."""
        run = Run() if run is None else run
        env: list[Any] = [None] * len(self._slots)
        given = [*self.inputs, *(inner for _, inner in self.captured)]
        for t, value in zip(given, values, strict=True):
            env[self._slots[id(t)]] = value
        for op in self.operations:
            if run.trial and op.shown and not op.controlled:
                for i, t in zip(op.results, op.outputs, strict=True):
                    env[i] = blank(t)
            elif op.call is not None:
                args = [env[i] for i in op.places]
                try:
                    found = op.call(*args, run=run) if op.controlled else op.call(*args)
                except self.failures as error:
                    told = self.failed(op, error)
                    raise told from (None if told is error else error)
                for i, value in zip(op.results, tree.leaves(found), strict=False):
                    env[i] = value
            for i in self._ends.get(id(op), ()):
                env[i] = None
        return [env[self._slots[id(t)]] for t in self.outputs]


def _outline(value: Any) -> Any:
    """What has the shape and the type of ``value``, and no numbers."""
    if isinstance(value, np.ndarray):
        return value
    return ops.empty(value.shape, dtype=value.dtype, device="meta")


def blank(t: Symbol) -> Any:
    """An example for a value of a graph that has let go of its own."""
    value = t._value
    return value if isinstance(value, np.ndarray) else ops.zeros(value.shape, dtype=value.dtype)


def _is_real(v: Any) -> bool:
    return isinstance(v, Tensor) and v.dtype.is_floating_point


def linked(values: list, *rows: Any) -> list:
    """Examples of results that may depend on any of the tensors in ``rows``."""
    parts = [v.reshape(-1)[:0].sum() for row in rows for v in row
             if _is_real(v) and v.requires_grad]  # fmt: skip
    out = list(values)
    for i, v in enumerate(out if parts else ()):
        if _is_real(v):
            out[i] = sum([p.to(v.dtype) for p in parts], v)
    return out


def _others(values: list) -> Iterator[list]:
    """Other examples: integers 0, integers 1, and numbers that are nowhere negative (one, where
    there are none)."""
    whole = [isinstance(v, Tensor) and not v.dtype.is_floating_point for v in values]
    for n in (0, 1) if any(whole) else ():
        yield [ops.full_like(v, n) if w else v for v, w in zip(values, whole, strict=True)]
    yield [_harmless(v) if isinstance(v, Tensor) else v for v in values]
    yield [_harmless(v).mul(0) if isinstance(v, Tensor) else v for v in values]


def _harmless(v: Tensor) -> Tensor:
    square = _is_real(v) and v.ndim > 1 and v.shape[-1] == v.shape[-2] > 0
    one = ops.eye(v.shape[-1], dtype=v.dtype) if square else ops.ones([], dtype=v.dtype)
    return one.expand([*(max(n, 1) for n in v.shape[:1]), *v.shape[1:]]).clone()


@contextlib.contextmanager
def within(make: Callable[[], Any]) -> Iterator[None]:
    """What runs in the block, runs inside of what ``make()`` opens: now, and at every run of what
    is recorded there."""
    graph = CURRENT.get()
    before = 0 if graph is None else len(graph.operations)
    try:
        with make():
            yield
    finally:
        for op in () if graph is None else graph.operations[before:]:
            if op.call is not None:
                op.call = partial(_within, make, op.call)


def _within(make: Callable[[], Any], call: Callable, *args: Any, **kwargs: Any) -> Any:
    with make():
        return call(*args, **kwargs)


def effect(kind: str, call: Callable[..., Any], inputs: list) -> None:
    """Do something with the values of ``inputs``: now, or at every run of the function that is
    being traced."""
    graph = CURRENT.get()
    if graph is None:
        call(*[t if isinstance(t, Tensor) else t._value for t in inputs])
    else:
        graph.record(kind, call, inputs, examples=())


def tried(graph: Graph, values: list) -> list:
    """The outputs for examples, of which open tapes know what they depend on; an empty list, where
    examples will not do."""
    token, run = TRIAL.set(True), Run(trial=True)
    try:
        return graph.run(values, run)
    except graph.failures:
        return []
    finally:
        run.close()
        TRIAL.reset(token)
