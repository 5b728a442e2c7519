"""Program: a graph laid out for running. Values live in numbered slots and go when last used.

Plain arguments have slots too, so that an instruction is a call on the contents of its slots.
This file knows graphs by their parts only, and nothing of how they are captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...core import no_grad
from ...core.gate import finish
from ...core.node import AccumulateGrad
from ...core.tensor import Storage, Tensor, wrap
from ...core.writes import touched
from ...errors import CaptureError
from ..instruction import Instruction, Var, describe
from ..memory import is_laid_out, is_whole, owner_of, window
from ..questions import Otherwise, Trial
from ..sized import SIZED
from .device_updates import run_together
from .lowering import lowered
from .updates import Updates, singly, together

ndarray = np.ndarray
_ENDS = frozenset((type(None), AccumulateGrad))


class Afresh(Exception):  # noqa: N818  (no error of its own: its cause is)
    """A replay failed before it had an effect: the program itself can still run, and say why, or
    catch the error, as it does without a capture."""


def _nowhere(operands: object) -> None:
    """Where results cannot go into the memory of operands."""


class Step:
    """One instruction with slots for names."""

    __slots__ = (
        "forward", "given", "gone", "made", "many", "params", "prim", "words", "write_into",
    )  # fmt: skip

    def __init__(self, ins: Instruction, metas: dict[Var, tuple]) -> None:
        prim, params = self.prim, self.params = ins.prim, ins.params
        self.forward, self.words = prim.forward, params  # what is called, and with which words
        short = lowered(ins, metas)
        if short is not None:
            self.forward, self.words = short, {}
        elif prim.prepared is not None:
            self.forward, self.words = prim.prepared(params), {}
        self.given: list[int] = []
        self.made: list[int] = []
        self.gone: tuple[int, ...] = ()
        self.many = prim.multi and not prim.mutates
        self.write_into: Callable[..., None] = getattr(prim, "write_into", _nowhere)


class Program:
    """The steps of one graph. Made once per graph; holds no arrays between runs."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.player: Callable[[list], list] | None = None  # runs the steps, where not ``execute``
        self.slots: dict[Var, int] = {}
        self.start: list[Any] = []
        self.numbered: list[tuple[int, str]] = []  # slots of numbers that a run is given
        self.base: dict[Var, Var] = {}  # view -> what it is a view of
        self.written: dict[Var, None] = {}  # inputs and tensors from outside, also through views
        self.given = (*graph.inputs, *graph.outside())
        self.outer = frozenset(self.given)
        for var in self.given:
            self._slot(var)
        self.viewed: dict[Var, tuple] = {}  # what made a view, and as which of its outputs
        self.steps = [self._step(ins) for ins in graph.instructions]
        self.shown = {self.slots[var] for var in self.viewed}
        self.kept = {o for o in graph.outputs if isinstance(o, Var)}
        self.writes = [self.slots[v] for v in self.written]
        self.touched = [self.slots[v] for v in graph.touched]
        self.ends = [
            (self._end(o), _ALIASES.get(graph.same.get(i))) for i, o in enumerate(graph.outputs)
        ]
        self.grads = [(self.slots[leaf], self._end(var)) for leaf, var in graph.grads]
        self.dropped = [self.slots[leaf] for leaf in graph.dropped]
        self.owned = [(self.slots[c], self.slots[leaf]) for c, leaf in graph.owners.items()]
        self.harmless = self._harmless()
        self._drop_early()
        self.overwrites = [step for step in self.steps if "over" in step.params]
        self.unsettled = set(self.overwrites)
        self.layout: list | None = None  # of what is given, for which they were settled
        self.trial = Trial.of(self)  # steps that come before all that cannot be undone
        self.renumbered()

    def renumbered(self) -> None:
        """Lay out the steps after those of the trial; anew when updates have other numbers."""
        self.rest = together(self.steps[0 if self.trial is None else len(self.trial.steps) :])

    def _harmless(self) -> int:
        """The steps, from the first, whose errors come before any effect: up to the first that has
        one, which has none where it raises, unless others take part in it."""
        for i, step in enumerate(self.steps):
            if step.prim.outward:
                return i
            if step.prim.random or step.prim.mutates:
                return i + 1
        return len(self.steps)

    def _end(self, var: Any) -> Any:
        """A result: the slot of a value or of a number, or what it is."""
        if type(var) in SIZED:
            return _Number(self._slot(var))
        return _Slot(self.slots[var], var) if isinstance(var, Var) else var

    def _slot(self, var: Var | float | None) -> int:
        if isinstance(var, Var):
            if var in self.slots:
                return self.slots[var]
            self.slots[var] = len(self.start)
            var = None
        elif type(var) in SIZED:
            self.numbered.append((len(self.start), var.text))  # type: ignore[union-attr]
        self.start.append(var)
        return len(self.start) - 1

    def _step(self, ins: Instruction) -> Step:
        step, base = Step(ins, self.graph.metas), self.base
        step.given = [self._slot(a) for a in ins.args]
        step.made = [self._slot(o) for o in ins.outputs]
        targets = [base.get(ins.args[i], ins.args[i]) for i in ins.prim.mutates]
        self.written.update((t, None) for t in targets if t in self.outer)
        if ins.prim.view:
            source = ins.args[0]
            base.update(dict.fromkeys(ins.outputs, base.get(source, source)))
            for i, o in enumerate(ins.outputs):
                self.viewed[o] = ins, i if ins.prim.multi else None
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

    # --- running ----------------------------------------------------------------------------
    def arrays(self) -> list:
        """The memory of the tensors from outside today."""
        return [t.array for t in self.graph.captured]

    def run(
        self, inputs: tuple, arrays: list | None = None, numbers: Sequence[float] = ()
    ) -> tuple:
        """The outputs; effects happen on the way, and gradients are set at the end. ``arrays``:
        what ``arrays()`` gave, where that is known to be as at capture; ``numbers``: those that it
        has none for (``numbered``). Raises Afresh for an error
        that came before any effect, and Otherwise where the program takes another path."""
        graph = self.graph
        tensors = [*inputs, *graph.captured]
        values = list(self.start)
        for (at, _), number in zip(self.numbered, numbers, strict=True):
            values[at] = number
        free = arrays is None  # to lie otherwise than before
        if arrays is None:
            arrays = self.arrays()
            _check(graph.outside(), graph.captured, graph)
        values[: len(tensors)] = [*[t.array for t in inputs], *arrays]
        _check(graph.inputs, inputs, graph)
        for at, leaf in self.owned:
            grad = tensors[leaf]._grad
            if grad is None:
                raise CaptureError(
                    f"graph: {self.given[leaf]} has no .grad now; it had one at capture, and the "
                    "program uses it. Set it, or capture again"
                )
            tensors[at] = grad
            values[at] = grad.array
        if self.overwrites and (free or self.unsettled):
            self._look_at_layout(values)
        if self.trial is not None:
            self._try(self.trial, values)
        for at in self.touched:
            t = tensors[at]
            st, node = t._st, t._node
            if st is not None and t._view is None and node.__class__ in _ENDS:
                st.version += 1  # the commonest
            else:
                _touch(t)
        for at in self.dropped:
            tensors[at]._grad = None
        if self.player is None:
            self.execute(values)
        else:
            values = self.player(values)
        of = _Results(self, tensors, values).of
        for leaf, end in self.grads:
            tensors[leaf]._grad = of(end)
        return tuple([of(o) if alias is None else alias(of(o)) for o, alias in self.ends])

    def _try(self, trial: Trial, values: list) -> None:
        """The steps up to the last question."""
        try:
            trial.run(values, self._through)
        except (Otherwise, Afresh):
            raise
        except Exception as why:  # undone
            raise Afresh from why

    def execute(self, values: list) -> None:
        """All steps, after those of the trial. Raises Afresh as ``run`` does."""
        self._through(self.rest, values)

    def _through(self, steps: list[Step | Updates], values: list) -> None:
        step = None
        try:
            if not self.unsettled and all(
                kind is ndarray or getattr(kind, "outward", False)
                for kind in set(map(type, values[: len(self.given)]))
            ):
                # So is all that they make, or it has instructions of its own (``OverRanks``):
                # ``do``, without a call around each, and without the look for kinds that run
                # themselves.
                for step in steps:
                    result: Any = step.forward(*[values[i] for i in step.given], **step.words)
                    made = step.made
                    if step.many:
                        for slot, r in zip(made, result, strict=True):
                            values[slot] = r if r.__class__ is ndarray else finish(r)
                    elif made:
                        values[made[0]] = result if result.__class__ is ndarray else finish(result)
                    result = r = None  # not held while the next one runs
                    for slot in step.gone:
                        values[slot] = None
            else:
                one, at = list(singly(steps)), 0
                while at < len(one):
                    step = one[at]
                    if step in self.unsettled:
                        self._settle(step, values)
                    at += self._together(one, at, values)
        except Otherwise:
            raise
        except Exception as why:
            if step in self.steps[: self.harmless]:
                raise Afresh from why
            raise

    # --- results in the memory of operands --------------------------------------------------
    def _look_at_layout(self, values: list) -> None:
        """Which values share memory depends on how the given arrays lie: where they lie otherwise
        than in the run that was looked at, nothing is written over."""
        layout = [getattr(a, "strides", None) for a in values[: len(self.given)]]
        if self.layout is None:
            self.layout = layout
        elif layout != self.layout:
            for step in self.overwrites:
                step.write_into(())
            self.overwrites.clear()

    def _settle(self, step: Step, values: list) -> None:
        """See which of the operands that end here have memory that no other value lies in."""
        lying = (
            v.lying() if isinstance(v, ArrayKind) and not is_laid_out(v) else v for v in values
        )
        owners = [owner_of(v) for v in lying if is_laid_out(v)]
        ends = [(k, values[step.given[k]]) for k in step.params["over"]]
        step.write_into([k for k, a in ends if is_whole(a) and owners.count(owner_of(a)) == 1])
        self.unsettled.discard(step)

    def _together(self, steps: list[Step], at: int, values: list) -> int:
        """One step, or some updates of a device's arrays at once; how many."""
        done = run_together(steps, at, values)
        if not done:
            self.do(steps[at], values)
        for slot in [slot for step in steps[at : at + done] for slot in step.gone]:
            values[slot] = None
        return done or 1

    def do(self, step: Step, values: list, drop: bool = True) -> None:
        """One step. ``drop``: let go what nobody after it uses."""
        result = step.prim.compute([values[i] for i in step.given], step.params)
        made = step.made
        if step.many:
            for slot, r in zip(made, result, strict=True):
                values[slot] = r if r.__class__ is ndarray else finish(r)
        elif made:
            values[made[0]] = result if result.__class__ is ndarray else finish(result)
        for slot in step.gone if drop else ():
            values[slot] = None


