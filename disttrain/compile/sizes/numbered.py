"""Captures whose numbers are given with each call: a rate that is another one each time costs
nothing more than one that stays.

A plain number among the arguments that goes into operations as an operand, and nowhere else (into
no shape, no attribute of an operation, no gradient's graph), is an input of the replay by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.tensor import Tensor
from ...symbolic import ERRORS, Scope
from ..graph import Graph
from ..guards.arguments import Call
from ..instruction import Instruction
from ..joint import Joint
from ..passes.region import Fused
from ..sized import SIZED, numbers

_WORD = re.compile(r"\w+")


def names_in(text: str) -> set[str]:
    """The words of an expression, the names of symbols among them."""
    return set(_WORD.findall(text))


def free_numbers(
    graph: Graph, joint: Joint | None, symbols: dict[str, int]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Those of ``symbols`` that are operands and results alone; all numbers of them in the graph,
    by their texts."""
    taken = {name for number in _others(graph, joint) for name in names_in(number.text)}
    free = {name: k for name, k in symbols.items() if name not in taken}
    ends = (o for o in graph.outputs if type(o) in SIZED)
    found = {n.text: n for n in (*_operands(graph.instructions), *ends)}
    return free, {t: n for t, n in found.items() if not names_in(t).isdisjoint(free)}


def _operands(instructions: Sequence[Instruction]) -> Iterator[Any]:
    """Sized numbers that operations are given as they are."""
    for ins in instructions:
        if not isinstance(ins.prim, Fused):
            yield from (a for a in ins.args if type(a) in SIZED)


def _others(graph: Graph, joint: Joint | None) -> Iterator[Any]:
    """Sized numbers that stand elsewhere."""
    for shape, _ in graph.metas.values():
        yield from numbers(shape)
    yield from numbers([o for o in graph.outputs if type(o) not in SIZED])
    for ins in graph.instructions:
        yield from _within(ins, {id(a) for a in ins.args if type(a) in SIZED})
    if joint is not None:
        yield from numbers(joint.shapes)
        walked = [ins for sweep in joint.sweeps for ins in sweep.instructions]
        for ins in (*walked, *(joint.pure.instructions if joint.pure is not None else ())):
            yield from _within(ins, set())


def _within(ins: Instruction, left_out: set[int]) -> Iterator[Any]:
    if isinstance(ins.prim, Fused):
        for member in ins.prim.region.members:
            yield from _within(member, set())
        left_out = set()
    yield from numbers([a for a in ins.args if id(a) not in left_out])
    yield from numbers(ins.params)


class Opened(list):
    """The captures for one call that are given its numbers."""


class Open:
    """A general capture as it is for some sizes, but for numbers that each call gives. ``values``:
    of all symbols in the call that it was made for; ``free``: the symbols of those that change,
    with the numbers that they have among the plain numbers of a call."""

    def __init__(
        self, entry: Any, scope: Scope, values: tuple, free: dict[str, int],
        graph: Graph, joint: Joint | None,
    ) -> None:  # fmt: skip
        self.entry, self.values = entry, values
        self.graph, self.joint = graph, joint
        self.places = [(scope.names.index(name), k) for name, k in free.items()]
        self.computed = [scope.of(text) for _, text in graph.program.numbered]
        self.tests = scope.tests_of(lambda text: not names_in(text).isdisjoint(free))

    def of(self, call: Call) -> Given | None:
        """For the numbers of a call; None where it does not stand for them."""
        given, values = [*call.numbers.values()], list(self.values)
        for at, k in self.places:
            values[at] = given[k]
        try:
            if not all(test(values) for test in self.tests):
                return None
            return Given(self, [how(values) for how in self.computed])
        except ERRORS:
            return None


class Given:
    """One of those with the numbers of a call: an ``Entry`` of it."""

    __slots__ = ("answers", "numbers", "open", "stale")

    def __init__(self, opened: Open, numbers: list) -> None:
        self.open, self.numbers = opened, numbers
        self.answers: tuple[bytes, ...] = opened.entry.answers
        self.stale: Callable[[Call], str | None] = opened.entry.stale

    def run(self, given: list[Tensor]) -> Any:
        """Replay."""
        one = self.open
        return one.entry.run(given, one.graph, one.joint, self.numbers)


__all__ = ["Open", "Opened", "free_numbers"]
