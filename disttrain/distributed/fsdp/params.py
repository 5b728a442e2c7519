"""The two faces of a parameter: the shard that a rank keeps, and the full weight to compute with.

Outside of forward a module holds ``ShardedParameter``s, inside it ``FullParameter``s. This is the
one place that knows what a shard is to programs. Knows no unit and no communication.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...core.attributes import give_attributes, own_attributes
from ...core.sink import accumulate
from ...nn.parameter import Parameter
from .layout import ShardLayout

_new = object.__new__


class ShardedParameter(Parameter):
    """This rank's shard of a parameter, a leaf. While other ranks may still read it as a part of
    the full weights its memory is away, and who asks for it waits until they are through."""

    _unit: Any
    _layout: ShardLayout

    def __getattr__(self, name: str) -> Any:
        if name != "array":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._unit.turns.regain()
        return self.__dict__["array"]

    @property
    def shard_layout(self) -> ShardLayout:
        """Which part of the whole it is."""
        return self._layout

    def to_local(self) -> Tensor:
        """This rank's part, as a plain tensor over the same memory."""
        return wrap(self.array)

    def full_tensor(self) -> Tensor:
        """The whole parameter, gathered from all ranks of its group (a collective)."""
        return self._unit.gather_one(self)


class FullParameter(Parameter):
    """A whole weight, there while its unit is. What still needs it afterwards asks for its memory,
    and the unit gathers it again."""

    _unit: Any

    def __getattr__(self, name: str) -> Any:
        if name != "array":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._unit.gather_late()
        return self.__dict__["array"]


def make_sharded(unit: Any, original: Any, array: Any, layout: ShardLayout) -> ShardedParameter:
    """The shard of ``original`` over ``array``; it trains where that does, and keeps the attributes
    that a program gave it."""
    out = _new(ShardedParameter)
    out.array = array
    give_attributes(out, own_attributes(original))
    out._unit, out._layout = unit, layout
    if original.requires_grad:
        out.requires_grad_()
    return out


def make_full(unit: Any, template: Any) -> FullParameter:
    """A full weight of ``unit``: a leaf of the given shape and type, without memory."""
    out = _new(FullParameter)
    out._unit = unit
    out.array = template
    return out


def is_sharded(param: Any) -> bool:
    """Whether ``param`` is a shard already."""
    return isinstance(param, ShardedParameter)


def receive_gradient(param: ShardedParameter, array: np.ndarray) -> None:
    """Add the gradient of a shard to its ``.grad``; hooks of the parameter run."""
    node = param._node
    if node is None:
        return
    if param._grad is None and not (node.tensor_hooks or node.store or node.accumulate_hooks):
        param._grad = wrap(array)
    else:
        _with_hooks(param, node, array)


def _with_hooks(param: ShardedParameter, node: Any, array: np.ndarray) -> None:
    g = wrap(array)
    for hook in list((node.tensor_hooks or {}).get(0, {}).values()):
        changed = hook(g)
        g = g if changed is None else changed
    if param._grad is None and not node.store:
        param._grad = g
        for hook in list((node.accumulate_hooks or {}).values()):
            hook(param)
    else:
        accumulate(node, g.array)
