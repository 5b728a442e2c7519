"""The two faces of a parameter: the shard that a rank keeps, and the full weight to compute with.

Outside of forward a module holds ``ShardedParameter``s, inside it ``FullParameter``s. This is the
one place that knows what a shard is to programs. Knows no unit and no communication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...core.sink import accumulate
from ...nn.parameter import Parameter
from .layout import ShardLayout

_new = object.__new__


class ShardedParameter(Parameter):
    """This rank's shard of a parameter, a leaf. ``shard_layout``: which part of the whole it is."""

    shard_layout: ShardLayout
    gather: Callable[[ShardedParameter], Any]

    def to_local(self) -> Tensor:
        """This rank's part, as a plain tensor over the same memory."""
        return wrap(self.array)

    def full_tensor(self) -> Tensor:
        """The whole parameter, gathered from all ranks of its group (a collective)."""
        return self.gather(self)


class FullParameter(Parameter):
    """A whole weight, there while its unit is. What still needs it afterwards asks for its memory,
    and the unit gathers it again."""

    owner: Any

    def __getattr__(self, name: str) -> Any:
        if name != "array":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.owner.gather_late()
        return self.__dict__["array"]


def make_sharded(
    original: Any, array: Any, layout: ShardLayout, gather: Callable
) -> ShardedParameter:
    """The shard of ``original`` over ``array``; it trains where that does, and keeps its notes."""
    out = _new(ShardedParameter)
    out.array = array
    out.__dict__.update({k: v for k, v in original.__dict__.items() if not _is_own(k)})
    out.shard_layout, out.gather = layout, gather
    if original.requires_grad:
        out.requires_grad_()
    return out


def make_full(owner: Any, template: Any) -> FullParameter:
    """The full weight of a unit, ``owner``: a leaf of the given shape and type, without memory."""
    out = _new(FullParameter)
    out.owner = owner
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


def _is_own(name: str) -> bool:
    return name.startswith("_") or name in ("array", "shard_layout", "gather")
