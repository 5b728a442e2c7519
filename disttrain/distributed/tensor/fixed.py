"""Work in fixed pieces, so that results do not depend on how many ranks share an axis.

A mesh whose ``virtual_shards`` were set cuts every dimension that may lie on several ranks into
the same pieces whoever computes them: a product, and whatever sums, is computed piece by piece,
from memory of one shape and order, and sums over the pieces are joined by one tree, of which a
rank's own part is a branch. What works on elements alone needs none of that: its bits do not
depend on where an element lies. Placements are chosen as if there were as many ranks as pieces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends.fused.products import fixed_product
from ...errors import PlacementError
from ...ops.layouts import Cut, Layout
from ..invariant.gradients import wide
from ..invariant.strategy import pin_threads
from .movement import OPS
from .placements import Partial, Placement, Replicate
from .runs import Run, cut_shape

_PRODUCTS = ("linear", "matmul")

# What only moves elements, or says of which there are none: partial sums may go through it.
_EXACT = frozenset({"neg", "clone", "embed", "cat", "pad_constant", "flip", "roll"})


def layout_for(prim: Any, layout: Layout) -> Layout:
    """``layout`` where sums of all ranks are made at once: to add parts first, or to multiply them,
    would round otherwise than to do so with the sums."""
    if prim.view or prim.name in _EXACT or not layout.linear:
        return layout
    return replace(layout, linear=())


def needed(prim: Any, run: Run, pieces: Sequence[Any]) -> bool:
    """Whether ``run`` is computed piece by piece."""
    if prim.elementwise or prim.view or run.empty or prim.random:
        return False
    return all(isinstance(a, np.ndarray) for a in pieces if hasattr(a, "dtype"))


def spans(cut: Cut, pieces: int, where: str) -> list[Cut]:
    """The fixed pieces that make up ``cut``, of ``pieces`` or of as many as divide the whole."""
    each = cut.full // math.gcd(cut.full, pieces)
    if cut.start % each or cut.length % each or not cut.length:
        raise PlacementError(
            f'{where}: {cut.full} elements lie on several ranks, and deterministic="global" works '
            f"in pieces of {each} ({pieces} virtual shards, as far as they divide them), which "
            f"{cut.length} elements from {cut.start} on are none of: make the size a multiple of "
            f"{pieces}, or virtual_shards a power of two that divides it and that the number of "
            "ranks divides"
        )
    return [Cut(each, at, cut.full) for at in range(cut.start, cut.start + cut.length, each)]


def joined(terms: Sequence[Any], join: Any = np.add) -> Any:
    """Neighbouring pieces (a power of two of them) made one, as the tree over all of them does."""
    parts = [np.asarray(t) for t in terms]
    while len(parts) > 1:
        parts = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def perform(prim: Any, args: list, params: dict, run: Run, mesh: Any) -> tuple[Any, tuple]:
    """``prim`` on this rank's parts; (the result, how its parts lie)."""
    pin_threads()
    contracted = any(name not in labels for name in run.cuts for labels in run.layout.outs)
    out = None if contracted else _own_product(prim, args)
    if out is not None:
        return out, run.choice.outs
    if not run.cuts:
        return _computed(prim, args, params, run, {}), run.choice.outs
    return _Pieces(prim, args, params, run, mesh).result()


def _own_product(prim: Any, args: list) -> Any:
    """A product whose bits depend on no cut of rows and columns; None where there is none."""
    if prim.name not in _PRODUCTS or args[1].ndim != 2:  # linear(x, w, b) or matmul(a, b)
        return None
    x, w, b = (args[0], args[1].T, args[2]) if prim.name == "linear" else (*args, None)
    out = fixed_product.product(x.reshape(-1, x.shape[-1]), w)
    if out is None:
        return None
    if b is not None:
        out += b
    return out.reshape(*x.shape[:-1], w.shape[1])


def _computed(prim: Any, args: list, params: dict, run: Run, cuts: dict) -> Any:
    out = _own_product(prim, args)
    if out is not None:
        return out
    args = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args]
    local = run.layout.local
    return prim.compute(args, params) if local is None else local(prim, args, params, cuts)


class _Pieces:
    """One call, piece by piece of the dimension that is cut."""

    def __init__(self, prim: Any, args: list, params: dict, run: Run, mesh: Any) -> None:
        self.prim, self.params, self.run, self.mesh = prim, params, run, mesh
        ((self.name, cut),) = run.cuts.items()
        self.spans = spans(cut, mesh.virtual_shards, prim.name.strip("_"))
        self.sums = any(self.name not in labels for labels in run.layout.outs)
        kinds = [a.dtype for a in args if isinstance(a, np.ndarray)]
        self.narrow = next((k for k in kinds if self.sums and wide(k) != k), None)
        self.args = [self._widened(a) for a in args]

    def _widened(self, a: Any) -> Any:
        """Sums are in float32, and rounded once."""
        if self.narrow is None or not isinstance(a, np.ndarray):
            return a
        return a.astype(wide(a.dtype), copy=False)

    def result(self) -> tuple[Any, tuple]:
        found = [self._one(i) for i in range(len(self.spans))]
        if not self.prim.multi:
            found = [(one,) for one in found]
        made = [self._out(i, parts) for i, parts in enumerate(zip(*found, strict=True))]
        outs = tuple(placed for _, placed in made)
        arrays = tuple(array for array, _ in made)
        return (arrays if self.prim.multi else arrays[0]), outs

    def _one(self, i: int) -> Any:
        span, layout = self.spans[i], self.run.layout
        cuts = {self.name: span}
        args = [
            self._arg(k, a, labels, i)
            for k, (a, labels) in enumerate(zip(self.args, layout.ins, strict=True))
        ]
        params = self.params
        for key, out in layout.shapes.items():
            params = {**params, key: cut_shape(self.run.full[out], layout.outs[out], cuts)}
        return _computed(self.prim, args, params, self.run, cuts)

    def _arg(self, k: int, a: Any, labels: tuple | None, i: int) -> Any:
        """What piece ``i`` takes of argument ``k``."""
        if labels is None or not isinstance(a, np.ndarray):
            return a
        if self.name not in labels:
            return np.zeros_like(a) if i and self.sums and k in self.run.layout.once else a
        each = self.spans[0].length
        at = (slice(None),) * labels.index(self.name)
        return a[(*at, slice(i * each, (i + 1) * each))]

    def _out(self, i: int, parts: tuple) -> tuple[Any, tuple]:
        """Result ``i``, and how it lies."""
        labels, placed = self.run.layout.outs[i], self.run.choice.outs[i]
        if self.name in labels:
            whole = np.concatenate(parts, labels.index(self.name))
            return whole if self.narrow is None else whole.astype(self.narrow), placed
        how = next((p.reduce_op for p in placed if isinstance(p, Partial)), "sum")
        total: Any = joined(parts, _JOIN[how])
        if how == "avg":
            total = np.asarray(total / total.dtype.type(len(parts)))
        if self.narrow is None:
            return total, placed
        return self._whole(total, placed)

    def _whole(self, total: Any, placed: tuple) -> tuple[Any, tuple]:
        """The sum of all ranks, before it is rounded."""
        whole: list[Placement] = list(placed)
        for axis, p in enumerate(placed):
            if isinstance(p, Partial):
                total = np.ascontiguousarray(total)
                self.mesh.line(axis).all_reduce(total, OPS[p.reduce_op])
                whole[axis] = Replicate()
        return total.astype(self.narrow), tuple(whole)


_JOIN = {
    "sum": np.add, "avg": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
