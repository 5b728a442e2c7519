"""What can be proved of a plan without running it: a proof, or a counterexample.

A rank does its actions in order; sends and receives are started and do not wait; a computation
waits for what it needs. So what must come before what is one partial order, of which every
interleaving of the ranks is a linear extension: actions that are done never stop others from being
possible (Kahn, The semantics of a simple language for parallel programming, 1974). A plan that
comes to its end on paper in one order does so in all of them, with the same messages; one that does
not stands still in all of them in the same place. What a rank holds follows from its own order
alone.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import ConfigError
from .actions import Action, Kind, Plan
from .chart import draw
from .check import Paper, check_complete

# The receive of a message, which its send names by the stage that it comes from.
_RECEIVES = {Kind.SEND_F: (1, Kind.RECV_F), Kind.SEND_B: (-1, Kind.RECV_B)}


@dataclass(frozen=True)
class Verdict:
    """``kind``: "proof", or what is wrong: "incomplete", "messages", "deadlock" or "memory";
    ``trace``: the shortest way there, a line each; ``chart``: what was done until then. ``held``:
    activations that each rank holds at most; ``buffered``: whether it needs sends that do not wait
    for their receives to be started."""

    plan: Plan
    kind: str
    text: str
    trace: tuple[str, ...] = ()
    chart: str = ""
    held: tuple[int, ...] = ()
    buffered: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.kind == "proof"

    def __str__(self) -> str:
        head = "proof" if self.holds else "counterexample"
        lines = [f"{head}: {_named(self.plan)}: {self.text}", *(f"  {line}" for line in self.trace)]
        return "\n".join([*lines, self.chart] if self.chart else lines)

    def as_json(self) -> dict[str, Any]:
        """The same as data."""
        found = asdict(self) | {"holds": self.holds, "schedule": self.plan.name}
        sizes = {"ranks": self.plan.num_ranks, "stages": self.plan.num_stages}
        del found["plan"]
        return found | sizes | {"micro_batches": self.plan.num_micro}


def _named(plan: Plan) -> str:
    return (
        f"{plan.name}, {plan.num_stages} stages on {plan.num_ranks} ranks, {plan.num_micro} "
        "micro-batches"
    )


def prove(plan: Plan, memory: Sequence[int] | int | None = None) -> Verdict:
    """That each action is there once, each message is sent and received once, all ranks come to
    their end in every interleaving, and no rank holds activations of more than ``memory``
    micro-batches and stages (one number, or one for each rank; None: as many as it likes)."""
    try:
        check_complete(plan)
    except ConfigError as error:
        return Verdict(plan, "incomplete", _said(error))
    wrong = _messages(plan)
    if wrong:
        return Verdict(plan, "messages", wrong)
    paper = Paper(plan, {kind: 1.0 if kind is not Kind.B else 2.0 for kind in Kind}, 0.0)
    stuck = paper.go()
    if stuck:
        trace = tuple(_circle(paper, stuck))
        return Verdict(plan, "deadlock", _stuck(trace), trace, draw(paper.timeline()))
    held = tuple(paper.most)
    over = _over(plan, held, memory)
    if over:
        return Verdict(plan, "memory", over[0], over[1:], draw(paper.timeline()), held)
    counts = Counter("actions" if a.computes else "messages" for o in plan.orders for a in o)
    counts["messages"] //= 2
    buffered = not _ends_without_buffers(plan)
    return Verdict(plan, "proof", _proved(counts, held, buffered), (), "", held, buffered,
                   dict(counts))  # fmt: skip


def _proved(counts: Counter, held: Sequence[int], buffered: bool) -> str:
    sends = "sends must not wait for receives" if buffered else "sends may wait for receives"
    return (
        f"{counts['actions']} computations and {counts['messages']} messages, each once; no "
        f"deadlock in any interleaving ({sends}); activations held at most: "
        f"{', '.join(map(str, held))}"
    )


def _said(error: ConfigError) -> str:
    return str(error).partition(": ")[2].removesuffix("; mend the plan")


# --- messages -------------------------------------------------------------------------------------


def _messages(plan: Plan) -> str:
    """The first send without a receive, or receive without a send; "" where all meet."""
    there = {a for order in plan.orders for a in order}
    for rank, order in enumerate(plan.orders):
        for a in order:
            if a.computes:
                continue
            other = partner(a)
            if not 0 <= other.stage < plan.num_stages:
                return f"{a} on rank {rank} goes beyond the {plan.num_stages} stages"
            if other not in there:
                return f"{a} on rank {rank} has no {other} on rank {plan.rank_of[other.stage]}"
            if plan.rank_of[other.stage] == rank:
                return f"{a} is a message of rank {rank} to itself"
    return ""


def partner(a: Action) -> Action:
    """The receive of a send, or the send of a receive."""
    for send, (step, receive) in _RECEIVES.items():
        if a.kind is send:
            return Action(a.stage + step, receive, a.micro)
        if a.kind is receive:
            return Action(a.stage - step, send, a.micro)
    raise AssertionError(a)


# --- deadlocks ------------------------------------------------------------------------------------


def _circle(paper: Paper, stuck: Sequence[int]) -> list[str]:
    """The shortest circle of ranks that wait for each other, a line for each; where there is none,
    the rank that waits for what nobody does."""
    plan, waits = paper.plan, {r: _needs(paper, r) for r in stuck}
    best: list[int] = []
    for start in stuck:
        way = _way_back(start, {r: [w for w, _ in found] for r, found in waits.items()})
        if way and (not best or len(way) < len(best)):
            best = way
    lines = []
    for rank in best or stuck[:1]:
        here = plan.orders[rank][paper.at[rank]]
        after = best[(best.index(rank) + 1) % len(best)] if best else None
        who, need = next((f for f in waits[rank] if f[0] == after), waits[rank][0])
        stands = _place(plan, need)
        where = "comes nowhere" if stands is None else f"is action {stands[1] + 1} of rank {who}"
        lines.append(
            f"rank {rank} is at its action {paper.at[rank] + 1}, {here}, which needs {need}; that "
            f"{where}"
        )
    return lines


def _needs(paper: Paper, rank: int) -> list[tuple[int, Action]]:
    """For whom ``rank`` waits, and for what."""
    plan = paper.plan
    missing = paper.missing(plan.orders[rank][paper.at[rank]])
    return [(plan.rank_of[n.stage], _split(plan, n)) for n in missing]


def _split(plan: Plan, a: Action) -> Action:
    """I in place of B, where the plan takes that backward apart."""
    apart = a.kind is Kind.B and a not in plan.orders[plan.rank_of[a.stage]]
    return a._replace(kind=Kind.I) if apart else a


def _place(plan: Plan, a: Action) -> tuple[int, int] | None:
    rank = plan.rank_of[a.stage]
    order = plan.orders[rank]
    return (rank, order.index(a)) if a in order else None


def _way_back(start: int, waits: dict[int, list[int]]) -> list[int]:
    """The shortest way from ``start`` to itself; empty where there is none."""
    before: dict[int, int] = {}
    row = [start]
    while row:
        following = []
        for rank in row:
            for other in waits.get(rank, ()):
                if other == start:
                    way = [rank]
                    while way[-1] != start:
                        way.append(before[way[-1]])
                    return way[::-1]
                if other not in before:
                    before[other] = rank
                    following.append(other)
        row = following
    return []


def _stuck(trace: Sequence[str]) -> str:
    if len(trace) == 1:
        return "deadlock in every interleaving: a rank waits for what it does later, or never"
    return f"deadlock in every interleaving: {len(trace)} ranks wait for each other"


class _Rendezvous(Paper):
    """A run in which a send waits until its receive has been started."""

    def missing(self, a: Action) -> list[Action]:
        found = super().missing(a)
        if a.kind in _RECEIVES:
            other = partner(a)
            rank = self.plan.rank_of[other.stage]
            if other not in self.plan.orders[rank][: self.at[rank]]:
                found.append(other)
        return found


def _ends_without_buffers(plan: Plan) -> bool:
    return not _Rendezvous(plan, dict.fromkeys(Kind, 1.0), 0.0).go()


# --- memory ---------------------------------------------------------------------------------------


def _over(
    plan: Plan, held: Sequence[int], memory: Sequence[int] | int | None
) -> tuple[str, ...]:  # fmt: skip
    """What holds more than it may: a text, and the rank's actions until then; empty where nothing
    does."""
    if memory is None:
        return ()
    bounds = [memory] * plan.num_ranks if isinstance(memory, int) else list(memory)
    if len(bounds) != plan.num_ranks:
        raise ConfigError(
            f"prove: bounds of {len(bounds)} ranks were given; needed are {plan.num_ranks}, or one"
        )
    for rank, (most, bound) in enumerate(zip(held, bounds, strict=True)):
        if most > bound:
            way, now = [], 0
            for a in plan.orders[rank]:
                now += (a.kind is Kind.F) - (a.kind in (Kind.B, Kind.W))
                way += [str(a)] if a.computes else []
                if now > bound:
                    break
            text = f"rank {rank} holds activations of {now} forwards; {bound} are allowed"
            return text, f"rank {rank} has done {' '.join(way)}"
    return ()
