"""Elements by their order, which is a word ("ascending" or "descending"): sorted, placed, the first
of them."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..errors import ShapeError
from ..ops import api as ops


def _down(order: str) -> bool:
    return order.lower() == "descending"


def sort(x: Tensor, axis: int = -1, order: str = "ascending") -> Tensor:
    """The elements in their order."""
    return ops.sort(x, dim=axis, descending=_down(order)).values


def argsort(x: Tensor, axis: int = -1, order: str = "ascending") -> Tensor:
    """The places of the elements in their order (int32); equal ones as they come."""
    return ops.sort(x, dim=axis, descending=_down(order), stable=True).indices.to(dtypes.int32)


def searchsorted(line: Tensor, x: Tensor, side: str = "left", kind: Any = None) -> Tensor:
    """The places in a sorted line that keep its order."""
    return ops.searchsorted(line, x, side=side).to(kind)


def top_k(x: Tensor, k: int = 1, kind: Any = None) -> tuple[Tensor, Tensor]:
    """The ``k`` greatest of the last dimension, the greatest first, and their places."""
    if k > x.shape[-1]:
        raise ShapeError(f"input must have at least k columns. Had {x.shape[-1]}, needed {k}")
    values, places = ops.sort(x, dim=-1, descending=True, stable=True)
    return values[..., :k], places[..., :k].to(kind)


def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> Tensor:
    """Whether the target is among the ``k`` greatest of its row."""
    own = predictions.gather(1, targets.long().unsqueeze(1))
    return (predictions > own).sum(1) < k
