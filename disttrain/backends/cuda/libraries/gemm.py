"""Products of matrices as cuBLAS takes them. Pure: shapes and strides in, one call out.

cuBLAS sees matrices by columns. A product of matrices by rows, ``C = A B``, is to it
``C^T = B^T A^T``: the operands change places, and a matrix by rows goes in as it lies. One that
lies by columns (a transposed view) goes in with a flag; what has gaps in both directions must be
copied first. Leading dimensions become one batch dimension where they are walked in one stride.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from ....errors import ShapeError

LONGEST = (1 << 31) - 1  # sizes and distances of rows that cuBLAS counts in 32 bits

Shape = tuple[int, ...]


class Side(NamedTuple):
    """An operand: whether it lies by columns, the distance of its rows (or columns), and of one
    matrix of the batch to the next, in elements."""

    flipped: bool
    ld: int
    stride: int


class Gemm(NamedTuple):
    """``C (m, n) = A (m, k) B (k, n)``, ``batch`` times."""

    m: int
    n: int
    k: int
    batch: int
    a: Side
    b: Side
    c: Side
    lead: Shape  # the result's leading dimensions


class Copies(NamedTuple):
    """What must be made contiguous before there is a call, broadcast to these leading
    dimensions."""

    a: bool
    b: bool
    lead: Shape


def lies(shape: Shape, strides: Shape) -> tuple[bool, int] | None:
    """(whether by columns, the distance) of a matrix with strides in elements; None where it has
    gaps in both directions."""
    (rows, columns), (down, along) = shape, strides
    if (along == 1 or columns == 1) and (rows == 1 or down >= max(columns, 1)):
        return False, max(down if rows > 1 else columns, columns, 1)
    if (down == 1 or rows == 1) and (columns == 1 or along >= max(rows, 1)):
        return True, max(along if columns > 1 else rows, rows, 1)
    return None


def batch_stride(sizes: Shape, strides: Shape) -> int | None:
    """The one stride that walks all of ``sizes``; None where there is none."""
    step: int | None = None
    for n, s in zip(reversed(sizes), reversed(strides), strict=True):
        if n == 1:
            continue
        if step is None:
            step, reach = s, s * n
        elif s == reach:
            reach = s * n
        else:
            return None
    return step or 0


def _side(shape: Shape, strides: Shape, lead: Shape) -> Side | None:
    here = lies(shape[-2:], strides[-2:])
    own = shape[:-2]
    missing = len(lead) - len(own)
    steps = (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(own, strides, strict=False))
    stride = batch_stride(lead, steps)
    if here is None or stride is None:
        return None
    return Side(*here, stride)


@functools.lru_cache(maxsize=4096)
def gemm(a: Shape, a_strides: Shape, b: Shape, b_strides: Shape, item: int) -> Gemm | Copies:
    """The call for arrays of shapes ``a`` (..., m, k) and ``b`` (..., k, n) whose leading
    dimensions broadcast, with strides in bytes of elements of ``item`` bytes; the result is
    contiguous. Or what has to be copied first."""
    a_steps = tuple(s // item for s in a_strides)
    b_steps = tuple(s // item for s in b_strides)
    m, k, n = a[-2], a[-1], b[-1]
    lead = _broadcast(a[:-2], b[:-2])
    if max(m, n, k, *lead, 1) > LONGEST:
        raise ShapeError(
            f"matmul: sizes {list(a)} and {list(b)} given; on this device a size may be at most "
            f"{LONGEST}; work on parts"
        )
    if 0 in (m, n, k, *lead):  # nothing is read
        nothing = Side(False, 1, 0)
        return Gemm(m, n, k, 0, nothing, nothing, nothing, lead)
    if len(b) == 2 and len(a) > 2:  # one product over all rows, where one stride walks them
        rows = batch_stride(a[:-1], a_steps[:-1])
        flat = (math.prod(a[:-1]), k)
        if rows is not None and flat[0] <= LONGEST and lies(flat, (rows, a_steps[-1])) is not None:
            one = _one(flat, (rows, a_steps[-1]), b, b_steps)
            if one is not None:
                return one._replace(lead=a[:-2], m=flat[0])
    left, right = _side(a, a_steps, lead), _side(b, b_steps, lead)
    if left is None or right is None:
        return Copies(left is None, right is None, lead)
    return Gemm(m, n, k, math.prod(lead), left, right, Side(False, max(n, 1), m * n), lead)


def _one(a: Shape, a_steps: Shape, b: Shape, b_steps: Shape) -> Gemm | None:
    left, right = _side(a, a_steps, ()), _side(b, b_steps, ())
    if left is None or right is None:
        return None
    m, n = a[0], b[1]
    return Gemm(m, n, a[1], 1, left, right, Side(False, max(n, 1), m * n), ())


def _broadcast(a: Shape, b: Shape) -> Shape:
    longer = max(len(a), len(b))
    a, b = (1,) * (longer - len(a)) + a, (1,) * (longer - len(b)) + b
    for x, y in zip(a, b, strict=True):
        if x != y and 1 not in (x, y):
            raise ShapeError(
                f"matmul: leading dimensions {list(a)} and {list(b)} do not broadcast; they must "
                "be equal, or 1 where they differ"
            )
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def result_side(call: Gemm, shape: Shape, strides: Shape, item: int) -> Side | None:
    """How the call writes into a result of this layout (``strides`` in bytes); None where it cannot
    and needs an array of its own."""
    steps = tuple(s // item for s in strides)
    if call.batch == 1:  # one product over all rows
        rows = batch_stride(shape[:-1], steps[:-1])
        here = None if rows is None else lies((call.m, call.n), (rows, steps[-1]))
        stride: int | None = 0
    else:
        here, stride = lies(shape[-2:], steps[-2:]), batch_stride(shape[:-2], steps[:-2])
    if here is None or stride is None or here[0] or (call.batch > 1 and not stride):
        return None
    return Side(False, here[1], stride)
