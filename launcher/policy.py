"""What to do when something happens: a pure state machine. ``agent`` performs its actions.

A rank that fails ends the job: the others learn of it through the segment and get ``GRACE`` seconds
to report for themselves, then SIGTERM, then SIGKILL. A signal to the launcher is passed on and the
ranks get ``shutdown_timeout`` seconds; a second SIGINT kills at once.

With ``min_ranks`` a failure ends the job only once fewer ranks are left; the others go on by
themselves (``shrink``), and what they have overcome is no failure of the job.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass, field

from .stillness import CODE

GRACE = 0.3  # for the others to notice a failure and say so
TERM_GRACE = 0.25  # from SIGTERM to SIGKILL after a failure
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


@dataclass
class Policy:
    """The state of one attempt. Methods take an event and the time, and return actions."""

    num_ranks: int
    shutdown_timeout: float = 5.0
    min_ranks: int = 0  # 0: all
    exits: list[Exit] = field(default_factory=list)
    stopped_by: int = 0  # the signal that ended the job, if one did
    _steps: list[tuple[float, int]] = field(default_factory=list)  # (when, signal to send)

    def exited(self, event: Exit) -> list[Signal]:
        """A rank has ended."""
        self.exits.append(event)
        if event.failed and self._too_few() and not self._steps and not self.stopped_by:
            self._steps = [
                (event.at + GRACE, signal.SIGTERM),
                (event.at + GRACE + TERM_GRACE, signal.SIGKILL),
            ]
        return []

    def _too_few(self) -> bool:
        left = self.num_ranks - sum(e.failed for e in self.exits)
        return left < (self.min_ranks or self.num_ranks)

    def lost(self, rank: int) -> list[Signal]:
        """A rank was stopped for too long. It must do nothing more before others hear of that."""
        return [Signal(signal.SIGKILL, rank)]

    def signalled(self, number: int, now: float) -> list[Signal]:
        """The launcher got a signal."""
        if self.stopped_by and number == signal.SIGINT:
            self._steps = []
            return [Signal(signal.SIGKILL)]
        self.stopped_by = self.stopped_by or number
        self._steps = [(now + self.shutdown_timeout, signal.SIGKILL)]
        return [Signal(number)]

    def orphaned(self) -> list[Signal]:
        """Who started us is gone."""
        self.stopped_by = self.stopped_by or signal.SIGKILL
        self._steps = []
        return [Signal(signal.SIGKILL)]

    def tick(self, now: float) -> list[Signal]:
        """Time has passed."""
        due = [Signal(number) for when, number in self._steps if when <= now]
        self._steps = [(when, number) for when, number in self._steps if when > now]
        return due

    @property
    def next_tick(self) -> float | None:
        """When ``tick`` wants to be called."""
        return min((when for when, _ in self._steps), default=None)

    @property
    def over(self) -> bool:
        return len(self.exits) == self.num_ranks

    @property
    def failed(self) -> bool:
        return bool(self.stopped_by) or self._too_few()


def overcome(exits: list[Exit], members: Collection[int], min_ranks: int) -> set[int]:
    """The ranks whose failure is none of the job, where enough of its last ``members`` have ended
    well: who is no member, since the others have gone on without it; and a member that was killed
    when nobody needed it any more."""
    well = sum(e.rank in members and not e.failed for e in exits)
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
