"""Sharded data parallelism: units whose parameters live in shards and are gathered to compute."""

from .flat.param import FlatParameter
from .flat.wrapper import FullyShardedDataParallel
from .fully_shard import fully_shard
from .module import FSDPModule, UnshardHandle, register_fsdp_forward_method, share_comm_ctx
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
from .shards.precision import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    DiskOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
)

__outward__ = ("fully_shard (FSDP)", "")
