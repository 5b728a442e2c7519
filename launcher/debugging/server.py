"""Hands terminals to ranks that have stopped in the debugger.

Ranks call here, and so do terminals: the launcher's own, which is at the other end of a pair of
sockets, and those of ``disttrain attach``. What is typed does not come by: a terminal gets the side
of the rank's pseudo-terminal at which people sit. Everything happens in the agent's selector, and
nothing here waits.
"""

from __future__ import annotations

import os
import selectors
import shlex
import socket
import time
from collections.abc import Callable
from typing import Any

from disttrain.debugger import terminal, wire

from .sessions import GREETING, POST_MORTEM, Seat, Session, assign, from_afar, invitation, told

PATIENCE = 1.0  # seconds for a terminal to be given back
SLOW = 5.0  # ... after which people hear that a rank does not stop
_UNTOLD = "that is no message of a rank or a terminal"


class Caller:
    """Who is at the other end of a wire: nobody knows it yet, a rank, or a terminal."""

    def __init__(self, line: wire.Wire, own: bool = False) -> None:
        self.line, self.own = line, own
        self.session: Session | None = None
        self.master = -1  # of a rank: the side of its terminal that is given away
        self.seat: Seat | None = None
        self.tty = -1  # of a terminal: a descriptor, to mend it
        self.settings: list[Any] | None = None
        self.returns = 0.0  # when it is taken to be given back, at the latest; 0: it is
        self.awaiting: wire.Wire | None = None  # the rank that hears of it then
        self.stopping, self.patience = 0.0, PATIENCE  # since when the rank is asked to stop


