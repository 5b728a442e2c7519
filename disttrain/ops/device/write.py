"""Writes into device memory, in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from disttrain.backends.device.raw import RawArray

from ...backends.device.array import roots_are_one
from ...backends.device.platform import Platform
from ..primitives import write as prim
from ..primitives.aliases import as_strided, view_as_complex
from ..primitives.views import reshape
from .table import on_device


def write(platform: Platform, dst: Any, src: Any) -> None:
    """``dst[...] = src`` with any conversion; ``src`` is broadcast, or a number. Elements of views
    of the same memory are read before they are written (the array module sees to it)."""
    if prim.overlaps_itself(dst):
        raise ValueError(prim.OVERLAP.format(list(dst.shape)))
    if not isinstance(src, platform.array_type):
        # As numpy converts: whole numbers wrap, which the array module would refuse.
        host = np.empty((), dst.dtype)
        np.copyto(host, np.asarray(src), casting="unsafe")
        dst.fill(host[()])
        return
    if src.dtype.kind == "c" and dst.dtype.kind != "c":
        src = src.real
    dst[...] = src


@on_device("assign")
def _assign(platform: Platform, dst: RawArray, src: RawArray) -> Any:
    write(platform, dst, src)
    return dst


@on_device("view_write")
def _view_write(platform: Platform, base: RawArray, value: RawArray | int, chain: tuple) -> Any:
    """A copy of ``base`` with ``value`` where ``chain`` leads to. Where a view has become a copy
    (a reshape of other strides), the copy is written back."""
    out = base.copy(order="C")
    region, copies = out, []
    for step, params in chain:
        source = region
        own = step.on_device
        region = own(platform, source, **params) if own else step.forward(source, **params)
        if not roots_are_one(source, region):
            copies.append((step, params, region, source))
    write(platform, region, value)
    for step, params, part, source in reversed(copies):
        _write_back(platform, step, params, part, source)
    return out


def _write_back(
    platform: Platform, step: object, params: dict, part: Any, source: RawArray
) -> None:
    if step is reshape:
        source[...] = part.reshape(source.shape)
    elif step is view_as_complex:
        source[...] = part.view(source.dtype).reshape(source.shape)
    else:
        assert step is as_strided, step
        cells, layout = part.base, params["layout"]
        item = source.dtype.itemsize
        flat = platform.xp.lib.stride_tricks.as_strided(
            cells.view(source.dtype)[layout.first :], source.shape,
            tuple(s * item for s in layout.stride),
        )  # fmt: skip
        source[...] = flat
