"""A region on a device: elementwise operations of one shape that run as one launch of a generated
kernel.

The kernel computes what the operations' own kernels there compute (``ops.device.elements``): half
types in float32, rounded after each operation; numbers are arguments, not part of the text, so that
what differs by numbers alone is one kernel. It is made, and kept, where all kernels of a platform
are.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.device.array import DeviceArray
from ...backends.device.platform import Platform
from ...backends.device.raw import RawArray
from ...backends.lang import expr as ex
from ...backends.lang.kernel import Array, Kernel, Loop, Scalar, Store
from ...core.gate import finish
from ...errors import DisttrainError
from ...ops.device.elements import Element, element_of
from ...ops.device.table import MOST_AXES, NAME_OF, made_like
from ..instruction import Instruction, Var
from .region import Fused

_RUNS = 1  # of the operations one by one, before a kernel is made
_UNFIT = (DisttrainError, TypeError, ValueError, AttributeError, OverflowError)


@functools.lru_cache(maxsize=1024)
def _one(kernel: Kernel) -> Kernel:
    """The first of equal kernels: plans are kept by identity."""
    return kernel


class Numbers:
    """The numbers that operations take, as parameters of one kernel."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], ex.Expr] = {}
        self.scalars: list[Scalar] = []
        self.values: list[float] = []

    def __call__(self, x: Any, dtype: str) -> ex.Expr:
        value = float(x)
        key = repr(value), dtype
        if key not in self.names:
            name = f"n{len(self.values)}"
            self.names[key] = ex.var(name)
            self.scalars.append(Scalar(name, dtype))
            self.values.append(value)
        return self.names[key]


def element_there(
    ins: Instruction, values: Mapping[Var, Element], numbers: Numbers
) -> Element | None:
    """The result of ``ins`` on ``values``; None where it has no expression on devices."""
    args = [values[a] if isinstance(a, Var) else a for a in ins.args]
    try:
        return element_of(ins.prim, args, ins.params, numbers)
    except _UNFIT:
        return None


def is_elementwise_there(ins: Instruction, metas: dict, there: set[Var]) -> bool:
    """Whether it is an operation on elements of a device's arrays that a kernel can do."""
    if ins.effect or ins.prim.view or len(ins.outputs) != 1 or ins.outputs[0] not in there:
        return False
    shape, kind = metas[ins.outputs[0]]
    given = [a for a in ins.args if isinstance(a, Var)]
    if not shape or 0 in shape or len(shape) > MOST_AXES:
        return False
    if not given or not there.issuperset(given):
        return False
    values = {v: Element(ex.var("x"), tuple(metas[v][0]), metas[v][1]) for v in given}
    found = element_there(ins, values, Numbers())
    return found is not None and (found.shape, found.dtype) == (tuple(shape), kind)


