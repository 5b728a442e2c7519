"""Units whose parameters are one vector, as ``FullyShardedDataParallel`` has them."""
