"""Distances between the rows of matrices."""

from __future__ import annotations

import math

import numpy as np

from ...core.tensor import Tensor, wrap
from ...core.types.casting import computes_in
from ...errors import ConfigError, ShapeError
from ..primitives import elementwise as el
from ..primitives.linalg import matmul, swap
from .args import broadcast, kinds
from .args import tensor as as_input
from .elementwise import abs, clamp, square, where
from .reduce import amax, root, sum
from .views.shapes import expand

_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)
_MANY = 25  # rows from which products are used, unless told otherwise


@computes_in("full")
def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:  # fmt: skip
    """The p-norm of every row of ``x1`` (..., P, M) less every row of ``x2`` (..., R, M): (..., P,
    R). Euclidean ones of more than 25 rows are computed by a product of matrices, which is less
    exact for rows close together, unless ``compute_mode`` says otherwise. The gradient at 0 is 0.
    """
    a, b = as_input(x1, "cdist", "x1"), as_input(x2, "cdist", "x2")
    kinds("cdist", "f", a, b)
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(
            f"cdist: only supports at least 2D tensors, X1 got: {a.ndim}D, X2 got: {b.ndim}D"
        )
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"cdist: X1 and X2 must have the same number of columns. X1: {a.shape[-1]} X2: "
            f"{b.shape[-1]}"
        )
    if p < 0:
        raise ConfigError("cdist: only supports non-negative p values")
    mode = compute_mode or _MODES[0]
    if mode not in _MODES:
        raise ConfigError(f"cdist: {mode!r} is not a valid value for compute_mode")
    lead = broadcast("cdist", a.shape[:-2], b.shape[:-2])
    a, b = expand(a, (*lead, *a.shape[-2:])), expand(b, (*lead, *b.shape[-2:]))
    many = max(a.shape[-2], b.shape[-2]) > _MANY
    if p == 2 and (mode == _MODES[1] or (mode == _MODES[0] and many)):
        return _by_product(a, b)
    return _distances(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def _by_product(a: Tensor, b: Tensor) -> Tensor:
    """|x - y|^2 = |x|^2 + |y|^2 - 2 x y."""
    sizes = sum(square(a), -1, keepdim=True) + swap(sum(square(b), -1, keepdim=True))
    return root(clamp(sizes - matmul(a, swap(b)) * 2, min=0))


def _distances(apart: Tensor, p: float) -> Tensor:
    size = abs(apart)
    if p == 0:
        return sum(where(el.ne(apart, 0), 1.0, size * 0), -1)  # (of gradient 0)
    if not apart.shape[-1]:
        return sum(size, -1)
    if p == 1:
        return sum(size, -1)
    if p == 2:
        return root(sum(square(apart), -1))
    if math.isinf(p):
        return amax(size, -1)
    here = el.eq(size, 0)
    return root(sum(where(here, 0.0, where(here, 1.0, size) ** p), -1), p)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of every row of a matrix less every later row, in one vector."""
    kinds("pdist", "f", as_input(input, "pdist"))
    if input.ndim != 2:
        raise ShapeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if p < 0:
        raise ConfigError("pdist only supports non-negative p values")
    first, second = np.triu_indices(input.shape[0], 1)
    return _distances(input[wrap(first)] - input[wrap(second)], p)