class _Slot:
    """A value that is a result."""

    __slots__ = ("at", "var")

    def __init__(self, at: int, var: Var) -> None:
        self.at, self.var = at, var


class _Number:
    """A number that is a result."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class _Results:
    """The tensors that stand for values after one run; each value has one."""

    def __init__(self, program: Program, tensors: list, values: list) -> None:
        self.program, self.tensors, self.values = program, tensors, values
        self.made: dict[int, Tensor] = {}

    def of(self, end: Any) -> Any:
        """The tensor of a result; what it is, where it is no value."""
        if end.__class__ is _Slot:
            return self.at(end.at, end.var)
        return self.values[end.at] if end.__class__ is _Number else end

    def at(self, slot: int, var: Var) -> Tensor:
        """The tensor of the value in a slot."""
        if slot < len(self.tensors):
            return self.tensors[slot]
        found = self.made.get(slot)
        if found is None:
            found = self.made[slot] = wrap(self.values[slot])
            if slot in self.program.shown:
                self._tie(var, found)
        return found

    def _tie(self, var: Var, out: Tensor) -> None:
        """Let a view of something that others see know what it is a view of."""
        program, chain = self.program, []
        while var in program.viewed:
            chain.append(program.viewed[var])
            var = chain[-1][0].args[0]
        visible = program.slots[var] < len(self.tensors) or var in program.kept
        if not chain or not visible or any(len(ins.args) > 1 for ins, _ in chain):
            return
        t = self.at(program.slots[var], var)
        for ins, part in reversed(chain):
            made = out
            if ins is not chain[0][0]:
                arrays = ins.prim.compute((t.array,), ins.params)
                made = wrap(arrays if part is None else arrays[part])
            if ins.params.get("counted", True):
                made._st, made._gen = t.storage_cell(), t._gen
            if ins.prim is not window:
                made._view = (t, ins.prim, part, ins.params)
            t = made


# A result from the tensor that stands for its value, where it is not that tensor.
_ALIASES: dict[Any, Callable[[Tensor], Tensor]] = {"detach": Tensor.detach, "data": Tensor._data}


def _check(names: tuple, tensors: tuple, graph: Any) -> None:
    for var, t in zip(names, tensors, strict=True):
        if var not in graph.owners and t.meta() != graph.metas[var]:
            what = "input" if var.kind == "v" else "tensor from outside"
            raise CaptureError(
                f"graph: {what} {var} is {describe(t.meta())}; captured with "
                f"{describe(graph.metas[var])}"
            )


def _touch(t: Tensor) -> None:
    """Count a write to ``t``, as the gate does."""
    node = t._node
    if t._view is None and (node is None or node.__class__ is AccumulateGrad):
        st = t._st
        if st is None:
            st = t._st = Storage()
        st.version += 1
    else:
        with no_grad():
            touched(t)
