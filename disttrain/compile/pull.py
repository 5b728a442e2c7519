"""Derivative rules as instructions: the gradient of one recorded operation is one step of a graph.

A rule that is given Tensors spells itself out in operations, which higher derivatives need. A
captured backward needs none of that: its rules run on arrays, as in an eager backward, so that a
replay does the same arithmetic at the same cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..backends.array_kinds import ArrayKind
from ..core.annotations import DTypeLike
from ..core.gate import Primitive, finish
from ..core.node import Node, Output
from ..core.tensor import Tensor
from ..ops.declare import primitive

ndarray = np.ndarray


def _accumulate(grad: Any, more: Any) -> Any:
    return np.add(grad, more, out=grad)


# What a leaf does with a gradient that is not its first.
accumulate = primitive("accumulate", _accumulate, "grad more", mutates=(0,))


def _placed(g: Any, leaf: Any) -> Any:
    """A gradient of its own that lies as that of ``leaf`` does."""
    own = leaf.as_gradient(g) if isinstance(leaf, ArrayKind) else g
    return own.owned(own is not g) if isinstance(own, ArrayKind) else own.copy("C")


def _add_placed(grad: Any, more: Any) -> Any:
    grad.add_in_place(more)
    return grad


place_gradient = Primitive("place_gradient", _placed, ("g", "leaf"))
add_gradient = Primitive("add_gradient", _add_placed, ("grad", "more"))
add_gradient.mutates = (0,)
place_gradient.kinds = add_gradient.kinds = True


class OverRanks(Primitive):
    """``of`` on arrays that are spread over ranks: an effect, since it may reach others. ``block``:
    makes what was around it."""

    def __init__(self, of: Primitive, block: Callable[[], AbstractContextManager] | None) -> None:
        super().__init__(of.name, of.compute, of.args)
        self.of, self.block = of, block or nullcontext
        self.multi, self.view, self.mutates = of.multi, of.view, of.mutates
        self.random, self.checks, self.part = of.random, of.checks, of.part
        self.outward = True
        self.forward = self._forward

    def _forward(self, *arrays: Any, **params: Any) -> Any:
        return self.compute(arrays, params)

    def compute(self, arrays: list | tuple, params: dict) -> Any:
        if self.of.together is not None:  # an update of elements
            parts = arrays[0].together(arrays[1:])
            if parts is not None and arrays[0].here() is None:
                return self.of.forward(*parts, **params)
        with self.block():
            return self.of.compute(arrays, params)


_over_ranks = functools.cache(OverRanks)


def over_ranks(prim: Primitive, args: tuple, out: object) -> Primitive:
    """What ``prim`` is as an instruction on ``args`` that gives ``out``."""
    outs = out if isinstance(out, tuple) else (out,)
    kind = spread_kind((*args, *outs))
    return prim if kind is None else _over_ranks(prim, kind.surroundings())


def spread_kind(values: tuple) -> type[ArrayKind] | None:
    """The kind of those tensors among ``values`` that are spread over ranks, if there are any."""
    for v in values:
        array = v.__dict__.get("array") if isinstance(v, Tensor) else None
        if isinstance(array, ArrayKind) and array.outward:
            return array.__class__
    return None


class _Shape:
    """What is left of an edge: the shape and type of what it leads to."""

    def __init__(self, shape: Any, dtype: DTypeLike | None) -> None:
        self.shape, self.dtype = shape, dtype


class Rule:
    """The rules of one node without the tensors that it saved, and how their arguments lie."""

    def __init__(self, node: Node, gradients: int, results: int | None, needs: tuple) -> None:
        self.gradients, self.results, self.needs = gradients, results, needs
        self.ends = -results if results else None  # of what it saved, among its arguments
        self.several = node.shapes is not None
        edges = tuple(_stub(e) if need else None for e, need in zip(node.edges, needs, strict=True))
        self.node = Node(node.prim, edges, (), node.params, node.shape, node.dtype)
        self.node.shapes = node.shapes
        self.found = node.prim.vjp_all or self._one_by_one
        self.there: tuple[bool, ...] = ()  # which gradients there were at capture

    def __repr__(self) -> str:
        return "".join("01"[need] for need in self.needs)

    def only(self, needs: tuple) -> Rule:
        """The same for fewer arguments."""
        return Rule(self.node, self.gradients, -self.ends if self.ends else None, needs)

    def run(self, arrays: tuple) -> list:
        """The gradients per argument, None where there is none."""
        first, ends = self.gradients, self.ends
        one_g, one_out = arrays[0], arrays[-1] if ends else None
        if self.several:
            one_g, one_out = arrays[:first], arrays[ends:] if ends else None
        found = self.found(one_g, one_out, arrays[first:ends], self.node, self.needs)
        saved = arrays[first:]
        return [r if r is None else _own(r, saved) for r in found]

    def _one_by_one(
        self, g: object, out: object, values: tuple, node: object, needs: tuple
    ) -> list:
        rules = zip(needs, self.node.prim.rules, strict=True)
        return [rule(g, out, values, node) if need else None for need, rule in rules]

    def forward(self, *arrays: Any) -> tuple:
        """The gradients that there are."""
        return tuple([r for r in self.run(arrays) if r is not None])


def _stub(edge: Any) -> _Shape:
    if edge.__class__ is Output:
        return _Shape(*edge.node.shapes[edge.index])
    return _Shape(edge.shape, edge.dtype)


def _own(r: Any, others: tuple) -> Any:
    """A gradient as an array that is no saved tensor itself."""
    if r.__class__ is not ndarray:
        r = finish(r)
    for a in others:
        if r is a:
            return r.copy()
    return r


def _forward(*arrays: object, rule: Rule) -> tuple:
    return rule.forward(*arrays)


def _prepared(params: dict[str, Any]) -> Callable[..., tuple]:
    return params["rule"].forward


@functools.cache
def backward_of(prim: Primitive) -> Primitive:
    """The primitive whose instructions run the derivative rules of ``prim``."""
    out = Primitive(f"{prim.name.strip('_')}_backward", _forward, ())
    out.multi = True
    out.prepared = _prepared
    return out
