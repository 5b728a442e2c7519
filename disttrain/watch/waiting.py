"""Who waits for whom, and who comes late: read from the ranks' black boxes. Pure.

Ranks of one host share a clock, so the beginnings of one collective on all of them can be compared.
Of ranks elsewhere nothing is known here but what those who wait have found out (``said``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .reading import UNDER_WAY, Operation, Rank

COMPUTES, WAITS, ENDED, STARTS = "computes", "waits", "ended", "starts"
_COMPARED = 32  # collectives over which lateness is averaged


@dataclass(frozen=True)
class Standing:
    """Where one rank is. ``seconds``: since when it computes or waits; ``operation``: what it is
    in, or was in last; ``waits_for``: the ranks that have not come, as far as is known; ``late``:
    milliseconds behind the first one at the last collectives, on average (None: none was common);
    ``said``: what it has found out itself."""

    rank: int
    state: str
    seconds: float
    operation: Operation | None
    waits_for: tuple[int, ...] = ()
    late: float | None = None
    said: str = ""

    @property
    def text(self) -> str:
        """For people, in one line."""
        told = "" if self.operation is None else self.operation.shown
        if self.state == WAITS:
            whom = f" for {names(self.waits_for)}" if self.waits_for else ""
            if self.said and not self.waits_for:  # of ranks elsewhere only it knows
                told = self.said.removeprefix("waits in ")
            return f"waits {self.seconds:.1f} s{whom}{' in ' + told if told else ''}"
        if self.state == COMPUTES and self.operation is not None:
            if self.operation.state == UNDER_WAY:
                return f"in {told}"
            return f"computes {self.seconds:.1f} s since {told}"
        return self.state


def names(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0, 2``; long lists are cut."""
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def standings(ranks: Sequence[Rank], now: int) -> list[Standing]:
    """Of all ranks of a box at ``now`` (nanoseconds of their host's clock)."""
    arrived = {r.rank: _arrived(r) for r in ranks}
    late = lateness(ranks)
    return [_standing(r, arrived, late.get(r.rank), now) for r in ranks]


def _standing(
    r: Rank, arrived: dict[int, dict[str, int]], late: float | None, now: int
) -> Standing:
    words = r.words
    if words.ended:
        return Standing(r.rank, ENDED, _since(words.ended_at, now), r.last, (), late, r.said)
    if not words.pid:
        return Standing(r.rank, STARTS, 0.0, None)
    under_way = [op for op in r.operations if op.state == UNDER_WAY]
    if words.waits_since:
        seconds = _since(words.waits_since, now)
        for op in under_way:
            if whom := missing(op, r, arrived):
                return Standing(r.rank, WAITS, seconds, op, whom, late, r.said)
        newest = under_way[-1] if under_way else None
        return Standing(r.rank, WAITS, seconds, newest, (), late, r.said)
    ended = [op for op in r.operations if op.ended]
    last = max(ended, key=lambda op: abs(op.ended), default=None)
    times = [abs(last.ended) if last else 0, words.step_at]
    shown = under_way[-1] if under_way and under_way[-1] is r.last else last
    return Standing(r.rank, COMPUTES, _since(max(times), now), shown, (), late, r.said)


def missing(op: Operation, of: Rank, arrived: dict[int, dict[str, int]]) -> tuple[int, ...]:
    """The ranks that ``op`` of that rank waits for, as far as is known."""
    if not op.seq:
        return (op.peer,) if op.peer >= 0 else ()
    members = of.groups.get(op.group, ())
    return tuple(
        r for r in members
        if r != of.rank and r in arrived and arrived[r].get(op.group, 0) < op.seq
    )  # fmt: skip


def _arrived(r: Rank) -> dict[str, int]:
    """The last collective of each group that the rank has come to. Of a group in which it has done
    nothing for as long as its box goes back, nothing is known."""
    newest: dict[str, int] = {}
    for op in r.operations:
        if op.seq:
            newest[op.group] = max(newest.get(op.group, 0), op.seq)
    if r.operations and r.operations[0].number > 1:
        for name in r.groups:
            newest.setdefault(name, 1 << 62)
    return newest


def lateness(ranks: Sequence[Rank]) -> dict[int, float]:
    """Milliseconds by which each rank came after the first, averaged over the last collectives to
    which all members that are here have come."""
    begun: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for r in ranks:
        for op in r.operations:
            if op.seq:
                begun[op.group, op.seq][r.rank] = op.begun
    here = {r.rank for r in ranks}
    members = {name: here.intersection(m) for r in ranks for name, m in r.groups.items()}
    whole = [
        times for (group, _), times in begun.items()
        if len(times) > 1 and times.keys() >= members.get(group, here)
    ]  # fmt: skip
    whole.sort(key=lambda times: min(times.values()))
    sums: dict[int, list[int]] = defaultdict(list)
    for times in whole[-_COMPARED:]:
        first = min(times.values())
        for rank, at in times.items():
            sums[rank].append(at - first)
    return {rank: sum(all_) / len(all_) / 1e6 for rank, all_ in sums.items()}


def _since(at: int, now: int) -> float:
    return max(0.0, (now - at) / 1e9) if at else 0.0
