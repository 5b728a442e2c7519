"""Tensors written one by one, as values of loops: the value is one tensor, [size, *element]; an
element's sizes are 0 until one is written."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from .. import tree
from ..arrays import slots
from ..core.types.dtypes import int32
from ..ops import api as ops
from .graph import CURRENT
from .operations import Operations


class TensorSequence:
    """Tensors of one type and shape. Writing gives the sequence that goes on: outside of traced
    functions, which keep every value, the one that was written changes, too."""

    made: ClassVar[Operations] = Operations()
    kind: ClassVar[str] = "Sequence"  # of its operations: how their names begin

    def __init__(self, dtype: Any, size: Any = 0, dynamic_size: bool = False) -> None:
        self.dtype, self.dynamic_size = dtype, bool(dynamic_size)
        inner = self.made.element_type(dtype)
        self.flow = self._done("Reserve", lambda n: ops.zeros(int(n), 0, dtype=inner), size)

    def __init_subclass__(cls) -> None:
        tree.register_parts(cls, _parts)

    def element(self, value: Any) -> Any:
        """What is to be written, as a tensor."""
        return self.made.tensor(value, hint=self.dtype)

    def _done(self, word: str, call: Any, *inputs: Any) -> Any:
        return self.made.execute(self.kind + word, call, [self.made.tensor(v) for v in inputs])

    def copied(self, flow: Any) -> Self:
        """The sequence of the same kind whose value is ``flow``."""
        other = object.__new__(type(self))
        other.dtype, other.dynamic_size, other.flow = self.dtype, self.dynamic_size, flow
        return other

    def _next(self, flow: Any) -> Self:
        if CURRENT.get() is None:
            self.flow = flow
        return self.copied(flow)

    def write(self, index: Any, value: Any, name: str | None = None) -> Self:
        """``value`` at ``index``."""
        grows = self.dynamic_size
        return self._next(self._done("SetItem", lambda a, i, v: slots.put_item(a, i, v, grows),
                                     self.flow, index, self.element(value)))  # fmt: skip

    def unstack(self, value: Any, name: str | None = None) -> Self:
        """The rows of ``value`` as elements."""
        return self._next(self._done("FromTensor", lambda v: v * 1, self.element(value)))

    def read(self, index: Any, name: str | None = None) -> Any:
        """The element at ``index``."""
        return self._done("GetItem", slots.item, self.flow, index)

    def stack(self, name: str | None = None) -> Any:
        """All elements as one tensor."""
        return self._done("Stack", lambda a: a * 1, self.flow)

    def gather(self, indices: Any, name: str | None = None) -> Any:
        """Some elements as one tensor."""
        return self._done("Gather", lambda a, i: a.index_select(0, i.long()), self.flow, indices)

    def concat(self, name: str | None = None) -> Any:
        """The elements, one after the other."""
        return self._done("Concat", lambda a: a.flatten(0, 1), self.flow)

    def size(self, name: str | None = None) -> Any:
        """How many elements there are."""
        return self._done("Length", lambda a: ops.tensor(len(a), dtype=int32), self.flow)


def _parts(sequence: Any) -> tuple[list, Any]:
    return [sequence.flow], lambda found: sequence.copied(found[0])


tree.register_parts(TensorSequence, _parts)
