"""The symbolic run: a captured program once more, without numbers and with symbols for sizes.

It follows the capture instruction by instruction: what it does must be what was captured. Then
every number in the capture that depends on sizes is known as an expression of them, and every
decision of Python's (of the program, and of this package beneath it) as a relation between them.

(E. Yang et al., the symbolic shapes of PyTorch 2, have the same aim by other means.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.gate import Primitive, Tracer
from ...core.node import AccumulateGrad, Node, next_seq
from ...core.tensor import Tensor, wrap
from ...ops.primitives.attention import attention
from ...ops.primitives.elementwise import copy
from ...ops.primitives.linalg import linear
from ...symbolic import Scope, Symbolic, hinted
from ...trace import call_site
from ..capture import Capture
from ..instruction import Instruction, Var
from ..memory import coincide, window
from ..pull import Rule, accumulate, backward_of
from ..questions import lies, says
from ..sized import Unlike, annotate
from .sketch import Sketch, is_view, knows_strides
from .symbolic_effects import SymbolicEffects

# Operations whose (first) results are in order, however operands lie.
_IN_ORDER = (attention, copy, linear)

# Tensors of a call by number, each with a dimension; of plain numbers the first is ``NUMBER``.
Sizes = Sequence[tuple[int, int]]
NUMBER = -1


class Hashed(Unlike):
    """A hash is taken of a number that depends on the sizes at ``places``."""

    def __init__(self, places: Sizes) -> None:
        self.places, self.why = places, f"something is looked up by it at {call_site()}"
        super().__init__(self.why)


class SymbolicRun:
    """Follows a capture (``recorder``), as an interpreter in its place."""

    dynamic = True
    level = -1

    def __init__(
        self, recorder: Capture, sweeps: list, sizes: Sizes, numbers: Sequence[float] = ()
    ) -> None:
        self.recorder, self.scope, self.sizes = recorder, Scope(), sizes
        self.scope.sketch, self.scope.hashed = self._made, self._hashed
        self.expected = [*recorder.instructions]
        for sweep in sweeps:
            self.expected += sweep.instructions
        self.main = len(recorder.instructions)
        self.at = 0
        self.instructions: list[Instruction] = []
        self.facts: list[tuple[int, Instruction]] = []
        self.known: set[tuple] = set()
        self.windows: dict[Var, Var] = {}
        self.names: dict[int, Var] = {}  # by id of a sketch
        self.shapes: dict[Var, tuple] = {}
        self.recipes: dict[int, tuple] = {}  # of tensors made on the way, by their number
        self.keep: list[Any] = []
        self.arrays = dict(recorder.vars.values())
        named_before = recorder.effects.first.items()
        self.arrays.update((var, recorder.vars[i][1]) for i, var in named_before)
        self.starts = [v for sweep in sweeps for v in sweep.starts]
        self.made: list[tuple[Var, Tensor]] = []
        self.old = recorder.old
        self.start = next_seq()
        self.walked = False
        self.unlike: str | None = None  # why it is not the capture, whoever has caught that
        self.effects = SymbolicEffects(self)
        self.numbers = dict(enumerate(numbers))  # in the call, symbols for some
        self.given = self._inputs()

    def __str__(self) -> str:
        return "symbolic run"

    # --- what goes in -----------------------------------------------------------------------
    def _inputs(self) -> list[Tensor]:
        shapes = [list(t.array.shape) for t in self.recorder.given]
        for i, dim in self.sizes:
            of: Any = self.numbers if i == NUMBER else shapes[i]
            of[dim] = self.scope.symbol(of[dim])
        found: dict[int, Tensor] = {}
        for t, var, shape in zip(self.recorder.given, self.recorder.inputs, shapes, strict=True):
            if id(t) in found:
                raise Unlike("it is given one tensor twice")
            like = t.array
            sketch = Sketch(self, tuple(shape), like.dtype, like, like.flags.c_contiguous)
            s = wrap(sketch)
            node = t.graph_node()
            if type(node) is AccumulateGrad:
                s.requires_grad_()
            elif node is not None:
                s._node = node
            self._name(sketch, var)
            found[id(t)] = s
        return list(found.values())

    def _name(self, sketch: Sketch, var: Var) -> None:
        self.names[id(sketch)] = var
        self.keep.append(sketch)
        self.shapes[var] = sketch.shape

    def _made(self, make: Callable[..., Any], given: tuple, shape: tuple, in_order: bool) -> Sketch:
        """An array that is made of numbers which depend on sizes."""
        array = make(*hinted(given))
        sketch = Sketch(self, shape, array.dtype, array, in_order)
        sketch.recipe = make, given
        self.keep.append(sketch)
        return sketch

    def _hashed(self, number: Symbolic) -> None:
        """Something is looked up, or kept beyond the run, by a number: that must be a plain one."""
        words = set(re.findall(r"\w+", number.text))
        found = zip(self.scope.names, self.sizes, strict=True)
        raise Hashed([place for name, place in found if name in words])

    # --- names ------------------------------------------------------------------------------
    def find(self, t: Tensor) -> Var | None:
        """The name of a value of this run."""
        return self.names.get(id(t.array))

    def var(self, t: Tensor) -> Var:
        """As of a capture: the name of what the walk gives."""
        found = self.find(t)
        if found is None:
            raise Unlike("a gradient is a value from outside")
        return found

    def _root(self, var: Var) -> Var:
        while var in self.windows:
            var = self.windows[var]
        return var

    def _check(self, t: Tensor, var: Any) -> None:
        """That ``t`` is what the capture calls ``var``."""
        if not isinstance(var, Var):
            raise Unlike("a number is a tensor with sizes as symbols")
        array = t.array
        if not isinstance(array, Sketch):
            if not self._is_outside(array, var):
                raise Unlike("it uses another tensor with sizes as symbols")
            return
        if id(array) not in self.names and array.recipe is not None:
            self._bring(array, var)
        name = self.names.get(id(array))
        same = name is not None and self._root(name) == self._root(var)
        if not same and not self._covers(array, self._root(var)):
            raise Unlike(f"it uses another value with sizes as symbols ({name}, {var})")

    def _covers(self, sketch: Sketch, var: Var) -> bool:
        """Whether ``sketch`` is all of the memory of a value that it is, in the end, a view of, in
        the same shape and order."""
        at = sketch
        while at.source is not None and at.source[1] in ("reshape", "permute"):
            at = at.source[0]
            if not isinstance(at, Sketch) or len(at.shape) == 0:
                return False
            if self.names.get(id(at)) == var:
                return (
                    len(at.shape) == len(sketch.shape) and at.shape == sketch.shape
                    and at.strides == sketch.strides
                )  # fmt: skip
        return False

    def _is_outside(self, array: Any, var: Var) -> bool:
        known = self.arrays.get(var)
        if known is array or (known is not None and coincide(known, array)):
            return True
        copy = self.recorder.copies.get(var.number) if var.kind == "c" else None
        return (
            copy is not None and array.__class__ is np.ndarray and copy.dtype == array.dtype
            and copy.shape == array.shape and copy.tobytes() == array.tobytes()
        )  # fmt: skip

    def _bring(self, sketch: Sketch, var: Var) -> None:
        """A tensor that the program made of sizes is used for the first time."""
        copy = self.recorder.copies.get(var.number) if var.kind == "c" else None
        like = sketch.like
        if copy is None or var.number in self.recipes or (
            (copy.shape, copy.dtype, copy.strides) != (like.shape, like.dtype, like.strides)
            or copy.tobytes() != like.tobytes()
        ):  # fmt: skip
            raise Unlike("it makes another tensor of sizes as symbols")
        make, given = sketch.recipe  # type: ignore[misc]
        self.recipes[var.number] = make, annotate(hinted(given), given)
        sketch.like = self.arrays.get(var, like)
        self._name(sketch, var)

    # --- the capture, one by one ------------------------------------------------------------
    def following(self, fits: Callable[[Primitive], bool], what: str) -> Instruction:
        """The next instruction, which must be one of those; ``what``: it is called so."""
        self._take_windows()
        if self.at == len(self.expected) or not fits(self.expected[self.at].prim):
            was = self.expected[self.at].prim.name if self.at < len(self.expected) else "nothing"
            raise Unlike(f"it does {what} at {call_site()} where {was} was captured")
        ins = self.expected[self.at]
        self.at += 1
        return ins

    def _next(self, prim: Primitive) -> Instruction:
        return self.following(lambda known: getattr(known, "of", known) is prim, prim.name)

    def sketch(self, var: Var) -> Sketch:
        """What the capture calls so, where its shape depends on no sizes."""
        shape, kind = self.recorder.metas[var]
        sketch = Sketch(self, shape, kind, self.arrays.get(var))
        sketch.fixed = True
        self._name(sketch, var)
        return sketch

    def _take_windows(self) -> None:
        while self.at < len(self.expected) and self.expected[self.at].prim is window:
            self.instructions.append(self._windowed(self.expected[self.at]))
            self.at += 1

    def _windowed(self, ins: Instruction) -> Instruction:
        """A window on a value of this run, which must be all of it."""
        (root,), (out,) = ins.args, ins.outputs
        shape = self.shapes.get(root)
        if root.kind == "c" or shape is None:
            return ins
        how, meta = ins.params, self.recorder.metas[root]
        whole = how["shape"] == tuple(meta[0]) and how["strides"] == how["within"]
        if how["offset"] or not whole or how["dtype"] != meta[1]:
            raise Unlike("it looks at parts of a value's memory under another name")
        self.windows[out], self.shapes[out] = root, shape
        params = {**how, "shape": annotate(how["shape"], shape), "strides": None, "within": None}
        return Instruction(window, ins.args, params, ins.outputs)

    def process(self, prim: Primitive, args: tuple, params: dict, proceed: object) -> Any:
        """Follow one operation; its results have shapes alone."""
        ins = self._next(prim)
        self.note(ins, args, params)
        if prim.mutates:
            return args[prim.mutates[0]]
        arrays = [a.array if isinstance(a, Tensor) else a for a in args]
        results = self.result(prim, arrays, params)
        results = results if prim.multi else (results,)
        outs = tuple(self._output(r, v) for r, v in zip(results, ins.outputs, strict=True))
        if prim.view:
            for o in outs:
                o.array.source = arrays[0], prim.name, params
        if prim.elementwise:
            self._keep_order(arrays, outs)
        fixed = self.instructions[-1] is ins and not any(map(_varies, arrays))
        for o in outs:
            o.array.fixed = fixed
        if prim in _IN_ORDER and outs[0].array.dtype.char in "efd":
            outs[0].array.in_order = True
        return outs if prim.multi else outs[0]

    def note(self, ins: Instruction, given: Sequence, params: dict) -> None:
        """That an instruction is done with what it was captured with, but for sizes."""
        if len(given) != len(ins.args):
            raise Unlike("an operation has other operands with sizes as symbols")
        args = []
        for now, was in zip(given, ins.args, strict=True):
            if isinstance(now, Tensor):
                self._check(now, was)
                args.append(was)
            elif now is was:
                args.append(was)
            elif isinstance(was, Var):
                raise Unlike("a tensor is a number with sizes as symbols")
            else:
                args.append(annotate(was, now))
        changed = annotate(ins.params, params)
        if changed is ins.params and all(a is b for a, b in zip(args, ins.args, strict=True)):
            self.instructions.append(ins)
        else:
            self.instructions.append(Instruction(ins.prim, tuple(args), changed, ins.outputs))

    def result(self, prim: Primitive, arrays: Any, params: dict) -> Any:
        """Sketches of what ``prim`` gives, by its shape rule."""
        if prim.shape is None:
            raise Unlike(f"{prim.name} has no rule for the shapes of its results")
        found = prim.shape(*arrays, **params)
        if prim.multi:
            return tuple(Sketch(self, shape, kind) for shape, kind in found)
        return Sketch(self, *found)

    def _output(self, sketch: Sketch, var: Var) -> Tensor:
        shape, kind = self.recorder.metas[var]
        if hinted(sketch.shape) != tuple(shape) or sketch.dtype != kind:
            raise Unlike("a shape rule says another shape")
        sketch.like = self.arrays.get(var)
        self._name(sketch, var)
        out = wrap(sketch)
        self.made.append((var, out))
        return out

    def _keep_order(self, arrays: Sequence, outs: tuple) -> None:
        """What is computed element by element of memory in order lies in order."""
        given = [a for a in arrays if hasattr(a, "flags")]
        if all(a.in_order if isinstance(a, Sketch) else a.flags.c_contiguous for a in given):
            for o in outs:
                o.array.in_order = o.array.like is not None and o.array.like.flags.c_contiguous

    def fact(self, sketch: Sketch, name: str, *others: Any) -> bool:
        """Whether something is true of how a value lies, for all sizes that are replayed."""
        arrays = [s.like if isinstance(s, Sketch) else self._viewed(s) for s in (sketch, *others)]
        if any(a is None for a in arrays):
            raise Unlike("it looks at how memory lies that no capture knows")
        then = says(name, *arrays)
        new = sketch.recipe is not None and name in ("own", "writeable")
        if (
            new
            or not any(map(_varies, (sketch, *others)))
            or self._is_plain(sketch, name, others, then)
        ):
            return then
        names = tuple(self.names.get(id(s)) for s in (sketch, *others))
        if self.at > self.main or any(n is None for n in names):
            raise Unlike("it looks at how memory lies in a gradient's graph")
        if any(ins.prim.outward for ins in self.instructions):  # which no replay could undo
            raise Unlike("it looks at how memory lies after work with other ranks")
        if (names, name) not in self.known:
            self.known.add((names, name))
            params = {"name": name, "then": then}
            self.facts.append((len(self.instructions), Instruction(lies, names, params, ())))
        return then

    def _viewed(self, array: Any) -> Any:
        """The array of the capture that a view was just made of, where that is from outside."""
        return self.arrays.get(self.instructions[-1].args[0], array)

    def _is_plain(self, sketch: Sketch, name: str, others: tuple, then: bool) -> bool:
        """Whether a fact needs no look: views share memory, but a reshaped one that is not in
        order."""
        if name != "shares":
            return False
        if self.at > self.main:  # nothing is written to there
            return True
        ins = self.instructions[-1]
        other = others[0]
        in_order = getattr(other, "in_order", False)
        if ins.prim.name == "reshape" and not in_order and knows_strides(other):
            seen = is_view(other.shape, other.strides, sketch.shape)
            sketch.in_order |= not seen
            return seen == then
        if then and (ins.prim.name != "reshape" or in_order or _alike(sketch, other)):
            sketch.in_order |= ins.prim.name == "reshape" and in_order
            return True
        return not isinstance(other, Sketch)  # of a tensor from outside

    # --- backward ---------------------------------------------------------------------------
    def accumulate(self, grad: Tensor, more: Tensor) -> None:
        accumulate(grad, more)

    def pull(self, node: Any, g: object, wanted: tuple | None) -> tuple:
        """As of a capture: the gradient of one operation."""
        if node.seq <= self.start:
            raise Unlike("it runs backward through a graph that was made outside")
        if node.__class__ is not Node:
            return node.run(g, True, wanted)
        node.check()
        needs = wanted or tuple(e is not None for e in node.edges)
        gs = g if isinstance(g, tuple) else (g,)
        outs = node.out if isinstance(node.out, tuple) else (node.out,)
        given = (*gs, *(node.saved or ()), *(outs if node.out is not None else ()))
        rule = Rule(node, len(gs), None if node.out is None else len(outs), needs)
        ins = self._next(backward_of(node.prim))
        self.note(ins, given, {"rule": rule})
        left = iter(ins.outputs)
        there = ins.params["rule"].there
        found = [
            self._gradient(rule.node.edges[i], gs, next(left)) if come else None
            for i, come in enumerate(there)
        ]
        return tuple(found)

    def _gradient(self, edge: Any, gs: tuple, var: Var) -> Tensor:
        """A gradient has the shape of what it is of, or still of what was given."""
        shape, kind = self.recorder.metas[var]
        shapes = [g.array.shape for g in gs if g is not None]
        shapes = [*(() if edge is None else (edge.shape,)), *shapes]
        fits = [s for s in shapes if hinted(tuple(s)) == tuple(shape)]
        if edge is None and not fits:  # nobody wants it
            fits = [shape]
        if not fits:
            raise Unlike("a gradient has a shape of its own")
        for other in fits[1:]:
            if not all(a == b for a, b in zip(fits[0], other, strict=True)):
                raise Unlike("a gradient has a shape of its own")
        return self._output(Sketch(self, fits[0], kind), var)

    def _define(self, t: Tensor) -> Var:
        """As of a capture: the gradient that a walk begins with."""
        self._take_windows()
        var = self.starts.pop(0)
        t.array = Sketch(self, t.array.shape, t.array.dtype, self.arrays.get(var), True)
        self._name(t.array, var)
        return var

    # --- what interpreters are told ---------------------------------------------------------
    def on_read(self, t: Tensor) -> None:
        if not isinstance(t, Tracer) and isinstance(t.array, Sketch):
            raise Unlike(f"numbers of a tensor are read at {call_site()}")

    def on_array(self, t: Tensor, frame: object) -> None:
        """Arrays may be looked at: they have no numbers."""

    def on_walk(self) -> None:
        """The capture has seen the hooks."""

    def on_stream(self) -> None:
        raise Unlike("it looks at a random generator")

    # --- the end ----------------------------------------------------------------------------
    def check_results(self, before: list, leaves: list) -> list:
        """The leaves of the result, annotated; ``before``: those of the capture."""
        if len(leaves) != len(before):
            raise Unlike("its result has other parts with sizes as symbols")
        found = []
        for was, now in zip(before, leaves, strict=True):
            if isinstance(was, Tensor) != isinstance(now, Tensor):
                raise Unlike("its result has other parts with sizes as symbols")
            if isinstance(was, Tensor):
                self._check(now, self.recorder.var(was))
                found.append(was)
            else:
                found.append(was if now is was else annotate(was, now))
        return found

    def check_gradients(self, grads: dict[int, Any]) -> None:
        """That leaves have the gradients that the capture left; ``grads``: those, by id."""
        for leaf, _ in self.recorder.entry:
            was, now = grads[id(leaf)], leaf._grad
            if was is now:
                continue
            if was is None or now is None:
                raise Unlike("other leaves get gradients with sizes as symbols")
            self._check(now, self.recorder.var(was))

    def apply(self, leaves: list) -> None:
        """Write what was found into the capture."""
        recorder = self.recorder
        main = self.instructions[: self.main]
        for at, look in reversed(self.facts):
            main.insert(at, look)
        recorder.instructions[:] = main
        for var, shape in self.shapes.items():
            was, kind = recorder.metas[var]
            recorder.metas[var] = annotate(tuple(was), tuple(shape)), kind
        recorder.recipes.update(self.recipes)


def _varies(array: Any) -> bool:
    """Whether how an operand lies may depend on sizes."""
    return isinstance(array, Sketch) and not array.fixed


def _alike(a: Any, b: Any) -> bool:
    """Whether shapes differ by dimensions of one element alone: such are views of one another,
    however they lie."""
    texts = [
        [
            n.text if type(n) is Symbolic else str(n)
            for n in x.shape
            if type(n) is Symbolic or n != 1
        ]
        for x in (a, b)
    ]
    return texts[0] == texts[1]
