"""Sharded data parallelism: units whose parameters live in shards and are gathered to compute."""

from .flat_param import FlatParameter
from .fully_shard import fully_shard
from .module import FSDPModule, UnshardHandle, register_fsdp_forward_method, share_comm_ctx
from .precision import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    DiskOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from .report import MemoryReport, UnitMemory, memory_report
from .settings import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from .wrapper import FullyShardedDataParallel
