"""Normal vectors: with any covariance, and with one of low rank and a diagonal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.tensor import Size, Tensor
from ..linalg import cholesky, solve_triangular
from ..ops.api import broadcast_shapes, diag_embed, eye, log, randn
from . import constraints
from .distribution import Distribution
from .parameters import lazy_property

__all__ = ["LowRankMultivariateNormal", "MultivariateNormal"]


def scaled(matrix: Tensor, vector: Tensor) -> Tensor:
    """``matrix`` @ ``vector``, batched."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def solved(factor: Tensor, vector: Tensor) -> Tensor:
    """factor⁻¹ @ ``vector``, for lower triangular factors [*batch, n, n] and [*sample, *batch, n]:
    all samples are columns of one system."""
    extra = max(vector.dim() + 1 - factor.dim(), 0)
    batch = vector.dim() - 1 - extra
    order = (*range(extra, extra + batch), extra + batch, *range(extra))
    turned = vector.permute(order)
    columns = turned.reshape(*turned.shape[: batch + 1], -1)
    found = solve_triangular(factor, columns, upper=False)
    found = found.reshape(*found.shape[:-1], *vector.shape[:extra])
    rank = found.dim() - extra
    return found.permute(*range(rank, rank + extra), *range(rank))


def mahalanobis(factor: Tensor, vector: Tensor) -> Tensor:
    """The square of the length of factor⁻¹ @ ``vector``."""
    found = solved(factor, vector)
    return (found * found).sum(-1)


def log_diagonal(factor: Tensor) -> Tensor:
    """The sum of the logarithms of the diagonal."""
    return log(factor.diagonal(dim1=-2, dim2=-1)).sum(-1)


def inverted(factor: Tensor) -> Tensor:
    """The inverse of ``factor`` @ its transpose."""
    n = factor.shape[-1]
    unit = eye(n, dtype=factor.dtype, device=factor.device)
    inverse = solve_triangular(factor, unit.expand(factor.shape), upper=False)
    return inverse.mT @ inverse


def factor_of_inverse(precision: Tensor) -> Tensor:
    """The Cholesky factor of ``precision``⁻¹, by that of the matrix turned by half a turn."""
    turned = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    n = precision.shape[-1]
    unit = eye(n, dtype=precision.dtype, device=precision.device)
    return solve_triangular(turned, unit.expand(precision.shape), upper=False)


def one_matrix(error: type[Exception], **given: Tensor | None) -> tuple[str, Tensor]:
    """The one of these parameters that is there, with its name. ``error``: none are, or more."""
    found = [(name, value) for name, value in given.items() if value is not None]
    if len(found) != 1:
        raise error(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
        )
    ((name, value),) = found
    if value.dim() < 2:
        raise ValueError(
            f"{name} must be at least two-dimensional, with optional leading batch dimensions"
        )
    return name, value


class Spread(Distribution):
    """A covariance given by one of ``covariance_matrix``, ``precision_matrix``, ``scale_tril``; the
    others are computed when they are asked for."""

    _unbroadcasted_scale_tril: Tensor

    def _keep(self, name: str, value: Tensor, batch: Sequence[int]) -> None:
        factors = {
            "covariance_matrix": cholesky, "precision_matrix": factor_of_inverse,
            "scale_tril": lambda factor: factor,
        }  # fmt: skip
        setattr(self, name, value.expand(*batch, *value.shape[-2:]))
        self._factor_of = factors[name], value

    @property
    def _whole(self) -> tuple[int, ...]:
        return (*self._batch_shape, *self._matrix_shape)

    @property
    def _matrix_shape(self) -> tuple[int, ...]:
        return (self._event_shape[-1],) * 2

    def _expand_into(self, new: Distribution, shape: Size) -> None:
        super()._expand_into(new, shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril  # type: ignore[attr-defined]

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._whole)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._whole)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return inverted(self._unbroadcasted_scale_tril).expand(self._whole)

    def _finish(self) -> None:
        factor, value = vars(self).pop("_factor_of")
        self._unbroadcasted_scale_tril = factor(value)


