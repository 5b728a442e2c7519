"""Operators over axes: sums, largest elements and their places, running sums, softmax, norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....nn import functional as F
from ....ops import api
from ..numbers import Numbers
from ..table import operator


def plain(x: Any) -> list[int] | None:
    """Axes, sizes or counts as a list; None where there are none."""
    if x is None:
        return None
    return x.list() if isinstance(x, Numbers) else list(x)


def whole(x: Any, default: Any = None) -> Any:
    """One number."""
    if x is None:
        return default
    return x.one() if isinstance(x, Numbers) else x


def _wide(x: Tensor) -> Tensor:
    return x.to(dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x


def _logsumexp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    kind = x.dtype
    if not kind.is_floating_point:
        x = x.to(dtypes.float64)
    return api.logsumexp(x, axes, keep).to(kind)


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = api.prod(x, axis, keep)
    return x


def _largest(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, api.amax, -math.inf)


def _smallest(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return _extreme(x, axes, keep, api.amin, math.inf)


def _extreme(
    x: Tensor, axes: list[int], keep: bool, how: Callable[..., Tensor], empty: float
) -> Tensor:
    """Of nothing: what is smaller (larger) than all."""
    if x.dtype == dtypes.bool:
        return _extreme(x.to(dtypes.uint8), axes, keep, how, empty).to(dtypes.bool)
    if any(x.shape[a] == 0 for a in axes):
        shape = [(1 if keep else None) if i in {a % x.ndim for a in axes} else n
                 for i, n in enumerate(x.shape)]  # fmt: skip
        if not x.dtype.is_floating_point:
            info = dtypes.iinfo(x.dtype)
            empty = info.min if empty < 0 else info.max
        return api.full([n for n in shape if n is not None], empty, dtype=x.dtype)
    return how(x, axes, keep)


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return api.sum(x, axes, keep, dtype=x.dtype)


_KINDS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceSum": _sum,
    "ReduceMean": lambda x, axes, keep: api.mean(x, axes, keep),
    "ReduceMax": _largest,
    "ReduceMin": _smallest,
    "ReduceProd": _prod,
    "ReduceL1": lambda x, axes, keep: _sum(abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _root(_sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: api.log(_sum(x, axes, keep)).to(x.dtype),
    "ReduceLogSumExp": _logsumexp,
}


def _root(x: Tensor) -> Tensor:
    return api.sqrt(x).to(x.dtype)


def _reduction(how: Callable[[Tensor, list[int], bool], Tensor]) -> Callable[..., Tensor]:
    def run(
        x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        over = plain(axes)
        if not over:
            if noop_with_empty_axes:
                return how(x.unsqueeze(0), [0], False)
            over = list(range(x.ndim))
        return how(x, over, bool(keepdims)) if over else how(x.unsqueeze(0), [0], False)

    return run


for _name, _how in _KINDS.items():
    operator(_name, numbers=(1,))(_reduction(_how))


def _place(largest: bool) -> Callable[..., Tensor]:
    def run(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        how = api.argmax if largest else api.argmin
        if not select_last_index:
            return how(x, axis, bool(keepdims))
        return x.shape[axis] - 1 - how(api.flip(x, [axis]), axis, bool(keepdims))

    return run


operator("ArgMax")(_place(True))
operator("ArgMin")(_place(False))


def _running(how: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        along, neutral = whole(axis), 0 if how is api.cumsum else 1
        if reverse:
            x = api.flip(x, [along])
        if exclusive:
            first = api.full_like(api.narrow(x, along, 0, 1), neutral)
            x = api.cat([first, api.narrow(x, along, 0, x.shape[along] - 1)], along)
        out = how(x, along, dtype=x.dtype)
        return api.flip(out, [along]) if reverse else out

    return run


operator("CumSum", numbers=(1,))(_running(api.cumsum))
operator("CumProd", numbers=(1,))(_running(api.cumprod))


def _flat(how: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Before version 13: over all axes from ``axis`` on, as if they were one."""

    def run(x: Tensor, *, axis: int = 1) -> Tensor:
        rows = x.reshape(math.prod(x.shape[: axis % (x.ndim + 1) if axis >= 0 else axis]), -1)
        return how(rows, 1).reshape(x.shape)

    return run


def _hardmax(x: Tensor, axis: int) -> Tensor:
    first = api.argmax(x, axis, True)
    return api.zeros_like(x).scatter(axis, first, api.ones_like(x))


_BY_AXIS: tuple[tuple[str, Callable[[Tensor, int], Tensor]], ...] = (
    ("Softmax", lambda x, axis: F.softmax(x, axis)),
    ("LogSoftmax", lambda x, axis: F.log_softmax(x, axis)),
    ("Hardmax", _hardmax),
)
for _name, _by_axis in _BY_AXIS:
    operator(_name, until=12)(_flat(_by_axis))


@operator("Softmax", since=13)
def _softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.softmax(x, axis)


@operator("LogSoftmax", since=13)
def _log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return F.log_softmax(x, axis)


@operator("Hardmax", since=13)
def _hardmax_along(x: Tensor, *, axis: int = -1) -> Tensor:
    return _hardmax(x, axis)


@operator("LpNormalization")
def _lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = abs(x) if p == 1 else x * x
    total = size.sum(axis, keepdim=True)
    total = total if p == 1 else api.sqrt(total)
    return api.where(total == 0, api.zeros_like(x), x / total)


@operator("TopK", numbers=(1,))
def _top_k(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    values, places = api.sort(x, dim=axis, descending=bool(largest), stable=True)
    count = whole(k)
    return api.narrow(values, axis, 0, count), api.narrow(places, axis, 0, count)
