"""Arrays from numbers: ranges, grids, triangles, windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .axes import axis_of


def linspace(
    start: Tensor, stop: Tensor, num: int = 50, endpoint: bool = True, retstep: bool = False,
    axis: int = 0,
) -> Any:  # fmt: skip
    """Even steps between two ends, which are arrays or numbers, along ``axis``."""
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    between = num - 1 if endpoint else num
    start, stop = ops.broadcast_tensors(start, stop)
    step = (stop - start) / between if between > 0 else stop * float("nan")
    line = (num,) + (1,) * start.ndim
    share = (ops.arange(max(num, 0)).to(ops.real(start).dtype) / max(between, 1)).reshape(line)
    out = start * (1 - share) + stop * share
    if endpoint and num > 1:
        out = ops.cat([out[: num - 1], ops.unsqueeze(stop, 0)], 0)
    elif endpoint and num == 1:
        out = ops.unsqueeze(start, 0) + 0
    out = ops.movedim(out, 0, axis_of(axis, out.ndim))
    return (out, step) if retstep else out


def logspace(
    start: Tensor, stop: Tensor, num: int = 50, endpoint: bool = True, base: Tensor | None = None,
    axis: int = 0,
) -> Any:  # fmt: skip
    """Powers of ``base`` (10) with even exponents."""
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    return ops.pow(10.0 if base is None else base, exponents)


def geomspace(
    start: Tensor, stop: Tensor, num: int = 50, endpoint: bool = True, axis: int = 0
) -> Tensor:
    """Even factors between two ends."""
    negative = (start < 0) & (stop < 0) if not start.is_complex() else start != start
    sign = ops.where(negative, -1.0, 1.0).to(start.dtype)
    out = logspace(ops.log10(start * sign), ops.log10(stop * sign), num, endpoint) * sign
    if num:
        out = ops.cat([ops.unsqueeze(start, 0), out[1:]], 0)
    if num > 1 and endpoint:
        out = ops.cat([out[: num - 1], ops.unsqueeze(stop, 0)], 0)
    return ops.movedim(out, 0, axis_of(axis, out.ndim))


def _steps(N: int, M: int | None, k: int) -> Tensor:  # noqa: N803
    """How far each element of a matrix is below diagonal ``k``."""
    rows, columns = ops.arange(int(N)), ops.arange(int(N if M is None else M))
    return rows.reshape(-1, 1) + int(k) - columns.reshape(1, -1)


def eye(N: int, M: int | None = None, k: int = 0) -> Tensor:  # noqa: N803
    """Which elements of a matrix are on diagonal ``k``."""
    return _steps(N, M, k) == 0


def identity(n: int) -> Tensor:
    """Which elements of a square matrix are on its diagonal."""
    return eye(n)


def tri(N: int, M: int | None = None, k: int = 0) -> Tensor:  # noqa: N803
    """Which elements of a matrix are on or below diagonal ``k``."""
    return _steps(N, M, k) >= 0


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """Where the diagonal of an array is."""
    return (ops.arange(n),) * ndim


def tril(m: Tensor, k: int = 0) -> Tensor:
    """The lower triangle."""
    return _triangle(m, k, True)


def triu(m: Tensor, k: int = 0) -> Tensor:
    """The upper triangle."""
    return _triangle(m, k - 1, False)


def _triangle(m: Tensor, k: int, lower: bool) -> Tensor:
    if m.ndim < 2:
        raise ValueError("Argument to jax.numpy.tril/triu must be at least 2D")
    keep = tri(m.shape[-2], m.shape[-1], k)
    return ops.where(keep if lower else ~keep, m, ops.zeros_like(m))


def diag(v: Tensor, k: int = 0) -> Tensor:
    """A matrix with ``v`` on diagonal ``k``, or that diagonal of a matrix."""
    if v.ndim not in (1, 2):
        raise ValueError("diag input must be 1d or 2d")
    return ops.diag(v, k)


def diagflat(v: Tensor, k: int = 0) -> Tensor:
    """A matrix with all elements of ``v`` on diagonal ``k``."""
    return ops.diag(v.reshape(-1), k)


def indices(dimensions: Sequence[int], sparse: bool = False) -> Any:
    """Of each element of an array its places, one array for each dimension."""
    n, out = len(dimensions), []
    for d, size in enumerate(dimensions):
        line = ops.arange(size).reshape([size if k == d else 1 for k in range(n)])
        out.append(line if sparse else ops.broadcast_to(line, tuple(dimensions)))
    if sparse:
        return tuple(out)
    return ops.stack(out) if out else ops.zeros((0,), dtype=dtypes.int64)


def meshgrid(xi: Sequence[Tensor], sparse: bool = False, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid from those of its axes."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    if any(x.ndim > 1 for x in xi):
        raise ValueError("Arguments to meshgrid must be 1D")
    xi = [x if x.ndim else x.reshape(1) for x in xi]
    n = len(xi)
    places = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    lines = [x.reshape([-1 if k == places[d] else 1 for k in range(n)]) for d, x in enumerate(xi)]
    if sparse:
        return lines
    shape = [0] * n
    for d, x in enumerate(xi):
        shape[places[d]] = math.prod(x.shape)
    return [ops.broadcast_to(line, shape) if n else line for line in lines]


def _cosines(n: int, *parts: float) -> Tensor:
    """A window: a sum of cosines of one turn, two turns, and so on."""
    t = ops.arange(n).to(dtypes.float64) * (2 * math.pi / max(n - 1, 1))
    out = t * 0
    for k, part in enumerate(parts):
        out = out + part * ops.cos(t * k)
    return out if n != 1 else out * 0 + 1


def hanning(M: int) -> Tensor:  # noqa: N803
    """Hann's window."""
    return _cosines(M, 0.5, -0.5)


def hamming(M: int) -> Tensor:  # noqa: N803
    """Hamming's window."""
    return _cosines(M, 0.54, -0.46)


def blackman(M: int) -> Tensor:  # noqa: N803
    """Blackman's window."""
    return _cosines(M, 0.42, -0.5, 0.08)


def bartlett(M: int) -> Tensor:  # noqa: N803
    """The triangular window."""
    t = ops.arange(M).to(dtypes.float64)
    return 1 - ops.abs(2 * t / max(M - 1, 1) - 1) if M != 1 else t + 1


def kaiser(M: int, beta: float) -> Tensor:  # noqa: N803
    """Kaiser's window."""
    t = ops.arange(M).to(dtypes.float64)
    side = 2 * t / max(M - 1, 1) - 1
    out = ops.i0(beta * ops.sqrt(1 - side * side)) / ops.i0(t.new_full((), beta))
    return out if M != 1 else t + 1


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Where the lower triangle of a matrix is."""
    return tuple(ops.tril_indices(n, n if m is None else m, k))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, ...]:
    """Where the upper triangle of a matrix is."""
    return tuple(ops.triu_indices(n, n if m is None else m, k))
