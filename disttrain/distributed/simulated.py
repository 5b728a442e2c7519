"""What a simulated cluster wants to know of the training that runs on it: when a step has ended."""

from __future__ import annotations

from .. import context
from ..comm.sim import fabric
from ..optim.state import register_optimizer_step_post_hook

_STEPS = "distributed.steps"  # of a rank: whether the cluster is told of its steps


def watch_steps() -> None:
    """Tell the cluster of the calling rank, if it is on one, of each step of an optimizer."""
    cluster, slots = fabric(), context.current().slots
    if cluster is not None and _STEPS not in slots:
        slots[_STEPS] = True
        register_optimizer_step_post_hook(lambda *_: cluster.step())
