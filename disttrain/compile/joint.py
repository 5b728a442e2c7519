"""Backward of a captured call: the graph that its results stand in, captured with them.

When results of a function require grad, the walk that a later backward would do is done once, at
capture, for each set of results that may get gradients (what gets none must not be touched: zero
times infinity is no zero). A replay gives its results one node; when backward reaches it, it runs
the captured walk for those of its results that have a gradient. The edges of the node lead to the
inputs and the leaves, where the engine goes on as ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..context import thread
from ..core.algebra import Algebra
from ..core.backward.autograd import grad
from ..core.backward.engine import Walk, discard
from ..core.backward.fit import apart
from ..core.grad_mode import set_state
from ..core.node import AccumulateGrad, GraphNode, Node, Output, next_seq
from ..core.saved import PackedNode
from ..core.tensor import Tensor, wrap
from ..core.tensor_node import TensorNode
from ..errors import AutogradError
from .capture import Capture
from .graph import Graph
from .instruction import Var
from .passes import Pass, dead_code, shortened
from .questions import lies, question
from .sweep import Backward, Sweep

_ALL_SETS = 4  # results up to which every set of them is captured; of more, single ones and all


_AMONG_RANKS = (
    "work with other ranks (fully_shard, DTensors) is part of its result's graph; compile the "
    "whole step, or the parts inside"
)


class Joint:
    """How the results of a function lead back to its inputs and leaves.

    ``places``: the outputs that require grad. ``freed``: why backward through them is impossible.
    ``ends``: ("input", number) or ("leaf", tensor), where gradients arrive.
    """

    def __init__(self, places: list[int], shapes: tuple, freed: str | None) -> None:
        self.places, self.shapes, self.freed = places, shapes, freed
        self.ends: list[tuple[str, Any]] = []
        self.sweeps: list[Sweep] = []
        self.held: list[int] = []  # which inputs and tensors from outside backward reads
        self.saved: tuple[Var, ...] = ()  # which values made on the way
        self.pure: Graph | None = None  # the forward, where running it again changes nothing
        self.cut: frozenset[Var] = frozenset()  # values that are no part of a graph

    # --- a replay ---------------------------------------------------------------------------
    def attach(self, outputs: tuple, inputs: list[Tensor], graph: Graph) -> tuple:
        """Give the results of one replay their node; the outputs without what it saved."""
        results = outputs[: len(outputs) - len(self.saved)]
        kept = outputs[len(results) :]
        node: GraphNode
        if self.freed is not None:
            node = Freed(self.freed, self.shapes)
        else:
            edges = tuple(
                inputs[at].graph_node() if kind == "input" else at._node for kind, at in self.ends
            )
            given = (*inputs, *graph.captured)
            node = Replayed(self, edges, tuple(given[i] for i in self.held), kept)
            if self.pure is not None:
                node.again = given, [t._version for t in given]
        single = len(self.places) == 1
        for i, at in enumerate(self.places):
            results[at]._node = node if single else Output(node, i)
        return results

    def sweep(self, present: tuple[int, ...]) -> Sweep | None:
        return next((s for s in self.sweeps if s.results == present), None)


class Freed(GraphNode):
    """The node of results whose graph the function itself used up."""

    saved = None

    def __init__(self, why: str, shapes: tuple) -> None:
        self.why = why
        _set_shapes(self, shapes)
        self.seq = next_seq()

    def name(self) -> str:
        return "CompiledBackward"

    def release(self) -> None:
        """There is nothing to release."""

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        raise AutogradError(self.why)

    def run_without(self, tensors: bool) -> tuple:
        raise AutogradError(self.why)


class Replayed(GraphNode):
    """The node of one replay's results."""

    makes = True
    wants_none = True  # for results without a gradient
    again: tuple | None = None  # what the forward was given, with versions

    def __init__(self, joint: Joint, edges: tuple, outside: tuple, kept: tuple) -> None:
        self.joint, self.edges = joint, edges
        self.saved: tuple | None = (*outside, *kept)
        self.versions = [t._version for t in (*outside, *kept)]
        _set_shapes(self, joint.shapes)
        self.seq = next_seq()

    def name(self) -> str:
        return "CompiledBackward"

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"

    def release(self) -> None:
        if self.saved:
            self.saved = self.again = None

    def run(self, g: object, tensors: bool, wanted: tuple | None = None) -> tuple:
        """The gradients for the edges, of those results that have one."""
        if tensors and thread.grad_enabled:
            return self._recorded(g if g.__class__ is tuple else (g,), wanted)
        gs = g if g.__class__ is tuple else (g,)
        if tensors:
            gs = tuple(None if x is None else x.array for x in gs)
        present = tuple(i for i, x in enumerate(gs) if x is not None)
        found = self._through(present, gs)
        if wanted is not None:
            found = [r if want else None for r, want in zip(found, wanted, strict=True)]
        return tuple(wrap(r) if tensors and r is not None else r for r in found)

    def run_without(self, tensors: bool) -> tuple:
        self._check()
        return (None,) * len(self.edges)

    def _recorded(self, gs: tuple, wanted: tuple | None) -> tuple:
        """The gradients as Tensors with a graph: the forward is run once more, recorded."""
        joint = self.joint
        self._check()
        if self.again is None or joint.pure is None:
            raise AutogradError(
                "backward: create_graph=True goes through the results of a compiled function that "
                "draws random numbers, writes to tensors or reaches other ranks, so that it cannot "
                "be run once more; "
                "call the function itself (run.fn, or the module before dt.compile) where second "
                "derivatives are needed"
            )
        given, versions = self.again
        for t, version in zip(given, versions, strict=True):
            if t._version != version:
                raise AutogradError(_changed(self.name(), t))
        graph = joint.pure
        outside = (*graph.inputs, *graph.outside())
        values = {v: Algebra.clone(t) for v, t in zip(outside, given, strict=True)}
        starts = [
            values[graph.inputs[at] if kind == "input" else _leaf_name(graph, at)]
            for kind, at in joint.ends
        ]
        for ins in graph.instructions:
            if ins.prim in (question, lies):  # answered, as before
                continue
            out = ins.prim(*[values.get(a, a) for a in ins.args], **ins.params)
            outs = out if isinstance(out, tuple) else (out,)
            made = [o if isinstance(o, Tensor) else wrap(o) for o in outs]
            for var, o in zip(ins.outputs, made, strict=True):
                values[var] = o.detach() if var in joint.cut else o
        results = [values[graph.outputs[at]] for at in joint.places]
        present = [i for i, x in enumerate(gs) if x is not None]
        found = grad(
            [results[i] for i in present], starts, [gs[i] for i in present],
            create_graph=True, allow_unused=True,
        )  # fmt: skip
        wanted = wanted or (True,) * len(found)
        found = tuple(r if want else None for r, want in zip(found, wanted, strict=True))
        return tuple(apart(found, (), Algebra.clone))

    def _through(self, present: tuple, gs: tuple) -> list:
        sweep = self.joint.sweep(present)
        if sweep is not None:
            return self._run(sweep, [gs[i] for i in present])
        total: list = [None] * len(self.edges)
        for i in present:
            for k, r in enumerate(self._through((i,), gs)):
                total[k] = r if total[k] is None else total[k] if r is None else total[k] + r
        return total

    def _check(self) -> None:
        if self.saved is None:
            raise AutogradError(
                f"backward: {self.name()} was already run and its saved tensors were freed. "
                "Specify retain_graph=True the first time to go backward through it a second time"
            )

    def _run(self, sweep: Sweep, gs: list) -> list:
        self._check()
        tensors: Any = self.saved
        for at in sweep.graph.reads:
            t = tensors[at]
            if t._version != self.versions[at]:
                raise AutogradError(_changed(self.name(), t))
        arrays = [t.array for t in tensors]
        return apart(sweep.graph.run(arrays, gs), arrays, lambda a: a.copy("C"))


