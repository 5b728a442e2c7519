"""Places by order on devices. The array module's argsort is stable and puts nan last; no value is
looked at by the host."""

from __future__ import annotations

from typing import Any

from disttrain.backends.device.raw import RawArray

from ...backends.device.platform import Platform
from ...core.types.wide import is_half
from ..primitives import elementwise as el
from .reduce import place
from .table import F32, INT64, cast, on_device


@on_device("argsort")
def argsort(platform: Platform, a: RawArray, dim: int, descending: bool) -> Any:
    """Equal elements keep their order, in both directions; nan counts as the largest."""
    xp = platform.xp
    if not a.ndim or not a.size:
        return xp.zeros(a.shape, INT64)
    if is_half(a.dtype):
        a = cast(platform, a, F32)
    if not descending:
        return xp.argsort(a, axis=dim, kind="stable")
    back = (slice(None),) * dim + (slice(None, None, -1),)
    order = xp.argsort(xp.ascontiguousarray(a[back]), axis=dim, kind="stable")
    return a.shape[dim] - 1 - order[back]


@on_device("median_places")
def _median_places(platform: Platform, a: RawArray, dim: int) -> Any:
    n = a.shape[dim]
    middle = (slice(None),) * dim + (slice((n - 1) // 2, (n - 1) // 2 + 1),)
    places = argsort(platform, a, dim, False)[middle]
    if a.dtype.kind not in "fV":
        return platform.xp.ascontiguousarray(places)
    odd = el.isnan.on_device(platform, a)
    first = place(platform, odd, dim, True, largest=True)
    return platform.xp.where(odd.any(axis=dim, keepdims=True), first, places)


@on_device("top_places")
def _top_places(platform: Platform, a: RawArray, k: int, dim: int, largest: bool) -> Any:
    best = (slice(None),) * dim + (slice(0, k),)
    return platform.xp.ascontiguousarray(argsort(platform, a, dim, largest)[best])
