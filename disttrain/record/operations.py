"""Every operation, as an interpreter at the gate sees it, and every node of backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import context
from ..core import Tensor
from ..core.node import AccumulateGrad, Output, next_seq
from ..core.observers import OperationObserver
from . import rows
from .recorder import Recorder
from .values import array_of, measure, mixed

_AGAIN = -1  # of a node to which several gradients have come: their sum is measured


class Operations(OperationObserver):
    """The interpreter: lets every operation pass, and records its results."""

    by_nodes = True

    def __init__(self, to: Recorder) -> None:
        self.to = to
        self.made: dict[int, tuple[int, int]] = {}  # by a node's seq: its module and line
        self.came: dict[Any, int] = {}  # node -> hash of the one gradient that has come to it

    def __str__(self) -> str:
        return "record"

    def on_walk(self) -> None:
        if context.thread.walking is None:
            self.came.clear()

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        to = self.to
        if not to.on:
            return forward(prim, args, params)
        if prim.view:
            return forward(prim, args, params)
        given = tuple([to.hash(a) for a in args if isinstance(a, Tensor)])
        if len(given) > rows.NUM_INPUTS:
            given = (*given[: rows.NUM_INPUTS - 1], mixed(*given[rows.NUM_INPUTS - 1 :]))
        if prim.random:
            to.random(f"before {prim.name}", params.get("generator"))
        out = forward(prim, args, params)
        site = to.sites.here()
        if prim.mutates:
            first = args[prim.mutates[0]]
            self._row(prim.name, first, to.names.of(first, ""), site, given)
        elif out.__class__ is tuple:
            for i, t in enumerate(out):
                self._row(prim.name, t, f"output {i}" if i else "", site, given)
        else:
            self._row(prim.name, out, "", site, given)
        if prim.differentiable:  # the node that comes next is the one of this operation
            self.made[next_seq() + 1] = (to.module, site)
        return out

    def _row(self, name: str, t: Any, about: str, site: int, given: tuple[int, ...]) -> None:
        to, array = self.to, array_of(t)
        if array is None:
            return
        found = measure(array, to.part)
        to.put(rows.OPERATION, name, found, to.shape(array), site=site, about=about, inputs=given)
        if isinstance(t, Tensor):
            to.known.put(t, array, found)

    # -- backward ------------------------------------------------------------------------------

    def on_node(self, node: Any, g: Any, results: tuple) -> None:
        to = self.to
        if not to.on:
            return
        given = (self._arrived(node, g),)
        if node.__class__ is AccumulateGrad:
            self._leaf(node, g, given)
            return
        module, site = self.made.get(node.seq, (0, 0))
        name = node.name()
        for i, (e, r) in enumerate(zip(node.edges, results)):
            if e is None or r is None:
                continue
            array = array_of(r)
            found = measure(array)
            to.put(rows.NODE, name, found, to.shape(array), module=module, site=site,
                   about=f"gradient of input {i}", inputs=given)  # fmt: skip
            self._sent(e, array, found.hash)

    def _sent(self, edge: Any, array: Any, hash: int) -> None:
        """A gradient goes along ``edge``; it may be made to fit there, or added to others."""
        if edge.__class__ is Output:
            self.came[edge.node] = _AGAIN
            return
        fits = getattr(array, "shape", None) == edge.shape and array.dtype == edge.dtype
        self.came[edge] = hash if fits and edge not in self.came else _AGAIN

    def _arrived(self, node: Any, g: Any) -> int:
        hash = self.came.pop(node, _AGAIN)
        if hash != _AGAIN and node.tensor_hooks is None and not node.pre_hooks:
            return hash
        several = g if g.__class__ in (tuple, list) else (g,)
        found = [measure(array_of(x)).hash for x in several if x is not None]
        return found[0] if len(found) == 1 else mixed(*found)

    def _leaf(self, node: Any, g: Any, given: tuple[int, ...]) -> None:
        to, array = self.to, array_of(g)
        if array is None:
            return
        name = to.names.of(node.variable, "a leaf")
        to.put(rows.NODE, name, measure(array), to.shape(array), module=0,
               about="gradient of a leaf", inputs=given)  # fmt: skip

    def forget(self) -> None:
        """A step has ended: nodes of it are not walked any more, or lose their names."""
        if len(self.made) > 1 << 14:
            self.made.clear()
