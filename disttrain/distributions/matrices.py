"""Distributions of matrices: Wishart's of covariances, and of the factors of correlation matrices
(Lewandowski, Kurowicka and Joe, Generating random correlation matrices based on vines and extended
onion method, 2009)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.grad_mode import no_grad
from ..core.tensor import Size, Tensor
from ..core.types.dtypes import finfo
from ..linalg import slogdet, solve_triangular
from ..ops.api import (
    arange,
    broadcast_shapes,
    cat,
    diag_embed,
    digamma,
    lgamma,
    log,
    mvlgamma,
    randn,
    tensor,
    where,
)
from ..trace import warn
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Beta, Chi2
from .multivariate_normal import Spread, log_diagonal, one_matrix
from .parameters import all_true, broadcast_all

__all__ = ["LKJCholesky", "Wishart"]

_TRIES = 3  # how often samples that rounding made singular are drawn anew


class Wishart(Spread, ExponentialFamily):
    """x @ x.T for x of ``df`` normal columns with a covariance given by one of three matrices
    [*batch, n, n]: itself, its inverse ``precision_matrix``, its factor ``scale_tril``. Sampled by
    the decomposition of Bartlett."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self, df: Any, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        name, matrix = one_matrix(
            AssertionError, scale_tril=scale_tril, covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
        )  # fmt: skip
        if not isinstance(df, Tensor):
            df = tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(df.shape))
        self.df, n = df.expand(batch), matrix.shape[-1]
        self._keep(name, matrix, batch)
        if not all_true(self.df > n - 1):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        super().__init__(batch, matrix.shape[-2:], validate_args)
        if not all_true(self.df >= n):
            warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim."
            )
        self._finish()

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    @property
    def mean(self) -> Tensor:
        return self._wide(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """nan for ``df`` up to n + 1."""
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return self._wide(where(factor > 0, factor, math.nan)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._wide(self.df) * (v**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    @staticmethod
    def _wide(x: Tensor) -> Tensor:
        return x.unsqueeze(-1).unsqueeze(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._draw(sample_shape)
        for _ in range(_TRIES):
            with no_grad():
                good = self.support.check(drawn)
            if all_true(good):
                break
            drawn = where(self._wide(good), drawn, self._draw(sample_shape))
        return drawn

    def _draw(self, sample_shape: Sequence[int]) -> Tensor:
        n, shape = self._event_shape[-1], self._extended_shape(sample_shape)
        like = self._unbroadcasted_scale_tril
        options: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        squares = Chi2(self.df.unsqueeze(-1) - arange(n, **options), validate_args=False)
        diagonal = squares.rsample(sample_shape).sqrt()
        factor = diag_embed(diagonal) + randn(*shape, **options).tril(-1)
        factor = self._unbroadcasted_scale_tril @ factor
        return factor @ factor.mT

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        nu, p, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        half = solve_triangular(factor, value, upper=False)
        inside = solve_triangular(factor.mT, half, upper=True)
        trace = inside.diagonal(dim1=-2, dim2=-1).sum(-1)
        scale = nu * (p * math.log(2) / 2 + log_diagonal(factor)) + mvlgamma(nu / 2, p)
        return (nu - p - 1) / 2 * slogdet(value)[1] - trace / 2 - scale

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        log_det = log_diagonal(self._unbroadcasted_scale_tril)
        spread = (p + 1) * (p * math.log(2) / 2 + log_det)
        steps = arange(p, dtype=nu.dtype, device=nu.device) / 2
        slope = digamma((nu / 2).unsqueeze(-1) - steps).sum(-1)
        return spread + mvlgamma(nu / 2, p) - (nu - p - 1) / 2 * slope + nu * p / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -0.5 * self.precision_matrix, 0.5 * (self.df - self._event_shape[-1] - 1)

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        p = self._event_shape[-1]
        half = y + 0.5 * (p + 1)
        return half * (-slogdet(-2 * x)[1] + math.log(2) * p) + mvlgamma(half, p)


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices of size ``dim``, which themselves have a density
    proportional to their determinant ** (concentration - 1)."""

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        own = self.concentration
        steps = arange(dim - 1, dtype=own.dtype, device=own.device)
        steps = cat([steps.new_zeros((1,)), steps])
        rest = (own + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * steps
        self._beta = Beta(steps + 0.5, rest, validate_args=False)
        super().__init__(own.shape, (dim, dim), validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new, shape = self._get_checked_instance(LKJCholesky, _instance), Size(batch_shape)
        new.dim, new._beta = self.dim, self._beta.expand((*shape, self.dim))
        return super().expand(shape, new)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Row by row: a length below 1 of the part before the diagonal, in a uniform direction."""
        with no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            shape, like = self._extended_shape(sample_shape), self.concentration
            direction = randn(*shape, dtype=like.dtype, device=like.device).tril(-1)
            norm = (direction * direction).sum(-1, keepdim=True).sqrt()
            direction = where(norm == 0, 0.0, direction / norm)
            below = length.sqrt() * direction
            left = 1 - (below * below).sum(-1)
            return below + diag_embed(left.clamp(min=float(finfo(like.dtype).tiny)).sqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        own, n = self.concentration, self.dim - 1
        orders = arange(2, self.dim + 1, dtype=own.dtype, device=own.device)
        orders = 2 * (own - 1).unsqueeze(-1) + self.dim - orders
        found = (orders * log(value.diagonal(dim1=-2, dim2=-1)[..., 1:])).sum(-1)
        alpha = own + 0.5 * n
        scale = mvlgamma(alpha - 0.5, n) - lgamma(alpha) * n
        return found - (0.5 * n * math.log(math.pi) + scale)
