"""Tensors on devices: where they lie, their blocks, and tensors of blocks.

Over ranks a tensor that lies on several devices is a DTensor. The simulated devices of one process
share its memory: a tensor is whole, and knows how it would lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.bodies import Body
from ...core.gate import Tracer
from ...core.tensor import Tensor, wrap
from ..tensor import DTensor, NamedSharding, PartitionSpec, Replicate, spec_of
from . import inventory as known
from .inventory import Device
from .layouts import Layout, OneDevice, OverMesh
from .mesh import MESH
from .propagation import constrained, propagated, says

_LAYOUT = "_layout"  # of a tensor, where somebody said it


@dataclass(frozen=True)
class Shard:
    """A block of a tensor: whose it is, where it lies in the whole, and which of equal blocks."""

    device: Device
    index: tuple
    replica_id: int
    data: Any  # None where another process has it

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={np.asarray(self.data)})"
        )


def summed(value: Tensor) -> Any:
    """``value`` without partial sums, where it lies on several ranks."""
    if not isinstance(value, DTensor) or not any(p.is_partial() for p in value.placements):
        return value
    whole = [Replicate() if p.is_partial() else p for p in value.placements]
    return value.redistribute(value.device_mesh, whole)


def is_here(value: Any) -> bool:
    """Whether this process has all of ``value``, whose partial sums are not counted."""
    if not isinstance(value, DTensor) or value.device_mesh.size() == 1:
        return True
    return not any(p.is_shard() for p in value.placements)


def local(value: Any, otherwise: str) -> Any:
    """The whole of ``value`` as a tensor of this process; ``RuntimeError`` where it has a part."""
    value = summed(value)
    if not is_here(value):
        raise RuntimeError(otherwise)
    return value.to_local() if isinstance(value, DTensor) else value


def over_ranks(values: Sequence[Any]) -> bool:
    """Whether any of these lies on several ranks."""
    return any(isinstance(v, DTensor) for v in values)


def layout_of(value: Tensor) -> Layout | tuple | None:
    """How it lies: as was said, or (over ranks) a mesh and per dimension the axes that cut it;
    None: on one device."""
    said = value.__dict__.get(_LAYOUT)
    if said is not None or not isinstance(value, DTensor):
        return said
    whole = summed(value)
    return whole.device_mesh.memory[MESH], tuple(spec_of(whole))


def is_placed(value: Tensor) -> bool:
    """Whether somebody said how it lies."""
    return _LAYOUT in value.__dict__ or isinstance(value, DTensor)


def lay(value: Tensor, layout: Any) -> Any:
    """``value`` as ``layout`` says; of values inside transforms it is noted."""
    layout.check(tuple(value.shape))
    if isinstance(value, Tracer):
        return constrained(value, layout=layout)
    if known.spread():
        return _over_ranks(value, layout)
    return value if value.requires_grad else _said(wrap(value.array), layout)


def with_layouts(body: Body, given: Sequence[Tensor], outs: Sequence[Tensor]) -> list[Any]:
    """The results of a staged program, each of which lies as it follows from its arguments."""
    layouts = [x.__dict__.get(_LAYOUT) for x in given]
    if not any(isinstance(x, OverMesh) for x in layouts) and not says(body):
        return list(outs)
    found = propagated(body, layouts)
    pairs = zip(outs, found, strict=True)
    if known.spread():  # what was said inside
        return [o if not isinstance(x, OverMesh) else lay(o, x) for o, x in pairs]
    return [o if x is None or isinstance(o, Tracer) else _said(wrap(o.array), x) for o, x in pairs]


def _said(value: Any, layout: Any) -> Any:
    value.__dict__[_LAYOUT] = layout
    return value


def _native(layout: OverMesh) -> NamedSharding:
    return NamedSharding(layout.mesh.ranks(), PartitionSpec(*layout.spec))


def _over_ranks(value: Any, layout: Any) -> Any:
    if isinstance(layout, OneDevice):
        return value.full_tensor() if isinstance(value, DTensor) else value
    value, native = summed(value), _native(layout)
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, native.mesh, [Replicate()] * native.mesh.ndim)
    return _said(value.redistribute(native.mesh, native.placements), layout)


def shards(value: Tensor, layout: Any, everywhere: bool = False) -> list[Shard]:
    """The blocks of a tensor that lies so: this process', or (``everywhere``) those of all."""
    found: list[Shard] = []
    seen: dict[str, int] = {}
    here = layout.addressable_devices
    for device, index in layout.blocks(tuple(value.shape)).items():
        key = str(index)
        seen[key] = seen.get(key, -1) + 1
        if everywhere or device in here:
            data = _block(value, index) if device in here else None
            found.append(Shard(device, index, seen[key], data))
    return found


def _block(value: Tensor, index: tuple) -> Tensor:
    value = summed(value)
    part = value.to_local() if isinstance(value, DTensor) else value[index]
    out: Tensor = part.detach()
    return out


def assembled(shape: Sequence[int], layout: Any, parts: dict[Device, np.ndarray]) -> Any:
    """A tensor of its blocks: those of this process' devices."""
    if known.spread():
        (data,) = parts.values()
        return of_local(data, layout)
    whole = np.empty(tuple(shape), next(iter(parts.values())).dtype)
    for device, index in layout.blocks(tuple(shape)).items():
        whole[index] = parts[device]
    return lay(wrap(whole), layout)


def of_local(data: np.ndarray, layout: Any) -> Any:
    """A tensor of what each process has of it."""
    if not known.spread():
        return lay(wrap(data), layout)
    native = _native(layout)
    return _said(DTensor.from_local(wrap(data), native.mesh, native.placements), layout)
