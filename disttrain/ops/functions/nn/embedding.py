"""Rows of a table by number. The gradient adds rows up (``gathering.spread``)."""

from __future__ import annotations

from ....core.tensor import Tensor
from ....errors import ShapeError
from ...primitives import gathering
from ..args import tensor as as_input
from ..index_arrays import bounded


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of ``weight`` (rows, width) for the numbers in ``input`` (...), as (..., width).

    Row ``padding_idx`` gets no gradient. Raises ``DimError`` for a number out of range.
    """
    as_input(weight, "embedding", "weight")
    shape = weight.meta()[0]
    if len(shape) != 2:
        raise ShapeError(f"embedding: weight of shape {list(shape)} given; needed (rows, width)")
    index = bounded("embedding", as_input(input, "embedding"), 0, shape[0])
    if padding_idx is not None and padding_idx < 0:
        padding_idx += shape[0]
    return gathering.take(weight, index, dim=0, skip=padding_idx)


__all__ = ["embedding"]
