"""Devices in a grid with named axes. Over ranks a ``DeviceMesh`` stands behind it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ...context import thread
from ...errors import ConfigError
from ..mesh import DeviceMesh
from . import inventory as known
from .inventory import Device

_AROUND = "distributed.spmd.around"  # the rank's slot: the meshes of the blocks it is in
_MADE = "distributed.spmd.meshes"  # the rank's slot: device meshes by what they are made of
MESH = "distributed.spmd"  # under which a device mesh remembers whose it is


class Mesh:
    """A grid of devices; as a block, it is the one that is meant where none is named."""

    def __init__(self, devices: Any, axis_names: Any) -> None:
        grid = np.asarray(devices, object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if grid.ndim != len(names):
            raise ConfigError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of "
                f"its second argument (`axis_names`), but got devices.ndim == {grid.ndim} and "
                f"len(axis_names) == {len(names)}."
            )
        self.devices, self.axis_names = grid, names

    @classmethod
    def of(
        cls, shape: Sequence[int], names: Any, devices: Sequence[Device] | None, *more: Any
    ) -> Self:
        """A grid of that shape of the first of ``devices`` (None: of all)."""
        have = known.devices() if devices is None else list(devices)
        count = math.prod(shape)
        if len(have) < count:
            raise ConfigError(
                f"Number of devices {len(have)} must be >= the product of mesh_shape {tuple(shape)}"
            )
        return cls(grid_of(have[:count], shape), names, *more)

    axis_sizes = property(lambda self: self.devices.shape)
    size = property(lambda self: math.prod(self.axis_sizes))
    empty = property(lambda self: not self.axis_names)
    device_ids = property(lambda self: np.vectorize(lambda d: d.id)(self.devices))
    is_multi_process = property(lambda self: len({d.process_index for d in self.flat}) > 1)

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """The sizes by name."""
        return OrderedDict(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def flat(self) -> list[Device]:
        """The devices in order."""
        found: list[Device] = self.devices.ravel().tolist()
        return found

    @property
    def local_devices(self) -> list[Device]:
        """Those of this process."""
        here = set(known.local_devices())
        return [d for d in self.flat if d in here]

    def key(self) -> tuple:
        """What makes it equal to another one."""
        return tuple([d.id for d in self.flat]), self.axis_sizes, self.axis_names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def __enter__(self) -> Self:
        _around().append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _around().pop()

    def begin(self) -> None:
        """Be the one that is meant, from now on."""
        _around().append(self)

    def ranks(self) -> DeviceMesh:
        """The mesh of ranks; made by all of them together, when it is first needed."""
        made = thread.rank.slot(_MADE, dict)
        key = tuple([d.id for d in self.flat]), self.axis_sizes, self.axis_names
        if key not in made:
            names = tuple([str(n) for n in self.axis_names])
            made[key] = DeviceMesh("cpu", self.device_ids, mesh_dim_names=names)
            made[key].memory[MESH] = self
        found: DeviceMesh = made[key]
        return found

    def over(self, axes: Any = ()) -> DeviceMesh | Mapping[str, int]:
        """What ``shard_map`` runs over: ranks, or how many blocks there are along each axis (of
        ``axes``, if any are named)."""
        if known.spread():
            if set(axes) - set(self.axis_names) or (axes and set(axes) != set(self.axis_names)):
                raise ConfigError(
                    f"a function over the axes {set(axes)} of {self.axis_names}: over ranks it is "
                    "one over all axes; name them all"
                )
            return self.ranks()
        return {n: size for n, size in self.shape.items() if not axes or n in axes}


class set_mesh:  # noqa: N801  (as a function is called)
    """Let specs without a mesh mean ``mesh``, from now on; as a block, to its end."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        mesh.begin()

    def __enter__(self) -> Mesh:
        return self.mesh

    def __exit__(self, *error: object) -> None:
        self.mesh.__exit__(*error)


def grid_of(devices: Sequence[Device], shape: Sequence[int]) -> np.ndarray:
    """Devices as an array."""
    grid = np.empty(len(devices), object)
    grid[:] = devices
    return grid.reshape(tuple(shape))


def _around() -> list[Mesh]:
    return thread.rank.slot(_AROUND, list)


def around() -> Mesh | None:
    """The mesh of the block that the program is in."""
    found = _around()
    return found[-1] if found else None
