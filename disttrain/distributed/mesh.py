"""Device meshes: the ranks of a job as a grid with named axes, and the process groups along them.

A mesh is pure data (``ranks``, an integer array, and the names of its axes) plus one group per
axis, which is made once, collectively, when the mesh is. Slices of a mesh share its groups, so
slicing never communicates; ``_flatten`` makes one group more. Knows no placements.
"""

from __future__ import annotations

import copyreg
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import context
from ..comm.group.group import ProcessGroup
from ..core.effects import aside
from ..core.tensor import Size, Tensor, wrap
from ..core.types.device import device
from ..errors import ConfigError
from .groups import state
from .groups.new_group import divide_world, get_rank, get_world_size

SLOT = "distributed.mesh"
__outward__ = ()  # what it makes of groups is watched there


class _Shared:
    """What a mesh and all slices of it have in common: how a group is found."""

    def __init__(self) -> None:
        self.groups: dict[tuple, Any] = {}  # by the ranks of the line that this rank lies on
        self.flattened: dict[str, DeviceMesh] = {}
        self.fixed: dict[bytes, int] = {}  # virtual shards, by the ranks of a mesh of one axis


class DeviceMesh:
    """Ranks in a grid. ``mesh``: global ranks, nested lists or an integer Tensor, every rank once.

    Every rank of the world makes the same meshes in the same order (those outside of a mesh, too).
    ``mesh["dp"]`` and ``mesh["dp", "tp"]`` are slices; ``mesh.get_group("dp")`` is the group of the
    ranks that differ from this one along that axis only.
    """

    __moving__ = ("_at", "_memory", "_shared")  # found out or made on the way, once

    def __init__(
        self,
        device_type: str,
        mesh: object,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: object = None,
        _init_backend: bool = True,
        _rank: int | None = None,
    ) -> None:
        self.device_type = device(device_type).type
        ranks = np.array(mesh.array if isinstance(mesh, Tensor) else mesh, np.int64)
        if not ranks.ndim:
            ranks = ranks.reshape(1)
        self.ranks, self.mesh_dim_names = ranks, _names(mesh_dim_names, ranks.ndim)
        self._rank = _rank
        self._root: DeviceMesh = self
        self._shared = _Shared()
        _check_ranks(ranks)
        if _init_backend:
            self._connect()

    _at: tuple | None = None  # (this rank's place,) once it was looked up

    def _connect(self) -> None:
        """Make the groups: per axis, one meeting of all ranks of the world."""
        if not state.is_initialized():
            state.init_process_group()
        world = state.group_or_default()
        if self.ranks.max() >= world.size:
            raise ConfigError(
                f"DeviceMesh: rank {int(self.ranks.max())} is in the mesh, but the default group "
                f"has {world.size} ranks; the mesh of shape {self.shape} needs at least "
                f"{int(self.ranks.max()) + 1}: start more ranks, or make the mesh smaller"
            )
        for axis in range(self.ndim):
            self._make_line(axis)

    def _make_line(self, axis: int) -> None:
        lines = np.moveaxis(self.ranks, axis, -1).reshape(-1, self.ranks.shape[axis])
        world = state.group_or_default()
        if len(lines) == 1 and list(lines[0]) == list(range(world.size)):
            self._shared.groups[tuple(lines[0].tolist())] = world
            return
        mine = [i for i, line in enumerate(lines) if world.rank in line]
        place = list(lines[mine[0]]).index(world.rank) if mine else 0
        made = divide_world(
            mine[0] if mine else None, place, lines[mine[0]].tolist() if mine else None
        )
        if made is not None:
            self._shared.groups[tuple(lines[mine[0]].tolist())] = made

    # --- what it is -------------------------------------------------------------------------
    @property
    def mesh(self) -> Tensor:
        """The global ranks, as an integer tensor."""
        return wrap(self.ranks.copy())

    @property
    def ndim(self) -> int:
        return self.ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return Size(self.ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, of all or along one axis."""
        return int(self.ranks.size) if mesh_dim is None else self.ranks.shape[self.axis(mesh_dim)]

    @property
    def axis_names(self) -> tuple[str, ...]:
        """JAX's word for ``mesh_dim_names``."""
        return self.mesh_dim_names or ()

    def get_rank(self) -> int:
        """This process's global rank."""
        if self._rank is not None:
            return self._rank
        return get_rank() if state.is_initialized() else context.current().rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this rank lies in the grid; None outside of it."""
        if self._at is None:
            aside(self._locate)
        assert self._at is not None
        return self._at[0]

    def _locate(self) -> None:
        found = np.argwhere(self.ranks == self.get_rank())
        self._at = (tuple(found[0].tolist()) if len(found) else None,)

    @property
    def memory(self) -> dict:
        """What upper layers have decided about this mesh and want to find again."""
        return self.__dict__.setdefault("_memory", {})

    @property
    def virtual_shards(self) -> int:
        """Into how many pieces work along the one axis is cut whoever computes them; 0: into one
        for each rank."""
        fixed = self._shared.fixed
        return fixed.get(self.ranks.tobytes(), 0) if fixed else 0

    @virtual_shards.setter
    def virtual_shards(self, count: int) -> None:
        self._shared.fixed[self.ranks.tobytes()] = count

    def fixed_axes(self) -> list[int]:
        """The axes along which work is cut into virtual shards."""
        at, fixed = self.get_coordinate(), self._shared.fixed
        if at is None or not fixed:
            return []
        lines = [np.array(_line(self.ranks, at, axis), np.int64) for axis in range(self.ndim)]
        return [axis for axis, line in enumerate(lines) if line.tobytes() in fixed]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along an axis (which a mesh of one axis need not name)."""
        at = self.get_coordinate()
        axis = self._only("get_local_rank", mesh_dim)
        if at is None:
            raise ConfigError(
                f"get_local_rank: rank {self.get_rank()} is not in the mesh {self!r}; ask only on "
                "its ranks (get_coordinate() is None elsewhere)"
            )
        return at[axis]

    def axis(self, mesh_dim: int | str) -> int:
        """The number of an axis, given by name or number (from the end, if negative)."""
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(
                    f"mesh axis {mesh_dim!r}: this mesh has the axes "
                    f"{list(self.mesh_dim_names or [])}; name one of them"
                )
            return self.mesh_dim_names.index(mesh_dim)  # type: ignore[union-attr]
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh axis {mesh_dim}: this mesh has {self.ndim} axes")
        return mesh_dim % self.ndim

    def _only(self, where: str, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"{where}: the DeviceMesh has {self.ndim} dimensions "
                    f"({list(self.mesh_dim_names or self.shape)}); say which one with mesh_dim="
                )
            return 0
        return self.axis(mesh_dim)

    # --- groups -----------------------------------------------------------------------------
    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group along an axis that this rank belongs to."""
        axis = self._only("get_group", mesh_dim)
        if isinstance(mesh_dim, str) and mesh_dim in self._shared.flattened:
            return self._shared.flattened[mesh_dim].get_group()
        return self.line(axis)

    def get_all_groups(self) -> list:
        """The group of every axis."""
        return [self.line(axis) for axis in range(self.ndim)]

    def line(self, axis: int) -> Any:
        """The group along axis number ``axis``."""
        at = self.get_coordinate()
        if at is None:
            return state.GroupMember.NON_GROUP_MEMBER
        key = tuple(_line(self.ranks, at, axis))
        try:
            return self._shared.groups[key]
        except KeyError:
            raise ConfigError(
                f"DeviceMesh: there is no process group for the ranks {list(key)}; the mesh "
                f"{self!r} was made without groups (_init_backend=False)"
            ) from None

    # --- other meshes -----------------------------------------------------------------------
    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if self.mesh_dim_names is None:
            raise RuntimeError(
                "DeviceMesh: cannot slice a DeviceMesh without mesh_dim_names; name its axes when "
                "it is made"
            )
        if wanted == self.mesh_dim_names:
            return self
        for name in wanted:
            if name not in self.mesh_dim_names and name not in self._shared.flattened:
                have = [*self.mesh_dim_names, *self._shared.flattened]
                raise KeyError(
                    f"Invalid mesh_dim_name {name!r} specified. Valid mesh_dim_names are {have}."
                )
        return self._slice(wanted)

    def _slice(self, wanted: tuple[str, ...]) -> DeviceMesh:
        if len(wanted) == 1 and wanted[0] not in self.mesh_dim_names:  # type: ignore[operator]
            return self._shared.flattened[wanted[0]]
        grid, names = self._unfolded(wanted)
        if sorted(names.index(n) for n in wanted) != [names.index(n) for n in wanted]:
            raise KeyError(
                f"Invalid mesh_dim_names {wanted} specified: they must be in the order of the "
                f"mesh's own, {self.mesh_dim_names}, each at most once."
            )
        axes = [names.index(n) for n in wanted]
        rest = [i for i in range(grid.ndim) if i not in axes]
        at = np.argwhere(grid == self.get_rank())
        place = at[0] if len(at) else np.zeros(grid.ndim, np.int64)
        index = tuple(int(place[i]) if i in rest else slice(None) for i in range(grid.ndim))
        return self._derived(grid[index], wanted)

    def _unfolded(self, wanted: tuple[str, ...]) -> tuple[np.ndarray, list[str]]:
        """The grid with the flattened axes that ``wanted`` names in place of their parts."""
        grid, names = self.ranks, list(self.mesh_dim_names or ())
        for name in wanted:
            flat = self._shared.flattened.get(name)
            if name in names or flat is None:
                continue
            parts = [p for p in flat.parts if p in names]
            first = names.index(parts[0])
            shape = (*grid.shape[:first], -1, *grid.shape[first + len(parts) :])
            grid = grid.reshape(shape)
            names[first : first + len(parts)] = [name]
        return grid, names

    parts: tuple[str, ...] = ()  # the axes that a flattened mesh was made of

    def _derived(self, ranks: np.ndarray, names: tuple[str, ...] | None) -> DeviceMesh:
        out = object.__new__(DeviceMesh)
        out.device_type, out.ranks, out.mesh_dim_names = self.device_type, ranks, names
        out._rank, out._root, out._shared = self._rank, self._root, self._shared
        return out

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: object = None) -> Any:
        """A mesh of one axis over all ranks of this one. Every rank calls it; the group is made the
        first time. From then on the root mesh has it under its name."""
        names = self.mesh_dim_names
        if names is None:
            raise RuntimeError("_flatten: cannot flatten a DeviceMesh without mesh_dim_names")
        name = mesh_dim_name or "_".join(names)
        if self.ndim == 1 and name == names[0]:
            return self
        if name in (self._root.mesh_dim_names or ()):
            raise ConfigError(
                f"_flatten: the mesh has an axis {name!r} already; choose another name"
            )
        known = self._shared.flattened.get(name)
        if known is not None:
            if known.parts != names:
                raise ConfigError(
                    f"_flatten: {name!r} is the name of the flattened axes {known.parts} already; "
                    f"choose another one for {names}"
                )
            return known
        out = self._derived(self.ranks.reshape(-1), (name,))
        out.parts = names
        self._shared.flattened[name] = out
        self._connect_flat(out)
        return out

    def _connect_flat(self, flat: DeviceMesh) -> None:
        """All ranks of the root meet once; those of one slice become a group."""
        world = state.group_or_default()
        if flat.ranks.tolist() == list(range(world.size)):
            self._shared.groups[tuple(flat.ranks.tolist())] = world
            return
        inside = world.rank in flat.ranks
        color = int(flat.ranks.min()) if inside else None
        place = flat.ranks.tolist().index(world.rank) if inside else 0
        made = divide_world(color, place, flat.ranks.tolist() if inside else None)
        if made is not None:
            self._shared.groups[tuple(flat.ranks.tolist())] = made

    @staticmethod
    def from_group(
        group: ProcessGroup | Sequence[ProcessGroup],
        device_type: str,
        mesh: object = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """A mesh over groups that exist: one group (an axis), or a list of them, one per axis, with
        the ranks of the grid in ``mesh``. Communicates nothing."""
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if mesh is None:
            if len(groups) > 1:
                raise ValueError(
                    f"from_group: {len(groups)} groups were given; mesh= is needed to say which "
                    "rank lies where"
                )
            mesh = groups[0].ranks
        out = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        if out.ndim != len(groups):
            raise ValueError(
                f"from_group: {len(groups)} groups were given for a mesh of {out.ndim} dimensions; "
                "one per dimension is needed"
            )
        at = out.get_coordinate()
        for axis, each in enumerate(groups):
            key = tuple(each.ranks)
            line = None if at is None else _line(out.ranks, at, axis)
            if line is not None and line != list(key):
                raise ValueError(
                    f"from_group: group {axis} has the ranks {list(key)}, but the mesh has "
                    f"{line} along that axis for rank {out.get_rank()}"
                )
            out._shared.groups[key] = each
        return out

    def _get_root_mesh(self) -> DeviceMesh:
        return self._root

    def _get_mesh_dim_by_name(self, name: str) -> int:
        return self.axis(name)

    # --- use --------------------------------------------------------------------------------
    def __enter__(self) -> DeviceMesh:
        _stack().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack().pop()

    def __contains__(self, rank: int) -> bool:
        return bool((self.ranks == rank).any())

    def _key(self) -> tuple:
        return (
            self.device_type, self.ranks.shape, self.ranks.tobytes(), self.mesh_dim_names,
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self.mesh_dim_names is None:
            return f"DeviceMesh({self.device_type!r}, {self.ranks.tolist()})"
        shape = ", ".join(
            f"{n}={size}" for n, size in zip(self.mesh_dim_names, self.shape, strict=True)
        )
        return f"DeviceMesh(({shape}), device: {self.device_type!r}, ranks: {self.ranks.tolist()})"

    def __deepcopy__(self, memo: dict) -> DeviceMesh:
        return self  # it names processes and groups, which no copy makes more of

    def __reduce_ex__(self, protocol: object) -> Any:
        state = {"device": self.device_type, "ranks": self.ranks.tolist(),
                 "names": self.mesh_dim_names}  # fmt: skip
        return copyreg.__newobj__, (DeviceMesh,), state  # type: ignore[attr-defined]

    def __setstate__(self, state: dict) -> None:
        """A mesh that comes from elsewhere is this rank's own one of that description, where one
        was made by ``init_device_mesh``; else one without groups."""
        made = DeviceMesh(
            state["device"], state["ranks"], mesh_dim_names=state["names"], _init_backend=False
        )
        self.__dict__.update(_known().get(made._key(), made).__dict__)


def _known() -> dict:
    return context.current().slot(SLOT + ".known", dict)


def _line(ranks: np.ndarray, at: tuple[int, ...], axis: int) -> list[int]:
    """The ranks along ``axis`` through the place ``at``."""
    line: Any = np.moveaxis(ranks, axis, -1)
    for i in (*at[:axis], *at[axis + 1 :]):
        line = line[i]
    return line.tolist()


def _names(names: Sequence[str] | None, ndim: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = (names,) if isinstance(names, str) else tuple(names)
    if len(names) != ndim:
        raise RuntimeError(
            f"mesh_shape and mesh_dim_names should have same length: {ndim} dimensions and "
            f"{len(names)} names {list(names)} were given"
        )
    if len(set(names)) != len(names):
        raise RuntimeError(f"Each mesh_dim_name must be unique: {list(names)} was given")
    return names


def _check_ranks(ranks: np.ndarray) -> None:
    flat = ranks.ravel().tolist()
    if not flat or min(flat) < 0 or len(set(flat)) != len(flat):
        raise ConfigError(
            f"DeviceMesh: the ranks {ranks.tolist()} were given; needed are different ranks, none "
            "negative, and at least one"
        )


def _stack() -> list:
    return context.current().slot(SLOT, list)


def current_mesh() -> DeviceMesh:
    """The mesh whose ``with`` block runs."""
    stack = _stack()
    if not stack:
        raise RuntimeError(
            "no device mesh is active: pass device_mesh=, or open one with `with mesh:`"
        )
    return stack[-1]


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: object = None,
) -> DeviceMesh:
    """A mesh over the first ``prod(mesh_shape)`` ranks, in order; the last axis varies fastest.

    Makes the default group if there is none. Raises ``ConfigError`` when there are fewer ranks,
    ``RuntimeError`` for names that do not fit.
    """
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    names = _names(mesh_dim_names, len(shape))
    if not shape or any(int(n) < 1 for n in shape):
        raise ConfigError(f"init_device_mesh: mesh_shape={shape}; needed are positive sizes")
    if ":" in device_type:
        raise RuntimeError(
            f"init_device_mesh: device type {device_type!r} names one device; give its type alone, "
            f"{device_type.partition(':')[0]!r}"
        )
    if not state.is_initialized():
        state.init_process_group()
    have = get_world_size()
    if math.prod(shape) > have:
        raise ConfigError(
            f"init_device_mesh: mesh_shape={shape} needs {math.prod(shape)} ranks and there are "
            f"{have}; start that many, or choose a smaller shape"
        )
    ranks = np.arange(math.prod(shape)).reshape(shape)
    return remember(DeviceMesh(device_type, ranks, mesh_dim_names=names))


def remember(mesh: DeviceMesh) -> DeviceMesh:
    """Let what is unpickled on this rank find ``mesh`` by its description."""
    _known()[mesh._key()] = mesh
    return mesh
