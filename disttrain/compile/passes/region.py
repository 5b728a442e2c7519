"""A region: elementwise operations of one shape that run as one generated kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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


class Fused(Primitive):
    """What stands in a graph for the members of ``region``. ``write_into`` is the region's."""

    region: Region
    write_into: Callable[[Sequence[int]], None]


class Region:
    """``members`` in their order; ``inputs`` and ``outputs``: the values that go in and out.

    The first runs are those of the members, one by one: what runs once is not worth a kernel. So
    are runs on arrays that do not lie in rows, whose results NumPy lays out like them; of each such
    layout one run shows whether they lie in rows after all (those of a spread gradient do).

    ``into``: for each output the input in whose memory it goes, None for memory of its own.
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
        self.ready: tuple[Program, list[int | None]] | None = None
        self.into: list[int | None] = [None] * len(outputs)
        self.left = 1 if int(np.prod(self.shape)) >= _SOON else _RUNS
        self.kernels: dict[tuple, Program] = {}  # by ``into``, of all sizes
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

    def resized(self, members: Sequence[Instruction], metas: dict) -> Region:
        """The same for other sizes, with the kernels that there are."""
        out = Region(members, self.inputs, self.outputs, metas, self.fast)
        out.full, out.alike, out.kernels = self.full, self.alike, self.kernels
        out.left = 0 if self.kernels else out.left
        return out

    def primitive(self) -> Fused:
        """What stands in the graph for the members."""
        names = ", ".join(ins.prim.name for ins in self.members)
        prim = Fused(f"fused[{names}]", self.run, tuple(f"x{i}" for i in range(len(self.full))))
        prim.region, prim.write_into = self, self.write_into
        prim.kinds = True
        prim.multi = len(self.outputs) > 1
        metas = [(self.shape, kind) for kind in self.kinds]
        prim.shape = lambda *given, over=(): metas if prim.multi else metas[0]
        return prim

    def write_into(self, free: Sequence[int]) -> None:
        """Let outputs go into the memory of these inputs, as far as they are of one type."""
        left, into = list(free), list[int | None]()
        for kind in self.kinds:
            at = next((k for k in left if self.metas[self.inputs[k]][1] == kind), None)
            into.append(at)
            if at is not None:
                left.remove(at)
        self.into, self.ready = into, None

    # --- running ----------------------------------------------------------------------------
    def run(self, *arrays: Any, over: tuple = ()) -> Any:
        """The outputs; bit for bit those of the members. (``over``: the inputs that nobody uses
        afterwards. Which of them have memory of their own, ``write_into`` is told.)"""
        ready = self.ready
        if ready is None:
            self.left -= 1
            if self.left >= 0:
                return self.one_by_one(arrays)
            into = self.into  # (another thread may settle it meanwhile)
            made = self.kernels.get(tuple(into))
            if made is None:
                made = self.kernels[tuple(into)] = program_of(self.kernel(into))
            ready = self.ready = made, into
        program, into = ready
        if not all(map(_in_rows, arrays, self.full)):
            layout = _strides_of(arrays)
            if layout is None or not self.in_rows.get(layout):
                return self._looked_at(layout, arrays)
        new = [
            np.empty(self.shape, kind)
            for kind, at in zip(self.kinds, into, strict=True)
            if at is None
        ]
        if not self.alike or program.fast(*arrays, *new) is None:
            program.slow(*arrays, *new)
        if len(new) < len(into):
            rest = iter(new)
            new = [next(rest) if at is None else arrays[at] for at in into]
        return new if len(new) > 1 else new[0]

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

    def kernel(self, into: Sequence[int | None] = ()) -> Kernel:
        """The members as one loop over the elements. ``into``: as above."""
        given = [(v, self.metas[v]) for v in self.inputs]
        values = {v: named(f"x{i}", meta, self.fast) for i, (v, meta) in enumerate(given)}
        for ins in self.members:
            values.update(zip(ins.outputs, evaluate(ins, values), strict=True))
        into = into or [None] * len(self.outputs)
        ends = [f"y{i}" if at is None else f"x{at}" for i, at in enumerate(into)]
        params = [
            Array(f"x{i}", self.metas[v][1].name, writes=i in into)
            for i, v in enumerate(self.inputs)
        ]
        outs = [
            Array(end, kind.name, writes=True)
            for end, kind, at in zip(ends, self.kinds, into, strict=True)
            if at is None
        ]
        stores = [Store(end, values[v].expr) for end, v in zip(ends, self.outputs, strict=True)]
        return Kernel("fused", (*params, *outs), (Loop(tuple(stores)),), flat=True)


def _in_rows(array: object, full: bool) -> bool:
    """Whether NumPy's results lie in rows where such an array is given."""
    return array.__class__ is ndarray and (not full or array.flags.c_contiguous)


def _strides_of(arrays: tuple) -> tuple | None:
    """How the arrays lie; None where one is not NumPy's."""
    if any(a.__class__ is not ndarray for a in arrays):
        return None
    return tuple(a.strides for a in arrays)
