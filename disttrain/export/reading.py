"""Programs for those who read ``torch.fx``: a graph of nodes that name what they call and what
with, in the words of that package. It is read, not written to."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from . import bodies, vocabulary
from .modules import ProgramModule
from .program import Program
from .values import Graph, Name, Node, Value


class FxNode:
    """One node. ``op``: "placeholder", "get_attr", "call_function" or "output"; ``target``: the
    name of an input or a tensor, or the primitive; ``args``, ``kwargs``: nodes and plain values;
    ``meta``: "val" (name, shape, type), "nn_module_stack" (the module's path), "stack_trace" (the
    line); ``users``: nodes that take its result."""

    def __init__(
        self, graph: FxGraph, op: str, name: str, target: Any, args: tuple = (),
        kwargs: dict[str, Any] | None = None, meta: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.op, self.name, self.target = graph, op, name, target
        self.args, self.kwargs, self.meta = args, kwargs or {}, meta or {}
        self.users: dict[FxNode, None] = {}
        for node in self.all_input_nodes:
            node.users[self] = None

    @property
    def all_input_nodes(self) -> list[FxNode]:
        """The nodes among its arguments, each once."""
        return list(dict.fromkeys(_nodes_in((self.args, tuple(self.kwargs.values())))))

    @property
    def next(self) -> FxNode:
        """The node after it."""
        return self.graph.nodes[(self.graph.nodes.index(self) + 1) % len(self.graph.nodes)]

    @property
    def prev(self) -> FxNode:
        """The node before it."""
        return self.graph.nodes[self.graph.nodes.index(self) - 1]

    @property
    def stack_trace(self) -> str | None:
        """The line of the program."""
        return self.meta.get("stack_trace")

    def format_node(self) -> str:
        """The node as a line of text."""
        target = target_name(self.target)
        if self.op == "placeholder":
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={target}]"
        if self.op == "output":
            return f"return {_shown(self.args[0])}"
        given = ", ".join(f"{k}: {_shown(v)}" for k, v in self.kwargs.items())
        return (f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
                f"(args = {_shown(self.args)}, kwargs = {{{given}}})")  # fmt: skip

    def __repr__(self) -> str:
        return self.name


class FxGraph:
    """The nodes of a program, in order."""

    def __init__(self, of: tuple[Program, bool] | None = None) -> None:
        self.nodes: list[FxNode] = []
        self.of = of

    def __reduce__(self) -> tuple:
        return (graph_of, self.of) if self.of is not None else (FxGraph, ())

    def __str__(self) -> str:
        return "graph():\n" + "\n".join(f"    {node.format_node()}" for node in self.nodes)

    def print_tabular(self) -> None:
        """Print all nodes as a table."""
        print(self.table())

    def table(self) -> str:
        """All nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [
            (n.op, n.name, target_name(n.target), _shown(n.args), _shown(n.kwargs))
            for n in self.nodes
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
                 for row in rows]  # fmt: skip
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[FxNode]:
        """The nodes of a kind."""
        return [n for n in self.nodes if n.op == op and target in (None, n.target)]

    def output_node(self) -> FxNode:
        """The last node."""
        return self.nodes[-1]

    def lint(self) -> None:
        """A program is checked when it is made, or read from a file."""

    def python_code(self, root_module: str = "self") -> str:
        """The graph as a function in Python's words."""
        given = [n.name for n in self.nodes if n.op == "placeholder"]
        lines = [f"def forward({', '.join([root_module, *given])}):"]
        for node in self.nodes:
            if node.op == "get_attr":
                lines.append(f"    {node.name} = {root_module}.{node.target}")
            elif node.op == "call_function":
                args = [_shown(a) for a in node.args]
                args += [f"{k}={_shown(v)}" for k, v in node.kwargs.items()]
                where = node.meta.get("stack_trace")
                about = f"  # {where}" if where else ""
                called = f"{target_name(node.target)}({', '.join(args)})"
                lines.append(f"    {node.name} = {called}{about}")
            elif node.op == "output":
                lines.append(f"    return {_shown(node.args[0])}")
        return "\n".join(lines) + "\n"


