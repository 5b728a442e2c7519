"""The names of meshes, shardings and functions over devices, by the module of JAX that has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import devices, multihost, sharding, spmd


def create_device_mesh(mesh_shape: Sequence[int], devices: Any = None, **_: Any) -> np.ndarray:
    """The devices (all of them) in a grid."""
    known = list(sharding.place.devices() if devices is None else devices)
    if math.prod(mesh_shape) != len(known):
        raise ValueError(
            f"Number of devices {len(known)} must equal the product of mesh_shape "
            f"{tuple(mesh_shape)}"
        )
    grid = np.empty(len(known), object)
    grid[:] = known
    return grid.reshape(tuple(mesh_shape))


_TYPES = ("AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding", "SingleDeviceSharding")
_CONTEXTS = ("get_mesh", "set_mesh", "use_mesh")
_MADE = (
    "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "make_mesh", "set_mesh",
)  # fmt: skip
_HOSTS = (
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
    "host_local_array_to_global_array", "process_allgather", "sync_global_devices",
)  # fmt: skip

MODULES: dict[str, dict[str, Any]] = {
    "jax": {
        **devices.NAMES, **{n: getattr(sharding, n) for n in _MADE}, "pmap": spmd.pmap,
        "shard_map": spmd.shard_map, "P": sharding.P, "NamedSharding": sharding.NamedSharding,
        "reshard": sharding.with_sharding_constraint, "Device": devices.Device,
    },
    "jax.lax": {"with_sharding_constraint": sharding.with_sharding_constraint},
    "jax.sharding": {
        **{n: getattr(sharding, n) for n in (*_TYPES, *_CONTEXTS)}, "AbstractMesh": sharding.Mesh,
        "get_abstract_mesh": sharding.get_mesh, "reshard": sharding.with_sharding_constraint,
    },
    "jax.experimental.shard_map": {"shard_map": spmd.shard_map_old},
    "jax.experimental.mesh_utils": {"create_device_mesh": create_device_mesh},
    "jax.experimental.multihost_utils": {n: getattr(multihost, n) for n in _HOSTS},
    "jax.experimental.pjit": {"pjit": spmd.jit},
    "jax.distributed": {n: getattr(multihost, n) for n in ("initialize", "is_initialized", "shutdown")},
}  # fmt: skip
