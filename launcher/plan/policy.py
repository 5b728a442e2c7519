"""What to do when something happens: a pure state machine. ``agent`` performs its actions.

A rank that fails ends the job: the others learn of it through the segment and get ``grace`` seconds
to report for themselves (longer where many wait for each processor), then SIGTERM, then SIGKILL. A
signal to the launcher is passed on and the ranks get ``shutdown_timeout`` seconds; a second one
kills at once.

With ``min_ranks`` a failure ends the job only once fewer ranks are left; the others go on by
themselves (``shrink``), and what they have overcome is no failure of the job. With ``anew`` (the
job's restarts) a rank that has failed so is started anew, and joins them.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Collection
from dataclasses import dataclass, field

from .inactivity import CODE
from .restarts import Restarts

GRACE = 0.3  # for the others to notice a failure and say so
HURRY = 0.02  # the same where the job begins again, which takes no time to read what others say
TERM_GRACE = 0.25  # from SIGTERM to SIGKILL after a failure
# A scheduler sends SIGTERM to every process of a job at once, and we pass on what we get: only what
# comes later is a second one. Nobody but people sends SIGINT.
DOUBLED: dict[int, float] = {signal.SIGINT: 0.0, signal.SIGTERM: 1.0}  # seconds
REAP = 2.0  # a killed process that does not go is reported, not waited for


@dataclass(frozen=True)
class Exit:
    """How a rank ended. ``code`` as a shell would say it: 128 + N after signal N."""

    rank: int
    code: int
    at: float
    signal: int = 0

    @property
    def failed(self) -> bool:
        return self.code != 0


@dataclass(frozen=True)
class Signal:
    """Send ``number`` to every rank that still runs, or to ``rank`` alone."""

    number: int
    rank: int | None = None


@dataclass(frozen=True)
class Begin:
    """Start ``rank`` anew."""

    rank: int


Action = Signal | Begin


@dataclass
class Policy:
    """The state of one attempt. Methods take an event and the time, and return actions."""

    num_ranks: int
    shutdown_timeout: float = 5.0
    min_ranks: int = 0  # 0: all
    elsewhere: int = 0  # ranks of other nodes that have not failed
    grace: float = GRACE
    crowd: float = 1.0  # how many threads there are for each processor of the machine
    exits: list[Exit] = field(default_factory=list)
    stopped_by: int = 0  # the signal that ended the job, if one did
    superseded: bool = False  # the job goes on, or ends, without this generation
    fenced: bool = False  # ... and may be doing so already
    anew: Restarts | None = None  # None: no rank is started anew while others go on
    replaced: list[Exit] = field(default_factory=list)  # whose ranks were started anew
    away: set[int] = field(default_factory=set)  # ranks that the others go on without, for now
    _due: dict[int, tuple[float, Exit]] = field(default_factory=dict)  # when they begin anew
    _stopped_at: float = 0.0
    _steps: list[tuple[float, int]] = field(default_factory=list)  # (when, signal to send)
    _held: float = math.inf  # since when people look at a rank in the debugger, and time stands
    _waits: bool = False  # the end of a superseded generation does, too, until they have looked

    def exited(self, event: Exit, ran: float = 0.0, operations: int = 0) -> list[Action]:
        """A rank has ended, after ``ran`` seconds and so many operations of its groups."""
        if event.failed and self._begins_anew(event, ran, operations):
            return []
        self.exits.append(event)
        self.away.discard(event.rank)
        over = self.stopped_by or self.superseded
        if event.failed and self._too_few() and not self._steps and not over:
            self._end_all(event.at)
        if self.away and len(self.exits) + len(self.away) == self.num_ranks:
            return self._give_up_those_away()  # nobody is left whom they could join
        return []

    def _begins_anew(self, event: Exit, ran: float, operations: int) -> bool:
        if self.anew is None or self.stopped_by or self._steps:
            return False
        gone = len([e for e in self.exits if e.failed]) + len(self.away | {event.rank})
        ended_well = any(not e.failed for e in self.exits)
        left = self.num_ranks - gone + (self.elsewhere if self.min_ranks else 0)
        if left < (self.min_ranks or self.num_ranks) or ended_well:
            return False
        wait = self.anew.another(ran, operations)
        if wait is None:
            return False
        self.away.add(event.rank)
        self._due[event.rank] = (event.at + wait, event)
        return True

    def joined(self, rank: int) -> None:
        """A rank that was started anew is one of the others now."""
        self.away.discard(rank)

    def _give_up_those_away(self) -> list[Action]:
        """Nobody waits for them any more."""
        self.exits += [event for _, event in self._due.values()]
        running = self.away - self._due.keys()
        self.away = running
        self._due = {}
        return [Signal(signal.SIGKILL, rank) for rank in sorted(running)]

    def _too_few(self) -> bool:
        left = self.num_ranks - self.num_lost
        if not self.min_ranks:
            return left < self.num_ranks
        return left + self.elsewhere < self.min_ranks

    @property
    def num_lost(self) -> int:
        """Ranks without which the others go on, or would."""
        return sum(e.failed for e in self.exits) + len(self.away)

    def left_elsewhere(self, ranks: int, now: float) -> None:
        """So many ranks of other nodes have not failed: together there may be too few now."""
        self.elsewhere = ranks
        if self.num_lost and self._too_few() and not (
            self._steps or self.stopped_by or self.superseded
        ):  # fmt: skip
            self._end_all(now)

    def _end_all(self, now: float) -> None:
        """Too few are left: those that still run may say so, and are ended."""
        self._give_up_those_away()
        term = min(now, self._held) + self.grace * self.crowd
        self._steps = [(term, signal.SIGTERM), (term + TERM_GRACE, signal.SIGKILL)]

    def lost(self, rank: int) -> list[Action]:
        """A rank was stopped for too long. It must do nothing more before others hear of that."""
        return [Signal(signal.SIGKILL, rank)]

    def signalled(self, number: int, now: float) -> list[Action]:
        """The launcher got a signal."""
        if self.stopped_by and number in DOUBLED:
            if now - self._stopped_at < DOUBLED[number]:
                return []
            self._steps = []
            return [Signal(signal.SIGKILL)]
        if not self.stopped_by:
            self.stopped_by, self._stopped_at = number, now
        self._give_up_those_away()
        self._steps = [(now + self.shutdown_timeout, signal.SIGKILL)]
        return [Signal(number)]

    def unheard(self, now: float) -> list[Action]:
        """Nobody reads the ranks' outputs any more: the job ends as others do that SIGPIPE ends."""
        if self.stopped_by or self._steps:
            return []
        self.stopped_by, self._stopped_at = signal.SIGPIPE, now
        self._give_up_those_away()
        self._steps = [(now + self.shutdown_timeout, signal.SIGKILL)]
        return [Signal(signal.SIGTERM)]

    def supersede(
        self, now: float, patient: bool, saving: bool = False, waits: bool = False
    ) -> list[Action]:
        """Something elsewhere ends this generation: its ranks are of no more use. ``patient``: they
        may notice by themselves, and say so. ``saving``: all ranks of the job are about to save
        since a node was asked to end; these have as long as that one's. ``waits``: until nobody
        looks at one of them in the debugger any more; may be taken back."""
        self._waits = waits and (self._waits or not self.superseded)
        if self.superseded or self.stopped_by:
            return []
        self.superseded = True
        self._give_up_those_away()
        began = min(now, self._held) if waits else now
        term = began + self.grace * self.crowd * patient
        kill = began + self.shutdown_timeout if saving else term + TERM_GRACE
        self._steps = [(term, signal.SIGTERM), (kill, signal.SIGKILL)]
        return [] if waits else self.tick(now)

    def fence(self) -> list[Action]:
        """Ranks elsewhere may soon begin in the place of these, whatever time they were given."""
        if self.fenced:
            return []
        self.fenced, self.superseded = True, self.superseded or not self.stopped_by
        self._waits = False
        self._give_up_those_away()
        self._steps = []
        return [Signal(signal.SIGKILL)]

    def orphaned(self) -> list[Action]:
        """Who started us is gone."""
        self.stopped_by = self.stopped_by or signal.SIGKILL
        self._give_up_those_away()
        self._steps = []
        return [Signal(signal.SIGKILL)]

    @property
    def can_wait(self) -> bool:
        """May what is due wait, since people look at a rank in the debugger?"""
        return not self.stopped_by and (self._waits or not self.superseded)

    def hold(self, now: float) -> None:
        """Time stands still from now on: what is due waits, where it can."""
        self._held = now

    def go_on(self, now: float) -> None:
        """Time goes on: what has waited has the time back that it had left."""
        held, self._held = self._held, math.inf
        if self.can_wait and held < now:
            self._steps = [(when + now - held, number) for when, number in self._steps]

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        due: list[Action] = [Signal(number) for when, number in self._steps if when <= now]
        for rank in [r for r, (when, _) in self._due.items() if when <= now]:
            self.replaced.append(self._due.pop(rank)[1])
            due.append(Begin(rank))
        self._steps = [(when, number) for when, number in self._steps if when > now]
        return due

    @property
    def next_tick(self) -> float | None:
        """When ``tick`` wants to be called."""
        begins = [when for when, _ in self._due.values()]
        return min([*begins, *(when for when, _ in self._steps)], default=None)

    @property
    def over(self) -> bool:
        return len(self.exits) == self.num_ranks

    @property
    def failed(self) -> bool:
        return bool(self.stopped_by) or self._too_few()


