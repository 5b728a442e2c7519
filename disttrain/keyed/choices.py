"""Choices and orders, drawn with a key."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..core.types.dtypes import of as _of_type
from ..errors import ConfigError
from ..ops import api as t
from ..ops.primitives import threefry as prims
from . import keys as k
from .continuous import gumbel
from .whole import integers

Shape = tuple[int, ...]


def order(key: Tensor, shape: Shape, dim: int = 0) -> Any:
    """Indices along ``dim`` (int64) that shuffle each line of it for itself."""
    return prims.threefry_order(key, shape=tuple(shape), dim=dim, partitionable=k.partitionable())


def permutation(key: Tensor, x: int | Tensor, dim: int = 0, independent: bool = False) -> Any:
    """``x`` (or a range) shuffled along ``dim``, all lines alike unless ``independent``."""
    x = t.arange(x) if isinstance(x, int) else x
    if not -x.ndim <= dim < x.ndim:
        raise ConfigError(f"axis {dim} is out of bounds for array of dimension {x.ndim}")
    dim %= x.ndim
    if independent or x.ndim == 1:
        return t.take_along_dim(x, order(key, tuple(x.shape), dim), dim)
    return t.index_select(x, dim, order(key, (x.shape[dim],)))


def categorical(
    key: Tensor, logits: Tensor, axis: int = -1, shape: Shape | None = None,
    replace: bool = True, mode: str | None = None,
) -> Any:  # fmt: skip
    """Places along ``axis`` (int32), by softmax(logits): where Gumbel's numbers added to them are
    the largest; without replacement the first of these (W. Kool, H. van Hoof and M. Welling,
    Stochastic beams and where to find them, 2019)."""
    axis %= logits.ndim
    batch = tuple(logits.shape[:axis]) + tuple(logits.shape[axis + 1 :])
    shape = batch if shape is None else tuple(shape)
    front = shape[: len(shape) - len(batch)]
    if shape[len(front) :] != batch:
        if any(n not in (1, m) for n, m in zip(batch, shape[len(front) :])) or len(shape) < len(
            batch
        ):
            raise ConfigError(
                f"Incompatible shapes for broadcasting: shapes={[shape, batch]}: categorical"
            )
        batch = shape[len(front) :]
    kind, int32 = logits.meta()[1], _of_type(np.dtype(np.int32))
    if replace:
        drawn = (*front, *batch[:axis], logits.shape[axis], *batch[axis:])
        noise = gumbel(key, drawn, kind, mode)
        return t.argmax(noise + logits, axis - logits.ndim).to(int32)
    num = math.prod(front)
    if num > logits.shape[axis]:
        raise ConfigError(
            f"Number of samples without replacement ({num}) cannot exceed number of categories "
            f"({logits.shape[axis]})."
        )
    noise = gumbel(key, tuple(logits.shape), kind, mode)
    places = t.topk(t.movedim(noise + logits, axis, -1), num, -1)[1]
    return t.movedim(places, -1, 0).reshape(shape).to(int32)


def choice(
    key: Tensor, a: int | Tensor, shape: Shape, replace: bool = True, p: Tensor | None = None,
    dim: int = 0, mode: str | None = None,
) -> Any:  # fmt: skip
    """A sample of ``a`` along ``dim`` (or of a range), with the chances ``p``."""
    dim = 0 if isinstance(a, int) else dim % a.ndim
    num, count = a if isinstance(a, int) else a.shape[dim], math.prod(shape)
    if not count:
        return t.zeros(shape, dtype=_of_type(np.dtype(np.int64)) if isinstance(a, int) else a.dtype)
    if num <= 0:
        raise ConfigError("a must be greater than 0 unless no samples are taken")
    if not replace and count > num:
        raise ConfigError(
            f"Cannot take a larger sample (size {count}) than population (size {num}) when "
            "'replace=False'"
        )
    if p is None and not replace:
        out = permutation(key, a, dim).narrow(dim, 0, count)
    else:
        out = (
            _places(key, num, shape, replace, p, mode).to(_of_type(np.dtype(np.int64))).reshape(-1)
        )
        out = out if isinstance(a, int) else t.index_select(a, dim, out)
    rest = () if isinstance(a, int) else tuple(a.shape)
    return out.reshape((*rest[:dim], *shape, *rest[dim + 1 :]))


def _places(
    key: Tensor, num: int, shape: Shape, replace: bool, p: Tensor | None, mode: str | None
) -> Any:
    if p is None:
        low, high = (t.tensor(np.asarray(x, np.int32)) for x in (0, num))
        return integers(key, shape, low, high, np.dtype(np.int32))
    if tuple(p.shape) != (num,):
        raise ConfigError(
            "p must be None or a 1D vector with the same size as a.shape[axis]. p has shape "
            f"{tuple(p.shape)} and a.shape[axis] is {num}."
        )
    kind = p.meta()[1]
    if not replace:
        return t.topk(gumbel(key, (num,), kind, mode) + t.log(p), math.prod(shape), -1)[1]
    total = t.cumsum(p, 0)
    return t.searchsorted(total, total[-1] * (1 - k.draw(key, shape, "unit", kind)))
