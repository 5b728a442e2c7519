"""Communication hooks that send gradients as products of narrow matrices (PowerSGD).

Vogels, Karimireddy, Jaggi: PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization, 2019. One step of subspace iteration per backward: P = M Q is summed over the ranks
and orthogonalized, Q = M^T P is averaged, and P Q^T stands for the average of M. What it leaves out
is kept on its rank and added to the next gradient.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ....backends.device.memory import memory_of
from ....comm.group.default_group import default_group
from ....core import no_grad
from ....core.random import Generator
from ....core.tensor import Tensor, wrap
from ....errors import ConfigError
from ....futures import Future
from ....ops.api import matmul, randn, stack
from ...collectives.tensors import all_reduce
from ...ddp import GradBucket
from ...groups.process_group import ProcessGroup
from ...groups.state import group_or_default
from .default_hooks import averaged, started
from .low_rank import Approximation, Family, orthogonalize, plan

_log = logging.getLogger(__name__)
_SEEDS = 1_000_000_000


class PowerSGDState:
    """The settings of PowerSGD, and what it remembers of each bucket.

    ``matrix_approximation_rank``: columns of P and Q; more are more exact and cost more.
    ``start_powerSGD_iter``: plain averages before that iteration (at least 2 where anything is
    remembered, since DDP rebuilds its buckets once). ``min_compression_rate``: what a gradient must
    shrink by to be compressed. ``use_error_feedback``: add what was left out to the next gradient.
    ``warm_start``: begin with the last Q instead of a random one. ``orthogonalization_epsilon``:
    added to the lengths of columns. ``batch_tensors_with_same_shape``: compute with matrices of one
    shape together. Every ``compression_stats_logging_frequency`` iterations what was saved is
    logged.
    """

    __slots__ = (
        "batch_tensors_with_same_shape",
        "compression_stats_logging_frequency",
        "error_dict",
        "iter",
        "matrix_approximation_rank",
        "min_compression_rate",
        "next_stats_report",
        "orthogonalization_epsilon",
        "p_memory_dict",
        "process_group",
        "q_memory_dict",
        "rng",
        "start_powerSGD_iter",
        "total_numel_after_compression",
        "total_numel_before_compression",
        "use_error_feedback",
        "warm_start",
    )

    def __init__(
        self,
        process_group: ProcessGroup | None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,  # noqa: N803
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ConfigError(
                f"PowerSGDState: start_powerSGD_iter={start_powerSGD_iter} was given. Expect "
                "`start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, "
                "because PowerSGD can only be applied after the first two iterations in DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.rng = np.random.RandomState(random_seed)  # the same on every rank
        self.error_dict: dict[int, Tensor] = {}
        self.p_memory_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[int, Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape

    def __getstate__(self) -> dict[str, Any]:
        """All but the process group, which belongs to a process."""
        state = {k: getattr(self, k) for k in self.__slots__ if k != "process_group"}
        return state | {"rng": self.rng.get_state()}  # data, so that ``save`` takes it too

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As it was, with the default group; set ``process_group`` for another one."""
        self.process_group = default_group()
        for name, value in state.items():
            setattr(self, name, value)
        self.rng = np.random.RandomState()
        self.rng.set_state(state["rng"])

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count an iteration when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                _log.info("Start to apply PowerSGD after %s iterations.", self.iter)

    def compression_stats(self) -> tuple[float, int, int]:
        """(how many times fewer, numbers of elements before, after) compression, since it
        began."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0, before, after)

    def count(self, bucket: GradBucket, before: int, after: int) -> None:
        """Add to the statistics of compression, and log them now and then."""
        self.total_numel_before_compression += before
        self.total_numel_after_compression += after
        if bucket.is_last() and self.iter >= self.next_stats_report:
            rate, before, after = self.compression_stats()
            _log.info(
                "Compression stats: iter %s, total before compression %s, total after compression "
                "%s, rate %s", self.iter, before, after, rate,
            )  # fmt: skip
            self.next_stats_report = self.iter + self.compression_stats_logging_frequency

    def recall(self, index: int, values: Tensor) -> Any:
        """Add what bucket ``index`` owes to ``values``; where the next error is to be kept (None:
        nowhere)."""
        if not self.use_error_feedback:
            return None
        error: Any = self.error_dict.get(index)
        if error is None:
            memory = memory_of(values.array)
            zeros = memory.zeros(values.array.shape, values.array.dtype)
            error = self.error_dict[index] = wrap(memory.held(zeros))
        else:
            _check_size("error_dict", index, error, values.array.size)
            values.add_(error)
        return error

    def forget(self) -> None:
        """Drop what is not used again."""
        if not self.warm_start:
            self.p_memory_dict.clear()
            self.q_memory_dict.clear()

    def narrow(
        self, index: int, group: ProcessGroup, families: Sequence[Family], like: Tensor
    ) -> bool:
        """Make the memory of all P and all Q of a bucket, unless it has been kept; whether Q is
        to be filled."""
        if self.warm_start and index in self.p_memory_dict:
            for memory, wanted in ((self.p_memory_dict, "rows"), (self.q_memory_dict, "cols")):
                size = sum(len(f.places) * getattr(f, wanted) * f.rank for f in families)
                _check_size(f"{wanted} of P and Q", index, memory[index], size)
            return False
        p = sum(len(f.places) * f.rows * f.rank for f in families)
        q = sum(len(f.places) * f.cols * f.rank for f in families)
        kind, place = like.array.dtype, memory_of(like.array)
        self.p_memory_dict[index] = wrap(place.held(place.flat(group, p, kind)))
        self.q_memory_dict[index] = wrap(place.held(place.flat(group, q, kind)))
        return True


def _check_size(what: str, index: int, kept: Tensor, size: int) -> None:
    if kept.array.size != size:
        raise ConfigError(
            f"powerSGD_hook: the state remembers {kept.array.size} elements ({what}) of bucket "
            f"{index}, which now needs {size}; a state belongs to one model with the same buckets: "
            "make a new one"
        )


def _cut(memory: Tensor, families: Sequence[Family], side: str) -> list[Any]:
    """(batch, rows or cols, rank) of each family, in one piece of memory."""
    out, at = [], 0
    for f in families:
        shape = (len(f.places), getattr(f, side), f.rank)
        n = math.prod(shape)
        out.append(memory[at : at + n].view(shape))
        at += n
    return out


class _Round:
    """One bucket on its way: P is under way when it is made, ``finish`` does the rest."""

    def __init__(
        self, state: PowerSGDState, bucket: GradBucket, buffer: Any, gradients: list[Any],
        chosen: Approximation,
    ) -> None:  # fmt: skip
        self.state, self.bucket, self.buffer = state, bucket, buffer
        self.index, self.families = bucket.index(), chosen.families
        self.group = group = group_or_default(state.process_group)
        self.error = state.recall(self.index, buffer)
        self.ends = list(accumulate((g.array.size for g in gradients), initial=0))
        self.plain = [gradients[i] for i in chosen.plain]
        self.targets = [
            [gradients[i].view(f.rows, f.cols) for i in f.places] for f in self.families
        ]
        self.matrices = [stack(ms) if len(ms) > 1 else ms[0].unsqueeze(0) for ms in self.targets]
        self.sent: Any = None
        if self.plain:
            total = sum(g.array.size for g in self.plain)
            memory = memory_of(buffer.array)
            flat = memory.flat(group, total, buffer.array.dtype)
            self.flat: Any = wrap(memory.held(flat))
            for g, place in self._plain_places():
                place.copy_(g)
            self.sent = started(self.flat, group)
        self.fresh = state.narrow(self.index, group, self.families, buffer)
        self.ps = _cut(state.p_memory_dict[self.index], self.families, "rows")
        self.qs = _cut(state.q_memory_dict[self.index], self.families, "cols")
        self._begin()

    def _plain_places(self) -> list[tuple[Any, Any]]:
        out, at = [], 0
        for g in self.plain:
            n = g.array.size
            out.append((g, self.flat[at : at + n].view(g.shape)))
            at += n
        return out

    def _begin(self) -> None:
        epsilon = self.state.orthogonalization_epsilon
        if self.fresh:
            generator = Generator().manual_seed(int(self.state.rng.randint(_SEEDS)))
            for q in self.qs:
                fresh: Any = randn(tuple(q.shape), generator=generator, dtype=q.dtype)
                q.copy_(fresh.to(q.device))
        for m, p, q in zip(self.matrices, self.ps, self.qs, strict=True):
            orthogonalize(q, epsilon)
            p.copy_(matmul(m, q))
        self.work = started(self.state.p_memory_dict[self.index], self.group)

    def finish(self, future: Future) -> Tensor:
        """P is summed: orthogonalize it, find Q, and put the gradients together again."""
        future.value()
        state, size = self.state, self.group.size
        with no_grad():
            for m, p, q in zip(self.matrices, self.ps, self.qs, strict=True):
                orthogonalize(p, state.orthogonalization_epsilon)
                q.copy_(matmul(m.transpose(1, 2), p))
            memory: Any = state.q_memory_dict[self.index]
            all_reduce(memory, group=self.group)
            memory.div_(size)
            for f, targets, p, q in zip(self.families, self.targets, self.ps, self.qs, strict=True):
                for i, target in enumerate(targets):
                    self._replace(f, f.places[i], target, matmul(p[i], q[i].t()))
            if self.sent is not None:
                self.sent.wait()
                self.flat.div_(size)
                for g, place in self._plain_places():
                    g.copy_(place)
            state.forget()
        state.maybe_increase_iter(self.bucket)
        return self.buffer

    def _replace(self, f: Family, place: int, target: Tensor, near: Tensor) -> None:
        """``target`` becomes what is ``near`` it; the difference is kept."""
        if self.error is not None:
            left = self.error[self.ends[place] : self.ends[place + 1]].view(f.rows, f.cols)
            left.copy_(target)
            left.sub_(near)
        target.copy_(near)


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:  # noqa: N802
    """Average gradients of low rank: each parameter's as one matrix, vectors and small matrices as
    they are."""
    buffer: Any = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return averaged(state.process_group, buffer)
    gradients: list[Any] = list(bucket.gradients())
    chosen = plan(
        [tuple(g.shape) for g in gradients], state.matrix_approximation_rank,
        state.min_compression_rate, state.batch_tensors_with_same_shape,
    )  # fmt: skip
    state.count(bucket, chosen.before, chosen.after)
    with no_grad():
        started = _Round(state, bucket, buffer, gradients, chosen)
    return started.work.get_future().then(started.finish)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:  # noqa: N802
    """As ``powerSGD_hook``, with the whole bucket as one square matrix: faster, and less exact."""
    buffer: Any = bucket.buffer()
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return averaged(state.process_group, buffer)
    total = buffer.array.size
    side = math.isqrt(total - 1) + 1
    rank = min(state.matrix_approximation_rank, side)
    state.count(bucket, total, 2 * side * rank)
    with no_grad():
        memory = memory_of(buffer.array)
        square: Any = wrap(memory.held(memory.zeros(side * side, buffer.array.dtype)))
        square[:total].copy_(buffer)
        chosen = Approximation((Family((0,), side, side, rank),), (), total, 2 * side * rank)
        started = _Round(state, bucket, square, [square], chosen)

    def truncate(future: Future[Any]) -> Tensor:
        with no_grad():
            return buffer.copy_(future.value()[:total])

    return started.work.get_future().then(started.finish).then(truncate)


__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]