class Server:
    """``say`` tells people; ``stop(rank)`` lets a rank stop, or says why it cannot; ``held(on)``
    hears whether the launcher's own terminal is in a rank's hands. ``job``: its name."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        job: str,
        say: Callable[[str], None],
        stop: Callable[[int, bool], str],
        held: Callable[[bool], None],
    ) -> None:
        self.name = wire.fresh_name()
        self._selector, self._job = selector, shlex.quote(job)
        self._say, self._stop, self._held = say, stop, held
        self._callers: list[Caller] = []
        self._is_held = False
        self._looked = False  # at a rank that has failed, which the others need not be
        self._listener: socket.socket | None = None

    def listen(self, own: socket.socket | None = None) -> None:
        """Be there. ``own``: the way to the launcher's terminal, where it has one."""
        try:
            self._listener = wire.listen(self.name)
        except OSError as error:
            self.name = ""
            self._say(f"ranks cannot stop in the debugger: {error}")
            return
        self._selector.register(self._listener, selectors.EVENT_READ, self._come)
        if own is not None:
            self._attend(wire.Wire(own), own=True)

    @property
    def sessions(self) -> list[Session]:
        """Ranks that have stopped, the first one first."""
        return [c.session for c in self._callers if c.session is not None]

    @property
    def told(self) -> str:
        """The same for people of other nodes."""
        return "; ".join(from_afar(session, self._job) for session in self.sessions)

    def waits(self, now: float) -> list[float]:
        """After how many seconds ``tend`` is due."""
        times = [s.until for s in self.sessions if s.seat is None]
        times += [c.returns for c in self._callers if c.returns]
        times += [c.stopping + c.patience for c in self._callers if c.stopping]
        return [max(0.0, t - now) + 0.001 for t in times]

    def tend(self, now: float) -> None:
        """Time has passed, or something has happened."""
        for caller in list(self._callers):
            session = caller.session
            if session is not None and session.seat is None and now >= session.until:
                self._say(f"rank {session.rank}: nobody came to its debugger; it fails")
                caller.line.send("late")
                self._drop(caller)
            elif caller.returns and now >= caller.returns:
                self._given_back(caller)
            elif caller.stopping and now >= caller.stopping + caller.patience:
                self._insist(caller)
        self._assign(now)

    def pass_over(self) -> None:
        """A rank's failure was looked at, here or on another node; others' need not be."""
        self._looked = True
        for each in list(self._callers):
            self._pass_over(each)

    def ranks_end(self) -> None:
        """The ranks have ended, all of them."""
        self._looked = False
        for caller in list(self._callers):
            if caller.session is not None:
                self._drop(caller)
            elif caller.seat is not None and not caller.own:
                self._refuse(caller, "the job's ranks have ended")
        for caller in [c for c in self._callers if c.returns]:  # before more is shown there
            if caller.line.wait(PATIENCE):
                self._hear(caller)

    # --- callers --------------------------------------------------------------------------------

    def _come(self) -> bool:
        assert self._listener is not None
        line = wire.accept(self._listener)
        if line is not None:
            self._attend(line)
        return True

    def _attend(self, line: wire.Wire, own: bool = False) -> None:
        caller = Caller(line, own)
        self._callers.append(caller)
        self._selector.register(line.sock, selectors.EVENT_READ, lambda: self._hear(caller))

    def _hear(self, caller: Caller) -> bool:
        for message, fds in caller.line.receive():
            kept = self._take(caller, message, fds)
            for fd in fds:
                if fd not in kept:
                    os.close(fd)
        if not caller.line.open:
            self._drop(caller)
        self.tend(time.monotonic())
        return True

    def _take(self, caller: Caller, message: wire.Message, fds: list[int]) -> list[int]:
        """Do what it says; the descriptors that are kept."""
        kind, idle = message["kind"], caller.session is None and caller.seat is None
        if kind == "debug" and fds and idle:
            return self._stopped(caller, message, fds[0])
        if kind == "attach" and fds and idle:
            return self._sits(caller, message, fds[0])
        if kind == "leave" and caller.session is not None:
            self._over(caller, str(message.get("how", "goes on")))
        elif kind == "done" and caller.seat is not None:
            self._given_back(caller)
        elif kind in ("refuse", "let go") and caller.seat is not None:
            self._vacate(caller, kind == "refuse")
        else:
            caller.line.send("refused", text=_UNTOLD)
            self._drop(caller)
        return []

    def _stopped(self, caller: Caller, message: wire.Message, master: int) -> list[int]:
        """A rank has stopped."""
        try:
            caller.session = Session(
                int(message["rank"]), int(message["pid"]), str(message["what"]),
                str(message["where"]), min(max(float(message["seconds"]), 0.0), 1e9),
                time.monotonic(), bool(message["interrupts"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, OverflowError):
            self._drop(caller)
            return []
        caller.master = master
        rank = caller.session.rank
        for other in self._callers:
            if other.seat is not None and other.seat.rank == rank:
                other.stopping = 0.0
        self._pass_over(caller)
        return [master]

    def _sits(self, caller: Caller, message: wire.Message, tty: int) -> list[int]:
        """Somebody sits at a terminal."""
        rank = message.get("rank")
        known = [s.rank for s in self.sessions]
        if rank is not None and not isinstance(rank, int):
            caller.line.send("refused", text=_UNTOLD)
            return []
        if rank not in known and not caller.own:
            if isinstance(rank, int) and message.get("stop") is True:
                why = self._stop(rank, False)
            else:
                why = _nothing(rank, known, self._job)
            if why:
                caller.line.send("refused", text=why)
                return []
            caller.stopping = time.monotonic()
        taken = [s for s in self.sessions if s.rank == rank and s.seat is not None]
        if taken:
            caller.line.send("refused", text=f"rank {rank} has a terminal already")
            return []
        caller.seat = Seat(rank, caller.own)
        caller.tty, caller.settings = tty, terminal.settings_of(tty)
        return [tty]

    def _insist(self, caller: Caller) -> None:
        """A rank that was asked to stop has not: in another way, and after that in words."""
        assert caller.seat is not None and caller.seat.rank is not None
        rank = caller.seat.rank
        if caller.patience < SLOW:
            caller.patience += PATIENCE
            if why := self._stop(rank, True):
                self._refuse(caller, why)
            return
        caller.stopping = 0.0
        text = f"rank {rank} is in C code, and stops at its next line of Python; Ctrl-C gives up"
        caller.line.send("say", text=text)

    # --- ends -----------------------------------------------------------------------------------

    def _over(self, caller: Caller, how: str) -> None:
        """A rank goes on: its terminal is to be given back."""
        session = caller.session
        assert session is not None
        caller.session = None
        os.close(caller.master)
        caller.master = -1
        for other in self._callers:
            if other.seat is not None and other.seat.session is session:
                other.line.send("over", text=f"rank {session.rank} {how}")
                other.returns, other.awaiting = time.monotonic() + PATIENCE, caller.line
                break
        else:
            caller.line.send("left")
        if session.what == POST_MORTEM:
            self.pass_over()

    def _pass_over(self, caller: Caller) -> None:
        """Nobody looks at all ranks that have failed alike, one by one: the job ends."""
        session = caller.session
        waits = session is not None and session.seat is None and session.what == POST_MORTEM
        if self._looked and waits:
            self._refuse(caller, "another rank's failure was looked at before")

    def _given_back(self, caller: Caller) -> None:
        caller.returns = 0.0
        if caller.awaiting is not None:
            caller.awaiting.send("left")
            caller.awaiting = None
        if caller.seat is not None:
            caller.seat.session = None
        self._tell_held()

    def _vacate(self, caller: Caller, unwilling: bool) -> None:
        """It does not want what it was given, or no longer."""
        seat = caller.seat
        assert seat is not None
        session, seat.session = seat.session, None
        if unwilling:
            seat.willing = False
        if session is not None:
            seat.left.add(session.pid)
            session.seat, session.since = None, time.monotonic()
            session.told = False
        self._tell_held()

    def _refuse(self, caller: Caller, why: str) -> None:
        caller.line.send("refused", text=why)
        self._drop(caller)

    def _drop(self, caller: Caller) -> None:
        """It is gone, or is to go."""
        if caller not in self._callers:
            return
        self._callers.remove(caller)
        if caller.session is not None:
            self._over(caller, "has ended, or lost its debugger")
        if caller.seat is not None:
            lost = caller.seat.session is not None and not caller.returns
            if (lost or caller.returns) and caller.settings is not None:
                terminal.restore(caller.tty, caller.settings)
            self._vacate(caller, True)
            os.close(caller.tty)
            caller.seat = None
        self._selector.unregister(caller.line.sock)
        caller.line.close()

    # --- who gets which -------------------------------------------------------------------------

    def _assign(self, now: float) -> None:
        seats = [c.seat for c in self._callers if c.seat is not None]
        for session, seat in assign(self.sessions, seats):
            rank = next(c for c in self._callers if c.session is session)
            other = next(c for c in self._callers if c.seat is seat)
            pid = session.pid if session.interrupts else 0
            self._held_by(seat)
            text = f"{told(session)}. {GREETING}"
            other.line.send("terminal", [rank.master], rank=session.rank, pid=pid, text=text)
            if not session.granted:
                session.granted = True
                rank.line.send("granted")
        for session in [s for s in self.sessions if s.seat is None and not s.told]:
            session.told = True
            busy = [c for c in self._callers if c.seat is not None and c.seat.own
                    and c.seat.session is not None]  # fmt: skip
            if busy:
                session.told = True
                text = f"{told(session)}, too; it gets this terminal next"
                busy[0].line.send("say", text=text)
            else:
                self._say(invitation(session, self._job))

    def _held_by(self, seat: Seat) -> None:
        if seat.own and not self._is_held:
            self._is_held = True
            self._held(True)

    def _tell_held(self) -> None:
        own = any(c.seat is not None and c.seat.own and c.seat.session for c in self._callers)
        if self._is_held and not own:
            self._is_held = False
            self._held(False)


def _nothing(rank: int | None, known: list[int], job: str) -> str:
    """Why there is nothing to attach to."""
    here = f"in it {'is' if len(known) == 1 else 'are'} {', '.join(map(str, known))}"
    which = here if known else "no rank is"
    return f"rank {rank} is not in the debugger ({which}); `disttrain pdb {job} {rank}` stops it"