def _changed(name: str, t: Tensor) -> str:
    site = t._st.site if t._st is not None else None
    return (
        f"backward: a tensor of shape {list(t.shape)}, which {name} needs for the gradient, was "
        f"changed in-place (modified by an inplace operation{f' at {site}' if site else ''}); use "
        "the out-of-place form there, or .clone() the tensor first"
    )


def _leaf_name(graph: Graph, leaf: Tensor) -> Var:
    return next(v for v, t in zip(graph.outside(), graph.captured, strict=True) if t is leaf)


def _set_shapes(node: Freed | Replayed, shapes: tuple) -> None:
    node.shape, node.dtype = shapes[0]
    node.shapes = shapes if len(shapes) > 1 else None


# --- capturing --------------------------------------------------------------------------------
def differentiate(recorder: Capture, outputs: list) -> tuple[Joint | None, str | None]:
    """Capture how the outputs that require grad lead back (with ``recorder`` still on the stack),
    or say why that cannot be. Neither, when no output has a graph."""
    places, known = [], set()
    for i, o in enumerate(outputs):
        if not isinstance(o, Tensor) or o.graph_node() is None:
            continue
        if any(o is t for t in recorder.given) or id(o) in recorder.old:
            continue
        base = o._base
        if base is not None and (
            id(base) in recorder.old or any(base is t for t in recorder.given)
        ):
            return None, "it returns a view of a tensor from outside, with gradients recorded"
        if o.is_leaf:
            return None, "it returns a new leaf that requires grad; make it outside"
        if id(o) not in known:
            known.add(id(o))
            places.append(i)
    if not places:
        return None, None
    return _Differentiation(recorder, [outputs[i] for i in places], places).joint()


