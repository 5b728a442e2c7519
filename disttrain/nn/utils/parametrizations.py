"""Orthogonal, weight-normalised and spectrally normalised parameters, as parametrizations."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...core import Tensor, no_grad
from ...errors import ConfigError, DimError
from .. import functional as F
from ..module import Module
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from . import orthogonal as orth
from .parametrize import register_parametrization

TRANSPOSED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix (or its transpose, if it is wide) with orthonormal columns.

    With trivialization (Lezcano-Casado 2019) the map starts at ``base``, the matrix that was there,
    so that any orthogonal matrix can be assigned.
    """

    base: Any

    def __init__(self, weight: Any, orthogonal_map: str, *, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ConfigError(
                "orthogonal: The householder parametrization does not support complex tensors."
            )
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        wide = X.shape[-2] < X.shape[-1]
        if wide:
            X = X.transpose(-2, -1)
        n, k = X.shape[-2:]
        if self.orthogonal_map == "householder":
            A = X.tril(-1)
            tau = 2.0 / (1.0 + (A * A).sum(-2))
            signs = X.diagonal(dim1=-2, dim2=-1).detach().int()
            Q = orth.householder_product(A, tau) * signs.unsqueeze(-2).to(X.dtype)
        else:
            X = X.tril()
            if n != k:
                X = ops.cat([X, X.new_zeros((*X.shape[:-1], n - k))], -1)
            adjoint = X.transpose(-2, -1)
            A = X - (adjoint.conj() if X.is_complex() else adjoint)
            Q = orth.matrix_exp(A) if self.orthogonal_map == "matrix_exp" else orth.cayley(A)
            Q = Q[..., :k]
        if "base" in self._buffers:
            Q = self.base @ Q
        return Q.transpose(-2, -1) if wide else Q

    def right_inverse(self, Q: Tensor) -> Any:
        """What gives ``Q`` (or the orthogonal matrix that belongs to it)."""
        if Q.shape != self.shape:
            raise ConfigError(
                f"orthogonal: Expected a matrix or batch of matrices of shape {self.shape}. Got a "
                f"tensor of shape {Q.shape}."
            )
        with no_grad():
            wide = Q.shape[-2] < Q.shape[-1]
            tall = Q.transpose(-2, -1) if wide else Q
            if "base" not in self._buffers:
                out = self._without_base(tall)
                return out.transpose(-2, -1) if wide else out
            n, k = tall.shape[-2:]
            if n != k:
                more = ops.randn(*tall.shape[:-1], n - k, dtype=Q.dtype, device=Q.device)
                tall = ops.cat([tall, more], -1)
            self.base = tall.clone() if orth.is_orthonormal(tall) else orth.orthonormal(tall)
            return -ops.eye(*Q.shape[-2:], dtype=Q.dtype, device=Q.device).expand(Q.shape).clone()

    def _without_base(self, Q: Tensor) -> Any:
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        A, tau = orth.reflections(Q)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        signs = ops.where(tau == 0.0, -ops.sign(diagonal), ops.sign(diagonal))
        return A.diagonal_scatter(signs, 0, -2, -1)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keep the matrix (or batch of matrices) ``name`` orthogonal: its columns are orthonormal, or
    its rows if it is wide. ``orthogonal_map``: "matrix_exp" (the default for square and complex
    ones), "cayley" or "householder". Returns ``module``."""
    weight = _tensor(module, name)
    if weight.ndim < 2:
        raise ConfigError(
            "orthogonal: Expected a matrix or batch of matrices. Got a tensor of "
            f"{weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ConfigError(
            'orthogonal: orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


def _tensor(module: Module, name: str) -> Any:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ConfigError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# --- weight normalisation (Salimans and Kingma 2016) ---------------------------------------------
def norm_except(v: Any, dim: int) -> Any:
    """The norms over all dimensions but ``dim`` (-1: over all), with the dimensions kept."""
    if dim == -1:
        return ops.norm(v)
    return ops.norm(v, 2, [d for d in range(v.ndim) if d != dim % v.ndim], keepdim=True)


class _WeightNorm(Module):
    """g v / |v|, with a length g for every index of one dimension."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Any, Any]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Any:
    """Train direction and length of ``name`` apart; a length for every index of ``dim``, or one
    (None). State dicts of the older ``nn.utils.weight_norm`` load. Returns ``module``."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *rest: bool | dict | list) -> None:
        older = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in older):
            for i, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


# --- spectral normalisation (Miyato et al. 2018) -------------------------------------------------
def as_matrix(weight: Any, dim: int) -> Any:
    """``weight`` with ``dim`` as rows and all others as columns."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.flatten(1)


class _SpectralNorm(Module):
    """A weight over its largest singular value, followed by power iterations in training."""

    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise DimError(
                "spectral_norm: Dimension out of range (expected to be in range of "
                f"[-{ndim}, {ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ConfigError(
                "spectral_norm: Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % ndim, eps
        self.n_power_iterations = n_power_iterations
        if ndim > 1:
            with no_grad():
                matrix = as_matrix(weight, self.dim)
                for name, count in zip(("_u", "_v"), matrix.shape):
                    start = matrix.new_empty((count,)).normal_(0, 1)
                    self.register_buffer(name, F.normalize(start, dim=0, eps=eps))
                self._power_method(matrix, 15)

    def _power_method(self, matrix: Tensor, iterations: int) -> None:
        with no_grad():
            adjoint = matrix.t().conj() if matrix.is_complex() else matrix.t()
            for _ in range(iterations):
                self._u.copy_(F.normalize(matrix @ self._v, dim=0, eps=self.eps))
                self._v.copy_(F.normalize(adjoint @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next iterations write into them
        sigma = ((u.conj() if u.is_complex() else u) * (matrix @ v)).sum()
        return weight / sigma

    def right_inverse(self, value: Tensor) -> Any:
        return value  # whatever it is: dividing by the norm again gives the same direction


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide ``name`` by its largest singular value; as a matrix, its rows are ``dim`` (0, but 1 of
    transposed convolutions). Returns ``module``."""
    weight = _tensor(module, name)
    if dim is None:
        dim = 1 if isinstance(module, TRANSPOSED) else 0
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return register_parametrization(module, name, made)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
