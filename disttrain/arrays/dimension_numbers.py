"""Products and convolutions whose dimensions are named by numbers, as XLA has them."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.tensor import Tensor
from ..ops import api as ops
from .margins import pad

Pairs = Sequence[tuple[int, int]]


def dot_general(
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
            _spatial(x[:, :, i * step + k * gap], kernel[:, :, k], strides[1:], dilation[1:], groups,
                     space - 1) for k in range(size)
        ]  # fmt: skip
        planes.append(sum(parts[1:], parts[0]))
    return ops.stack(planes, 2)
