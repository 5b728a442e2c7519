"""``tf.distribute``: strategies over the ranks that dtrun (or ``TF_CONFIG``) has started.

Every rank is one replica and runs the same program: ``run`` calls the function here, on this rank's
part of each batch, and a per-replica value is the value of this rank. Ranks draw the same numbers
inside of ``scope()``, so variables made there begin equal; gradients that an optimizer applies
inside of ``run`` are summed over the replicas. A model of Keras that is made in a scope is fitted
as ``keras.distribution.DataParallel`` does it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...data.pipeline import Pipeline
from ...data.pipeline.elements import flatten, map_leaves
from ...distributed.replicas import after_another, cluster_told, ranks, same_draws, together
from ...errors import CommError
from . import random as streams
from .data import AutoShardPolicy, DatasetV2, invalid
from .dispatch import execute
from .tensor import GRAPH, convert

_KERAS = "disttrain.compat.keras"


ReduceOp = enum.Enum("ReduceOp", {"SUM": "SUM", "MEAN": "MEAN"})  # how replicas' values are joined
InputReplicationMode = enum.Enum(
    "InputReplicationMode", {"PER_WORKER": "PER_WORKER", "PER_REPLICA": "PER_REPLICA"}
)


def _op(value: Any) -> Any:
    return value if isinstance(value, ReduceOp) else ReduceOp(str(value).upper())


# --- where one is ---------------------------------------------------------------------------------
_CURRENT: ContextVar[Strategy | None] = ContextVar("strategy", default=None)
_REPLICA: ContextVar[bool] = ContextVar("replica", default=False)


@dataclass(frozen=True)
class InputContext:
    """Which input of how many a function makes."""

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
        return (f"tf.distribute.InputContext(input pipeline id {self.input_pipeline_id}, total: "
                f"{self.num_input_pipelines})")  # fmt: skip


class ReplicaContext:
    """What a function that ``run`` calls may ask."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    @property
    def replica_id_in_sync_group(self) -> Any:
        """This replica's number."""
        return convert(np.int32(self.strategy.rank))

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self.strategy.num_replicas_in_sync

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """The sum, or the mean, of the replicas' values; gradients go through it."""
        return map_leaves(lambda v: _reduced(_op(reduce_op), v), value)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """The replicas' values, one after the other."""
        return map_leaves(lambda v: _gathered(v, axis), value)

    def merge_call(self, merge_fn: Callable, args: tuple = (), kwargs: dict | None = None) -> Any:
        """``merge_fn(strategy, *args)`` in cross-replica context."""
        token = _REPLICA.set(False)
        try:
            return merge_fn(self.strategy, *args, **(kwargs or {}))
        finally:
            _REPLICA.reset(token)


def _reduced(op: Any, value: Any) -> Any:
    mean = op is ReduceOp.MEAN
    return _collective("CollectiveReduceV2", lambda x: together(x, mean), value)


def _gathered(value: Any, axis: int) -> Any:
    return _collective("CollectiveGatherV2", lambda x: after_another(x, axis), value)


def _collective(kind: str, fn: Callable[[Any], Any], value: Any) -> Any:
    def call(x: Any) -> Any:
        try:
            return fn(x)
        except CommError as error:
            raise invalid(str(error), "UnavailableError") from error

    t = convert(value)
    return t if ranks()[1] == 1 else execute(kind, call, [t])


def in_cross_replica_context() -> bool:
    """In a scope, and not in a function that ``run`` calls?"""
    return _CURRENT.get() is not None and not _REPLICA.get()


def get_replica_context() -> ReplicaContext | None:
    """The context of ``run``, or the default one; None in cross-replica context."""
    return None if in_cross_replica_context() else ReplicaContext(get_strategy())


def has_strategy() -> bool:
    """Is a strategy in force?"""
    return _CURRENT.get() is not None


def get_strategy() -> Strategy:
    """The strategy in force, or the default one of a single replica."""
    return _CURRENT.get() or _DEFAULT


# --- inputs ---------------------------------------------------------------------------------------
def InputOptions(**options: Any) -> Any:  # noqa: N802  (a class there)
    """What may be said of inputs; without effect, as each rank has one device."""
    return SimpleNamespace(**{
        "experimental_fetch_to_device": True, "experimental_per_replica_buffer_size": 1,
        "experimental_replication_mode": InputReplicationMode.PER_WORKER, **options})  # fmt: skip


