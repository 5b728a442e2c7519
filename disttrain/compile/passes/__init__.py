"""Passes: functions from Graph to Graph. Each leaves a verified graph that computes the same bits.

``ORDER`` is the list that a captured program goes through. A pass may drop, merge, replace and fuse
instructions; what the program writes to, and what becomes of its results, it leaves alone
(``values`` knows which values those are).

    folding          what is computed from constants alone is computed once
    simplification   x * 1, -(-x), casts there and back, copies that nobody can tell from the value
    subexpressions   the same operation on the same values runs once
    dead_code        what nobody uses is dropped
    fusion           elementwise operations that feed each other become one generated kernel
"""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Graph
from .dead_code import dead_code
from .folding import fold_constants
from .fusion import fuse
from .simplification import simplify
from .subexpressions import merge_subexpressions

Pass = Callable[[Graph], Graph]

EVERYWHERE: tuple[Pass, ...] = (fold_constants, simplify, merge_subexpressions, dead_code)
ORDER = (*EVERYWHERE, fuse)  # on the host


def optimize(graph: Graph, passes: tuple[Pass, ...] = ORDER) -> Graph:
    """The graph after ``passes``, one after another."""
    for each in passes:
        graph = each(graph)
    return graph


__all__ = [
    "EVERYWHERE",
    "ORDER",
    "Pass",
    "dead_code",
    "fold_constants",
    "fuse",
    "merge_subexpressions",
    "optimize",
    "simplify",
]
