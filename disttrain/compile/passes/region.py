"""A region: elementwise operations of one shape that run as one generated kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.lang.kernel import Array, Kernel, Loop, Store
from ...backends.program import Program
from ...core.gate import Primitive, finish
from ..instruction import Instruction, Var
from .expressions import evaluate, named

ndarray = np.ndarray
_SOON = 1 << 14  # elements from which a kernel is made at the second run; else after some
_RUNS = 6
_LAYOUTS = 64  # of inputs that are looked at


@functools.lru_cache(maxsize=512)
def program_of(kernel: Kernel) -> Program:
    """The kernel as something to call; equal ones are made once."""
    return Program(kernel)


class Region:
    """``members`` in their order; ``inputs`` and ``outputs``: the values that go in and out.

    The first runs are those of the members, one by one: what runs once is not worth a kernel. So
    are runs on arrays that do not lie in rows, whose results NumPy lays out like them; of each such
    layout one run shows whether they lie in rows after all (those of a spread gradient do).
    """

    def __init__(
        self,
        members: Sequence[Instruction],
        inputs: Sequence[Var],
        outputs: Sequence[Var],
        metas: dict,
        fast: bool = False,
    ) -> None:
        self.fast = fast
        self.members, self.inputs, self.outputs = members, inputs, outputs
        self.shape = tuple(metas[outputs[0]][0])
        self.kinds = [np.dtype(metas[v][1]) for v in outputs]
        self.full = [tuple(metas[v][0]) == self.shape for v in inputs]
        self.alike = all(self.full)
        self.metas = metas
        self.strides = [np.empty(self.shape, kind).strides for kind in self.kinds]
        self.in_rows: dict[tuple, bool] = {}  # by the strides of inputs: whether outputs are
        self.program: Program | None = None
        self.left = 1 if int(np.prod(self.shape)) >= _SOON else _RUNS
        self._lay_out()

    def _lay_out(self) -> None:
        """Number the members' values, as the steps of a program are."""
        slots = {v: i for i, v in enumerate(self.inputs)}
        self.steps = []
        for ins in self.members:
            given = [(slots[a], None) if isinstance(a, Var) else (None, a) for a in ins.args]
            slots.update({made: len(slots) + i for i, made in enumerate(ins.outputs)})
            self.steps.append((ins.prim, given, ins.params))
        self.ends = [slots[v] for v in self.outputs]

    def primitive(self) -> Primitive:
        """What stands in the graph for the members."""
        names = ", ".join(ins.prim.name for ins in self.members)
        prim = Primitive(f"fused[{names}]", self.run, tuple(f"x{i}" for i in range(len(self.full))))
        prim.kinds = True
        prim.multi = len(self.outputs) > 1
        metas = [(self.shape, kind) for kind in self.kinds]
        prim.shape = lambda *given: metas if prim.multi else metas[0]
        return prim

    # --- running ----------------------------------------------------------------------------
    def run(self, *arrays: Any) -> Any:
        """The outputs; bit for bit those of the members."""
        program = self.program
        if program is None:
            self.left -= 1
            if self.left >= 0:
                return self.one_by_one(arrays)
            program = self.program = program_of(self.kernel())
        if not all(map(_in_rows, arrays, self.full)):
            layout = _strides_of(arrays)
            if layout is None or not self.in_rows.get(layout):
                return self._looked_at(layout, arrays)
        outs = [np.empty(self.shape, kind) for kind in self.kinds]
        if not self.alike or program.fast(*arrays, *outs) is None:
            program.slow(*arrays, *outs)
        return outs if len(outs) > 1 else outs[0]

    def _looked_at(self, layout: tuple | None, arrays: tuple) -> Any:
        """``one_by_one``, of which is kept how the outputs lie."""
        found = self.one_by_one(arrays)
        if layout is not None and len(self.in_rows) < _LAYOUTS:
            outs = found if len(self.ends) > 1 else [found]
            self.in_rows[layout] = [r.strides for r in outs] == self.strides
        return found

    def one_by_one(self, arrays: tuple) -> Any:
        """The outputs, by the operations themselves."""
        values = list(arrays)
        for prim, given, params in self.steps:
            args = [value if at is None else values[at] for at, value in given]
            result = prim.compute(args, params)
            for r in result if prim.multi else (result,):
                values.append(r if r.__class__ is ndarray else finish(r))
        found = [values[at] for at in self.ends]
        return found if len(found) > 1 else found[0]

    def kernel(self) -> Kernel:
        """The members as one loop over the elements."""
        given = [(v, self.metas[v]) for v in self.inputs]
        values = {v: named(f"x{i}", meta, self.fast) for i, (v, meta) in enumerate(given)}
        for ins in self.members:
            values.update(zip(ins.outputs, evaluate(ins, values), strict=True))
        params = [Array(f"x{i}", self.metas[v][1].name) for i, v in enumerate(self.inputs)]
        outs = [Array(f"y{i}", kind.name, writes=True) for i, kind in enumerate(self.kinds)]
        stores = [Store(f"y{i}", values[v].expr) for i, v in enumerate(self.outputs)]
        return Kernel("fused", (*params, *outs), (Loop(tuple(stores)),), flat=True)


def _in_rows(array: object, full: bool) -> bool:
    """Whether NumPy's results lie in rows where such an array is given."""
    return array.__class__ is ndarray and (not full or array.flags.c_contiguous)


def _strides_of(arrays: tuple) -> tuple | None:
    """How the arrays lie; None where one is not NumPy's."""
    if any(a.__class__ is not ndarray for a in arrays):
        return None
    return tuple(a.strides for a in arrays)
