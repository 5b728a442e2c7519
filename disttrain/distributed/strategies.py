"""Strategies: which replicas compute together, in force for a block of a program; whether one is in
a replica's own step; each replica's part of the input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import tree
from ..core.tensor import Tensor
from ..data.pipeline import Pipeline
from ..data.pipeline.elements import flatten
from ..data.pipeline.views import View
from ..graphs import within
from ..ops import api as ops
from .replicas import after_another, cluster_told, place, same_draws, together

CURRENT: ContextVar[Any] = ContextVar("strategy", default=None)
REPLICA: ContextVar[bool] = ContextVar("replica", default=False)


@dataclass(frozen=True)
class InputContext:
    """Which input of how many a function makes."""

    title: ClassVar[str] = "InputContext"
    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The rows of one replica."""
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size} is not divisible by "
                f"`num_replicas_in_sync` {self.num_replicas_in_sync}."
            )
        return global_batch_size // self.num_replicas_in_sync

    def __str__(self) -> str:
        return (f"{self.title}(input pipeline id {self.input_pipeline_id}, total: "
                f"{self.num_input_pipelines})")  # fmt: skip


class ValueContext(NamedTuple):
    """Which replica of how many a value is for."""

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1


@contextlib.contextmanager
def in_force(strategy: Any, replica: bool) -> Iterator[None]:
    """Let ``strategy`` be the one in force; ``replica``: in a replica's own step."""
    token, before = CURRENT.set(strategy), REPLICA.set(replica)
    try:
        yield
    finally:
        CURRENT.reset(token)
        REPLICA.reset(before)


def in_cross_replica_context() -> bool:
    """In the block of a strategy, and not in a replica's own step?"""
    return CURRENT.get() is not None and not REPLICA.get()


def has_strategy() -> bool:
    """Is a strategy in force?"""
    return CURRENT.get() is not None


class ReplicaContext:
    """What a replica's own step may ask."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    num_replicas_in_sync = property(lambda self: self.strategy.num_replicas_in_sync)
    replica_id_in_sync_group = property(
        lambda self: self.strategy.value(np.int32(self.strategy.rank))
    )

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """The "sum", or the "mean", of the replicas' values; gradients go through it."""
        return self.strategy.reduce(reduce_op, value, None)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """The replicas' values, one after the other."""
        return self.strategy.gather(value, axis)

    def merge_call(self, merge_fn: Callable, args: tuple = (), kwargs: dict | None = None) -> Any:
        """``merge_fn(strategy, *args)`` outside of the replica's own step."""
        with in_force(CURRENT.get(), False):
            return merge_fn(self.strategy, *args, **(kwargs or {}))


