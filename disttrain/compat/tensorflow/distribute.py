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
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from ...distributed import strategies
from ...distributed.strategies import CURRENT, ReplicaContext, Resolver
from ...errors import CommError
from ...graphs import within
from ...keyed import streams
from .data import AutoShardPolicy, DatasetV2
from .dispatch import execute
from .errors import invalid
from .math import made
from .tensor import convert

# How replicas' values are joined; what gives a replica its input.
ReduceOp = enum.Enum("ReduceOp", {"SUM": "SUM", "MEAN": "MEAN"})
InputReplicationMode = enum.Enum(
    "InputReplicationMode", {"PER_WORKER": "PER_WORKER", "PER_REPLICA": "PER_REPLICA"}
)
_IN_KERAS = "disttrain.compat.keras.data_parallel"


def get_replica_context() -> ReplicaContext | None:
    """The context of ``run``, or the default one; None in cross-replica context."""
    return None if strategies.in_cross_replica_context() else ReplicaContext(get_strategy())


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

    def value(self, given: Any) -> Any:
        return convert(given)

    def apply(self, kind: str, fn: Callable[[Any], Any], value: Any) -> Any:
        def call(x: Any) -> Any:
            try:
                return fn(x)
            except CommError as error:
                raise invalid(str(error), "UnavailableError") from error

        return execute(kind, call, [convert(value)])

    def streams(self) -> tuple:
        return lambda: streams.seeds().state(), lambda state: streams.seeds().put(state)

    @contextlib.contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Variables that are made inside are the same on all ranks."""
        self._tell_keras()
        with super().scope():
            yield self
        self._tell_keras()  # (it may have been loaded inside)

    def _tell_keras(self) -> None:
        """Models are fitted by all ranks, where Keras is loaded."""
        keras: Any = sys.modules.get("keras")
        if self.num_replicas_in_sync > 1 and _IN_KERAS in sys.modules:
            keras.distribution.set_distribution(keras.distribution.DataParallel())

    def run(self, fn: Callable, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """``fn`` on this rank's values; what it returns is the value of this replica."""
        with within(_summed) if self.num_replicas_in_sync > 1 else contextlib.nullcontext():
            return self.step(fn, args, kwargs)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """This rank's part of each batch, which is that of all replicas together."""
        policy = dataset.options().experimental_distribute.auto_shard_policy
        part = self.part(dataset.pipeline, policy is not AutoShardPolicy.OFF)
        return DistributedDataset(part, "Distributed", dataset.options())

    def distribute_datasets_from_function(self, dataset_fn: Callable, options: Any = None) -> Any:
        """What ``dataset_fn(input_context)`` makes: batches of one replica."""
        found = dataset_fn(self.input_context())
        return DistributedDataset(found.pipeline, "Distributed", found.options())

    def experimental_distribute_values_from_function(self, value_fn: Callable) -> Any:
        """What ``value_fn(context)`` gives for this replica."""
        size = self.num_replicas_in_sync
        told = SimpleNamespace(replica_id_in_sync_group=self.rank, num_replicas_in_sync=size)
        return value_fn(told)

    experimental_distribute_datasets_from_function = distribute_datasets_from_function
    experimental_local_results = strategies.Strategy.local_results


def _summed() -> Any:
    """Gradients that an optimizer of Keras applies are summed over the ranks."""
    module: Any = sys.modules.get(_IN_KERAS)
    return contextlib.nullcontext() if module is None else module.stepping()


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
EXPERIMENTAL: dict[str, Any] = {"MultiWorkerMirroredStrategy": CollectiveAllReduceStrategy}
NAMED: dict[str, Any] = {
    **EXPERIMENTAL, **{x.__name__: x for x in (
        DistributedDataset, InputContext, InputOptions, InputReplicationMode, MirroredStrategy,
        OneDeviceStrategy, ReduceOp, ReplicaContext, Strategy, get_strategy, get_replica_context,
        strategies.has_strategy, strategies.in_cross_replica_context)},
}  # fmt: skip
NN: dict[str, Any] = made(
    """
    - compute_average_loss=average_loss | per_example_loss~ sample_weight~=None
      global_batch_size=None;
    - scale_regularization_loss=scaled_penalty | regularization_loss!""",
    (strategies,),
)
RESOLVERS: dict[str, Any] = {"TFConfigClusterResolver": Resolver}