def overcome(
    exits: list[Exit], members: Collection[int], min_ranks: int, elsewhere: int = 0
) -> set[int]:
    """The ranks whose failure is none of the job, where enough of its last ``members`` have ended
    well: who is no member, since the others have gone on without it; and a member that was killed
    when nobody needed it any more. ``elsewhere``: ranks of other nodes that have not failed; with
    them ranks here may all be missing."""
    if elsewhere and all(e.failed for e in exits):
        return {e.rank for e in exits} if 0 < min_ranks <= elsewhere else set()
    well = elsewhere + sum(e.rank in members and not e.failed for e in exits)
    if not 0 < min_ranks <= well:
        return set()
    return {e.rank for e in exits if e.rank not in members or e.signal or e.code == CODE}


def root_cause(
    exits: list[Exit], echoes: set[int], vanished: Collection[int] = ()
) -> tuple[Exit | None, int]:
    """What the others failed of, and the exit code of the job.

    It is the first failure that is not only the echo of another (a rank that raised PeerFailed).
    Where all are echoes, it is a rank that has ``vanished``: that ended with code 0 in the middle
    of its program. That alone is no failure; a program may end so when it is done.
    """
    failed = sorted((e for e in exits if e.failed), key=lambda e: e.at)
    if not failed:
        return None, 0
    own = [e for e in failed if e.rank not in echoes]
    if own:
        return own[0], own[0].code
    gone = sorted((e for e in exits if e.rank in vanished), key=lambda e: e.at)
    return (gone or failed)[0], failed[0].code
