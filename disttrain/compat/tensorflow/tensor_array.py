"""``tf.TensorArray``: elements written one by one, in loops of traced functions, too."""

from __future__ import annotations

from typing import Any

from ...graphs.sequences import TensorSequence
from .dispatch import OPS
from .tensor import convert
from .types import as_dtype


class TensorArray(TensorSequence):
    """Tensors of one type and shape. Writing gives the array that goes on."""

    made, kind = OPS, "TensorList"

    def __init__(
        self, dtype: Any, size: Any = 0, dynamic_size: bool = False, clear_after_read: Any = None,
        tensor_array_name: Any = None, handle: Any = None, flow: Any = None,
        infer_shape: bool = True, element_shape: Any = None,
        colocate_with_first_write_call: bool = True, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(as_dtype(dtype), size, dynamic_size)

    def element(self, value: Any) -> Any:
        return convert(value, self.dtype)
