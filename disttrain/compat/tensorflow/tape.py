"""``tf.GradientTape``: the native one of traced functions, over variables."""

from __future__ import annotations

from typing import Any

from ...autograd.cells import Rows
from ...context import thread
from ...core.tensor import Tensor as Inner
from ...errors import ShapeError
from ...graphs.tapes import StagedTape
from . import arrays
from .tensor import Tensor, _of_keras, convert, wrap
from .variable import IndexedSlices, Variable


class UnconnectedGradients:
    """What stands for the gradient of a source that the target does not depend on."""

    NONE, ZERO = "none", "zero"


class GradientTape(StagedTape):
    """Records operations for gradients. See ``disttrain.GradientTape`` for what computes them."""

    tensor = staticmethod(convert)  # type: ignore[assignment]

    def failed(self, error: BaseException) -> BaseException:
        values = isinstance(error, ShapeError) or "still recording" in str(error)
        kind = ValueError if values else RuntimeError
        return kind(str(error).removeprefix("GradientTape: "))

    def cell(self, value: Any) -> Any:
        return value._cell if isinstance(value, Variable) else None

    def source(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self.cell(value)
        if _of_keras(value):
            return value.value  # its leaf, which records by itself
        if isinstance(value, (Tensor, Inner)):
            return convert(value)
        raise ValueError(f"Passed in object {value!r} of type {type(value).__name__!r}, not "
                         "tf.Tensor or tf.Variable or ExtensionType.")  # fmt: skip

    def cover(self, gradient: Any) -> Any:
        if gradient is None or isinstance(gradient, Tensor):
            return gradient
        if isinstance(gradient, Rows):
            traced = isinstance(gradient.values, Tensor)
            sizes = gradient.shape if traced else arrays.constant(list(gradient.shape))
            at = gradient.indices if traced else wrap(gradient.indices)
            return IndexedSlices(self.cover(gradient.values), at, sizes)
        return wrap(gradient if thread.tapes else gradient.detach())
