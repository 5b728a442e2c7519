"""``jax.sharding``: meshes of devices, and how an array lies on them.

Over ranks an array that lies on several devices is a DTensor. In one process all devices share its
memory: an array is whole, and knows how it would lie.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...context import thread
from ...core.gate import Tracer
from ...core.tensor import Tensor
from ...core.tensor import wrap as tensor_over
from ...distributed import tensor as dtensors
from ...distributed.device_mesh import DeviceMesh
from ...distributed.tensor import DTensor
from . import devices as place
from . import tree
from .array import Array, unwrap, wrap
from .devices import Device
from .tracing import added

_CURRENT = "compat.jax.mesh"  # the rank's slot: the meshes of the blocks that the program is in
_MESHES = "compat.jax.meshes"  # the rank's slot: device meshes that were made


class IndivisibleError(ValueError):
    """A dimension that shards do not divide."""


class DuplicateSpecError(Exception):
    """A spec that names an axis twice."""


class AxisType(enum.Enum):
    """Who decides how what is computed lies along an axis."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class PartitionSpec:
    """Per dimension: the name of a mesh axis, a tuple of names, or None."""

    UNCONSTRAINED = type("UnconstrainedSingleton", (), {"__repr__": lambda _: "UNCONSTRAINED"})()

    def __init__(self, *partitions: Any) -> None:
        self._partitions = tuple(
            (p[0] if len(p) == 1 else tuple(p)) if isinstance(p, (tuple, list)) and p else p or None
            for p in partitions
        )

    def __iter__(self) -> Iterator:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __getitem__(self, i: Any) -> Any:
        return self._partitions[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._partitions == other._partitions

    def __hash__(self) -> int:
        return hash(self._partitions)

    def __repr__(self) -> str:
        return f"P{self._partitions!r}"

    def __add__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*self, *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*other, *self)

    def __reduce__(self) -> tuple:
        return PartitionSpec, self._partitions

    def names(self, dim: int) -> tuple:
        """The axes that cut a dimension."""
        found = self._partitions[dim] if dim < len(self) else None
        if found is None or found is PartitionSpec.UNCONSTRAINED:
            return ()
        return found if isinstance(found, tuple) else (found,)

    def axes(self) -> list:
        """All axes that it names."""
        return [name for dim in range(len(self)) for name in self.names(dim)]


P = PartitionSpec


class Mesh:
    """Devices in a grid with named axes."""

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        grid = np.asarray(devices, object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if grid.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of "
                f"its second argument (`axis_names`), but got devices.ndim == {grid.ndim} and "
                f"len(axis_names) == {len(names)}."
            )
        kinds = (axis_types,) if isinstance(axis_types, AxisType) else axis_types
        self.devices, self.axis_names = grid, names
        self.axis_types = tuple(kinds or (AxisType.Auto,) * len(names))

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        return self.devices.shape

    @property
    def shape(self) -> OrderedDict:
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    shape_tuple = property(lambda self: tuple(self.shape.items()))
    size = property(lambda self: math.prod(self.axis_sizes))
    empty = property(lambda self: not self.axis_names)
    local_mesh = property(lambda self: self)
    abstract_mesh = property(lambda self: self)
    device_ids = property(lambda self: np.vectorize(lambda d: d.id)(self.devices))
    is_multi_process = property(lambda self: len({d.process_index for d in self._flat()}) > 1)
    local_devices = property(
        lambda self: [d for d in self._flat() if d.process_index == place.process_index()]
    )

    def _flat(self) -> list[Device]:
        return self.devices.ravel().tolist()

    def _key(self) -> tuple:
        ids = tuple([d.id for d in self._flat()])
        return ids, self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape.items())
        return f"Mesh({axes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        return (
            f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, "
            f"axis_types={self.axis_types})"
        )

    def __enter__(self) -> Mesh:
        _meshes().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _meshes().pop()

    def ranks(self) -> DeviceMesh:
        """The same of ranks; every rank comes here."""
        made = thread.rank.slot(_MESHES, dict)
        key = self._key()[:3]
        if key not in made:
            names = tuple([str(n) for n in self.axis_names])
            made[key] = DeviceMesh("cpu", self.device_ids, mesh_dim_names=names)
            made[key].memory["compat.jax"] = self
        return made[key]

    def over(self, axes: Any = None) -> Any:
        """What ``shard_map`` runs over: ranks, or sizes (of ``axes`` alone)."""
        if place.spread():
            return self.ranks()
        return {n: size for n, size in self.shape.items() if not axes or n in axes}


