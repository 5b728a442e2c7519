"""``GradientTape``: gradients of what was recorded while a tape ran, as TensorFlow's programs ask.

A tape keeps no list of operations. There is one graph, whose nodes are numbered in the order of
creation; a tape knows the spans of numbers in which it recorded and what it watched, and walks the
graph within these. So tapes nest, stop and go on without knowing of each other: what one of them
recorded of its own gradients is there for those around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from .. import tree
from ..context import thread
from ..core.backward.autograd import grad
from ..core.grad_mode import no_grad
from ..core.node import AccumulateGrad, GradientEdge, Output, next_seq
from ..core.tensor import Tensor
from ..errors import AutogradError, ShapeError
from ..func.vmap import vmap
from ..ops.functions.creation import create
from ..ops.functions.views.join import stack
from ..ops.primitives.views import reshape
from ..trace import warn
from .cells import Cell, Notes, Rows, joined, total


class GradientTape:
    """Records while it is entered (``with GradientTape() as tape:``), on its thread.

    ``persistent``: its gradients may be asked for more than once. ``watch_accessed_variables``:
    leaves that require grad are watched without being named; others by ``watch``.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self.persistent, self.automatic = persistent, watch_accessed_variables
        self._begin()
        self._recording = False
        self._among: list[Any] = []  # the tapes that record on the thread where it was entered

    def _begin(self) -> None:
        self._spans: list[list[float]] = []  # of node numbers, in which it recorded
        self._watched: dict[int, tuple[Tensor, Any]] = {}  # by id: a tensor, and its node
        self._asked: list[Tensor] = []  # those that require grad for this tape's sake
        self._used = self._shared = False
        self.notes = Notes(self.automatic)  # of cells

    # --- recording ------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        if self._recording:
            raise AutogradError(
                "GradientTape: Tape is still recording, This can happen if you try to re-enter an "
                "already-active tape."
            )
        self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._recording:
            self._stop()

    def _start(self) -> None:
        self._recording = True
        for t in self._asked:
            t.requires_grad_()
        self._among = thread.tapes
        self._among.append(self)
        if len(self._among) > 1:
            for tape in self._among:
                tape._shared = True
        self._spans.append([next_seq(), math.inf])

    def _stop(self) -> None:
        self._recording = False
        self._spans[-1][1] = next_seq()
        if self in self._among:
            self._among.remove(self)
        for t in self._asked:
            heir = next((tape for tape in self._among if id(t) in tape._watched), None)
            if heir is None:
                t.requires_grad_(False)
            elif not any(x is t for x in heir._asked):
                heir._asked.append(t)

    def watch(self, tensor: Any) -> None:
        """Record what is done with ``tensor`` (or the tensors of a nested structure) from here on.
        It requires grad until the tape stops. Of a ``Cell``, what it holds whenever it is read."""
        for t in tree.leaves(tensor):
            if isinstance(t, Cell):
                self.notes.chosen.append(t)
                continue
            if not isinstance(t, Tensor):
                raise TypeError(f"GradientTape.watch: {type(t).__name__} given; it takes tensors")
            if not (t.dtype.is_floating_point or t.dtype.is_complex):
                warn(
                    "The dtype of the watched tensor must be floating (e.g. dt.float32), got "
                    f"{t.dtype!r}"
                )
                continue
            if not t.requires_grad:
                t.requires_grad_()
                self._asked.append(t)
            self._watched[id(t)] = t, t.graph_node()

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Leave out what runs in the block."""
        if not self._recording:
            raise AutogradError("GradientTape: Trying to stop recording a tape which is not "
                                "recording.")  # fmt: skip
        self._spans[-1][1] = next_seq()
        place = thread.tapes.index(self)
        thread.tapes.remove(self)
        try:
            if thread.tapes:
                yield
            else:
                with no_grad():
                    yield
        finally:
            thread.tapes.insert(place, self)
            self._spans.append([next_seq(), math.inf])

    def reset(self) -> None:
        """Forget all that was recorded and watched, as if the tape had been made now."""
        running = self._recording
        if running:
            self._stop()
        self._begin()
        if running:
            self._start()

    def watched_variables(self) -> tuple:
        """What was watched, in order."""
        return (*self.notes.cells(), *(t for t, _ in self._watched.values()))

    # --- gradients ------------------------------------------------------------------------------
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: str = "none",
    ) -> Any:
        """The gradients of the sum of ``target`` with respect to ``sources`` (tensors, cells), in
        their structure; of a cell of which rows were read alone, ``Rows``.

        ``output_gradients``: weights in place of ones, in the structure of ``target``. Where there
        is no connection: None, or zeros (``unconnected_gradients="zero"``).
        """
        zero = _zero(unconnected_gradients)
        self._use("gradients")
        outs, (given, rebuild) = tree.leaves(target), tree.flatten(sources)
        seeds = tree.leaves(output_gradients, with_none=True)
        weights = [None] * len(outs) if output_gradients is None else seeds
        if len(weights) != len(outs):
            raise AutogradError(
                f"GradientTape.gradient: {len(weights)} output_gradients for {len(outs)} targets"
            )
        values = [o.value if isinstance(o, Cell) else o for o in outs]
        pairs = [
            (o, create.ones_like(o).detach() if w is None else w)
            for o, w in zip(values, weights, strict=True)
        ]
        parts = [self.notes.of(s) for s in given]
        flat = [t for leaves, rows in parts for t in (*leaves, *(r for _, r in rows))]
        found = iter(self._pull(pairs, flat, _recorded_on()))
        grads = [
            joined(s, total([next(found) for _ in leaves]), [(at, next(found)) for at, _ in rows])
            for s, (leaves, rows) in zip(given, parts, strict=True)
        ]
        for o, (_, weight) in zip(outs, pairs, strict=True):
            grads = [_more(g, weight) if isinstance(o, Cell) and o is s else g
                     for g, s in zip(grads, given, strict=True)]  # fmt: skip
        return rebuild([_or_zeros(g, t, zero) for g, t in zip(grads, given, strict=True)])

    def jacobian(
        self,
        target: Tensor,
        sources: Any,
        unconnected_gradients: str = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """For each of ``sources`` the matrix of derivatives of ``target``, [*target, *source].

        All rows come from one walk under ``vmap``; ``experimental_use_pfor=False``: one by one.
        """
        zero = _zero(unconnected_gradients)
        self._use("gradients (or jacobians)")
        given, rebuild = tree.flatten(sources)
        count, shape = target.numel(), tuple(target.shape)
        seeds = reshape(create.eye(count, dtype=target.dtype), shape=(count, *shape))
        rows = self._blocks(target, seeds, given, experimental_use_pfor)
        whole = [(r, s.value if isinstance(s, Cell) else s)
                 for r, s in zip(rows, given, strict=True)]  # fmt: skip
        empty = [create.zeros(*shape, *t.shape, dtype=t.dtype) if zero else None for _, t in whole]
        return rebuild(
            [
                e if r is None else reshape(r, shape=(*shape, *t.shape))
                for (r, t), e in zip(whole, empty, strict=True)
            ]
        )

    def batch_jacobian(
        self,
        target: Tensor,
        source: Tensor,
        unconnected_gradients: str = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """The Jacobian of each example, [batch, *target, *source]: ``target[i]`` depends on
        ``source[i]`` alone, and both are [batch, ...]."""
        zero = _zero(unconnected_gradients)
        self._use("gradients (or jacobians)")
        asked, source = source, source.value if isinstance(source, Cell) else source
        for t in (target, source):
            if t.ndim < 2:
                raise ShapeError(f"Shape {_told(t)} must have rank at least 2")
        batch, *shape = target.shape
        if source.shape[0] != batch:
            raise ShapeError(
                f"Need first dimension of target shape ({_told(target)}) and source shape "
                f"({_told(source)}) to match."
            )
        count = math.prod(shape)
        eye = reshape(create.eye(count, dtype=target.dtype), shape=(count, 1, *shape))
        seeds = eye.expand(count, batch, *shape)
        (rows,) = self._blocks(target, seeds, [asked], experimental_use_pfor)
        if rows is None:
            inner = source.shape[1:]
            return create.zeros(batch, *shape, *inner, dtype=source.dtype) if zero else None
        return reshape(rows.transpose(0, 1), shape=(batch, *shape, *source.shape[1:]))

    # --- parts ----------------------------------------------------------------------------------
    def _use(self, what: str) -> None:
        if self._used and not self.persistent:
            raise AutogradError(
                "A non-persistent GradientTape can only be used to compute one set of gradients "
                "(or jacobians)"
            )
        self._used = True
        if self._recording and not self.persistent:
            self._stop()

    def _recorded(self, node: Any) -> bool:
        """Whether ``node`` was made while this tape recorded."""
        number = node.seq
        return any(start < number < end for start, end in self._spans)

    def _place(self, t: Tensor) -> Any:
        """Where in the graph ``t`` lies, if the tape knows of it."""
        if id(t) in self._watched:
            return self._watched[id(t)][1]
        node = t.graph_node()
        if node is None:
            return None
        if node.__class__ is AccumulateGrad:
            return node if self.automatic or self.notes.holds(t) else None
        made = node.node if node.__class__ is Output else node
        return node if self._recorded(made) else None

    def _pull(self, pairs: Sequence[tuple], given: Sequence, again: bool) -> list:
        """Gradients with respect to ``given`` (None where there are none) of each (output, its
        cotangent). ``again``: they are to be differentiated themselves."""
        places = [self._place(t) for t in given]
        known = [_edge(p) for p in places if p is not None]
        roots = [(self._place(o), o, g) for o, g in pairs]
        roots = [r for r in roots if r[0] is not None]
        if not known or not roots:
            return [None] * len(given)
        found = grad(
            [_edge(p) for p, _, _ in roots], known, [_like(g, o) for _, o, g in roots],
            retain_graph=again or self.persistent or self._shared, create_graph=again,
            allow_unused=True, within=self._recorded,
        )  # fmt: skip
        rows = iter(found)
        return [None if p is None else next(rows) for p in places]

    def _blocks(self, target: Tensor, seeds: Tensor, given: list, together: bool) -> list:
        """The same of cells, too."""
        parts = [self.notes.of(s)[0] for s in given]
        found = iter(self._rows(target, seeds, [t for p in parts for t in p], together))
        return [total([next(found) for _ in part]) for part in parts]

    def _rows(self, target: Tensor, seeds: Tensor, given: list, together: bool) -> list:
        """For each of ``given`` the gradients for every one of ``seeds``, stacked."""
        again = _recorded_on()
        before, self._shared = self._shared, True  # the graph is walked more than once
        missing: list[int] = []

        def one(seed: Tensor) -> tuple:
            found = self._pull([(target, seed)], given, again)
            missing[:] = [i for i, g in enumerate(found) if g is None]
            return tuple(g for g in found if g is not None)

        try:
            stacked = vmap(one)(seeds) if together else _one_by_one(one, seeds)
        finally:
            self._shared = before
        rows = iter(stacked)
        return [None if i in missing else next(rows) for i in range(len(given))]


def _more(found: Any, weight: Tensor) -> Tensor:
    """The gradient of a cell that is a target, too, with this weight."""
    dense = found.dense() if isinstance(found, Rows) else found
    return weight if dense is None else dense + weight


def _recorded_on() -> bool:
    """Whether gradients are to be differentiated: by a tape that records, or by a transform."""
    return bool(thread.tapes) or thread.inside is not None


def _one_by_one(one: Callable[[Tensor], tuple], seeds: Tensor) -> list:
    rows = [one(seed) for seed in seeds.unbind(0)]
    return [stack(column) for column in zip(*rows, strict=True)]


def _edge(place: Any) -> GradientEdge:
    if place.__class__ is Output:
        return GradientEdge(place.node, place.index)
    return GradientEdge(place, 0)


def _like(g: Tensor, out: Tensor) -> Tensor:
    return g if g.dtype == out.dtype else g.to(out.dtype)


def _or_zeros(g: Any, t: Any, zero: bool) -> Any:
    if g is not None or not zero:
        return g
    return create.zeros_like(t.value if isinstance(t, Cell) else t).detach()


def _zero(unconnected: Any) -> bool:
    """Whether zeros are wanted where nothing is connected."""
    word = getattr(unconnected, "value", unconnected)
    if word not in ("none", "zero"):
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected!r}")
    return word == "zero"


def _told(t: Tensor) -> str:
    return str(tuple(t.shape))


__all__ = ["GradientTape"]
