"""In-place operations: compute out of place, write once, move the graph.

Every write goes through one mutating primitive, ``assign``. When gradients are recorded the
written tensor takes over the graph position of the computed value; a write through a view gives
the view's base a ``view_write`` node, and the other views of that base find their new place from
it when they are next asked (``Storage.gen``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...context import SLOW, thread
from ...core.gate import Tracer, attach, check_inplace, gate, touched
from ...core.tensor import Tensor, wrap
from ...errors import CaptureError, DTypeError, ShapeError
from ..primitives import elementwise as el
from ..primitives.views import expand
from ..primitives.write import assign, ndarray, view_write


def records(*args: Any) -> bool:
    """Whether an operation on ``args`` would be recorded now."""
    return thread.grad_enabled and any(
        isinstance(a, Tensor) and a.graph_node() is not None for a in args
    )


def inplace(name: str, prim: Callable, ufunc: Any = None) -> Callable:
    """The in-place form of an operation: ``f(self, *args, **params)`` returns ``self``."""

    def run(self: Tensor, *args: Any, **params: Any) -> Tensor:
        quick = ufunc is not None and thread.mode != SLOW and not params and len(args) < 2
        if quick and _quick(self, args, ufunc):
            return self
        recording = records(self, *args)
        if recording:
            check_inplace(self, name)
        write(name, self, prim(self, *args, **params), recording)
        return self

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"In-place form of ``{name.rstrip('_')}``."
    return run


def _quick(self: Tensor, args: tuple, ufunc: Any) -> bool:
    """Do it by numpy's ``out=`` when nothing is recorded and one element type is involved."""
    x = self.array
    if x.__class__ is not ndarray or x.dtype.kind != "f":
        return False
    y: Any = None
    if args:
        y = args[0]
        if isinstance(y, Tensor):
            if (not thread.mode and y.graph_node() is not None) or y.array.dtype is not x.dtype:
                return False
            y = y.array
            if y.ndim > x.ndim:
                return False
        elif y.__class__ is not float and y.__class__ is not int:
            return False
    if not thread.mode and self.graph_node() is not None:
        return False
    try:
        if args:
            ufunc(x, y, out=x)
        else:
            ufunc(x, out=x)
    except ValueError:
        return False
    touched(self)
    return True


def write(name: str, target: Tensor, value: Tensor, recording: bool) -> None:
    """Write ``value`` into ``target``'s memory; move the graph when ``recording``."""
    shape, kind = target.meta()
    have, have_kind = value.meta()
    if have != shape:
        raise ShapeError(
            f"{name}: the result has shape {list(have)}, the tensor written to has {list(shape)}; "
            "an in-place operation cannot change the shape; use the out-of-place form"
        )
    if have_kind != kind:
        if _rank(have_kind) > _rank(kind):
            raise DTypeError(
                f"{name}: the result is {have_kind}, which cannot be written to a tensor of "
                f"{kind}; use the out-of-place form, or convert the tensor first"
            )
        value = el.cast(value, dtype=kind)
    if isinstance(target, Tracer) or isinstance(value, Tracer):
        _replace_inner(name, target, value)
        return
    gate(assign, (target, value.detach() if recording else value), {})
    if recording:
        _move_graph(target, value)


def _rank(kind: np.dtype) -> int:
    return {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}[kind.kind]


def _replace_inner(name: str, target: Tensor, value: Tensor) -> None:
    if not isinstance(target, Tracer) or target.viewed:
        raise CaptureError(
            f"{name}: inside a transform an in-place operation may only change a whole tensor "
            "that depends on a transformed input and shares memory with no other (views of it "
            "included); use the out-of-place form, or .clone() it first"
        )
    own = isinstance(value, Tracer) and value.interp is target.interp
    if not own and isinstance(value, Tracer) and value.interp.level > target.interp.level:
        raise CaptureError(
            f"{name}: a value of {value.interp} cannot be written to a tensor from outside it; use "
            "the out-of-place form"
        )
    value = value if own else target.interp.lift(value)
    target.__dict__.update({k: v for k, v in value.__dict__.items() if k != "_view"})


def _move_graph(target: Tensor, value: Tensor) -> None:
    if target._view is None:
        target._node = value._node
        st = target._st
        if st is not None:
            st.gen += 1
            target._gen = st.gen
        return
    chain, base = [], target
    while base._view is not None:
        base, prim, _, params = base._view
        chain.append((prim, params))
    chain.reverse()
    edges = (base.graph_node(), value._node)
    bits = (edges[0] is not None) | (edges[1] is not None) << 1
    base._node = None
    if bits:
        attach(view_write, edges, bits, (base, value), {"chain": tuple(chain)}, base)
    base._st.gen += 1
    base._gen = base._st.gen


def _copy_value(self: Tensor, src: Any) -> Tensor:
    if not isinstance(src, Tensor):
        src = el.cast(self * 0 + src, dtype=self.meta()[1])
    shape, kind = self.meta()
    if src.meta()[1] != kind:
        src = el.cast(src, dtype=kind)
    return src if src.meta()[0] == shape else expand(src, shape=shape)


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Write ``src`` (broadcast, converted) into this tensor."""
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_: a Tensor is needed, {type(src).__name__} given")
    recording = records(self, src)
    if recording:
        check_inplace(self, "copy_")
    try:
        value = _copy_value(self, src)
    except ValueError:
        raise ShapeError(
            f"copy_: shape {list(src.shape)} cannot be broadcast to {list(self.shape)}"
        ) from None
    write("copy_", self, value, recording)
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """Write one value everywhere."""
    if isinstance(value, Tensor):
        return copy_(self, value)
    recording = records(self)
    if recording:
        check_inplace(self, "fill_")
    if thread.mode == SLOW or recording or self.array.__class__ is not ndarray:
        constant = wrap(np.asarray(value, dtype=self.meta()[1]))
        write("fill_", self, expand(constant, shape=self.meta()[0]), recording)
        return self
    self.array.fill(value)
    touched(self)
    return self


def zero_(self: Tensor) -> Tensor:
    """Write zeros everywhere."""
    return fill_(self, 0)


def _add(self: Tensor, other: Any, alpha: float = 1) -> Tensor:
    return el.add(self, other if alpha == 1 else other * alpha)


def _sub(self: Tensor, other: Any, alpha: float = 1) -> Tensor:
    return el.sub(self, other if alpha == 1 else other * alpha)


add_ = inplace("add_", _add, np.add)
sub_ = inplace("sub_", _sub, np.subtract)
mul_ = inplace("mul_", el.mul, np.multiply)
div_ = inplace("div_", el.div, np.true_divide)
