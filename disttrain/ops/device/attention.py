"""Attention and dropout's scaling on devices, by kernels that are written for them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.codes.attention import attention as code
from ...backends.device.codes.attention import attention_backward as code_backward
from ...backends.device.platform import Platform
from ...backends.fused import elementwise as kernels
from ...backends.lang.kernel import Kernel
from ..primitives.attention import attention_backward
from .table import F32, F64, NAME_OF, on_device, run


@functools.cache
def _dropout_kernel(dtype: str) -> Kernel:
    return kernels._dropout(dtype)


@on_device("masked_scale")
def _masked_scale(platform: Platform, a: RawArray, mask: RawArray, scale: float) -> Any:
    name = NAME_OF[a.dtype]
    if name is None:  # complex numbers
        return platform.xp.where(mask, a * a.dtype.type(scale), a.dtype.type(0))
    out = platform.empty(np.broadcast_shapes(a.shape, mask.shape), a.dtype)
    run(platform, _dropout_kernel(name), (a, mask, float(scale)), out)
    return out


def _as_four(platform: Platform, a: RawArray, lead: tuple) -> Any:
    """``a`` (..., m, n) as (B, H, m, n), its leading dimensions broadcast to ``lead``."""
    if a.shape[:-2] != lead:
        a = platform.xp.broadcast_to(a, (*lead, *a.shape[-2:]))
    if len(lead) == 2:
        return a
    return a.reshape(math.prod(lead[:-1]), lead[-1] if lead else 1, *a.shape[-2:])


def _in_rows(platform: Platform, a: RawArray) -> Any:
    """``a`` with the numbers of its last dimension side by side, as the kernels read them."""
    dense = not a.size or a.shape[-1] == 1 or a.strides[-1] == a.dtype.itemsize
    return a if dense else platform.xp.ascontiguousarray(a)


def _given(
    platform: Platform, q: RawArray, k: RawArray, v: RawArray, mask: RawArray | None
) -> tuple:
    """(leading dimensions, q, k, v and the mask as the kernels take them)."""
    lead = np.broadcast_shapes(*(a.shape[:-2] for a in (q, k, v, mask) if a is not None))
    given = [_as_four(platform, _in_rows(platform, a), lead) for a in (q, k, v)]
    if mask is not None:
        mask = platform.xp.broadcast_to(mask, (*lead, q.shape[-2], k.shape[-2]))
        given.append(_as_four(platform, mask, lead))
    return lead, given


@on_device("attention")
def _attention(
    platform: Platform,
    q: RawArray,
    k: RawArray,
    v: RawArray,
    mask: RawArray | None,
    causal: bool,
    scale: float,
    keep: bool = True,
) -> tuple:
    """(out, logarithms of the sums of exp per query, which its gradient needs)."""
    lead, given = _given(platform, q, k, v, mask)
    out = platform.empty((*lead, q.shape[-2], v.shape[-1]), q.dtype)
    lse = platform.empty((*lead, q.shape[-2]), F64 if q.dtype == F64 else F32)
    four = _as_four(platform, out, lead)
    platform.run_code(
        code(causal, mask is not None), (*given, four, lse.reshape(four.shape[:3]), float(scale))
    )
    return out, lse


def _backward(
    platform: Platform,
    g: RawArray,
    q: RawArray,
    k: RawArray,
    v: RawArray,
    mask: RawArray | None,
    out: RawArray,
    lse: RawArray,
    causal: bool,
    scale: float,
) -> tuple:
    """Gradients of q, k and v, in the common leading dimensions."""
    lead, given = _given(platform, q, k, v, mask)
    grads = [platform.empty((*lead, *a.shape[-2:]), a.dtype) for a in (q, k, v)]
    four = [_as_four(platform, a, lead) for a in (_in_rows(platform, g), out, *grads)]
    lse = lse.reshape(four[1].shape[:3])
    platform.run_code(
        code_backward(causal, mask is not None),
        (four[0], *given, four[1], lse, *four[2:], float(scale)),
    )
    return tuple(grads)


attention_backward.on_device = _backward
