"""Program: a graph laid out for running. Values live in numbered slots and go when last used.

Plain arguments have slots too, so that an instruction is a call on the contents of its slots.
This file knows graphs by their parts only, and nothing of how they are captured.
"""

from __future__ import annotations

from typing import Any

from ..core import no_grad
from ..core.gate import Primitive, finish, touched
from ..core.tensor import Tensor, wrap
from ..errors import CaptureError
from .instruction import Instruction, Var, describe


class Step:
    """One instruction with slots for names."""

    __slots__ = ("given", "gone", "made", "params", "prim")

    def __init__(self, prim: Primitive, params: dict[str, Any]) -> None:
        self.prim, self.params = prim, params
        self.given: list[int] = []
        self.made: list[int] = []
        self.gone: tuple[int, ...] = ()


class Program:
    """The steps of one graph. Made once per graph; holds no arrays between runs."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.slots: dict[Var, int] = {}
        self.start: list[Any] = []
        self.base: dict[Var, Var] = {}  # view -> what it is a view of
        self.written: dict[Var, None] = {}  # inputs and tensors from outside, also through views
        self.given = (*graph.inputs, *graph.outside())
        for var in self.given:
            self._slot(var)
        self.steps = [self._step(ins) for ins in graph.instructions]
        self._drop_early()

    def _slot(self, var: Any) -> int:
        if isinstance(var, Var):
            if var in self.slots:
                return self.slots[var]
            self.slots[var] = len(self.start)
            var = None
        self.start.append(var)
        return len(self.start) - 1

    def _step(self, ins: Instruction) -> Step:
        step, base = Step(ins.prim, ins.params), self.base
        step.given = [self._slot(a) for a in ins.args]
        step.made = [self._slot(o) for o in ins.outputs]
        targets = [base.get(ins.args[i], ins.args[i]) for i in ins.prim.mutates]
        self.written.update((t, None) for t in targets if t in self.given)
        if ins.prim.view:
            source = ins.args[0]
            base.update(dict.fromkeys(ins.outputs, base.get(source, source)))
        return step

    def _drop_early(self) -> None:
        """Note after which step each computed value is of no further use."""
        last = {slot: i for i, s in enumerate(self.steps) for slot in (*s.given, *s.made)}
        stay = {self.slots[v] for v in self.graph.results()}
        gone: dict[int, list[int]] = {}
        for slot in {slot for s in self.steps for slot in s.made} - stay:
            gone.setdefault(last[slot], []).append(slot)
        for i, slots in gone.items():
            self.steps[i].gone = tuple(slots)

    def _bind(self, inputs: tuple) -> dict[Var, Tensor]:
        """The tensors that stand for inputs and for values from outside today."""
        graph = self.graph
        tensors = dict(zip(self.given, (*inputs, *graph.captured), strict=True))
        for var, leaf in graph.owners.items():
            grad = tensors[leaf]._grad
            if grad is None:
                raise CaptureError(
                    f"graph: {leaf} has no .grad now; it had one at capture, and the program uses "
                    "it. Set it, or capture again"
                )
            tensors[var] = grad
        for var, t in tensors.items():
            if t.meta() != graph.metas[var]:
                what = "input" if var.kind == "v" else "tensor from outside"
                raise CaptureError(
                    f"graph: {what} {var} is {describe(t.meta())}; captured with "
                    f"{describe(graph.metas[var])}"
                )
        return tensors

    def run(self, inputs: tuple) -> tuple:
        """The outputs; effects happen on the way, and gradients are set at the end."""
        tensors, values = self._bind(inputs), list(self.start)
        for var, t in tensors.items():
            values[self.slots[var]] = t.array
        with no_grad():
            for var in self.written:
                touched(tensors[var])
        for step in self.steps:
            result = step.prim.compute([values[i] for i in step.given], step.params)
            made = step.made
            if len(made) > 1 or (made and step.prim.multi):
                for slot, r in zip(made, result, strict=True):
                    values[slot] = finish(r)
            elif made:
                values[made[0]] = finish(result)
            for slot in step.gone:
                values[slot] = None

        def tensor(var: Any) -> Any:
            if not isinstance(var, Var):
                return var
            t = tensors.get(var)
            if t is None:
                return wrap(values[self.slots[var]])
            return t if t._node is None else t.detach()

        for leaf, var in self.graph.grads:
            tensors[leaf]._grad = tensor(var)
        return tuple(tensor(o) for o in self.graph.outputs)
