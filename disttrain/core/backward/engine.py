"""The backward walk: fed and drained from outside.

``Walk`` counts, once, how many gradients each node will receive, then runs nodes whose gradients
are complete, latest-made first. The order depends on the graph alone, so every rank that built the
same graph walks it alike. A leaf runs as soon as its gradient is complete (this is what lets DDP
overlap communication with the rest of the walk). Nothing is recursive.

Gradients travel as raw arrays, or as Tensors when the walk itself is to be recorded or interpreted
(``create_graph``, active interpreters, tensors without data). The sink receives
``(accumulator, gradient, whether it is its own)``; ``accumulate`` is the one that writes ``.grad``.

Whose a gradient is. What the rule of an operation gives is the gradient that came, a view, or an
array made for this one place (``GraphNode.makes``); a sum is the walk's. Such arrays may be added
to, and a leaf keeps them. All others are *lent*, and never written to: what the program fed, was
shown by a hook or has returned, and what went to several places.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.backward_streams import Course, kept
from ...backends.device.platform import sided
from ...context import elsewhere, thread
from ...errors import AutogradError
from ..algebra import Algebra
from ..node import AccumulateGrad, Node, Output
from ..tensor import Tensor, wrap
from .fit import fit_array, fit_tensor, is_one
from .hook_calls import (
    check_nan,
    run_accumulate_hooks,
    run_post_hooks,
    run_pre_hooks,
    run_tensor_hooks,
)

ndarray = np.ndarray
_DEEP = 24  # walks inside of each other that one thread's stack is given


class Walk:
    """One backward pass over the graph below ``roots`` (nodes, Outputs or accumulators).

    ``targets``: the nodes that it is to come to; other ways are left out. ``through``: it runs the
    targets, too. ``within``: which nodes it may go through on the way (None: all).
    ``home``: where its sink keeps the gradients of leaves, where not in ``.grad`` (``get(leaf)``,
    ``put(leaf, gradient)``): for accumulators that have a ``store`` of their own.
    """

    home: Any = None
    at: Any = None  # the node that runs, where others look on
    course: Course | None = None  # where work may lie on several streams or devices
    watchers: tuple = ()  # interpreters that are shown nodes

    def __init__(
        self,
        roots: Iterable[Any],
        sink: Callable[[Any, Any, bool], None],
        *,
        keep: bool = False,
        tensors: bool = False,
        targets: set | None = None,
        through: bool = False,
        within: Callable[[Any], bool] | None = None,
    ) -> None:
        self.sink, self.keep, self.tensors = sink, keep, tensors
        self.pending: dict[Any, int] = {}
        self.grads: dict[Any, Any] = {}
        self.lent: set = set()  # nodes whose gradient others may have, or may have had
        self.silent: set = set()  # ready, although no gradient has come: they run with None
        self.ready: list[tuple[int, int, Any]] = []
        self.turn = itertools.count().__next__  # leaves run in the order in which they are complete
        self.callbacks: list[Callable[[], None]] = []
        self.broken: list[Callable[[], None]] = []
        self.captures: dict[Any, dict[int, Any]] = {}
        for interp in thread.stack:
            if interp.dynamic:
                interp.on_walk()
                self.watchers += (interp,) * getattr(interp, "by_nodes", 0)
        # An interpreter alone on the stack may run whole rules itself, where nothing records them.
        alone = tensors and len(thread.stack) == 1
        self.pull = getattr(thread.stack[0], "pull", None) if alone else None
        order = self._count(roots)
        self.needed: Any = None if targets is None else _needed(order, targets, through, within)
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

    def feed(self, root: object, g: ArrayKind | Tensor | np.ndarray) -> None:
        """Give a root its gradient (array, or Tensor in a tensor walk)."""
        node, index = (root.node, root.index) if root.__class__ is Output else (root, 0)
        if self.needed is not None and node not in self.needed:
            return
        if g is not None:
            self._add(node, index, g, True)
        if not self.pending[node]:
            self._arrive(node)

    def reaches(self, node: object) -> bool:
        """Whether this walk comes to ``node``."""
        return node in self.pending and (self.needed is None or node in self.needed)

    def answer(self, question: Callable[[], bool]) -> bool:
        """What ``question`` says now; a replay of this walk says the same."""
        return question()

    def vary(self, why: str) -> None:
        """Tell that what this walk leads to may be otherwise in another step, so that no capture
        can stand for it."""

    def gave(self, leaves: Iterable[tuple[Any, bool, bool]]) -> None:
        """Tell of leaves whose gradients the stores of others leave: each, whether its ``.grad``
        was set or added to now, and whether this rank has a part in that."""

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
        elif (
            self.tensors
            or self.captures
            or thread.anomaly
            or self.needed is not None
            or self.watchers
        ):
            self._run_general()
        else:
            self._run_ordinary()

    def _run_ordinary(self) -> None:
        """The loop of a plain backward (arrays, no targets): ``_run_general``, spelled out."""
        ready, grads = self.ready, self.grads
        keep, pending, lent, sink = self.keep, self.pending, self.lent, self.sink
        pop, push, turn = heapq.heappop, heapq.heappush, self.turn
        while ready:
            node = pop(ready)[2]
            g = grads.pop(node, None)
            if g is None:
                self._run_silent(node)
                continue
            if node.tensor_hooks is not None:
                g = run_tensor_hooks(self, node, g)
            if node.__class__ is AccumulateGrad:
                if node.pre_hooks or node.post_hooks:
                    self._run_leaf(node, g)
                else:
                    sink(node, g, node not in lent)
                continue
            if g.__class__ is list or node.pre_hooks or node.post_hooks:
                self._run_node(node, g)
                continue
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
                        single and r.__class__ is ndarray
                        and r.dtype is e.dtype and r.shape == e.shape
                    ):  # fmt: skip
                        if e in grads:
                            self._add_more(e, r)
                        else:
                            grads[e] = r
                            if r is g and (node in lent or not _single(results)):
                                lent.add(e)
                    else:
                        came = r is g if r.__class__ is ndarray else _is_among(r, g)
                        alone = not came or (node not in lent and _single(results))
                        self._add(e, index, r, not alone)
                left = pending[e] - 1
                pending[e] = left
                if not left:
                    if e not in grads:
                        self.silent.add(e)
                    push(ready, (-e.seq, turn(), e))
            results = r = None  # what a leaf has copied need not live on

    def _run_general(self) -> None:
        ready, grads = self.ready, self.grads
        while ready:
            node = heapq.heappop(ready)[2]
            if node not in grads:
                self._run_silent(node)
                continue
            g = grads.pop(node)
            if self.course is not None:
                self.course.follow(node, g)
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
            self._run_node(node, g)

    def _run_silent(self, node: Any) -> None:
        """Run ``node`` if it is complete and no gradient has come to it: its hooks get None, and
        what it leads to, as a Function's backward may do more than compute gradients."""
        if node not in self.silent:  # it has run: two roots of one node
            return
        self.silent.discard(node)
        g = None if node.shapes is None else [None] * len(node.shapes)
        if node.tensor_hooks is not None:
            run_tensor_hooks(self, node, g)
        needed = self.needed
        if node.__class__ is AccumulateGrad:
            if needed is None or node in needed:
                self._run_leaf(node, None)
        elif needed is None or needed[node]:
            self._run_node(node, g)

    def _run_leaf(self, node: AccumulateGrad, g: object) -> None:
        if self.sink is discard:
            return
        if node.pre_hooks:
            g = run_pre_hooks(self, node, g)
        for watcher in self.watchers:
            watcher.on_node(node, g, ())
        if g is None:
            run_accumulate_hooks(node)
        else:
            self.sink(node, g, not (node in self.lent or node.pre_hooks or node.post_hooks))
        if node.post_hooks:
            run_post_hooks(self, node, (), g)

    def _run_node(self, node: Any, g: object) -> None:
        self.at = node
        if g.__class__ is list:
            g = tuple(g)
        if node.pre_hooks:
            g = run_pre_hooks(self, node, g)
        came, g = g, self._filled(node, g)
        results = node.run_without(self.tensors) if g is None else self._results(node, g)
        if node.post_hooks:
            results = run_post_hooks(self, node, results, came)
        for watcher in self.watchers:
            watcher.on_node(node, came, results)
        if thread.anomaly and thread.check_nan:
            check_nan(node, results)
        if not self.keep:
            node.release()
        self._deliver(node, g, results)

    def _filled(self, node: Any, g: object) -> Any:
        """``g`` with zeros for what has not come; None where nothing has."""
        if g.__class__ is not tuple:
            return g
        missing = sum([x is None for x in g])
        if missing == len(g) and g:
            return None
        return self._materialize(node, g) if missing else g

    def _results(self, node: Any, g: object) -> tuple:
        wanted = self._wanted(node)
        if self.pull is not None and not thread.grad_enabled:
            return self.pull(node, g, wanted)
        return node.run(g, self.tensors, wanted)

    def _wanted(self, node: Any) -> tuple | None:
        """Which edges of ``node`` lead to a target (None: all)."""
        needed = self.needed
        if needed is None:
            return None
        return tuple(
            e is not None and (e.node if e.__class__ is Output else e) in needed for e in node.edges
        )

    def _deliver(self, node: Any, g: Any, results: tuple) -> None:
        pending = self.pending
        needed = self.needed
        for e, r in zip(node.edges, results, strict=True):
            if e is None:
                continue
            target, index = (e.node, e.index) if e.__class__ is Output else (e, 0)
            if needed is not None and target not in needed:
                continue
            if r is not None:
                self._add(target, index, r, self._is_lent(node, g, r, results))
            left = pending[target] - 1
            pending[target] = left
            if not left:
                self._arrive(target)

    def _arrive(self, node: object) -> None:
        """All has come that will come to ``node``, which may be nothing."""
        if node not in self.grads:
            self.silent.add(node)
        self._push(node)

    def _is_lent(
        self, node: Any, g: Tensor | np.ndarray | tuple, r: object, results: tuple
    ) -> bool:
        """Whether somebody else may have ``r``, one of the ``results`` of ``node`` for ``g``."""
        if not node.makes or node.pre_hooks or node.post_hooks:
            return True
        if not _is_among(r, g):
            return False
        return node in self.lent or not _single(results)

    def _add(self, node: Any, index: int, g: Any, lent: bool) -> None:
        """Add ``g`` to what output ``index`` of ``node`` has received, in its shape and type."""
        several = getattr(node, "shapes", None)
        shape, kind = (node.shape, node.dtype) if several is None else several[index]
        given = g
        if self.tensors:
            g = fit_tensor(node, g, shape, kind)
        elif g.__class__ is not ndarray or g.shape != shape or g.dtype is not kind:
            g = fit_array(node, g, shape, kind)
        grads = self.grads
        if several is not None:
            slots = grads.get(node)
            if slots is None:
                slots = grads[node] = [None] * len(several)
            slots[index] = g if slots[index] is None else self._sum(slots[index], g)
            if lent:
                self.lent.add(node)
        elif node not in grads:
            grads[node] = g
            if lent and g is given:  # else it was made here to fit
                self.lent.add(node)
        else:
            self._add_more(node, g)

    def _add_more(self, node: Any, g: Any) -> None:
        """Add ``g``, which fits, to what the one output of ``node`` has received. (In its place,
        where a new sum would lie alike: sums over it would else add in another order.)"""
        so_far = self.grads[node]
        own = so_far.__class__ is ndarray and so_far.base is None and node not in self.lent
        if own and (so_far.flags.c_contiguous or so_far.strides == g.strides):
            np.add(so_far, g, out=so_far)
        else:
            self.grads[node] = self._sum(so_far, g)
            self.lent.discard(node)

    def _sum(self, a: ArrayKind | Tensor | np.ndarray, b: ArrayKind | Tensor | np.ndarray) -> Any:
        """In memory of its own."""
        if self.tensors:
            return Algebra.add(a, b)
        if isinstance(a, ArrayKind) or isinstance(b, ArrayKind):
            return Algebra.add(wrap(a), wrap(b)).array
        total = a + b
        return total if total.__class__ is ndarray else np.asarray(total)

    def _materialize(self, node: Any, slots: Sequence) -> tuple:
        if node.wants_none:
            return tuple(slots)
        zeros = _zeros_beside(next(g for g in slots if g is not None), self.tensors)
        unread = node.prim.nondiff_outputs if node.__class__ is Node else ()
        return tuple(
            zeros(*node.shapes[i])
            if g is None and i not in unread and node.shapes[i][1].kind in "fcV"
            else g
            for i, g in enumerate(slots)
        )

    def _capture(self, node: object, g: Tensor | list | np.ndarray) -> None:
        self.lent.add(node)
        for index in self.captures[node]:
            self.captures[node][index] = g[index] if g.__class__ is list else g


