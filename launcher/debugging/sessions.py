"""Ranks that have stopped, and terminals that people sit at: who gets which. Pure.

First come, first served, for both. A terminal may be there for one rank alone (``disttrain attach
JOB RANK``), and who has let go of a rank does not get it again by itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

POST_MORTEM = "post-mortem"


@dataclass(eq=False)
class Seat:
    """A terminal. ``rank``: the only one that it is there for; ``own``: the launcher's."""

    rank: int | None = None
    own: bool = False
    willing: bool = True
    session: Session | None = None
    left: set[int] = field(default_factory=set)  # pids whose ranks it has let go of

    def fits(self, session: Session) -> bool:
        """May it have that one?"""
        if not self.willing or self.session is not None or session.pid in self.left:
            return False
        return self.rank is None or self.rank == session.rank


@dataclass(eq=False)
class Session:
    """A rank that has stopped. ``what`` has stopped it, and ``where``; ``seconds``: for so long
    nobody need come to a terminal; ``since``: nobody sits at one."""

    rank: int
    pid: int
    what: str
    where: str
    seconds: float
    since: float
    interrupts: bool = True
    seat: Seat | None = None
    granted: bool = False  # it was told that it may talk
    told: bool = False  # people were told that it waits

    @property
    def until(self) -> float:
        """When it is given up, where nobody comes."""
        return self.since + self.seconds


def assign(sessions: Iterable[Session], seats: Iterable[Seat]) -> list[tuple[Session, Seat]]:
    """Who gets which terminal now; both know it then. Who is asked for by its number goes first."""
    waiting = [s for s in sessions if s.seat is None]
    found = []
    for seat in sorted(seats, key=lambda seat: seat.rank is None):
        for session in waiting:
            if session.seat is None and seat.fits(session):
                session.seat, seat.session = seat, session
                found.append((session, seat))
                break
    return found


def told(session: Session) -> str:
    """What has happened, for people."""
    name = {"breakpoint": "is in the debugger", POST_MORTEM: "has failed, and is in the debugger"}
    at = f" at {session.where}" if session.where else ""
    return f"rank {session.rank} (pid {session.pid}) {name.get(session.what, 'was stopped')}{at}"


def invitation(session: Session, job: str) -> str:
    """How to come to it, where no terminal is there."""
    host = socket.gethostname()
    return (
        f"{told(session)}; no terminal is free here. From one on {host}: `disttrain attach {job} "
        f"{session.rank}`. No deadline of the job runs; without anybody the rank fails after "
        f"{session.seconds:g} s"
    )


def from_afar(session: Session, job: str) -> str:
    """The same for people of another node."""
    host = socket.gethostname()
    return (
        f"{told(session)} on {host} (there: `disttrain attach {job} {session.rank}`); no deadline "
        "of the job runs"
    )


GREETING = "continue goes on; quit or Ctrl-D ends the job; Ctrl-\\ lets go of the terminal"
