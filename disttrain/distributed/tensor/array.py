"""The kind of array inside of a DTensor: data, movement and dispatch put together; its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.memory import memory_of
from ...backends.null import NullArray
from ...comm.calls.reduce_ops import ReduceOp
from ...core.node import AccumulateGrad, Node, Output
from ...core.tensor import Tensor, wrap
from .dispatch import implicit_replication, replicates, run_primitive
from .movement import redistribute
from .placements import Partial, Replicate, local_shape
from .random import in_step
from .spread import Spread
from .viewing import fresh

_REDUCE = {"sum": ReduceOp.SUM, "max": ReduceOp.MAX, "min": ReduceOp.MIN}


class DistArray(Spread):
    """A distributed array that answers the gate and the engine."""

    __slots__ = ()
    places_others = outward = True

    @classmethod
    def surroundings(cls) -> Any:
        return implicit_replication if replicates() else None

    def run(self, prim: Any, arrays: Any, params: dict) -> Any:
        return run_primitive(prim, arrays, params)

    def ones(self) -> DistArray:
        return self.filled(1)

    def zeros(self) -> DistArray:
        return self.filled(0)

    def filled(self, value: object) -> DistArray:
        """An array like this one full of ``value``; whole where this one is partial."""
        there = memory_of(self)

        def make(shape: tuple, dtype: object) -> Any:
            return there.held(there.full(shape, value, dtype))

        return self.similar(make, self.shape, self.dtype, not self.has_data)

    def similar(self, make: Any, shape: tuple, dtype: object, meta: bool) -> DistArray:
        mesh = self.mesh
        own = without_partial(self.placements)
        if tuple(shape) != self.shape:
            own = (Replicate(),) * mesh.ndim
        part = local_shape(shape, mesh.ranks.shape, mesh.get_coordinate(), own)
        there = memory_of(self)
        local = NullArray(part, dtype) if meta else make(part, dtype)
        if isinstance(local, np.ndarray) and not there.on_host:
            local = there.held(there.take(local))
        return self.__class__(local, mesh, own, shape)

    def item(self) -> Any:
        """The number of an array of one element, on every rank."""
        return redistribute(self, (Replicate(),) * self.mesh.ndim).local.item()

    def together(self, others: Any) -> list | None:
        own = self.placements
        if not self.has_data:
            return None
        for p in own:
            if p.__class__ is Partial:
                return None
        parts = [self.local]
        for other in others:
            if isinstance(other, Spread):
                same = other.placements is own or other.placements == own
                same = same and (other.mesh is self.mesh or other.mesh == self.mesh)
                other = other.local if same and other.shape == self.shape else None
            elif other.size != 1:
                return None
            if other is None or isinstance(other, NullArray):
                return None
            parts.append(other)
        if isinstance(self.local, ArrayKind):
            return self.local.together(parts[1:])
        return parts if all(isinstance(part, np.ndarray) for part in parts) else None

    def over_parts(self, values: object, how: str) -> Any:
        for axis, placement in enumerate(self.placements):
            if placement.is_shard() and self.mesh.get_coordinate() is not None:
                self.mesh.line(axis).all_reduce(values, _REDUCE[how])
        return values

    def everywhere(self, number: Any) -> Any:
        if isinstance(self.local, ArrayKind):
            number = self.local.beside(number)
        return self.make(number, (Replicate(),) * self.mesh.ndim, number.shape)

    def where(self) -> Any:
        return self.mesh, self.placements

    def drawn(self, prim: Any, params: dict, then: Callable[..., Any] | None = None) -> DistArray:
        own = without_partial(self.placements)
        if not self.has_data:
            return self.similar(np.empty, self.shape, params["dtype"], True)
        how = {**params, "generator": in_step(self.mesh, params["generator"])}
        numbers = prim.compute((), how)
        if isinstance(numbers, ArrayKind):
            numbers = numbers if then is None else then(wrap(numbers)).array
            return redistribute(self.beside(numbers), own)
        numbers = np.asarray(numbers if then is None else then(numbers))
        return redistribute(self.beside(numbers), own)

    def whole(self) -> Any:
        """All the numbers, on every rank."""
        if not self.has_data:
            return NullArray(self.shape, self.dtype)
        return redistribute(fresh(self), (Replicate(),) * self.mesh.ndim).local

    def whole_of(self, t: Any) -> Any:
        return t.full_tensor()

    def taken_in(self, t: object) -> Any:
        whole = (Replicate(),) * self.mesh.ndim
        return self.tensor_class.from_local(t, self.mesh, whole)

    def beside(self, array: Any) -> DistArray:
        if isinstance(self.local, ArrayKind):
            array = self.local.beside(array)
        return self.__class__(array, self.mesh, (Replicate(),) * self.mesh.ndim, array.shape)

    def as_gradient(self, g: object) -> Any:
        """Placed as the leaf, in memory of its own."""
        if not isinstance(g, Spread):
            return g
        placed = redistribute(g, without_partial(self.placements))
        if placed.has_data:
            raw = memory_of(placed).raw(placed.local)
            if placed is g or raw.base is not None:
                placed = placed.like(placed.local.copy("C"))
        return placed

    def placed(self, t: Any) -> Any:
        return t.redistribute(placements=without_partial(self.placements))

    def add_in_place(self, g: Any) -> None:
        there = memory_of(self)
        mine = there.raw(self.local)
        with there.here():
            np.add(mine, there.raw(redistribute(g, self.placements).local), out=mine)


def without_partial(placements: tuple) -> tuple:
    """What gradients of tensors with ``placements`` lie as: partial values have whole gradients."""
    if not any(isinstance(p, Partial) for p in placements):
        return placements
    return tuple(Replicate() if isinstance(p, Partial) else p for p in placements)


class KindNode(Node):
    """A node whose rules run on Tensors in every walk, so that they are one text for all kinds."""

    outward = True

    def run(self, g: Any, tensors: bool, wanted: tuple | None = None) -> tuple:
        with implicit_replication():  # what rules make themselves is the same on every rank
            if not tensors:
                wrapped = isinstance(g, tuple)
                g = tuple(None if x is None else wrap(x) for x in g) if wrapped else wrap(g)
            found = super().run(g, True, wanted)
            pairs = zip(found, self.edges, strict=True)
            fit = tuple(_fit(r, e) if isinstance(r, Tensor) else r for r, e in pairs)
        return fit if tensors else tuple(r.array if isinstance(r, Tensor) else r for r in fit)

    def shown(self) -> Any:
        return self


class LeavingNode(KindNode):
    """The node of a plain tensor that was made from a distributed one."""


def _fit(r: Tensor, edge: object) -> Tensor:
    """The gradient ``r`` as the kind of tensor that it is of, at ``edge``."""
    array = r.__dict__.get("array")
    if isinstance(array, Spread):
        return r.full_tensor() if _is_plain(edge) else r  # type: ignore[attr-defined]
    if isinstance(edge, AccumulateGrad) and isinstance(array, np.ndarray):
        leaf = edge.variable
        if leaf is not None and isinstance(leaf.array, Spread):
            return leaf.array.taken_in(r)
    return r


def _is_plain(edge: object) -> bool:
    """Whether the tensor at ``edge`` is no distributed one: it came in as the same on all ranks."""
    node = edge.node if isinstance(edge, Output) else edge
    if isinstance(node, AccumulateGrad):
        leaf = node.variable
        return leaf is not None and not isinstance(leaf.array, Spread)
    kind = getattr(node, "unpacked", node.__class__)
    if not issubclass(kind, Node):
        return False
    return not issubclass(kind, KindNode) or issubclass(kind, LeavingNode)
