"""Reducing in parts: what a host adds up alone, and how the parts of all hosts are joined.

The bits are those of ``reduce_ops``' reducers, since the same values are joined in the same order.
A unit of one rank travels as its values are, a larger one in the type that values are added in.
Knows numpy arrays and the tree; no links.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...calls.reduce_ops import ReduceOp, left_size, make_reducer
from .plans import Join, Layout, Unit

Part = Callable[[int], np.ndarray]  # the values of a rank of this host


class Arithmetic:
    """For one operator, type and group. Owns scratch memory: one thread at a time."""

    def __init__(self, op: ReduceOp, dtype: np.dtype, layout: Layout, step: int) -> None:
        """``step``: the most elements of a piece. Raises ``DTypeError`` as ``make_reducer``."""
        self._rule = make_reducer(op, dtype, len(layout.host_of))
        self._fold = self._rule.ufunc
        self._layout, self.dtype, self._step = layout, dtype, step
        self._scratch: list[np.ndarray] = []

    def unit_dtype(self, unit: Unit) -> np.dtype:
        """The type in which the values of a unit travel."""
        return self.dtype if unit[1] == 1 else self._rule.acc

    def unit_bytes(self, host: int, count: int) -> int:
        """Bytes in which the units of a host travel, of ``count`` elements each."""
        units = self._layout.units[host]
        return sum([self.unit_dtype(unit).itemsize * count for unit in units])

    def is_plain(self, host: int) -> bool:
        """Whether what a host sends is what its one rank has."""
        units = self._layout.units[host]
        return len(units) == 1 and units[0][1] == 1

    def units(self, host: int, part: Part, out: np.ndarray) -> None:
        """Write the units of this host behind each other into ``out`` (bytes)."""
        with np.errstate(all="ignore"):
            at, count = 0, part(self._layout.hosts[host][0]).size
            for unit in self._layout.units[host]:
                dtype = self.unit_dtype(unit)
                end = at + dtype.itemsize * count
                into = out[at:end].view(dtype)
                if unit[1] == 1:
                    into[...] = part(unit[0])
                else:
                    self._unit(unit, part, into, 0)
                at = end

    def join(self, host: int, part: Part, others: dict[int, np.ndarray], out: np.ndarray) -> None:
        """The result in ``out``. ``part``: the values of the ranks of ``host``, of which one may be
        ``out`` itself; ``others``: what the other hosts have sent, as bytes."""
        values: dict[Unit, np.ndarray] = {}
        for other, sent in others.items():
            at = 0
            for unit in self._layout.units[other]:
                dtype = self.unit_dtype(unit)
                end = at + dtype.itemsize * out.size
                values[unit] = sent[at:end].view(dtype)
                at = end
        with np.errstate(all="ignore"):
            root = self._layout.root
            assert isinstance(root, Join)
            a = self._value(root.left, part, values, self._room(0, out.size), 1)
            b = self._value(root.right, part, values, self._room(1, out.size), 2)
            # The result's memory is written to last: one of the values may lie there.
            into = out if self._rule.acc == self.dtype else self._room(0, out.size)
            self._rule.finish(self._fold(a, b, out=into), out)

    def _value(
        self,
        node: Join | Unit,
        part: Part,
        values: dict[Unit, np.ndarray],
        room: np.ndarray,
        depth: int,
    ) -> np.ndarray:
        """The value of a subtree, in ``room`` or where it lies."""
        if isinstance(node, Join):
            a = self._value(node.left, part, values, room, depth)
            b = self._value(node.right, part, values, self._room(depth + 1, room.size), depth + 1)
            return self._fold(a, b, out=room)
        sent = values.get(node)
        if sent is None:
            return self._unit(node, part, room, depth)
        return self._rule.lift(sent, room) if node[1] == 1 else sent

    def _unit(self, unit: Unit, part: Part, room: np.ndarray, depth: int) -> np.ndarray:
        first, count = unit
        if count == 1:
            return self._rule.lift(part(first), room)
        cut = left_size(count)
        a = self._unit((first, cut), part, room, depth)
        rest = (first + cut, count - cut)
        b = self._unit(rest, part, self._room(depth + 1, room.size), depth + 1)
        return self._fold(a, b, out=room)

    def _room(self, depth: int, count: int) -> np.ndarray:
        while len(self._scratch) <= depth:
            self._scratch.append(np.empty(self._step, self._rule.acc))
        return self._scratch[depth][:count]