def _meshes() -> list[Mesh]:
    return thread.rank.slot(_CURRENT, list)


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *,
    devices: Sequence | None = None,
) -> Mesh:  # fmt: skip
    """A mesh of the first devices."""
    known = list(place.devices() if devices is None else devices)
    count = math.prod(axis_shapes)
    if len(known) < count:
        raise ValueError(
            f"Number of devices {len(known)} must be >= the product of mesh_shape "
            f"{tuple(axis_shapes)}"
        )
    grid = np.empty(count, object)
    grid[:] = known[:count]
    return Mesh(grid.reshape(axis_shapes), axis_names, axis_types)


class _SetMesh:
    """``set_mesh``: at once, and undone at the end where it is used as a block."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        _meshes().append(mesh)

    def __enter__(self) -> Mesh:
        return self.mesh

    def __exit__(self, *_: object) -> None:
        _meshes().pop()


def set_mesh(mesh: Mesh) -> Any:
    """Let specs without a mesh mean ``mesh``, from now on or in a block."""
    return _SetMesh(mesh)


@contextmanager
def use_mesh(mesh: Mesh) -> Iterator[Mesh]:
    """In the block specs without a mesh mean ``mesh``."""
    with mesh:
        yield mesh


def get_mesh() -> Mesh:
    """The mesh of the block that the program is in (an empty one, where there is none)."""
    found = _meshes()
    return found[-1] if found else Mesh(np.empty((), object), ())


# --- how arrays lie -------------------------------------------------------------------------------
class Sharding:
    """Which devices have which part of an array."""

    memory_kind = "device"

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple]:
        """By device: the slices that it has."""
        raise NotImplementedError

    @property
    def device_set(self) -> set[Device]:
        raise NotImplementedError

    num_devices = property(lambda self: len(self.device_set))
    addressable_devices = property(lambda self: self.device_set & set(place.local_devices()))
    has_addressable_devices = property(lambda self: bool(self.addressable_devices))
    is_fully_addressable = property(
        lambda self: self.device_set <= set(place.local_devices())
    )

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple]:
        """The same of this process' devices."""
        whole, here = self.devices_indices_map(global_shape), self.addressable_devices
        return {d: index for d, index in whole.items() if d in here}

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each part."""
        index = next(iter(self.devices_indices_map(global_shape).values()))
        return tuple(len(range(*s.indices(n))) for s, n in zip(index, global_shape, strict=True))

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether arrays of ``ndim`` dimensions lie alike."""
        shape = (math.lcm(self.num_devices, other.num_devices),) * ndim
        return self.devices_indices_map(shape) == other.devices_indices_map(shape)


