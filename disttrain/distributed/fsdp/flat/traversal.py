"""The units of ``FullyShardedDataParallel`` in a module, and its strategies by kind, for programs
that look."""

from __future__ import annotations

from typing import Any

from ....nn.module import Module
from ...groups.state import group_or_default
from ..settings import HYBRID, KEEPS_AFTER_FORWARD
from .build import split_by_host
from .wrapper import FullyShardedDataParallel

HYBRID_SHARDING_STRATEGIES = list(HYBRID)
NO_RESHARD_AFTER_FORWARD_STRATEGIES = list(KEEPS_AFTER_FORWARD)


def _get_fsdp_states(module: Module) -> list[Any]:
    """The wrappers in ``module``."""
    return FullyShardedDataParallel.fsdp_modules(module)


def _get_fsdp_handles(module: Module) -> list[Any]:
    """The units that have parameters."""
    return [m._handle for m in _get_fsdp_states(module) if m._handle is not None]


def _init_intra_and_inter_node_groups(global_process_group: Any, num_devices_per_node: int) -> Any:
    """(Group of the ranks of this host, group of this place on all hosts). Every rank calls it."""
    world = group_or_default(global_process_group)
    return split_by_host(world, num_devices_per_node)


__all__ = [
    "HYBRID_SHARDING_STRATEGIES",
    "NO_RESHARD_AFTER_FORWARD_STRATEGIES",
    "_get_fsdp_handles",
    "_get_fsdp_states",
    "_init_intra_and_inter_node_groups",
]
