"""Placing: the gradient of a weight is computed where its leaf takes it (a bucket that peers read).

An eager backward does the same product into the same memory (``AccumulateGrad.place``); a copy of
all gradients per step is saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...ops.primitives.linalg import linear
from ..graph import Graph
from ..instruction import Instruction, Var
from ..pull import Rule
from ..work import Work, on_arrays
from .values import inputs_of

store_product = Work("store_product", on_arrays, ())
store_product.outward, store_product.keeps = True, False


def place_products(graph: Graph) -> Graph:
    """Join a product with the store of its result, which stands right behind it."""
    placing = _Placing(graph)
    done: list[Instruction] = []
    for ins in graph.instructions:
        if done and placing.may_join(done[-1], ins):
            done += placing.joined(done.pop(), ins)
        else:
            done.append(ins)
    return graph.with_instructions(done) if placing.count else graph


class _Placing:
    """What is known of the values of one graph. ``count``: how many were joined."""

    def __init__(self, graph: Graph) -> None:
        self.metas, self.count = graph.metas, 0
        self.uses = Counter(v for ins in graph.instructions for v in inputs_of(ins))
        self.uses.update(graph.results())
        self.stores = Counter(id(_leaf(ins)) for ins in graph.instructions if _leaf(ins))

    def may_join(self, product: Instruction, store: Instruction) -> bool:
        """Whether ``store`` takes what ``product`` alone gives it."""
        leaf, rule = _leaf(store), product.params.get("rule")
        if leaf is None or leaf.place is None or self.stores[id(leaf)] > 1 or store.prim.mutates:
            return False
        if not isinstance(rule, Rule) or rule.node.prim is not linear or rule.needs[0]:
            return False
        if not rule.needs[1] or len(product.outputs) != sum(rule.needs):
            return False
        dw, given = product.outputs[0], product.args[:2]
        if store.args != (dw,) or self.uses[dw] > 1:
            return False
        kinds = {self.metas[v][1] for v in (dw, *given) if isinstance(v, Var)}
        return len(kinds) == 1 and next(iter(kinds)).char in "fd"

    def joined(self, product: Instruction, store: Instruction) -> Iterator[Instruction]:
        """Both in one; before it what else the rule gives."""
        self.count += 1
        rule = product.params["rule"]
        if len(product.outputs) > 1:
            rest = {"rule": rule.only((False, False, True))}
            yield replace(product, params=rest, outputs=product.outputs[1:])
        effect = Placed(store.params["effect"], rule.only((False, True, False)))
        yield Instruction(store_product, product.args, {"effect": effect}, ())


def _leaf(ins: Instruction) -> Any:
    """Whose gradient it stores, if it does."""
    return getattr(ins.params.get("effect"), "acc", None)


class Placed:
    """A leaf takes a gradient that is computed where it wants it, as ``rule`` does elsewhere."""

    def __init__(self, stored: Any, rule: Rule) -> None:
        self.stored, self.rule = stored, rule

    def __call__(self, g: Any, x: Any, *others: object) -> None:
        place = self.stored.place()
        if place is None:
            (dw,) = self.rule.forward(g, x, *others)
        else:
            dw, factor = place
            np.matmul(_rows(g).T, _rows(x), out=dw)
            np.multiply(dw, factor, out=dw)
        self.stored(dw)

    def __repr__(self) -> str:
        return repr(self.stored)


def _rows(a: Any) -> Any:
    return a if a.ndim == 2 else a.reshape(-1, a.shape[-1])


__all__ = ["Placed", "place_products"]
