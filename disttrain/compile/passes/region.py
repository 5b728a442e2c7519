"""A region: elementwise operations of one shape that run as one generated kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
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


# How it is called the short way (None: it cannot be), the kernel, ``into`` as it was made for, and
# the types of results in new memory.
_Ready = tuple[Callable[..., Any] | None, Program, list[int | None], list[np.dtype]]


def runs_before(shape: tuple) -> int:
    """How often the members run one by one before a kernel is made for arrays of a shape."""
    return 1 if int(np.prod(shape)) >= _SOON else _RUNS


@functools.lru_cache(maxsize=512)
def program_of(kernel: Kernel) -> Program:
    """The kernel as something to call; equal ones are made once."""
    return Program(kernel)


class Fused(Primitive):
    """What stands in a graph for the members of ``region``. ``write_into`` is the region's."""

    region: Any  # Region, or that of a device
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
        self.shape = tuple(metas[members[0].outputs[0]][0])
        self.kinds = [np.dtype(metas[v][1]) for v in outputs]
        self.makes = [(tuple(metas[v][0]), np.dtype(metas[v][1])) for v in outputs]
        self.full = [tuple(metas[v][0]) == self.shape for v in inputs]
        spaces = [space_of(tuple(metas[v][0]), self.shape) for v in inputs]
        # As what rows and columns arrays are seen, where that is not by their last dimension.
        self.wide = _wide([tuple(metas[v][0]) for v in inputs], spaces, self.shape)
        self.short = None not in spaces and (self.wide is not None or "tail" not in spaces)
        self.spaces = [space if space and self.short else "full" for space in spaces]
        self.spaces = ["col" if space == "tail" else space for space in self.spaces]
        self.metas = metas
        self.strides = [np.empty(*meta).strides for meta in self.makes]
        self.in_rows: dict[tuple, bool] = {}  # by the strides of inputs: whether outputs are
        self.ready: _Ready | None = None
        self.into: list[int | None] = [None] * len(outputs)
        self.left = runs_before(self.shape)
        self.kernels: dict[tuple, Program] = {}  # by ``into`` and spaces, of all sizes
        self._lay_out()

    def alike(self) -> list[Var]:
        """The values that have the region's shape."""
        made = [o for ins in self.members for o in ins.outputs]
        return made + [v for v, full in zip(self.inputs, self.full, strict=True) if full]

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
        out.kernels = self.kernels
        out.left = 0 if self.kernels else out.left
        return out

    def primitive(self) -> Fused:
        """What stands in the graph for the members."""
        names = ", ".join(ins.prim.name for ins in self.members)
        prim = Fused(f"fused[{names}]", self.run, tuple(f"x{i}" for i in range(len(self.full))))
        prim.region, prim.write_into = self, self.write_into
        prim.kinds = True
        prim.multi = len(self.outputs) > 1
        metas = self.makes
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
            ready = self.ready = self._made_ready()
        fast, _, into, new = ready
        made = [np.empty(self.shape, kind) for kind in new] if new else new
        if self.wide is not None:
            return self._by_width(ready, arrays, made)
        if fast is not None:
            result = fast(*arrays, *made)  # None of arrays that do not lie in rows, and of many
            if result is not None:
                return result if len(into) == 1 else outputs_in(into, arrays, made)
        return self._in_order(ready, arrays, made)

    def _made_ready(self) -> _Ready:
        into = self.into  # (another thread may settle it meanwhile)
        how = (*into, *self.spaces)
        program = self.kernels.get(how)
        if program is None:
            program = self.kernels[how] = program_of(self.kernel(into))
        new = [kind for kind, at in zip(self.kinds, into, strict=True) if at is None]
        return program.fast if self.short and program.native else None, program, into, new

    def _by_width(self, ready: _Ready, arrays: tuple, made: list) -> Any:
        """``run``, of arrays that are seen as other rows."""
        if not all(map(lies_in_rows, arrays, self.full)):
            return self._looked_at(None, arrays)
        _, program, into, _ = ready
        program(*map(self._seen, arrays, self.spaces), *(a.reshape(self.wide) for a in made))
        found = outputs_in(into, arrays, made)
        return found if len(found) > 1 else found[0]

    def _seen(self, array: ndarray, space: str) -> ndarray:
        assert self.wide is not None
        return array if space == "one" else array.reshape(self.wide if space == "full" else -1)

    def _in_order(self, ready: _Ready, arrays: tuple, made: list) -> Any:
        """``run``, of arrays of any layout."""
        _, program, into, _ = ready
        if not all(map(lies_in_rows, arrays, self.full)):
            layout = strides_of(arrays)
            if layout is None or not self.in_rows.get(layout):
                return self._looked_at(layout, arrays)
        program.slow(*arrays, *made)
        found = outputs_in(into, arrays, made)
        return found if len(found) > 1 else found[0]

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
            Array(f"x{i}", self.metas[v][1].name, space, writes=i in into)
            for i, (v, space) in enumerate(zip(self.inputs, self.spaces, strict=True))
        ]
        outs = [
            Array(end, kind.name, writes=True)
            for end, kind, at in zip(ends, self.kinds, into, strict=True)
            if at is None
        ]
        stores = [Store(end, values[v].expr) for end, v in zip(ends, self.outputs, strict=True)]
        flat = set(self.spaces) <= {"full", "one"}
        return Kernel("fused", (*params, *outs), (Loop(tuple(stores)),), flat=flat)


def outputs_in(into: Sequence[int | None], arrays: tuple, made: list) -> list:
    """Results where they were put: in memory of operands, and in new memory."""
    rest = iter(made)
    return [next(rest) if at is None else arrays[at] for at in into]


def space_of(shape: tuple, whole: tuple) -> str | None:
    """How elements of an operand belong to rows and columns of ``whole``; None where they repeat
    otherwise."""
    if shape == whole:
        return "full"
    if prod(shape) == 1:
        return "one"
    if prod(shape) == shape[-1] == whole[-1]:
        return "col"
    lead = (1,) * (len(whole) - len(shape))
    if (*lead, *shape) == (*whole[:-1], 1):
        return "row"
    return "tail" if _tail(shape) == whole[-len(_tail(shape)) :] else None


def _tail(shape: tuple) -> tuple:
    """``shape`` without what it begins with of one place."""
    first = next((k for k, n in enumerate(shape) if n != 1), len(shape) - 1)
    return shape[first:]


def _wide(shapes: Sequence[tuple], spaces: Sequence[str | None], whole: tuple) -> tuple | None:
    """(rows, columns) where some operands repeat as their last dimensions do; None where none does,
    or others repeat otherwise."""
    counts = {prod(s) for s, space in zip(shapes, spaces, strict=True) if space == "tail"}
    if len(counts) != 1 or not set(spaces) <= {"full", "one", "tail"}:
        return None
    (columns,) = counts
    return prod(whole) // columns, columns


def lies_in_rows(array: object, full: bool) -> bool:
    """Whether NumPy's results lie in rows where such an array is given."""
    return array.__class__ is ndarray and (not full or array.flags.c_contiguous)


def strides_of(arrays: tuple) -> tuple | None:
    """How the arrays lie; None where one is not NumPy's."""
    if any(a.__class__ is not ndarray for a in arrays):
        return None
    return tuple(a.strides for a in arrays)
