"""What the reducer asks the graph: which nodes results come from, and what a walk comes to.

Knows nodes; no buckets.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ....context import thread
from ....core.node import Output
from ....core.tensor import Tensor
from ...collectives.nested import find_tensors


def nodes_of(outputs: object) -> list:
    """The nodes that made the tensors in ``outputs``."""
    if outputs.__class__ is Tensor:
        node = outputs.graph_node()
        return [] if node is None else [node.node if node.__class__ is Output else node]
    found = (t.graph_node() for t in find_tensors(outputs))
    return list(dict.fromkeys(n.node if n.__class__ is Output else n for n in found if n))


def reached(roots: Iterable[weakref.ref]) -> bool:
    """Whether the backward pass that is running comes to one of ``roots``."""
    walk = thread.walk
    return walk is not None and any(walk.reaches(r()) for r in roots)


def below(nodes: Iterable[Any]) -> set:
    """All nodes and accumulators that a backward from ``nodes`` would come to."""
    seen: set = set()
    stack = [n for n in nodes if n is not None]
    while stack:
        node = stack.pop()
        node = node.node if node.__class__ is Output else node
        if node not in seen:
            seen.add(node)
            stack.extend(e for e in node.edges if e is not None)
    return seen
