"""Python numbers where transforms take tensors: each is a tensor without dimensions, of the type
that ``disttrain.tensor`` gives it (a tangent: of its primal's)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.functions.creation.data import tensor


def as_tensor(value: Any, like: Any = None) -> Any:
    """A number as a tensor, of the type of ``like``; anything else as it is."""
    if not isinstance(value, (bool, int, float, complex)):
        return value
    return tensor(value, dtype=like.dtype if isinstance(like, Tensor) else None)


def as_tensors(values: Sequence[Any]) -> list:
    """``as_tensor`` of each."""
    return [as_tensor(v) for v in values]


__all__ = ["as_tensor", "as_tensors"]