class _Differentiation:
    """The graph above some results, up to where it was when the function began."""

    def __init__(self, recorder: Capture, results: list[Tensor], places: list[int]) -> None:
        self.recorder, self.results, self.places = recorder, results, places
        self.why: str | None = None
        self.freed: str | None = None
        self.overwritten: str | None = None
        self.arrived: list[Any] = []
        self.ends: dict[Any, tuple[str, Any]] = {}  # (node, index) -> where gradients arrive
        self.inputs: dict[Any, Any] = {}
        for i, t in enumerate(recorder.given):
            if t.graph_node() is not None:
                self.inputs.setdefault(_place(t._node), i)
        self._look()

    def _look(self) -> None:
        seen: set = set()
        todo = [t._node for t in self.results]
        while todo:
            edge = todo.pop()
            place = _place(edge)
            node = place[0]
            if self._is_end(place):
                continue
            if node in seen:
                continue
            seen.add(node)
            self._inspect(node)
            todo += [e for e in node.edges if e is not None]

    def _is_end(self, place: tuple) -> bool:
        node = place[0]
        if place in self.inputs:
            self.ends.setdefault(place, ("input", self.inputs[place]))
        elif isinstance(node, AccumulateGrad):
            leaf = node.leaf
            if leaf is not None and id(leaf) in self.recorder.old:
                self.ends.setdefault(place, ("leaf", leaf))
        elif node.seq <= self.recorder.start:
            self.why = "its result belongs to a graph that was made before, outside"
        else:
            return False
        return True

    def _inspect(self, node: Node) -> None:
        if node.tensor_hooks or node.retained or node.pre_hooks or node.post_hooks:
            self.why = "hooks are set on gradients inside of it, which a replay would not run"
        elif node.outward and not isinstance(node, Node):
            self.why = _AMONG_RANKS
        elif isinstance(node, PackedNode):
            self.why = (
                "saved-tensor hooks (a checkpointed block) are part of its result's graph; compile "
                "the whole step"
            )
            found = _complaint(node)
            self.freed = self.freed or found
        elif node.__class__ is not Node and not (isinstance(node, TensorNode) or node.outward):
            self.why = f"{node.name()}, a Function of its own, is part of its result's graph"
        else:
            if node.outward:
                self.why = _AMONG_RANKS
            found = _complaint(node)
            if found is not None and node.saved is not None:
                self.overwritten = "it overwrites a value that the gradient of its result needs"
            self.freed = self.freed or found

    def joint(self) -> tuple[Joint | None, str | None]:
        joint = Joint(self.places, tuple(t.meta() for t in self.results), self.freed)
        if self.overwritten is not None:
            return None, self.overwritten
        if self.freed is not None:
            return joint, None
        if self.why is not None:
            return None, self.why
        joint.ends = list(self.ends.values())
        joint.cut = frozenset(var for var, t in self.recorder.made if t._node is None)
        n = len(self.results)
        sizes = range(1, n + 1) if n <= _ALL_SETS else (1, n)
        for size in sizes:
            for present in itertools.combinations(range(n), size):
                try:
                    joint.sweeps.append(self._sweep(present))
                except AutogradError as error:
                    joint.freed = str(error)
                    return joint, None
        self._order(joint)
        return joint, None

    def _order(self, joint: Joint) -> None:
        """Let gradients go on in the order in which an eager walk completes them."""
        rank = {node: i for i, node in enumerate(self.arrived)}
        turns = [rank.get(node, len(rank)) for node, _ in self.ends]
        order = sorted(range(len(turns)), key=turns.__getitem__)
        joint.ends = [joint.ends[k] for k in order]
        for sweep in joint.sweeps:
            sweep.ends = tuple(sweep.ends[k] for k in order)

    def _sweep(self, present: tuple[int, ...]) -> Sweep:
        recorder = self.recorder
        roots = [self.results[i] for i in present]
        starts = [_ones(t) for t in roots]
        names = tuple(recorder._define(s) for s in starts)
        first = len(recorder.instructions)
        targets = {node for node, _ in self.ends}
        before = thread.grad_enabled, recorder.walked
        set_state({"grad_enabled": False})
        try:
            walk = _Inner([t._node for t in roots], targets)
            for node, index in self.ends:
                walk.captures.setdefault(node, {})[index] = None
            for t, s in zip(roots, starts, strict=True):
                walk.feed(t._node, s)
            walk.run()
            self.arrived = walk.arrived  # of the last sweep, from all results
        finally:
            set_state({"grad_enabled": before[0]})
            recorder.walked = before[1]
            taken = recorder.instructions[first:]
            del recorder.instructions[first:]
        found = [walk.captures[node][index] for node, index in self.ends]
        ends = tuple(None if g is None else recorder.var(g) for g in found)
        return Sweep(present, taken, names, ends)


