"""Groups of some ranks, and who is where in them. PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ... import context, settings
from ...comm.group.arguments import members as check_members
from ...comm.meeting.meeting import Meeting
from ...comm.transports import selection
from ...core.effects import lasting
from ...core.types.device import device as Device
from ...errors import CommError, ConfigError
from .backend import Backend, default_backends
from .process_group import ProcessGroup, group_on
from .state import GroupMember, add_group, group_or_default, place_here, seconds_of, store_beside

Timeout = timedelta | float | None
_OUTSIDE = GroupMember.NON_GROUP_MEMBER


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Timeout = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: object = None,
    sort_ranks: bool = True,
    strict: bool | None = None,
) -> Any:
    """A group of some ranks (None: all), in the order of their ranks, or with ``sort_ranks=False``
    as they are given. Every rank of the world calls it, with the same list; with
    ``use_local_synchronization`` only the members need to. ``strict`` as for
    ``init_process_group`` (None: as the default group)."""
    world = group_or_default()
    wanted = selection.parse(world.backend if backend is None else backend)
    members = list(range(world.size)) if ranks is None else list(ranks)
    if sort_ranks:
        members.sort()
    seconds = None if timeout is None else seconds_of(timeout)
    if selection.is_part(wanted, world.transport):
        made: Any = world.new_group(
            members, timeout=seconds, strict=strict, members_only=use_local_synchronization
        )
    else:
        made = _beside_world(world, members, wanted, seconds, strict)
    if made is None:
        return None if use_local_synchronization else _OUTSIDE
    made.backend = made.name.backend = wanted.text
    made.group_desc = group_desc or "undefined"
    made.bound_device_id = device_id
    add_group(made)
    return made


def _beside_world(
    world: ProcessGroup,
    members: list[int],
    wanted: selection.Backend,
    seconds: float | None,
    strict: bool | None,
) -> ProcessGroup | None:
    """A group that has nothing in common with the default one but ranks: they meet once more."""
    ranks = check_members("new_group", "ranks", members, world.size)
    store = store_beside(ranks)
    if world.rank not in ranks:
        return None
    limit = world.timeout if seconds is None else seconds
    me = ranks.index(int(world.rank))
    meeting = Meeting(me, len(ranks), place_here(), limit, ranks=ranks, open_store=lambda: store)
    strict = world.strict if strict is None else strict
    return group_on(selection.connect(wanted, meeting), ranks, strict, wanted.text)


def divide_world(
    color: int | None, place: int = 0, members: Sequence[int] | None = None
) -> ProcessGroup | None:
    """Divide the world: ranks of one ``color`` become a group, in the order of ``place``. Every
    rank of the world calls it; with ``color=None`` it joins none and gets None. ``members``: as
    for ``ProcessGroup.split``."""
    made: Any = group_or_default().split(color, place, members)
    if made is not None:
        add_group(made)
    return made


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: Timeout = None,
    pg_options: object = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Divide ``parent_pg`` (None: all ranks) by lists of *its* ranks: the group of the list that
    this rank is in, None for a rank that is in none. Every rank of it calls it."""
    whole = group_or_default(parent_pg)
    lists = [sorted(ranks) for ranks in split_ranks or ()]
    if not lists or not all(lists):
        raise ConfigError(
            "split_group: the split group cannot be empty; needed is split_ranks= with one or more "
            "lists of ranks of the parent group"
        )
    for ranks in lists:
        if len(ranks) > whole.size:
            raise ConfigError(
                "split_group: the split group's size should be less or equal to the world_size "
                f"({whole.size}): {ranks} given"
            )
        check_members("split_group", "split_ranks", ranks, whole.size)
    color = next((i for i, ranks in enumerate(lists) if whole.rank in ranks), None)
    mine = None if color is None else lists[color]
    made: Any = whole.split(color, 0 if mine is None else mine.index(int(whole.rank)), mine)
    if made is None:
        return None
    if timeout is not None:
        made.timeout = seconds_of(timeout)
    made.group_desc = group_desc or f"{whole.group_desc}:split"
    add_group(made)
    return made


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: Timeout = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Divide ``group`` (None: all ranks) into groups of ``group_size`` neighbouring ranks (None:
    the ranks of a host): (this rank's, all of them). Every rank of the world calls it."""
    ranks = get_process_group_ranks(group)
    size = context.current().local_world_size if group_size is None else group_size
    if size <= 0:
        raise ConfigError(f"The arg 'group_size' ({size}) must be positive")
    if len(ranks) < size:
        raise ConfigError(
            f"The arg 'group_size' ({size}) must not exceed the world size ({len(ranks)})"
        )
    if len(ranks) % size:
        raise ConfigError(f"The world size ({len(ranks)}) must be divisible by 'group_size={size}'")
    lists = [ranks[i : i + size] for i in range(0, len(ranks), size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]] | None,
    timeout: Timeout = None,
    backend: str | None = None,
    pg_options: object = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of the ranks of each list, which have none in common: (this rank's or None, all of
    them). Every rank of the world calls it."""
    lists = [list(ranks) for ranks in ranks_per_subgroup_list or ()]
    if not lists:
        raise ConfigError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: dict[int, list[int]] = {}
    for ranks in lists:
        for rank in ranks:
            if rank in seen:
                raise ConfigError(
                    f"Rank {rank} has appeared in both subgroup {seen[rank]} and {ranks}"
                )
            seen[rank] = ranks
    groups = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in lists
    ]
    me = get_rank()
    return next((g for g, ranks in zip(groups, lists) if me in ranks), None), groups


@lasting
def get_rank(group: ProcessGroup | None = None) -> int:
    """This rank's number in ``group`` (-1 for an outsider)."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else int(group_or_default(group).rank)


@lasting
def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of ranks in ``group``."""
    return -1 if group is GroupMember.NON_GROUP_MEMBER else int(group_or_default(group).size)


@lasting
def get_backend(group: ProcessGroup | None = None) -> str:
    """The backend that the group was made with, as the program named it, in lower case;
    "undefined" where it named none."""
    return Backend(group_or_default(group).backend)


@lasting
def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The backend of each device: "cpu:gloo,cuda:nccl"."""
    return selection.parse(group_or_default(group).backend).config


@lasting
def is_backend_available(backend: str) -> bool:
    """Whether groups can be made with ``backend`` (also "cpu:gloo,cuda:nccl") in this process."""
    if ":" not in backend:
        return selection.missing(backend.lower()) is None
    return all(selection.missing(name) is None for _, name in selection.parse(backend).pairs)


@lasting
def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This rank's number on its host: what the launcher says, or ``fallback_rank``."""
    if (told := settings.LOCAL_RANK.said()) is not None:
        return int(told)
    me = context.current()
    if me.world_size > 1 and me.local_world_size > 1:
        return me.local_rank
    if fallback_rank is not None:
        return int(fallback_rank)
    raise CommError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to work, or start the program with dtrun"
    )


