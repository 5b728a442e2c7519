"""The known schedules: pure functions from numbers of ranks, stages and micro-batches to plans.

Gradients of one stage are always accumulated in order of micro-batches, so that all schedules give
the bits that one process gives which accumulates over the same micro-batches.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from ...errors import ConfigError
from .actions import Action, Kind, Plan
from .greedy import list_schedule
from .placement import looped, vee

F, B, I, W = Kind.F, Kind.B, Kind.I, Kind.W


def gpipe(num_ranks: int, num_micro: int) -> Plan:
    """All forwards, then all backwards (Huang et al., GPipe, arXiv:1811.06965)."""
    micros = range(num_micro)
    orders = tuple(
        tuple([Action(r, F, m) for m in micros] + [Action(r, B, m) for m in micros])
        for r in range(num_ranks)
    )
    return _plan("GPipe", num_micro, looped(num_ranks, num_ranks), orders)


def one_f_one_b(num_ranks: int, num_micro: int) -> Plan:
    """A backward as soon as there is one: rank r holds at most ``num_ranks - r`` micro-batches
    (Narayanan et al., PipeDream-Flush, arXiv:2006.09503)."""
    orders = tuple(
        _alternate(
            [Action(r, F, m) for m in range(num_micro)],
            [Action(r, B, m) for m in range(num_micro)],
            num_ranks - 1 - r,
        )
        for r in range(num_ranks)
    )
    return _plan("1F1B", num_micro, looped(num_ranks, num_ranks), orders)


def interleaved(num_ranks: int, num_stages: int, num_micro: int) -> Plan:
    """1F1B with several stages per rank, in rounds of about ``num_ranks`` micro-batches (Narayanan
    et al., Efficient Large-Scale Language Model Training, arXiv:2104.04473)."""
    rank_of = looped(num_ranks, num_stages)
    chunks = num_stages // num_ranks
    rounds = _rounds(num_ranks, num_micro)
    widest = len(rounds[0])
    orders = []
    for r in range(num_ranks):
        mine = [c * num_ranks + r for c in range(chunks)]
        forwards = [Action(s, F, m) for turn in rounds for s in mine for m in turn]
        backwards = [Action(s, B, m) for turn in rounds for s in reversed(mine) for m in turn]
        ahead = num_ranks - 1 - r if chunks == 1 else 2 * (num_ranks - 1 - r)
        orders.append(_alternate(forwards, backwards, (chunks - 1) * widest + ahead))
    return _plan("Interleaved1F1B", num_micro, rank_of, tuple(orders))


def looped_bfs(num_ranks: int, num_stages: int, num_micro: int) -> Plan:
    """GPipe with several stages per rank: a stage takes all micro-batches before the rank's next
    one does (Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv:2211.05953)."""
    rank_of = looped(num_ranks, num_stages)
    micros = range(num_micro)
    orders = []
    for r in range(num_ranks):
        mine = list(range(r, num_stages, num_ranks))
        down = [Action(s, F, m) for s in mine for m in micros]
        orders.append(tuple(down + [Action(s, B, m) for s in reversed(mine) for m in micros]))
    return _plan("LoopedBFS", num_micro, rank_of, tuple(orders))


def interleaved_zero_bubble(num_ranks: int, num_stages: int, num_micro: int) -> Plan:
    """Gradients of weights fill the waits, in the memory of 1F1B (Qi et al., Zero Bubble Pipeline
    Parallelism, arXiv:2401.10241, ZB-H1; with several stages per rank, interleaved)."""
    rank_of = looped(num_ranks, num_stages)
    orders = list_schedule(rank_of, num_micro)
    return _plan("InterleavedZeroBubble", num_micro, rank_of, orders)


def zbv(num_ranks: int, num_micro: int) -> Plan:
    """Two stages per rank, laid out as a V, so that a rank which runs the first stage also runs the
    last and no rank waits between them (the same paper, section 6)."""
    rank_of = vee(num_ranks, 2 * num_ranks)
    orders = list_schedule(rank_of, num_micro)
    return _plan("ZBVZeroBubble", num_micro, rank_of, orders)


def dual_pipe_v(num_ranks: int, num_micro: int) -> Plan:
    """Forwards of one leg of the V beside backwards of the other (DeepSeek-AI, DualPipe and
    DualPipeV, arXiv:2412.19437, in the eight steps of its description)."""
    num_stages = 2 * num_ranks
    if num_micro < num_stages:
        raise ConfigError(
            f"DualPipeV: {num_micro} micro-batches for {num_stages} stages; at least as many "
            "micro-batches as stages are needed: use ZBVZeroBubble, or smaller micro-batches"
        )
    orders = tuple(_Dual(num_ranks, r, num_micro).order() for r in range(num_ranks))
    return _plan("DualPipeV", num_micro, vee(num_ranks, num_stages), orders)


def known(name: str, num_ranks: int, num_stages: int, num_micro: int) -> Plan:
    """The plan of a schedule by its name, in any case. Raises ``ConfigError`` where there is no
    such schedule, or it cannot have so many stages."""
    found = {k.lower(): k for k in SCHEDULES}.get(name.lower())
    if found is None:
        raise ConfigError(f"{name!r} is no schedule; one of {', '.join(SCHEDULES)} is needed")
    per_rank = SCHEDULES[found][0]
    if per_rank and num_stages != per_rank * num_ranks:
        raise ConfigError(
            f"{found}: {num_stages} stages on {num_ranks} ranks were given; it needs {per_rank} on "
            f"each, {per_rank * num_ranks} in all"
        )
    return SCHEDULES[found][1](num_ranks, num_stages, num_micro)


# Of each: how many stages it has on a rank (0: any number), and its plan.
SCHEDULES: dict[str, tuple[int, Callable[[int, int, int], Plan]]] = {
    "GPipe": (1, lambda ranks, stages, micro: gpipe(ranks, micro)),
    "1F1B": (1, lambda ranks, stages, micro: one_f_one_b(ranks, micro)),
    "Interleaved1F1B": (0, interleaved),
    "LoopedBFS": (0, looped_bfs),
    "InterleavedZeroBubble": (0, interleaved_zero_bubble),
    "ZBVZeroBubble": (2, lambda ranks, stages, micro: zbv(ranks, micro)),
    "DualPipeV": (2, lambda ranks, stages, micro: dual_pipe_v(ranks, micro)),
}


class _Dual:
    """One rank's part of DualPipeV: its stages ``down`` and ``up`` of the V."""

    def __init__(self, num_ranks: int, rank: int, num_micro: int) -> None:
        self.after, self.rank, self.num_micro = num_ranks - 1 - rank, rank, num_micro
        self.num_ranks = num_ranks
        self.down, self.up = rank, 2 * num_ranks - 1 - rank
        self.next: dict[tuple[int, bool], int] = {}
        self.weights: deque[Action] = deque()
        self.found: list[Action] = []

    def add(self, stage: int, kind: Kind) -> None:
        key = (stage, kind is F)
        micro = self.next.get(key, 0)
        self.next[key] = micro + 1
        self.found.append(Action(stage, kind, micro))
        if kind is I:
            self.weights.append(Action(stage, W, micro))

    def weight(self) -> None:
        if self.weights:
            self.found.append(self.weights.popleft())

    def order(self) -> tuple[Action, ...]:
        down, up, after, rank = self.down, self.up, self.after, self.rank
        for _ in range(2 * after):
            self.add(down, F)
        for _ in range(rank + 1):
            self.add(down, F)
            self.add(up, F)
        for _ in range(after):
            self.add(up, I)
            self.weight()
            self.add(up, F)
        for _ in range(self.num_micro - 2 * self.num_ranks + rank + 1):
            self.add(down, F)
            self.add(up, B)
            self.add(up, F)
            self.add(down, B)
        for _ in range(after):
            self.add(up, B)
            self.add(up, F)
            self.add(down, B)
        split = False  # the second half of the last backwards is taken apart
        for i in range(rank + 1):
            split = split or (i == (rank + 1) // 2 and rank % 2 == 1)
            self.add(up, I if split else B)
            split = split or (i == (rank + 1) // 2 and rank % 2 == 0)
            self.add(down, I if split else B)
        for _ in range(after):
            self.weight()
            self.add(down, I if split else B)
        while self.weights:
            self.weight()
        return tuple(self.found)


def _alternate(forwards: list[Action], backwards: list[Action], ahead: int) -> tuple[Action, ...]:
    """``ahead`` forwards, then one forward and one backward in turn, then the other backwards."""
    ahead = min(ahead, len(forwards))
    found = forwards[:ahead]
    for f, b in zip(forwards[ahead:], backwards, strict=False):
        found += [f, b]
    return tuple(found + backwards[len(forwards) - ahead :])


def _rounds(num_ranks: int, num_micro: int) -> list[range]:
    """The micro-batches in rounds as even as can be, of ``num_ranks`` or more, larger first."""
    count = max(1, num_micro // num_ranks)
    size, more = divmod(num_micro, count)
    starts = [i * size + min(i, more) for i in range(count + 1)]
    return [range(a, b) for a, b in itertools.pairwise(starts)]


def _plan(name: str, num_micro: int, rank_of: tuple[int, ...], orders: tuple) -> Plan:
    if num_micro < 1:
        raise ConfigError(f"{name}: {num_micro} micro-batches; at least one is needed")
    return Plan(name, num_micro, rank_of, orders).with_messages()
