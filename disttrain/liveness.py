"""Is a process of this machine stopped, and for how long? What /proc says, counted with care.

A process that SIGSTOP (or Ctrl-Z) has stopped holds its connections, its memory and its place in
every group, and nothing ends it: who waits for it waits for ever. So others look at its state.
What is counted is the time for which an observer has *seen* it stopped: an observer that was
stopped itself (Ctrl-Z of a whole job), or had no processor, does not count that time, and a process
that has run in between begins anew. A process that computes, however long and whoever holds its
interpreter lock, is in state R; one that waits is in S: neither is ever counted.

Knows Linux; knows nothing of ranks and jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LOOK_EVERY = 0.25  # seconds between two looks
STOPPED_LIMIT = 2.0  # seconds after which a stopped process counts as lost
STOPPED = "stopped: "  # so begins the cause of a rank that was given up, and may come back
_GAP = 2 * LOOK_EVERY  # no look counts for more than that

# States in which a process does nothing and says nothing (see proc(5)). Only the first is taken for
# a failure: a debugger knows what it does, and a disk comes back.
STATES = {
    "T": "state T (stopped)",
    "t": "state t (held by a debugger)",
    "D": "state D (waits for a disk, or is frozen)",
}


@dataclass(frozen=True)
class Sample:
    """One look at a process. ``cpu``: clock ticks that it has computed for; ``state``: ""
    when there is no such process."""

    state: str
    cpu: int = 0


def sample(pid: int) -> Sample:
    """Look at a process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return Sample("")
    return Sample(fields[0], int(fields[11]) + int(fields[12]))


@dataclass
class _Seen:
    """What was seen of one process: since its state is what it is."""

    sample: Sample
    seconds: float = 0.0


class Stillness:
    """For how long each of several processes has been seen in one state of ``STATES``."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._last: float | None = None

    def look(self, now: float, samples: Mapping[int, Sample]) -> None:
        """Take in one look at all of them; who is not in ``samples`` is forgotten."""
        passed = 0.0 if self._last is None else min(now - self._last, _GAP)
        self._last = now
        seen = {}
        for key, new in samples.items():
            if new.state not in STATES:
                continue
            old = self._seen.get(key)
            same = old is not None and (old.sample.state, old.sample.cpu) == (new.state, new.cpu)
            seen[key] = _Seen(new, old.seconds + passed if same and old is not None else 0.0)
        self._seen = seen

    def still(self, key: int) -> tuple[str, float]:
        """(state, seconds seen in it without a break); ("", 0.0) for one that moves."""
        seen = self._seen.get(key)
        return ("", 0.0) if seen is None else (seen.sample.state, seen.seconds)

    def is_lost(self, key: int) -> bool:
        """Has it been stopped for too long?"""
        state, seconds = self.still(key)
        return state == "T" and seconds >= STOPPED_LIMIT


def told(pid: int, state: str, seconds: float) -> str:
    """Why a process that does not move has failed, for people."""
    return f"{STOPPED}{STATES[state]} for {seconds:.1f} s; process {pid} got SIGSTOP, or Ctrl-Z"
