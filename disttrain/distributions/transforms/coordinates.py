"""Transforms between all real numbers and vectors or matrices of a kind: points of a simplex,
triangular and positive definite matrices, factors of correlation matrices (Stan Reference Manual,
Constraint transforms)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...core.types.dtypes import finfo
from ...linalg import cholesky
from ...ops.api import arange, cat, diag_embed, exp, eye, log, log1p, ones_like, tanh
from .. import constraints
from ..parameters import softplus, tril_matrix_to_vec, vec_to_tril_matrix
from .bijections import clipped_sigmoid
from .transform import Transform, needs_dims


class SoftmaxTransform(Transform):
    """y = exp(x), scaled to a sum of 1. Of all x with this y, log(y) is the inverse."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        weights = exp(x - x.amax(-1, keepdim=True))
        return weights / weights.sum(-1, keepdim=True)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        needs_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """n numbers to n + 1 that sum to 1: each takes its share, by a sigmoid, of what the ones before
    have left."""

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        share = clipped_sigmoid(x - _log_left(x, x.shape[-1]))
        one, left = ones_like(share[..., :1]), (1 - share).cumprod(-1)
        return cat([share, one], -1) * cat([one, left], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        taken = y[..., :-1]
        left = 1 - taken.cumsum(-1)
        left = left.clamp(min=float(finfo(y.dtype).tiny))
        return log(taken) - log(left) + _log_left(y, y.shape[-1] - 1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _log_left(x, x.shape[-1])
        return (-x - softplus(-x) + log(y[..., :-1])).sum(-1)

    def forward_shape(self, shape: Sequence[int]) -> Any:
        needs_dims(shape, 1)
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        needs_dims(shape, 1)
        return (*shape[:-1], shape[-1] - 1)


def _log_left(like: Tensor, count: int) -> Tensor:
    """log of how many are still to come, so that 0 gives all the same."""
    return log(arange(count, 0, -1, dtype=like.dtype, device=like.device))


class LowerCholeskyTransform(Transform):
    """A square matrix to a lower triangular one with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + diag_embed(exp(x.diagonal(dim1=-2, dim2=-1)))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + diag_embed(log(y.diagonal(dim1=-2, dim2=-1)))


class PositiveDefiniteTransform(Transform):
    """A square matrix to a positive definite one."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """n(n - 1)/2 numbers to the Cholesky factor of an n x n correlation matrix: tanh of them are
    partial correlations (Lewandowski, Kurowicka and Joe, 2009)."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        most = 1 - float(finfo(x.dtype).eps)
        partial = vec_to_tril_matrix(tanh(x).clamp(min=-most, max=most), diag=-1)
        left = (1 - partial * partial).sqrt().cumprod(-1)
        n = partial.shape[-1]
        unit = eye(n, dtype=partial.dtype, device=partial.device)
        return (partial + unit) * cat([ones_like(left[..., :1]), left[..., :-1]], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        before = cat([ones_like(left[..., :1]), left[..., :-1]], -1)
        partial = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(before, -1).sqrt()
        return (log1p(partial) - log1p(-partial)) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        of_tanh = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)
        return 0.5 * log(left).sum(-1) + of_tanh

    def forward_shape(self, shape: Sequence[int]) -> Any:
        needs_dims(shape, 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError(
                "Input is not a flattened lower-diagonal number: needed n(n - 1)/2 numbers for an "
                f"n, given {shape[-1]}"
            )
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Sequence[int]) -> Any:
        needs_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError(f"Input is not square: {tuple(shape)}")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)
