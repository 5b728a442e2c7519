"""Samples of distributions of given parameters, of the default stream: so many of each."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..ops import api as ops
from .gamma import Gamma


def _sizes(shape: Any) -> list[int]:
    return [shape] if isinstance(shape, int) else [int(n) for n in shape]


def shuffle(x: Tensor) -> Tensor:
    """The rows in some order."""
    return x.index_select(0, ops.randperm(len(x)))


def categorical(logits: Tensor, count: int, kind: Any = None) -> Tensor:
    """``count`` numbers of each row, with the probabilities whose logarithms (but for what is equal
    in a row) ``logits`` are."""
    found = ops.multinomial(ops.softmax(logits, -1), count, replacement=True)
    return found.to(dtypes.int64 if kind is None else kind)


def gamma(shape: Any, alpha: Tensor, beta: Tensor | None = None, kind: Any = None) -> Tensor:
    """[*shape, *parameters] numbers of gamma distributions of these shapes and rates (1)."""
    alpha = alpha.to(kind or alpha.dtype)
    rate = ops.ones((), dtype=alpha.dtype) if beta is None else beta.to(alpha.dtype)
    return Gamma(alpha, rate).sample(_sizes(shape))


def poisson(shape: Any, rates: Tensor, kind: Any = None) -> Tensor:
    """[*shape, *parameters] numbers of Poisson distributions."""
    rates = rates.to(kind or rates.dtype)
    return ops.poisson(rates.expand(*_sizes(shape), *rates.shape).clone())
