"""What workers tell each other of references (RRefs), in a replay.

How many such messages there are, and when, depends on threads and on when Python frees what nobody
has any more. So they have no turn: each is answered at once, as one of the recording was.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from ...rpc.calls.kinds import RREFS
from ...rpc.messages.contract.message import Message
from ..log.frames import Frame


def is_bookkeeping(message: Message) -> bool:
    """Is it a request of that kind, which is answered?"""
    return message.kind == RREFS and not message.answers and message.call != 0


class Bookkeeping:
    """Those of a recording. ``numbers``: of the frames of requests and of their answers."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.numbers: set[int] = set()
        self._answers: dict[int, deque[Frame]] = defaultdict(deque)  # by peer
        asked = set()
        for i, frame in enumerate(frames):
            meta, kind = frame.meta, frame.meta.get("k")
            words = str(meta.get("key", "")).split()
            if kind == "call" and words[:1] == ["request"] and words[2:] == [str(RREFS), "1"]:
                asked.add((int(words[1]), meta["call"]))
                self.numbers.add(i)
            elif kind == "in" and meta.get("answers") and (meta["peer"], meta["call"]) in asked:
                self._answers[meta["peer"]].append(frame)
                self.numbers.add(i)

    def answer(self, peer: int) -> Frame | None:
        """Of one request to ``peer``: the next of the recording, or its last once more; None where
        it has none."""
        there = self._answers[peer]
        return there.popleft() if len(there) > 1 else there[0] if there else None
