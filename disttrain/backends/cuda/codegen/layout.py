"""Where the elements of a kernel's arrays lie: shapes and strides made fit for code. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import DTypeError, ShapeError
from ...device.structs import Operand, dense
from ...lang.kernel import ITEMSIZE, Array, Kernel

NARROW = 1 << 30  # elements, and bytes of distance, that are counted in 32 bits


@dataclass(frozen=True, slots=True)
class Axes:
    """Sizes of the axes that are walked, and each array's strides over them."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def common_shape(kernel: Kernel, operands: Sequence[Operand]) -> tuple[int, ...]:
    """The shape of the full arrays; checks types and numbers of arguments."""
    if len(operands) != len(kernel.arrays):
        raise TypeError(
            f"kernel {kernel.name}: {len(operands)} arrays, {len(kernel.arrays)} needed"
        )
    for p, o in zip(kernel.arrays, operands):
        if o.dtype != p.dtype:
            raise DTypeError(
                f"kernel {kernel.name}: {p.name} is {o.dtype}; an array of {p.dtype} is needed"
            )
    shapes = [o.shape for p, o in zip(kernel.arrays, operands) if p.space == "full"]
    try:
        return np.broadcast_shapes(*shapes) or (1,)
    except ValueError:
        raise ShapeError(
            f"kernel {kernel.name}: arrays of shapes {', '.join(map(str, shapes))}; they must "
            "be equal, or have 1 where they differ"
        ) from None


def spread(kernel: Kernel, p: Array, o: Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of ``o`` over the axes of ``shape``: 0 where an element serves many."""
    wanted = {"full": shape, "row": shape[:-1], "col": shape[-1:], "one": ()}[p.space]
    strides = _fitted(p, o, wanted)
    if strides is None:
        raise ShapeError(
            f"kernel {kernel.name}: {p.name} ({p.space}) is shape {o.shape}; needed is what fits "
            f"{shape}"
        )
    if p.space == "row":
        return (*strides, 0)
    return (0,) * (len(shape) - len(strides)) + strides


def _fitted(p: Array, o: Operand, wanted: tuple[int, ...]) -> tuple[int, ...] | None:
    if o.shape == wanted:
        return o.strides
    if p.space == "full":
        if p.writes and not (o.shape == () and wanted == (1,)):
            return None
        lead = len(wanted) - len(o.shape)
        return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(o.shape, o.strides))
    if o.size != math.prod(wanted):
        return None
    if p.space == "one" or o.strides == dense(o.shape, ITEMSIZE[o.dtype]):
        return dense(wanted, ITEMSIZE[o.dtype])
    axes = [(n, s) for n, s in zip(o.shape, o.strides) if n != 1]
    if [n for n, _ in axes] != [n for n in wanted if n != 1]:
        return None
    steps = iter(s for _, s in axes)
    return tuple(0 if n == 1 else next(steps) for n in wanted)


def merge(shape: Sequence[int], strides: Sequence[Sequence[int]], axes: Sequence[int]) -> Axes:
    """Join neighbouring axes that every array walks in one stride; drop axes of one element."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in axes:
        n, here = shape[axis], [s[axis] for s in strides]
        if n == 1:
            continue
        if sizes and all(s[-1] == step * n for s, step in zip(steps, here)):
            sizes[-1] *= n
            for s, step in zip(steps, here):
                s[-1] = step
        else:
            sizes.append(n)
            for s, step in zip(steps, here):
                s.append(step)
    return Axes(tuple(sizes), tuple(tuple(s) for s in steps))


def memory_order(shape: Sequence[int], lead: Sequence[int]) -> list[int]:
    """The axes from the longest stride of ``lead`` to the shortest."""
    return sorted(range(len(shape)), key=lambda axis: -abs(lead[axis]))


def reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The largest distance in bytes of an element from the first."""
    return sum((n - 1) * abs(s) for n, s in zip(shape, strides))


def divider(d: int) -> tuple[int, int]:
    """(multiplier, shift) such that ``n // d == (high32(n * multiplier) + n) >> shift`` for all n
    below 2**31 (Granlund and Montgomery 1994)."""
    shift = (d - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - d)) // d + 1, shift


__all__ = [
    "NARROW",
    "Axes",
    "Operand",
    "common_shape",
    "dense",
    "divider",
    "memory_order",
    "merge",
    "reach",
    "spread",
]
