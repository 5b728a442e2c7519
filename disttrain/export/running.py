"""How a program runs: its nodes in order, on arrays or on Tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..context import thread
from ..core.gate import Primitive, finish, gate
from ..core.random import default_generator
from ..core.tensor import Tensor, wrap
from ..errors import DisttrainError, SerializationError, ShapeError, cause
from . import bodies, vocabulary
from .sizes import evaluated, sizes_in
from .values import Graph, Name, Node, Value


class Runnable(Protocol):
    """What is needed of a program."""

    graph: Graph
    inputs: tuple[Value, ...]
    state: dict[str, Tensor]
    constants: dict[str, Tensor]
    writes: tuple[tuple[str, str], ...]
    device: Any


class Step:
    """A node, ready to run: its primitive, and what of it depends on sizes."""

    def __init__(self, node: Node, constants: Mapping[str, Tensor], last: list[str]) -> None:
        self.node, self.constants, self.last = node, constants, last
        self.prim: Primitive | None = None
        self.args: Any = node.args
        self.params: Any = {k: _live(v) for k, v in node.params.items()}
        self.sized = bool(sizes_in((node.args, self.params))) or _open(node.params)

    def made(self, sizes: Mapping[str, int]) -> tuple[Primitive, tuple, dict]:
        """Its primitive, arguments and parameters for these sizes."""
        if not self.sized and self.prim is not None:
            return self.prim, self.args, self.params
        args, params = self.args, self.params
        if self.sized:
            args, params = evaluated(args, sizes), evaluated(params, sizes)
        prim, params = primitive(self.node, params, sizes, self.constants)
        if not self.sized:
            self.prim, self.params = prim, params
        return prim, args, params


def primitive(
    node: Node, params: dict, sizes: Mapping[str, int], constants: Mapping[str, Tensor]
) -> tuple[Primitive, dict]:
    """The primitive of a node, and the parameters that it takes."""
    if node.primitive in bodies.NAMES:
        plain = {k: at_sizes(v, sizes) for k, v in params.items()}

        def find(inner: Node) -> tuple[Primitive, dict]:
            return primitive(inner, dict(inner.params), sizes, constants)

        return bodies.primitive_of(node.primitive, plain, find, constants), {}
    found = vocabulary.find(node.primitive)
    if found is None:
        raise SerializationError(f"program: no primitive is called {node.primitive!r:.60}")
    if node.primitive == "view_write":
        params = {"chain": tuple((vocabulary.find(name), how) for name, how in params["chain"])}
    return found, params


def at_sizes(x: Any, sizes: Mapping[str, int]) -> Any:
    """A parameter of a node with bodies, as it is for these sizes."""
    if isinstance(x, tuple):
        return tuple(at_sizes(y, sizes) for y in x)
    if not isinstance(x, Graph):
        return x
    values = {n: Value(n, evaluated(tuple(v.shape), sizes), v.dtype) for n, v in x.values.items()}
    nodes = tuple(
        Node(n.primitive, evaluated(n.args, sizes),
             {k: at_sizes(evaluated(v, sizes), sizes) for k, v in n.params.items()}, n.outputs)
        for n in x.nodes
    )  # fmt: skip
    return Graph(x.inputs, nodes, x.outputs, values)


def _open(params: Any) -> bool:
    """Whether there are sizes in the graphs of parameters."""
    parts = [p for v in params.values() for p in (v if isinstance(v, tuple) else (v,))]
    return any(
        sizes_in([v.shape for v in g.values.values()]) or any(
            sizes_in((n.args, dict(n.params))) or _open(n.params) for n in g.nodes
        )
        for g in parts if isinstance(g, Graph)
    )  # fmt: skip


def _live(param: Any) -> Any:
    return default_generator if param is vocabulary.GENERATOR else param


# What forward functions raise for arguments that they were not made for.
_FAILURES = (
    ArithmeticError, AttributeError, IndexError, KeyError, MemoryError, TypeError, ValueError,
)  # fmt: skip


def failed(node: Node, error: BaseException) -> Exception:
    """The error of a node, with its place in the program it was made of."""
    where = " ".join(x for x in (node.module, node.line) if x)
    kind = type(error) if isinstance(error, DisttrainError) else ShapeError
    text = f"program: {node.outputs[0]} = {node.primitive}(...){f' ({where})' if where else ''}: "
    return kind(f"{text}{type(error).__name__ if kind is ShapeError else ''}: {error}")


class Runner:
    """Runs one program."""

    def __init__(self, program: Runnable) -> None:
        self.program, graph = program, program.graph
        self.names = [v.name for v in program.inputs]
        kept = {*graph.outputs, *(new for _, new in program.writes)}
        kept |= {*program.state, *program.constants, *(old for old, _ in program.writes)}
        last: dict[str, int] = {}
        for i, node in enumerate(graph.nodes):
            last.update(dict.fromkeys((*node.inputs, *node.outputs), i))
        gone: list[list[str]] = [[] for _ in graph.nodes]
        for name, i in last.items():
            if name not in kept:
                gone[i].append(name)
        constants = {**program.state, **program.constants}
        self.steps = [Step(n, constants, names) for n, names in zip(graph.nodes, gone, strict=True)]

    def tensors(
        self, given: Sequence[Tensor], sizes: Mapping[str, int], check: bool = False
    ) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """The results for Tensors, through the gate, and what is to be written to what. ``check``:
        see that every value is as the program tells it."""
        program = self.program
        env: dict[str, Any] = {**program.state, **program.constants}
        env.update(zip(self.names, given, strict=True))
        for step in self.steps:
            prim, args, params = step.made(sizes)
            more = params.get("keep") is False and thread.grad_enabled  # for the way back
            if more:
                params = {**params, "keep": True}
            try:
                given = tuple([env[a] if a.__class__ is Name else a for a in args])
                out = gate(prim, given, params) if prim.random else prim(*given, **params)
            except _FAILURES as error:
                raise failed(step.node, error) from cause(error)
            outs = out if prim.multi else (out,)
            for name, o in zip(step.node.outputs, outs, strict=True):
                o = o if isinstance(o, Tensor) else wrap(finish(o)).to(program.device)
                if check and not more:
                    self._see(step.node, name, o.meta(), sizes)
                env[name] = o
            for name in step.last:
                env.pop(name, None)
        writes = [(env[target], env[new]) for target, new in program.writes]
        return [env[name] for name in program.graph.outputs], writes

    def _see(self, node: Node, name: str, meta: tuple, sizes: Mapping[str, int]) -> None:
        value = self.program.graph.values[name]
        want = value.sized(sizes), np.dtype(value.dtype)
        if (tuple(meta[0]), np.dtype(meta[1])) != want:
            told = f"{meta[1]}{list(meta[0])} was made, {want[1]}{list(want[0])} is needed"
            raise failed(node, ShapeError(told))

    def arrays(
        self, given: Sequence[np.ndarray], sizes: Mapping[str, int], check: bool = False
    ) -> list[np.ndarray]:
        """The results for arrays; nothing is recorded."""
        program = self.program
        env: dict[str, Any] = {
            n: t.array for n, t in (*program.state.items(), *program.constants.items())
        }
        held = list(env.values())
        env.update(zip(self.names, given, strict=True))
        for step in self.steps:
            prim, args, params = step.made(sizes)
            try:
                out = prim.compute([env[a] if a.__class__ is Name else a for a in args], params)
            except _FAILURES as error:
                raise failed(step.node, error) from cause(error)
            outs = out if prim.multi else (out,)
            for name, o in zip(step.node.outputs, outs, strict=True):
                env[name] = o = finish(o)
                if check:
                    self._see(step.node, name, (o.shape, o.dtype), sizes)
            for name in step.last:
                env.pop(name, None)
        for target, new in program.writes:
            if target not in self.names:
                np.copyto(env[target], env[new])
        return [_own(env[name], (*held, *given)) for name in program.graph.outputs]


def _own(array: Any, others: Sequence[Any]) -> np.ndarray:
    """A result that shares no memory with what the program keeps, or was given."""
    if any(np.may_share_memory(array, other) for other in others):
        return np.array(array)
    return np.asarray(array)


__all__ = ["Runner", "Step", "primitive"]
