"""Polynomials by their coefficients, the highest power first."""

from __future__ import annotations

from collections.abc import Sequence

from ..ops import api as ops
from ..core.tensor import Tensor
from .filters import convolve


def polyval(p: Tensor, x: Tensor) -> Tensor:
    """The values at ``x`` (any shape) of the polynomial ``p``, by Horner's scheme."""
    total = ops.zeros_like(x)
    for k in range(p.shape[0]):
        total = total * x + p[k]
    return total


def polyadd(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two polynomials."""
    n = max(a.shape[0], b.shape[0])
    return _longer(a, n) + _longer(b, n)


def _longer(p: Tensor, n: int) -> Tensor:
    return ops.cat([p.new_zeros(n - p.shape[0]), p]) if p.shape[0] < n else p


def polymul(a: Tensor, b: Tensor) -> Tensor:
    """The product of two polynomials."""
    return convolve(a, b, "full")


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


def polyder(p: Tensor, order: int = 1) -> Tensor:
    """The derivative of that order."""
    for _ in range(order):
        n = p.shape[0]
        p = p[: n - 1] * ops.arange(n - 1, 0, -1).to(p.dtype) if n > 1 else p[:0]
    return p


def polyint(p: Tensor, constants: Sequence[Tensor]) -> Tensor:
    """The antiderivative, once for each of ``constants``."""
    for constant in constants:
        powers = ops.arange(p.shape[0], 0, -1).to(p.dtype)
        p = ops.cat([p / powers, ops.reshape(constant, (1,))])
    return p


def poly(roots: Tensor) -> Tensor:
    """The monic polynomial that has the ``roots``; of a square matrix its characteristic one."""
    if roots.ndim == 2:
        roots = ops.linalg_eigvals(roots)
    p = ops.ones_like(roots[:1]) if roots.shape[0] else roots.new_ones(1)
    for k in range(roots.shape[0]):
        p = convolve(p, ops.stack([ops.ones_like(roots[k]), -roots[k]]), "full")
    return p


def companion(p: Tensor) -> Tensor:
    """The matrix whose eigenvalues are the roots of ``p``, of which the first is not 0."""
    n = p.shape[0] - 1
    first = ops.reshape(-p[1:] / p[0], (1, n))
    return ops.cat([first, ops.eye(n - 1, n).to(p.dtype)])


__all__ = ["companion", "poly", "polyadd", "polyder", "polydiv", "polyint", "polymul", "polyval"]
