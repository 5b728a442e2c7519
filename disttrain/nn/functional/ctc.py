"""Connectionist temporal classification: the likelihood of labels without an alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...core import Tensor
from ...core.types import dtypes
from ...errors import ConfigError, DTypeError, ShapeError
from ...ops.functions.args import kinds
from .common import reduce_loss

_NEVER = -math.inf


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int], blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """The negative logarithm of the probability of each target, over all its alignments (Graves
    et al. 2006).

    ``log_probs`` (T, N, C), or (T, C) of one sequence, are logarithms of probabilities, such as
    ``log_softmax`` gives: the gradient takes that as given, as PyTorch's does. ``targets`` (N, S),
    or all in one row, are whole numbers of any type. "mean" divides by the target's length first.
    ``zero_infinity``: targets that do not fit into their input count as 0.
    """
    kinds("ctc_loss", "f", log_probs)
    if targets.dtype.is_complex:
        raise DTypeError(f"ctc_loss: targets must be integers; {targets.dtype!r} given")
    if log_probs.ndim not in (2, 3):
        raise ShapeError(
            f"ctc_loss: log_probs of shape {list(log_probs.shape)} given; needed (T, N, C)"
        )
    single = log_probs.ndim == 2
    x = log_probs.unsqueeze(1) if single else log_probs
    steps, sizes = _lengths(x, input_lengths, target_lengths, blank)
    labels = _padded(targets, sizes, x, blank)
    losses = _losses(x, labels, steps, sizes, blank)
    if zero_infinity:
        losses = ops.where(ops.eq(losses, math.inf), 0.0, losses)
    if reduction == "mean":
        counts = ops.tensor([max(s, 1) for s in sizes], dtype=x.dtype, device=x.device)
        return (losses / counts).mean()
    return reduce_loss(losses.squeeze(0) if single else losses, reduction, "ctc_loss")


def _lengths(x: Tensor, inputs: Any, targets: Any, blank: int) -> tuple[list[int], list[int]]:
    both = []
    for name, given in (("input_lengths", inputs), ("target_lengths", targets)):
        if isinstance(given, Tensor):
            if given.dtype.is_floating_point:
                raise DTypeError(f"ctc_loss: {name} must be integral; {given.dtype!r} given")
            given = given.reshape(-1).tolist()
        found = [int(n) for n in (given if isinstance(given, (list, tuple)) else [given])]
        if len(found) != x.shape[1]:
            raise ShapeError(
                f"ctc_loss: {name} must be of size batch_size ({x.shape[1]}); {len(found)} given"
            )
        if min(found, default=0) < 0:
            raise ConfigError(f"ctc_loss: {name} must not be negative; {min(found)} given")
        both.append(found)
    if max(both[0], default=0) > x.shape[0]:
        raise ConfigError(
            f"ctc_loss: Expected input_lengths to have value at most {x.shape[0]}, but got value "
            f"{max(both[0])}"
        )
    if not 0 <= blank < x.shape[2]:
        raise ConfigError(f"ctc_loss: blank must be in label range; {blank} given")
    return both[0], both[1]


def _padded(targets: Tensor, sizes: list[int], x: Tensor, blank: int) -> Tensor:
    """The targets as (N, longest), filled up with blanks."""
    longest, n = max(sizes, default=0), x.shape[1]
    if targets.ndim == 1:
        if targets.shape[0] != sum(sizes):
            raise ShapeError(
                f"ctc_loss: {targets.shape[0]} labels in a row given; target_lengths sum to "
                f"{sum(sizes)}"
            )
        starts = [sum(sizes[:i]) for i in range(n)]
    elif targets.ndim == 2 and targets.shape[0] == n and targets.shape[1] >= longest:
        starts = [i * targets.shape[1] for i in range(n)]
    else:
        raise ShapeError(
            f"ctc_loss: targets of shape {list(targets.shape)} given; needed ({n}, at least "
            f"{longest}), or all labels in one row"
        )
    flat = targets.to(x.device).reshape(-1).to(dtypes.int64)
    rows = [
        ops.pad(flat[start : start + size], (0, longest - size), "constant", blank)
        for start, size in zip(starts, sizes, strict=True)
    ]
    return ops.stack(rows) if rows else flat.reshape(0, 0)


def _log_sum(parts: list[Tensor]) -> Tensor:
    """``log(sum(exp(parts)))``, also where all are -inf, with a gradient of 0 there."""
    most = parts[0].detach()
    for part in parts[1:]:
        most = ops.maximum(most, part.detach())
    most = ops.where(ops.eq(most, _NEVER), 0.0, most)
    total = (parts[0] - most).exp()
    for part in parts[1:]:
        total = total + (part - most).exp()
    some = ops.ne(total, 0)  # nan stays nan
    return ops.where(some, ops.where(some, total, 1.0).log() + most, _NEVER)


def _losses(x: Tensor, labels: Tensor, steps: list[int], sizes: list[int], blank: int) -> Tensor:
    """The loss of each sequence: the forward recursion over labels with blanks between them."""
    time, batch = x.shape[:2]
    width = 2 * labels.shape[1] + 1
    path = ops.full((batch, labels.shape[1], 2), blank, dtype=dtypes.int64, device=x.device)
    path[:, :, 1] = labels
    path = ops.pad(path.flatten(1), (0, 1), "constant", blank)
    # A blank is as the one two places before it, so that only other labels may be skipped to.
    skips = ops.pad(ops.ne(path[:, 2:], path[:, :-2]), (min(width, 2), 0), "constant", False)
    scores = x.gather(2, path.expand(time, batch, width)) if time else x.new_zeros(0, batch, width)
    lengths = ops.tensor(steps, device=x.device)
    first = ops.arange(width, device=x.device) < ops.tensor(sizes, device=x.device)[:, None] * 2 + 1
    start = ops.logical_and(first, ops.arange(width, device=x.device) < 2)
    alpha = x.new_zeros(batch, width) + ops.where(start, 0.0, _NEVER)
    for t in range(time):
        if t:
            one = ops.pad(alpha, (1, 0), "constant", _NEVER)[:, :-1]
            two = ops.pad(alpha, (2, 0), "constant", _NEVER)[:, :width]
            alpha_next = _log_sum([alpha, one, ops.where(skips, two, _NEVER)]) + scores[t]
        else:
            alpha_next = alpha + scores[t]
        alpha = ops.where((t < lengths)[:, None], alpha_next, alpha)
    return _ends(x, alpha, lengths, ops.tensor(sizes, device=x.device))


def _ends(x: Tensor, alpha: Tensor, lengths: Tensor, sizes: Tensor) -> Tensor:
    """The loss by the last label or the blank behind it; with the gradient of probabilities that
    sum to one, which adds ``exp(x)`` to each used step."""
    last = alpha.gather(1, (2 * sizes)[:, None]).squeeze(1)
    label = alpha.gather(1, (2 * sizes - 1).clamp(min=0)[:, None]).squeeze(1)
    label = ops.where(sizes > 0, label, _NEVER)
    empty = ops.where(sizes > 0, math.inf, 0.0).to(x.dtype)  # of an input without steps
    losses = ops.where(lengths > 0, -_log_sum([last, label]), empty)
    used = ops.arange(x.shape[0], device=x.device)[:, None] < lengths
    known = ops.logical_and(used, losses.detach() < math.inf)[:, :, None]
    total = ops.where(known, x, _NEVER).exp().sum((0, 2))
    return losses + (total - total.detach())