def _single(results: tuple) -> bool:
    if len(results) == 2:
        return results[0] is None or results[1] is None
    return len(results) == 1 or sum([r is not None for r in results]) == 1


def _is_among(r: object, given: object) -> bool:
    """Whether ``r`` is one of the gradients that a node was given. (Views are known as such.)"""
    for g in given if given.__class__ is tuple else (given,):
        if r is g:
            return True
        if r.__class__ is not ndarray and g is not None and is_one(r, g):
            return True
    return False


def discard(acc: object, g: object, own: bool) -> None:
    """The sink of ``grad()``: what is wanted was captured on the way."""


def on_finish(callback: Callable[[], None], broken: Callable[[], None] | None = None) -> None:
    """Call ``callback`` when the backward pass that is running on this thread is through (the
    outermost one, where checkpointing runs another inside it), ``broken`` when it raises."""
    if thread.walk is None:
        raise AutogradError("on_finish: no backward pass is running on this thread")
    thread.walk.callbacks.append(callback)
    if broken is not None:
        thread.walk.broken.append(broken)


def _zeros_beside(g: ArrayKind | Tensor | np.ndarray, tensors: bool) -> Callable[[tuple, Any], Any]:
    """What makes zeros that meet the gradient ``g``."""
    array = g.__dict__.get("array") if tensors else g
    if not isinstance(array, ArrayKind) or array.as_host:
        return Algebra.zeros if tensors else np.zeros
    if tensors:
        return lambda shape, kind: wrap(array.blank(shape, kind))
    return array.blank


def _needed(order: list, targets: set, through: bool, within: Any) -> dict[Any, bool]:
    """The nodes from which a target can be reached, each with whether it must run for that."""
    needed = dict.fromkeys(targets, through)
    for node in sorted(order, key=lambda n: n.seq if n.__class__ is not AccumulateGrad else 0):
        for e in node.edges if within is None or within(node) else ():
            if e is not None and (e.node if e.__class__ is Output else e) in needed:
                needed[node] = True
                break
    return needed
