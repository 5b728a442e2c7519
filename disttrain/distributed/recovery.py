"""Going on in the same processes when a rank has failed."""

from __future__ import annotations

from datetime import timedelta

from . import state


def shrink(timeout: timedelta | float | None = None) -> list[int]:
    """Go on without the ranks that have failed: a new default group of all that are left.

    To be called by every rank that is left, where it has caught ``PeerFailed`` (or
    ``GroupRevoked``: another rank has called this first). Waits until each rank of the default
    group has called it or is lost, agrees with them on who they are, and makes a default group of
    them, which have the ranks 0, 1, ... in the order of their ranks before. Returns these: element
    i is the rank that the present rank i had.

    All groups of before are over, and with them their asynchronous operations and whatever was
    built on them: make new ones (a ``DistributedDataParallel`` around the same module, meshes ...).
    Arrays that were in use by an operation that has failed have any contents. A rank may have ended
    its step before the failure and another one not: compare the steps, and broadcast from the rank
    that is furthest (docs/failures.md shows how).

    The launcher ends a job of which a rank fails, unless ``dtrun --min-ranks`` allows for it.
    Raises ``WaitTimeout`` naming the ranks that have neither come nor ended within ``timeout``
    seconds (default: the group's), ``CommError`` where this rank itself was given up, or where the
    transport cannot do it.
    """
    return state.replace_world(None if timeout is None else state.seconds_of(timeout))
