"""Where a backward pass ends: gradients are written into ``.grad`` of the leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...context import thread
from ..algebra import Algebra
from ..node import AccumulateGrad
from ..tensor import Tensor, wrap
from .hook_calls import run_accumulate_hooks

ndarray = np.ndarray


def accumulate(acc: AccumulateGrad, g: ArrayKind | Tensor | np.ndarray, own: bool = False) -> None:
    """The sink of ``backward()``: write ``g`` into the leaf's ``.grad``, then run its hooks.
    ``own``: its maker says that nobody else has ``g``."""
    leaf = acc.leaf
    if leaf is None or leaf._node is None:  # gone, or frozen since
        return
    if acc.store is not None:
        if _captured():
            thread.stack[0].effects.store(acc, leaf, g)
        else:
            acc.store(leaf, g)
    else:
        with acc.lock:
            store_grad(leaf, g, own)
    if acc.accumulate_hooks:
        run_accumulate_hooks(acc)


def store_grad(leaf: Any, g: Any, own: bool = False) -> None:
    """``leaf.grad = g``, or ``+= g`` when there is one already. ``leaf``: a Tensor, or what keeps a
    gradient for one (``_grad``, and the ``array`` that it is of). ``own``: nobody else has ``g``,
    which then becomes the gradient where it lies as one does; else that is a copy."""
    tensors = isinstance(g, Tensor)
    if g.__class__ is not ndarray:
        array = g.__dict__.get("array") if tensors else g
        other = isinstance(array, ArrayKind) and not array.as_host
        if other and _store_kind(leaf, g, array, own):
            return
    old = leaf._grad
    if old is None:
        if tensors:
            leaf._grad = _owned(g, own)
        else:
            like = leaf.array
            fits = own and g.base is None and g.strides == like.strides
            leaf._grad = wrap(g if fits else _laid_out(g, like, own))
    elif tensors:
        if _captured():
            thread.stack[0].accumulate(old, g)
        else:
            leaf._grad = Algebra.add(old, g)
    elif old.array.__class__ is ndarray:
        try:
            np.add(old.array, g, out=old.array)
        except ValueError:  # an expanded view, of a backward that was recorded
            leaf._grad = wrap(old.array + g)
        if old._st is not None:
            old._st.version += 1


def _laid_out(g: np.ndarray, like: Any, own: bool) -> np.ndarray:
    """``g`` in the order in which ``like`` lies, where its memory has no gaps, else in C order: in
    memory of its own."""
    if like.__class__ is ndarray and not like.flags.c_contiguous and g.shape == like.shape:
        order = sorted(range(like.ndim), key=lambda d: -like.strides[d])
        if like.transpose(order).flags.c_contiguous:
            back = sorted(range(like.ndim), key=order.__getitem__)
            return g.transpose(order).copy().transpose(back)
    return g if own and g.base is None and g.flags.c_contiguous else g.copy()


def _captured() -> bool:
    """Whether the running walk is recorded by an interpreter as operations on arrays."""
    walk = thread.walk
    return walk is not None and walk.pull is not None and not thread.grad_enabled


def _store_kind(leaf: Any, g: Any, array: Any, alone: bool) -> bool:
    """``store_grad`` for a gradient over an array of another kind than numpy's, which says itself
    how it is to lie; whether that was all. ``alone``: nobody else has it."""
    alone = alone and g is array
    if g is not array and g._node is not None and isinstance(leaf.array, ArrayKind):
        g = leaf.array.placed(g)  # recorded, so it is not copied
        leaf._grad = g if leaf._grad is None else Algebra.add(leaf._grad, g)
        return True
    if g is not array and array.__class__ is DeviceArray and _captured():
        old = leaf._grad
        if old is None:
            leaf._grad = _owned(g, False)
        else:
            thread.stack[0].accumulate(old, g)
        return True
    if g is not array and _captured():
        thread.stack[0].effects.place(leaf, g)
        return True
    own = leaf.array.as_gradient(array) if isinstance(leaf.array, ArrayKind) else array
    old = leaf._grad
    if old is None:
        leaf._grad = wrap(own.owned(alone and own is array))
    elif isinstance(old.array, ArrayKind) and own.has_data:
        old.array.add_in_place(own)
        old.storage_cell().version += 1
    else:
        leaf._grad = Algebra.add(old, wrap(own))
    return True


def _owned(g: Tensor, own: bool) -> Tensor:
    """``g``, or a copy where others may have its memory: gradients are written to in place. One
    that is traced is left as it is; writes to it go through the graph."""
    array = g.__dict__.get("array")
    if array.__class__ not in (ndarray, DeviceArray) and not getattr(array, "as_host", False):
        return g
    raw: Any = array.data if array.__class__ is DeviceArray else array
    fits = own and raw.base is None and raw.flags.c_contiguous
    return g if fits else Algebra.clone(g)