class SingleDeviceSharding(Sharding):
    """On one device."""

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        self._device = device

    device_set = property(lambda self: {self._device})
    is_fully_replicated = True

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple]:
        return {self._device: (slice(None),) * len(global_shape)}

    def check(self, shape: Sequence[int], where: str = "") -> None:
        """All arrays lie on one device."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self._device == other._device

    def __hash__(self) -> int:
        return hash(self._device)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind=device)"


class NamedSharding(Sharding):
    """On a mesh, as a ``PartitionSpec`` says."""

    def __init__(self, mesh: Mesh, spec: PartitionSpec, *, memory_kind: str | None = None) -> None:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"NamedSharding: a PartitionSpec is needed, and {spec!r} of type {type(spec)} given"
            )
        for name in spec.axes():
            if name not in mesh.axis_names:
                raise ValueError(
                    f"Resource axis: {name} of {spec} is not found in mesh: {mesh.axis_names}."
                )
            if spec.axes().count(name) > 1:
                raise DuplicateSpecError(
                    "A single NamedSharding spec specification can map every mesh axis to at most "
                    f"one positional dimension, but {spec} has duplicate entries for `{name}`"
                )
        self.mesh, self.spec = mesh, spec

    device_set = property(lambda self: set(self.mesh._flat()))
    is_fully_replicated = property(
        lambda self: all(self.mesh.shape[n] == 1 for n in self.spec.axes())
    )

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple]:
        self.check(global_shape)
        found = {}
        for at in np.ndindex(*self.mesh.axis_sizes):
            here = dict(zip(self.mesh.axis_names, at, strict=True))
            index = [self._slice(d, n, here) for d, n in enumerate(global_shape)]
            found[self.mesh.devices[at]] = tuple(index)
        return found

    def _slice(self, dim: int, size: int, here: dict) -> slice:
        names = self.spec.names(dim)
        count = math.prod(self.mesh.shape[n] for n in names)
        if count == 1:
            return slice(None)
        k = 0
        for n in names:
            k = k * self.mesh.shape[n] + here[n]
        return slice(k * size // count, (k + 1) * size // count, None)

    def check(self, shape: Sequence[int], where: str = "") -> None:
        """Raise JAX's error where arrays of that shape cannot lie so."""
        if len(self.spec) > len(shape):
            raise ValueError(
                f"{where}Sharding {self} is only valid for values of rank at least "
                f"{len(self.spec)}, but was applied to a value of rank {len(shape)}."
            )
        tiles = [math.prod(self.mesh.shape[n] for n in self.spec.names(d)) for d in range(len(shape))]
        for d, (n, count) in enumerate(zip(shape, tiles, strict=True)):
            if n % count:
                raise IndivisibleError(
                    f"Sharding {self} implies that array axis {d} is partitioned {count} times, "
                    f"but the dimension size is {n} (full shape: {tuple(shape)}, per-dimension "
                    f"tiling factors: {tiles} should evenly divide the shape)"
                )

    def update(self, **changed: Any) -> NamedSharding:
        """The same with another mesh or spec."""
        return NamedSharding(changed.get("mesh", self.mesh), changed.get("spec", self.spec))

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The same: there is one kind of memory."""
        return self

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, NamedSharding) and self.mesh == other.mesh
        return same and self.spec == other.spec  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}, memory_kind=device)"


class Shard:
    """The part of an array that a device has."""

    def __init__(self, device: Device, index: tuple, replica_id: int, data: Array) -> None:
        self.device, self.index, self.replica_id, self.data = device, index, replica_id, data

    def __repr__(self) -> str:
        return (
            f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, "
            f"data={np.asarray(self.data)})"
        )


# --- arrays on devices ----------------------------------------------------------------------------
def sharding_of(array: Array) -> Any:
    """How it lies."""
    value = array._value
    found = value.__dict__.get("_sharding")
    if found is not None:
        return found
    if isinstance(value, DTensor):
        spec = PartitionSpec(*dtensors.spec_of(added(value)))
        return NamedSharding(value.device_mesh.memory["compat.jax"], spec)
    return SingleDeviceSharding(place.local_devices()[0])


def put(array: Array, sharding: Any) -> Array:
    """``array`` where ``sharding`` (a device, too) says."""
    if isinstance(sharding, Device):
        sharding = SingleDeviceSharding(sharding)
    if not isinstance(sharding, Sharding):
        raise ValueError(f"device_put: invalid device or sharding: {sharding!r}")
    sharding.check(array.shape)  # type: ignore[attr-defined]
    value = array._value
    if isinstance(value, Tracer) and not isinstance(value, DTensor):
        return array
    if place.spread():
        return wrap(_over_ranks(value, sharding), array.weak_type)
    if value.requires_grad:
        return array
    return wrap(_marked(tensor_over(value.array), sharding), array.weak_type)


def _marked(value: Any, sharding: Sharding) -> Any:
    value.__dict__["_sharding"] = sharding
    return value


def _over_ranks(value: Any, sharding: Any) -> Any:
    if isinstance(sharding, SingleDeviceSharding):
        return value.full_tensor() if isinstance(value, DTensor) else value
    value = added(value)
    mesh = sharding.mesh.ranks()
    native = dtensors.NamedSharding(mesh, dtensors.PartitionSpec(*sharding.spec))
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, [dtensors.Replicate()] * mesh.ndim)
    return _marked(value.redistribute(mesh, native.placements), sharding)


def shards_of(array: Array, everywhere: bool = False) -> list[Shard]:
    """The shards of this process' devices (``everywhere``: of all)."""
    sharding = sharding_of(array)
    found, seen = [], {}
    here = sharding.addressable_devices
    for device, index in sharding.devices_indices_map(array.shape).items():
        key = str(index)
        seen[key] = seen.get(key, -1) + 1
        if everywhere or device in here:
            data = _data(array, index) if device in here else None
            found.append(Shard(device, index, seen[key], data))  # type: ignore[arg-type]
    return found


def _data(array: Array, index: tuple) -> Array:
    value = added(array._value)
    part = value.to_local() if isinstance(value, DTensor) else value[index]
    return wrap(part.detach(), array.weak_type)


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable, dtype: Any = None
) -> Array:
    """An array, the part of whose shards at ``index`` is ``data_callback(index)``."""
    parts = {
        d: np.asarray(data_callback(index), dtype)
        for d, index in sharding.addressable_devices_indices_map(tuple(shape)).items()
    }
    return _assembled(tuple(shape), sharding, parts)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence, *, dtype: Any = None
) -> Array:
    """An array of its shards, in the order of this process' devices."""
    where = sharding.addressable_devices_indices_map(tuple(shape))
    if len(arrays) != len(where):
        raise ValueError(
            f"Expected {len(where)} per-device arrays for the addressable devices of {sharding}, "
            f"got {len(arrays)}"
        )
    parts = dict(zip(where, map(np.asarray, arrays), strict=True))
    return _assembled(tuple(shape), sharding, parts)


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Sequence[int] | None = None
) -> Array:
    """An array of what each process has of it."""
    data = np.asarray(local_data)
    if not place.spread():
        return put(wrap(unwrap(data)), sharding)
    mesh = sharding.mesh.ranks()
    native = dtensors.NamedSharding(mesh, dtensors.PartitionSpec(*sharding.spec))
    value = DTensor.from_local(unwrap(data), mesh, native.placements)
    return wrap(_marked(value, sharding))


