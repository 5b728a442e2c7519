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
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..context import thread
from ..errors import AnomalyError, AutogradError, ShapeError
from .node import AccumulateGrad, Node, Output
from .tensor import Tensor, wrap

ndarray = np.ndarray


class Algebra:
    """The few operations that the engine needs on gradients. ``ops`` provides those on Tensors."""

    add: Callable
    sum_to: Callable
    cast: Callable
    zeros: Callable
    ones_like: Callable
    clone: Callable


def sum_to_array(g: Any, shape: tuple) -> Any:
    """Undo broadcasting: sum ``g`` down to ``shape``."""
    lead = g.ndim - len(shape)
    if lead > 0:
        g = g.sum(axis=tuple(range(lead)))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    return g.sum(axis=axes, keepdims=True) if axes else g


class Walk:
    """One backward pass over the graph below ``roots`` (nodes, Outputs or accumulators)."""

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
        self.callbacks: list[Callable[[], None]] = []
        self.captures: dict[Any, dict[int, Any]] = {}
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
            for e in node.edges:
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

    def _push(self, node: Any) -> None:
        heapq.heappush(self.ready, (-node.seq, id(node), node))

    def run(self) -> None:
        """Run everything that is ready, then what was asked for by ``on_finish``."""
        outermost = thread.walk is None
        if outermost:
            thread.walk = self
        try:
            self._run()
            for callback in self.callbacks:
                callback()
        finally:
            if outermost:
                thread.walk = None

    def _run(self) -> None:
        if self.tensors or self.captures or thread.anomaly or self.needed is not None:
            self._run_general()
        else:
            self._run_ordinary()

    def _run_ordinary(self) -> None:
        """The loop of a plain backward (arrays, no targets): ``_run_general``, spelled out."""
        ready, grads = self.ready, self.grads
        keep, pending, owned, sink = self.keep, self.pending, self.owned, self.sink
        pop, push = heapq.heappop, heapq.heappush
        while ready:
            node = pop(ready)[2]
            g = grads.pop(node, None)
            if g is None:
                continue
            owned.discard(node)
            if node.tensor_hooks is not None:
                g = self._tensor_hooks(node, g)
            if node.__class__ is AccumulateGrad:
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
                        push(ready, (-e.seq, id(e), e))
                    else:
                        self._skip(e)

    def _run_general(self) -> None:
        ready, grads = self.ready, self.grads
        while ready:
            node = heapq.heappop(ready)[2]
            if node not in grads:
                continue
            g = grads.pop(node)
            self.owned.discard(node)
            if node.tensor_hooks is not None:
                g = self._tensor_hooks(node, g)
            if node in self.captures:
                self._capture(node, g)
            if node.__class__ is AccumulateGrad:
                if self.needed is None or node in self.needed:
                    self.sink(node, g)
                continue
            if self.needed is not None and not self.needed[node]:
                continue
            if g.__class__ is list:
                g = self._materialize(node, g)
            self._deliver(node, self._run_node(node, g))

    def _run_node(self, node: Any, g: Any) -> tuple:
        if node.pre_hooks:
            g = _run_pre_hooks(self, node, g)
        if self.pull is not None and not thread.grad_enabled and isinstance(node, Node):
            results = self.pull(node, g, self._wanted(node))
        else:
            results = node.run(g, self.tensors, self._wanted(node))
        if node.post_hooks:
            results = _run_post_hooks(self, node, results, g)
        if thread.anomaly:
            _check_nan(node, results)
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
        elif g.shape != shape or g.dtype is not kind:
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
        total = a + b
        return total if total.__class__ is ndarray else np.asarray(total)

    def _materialize(self, node: Any, slots: list) -> tuple:
        zeros = Algebra.zeros if self.tensors else _zeros_array
        return tuple(
            zeros(*node.shapes[i]) if g is None and node.shapes[i][1].kind in "fcV" else g
            for i, g in enumerate(slots)
        )

    def _tensor_hooks(self, node: Any, g: Any) -> Any:
        for index, hooks in node.tensor_hooks.items():
            current = g[index] if g.__class__ is list else g
            if current is None:
                continue
            for hook in list(hooks.values()):
                given = current if self.tensors else wrap(current)
                new = hook(given)
                if new is not None:
                    _check_hook_result(new, given)
                    current = new if self.tensors else new.array
            if g.__class__ is list:
                g[index] = current
            else:
                g = current
        return g

    def _capture(self, node: Any, g: Any) -> None:
        for index in self.captures[node]:
            self.captures[node][index] = g[index] if g.__class__ is list else g


