"""Going on in the same processes when a rank has failed."""

from __future__ import annotations

from datetime import timedelta

from ..errors import CommError
from .groups import state
from .groups.new_group import new_group
from .groups.process_group import ProcessGroup

SHRINK_DEFAULT, SHRINK_ABORT = 0, 1  # PyTorch's names and values


def shrink(timeout: timedelta | float | None = None) -> list[int]:
    """Go on without the ranks that have failed: a new default group of all that are left.

    To be called by every rank that is left, where it has caught ``PeerFailed`` (or
    ``GroupRevoked``: another rank has called this first). Waits until each rank of the default
    group has called it or is lost, agrees with them on who they are, and makes a default group of
    them, which have the ranks 0, 1, ... in the order of their ranks before. Returns these: element
    i is the rank that the present rank i had, -1 for one that was started anew in the place of a
    rank that had failed (``dtrun --replace-ranks``).

    All groups of before are over, and with them their asynchronous operations and whatever was
    built on them: make new ones (a ``DistributedDataParallel`` around the same module, meshes ...).
    Arrays that were in use by an operation that has failed have any contents. A rank may have ended
    its step before the failure and another one not: compare the steps, and broadcast from the rank
    that is furthest (docs/failures.md shows how).

    The launcher ends a job of which a rank fails, unless ``dtrun --min-ranks`` allows for it.
    Raises ``WaitTimeout`` naming the ranks that have neither come nor ended within ``timeout``
    seconds (default: the group's), ``CommError`` where this rank itself was given up, where those
    that are left may not go on (between hosts, when most of the ranks are silent), or where the
    transport cannot do it.
    """
    return state.replace_world(None if timeout is None else state.seconds_of(timeout))


def shrink_group(
    ranks_to_exclude: list[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = SHRINK_DEFAULT,
    pg_options: object = None,
) -> ProcessGroup:
    """A new group of the ranks of ``group`` (None: the default one) without ``ranks_to_exclude``
    (numbers in the group), which takes its place; all others call it, these do not.

    PyTorch's name and meaning, over ``shrink``: where it is the default group, ranks get new
    numbers, and all other groups are over. It does not matter whether those that are excluded
    live; they get ``GroupRevoked`` or ``CommError`` in their next call, and ranks that have failed
    without being named are left out, too. A group of some ranks is replaced without asking the
    others; where a rank has failed, the default group is to be shrunk first. Operations in flight
    are over with either of ``shrink_flags``.
    Raises ``TypeError`` and ``ValueError`` for arguments that cannot be, ``CommError`` in a rank
    that is excluded itself.
    """
    if shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise ValueError(
            f"shrink_group: shrink_flags={shrink_flags!r}; needed is SHRINK_DEFAULT "
            f"({SHRINK_DEFAULT}) or SHRINK_ABORT ({SHRINK_ABORT})"
        )
    old, world = state.group_or_default(group), state.group_or_default()
    exclude = _excluded(ranks_to_exclude, old)
    if old is world:
        state.replace_world(None, exclude)
        return state.group_or_default()
    left = [rank for i, rank in enumerate(old.ranks) if i not in exclude]
    made = new_group(left, use_local_synchronization=True, sort_ranks=False)
    state.leave_at_once(old)
    return made


def _excluded(ranks: list | tuple, group: ProcessGroup) -> list[int]:
    """``ranks_to_exclude``, if they can be that."""
    size, where = len(group.ranks), "shrink_group: ranks_to_exclude"
    if not isinstance(ranks, list) or not all(isinstance(r, int) for r in ranks):
        raise TypeError(f"{where}={ranks!r}; needed is a list of ranks, such as [1, 3]")
    if not ranks or len(set(ranks)) < len(ranks):
        raise ValueError(f"{where}={ranks}; needed is at least one rank, each once")
    if not all(0 <= r < size for r in ranks):
        raise ValueError(f"{where}={ranks}: out of bounds; needed are ranks in [0, {size - 1}]")
    if len(ranks) == size:
        raise ValueError(f"{where}={ranks} are all ranks of the group; one must remain")
    me = group.ranks.index(state.group_or_default().rank)
    if me in ranks:
        raise CommError(
            f"{where}={ranks}: rank {me} is excluded itself; only the others call shrink_group()"
        )
    return sorted(ranks)
