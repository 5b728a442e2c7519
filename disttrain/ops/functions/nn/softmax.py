"""Softmax and its logarithm along a dimension; gelu and silu. Torch's names."""

from __future__ import annotations

from ....core.annotations import DTypeLike
from ....core.fast import unary as fast_unary
from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import ConfigError, DTypeError
from ...primitives import elementwise as el
from ...primitives.softmax import gelu_erf, gelu_tanh, log_softmax_, silu_, softmax_
from ...primitives.views import reshape
from ..args import one_dim
from ..args import tensor as as_input


def _prepared(where: str, input: Tensor, dim: int, dtype: DTypeLike | None) -> tuple[Tensor, int]:
    as_input(input, where)
    if dtype is not None:
        input = el.cast(input, dtype=dtypes.as_dtype(dtype).np)
    kind = input.dtype
    if not kind.is_floating_point:
        raise DTypeError(
            f"{where}: {kind!r} given; a floating-point tensor is needed; convert it by .float(), "
            "or pass dtype="
        )
    return input, one_dim(dim, input.ndim, where)


def softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
    input, d = _prepared("softmax", input, dim, dtype)
    if input.ndim == 0:  # (a copy: what is saved for the gradient is not to be written to)
        return el.copy(reshape(softmax_(reshape(input, shape=(1,)), dim=0), shape=()))
    return softmax_(input, dim=d)


def log_softmax(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """log(softmax(x)) along ``dim``."""
    input, d = _prepared("log_softmax", input, dim, dtype)
    if input.ndim == 0:
        return el.copy(reshape(log_softmax_(reshape(input, shape=(1,)), dim=0), shape=()))
    return log_softmax_(input, dim=d)


def softmin(input: Tensor, dim: int, dtype: DTypeLike | None = None) -> Tensor:
    """softmax(-x) along ``dim``."""
    return softmax(el.neg(input), dim, dtype)


silu = fast_unary(silu_)
_GELU = {"none": fast_unary(gelu_erf), "tanh": fast_unary(gelu_tanh)}


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x; ``approximate="tanh"`` for the tanh form."""
    if approximate not in _GELU:
        raise ConfigError(f"gelu: approximate={approximate!r} given; needed 'none' or 'tanh'")
    return _GELU[approximate](input)


__all__ = ["gelu", "log_softmax", "silu", "softmax", "softmin"]
