"""Parameters that are spread over other ranks (DTensors): the reducer sees this rank's part.

``part_of(p)`` is a plain parameter over the same memory that shares the accumulator and ``.grad``
of ``p``: what is written there shows on ``p`` as a gradient that lies as ``p`` does. So the reducer
needs to know of nothing but plain arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....backends.array_kinds import ArrayKind
from ....core.tensor import Tensor, wrap
from ....nn.parameter import Parameter


class Part(Parameter):
    """This rank's part of ``whole``."""

    whole: Any

    @property
    def _grad(self) -> Tensor | None:
        g = self.whole._grad
        if g is None:
            return None
        part, array = g.__dict__.get("_part", (None, None))
        if array is not g.array:  # somebody else's gradient
            return self._show(g, wrap(g.array.local))
        if part.array is not array.local:  # its memory has moved
            g.array = array.like(part.array)
            self._show(g, part)
        return part

    @_grad.setter
    def _grad(self, value: Tensor | None) -> None:
        whole = self.whole
        if value is None:
            whole._grad = None
        elif self._grad is not value:
            whole._grad = wrap(whole.array.like(value.array))
            self._show(whole._grad, value)

    def _show(self, g: Tensor, part: Tensor) -> Tensor:
        """Note that ``part`` is what this rank has of the gradient ``g``."""
        g.__dict__["_part"] = (part, g.array)
        return part


def is_spread(t: Tensor) -> bool:
    """Whether this rank has only a part of ``t``."""
    return isinstance(t.array, ArrayKind) and hasattr(t.array, "local")


def part_of(t: Tensor) -> Any:
    """The part of ``t`` on this rank; ``t`` itself where it is plain."""
    if not is_spread(t):
        return t
    out = object.__new__(Part)
    out.array = t.array.local
    out.whole = t
    out._node = t._node
    return out


def taking_parts(param: Tensor, store: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """``store`` for gradients of the whole."""
    if not isinstance(param, Part):
        return store
    whole = param.whole

    def store_part(leaf: Parameter, g: ArrayKind) -> None:
        array = g.array if isinstance(g, Tensor) else g
        store(param, whole.array.as_gradient(array).local)

    return store_part
