"""Where a backward pass ends: gradients are written into ``.grad`` of the leaves."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..backends.kinds import ArrayKind
from ..context import thread
from .algebra import Algebra
from .hook_calls import run_accumulate_hooks
from .node import AccumulateGrad
from .tensor import Tensor, wrap

ndarray = np.ndarray


def accumulate(acc: AccumulateGrad, g: Any) -> None:
    """The sink of ``backward()``: write ``g`` into the leaf's ``.grad``, then run its hooks."""
    leaf = acc.variable
    if leaf is None or leaf._node is None:  # gone, or frozen since
        return
    if acc.store is not None:
        acc.store(leaf, g)
    else:
        with acc.lock:
            store_grad(leaf, g)
    if acc.accumulate_hooks:
        run_accumulate_hooks(acc)


def store_grad(leaf: Any, g: Any) -> None:
    """``leaf.grad = g``, or ``+= g`` when there is one already. ``leaf``: a Tensor, or what keeps a
    gradient for one (``_grad``, and the ``array`` that it is of)."""
    tensors = isinstance(g, Tensor)
    if g.__class__ is not ndarray:
        array = g.__dict__.get("array") if tensors else g
        if isinstance(array, ArrayKind):
            # Held as it is below, and by the variable above.
            alone = not tensors and sys.getrefcount(array) <= 5
            if _store_kind(leaf, g, array, alone):
                return
    old = leaf._grad
    if old is None:
        if tensors:
            leaf._grad = _owned(g)
        else:
            # Held here, in accumulate, in the walk's loop and as the argument: by nobody else.
            alone = g.__class__ is not ndarray or (
                sys.getrefcount(g) <= 4 and g.base is None and g.flags.c_contiguous
            )
            leaf._grad = wrap(g if alone else g.copy())
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


def _captured() -> bool:
    """Whether the running walk is recorded by an interpreter as operations on arrays."""
    walk = thread.walk
    return walk is not None and walk.pull is not None and not thread.grad_enabled


def _store_kind(leaf: Any, g: Any, array: Any, alone: bool) -> bool:
    """``store_grad`` for a gradient over an array of another kind than numpy's, which says itself
    how it is to lie; whether that was all. ``alone``: nobody else has it."""
    if g is not array and g._node is not None and isinstance(leaf.array, ArrayKind):
        g = leaf.array.placed(g)  # recorded, so it is not copied
        leaf._grad = g if leaf._grad is None else Algebra.add(leaf._grad, g)
        return True
    if g is not array and array.__class__ is DeviceArray and _captured():
        old = leaf._grad
        if old is None:
            leaf._grad = _owned(g)
        else:
            thread.stack[0].accumulate(old, g)
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


def _owned(g: Tensor) -> Tensor:
    """``g``, or a copy where other tensors share its memory: gradients are written to in place.
    One that is recorded or traced is left as it is; writes to it go through the graph."""
    array = g.__dict__.get("array")
    if g._node is not None or array.__class__ not in (ndarray, DeviceArray):
        return g
    walk = thread.walk
    base = array.base if array.__class__ is ndarray else array.data.base
    fit = base is None and array.flags.c_contiguous
    if fit and (walk is None or id(array) not in walk.stored):
        if walk is not None:
            walk.stored[id(array)] = array
        return g
    return Algebra.clone(g)
