"""How the results of a staged program lie, from how its arguments do: for the simulated devices of
one process, whose arrays are whole. (Over ranks DTensors find it out as they compute.)

Each step is asked what it would choose if its arguments lay on ranks (``distributed.tensor``);
sums over what is cut are whole in the end. What is said inside (``constrained``) holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends.null import NullArray
from ...core.bodies import Body, Ref, Step
from ...ops.declare import declare_apart
from ...ops.layouts import Rewrite
from ...ops.layouts import layout_of as rule_of
from ..tensor import Replicate, Shard
from ..tensor.choice import Given, choose
from .layouts import OverMesh

constrained: Any = declare_apart(
    "constrained", lambda a, layout: a, "a", {"a": lambda g, layout: constrained(g, layout=layout)}
)
constrained.batch = lambda args, dims, params, size: (args[0], dims[0])
constrained.shape = lambda a, layout: (a.shape, a.dtype)
constrained.kinds = False


def says(body: Body) -> bool:
    """Whether a program says of any of its values how they lie."""
    return any(
        s.prim is constrained or (isinstance(b := getattr(s.prim, "body", None), Body) and says(b))
        for s in body.steps
    )


def propagated(body: Body, given: Sequence[Any]) -> list:
    """Per result of ``body``: a layout, or (mesh, per dimension the axes that cut it); None where
    nothing is known. ``given``: the layouts of its arguments, or None."""
    said = [x for x in given if isinstance(x, OverMesh)]
    said += [s.params["layout"] for s in body.steps if s.prim is constrained]
    said = [x for x in said if isinstance(x, OverMesh)]
    if not said:
        return [None] * len(body.ends)
    return _Propagation(body, said[0].mesh).run(given, said)


class _Propagation:
    def __init__(self, body: Body, mesh: Any) -> None:
        self.body, self.mesh = body, mesh
        self.sizes = tuple(mesh.axis_sizes)
        self.whole = (Replicate(),) * len(self.sizes)
        self.have: dict[int, tuple] = {}  # placements, by the numbers of values
        self.fixed: dict[int, Any] = {}  # what a program has said of values

    def run(self, given: Sequence[Any], said: Sequence[Any]) -> list:
        for i, layout in enumerate(given):
            self.have[i] = self._placements(layout)
        for step in self.body.steps:
            self._step(step)
        known = {(self._placements(x), len(x.spec)): x for x in said if x.mesh == self.mesh}
        return [self._end(i, known) for i in self.body.ends]

    def _placements(self, layout: Any) -> tuple:
        if not isinstance(layout, OverMesh) or layout.mesh != self.mesh:
            return self.whole
        dims = {n: d for d in range(len(layout.spec)) for n in layout.spec.names(d)}
        return tuple([Shard(dims[n]) if n in dims else Replicate() for n in self.mesh.axis_names])

    def _step(self, step: Step) -> None:
        if step.prim is constrained:
            (i,) = step.made
            self.have[i], self.fixed[i] = (
                self._placements(step.params["layout"]),
                step.params["layout"],
            )
            return
        inner = getattr(step.prim, "body", None)
        if isinstance(inner, Body):
            numbers = [a.number for a in step.args if a.__class__ is Ref]
            other = _Propagation(inner, self.mesh)
            other.have = {i: self.have.get(n, self.whole) for i, n in enumerate(numbers)}
            for each in inner.steps:
                other._step(each)
            ends = zip(step.made, inner.ends, strict=True)
            self.fixed.update({i: other.fixed[n] for i, n in ends if n in other.fixed})
            found = [other.have.get(i, self.whole) for i in inner.ends]
        else:
            found = self._chosen(step)
        self.have.update(zip(step.made, found, strict=True))

    def _chosen(self, step: Step) -> list:
        arrays = [
            NullArray(*self.body.metas[a.number]) if a.__class__ is Ref else a for a in step.args
        ]
        rule = None if step.prim.random else rule_of(step.prim, arrays, step.params)
        if rule is None or rule.__class__ is Rewrite or not rule.outs:
            return [self.whole] * len(step.made)
        given = [
            Given(x.shape, x.dtype.itemsize, self.have.get(a.number, self.whole))
            if a.__class__ is Ref
            else None
            for a, x in zip(step.args, arrays, strict=True)
        ]
        outs = choose(rule, tuple(given), self.sizes).outs
        return [tuple([p if isinstance(p, Shard) else Replicate() for p in out]) for out in outs]

    def _end(self, number: int, known: dict) -> Any:
        if number in self.fixed:
            return self.fixed[number]
        placements, ndim = self.have.get(number, self.whole), len(self.body.metas[number][0])
        found = known.get((placements, ndim))
        if found is not None:
            return found
        if placements == self.whole:
            return self.mesh, ()
        names = self.mesh.axis_names
        cuts = [
            [n for n, p in zip(names, placements, strict=True) if p == Shard(d)]
            for d in range(ndim)
        ]
        return self.mesh, tuple([(c[0] if len(c) == 1 else tuple(c)) if c else None for c in cuts])
