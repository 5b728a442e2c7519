"""How a leaf takes its gradient: into its slot, scaled, and the bucket counted down.

The functions made here run once per parameter and backward, so they are kept flat. Knows the
reducer by its attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....backends.device.memory import Memory
from ....context import thread
from ....core.tensor import Tensor, wrap

ndarray = np.ndarray
IDLE, ARMED, SYNCING, VOID = range(4)  # VOID: as SYNCING, but what comes does not count


def make_store(r: Any, i: int) -> Callable[[Tensor, Any], None]:
    """The ``store`` of parameter ``i``'s accumulator, for reducer ``r``."""
    house = r.house
    views, slots, place = house.views, house.slots, house.place
    scaling = r.scaling
    scales = scaling.scales_of(r.metas[i].dtype)
    fresh = scales.fresh
    multiply, add, raw = np.multiply, np.add, house.memory.raw
    keep = make_keep(r, i)

    def store(leaf: Tensor, g: object) -> None:
        array = g if g.__class__ is ndarray else raw(getattr(g, "array", g))
        if r.phase != SYNCING:
            if not r.begin():
                keep(leaf, array)
                return
            if r.phase == VOID:  # a mean over no samples at all, which may be no number
                array = np.zeros_like(array)
        if r.fired[i]:
            r.again(i, array)
            return
        r.fired[i] = 1
        old = leaf._grad
        if old is not None and scaling.weight is not None:
            old = scaling.carry(i, leaf)
        if old is None:
            if array is not slots[i]:  # else it was computed there
                r.free(i)
                multiply(array, fresh, out=slots[i])
            view = leaf._grad = views[i]
        else:
            view = r.take_over(i, leaf, old)
            slot = slots[i]
            add(raw(old.array), array if scaling.weight is None else array * scales.local, out=slot)
            multiply(slot, scales.common, out=slot)
        if view._st is not None:
            view._st.version += 1
        if r.arrivals is not None:
            r.arrivals.append(i)
        if r.expected is None or r.expected[i] == 1:
            b = place[i]
            left = r.left[b] - 1
            r.left[b] = left
            if not left and b == r.next:
                r.launch()

    return store


def make_keep(r: Any, i: int) -> Callable[[Tensor, Any], None]:
    """What ``store`` does in a backward that is not synchronised: the gradient adds up."""
    views, slots = r.house.views, r.house.slots
    scaling, memory = r.scaling, r.house.memory
    scales = scaling.scales_of(r.metas[i].dtype)

    def keep(leaf: Tensor, array: np.ndarray) -> None:
        old = leaf._grad
        if scaling.weight is not None:
            array = array * scales.local if scaling.weight[0] else np.zeros_like(array)
            if old is not None:
                old = scaling.carry(i, leaf)
        scaling.accumulated.add(i)
        if old is None:
            r.free(i)
            leaf._grad = old = views[i]
            slots[i][...] = array
        else:
            try:
                target = memory.raw(old.array)
                np.add(target, array, out=target)
            except ValueError:  # an expanded view, of a backward that was recorded
                leaf._grad = wrap(memory.held(target + array))
        if old._st is not None:
            old._st.version += 1

    return keep


def make_place(r: Any, i: int) -> Callable[[], Any]:
    """Where a rule may compute the gradient of parameter ``i``: its slot, when nothing else will
    come to it in the walk that is running, and nobody is to see it before it is scaled."""
    slots, node = r.house.slots, r.nodes[i]
    scales = r.scaling.scales_of(r.metas[i].dtype)

    def place() -> Any:
        if (
            r.phase != SYNCING or r.fired[i] or r.params[i]._grad is not None
            or node.tensor_hooks is not None or node.pre_hooks
        ):  # fmt: skip
            return None
        walk = thread.walking
        if walk is None or walk.tensors or walk.pending.get(node) != 1 or node in walk.grads:
            return None
        r.free(i)
        return slots[i], scales.fresh

    return place


class Scales:
    """The factors of gradients of one type, as arrays without dimensions: ``local`` is this rank's
    own (its weight), ``common`` what all divide by, ``fresh`` their product. They lie where the
    gradients do."""

    def __init__(self, kind: np.dtype, memory: Memory) -> None:
        self.local, self.common, self.fresh = (memory.full((), 1, kind) for _ in range(3))

    def set(self, local: float, common: float) -> None:
        self.local.fill(local)
        self.common.fill(common)
        self.fresh.fill(local * common)
