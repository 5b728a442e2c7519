"""Values that a write replaces and that rules still need: the nodes that saved them get copies."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from ...core.gate import Tracer
from ...core.grad_mode import no_grad
from ...core.node import Node, Output
from ...core.tensor import Tensor
from ..primitives import elementwise as el


def keep_old(target: Tensor, node: Node, since: int) -> None:
    """Give the nodes made since then their own copy of what lies in the memory of ``target``."""
    copies: dict[int, Tensor] = {}
    seen = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node.__class__ is Output:
            node = node.node
        if not isinstance(node, Node) or node.seq < since or id(node) in seen:
            continue
        seen.add(id(node))
        stack.extend(node.edges)
        for i, t in enumerate(node.saved or ()):
            if isinstance(t, Tensor) and _lies_in(t, target):
                if id(t) not in copies:
                    copies[id(t)] = old_value(t)
                _replace_saved(node, i, copies[id(t)])


def _lies_in(t: Tensor, target: Tensor) -> bool:
    if isinstance(t, Tracer) or isinstance(target, Tracer):
        return t is target or (t._st is not None and t._st is target._st)
    if t.array.__class__ is not ndarray or target.array.__class__ is not ndarray:
        return t is target or (t._st is not None and t._st is target._st)
    return t is target or np.may_share_memory(t.array, target.array)


def old_value(t: Tensor) -> Tensor:
    """A copy of ``t`` in its place of the graph."""
    node = t.graph_node()
    with no_grad():
        copy = t.alias() if isinstance(t, Tracer) else el.copy(t)
    copy._node = node
    return copy


def _replace_saved(node: Node, i: int, value: Tensor) -> None:
    saved = list(node.saved or ())
    saved[i] = value
    node.saved = tuple(saved)
    if node.versions is not None:
        node.versions = tuple(0 if j == i else v for j, v in enumerate(node.versions))


__all__ = ["keep_old", "old_value"]
