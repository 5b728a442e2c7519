"""Passes: functions from Graph to Graph. Each leaves a verified graph that computes the same bits.

``ORDER`` is the list that a captured program goes through. A pass may drop, merge, replace and fuse
instructions; what the program writes to, and what becomes of its results, it leaves alone
(``values`` knows which values those are).

    folding          what is computed from constants alone is computed once
    simplification   x * 1, -(-x), casts there and back, copies that nobody can tell from the value
    subexpressions   the same operation on the same values runs once
    dead_code        what nobody uses is dropped
    products         gradients of weights first: what layers were given is free after them
    pools            of what a max pool saw, the places of the largest are kept
    masks            of what is looked at again for its signs alone, these are kept
    recomputation    what is cheap is computed again, where memory asks for it
    biases           the bias of a product is an addition of its own, which joins what follows
    rows             operations on rows join elementwise ones, and sums what makes their operands
    fusion           elementwise operations that feed each other become one generated kernel
    coalescing       small collectives that come one behind the other go in one message
    scheduling       work with other ranks begins early, and is waited for late
    placing          gradients of weights are computed where their leaves take them
    overwriting      results of such kernels go where an operand lay that nobody uses any more
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..graph import Graph
from ..instruction import Instruction, Var
from .biases import take_biases
from .coalescing import coalesce
from .dead_code import dead_code
from .device_fusion import fuse_there, fused_there, overwrite_there
from .folding import fold_constants
from .fusion import fuse, fuse_fast, fused
from .masks import keep_signs
from .overwriting import overwrite
from .placing import place_products
from .pools import keep_places
from .products import part_products
from .questions import ask_early
from .recomputation import Recompute
from .rows.fusion import fuse_rows, fused_rows
from .rows.sums import sums_apart, take_sums
from .scheduling import schedule
from .simplification import simplify
from .subexpressions import merge_subexpressions

Pass = Callable[[Graph], Graph]

EVERYWHERE: tuple[Pass, ...] = (fold_constants, simplify, merge_subexpressions, dead_code)
SHARE = 0.7  # of what a program would hold at its peak, where that takes little time
_LEAN: tuple[Pass, ...] = (part_products, keep_places, keep_signs)
_FIRST: tuple[Pass, ...] = (*EVERYWHERE, *_LEAN, Recompute(SHARE, light=True), take_biases)
_ROWS: tuple[Pass, ...] = (take_sums, fuse_rows)
_LAST: tuple[Pass, ...] = (coalesce, schedule, place_products, overwrite)
ORDER: tuple[Pass, ...] = (*_FIRST, *_ROWS, fuse, *_LAST)  # on the host
FAST: tuple[Pass, ...] = (*_FIRST, *_ROWS, fuse_fast, *_LAST)  # where last bits may differ
THERE: tuple[Pass, ...] = (*EVERYWHERE, fuse_there, overwrite_there)  # where values lie on a device
NONE: tuple[Pass, ...] = (dead_code,)  # for who wants what was captured


def recomputing(budget: float, passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """``passes`` for a budget of memory (``Recompute``) of the program's own; 1: nothing is
    computed twice."""
    own: list[Pass] = [Recompute(budget)] if budget < 1 else []
    return tuple(p for each in passes for p in (own if isinstance(each, Recompute) else [each]))


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
    kept = [p for p in passes if p in EVERYWHERE or (isinstance(p, Recompute) and not p.light)]
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
        fast = fuse_fast in passes
        if take_sums in passes:
            instructions = sums_apart(instructions, metas)
        if fuse_rows in passes:
            instructions = fused_rows(instructions, metas, results, fast)
        return fused(instructions, metas, results, fast)
    return list(instructions)


__all__ = [
    "EVERYWHERE",
    "FAST",
    "NONE",
    "ORDER",
    "THERE",
    "Pass",
    "ask_early",
    "coalesce",
    "dead_code",
    "fold_constants",
    "fuse",
    "fuse_fast",
    "fuse_rows",
    "fuse_there",
    "keep_places",
    "keep_signs",
    "merge_subexpressions",
    "on_devices",
    "optimize",
    "overwrite",
    "overwrite_there",
    "part_products",
    "place_products",
    "recomputing",
    "schedule",
    "shortened",
    "simplify",
    "stages",
    "take_biases",
    "take_sums",
]
