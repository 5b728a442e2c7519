"""A profile as a trace in MLCommons' Chakra format, which simulators of clusters read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from ..comm.transports.sim.chakra import COLL, COMP, RECV, SEND, Node, linked, verb_of, write
from .events import COLLECTIVE, OPERATION, Event

_BYTES = 4  # of an element: a profile knows shapes only


def of_events(events: Iterable[Event]) -> list[Node]:
    """What a profiled rank did: operations, which are told once (what ran inside of another is a
    part of it), and collectives."""
    nodes: list[Node] = []
    last: dict[int, float] = {}  # thread -> until when its last operation ran
    for event in sorted(events, key=lambda e: (e.start, -e.cpu_time)):
        if event.kind == COLLECTIVE:
            nodes.append(_collective(event))
        elif event.kind == OPERATION and event.end > last.get(event.thread, -1.0):
            last[event.thread] = event.end
            nodes.append(Node(event.name, COMP, event.start, event.cpu_time, flops=event.flops))
    return linked(nodes)


def _collective(event: Event) -> Node:
    ranks = tuple(int(r) for r in event.details.get("Process Group Ranks", ()))
    kind = COLL if verb_of(event.name) else RECV if "recv" in event.name else SEND
    nbytes = _BYTES * sum(math.prod(shape) for shape in event.input_shapes)
    ends = ranks if kind == COLL else ()
    return Node(event.name, kind, event.start, event.cpu_time, nbytes=nbytes, ranks=ends)


def write_events(events: Iterable[Event], name: str | Path, rank: int) -> Path:
    """The file of one rank, ``NAME.RANK.et``."""
    path = Path(f"{name}.{rank}.et")
    write(path, of_events(events))
    return path
