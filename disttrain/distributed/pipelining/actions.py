"""What a pipeline does, as data: actions, and a plan of them for every rank.

A model is cut into stages, a batch into micro-batches. An ``Action`` is one stage's forward or
backward of one micro-batch, or a message; a ``Plan`` lists them for every rank in order. As text an
action is ``<stage><kind><micro-batch>`` ("2F0", "0SEND_F3"), and a plan a table with one line per
rank, which users may write themselves. Knows no tensors and no ranks that run.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ...errors import ConfigError


class Kind(StrEnum):
    """What an action does.

    ``B`` is a whole backward; ``I`` and ``W`` are its two parts: the gradients of the stage's
    inputs, which the stage before waits for, and those of its weights, which nobody waits for.
    ``SEND_F`` and ``RECV_F`` carry the stage's results on, ``SEND_B`` and ``RECV_B`` gradients
    back; each names the stage on whose rank it runs.
    """

    F = "F"
    B = "B"
    I = "I"
    W = "W"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    # As PyTorch calls them.
    FORWARD = "F"
    FULL_BACKWARD = "B"
    BACKWARD_INPUT = "I"
    BACKWARD_WEIGHT = "W"


COMPUTE = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
_PATTERN = re.compile(r"^(\d+)(SEND_F|RECV_F|SEND_B|RECV_B|F|B|I|W)(\d+)$")
# What plans written for other runtimes also say; here a module's own hooks see to it.
_IMPLIED = re.compile(r"^\d+(UNSHARD|RESHARD|REDUCE_GRAD)\d*$")


class Action(NamedTuple):
    """One thing that a rank does."""

    stage: int
    kind: Kind
    micro: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{self.micro}"

    @property
    def computes(self) -> bool:
        return self.kind in COMPUTE

    @staticmethod
    def from_str(action_string: str) -> Action:
        return parse_action(action_string)

    @property
    def stage_index(self) -> int:
        return self.stage

    @property
    def computation_type(self) -> Kind:
        return self.kind

    @property
    def microbatch_index(self) -> int:
        return self.micro


def parse_action(text: str) -> Action:
    """The action that ``str`` wrote as ``text``."""
    found = _PATTERN.match(text.strip())
    if found is None:
        raise ConfigError(
            f"pipeline plan: {text!r} is no action; write <stage><kind><micro-batch> with kind one "
            f"of {', '.join(k.value for k in Kind)}, as in 2F0"
        )
    return Action(int(found[1]), Kind(found[2]), int(found[3]))


Orders = tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class Plan:
    """``orders[rank]``: what that rank does. ``rank_of[stage]``: where each stage lies."""

    name: str
    num_micro: int
    rank_of: tuple[int, ...]
    orders: Orders

    @property
    def num_stages(self) -> int:
        return len(self.rank_of)

    @property
    def num_ranks(self) -> int:
        return len(self.orders)

    def stages_of(self, rank: int) -> list[int]:
        """The stages on ``rank``, ascending."""
        return [s for s, r in enumerate(self.rank_of) if r == rank]

    def has_messages(self) -> bool:
        return any(not a.computes for order in self.orders for a in order)

    def with_messages(self) -> Plan:
        """This plan with the sends and receives between stages on different ranks.

        A result is sent as soon as it is there. A receive starts one computation before the one
        that needs it, so that the message can travel meanwhile.
        """
        orders = [self._with_messages(order) for order in self.orders]
        return replace(self, orders=tuple(orders))

    def _with_messages(self, order: Sequence[Action]) -> tuple[Action, ...]:
        rows = [self._around(a) for a in order]
        found: list[Action] = []
        started: set[Action] = set()
        for i, (needs, action, gives) in enumerate(rows):
            ahead = rows[i + 1][0] if i + 1 < len(rows) else []
            found += [n for n in needs if n not in started]
            found += ahead
            started.update(ahead)
            found += [action, *gives]
        return tuple(found)

    def _around(self, a: Action) -> tuple[list[Action], Action, list[Action]]:
        """The receives before ``a`` and the sends after it."""
        last, home = self.num_stages - 1, self.rank_of[a.stage]
        needs, gives = [], []
        if a.kind is Kind.F:
            if a.stage and self.rank_of[a.stage - 1] != home:
                needs.append(Action(a.stage, Kind.RECV_F, a.micro))
            if a.stage < last and self.rank_of[a.stage + 1] != home:
                gives.append(Action(a.stage, Kind.SEND_F, a.micro))
        elif a.kind in (Kind.B, Kind.I):
            if a.stage < last and self.rank_of[a.stage + 1] != home:
                needs.append(Action(a.stage, Kind.RECV_B, a.micro))
            if a.stage and self.rank_of[a.stage - 1] != home:
                gives.append(Action(a.stage, Kind.SEND_B, a.micro))
        return needs, a, gives

    def forward_only(self) -> Plan:
        """A plan of the same stages that only computes results, micro-batch by micro-batch."""
        orders = tuple(
            tuple(Action(s, Kind.F, m) for s in self.stages_of(r) for m in range(self.num_micro))
            for r in range(self.num_ranks)
        )
        return replace(self, name=f"{self.name}, forward only", orders=orders).with_messages()

    def to_csv(self) -> str:
        """One line per rank, one action per field."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(
            [str(a) for a in order] for order in self.orders
        )
        return out.getvalue()


def plan_of(
    orders: Iterable[Iterable[Action | str | None]], name: str = "user's", num_micro: int = 0
) -> Plan:
    """The plan of users' own ``orders``: per rank a list of actions or their texts, in which None
    and "" (a bubble) say nothing. Where stages lie follows from who computes them."""
    rows = []
    for order in orders:
        kept = [a for a in order if a is not None and a != ""]
        rows.append(tuple(_action(a) for a in kept if not (isinstance(a, str) and _implied(a))))
    homes: dict[int, int] = {}
    for rank, row in enumerate(rows):
        for a in row:
            if a.computes and homes.setdefault(a.stage, rank) != rank:
                raise ConfigError(
                    f"pipeline plan: stage {a.stage} computes on rank {homes[a.stage]} and ({a}) "
                    f"on rank {rank}; a stage lies on one rank"
                )
    missing = sorted(set(range(max(homes, default=-1) + 1)) - set(homes))
    if not homes or missing:
        raise ConfigError(
            f"pipeline plan: {'no stage computes anything' if not homes else ''}"
            f"{f'no rank computes stage {missing[0]}' if missing else ''}; needed are stages 0, 1, "
            "... up to the last, each on one rank"
        )
    micros = 1 + max(a.micro for row in rows for a in row)
    rank_of = tuple(homes[s] for s in range(len(homes)))
    plan = Plan(name, max(num_micro, micros), rank_of, tuple(rows))
    return plan if plan.has_messages() else plan.with_messages()


def _implied(text: str) -> bool:
    return _IMPLIED.match(text.strip()) is not None


def _action(given: Action | str) -> Action:
    if isinstance(given, str):
        return parse_action(given)
    return Action(int(given[0]), Kind(given[1]), int(given[2]))


def plan_from_csv(text: str, name: str = "csv") -> Plan:
    """The plan that ``Plan.to_csv`` wrote, or a user."""
    return plan_of(list(csv.reader(io.StringIO(text))), name)
