"""``tf.GradientTape`` over the native one: variables, slices, and tapes inside of traced
functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import disttrain as dt

from ... import tree
from ...context import thread
from ...core.tensor import Tensor as Inner
from ...errors import AutogradError, ShapeError
from . import arrays
from .tensor import GRAPH, Tensor, _of_keras, convert, is_tensor, wrap
from .variable import IndexedSlices, Variable, notes_of

_NATIVE: Any = dt.GradientTape


class UnconnectedGradients:
    """What stands for the gradient of a source that the target does not depend on."""

    NONE, ZERO = "none", "zero"


class GradientTape:
    """Records operations for gradients. See ``disttrain.GradientTape`` for what computes them.

    Inside of a traced function, opening it, watching, asking for gradients and closing it are
    operations of the graph, done at every run.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent, self._automatic = persistent, watch_accessed_variables
        self._tape = _NATIVE(persistent, watch_accessed_variables)

    def _do(self, kind: str, action: Any, inputs: list | None = None) -> None:
        """Do something with the tape: now, and at every run of the function being traced."""
        action(self._tape, *[t._value for t in inputs or []])
        graph = GRAPH.get()
        if graph is not None:

            def call(*values: Any, run: Any) -> None:
                action(self._in(run), *values)

            graph.record(kind, call, inputs or [], examples=(), controlled=True)

    def _in(self, run: Any) -> Any:
        """The tape of a run."""
        if id(self) not in run.tapes:
            run.tapes[id(self)] = _NATIVE(self._persistent, self._automatic)
        return run.tapes[id(self)]

    def __enter__(self) -> GradientTape:
        try:
            self._do("TapeEnter", lambda tape: tape.__enter__())
        except AutogradError as error:
            raise ValueError(str(error).partition(": ")[2]) from None
        return self

    def __exit__(self, *exc: object) -> None:
        self._do("TapeExit", lambda tape: tape.__exit__())

    def watch(self, tensor: Any) -> None:
        """Record what is done with ``tensor`` (tensors, variables, nested)."""
        for t in tree.leaves(tensor):
            if not is_tensor(t):
                raise ValueError(f"Passed in object {t!r} of type {type(t).__name__!r}, not "
                                 "tf.Tensor or tf.Variable or ExtensionType.")  # fmt: skip
            if isinstance(t, Variable):
                self._do("TapeWatch", lambda tape, t=t: notes_of(tape).chosen.append(t))
            elif _of_keras(t):
                self._tape.watch(t.value)
            else:
                graph = GRAPH.get()
                held = convert(t) if graph is None else graph.inside(convert(t))
                self._do("TapeWatch", lambda tape, value: tape.watch(value), [held])

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Leave out what runs in the block."""
        if not self._tape._recording:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        managers: dict[int, Any] = {}

        def stop(tape: Any) -> None:
            managers[id(tape)] = tape.stop_recording()
            managers[id(tape)].__enter__()

        self._do("TapeStop", stop)
        try:
            yield
        finally:
            self._do("TapeResume", lambda tape: managers.pop(id(tape)).__exit__(None, None, None))

    def reset(self) -> None:
        """Forget all that was recorded and watched."""

        def anew(tape: Any) -> None:
            tape.reset()
            tape.__dict__.pop("notes", None)

        self._do("TapeReset", anew)

    def watched_variables(self) -> tuple:
        """The variables that were read or watched, in order."""
        notes = notes_of(self._tape)
        seen = [row[0] for row in notes.seen.values()]
        return (*seen, *(v for v in notes.chosen if not any(v is s for s in seen)))

    # --- gradients ------------------------------------------------------------------------------
    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None,
        unconnected_gradients: Any = "none",
    ) -> Any:  # fmt: skip
        """The gradients of the sum of ``target``, in the structure of ``sources``."""
        _check_target(target)
        targets = tree.leaves(target)
        outs = [convert(t) for t in targets]
        seeds = (
            tree.leaves(output_gradients, with_none=True) if output_gradients is not None else []
        )
        kept = [None if g is None else convert(g) for g in seeds]
        found, rebuild = self._sources(sources)
        zero = unconnected_gradients == "zero"
        tensors = [s for s in found if isinstance(s, Tensor)]
        count = len(outs)
        given = [g for g in kept if g is not None]

        def compute(tape: Any, *values: Any) -> tuple:
            tail = iter(values[count : count + len(given)])
            weights = [None if g is None else next(tail) for g in kept] or None
            rest = iter(values[count + len(given) :])
            known = [next(rest) if isinstance(s, Tensor) else s for s in found]
            found_now = _pulled(tape, list(values[:count]), known, weights, False)
            return _own(targets, values, known, weights, found_now, zero)

        return rebuild(self._asked([*outs, *given, *tensors], compute, found))

    def jacobian(
        self, target: Any, sources: Any, unconnected_gradients: Any = "none",
        parallel_iterations: Any = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """The derivatives of every element of ``target``: [*target, *source]."""
        return self._matrix(
            "jacobian", target, sources, unconnected_gradients, experimental_use_pfor
        )

    def batch_jacobian(
        self, target: Any, source: Any, unconnected_gradients: Any = "none",
        parallel_iterations: Any = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """The Jacobian of each example: [batch, *target, *source]."""
        return self._matrix(
            "batch_jacobian", target, source, unconnected_gradients, experimental_use_pfor
        )

    def _matrix(self, which: str, target: Any, sources: Any, unconnected: Any, pfor: bool) -> Any:
        out = convert(target)
        found, rebuild = self._sources(sources)
        tensors = [s for s in found if isinstance(s, Tensor)]

        def compute(tape: Any, value: Any, *values: Any) -> tuple:
            rest = iter(values)
            leaves = [_dense(tape, next(rest) if isinstance(s, Tensor) else s) for s in found]
            wanted = [t for row in leaves for t in row]
            given = wanted[0] if which == "batch_jacobian" and len(wanted) == 1 else wanted
            blocks = getattr(tape, which)(value, given, unconnected, None, pfor)
            blocks = iter(blocks if isinstance(given, list) else [blocks])
            return tuple(_total([next(blocks) for _ in row]) for row in leaves)

        return rebuild(self._asked([out, *tensors], compute, found))

    def _sources(self, sources: Any) -> tuple[list, Any]:
        leaves, rebuild = tree.flatten(sources)
        return [_source(s) for s in leaves], rebuild

    def _asked(self, inputs: list, compute: Any, sources: list) -> list:
        """Run ``compute`` on the tape and on values: now, or at every run of the traced
        function."""
        graph = GRAPH.get()
        if graph is None:
            found = _in_words(lambda: compute(self._tape, *[t._value for t in inputs]))
            return [_cover(g) for g in found]
        held = [graph.inside(t) for t in inputs]
        example = _in_words(lambda: compute(self._tape, *[t._value for t in held]))
        there = [g is not None for g in example]
        slices = [isinstance(g, IndexedSlices) for g in example]

        def call(*values: Any, run: Any) -> tuple:
            found = compute(self._in(run), *values)
            pairs = [(g, i) for g, i, t in zip(found, slices, there, strict=True) if t]
            return tuple(_plain(g, i) for g, i in pairs)

        kept = [(g, i) for g, i, t in zip(example, slices, there, strict=True) if t]
        flat = tuple(_plain(g, i) for g, i in kept)
        outs = iter(graph.record("Gradients", call, held, examples=flat, controlled=True))
        return [_symbolic(next(outs), i) if t else None for i, t in zip(slices, there, strict=True)]


def _check_target(target: Any) -> None:
    if target is None:
        raise TypeError(
            "Argument `target` should be a list or nested structure of Tensors, Variables or "
            "CompositeTensors to be differentiated, but received None."
        )


def _source(s: Any) -> Any:
    if isinstance(s, Variable):
        return s
    if _of_keras(s):
        return s.value  # its leaf, which records by itself
    if isinstance(s, (Tensor, Inner)):
        return convert(s)
    raise ValueError(f"Passed in object {s!r} of type {type(s).__name__!r}, not tf.Tensor or "
                     "tf.Variable or ExtensionType.")  # fmt: skip


def _in_words(compute: Any) -> Any:
    """``compute()``, with what it raises of the program's making as TensorFlow raises it."""
    try:
        return compute()
    except AutogradError as error:
        raise RuntimeError(str(error)) from error
    except ShapeError as error:
        raise ValueError(str(error)) from error


