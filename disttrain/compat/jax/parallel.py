"""The names of devices, meshes and functions over them, by the module of JAX that has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import distributed as dist
from ... import func
from ...distributed.spmd import Device, hosts, inventory
from ...distributed.spmd.drawing import drawn
from ...distributed.spmd.mesh import grid_of
from . import sharding, tree
from .array import unwrap, wrap
from .jit import jit
from .sharding import PLACEMENT


def devices(backend: str | None = None) -> list[Device]:
    """All devices, of all processes."""
    if backend not in (None, "cpu"):
        raise RuntimeError(
            f"Unknown backend: '{backend}' requested, but no platforms that are instances of "
            f"{backend} are present. Platforms present are: cpu"
        )
    return inventory.devices()


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Device]:
    """The devices of this process, or of another one."""
    devices(backend)
    return inventory.local_devices(process_index)


def create_device_mesh(mesh_shape: Sequence[int], devices: Any = None, **_: Any) -> np.ndarray:
    """The devices (all of them) in a grid."""
    return grid_of(list(inventory.devices() if devices is None else devices), mesh_shape)


def visualize_array_sharding(arr: Any, **_: Any) -> None:
    """Print where the parts of an array lie."""
    print(drawn(arr.shape, sharding.sharding_of(arr)))


def visualize_sharding(shape: Sequence[int], sharding: Any, **_: Any) -> None:
    """Print where the parts of arrays of that shape lie."""
    print(drawn(shape, sharding))


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """``x`` as a value of its own on each device along the axis."""
    if to != "varying":
        raise ValueError(f"pcast: to='varying' is there, and to={to!r} is given")
    return tree.tree_map(lambda a: wrap(func.pvary(unwrap(a), axis_name)), x)


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, **_: Any,
) -> None:  # fmt: skip
    """Let the processes meet: as the launcher says, or at ``coordinator_address``."""
    hosts.meet(coordinator_address, num_processes, process_id)


def shard_map_old(
    f: Callable, mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True,
    auto: Any = frozenset(), check_vma: bool | None = None,
) -> Any:  # fmt: skip
    """``jax.experimental.shard_map.shard_map``."""
    names = frozenset(mesh.axis_names) - frozenset(auto) if auto else frozenset()
    check = check_rep if check_vma is None else check_vma
    return PLACEMENT.shard_map(
        f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=names, check_vma=check
    )


PLACEMENT.jit = jit


def _of(source: Any, names: str) -> dict[str, Any]:
    return {n: getattr(source, n) for n in names.split()}


_HOSTS = """assert_equal broadcast_one_to_all global_array_to_host_local_array
host_local_array_to_global_array process_allgather sync_global_devices"""
_MAKING = """make_array_from_callback make_array_from_process_local_data
make_array_from_single_device_arrays pmap shard_map"""
MODULES: dict[str, dict[str, Any]] = {
    "jax": {
        **_of(PLACEMENT, _MAKING), **_of(sharding, "make_mesh set_mesh NamedSharding Shard"),
        "P": sharding.PartitionSpec, "Device": Device,
        "reshard": PLACEMENT.with_sharding_constraint, "devices": devices,
        "local_devices": local_devices, "default_backend": lambda: "cpu",
        "device_count": lambda backend=None: len(devices(backend)),
        "local_device_count": lambda backend=None: len(local_devices(backend=backend)),
        "process_index": lambda backend=None: inventory.world()[0],
        "process_count": lambda backend=None: inventory.world()[1],
        "process_indices": lambda backend=None: list(range(inventory.world()[1])),
    },
    "lax": {**_of(PLACEMENT, "with_sharding_constraint"), "pcast": pcast},
    "sharding": {
        **_of(sharding, "AxisType Mesh NamedSharding PartitionSpec Sharding SingleDeviceSharding"),
        **_of(sharding, "get_mesh set_mesh use_mesh"), "AbstractMesh": sharding.Mesh,
        "get_abstract_mesh": sharding.get_mesh, "reshard": PLACEMENT.with_sharding_constraint,
    },
    "debug": {f.__name__: f for f in (visualize_array_sharding, visualize_sharding)},
    "experimental.shard_map": {"shard_map": shard_map_old},
    "experimental.mesh_utils": {"create_device_mesh": create_device_mesh},
    "experimental.multihost_utils": _of(PLACEMENT, _HOSTS),
    "experimental.pjit": {"pjit": jit},
    "distributed": {
        "initialize": initialize, "shutdown": dist.destroy_process_group,
        **_of(dist, "is_initialized"),
    },
}  # fmt: skip
