"""Units whose parameters are one vector, as ``FullyShardedDataParallel`` has them."""

__outward__ = ("FullyShardedDataParallel (FSDP)", "; models of fully_shard are captured")
