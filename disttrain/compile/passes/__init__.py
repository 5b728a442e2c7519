"""Passes: functions from Graph to Graph. Each leaves a verified graph that computes the same bits.

``ORDER`` is the list that a captured program goes through. A pass may drop, merge, replace and fuse
instructions; what the program writes to, and what becomes of its results, it leaves alone
(``values`` knows which values those are).

    folding          what is computed from constants alone is computed once
    simplification   x * 1, -(-x), casts there and back, copies that nobody can tell from the value
    subexpressions   the same operation on the same values runs once
    dead_code        what nobody uses is dropped
    recomputation    what is cheap is computed again, where a budget of memory asks for it
    fusion           elementwise operations that feed each other become one generated kernel
    overwriting      results of such kernels go where an operand lay that nobody uses any more
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..graph import Graph
from ..instruction import Instruction, Var
from .dead_code import dead_code
from .device_fusion import fuse_there, fused_there, overwrite_there
from .folding import fold_constants
from .fusion import fuse, fuse_fast, fused
from .overwriting import overwrite
from .questions import ask_early
from .recomputation import Recompute
from .simplification import simplify
from .subexpressions import merge_subexpressions

Pass = Callable[[Graph], Graph]

EVERYWHERE: tuple[Pass, ...] = (fold_constants, simplify, merge_subexpressions, dead_code)
ORDER = (*EVERYWHERE, fuse, overwrite)  # on the host
FAST = (*EVERYWHERE, fuse_fast, overwrite)  # there, where last bits may differ
THERE = (*EVERYWHERE, fuse_there, overwrite_there)  # where values lie on a device
NONE: tuple[Pass, ...] = (dead_code,)  # for who wants what was captured


def recomputing(budget: float, passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """``passes``, and that for a budget of memory (``Recompute``) before those that fuse."""
    first = len(EVERYWHERE)
    return (*passes[:first], Recompute(budget), *passes[first:])


def stages(graph: Graph, passes: Sequence[Pass]) -> Iterator[tuple[str, Graph]]:
    """The name of each pass, and the graph after it."""
    for each in passes:
        graph = each(graph)
        yield each.__name__, graph


def optimize(graph: Graph, passes: Sequence[Pass] = ORDER) -> Graph:
    """The graph after ``passes``, one after another."""
    for _, after in stages(graph, passes):
        graph = after
    return graph


def on_devices(passes: Sequence[Pass], recorded: bool) -> tuple[Pass, ...]:
    """What stands for ``passes`` where values lie on a device. ``recorded``: steps become CUDA
    graphs, whose memory is a plan of their own."""
    kept = [each for each in passes if each in EVERYWHERE or isinstance(each, Recompute)]
    if fuse not in passes and fuse_fast not in passes:
        return tuple(kept)
    return (*kept, fuse_there) if recorded else (*kept, fuse_there, overwrite_there)


def shortened(
    instructions: Sequence[Instruction], graph: Graph, results: Iterable[Var],
    passes: Sequence[Pass],
) -> list[Instruction]:  # fmt: skip
    """Instructions that are no graph of their own (a captured backward, of values that ``graph``
    knows), fused where ``passes`` fuse."""
    metas = graph.metas
    if fuse_there in passes:
        return fused_there(instructions, metas, results, graph.there)
    if fuse in passes or fuse_fast in passes:
        return fused(instructions, metas, results, fuse_fast in passes)
    return list(instructions)


__all__ = [
    "EVERYWHERE",
    "FAST",
    "NONE",
    "ORDER",
    "THERE",
    "Pass",
    "ask_early",
    "dead_code",
    "fold_constants",
    "fuse",
    "fuse_fast",
    "fuse_there",
    "merge_subexpressions",
    "on_devices",
    "optimize",
    "overwrite",
    "overwrite_there",
    "recomputing",
    "shortened",
    "simplify",
    "stages",
]
