"""Settings of ``FullyShardedDataParallel`` under PyTorch's names: data, checked by nobody.

What they mean for a unit is decided in ``wrapper``; nothing here knows a module or a group, beside
the class of batch norms, which mixed precision leaves alone unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from ...nn.modules.batchnorm import _BatchNorm


class ShardingStrategy(Enum):
    """What is kept in shards, and when a unit's full weights are let go of.

    ``FULL_SHARD``: parameters, gradients and optimizer state are sharded; full weights live from
    just before a unit's forward (backward) to just after it. ``SHARD_GRAD_OP``: the same, but full
    weights stay from forward to the end of backward. ``NO_SHARD``: everything is replicated and
    gradients are averaged, as by DDP. ``HYBRID_SHARD``: ``FULL_SHARD`` inside each replica of a
    two-dimensional mesh, gradients averaged between the replicas. ``_HYBRID_SHARD_ZERO2``: the same
    with ``SHARD_GRAD_OP``.
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
KEEPS_AFTER_FORWARD = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


class BackwardPrefetch(Enum):
    """When backward gathers the next unit: before (``BACKWARD_PRE``) or after (``BACKWARD_POST``)
    the gradients of the current one; None gathers it when it is needed."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Element types of one unit; None keeps the parameters' own.

    ``param_dtype``: full weights, and so forward and backward. Shards, and so the optimizer, keep
    the original type. ``reduce_dtype``: gradients on the wire (None: ``param_dtype``).
    ``buffer_dtype``: buffers, from the first forward on. ``keep_low_precision_grads``: leave the
    gradients in the type of the reduction. ``cast_forward_inputs``: give forward its floating
    inputs in ``param_dtype``; ``cast_root_forward_inputs`` says so for the root instead.
    ``_module_classes_to_ignore``: with an auto-wrap policy these become units of their own in their
    own types.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """``offload_params``: shards and their gradients live on the CPU while they are not in use."""

    offload_params: bool = False


class StateDictType(Enum):
    """What ``state_dict`` gives and ``load_state_dict`` takes.

    ``FULL_STATE_DICT``: whole parameters under the names of the unwrapped module.
    ``LOCAL_STATE_DICT``: each unit's own shard as one vector. ``SHARDED_STATE_DICT``: parameters
    under the names of the unwrapped module, each as a sharded tensor, which loads on any other
    number of ranks.
    """

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """``offload_to_cpu``: values of a state dict are on the CPU."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """``rank0_only``: the first rank alone gets the values, the others an empty dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Settings of ``LOCAL_STATE_DICT``."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Settings of ``SHARDED_STATE_DICT``. ``_use_dtensor`` is kept and told: shards are ``DTensor``
    where they lie on a mesh."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """``offload_to_cpu``: values of an optimizer's state dict are on the CPU."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """``rank0_only``: the first rank alone gets the values, the others an empty dict."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Settings of an optimizer's ``LOCAL_STATE_DICT``."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Settings of an optimizer's ``SHARDED_STATE_DICT``; ``_use_dtensor`` as for the model."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """What ``set_state_dict_type`` has set."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig


class OptimStateKeyType(Enum):
    """How an optimizer's state dict names parameters."""

    PARAM_NAME = auto()
    PARAM_ID = auto()