@lasting
def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the world of rank ``group_rank`` of ``group``."""
    whole = group_or_default(group)
    if not 0 <= group_rank < whole.size:
        raise ConfigError(f"Group rank {group_rank} is not part of group {whole}")
    return whole.ranks[group_rank]


@lasting
def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in ``group`` of the world's rank ``global_rank``."""
    whole = group_or_default(group)
    if global_rank not in whole.ranks:
        raise ConfigError(f"Global rank {global_rank} is not part of group {whole}")
    return whole.ranks.index(global_rank)


@lasting
def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """The members' ranks in the world, in the order of their ranks in ``group``."""
    return list(group_or_default(group).ranks)


@lasting
def get_default_backend_for_device(device: str) -> str:
    """The backend that arrays of ``device`` get where a program names none."""
    kind = device.type if isinstance(device, Device) else Device(device).type
    known = default_backends()
    if kind not in known:
        raise ConfigError(f"Default backend not registered for device : {device}")
    return known[kind]


@lasting
def is_torchelastic_launched() -> bool:
    """Whether a launcher with torchrun's environment started this process."""
    return settings.RUN_ID.said() is not None


@lasting
def is_gloo_available() -> bool:
    """Whether groups with the backend gloo (here: shared memory and sockets) can be made here."""
    return selection.missing("gloo") is None


@lasting
def is_nccl_available() -> bool:
    """Whether groups with the backend NCCL can be made here."""
    return selection.missing("nccl") is None


@lasting
def is_mpi_available() -> bool:
    """Whether groups with the backend MPI can be made here."""
    return selection.missing("mpi") is None


@lasting
def is_ucc_available() -> bool:
    """Whether groups with the backend UCC (there is none here) can be made here."""
    return selection.missing("ucc") is None


@lasting
def is_xccl_available() -> bool:
    """Whether groups with the backend XCCL (there is none here) can be made here."""
    return selection.missing("xccl") is None
