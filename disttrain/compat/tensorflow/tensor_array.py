"""``tf.TensorArray``: elements written one by one, in loops of traced functions, too.

Its value is one tensor, [size, *element]; an element's sizes are 0 until one is written.
"""

from __future__ import annotations

from typing import Any

import disttrain as dt

from ... import tree
from ...arrays import slots
from .dispatch import execute
from .tensor import GRAPH, convert
from .types import as_dtype


class TensorArray:
    """Tensors of one type and shape. Writing gives the array that goes on."""

    def __init__(
        self, dtype: Any, size: Any = 0, dynamic_size: bool = False, clear_after_read: Any = None,
        tensor_array_name: Any = None, handle: Any = None, flow: Any = None,
        infer_shape: bool = True, element_shape: Any = None,
        colocate_with_first_write_call: bool = True, name: str | None = None,
    ) -> None:  # fmt: skip
        self.dtype, self.dynamic_size = as_dtype(dtype), bool(dynamic_size)
        kind = self.dtype.inner
        self.flow = execute(
            "TensorListReserve", lambda n: dt.zeros(int(n), 0, dtype=kind), [convert(size)]
        )

    def copied(self, flow: Any) -> TensorArray:
        """The array of the same kind whose value is ``flow``."""
        other = object.__new__(TensorArray)
        other.dtype, other.dynamic_size, other.flow = self.dtype, self.dynamic_size, flow
        return other

    def _next(self, flow: Any) -> TensorArray:
        if GRAPH.get() is None:
            self.flow = flow  # eagerly an array is one object
        return self.copied(flow)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """``value`` at ``index``."""
        grows = self.dynamic_size
        given = [self.flow, convert(index), convert(value, self.dtype)]
        return self._next(
            execute("TensorListSetItem", lambda a, i, v: slots.put_item(a, i, v, grows), given)
        )

    def read(self, index: Any, name: str | None = None) -> Any:
        """The element at ``index``."""
        return execute("TensorListGetItem", slots.item, [self.flow, convert(index)])

    def stack(self, name: str | None = None) -> Any:
        """All elements as one tensor."""
        return execute("TensorListStack", lambda a: a * 1, [self.flow])

    def gather(self, indices: Any, name: str | None = None) -> Any:
        """Some elements as one tensor."""
        return execute("TensorListGather", lambda a, i: a.index_select(0, i.long()),
                       [self.flow, convert(indices)])  # fmt: skip

    def concat(self, name: str | None = None) -> Any:
        """The elements, one after the other."""
        return execute("TensorListConcat", lambda a: a.flatten(0, 1), [self.flow])

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """The rows of ``value`` as elements."""
        return self._next(execute("TensorListFromTensor", lambda v: v * 1,
                                  [convert(value, self.dtype)]))  # fmt: skip

    def size(self, name: str | None = None) -> Any:
        """How many elements there are."""
        return execute("TensorListLength", lambda a: dt.tensor(len(a), dtype=dt.int32), [self.flow])


def _parts(array: TensorArray) -> tuple[list, Any]:
    return [array.flow], lambda found: array.copied(found[0])


tree.register_parts(TensorArray, _parts)
