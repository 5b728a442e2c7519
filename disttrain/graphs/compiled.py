"""Graphs of pure operations as programs of the compiler: staged once for each kind of inputs, and
run without Python from then on; and functions whose Python runs once.

What is pure, the operations say (``Operation.role``): those that read cells come first, and their
values are inputs. Staging refuses what reads numbers or draws random ones: such a graph is run
operation by operation, as is one whose gradients may be asked for.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..context import thread
from ..core.bodies import own
from ..core.observers import OperationObserver
from ..core.tensor import Tensor
from ..core.tensor import wrap as tensor_of
from ..core.types.device import CPU
from ..errors import CaptureError
from ..func.staging import Program, stage
from .graph import Graph

# Whether a call is staged that is to be repeated without Python: cells are not to be read then.
STAGING: contextvars.ContextVar[bool] = contextvars.ContextVar("staging", default=False)
_TURNS = 32  # of the body, that a run counts for: the second one is shortened by the compiler
_UNKNOWN: Any = object()
_MOST = 64  # programs of one graph that are kept


def _on_arrays(program: Program, values: Sequence[Tensor]) -> list[Tensor]:
    arrays, body = [t.array for t in (*program.consts, *values)], program.body
    return [tensor_of(own(r, arrays, body)) for r in body.run(_TURNS)(arrays)]


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor and value.device is CPU


class _Outside(OperationObserver):
    """Refuses what would be done once, or frozen: operations on state that lies outside of the call
    that is staged, reads of its numbers, and writes to anything outside."""

    def __init__(self, is_state: Callable[[Tensor], bool]) -> None:
        self.is_state = is_state
        self.made: list[Any] = []
        self.refused = False

    def process(self, prim: Any, args: tuple, params: dict, further: Any) -> Any:
        for i, a in enumerate(args):
            if isinstance(a, Tensor) and not any(a is m for m in self.made) and (
                i in (prim.mutates or ()) or self.is_state(a)
            ):  # fmt: skip
                self.refused = True
                raise CaptureError(f"{prim.name} of tensors from outside")
        out = further(prim, args, params)
        self.made += out if prim.multi else [out]
        return out

    def on_read(self, t: Tensor) -> None:
        self.refused = self.refused or self.is_state(t)


class Once:
    """``fn`` of Tensors, whose Python runs once for each kind of them: what it has done with
    Tensors, also with those from outside (which are read anew), is done at every call. Where it
    draws random numbers, writes, reads numbers or cells, or computes with state from outside alone
    (``is_state``: which tensors are; others are constants), it runs as it is."""

    def __init__(
        self, fn: Callable[..., Any], is_state: Callable[[Tensor], bool] = lambda t: True
    ) -> None:
        self.fn, self.is_state = fn, is_state
        self._known: dict[tuple, tuple[Program, Callable] | None] = {}

    def __call__(self, *values: Any) -> Any:
        if thread.stack or not all(map(_is_plain, values)):
            return self.fn(*values)
        key = (thread.grad_enabled, *[v.meta()[:2] for v in values])
        if key not in self._known:
            self._known[key] = self._staged(key[1:])
        known = self._known[key]
        if known is None:
            return self.fn(*values)
        program, rebuild = known
        given = (*program.consts, *values)
        if thread.grad_enabled and any(t.requires_grad for t in given):
            return rebuild(list(program.body(*given)))
        return rebuild(_on_arrays(program, values))

    def _staged(self, metas: Sequence[tuple]) -> tuple[Program, Callable] | None:
        token, outside = STAGING.set(True), _Outside(self.is_state)
        thread.stack.append(outside)
        try:
            found = stage(self.fn, metas, keeps_mode=True)
        except Exception:  # what is wrong, ``fn`` tells itself
            return None
        finally:
            thread.stack.remove(outside)
            STAGING.reset(token)
        fixed = not outside.refused and all(t.device is CPU for t in found.consts)
        return (found.program, found.rebuild) if fixed else None


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
        if not all(map(_is_plain, given)):
            return None
        key = tuple([v.meta()[:2] for v in given])
        program = self._programs.get(key, _UNKNOWN)
        if program is _UNKNOWN:
            if key not in self._seen:  # staging is for what is called again
                self._seen.add(key)
                return None
            if len(self._programs) >= _MOST:
                self._programs.clear()
            program = self._programs[key] = self._staged(key)
        if program is None:
            return None
        try:
            return _on_arrays(program, given)
        except Exception:  # the operations tell where
            return None

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
