"""The two faces of a parameter: the shard that a rank keeps, and the full weight to compute with.

Outside of forward a module holds ``ShardedParameter``s, inside it ``FullParameter``s. This is the
one place that knows what a shard is to programs. Knows no unit and no communication.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core import wrap
from ....core.attributes import give_attributes, own_attributes
from ....core.backward.sink import accumulate
from ....core.tensor import Tensor
from ....errors import ConfigError
from ....nn.parameter import Parameter
from ...tensor import DTensor
from ...tensor.array import DistArray
from .layout import ShardLayout
from .members import Member

_new = object.__new__


class ShardedParameter(Parameter, DTensor):
    """This rank's shard of a parameter, a leaf. While other ranks may still read it as a part of
    the full weights its memory is away, and who asks for it waits until they are through."""

    interp = None  # asked of every tensor; not to look for it in vain
    _unit: Any
    _layout: ShardLayout

    @property
    def shard_layout(self) -> ShardLayout:
        """Which part of the whole it is."""
        return self._layout


class FullParameter(Parameter):
    """A whole weight, there while its unit is. What still needs it afterwards asks for its memory,
    and the unit gathers it again."""

    interp = None
    _unit: Any
    _member: Any = None

    @property
    def stands_for(self) -> Any:
        """The shard in whose place it is where its module is shown whole; None inside of a call,
        where it is a weight like others."""
        root = self._unit.root
        inside = root is not None and root.depth
        return None if self._member is None or inside else self._member.sharded

    @property
    def is_there(self) -> bool:
        """Whether it has memory."""
        return "array" in self.__dict__

    def __getattr__(self, name: str) -> Any:
        if name != "array":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._unit.gather_late()
        return self.__dict__["array"]

    def set_array(self, array: object) -> None:
        """It would be lost when the shards come back."""
        raise ConfigError(
            "the memory of a full weight was to be replaced (parameter.data = ...), which is there "
            "for forward and backward alone and would be dropped; call module.reshard() first, and "
            "write to the shards that are its parameters then"
        )


class FullDTensorParameter(FullParameter, DTensor):
    """A full weight that lies on an axis of the mesh beside its unit's."""


def make_sharded(unit: object, original: Parameter, array: DistArray, layout: ShardLayout) -> Any:
    """The shard of ``original`` that ``array`` describes; it trains where that does, and keeps the
    attributes that a program gave it."""
    out = _new(ShardedParameter)
    out.array = array
    give_attributes(out, own_attributes(original))
    out._unit, out._layout = unit, layout
    if original.requires_grad:
        out.requires_grad_()
    return out


def adopt(unit: Any, found: Any, m: Member) -> None:
    """Let ``found``, which a program has put in the place of ``m.sharded``, be the shard."""
    want = m.sharded.__dict__.get("array")
    alike = isinstance(found, DTensor) and want is not None and found.array.where() == want.where()
    if not alike or tuple(found.shape) != want.shape:
        given = "nothing" if found is None else f"{type(found).__name__} {list(found.shape)}"
        raise ConfigError(
            f"fully_shard: the program has registered {given} as {m.name!r}; needed is a parameter "
            f"of shape {list(m.layout.shape)} that lies as the one that was there: "
            "nn.Parameter(distribute_tensor(...)), or write to the one that is there"
        )
    found.__class__ = ShardedParameter
    found._unit, found._layout = unit, m.layout
    m.sharded = found
    for module, name in m.places:
        module._parameters[name] = found


def make_full(unit: object, template: object) -> Any:
    """A full weight of ``unit``: a leaf of the given shape and type, without memory."""
    out = _new(FullDTensorParameter if isinstance(template, DistArray) else FullParameter)
    out._unit = unit
    out.array = template
    return out


def is_sharded(param: Tensor) -> bool:
    """Whether ``param`` is a shard already."""
    return isinstance(param, ShardedParameter)


def local_array(param: ShardedParameter) -> Any:
    """The array of this rank's part."""
    return param.array.local


def put_local(param: ShardedParameter, local: Any) -> None:
    """Let this rank's part lie in ``local``."""
    param.array = param.array.like(local)


def receive_gradient(param: ShardedParameter, local: np.ndarray) -> None:
    """Add the gradient of a shard to its ``.grad``; hooks of the parameter run."""
    node = param._node
    if node is None:
        return
    if node.tensor_hooks or node.store or node.accumulate_hooks:
        _with_hooks(param, node, local)
    elif param._grad is None:
        add_gradient(param, local)
    else:
        accumulate(node, param.array.like(local))


def add_gradient(param: ShardedParameter, local: np.ndarray) -> None:
    """Add ``local``, which becomes the parameter's, to its ``.grad``; no hook runs."""
    if param._grad is None:
        out = param._grad = _new(DTensor)
        out.array = param.array.like(local)
    else:
        param._grad.array.add_in_place(param.array.like(local))


def _with_hooks(param: ShardedParameter, node: Any, local: np.ndarray) -> None:
    g = wrap(param.array.like(local))
    for hook in list((node.tensor_hooks or {}).get(0, {}).values()):
        changed = hook(g)
        g = g if changed is None else changed
    if param._grad is None and not node.store:
        param._grad = wrap(g.array.copy("C")) if node.tensor_hooks else g  # hooks may keep theirs
        for hook in list((node.accumulate_hooks or {}).values()):
            hook(param)
    else:
        accumulate(node, g.array)
