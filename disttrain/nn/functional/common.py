"""What several functions need: reductions of losses, in-place forms, sizes per dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import Tensor
from ...errors import ConfigError, ShapeError
from ...ops.functions.args import in_float32, kinds
from ...ops.functions.inplace import overwrite
from ...trace import warn

REDUCTIONS = ("none", "mean", "sum")


def reduce_loss(loss: Tensor, reduction: str, where: str) -> Tensor:
    """``loss`` per element, or its mean or sum."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    check_reduction(reduction, where)
    return loss


def check_reduction(reduction: str, where: str, known: tuple = REDUCTIONS) -> None:
    """Raise ``ConfigError`` unless ``reduction`` is known."""
    if reduction not in known:
        raise ConfigError(
            f"{where}: reduction={reduction!r} is not a valid value for reduction; "
            f"needed one of {', '.join(known)}"
        )


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """``reduction``, or what the old arguments ``size_average`` and ``reduce`` mean."""
    if size_average is None and reduce is None:
        return reduction
    wanted = "none" if reduce is False else "sum" if size_average is False else "mean"
    warn(f"size_average and reduce are deprecated, please use reduction='{wanted}' instead.")
    return wanted


def activate(
    where: str, input: Tensor, compute: Callable[[Tensor], Tensor], inplace: bool = False,
    allowed: str = "fV",
) -> Tensor:  # fmt: skip
    """``compute(input)``, for input of numpy's kinds ``allowed`` (half types are computed in
    float32), written over ``input`` where the caller asked for that."""
    kinds(where, allowed, input)
    return into(input, in_float32(compute), inplace)


def into(input: Tensor, compute: Callable[[Tensor], Tensor], inplace: bool) -> Tensor:
    """``compute(input)``, written over ``input`` where the caller asked for that."""
    return overwrite("inplace=True", input, compute) if inplace else compute(input)


def per_dim(value: Any, n: int, where: str, name: str) -> tuple[int, ...]:
    """``value`` for each of ``n`` spatial dimensions: one number for all, or ``n`` of them."""
    if isinstance(value, (tuple, list)):
        if len(value) == 1 and n > 1:
            value = tuple(value) * n
        if len(value) != n:
            raise ShapeError(
                f"{where}: {name}={tuple(value)} given; needed one number or {n}, one per dimension"
            )
        return tuple(int(v) for v in value)
    return (int(value),) * n


def check_same_shape(where: str, input: Tensor, target: Tensor) -> None:
    """Warn when a loss broadcasts its two sides, which is seldom meant."""
    if input.shape != target.shape:
        warn(
            f"{where}: the target has shape {list(target.shape)}, the input {list(input.shape)}; "
            "they are broadcast, which will likely lead to incorrect results. Please ensure they "
            "have the same size.",
        )


def need_dims(where: str, input: Tensor, allowed: tuple[int, ...], layout: str) -> None:
    """Raise ``ShapeError`` unless ``input`` has one of the allowed numbers of dimensions."""
    if input.ndim not in allowed:
        raise ShapeError(
            f"{where}: input of shape {list(input.shape)} given; needed {layout}, that is "
            f"{' or '.join(str(d) for d in allowed)} dimensions"
        )