def _assembled(shape: tuple, sharding: Any, parts: dict) -> Array:
    if place.spread():
        (data,) = parts.values()
        return make_array_from_process_local_data(sharding, data)
    whole = np.empty(shape, next(iter(parts.values())).dtype)
    for device, index in sharding.devices_indices_map(shape).items():
        whole[index] = parts[device]
    return put(wrap(unwrap(whole)), sharding)


# --- constraints, and the shardings of jit --------------------------------------------------------
def resolved(where: str, sharding: Any) -> Any:
    """A sharding, of a spec too, whose mesh is that of the block that the program is in."""
    if not isinstance(sharding, PartitionSpec):
        return sharding
    mesh = get_mesh()
    if mesh.empty:
        raise RuntimeError(
            f"{where}. You can define a context mesh via `jax.set_mesh(mesh)`. Alternatively, "
            "provide `Sharding`s to shardings and then the mesh context manager is not required."
        )
    return NamedSharding(mesh, sharding)


_NO_MESH = (
    "{} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {}"
)


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """``x``, which lies as ``shardings`` (one for all, or a tree of them) say."""
    return laid(x, shardings, _NO_MESH.format("with_sharding_constraint", "shardings"), "shardings")


def laid(x: Any, shardings: Any, no_mesh: str, where: str) -> Any:
    """The leaves of ``x``, each put where its entry of ``shardings`` says (None: where it is)."""
    leaves, form = tree.default_registry.flatten(x)
    entries = tree.prefix_leaves(shardings, x, where)
    found = [
        leaf if s is None else put(wrap(unwrap(leaf)) if not isinstance(leaf, Array) else leaf,
                                   resolved(no_mesh, s))
        for leaf, s in zip(leaves, entries, strict=True)
    ]  # fmt: skip
    return form.build(iter(found))


def entered(shardings: Any, args: tuple) -> tuple:
    """The arguments of a function under ``jit(in_shardings=)``."""
    if isinstance(shardings, list):
        shardings = tuple(shardings)
    if isinstance(shardings, tuple) and len(shardings) != len(args):
        raise ValueError(
            "pjit in_shardings specification must be a tree prefix of the positional arguments "
            "tuple. In particular, pjit in_shardings must either be a Sharding, a PartitionSpec, "
            "or a tuple of length equal to the number of positional arguments. But pjit "
            "in_shardings is the wrong length: got a tuple or list of length "
            f"{len(shardings)} for an args tuple of length {len(args)}."
        )
    return laid(args, shardings, _NO_MESH.format("jit", "in_shardings"), "pjit in_shardings")


def left(shardings: Any, result: Any) -> Any:
    """The result of one under ``jit(out_shardings=)``."""
    return laid(result, shardings, _NO_MESH.format("jit", "out_shardings"), "pjit out_shardings")


def over_ranks(values: Sequence[Tensor]) -> bool:
    """Whether any of these lies on several ranks."""
    return any(isinstance(v, DTensor) for v in values)


def attach() -> None:
    """Give arrays what they know of devices."""
    for name, read in {
        "sharding": sharding_of,
        "addressable_shards": shards_of,
        "global_shards": lambda a: shards_of(a, everywhere=True),
        "is_fully_addressable": lambda a: sharding_of(a).is_fully_addressable,
        "is_fully_replicated": lambda a: sharding_of(a).is_fully_replicated,
        "committed": lambda a: "_sharding" in a._value.__dict__ or isinstance(a._value, DTensor),
        "device": _device,
    }.items():
        setattr(Array, name, property(read))
    Array.devices = lambda self: sharding_of(self).device_set  # type: ignore[attr-defined]
    Array.addressable_data = (  # type: ignore[attr-defined]
        lambda self, index: shards_of(self)[index].data
    )


def _device(array: Array) -> Any:
    found = sharding_of(array)
    return found._device if isinstance(found, SingleDeviceSharding) else found


attach()
