"""Tracer: a value inside a transform (vmap, jvp), which stands for a Tensor one level below.

What an operation on it means is its level's affair (see ``func``); here is what every such value
has: a shape and a type without data, views and writes, and errors where data would be needed.
"""

from __future__ import annotations

import weakref
from typing import Any, SupportsIndex

from ..errors import CaptureError, EscapedValue
from .tensor import Size, Tensor, context_recording


class Tracer(Tensor):
    """A value inside a level interpreter: ``inner`` lives one level below ``interp``."""

    interp: Any
    inner: Any
    _origin: Any = None  # of a detached value: a weak reference to what it was detached from
    _aliases: Any = ()  # weak references to what was detached from this

    @property
    def array(self) -> Any:
        if self.interp.over:
            raise EscapedValue(
                f"a value from inside {self.interp} is used after the transform returned; return "
                "it from the transformed function instead of keeping it elsewhere"
            )
        raise CaptureError(
            f"a value inside {self.interp} was used as numbers (numpy, int(), .item() on a Tensor, "
            "data-dependent control flow such as if and while, a result whose shape depends on "
            "values), which the transform cannot follow; use tensor operations such as dt.where, "
            "or move that part out of the transformed function"
        )

    @property
    def shape(self) -> Any:
        return Size(self.meta()[0])

    @property
    def ndim(self) -> int:
        return len(self.meta()[0])

    @property
    def dtype(self) -> Any:
        return self.plain().dtype

    @property
    def device(self) -> Any:
        return self.inner.device

    @property
    def is_meta(self) -> bool:
        return self.inner.is_meta

    @property
    def itemsize(self) -> int:
        return self.meta()[1].itemsize

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.itemsize

    def plain(self) -> Tensor:
        """The Tensor below all levels."""
        value = self.inner
        while isinstance(value, Tracer):
            value = value.inner
        return value

    def steps(self) -> tuple:
        """Bytes between neighbours in each dimension, as the function sees the value."""
        inner = self.inner
        return inner.steps() if isinstance(inner, Tracer) else inner.array.strides

    def detach(self) -> Tensor:
        self.graph_node()
        out = self.interp.detached(self)
        base: Any = self
        while base._view is not None:
            base = base._view[0]
        out._origin = weakref.ref(base)
        base._aliases = [*(a for a in base._aliases if a() is not None), weakref.ref(out)]
        return out

    def has_aliases(self) -> bool:
        """Whether another value is this one by ``detach``: a write could not reach both."""
        origin = self._origin
        return any(a() is not None for a in self._aliases) or (
            origin is not None and origin() is not None
        )

    def alias(self) -> Tensor:
        self.graph_node()
        return self.interp.lift_like(self)

    def become(self, value: Tracer, node: object) -> None:
        """Be ``value``, at the place ``node`` of the graph, as an in-place write does it."""
        for name, part in value.__dict__.items():
            if not name.startswith("_"):
                self.__dict__[name] = part
        self._node = node

    def replace(self, plain: Tensor) -> None:
        """Let ``plain``, a Tensor made where this level's function runs, become this value."""
        plain.__class__ = type(self)
        del plain.__dict__["array"]
        plain.become(self, plain._node)  # type: ignore[attr-defined]
        plain.storage_cell().joined = True

    def _refresh_node(self, anew: bool = False) -> None:
        """What this is a view of was written to: view it again."""
        if self._view is not None:
            source, prim, part, params = self._view
            if part is not None:
                prim, params = prim.part(params, part)
            source.graph_node()
            with context_recording():
                new = prim(source, **params)
            self.become(new, new._node)
        self._gen = self._st.gen  # type: ignore[union-attr]

    def _data(self) -> Tensor:
        return self.detach()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise CaptureError("a traced value cannot be pickled")


def join(t: Tensor) -> None:
    """Let ``t``, an alias of a tensor that has become a value of a transform, become one, too."""
    source, prim, *_ = t._view or (None, None)
    if source is not None and not isinstance(source, Tracer):
        join(source)
    if prim is None or t.__class__ is not Tensor:
        raise CaptureError(
            f"a tensor of shape {list(t.shape)} made inside a transform was written to with one of "
            "its values, which this alias of it (by detach(), .data or no_grad()) cannot follow; "
            "make the alias after the write"
        )
    source.interp.lift(t.alias()).replace(t)  # type: ignore[union-attr]
    t._gen = -1