class DeviceRegion:
    """``members`` in their order; ``inputs`` and ``outputs``: the values that go in and out.

    The first run is that of the members, one by one: what runs once is not worth a kernel.

    ``into``: for each output the input in whose memory it goes, None for memory of its own. That is
    done where both lie in rows, and the program has used one stream alone: another one may still
    read what ends here.
    """

    def __init__(
        self, members: Sequence[Instruction], inputs: Sequence[Var], outputs: Sequence[Var],
        metas: dict,
    ) -> None:  # fmt: skip
        self.members, self.inputs, self.outputs = members, inputs, outputs
        self.shape = tuple(metas[outputs[0]][0])
        self.kinds = [np.dtype(metas[v][1]) for v in outputs]
        self.given = [Array(f"x{i}", str(NAME_OF[metas[v][1]])) for i, v in enumerate(inputs)]
        self.metas = {v: metas[v] for v in inputs}
        self.alone: tuple[int | None, ...] = (None,) * len(outputs)
        self.into: tuple[int | None, ...] = self.alone
        self.left = _RUNS
        self.found: tuple[list[Element], Numbers] | None = None
        self.kernels: dict[tuple, Kernel] = {}

    def primitive(self) -> Fused:
        """What stands in the graph for the members."""
        names = ", ".join(ins.prim.name for ins in self.members)
        words = tuple(f"x{i}" for i in range(len(self.inputs)))
        prim = Fused(f"fused[{names}]", self.one_by_one, words)
        prim.region, prim.write_into, prim.on_device = self, self.write_into, self.run
        prim.multi = len(self.outputs) > 1
        metas = [(self.shape, kind) for kind in self.kinds]
        prim.shape = lambda *given, over=(): metas if prim.multi else metas[0]
        return prim

    def write_into(self, free: Sequence[int]) -> None:
        """Let outputs go into the memory of these inputs, as far as they are alike."""
        self.found = self.found or self._elements()
        left, into = list(free), list[int | None]()
        for e, kind in zip(self.found[0], self.kinds, strict=True):
            fit = [k for k in left if self.metas[self.inputs[k]] == (self.shape, kind)]
            same = [k for k in fit if e.expr == ex.var(f"x{k}")]  # a copy: nothing is to be done
            at = next(iter(same or fit), None)
            into.append(at)
            if at is not None:
                left.remove(at)
        self.into = tuple(into)

    # --- running ----------------------------------------------------------------------------
    def run(self, platform: Platform, *arrays: Any, over: tuple = ()) -> Any:
        """The outputs, on raw arrays of the platform's; bit for bit those of the members."""
        if self.left > 0:
            self.left -= 1
            return self._members_there(platform, arrays)
        if self.found is None:
            self.found = self._elements()
        elements, numbers = self.found
        into = self._into(platform, elements, arrays)
        kernel = self.kernels.get(into)
        if kernel is None:
            kernel = self.kernels[into] = _one(self.kernel(into))
        outs = [
            arrays[at] if at is not None else _room(platform, e.like, self.shape, kind, arrays)
            for e, kind, at in zip(elements, self.kinds, into, strict=True)
        ]
        new = [out for out, at in zip(outs, into, strict=True) if at is None]
        if kernel.steps:
            platform.launch(kernel, (*arrays, *numbers.values, *new))
        return outs if len(outs) > 1 else outs[0]

    def _into(
        self, platform: Platform, elements: Sequence[Element], arrays: tuple
    ) -> tuple[int | None, ...]:
        """Where outputs go this time."""
        if self.into is self.alone or platform.sided:
            return self.alone
        in_rows = [a.flags.c_contiguous for a in arrays]
        return tuple(
            at if at is not None and in_rows[at] and (e.like is None or in_rows[e.like]) else None
            for e, at in zip(elements, self.into, strict=True)
        )

    def _members_there(self, platform: Platform, arrays: tuple) -> Any:
        index = platform.current()
        found = self.one_by_one(*[DeviceArray(a, platform, index) for a in arrays])
        return [r.data for r in found] if len(self.outputs) > 1 else found.data

    def one_by_one(self, *arrays: Any, over: tuple = ()) -> Any:
        """The outputs, by the operations themselves."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for ins in self.members:
            args = [values[a] if isinstance(a, Var) else a for a in ins.args]
            values[ins.outputs[0]] = finish(ins.prim.compute(args, ins.params))
        found = [values[v] for v in self.outputs]
        return found if len(found) > 1 else found[0]

    # --- the kernel -------------------------------------------------------------------------
    def _elements(self) -> tuple[list[Element], Numbers]:
        """The outputs as expressions, and the numbers in them."""
        numbers = Numbers()
        values: dict[Var, Element] = {}
        for i, v in enumerate(self.inputs):
            shape, kind = tuple(self.metas[v][0]), self.metas[v][1]
            like = i if shape == self.shape else None
            values[v] = Element(ex.var(f"x{i}"), shape, kind, like)
        for ins in self.members:
            made = element_there(ins, values, numbers)
            assert made is not None, ins.prim
            values[ins.outputs[0]] = made
        return [values[v] for v in self.outputs], numbers

    def kernel(self, into: Sequence[int | None] = ()) -> Kernel:
        """The members as one loop over the elements. ``into``: as above."""
        elements, numbers = self.found or self._elements()
        into = into or self.alone
        ends = [f"y{i}" if at is None else f"x{at}" for i, at in enumerate(into)]
        stores = tuple(
            Store(end, e.expr)
            for end, e in zip(ends, elements, strict=True)
            if e.expr != ex.var(end)
        )
        written = {s.array for s in stores}
        given = [Array(p.name, p.dtype, writes=p.name in written) for p in self.given]
        outs = [
            Array(end, str(NAME_OF[kind]), writes=True)
            for end, kind, at in zip(ends, self.kinds, into, strict=True)
            if at is None
        ]
        steps = (Loop(stores),) if stores else ()
        return Kernel("fused", (*given, *numbers.scalars, *outs), steps, flat=True)


def _room(
    platform: Platform, like: int | None, shape: tuple, kind: np.dtype, arrays: Sequence[RawArray]
) -> Any:
    """Memory for a result, laid out as that of the operation itself would be."""
    if like is None:
        return platform.empty(shape, kind)
    return made_like(platform, arrays[like], shape, kind)
