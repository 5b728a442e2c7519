"""Training whose weights are bitwise the same on any number of ranks.

The work of a step is cut into a fixed number of virtual shards. A rank computes its shards one
after the other, and their gradients are joined by a fixed tree over all shards, of which a rank's
own part is a subtree.
"""

import importlib
from typing import Any

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

# What no wrapper needs is loaded when it is first asked for.
_NAMES = {
    "VirtualShardSampler": "sampler",
    "clip_grad_norm_": "clip",
    "squared_rows": "clip",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    globals()[name] = found
    return found
