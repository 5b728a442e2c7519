"""``tf.GradientTape`` over the native one, which knows of the cells of variables; and tapes inside
of traced functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import tree
from ...autograd.cells import Rows
from ...context import thread
from ...core.tensor import Tensor as Inner
from ...errors import AutogradError, ShapeError
from ...graphs.tapes import StagedTape
from . import arrays
from .tensor import GRAPH, Tensor, _of_keras, convert, is_tensor, wrap
from .variable import IndexedSlices, Variable

_ODD = "Passed in object {!r} of type {!r}, not tf.Tensor or tf.Variable or ExtensionType."


class UnconnectedGradients:
    """What stands for the gradient of a source that the target does not depend on."""

    NONE, ZERO = "none", "zero"


class GradientTape:
    """Records operations for gradients. See ``disttrain.GradientTape`` for what computes them.

    Inside of a traced function, opening it, watching, asking for gradients and closing it are
    operations of the graph, done at every run.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._staged = StagedTape(persistent, watch_accessed_variables)
        self._tape: Any = self._staged.tape
        self._do = self._staged.do

    def __enter__(self) -> GradientTape:
        try:
            self._do("TapeEnter", lambda tape: tape.__enter__() and None)
        except AutogradError as error:
            raise ValueError(str(error).partition(": ")[2]) from None
        return self

    def __exit__(self, *exc: object) -> None:
        self._do("TapeExit", lambda tape: tape.__exit__())

    def watch(self, tensor: Any) -> None:
        """Record what is done with ``tensor`` (tensors, variables, nested)."""
        for t in tree.leaves(tensor):
            if not is_tensor(t):
                raise ValueError(_ODD.format(t, type(t).__name__))
            if isinstance(t, Variable):
                self._do("TapeWatch", lambda tape, cell=t._cell: tape.watch(cell))
            elif _of_keras(t):
                self._tape.watch(t.value)
            else:
                graph = GRAPH.get()
                held = convert(t) if graph is None else graph.inside(t)
                self._do("TapeWatch", lambda tape, value: tape.watch(value), held)

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Leave out what runs in the block."""
        if not self._tape._recording:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        with self._staged.stop_recording():
            yield

    def reset(self) -> None:
        """Forget all that was recorded and watched."""
        self._do("TapeReset", lambda tape: tape.reset())

    def watched_variables(self) -> tuple:
        """The variables that were read or watched, in order."""
        return tuple(cell.owner for cell in self._tape.notes.cells())

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
        outs = [convert(t) for t in targets]
        given = output_gradients is not None
        seeds = tree.leaves(output_gradients, with_none=True) if given else []
        weights = [None if g is None else convert(g) for g in seeds]

        def compute(tape: Any, found: list, *values: Any) -> list:
            rows = iter(values)
            heads = [_head(tape, t, next(rows)) for t in targets]
            factors = [None if g is None else next(rows) for g in weights] or None
            return tape.gradient(heads, found, factors, unconnected_gradients)

        return self._asked([*outs, *(w for w in weights if w is not None)], compute, sources)

    def _matrix(word: str) -> Any:  # type: ignore[misc]  # noqa: N805
        def matrix(
            self: GradientTape, target: Any, sources: Any, unconnected_gradients: Any = "none",
            parallel_iterations: Any = None, experimental_use_pfor: bool = True,
        ) -> Any:  # fmt: skip
            def compute(tape: Any, found: list, out: Any) -> list:
                given = found[0] if word == "batch_jacobian" else found
                how = unconnected_gradients, None, experimental_use_pfor
                blocks = getattr(tape, word)(out, given, *how)
                return [blocks] if word == "batch_jacobian" else blocks

            return self._asked([convert(target)], compute, sources)

        return matrix

    jacobian = _matrix("jacobian")  # [*target, *source]
    batch_jacobian = _matrix("batch_jacobian")  # of each example: [batch, *target, *source]

    def _asked(self, inputs: list, compute: Any, sources: Any) -> Any:
        """Run ``compute`` on the tape, sources and values: now, or at every run of the traced
        function."""
        leaves, rebuild = tree.flatten(sources)
        try:
            found = self._staged.ask(inputs, compute, [_source(s) for s in leaves])
        except AutogradError as error:
            raise RuntimeError(str(error)) from error
        except ShapeError as error:
            raise ValueError(str(error)) from error
        return rebuild([_cover(g) for g in found])


def _head(tape: Any, target: Any, value: Any) -> Any:
    """A target: the cell of a variable that was read after the tape had been closed."""
    read = not isinstance(target, Variable) or tape.notes.holds(value)
    return value if read else target._cell


def _source(s: Any) -> Any:
    if isinstance(s, Variable):
        return s._cell
    if _of_keras(s):
        return s.value  # its leaf, which records by itself
    if isinstance(s, (Tensor, Inner)):
        return convert(s)
    raise ValueError(_ODD.format(s, type(s).__name__))


def _cover(g: Any) -> Any:
    if g is None or isinstance(g, Tensor):
        return g
    if isinstance(g, Rows):
        traced = isinstance(g.values, Tensor)
        sizes = g.shape if traced else arrays.constant(list(g.shape))
        return IndexedSlices(_cover(g.values), g.indices if traced else wrap(g.indices), sizes)
    return wrap(g if thread.tapes else g.detach())
