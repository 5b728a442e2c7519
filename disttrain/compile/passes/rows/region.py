"""A region of rows: operations on rows of one shape, with elementwise ones before, between and
after them and sums of what they make, that run as one generated kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import lcm, prod
from typing import Any, NamedTuple

import numpy as np

from ....backends import threads
from ....backends.fused.normalization import norms
from ....backends.lang.kernel import Array, Kernel, Scalar
from ....backends.lang.rows import Rows, reads, renamed, writes
from ....backends.llvm.partition import SPLIT_WORK
from ....backends.program import Program
from ...instruction import Instruction, Var
from ..expressions import evaluate, named
from ..region import Region, lies_in_rows, program_of, space_of, strides_of
from ..values import inputs_of
from .operations import RowOperation, numbers_of, operation_of
from .sums import joined, lines_of, summed

ndarray = np.ndarray
SHORT = frozenset(("full", "col", "row", "one", "tail"))  # how operands repeat the short way


class Sum(NamedTuple):
    """A sum over rows: what is added up by a line for ``every`` rows (0: one for all), which begins
    as ``start``. ``bias``: in the order of a bias's gradient, or else of a norm's."""

    every: int
    start: float
    bias: bool


class _Plan(NamedTuple):
    """A kernel and what it is called with beside the inputs: numbers, results, sums as they begin,
    lines."""

    program: Program
    numbers: list[float]
    new: list[tuple[tuple, np.dtype]]
    starts: list[ndarray]
    lines: list[tuple[tuple, np.dtype]]
    unit: int  # of rows that one thread must have together
    cut: bool  # whether it is large, and threads are given their rows here
    all: bool  # whether it reads all inputs
    found: Callable[[tuple, list, list], Any]  # the outputs: of inputs, results and sums


class RowRegion(Region):
    """``members`` in their order, the first of the shape of the rows. As a region of elements: at
    first its members run one by one; so they do on arrays that do not lie in rows."""

    def __init__(
        self, members: Sequence[Instruction], inputs: Sequence[Var], outputs: Sequence[Var],
        metas: dict, fast: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(members, inputs, outputs, metas, fast)
        of = _spaces(members, metas, self.shape)
        self.used = [k for k, v in enumerate(inputs) if v in of]  # which the kernel reads
        spaces = [of.get(v, "one") for v in inputs]
        self.short = SHORT.issuperset(spaces)
        self.spaces = [space if space in SHORT - {"tail"} else "full" for space in spaces]
        self.cyclic = [space == "tail" and self.short for space in spaces]
        self.rows, self.columns = prod(self.shape[:-1]), self.shape[-1]
        self.sums = self._sums()
        self.plan: _Plan | None = None

    def alike(self) -> list[Var]:
        firsts = [ins.outputs[0] for ins in self.members if summed(ins, self.metas) is None]
        return firsts + [v for v, full in zip(self.inputs, self.full, strict=True) if full]

    def resized(self, members: Sequence[Instruction], metas: dict) -> RowRegion:
        out = RowRegion(members, self.inputs, self.outputs, metas, self.fast)
        out.kernels = self.kernels
        out.left = 0 if self.kernels else out.left
        return out

    # --- the kernel -------------------------------------------------------------------------
    def _sums(self) -> dict[Var, Sum]:
        """The outputs that are sums over rows."""
        found: dict[Var, Sum] = {}
        for ins in self.members:
            operation = operation_of(ins, self.metas)
            if operation is not None:
                every = self._every(norms.BLOCK)
                found.update((v, Sum(every, 0.0, False)) for v in operation.sums.values())
            elif summed(ins, self.metas) is not None:
                every = self._every(lines_of(self.rows, self.columns))
                found[ins.outputs[0]] = Sum(every, -0.0, True)
        return {v: found[v] for v in self.outputs if v in found}

    def _every(self, rows: int) -> int:
        return 0 if rows >= self.rows else rows

    def kernel(self, into: Sequence[int | None] = ()) -> Kernel:
        """The members as one kernel. Its parameters: inputs, numbers, results, sums, lines."""
        ends = {v: f"y{i}" for i, v in enumerate(self.outputs)}
        rows = Rows({_name(v): end for v, end in ends.items() if v not in self.sums})
        names = {v: f"x{i}" for i, v in enumerate(self.inputs)}
        for k in self.used:
            kind = self.metas[self.inputs[k]][1].name
            rows.take(Array(f"x{k}", kind, self.spaces[k], cyclic=self.cyclic[k]))
        values = {v: named(name, self.metas[v], self.fast) for v, name in names.items()}
        sums = {
            v: Array(ends[v], self.metas[v][1].name, "col", True, s.every)
            for v, s in self.sums.items()
        }
        for ins in self.members:
            names.update((v, _name(v)) for v in ins.outputs)
            operation, added = operation_of(ins, self.metas), summed(ins, self.metas)
            if operation is not None:
                self._run(rows, operation, names, sums)
            elif added is not None:
                if ins.outputs[0] in sums:
                    rows.add_up(sums[ins.outputs[0]], names[added])
            else:
                found = evaluate(ins, values)
                for v, symbol in zip(ins.outputs, found, strict=True):
                    rows.define(names[v], symbol.expr, symbol.dtype.name)
            values.update((v, named(_name(v), self.metas[v], self.fast)) for v in ins.outputs)
        return _over(_ordered(rows.kernel("fused_rows"), set(sums.values())), into)

    def _numbers(self) -> list[float]:
        """Those of the kernels that are run in it, as they come."""
        numbers: list[float] = []
        for operation in [operation_of(ins, self.metas) for ins in self.members]:
            if operation is not None:
                of = numbers_of(operation, self.columns)
                numbers += [of[s.name] for s in operation.kernel.scalars]
        return numbers

    def _run(self, rows: Rows, operation: RowOperation, names: dict, sums: dict) -> None:
        rows.run(
            operation.kernel,
            {array: names[v] for array, v in operation.given.items()},
            {array: names[v] for array, v in operation.made.items()},
            {array: sums[v] for array, v in operation.sums.items() if v in sums},
        )

    def write_into(self, free: Sequence[int]) -> None:
        """Let outputs go into the memory of these inputs, where the kernel looks at none of their
        elements after it has written there."""
        self.plan, left, into = None, list(free), list[int | None]()
        kernel = self.kernel() if left else None
        for i, (v, meta) in enumerate(zip(self.outputs, self.makes, strict=True)):
            fit = (k for k in left if self.metas[self.inputs[k]] == self.metas[v])
            whole = kernel is not None and meta[0] == self.shape and v not in self.sums
            at = (
                next((k for k in fit if _is_last(kernel, f"x{k}", f"y{i}")), None)
                if whole
                else None
            )
            into.append(at)
            if at is not None:
                left.remove(at)
        self.into = into

    def _planned(self) -> _Plan:
        into = self.into  # (another thread may settle it meanwhile)
        columns, everys = self.columns, [s.every for s in self.sums.values()]
        starts = [
            np.full((-(-self.rows // (s.every or self.rows)), columns), s.start, self.metas[v][1])
            for v, s in self.sums.items()
        ]
        how = (*into, *everys, *self.spaces, *self.cyclic)
        program = self.kernels.get(how)
        if program is None:
            program = self.kernels[how] = program_of(self.kernel(into))
        lines = [a for a in program.kernel.arrays if a.name.startswith("line")]
        new = [
            meta
            for v, meta, at in zip(self.outputs, self.makes, into, strict=True)
            if at is None and v not in self.sums
        ]
        unit = 0 if 0 in everys else lcm(*everys, *self._cycles())
        many = self.rows * columns * program.cost >= SPLIT_WORK
        cut = many and self.short and bool(unit and (starts or lines))
        return _Plan(
            program, self._numbers(), new, starts, [((columns,), np.dtype(a.dtype)) for a in lines],
            unit, cut, len(self.used) == len(self.inputs), self._finder(into),
        )  # fmt: skip

    def _cycles(self) -> list[int]:
        """The rows of operands that begin anew."""
        found = zip(self.inputs, self.cyclic, strict=True)
        return [prod(self.metas[v][0]) // self.columns for v, cyclic in found if cyclic]

    def _finder(self, into: Sequence[int | None]) -> Callable[[tuple, list, list], Any]:
        """What gives the outputs: from inputs that they were written over, new arrays, sums."""
        places: list[tuple[int, int, Any]] = []
        counts = [0, 0, 0]
        for v, at in zip(self.outputs, into, strict=True):
            which = 2 if v in self.sums else 0 if at is not None else 1
            join = (joined if self.sums[v].bias else norms.joined) if which == 2 else None
            places.append((which, counts[which] if at is None else at, join))
            counts[which] += 1

        def found(*of: Any) -> Any:
            out = [of[a][k] if join is None else join(of[a][k]) for a, k, join in places]
            return out if len(out) > 1 else out[0]

        return found

    # --- running ----------------------------------------------------------------------------
    def run(self, *arrays: Any, over: tuple = ()) -> Any:
        plan = self.plan
        if plan is None:
            self.left -= 1
            if self.left >= 0:
                return self.one_by_one(arrays)
            plan = self.plan = self._planned()
        if not plan.program.native:  # (numbers of a row are kept for that row alone)
            return self.one_by_one(arrays)
        used = arrays if plan.all else [arrays[k] for k in self.used]
        new = [np.empty(shape, kind) for shape, kind in plan.new]
        sums = [start.copy() for start in plan.starts]
        parts = self._parts(plan) if plan.cut else 1
        if parts == 1:
            lines = [np.empty(shape, kind) for shape, kind in plan.lines]
            # (None of arrays that do not lie in rows, and of many)
            if plan.program.fast(*used, *plan.numbers, *new, *sums, *lines) is not None:
                return plan.found(arrays, new, sums)
        if not self._lies(plan, arrays):
            return self._looked_at(strides_of(arrays), arrays)
        if parts == 1:
            plan.program.slow(*used, *plan.numbers, *new, *sums, *lines)
        else:
            self._spread(plan, (used, new, sums), parts)
        return plan.found(arrays, new, sums)

    def _lies(self, plan: _Plan, arrays: tuple) -> bool:
        """Whether the arrays lie as the kernel takes them, and as its results do."""
        if plan.starts:  # the short way alone knows sums
            return plan.cut and all(map(_is_whole, arrays))
        if all(map(lies_in_rows, arrays, self.full)):
            return True
        layout = strides_of(arrays)
        return layout is not None and self.in_rows.get(layout, False)

    def _spread(self, plan: _Plan, given: tuple, parts: int) -> None:
        """The kernel on some of the rows for each thread."""
        rows = threads.portions(self.rows // plan.unit, 1, parts)
        ends = [s.stop * plan.unit for s in rows[:-1]] + [self.rows]
        shares = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        threads.spread([partial(_launch, plan, *self._cut(given, share)) for share in shares])

    def _parts(self, plan: _Plan) -> int:
        """For how many threads there is work, of a kernel that does not cut itself."""
        amount = self.rows * self.columns * plan.program.cost
        return min(threads.count(), 2 * amount // SPLIT_WORK, self.rows // plan.unit)

    def _cut(self, given: tuple, rows: slice) -> tuple:
        """What is given, for some of the rows."""
        arrays, new, sums = given
        cut = []
        for a, k in zip(arrays, self.used, strict=True):
            apart = self.spaces[k] in ("full", "row") and not self.cyclic[k]
            cut.append(a.reshape(self.rows, -1)[rows] if apart else a)
        lines = [
            a[rows.start // s.every : -(-rows.stop // s.every)]
            for a, s in zip(sums, self.sums.values(), strict=True)
        ]
        return tuple(cut), [a.reshape(self.rows, -1)[rows] for a in new], lines


def _spaces(members: Sequence[Instruction], metas: dict, shape: tuple) -> dict[Var, str | None]:
    """How the elements of what kernels read belong to rows and columns."""
    found: dict[Var, str | None] = {}
    for ins in members:
        found.update(spaces_of(ins, metas, shape))
    return found


def spaces_of(ins: Instruction, metas: dict, shape: tuple) -> dict[Var, str | None]:
    """How the elements of what ``ins`` reads belong to rows and columns of ``shape``; None: in
    another way."""
    operation = operation_of(ins, metas)
    if operation is None:
        return {v: space_of(tuple(metas[v][0]), shape) for v in inputs_of(ins)}
    spaces = {a.name: a.space for a in operation.kernel.arrays}
    return {v: spaces[array] for array, v in operation.given.items()}


def _launch(plan: _Plan, arrays: list, new: list, sums: list) -> None:
    lines = [np.empty(shape, kind) for shape, kind in plan.lines]
    args = (*arrays, *plan.numbers, *new, *sums, *lines)
    program = plan.program
    if program.fast(*args) is None:
        program.slow(*args)


def _is_whole(a: Any) -> bool:
    return a.__class__ is ndarray and a.flags.c_contiguous and a.flags.aligned


def _name(v: Var) -> str:
    return f"{v.kind}{v.number}"


def _ordered(kernel: Kernel, sums: set[Array]) -> Kernel:
    """The kernel with what it is given first, then results as they are numbered, sums, lines."""

    def place(p: Array | Scalar) -> tuple:
        if isinstance(p, Scalar):
            return (1,)
        kind = 3 if p in sums else "xyl".index(p.name[0]) * 2
        return (kind, int(p.name.strip("xyline"))) if kind else (0,)

    return Kernel(kernel.name, tuple(sorted(kernel.params, key=place)), kernel.steps)


def _over(kernel: Kernel, into: Sequence[int | None]) -> Kernel:
    """The kernel with outputs in the memory of inputs."""
    steps, params = kernel.steps, list(kernel.params)
    for i, at in enumerate(into):
        if at is None:
            continue
        steps = tuple(renamed(step, f"y{i}", f"x{at}") for step in steps)
        params = [
            replace(p, writes=True) if isinstance(p, Array) and p.name == f"x{at}" else p
            for p in params
            if p.name != f"y{i}"
        ]
    return Kernel(kernel.name, tuple(params), steps)


def _is_last(kernel: Kernel | None, read: str, written: str) -> bool:
    """Whether no step reads an array after one that writes to another."""
    assert kernel is not None
    first = next(i for i, step in enumerate(kernel.steps) if written in writes(step))
    return all(read not in reads(step) for step in kernel.steps[first + 1 :])


__all__ = ["SHORT", "RowRegion", "spaces_of"]
