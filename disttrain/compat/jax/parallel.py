"""The names of devices, meshes and functions over them, by the module of JAX that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import distributed as dist
from ... import func
from ...distributed.spmd import Device, hosts, inventory
from ...distributed.spmd.drawing import drawn
from ...distributed.spmd.mesh import grid_of
from . import sharding, spmd, tree
from .array import Array, unwrap, wrap

_leaves = tree.default_registry.flatten


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
    if dist.is_initialized():
        raise RuntimeError("distributed.initialize should only be called once.")
    if coordinator_address is None:
        inventory.world()
    elif num_processes is None or process_id is None:
        raise ValueError("Number of processes, and the process id, must be defined.")
    else:
        where = f"tcp://{coordinator_address}"
        dist.init_process_group(init_method=where, world_size=num_processes, rank=process_id)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise where a process brings other values than the first."""
    hosts.check_equal([np.asarray(x) for x in _leaves(in_tree)[0]], fail_message)


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here, at the same ``name``."""
    assert_equal(name, f"sync_global_devices name mismatch ('{name}')")


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of the source (the first process), for all."""
    leaves, form = _leaves(in_tree)
    return form.build(iter(hosts.from_one([np.asarray(x) for x in leaves], is_source)))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes, or the whole of what lies on devices of several."""
    return tree.tree_map(
        lambda x: hosts.gathered(x._value if isinstance(x, Array) else x, tiled), in_tree
    )


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """Arrays over all processes of what each has of them."""
    leaves, form = _leaves(local_inputs)
    specs = tree.default_registry.prefix(pspecs, local_inputs, "pspecs")
    put = sharding.make_array_from_process_local_data
    pairs = zip(leaves, specs, strict=True)
    return form.build(iter([put(sharding.NamedSharding(global_mesh, s), x) for x, s in pairs]))


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """What this process has of arrays over all processes."""
    return tree.tree_map(
        lambda x: wrap(getattr(x._value, "to_local", lambda: x._value)()), global_inputs
    )


def _of(source: Any, names: str) -> dict[str, Any]:
    return {n: getattr(source, n) for n in names.split()}


_HOSTS = (
    assert_equal, broadcast_one_to_all, global_array_to_host_local_array,
    host_local_array_to_global_array, process_allgather, sync_global_devices,
)  # fmt: skip
MODULES: dict[str, dict[str, Any]] = {
    "jax": {
        **_of(sharding, "make_array_from_callback make_array_from_process_local_data make_mesh"),
        **_of(sharding, "make_array_from_single_device_arrays set_mesh NamedSharding Shard"),
        **_of(spmd, "pmap shard_map"), "P": sharding.PartitionSpec, "Device": Device,
        "reshard": sharding.with_sharding_constraint, "devices": devices,
        "local_devices": local_devices, "default_backend": lambda: "cpu",
        "device_count": lambda backend=None: len(devices(backend)),
        "local_device_count": lambda backend=None: len(local_devices(backend=backend)),
        "process_index": lambda backend=None: inventory.world()[0],
        "process_count": lambda backend=None: inventory.world()[1],
        "process_indices": lambda backend=None: list(range(inventory.world()[1])),
    },
    "lax": {**_of(sharding, "with_sharding_constraint"), "pcast": pcast},
    "sharding": {
        **_of(sharding, "AxisType Mesh NamedSharding PartitionSpec Sharding SingleDeviceSharding"),
        **_of(sharding, "get_mesh set_mesh use_mesh"), "AbstractMesh": sharding.Mesh,
        "get_abstract_mesh": sharding.get_mesh, "reshard": sharding.with_sharding_constraint,
    },
    "debug": {f.__name__: f for f in (visualize_array_sharding, visualize_sharding)},
    "experimental.shard_map": {"shard_map": spmd.shard_map_old},
    "experimental.mesh_utils": {"create_device_mesh": create_device_mesh},
    "experimental.multihost_utils": {f.__name__: f for f in _HOSTS},
    "experimental.pjit": {"pjit": spmd.jit},
    "distributed": {
        "initialize": initialize, "shutdown": dist.destroy_process_group,
        **_of(dist, "is_initialized"),
    },
}  # fmt: skip
