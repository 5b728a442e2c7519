"""Attention and dropout's scaling on devices, by kernels that are written for them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...backends.device.attention import attention as code
from ...backends.device.platform import Platform
from ...backends.fused import elementwise as kernels
from ...backends.lang.kernel import Kernel
from .table import F32, F64, NAME_OF, on_device, run


@functools.cache
def _dropout_kernel(dtype: str) -> Kernel:
    return kernels._dropout(dtype)


@on_device("masked_scale")
def _masked_scale(platform: Platform, a: Any, mask: Any, scale: float) -> Any:
    name = NAME_OF[a.dtype]
    if name is None:  # complex numbers
        return platform.xp.where(mask, a * a.dtype.type(scale), a.dtype.type(0))
    out = platform.empty(np.broadcast_shapes(a.shape, mask.shape), a.dtype)
    run(platform, _dropout_kernel(name), (a, mask, float(scale)), out)
    return out


def _as_four(platform: Platform, a: Any, lead: tuple) -> Any:
    """``a`` (..., m, n) as (B, H, m, n): its leading dimensions broadcast to ``lead``."""
    if a.shape[:-2] != lead:
        a = platform.xp.broadcast_to(a, (*lead, *a.shape[-2:]))
    sizes = (1,) * (2 - len(lead)) + lead if len(lead) < 3 else (-1, lead[-1])
    if len(lead) > 2:
        sizes = (int(np.prod(lead[:-1])), lead[-1])
    return a.reshape(*sizes, *a.shape[-2:])


@on_device("attention")
def _attention(
    platform: Platform, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float
) -> tuple:
    """(out, logarithms of the sums of exp per query, which its gradient needs)."""
    lead = np.broadcast_shapes(*(a.shape[:-2] for a in (q, k, v, mask) if a is not None))
    length, width = q.shape[-2], k.shape[-2]
    out = platform.empty((*lead, length, v.shape[-1]), q.dtype)
    lse = platform.empty((*lead, length), F64 if q.dtype == F64 else F32)
    given = [_as_four(platform, a, lead) for a in (q, k, v)]
    if mask is not None:
        mask = platform.xp.broadcast_to(mask, (*lead, length, width))
        given.append(_as_four(platform, mask, lead))
    four = _as_four(platform, out, lead)
    platform.run_code(
        code(causal, mask is not None), (*given, four, lse.reshape(four.shape[:3]), float(scale))
    )
    return out, lse
