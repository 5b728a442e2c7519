"""In-place operations: compute out of place, write once, move the graph.

Every write goes through one mutating primitive, ``assign``. When gradients are recorded the
written tensor takes over the graph position of the computed value; a write through a view gives
the view's base a ``view_write`` node, and the other views of that base find their new place from
it when they are next asked (``Storage.gen``).

The rules of the operation may need the value that is overwritten. The nodes it made are known (they
are the newest), so those that keep the old memory get a copy of it before the write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...context import SLOW, thread
from ...core.annotations import Scalar
from ...core.gate import Tracer, attach, gate
from ...core.grad_mode import enable_grad, no_grad
from ...core.node import Node, Output, next_seq
from ...core.tensor import Tensor, layout, wrap
from ...core.writes import check_captured, check_inplace, hides_graph, touched
from ...errors import CaptureError, DTypeError, ShapeError
from ..primitives import elementwise as el
from ..primitives.batching import made_beside
from ..primitives.moving import moved
from ..primitives.views import expand, getitem
from ..primitives.write import OVERLAP, assign, check_apart, overlaps_itself, unlock, view_write
from ..promotion import fitted
from . import elementwise
from .old_values import keep_old, old_value


def records(target: Tensor, *args: object) -> bool:
    """Whether a write to ``target`` of what ``args`` give would be recorded now, or would have to
    be: the target shows what is in a graph, though no_grad made it."""
    if not thread.grad_enabled:
        return False
    given = [a for a in (target, *args) if isinstance(a, Tensor)]
    return hides_graph(target) or any(a.graph_node() is not None for a in given)


def inplace(name: str, prim: Callable, ufunc: object = None) -> Callable:
    """The in-place form of an operation: ``f(self, *args, **params)`` returns ``self``."""

    def run(self: Tensor, *args: object, **params: object) -> Tensor:
        if ufunc is not None and thread.mode != SLOW and len(args) < 2:
            alone: Any = params.get("alpha") if len(params) == 1 else None
            if (not params or alone.__class__ is float) and _quick(self, args, ufunc, alone):
                return self
        return overwrite(name, self, prim, *args, **params)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"In-place form of ``{name.rstrip('_')}``."
    return run


def overwrite(
    name: str, self: Tensor, compute: Callable, *args: object, **params: object
) -> Tensor:
    """Write ``compute(self, *args, **params)`` over ``self``, and give ``self``."""
    recording = records(self, *args, *params.values())
    for a in args:
        check_overlap(name, self, a)
        check_apart(name, self, a)
    node = self.graph_node()
    try:
        if recording:
            begin(name, self)
        since = next_seq()
        old = old_value(self) if recording and thread.saving else self  # hooks pack it at once
        write(name, self, compute(old, *args, **params), recording, since)
    except Exception:
        self._node = node  # with its hooks: it was not overwritten after all
        raise
    return self


def begin(name: str, self: Tensor) -> None:
    """Before a recorded write: refuse what cannot be right, and let nodes whose rules need the old
    value as their result keep it, where PyTorch's do not need it."""
    t: Tensor | None = self
    while t is not None:
        node = t._node
        kept = isinstance(node, Node) and isinstance(node.out, Tensor)
        if kept and node.prim.own_result:
            with no_grad():
                node.out = el.copy(node.out)
            node.out.storage_cell()  # its own: the writes to come are not to it
        t = None if t._view is None else t._view[0]
    self.forget_hidden_base()  # (after the walk over it: its node's result is in this memory, too)
    check_inplace(self, name)


def _quick(self: Tensor, args: tuple, ufunc: Any, alpha: float | None = None) -> bool:
    """Do it by numpy's ``out=`` when nothing is recorded and one element type is involved, with
    ``alpha`` times a tensor where it is given."""
    x = self.array
    if x.__class__ is not ndarray or x.dtype.kind != "f":
        return alpha is None and x.__class__ is DeviceArray and _quick_there(self, args, ufunc)
    if alpha is not None and not (
        ufunc in _SCALING and x.dtype.itemsize > 2 and -1e38 < alpha < 1e38 and args
        and isinstance(args[0], Tensor)
    ):  # fmt: skip
        return False
    y: Any = None
    if args:
        y = args[0]
        if isinstance(y, Tensor):
            if (not thread.mode and y.graph_node() is not None) or y.array.dtype is not x.dtype:
                return False
            if y._st is not None and y._st is self._st:
                return False
            y = y.array
            if y.__class__ is not ndarray or y.ndim > x.ndim:
                return False
            if alpha is not None:
                y = y * alpha
        elif (y.__class__ is not float and y.__class__ is not int) or x.dtype.itemsize == 2:
            return False
    if not thread.mode and (self.graph_node() is not None or hides_graph(self)):
        return False
    if ufunc is np.negative and not x.flags.forc:
        return False  # numpy 2.4 goes wrong over every fourth element, given ``out``
    try:
        if args:
            ufunc(x, y, out=x)
        else:
            ufunc(x, out=x)
    except ValueError:
        return False
    touched(self)
    return True


