"""A backward in two parts: first the gradients of some inputs, later those of everything else.

    grads, rest = backward_inputs(outputs, grad_outputs, inputs)
    ...                                # somebody waits for grads
    rest.run()                         # .grad of the other leaves

Together they do what one backward does, and nothing twice: the first walk runs, of each node that
leads to an input, only the rules for the edges which lead there, and remembers the gradient that
reached the node; the second starts from what was remembered. A node that cannot be run by halves (a
program's own ``Function``, one with hooks, one whose saved tensors are packed) is run whole in the
first walk, and what it gave for the other edges is kept; so is one whose rules share their work (a
norm). Every hook runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...context import thread
from ..grad_mode import set_state
from ..node import Node, Output
from ..saved import PackedNode
from ..tensor import Tensor, wrap
from .autograd import as_tensors, cotangents_for, place
from .engine import Walk, discard
from .sink import accumulate

_SHARING = frozenset({"layer_norm", "rms_norm", "batch_norm", "group_norm"})


class Rest:
    """What is left of a backward: ``run`` writes the ``.grad`` of the leaves that are left."""

    def __init__(self, tensors: bool) -> None:
        self.tensors = tensors
        # Nodes, the gradient that reached them, and which of their edges are left.
        self.nodes: list[tuple[Any, Any, tuple]] = []
        self.parts: list[tuple[Any, Any]] = []  # gradients on their way: (edge, gradient)

    def run(self) -> None:
        """Run it, once."""
        nodes, parts = self.nodes, self.parts
        self.nodes, self.parts = [], []
        if nodes or parts:
            _run(_RestWalk(nodes, [edge for edge, _ in parts], self.tensors), parts)


class _RestWalk(Walk):
    """A walk that starts in the middle of the graph too, at nodes of which some edges are done."""

    def __init__(self, nodes: list[tuple[Any, Any, tuple]], roots: list, tensors: bool) -> None:
        self.left = {node: left for node, _, left in nodes}
        super().__init__([*self.left, *roots], accumulate, tensors=tensors)
        for node, g, _ in nodes:
            self.grads[node] = g
            self.lent.add(node)
            self._push(node)

    def _below(self, node: Any) -> tuple:
        left = self.left.get(node)
        if left is None:
            return node.edges
        return tuple([e for e, is_left in zip(node.edges, left, strict=True) if is_left])

    def _wanted(self, node: object) -> tuple | None:
        return self.left.get(node)

    def _run(self) -> None:
        self._run_general()

    def _deliver(self, node: Any, g: Any, results: tuple) -> None:
        left = self.left.get(node)
        if left is None:
            super()._deliver(node, g, results)
            return
        for e, r, is_left in zip(node.edges, results, left, strict=True):
            if not is_left:
                continue
            target, index = (e.node, e.index) if e.__class__ is Output else (e, 0)
            if r is not None:
                self._add(target, index, r, self._is_lent(node, g, r, results))
            self.pending[target] -= 1
            if not self.pending[target]:
                self._arrive(target)


class _InputWalk(Walk):
    """The walk to the inputs; what it leaves out goes into ``rest``."""

    def __init__(self, roots: Sequence[Any], targets: set, tensors: bool) -> None:
        super().__init__(roots, discard, keep=True, tensors=tensors, targets=targets)
        self.rest = Rest(tensors)

    def feed(self, root: object, g: Any) -> None:
        if (root.node if root.__class__ is Output else root) not in self.needed:
            self.rest.parts.append((root, g))
        else:
            super().feed(root, g)

    def _results(self, node: Any, g: object) -> tuple:
        wanted: Any = super()._wanted(node)
        others = tuple([e is not None and not w for e, w in zip(node.edges, wanted, strict=True)])
        results = super()._results(node, g)
        if not any(others):
            node.release()
        elif _divisible(node):
            self.lent.add(node)
            self.rest.nodes.append((node, g, others))
        else:
            for edge, other, r in zip(node.edges, others, results, strict=True):
                if other:
                    self.rest.parts.append((edge, r))
            node.release()
        return results

    def _wanted(self, node: object) -> tuple | None:
        return super()._wanted(node) if _divisible(node) else None


def _divisible(node: Any) -> bool:
    plain = isinstance(node, Node) and not isinstance(node, PackedNode)
    plain = plain and node.prim.name not in _SHARING
    return plain and not (node.tensor_hooks or node.pre_hooks or node.post_hooks)


def backward_inputs(
    outputs: Sequence[Tensor], grad_outputs: list | None, inputs: Sequence[Tensor]
) -> tuple[tuple[Tensor | None, ...], Rest]:
    """The gradients of ``outputs`` with respect to ``inputs`` (None where one was not used), and
    the rest of the backward."""
    roots = tuple(outputs)
    cotangents = cotangents_for("backward_inputs", roots, grad_outputs)
    places = [place("backward_inputs", i, t) for i, t in enumerate(inputs)]
    tensors = as_tensors(roots + tuple(inputs), cotangents, False)
    nodes = [t.graph_node() for t in roots]
    walk = _InputWalk(nodes, {node for node, _ in places}, tensors)
    for node, index in places:
        walk.captures.setdefault(node, {})[index] = None
    _run(walk, [(n, g if tensors else g.array) for n, g in zip(nodes, cotangents, strict=True)])
    found = [walk.captures[node][index] for node, index in places]
    return tuple(g if g is None or isinstance(g, Tensor) else wrap(g) for g in found), walk.rest


def _run(walk: Walk, fed: list[tuple[Any, Any]]) -> None:
    before = thread.grad_enabled
    set_state({"grad_enabled": False})
    try:
        for root, g in fed:
            walk.feed(root, g)
        walk.run()
    finally:
        set_state({"grad_enabled": before})