class GraphModule(ProgramModule):
    """A program as a module, with its graph. ``code``: the graph as text."""

    graph: FxGraph

    def __init__(self, program: Program, lifted: bool = False) -> None:
        super().__init__(program)
        self.__dict__["graph"] = graph_of(program, lifted)

    @property
    def code(self) -> str:
        """The graph as a function in Python's words."""
        return self.graph.python_code()

    def print_readable(self, print_output: bool = True, **how: object) -> str:
        """The code, printed."""
        if print_output:
            print(self.code)
        return self.code

    def recompile(self) -> str:
        """The code: a graph that is read does not change."""
        return self.code


def graph_of(program: Program, lifted: bool = False) -> FxGraph:
    """The graph of a program. ``lifted``: parameters and constants are inputs too, as of
    ``torch.export``; else they are attributes."""
    graph = FxGraph((program, lifted))
    known: dict[str, Any] = {}
    used = {a for n in program.nodes for a in n.inputs} | {*program.results}
    for name, _ in program.tensors():
        if name in used or lifted:
            made = lifted_name(program, name) if lifted else name.replace(".", "_")
            op = "placeholder" if lifted else "get_attr"
            known[name] = _add(graph, op, made, made if lifted else name, program.values[name])
    for value in program.inputs:
        known[value.name] = _add(graph, "placeholder", value.name, value.name, value)
    for node in program.nodes:
        _call(graph, node, program.values, known)
    outs = (*(known[new] for _, new in program.writes), *(known[n] for n in program.results))
    graph.nodes.append(FxNode(graph, "output", "output", "output", (outs,)))
    return graph


def lifted_name(program: Program, name: str) -> str:
    """What the input is called that a parameter, buffer or constant is in ``torch.export``."""
    kind = "p" if name in program.parameters else "b" if name in program.buffers else "c"
    return f"{kind}_{name.replace('.', '_')}"


def _add(graph: FxGraph, op: str, name: str, target: Any, value: Value) -> FxNode:
    node = FxNode(graph, op, name, target, meta={"val": value})
    graph.nodes.append(node)
    return node


def _call(graph: FxGraph, node: Node, values: Mapping[str, Value], known: dict[str, Any]) -> None:
    prim = node.primitive if node.primitive in bodies.NAMES else vocabulary.find(node.primitive)
    meta: dict[str, Any] = {"nn_module_stack": node.module, "stack_trace": node.line}
    args = tuple(known[a] if isinstance(a, Name) else a for a in node.args)
    several = len(node.outputs) > 1 or getattr(prim, "multi", True)
    seen: Any = values[node.outputs[0]]
    if several:
        seen = tuple(values[o] for o in node.outputs)
    first = node.outputs[0]
    made = FxNode(graph, "call_function", f"{first}_all" if several else first, prim, args,
                  dict(node.params), {**meta, "val": seen})  # fmt: skip
    graph.nodes.append(made)
    known[first] = made
    for i, o in enumerate(node.outputs if several else ()):
        known[o] = FxNode(graph, "call_function", o, operator.getitem, (made, i),
                          meta={**meta, "val": values[o]})  # fmt: skip
        graph.nodes.append(known[o])


def target_name(target: Any) -> str:
    """How a target is called."""
    return str(getattr(target, "name", None) or getattr(target, "__name__", target))


def _nodes_in(x: Any) -> Iterator[FxNode]:
    if isinstance(x, FxNode):
        yield x
    elif isinstance(x, (tuple, list)):
        for y in x:
            yield from _nodes_in(y)


def _shown(x: Any) -> str:
    if isinstance(x, FxNode):
        return x.name
    if isinstance(x, tuple):
        return f"({', '.join(map(_shown, x))}{',' if len(x) == 1 else ''})"
    if isinstance(x, Graph):
        return f"<graph of {len(x.nodes)} nodes>"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{k!r}: {_shown(v)}' for k, v in x.items())}}}"
    return repr(x)


__all__ = ["FxGraph", "FxNode", "GraphModule", "graph_of", "lifted_name", "target_name"]
