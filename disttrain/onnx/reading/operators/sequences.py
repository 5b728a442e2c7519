"""Sequences of tensors (lists here) and optional values (None or the value)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import DimError
from ....ops import api
from ..numbers import Numbers
from ..table import operator
from .reductions import plain, whole


@operator("SequenceConstruct")
def _construct(*given: Any) -> list:
    return list(given)


@operator("SequenceEmpty")
def _empty(*, dtype: int = 1) -> list:
    return []


@operator("SequenceLength")
def _length(s: list) -> Tensor:
    return api.full((), len(s), dtype=dtypes.int64)


def _place(s: list, at: Any, most: int) -> int:
    i = whole(at)
    if not -most <= i < most:
        raise DimError(f"place {i} of a sequence of {len(s)}")
    return i


@operator("SequenceAt", numbers=(1,))
def _at(s: list, at: Any) -> Any:
    return s[_place(s, at, len(s))]


@operator("SequenceInsert", numbers=(2,))
def _insert(s: list, value: Any, at: Any = None) -> list:
    i = len(s) if at is None else _place(s, at, len(s) + 1)
    i = i + len(s) if i < 0 else i
    return [*s[:i], value, *s[i:]]


@operator("SequenceErase", numbers=(1,))
def _erase(s: list, at: Any = None) -> list:
    i = _place(s, at, len(s)) if at is not None else len(s) - 1
    i = i + len(s) if i < 0 else i
    return s[:i] + s[i + 1 :]


@operator("ConcatFromSequence")
def _concat(s: list, *, axis: int, new_axis: int = 0) -> Tensor:
    return api.stack(s, axis) if new_axis else api.cat(s, axis)


@operator("SplitToSequence", numbers=(1,))
def _split(x: Tensor, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> list:
    if split is None:
        parts = list(api.split(x, 1, axis))
        return parts if keepdims else [api.squeeze(p, axis) for p in parts]
    if isinstance(split, Numbers) and split.shape == ():
        return list(api.split(x, split.one(), axis))
    return list(api.split(x, plain(split) or [], axis))


@operator("SequenceMap")
def _map(s: list, *more: Any, body: Any) -> Any:
    rows = []
    for i, value in enumerate(s):
        rows.append(body(value, *[m[i] if isinstance(m, list) else m for m in more]))
    return tuple([list(column) for column in zip(*rows)])


@operator("Optional")
def _optional(value: Any = None, *, type: Any = None) -> Any:
    return value


@operator("OptionalHasElement")
def _has_element(value: Any = None) -> Tensor:
    return api.tensor(np.array(value is not None))


@operator("OptionalGetElement")
def _get_element(value: Any) -> Any:
    if value is None:
        raise DimError("an optional value that is not there")
    return value
