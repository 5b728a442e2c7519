"""Sums, means and maxima of rows of a table, bag by bag."""

from __future__ import annotations

from ... import ops
from ...context import SLOW, thread
from ...core import Tensor, no_grad
from ...errors import ConfigError, DimError, DTypeError, ModeError, PaddingError, ShapeError
from ...trace import warn
from .linear import embedding

_MODES = ("sum", "mean", "max")


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """One row for each bag of numbers of rows of ``weight``: their sum, mean or maximum.

    ``input`` (bags, n) has bags of one size; (n) has them one behind the other, bag k beginning at
    ``offsets[k]`` (``include_last_offset``: the last offset is the end). An empty bag gives zeros.
    ``per_sample_weights``, in the shape of ``input``, are factors of the rows of a sum. Numbers
    ``padding_idx`` are left out. The others are those of ``embedding``.
    """
    if weight.ndim == 1 and not weight.dtype.is_floating_point and input.dtype.is_floating_point:
        warn(
            "embedding_bag: the weight was given first and the input second; give them as "
            "embedding_bag(input, weight, ...), as they were taken here",
        )
        input, weight = weight, input
    _check(input, offsets, mode, per_sample_weights, scale_grad_by_freq)
    numbers, kept = input.reshape(-1), None
    bags, count = _bags(input, offsets, include_last_offset)
    factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    _check_table(weight, factors, padding_idx)
    if padding_idx is not None:
        padding_idx %= weight.shape[0]
        kept = numbers != padding_idx
        if numbers.is_cpu and thread.mode != SLOW:  # else the host would wait, or may not read it
            places = kept.nonzero().reshape(-1)
            numbers, bags, kept = numbers[places], bags[places], None
            factors = None if factors is None else factors[places]
    try:
        rows = embedding(
            numbers, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        )
    except DimError as error:
        raise DimError(
            f"embedding_bag: Expected idx >= 0 && idx < num_embeddings: {error}"
        ) from None
    if mode == "max":
        return _largest(rows, bags, count, kept)
    if factors is not None:
        rows = rows * factors.unsqueeze(1)
    if kept is not None:
        rows = ops.where(kept.unsqueeze(1), rows, 0.0)
    total = ops.zeros(count, rows.shape[1], dtype=rows.dtype, device=rows.device)
    total = total.index_add(0, bags, rows)
    if mode == "mean":
        counted = ops.ones_like(bags) if kept is None else kept.to(bags.dtype)
        sizes = ops.zeros(count, dtype=bags.dtype, device=bags.device)
        sizes = sizes.index_add(0, bags, counted).clamp(min=1)
        total = total / sizes.to(rows.dtype).unsqueeze(1)
    return total


def _bags(input: Tensor, offsets: Tensor | None, ended: bool) -> tuple[Tensor, int]:
    """The bag of each number, and how many bags there are."""
    if input.ndim == 2:
        count, size = input.shape
        return ops.repeat_interleave(ops.arange(count, device=input.device), size), count
    assert offsets is not None
    starts = offsets[:-1] if ended else offsets
    places = ops.arange(input.shape[0], device=starts.device).to(starts.dtype)
    return ops.searchsorted(starts.contiguous(), places, right=True) - 1, starts.shape[0]


def _largest(rows: Tensor, bags: Tensor, count: int, kept: Tensor | None) -> Tensor:
    """The maxima of each bag, of the rows that are ``kept`` (None: of all); of equal ones the first
    gets the gradient."""
    n, width = rows.shape
    if not n:
        return ops.zeros(count, width, dtype=rows.dtype, device=rows.device) + rows.sum()
    with no_grad():
        where = bags.unsqueeze(1).expand(n, width)
        values = rows.detach()
        values = values if kept is None else ops.where(kept.unsqueeze(1), values, -float("inf"))
        most = rows.new_full((count, width), -float("inf"))
        most = most.scatter_reduce(0, where, values, "amax")
        places = ops.arange(n, device=rows.device).unsqueeze(1).expand(n, width)
        found = values == most[bags]
        found = found if kept is None else found & kept.unsqueeze(1)
        places = ops.where(found, places, n)
        first = places.new_full((count, width), n)
        first = first.scatter_reduce(0, where, places, "amin")
        empty = first == n
        first = first.masked_fill(empty, 0)
    return rows.gather(0, first).masked_fill(empty, 0)


def _check_table(weight: Tensor, factors: Tensor | None, padding_idx: int | None) -> None:
    if factors is not None and factors.dtype is not weight.dtype:
        raise DTypeError(
            "embedding_bag: expected per_sample_weights to have the same type as weight, "
            f"{weight.dtype!r}; {factors.dtype!r} given"
        )
    if padding_idx is not None and not -len(weight) <= padding_idx < len(weight):
        raise PaddingError(
            "embedding_bag: padding_idx must be within the number of embeddings, "
            f"{len(weight)}; {padding_idx} given"
        )


def _check(
    input: Tensor, offsets: Tensor | None, mode: str, factors: Tensor | None, by_freq: bool
) -> None:
    if mode not in _MODES:
        raise ConfigError(f"embedding_bag: mode={mode!r}; mode has to be one of sum, mean or max")
    if input.ndim == 2 and offsets is not None:
        raise ConfigError(
            "embedding_bag: if input is 2D, then offsets has to be None, as input is treated as a "
            f"mini-batch of bags of one length; offsets of shape {list(offsets.shape)} given"
        )
    if input.ndim == 1:
        _check_offsets(offsets)
    elif input.ndim != 2:
        raise ShapeError(
            f"embedding_bag: input has to be 1D or 2D Tensor, but got Tensor of dimension "
            f"{input.ndim}"
        )
    if factors is not None and tuple(factors.shape) != tuple(input.shape):
        raise ShapeError(
            f"embedding_bag: per_sample_weights of shape {list(factors.shape)} given; needed is "
            f"the same shape as the input, {list(input.shape)}"
        )
    if factors is not None and mode != "sum":
        raise ModeError(
            "embedding_bag: per_sample_weights is only supported for mode='sum' "
            f"(got mode={mode!r})"
        )
    if mode == "max" and by_freq:
        raise ConfigError("embedding_bag: max mode does not support scaling the gradient by freq")


def _check_offsets(offsets: Tensor | None) -> None:
    if not isinstance(offsets, Tensor):
        raise ConfigError("embedding_bag: offsets has to be a 1D Tensor where input is 1D")
    if offsets.ndim != 1:
        raise ShapeError(
            f"embedding_bag: offsets has to be a 1D Tensor; one of {offsets.ndim} dimensions given"
        )
    if not offsets.is_cpu or thread.mode == SLOW:  # a device is not waited for
        return
    if offsets.numel() and int(offsets[0]) != 0:
        raise ConfigError(
            "embedding_bag: offsets[0] has to be 0, i.e., the first bag begins where input does; "
            f"it is {int(offsets[0])}"
        )
