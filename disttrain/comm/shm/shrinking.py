"""A default group over shared memory goes on without the ranks that have failed.

The ranks agree in the segment (``comm.survivors``) and connect again, on flags beyond all that stand
there, so that nothing of the groups before means anything. What these had in the arenas comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from .. import survivors
from .bootstrap import Watch
from .channel import last_word
from .hub import Hub
from .mailbox import Mailbox

def leave_and_agree(hub: Hub, mailbox: Mailbox, timeout: float) -> survivors.View:
    """Leave all groups of ``hub``, and agree with the other ranks on who goes on."""
    view, groups = hub.view, tuple(hub.open)
    watch = Watch(view, hub.rank, hub.size) if hub.watches else None
    owns, hub.owns_segment = hub.owns_segment, False
    hub.close(met=False)
    try:
        agreed = survivors.agree(
            view, hub.rank, _last_word_of(view), _ends(watch), timeout
        )
    finally:
        hub.owns_segment = owns
        if watch is not None:
            watch.close()
    mailbox.abandon()
    for group in groups:
        group.abandon()
    return agreed


def _last_word_of(view: survivors.View) -> Callable[[int], int]:
    base = view.base
    return lambda rank: last_word(base.buffer, base.comm_area(rank)[0])


def _ends(watch: Watch | None) -> Callable[[int], bool]:
    """Tells whose process has ended; one that is given up, since it was stopped, is ended first:
    it may have been about to write into the memory of others."""
    if watch is None:  # a launcher does it
        return lambda rank: False

    def has_ended(rank: int) -> bool:
        watch()
        return watch.has_ended(rank)

    return has_ended
