"""``jax.sharding``: JAX's names and words for meshes and layouts of ``distributed.spmd``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...distributed import spmd
from ...distributed.spmd import Device, arrays, inventory, layouts
from ...distributed.spmd import mesh as meshes
from . import tree
from .array import Array, unwrap, wrap

_registry = tree.default_registry
NO_MESH = (
    "{} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {}. You can "
    "define a context mesh via `jax.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
    "shardings and then the mesh context manager is not required."
)


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


class set_mesh:  # noqa: N801  (JAX's name)
    """Let specs without a mesh mean ``mesh``, from now on; as a block, to its end."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        mesh.begin()

    def __enter__(self) -> Mesh:
        return self.mesh

    def __exit__(self, *error: object) -> None:
        self.mesh.__exit__(*error)


@contextmanager
def use_mesh(mesh: Mesh) -> Iterator[Mesh]:
    """In the block specs without a mesh mean ``mesh``."""
    with mesh:
        yield mesh


def get_mesh() -> Any:
    """The mesh of the block that the program is in (an empty one, where there is none)."""
    return meshes.around() or Mesh(np.empty((), object), ())


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


# --- arrays ---------------------------------------------------------------------------------------
class Shard:
    """The part of an array that a device has."""

    def __init__(self, block: arrays.Shard, weak: bool) -> None:
        self.device, self.index, self.replica_id = block.device, block.index, block.replica_id
        self.data = None if block.data is None else wrap(block.data, weak)

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={np.asarray(self.data)})"
        )


def sharding_of(array: Array) -> Any:
    """How it lies."""
    found = arrays.layout_of(array._value)
    if isinstance(found, tuple):
        return NamedSharding(found[0], PartitionSpec(*found[1]))
    return SingleDeviceSharding(inventory.local_devices()[0]) if found is None else found


def put(x: Any, sharding: Any) -> Array:
    """``x`` where ``sharding`` (a device, too) says."""
    array = x if isinstance(x, Array) else wrap(unwrap(x))
    if isinstance(sharding, Device):
        sharding = SingleDeviceSharding(sharding)
    if not isinstance(sharding, Sharding):
        raise ValueError(f"device_put: invalid device or sharding: {sharding!r}")
    return wrap(arrays.lay(array._value, sharding), array.weak_type)


def _shards(array: Array, everywhere: bool = False) -> list[Shard]:
    found = arrays.shards(array._value, sharding_of(array), everywhere)
    return [Shard(block, array.weak_type) for block in found]


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable, dtype: Any = None
) -> Array:
    """An array, the part of whose shards at ``index`` is ``data_callback(index)``."""
    where = sharding.local_blocks(tuple(shape))
    parts = {d: _numpy(data_callback(index), dtype) for d, index in where.items()}
    return wrap(arrays.assembled(shape, sharding, parts))


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays_: Sequence, *, dtype: Any = None
) -> Array:
    """An array of its shards, in the order of this process' devices."""
    where = sharding.local_blocks(tuple(shape))
    if len(arrays_) != len(where):
        raise ValueError(
            f"Expected {len(where)} per-device arrays for the addressable devices of {sharding}, "
            f"got {len(arrays_)}"
        )
    parts = {d: _numpy(a, dtype) for d, a in zip(where, arrays_, strict=True)}
    return wrap(arrays.assembled(shape, sharding, parts))


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Sequence[int] | None = None
) -> Array:
    """An array of what each process has of it."""
    return wrap(arrays.of_local(_numpy(local_data), sharding))


def _numpy(value: Any, kind: Any = None) -> np.ndarray:
    found: np.ndarray = unwrap(np.asarray(value, kind)).numpy()
    return found


def laid(x: Any, shardings: Any, where: str) -> Any:
    """The leaves of ``x``, each put where its entry of ``shardings`` says (None: where it is)."""
    leaves, form = _registry.flatten(x)
    entries = tree.default_registry.prefix(shardings, x, where)
    pairs = zip(leaves, entries, strict=True)
    return form.build(iter([a if s is None else put(a, _named(s, where)) for a, s in pairs]))


def _named(sharding: Any, where: str) -> Any:
    if not isinstance(sharding, PartitionSpec):
        return sharding
    if get_mesh().empty:
        raise RuntimeError(NO_MESH.format(*where.rsplit(" ", 1)))
    return NamedSharding(get_mesh(), sharding)


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """``x``, which lies as ``shardings`` (one for all, or a tree of them) say."""
    return laid(x, shardings, "with_sharding_constraint shardings")


def entered(shardings: Any, whole: tuple, kwargs: dict, fixed: Any = ()) -> tuple:
    """The arguments of a function under ``jit(in_shardings=)``; ``fixed``: which are static."""
    given = tuple(shardings) if isinstance(shardings, list) else shardings
    args = tuple([a for i, a in enumerate(whole) if i not in fixed])
    if given is not None and kwargs:
        raise ValueError("pjit does not support kwargs when in_shardings is specified.")
    if isinstance(given, tuple) and len(given) != len(args):
        raise ValueError(
            "pjit in_shardings specification must be a tree prefix of the positional arguments "
            "tuple. In particular, pjit in_shardings must either be a Sharding, a PartitionSpec, "
            "or a tuple of length equal to the number of positional arguments. But pjit "
            f"in_shardings is the wrong length: got a tuple or list of length {len(given)} for an "
            f"args tuple of length {len(args)}."
        )
    found = iter(laid(args, given, "jit in_shardings"))
    return tuple([a if i in fixed else next(found) for i, a in enumerate(whole)])


def left(shardings: Any, result: Any) -> Any:
    """The result of one under ``jit(out_shardings=)``."""
    return laid(result, shardings, "jit out_shardings")


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
Array.addressable_data = lambda self, i: _shards(self)[i].data  # type: ignore[attr-defined]
