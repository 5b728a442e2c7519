"""Softmax over many classes, most of them rare (Grave et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ... import ops
from ...core import Tensor
from ...core.annotations import DeviceLike, DTypeLike
from ...errors import ConfigError, ShapeError
from .. import functional as F
from ..module import Module
from .containers import ModuleList, Sequential
from .linear import Linear


class ASMoutput(NamedTuple):
    """What ``AdaptiveLogSoftmaxWithLoss`` gives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities of ``n_classes`` classes, ordered by their frequency: up to the first of
    ``cutoffs`` they are scored at once, the clusters between cutoffs where they are needed, by
    projections that are ``div_value`` times smaller from one to the next.

    ``forward(input, target)``: (N, in_features) and (N,) give the log probability of each target
    and the mean loss.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ConfigError("AdaptiveLogSoftmaxWithLoss: cutoffs should be a sequence of length")
        rising = sorted(set(ends)) == ends and min(ends) > 0 and max(ends) <= n_classes - 1
        if not rising or any(int(c) != c for c in ends):
            raise ConfigError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs should be a sequence of unique, positive "
                "integers sorted in an increasing order, where each value is between 1 and "
                f"n_classes-1; {ends} given"
            )
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs, self.head_bias = [*ends, n_classes], head_bias
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            narrow = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, narrow, bias=False, device=device, dtype=dtype),
                    Linear(narrow, size, bias=False, device=device, dtype=dtype),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        rows, targets = self._rows(input_, target_)
        head = F.log_softmax(self.head(rows), dim=1)
        # The place in the head: a frequent class itself, or the cluster that has the class.
        place = ops.where(targets < self.shortlist_size, targets, 0)
        output: Tensor | None = None
        for i, (low, high) in enumerate(self._clusters()):
            inside = ops.logical_and(targets >= low, targets < high)
            place = ops.where(inside, self.shortlist_size + i, place)
            among = ops.nonzero(inside).reshape(-1)
            if among.shape[0]:
                scores = F.log_softmax(self.tail[i](rows.index_select(0, among)), dim=1)
                own = (targets.index_select(0, among) - low).unsqueeze(1)
                part = rows.new_zeros(rows.shape[0], dtype=scores.dtype)
                part = part.index_add(0, among, scores.gather(1, own).squeeze(1))
                output = part if output is None else output + part
        first = head.gather(1, place.unsqueeze(1)).squeeze(1)
        output = first if output is None else output + first
        loss = (-output).mean()
        return ASMoutput(output.squeeze(0) if target_.ndim == 0 else output, loss)

    def _clusters(self) -> list[tuple[int, int]]:
        return list(zip(self.cutoffs, self.cutoffs[1:], strict=False))

    def _rows(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        name = type(self).__name__
        if target.ndim == 1:
            fits = input.ndim == 2 and input.shape[0] == target.shape[0]
        elif target.ndim == 0:
            fits = input.ndim == 1
        else:
            raise ConfigError(
                f"{name}: 0D or 1D target tensor expected, multi-target not supported"
            )
        if not fits:
            raise ShapeError(
                f"{name}: input of shape {list(input.shape)} and target of shape "
                f"{list(target.shape)} given; needed (N, {self.in_features}) and (N,)"
            )
        rows, targets = (input, target) if target.ndim else (input[None], target[None])
        if targets.shape[0] and not bool(((targets >= 0) & (targets < self.n_classes)).all()):
            raise ConfigError(
                f"{name}: Target values should be in [0, {self.n_classes - 1}], but values in "
                f"range [{targets.min().item()}, {targets.max().item()}] were found."
            )
        return rows, targets

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes: (N, n_classes)."""
        scores = self.head(input)
        head = F.log_softmax(scores, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            cluster = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(cluster + head[:, self.shortlist_size + i].unsqueeze(1))
        return ops.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row: (N,)."""
        return self.log_prob(input).argmax(1)
