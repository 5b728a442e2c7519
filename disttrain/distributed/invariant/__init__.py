"""Training whose weights are bitwise the same on any number of ranks.

The work of a step is cut into a fixed number of virtual shards. A rank computes its shards one
after the other, and their gradients are joined by a fixed tree over all shards, of which a rank's
own part is a subtree.
"""

from .clip import clip_grad_norm_, squared_rows
from .sampler import VirtualShardSampler
from .shards import VirtualShards
from .strategy import GlobalDeterminism
from .tree_sum import TreeSum

__all__ = [
    "GlobalDeterminism",
    "TreeSum",
    "VirtualShardSampler",
    "VirtualShards",
    "clip_grad_norm_",
    "squared_rows",
]