class MultivariateNormal(Spread):
    """Vectors with mean ``loc`` [*batch, n] and a covariance given by one of three matrices
    [*batch, n, n]: itself, its inverse ``precision_matrix``, its factor ``scale_tril``."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = one_matrix(
            ValueError, scale_tril=scale_tril, covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
        )  # fmt: skip
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        self._keep(name, matrix, batch)
        self.loc = loc.expand(*batch, loc.shape[-1])
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        self._finish()

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        squares = (self._unbroadcasted_scale_tril**2).sum(-1)
        return squares.expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + scaled(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        factor, n = self._unbroadcasted_scale_tril, self._event_shape[0]
        apart = mahalanobis(factor, value - self.loc)
        return -0.5 * (n * math.log(2 * math.pi) + apart) - log_diagonal(factor)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        found = 0.5 * n * (1.0 + math.log(2 * math.pi))
        return (found + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """Vectors with mean ``loc`` and covariance W Wᵀ + D of ``cov_factor`` W [*batch, n, k] and
    ``cov_diag`` D [*batch, n]. What it costs goes with k² n, by the identity of Woodbury and the
    determinant lemma."""

    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        event = _checked_event(loc, cov_factor, cov_diag)
        batch = broadcast_shapes(
            tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1])
        )
        self.loc = loc.expand(*batch, *event)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(*batch, *event)
        super().__init__(batch, event, validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _capacitance(cov_factor, cov_diag)

    def _expand_into(self, new: Any, shape: Size) -> None:
        super()._expand_into(new, shape)
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        squares = (self._unbroadcasted_cov_factor**2).sum(-1) + self._unbroadcasted_cov_diag
        return squares.expand((*self._batch_shape, *self._event_shape))

    @property
    def _whole(self) -> tuple[int, ...]:
        return (*self._batch_shape, *self._event_shape, *self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        inner = self._unbroadcasted_cov_factor / root  # (so that small diagonals keep their digits)
        n = self._event_shape[0]
        unit = eye(n, dtype=inner.dtype, device=inner.device)
        return (root * cholesky(inner @ inner.mT + unit)).expand(self._whole)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        found = factor @ factor.mT + diag_embed(self._unbroadcasted_cov_diag)
        return found.expand(self._whole)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        diagonal = self._unbroadcasted_cov_diag
        inner = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        inner = solve_triangular(self._capacitance_tril, inner, upper=False)
        return (diag_embed(1 / diagonal) - inner.mT @ inner).expand(self._whole)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low = (*shape[:-1], self.cov_factor.shape[-1])
        options: dict[str, Any] = {"dtype": self.loc.dtype, "device": self.loc.device}
        along = scaled(self._unbroadcasted_cov_factor, randn(*low, **options))
        own = self._unbroadcasted_cov_diag.sqrt() * randn(*shape, **options)
        return self.loc + along + own

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        apart = low_rank_mahalanobis(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, value - self.loc,
            self._capacitance_tril,
        )  # fmt: skip
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + self._log_det() + apart)

    def _log_det(self) -> Tensor:
        return low_rank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        found = 0.5 * (n * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return found.expand(self._batch_shape)


def _checked_event(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> Sequence[int]:
    """The shape of one vector. ValueError: the others do not fit it."""
    if loc.dim() < 1:
        raise ValueError("loc must be at least one-dimensional.")
    event = loc.shape[-1:]
    if cov_factor.dim() < 2:
        raise ValueError(
            "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
        )
    if cov_factor.shape[-2] != event[0]:
        raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
    if cov_diag.shape[-1:] != event:
        raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
    return event


def _capacitance(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of I + Wᵀ D⁻¹ W."""
    k = factor.shape[-1]
    unit = eye(k, dtype=factor.dtype, device=factor.device)
    return cholesky((factor.mT / diagonal.unsqueeze(-2)) @ factor + unit)


def low_rank_log_det(diagonal: Tensor, capacitance: Tensor) -> Tensor:
    """log of the determinant of the covariance."""
    return 2 * log_diagonal(capacitance) + log(diagonal).sum(-1)


def low_rank_mahalanobis(
    factor: Tensor, diagonal: Tensor, apart: Tensor, capacitance: Tensor
) -> Tensor:
    """The square of the length of ``apart``, measured by the covariance."""
    along = scaled(factor.mT, apart / diagonal)
    return (apart * apart / diagonal).sum(-1) - mahalanobis(capacitance, along)
