"""Loops and branches of a program: their bodies as graphs, and these as bodies again.

A graph of a body takes its inputs by name; other names in it are constants of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.bodies import Body, Ref, Step
from ..core.gate import Primitive
from ..core.tensor import Tensor
from ..func.branches import Switch
from ..func.loops import Scan, While
from .values import Graph, Name, Node, Value

NAMES = ("cond", "while", "scan")


def is_body_call(prim: Primitive) -> bool:
    """Whether an instruction runs bodies."""
    return isinstance(prim, (Switch, While, Scan))


def bodies_of(prim: Any) -> list[Body]:
    """The bodies of such an instruction."""
    if isinstance(prim, Switch):
        return list(prim.branches)
    return [prim.cond, prim.body] if isinstance(prim, While) else [prim.body]


def params_of(prim: Any, named: Callable[[Any], str], plain: Callable[[Any], Any],
              hold: Callable[[Tensor], str]) -> tuple[str, dict]:  # fmt: skip
    """The name of such an instruction, and its parameters with graphs for bodies. ``named``: names
    of primitives; ``hold``: the name of a constant."""

    def graph(body: Body) -> Graph:
        return _graph_of(body, named, plain, hold)

    if isinstance(prim, Switch):
        return "cond", {"branches": tuple(map(graph, prim.branches))}
    if isinstance(prim, While):
        counts = {"of_cond": prim.of_cond, "of_body": prim.of_body}
        return "while", {"cond": graph(prim.cond), "body": graph(prim.body), **counts}
    counts = {"consts": prim.consts, "carries": prim.carries, "length": plain(prim.length)}
    return "scan", {"body": graph(prim.body), **counts, "reverse": prim.reverse}


def _graph_of(body: Body, named: Callable, plain: Callable, hold: Callable) -> Graph:
    names = {i: Name(f"x{i}") for i in range(body.count)}
    for i, t in enumerate(body.held):
        names[body.count + i] = Name(hold(t))
    nodes, values = [], {}
    for step in body.steps:
        for i in step.made:
            names[i] = Name(f"v{i}")
        args = tuple(names[a.number] if a.__class__ is Ref else plain(a) for a in step.args)
        if is_body_call(step.prim):
            name, params = params_of(step.prim, named, plain, hold)
        else:
            name, params = named(step.prim), plain(step.params)
        nodes.append(Node(name, args, params, tuple(names[i] for i in step.made)))
    for i, name in names.items():
        if not body.count <= i < body.count + len(body.held):
            values[str(name)] = Value(str(name), plain(tuple(body.metas[i][0])), body.metas[i][1])
    inputs = tuple(f"x{i}" for i in range(body.count))
    return Graph(inputs, tuple(nodes), tuple(names[i] for i in body.ends), values)


def primitive_of(
    name: str, params: Mapping[str, Any], find: Callable[[Node], tuple[Primitive, dict]],
    constants: Mapping[str, Tensor],
) -> Primitive:  # fmt: skip
    """The instruction of a node with bodies (of numbers: sizes are known)."""

    def body(graph: Graph) -> Body:
        return _body_of(graph, find, constants)

    if name == "cond":
        return Switch([body(g) for g in params["branches"]])
    if name == "while":
        return While(body(params["cond"]), body(params["body"]), params["of_cond"],
                     params["of_body"])  # fmt: skip
    return Scan(body(params["body"]), params["consts"], params["carries"], params["length"],
                params["reverse"])  # fmt: skip


def misfit(op: str, count: int, params: Mapping[str, Any]) -> str | None:
    """Why graphs do not fit the node that they are in, which has ``count`` arguments; None where
    they do."""
    if op == "cond":
        given = {len(g.inputs) for g in params["branches"]}
        gives = {len(g.outputs) for g in params["branches"]}
        return None if given == {count - 1} and len(gives) == 1 else "its branches do not fit it"
    body = params["body"]
    counts = [params[k] for k in ("consts", "carries", "of_cond", "of_body") if k in params]
    if not all(type(n) is int and n >= 0 for n in counts):
        return "its numbers of arguments are no numbers"
    if op == "while":
        cond, carried = params["cond"], len(body.outputs)
        fits = len(cond.inputs) == params["of_cond"] + carried and len(cond.outputs) == 1
        fits = fits and len(body.inputs) == params["of_body"] + carried
        fits = fits and count == params["of_cond"] + len(body.inputs)
        return None if fits else "its condition and body do not fit it"
    fits = count == len(body.inputs) >= params["consts"] + params["carries"]
    return None if fits and len(body.outputs) >= params["carries"] else "its body does not fit it"


def _body_of(graph: Graph, find: Callable, constants: Mapping[str, Tensor]) -> Body:
    inside = {o for node in graph.nodes for o in node.outputs} | set(graph.inputs)
    used = [a for node in graph.nodes for a in node.inputs] + list(graph.outputs)
    held = list(dict.fromkeys(a for a in used if a not in inside))
    order = [*graph.inputs, *held, *(o for node in graph.nodes for o in node.outputs)]
    number = {name: i for i, name in enumerate(order)}
    metas = [
        constants[n].meta() if n in held else (graph.values[n].shape, graph.values[n].dtype)
        for n in order
    ]
    steps = []
    for node in graph.nodes:
        prim, params = find(node)
        args = tuple(Ref(number[a]) if isinstance(a, Name) else a for a in node.args)
        steps.append(Step(prim, args, params, [number[o] for o in node.outputs]))
    ends = [number[o] for o in graph.outputs]
    return Body(len(graph.inputs), steps, metas, ends, [constants[n] for n in held])


__all__ = ["NAMES", "bodies_of", "is_body_call", "misfit", "params_of", "primitive_of"]
