"""Tapes inside of traced functions: what is done with one is done now, on examples, and at every
run of the function with a tape of that run."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from .. import tree
from ..autograd.cells import Cell, Rows
from ..autograd.tape import GradientTape
from ..context import thread
from ..core.tensor import Tensor
from ..errors import AutogradError, DisttrainError, ShapeError
from ..ops import api as ops
from .graph import CURRENT, Run, outside

# Whether what runs is recorded without a tape, too.
RECORDED: contextvars.ContextVar[bool] = contextvars.ContextVar("recorded", default=False)


@contextmanager
def recorded() -> Iterator[None]:
    """Let what runs be recorded without a tape."""
    token = RECORDED.set(True)
    try:
        yield
    finally:
        RECORDED.reset(token)


def records() -> bool:
    """Whether gradients may be asked for, where tapes alone ask for them."""
    return bool(thread.tapes) or RECORDED.get()


def settled(value: Any) -> Any:
    """A result, where tapes alone ask for gradients: outside of them nothing is recorded."""
    if isinstance(value, Tensor) and not thread.tapes and value.requires_grad:
        return value if RECORDED.get() else value.detach()
    return value


def _value(t: Any) -> Any:
    return t if isinstance(t, Tensor) else t._value


class StagedTape:
    """A ``GradientTape``; where a function is traced its doings are operations of the graph, too.
    Its arguments are cells, Tensors, symbols, and what has such a Tensor (``_value``): a subclass
    says how a program's own values become such, and what it sees of gradients."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._how = persistent, watch_accessed_variables
        self.tape = GradientTape(*self._how)
        graph = CURRENT.get()
        if graph is not None:  # each turn of a loop has its own
            graph.record("Tape", self._anew, [], examples=(), controlled=True)

    def _anew(self, run: Run) -> None:
        run.tapes[id(self)] = GradientTape(*self._how)

    # --- what a subclass may say otherwise ------------------------------------------------------
    def source(self, value: Any) -> Any:
        """The cell or the tensor that is watched, or asked for."""
        return value

    def cell(self, value: Any) -> Cell | None:
        """The cell that a value is."""
        return value if isinstance(value, Cell) else None

    def tensor(self, value: Any) -> Any:
        """A target, or a weight, as a tensor."""
        return value.value if isinstance(value, Cell) else value

    def failed(self, error: DisttrainError) -> BaseException:
        """What is raised where a tape has raised ``error``."""
        return error

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (AutogradError, ShapeError) as error:
            told = self.failed(error)
            raise told from (None if told is error else error)

    def cover(self, gradient: Any) -> Any:
        """A gradient (``Rows``, None) as the program sees it."""
        return gradient

    # --- recording ------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        graph = CURRENT.get()
        if graph is not None:
            graph.has_tape()
        with self._telling():
            self.do("TapeEnter", lambda tape: tape.__enter__() and None)
        return self

    def __exit__(self, *exc: object) -> None:
        self.do("TapeExit", lambda tape: tape.__exit__())

    def watch(self, tensor: Any) -> None:
        """Record what is done with tensors and cells, nested."""
        for leaf in tree.leaves(tensor):
            found = self.source(leaf)
            if isinstance(found, (Cell, Tensor)):
                self.do("TapeWatch", lambda tape, found=found: tape.watch(found))
            else:
                self.do("TapeWatch", lambda tape, value: tape.watch(value), found)

    def reset(self) -> None:
        """Forget all that was recorded and watched."""
        self.do("TapeReset", lambda tape: tape.reset())

    def watched_variables(self) -> tuple:
        """The cells (their owners) that were read or watched, in order."""
        return tuple(getattr(cell, "owner", cell) for cell in self.tape.notes.cells())

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
            raise self.failed(AutogradError(
                "GradientTape: Trying to stop recording a tape which is not recording."
            ))  # fmt: skip

        def begin(tape: Any) -> None:
            tape.paused = tape.stop_recording()
            tape.paused.__enter__()

        def resume(tape: Any) -> None:
            paused, tape.paused = tape.paused, None
            paused.__exit__(None, None, None)

        self.do(stop, begin)
        try:
            yield
        finally:
            self.do(go_on, resume)

    # --- gradients ------------------------------------------------------------------------------
    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None,
        unconnected_gradients: Any = "none",
    ) -> Any:  # fmt: skip
        """The gradients of the sum of ``target``, in the structure of ``sources``."""
        if target is None:
            raise TypeError(
                "Argument `target` should be a list or nested structure of Tensors, Variables or "
                "CompositeTensors to be differentiated, but received None."
            )
        targets = tree.leaves(target)
        given = output_gradients is not None
        seeds = tree.leaves(output_gradients, with_none=True) if given else []
        there = [g for g in seeds if g is not None]

        def compute(tape: Any, found: list, *values: Any) -> list:
            rows = iter(values)
            heads = [self._head(tape, t, next(rows)) for t in targets]
            factors = [None if g is None else next(rows) for g in seeds] or None
            grads: list = tape.gradient(heads, found, factors, unconnected_gradients)
            return grads

        return self._asked([*targets, *there], compute, sources)

    def _head(self, tape: GradientTape, target: Any, value: Any) -> Any:
        """A target: the cell, where one was read after the tape had been closed."""
        cell = self.cell(target)
        return value if cell is None or tape.notes.holds(value) else cell

    def jacobian(
        self, target: Any, sources: Any, unconnected_gradients: Any = "none",
        parallel_iterations: Any = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """[*target, *source] for each of ``sources``."""
        how = unconnected_gradients, None, experimental_use_pfor
        return self._asked([target], lambda tape, found, out: tape.jacobian(out, found, *how),
                           sources)  # fmt: skip

    def batch_jacobian(
        self, target: Any, source: Any, unconnected_gradients: Any = "none",
        parallel_iterations: Any = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """[batch, *target, *source]: of each example."""
        how = unconnected_gradients, None, experimental_use_pfor
        return self._asked([target], lambda tape, found, out: [
            tape.batch_jacobian(out, found[0], *how)], source)  # fmt: skip

    def _asked(self, inputs: list, compute: Any, sources: Any) -> Any:
        leaves, rebuild = tree.flatten(sources)
        held = [self.tensor(t) for t in inputs]
        asked = [self.source(s) for s in leaves]
        with self._telling():
            found = self.ask(held, compute, asked)
        return rebuild([self.cover(g) for g in found])

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

        def on(tape: Any, *values: Any) -> tuple[list, list]:
            known = list(sources)
            for i, v in zip(places, values[count:], strict=True):
                known[i] = v
            return known, compute(tape, known, *values[:count])

        if graph is None:
            return on(self.tape, *map(_value, inputs))[1]
        held = [graph.inside(t) for t in inputs]
        with outside():  # a function of gradients computes with examples, too
            example = on(self.tape, *[t._value for t in held])[1]

        def call(*values: Any, run: Any) -> tuple:
            known, found = on(self.of(run), *values)
            return tuple(_carried(_there(g, e, s), e) for g, e, s in zip(
                found, example, known, strict=True) if e is not None)  # fmt: skip

        flat = tuple(_carried(e, e) for e in example if e is not None)
        outs = iter(graph.record(kind, call, held, examples=flat, controlled=True))
        return [
            None if e is None else Rows(*next(outs)) if isinstance(e, Rows) else next(outs)
            for e in example
        ]


def _there(g: Any, example: Any, source: Any) -> Any:
    """A gradient like the example; zeros, where this run has no connection to ``source``."""
    if isinstance(example, Rows):
        if g is None:
            return Rows(example.values[:0].detach(), example.indices[:0], example.shape)
        return g if isinstance(g, Rows) else Rows(g, ops.arange(len(g)), tuple(g.shape))
    if g is None:
        now = source.value if isinstance(source, Cell) else source
        sizes = now.shape if now.ndim == example.ndim else example.shape
        return ops.zeros(sizes, dtype=example.dtype)
    return g.dense() if isinstance(g, Rows) else g


def _carried(g: Any, example: Any) -> Any:
    """A gradient as what a graph carries: its tensor, or the tensors of its rows."""
    if isinstance(example, Rows):
        return g.values, g.indices, ops.tensor(list(g.shape))
    return g
