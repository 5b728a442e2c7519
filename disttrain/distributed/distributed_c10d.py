"""Names that programs take from inside PyTorch's module of this name; the public ones are those of
the package."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ..comm.calls.work import Work
from ..comm.store import PrefixStore, Store
from ..core.types.device import device as Device
from ..errors import ConfigError, WaitTimeout
from .collectives.coalesced import CoalescingManager as _CoalescingManager
from .collectives.coalesced import coalescing_manager as _coalescing_manager
from .collectives.tensors import _all_gather_base, _reduce_scatter_base
from .groups.process_group import ProcessGroup
from .groups.state import GroupMember, existing_groups, group_or_default
from .groups.state import default_store as _get_default_store
from .groups.state import process_group_store as _get_process_group_store

_Work = Work
_PYTORCHS_TIMEOUT = timedelta(minutes=30)


def _get_default_group() -> ProcessGroup:
    """The default group. Raises ``ConfigError`` where there is none."""
    found = GroupMember().WORLD
    if found is None:
        raise ConfigError(
            "Default process group has not been initialized, please make sure to call "
            "init_process_group."
        )
    return found


def _group_or_default_group(group: ProcessGroup | None = None) -> ProcessGroup:
    return _get_default_group() if group is None or group is GroupMember().WORLD else group


def _rank_not_in_group(group: int | None) -> bool:
    """Whether ``group`` is what outsiders have of a group."""
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def _get_group_size(group: ProcessGroup | None = None) -> int:
    return int(group_or_default(group).size)


def _get_process_group_name(pg: ProcessGroup) -> str:
    return str(pg.name)


def _get_default_timeout(backend: object = None) -> timedelta:
    """How long groups wait where a program does not say."""
    return _PYTORCHS_TIMEOUT


def _set_pg_timeout(timeout: timedelta, group: ProcessGroup | None = None) -> None:
    """How long the waits of ``group`` last from now on."""
    group_or_default(group).set_timeout(timeout)


def _get_pg_default_device(group: ProcessGroup | None = None) -> Device:
    """The device whose arrays a group moves."""
    group_or_default(group)
    return Device("cpu")


def _resolve_process_group(group_name: str) -> ProcessGroup:
    """The group of this rank that has this name."""
    for each in existing_groups():
        if each.name == group_name:
            return each
    raise ConfigError(f"Could not resolve the process group registered under the name {group_name}")


def _find_pg_by_ranks_and_tag(tag: str, ranks: Sequence[int]) -> ProcessGroup | None:
    """A group of exactly these ranks of the world, in this order."""
    return next((each for each in existing_groups() if each.ranks == list(ranks)), None)


def _store_based_barrier(
    rank: int,
    store: Store,
    group_name: str,
    rendezvous_count: int,
    timeout: timedelta,
    logging_interval: object = None,
) -> None:
    """Wait until ``rendezvous_count`` ranks have called it with this name."""
    part = PrefixStore(f"store_based_barrier_key:{group_name}", store)
    try:
        part.barrier("worker_count", rendezvous_count, timeout)
    except WaitTimeout as error:
        came = part.add("worker_count/num_members", 0)
        raise WaitTimeout(
            f"_store_based_barrier: rank {rank} waited {timeout} for {rendezvous_count} ranks with "
            f"the name {group_name!r}; {came} came. See why the others did not"
        ) from error


__all__ = [
    "_CoalescingManager", "_Work", "_all_gather_base", "_coalescing_manager",
    "_find_pg_by_ranks_and_tag", "_get_default_group", "_get_default_store",
    "_get_default_timeout", "_get_group_size", "_get_pg_default_device",
    "_get_process_group_name", "_get_process_group_store", "_group_or_default_group",
    "_rank_not_in_group", "_reduce_scatter_base", "_resolve_process_group", "_set_pg_timeout",
    "_store_based_barrier",
]  # fmt: skip
