"""Derivative rules as instructions: the gradient of one recorded operation is one step of a graph.

A rule that is given Tensors spells itself out in operations, which higher derivatives need. A
captured backward needs none of that: its rules run on arrays, as in an eager backward, so that a
replay does the same arithmetic at the same cost.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..core.annotations import DTypeLike
from ..core.gate import Primitive, finish
from ..core.node import Node, Output
from ..ops.declare import primitive


def _accumulate(grad: Any, more: Any) -> Any:
    return np.add(grad, more, out=grad)


# What a leaf does with a gradient that is not its first.
accumulate = primitive("accumulate", _accumulate, "grad more", mutates=(0,))


class _Shape:
    """What is left of an edge: the shape and type of what it leads to."""

    def __init__(self, shape: Any, dtype: DTypeLike | None) -> None:
        self.shape, self.dtype = shape, dtype


class Rule:
    """The rules of one node without the tensors that it saved, and how their arguments lie."""

    def __init__(self, node: Node, gradients: int, results: int | None, needs: tuple) -> None:
        self.gradients, self.results, self.needs = gradients, results, needs
        self.several = node.shapes is not None
        edges = tuple(_stub(e) if need else None for e, need in zip(node.edges, needs, strict=True))
        self.node = Node(node.prim, edges, (), node.params, node.shape, node.dtype)
        self.node.shapes = node.shapes

    def __repr__(self) -> str:
        return "".join("01"[need] for need in self.needs)

    def run(self, arrays: tuple) -> list:
        """The gradients per argument, None where there is none."""
        first = self.gradients
        ends = len(arrays) - self.results if self.results else len(arrays)
        values = arrays[first:ends]
        prim, node = self.node.prim, self.node
        one_g: Any = arrays[:first] if self.several else arrays[0]
        one_out: Any = None
        if self.results is not None:
            one_out = arrays[ends:] if self.several else arrays[ends]
        if prim.vjp_all is not None:
            found = prim.vjp_all(one_g, one_out, values, node, self.needs)
        else:
            found = [
                rule(one_g, one_out, values, node) if need else None
                for need, rule in zip(self.needs, prim.rules, strict=True)
            ]
        saved = arrays[first:]
        return [None if r is None else _own(finish(r), saved) for r in found]


def _stub(edge: Any) -> _Shape:
    if edge.__class__ is Output:
        return _Shape(*edge.node.shapes[edge.index])
    return _Shape(edge.shape, edge.dtype)


def _own(r: Any, others: tuple) -> Any:
    """A gradient that is no saved tensor itself."""
    for a in others:
        if r is a:
            return r.copy()
    return r


def _forward(*arrays: object, rule: Rule) -> tuple:
    return tuple(r for r in rule.run(arrays) if r is not None)


@functools.cache
def backward_of(prim: Primitive) -> Primitive:
    """The primitive whose instructions run the derivative rules of ``prim``."""
    out = Primitive(f"{prim.name.strip('_')}_backward", _forward, ())
    out.multi = True
    return out