def on_finish(callback: Callable[[], None]) -> None:
    """Call ``callback`` when the backward pass that is running on this thread is through (the
    outermost one, where checkpointing runs another inside it)."""
    if thread.walk is None:
        raise AutogradError("on_finish: no backward pass is running on this thread")
    thread.walk.callbacks.append(callback)


def _zeros_array(shape: tuple, kind: Any) -> Any:
    return np.zeros(shape, kind)


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
            f"shape {list(want)}; a rule or hook returned the wrong shape"
        )


def _check_hook_result(new: Any, given: Tensor) -> None:
    if not isinstance(new, Tensor) or new.meta()[0] != given.meta()[0]:
        what = list(new.shape) if isinstance(new, Tensor) else type(new).__name__
        raise AutogradError(
            f"hook: returned {what}; a tensor hook returns None or a gradient of the same shape "
            f"{list(given.shape)}"
        )


def _as_tensors(walk: Walk, values: Any) -> tuple:
    values = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(v if v is None or walk.tensors else wrap(v) for v in values)


def _back(walk: Walk, values: Any) -> tuple:
    values = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(v if v is None or walk.tensors else v.array for v in values)


def _run_pre_hooks(walk: Walk, node: Any, g: Any) -> Any:
    several = g.__class__ is tuple
    for hook in list(node.pre_hooks.values()):
        new = hook(_as_tensors(walk, g))
        if new is not None:
            new = _back(walk, new)
            g = new if several else new[0]
    return g


def _run_post_hooks(walk: Walk, node: Any, results: tuple, g: Any) -> tuple:
    for hook in list(node.post_hooks.values()):
        new = hook(_as_tensors(walk, results), _as_tensors(walk, g))
        if new is not None:
            results = _back(walk, new)
    return results


def _check_nan(node: Any, results: tuple) -> None:
    for i, r in enumerate(results):
        array = r.array if isinstance(r, Tensor) else r
        if array.__class__ is ndarray and array.dtype.kind in "fc" and np.isnan(array).any():
            raise AnomalyError(
                f"backward: {node.name()} gave nan in the gradient of its input {i}"
                f"{node.made_at() if node.site else ''}"
            )


def accumulate(acc: AccumulateGrad, g: Any) -> None:
    """The sink of ``backward()``: write ``g`` into the leaf's ``.grad``, then run its hooks."""
    leaf = acc.variable
    if leaf is None:
        return
    if acc.store is not None:
        acc.store(leaf, g)
    else:
        store_grad(leaf, g)
    if acc.accumulate_hooks:
        for hook in list(acc.accumulate_hooks.values()):
            hook(leaf)


def _owned(g: Tensor) -> Tensor:
    """``g``, or a copy where other tensors share its memory: gradients are written to in place.
    One that is recorded or traced is left as it is; writes to it go through the graph."""
    if g._node is not None or "array" not in g.__dict__ or g.array.__class__ is not ndarray:
        return g
    walk = thread.walk
    array = g.array
    fit = array.base is None and array.flags.c_contiguous
    if fit and (walk is None or id(array) not in walk.stored):
        if walk is not None:
            walk.stored[id(array)] = array
        return g
    return Algebra.clone(g)


def store_grad(leaf: Tensor, g: Any) -> None:
    """``leaf.grad = g``, or ``+= g`` when there is one already."""
    tensors = isinstance(g, Tensor)
    old = leaf._grad
    if old is None:
        if not tensors and g.__class__ is ndarray:
            owned = g.base is None and sys.getrefcount(g) <= 5 and g.flags.c_contiguous
            g = g if owned else g.copy()
        leaf._grad = _owned(g) if tensors else wrap(g)
    elif tensors:
        leaf._grad = Algebra.add(old, g)
    elif old.array.__class__ is ndarray:
        np.add(old.array, g, out=old.array)
        if old._st is not None:
            old._st.version += 1
