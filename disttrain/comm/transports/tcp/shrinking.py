"""A default group between hosts goes on without the ranks that have failed.

The links between those that are left stay as they are: over them, and to ranks of their own host
through shared memory, they agree on who goes on (``agreement``). No store is asked, so that its
host may be the one that is lost. Then every host's segment is seen under the new numbers, as on one
host (``comm.survivors``), and so is the launcher's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from .... import context
from ....errors import CommError
from ...calls.header import name_ranks
from ...meeting import survivors
from ..shm.channel import last_word
from ..shm.deadlock import GONE
from ..shm.shrinking import certain_ends
from .agreement import Agreement, Decision, Word, decode
from .mirror import NetHub
from .net import Net
from .plans import Layout, layout_of


class Leaving:
    """What a rank that leaves its groups keeps, until all have agreed."""

    def __init__(self, hub: NetHub) -> None:
        view = hub.view
        me, number = view.members[hub.rank], view.round + 1
        start = max(view.start, last_word(hub.buffer, view.comm_area(hub.rank)[0]))
        last = Decision(view.round, tuple(view.members), view.start) if view.round else None
        self.agreement = Agreement(me, tuple(view.members), number, start, last)
        self.told: Word | None = None


def leave_and_agree(
    hub: NetHub, timeout: float, exclude: Collection[int]
) -> tuple[survivors.View, Net, Layout]:
    """Leave all groups of ``hub``, and agree with the other ranks on who goes on, but not those of
    ``exclude``: how they see the job, this rank's links to them, and where they are."""
    before = hub.view
    decided = _agree(hub, timeout, exclude)
    members = list(decided.members)
    _record(before.base, decided.number, members, decided.start)
    view = survivors.View(before.base, members, decided.number, decided.start)
    order = [before.members.index(r) for r in members]
    layout = layout_of([str(hub.layout.host_of[r]) for r in order])
    hub.owns_segment = False
    with hub.lock:
        net = hub.net.hand_over(view, layout.host_of)
    if hub.net.job is not None:
        net.job = _recorded(survivors.as_view(hub.net.job), order)
    return view, net, layout


def _recorded(job: survivors.View, order: list[int]) -> survivors.View:
    """The launcher's segment, in which it is seen who the members are."""
    members = [job.members[r] for r in order]
    number = job.round + 1
    start = max(last_word(job.buffer, job.base.comm_area(r)[0]) for r in members)
    _record(job.base, number, members, start)
    return survivors.View(job.base, members, number, job.base.rounds[survivors.START])


def _record(base: survivors.Segment, number: int, members: list[int], start: int) -> None:
    """What all members know is decided, in what those of this host share."""

    def choose() -> tuple[list[int], int]:
        for rank in members:
            if not base.slot(rank).pid:  # of another host: what was said of it was no more than
                base.slot(rank).lose(False)  # that its links are silent, since it is a member
        return members, start

    context.wait_until(
        lambda: survivors.decide(base, number, choose), lambda: "shrink: another rank of this host"
    )


def _agree(hub: NetHub, timeout: float, exclude: Collection[int]) -> Decision:
    for rank in range(hub.size):  # so that whoever still waits hears why
        if rank in hub.mates and hub.detector.has_vanished(rank):
            hub.segment.publish_failure(rank, GONE)
    hub.given_back += hub.open
    watch = hub.give_watch()
    hub.leave_groups()
    leaving = hub.leaving = hub.leaving or Leaving(hub)
    members, agreement, net = hub.view.members, leaving.agreement, hub.net
    has_ended = certain_ends(hub.view, watch)
    for rank in exclude:
        agreement.lose(members[rank], sure=True)

    def go_on() -> None:
        for rank, number in enumerate(members):
            if rank == hub.rank:
                continue
            word = _heard(hub, rank)
            if word is not None:
                agreement.hear(number, word)
            if rank in hub.mates and (has_ended(rank) or _lost_for_launcher(hub, rank)):
                agreement.lose(number, sure=True)
                continue
            known = rank in net.sure or _lost_for_launcher(hub, rank)
            if rank in net.pipes and (known or not net.pipes[rank].open):
                agreement.lose(number, known)
        agreement.settle()
        word = agreement.word()
        if word != leaving.told:
            leaving.told = word
            _tell(hub, word)

    def is_over() -> bool:
        with hub.lock:
            net.advance()
            net.beat()
            go_on()
        return agreement.decision is not None or agreement.excluded or agreement.refused

    def what() -> str:
        return f"shrink: {name_ranks(agreement.missing())} to call shrink() too, or to end"

    try:
        context.wait_until(is_over, what, timeout, lambda seconds: net.block(seconds, is_over))
    finally:
        if watch is not None:
            watch.close()
    if agreement.decision is None:
        raise _refusal(hub, agreement)
    return agreement.decision


def _refusal(hub: NetHub, agreement: Agreement) -> CommError:
    """Why this rank may not go on."""
    if agreement.excluded:
        return CommError(f"shrink: {hub.why_excluded()}")
    silent = sorted(agreement.lost - agreement.sure)
    here = [r for r in agreement.ranks if r not in agreement.lost]
    return CommError(
        f"shrink: {name_ranks(silent)} cannot be reached, but may live behind a network that is "
        f"cut, and go on there: so {name_ranks(here)} of {len(agreement.ranks)}, which are not "
        "most of them, must not. Restart the job, from its last checkpoint"
    )


def _heard(hub: NetHub, rank: int) -> Word | None:
    """What a rank has said last."""
    if rank not in hub.mates:
        return hub.net.said.get(rank)
    with contextlib.suppress(ValueError):
        return decode(hub.view.slot(rank).said, hub.view.base.num_ranks)
    return None


def _lost_for_launcher(hub: NetHub, rank: int) -> bool:
    job = hub.net.job
    return job is not None and job.slot(rank).lost


def _tell(hub: NetHub, word: Word) -> None:
    base = hub.view.base
    rounds, data = base.rounds, word.encode(base.num_ranks)
    base.slot(hub.view.members[hub.rank]).say(data)
    rounds[survivors.WANTED] = max(rounds[survivors.WANTED], word.round)
    hub.net.tell_word(data)
