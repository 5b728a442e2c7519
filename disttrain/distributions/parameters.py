"""How distributions take their parameters: numbers and tensors of one shape, probabilities or
log-odds, attributes computed when they are first asked for, triangular matrices as vectors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from numbers import Number
from typing import Any

from ..core.grad_mode import enable_grad
from ..core.tensor import Size, Tensor
from ..core.tracer import Tracer
from ..core.types.dtypes import finfo, get_default_dtype
from ..ops.api import (
    arange,
    broadcast_tensors,
    log,
    log1p,
    logaddexp,
    sigmoid,
    softmax,
    tensor,
    zeros_like,
)

__all__ = [
    "broadcast_all", "clamp_probs", "euler_constant", "is_tensor_like", "lazy_property",
    "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip

euler_constant = 0.57721566490153286060


def is_tensor_like(value: object) -> bool:
    """Whether ``value`` is a tensor, or says itself how functions of tensors take it."""
    return isinstance(value, Tensor) or hasattr(value, "__torch_function__")


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors of one shape. Numbers take the first tensor's type and device, or default ones."""
    if not all(is_tensor_like(v) or isinstance(v, Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
            f"__torch_function__; given {[type(v).__name__ for v in values]}"
        )
    like = next((v for v in values if is_tensor_like(v)), None)
    options: dict[str, Any] = {"dtype": get_default_dtype()}
    if like is not None:
        options = {"dtype": like.dtype, "device": like.device}
    return tuple(
        broadcast_tensors(*(v if is_tensor_like(v) else tensor(v, **options) for v in values))
    )


def clamp_probs(probs: Tensor) -> Tensor:
    """``probs`` kept an epsilon of their type away from 0 and 1."""
    eps = float(finfo(probs.dtype).eps)
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-probabilities of classes, or log-odds of one of two."""
    safe = clamp_probs(probs)
    return log(safe) - log1p(-safe) if is_binary else log(safe)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of log-probabilities up to a constant, or of log-odds."""
    return sigmoid(logits) if is_binary else softmax(logits, dim=-1)


def either(probs: object, logits: object) -> tuple[str, Any]:
    """The one that is given, with its name."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")
    return ("logits", logits) if probs is None else ("probs", probs)


def all_true(valid: Tensor) -> bool:
    """Whether all are true; inside of a transform, those of the whole batch."""
    return bool((valid.plain() if isinstance(valid, Tracer) else valid).all())


def softplus(x: Tensor) -> Tensor:
    """log(1 + e**x)"""
    return logaddexp(x, zeros_like(x))


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """``value`` summed over its last ``count`` dimensions."""
    if count == 0:
        return value
    return value.reshape(*value.shape[: value.dim() - count], -1).sum(-1)


class lazy_property:  # noqa: N801
    """An attribute that a method computes when it is first asked for, with gradients even where
    they are off then; it is a plain attribute of the instance from there on."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return _LazyProperty(self.wrapped)
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyProperty(lazy_property, property):
    """What a class shows of a lazy property: documentation tools know properties."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


class ProbsOrLogits:
    """Of a distribution whose one parameter is given as ``probs`` or as ``logits``: the other one.
    ``_is_binary``: they are the probability and log-odds of one of two, else those of classes."""

    _is_binary = True

    @property
    def _param(self) -> Tensor:
        own = vars(self)
        return own["probs"] if "probs" in own else own["logits"]

    @property
    def param_shape(self) -> Size:
        """Of the parameter."""
        return self._param.shape

    @lazy_property
    def logits(self) -> Tensor:
        """Log-odds, or log-probabilities of classes."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, self._is_binary)


def _places(size: int, diag: int) -> list[int]:
    """Where, in a flat square matrix, what is on and below diagonal ``diag`` stands."""
    square = itertools.product(range(size), repeat=2)
    return [row * size + column for row, column in square if column <= row + diag]


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """[..., n, n] -> [..., k]: the elements on and below diagonal ``diag``, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    places = tensor(_places(n, diag), dtype=arange(1).dtype, device=mat.device)
    return mat.reshape(*mat.shape[:-2], n * n).index_select(-1, places)


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """[..., k] -> [..., n, n] with the elements on and below diagonal ``diag``, row by row.
    ValueError: no such matrix has k elements there."""
    length = vec.shape[-1]
    n = next(i for i in itertools.count() if _count(i, diag) >= length)
    if _count(n, diag) != length:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as the lower "
            "triangular part of a square D x D matrix."
        )
    places = tensor(_places(n, diag), dtype=arange(1).dtype, device=vec.device)
    flat = vec.new_zeros((*vec.shape[:-1], n * n)).index_copy(-1, places, vec)
    return flat.reshape(*vec.shape[:-1], n, n)


def _count(size: int, diag: int) -> int:
    return sum(min(max(row + diag + 1, 0), size) for row in range(size))
