"""A generation: one set of ranks that step together, as data.

A job begins with generation 1. A restart, a node that is lost and a node that joins each begin the
next one, on all nodes alike. Pure: knows numbers and addresses; no processes, no network.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Generation:
    """Who takes part, as one node sees it.

    ``counts``: how many ranks each node has, in the nodes' order; ``me``: this node's place among
    them (GROUP_RANK). ``number`` grows with every generation and is never used twice: what carries
    an older one is refused. ``restart_count``: how many of the restarts were used. ``master_addr``
    and ``master_port``: where the ranks meet. ``nodes``: each node as host:pid, for messages;
    ``roles``: the --role of each, none where all have the same. ``job``: what all generations of
    one job have alike, and those of no other; empty where it is the plan's.
    """

    counts: tuple[int, ...]
    me: int = 0
    number: int = 1
    restart_count: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    nodes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    job: str = ""

    @cached_property
    def world_size(self) -> int:
        return sum(self.counts)

    @cached_property
    def first_rank(self) -> int:
        """The first rank of this node; the others follow it."""
        return sum(self.counts[: self.me])

    @property
    def num_ranks(self) -> int:
        """How many ranks this node has."""
        return self.counts[self.me]

    @property
    def num_nodes(self) -> int:
        return len(self.counts)

    @property
    def ranks(self) -> range:
        """The ranks of this node."""
        return range(self.first_rank, self.first_rank + self.num_ranks)

    def local_rank(self, rank: int) -> int:
        return rank - self.first_rank

    def in_role(self, rank: int) -> tuple[int, int]:
        """``rank``, one of this node's, among the ranks of its role; how many these are."""
        mine = [n for n, role in enumerate(self.roles) if role == self.roles[self.me]]
        if not mine:
            return rank, self.world_size
        before = sum(self.counts[n] for n in mine if n < self.me)
        return before + self.local_rank(rank), sum(self.counts[n] for n in mine)

    def node_of(self, rank: int) -> int:
        """The node that has ``rank``."""
        for node, count in enumerate(self.counts):
            if rank < count:
                return node
            rank -= count
        raise IndexError(f"rank {rank + self.world_size} of {self.world_size}")

    def name_of(self, rank: int) -> str:
        """host:pid of the node that has ``rank``; empty where nobody has said it."""
        return self.nodes[self.node_of(rank)] if self.nodes else ""

    def after(self, restarts: int = 1) -> Generation:
        """The next one, of the same nodes."""
        return dataclasses.replace(
            self, number=self.number + 1, restart_count=self.restart_count + restarts
        )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Generation:
        told = json.loads(text).items()
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told}
        return cls(**fields)


def of_hosts(size: int, local_size: int, rank: int) -> Generation:
    """Of ``size`` ranks with ``local_size`` on each host but the last, as the host of ``rank``
    sees it."""
    whole, rest = divmod(size, local_size)
    return Generation((local_size,) * whole + ((rest,) if rest else ()), rank // local_size)
