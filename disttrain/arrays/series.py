"""Polynomials by their coefficients, the highest power first."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import linalg
from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .filters import convolve


def polyval(p: Tensor, x: Tensor) -> Tensor:
    """The values at ``x`` (any shape) of the polynomial ``p``, by Horner's scheme."""
    total = ops.zeros_like(x)
    for k in range(p.shape[0]):
        total = total * x + p[k]
    return total


def polyadd(a1: Tensor, a2: Tensor) -> Tensor:
    """The sum of two polynomials."""
    n = max(a1.shape[0], a2.shape[0])
    return _longer(a1, n) + _longer(a2, n)


def _longer(p: Tensor, n: int) -> Tensor:
    return ops.cat([p.new_zeros(n - p.shape[0]), p]) if p.shape[0] < n else p


def polymul(a1: Tensor, a2: Tensor) -> Tensor:
    """The product of two polynomials."""
    return convolve(a1, a2, "full")


def polydiv(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder (as long as ``u``) of two polynomials."""
    steps = u.shape[0] - v.shape[0] + 1
    if steps <= 0:
        return ops.zeros_like(u[:1]), u
    quotient = []
    for k in range(steps):
        factor = u[k] / v[0]
        quotient.append(factor)
        change = ops.cat([u.new_zeros(k), v * factor, u.new_zeros(u.shape[0] - k - v.shape[0])])
        u = u - change
    return ops.stack(quotient), u


def polyder(p: Tensor, m: int = 1) -> Tensor:
    """The derivative of that order."""
    for _ in range(m):
        n = p.shape[0]
        p = p[: n - 1] * ops.arange(n - 1, 0, -1).to(p.dtype) if n > 1 else p[:0]
    return p


def polyint(p: Tensor, m: int = 1, k: Tensor | None = None) -> Tensor:
    """The m-th antiderivative, whose constants are ``k``: one, or one for each."""
    constants = p.new_zeros(1) if k is None else k.reshape(-1)
    for i in range(m):
        constant = constants[i if constants.shape[0] > 1 else 0]
        powers = ops.arange(p.shape[0], 0, -1).to(p.dtype)
        p = ops.cat([p / powers, ops.reshape(constant, (1,))])
    return p


def poly(seq_of_zeros: Tensor) -> Tensor:
    """The monic polynomial that has these roots; of a square matrix its characteristic one."""
    roots = linalg.eigvals(seq_of_zeros) if seq_of_zeros.ndim == 2 else seq_of_zeros
    p = ops.ones_like(roots[:1]) if roots.shape[0] else roots.new_ones(1)
    for k in range(roots.shape[0]):
        p = convolve(p, ops.stack([ops.ones_like(roots[k]), -roots[k]]), "full")
    return p


def companion(p: Tensor) -> Tensor:
    """The matrix whose eigenvalues are the roots of ``p``, of which the first is not 0."""
    n = p.shape[0] - 1
    first = ops.reshape(-p[1:] / p[0], (1, n))
    return ops.cat([first, ops.eye(n - 1, n).to(p.dtype)])


def polysub(a1: Tensor, a2: Tensor) -> Tensor:
    """The difference of two polynomials."""
    return polyadd(a1, -a2)


def polyfit(
    x: Tensor,
    y: Tensor,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Tensor | None = None,
    cov: Any = False,
) -> Any:
    """The polynomial of least squares through points ``(x, y)``, of which ``y`` may have columns.

    ``full``: also residuals, rank, singular values and ``rcond``; ``cov``: also covariances.
    """
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1 or not x.shape[0] or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length, x of one dimension, none empty")
    rcond = x.shape[0] * np.finfo(x.meta()[1]).eps if rcond is None else rcond
    powers = ops.stack([x**k for k in range(deg, -1, -1)], 1)
    right = y.reshape(y.shape[0], -1)
    if w is not None:
        powers, right = powers * w.reshape(-1, 1), right * w.reshape(-1, 1)
    scale = ops.sqrt(ops.sum(powers * powers, 0))
    u, s, vh = linalg.svd(powers / scale, full_matrices=False)
    keep = s > rcond * s[0]
    inverse = ops.where(keep, 1 / s, ops.zeros_like(s))
    c = ops.matmul(vh.mH, inverse.reshape(-1, 1) * ops.matmul(u.mH, right)) / scale.reshape(-1, 1)
    out = c.reshape((deg + 1, *y.shape[1:]))
    if full:
        rest = right - ops.matmul(powers, c)
        return (
            out,
            ops.sum(rest * rest, 0),
            ops.sum(keep.to(dtypes.int64)),
            s,
            s.new_full((), rcond),
        )
    if not cov:
        return out
    base = linalg.inv(ops.matmul((powers / scale).mH, powers / scale))
    base = base / ops.outer(scale, scale)
    rest = right - ops.matmul(powers, c)
    factor: Any = 1 if cov == "unscaled" else ops.sum(rest * rest, 0) / (x.shape[0] - deg - 1)
    return out, base * factor if y.ndim == 1 else base[..., None] * factor


def roots(p: Tensor, strip_zeros: bool = True) -> Tensor:
    """The roots of ``p``, complex: the eigenvalues of its companion, and 0 for zeros at its end.

    ``strip_zeros``: leave out zeros at the front, which asks for the values.
    """
    if p.ndim != 1:
        raise ValueError("p must be a one-dimensional array")
    ends = 0
    if strip_zeros:
        there = [int(k) for k in ops.nonzero(p)[:, 0]]
        if not there:
            return p[:0].to(_complex(p))
        ends = p.shape[0] - 1 - there[-1]
        p = p[there[0] : there[-1] + 1]
    if p.shape[0] < 2:
        return p.new_zeros(ends).to(_complex(p))
    found = linalg.eigvals(companion(p))
    return ops.cat([found, found.new_zeros(ends)]) if ends else found


def _complex(x: Tensor) -> Any:
    return x.dtype.to_complex() if x.dtype.is_floating_point else x.dtype


__all__ = [
    "companion",
    "poly",
    "polyadd",
    "polyder",
    "polydiv",
    "polyfit",
    "polyint",
    "polymul",
    "polysub",
    "polyval",
    "roots",
]