class _Inner(Walk):
    """A walk that ends at its targets, wherever these lead."""

    def __init__(self, roots: list, targets: set) -> None:
        self.cut = targets
        self.arrived: list[Any] = []
        super().__init__(roots, discard, keep=True, tensors=True, targets=targets)

    def _below(self, node: AccumulateGrad | Node) -> tuple:
        return () if node in self.cut else node.edges

    def _push(self, node: AccumulateGrad | Node) -> None:
        if node in self.cut:  # as it arrives: the hooks there are for the real walk to run
            self._capture(node, self.grads.pop(node))
            self.arrived.append(node)
        else:
            super()._push(node)

    def _count_only(self, order: list) -> None:
        for node in self.cut:
            self.needed[node] = False
        super()._count_only([node for node in order if node not in self.cut])


def _ones(t: Tensor) -> Tensor:
    """A gradient for ``t``, where it lies."""
    if isinstance(t.array, ArrayKind):
        return wrap(t.array.ones())
    return wrap(np.ones(*t.meta()))


def _place(edge: AccumulateGrad | Node) -> tuple:
    return (edge.node, edge.index) if edge.__class__ is Output else (edge, 0)


def _complaint(node: Node) -> str | None:
    """Why a node cannot run any more, if it cannot."""
    try:
        node.check()
    except AutogradError as error:
        return str(error)
    return None


def join(graph: Graph, joint: Joint, recorder: Capture, passes: Sequence[Pass]) -> Graph | None:
    """The graph, giving also what backward needs, with the sweeps laid out accordingly, as
    ``passes`` leave them. None when backward reads a gradient."""
    names = recorder.names  # what values of the recording are called in the graph
    versioned = {names.get(v, v) for v in recorder.versioned}
    outside = (*graph.inputs, *graph.outside())
    made = {o for ins in graph.instructions for o in ins.outputs}
    used: set[Var] = set()
    for sweep in joint.sweeps:
        sweep.ends = tuple(names.get(e, e) for e in sweep.ends)
        wanted = {e for e in sweep.ends if isinstance(e, Var)}
        keep = []
        for ins in reversed([ins.renamed(names) for ins in sweep.instructions]):
            if ins.effect or any(o in wanted for o in ins.outputs):
                keep.append(ins)
                wanted.update(a for a in ins.args if isinstance(a, Var))
        sweep.instructions = keep[::-1]
        used |= wanted
    if any(v in used for v in graph.owners):
        return None
    joint.held = [i for i, v in enumerate(outside) if v in used]
    joint.saved = tuple(sorted((v for v in used if v in made), key=lambda v: v.number))
    for sweep in joint.sweeps:
        ends = [e for e in sweep.ends if isinstance(e, Var)]
        sweep.instructions = shortened(sweep.instructions, graph, ends, passes)
        sweep.graph = Backward(sweep, [*(outside[i] for i in joint.held), *joint.saved])
        unseen = {i for i, k in enumerate(joint.held) if outside[k] not in versioned}
        sweep.graph.reads = [i for i in sweep.graph.reads if i not in unseen]
    lean = dead_code(graph)
    prims = [ins.prim for ins in lean.instructions]
    if not any(prim.mutates or prim.random or prim.outward for prim in prims):
        joint.pure = lean
    count = len(graph.outputs)
    results = {graph.outputs[i] for i in joint.places}
    same = {
        **graph.same,
        **{count + k: "detach" if v in results else "self" for k, v in enumerate(joint.saved)},
    }
    return replace(graph, outputs=(*graph.outputs, *joint.saved), same=same)
