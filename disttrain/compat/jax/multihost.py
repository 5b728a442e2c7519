"""``jax.experimental.multihost_utils`` and ``jax.distributed``: what processes tell each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import distributed as dist
from . import devices as place
from . import sharding as lies
from . import tree
from .array import Array, unwrap, wrap

_registry = tree.default_registry


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, local_device_ids: Any = None, **_: Any,
) -> None:  # fmt: skip
    """Let the processes meet: as the launcher says, or at ``coordinator_address``."""
    if dist.is_initialized():
        raise RuntimeError("distributed.initialize should only be called once.")
    if coordinator_address is None:
        place.world()
        return
    if num_processes is None or process_id is None:
        raise ValueError(
            "Number of processes must be defined."
            if num_processes is None
            else "The process id of the current process must be defined."
        )
    dist.init_process_group(
        init_method=f"tcp://{coordinator_address}", world_size=num_processes, rank=process_id
    )


def shutdown() -> None:
    """Leave the processes' group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def is_initialized() -> bool:
    """Whether the processes have met."""
    return dist.is_initialized()


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here, at the same ``name``."""
    assert_equal(name, f"sync_global_devices name mismatch ('{name}')")


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise where a process brings other values than the first."""
    mine = [np.asarray(x).tolist() for x in _registry.flatten(in_tree)[0]]
    found = _everybody(mine)
    if found[0] != mine:
        raise AssertionError(f"{fail_message} Expected: {found[0]}; got: {mine}.")


def _everybody(value: Any) -> list:
    if not place.spread():
        return [value]
    found: list = [None] * place.process_count()
    dist.all_gather_object(found, value)
    return found


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of the source (the first process), for all."""
    leaves, form = _registry.flatten(in_tree)
    source = place.process_index() == 0 if is_source is None else is_source
    found = _everybody([np.asarray(x) for x in leaves] if source else None)
    values = next(v for v in found if v is not None)
    return form.build(iter(values))


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The values of all processes: of what lies on devices of several the whole; of others stacked,
    or (``tiled``) one behind the other."""
    return tree.tree_map(lambda x: _gathered(x, tiled), in_tree)


def _gathered(x: Any, tiled: bool) -> np.ndarray:
    if isinstance(x, Array) and not lies.sharding_of(x).is_fully_addressable:
        return x._value.full_tensor().detach().numpy()  # type: ignore[attr-defined]
    parts = _everybody(np.asarray(x))
    if tiled and parts[0].ndim:
        return np.concatenate(parts)
    return np.stack(parts)


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """Arrays over all processes of what each has of them."""
    leaves, form = _registry.flatten(local_inputs)
    specs = tree.prefix_leaves(pspecs, local_inputs, "pspecs")
    found = [
        lies.make_array_from_process_local_data(lies.NamedSharding(global_mesh, s), np.asarray(x))
        for x, s in zip(leaves, specs, strict=True)
    ]
    return form.build(iter(found))


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """What this process has of arrays over all processes."""

    def local(x: Array) -> Array:
        value = x._value
        return wrap(value.to_local()) if hasattr(value, "to_local") else wrap(unwrap(x))

    return tree.tree_map(local, global_inputs)
