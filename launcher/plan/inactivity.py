"""What the launcher makes of ranks that do not move: a pure judge; ``agent`` looks and performs.

A rank that was stopped for ``limit`` seconds is lost: nothing but a signal from outside would let
it go on, and all others wait for it. Where every rank is stopped, somebody means the whole job
(a scheduler that suspends it), and nobody waits for anybody: that is told, not ended. So are ranks
in the hands of a debugger, or of a disk. A node sees its own ranks alone, so nodes tell each other
how theirs stand.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from disttrain.liveness import LOOK_EVERY, STATES, STOPPED_LIMIT, Sample, Stillness, told

CODE = 128 + signal.SIGSTOP  # of a job that ends since a rank was stopped
_WARN_AFTER = {"T": 0.5, "t": 3.0, "D": 3.0}  # seconds
_WARN_AGAIN = 60.0
_NEWS = 2.0  # seconds by which all ranks of other nodes may be known to be stopped, too


@dataclass(frozen=True)
class Standing:
    """How the ranks of one node stand. ``stopped``: all of them. ``stalled``: for long, all have
    waited but ``busy``, which has not (-1: all of them). ``debugged``: which are in the debugger,
    for people. ``lost``: so many have failed, and the others may go on without them
    (``--min-ranks``)."""

    stopped: bool = False
    stalled: bool = False
    busy: int = -1
    debugged: str = ""
    lost: int = 0


def moves(others: Iterable[Standing]) -> bool:
    """Is there a rank on other nodes that is not stopped, which waits for those here?"""
    return any(not standing.stopped for standing in others)


def awaited(all_nodes: Iterable[Standing]) -> int:
    """The rank that all others of the job have waited for, for long; -1: there is none."""
    known = list(all_nodes)
    busy = [standing.busy for standing in known if standing.busy >= 0]
    return busy[0] if len(busy) == 1 and all(s.stalled for s in known) else -1


@dataclass
class Judge:
    """Takes in looks at the processes of one node's ranks. ``limit`` 0: no rank is ever lost.
    ``others_move``: there are ranks on other nodes, and not all of them are stopped."""

    num_ranks: int
    limit: float = STOPPED_LIMIT
    next_look: float = 0.0
    others_move: bool = False
    all_stopped: bool = False  # at the last look
    _stillness: Stillness = field(default_factory=Stillness)
    _warned: dict[int, float] = field(default_factory=dict)

    def look(
        self, now: float, samples: Mapping[int, Sample]
    ) -> tuple[list[str], dict[int, tuple[str, float]]]:
        """(warnings, lost ranks with the state that they are in and for how long)."""
        self.next_look = now + LOOK_EVERY
        self._stillness.look(now, samples)
        still = {rank: self._stillness.still(rank) for rank in samples}
        stopped = {rank for rank, (state, _) in still.items() if state == "T"}
        self.all_stopped = len(stopped) == self.num_ranks
        everybody = self.all_stopped and not self.others_move
        warnings = [self._warning(r, *still[r], everybody) for r in sorted(still) if
                    self._is_due(r, *still[r], now)]  # fmt: skip
        if everybody:
            return warnings[:1], {}
        limit = self.limit + _NEWS * self.all_stopped
        over = {r for r in stopped if self.limit and still[r][1] >= limit}
        return warnings, {rank: still[rank] for rank in over}

    def _is_due(self, rank: int, state: str, seconds: float, now: float) -> bool:
        if not state or seconds < _WARN_AFTER[state]:
            return False
        if now < self._warned.get(rank, now):
            return False
        self._warned[rank] = now + _WARN_AGAIN
        return True

    def _warning(self, rank: int, state: str, seconds: float, everybody: bool) -> str:
        if everybody:
            return "all ranks are stopped: the job goes on when they do (kill -CONT)"
        text = f"rank {rank} does not move: {STATES[state]} for {seconds:.1f} s; others wait for it"
        if state == "T" and self.limit:
            text += f". It is lost after {self.limit:g} s"
        return text


def cause(pid: int, state: str, seconds: float) -> str:
    """Why a lost rank has failed."""
    return f"{told(pid, state, seconds)}, and dtrun has ended it (--stopped-timeout)"
