"""A plan run on paper: is everything there, in an order that can be, and what does it cost?

``run_on_paper`` goes through a plan as ranks would and gives a ``Timeline``: when each computation
runs, how long ranks wait, how many micro-batches' activations each rank holds at most. A plan in
which something is missing, or waits for ever, is a ``ConfigError`` that says what. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigError
from .actions import Action, Kind, Plan

# A backward costs twice a forward: its two parts cost one each.
COSTS: Mapping[Kind, float] = {Kind.F: 1.0, Kind.B: 2.0, Kind.I: 1.0, Kind.W: 1.0}
_FROM = {Kind.RECV_F: (-1, Kind.SEND_F), Kind.RECV_B: (1, Kind.SEND_B)}


@dataclass(frozen=True)
class Timeline:
    """What a plan costs. ``spans[rank]``: (action, start, end) of its computations; times are in
    units of ``costs``. ``held[rank]``: activations held at most, counted in stages."""

    plan: Plan
    spans: tuple[tuple[tuple[Action, float, float], ...], ...]
    held: tuple[int, ...]

    @property
    def length(self) -> float:
        """Time from the first start to the last end."""
        return max((end for row in self.spans for _, _, end in row), default=0.0)

    @property
    def bubble(self) -> float:
        """The part of all ranks' time in which they wait, 0 to 1."""
        work = sum(end - start for row in self.spans for _, start, end in row)
        whole = self.length * len(self.spans)
        return 1.0 - work / whole if whole else 0.0


def check_complete(plan: Plan) -> None:
    """Every micro-batch passes every stage once, forward and (in a plan that trains) backward, and
    on the rank that has the stage."""
    counts: Counter = Counter()
    for rank, order in enumerate(plan.orders):
        for a in order:
            if not (0 <= a.stage < plan.num_stages and 0 <= a.micro < plan.num_micro):
                raise _wrong(plan, f"{a} is outside of {plan.num_stages} stages and "
                             f"{plan.num_micro} micro-batches")  # fmt: skip
            if plan.rank_of[a.stage] != rank:
                raise _wrong(plan, f"{a} stands on rank {rank}; the stage lies on rank "
                             f"{plan.rank_of[a.stage]}")  # fmt: skip
            counts[a] += 1
    double = next((a for a, n in counts.items() if n > 1), None)
    if double is not None:
        raise _wrong(plan, f"{double} stands there {counts[double]} times")
    trains = any(a.kind in (Kind.B, Kind.I, Kind.W) for a in counts)
    for stage in range(plan.num_stages):
        for micro in range(plan.num_micro):
            has = {k for k in Kind if Action(stage, k, micro) in counts}
            if Kind.F not in has:
                raise _wrong(plan, f"{Action(stage, Kind.F, micro)} is missing")
            back = has & {Kind.B, Kind.I, Kind.W}
            if trains and back not in ({Kind.B}, {Kind.I, Kind.W}):
                there = ", ".join(sorted(k.value for k in back)) or "nothing"
                raise _wrong(plan, f"stage {stage} has for the backward of micro-batch {micro} "
                             f"{there}; needed is B, or I and W")  # fmt: skip


def _wrong(plan: Plan, what: str) -> ConfigError:
    return ConfigError(f"pipeline plan {plan.name!r}: {what}; mend the plan")


