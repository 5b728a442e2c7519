"""What a traced function is: a list of operations, recorded at the face and run again.

Tracing runs every operation once on examples of its inputs, for shapes and types (and once more on
others, where sizes are unknown: what differs is ``None``). Running calls the same functions on the
values of a call, so a tape around it records, as does a transform or the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from .errors import FAILURES, InvalidArgumentError, OpError
from .tensor import GRAPH, EagerTensor, SymbolicTensor, Tensor, out_of_scope, wrap
from .types import DType, TensorSpec


class Operation:
    """One line of a graph."""

    def __init__(self, name: str, kind: str, call: Any, inputs: list, graph: Any) -> None:
        self.name, self.type, self.call, self.inputs, self.graph = name, kind, call, inputs, graph
        self.outputs: list[SymbolicTensor] = []
        self.places: list[int] = []  # of its inputs among the values of a run
        self.results: list[int] = []
        self.rebuild: Callable[[list], Any] | None = None
        self.controlled = False  # whether ``call`` is given the run, too

    def __repr__(self) -> str:
        return f"<tf.Operation {self.name!r} type={self.type}>"

    @property
    def node_def(self) -> str:
        return f'name: "{self.name}"\nop: "{self.type}"\n' + "".join(
            f'input: "{t.name.removesuffix(":0")}"\n' for t in self.inputs
        )


class Run:
    """One run of a graph: its values, and the tapes that are open in it."""

    def __init__(self, tapes: dict | None = None) -> None:
        self.tapes: dict[int, Any] = {} if tapes is None else tapes


class FuncGraph:
    """The operations of a function, in order; ``outer``: the graph that it was traced inside."""

    def __init__(self, name: str, outer: FuncGraph | None = None) -> None:
        self.name, self.outer_graph = name, outer
        self.operations: list[Operation] = []
        self.inputs: list[SymbolicTensor] = []
        self.outputs: list[SymbolicTensor] = []
        self.captured: list[tuple[Any, SymbolicTensor]] = []
        self.variables: list[Any] = []
        self.created: list[Any] = []
        self.building = True
        self.children: list[FuncGraph] = []
        if outer is not None:
            outer.children.append(self)
        self._names: dict[str, int] = {}
        self._slots: dict[int, int] = {}

    # --- tracing --------------------------------------------------------------------------------
    def __enter__(self) -> FuncGraph:
        self._token = GRAPH.set(self)
        return self

    as_default = lambda self: self  # noqa: E731

    def __exit__(self, *exc: object) -> None:
        GRAPH.reset(self._token)

    def unique(self, name: str) -> str:
        count = self._names.get(name.lower(), -1) + 1
        self._names[name.lower()] = count
        return f"{name}_{count}" if count else name

    def placeholder(self, spec: TensorSpec, example: Any, twin: Any, name: str) -> SymbolicTensor:
        """A new input."""
        op = self._operation(name or "args_0", "Placeholder", None, [])
        out = self._output(op, example, twin)
        self.inputs.append(out)
        return out

    def record(
        self, kind: str, call: Callable, inputs: list, name: str | None = None,
        examples: Any = None, controlled: bool = False, arguments: tuple = (), twins: Any = None,
    ) -> Any:  # fmt: skip
        """Write down ``call`` of ``inputs``; what stands for its results.

        ``examples``: the structure of its results, where it must not run now. ``arguments``: what
        the inputs are called, for those that become constants.
        """
        title = self.unique(name or kind)
        words = [*arguments, *("input",) * (len(inputs) - len(arguments))]
        held = [self.inside(t, f"{title}/{w}") for t, w in zip(inputs, words, strict=True)]
        op = self._operation(title, kind, call, held, named=True)
        op.controlled = controlled
        values = [t._value for t in held]
        found = call(*values) if examples is None else examples
        if twins is None:
            twins = self._twins(call, held, found) if examples is None else found
        leaves, op.rebuild = tree.flatten(found)
        others = leaves if twins is found else twins
        outs = [self._output(op, v, o) for v, o in zip(leaves, others, strict=True)]
        return op.rebuild(outs)

    def _twins(self, call: Callable, held: list, found: Any) -> Any:
        if all(t._twin is t._value for t in held):
            return found
        count = len(tree.leaves(found))
        if any(t._twin is None for t in held):
            return [None] * count
        try:
            return tree.leaves(call(*[t._twin for t in held]))
        except FAILURES:
            return [None] * count

    def inside(self, t: Tensor, name: str = "Const") -> SymbolicTensor:
        """What stands for ``t`` in this graph: itself, a constant, or what is captured."""
        if isinstance(t, SymbolicTensor):
            if t.graph is self:
                return t
            self._check_outer(t)
        found = next((inner for outer, inner in self.captured if outer is t), None)
        if found is not None:
            return found
        if isinstance(t, EagerTensor):
            op = self._operation(self.unique(name), "Const", lambda: t._value, [], named=True)
            op.rebuild = lambda values: values[0]
            return self._output(op, t._value, t._value)
        assert isinstance(t, SymbolicTensor)
        op = self._operation(f"captured_{len(self.captured)}", "Placeholder", None, [])
        inner = self._output(op, t._value, t._twin)
        self.captured.append((t, inner))
        return inner

    def _check_outer(self, t: SymbolicTensor) -> None:
        graph = self.outer_graph
        while graph is not None and graph is not t.graph:
            graph = graph.outer_graph
        if graph is None:
            raise out_of_scope(t)

    def _operation(
        self, name: str, kind: str, call: Any, inputs: list, named: bool = False
    ) -> Operation:
        op = Operation(name if named else self.unique(name), kind, call, inputs, self)
        op.places = [self._slots[id(t)] for t in inputs]
        self.operations.append(op)
        return op

    def _output(self, op: Operation, value: Any, twin: Any) -> SymbolicTensor:
        t = SymbolicTensor()
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
        return not all(t.shape.is_fully_defined() for t in self.outputs)

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

    def run(self, values: list, run: Run | None = None) -> list:
        """The outputs for ``values`` of the inputs and of what is captured."""
        run = Run() if run is None else run
        env: list[Any] = [None] * len(self._slots)
        given = [*self.inputs, *(inner for _, inner in self.captured)]
        for t, value in zip(given, values, strict=True):
            env[self._slots[id(t)]] = value
        for op in self.operations:
            if op.call is not None:
                args = [env[i] for i in op.places]
                found = self._step(op, args, run)
                leaves = tree.leaves(found)
                for i, value in zip(op.results, leaves, strict=False):
                    env[i] = value
            for i in self._ends.get(id(op), ()):
                env[i] = None
        return [env[self._slots[id(t)]] for t in self.outputs]

    def _step(self, op: Operation, args: list, run: Run) -> Any:
        try:
            return op.call(*args, run=run) if op.controlled else op.call(*args)
        except OpError as error:
            if str(error).startswith("Graph execution error"):
                raise
            raise self._failed(op, error, type(error)) from error
        except FAILURES as error:
            raise self._failed(op, error, InvalidArgumentError) from error

    def _failed(self, op: Operation, error: BaseException, kind: Any) -> OpError:
        return kind(
            None, None, f"Graph execution error:\n\nDetected at node {op.name} of {self.name}:\n\n"
            f"{error}\n\t [[{{{{node {op.name}}}}}]] [Op:__inference_{self.name}]",
        )  # fmt: skip

    # --- looking at it --------------------------------------------------------------------------
    def get_operations(self) -> list[Operation]:
        return list(self.operations)

    def get_operation_by_name(self, name: str) -> Operation:
        found = next((op for op in self.operations if op.name == name), None)
        if found is None:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
        return found

    def get_tensor_by_name(self, name: str) -> SymbolicTensor:
        op = self.get_operation_by_name(name.partition(":")[0])
        return op.outputs[int(name.partition(":")[2] or 0)]

    def as_graph_def(self, add_shapes: bool = False) -> GraphDef:
        """The operations as text in TensorFlow's form, with names, kinds and inputs."""
        return GraphDef(self.operations)