class DistributedDataset(DatasetV2):
    """This rank's part of a dataset."""


DistributedDataset.__module__ = "tensorflow.python.distribute.input_lib"


def _part(dataset: DatasetV2, rank: int, size: int) -> Pipeline:
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy is not AutoShardPolicy.OFF or size == 1:
        return dataset.pipeline.distribute(size, rank)
    sizes = {s.shape[0] if s.shape else None for s in flatten(dataset.pipeline.element_spec)[0]}
    first = next(iter(dataset.pipeline), None) if None in sizes else None
    rows = len(flatten(first)[0][0]) if first is not None else next(iter(sizes)) or size
    return dataset.pipeline.rebatch([max(rows // size, 1)])


# --- strategies -----------------------------------------------------------------------------------
class Strategy:
    """One replica for each rank."""

    cluster_resolver: Any = None
    _several = True

    def __init__(self, devices: Any = None, cross_device_ops: Any = None, **options: Any) -> None:
        self.rank, self.num_replicas_in_sync = ranks() if self._several else (0, 1)
        self.extended = self

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Variables that are made inside are the same on all ranks."""
        token, replica = _CURRENT.set(self), _REPLICA.set(False)
        try:
            with self._alike():
                yield self
        finally:
            _CURRENT.reset(token)
            _REPLICA.reset(replica)

    @contextlib.contextmanager
    def _alike(self) -> Iterator[None]:
        """All ranks draw what rank 0 draws; afterwards each goes on with its own numbers."""
        if self.num_replicas_in_sync == 1:
            yield
            return
        _tell_keras()
        with same_draws(_seeds, _set_seeds):
            yield
        _tell_keras()  # (it may have been loaded inside)

    def run(
        self,
        fn: Callable[..., Any],
        args: Any = (),
        kwargs: dict | None = None,
        options: Any = None,
    ) -> Any:
        """``fn`` on this rank's values; what it returns is the value of this replica."""
        token, replica = _CURRENT.set(self), _REPLICA.set(True)
        graph = GRAPH.get()
        before = 0 if graph is None else len(graph.operations)
        try:
            with _summed(self.num_replicas_in_sync):
                return fn(*args, **(kwargs or {}))
        finally:
            if graph is not None:
                _sum_later(graph.operations[before:], self.num_replicas_in_sync)
            _CURRENT.reset(token)
            _REPLICA.reset(replica)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """The replicas' values together; with ``axis``, their rows, too."""
        op = _op(reduce_op)

        def one(v: Any) -> Any:
            if axis is None:
                return _reduced(op, v)
            total = execute("Sum", lambda x: x.sum(axis), [convert(v)])
            total = _reduced(ReduceOp.SUM, total)
            if op is ReduceOp.SUM:
                return total
            count = _reduced(ReduceOp.SUM, np.int64(convert(v).shape[axis])).numpy()
            return execute("RealDiv", lambda x: x / int(count), [total])

        return map_leaves(one, value)

    def gather(self, value: Any, axis: int) -> Any:
        """The replicas' values, one after the other."""
        return map_leaves(lambda v: _gathered(v, axis), value)

    def experimental_local_results(self, value: Any) -> tuple:
        """The values of this process's replicas: one."""
        return (value,)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """This rank's part of each batch, which is that of all replicas together."""
        part = _part(dataset, self.rank, self.num_replicas_in_sync)
        return DistributedDataset(part, "Distributed", dataset.options())

    def distribute_datasets_from_function(self, dataset_fn: Callable, options: Any = None) -> Any:
        """What ``dataset_fn(input_context)`` makes: batches of one replica."""
        size = self.num_replicas_in_sync
        made = dataset_fn(InputContext(size, self.rank, size))
        return DistributedDataset(made.pipeline, "Distributed", made.options())

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_distribute_values_from_function(self, value_fn: Callable) -> Any:
        """What ``value_fn(context)`` gives for this replica."""
        size = self.num_replicas_in_sync
        return value_fn(
            SimpleNamespace(replica_id_in_sync_group=self.rank, num_replicas_in_sync=size)
        )


def _tell_keras() -> None:
    """Models are fitted by all ranks, where Keras is loaded."""
    keras: Any = sys.modules.get("keras")
    if f"{_KERAS}.data_parallel" in sys.modules:
        keras.distribution.set_distribution(keras.distribution.DataParallel())


def _seeds() -> tuple:
    """The state of TensorFlow's stream of seeds."""
    seeds = streams._current()
    return seeds.seed, seeds.stream.getstate()


def _set_seeds(state: tuple) -> None:
    seeds = streams._current()
    seeds.seed = state[0]
    seeds.stream.setstate(state[1])


def _summed(size: int) -> Any:
    """Gradients that an optimizer of Keras applies are summed over the ranks."""
    module: Any = sys.modules.get(f"{_KERAS}.data_parallel") if size > 1 else None
    return contextlib.nullcontext() if module is None else module.summed()


def _sum_later(operations: list, size: int) -> None:
    """The same when a traced function runs them."""
    for op in operations if size > 1 else ():
        if op.call is not None:
            op.call = functools.partial(_called_summed, op.call, size)


def _called_summed(call: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> Any:
    with _summed(size):
        return call(*args, **kwargs)


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Any:
    """The sum of these losses over the rows of all replicas together."""
    loss = convert(per_example_loss)
    if sample_weight is not None:
        loss = loss * convert(sample_weight, hint=loss.dtype)
    if global_batch_size is None:
        global_batch_size = loss.shape[0] * get_strategy().num_replicas_in_sync
    rows = global_batch_size
    return execute("Sum", lambda x: x.sum(), [loss]) / (
        int(rows) if isinstance(rows, int) else rows
    )


def scale_regularization_loss(regularization_loss: Any) -> Any:
    """The loss of which all replicas together have one."""
    return convert(regularization_loss) / get_strategy().num_replicas_in_sync


class MirroredStrategy(Strategy):
    """All ranks of the job."""


class CollectiveAllReduceStrategy(Strategy):
    """All ranks of all hosts."""

    def __init__(self, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        super().__init__()
        self.cluster_resolver = cluster_resolver or TFConfigClusterResolver()


class OneDeviceStrategy(Strategy):
    """This rank alone."""

    _several = False


_DEFAULT = OneDeviceStrategy()


class TFConfigClusterResolver:
    """The cluster that ``TF_CONFIG`` tells of."""

    def __init__(self, task_type: str | None = None, task_id: int | None = None, **_: Any) -> None:
        self._cluster, kind, index = cluster_told()
        self.task_type = task_type or (kind if self._cluster else "")
        self.task_id = index if task_id is None else task_id

    def cluster_spec(self) -> ClusterSpec:
        """The cluster."""
        return ClusterSpec(self._cluster)


class ClusterSpec(dict):
    """Addresses by kind of task."""

    as_dict = dict.copy
    jobs = property(sorted)

    def num_tasks(self, job_name: str) -> int:
        """How many tasks of a kind there are."""
        return len(self[job_name])

    def __repr__(self) -> str:
        return f"ClusterSpec({super().__repr__()})"


NAMED: dict[str, Any] = {
    "DistributedDataset": DistributedDataset, "InputContext": InputContext,
    "InputOptions": InputOptions, "InputReplicationMode": InputReplicationMode,
    "MirroredStrategy": MirroredStrategy, "OneDeviceStrategy": OneDeviceStrategy,
    "MultiWorkerMirroredStrategy": CollectiveAllReduceStrategy, "ReduceOp": ReduceOp,
    "ReplicaContext": ReplicaContext, "Strategy": Strategy, "get_strategy": get_strategy,
    "get_replica_context": get_replica_context, "has_strategy": has_strategy,
    "in_cross_replica_context": in_cross_replica_context,
}  # fmt: skip
NN: dict[str, Any] = {
    "compute_average_loss": compute_average_loss,
    "scale_regularization_loss": scale_regularization_loss,
}
RESOLVERS: dict[str, Any] = {"TFConfigClusterResolver": TFConfigClusterResolver}
EXPERIMENTAL: dict[str, Any] = {"MultiWorkerMirroredStrategy": CollectiveAllReduceStrategy}
