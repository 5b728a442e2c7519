"""Products and convolutions whose dimensions are named by numbers, as XLA has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ...core.types import dtypes
from ...errors import OperandError, ShapeError
from ...ops import api as ops
from .margins import pad

Pairs = Sequence[tuple[int, int]]


def _dot(
    a: Tensor, b: Tensor, contracting: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Tensor:  # fmt: skip
    """Products summed over the ``contracting`` dimensions; the result has the ``batch`` dimensions,
    then those of ``a`` that are left, then those of ``b``."""
    (ca, cb), (ba, bb) = contracting, batch
    free_a = [d for d in range(a.ndim) if d not in {*ca, *ba}]
    free_b = [d for d in range(b.ndim) if d not in {*cb, *bb}]
    lead = [a.shape[d] for d in ba]
    rows, columns = [a.shape[d] for d in free_a], [b.shape[d] for d in free_b]
    inner = _count(a.shape[d] for d in ca)
    x = a.permute(*ba, *free_a, *ca).reshape(*lead, _count(rows), inner)
    y = b.permute(*bb, *cb, *free_b).reshape(*lead, inner, _count(columns))
    if a.meta()[1].kind == "b":
        return (x.int() @ y.int()).reshape(*lead, *rows, *columns) > 0
    return (x @ y).reshape(*lead, *rows, *columns)


def _count(sizes: object) -> int:
    total = 1
    for n in sizes:  # type: ignore[attr-defined]
        total *= n
    return total


def convolution(
    x: Tensor, kernel: Tensor, strides: Sequence[int], padding: Pairs, dilation: Sequence[int],
    kernel_dilation: Sequence[int], groups: int = 1, batch_groups: int = 1,
) -> Tensor:  # fmt: skip
    """``x`` [n, c, *space] with ``kernel`` [o, c / groups, *space]: margins and gaps of ``x`` first
    (``padding``, negative too, and ``dilation``). ``batch_groups``: that many parts of the batch
    have output channels of their own."""
    space = x.ndim - 2
    gaps = [(lo, hi, d - 1) for (lo, hi), d in zip(padding, dilation, strict=True)]
    if any(g != (0, 0, 0) for g in gaps):
        x = pad(x, ops.zeros((), dtype=x.dtype), [(0, 0, 0), (0, 0, 0), *gaps])
    if batch_groups > 1:
        n, c = x.shape[0] // batch_groups, x.shape[1]
        x = x.reshape(batch_groups, n, *x.shape[1:]).movedim(0, 1)
        x = x.reshape(n, batch_groups * c, *x.shape[3:])
        groups = batch_groups
    kind = x.dtype
    whole = x.meta()[1].kind in "iub"
    if whole:
        x, kernel = x.double(), kernel.double()
    out = _spatial(x, kernel, list(strides), list(kernel_dilation), groups, space)
    return out.round().to(kind) if whole else out


def _spatial(
    x: Tensor, kernel: Tensor, strides: list[int], dilation: list[int], groups: int, space: int
) -> Tensor:
    if space == 0:
        out = _spatial(x[..., None], kernel[..., None], [1], [1], groups, 1)
        return out[..., 0]
    if space <= 3:
        fn = (ops.conv1d, ops.conv2d, ops.conv3d)[space - 1]
        return fn(x, kernel, None, strides, 0, dilation, groups)
    size, step, gap = kernel.shape[2], strides[0], dilation[0]
    count = (x.shape[2] - (size - 1) * gap - 1) // step + 1
    planes = []
    for i in range(count):
        parts = [
            _spatial(x[:, :, i * step + k * gap], kernel[:, :, k], strides[1:], dilation[1:],
                     groups, space - 1) for k in range(size)
        ]  # fmt: skip
        planes.append(sum(parts[1:], parts[0]))
    return ops.stack(planes, 2)


def in_kind(out: Tensor, preferred: Any) -> Tensor:
    """A result in the type that was asked for, if one was."""
    return out if preferred is None else out.to(dtypes.of(np.dtype(preferred)))


def operands(lhs: Tensor, rhs: Tensor, preferred: Any) -> tuple[Tensor, Tensor]:
    """Both in one type, in which they are multiplied."""
    kind = ops.result_type(lhs, rhs)
    if preferred is not None and np.dtype(preferred).itemsize > kind.itemsize:
        kind = dtypes.of(np.dtype(preferred))
    return lhs.to(kind), rhs.to(kind)


def dot_general(
    lhs: Tensor, rhs: Tensor, dimension_numbers: Any, precision: Any = None,
    preferred_element_type: Any = None, *, out_sharding: Any = None,
) -> Tensor:  # fmt: skip
    """Products of ``lhs`` and ``rhs`` over the contracting dimensions, along the batch ones."""
    contracting, batch = ((tuple(a), tuple(b)) for a, b in dimension_numbers)
    _check_dot(tuple(lhs.shape), tuple(rhs.shape), contracting, batch)
    out = _dot(*operands(lhs, rhs, preferred_element_type), contracting, batch)
    return in_kind(out, preferred_element_type)


def _check_dot(left: tuple, right: tuple, contracting: Any, batch: Any) -> None:
    for side, shape, c, b in zip(("lhs", "rhs"), (left, right), contracting, batch, strict=True):
        if not all(0 <= d < len(shape) for d in (*c, *b)):
            raise OperandError(
                f"dot_general requires {side} dimension numbers to be nonnegative and less than "
                f"the number of axes of the {side} value, got {side}_batch of {b} and "
                f"{side}_contracting of {c} for {side} of rank {len(shape)}"
            )
        for name, dims in (("batch", b), ("contracting", c)):
            if len(set(dims)) != len(dims):
                raise OperandError(
                    f"dot_general requires {side} {name} dimensions to be distinct, got "
                    f"{side}_{name} {dims}."
                )
        if set(c) & set(b):
            raise OperandError(
                f"dot_general requires {side} batch dimensions to be disjoint from contracting "
                f"dimensions, got {side}_batch {b} and {side}_contracting {c}."
            )
    if len(batch[0]) != len(batch[1]):
        raise OperandError(
            "dot_general requires equal numbers of lhs_batch and rhs_batch dimensions, got "
            f"lhs_batch {batch[0]} and rhs_batch {batch[1]}."
        )
    pairs = [[tuple(s[d] for d in dims) for s, dims in zip((left, right), both, strict=True)]
             for both in (batch, contracting)]  # fmt: skip
    if pairs[0][0] != pairs[0][1]:
        raise OperandError(
            "dot_general requires lhs batch dimensions and rhs batch dimensions to have the same "
            f"shape, got {pairs[0][0]} and {pairs[0][1]}."
        )
    if pairs[1][0] != pairs[1][1]:
        raise OperandError(
            "dot_general requires contracting dimensions to have the same shape, got "
            f"{pairs[1][0]} and {pairs[1][1]}."
        )


def dot(
    lhs: Tensor, rhs: Tensor, precision: Any = None, preferred_element_type: Any = None, *,
    dimension_numbers: Any = None, out_sharding: Any = None,
) -> Tensor:  # fmt: skip
    """The product of vectors and matrices."""
    a, b = lhs, rhs
    if dimension_numbers is None:
        if not (1 <= a.ndim <= 2 and 1 <= b.ndim <= 2 and a.shape[-1] == b.shape[0]):
            raise ShapeError(
                "dot: dimension_numbers must be specified when not performing simple "
                "un-batched matrix-matrix, matrix-vector, or vector-vector products; got "
                f"lhs_shape={tuple(a.shape)} rhs_shape={tuple(b.shape)}"
            )
        dimension_numbers = (((a.ndim - 1,), (0,)), ((), ()))
    return dot_general(a, b, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Tensor, rhs: Tensor, precision: Any = None) -> Tensor:
    """Products of matrices in the last two dimensions, batch by batch."""
    a, b = lhs, rhs
    if min(a.ndim, b.ndim) < 2:
        raise ShapeError(f"Arguments to batch_matmul must be at least 2D, got {a.ndim}, {b.ndim}")
    if a.ndim != b.ndim:
        raise ShapeError(f"Arguments to batch_matmul must have same ndim, got {a.ndim}, {b.ndim}")
    lead = tuple(range(a.ndim - 2))
    return dot_general(a, b, (((a.ndim - 1,), (b.ndim - 2,)), (lead, lead)))
