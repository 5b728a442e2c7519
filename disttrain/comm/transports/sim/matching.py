"""Where the members of a simulated group meet: operations in their order, one after the other.

A matcher knows what each member has brought to each operation, compares the headers when all have
come, and hands what fits to the fabric, which says how long it takes. Who leaves without meeting
the others is known by the number of its last operation.

Knows headers and members; no clock, no arrays, no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....errors import CollectiveMismatch
from ...calls.header import difference, list_calls, mismatch_text, name_ranks
from .exchange import Part, misfit

_REMEMBERED = 64  # operations whose calling lines are kept
CLOSE = "close"

Ready = Callable[["Matcher", int, list[Part]], None]


class Matcher:
    """One group. ``ranks``: world ranks of the members."""

    def __init__(
        self, name: str, ranks: Sequence[int], ready: Ready, seats: Sequence[int] | None = None
    ) -> None:
        """``ready(matcher, number, parts)``: all have come to an operation, and their calls fit."""
        self.name, self.ranks = name, list(ranks)
        self.seats = list(ranks if seats is None else seats)  # their ranks in the cluster
        n = len(self.ranks)
        self.last = [0] * n  # the last operation that each member has entered
        self.left: list[int | None] = [None] * n
        self._ready = ready
        self._open: dict[int, list[Part | None]] = {}
        self._met = 0
        self._told: dict[int, list[str]] = {}

    # -- entering -----------------------------------------------------------------------------

    def enter(self, member: int) -> int:
        """``member`` calls its next operation; its number."""
        self.last[member] += 1
        return self.last[member]

    def bring(self, member: int, number: int, part: Part) -> None:
        """Its part of the operation ``number`` is there."""
        if number <= self._met:  # those who are there have given up waiting for it
            part.ended(self._mismatch(number, "number of calls", {member: part}))
            return
        parts = self._open.setdefault(number, [None] * len(self.ranks))
        parts[member] = part
        self._look()

    def take_back(self, member: int, number: int) -> None:
        """It does not wait for the others any more, and leaves before this operation."""
        parts = self._open.get(number)
        if parts is not None:
            parts[member] = None

    def leave(self, member: int, number: int) -> None:
        """``member`` comes to no operation after ``number``."""
        if self.left[member] is None:
            self.left[member] = number
            self._look()

    @property
    def empty(self) -> bool:
        return None not in self.left

    def _look(self) -> None:
        """Go on with every operation that all who are there have come to."""
        while True:
            number = self._met + 1
            parts = self._open.get(number)
            if parts is None or self.missing(number):
                return
            self._met = number
            del self._open[number]
            self._meet(number, parts)

    def missing(self, number: int) -> list[int]:
        """The world ranks that are expected at an operation and have not come."""
        parts = self._open.get(number)
        if parts is None:
            return []
        return [
            self.ranks[i]
            for i, part in enumerate(parts)
            if part is None and not self._gone(i, number)
        ]

    def _gone(self, member: int, number: int) -> bool:
        last = self.left[member]
        return last is not None and last < number

    # -- comparing ----------------------------------------------------------------------------

    def _meet(self, number: int, parts: list[Part | None]) -> None:
        there = {i: part for i, part in enumerate(parts) if part is not None}
        error = self._compare(number, there)
        if error is None:
            self._told[number] = [part.call.text for part in there.values()]
            self._told.pop(number - _REMEMBERED, None)
            self._ready(self, number, list(there.values()))
            return
        for part in there.values():
            part.ended(CollectiveMismatch(*error.args))

    def _compare(self, number: int, there: dict[int, Part]) -> CollectiveMismatch | None:
        gone = [i for i in range(len(self.ranks)) if self._gone(i, number)]
        last_one = all(part.verb == CLOSE for part in there.values())
        if gone and not (last_one and all(self.left[i] == number - 1 for i in gone)):
            return self._mismatch(number, "number of calls", there)
        position = number.to_bytes(8, "little")
        tails = {part.call.tail for part in there.values()}
        if len(tails) > 1:
            field = difference([position + part.call.tail for part in there.values()])
            if field:
                return self._mismatch(number, field, there)
        if last_one:
            return None
        detail = misfit(list(there.values()), self.ranks)
        return self._mismatch(number, "sizes", there, detail) if detail else None

    def _mismatch(
        self, number: int, field: str, there: dict[int, Part], detail: str = ""
    ) -> CollectiveMismatch:
        calls = {rank: self._call_of(i, number, there) for i, rank in enumerate(self.ranks)}
        text = mismatch_text(f"group {self.name}", number, field, calls)
        more = [part for part in (detail, self._first_apart(number)) if part]
        return CollectiveMismatch("\n".join([text, *more]))

    def _call_of(self, member: int, number: int, there: dict[int, Part]) -> str:
        if member in there:
            return there[member].call.text
        if self._gone(member, number):
            return f"nothing more: it has left the group after {self.left[member]} operations"
        return "nothing yet"

    def _first_apart(self, number: int) -> str:
        """The first operation on record that ranks called alike, but from different lines."""
        for past in sorted(n for n in self._told if n < number):
            texts = self._told[past]
            if len({text.rpartition(" at ")[2] for text in texts}) > 1:
                head = f"Before that, operation {past} came from different lines:"
                calls = dict(zip(self.ranks, texts, strict=False))
                return "\n".join([head, *list_calls(calls)])
        return ""

    def counts_differ(self, member: int) -> CollectiveMismatch | None:
        """At the end of ``member``'s program: has one that has left made other calls?"""
        number = self.last[member]
        if all(last in (None, number) for last in self.left):
            return None
        parts = self._open.get(number + 1, [])
        there = {i: part for i, part in enumerate(parts) if part is not None}
        return self._mismatch(number + 1, "number of calls", there)

    def waited_for(self, text: str, number: int) -> str:
        """A wait for an operation, for people."""
        missing = self.missing(number)
        have = "has" if len(missing) == 1 else "have"
        who = f"{name_ranks(missing)} {have} not arrived" if missing else "all have arrived"
        return f"{text} (operation {number} of group {self.name}); {who}"
