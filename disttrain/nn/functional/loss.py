"""Losses. Each compares predictions with targets and reduces to a scalar (or not)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...core import Tensor
from ...core.gate import Primitive, gate
from ...core.types.casting import computes_in
from ...errors import AutogradError, ConfigError, ShapeError
from ...ops.functions.args import in_float32, kinds
from ...ops.primitives.elementwise import logaddexp
from ...ops.primitives.softmax import softplus_
from ...ops.promotion import refuse, same_type
from .common import check_reduction, check_same_shape, legacy_reduction, reduce_loss


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), for all x."""
    return logaddexp(x, 0.0) if x.meta()[1].kind == "c" else softplus_(x)


def _together(where: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in their common type, which must be a floating-point one."""
    check_same_shape(where, input, target)
    kind = ops.result_type(input, target)
    if not kind.is_floating_point:
        raise refuse(where, kind.np)
    return input.to(kind), target.to(kind)


@computes_in("full")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target)²; with ``weight``, "mean" divides by the sum of the weights"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = _together("mse_loss", input, target)
    return _weighted(ops.square(input - target), weight, reduction, "mse_loss")


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str, where: str) -> Tensor:
    """The loss reduced; a weighted mean where weights are given."""
    if weight is None:
        return reduce_loss(loss, reduction, where)
    if weight.shape != loss.shape:
        raise ShapeError(
            f"{where}: weight of shape {list(weight.shape)} given; needed that of the loss, "
            f"{list(loss.shape)}"
        )
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else reduce_loss(loss, reduction, where)


@computes_in("full")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_same_shape("l1_loss", input, target)
    return _weighted((input - target).abs(), weight, reduction, "l1_loss")


@computes_in("full")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d² / (2 beta) where d = |input - target| < beta, else d - beta / 2"""
    if beta < 0:
        raise ConfigError(f"smooth_l1_loss: beta={beta} given; it must not be negative")
    if beta == 0:
        return l1_loss(input, target, size_average, reduce, reduction)
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = _together("smooth_l1_loss", input, target)
    return reduce_loss(_huber(input - target, beta) / beta, reduction, "smooth_l1_loss")


@computes_in("full")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d² / 2 where d = |input - target| < delta, else delta (d - delta / 2)"""
    if delta <= 0:
        raise ConfigError(f"huber_loss: delta={delta} given; it must be positive")
    kinds("huber_loss", "fV", input)
    kinds("huber_loss", "biufV", target)
    check_same_shape("huber_loss", input, target)
    target = target.to(input.dtype)
    loss = _huber(input - target, delta)
    return reduce_loss(loss if weight is None else loss * weight, reduction, "huber_loss")


def _huber(d: Tensor, delta: float) -> Tensor:
    size = d.abs()
    return ops.where(size < delta, d * d * 0.5, size * delta - 0.5 * delta * delta)


@computes_in("full")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of ``softmax(input)``, classes along dimension 1 (0 for a single sample).

    ``target``: class numbers (integers, without the class dimension) or probabilities (floating,
    of input's shape). ``reduction="mean"`` divides by the weights of the targets that count.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    return ops.cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


@computes_in("full")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input at the target's class: ``input`` holds log probabilities, classes along dimension 1"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return ops.nll_loss(input, target, weight, ignore_index, reduction)


def _probabilities(x: np.ndarray) -> Any:
    if x.size and not (np.min(x) >= 0 and np.max(x) <= 1):
        raise ConfigError(
            "binary_cross_entropy: all elements of input should be between 0 and 1; given a "
            f"range of [{float(np.min(x)):g}, {float(np.max(x)):g}]. Apply sigmoid first, or "
            "use binary_cross_entropy_with_logits"
        )
    return x


_check_probabilities = Primitive("check_probabilities", _probabilities, ("x",))
_check_probabilities.checks = True
_check_probabilities.shape = lambda x: (x.shape, x.dtype)
_check_probabilities.on_device = lambda platform, x: x  # nobody waits there to be told


@computes_in("full")
@in_float32
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x; logarithms are cut at -100"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _need_same_shape("binary_cross_entropy", input, target)
    kinds("binary_cross_entropy", "fV", input)
    same_type("binary_cross_entropy", input, target, weight)
    if type(input) is Tensor and not input.is_meta:
        gate(_check_probabilities, (input.detach(),), {})
    zero, one = input <= 0, input >= 1
    log_x = ops.where(zero, -100.0, ops.log(ops.where(zero, 1.0, input)).clamp(min=-100.0))
    log_y = ops.where(one, -100.0, ops.log1p(-ops.where(one, 0.0, input)).clamp(min=-100.0))
    loss = (target - 1) * log_y - target * log_x
    return reduce_loss(loss if weight is None else loss * weight, reduction, "binary_cross_entropy")


@computes_in("full")
@in_float32
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """``binary_cross_entropy`` of sigmoid(input), stable for large inputs"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    _need_same_shape("binary_cross_entropy_with_logits", input, target)
    kinds("binary_cross_entropy_with_logits", "fV", input)
    kinds("binary_cross_entropy_with_logits", "fVc", target)
    miss = softplus(-input)
    if pos_weight is not None:
        miss = miss * ((pos_weight - 1) * target + 1)
    loss = ((1 - target) * input + miss).to(target.dtype)
    return reduce_loss(
        loss if weight is None else loss * weight, reduction, "binary_cross_entropy_with_logits"
    )


def _need_same_shape(where: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ShapeError(
            f"{where}: target of shape {list(target.shape)} given for an input of shape "
            f"{list(input.shape)}; the shapes must be equal"
        )


@computes_in("full")
@in_float32
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target (log target - input), ``input`` being log probabilities.

    ``reduction="batchmean"`` is the divergence proper: the sum over the size of dimension 0.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction, "kl_div", ("none", "batchmean", "sum", "mean"))
    kinds("kl_div", "fV", input, target)
    if log_target:
        loss = ops.exp(target) * (target - input)
    else:
        positive = target > 0
        entropy = ops.where(positive, target * ops.log(ops.where(positive, target, 1.0)), 0.0)
        loss = entropy - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduce_loss(loss, reduction, "kl_div")


@computes_in("full")
@in_float32
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """x where the target is 1, max(0, margin - x) where it is -1"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    kinds("hinge_embedding_loss", "iufV", input)
    pull = ops.where(target == 1, input, ops.zeros_like(input))
    push = ops.where(target == -1, ops.clamp_min(margin - input, 0).to(input.dtype), 0)
    return reduce_loss(pull + push, reduction, "hinge_embedding_loss")


@computes_in("full")
@in_float32
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target (input1 - input2) + margin)"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise ShapeError(
            f"margin_ranking_loss: inputs of shapes {list(input1.shape)} and {list(input2.shape)} "
            f"and a target of shape {list(target.shape)} given; all need one number of dimensions"
        )
    loss = ops.clamp_min(-target * (input1 - input2) + margin, 0)
    return reduce_loss(loss, reduction, "margin_ranking_loss")


@computes_in("full")
@in_float32
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """log(1 + exp(-target input))"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    kinds("soft_margin_loss", "fVc", input)
    kinds("soft_margin_loss", "biufVc" if input.dtype.is_complex else "biufV", target)
    if target.requires_grad:
        raise AutogradError(
            "soft_margin_loss: The function 'soft_margin_loss' is not differentiable with respect "
            "to argument 'target'. This input cannot have requires_grad True: .detach() it"
        )
    loss = softplus(input * -target.to(input.dtype))
    if loss.shape != input.shape:
        raise ShapeError(
            f"soft_margin_loss: target of shape {list(target.shape)} given for an input of shape "
            f"{list(input.shape)}; it must broadcast to the input's"
        )
    return reduce_loss(loss, reduction, "soft_margin_loss")


@computes_in("full")
@in_float32
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
    size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Negative log likelihood of Poisson counts; ``full`` adds Stirling's term"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if log_input:
        loss = ops.exp(input) - target * input
    else:
        loss = input - target * ops.log(input + eps)
    if full:
        safe = ops.where(target > 1, target, 1.0)
        stirling = safe * ops.log(safe) - safe + 0.5 * ops.log(safe * (2 * np.pi))
        loss = loss + ops.where(target > 1, stirling, 0.0)
    return reduce_loss(loss, reduction, "poisson_nll_loss")


@in_float32
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """(log var + (input - target)² / var) / 2; ``full`` adds the constant"""
    if not isinstance(var, Tensor):
        var = ops.ones_like(input) * var
    kinds("gaussian_nll_loss", "fV", var)
    full_size, given = tuple(input.shape), tuple(var.shape)
    if given != full_size:
        if given == full_size[:-1]:
            var = var.unsqueeze(-1)
        elif given[:-1] != full_size[:-1] or given[-1:] != (1,):
            raise ShapeError(
                f"gaussian_nll_loss: var of shape {list(given)} given for an input of shape "
                f"{list(full_size)}; needed that shape, or 1 (or nothing) as its last size"
            )
    var = ops.clamp(var, min=eps)
    loss = 0.5 * (ops.log(var) + ops.square(input - target) / var)
    if full:
        loss = loss + 0.5 * float(np.log(2 * np.pi))
    return reduce_loss(loss, reduction, "gaussian_nll_loss")