def _own(targets: list, outs: Any, sources: list, weights: Any, found: tuple, zero: bool) -> tuple:
    """``found``, where targets that are sources themselves count, too."""
    rows = list(found)
    for i, target in enumerate(targets):
        for j, source in enumerate(sources):
            same = isinstance(target, Variable) and isinstance(source, Variable)
            if same and target.__dict__ is source.__dict__ and not outs[i].requires_grad:
                weight = weights and weights[i]
                more = dt.ones_like(outs[i]) if weight is None else weight
                rows[j] = more if rows[j] is None else rows[j] + more
    return tuple(
        _joined(s, None, [], zero) if g is None else g for s, g in zip(sources, rows, strict=True)
    )


def _pulled(tape: Any, outs: list, sources: list, weights: Any, zero: bool) -> tuple:
    leaves = [_dense(tape, s) for s in sources]
    rows = [notes_of(tape).of(s)[1] if isinstance(s, Variable) else [] for s in sources]
    flat = [t for row in leaves for t in row] + [r for row in rows for _, r in row]
    found = iter(tape.gradient(outs, flat, weights))
    dense = [_total([next(found) for _ in row]) for row in leaves]
    sparse = [[(at, next(found)) for at, _ in row] for row in rows]
    return tuple(_joined(s, d, p, zero) for s, d, p in zip(sources, dense, sparse, strict=True))


def _joined(source: Any, dense: Any, sparse: list, zero: bool) -> Any:
    sparse = [(at, g) for at, g in sparse if g is not None]
    if sparse:
        value = source._tensor
        places = dt.cat([at.reshape(-1) for at, _ in sparse])
        rows = dt.cat([g for _, g in sparse])
        if dense is None:
            return IndexedSlices(rows, places, list(value.shape))
        return dense.index_add(0, places.long(), rows)
    if dense is None and zero:
        return dt.zeros_like(source._tensor if isinstance(source, Variable) else source).detach()
    return dense


def _dense(tape: Any, source: Any) -> list:
    """The tensors of the graph that stand for ``source``."""
    return list(notes_of(tape).of(source)[0]) if isinstance(source, Variable) else [source]


def _total(found: list) -> Any:
    there = [g for g in found if g is not None]
    if not there:
        return None
    total = there[0]
    for g in there[1:]:
        total = total + g
    return total


def _cover(g: Any) -> Any:
    if isinstance(g, IndexedSlices):
        sizes = arrays.constant(g.dense_shape)
        return IndexedSlices(_settle(g.values), wrap(g.indices), sizes)
    return None if g is None else _settle(g)


def _settle(g: Any) -> Any:
    return wrap(g if thread.tapes else g.detach())


def _plain(g: Any, sliced: bool) -> Any:
    """A gradient as what a graph carries: its tensor, or the tensors of its slices."""
    return (g.values, g.indices, dt.tensor(g.dense_shape)) if sliced else g


def _symbolic(found: Any, sliced: bool) -> Any:
    return IndexedSlices(*found) if sliced else found


__all__ = ["GradientTape", "UnconnectedGradients"]
