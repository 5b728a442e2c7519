"""One captured walk back: its instructions, and how they are laid out for running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.gate import finish
from .instruction import Instruction, Var


@dataclass
class Sweep:
    """One walk as instructions: from gradients of some results to gradients at the ends."""

    results: tuple[int, ...]  # which of the results that require grad
    instructions: list[Instruction]
    starts: tuple[Var, ...]
    ends: tuple[Any, ...]  # Var or None, per end
    graph: Any = None


class Backward:
    """The instructions of a sweep laid out for running: on the arrays that its node holds."""

    def __init__(self, sweep: Sweep, names: list[Var]) -> None:
        slots = {var: i for i, var in enumerate(names)}
        used = {a for ins in sweep.instructions for a in ins.args if isinstance(a, Var)}
        used |= {e for e in sweep.ends if isinstance(e, Var)}
        self.reads = [slots[v] for v in names if v in used]
        for var in sweep.starts:
            slots[var] = len(slots)
        self.constants: list = []
        self.steps = []
        for ins in sweep.instructions:
            for o in ins.outputs:
                slots.setdefault(o, len(slots))
        size = len(slots)
        for ins in sweep.instructions:
            given = []
            for a in ins.args:
                if isinstance(a, Var):
                    given.append(slots[a])
                else:
                    given.append(size + len(self.constants))
                    self.constants.append(a)
            made = [slots[o] for o in ins.outputs]
            many = ins.prim.multi and not ins.prim.mutates
            self.steps.append((ins.prim, given, ins.params, made, many, list[int]()))
        self.blank = [None] * (size - len(names) - len(sweep.starts))
        self.ends = [None if e is None else slots[e] for e in sweep.ends]
        last = {at: step for step in self.steps for at in (*step[1], *step[3])}
        for at in {at for step in self.steps for at in step[3]} - {*self.ends}:
            last[at][-1].append(at)

    def run(self, arrays: list, gs: list) -> list:
        """The gradients at the ends."""
        values = [*arrays, *gs, *self.blank, *self.constants]
        for prim, given, params, made, many, gone in self.steps:
            result = prim.compute([values[i] for i in given], params)
            if many:
                for slot, r in zip(made, result, strict=True):
                    values[slot] = r if r.__class__ is np.ndarray else finish(r)
            elif made:
                values[made[0]] = result if result.__class__ is np.ndarray else finish(result)
            result = r = None  # not held while the next one runs
            for slot in gone:
                values[slot] = None
        return [None if e is None else values[e] for e in self.ends]