class Paper:
    """The run: each rank's place in its order and its clock."""

    def __init__(self, plan: Plan, costs: Mapping[Kind, float], message: float) -> None:
        self.plan, self.costs, self.message = plan, costs, message
        self.at = [0] * plan.num_ranks
        self.clock = [0.0] * plan.num_ranks
        self.ended: dict[Action, float] = {}
        self.spans: list[list] = [[] for _ in plan.orders]
        self.held = [0] * plan.num_ranks
        self.most = [0] * plan.num_ranks

    def go(self) -> list[int]:
        """Go on as far as any rank can; the ranks that have not come to their end."""
        moved = True
        while moved:
            moved = False
            for rank in range(self.plan.num_ranks):
                while self.step(rank):
                    moved = True
        return [r for r, o in enumerate(self.plan.orders) if self.at[r] < len(o)]

    def run(self) -> None:
        stuck = self.go()
        if stuck:
            lines = "; ".join(
                f"rank {r} is at {self.plan.orders[r][self.at[r]]}, which needs "
                f"{', '.join(str(n) for n in self.missing(self.plan.orders[r][self.at[r]]))}"
                for r in stuck
            )
            raise ConfigError(
                f"pipeline plan {self.plan.name!r}: it comes to no end: {lines}; put what is "
                "needed before what needs it"
            )

    def step(self, rank: int) -> bool:
        """Let ``rank`` do its next action, if that can be done."""
        order = self.plan.orders[rank]
        if self.at[rank] == len(order):
            return False
        action = order[self.at[rank]]
        if action.kind in _FROM:  # it only starts to receive: who needs the message waits
            self.at[rank] += 1
            return True
        if self.missing(action):
            return False
        self.at[rank] += 1
        if action.computes:
            self._compute(rank, action)
        else:
            self.ended[action] = self.clock[rank]
        return True

    def needs(self, a: Action) -> list[Action]:
        """What must have happened before ``a``: computations and other ranks' sends."""
        last = self.plan.num_stages - 1
        found = []
        if a.kind is Kind.F and a.stage:
            found.append(self._from(a, -1, Kind.F))
        elif a.kind in (Kind.B, Kind.I):
            found.append(Action(a.stage, Kind.F, a.micro))
            if a.stage < last:
                found.append(self._from(a, 1, Kind.B))
        elif a.kind is Kind.W:
            found.append(Action(a.stage, Kind.I, a.micro))
        elif a.kind is Kind.SEND_F:
            found.append(Action(a.stage, Kind.F, a.micro))
        elif a.kind is Kind.SEND_B:
            found.append(Action(a.stage, Kind.B, a.micro))
        return found

    def _from(self, a: Action, step: int, kind: Kind) -> Action:
        """What brings ``a`` the neighbour's result: its computation, or its message."""
        stage = a.stage + step
        if self.plan.rank_of[stage] == self.plan.rank_of[a.stage]:
            return Action(stage, kind, a.micro)
        return Action(stage, Kind.SEND_F if kind is Kind.F else Kind.SEND_B, a.micro)

    def missing(self, a: Action) -> list[Action]:
        return [n for n in [*self.needs(a), *self._unasked(a)] if self._time(n) is None]

    def _unasked(self, a: Action) -> list[Action]:
        """The receives that ``a`` needs and that its rank has not started before it."""
        order = self.plan.orders[self.plan.rank_of[a.stage]]
        kinds = {Kind.F: (-1, Kind.RECV_F), Kind.B: (1, Kind.RECV_B), Kind.I: (1, Kind.RECV_B)}
        if a.kind not in kinds:
            return []
        step, kind = kinds[a.kind]
        other = a.stage + step
        if (
            not 0 <= other < self.plan.num_stages
            or self.plan.rank_of[other] == (self.plan.rank_of[a.stage])
        ):
            return []
        receive = Action(a.stage, kind, a.micro)
        asked = order[: self.at[self.plan.rank_of[a.stage]]]
        return [] if receive in asked else [receive]

    def _time(self, a: Action) -> float | None:
        """When ``a`` was over; I stands for B where the plan takes backwards apart."""
        if a.kind is Kind.B and a not in self.ended:
            a = a._replace(kind=Kind.I)
        return self.ended.get(a)

    def _compute(self, rank: int, action: Action) -> None:
        start = self.clock[rank]
        for n in self.needs(action):
            ended = self._time(n)
            assert ended is not None
            start = max(start, ended + (0.0 if n.computes else self.message))
        end = start + self.costs[action.kind]
        self.clock[rank] = self.ended[action] = end
        self.spans[rank].append((action, start, end))
        if action.kind is Kind.F:
            self.held[rank] += 1
            self.most[rank] = max(self.most[rank], self.held[rank])
        elif action.kind in (Kind.B, Kind.W):
            self.held[rank] -= 1

    def timeline(self) -> Timeline:
        """Of what has been done so far."""
        return Timeline(self.plan, tuple(tuple(row) for row in self.spans), tuple(self.most))


def run_on_paper(plan: Plan, costs: Mapping[Kind, float] = COSTS, message: float = 0.0) -> Timeline:
    """Run ``plan``: ``costs`` of the computations, ``message``: time that a message travels.

    Raises ``ConfigError`` for a plan that is not complete or comes to no end.
    """
    check_complete(plan)
    paper = Paper(plan, costs, message)
    paper.run()
    return paper.timeline()
