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
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...distributed import strategies
from ...distributed.strategies import ReplicaContext, Resolver
from ...errors import CommError
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


def InputOptions(**options: Any) -> Any:  # noqa: N802  (a class there)
    """What may be said of inputs; without effect, as each rank has one device."""
    return SimpleNamespace(**{
        "experimental_fetch_to_device": True, "experimental_per_replica_buffer_size": 1,
        "experimental_replication_mode": InputReplicationMode.PER_WORKER, **options})  # fmt: skip


class InputContext(strategies.InputContext):
    title = "tf.distribute.InputContext"


class DistributedDataset(DatasetV2):
    """This rank's part of a dataset."""


DistributedDataset.__module__ = "tensorflow.python.distribute.input_lib"


class Strategy(strategies.Strategy):
    """One replica for each rank."""

    context, dataset = InputContext, DistributedDataset
    value: Any = staticmethod(convert)

    def __init__(self, devices: Any = None, cross_device_ops: Any = None, **options: Any) -> None:
        super().__init__(**options)

    def apply(self, kind: str, fn: Callable[[Any], Any], value: Any) -> Any:
        def call(x: Any) -> Any:
            try:
                return fn(x)
            except CommError as error:
                raise invalid(str(error), "UnavailableError") from error

        return execute(kind, call, [convert(value)])

    def streams(self) -> tuple:
        return lambda: streams.seeds().state(), lambda state: streams.seeds().put(state)

    def entered(self) -> None:
        """Models are fitted by all ranks, where Keras is loaded."""
        keras: Any = sys.modules.get("keras")
        if self.num_replicas_in_sync > 1 and _IN_KERAS in sys.modules:
            keras.distribution.set_distribution(keras.distribution.DataParallel())

    def stepping(self) -> Any:
        """Gradients that an optimizer of Keras applies are summed over the ranks."""
        module: Any = sys.modules.get(_IN_KERAS)
        return contextlib.nullcontext() if module is None else module.stepping()

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """This rank's part of each batch, which is that of all replicas together."""
        policy = dataset.options().experimental_distribute.auto_shard_policy
        return self.spread(dataset, policy is not AutoShardPolicy.OFF)

    distribute_datasets_from_function = strategies.Strategy.made_by
    experimental_distribute_datasets_from_function = strategies.Strategy.made_by
    experimental_distribute_values_from_function = strategies.Strategy.values_from_function
    experimental_local_results = strategies.Strategy.local_results


class MirroredStrategy(Strategy):
    """All ranks of the job."""


class CollectiveAllReduceStrategy(Strategy):
    """All ranks of all hosts."""

    def __init__(self, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        super().__init__(cluster_resolver=cluster_resolver or Resolver())


class OneDeviceStrategy(Strategy):
    """This rank alone."""

    several = False


EXPERIMENTAL: dict[str, Any] = {"MultiWorkerMirroredStrategy": CollectiveAllReduceStrategy}
NAMED: dict[str, Any] = {
    **EXPERIMENTAL, **{x.__name__: x for x in (
        DistributedDataset, InputContext, InputOptions, InputReplicationMode, MirroredStrategy,
        OneDeviceStrategy, ReduceOp, ReplicaContext, Strategy, strategies.has_strategy,
        strategies.in_cross_replica_context)},
    "get_strategy": OneDeviceStrategy.current, "get_replica_context": OneDeviceStrategy.replica,
}  # fmt: skip
NN: dict[str, Any] = made("""
    - scale_regularization_loss=scaled_penalty | regularization_loss!;
    - compute_average_loss=average_loss | per_example_loss~ sample_weight~=None
      global_batch_size=None""", (strategies,))  # fmt: skip
RESOLVERS: dict[str, Any] = {"TFConfigClusterResolver": Resolver}
