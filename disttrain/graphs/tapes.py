"""Tapes inside of traced functions: what is done with one is done now, on examples, and at every
run of the function with a tape of that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..autograd.cells import Rows
from ..autograd.tape import GradientTape
from ..core.tensor import Tensor
from ..errors import AutogradError
from ..ops import api as ops
from .graph import CURRENT, Run


def _value(t: Any) -> Any:
    return t if isinstance(t, Tensor) else t._value


class StagedTape:
    """A ``GradientTape``; where a function is traced its doings are operations of the graph, too.
    Its arguments are Tensors, symbols, and what has such a Tensor (``_value``)."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._how = persistent, watch_accessed_variables
        self.tape = GradientTape(*self._how)

    def do(self, kind: str, action: Callable[..., Any], *inputs: Any) -> None:
        """``action(tape, *values)``."""
        action(self.tape, *map(_value, inputs))
        graph = CURRENT.get()
        if graph is not None:
            graph.record(kind, lambda *values, run: action(self.of(run), *values), list(inputs),
                         examples=(), controlled=True)  # fmt: skip

    def of(self, run: Run) -> GradientTape:
        """The tape of a run."""
        if id(self) not in run.tapes:
            run.tapes[id(self)] = GradientTape(*self._how)
        found: GradientTape = run.tapes[id(self)]
        return found

    @contextmanager
    def stop_recording(self, stop: str = "TapeStop", go_on: str = "TapeResume") -> Iterator[None]:
        """Leave out what runs in the block."""
        if not self.tape._recording:
            raise AutogradError("GradientTape: Trying to stop recording a tape which is not "
                                "recording.")  # fmt: skip
        managers: dict[int, Any] = {}

        def begin(tape: Any) -> None:
            managers[id(tape)] = tape.stop_recording()
            managers[id(tape)].__enter__()

        self.do(stop, begin)
        try:
            yield
        finally:
            self.do(go_on, lambda tape: managers.pop(id(tape)).__exit__(None, None, None))

    def ask(
        self, inputs: Sequence[Any], compute: Callable[..., list], sources: Sequence[Any],
        kind: str = "Gradients",
    ) -> list:  # fmt: skip
        """What ``compute(tape, sources, *values of inputs)`` gives: gradients (``Rows``, or None).
        Of ``sources`` those that are no cells and no Tensors are inputs as well. Where a function
        is traced: symbols, and ``Rows`` of symbols."""
        places = [i for i, s in enumerate(sources) if hasattr(s, "_value")]
        graph, count = CURRENT.get(), len(inputs)
        inputs = [*inputs, *(sources[i] for i in places)]

        def on(tape: Any, *values: Any) -> list:
            known = list(sources)
            for i, v in zip(places, values[count:], strict=True):
                known[i] = v
            return compute(tape, known, *values[:count])

        if graph is None:
            return on(self.tape, *map(_value, inputs))
        held = [graph.inside(t) for t in inputs]
        example = on(self.tape, *[t._value for t in held])

        def call(*values: Any, run: Any) -> tuple:
            pairs = zip(on(self.of(run), *values), example, strict=True)
            return tuple(_carried(g, e) for g, e in pairs if e is not None)

        flat = tuple(_carried(e, e) for e in example if e is not None)
        outs = iter(graph.record(kind, call, held, examples=flat, controlled=True))
        return [
            None if e is None else Rows(*next(outs)) if isinstance(e, Rows) else next(outs)
            for e in example
        ]


def _carried(g: Any, example: Any) -> Any:
    """A gradient as what a graph carries: its tensor, or the tensors of its rows."""
    if isinstance(example, Rows):
        return g.values, g.indices, ops.tensor(list(g.shape))
    return g
