"""Gathering and scattering slices whose dimensions are named by numbers, as XLA has them.

A table of starts says where slices begin. ``offset`` (of a gather's result) or ``window`` (of a
scatter's updates) are the dimensions of the slices, the others those of the table; ``collapsed``
dimensions of the operand, of size 1 in every slice, are left out; ``start_map`` says which
dimension of the operand each number of a start is for; ``batch`` and ``start_batch`` are dimensions
that operand and table have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.tensor import Tensor
from ...ops import api as ops


class Numbers(NamedTuple):
    """Which dimensions are which."""

    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    start_map: tuple[int, ...]
    batch: tuple[int, ...] = ()
    start_batch: tuple[int, ...] = ()


def gather(
    x: Tensor,
    starts: Tensor,
    numbers: Numbers,
    sizes: Sequence[int],
    mode: str,
    fill: Any = None,
) -> Tensor:
    """The slices of these ``sizes``. ``mode``: what is beyond the ends is moved inside ("clip"), or
    gives ``fill`` ("fill")."""
    rank = len(numbers.offset) + starts.ndim - 1
    at, inside = _places(x, starts, numbers, sizes, rank, mode)
    out = x.reshape(-1)[at] if x.numel() else ops.zeros(*at.shape, dtype=x.dtype)
    if mode != "fill":
        return out
    return ops.where(inside, out, ops.full((), fill, dtype=x.dtype))


def scatter(
    x: Tensor, starts: Tensor, updates: Tensor, numbers: Numbers, how: str, mode: str
) -> Tensor:
    """``x`` with ``updates`` in the slices; ``how``: "set", "sum", "prod", "amax" or "amin" of what
    is there and what comes. Slices beyond the ends are moved inside ("clip") or dropped."""
    windows = iter([updates.shape[d] for d in numbers.offset])
    left_out = {*numbers.collapsed, *numbers.batch}
    sizes = [1 if d in left_out else next(windows) for d in range(x.ndim)]
    at, inside = _places(x, starts, numbers, sizes, updates.ndim, mode)
    flat, count = x.reshape(-1), x.numel()
    if mode != "clip":  # what is dropped goes to a place behind the end
        flat = ops.cat([flat, ops.zeros(1, dtype=x.dtype)])
        at = ops.where(inside, at, ops.full_like(at, count))
    at, values = at.expand(updates.shape).reshape(-1), updates.reshape(-1)
    if how == "set":
        flat = ops.scatter(flat, 0, at, values)
    elif how == "sum":
        flat = ops.scatter_add(flat, 0, at, values)
    else:
        flat = ops.scatter_reduce(flat, 0, at, values, how)
    return flat[:count].reshape(x.shape)


def _places(
    x: Tensor, starts: Tensor, numbers: Numbers, sizes: Sequence[int], rank: int, mode: str
) -> tuple[Tensor, Tensor]:
    """Where in the flat operand each element of the result comes from, and whether its slice lies
    inside."""
    rows = [d for d in range(rank) if d not in numbers.offset]
    left_out = {*numbers.collapsed, *numbers.batch}
    kept = [d for d in range(x.ndim) if d not in left_out]
    steps = [int(np.prod(x.shape[d + 1 :])) for d in range(x.ndim)]
    table = starts.long()

    def laid(t: Tensor) -> Tensor:
        """A value per row of the table, in the dimensions of the result."""
        shape = [1] * rank
        for d, n in zip(rows, t.shape, strict=True):
            shape[d] = n
        return t.reshape(shape)

    inside: Tensor | None = None
    total = ops.zeros(*[1] * rank).long()
    for k, d in enumerate(numbers.start_map):
        start = laid(table[..., k])
        most = x.shape[d] - sizes[d]
        here = (start >= 0) & (start <= most)
        inside = here if inside is None else inside & here
        total = total + start.clamp(0, max(most, 0)) * steps[d]
    for d, own in zip(numbers.batch, numbers.start_batch, strict=True):
        total = total + _along(x.shape[d], rows[own], rank) * steps[d]
    for d, place in zip(kept, numbers.offset, strict=True):
        total = total + _along(sizes[d], place, rank) * steps[d]
    shape = [1] * rank
    for d, n in zip(rows, starts.shape[:-1], strict=True):
        shape[d] = n
    for d, place in zip(kept, numbers.offset, strict=True):
        shape[place] = sizes[d]
    flags = ops.ones(*[1] * rank).bool() if inside is None else inside
    return total.expand(shape), flags.expand(shape)


def _along(n: int, place: int, rank: int) -> Tensor:
    return ops.arange(n).reshape([-1 if d == place else 1 for d in range(rank)])
