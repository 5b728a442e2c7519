"""Graphs of pure operations as programs of the compiler: staged once for each kind of inputs, and
run without Python from then on.

What is pure, the operations say (``Operation.role``): those that read cells come first, and their
values are inputs. Staging refuses what reads numbers or draws random ones: such a graph is run
operation by operation, as is one whose gradients may be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import tree
from ..context import thread
from ..core.bodies import own
from ..core.tensor import Tensor
from ..core.tensor import wrap as tensor_of
from ..core.types.device import CPU
from ..func.staging import Program, stage
from .graph import Graph

_TURNS = 32  # of the body, that a run counts for: the second one is shortened by the compiler
_MOST = 64  # programs of one graph that are kept


class Compiled:
    """The programs of ``graph``, which is finished."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        named = [op for op in graph.operations if op.call is not None]
        self._reads = [op for op in named if op.role == "read"]
        self._steps = [op for op in named if op.role != "read"]
        # (a few operations of Python's cost less than a program's start)
        self.possible = len(self._steps) > 1 and all(op.role == "pure" for op in self._steps)
        self._programs: dict[tuple, Program | None] = {}
        self._seen: set[tuple] = set()

    def run(self, values: Sequence[Any]) -> list | None:
        """The outputs for ``values``, of which nothing is recorded; None: not in this way."""
        if not self.possible or thread.stack:
            return None
        given = [*values, *(op.call() for op in self._reads)]
        if any(type(v) is not Tensor or v.device is not CPU for v in given):
            return None
        key = tuple([v.meta()[:2] for v in given])
        if key not in self._programs:
            if key not in self._seen:  # staging is for what is called again
                self._seen.add(key)
                return None
            if len(self._programs) >= _MOST:
                self._programs.clear()
            self._programs[key] = self._staged(key)
        program = self._programs[key]
        if program is None:
            return None
        arrays = [t.array for t in (*program.consts, *given)]
        body = program.body
        return [tensor_of(own(r, arrays, body)) for r in body.run(_TURNS)(arrays)]

    def _staged(self, key: tuple) -> Program | None:
        try:
            return stage(self._results, key).program
        except Exception:  # what is wrong, or cannot be staged, the operations tell or do
            return None

    def _results(self, *given: Any) -> list:
        graph = self.graph
        slots = [*graph.inputs, *(inner for _, inner in graph.captured),
                 *(op.outputs[0] for op in self._reads)]  # fmt: skip
        known = {id(t): value for t, value in zip(slots, given, strict=True)}
        for op in self._steps:
            found = tree.leaves(op.call(*[known[id(t)] for t in op.inputs]))
            known |= {id(t): value for t, value in zip(op.outputs, found, strict=False)}
        return [known[id(t)] for t in graph.outputs]
