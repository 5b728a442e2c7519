"""Distances and similarities between vectors, and the losses made of them."""

from __future__ import annotations

from collections.abc import Callable

from ... import ops
from ...core import Tensor
from ...core.types.casting import computes_in
from ...errors import ShapeError
from ...ops.functions.args import in_float32
from ...ops.promotion import refuse
from .common import legacy_reduction, reduce_loss


def vector_norm(x: Tensor, p: float, dim: int, keepdim: bool = False) -> Tensor:
    """(sum |x|^p)^(1/p) along ``dim``; the gradient at 0 is 0."""
    return ops.norm(x, p, dim, keepdim)


@computes_in("full")
@in_float32
def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """input / max(its p-norm along ``dim``, eps)"""
    length = vector_norm(input, p, dim, True).clamp(min=eps)
    return input / length if out is None else ops.div(input, length, out=out)


@computes_in("full")
@in_float32
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1·x2 / (max(|x1|, eps) max(|x2|, eps)) along ``dim``"""
    kind = ops.result_type(x1, x2)
    if not kind.is_floating_point:
        raise refuse("cosine_similarity", kind.np)
    if not isinstance(dim, int):
        raise TypeError(f"cosine_similarity: dim={dim!r} given; an integer is needed")
    x1, x2 = ops.broadcast_tensors(x1.to(kind), x2.to(kind))
    a = x1 / vector_norm(x1, 2, dim, True).clamp(min=eps)
    b = x2 / vector_norm(x2, 2, dim, True).clamp(min=eps)
    return (a * b).sum(dim)


@in_float32
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension"""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@computes_in("full")
@in_float32
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1"""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.ndim + 1 != input1.ndim or input1.ndim > 2:
        raise ShapeError(
            f"cosine_embedding_loss: target of shape {list(target.shape)} given for inputs of "
            f"shape {list(input1.shape)}; needed one target per vector"
        )
    dot = (input1 * input2).sum(-1)
    eps = 1e-12
    scale = ops.sqrt((ops.square(input1).sum(-1) + eps) * (ops.square(input2).sum(-1) + eps))
    cos = dot / scale
    loss = ops.where(target == 1, 1 - cos, 0.0)
    loss = loss + ops.where(target == -1, ops.clamp_min(cos - margin, 0), 0.0)
    return reduce_loss(loss, reduction, "cosine_embedding_loss")


@computes_in("full")
@in_float32
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)"""
    reduction = legacy_reduction(size_average, reduce, reduction)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``triplet_margin_loss`` with any distance"""
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor, positive: Tensor, negative: Tensor, distance: Callable, margin: float,
    swap: bool, reduction: str,
) -> Tensor:  # fmt: skip
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            f"triplet_margin_loss: shapes {list(anchor.shape)}, {list(positive.shape)} and "
            f"{list(negative.shape)} given; all need one number of dimensions"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return reduce_loss(ops.clamp_min(near - far + margin, 0), reduction, "triplet_margin_loss")