class Strategy:
    """One replica for each rank. ``several``: all ranks; else this one alone. A subclass may have
    values of another kind (``apply``, ``value``)."""

    several: ClassVar[bool] = True
    context: ClassVar[type[InputContext]] = InputContext
    dataset: ClassVar[type[View]] = View  # what views of a replica's input are

    def __init__(self, cluster_resolver: Any = None, **options: Any) -> None:
        self.rank, self.num_replicas_in_sync = place() if self.several else (0, 1)
        self.cluster_resolver, self.extended = cluster_resolver, self

    @classmethod
    def current(cls) -> Any:
        """The strategy in force; else one of this kind (of this rank alone: always the same)."""
        return CURRENT.get() or (cls() if cls.several else _alone(cls))  # type: ignore[arg-type]

    @classmethod
    def replica(cls) -> ReplicaContext | None:
        """What a replica's own step may ask; None in the block of a strategy."""
        return None if in_cross_replica_context() else ReplicaContext(cls.current())

    def value(self, given: Any) -> Any:
        """What a program gives, as a value."""
        return given

    def apply(self, kind: str, fn: Callable[[Tensor], Tensor], value: Any) -> Any:
        """``fn`` of the tensor of a value; ``kind``: what the operation is called."""
        return fn(value)

    def _each(self, kind: str, fn: Callable[[Tensor], Tensor], values: Any, alone: bool) -> Any:
        needed = alone or place()[1] > 1
        one = lambda v: self.apply(kind, fn, v) if needed else self.value(v)  # noqa: E731
        return tree.map(one, values)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """The "sum" or the "mean" of the replicas' values; with ``axis``, of their rows, too."""
        word = str(getattr(reduce_op, "name", reduce_op)).upper()
        if word not in ("SUM", "MEAN"):
            raise ValueError(f"{word!r} is not a valid ReduceOp: SUM and MEAN are")
        join = partial(reduced, mean=word == "MEAN", axis=axis)
        return self._each("CollectiveReduceV2", join, value, axis is not None)

    def gather(self, value: Any, axis: int) -> Any:
        """The replicas' values, one after the other."""
        return self._each("CollectiveGatherV2", partial(gathered, axis=axis), value, False)

    def local_results(self, value: Any) -> tuple:
        """The values of this process's replicas: one."""
        return (value,)

    def values_from_function(self, fn: Callable[[ValueContext], Any]) -> Any:
        """What ``fn(context)`` gives for this replica."""
        return fn(ValueContext(self.rank, self.num_replicas_in_sync))

    def streams(self) -> tuple[Callable[[], Any], Callable[[Any], None]]:
        """The state of one more stream of random numbers, and how it is put."""
        return (lambda: None), (lambda state: None)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Any]:
        """In the block all ranks draw what rank 0 draws; then each goes on with its own numbers."""
        alone = self.num_replicas_in_sync == 1
        self.entered()
        with in_force(self, False), contextlib.nullcontext() if alone else same_draws(
            *self.streams()):  # fmt: skip
            yield self
        self.entered()  # (what it looks for may have come inside)

    def entered(self) -> None:
        """Done where its block begins and ends."""

    def stepping(self) -> Any:
        """What is open in each replica's own step, and at every run of what is traced there."""
        return contextlib.nullcontext()

    def run(self, fn: Callable, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """``fn`` on this rank's values; what it returns is the value of this replica."""
        alone = self.num_replicas_in_sync == 1
        with contextlib.nullcontext() if alone else within(self.stepping), in_force(self, True):
            return fn(*args, **(kwargs or {}))

    def input_context(self) -> InputContext:
        """What a function that makes an input is told."""
        return self.context(self.num_replicas_in_sync, self.rank, self.num_replicas_in_sync)

    def spread(self, view: View, whole: bool = True) -> View:
        """``part`` of a view."""
        return self.dataset(self.part(view.pipeline, whole), "Distributed", view.options())

    def made_by(self, fn: Callable[[InputContext], View], options: Any = None) -> View:
        """The view that ``fn(input_context)`` makes for this replica."""
        made = fn(self.input_context())
        return self.dataset(made.pipeline, "Distributed", made.options())

    def part(self, pipeline: Pipeline, whole: bool = True) -> Pipeline:
        """This rank's part of each batch; not ``whole``: all of them, in batches of its size."""
        size = self.num_replicas_in_sync
        if whole or size == 1:
            return pipeline.distribute(size, self.rank)
        sizes = {s.shape[0] if s.shape else None for s in flatten(pipeline.element_spec)[0]}
        first = next(iter(pipeline), None) if None in sizes else None
        rows = len(flatten(first)[0][0]) if first is not None else next(iter(sizes)) or size
        return pipeline.rebatch([max(rows // size, 1)])


@cache
def _alone(kind: Any) -> Any:
    return kind()


def reduced(x: Tensor, mean: bool = False, axis: int | None = None) -> Tensor:
    """The sum (or the mean) of the replicas' ``x``; with ``axis``, of its rows, too."""
    join = place(join=False)[1] > 1
    if axis is None:
        return together(x, mean) if join else x
    total = together(x.sum(axis)) if join else x.sum(axis)
    if not mean:
        return total
    count = ops.tensor(x.shape[axis])
    return total / int(together(count) if join else count)


def average_loss(losses: Tensor, weights: Tensor | None = None, rows: Any = None) -> Tensor:
    """The sum of (weighted) losses over the rows of all replicas together: ``rows`` (None: so many
    as here on each of the strategy in force)."""
    losses = losses if weights is None else losses * weights
    return losses.sum() / (losses.shape[0] * _replicas() if rows is None else rows)


def scaled_penalty(penalty: Tensor) -> Tensor:
    """The share of one replica in what all have together once."""
    return penalty / _replicas()


def _replicas() -> int:
    return 1 if CURRENT.get() is None else int(CURRENT.get().num_replicas_in_sync)


def gathered(x: Tensor, axis: int) -> Tensor:
    """The replicas' ``x``, one after the other."""
    return after_another(x, axis) if place(join=False)[1] > 1 else x


class ClusterSpec(dict):
    """Addresses by kind of task."""

    as_dict = dict.copy
    jobs = property(sorted)

    def num_tasks(self, job_name: str) -> int:
        """How many tasks of a kind there are."""
        return len(self[job_name])

    def __repr__(self) -> str:
        return f"ClusterSpec({super().__repr__()})"


class Resolver:
    """The cluster that ``TF_CONFIG`` tells of."""

    def __init__(self, task_type: str | None = None, task_id: int | None = None, **_: Any) -> None:
        self._cluster, kind, index = cluster_told()
        self.task_type = task_type or (kind if self._cluster else "")
        self.task_id = index if task_id is None else task_id

    def cluster_spec(self) -> ClusterSpec:
        """The cluster."""
        return ClusterSpec(self._cluster)
