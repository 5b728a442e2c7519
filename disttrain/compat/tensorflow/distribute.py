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
from types import SimpleNamespace
from typing import Any

import numpy as np

from ... import tree
from ...distributed import strategies
from ...distributed.replicas import place
from ...distributed.strategies import CURRENT, REPLICA, Resolver
from ...errors import CommError
from ...keyed import streams
from .data import AutoShardPolicy, DatasetV2
from .dispatch import execute
from .errors import invalid
from .tensor import GRAPH, convert

_KERAS = "disttrain.compat.keras"
ReduceOp = enum.Enum("ReduceOp", {"SUM": "SUM", "MEAN": "MEAN"})  # how replicas' values are joined
InputReplicationMode = enum.Enum(
    "InputReplicationMode", {"PER_WORKER": "PER_WORKER", "PER_REPLICA": "PER_REPLICA"}
)


def _reduced(value: Any, reduce_op: Any, axis: int | None = None) -> Any:
    op = reduce_op if isinstance(reduce_op, ReduceOp) else ReduceOp(str(reduce_op).upper())
    mean = op is ReduceOp.MEAN
    return _collective("CollectiveReduceV2", lambda x: strategies.reduced(x, mean, axis), value,
                       axis is not None)  # fmt: skip


def _gathered(value: Any, axis: int) -> Any:
    return _collective("CollectiveGatherV2", lambda x: strategies.gathered(x, axis), value)


def _collective(kind: str, fn: Callable[[Any], Any], value: Any, alone: bool = False) -> Any:
    def call(x: Any) -> Any:
        try:
            return fn(x)
        except CommError as error:
            raise invalid(str(error), "UnavailableError") from error

    def one(v: Any) -> Any:
        t = convert(v)
        return execute(kind, call, [t]) if alone or place()[1] > 1 else t

    return tree.map(one, value)


class ReplicaContext:
    """What a function that ``run`` calls may ask."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    num_replicas_in_sync = property(lambda self: self.strategy.num_replicas_in_sync)
    replica_id_in_sync_group = property(lambda self: convert(np.int32(self.strategy.rank)))

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """The sum, or the mean, of the replicas' values; gradients go through it."""
        return _reduced(value, reduce_op)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """The replicas' values, one after the other."""
        return _gathered(value, axis)

    def merge_call(self, merge_fn: Callable, args: tuple = (), kwargs: dict | None = None) -> Any:
        """``merge_fn(strategy, *args)`` in cross-replica context."""
        with strategies.in_force(CURRENT.get(), False):
            return merge_fn(self.strategy, *args, **(kwargs or {}))


def in_cross_replica_context() -> bool:
    """In a scope, and not in a function that ``run`` calls?"""
    return CURRENT.get() is not None and not REPLICA.get()


def get_replica_context() -> ReplicaContext | None:
    """The context of ``run``, or the default one; None in cross-replica context."""
    return None if in_cross_replica_context() else ReplicaContext(get_strategy())


def has_strategy() -> bool:
    """Is a strategy in force?"""
    return CURRENT.get() is not None


def get_strategy() -> Strategy:
    """The strategy in force, or the default one of a single replica."""
    return CURRENT.get() or _DEFAULT


def InputOptions(**options: Any) -> Any:  # noqa: N802  (a class there)
    """What may be said of inputs; without effect, as each rank has one device."""
    return SimpleNamespace(**{
        "experimental_fetch_to_device": True, "experimental_per_replica_buffer_size": 1,
        "experimental_replication_mode": InputReplicationMode.PER_WORKER, **options})  # fmt: skip


class InputContext(strategies.InputContext):
    """Which input of how many a function makes."""

    title = "tf.distribute.InputContext"


class DistributedDataset(DatasetV2):
    """This rank's part of a dataset."""


DistributedDataset.__module__ = "tensorflow.python.distribute.input_lib"


