"""Who sits at a terminal and is there for ranks that stop: the launcher's own, or one that
``disttrain attach`` is started at.

Knows the launcher's words and the terminal; not where the launcher was found.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Any

from . import terminal
from .wire import Message, Wire


class Client:
    """``fd``: the terminal, which is let go of in ``close``."""

    def __init__(self, wire: Wire, fd: int) -> None:
        self.wire, self.fd = wire, fd
        self.joined: terminal.Joined | None = None
        self.refused = ""  # why there is nothing to sit at
        self.ended: str | None = None  # how the rank that had the terminal has gone on

    def ask(self, rank: int | None = None, stop: bool = False) -> None:
        """Tell the launcher of the terminal: for ``rank``, or for any. ``stop`` it, where it runs.
        The launcher keeps a descriptor, so that it can mend what a killed client leaves."""
        self.wire.send("attach", [self.fd], rank=rank, stop=stop)

    @property
    def fds(self) -> list[int]:
        """What ``handle`` is to be told of when it is readable."""
        if self.joined is None:
            return [self.wire.fileno()] if self.wire.open else []
        found = [self.joined.fd, self.joined.master]
        return [*found, self.wire.fileno()] if self.wire.open else found

    def handle(self, ready: list[int]) -> None:
        """Do what is to be done about descriptors that are readable."""
        joined = self.joined
        if joined is not None and joined.fd in ready and not joined.from_terminal():
            joined.let_go = True
        if joined is not None and joined.master in ready and not joined.from_rank():
            select.select([self.wire], [], [], 0.05)  # it says next that it is over
        if self.wire.fileno() in ready:
            for message, fds in self.wire.receive():
                self._take(message, fds)
        if joined is not None and joined.let_go and self.joined is joined:
            self._end()
            self.wire.send("let go")
            self.ended = "the terminal was let go; `disttrain attach` comes back to it"
            self._say(self.ended)
        if not self.wire.open and self.joined is not None:
            self._end()
            self.ended = "the job has ended"

    def _take(self, message: Message, fds: list[int]) -> None:
        kind, text = message["kind"], str(message.get("text", ""))
        if kind == "terminal" and fds:
            self._begin(message, fds[0], text)
        elif kind == "over":
            had = self.joined is not None
            self._end()
            self.ended = text
            if had and text:
                self._say(text)
            self.wire.send("done")  # others may speak now
        elif kind == "refused" and self.ended is None:
            self.refused = text
        elif kind == "say":
            self._say(text)

    def _begin(self, message: Message, master: int, text: str) -> None:
        if not terminal.in_front(self.fd):
            os.close(master)
            self.wire.send("refuse")
            return
        pid: Any = message.get("pid")
        self.joined = terminal.Joined(self.fd, master, pid if isinstance(pid, int) else 0)
        self.ended = None
        self._say(text)

    def _say(self, text: str) -> None:
        line = f"dtrun: {text}\r\n".encode(errors="replace")
        if self.joined is not None:
            self.joined.show(line)
        elif os.isatty(self.fd):
            os.write(self.fd, line)
        else:
            sys.stderr.write(f"dtrun: {text}\n")

    def _end(self) -> None:
        joined, self.joined = self.joined, None
        if joined is not None:
            joined.close()

    def close(self) -> None:
        """Give the terminal back, and be there no more."""
        self._end()
        self.wire.close()
        os.close(self.fd)

    def serve(self) -> None:
        """Sit there until the rank goes on, or there is nothing to sit at."""
        while self.wire.open and not self.refused and self.ended is None:
            ready, _, _ = select.select(self.fds, [], [])
            self.handle(ready)