_SCALING = (np.add, np.subtract)  # which take ``alpha``
# Exact ones: the array module's give the digits of our own kernels.
_EXACT = (np.add, np.subtract, np.multiply, np.true_divide, np.negative)


def _quick_there(self: Tensor, args: tuple, ufunc: Any) -> bool:
    """``_quick`` on an accelerator: one pass over its memory."""
    x = self.array
    if ufunc not in _EXACT or x.dtype.kind != "f" or overlaps_itself(x) or records(self, *args):
        return False
    given = []
    for y in args:
        if isinstance(y, Tensor):
            near = isinstance(y.array, DeviceArray) and y.array.place == x.place
            if not near or y.array.dtype != x.dtype or y._st is self._st is not None:
                return False
            lead = len(x.shape) - len(y.array.shape)
            pairs = zip(y.array.shape, x.shape[max(lead, 0) :], strict=False)
            if lead < 0 or any(n not in (m, 1) for n, m in pairs):
                return False
            given.append(y.array.data)
        elif y.__class__ is float or y.__class__ is int:
            given.append(y)
        else:
            return False
    with x.here():
        ufunc(x.data, *given, out=x.data)
    touched(self)
    return True


def write(
    name: str, target: Tensor, value: Tensor, recording: bool, since: int | None = None,
    whole: bool = False,
) -> None:  # fmt: skip
    """Write ``value`` into ``target``'s memory; move the graph when ``recording``.

    ``since``: nodes made after this number belong to the operation. ``whole``: ``value`` does not
    come from ``target``, whose old value then gets a gradient of zeros, as in PyTorch.
    """
    check_captured(target, name)
    value = fit_to(name, target, value)
    if recording and since is not None:
        keep_old(target, value.graph_node(), since)
    if isinstance(target, Tracer) or isinstance(value, Tracer):
        _write_traced(name, target, value, recording, whole)
        return
    gate(assign, (target, value.detach() if recording else value), {})
    if recording:
        move_graph(target, value, whole)


def fit_to(name: str, target: Tensor, value: Tensor) -> Tensor:
    """``value`` in the type of ``target``; raises where it cannot be written there."""
    shape, kind = target.meta()
    have, have_kind = value.meta()
    if have != shape:
        lead = len(shape) - len(have)
        if lead < 0 or any(h not in (n, 1) for h, n in zip(have, shape[lead:], strict=True)):
            raise ShapeError(
                f"{name}: output with shape {list(shape)} doesn't match the broadcast shape "
                f"{list(have)}; an in-place operation cannot change the shape: use the "
                "out-of-place form"
            )
        value = expand(value, shape=shape)
    check_writeable(name, target)
    if have_kind != kind:
        if rank(have_kind) > rank(kind):
            raise DTypeError(
                f"{name}: result type {value.dtype.title} can't be cast to the desired output "
                f"type {target.dtype.title}; use the out-of-place form, or convert the tensor first"
            )
        value = el.cast(value, dtype=kind)
    return value


def check_writeable(name: str, target: Tensor) -> None:
    """Refuse to write to an expanded tensor, of which several elements are one."""
    array: Any = None if isinstance(target, Tracer) else layout(target)
    if isinstance(array, (ndarray, ArrayKind)) and overlaps_itself(array):
        raise ShapeError(f"{name}: {OVERLAP.format(list(array.shape))}")


def rank(kind: np.dtype) -> int:
    """Truth values, whole, real, complex numbers: what may be cast to what is not below it."""
    return {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}[kind.kind]


