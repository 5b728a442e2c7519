"""``jax.sharding``: JAX's names and words for meshes and layouts of ``distributed.spmd``."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

from ...distributed import spmd
from ...distributed.spmd import Device, arrays, layouts
from ...distributed.spmd import mesh as meshes
from ...distributed.spmd.arrays import Shard
from ...distributed.spmd.placement import Kinds, Placement
from .array import Array, wrap
from .flat import BORDER


class AxisType(enum.Enum):
    """Who decides how what is computed lies along an axis."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class PartitionSpec(spmd.Spec):
    """Per dimension: the name of a mesh axis, a tuple of names, or None."""

    UNCONSTRAINED = FREE = type("_Free", (), {"__repr__": lambda _: "UNCONSTRAINED"})()

    def __repr__(self) -> str:
        return f"P{self.dims!r}"


class Mesh(spmd.Mesh):
    """Devices in a grid with named axes."""

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        super().__init__(devices, axis_names)
        kinds = (axis_types,) if isinstance(axis_types, AxisType) else axis_types
        self.axis_types = tuple(kinds or (AxisType.Auto,) * len(self.axis_names))

    shape_tuple = property(lambda self: tuple(self.shape.items()))
    local_mesh = abstract_mesh = property(lambda self: self)

    def key(self) -> tuple:
        """What makes it equal to another one."""
        return *super().key(), self.axis_types

    def __str__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items())
        return f"Mesh({axes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        return (
            f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, "
            f"axis_types={self.axis_types})"
        )


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *,
    devices: Sequence | None = None,
) -> Mesh:  # fmt: skip
    """A mesh of the first devices."""
    return Mesh.of(axis_shapes, axis_names, devices, axis_types)


set_mesh = meshes.set_mesh


def use_mesh(mesh: Mesh) -> Mesh:
    """A block in which specs without a mesh mean ``mesh``."""
    return mesh


class Sharding(layouts.Layout):
    """Which devices have which part of an array."""

    memory_kind = "device"
    devices_indices_map = layouts.Layout.blocks
    addressable_devices_indices_map = layouts.Layout.local_blocks

    def with_memory_kind(self, kind: str) -> Any:
        """The same: there is one kind of memory."""
        return self


class SingleDeviceSharding(layouts.OneDevice, Sharding):
    """On one device."""

    devices_indices_map = layouts.OneDevice.blocks

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        super().__init__(device)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r}, memory_kind=device)"


class NamedSharding(layouts.OverMesh, Sharding):
    """On a mesh, as a ``PartitionSpec`` says."""

    devices_indices_map = layouts.OverMesh.blocks

    def __init__(self, mesh: Mesh, spec: PartitionSpec, *, memory_kind: str | None = None) -> None:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"NamedSharding: {spec!r} is given as spec, not a PartitionSpec")
        super().__init__(mesh, spec)

    def update(self, **changed: Any) -> NamedSharding:
        """The same with another mesh or spec."""
        return NamedSharding(changed.get("mesh", self.mesh), changed.get("spec", self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}, memory_kind=device)"


PLACEMENT = Placement(
    BORDER, Kinds(Mesh, PartitionSpec, SingleDeviceSharding, NamedSharding, Sharding)
)
get_mesh, put, laid = PLACEMENT.mesh, PLACEMENT.put, PLACEMENT.laid
with_sharding_constraint = PLACEMENT.with_sharding_constraint


def sharding_of(array: Array) -> Any:
    """How it lies."""
    return PLACEMENT.layout(array._value)


def _shards(array: Array, everywhere: bool = False) -> list[Shard]:
    found = arrays.shards(array._value, sharding_of(array), everywhere)
    own = [None if b.data is None else wrap(b.data, array.weak_type) for b in found]
    return [dataclasses.replace(b, data=data) for b, data in zip(found, own, strict=True)]


def _device(array: Array) -> Any:
    found = sharding_of(array)
    return found.device if isinstance(found, SingleDeviceSharding) else found


for _name, _read in {
    "sharding": sharding_of, "addressable_shards": _shards, "device": _device,
    "global_shards": lambda a: _shards(a, True),
    "is_fully_addressable": lambda a: sharding_of(a).is_fully_addressable,
    "is_fully_replicated": lambda a: sharding_of(a).is_fully_replicated,
    "committed": lambda a: arrays.is_placed(a._value),
}.items():  # fmt: skip
    setattr(Array, _name, property(_read))  # type: ignore[arg-type]
Array.devices = lambda self: sharding_of(self).device_set  # type: ignore[attr-defined]
Array.to_device = lambda self, device, *, stream=None: put(self, device)  # type: ignore[attr-defined]
Array.addressable_data = lambda self, i: _shards(self)[i].data  # type: ignore[attr-defined]
