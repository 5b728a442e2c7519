"""``dt.autograd.forward_ad``: forward-mode derivatives of ordinary code.

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction)
        value, moved = forward_ad.unpack_dual(f(dual))

A dual tensor is a value of a ``jvp`` level that spans the block, not one function call. Unlike
inside ``func.jvp``, tensors from outside keep their part in reverse mode: what requires grad there
requires grad at the level too, so backward may run inside the block, and gradients of duals are
duals. When the block ends, duals become the tensors that they stood for.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..context import thread
from ..core.gate import Tracer
from ..core.tensor import Tensor
from ..errors import AutogradError
from ..func.jvp import DualTracer, Forward
from ..ops.functions.creation.create import zeros_like

_new = object.__new__


class UnpackedDualTensor(NamedTuple):
    """A dual's value and its tangent (None: it has none)."""

    primal: Tensor
    tangent: Tensor | None


class Dual(DualTracer):
    """A value with a tangent. Its numbers may be read: they are those of the primal."""

    @property
    def array(self) -> Any:
        return self.inner.array

    @property
    def _version(self) -> int:
        return self.inner._version

    @property
    def grad(self) -> Any:
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        self._grad = value


class DualLevel(Forward):
    """The level of one ``dual_level`` block."""

    name = "forward_ad"
    adopts = True

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[weakref.ref] = []

    def wrap(self, inner: Tensor, tangent: Tensor | None) -> Dual:
        out = _new(Dual)
        out.inner, out.tangent, out.interp = inner, tangent, self
        self.alive.append(weakref.ref(out))
        return out

    def adopt(self, args: tuple) -> tuple:
        return tuple(
            [
                self._recorded(a) if isinstance(a, Tensor) and not isinstance(a, Tracer) else a
                for a in args
            ]
        )

    def _recorded(self, value: Tensor) -> Tensor:
        node = value.graph_node()
        if node is None:
            return value
        out = self.wrap(value, None)
        out._node = node
        return out

    def result(self, out: Tensor, tangent: Tensor | None) -> Dual:
        dual = self.wrap(out, tangent)
        dual._node = out.graph_node()
        return dual

    def overwrite(self, target: Tensor, value: Tensor) -> None:
        """Write ``value`` over ``target``, and its tangent over the target's; a tensor from outside
        becomes a dual by that."""
        if not self.owns(target):
            self._become(target)
        dual: Any = target
        given: Any = value
        inner, moved = (given.inner, given.tangent) if self.owns(value) else (value, None)
        dual.inner.copy_(inner)
        if dual.tangent is not None:
            dual.tangent.copy_(zeros_like(dual.tangent) if moved is None else moved)
        else:
            dual.tangent = moved
        dual._node = value.graph_node() if self.owns(value) else dual.inner.graph_node()

    def _become(self, target: Tensor) -> None:
        """Make ``target`` (and what it is a view of) a dual with a tangent of zeros."""
        inner = _new(type(target))
        inner.__dict__.update(target.__dict__)
        tangent = None
        if target._view is not None and target._view[1] is not None:
            source, prim, part, params = target._view
            if not self.owns(source):
                self._become(source)
            inner._view = (source.inner, prim, part, params)
            tangent = prim(source.tangent, **params)
            tangent = tangent if part is None else tangent[part]
        else:
            tangent = zeros_like(inner).detach()
        node = target.graph_node()
        target.__class__ = Dual
        target.__dict__.clear()
        target.__dict__.update(inner=inner, tangent=tangent, interp=self, _node=node)
        self.alive.append(weakref.ref(target))

    def close(self) -> None:
        """Turn the duals into the tensors that they stood for."""
        self.over = True
        for ref in self.alive:
            dual = ref()
            if dual is not None and dual.__class__ is Dual:
                inner = dual.inner
                grad = dual._grad
                dual.__class__ = type(inner)
                dual.__dict__.clear()
                dual.__dict__.update(inner.__dict__)
                if grad is not None:
                    dual._grad = grad
        self.alive.clear()


def _active() -> DualLevel | None:
    for interp in reversed(thread.stack):
        if isinstance(interp, DualLevel):
            return interp
    return None


def is_open() -> bool:
    """Whether a level is open on this thread."""
    return _active() is not None


def enter_dual_level() -> int:
    """Open a level by hand; returns its number. ``dual_level`` is the block form."""
    if _active() is not None:
        raise AutogradError(
            "enter_dual_level: Nested forward mode AD is not supported at the moment; leave the "
            "open dual_level first, or nest func.jvp"
        )
    level = DualLevel()
    level.level = len(thread.stack)
    thread.stack.append(level)
    thread.refresh()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level opened by ``enter_dual_level``."""
    found = _active()
    if found is None or level not in (None, 0):
        raise AutogradError(
            "exit_dual_level: Trying to exit a forward AD level that was not the last one that was "
            "created; enter_dual_level() opens one"
        )
    thread.stack.remove(found)
    thread.refresh()
    found.close()


@contextmanager
def _block() -> Iterator[int]:
    number = enter_dual_level()
    try:
        yield number
    finally:
        exit_dual_level()


class dual_level:  # noqa: N801
    """The block in which duals live."""

    def __enter__(self) -> int:
        self._block = _block()
        return self._block.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._block.__exit__(*exc)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """``tensor`` with ``tangent``, of the same shape and type, as its derivative."""
    active = _active()
    if active is None:
        raise AutogradError(
            "make_dual: Trying to create a dual Tensor for forward AD but no level exists, make "
            "sure to enter_dual_level() first."
        )
    for name, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.dtype.is_floating_point or t.dtype.is_complex):
            raise ValueError(
                f"make_dual: Expected {name} to be floating point or complex, but got: {t.dtype!r}"
            )
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise AutogradError(
            "make_dual: Trying to set a forward gradient that has a different size than that of "
            f"the original Tensor, this is not supported. Tensor is of size {list(tensor.shape)} "
            f"while the given forward gradient is of size {list(tangent.shape)}."
        )
    if tensor.dtype is not tangent.dtype:
        raise AutogradError(
            f"make_dual: the tangent is {tangent.dtype!r}, its tensor {tensor.dtype!r}; they must "
            "be equal: convert it with .to(tensor.dtype)"
        )
    traced: Any = tensor
    if active.owns(tensor):
        if traced.tangent is not None:
            raise AutogradError(
                "make_dual: this tensor is a dual already, with a tangent at the same level; "
                "unpack it first with unpack_dual"
            )
        inner, place = traced.inner, tensor.graph_node()
    else:
        inner, place = tensor, tensor.graph_node()
    if active.owns(tangent):
        raise AutogradError(
            "make_dual: Setting a forward grad that itself has a forward gradient at the same "
            "level 0 is not supported; unpack the tangent first with unpack_dual"
        )
    out = active.wrap(inner.view_as(inner), tangent)
    out._node = place
    return out


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of ``tensor``; it has no tangent where it depends on no dual."""
    active = _active()
    dual: Any = tensor
    if active is None or not active.owns(tensor):
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(dual.inner.view_as(dual.inner), dual.tangent)


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "is_open",
    "make_dual",
    "unpack_dual",
]
