"""How an array lies on devices: which block each of them has. Pure data; moves nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError, ShapeError
from . import inventory as known
from .inventory import Device
from .mesh import Mesh


class Indivisible(ShapeError):
    """A dimension that its blocks do not divide."""


class NamedTwice(ConfigError):
    """A spec that names an axis twice."""


class Spec:
    """Per dimension: the name of a mesh axis, a tuple of names (the first cuts first), or None."""

    FREE: Any = None  # of a dimension of which nothing is said

    def __init__(self, *dims: Any) -> None:
        self.dims = tuple([_plain(d) for d in dims])

    def names(self, dim: int) -> tuple:
        """The axes that cut a dimension."""
        found = self.dims[dim] if dim < len(self.dims) else None
        if found is None or found is self.FREE:
            return ()
        return found if isinstance(found, tuple) else (found,)

    def axes(self) -> list:
        """All axes that it names."""
        return [name for dim in range(len(self.dims)) for name in self.names(dim)]

    def __iter__(self) -> Iterator:
        return iter(self.dims)

    def __len__(self) -> int:
        return len(self.dims)

    def __getitem__(self, i: Any) -> Any:
        return self.dims[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self.dims == other.dims

    def __hash__(self) -> int:
        return hash(self.dims)

    def __add__(self, other: Any) -> Any:
        return type(self)(*self, *other)

    def __radd__(self, other: Any) -> Any:
        return type(self)(*other, *self)

    def __reduce__(self) -> tuple:
        return type(self), self.dims


def _plain(dim: Any) -> Any:
    if isinstance(dim, (tuple, list)):
        return None if not dim else dim[0] if len(dim) == 1 else tuple(dim)
    return dim


class Layout:
    """Which devices have which block of an array."""

    @property
    def device_set(self) -> set[Device]:
        """The devices that have a block."""
        raise NotImplementedError

    def blocks(self, shape: Sequence[int]) -> dict[Device, tuple]:
        """By device: the slices that it has."""
        raise NotImplementedError

    def check(self, shape: Sequence[int]) -> None:
        """Raise where arrays of that shape cannot lie so."""

    num_devices = property(lambda self: len(self.device_set))
    addressable_devices = property(lambda self: self.device_set & set(known.local_devices()))
    has_addressable_devices = property(lambda self: bool(self.addressable_devices))
    is_fully_addressable = property(lambda self: self.device_set <= set(known.local_devices()))

    def local_blocks(self, shape: Sequence[int]) -> dict[Device, tuple]:
        """Those of this process' devices."""
        here = self.addressable_devices
        return {d: index for d, index in self.blocks(shape).items() if d in here}

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each block."""
        index = next(iter(self.blocks(global_shape).values()))
        return tuple(len(range(*s.indices(n))) for s, n in zip(index, global_shape, strict=True))

    def is_equivalent_to(self, other: Layout, ndim: int) -> bool:
        """Whether arrays of ``ndim`` dimensions lie alike."""
        shape = (math.lcm(self.num_devices, other.num_devices),) * ndim
        return self.blocks(shape) == other.blocks(shape)


class OneDevice(Layout):
    """On one device."""

    is_fully_replicated = True

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def device_set(self) -> set[Device]:
        return {self.device}

    def blocks(self, shape: Sequence[int]) -> dict[Device, tuple]:
        return {self.device: (slice(None),) * len(shape)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneDevice) and self.device == other.device

    def __hash__(self) -> int:
        return hash(self.device)


class OverMesh(Layout):
    """On a mesh, as a ``Spec`` says."""

    def __init__(self, mesh: Mesh, spec: Spec) -> None:
        for name in spec.axes():
            if name not in mesh.axis_names:
                raise ConfigError(
                    f"Resource axis: {name} of {spec} is not found in mesh: {mesh.axis_names}."
                )
            if spec.axes().count(name) > 1:
                raise NamedTwice(
                    "A single NamedSharding spec specification can map every mesh axis to at most "
                    f"one positional dimension, but {spec} has duplicate entries for `{name}`"
                )
        self.mesh, self.spec = mesh, spec

    @property
    def device_set(self) -> set[Device]:
        return set(self.mesh.flat)

    is_fully_replicated = property(lambda self: all(n == 1 for n in self.counts(len(self.spec))))

    def counts(self, ndim: int) -> list[int]:
        """Into how many pieces each dimension is cut."""
        sizes = self.mesh.shape
        return [math.prod(sizes[n] for n in self.spec.names(d)) for d in range(ndim)]

    def blocks(self, shape: Sequence[int]) -> dict[Device, tuple]:
        self.check(shape)
        found: dict[Device, tuple] = {}
        for at in np.ndindex(*self.mesh.axis_sizes):
            here = dict(zip(self.mesh.axis_names, at, strict=True))
            device: Any = self.mesh.devices[at]
            found[device] = tuple([self._slice(d, n, here) for d, n in enumerate(shape)])
        return found

    def _slice(self, dim: int, size: int, here: dict) -> slice:
        k, count = 0, 1
        for name in self.spec.names(dim):
            n = self.mesh.shape[name]
            k, count = k * n + here[name], count * n
        return slice(None) if count == 1 else slice(k * size // count, (k + 1) * size // count)

    def check(self, shape: Sequence[int]) -> None:
        if len(self.spec) > len(shape):
            raise ConfigError(
                f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but "
                f"was applied to a value of rank {len(shape)}."
            )
        counts = self.counts(len(shape))
        for d, (n, count) in enumerate(zip(shape, counts, strict=True)):
            if n % count:
                raise Indivisible(
                    f"Sharding {self} implies that array axis {d} is partitioned {count} times, "
                    f"but the dimension size is {n} (full shape: {tuple(shape)}, per-dimension "
                    f"tiling factors: {counts} should evenly divide the shape)"
                )

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, OverMesh) and self.mesh == other.mesh
        return same and self.spec == other.spec  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mesh}, {self.spec})"
