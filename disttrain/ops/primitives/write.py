"""Primitives that write: ``assign`` into memory, and ``view_write``, a base with some elements
replaced, which is what derivatives see of a write through a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.fused import copies
from ...backends.null import NullArray
from ...core.annotations import Value
from ...core.gate import Primitive
from ...core.tensor import Tensor
from ...core.types.wide import within
from ...errors import CaptureError, ShapeError
from ...trace import call_site
from ..declare import primitive
from .aliases import as_strided, overlaps_itself, own_place, view_as_complex
from .batching import fronted
from .views import expand, reshape

ndarray = np.ndarray


OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor (shape {}) refers to a "
    "single memory location. Please clone() the tensor before performing the operation."
)


SHARED = (
    "unsupported operation: some elements of the input tensor (shape {}) and the written-to tensor "
    "refer to a single memory location. Please clone() the tensor before performing the operation."
)


# Operations in place whose arguments lie elsewhere, all of them.
_APART = frozenset("index_add_ index_copy_ index_fill_ index_put_ index_reduce_ put_ scatter_ "
                   "scatter_add_ scatter_reduce_".split())  # fmt: skip


def check_apart(name: str, target: Any, source: object) -> None:
    """Refuse a tensor (or one of several) that lies where ``target`` does, also all of it."""
    if name not in _APART:
        return
    if isinstance(source, (tuple, list)):
        for one in source:
            check_apart(name, target, one)
    elif isinstance(source, Tensor):
        a, b = (t.__dict__.get("array") for t in (target, source))
        if a.__class__ is not ndarray or b.__class__ is not ndarray or not (a.size and b.size):
            return
        if np.may_share_memory(a, b):
            raise ShapeError(f"{name}: {SHARED.format(list(b.shape))}")


def writeable(dst: Value) -> Any:
    """``dst``, made writeable where numpy refuses only because it is an expanded view. Raises
    ``ValueError`` where two of its elements are one."""
    if dst.__class__ is ndarray:
        if overlaps_itself(dst):
            raise ValueError(OVERLAP.format(list(dst.shape)))
        if not dst.flags.writeable:
            unlock(dst)
    return dst


def unlock(dst: ndarray) -> None:
    """Allow writes to a view that numpy made read-only."""
    try:
        dst.flags.writeable = True
    except ValueError:
        raise ValueError(
            "the tensor lies in memory that is not writeable (of a numpy array, or a full weight "
            f"of fully_shard, which all ranks read) and is written to at {call_site()}; .clone() "
            "it first, or write to the parameter outside of forward"
        ) from None


def _assign(dst: Any, src: Any) -> Any:
    dst = writeable(dst)
    if not copies.onto(dst, src):
        np.copyto(dst, within(src, dst.dtype), casting="unsafe")
    return dst


assign: Primitive = primitive("assign", _assign, "dst src", mutates=(0,))


def _through(array: Value, chain: tuple) -> Any:
    for prim, params in chain:
        array = prim(array, **params)
    return array


# How a region that numpy had to copy goes back to where it was taken from.
_BACK: dict[Any, Callable[[ndarray, ndarray, dict], ndarray]] = {
    reshape: lambda region, dst, params: region.reshape(dst.shape),
    view_as_complex: lambda region, dst, params: region.view(dst.dtype).reshape(dst.shape),
    as_strided: lambda region, dst, params: own_place(region, dst.shape, params["layout"]),
}


def _put(dst: ndarray, value: Value, chain: tuple) -> None:
    """Write ``value`` to the part of ``dst`` that ``chain`` leads to. No layout is presumed: where
    a view has become a copy (numpy's reshape of other strides), the copy is written back."""
    copies = []
    region = dst
    for prim, params in chain:
        source, region = region, prim.forward(region, **params)
        if prim in _BACK and not np.may_share_memory(source, region):
            copies.append((prim, params, region, source))
    writeable(region)[...] = value
    for prim, params, part, source in reversed(copies):
        source[...] = _BACK[prim](part, source, params)


def _view_write(base: Value, value: Value, chain: tuple) -> Any:
    out = np.array(base, order="C")  # (of a numpy number too, as sums of everything are)
    _put(out, value, chain)
    return out


def _behind_batch(chain: tuple, shape: tuple, size: int) -> tuple:
    """The same views of an array of ``shape`` that has a batch dimension in front."""
    out: list = []
    now = NullArray(shape, np.dtype(np.float32))
    for prim, params in chain:
        own, now = now.shape, NullArray(*prim.shape(now, **params))
        if prim is expand:
            missing = len(now.shape) - len(own)
            out.append((reshape, {"shape": (size, *(1,) * missing, *own)}))
            params = {"shape": (size, *now.shape)}
        elif getattr(prim.batch, "shift", None) is None:
            raise CaptureError(
                f"vmap: a write through {prim.name} is not possible there; use the out-of-place "
                "form, or .clone() the view first"
            )
        else:
            params = {**params, **prim.batch.shift(params, size)}
        out.append((prim, params))
    return tuple(out)


def _view_write_batch(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    """Write through the same views, behind the batch dimension."""
    base = fronted(args[0], dims[0], size)
    value = fronted(args[1], dims[1], size) if hasattr(args[1], "shape") else args[1]
    chain = _behind_batch(params["chain"], tuple(base.shape)[1:], size)
    return view_write(base, value, chain=chain), 0


view_write: Primitive = primitive(
    "view_write", _view_write, "base value",
    vjp={
        "base": lambda g, chain: view_write(g, 0, chain=chain),
        "value": lambda g, chain: _through(g, chain),
    },
    jvp="linear", shape=lambda base, value, chain: (base.shape, base.dtype),
    batch=_view_write_batch,
)  # fmt: skip
