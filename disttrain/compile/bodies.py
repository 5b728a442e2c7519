"""Bodies of loops and branches, shortened by the passes that captured programs go through."""

from __future__ import annotations

from ..core.bodies import Body, Ref, Step
from .graph import Graph
from .instruction import Instruction, Var
from .passes import EVERYWHERE, fuse, fuse_rows, optimize, take_biases

_PASSES = (*EVERYWHERE, take_biases, fuse_rows, fuse)


def shorten(body: Body) -> Body:
    """A body that computes the same bits in fewer steps."""
    given = body.count
    held = range(given, given + len(body.held))
    names = {i: Var("c", i - given) if i in held else Var("v", i) for i in range(len(body.metas))}
    instructions = tuple(
        Instruction(s.prim, tuple([names[a.number] if a.__class__ is Ref else a for a in s.args]),
                    s.params, tuple([names[i] for i in s.made]))
        for s in body.steps
    )  # fmt: skip
    graph = Graph(
        inputs=tuple([names[i] for i in range(given)]),
        captured=body.held,
        names=("held",) * len(body.held),
        instructions=instructions,
        outputs=tuple([names[i] for i in body.ends]),
        metas={names[i]: meta for i, meta in enumerate(body.metas)},
        constants={names[i]: t.array for i, t in zip(held, body.held, strict=True)},
    )
    return _body_of(optimize(graph, _PASSES))


def _body_of(graph: Graph) -> Body:
    numbers: dict[Var, int] = {}

    def number(v: Var) -> int:
        return numbers.setdefault(v, len(numbers))

    for v in (*graph.inputs, *graph.outside()):
        number(v)
    steps = [
        Step(ins.prim, tuple([Ref(number(a)) if isinstance(a, Var) else a for a in ins.args]),
             ins.params, [number(o) for o in ins.outputs])
        for ins in graph.instructions
    ]  # fmt: skip
    ends = [number(v) for v in graph.outputs]
    return Body(len(graph.inputs), steps, [graph.metas[v] for v in numbers], ends, graph.captured)
