"""Names of disttrain.distributed.invariant. Made by scripts/stubs; not to be edited."""

from .shards import VirtualShards as VirtualShards
from .strategy import GlobalDeterminism as GlobalDeterminism
from .tree_sum import TreeSum as TreeSum
__all__ = ['GlobalDeterminism', 'TreeSum', 'VirtualShardSampler', 'VirtualShards', 'clip_grad_norm_', 'squared_rows']
from disttrain.distributed.invariant.sampler import VirtualShardSampler as VirtualShardSampler
from disttrain.distributed.invariant.clip import clip_grad_norm_ as clip_grad_norm_
from disttrain.distributed.invariant.clip import squared_rows as squared_rows
