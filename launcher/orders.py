"""What the keeper tells the agent: the agent's end of it.

Whatever was said last holds. A keeper that has not confirmed this node's lease for ``fence``
seconds counts for one that says "stop": nobody else can have taken the node for lost by then, but
may do so soon.
"""

from __future__ import annotations

from typing import Any

from .channel import Channel, Message, shortened
from .generation import Generation
from .report import say


class Orders:
    """Call ``take`` when the channel is readable. ``name``: of this node, as host:pid."""

    def __init__(self, channel: Channel, fence: float, name: str) -> None:
        self.channel, self.fence, self.name = channel, fence, name
        self.fenced = False  # the last generation was stopped since no lease was confirmed
        self.next: Generation | None = None  # to be started
        self.running = 0  # the generation that was started last
        self.stop = 0  # all generations up to this one are over
        self.end: Message | None = None  # how the job has ended
        self.failures: list[Message] = []  # of ranks elsewhere, not published yet
        self.alive_at: float | None = None
        self.saving = False  # ranks that are to be stopped have time to save
        self.patient = False  # ranks that are to be stopped may say before that a rank has failed
        self._why = ""  # as people were told it last

    def take(self) -> bool:
        """What has come; False when the keeper has gone."""
        for message in self.channel.receive():
            getattr(self, "_" + message["kind"])(message)
        if not self.channel.open and self.end is None:
            self.end = {"code": 1, "why": "the keeper process of this node has ended", "result": {}}
        return self.channel.open

    def begin(self) -> Generation | None:
        """The generation to start now, if there is one."""
        generation, self.next = self.next, None
        if generation is None or generation.number <= self.stop:
            return None
        self.running, self.failures = generation.number, []
        self.fenced = self.saving = False
        return generation

    def is_over(self, now: float) -> bool:
        """Are the ranks that run to be stopped?"""
        fenced = self.alive_at is not None and now - self.alive_at > self.fence
        if fenced and not self.fenced and (self.saving or self.stop < self.running):
            self.stop, self.fenced = self.running, True
            self.patient = self.saving = False
            say(f"this node's lease was not confirmed for {self.fence:.1f} s; its ranks are "
                "stopped before the others can take it for lost")  # fmt: skip
        return self.end is not None or self.stop >= self.running

    def waits(self, now: float) -> list[float]:
        """After how many seconds ``is_over`` may have changed by itself."""
        if self.alive_at is None or (self.stop >= self.running and not self.saving):
            return []
        return [max(self.alive_at + self.fence - now, 0.0) + 0.001]

    def report(self, state: str, report: dict[str, Any] | None = None) -> None:
        """Tell the keeper how the ranks fare."""
        told = dict(report or {})
        if "traceback" in told:
            told["traceback"] = shortened(told["traceback"])
        self.channel.send("state", state=state, report=told)

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
        self._tell(message)

    def _end(self, message: Message) -> None:
        self.end, self.patient = message, bool(message["result"].get("node"))
        self.saving = message.get("saving", False)

    def _failure(self, message: Message) -> None:
        if message["number"] == self.running:
            self.failures.append(message)

    def _say(self, message: Message) -> None:
        say(message["text"])

    def _tell(self, message: Message) -> None:
        """Why something changes, once."""
        if message["why"] != self._why:
            self._why = message["why"]
            say(self._why)
