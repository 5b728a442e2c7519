"""What a wrapper does around a forward, as effects: a captured forward does it again each time.

Knows the wrapper by its methods.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ...context import thread
from ...core.effects import Effect, performed
from ...core.node import GraphNode
from ...core.tensor import Tensor, wrap
from .reducer.graph import below, nodes_of
from .reducer.stores import ARMED

__outward__ = ()

# Attributes of a wrapper that effects look at when they are done, and that change.
MOVING = (
    "process_group", "reducer", "delayed", "buffer_hook", "bucket_caps", "_end", "_frozen",
    "_join_config", "require_forward_param_sync",
)  # fmt: skip


def before(ddp: Any, recording: bool, sync: bool) -> None:
    """What ranks do together before a forward. ``recording``: gradients may be wanted; ``sync``:
    and averaged."""
    if thread.stack:
        buffers = ddp._buffers_to_sync()
        effect = _Before(ddp, recording, sync)
        performed("ddp_before_forward", effect, buffers, range(len(buffers)))
    else:
        ddp._before_forward(recording, sync)


def after(ddp: Any, sync: bool, outputs: object) -> None:
    """Let the next backward be that of ``outputs``."""
    if thread.stack:
        performed("ddp_after_forward", _After(ddp, sync, outputs))
    else:
        ddp._after_forward(sync, outputs)


class _Before(Effect):
    def __init__(self, ddp: Any, recording: bool, sync: bool) -> None:
        self.ddp, self.recording, self.sync = ddp, recording, sync

    def __call__(self, *buffers: Tensor) -> None:
        self.ddp._before_forward(self.recording, self.sync)

    def __repr__(self) -> str:
        return f"<{'synchronised' if self.sync else 'local'}>"


class _After(Effect):
    """``outputs`` are those of the captured forward; a replay has a tensor in their place, whose
    node leads to the same parameters, until it gives its own results."""

    def __init__(self, ddp: Any, sync: bool, outputs: object) -> None:
        self.ddp, self.sync, self.outputs = ddp, sync, outputs
        self.leaves: tuple[Any, ...] | None = None

    def __call__(self, *tensors: Tensor) -> None:
        if self.leaves is None:
            found = below(nodes_of(self.outputs))
            self.leaves = tuple(n for n in self.ddp.reducer.nodes if n in found)
        else:
            self.outputs = _leading_to(self.leaves)
        self.ddp._after_forward(self.sync, self.outputs)

    def settle(self, results: tuple) -> None:
        self.outputs = None
        reducer = self.ddp.reducer
        if self.sync and reducer.phase == ARMED:
            reducer.roots = [weakref.ref(node) for node in nodes_of(results)]

    def __repr__(self) -> str:
        return f"<{'synchronised' if self.sync else 'local'}>"


def _leading_to(leaves: tuple[Any, ...]) -> Tensor:
    out = wrap(np.empty(0))
    out._node = GraphNode()
    out._node.edges = leaves
    return out


__all__ = ["MOVING", "after", "before"]
