"""What the keeper tells the agent: the agent's end of it.

Whatever was said last holds. A keeper that has not confirmed this node's lease for ``fence``
seconds counts for one that says "stop": nobody else can have taken the node for lost by then, but
may do so soon.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from disttrain.errors import LaunchError

from ..plan.generation import Generation
from ..plan.states import READY
from .black_box import Watching
from .channel import Channel, Message, shortened
from .report import say

TELL_EVERY = 1.0  # seconds between two words of how ranks do


class Orders:
    """Call ``take`` when the channel is readable. ``name``: of this node, as host:pid."""

    def __init__(
        self, channel: Channel, fence: float, name: str, nodes_fd: int = -1, boxes_fd: int = -1
    ) -> None:
        """``nodes_fd``: memory where ranks of other nodes are shown; ``boxes_fd``: where this
        node's black box is put at the end."""
        self.nodes_fd, self.boxes_fd = nodes_fd, boxes_fd
        self.watched = False  # somebody looks at the ranks of all nodes
        self._next_told = 0.0
        self.channel, self.fence, self.name = channel, fence, name
        self.lost = False  # ... since the others take this node for lost
        self.fenced = False  # the last generation was stopped since no lease was confirmed
        self.next: Generation | None = None  # to be started
        self.running = 0  # the generation that was started last
        self.stop = 0  # all generations up to this one are over
        self.end: Message | None = None  # how the job has ended
        self.failures: list[Message] = []  # of ranks elsewhere, not published yet
        self.alive_at: float | None = None
        self.saving = False  # ranks that are to be stopped have time to save
        self.patient = False  # ranks that are to be stopped may say before that a rank has failed
        # See ``Ranks.know_of_others``.
        self.others_move, self.awaited, self.others_left = False, -1, -1
        self._debugged = ""  # ranks elsewhere that are in the debugger
        self._news: Message | None = None  # of a generation that has not begun here
        self._stands: dict[str, Any] = {}  # as the others know it
        self._why = ""  # as people were told it last

    def take(self) -> bool:
        """What has come; False when the keeper has gone."""
        for message in self.channel.receive():
            getattr(self, "_" + message["kind"])(message)
        if not self.channel.open and self.end is None:
            self.end = {"code": 1, "why": "the keeper process of this node has ended", "result": {}}
        return self.channel.open

    def begin(self, now: float) -> Generation | None:
        """The generation to start now, if there is one. One that is over before it has begun is
        reported as such: the others wait for that."""
        generation, self.next = self.next, None
        if generation is None:
            return None
        self.running = number = generation.number
        self.failures = [f for f in self.failures if f["number"] == number]
        self.others_move, self.awaited, self.others_left = False, -1, -1
        self._debugged, self._stands = "", {}
        if self._news is not None and self._news["number"] == number:
            self._elsewhere(self._news)
        self.fenced = self.saving = self.lost = False
        if self.lapses(now) or self.is_over:
            self.report(READY, {"fenced": True} if self.fenced else {})
            return None
        return generation

    @property
    def is_over(self) -> bool:
        """Are the ranks that run to be stopped?"""
        return self.end is not None or self.stop >= self.running

    @property
    def debugged(self) -> str:
        """Ranks elsewhere in the debugger, for which those here wait."""
        return "" if self.is_over else self._debugged

    @property
    def hurries(self) -> bool:
        """Do ranks that are to be stopped end though somebody looks at one in the debugger? Where
        the job was asked to end, or may go on without them; a failure can wait."""
        end = self.end or {"code": 0, "result": {}}
        asked = end["code"] > 128 and not end["result"].get("node")
        return self.fenced or self.lost or self.saving or asked

    def lapses(self, now: float) -> bool:
        """Are they to be killed at once, also those that are being stopped, since others may begin
        without this node? True once for a generation."""
        if self._is_fresh(now):
            return False
        self.take()  # we may have been stopped ourselves, and not the keeper
        if self._is_fresh(now):
            return False
        if not self.is_over:
            say(f"this node's lease was not confirmed for {self.fence:.1f} s; its ranks are "
                "stopped before the others can take it for lost")  # fmt: skip
        self.stop, self.fenced = max(self.stop, self.running), True
        self.patient = self.saving = False
        return True

    def _is_fresh(self, now: float) -> bool:
        return not self._is_leased or now - (self.alive_at or 0.0) <= self.fence

    @property
    def _is_leased(self) -> bool:
        """Is it the lease that lets the ranks of this node run? After the end of the job nobody
        begins another generation."""
        ended = self.end is not None and self.end["result"]
        return self.alive_at is not None and not self.fenced and not ended

    def waits(self, now: float) -> list[float]:
        """After how many seconds ``lapses`` may have changed by itself."""
        if not self._is_leased:
            return []
        return [max((self.alive_at or 0.0) + self.fence - now, 0.0) + 0.001]

    def report(self, state: str, report: dict[str, Any] | None = None) -> None:
        """Tell the keeper how the ranks fare."""
        told = dict(report or {})
        if "traceback" in told:
            told["traceback"] = shortened(told["traceback"])
        self.channel.send("state", state=state, report=told)

    def tell_standing(self, stands: dict[str, Any]) -> None:
        """Tell the keeper how the ranks stand, where that has changed."""
        if stands != self._stands:
            self._stands = stands
            self.channel.send("standing", number=self.running, stands=stands)

    def tell_others(self, watching: Watching, now: float) -> None:
        """Now and then, what other nodes and those who look there are to know of the ranks here.
        What does not fit, or is not taken, is not waited for."""
        if now < self._next_told:
            return
        self._next_told = now + TELL_EVERY
        with contextlib.suppress(LaunchError):
            self.channel.send("seen", number=self.running, **watching.for_others())
            if self.watched:
                self.channel.send("rows", number=self.running, **watching.rows())

    def give_box(self, data: bytes) -> None:
        """The black box of this node's ranks, packed, for whoever gathers those of all nodes."""
        if self.boxes_fd >= 0 and data:
            os.ftruncate(self.boxes_fd, 0)
            os.pwrite(self.boxes_fd, data, 0)
            self.channel.send("box", number=self.running, size=len(data))

    # --- one method for each kind of message ----------------------------------------------------

    def _alive(self, message: Message) -> None:
        self.alive_at = message["at"]

    def _generation(self, message: Message) -> None:
        self.next = Generation.from_json(message["fields"])
        if message["why"] and self.next.number > 1:
            self._tell(message)

    def _stop(self, message: Message) -> None:
        self.stop = max(self.stop, message["number"])
        self.patient, self.saving = message["failed"], message["saving"]
        self.lost = message.get("lost", False)
        self._tell(message)

    def _end(self, message: Message) -> None:
        self.end, self.patient = message, bool(message["result"].get("node"))
        self.saving = message.get("saving", False)

    def _failure(self, message: Message) -> None:
        if self._is_news(message):
            self.failures.append(message)

    def _elsewhere(self, message: Message) -> None:
        if not self._is_news(message):
            return
        if message["number"] != self.running:
            self._news = message
        else:
            self.others_move, self.awaited = message["move"], message["awaited"]
            self.others_left = message.get("left", -1)
            told, self._debugged = self._debugged, message.get("debugged", "")
            if self._debugged and self._debugged != told:
                say(self._debugged)

    def _is_news(self, message: Message) -> bool:
        """Is it of the generation that runs, or of the one that is about to?"""
        coming = () if self.next is None else (self.next.number,)
        return message["number"] in (self.running, *coming)

    def _watched(self, message: Message) -> None:
        self.watched = message["on"]

    def _say(self, message: Message) -> None:
        say(message["text"])

    def _tell(self, message: Message) -> None:
        """Why something changes, once."""
        if message["why"] != self._why:
            self._why = message["why"]
            say(self._why)
