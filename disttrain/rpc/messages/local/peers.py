"""What a local endpoint knows of one peer, and of its process."""

from __future__ import annotations

import os
import threading

import numpy as np

from ....errors import PeerFailed
from .blocks import Memory
from .frames import Garbage
from .handshake import Introduction
from .link import Link
from .process import Process
from .serving import Serving
from .waiters import Waiters


class Peer:
    """``asks``: the link for our requests and its answers, which ``waiters`` read. ``serves``: the
    link for its requests and our answers. ``lost``: why it is gone."""

    def __init__(self, number: int) -> None:
        self.number, self.address = number, ""
        self.asks: Link | None = None
        self.waiters: Waiters | None = None
        self.serves: Link | None = None
        self.serving: Serving | None = None
        self.name = b""
        self.process: Process | None = None
        self.memory: Memory | None = None
        self.lost: PeerFailed | None = None
        self.answers_over = self.requests_over = False  # all that was sent has been read
        self.connecting = threading.Lock()

    def links(self) -> list[Link]:
        return [link for link in (self.asks, self.serves) if link is not None]

    @property
    def gone(self) -> bool:
        """Whether its process has ended, so that nobody has what was lent to it."""
        return self.process is not None and self.process.ended

    def is_over(self) -> bool:
        """Whether the ends of all its links have been found."""
        return (self.answers_over or self.asks is None) and (
            self.requests_over or self.serves is None
        )

    def met(self, who: Introduction) -> None:
        """It has introduced itself, on one link or the other. Takes the descriptor over. Raises
        ``Garbage`` where it is not what it said on the other link."""
        try:
            if self.name and self.name != who.name:
                raise Garbage("two endpoints that say they are one worker")
            self.name = who.name
            if self.memory is None and who.fd >= 0:
                self.memory = Memory(who.fd)
        finally:
            if who.fd >= 0:
                os.close(who.fd)

    def find(self, at: int, nbytes: int) -> np.ndarray:
        """The part of a message that lies in its memory."""
        if self.memory is None:
            raise Garbage("a part in memory that is not shared")
        return self.memory.find(at, nbytes)

    def link_is_over(self) -> None:
        """Let go of its memory when nothing can come from there any more (arrays that were received
        keep what they need). Others still refer to this object, and to each other."""
        if all(link.over for link in self.links()):
            self.memory = None

    def how_it_ended(self, error: BaseException) -> str:
        """Why it is lost, where ``error`` is what this side noticed."""
        if isinstance(error, Garbage):
            return f"it sent what no worker sends: {error}"
        if self.process is not None and self.process.pid and self.process.has_ended():
            return f"its process {self.process.pid} has ended"
        return str(error)
