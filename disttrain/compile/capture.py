"""The capture interpreter: runs a program eagerly and records what it does.

Everything that goes through the gate is recorded: forward, backward (the engine walks with Tensors
while an interpreter is active), and the optimizer's update rules, which are mutating primitives.
What does not go through the gate cannot be: a number read from a tensor that the program made
(``item()``, ``if``, numpy, an index that depends on data) would be frozen into the graph, so the
program is refused. Reads are noticed at one place, ``Tensor.array`` itself (``watched`` in
``core.tensor``). What Python did besides is none of this file's business (``reach``, ``watch``).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import context, tree
from ..backends.array_kinds import ArrayKind
from ..backends.device.array import DeviceArray
from ..backends.null import NullArray
from ..context import thread
from ..core.gate import Primitive, Tracer
from ..core.node import AccumulateGrad, Node, next_seq
from ..core.observers import watched
from ..core.saved import unpacked
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError
from ..trace import call_site
from .drawing import Captured
from .effects import Effects
from .graph import Graph, Read, Unwritten
from .guards.code import following
from .guards.reach import Reach
from .instruction import Instruction, Var, maker
from .memory import Memories, coincide, is_laid_out, relation, window, window_on
from .pull import Rule, accumulate, backward_of, over_ranks
from .questions import Questions

# Whoever reads arrays here does not look at numbers, or tells.
_TRUSTED = (
    "disttrain.core.", "disttrain.compile.", "disttrain.optim.", "disttrain.amp.autocast_mode",
    "disttrain.distributed.tensor.", "disttrain.distributed.fsdp.",
)  # fmt: skip
# The same, of arrays on devices.
_OF_DEVICES = ("disttrain.nn.utils.",)
_ABOUT = frozenset(
    "shape dtype ndim size itemsize nbytes flags strides base place where __class__".split()
)
_SMALL = 1 << 16  # bytes of a tensor whose numbers may be read and compared by every call


class Capture:
    """Records instructions while it is on the interpreter stack."""

    dynamic, staging, level = True, True, -1

    def __init__(self, inputs: list[Tensor], around: Reach, strict: bool = True) -> None:
        self.strict, self.around = strict, around
        self.refused: str | None = None
        self.vars: dict[int, tuple[Var, Any]] = {}  # by id of a tensor: its name, and its memory
        self.memories = Memories()  # of all that has a name, or is within reach from outside
        self.keep: list[Any] = []  # so that no id is used twice
        self.metas: dict[Var, tuple] = {}
        self.captured: list[Any] = []
        self.instructions: list[Instruction] = []
        self.entry: list[tuple[Tensor, Any]] = []  # tensors with their .grad before the program
        self.entered: set[int] = set()  # their ids
        self.reads, self.questions = dict[int, Read](), Questions()
        self.unwritten: dict[int, Unwritten] = {}
        self.copies: dict[int, Any] = {}  # first values of tensors that appeared on the way
        self.recipes: dict[int, tuple] = {}  # of those, how some are made of sizes (``shapes``)
        self.names: dict[Var, Var] = {}  # what tensors from outside are called in the graph
        self.versioned: set[Var] = set()  # those whose versions tell of writes to what is used
        self.numpys: set[Var] = set()  # over memory of numpy arrays from outside
        self.strides: dict[Var, Any] = {}  # of tensors from outside
        self.made: list[tuple[Var, Tensor]] = []
        self.count, self.running, self.walked = 0, False, False
        self.effects = Effects(self)
        self.written = Memories()  # what instructions wrote to
        self.dropped: list[Tensor] | None = None  # leaves that had lost gradients as it began
        self.start = next_seq()
        self.given = inputs
        self.old = {
            id(t): (t, t.array, t._node, t._version) for t in (*inputs, *around.tensors.values())
        }
        for t, array, _, _ in self.old.values():
            self.memories.add(array, t)
        for array in around.arrays:
            self.memories.add(array, None)
        self._enter([t for t, *_ in self.old.values()])
        self.inputs = tuple(self._define(t) for t in inputs)

    def __str__(self) -> str:
        return "capture"

    def close(self) -> None:
        """Let go of all values of the run: what refers to it, and it to them, would keep them until
        the garbage collector comes."""
        vars(self).clear()

    def _enter(self, tensors: list[Tensor]) -> None:
        new = {id(t): t for t in tensors if id(t) not in self.entered}
        self.entered |= new.keys()
        self.entry += [(t, t._grad) for t in new.values()]

    def _define(self, t: Tensor) -> Var:
        var = Var("v", self.count)
        self.count += 1
        self._name(t, var)
        self.made.append((var, t))
        if id(t) not in self.old:
            self.memories.add(t.array, t)
        self.metas[var] = t.meta()
        return var

    def _name(self, t: Tensor, var: Var) -> None:
        array = t.array
        self.vars[id(t)] = var, array
        self.keep += (t, array)

    def find(self, t: Tensor) -> Var | None:
        """The name of a tensor that has one as it is now."""
        var, array = self.vars.get(id(t), (None, None))
        return var if array is t.array else None

    def var(self, t: Tensor) -> Var:
        """The name of a tensor; one that is not known yet comes from outside, or is another name
        of known memory."""
        found = self.find(t)
        if found is not None:
            self.versioned.add(found)
            return found
        if id(t) in self.old and self.old[id(t)][1] is t.array:
            self._check_place(t)
            return self._bring(t)
        known = self.memories.best(t)
        if known is None:
            self._check_reach(t)
            return self._bring(t)
        return self._alias(t, *known)

    def _check_place(self, t: Tensor) -> None:
        if t._node is not None and type(t._node) is not AccumulateGrad:
            self._refuse(
                f"a tensor of shape {list(t.shape)} from outside is part of a graph made "
                "before; pass it as an argument"
            )

    def _check_reach(self, t: Tensor) -> None:
        if any(self.memories.around(t.array)):
            self._refuse(
                f"a tensor of shape {list(t.shape)} uses memory beyond that of the tensor from "
                "outside that it was made of"
            )

    def _bring(self, t: Tensor) -> Var:
        """Name a tensor from outside, or one that the program made past the gate."""
        var = Var("c", len(self.captured))
        if id(t) not in self.old:
            self.copies[len(self.captured)] = t.array.copy("K")
            self.memories.add(t.array, t)
        self.captured.append(t)
        self.metas[var] = t.meta()
        self.strides[var] = getattr(t.array, "strides", None)
        self.versioned.add(var)
        self._enter([t])  # unless it is known
        self._name(t, var)
        return var

    def _alias(self, t: Tensor, array: Any, known: Tensor | None) -> Var:
        """The name of a tensor over the memory ``array`` of a known one: that one's, where both are
        the same to the program, or that of a window."""
        if known is None:
            var = self._bring(t)
            self.numpys.add(var)
            return var
        root = self.find(known) or self._bring(known)
        how = window_on(array, known, t) if is_laid_out(array) else None
        if t._st is not None and t._st is known._st:
            self.versioned.add(root)
        apart = thread.grad_enabled and known._node is not t._node
        if how is None or (coincide(array, t.array) and not apart):
            return root  # (another time it may have to be a window)
        if array.__class__ is DeviceArray and not array.flags.c_contiguous:
            self._refuse("it looks at memory of a device with strides under another name")
        out = self._define(t)
        self.instructions.append(Instruction(window, (root,), how, (out,)))
        return out

    def on_read(self, t: Tensor) -> None:
        """A number of ``t`` leaves for Python."""
        if isinstance(t, Tracer) or t.array.__class__ is NullArray:
            return
        if t.array.__class__ is DeviceArray:
            if not self.running and self.questions.read(self, t, sys._getframe(1)):
                return
            self._refuse(
                f"a number of a tensor of shape {list(t.shape)} on {t.device} is read at "
                f"{call_site(3)} (item(), bool(), cpu(), an index or a shape that depends on it, "
                "or the like), for which the host waits. Use tensor operations such as dt.where, "
                "or read it outside"
            )
            return
        if isinstance(t.array, ArrayKind):
            self._refuse(
                f"it uses numbers of a tensor of shape {list(t.shape)} that is spread over ranks, "
                f"at {call_site(3)}"
            )
            return
        if self._is_made(t) or any(self.written.around(t.array)):
            if not self.running and self.questions.read(self, t, sys._getframe(1)):
                return
            self._refuse(
                f"the value of a tensor of shape {list(t.shape)} is read at {call_site(3)} "
                "(item(), bool(), numpy(), an index or a shape that depends on it, or the like); a "
                "replay would use today's value for ever. Use tensor operations such as "
                "dt.where, or read it outside"
            )
        elif t.array.nbytes > _SMALL:
            self._refuse(f"it reads numbers of a large tensor at {call_site(3)}")
        elif any(id(known) in self.around.gradients for known in self._names_of(t)):
            self._refuse(f"it reads numbers of a gradient from outside at {call_site(3)}")
        elif id(t) not in self.reads:
            self.keep.append(t)
            self.reads[id(t)] = Read(t)

    def on_version(self, t: Tensor) -> None:
        """The program goes by what it knows of ``t`` until something writes to that."""
        if self._is_made(t):
            self._refuse(f"it goes by what is known of an argument, or a result, at {call_site(3)}")
        self.unwritten.setdefault(id(t), Unwritten(t))

    def odd_argument(self) -> str | None:
        """Why the arguments cannot be told from what is reached by itself, if they cannot."""
        gradients = self.around.gradients
        for i, t in enumerate(self.given):
            if any(id(known) in gradients for known in self._names_of(t)):
                return f"argument {i} is the gradient of a tensor that it reaches; pass a clone"
        return None

    def _names_of(self, t: Tensor) -> list[Tensor]:
        """The tensors that are known to share memory with ``t``."""
        return [known for _, known in self.memories.around(t.array) if known is not None]

    def _is_made(self, t: Tensor) -> bool:
        """Whether numbers of ``t`` are those of an argument, or come from instructions."""
        found = [self.find(known) for known in (t, *self._names_of(t))]
        return any(var is not None and var.kind == "v" for var in found)

    def on_array(self, t: Tensor, frame: types.FrameType) -> None:
        """The array of ``t`` is taken: by those who look at its shape, or at its numbers?"""
        name = frame.f_globals.get("__name__", "")
        if self.running or name.startswith(_TRUSTED):
            return
        if name.startswith(_OF_DEVICES) and t.array.__class__ is DeviceArray:
            return
        after = following(frame.f_code).get(frame.f_lasti)
        looks = after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD")
        if after is None or not looks or after.argval not in _ABOUT:
            self.on_read(t)

    def on_walk(self) -> None:
        """The program runs backward: hooks of leaves count."""
        self.walked = True

    def on_stream(self) -> None:
        """A stream of random numbers is used: by a primitive that draws from it, or else?"""
        if not self.running:
            self._refuse(
                f"the state of a random generator is read or set at {call_site(3)}; a replay "
                "would not do it. Do it outside"
            )

    def _refuse(self, why: str) -> None:
        self.refused = self.refused or why
        if self.strict:
            raise CaptureError(f"capture: {why}")

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: Callable) -> Any:
        """Run ``prim`` and write it down."""
        self._begin()
        names = tuple(self.var(a) if isinstance(a, Tensor) else a for a in args)
        if "layout" in params:
            self._check_layout(args[0], prim)
        out = self.effects.compute(prim, args, params, proceed)
        results: tuple[Var, ...] = ()
        if prim.mutates:
            for i in prim.mutates:
                self.written.add(args[i].array, args[i])
        else:
            outs = out if isinstance(out, tuple) else (out,)
            results = tuple(self._define(o) for o in outs)
        prim = over_ranks(prim, args, out)
        self.instructions.append(Instruction(prim, names, params, results))
        return out

    def _begin(self) -> None:
        """Before an instruction: see what was done before the first."""
        if self.dropped is None:
            self.dropped = [leaf for leaf, g in self.entry if g is not None and leaf._grad is None]

    def _check_layout(self, t: Tensor, prim: Primitive) -> None:
        """Other calls' arguments, and gradients, may lie elsewhere in larger memory."""
        varying = {*map(id, self.given), *self.around.gradients}
        if any(id(known) in varying for known in self._names_of(t)):
            self._refuse(f"{prim.name} looks at the whole memory that an argument lies in")

    def accumulate(self, grad: Tensor, more: Tensor) -> None:
        """Add to the gradient that a leaf has, in place as eagerly."""
        accumulate(grad, more)

    def pull(self, node: Any, g: object, wanted: tuple | None) -> tuple:
        """Run the derivative rules of ``node`` on arrays, as one instruction."""
        if node.seq <= self.start:
            self._refuse("it runs backward through a graph that was made outside")
        node = unpacked(node)
        if node.__class__ is not Node:  # (rules of a device's nodes are operations themselves)
            return node.run(g, True, wanted)
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
        rule.there = tuple(r is not None for r in found)
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
        touched = tuple(self._touched())
        owners = {}
        for leaf, grad in self.entry:
            if id(grad) not in self.around.gradients:
                continue
            found = self.effects.first.get(id(grad)) or self.find(grad)
            if found is not None and found.kind == "c":
                owners[found] = self.var(leaf)
        names = self.around.names_of_tensors()
        texts = [
            f"{owners[v]}.grad"
            if (v := Var("c", i)) in owners
            else names.get(id(t)) or "from outside"
            for i, t in enumerate(self.captured)
        ]
        fresh = self._fresh({v for v in (*outs, *(g for _, g in grads)) if isinstance(v, Var)})
        graph = self._settle(fresh, texts, outs, grads, owners)
        graph.same.update(self._same(outputs))
        graph.touched.extend(self.names.get(v, v) for v in touched)
        there = [v for v, array in self.vars.values() if array.__class__ is DeviceArray]
        graph.there.update(self.names.get(v, v) for v in there)
        return graph.verify()

    def _touched(self) -> Iterator[Var]:
        """The tensors from before whose versions rose."""
        cells: set[int] = set()
        left = {id(grad) for grad in self.effects.left.values()} | self.effects.counted
        for t, _, _, version in self.old.values():
            if id(t) in left:  # (whoever has left a gradient counts writes to it)
                continue
            if t._version != version and id(t._st) not in cells:
                cells.add(id(t._st))
                yield self.find(t) or self._bring(t)

    def _same(self, outputs: list) -> dict[int, str]:
        """For each result that is a tensor: whether it is its value's own Tensor ("self"), or
        another over the same memory, with the same count of writes ("detach") or not ("data")."""
        own: dict[Var, Tensor] = {}
        for t in (*self.given, *self.captured):
            own.setdefault(self.vars[id(t)][0], t)
        tensors = [o for o in outputs if isinstance(o, Tensor)]
        for o in sorted(tensors, key=lambda t: t._node is None):
            own.setdefault(self.var(o), o)
        return {
            i: relation(own[self.var(o)], o) for i, o in enumerate(outputs) if isinstance(o, Tensor)
        }

    def _check_end(self) -> None:
        reads: list[Read | Unwritten] = [*self.reads.values(), *self.unwritten.values()]
        for read in reads:
            if not read.holds() or any(self.written.around(read.tensor.array)):
                self._refuse(
                    f"the program reads numbers of a tensor of shape {list(read.tensor.shape)} and "
                    "writes to it; a replay would not read it again"
                )
        for t, array, node, _ in self.old.values():
            if t.array is not array or t._node is not node:
                self._refuse(
                    f"it changes what a tensor of shape {list(t.shape)} from outside is (its "
                    "memory, its place in the graph, or requires_grad); a replay would not"
                )
        self.effects.check(self.walked)

    def _grads(self) -> Any:
        """What the program left in ``.grad`` of the leaves, where that is not what it found."""
        left = self.effects.left
        for leaf, before in list(self.entry):
            grad = leaf._grad
            if grad is not left.get(id(leaf), before):
                yield self.var(leaf), None if grad is None else self.var(grad)

    def _fresh(self, results: set) -> set[int]:
        """Which tensors the program made itself, past the gate, and either writes to or returns
        (through views too): they start anew in every run. Others are constants."""
        touched = {ins.args[i] for ins in self.instructions for i in ins.prim.mutates} | results
        touched |= self._sources(touched)
        if touched & self.numpys:
            self._refuse("it writes to, or gives back, the memory of a numpy array from outside")
        stay = {id(t) for o in self.around.optimizers for s in o.state.values() for t in s.values()}
        return {
            i for i in self.copies if Var("c", i) in touched and id(self.captured[i]) not in stay
        } | self.recipes.keys()

    def _sources(self, views: set) -> set:
        """What the given values are views of."""
        found: set = set()
        for ins in reversed(self.instructions):
            if ins.prim.view and any(o in views or o in found for o in ins.outputs):
                found.add(ins.args[0])
        return found

    def _settle(self, fresh: set, texts: list, outs: tuple, grads: tuple, owners: dict) -> Graph:
        """Turn fresh tensors into constants, and number the others anew."""
        names = self.names = {}
        first: list[Instruction] = []
        captured: list[Tensor] = []
        kept: list[str] = []
        for i, t in enumerate(self.captured):
            old = Var("c", i)
            if i in fresh:
                names[old] = Var("v", self.count)
                self.count += 1
                first.append(maker(self.copies[i], self.recipes.get(i), names[old]))
            else:
                names[old] = Var("c", len(captured))
                captured.append(t)
                kept.append(texts[i])

        def new(v: object) -> Any:
            return names.get(v, v) if isinstance(v, Var) else v

        for v in owners:  # looked up by every run; the one of today need not live on
            captured[new(v).number] = wrap(np.empty(0))
        changed = [new(leaf) for leaf, _ in grads]
        gone = {new(self.var(leaf)) for leaf in self.dropped or ()}
        return Graph(
            inputs=self.inputs,
            captured=tuple(captured),
            names=tuple(kept),
            instructions=tuple(first) + tuple(ins.renamed(names) for ins in self.instructions),
            outputs=tuple(new(o) for o in outs),
            metas={new(v): meta for v, meta in self.metas.items()},
            grads=tuple((new(leaf), new(g)) for leaf, g in grads),
            dropped=tuple(leaf for leaf in changed if leaf in gone),
            owners={new(c): new(leaf) for c, leaf in owners.items()},
            reads=(*self.reads.values(), *self.unwritten.values()),
            constants=self._constants(fresh),
        )

    def _constants(self, fresh: set) -> dict[Var, Any]:
        """Tensors that the program made past the gate, and that nothing outside of it has: their
        names and numbers."""
        stay = {id(t) for o in self.around.optimizers for s in o.state.values() for t in s.values()}
        made = (i for i in self.copies if i not in fresh and id(self.captured[i]) not in stay)
        return {self.names[Var("c", i)]: self.copies[i] for i in made}


def capture(fn: Callable) -> Callable:
    """``capture(fn)(*args)`` runs ``fn`` once and gives (its result, the ``Graph`` of what it did),
    a ``Captured`` that can ``show()`` itself.

    Tensors among ``args`` (nested ones too) are the graph's inputs; everything else that ``fn``
    touches is kept by reference. Other Python (printing, counters) happens once and is not
    replayed. Raises ``CaptureError`` where a number of a tensor would be frozen into the graph.
    """

    def captured(*args: object, **kwargs: object) -> Captured:
        leaves = tree.leaves((args, kwargs))
        around = Reach((fn, args, kwargs))
        recorder = Capture([x for x in leaves if isinstance(x, Tensor)], around)
        with watched(), context.interpreter(recorder):
            result = fn(*args, **kwargs)
        return Captured(result, recorder.graph(tree.leaves(result)))

    return captured