# --- memory that is both read and written ------------------------------------------------------
def check_overlap(name: str, target: Tensor, source: object) -> None:
    """Refuse, as PyTorch does, to read what is being written when the two lie shifted."""
    if not isinstance(source, Tensor) or source._st is None or source._st is not target._st:
        return
    if isinstance(target, Tracer):
        return
    a, b = layout(target), layout(source)
    if a is b or a.__class__ is not ndarray or not a.size or not b.size:
        return
    if not (_is_dense(a) and _is_dense(b)) or not np.may_share_memory(a, b):
        return
    same = a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    if not same or a.nbytes != b.nbytes or a.strides != b.strides:
        raise ShapeError(
            f"{name}: unsupported operation: some elements of the input tensor (shape "
            f"{list(b.shape)}) and the written-to tensor (shape {list(a.shape)}) refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _is_dense(a: ndarray) -> bool:
    """Whether the elements of ``a`` fill a stretch of memory without holes, in any order."""
    expected = a.itemsize
    for step, n in sorted((s, n) for s, n in zip(a.strides, a.shape, strict=True) if n != 1):
        if step != expected:
            return False
        expected *= n
    return True


# --- the graph ---------------------------------------------------------------------------------
def _write_traced(name: str, target: Tensor, value: Tensor, recording: bool, whole: bool) -> None:
    """Inside a transform nothing is overwritten: the base becomes a new value, which its views
    find when they are next used."""
    value = _lowered(target, value)
    traced = target if isinstance(target, Tracer) else value
    if not isinstance(traced, Tracer):
        write(name, target, value, recording, whole=whole)
        return
    level = traced.interp
    if level.adopts:
        level.overwrite(target, value)
        return
    if level.joins and not isinstance(target, Tracer):
        if thread.inside.open:  # (it may write to captured tensors)
            write(name, target, traced.inner, False)
            return
        if target.__class__ is Tensor:
            _become(level, target)
    if not isinstance(target, Tracer):
        raise CaptureError(
            f"{name}: a value of {level} cannot be written to a tensor from outside it (shape "
            f"{list(target.shape)}) by an inplace operation: there exists a Tensor `other` in "
            "extra_args that has more elements than `self`; use the out-of-place form, or make the "
            "tensor from a value inside, for example with x.new_zeros or zeros_like"
        )
    own = isinstance(value, Tracer) and value.interp is target.interp
    if not own and isinstance(value, Tracer) and value.interp.level > target.interp.level:
        raise CaptureError(
            f"{name}: there exists a Tensor `other` in extra_args that has more elements than "
            f"`self`: a value of {value.interp} is written inplace to a tensor from outside it"
        )
    value = value if own else target.interp.lift(value)
    base, chain = _chain(target)
    if base.has_aliases():
        raise CaptureError(
            f"{name}: inside a transform, a tensor and what detach() made of it cannot be written "
            f"to (shape {list(target.shape)}): the other would not see it; .clone() one of them"
        )
    node = base.graph_node()
    if chain or whole:
        value = view_write(base, value, chain=chain)
    if not thread.grad_enabled:
        with enable_grad():
            value = _placed(value, base)
    base.become(value, value.graph_node() if recording else node)
    st = base.storage_cell()
    st.version += 1
    st.gen += 1
    base._gen = st.gen


def _placed(new: Tensor, old: Tensor) -> Tensor:
    """``new``, written over ``old`` without gradients: it keeps the places that ``old`` has in the
    graphs of this level and of those below."""
    out = new.alias() if isinstance(new, Tracer) else new._data()
    if isinstance(old, Tracer):
        before, out = old.interp.aligned(old, out)
        out.inner = _placed(out.inner, before)
    out._node = old.graph_node()
    return out


def _lowered(target: Tensor, value: Tensor) -> Tensor:
    """``value`` at the level of ``target``, as far as it is the same for all of a batch."""
    depth = target.interp.level if isinstance(target, Tracer) else -1
    while isinstance(value, Tracer) and value.interp.level > depth:
        if value.interp.moves(value) or value.graph_node() is not None:
            break
        value = value.inner
    return value


def _become(level: Any, target: Tensor) -> None:
    """Let ``target``, which the function inside ``level`` has made, be a value of that level."""
    if target._view is not None and not isinstance(target._view[0], Tracer):
        _become(level, target._view[0])
    before = target.alias()
    level.joined.append((target.storage_cell(), before, target))
    level.lift(before).replace(target)


def _chain(target: Tensor) -> tuple[Any, tuple]:
    """What ``target`` is a view of, and by which steps."""
    chain, base = [], target
    while base._view is not None:
        base, prim, part, params = base._view
        chain.append((prim, params) if part is None else prim.part(params, part))
    return base, tuple(reversed(chain))


def move_graph(target: Tensor, value: Tensor, whole: bool = False) -> None:
    """``target``, just written to, takes the place of ``value`` in the graph; where it is a view,
    so does its base. ``whole``: ``value`` does not depend on what ``target`` was."""
    if target._view is None:
        old = target.graph_node()
        if whole or value.graph_node() is None:
            _attach_write(target, old, value, ())
        else:
            target._node = value.graph_node()
        if target._retains:
            target.retain_again(old)
        st = target._st
        if st is not None:
            st.gen += 1
            target._gen = st.gen
        return
    base, chain = _chain(target)
    before = base.graph_node()
    _attach_write(base, before, value, chain)
    base._st.gen += 1
    base._gen = base._st.gen
    if base._retains:
        base.retain_again(before)
    if target._retains:
        target.graph_node()


def _attach_write(base: Tensor, old: Node | Output | None, value: Tensor, chain: tuple) -> None:
    """``base`` becomes what it was, with ``value`` written to the place that ``chain`` names."""
    edges = (old, value.graph_node())
    bits = (old is not None) | (edges[1] is not None) << 1
    base._node = None
    if bits:
        attach(view_write, edges, bits, (base, value), {"chain": chain}, base)


# --- copies and constants ----------------------------------------------------------------------
def _copy_value(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    shape, kind = self.meta()
    here, given = self.__dict__.get("array"), src.__dict__.get("array")
    apart = given.__class__ is not ndarray or here.__class__ is not ndarray
    if apart and src.device != self.device:
        src = moved(src, self.device, non_blocking)
    if src.meta()[1] != kind:
        src = el.cast(src, dtype=kind)
    return src if src.meta()[0] == shape else expand(src, shape=shape)


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Write ``src`` (broadcast, converted) into this tensor."""
    if not isinstance(src, Tensor):
        if not isinstance(src, (int, float, complex, np.generic)):
            raise TypeError(f"copy_: a Tensor is needed, {type(src).__name__} given")
        src = wrap(np.asarray(src))
    recording = records(self, src)
    if src.meta()[0] == self.meta()[0]:
        check_overlap("copy_", self, src)
    try:
        value = _copy_value(self, src, non_blocking)
    except ValueError:
        raise ShapeError(
            f"copy_: shape {list(src.shape)} cannot be broadcast to {list(self.shape)}"
        ) from None
    if recording:
        begin("copy_", self)
    write("copy_", self, value, recording, whole=True)
    return self


def fill_(self: Tensor, value: Scalar) -> Tensor:
    """Write one value everywhere."""
    if isinstance(value, Tensor):
        if value.ndim:
            raise ShapeError(
                f"fill_: a value of shape {list(value.shape)} given; a number or a 0-d tensor is "
                "needed; use copy_ for more"
            )
        return copy_(self, value)
    value = fitted("fill_", value, self.dtype)
    recording = records(self)
    if recording:
        begin("fill_", self)
    if thread.mode == SLOW or recording or self.array.__class__ is not ndarray:
        if not (thread.mode == SLOW or recording) and self.array.__class__ is DeviceArray:
            _once(self).array.fill(value)
            touched(self)
            return self
        kind = self.meta()[1]
        constant = made_beside(self, lambda xp: xp.full((), value, dtype=kind))
        target = self if recording else _once(self)
        everywhere = expand(constant, shape=target.meta()[0])
        write("fill_", target, everywhere, recording, whole=True)
        return self
    array = self.array
    if not array.flags.writeable:
        array = array.view()  # the expanded tensor itself stays locked
        unlock(array)
    array.fill(value)
    touched(self)
    return self


def _once(t: Tensor) -> Tensor:
    """``t``; if it was expanded, the view of it that has each of its elements once."""
    array = None if isinstance(t, Tracer) else layout(t)
    if not isinstance(array, (ndarray, DeviceArray)) or not overlaps_itself(array):
        return t
    return getitem(t, index=tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides))


def zero_(self: Tensor) -> Tensor:
    """Write zeros everywhere."""
    return fill_(self, 0)


add_ = inplace("add_", elementwise.add, np.add)
sub_ = inplace("sub_", elementwise.sub, np.subtract)
mul_ = inplace("mul_", elementwise.fast_mul, np.multiply)
div_ = inplace("div_", elementwise.div, np.true_divide)