class GraphDef:
    """The list of nodes of a graph, as text."""

    def __init__(self, operations: list[Operation]) -> None:
        self.node = [_Node(op) for op in operations]

    def __str__(self) -> str:
        return "".join(f"node {{\n{_indented(n.op_def)}}}\n" for n in self.node)

    __repr__ = __str__


class _Node:
    def __init__(self, op: Operation) -> None:
        self.name, self.op, self.op_def = op.name, op.type, op.node_def
        self.input = [t.name.removesuffix(":0") for t in op.inputs]


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _outline(value: Any) -> Any:
    """What has the shape and the type of ``value``, and no numbers."""
    if isinstance(value, np.ndarray):
        return value
    return dt.empty(value.shape, dtype=value.dtype, device="meta")


def blank(t: SymbolicTensor) -> Any:
    """An example for a tensor of a graph that has let go of its own."""
    value = t._value
    return value if isinstance(value, np.ndarray) else dt.zeros(value.shape, dtype=value.dtype)


def example_of(spec: TensorSpec, size: int) -> Any:
    """A value that fits ``spec``, with ``size`` where it says None."""
    sizes = tuple(size if d is None else d for d in (spec.shape if spec.shape else ()))
    kind: DType = spec.dtype
    if kind.inner is None:
        return np.full(sizes, b"", object)
    return (dt.ones if kind.is_floating else dt.zeros)(sizes, dtype=kind.inner)


__all__ = ["FuncGraph", "Operation", "Run", "example_of", "wrap"]
