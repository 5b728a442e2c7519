"""What the launcher makes of ranks that do not move: a pure judge; ``agent`` looks and performs.

A rank that was stopped for ``limit`` seconds is lost: nothing but a signal from outside would let
it go on, and all others wait for it. Where every rank is stopped, somebody means the whole job
(a scheduler that suspends it), and nobody waits for anybody: that is told, not ended. So are ranks
in the hands of a debugger, or of a disk.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from disttrain.liveness import LOOK_EVERY, STATES, STOPPED_LIMIT, Sample, Stillness, told

CODE = 128 + signal.SIGSTOP  # of a job that ends since a rank was stopped
_WARN_AFTER = {"T": 0.5, "t": 3.0, "D": 3.0}  # seconds
_WARN_AGAIN = 60.0


@dataclass
class Judge:
    """Takes in looks at the ranks' processes. ``limit`` 0: no rank is ever lost."""

    num_ranks: int
    limit: float = STOPPED_LIMIT
    next_look: float = 0.0
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
        everybody = len(stopped) == self.num_ranks
        warnings = [self._warning(r, *still[r], everybody) for r in sorted(still) if
                    self._is_due(r, *still[r], now)]  # fmt: skip
        if everybody:
            return warnings[:1], {}
        over = {r for r in stopped if self.limit and still[r][1] >= self.limit}
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
