"""The backward walk: fed and drained from outside.

``Walk`` counts, once, how many gradients each node will receive, then runs nodes whose gradients
are complete, latest-made first. The order depends on the graph alone, so every rank that built the
same graph walks it alike. A leaf runs as soon as its gradient is complete (this is what lets DDP
overlap communication with the rest of the walk). Nothing is recursive.

Gradients travel as raw arrays, or as Tensors when the walk itself is to be recorded or interpreted
(``create_graph``, active interpreters, tensors without data). The sink receives
``(accumulator, gradient)``; ``accumulate`` is the one that writes ``.grad``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..backends.device.course import Course, kept
from ..backends.device.platform import sided
from ..backends.kinds import ArrayKind
from ..context import elsewhere, thread
from ..errors import AutogradError, ShapeError
from .algebra import Algebra
from .hook_calls import check_nan, run_post_hooks, run_pre_hooks, run_tensor_hooks
from .node import AccumulateGrad, Output
from .tensor import wrap
from .wide import total

ndarray = np.ndarray
_DEEP = 24  # walks inside of each other that one thread's stack is given


def sum_to_array(g: Any, shape: tuple) -> Any:
    """Undo broadcasting: sum ``g`` down to ``shape``."""
    lead = g.ndim - len(shape)
    if lead > 0:
        g = total(g, tuple(range(lead)), False)
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    return total(g, axes, True) if axes else g


class Walk:
    """One backward pass over the graph below ``roots`` (nodes, Outputs or accumulators).

    ``home``: where its sink keeps the gradients of leaves, where not in ``.grad`` (``get(leaf)``,
    ``put(leaf, gradient)``): for accumulators that have a ``store`` of their own.
    """

    home: Any = None
    course: Course | None = None  # where work may lie on several streams or devices

    def __init__(
        self,
        roots: Iterable[Any],
        sink: Callable[[Any, Any], None],
        *,
        keep: bool = False,
        tensors: bool = False,
        targets: set | None = None,
    ) -> None:
        self.sink, self.keep, self.tensors = sink, keep, tensors
        self.pending: dict[Any, int] = {}
        self.grads: dict[Any, Any] = {}
        self.owned: set = set()
        self.ready: list[tuple[int, int, Any]] = []
        self.turn = itertools.count().__next__  # leaves run in the order in which they are complete
        self.callbacks: list[Callable[[], None]] = []
        self.broken: list[Callable[[], None]] = []
        self.captures: dict[Any, dict[int, Any]] = {}
        for interp in thread.stack:
            if interp.dynamic:
                interp.on_walk()
        # An interpreter alone on the stack may run whole rules itself, where nothing records them.
        alone = tensors and len(thread.stack) == 1
        self.pull = getattr(thread.stack[0], "pull", None) if alone else None
        self.stored: dict[int, Any] = {}  # arrays that a leaf, or the caller, already has
        order = self._count(roots)
        self.needed = None if targets is None else _needed(order, targets)
        if self.needed is not None:
            self._count_only(order)

    def _count(self, roots: Iterable[Any]) -> list:
        pending = self.pending
        stack = []
        for root in roots:
            node = root.node if root.__class__ is Output else root
            if node not in pending:
                pending[node] = 0
                stack.append(node)
        order = []
        while stack:
            node = stack.pop()
            order.append(node)
            for e in self._below(node):
                if e is None:
                    continue
                if e.__class__ is Output:
                    e = e.node
                if e in pending:
                    pending[e] += 1
                else:
                    pending[e] = 1
                    stack.append(e)
        return order

    def _below(self, node: Any) -> tuple:
        return node.edges

    def _count_only(self, order: list) -> None:
        """Count again, along the edges that lead to a target."""
        pending = dict.fromkeys(self.pending, 0)
        for node in order:
            if node not in self.needed:
                continue
            for e in node.edges:
                if e is not None:
                    e = e.node if e.__class__ is Output else e
                    pending[e] += 1
        self.pending = pending

    def feed(self, root: Any, g: Any) -> None:
        """Give a root its gradient (array, or Tensor in a tensor walk)."""
        node, index = (root.node, root.index) if root.__class__ is Output else (root, 0)
        if self.needed is not None and node not in self.needed:
            return
        if self.tensors and "array" in g.__dict__:
            self.stored[id(g.array)] = g.array
        self._add(node, index, g)
        if not self.pending[node]:
            self._push(node)

    def reaches(self, node: Any) -> bool:
        """Whether this walk comes to ``node``."""
        return node in self.pending and (self.needed is None or node in self.needed)

    def mark(self, node: Any) -> None:
        """Run ``node``, which nothing leads to, when all that has a higher ``seq`` is done."""
        self.grads[node] = ()
        if self.needed is not None:
            self.needed[node] = True
        self._push(node)

    def _push(self, node: Any) -> None:
        heapq.heappush(self.ready, (-node.seq, self.turn(), node))

    def run(self) -> None:
        """Run everything that is ready, then what was asked for by ``on_finish``."""
        outermost = thread.walk is None
        if outermost:
            thread.walk = self
        around, thread.walking = thread.walking, self
        thread.depth += 1
        try:
            if thread.depth % _DEEP:
                self._run()
            else:  # rules and hooks that walk themselves: go on with an empty stack
                elsewhere(kept(self._run))
            for callback in self.callbacks:
                callback()
        except BaseException:
            for callback in self.broken:
                callback()
            raise
        finally:
            thread.walking = around
            thread.depth -= 1
            if outermost:
                thread.walk = None

    def _run(self) -> None:
        if several := sided():
            with Course(several) as self.course:
                self._run_general()
        elif self.tensors or self.captures or thread.anomaly or self.needed is not None:
            self._run_general()
        else:
            self._run_ordinary()

    def _run_ordinary(self) -> None:
        """The loop of a plain backward (arrays, no targets): ``_run_general``, spelled out."""
        ready, grads = self.ready, self.grads
        keep, pending, owned, sink = self.keep, self.pending, self.owned, self.sink
        pop, push, turn = heapq.heappop, heapq.heappush, self.turn
        while ready:
            node = pop(ready)[2]
            g = grads.pop(node, None)
            if g is None:
                continue
            owned.discard(node)
            if node.tensor_hooks is not None:
                g = run_tensor_hooks(self, node, g)
            if node.__class__ is AccumulateGrad:
                if node.pre_hooks or node.post_hooks:
                    self._run_leaf(node, g)
                else:
                    sink(node, g)
                continue
            if g.__class__ is list:
                g = self._materialize(node, g)
            if node.pre_hooks or node.post_hooks:
                results = self._run_node(node, g)
            else:
                results = node.run(g, False)
                if not keep:
                    node.release()
            for e, r in zip(node.edges, results):
                if e is None:
                    continue
                if e.__class__ is Output:
                    e, index, single = e.node, e.index, False
                else:
                    index, single = 0, True
                if r is not None:
                    if (
                        single and r.__class__ is ndarray and e not in grads
                        and r.dtype is e.dtype and r.shape == e.shape
                    ):  # fmt: skip
                        grads[e] = r
                    else:
                        self._add(e, index, r)
                left = pending[e] - 1
                pending[e] = left
                if not left:
                    if e in grads:
                        push(ready, (-e.seq, turn(), e))
                    else:
                        self._skip(e)
            results = r = None  # so that a leaf can tell whether its gradient is its own

    def _run_general(self) -> None:
        ready, grads = self.ready, self.grads
        while ready:
            node = heapq.heappop(ready)[2]
            if node not in grads:
                continue
            g = grads.pop(node)
            if self.course is not None:
                self.course.follow(node, g)
            self.owned.discard(node)
            if node.tensor_hooks is not None:
                g = run_tensor_hooks(self, node, g)
            if node in self.captures:
                self._capture(node, g)
            if node.__class__ is AccumulateGrad:
                if self.needed is None or node in self.needed:
                    self._run_leaf(node, g)
                continue
            if self.needed is not None and not self.needed[node]:
                continue
            if g.__class__ is list:
                g = self._materialize(node, g)
            self._deliver(node, self._run_node(node, g))

    def _run_leaf(self, node: AccumulateGrad, g: Any) -> None:
        if self.sink is discard:
            return
        if node.pre_hooks:
            g = run_pre_hooks(self, node, g)
        self.sink(node, g)
        if node.post_hooks:
            run_post_hooks(self, node, (), g)

    def _run_node(self, node: Any, g: Any) -> tuple:
        if node.pre_hooks:
            g = run_pre_hooks(self, node, g)
        if self.pull is not None and not thread.grad_enabled:
            results = self.pull(node, g, self._wanted(node))
        else:
            results = node.run(g, self.tensors, self._wanted(node))
        if node.post_hooks:
            results = run_post_hooks(self, node, results, g)
        if thread.anomaly and thread.check_nan:
            check_nan(node, results)
        if not self.keep:
            node.release()
        return results

    def _wanted(self, node: Any) -> tuple | None:
        """Which edges of ``node`` lead to a target (None: all)."""
        needed = self.needed
        if needed is None:
            return None
        return tuple(
            e is not None and (e.node if e.__class__ is Output else e) in needed for e in node.edges
        )

    def _deliver(self, node: Any, results: tuple) -> None:
        pending = self.pending
        needed = self.needed
        for e, g in zip(node.edges, results, strict=True):
            if e is None:
                continue
            target, index = (e.node, e.index) if e.__class__ is Output else (e, 0)
            if needed is not None and target not in needed:
                continue
            if g is not None:
                self._add(target, index, g)
            left = pending[target] - 1
            pending[target] = left
            if not left:
                if target in self.grads:
                    self._push(target)
                else:
                    self._skip(target)

    def _skip(self, node: Any) -> None:
        """No gradient reached ``node``: what only it leads to gets none either."""
        stack = [node]
        while stack:
            node = stack.pop()
            if self.needed is not None and node not in self.needed:
                continue
            for e in node.edges:
                if e is None:
                    continue
                e = e.node if e.__class__ is Output else e
                self.pending[e] -= 1
                if not self.pending[e]:
                    if e in self.grads:
                        self._push(e)
                    else:
                        stack.append(e)

    def _add(self, node: Any, index: int, g: Any) -> None:
        """Add ``g`` to what output ``index`` of ``node`` has received, in its shape and type."""
        several = getattr(node, "shapes", None)
        shape, kind = (node.shape, node.dtype) if several is None else several[index]
        if self.tensors:
            g = _fit_tensor(node, g, shape, kind)
        elif g.__class__ is not ndarray or g.shape != shape or g.dtype is not kind:
            g = _fit_array(node, g, shape, kind)
        grads = self.grads
        if several is not None:
            slots = grads.get(node)
            if slots is None:
                slots = grads[node] = [None] * len(several)
            slots[index] = g if slots[index] is None else self._sum(slots[index], g)
        elif node not in grads:
            grads[node] = g
        elif node in self.owned:
            np.add(grads[node], g, out=grads[node])
        else:
            grads[node] = self._sum(grads[node], g)
            if not self.tensors and grads[node].__class__ is ndarray:
                self.owned.add(node)

    def _sum(self, a: Any, b: Any) -> Any:
        if self.tensors:
            return Algebra.add(a, b)
        if isinstance(a, ArrayKind) or isinstance(b, ArrayKind):
            return Algebra.add(wrap(a), wrap(b)).array
        total = a + b
        return total if total.__class__ is ndarray else np.asarray(total)

    def _materialize(self, node: Any, slots: list) -> tuple:
        if node.wants_none:
            return tuple(slots)
        zeros = _zeros_beside(next(g for g in slots if g is not None), self.tensors)
        return tuple(
            zeros(*node.shapes[i]) if g is None and node.shapes[i][1].kind in "fcV" else g
            for i, g in enumerate(slots)
        )

    def _capture(self, node: Any, g: Any) -> None:
        for index in self.captures[node]:
            self.captures[node][index] = g[index] if g.__class__ is list else g


def discard(acc: Any, g: Any) -> None:
    """The sink of ``grad()``: what is wanted was captured on the way."""


def on_finish(callback: Callable[[], None], broken: Callable[[], None] | None = None) -> None:
    """Call ``callback`` when the backward pass that is running on this thread is through (the
    outermost one, where checkpointing runs another inside it), ``broken`` when it raises."""
    if thread.walk is None:
        raise AutogradError("on_finish: no backward pass is running on this thread")
    thread.walk.callbacks.append(callback)
    if broken is not None:
        thread.walk.broken.append(broken)


def _zeros_beside(g: Any, tensors: bool) -> Callable[[tuple, Any], Any]:
    """What makes zeros that meet the gradient ``g``."""
    array = g.__dict__.get("array") if tensors else g
    if not isinstance(array, ArrayKind):
        return Algebra.zeros if tensors else np.zeros
    if tensors:
        return lambda shape, kind: wrap(array.blank(shape, kind))
    return array.blank


def _needed(order: list, targets: set) -> dict[Any, bool]:
    """The nodes from which a target can be reached, each with whether it must run for that."""
    needed = dict.fromkeys(targets, False)
    for node in sorted(order, key=lambda n: n.seq if n.__class__ is not AccumulateGrad else 0):
        for e in node.edges:
            if e is not None and (e.node if e.__class__ is Output else e) in needed:
                needed[node] = True
                break
    return needed


def _fit_array(node: Any, g: Any, shape: tuple, kind: Any) -> Any:
    if g.__class__ is not ndarray:
        if isinstance(g, ArrayKind):
            if g.shape == shape and g.dtype == kind:
                return g
            return _fit_tensor(node, wrap(g), shape, kind).array
        g = np.asarray(g)
    if g.shape != shape:
        _check_reducible(node, g.shape, shape)
        g = sum_to_array(g, shape)
    if g.dtype != kind:
        g = _real_if(g, kind).astype(kind)
    return g if g.__class__ is ndarray else np.asarray(g)


def _real_if(g: Any, kind: Any) -> Any:
    return g.real if g.dtype.kind == "c" and kind.kind != "c" else g


def _fit_tensor(node: Any, g: Any, shape: tuple, kind: Any) -> Any:
    have, have_kind = g.meta()
    if have != shape:
        _check_reducible(node, have, shape)
        g = Algebra.sum_to(g, shape)
    return g if have_kind == kind else Algebra.cast(g, kind)


def _check_reducible(node: Any, have: tuple, want: tuple) -> None:
    lead = len(have) - len(want)
    tail = zip(have[lead:], want, strict=True)
    if lead < 0 or any(h != w and w != 1 for h, w in tail):
        raise ShapeError(
            f"backward: a gradient of shape {list(have)} reached {node.name()}, whose result has "
            f"shape {list(want)} (got {list(have)} but expected shape compatible with "
            f"{list(want)}); a rule or hook returned the wrong shape"
        )