class Strategy(strategies.Strategy):
    """One replica for each rank."""

    cluster_resolver: Any = None
    context = InputContext

    def __init__(self, devices: Any = None, cross_device_ops: Any = None, **options: Any) -> None:
        super().__init__()
        self.extended = self

    def streams(self) -> tuple:
        return lambda: streams.seeds().state(), lambda state: streams.seeds().put(state)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Variables that are made inside are the same on all ranks."""
        several = self.num_replicas_in_sync > 1
        _tell_keras(several)
        with super().scope():
            yield self
        _tell_keras(several)  # (it may have been loaded inside)

    def run(self, fn: Callable, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """``fn`` on this rank's values; what it returns is the value of this replica."""
        graph, size = GRAPH.get(), self.num_replicas_in_sync
        before = 0 if graph is None else len(graph.operations)
        try:
            with _summed(size):
                return self.step(fn, args, kwargs)
        finally:
            for op in graph.operations[before:] if graph is not None and size > 1 else ():
                if op.call is not None:
                    op.call = functools.partial(_called_summed, op.call, size)

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """The replicas' values together; with ``axis``, their rows, too."""
        return _reduced(value, reduce_op, axis)

    def gather(self, value: Any, axis: int) -> Any:
        """The replicas' values, one after the other."""
        return _gathered(value, axis)

    def experimental_local_results(self, value: Any) -> tuple:
        """The values of this process's replicas: one."""
        return (value,)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """This rank's part of each batch, which is that of all replicas together."""
        policy = dataset.options().experimental_distribute.auto_shard_policy
        part = self.part(dataset.pipeline, policy is not AutoShardPolicy.OFF)
        return DistributedDataset(part, "Distributed", dataset.options())

    def distribute_datasets_from_function(self, dataset_fn: Callable, options: Any = None) -> Any:
        """What ``dataset_fn(input_context)`` makes: batches of one replica."""
        made = dataset_fn(self.input_context())
        return DistributedDataset(made.pipeline, "Distributed", made.options())

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_distribute_values_from_function(self, value_fn: Callable) -> Any:
        """What ``value_fn(context)`` gives for this replica."""
        size = self.num_replicas_in_sync
        return value_fn(
            SimpleNamespace(replica_id_in_sync_group=self.rank, num_replicas_in_sync=size)
        )


def _tell_keras(several: bool) -> None:
    """Models are fitted by all ranks, where Keras is loaded."""
    keras: Any = sys.modules.get("keras")
    if several and f"{_KERAS}.data_parallel" in sys.modules:
        keras.distribution.set_distribution(keras.distribution.DataParallel())


def _summed(size: int) -> Any:
    """Gradients that an optimizer of Keras applies are summed over the ranks."""
    module: Any = sys.modules.get(f"{_KERAS}.data_parallel") if size > 1 else None
    return contextlib.nullcontext() if module is None else module.stepping()


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
    rows = global_batch_size
    if rows is None:
        rows = loss.shape[0] * get_strategy().num_replicas_in_sync
    return execute("Sum", lambda x: x.sum(), [loss]) / rows


def scale_regularization_loss(regularization_loss: Any) -> Any:
    """The loss of which all replicas together have one."""
    return convert(regularization_loss) / get_strategy().num_replicas_in_sync


class MirroredStrategy(Strategy):
    """All ranks of the job."""


class CollectiveAllReduceStrategy(Strategy):
    """All ranks of all hosts."""

    def __init__(self, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        super().__init__()
        self.cluster_resolver = cluster_resolver or Resolver()


class OneDeviceStrategy(Strategy):
    """This rank alone."""

    several = False


_DEFAULT = OneDeviceStrategy()
NAMED: dict[str, Any] = {
    "MultiWorkerMirroredStrategy": CollectiveAllReduceStrategy,
    **{x.__name__: x for x in (
        DistributedDataset, InputContext, InputOptions, InputReplicationMode, MirroredStrategy,
        OneDeviceStrategy, ReduceOp, ReplicaContext, Strategy, get_strategy, get_replica_context,
        has_strategy, in_cross_replica_context)},
}  # fmt: skip
NN: dict[str, Any] = {
    f.__name__: f for f in (compute_average_loss, scale_regularization_loss)
}  # fmt: skip
RESOLVERS: dict[str, Any] = {"TFConfigClusterResolver": Resolver}
EXPERIMENTAL: dict[str, Any] = {"MultiWorkerMirroredStrategy": CollectiveAllReduceStrategy}
