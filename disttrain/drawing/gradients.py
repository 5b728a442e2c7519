"""The nodes that backward goes through from a tensor, as a graph: leaves first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.node import AccumulateGrad
from ..core.tensor import Tensor
from ..errors import AutogradError
from .graph import GRADIENT, OUTPUT, PARAMETER, Graph


def walked(roots: Iterable[Tensor], names: dict[int, str]) -> Graph:
    """The graph of ``roots``. ``names``: what leaves are called, by their id."""
    graph = Graph("backward")
    numbers: dict[int, int] = {}
    for i, root in enumerate(roots):
        if root.grad_fn is None and not root.requires_grad:
            raise AutogradError(
                "draw: a tensor that was made by nothing that requires grad; give a loss, or a "
                "model and its inputs"
            )
        node = root.graph_node()
        _add(graph, node.shown() if hasattr(node, "shown") else node, numbers, names)
        last = numbers[id(node.shown())]
        shape = tuple(root.shape)
        graph.add(f"output_{i}", OUTPUT, sources=(last,), shapes=(shape,), dtype=root.dtype.name)
    return graph


def _add(graph: Graph, root: Any, numbers: dict[int, int], names: dict[int, str]) -> None:
    todo = [(root, False)]
    while todo:
        node, ready = todo.pop()
        if id(node) in numbers:
            continue
        before = [n for n, _ in node.next_functions if n is not None]
        if not ready:
            todo.append((node, True))
            todo += [(n, False) for n in reversed(before) if id(n) not in numbers]
            continue
        sources = tuple(dict.fromkeys(numbers[id(n)] for n in before if id(n) in numbers))
        numbers[id(node)] = _node(graph, node, sources, names)


def _node(graph: Graph, node: Any, sources: tuple, names: dict[int, str]) -> int:
    leaf = node.variable if isinstance(node, AccumulateGrad) else None
    if leaf is not None:
        name = names.get(id(leaf))
        kind = GRADIENT if name is None else PARAMETER
        shape = tuple(leaf.shape)
        return graph.add(name or "leaf", kind, shapes=(shape,), dtype=leaf.dtype.name)
    name = node.name().removesuffix("Backward0")
    shapes = (tuple(node.shape),) if node.shapes is None else ()
    dtype = getattr(getattr(node, "dtype", None), "name", "") or ""
    return graph.add(name, name, sources=sources, shapes=shapes, dtype=dtype)
