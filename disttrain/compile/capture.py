"""The capture interpreter: runs a program eagerly and records what it does.

Everything that goes through the gate is recorded: forward, backward (the engine walks with Tensors
while an interpreter is active), and the optimizer's update rules, which are mutating primitives.
What does not go through the gate cannot be: a number read from a tensor that the program made
(``item()``, ``if``, numpy, a collective) would be frozen into the graph, so reading it is an error.
Other Python (printing, counters, hooks that only look) happens once and is not replayed.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from .. import context, tree
from ..backends.null import NullArray
from ..core.gate import Primitive
from ..core.node import AccumulateGrad, Node
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError
from ..ops.declare import primitive
from ..trace import call_site
from .graph import Graph
from .instruction import Instruction, Var
from .pull import Rule, backward_of
from .reach import Reach

# A tensor that the program makes from Python numbers (dt.zeros ...): every run starts with a copy.
constant = primitive(
    "constant", lambda *, value: value.copy(), "", shape=lambda *, value: (value.shape, value.dtype)
)


class Capture:
    """Records instructions while it is on the interpreter stack."""

    dynamic = True
    level = -1

    def __init__(self, inputs: list[Tensor], around: Reach, strict: bool = True) -> None:
        self.strict, self.around = strict, around
        self.refused: str | None = None
        self.vars: dict[Any, Var] = {}  # by id of a tensor, and by ("memory", id of an array)
        self.keep: list[Any] = []  # so that no id is used twice
        self.metas: dict[Var, tuple] = {}
        self.captured: list[Any] = []
        self.instructions: list[Instruction] = []
        self.entry: list[tuple[Tensor, Any]] = []  # leaves with their .grad before the program
        self.reads: list[tuple[Tensor, int]] = []
        self.copies: dict[int, Any] = {}  # first values of tensors that appeared on the way
        self.count = 0
        self.before = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
        self.old = {id(t) for t in self.before}
        self._enter([*around.parameters(), *inputs])
        self.inputs = tuple(self._define(t) for t in inputs)

    def __str__(self) -> str:
        return "capture"

    def _enter(self, tensors: list[Tensor]) -> None:
        known = {id(leaf) for leaf, _ in self.entry}
        self.entry += [
            (t, t._grad) for t in tensors if type(t._node) is AccumulateGrad and id(t) not in known
        ]

    def _define(self, t: Tensor) -> Var:
        var = Var("v", self.count)
        self.count += 1
        self._name(t, var)
        self.metas[var] = t.meta()
        return var

    def _name(self, t: Tensor, var: Var) -> None:
        self.vars[id(t)] = self.vars[("memory", id(t.array))] = var
        self.keep += (t, t.array)

    def find(self, t: Tensor) -> Var | None:
        """The name of a known tensor. Another tensor over the whole memory of a known one (a
        detached alias) is the same value."""
        return self.vars.get(id(t)) or self.vars.get(("memory", id(t.array)))

    def var(self, t: Tensor) -> Var:
        """The name of a tensor; one that is not known yet comes from outside."""
        found = self.find(t)
        if found is None:
            found = Var("c", len(self.captured))
            if id(t) not in self.old:
                self.copies[len(self.captured)] = t.array.copy()
            self.captured.append(t)
            self.metas[found] = t.meta()
            self._enter([t])
        self._name(t, found)
        return found

    def on_read(self, t: Tensor) -> None:
        """A number of ``t`` leaves for Python."""
        found = self.find(t)
        if found is None or found.kind == "c":
            self.reads.append((t, t._version))
            return
        self._refuse(
            f"capture: the value of a tensor of shape {list(t.shape)} is read at "
            f"{call_site(3)} (item(), bool(), numpy() or the like); a replay would use "
            "today's value for ever. Use tensor operations such as dt.where, or read it outside"
        )

    def _refuse(self, why: str) -> None:
        self.refused = self.refused or why
        if self.strict:
            raise CaptureError(why)

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: Callable) -> Any:
        """Run ``prim`` and write it down."""
        names = tuple(self.var(a) if isinstance(a, Tensor) else a for a in args)
        out = proceed(prim, args, params)
        results: tuple[Var, ...] = ()
        if not prim.mutates:
            outs = out if isinstance(out, tuple) else (out,)
            results = tuple(self._define(o) for o in outs)
        self.instructions.append(Instruction(prim, names, params, results))
        return out

    def pull(self, node: Node, g: Any, wanted: tuple | None) -> tuple:
        """Run the derivative rules of ``node`` on arrays, as one instruction."""
        node.check()
        needs = wanted or tuple(e is not None for e in node.edges)
        gs = g if isinstance(g, tuple) else (g,)
        outs = node.out if isinstance(node.out, tuple) else (node.out,)
        given = (*gs, *(node.saved or ()), *(outs if node.out is not None else ()))
        rule = Rule(node, len(gs), None if node.out is None else len(outs), needs)
        names = tuple(self.var(a) if isinstance(a, Tensor) else a for a in given)
        arrays = tuple(a.array if isinstance(a, Tensor) else a for a in given)
        if any(a.__class__ is NullArray for a in arrays):
            return node.run(g, True, wanted)
        found = [None if r is None else wrap(r) for r in rule.run(arrays)]
        results = tuple(self._define(t) for t in found if t is not None)
        self.instructions.append(
            Instruction(backward_of(node.prim), names, {"rule": rule}, results)
        )
        return tuple(found)

    # --- the end ----------------------------------------------------------------------------
    def graph(self, outputs: list) -> Graph:
        """The recorded program, with these results."""
        self._check_end()
        grads = tuple(self._grads())
        outs = tuple(self.var(o) if isinstance(o, Tensor) else o for o in outputs)
        owners = {}
        for leaf, grad in self.entry:
            found = None if grad is None else self.find(grad)
            if found is not None and found.kind == "c":
                owners[found] = self.var(leaf)
        names = {id(t): "" for t in self.captured} | self.around.names()
        texts = [
            f"{owners[v]}.grad" if (v := Var("c", i)) in owners else names[id(t)] or "from outside"
            for i, t in enumerate(self.captured)
        ]
        fresh = self._fresh(outputs, {v for v in (*outs, *(g for _, g in grads)) if v is not None})
        return self._settle(fresh, texts, outs, grads, owners).verify()

    def _check_end(self) -> None:
        for t, version in self.reads:
            if t._version != version:
                self._refuse(
                    f"capture: the program reads numbers of a tensor of shape {list(t.shape)} and "
                    "writes to it; a replay would not read it again"
                )
        for leaf, _ in self.entry:
            node = leaf._node
            if type(node) is AccumulateGrad and (node.store is not None or node.accumulate_hooks):
                self._refuse(
                    f"capture: a leaf of shape {list(leaf.shape)} has hooks on its gradient (as "
                    "data parallel training sets them); a replay would not run them"
                )

    def _grads(self) -> Any:
        """What the program left in ``.grad`` of the leaves, where that is not what it found."""
        for leaf, before in list(self.entry):
            grad = leaf._grad
            if grad is not before:
                yield self.var(leaf), None if grad is None else self.var(grad)

    def _fresh(self, outputs: list, results: set) -> set[int]:
        """Which tensors from outside the program made itself, past the gate, and either writes to
        or returns: those that are gone when it ends, or that only its result holds."""
        written = {ins.args[i] for ins in self.instructions for i in ins.prim.mutates}
        written |= self._sources(written)
        wanted = {
            i for i in self.copies if Var("c", i) in written or Var("c", i) in results
        } - self._lasting()
        given = set()
        for t in outputs:
            while isinstance(t, Tensor):
                given.add(id(t))
                t = None if t._view is None else t._view[0]
        fresh = {i for i in wanted if id(self.captured[i]) in given}
        held = {i: weakref.ref(self.captured[i]) for i in wanted - fresh}
        if held:
            self.keep.clear()
            for i in held:
                self.captured[i] = None
            gc.collect()
            for i, ref in held.items():
                self.captured[i] = ref()
        return fresh | {i for i in held if self.captured[i] is None}

    def _sources(self, views: set) -> set:
        """What the given values are views of."""
        found: set = set()
        for ins in reversed(self.instructions):
            if ins.prim.view and any(o in views or o in found for o in ins.outputs):
                found.add(ins.args[0])
        return found

    def _lasting(self) -> set[int]:
        """Captured tensors that live on in an optimizer's state or as a gradient."""
        stay = {id(t) for o in self.around.optimizers for s in o.state.values() for t in s.values()}
        stay |= {id(leaf._grad) for leaf, _ in self.entry}
        return {i for i, t in enumerate(self.captured) if id(t) in stay}

    def _settle(self, fresh: set, texts: list, outs: tuple, grads: tuple, owners: dict) -> Graph:
        """Turn fresh tensors into constants, and number the others anew."""
        names: dict[Var, Var] = {}
        first: list[Instruction] = []
        captured: list[Tensor] = []
        kept: list[str] = []
        for i, t in enumerate(self.captured):
            old = Var("c", i)
            if i in fresh:
                names[old] = Var("v", self.count)
                self.count += 1
                first.append(Instruction(constant, (), {"value": self.copies[i]}, (names[old],)))
            else:
                names[old] = Var("c", len(captured))
                captured.append(t)
                kept.append(texts[i])

        def new(v: Any) -> Any:
            return names.get(v, v) if isinstance(v, Var) else v

        return Graph(
            inputs=self.inputs,
            captured=tuple(captured),
            names=tuple(kept),
            instructions=tuple(first) + tuple(ins.renamed(names) for ins in self.instructions),
            outputs=tuple(new(o) for o in outs),
            metas={new(v): meta for v, meta in self.metas.items()},
            grads=tuple((new(leaf), new(g)) for leaf, g in grads),
            owners={new(c): new(leaf) for c, leaf in owners.items()},
            reads=tuple(self.reads),
        )


def record(
    fn: Callable, args: tuple, kwargs: dict, around: Reach, strict: bool
) -> tuple[Any, Graph | None, str | None]:
    """Run ``fn``: its result, and the graph or why there is none (``strict``: raise instead)."""
    leaves = tree.leaves((args, kwargs))
    recorder = Capture([x for x in leaves if isinstance(x, Tensor)], around, strict)
    with context.interpreter(recorder):
        result = fn(*args, **kwargs)
    graph = None
    if recorder.refused is None:
        try:
            graph = recorder.graph(tree.leaves(result))
        except CaptureError as error:
            if strict:
                raise
            recorder.refused = str(error)
    return result, None if recorder.refused else graph, recorder.refused


def capture(fn: Callable) -> Callable:
    """``capture(fn)(*args)`` runs ``fn`` once and gives (its result, the ``Graph`` of what it did).

    Tensors among ``args`` (nested ones too) are the graph's inputs; everything else that ``fn``
    touches is kept by reference. Raises ``CaptureError`` where a replay could not be right.
    """

    def captured(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        result, graph, _ = record(fn, args, kwargs, Reach(fn, (args, kwargs)), strict=True)
        return result, graph

    return captured
