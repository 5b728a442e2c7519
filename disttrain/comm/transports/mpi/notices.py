"""What ranks tell each other beside their calls, and who is stuck by what they have said. Pure.

A rank that has waited for a while, with every thread that could do something, tells all others what
it waits for, how many calls it has made of each group and how many messages it has sent; and again
when that has changed, and when the wait has ended otherwise than by what was awaited. A wait is *in
vain* when what it misses is due from a rank that is stuck, and that one has said that it has not
done it. A rank is *stuck* when all its waits are in vain: the largest such set is found by taking
out, again and again, ranks of which one wait is not.

That needs no common clock: a rank of such a set can have done nothing since it spoke, since what
it waited for is due from another one of the set, of which the same holds. Ranks that have left a
group, or ended their program, will do nothing more in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...calls.header import name_ranks

CALL, MAIL, TAKE = "call", "mail", "take"
TEXT_BYTES = 4000
NOT_KNOWN = -1  # an exit code that is told later


class Edge(NamedTuple):
    """Something that rank ``rank`` (of the world) has still to do in the group ``group``: make its
    call ``number`` (CALL), send the reader more than ``number`` messages (MAIL), receive one of its
    messages (TAKE)."""

    rank: int
    kind: str
    group: str
    number: int


class Wait(NamedTuple):
    """One wait: all its edges must come, or ``any`` of them."""

    edges: tuple[Edge, ...]
    any: bool = False


@dataclass(frozen=True)
class Notice:
    """What one rank says. ``kind``: ``waits``; ``free`` (it goes on); ``ended`` (its program has);
    ``failed`` (of ``text``, with ``detail`` as traceback); ``gone`` (it has left ``group`` without
    meeting the others); ``accuses`` (``text`` says whom, and the reader waits for one of them).
    ``calls`` of each group, ``mail``: messages sent by group and rank; ``code``: with which it has
    ended, or ``NOT_KNOWN``."""

    kind: str
    text: str = ""
    waits: tuple[Wait, ...] = ()
    calls: dict[str, int] = field(default_factory=dict)
    mail: dict[str, dict[int, int]] = field(default_factory=dict)
    group: str = ""
    detail: str = ""
    code: int = 0

    def encode(self) -> bytes:
        """As bytes: JSON."""
        return json.dumps(self.__dict__).encode()


def decode(data: bytes) -> Notice:
    """The notice that ``encode`` has written."""
    raw: dict[str, Any] = json.loads(data)
    raw["waits"] = tuple(
        Wait(tuple(Edge(*edge) for edge in edges), any_) for edges, any_ in raw["waits"]
    )
    raw["mail"] = {
        group: {int(rank): n for rank, n in sent.items()} for group, sent in raw["mail"].items()
    }
    return Notice(**raw)


class Board:
    """What all ranks have said last, seen by rank ``me``."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.said: dict[int, Notice] = {}  # the last words of each rank that waits or has ended
        self.gone: dict[str, dict[int, int]] = {}  # group -> rank -> calls it had made
        self.failures: dict[
            int, tuple[str, str]
        ] = {}  # rank -> cause and traceback, the first first
        self.verdict: str | None = None  # of another rank, on a set that this one belongs to

    def hear(self, rank: int, notice: Notice) -> None:
        """``rank`` has said this."""
        if notice.kind == "free":
            self.said.pop(rank, None)
        elif notice.kind in ("waits", "ended"):
            self.said[rank] = notice
        elif notice.kind == "gone":
            self.gone.setdefault(notice.group, {})[rank] = notice.calls[notice.group]
        elif notice.kind == "failed":
            self.failures.setdefault(rank, (notice.text, notice.detail))
        elif notice.kind == "accuses" and self.verdict is None:
            self.verdict = notice.text

    def left_at(self, group: str, rank: int) -> int | None:
        """How many calls a rank that has left ``group``, or ended, had made of it; else None."""
        at = self.gone.get(group, {}).get(rank)
        if at is not None:
            return at
        said = self.said.get(rank)
        return said.calls.get(group) if said is not None and said.kind == "ended" else None

    def stuck(self, mine: Notice) -> set[int]:
        """The ranks that can do nothing more and that this one (which says ``mine``) waits for,
        directly or through others, where it can do nothing either; else none."""
        said = {**self.said, self.me: mine}
        stuck = self._all_stuck(said)
        return self._held(self.me, said, stuck) if self.me in stuck else set()

    def concerned(self, mine: Notice, stuck: Collection[int]) -> set[int]:
        """All ranks that can do nothing more since they wait for one of ``stuck``, directly or
        through others."""
        said = {**self.said, self.me: mine}
        every = self._all_stuck(said)
        return {r for r in every if not self._held(r, said, every).isdisjoint(stuck)}

    def _all_stuck(self, said: dict[int, Notice]) -> set[int]:
        """All ranks that can do nothing more."""
        stuck = set(said)
        while free := {r for r in stuck if not self._in_vain(r, said, stuck)}:
            stuck -= free
        return stuck

    def _held(self, rank: int, said: dict[int, Notice], stuck: set[int]) -> set[int]:
        """Those of ``stuck`` that ``rank`` waits for, directly or through others; itself, too."""
        found, new = {rank}, {rank}
        while new:
            due = {e.rank for r in new for w in said[r].waits for e in w.edges}
            new = (due & stuck) - found
            found |= new
        return found

    def _in_vain(self, rank: int, said: dict[int, Notice], stuck: set[int]) -> bool:
        notice = said[rank]
        if notice.kind == "ended":
            return True
        return bool(notice.waits) and all(
            (all if wait.any else any)(self._never(rank, e, said, stuck) for e in wait.edges)
            for wait in notice.waits
        )

    def _never(self, rank: int, edge: Edge, said: dict[int, Notice], stuck: set[int]) -> bool:
        """Will what ``rank`` waits for not come, as things are?"""
        left = self.left_at(edge.group, edge.rank)
        if edge.kind == CALL and left is not None:
            return left < edge.number
        other = said.get(edge.rank)
        if other is None or edge.rank not in stuck:
            return False
        if edge.kind == CALL:
            return other.calls.get(edge.group, 0) < edge.number
        if edge.kind == MAIL:
            return other.mail.get(edge.group, {}).get(rank, 0) <= edge.number
        return True


def accusation(said: dict[int, Notice], stuck: Iterable[int]) -> str:
    """The message for a set of stuck ranks."""
    texts: dict[str, list[int]] = {}
    for rank in sorted(stuck):
        notice = said[rank]
        text = "has ended its program" if notice.kind == "ended" else notice.text
        texts.setdefault(text, []).append(rank)
    lines = [f"  {name_ranks(ranks)}: {text}" for text, ranks in texts.items()]
    return (
        "ranks wait for each other in calls that do not belong together, and none can go on:\n"
        + "\n".join(lines)
        + "\nEvery rank of a group must make the same calls in one order, on the same groups."
    )
