"""Ranks of one job segment agree on who goes on, and see it under new numbers from then on.

The model is that of ULFM (Bland, Bouteiller, Herault, Bosilca, Dongarra: "Post-failure recovery of
MPI communication capability", 2013): who has seen a failure gives the group up for all (``wanted``:
whoever waits is told), all that live agree on who they are, and make a new group. Since all ranks
share memory, and the end of a process is known for certain, agreement is one decision:

* a rank that joins round k says so in its slot and waits until every member of round k-1 has joined
  or is lost;
* the first that sees this takes a lock (which the end of its process releases), marks the members,
  and commits by one word. Whoever comes later finds that word, and decides nothing;
* where the decider dies before the commit, the next one decides; where a member dies after it, the
  members have a failure as any other, and may go through another round.

A process that is started in the place of a lost rank takes part in the next round (``join``).
Members do not wait for it: it says that it has come, and whoever decides finds it among those that
have joined. So it costs the others nothing before it is ready.

A rank that was taken for lost and is not (it was stopped) finds a round that is decided without it,
and raises. It must not write into others' memory by then: who gives such a rank up ends it first.

Knows slots and words; no arrays, no flags of groups.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable

from ... import context
from ...errors import CommError, WaitTimeout
from ..calls.header import name_ranks
from ..job.segment import Failure, Segment, Slot

DECIDED, WANTED, START = 0, 1, 2  # words of ``Segment.rounds``


class View:
    """``base`` as its ``members`` see it, who have the numbers 0, 1, ... in that order.

    ``round``: in which they agreed on that; ``start``: where their flags begin.
    """

    def __init__(self, base: Segment, members: list[int], number: int, start: int) -> None:
        self.base, self.members, self.round, self.start = base, members, number, start
        self.num_ranks, self.epoch, self.buffer, self.fd = (
            len(members), base.epoch, base.buffer, base.fd,
        )  # fmt: skip
        self.here = range(len(members))  # all see it

    def slot(self, rank: int) -> Slot:
        return self.base.slot(self.members[rank])

    def comm_area(self, rank: int) -> tuple[int, int]:
        return self.base.comm_area(self.members[rank])

    def arena(self, rank: int) -> tuple[int, int]:
        return self.base.arena(self.members[rank])

    def failure(self) -> Failure | None:
        """The first failure of a member, under its number here."""
        failure = self.base.failure()
        if failure is None or failure.rank not in self.members:
            return None
        return Failure(self.members.index(failure.rank), failure.cause, failure.traceback)

    def publish_failure(self, rank: int, cause: str, traceback: str = "") -> None:
        self.base.publish_failure(self.members[rank], cause, traceback)

    def close(self) -> None:
        self.base.close()


def as_view(segment: Segment | View) -> View:
    """``segment``, as all of its ranks see it before any agreement."""
    if isinstance(segment, View):
        return segment
    return View(segment, list(range(segment.num_ranks)), 0, 0)


def given_up(view: View, rank: int) -> str:
    """Why nobody may wait in a group of ``view`` any more; empty while they may."""
    wanted, decided = view.base.rounds[WANTED], view.base.rounds[DECIDED]
    if wanted <= view.round:
        return ""
    if decided > view.round and view.slot(rank).member < decided:
        return (
            f"the others have gone on without this rank ({rank}), since it was taken for lost: "
            f"{view.slot(rank).error[0] or 'it did not come'}"
        )
    return "another rank has called shrink(), which all ranks of the job must call that are left"


def agree(
    view: View,
    rank: int,
    last_word: Callable[[int], int],
    is_lost: Callable[[int], bool],
    timeout: float,
) -> View:
    """Wait until all members of ``view`` that live have called this, and see the job as they do.

    ``rank``: its own number in ``view``. ``is_lost(rank)``: will that member do nothing more, for
    certain? (It is ``lost`` in its slot, then, too.) ``last_word(rank)``: beyond which value of its
    flags (of ``base``) a new group must begin. Raises ``WaitTimeout`` naming who has neither come
    nor ended, ``CommError`` where this rank was given up.
    """
    base, number = view.base, view.round + 1
    base.rounds[WANTED] = max(base.rounds[WANTED], number)
    view.slot(rank).joined = number

    def missing() -> list[int]:
        found = []
        for other in range(view.num_ranks):
            if view.slot(other).joined < number and not is_lost(other):
                found.append(other)
        return found

    def decided() -> bool:
        if base.rounds[DECIDED] >= number:
            return True
        return not missing() and decide(view.base, number, choose)

    def choose() -> tuple[list[int], int]:
        joined = [r for r in range(base.num_ranks) if base.slot(r).joined == number]
        living = [r for r in joined if not base.slot(r).lost]
        return living, max(map(last_word, living))

    def what() -> str:
        names = name_ranks([view.members[r] for r in missing()])
        return f"shrink: {names} to call shrink() too, or to end"

    try:
        context.wait_until(decided, what, timeout)
    except WaitTimeout:
        if base.rounds[DECIDED] < number:  # nobody is held by this rank any more
            view.slot(rank).joined = view.round
        raise
    members = base.members()
    me = view.members[rank]
    if base.rounds[DECIDED] != number or me not in members:
        raise CommError(f"shrink: {given_up(view, rank)}")
    return View(base, members, number, base.rounds[START])


def newcomers(view: View) -> list[int]:
    """Ranks of the job that are no members and have come to take part in the next round."""
    base, number = view.base, view.round + 1
    return [
        r
        for r in range(base.num_ranks)
        if r not in view.members and base.slot(r).joined == number and not base.slot(r).lost
    ]


def join(base: Segment, rank: int, timeout: float) -> View:
    """Become a member in the place of ``rank``, whose former process has ended. Waits until the
    others have agreed to go on without that one, and then for their next agreement.

    Raises ``WaitTimeout`` where they come to none, ``CommError`` where no member is left.
    """
    slot, rounds, joined = base.slot(rank), base.rounds, 0

    def admitted() -> bool:
        nonlocal joined
        decided = rounds[DECIDED]
        if joined and decided >= joined and slot.member >= joined:
            return True
        if slot.member < decided and joined <= decided:  # the place is free
            slot.begin_anew()
            slot.joined = joined = decided + 1
        elif all(base.slot(r).lost for r in base.members()):
            raise CommError(
                f"init_process_group: rank {rank} was started anew to go on with the others, and "
                "none of them is left; they have ended"
            )
        return False

    context.wait_until(
        admitted, lambda: f"the others to let rank {rank} take part (at their next commit)", timeout
    )
    return View(base, base.members(), rounds[DECIDED], rounds[START])


def decide(base: Segment, number: int, choose: Callable[[], tuple[list[int], int]]) -> bool:
    """Decide on round ``number``, unless somebody has or does; is it decided? ``choose()``: the
    members, and where their flags begin."""
    try:
        fcntl.lockf(base.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
    except OSError:
        return False
    try:
        if base.rounds[DECIDED] < number:
            members, base.rounds[START] = choose()
            for r in range(base.num_ranks):
                base.slot(r).member = number if r in members else 0
            base.rounds[DECIDED] = number
            base.overcome(members)
    finally:
        fcntl.lockf(base.fd, fcntl.LOCK_UN, 1, 1)
    return True
