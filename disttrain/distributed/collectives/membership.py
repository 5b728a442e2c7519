"""Who takes part in a collective, and as what: outsiders, roots, and captures that repeat it.

Knows groups; no arrays.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import context
from ...core.effects import repeated
from ...errors import ConfigError
from ...trace import warn
from ..groups.process_group import ProcessGroup
from ..groups.state import GroupMember

__outward__ = ()


def outsider(where: str, group: ProcessGroup | None) -> bool:
    """Whether this rank is not in the group that it gave; it is told, and does nothing."""
    if group is not GroupMember.NON_GROUP_MEMBER:
        return False
    warn(
        f"Running {where} on global rank {context.current().rank} which does not belong to the "
        "given group.",
    )
    return True


def done(
    fn: Callable, started: bool, group: ProcessGroup | None, *args: object, **kwargs: object
) -> bool:
    """Whether nothing is left to do: for an outsider, or as a capture has done it."""
    if outsider(fn.__name__, group):
        return True
    return bool(context.thread.stack) and repeated(fn, started, *args, group=group, **kwargs)


def root_in(
    g: ProcessGroup, what: str, rank: int | None, in_group: int | None, default: int | None = None
) -> int:
    """The rank in the group of what was given: a rank of the world, or one of the group."""
    if in_group is not None:
        if rank is not None:
            raise ConfigError(
                f"Can't specify both group_rank and global_rank: {what}={rank} and "
                f"group_{what}={in_group} were given; give one"
            )
        return in_group
    if rank is None:
        if default is None:
            raise ConfigError(
                f"Must specify global_rank or group_rank: give {what}= (a rank of the world) or "
                f"group_{what}= (a rank of the group)"
            )
        rank = default
    return g.group_rank(rank)
