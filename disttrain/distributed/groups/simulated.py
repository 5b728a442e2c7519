"""What a simulated cluster wants to know of the training that runs on it: when a step has ended."""

from __future__ import annotations

from typing import Any

from ... import context
from ...comm.transports.sim.fabric import fabric
from ...optim.state import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_STEPS = "distributed.steps"  # of a rank: its optimizers in the middle of a step, outermost first


def watch_steps() -> None:
    """Tell the cluster of the calling rank, if it is on one, of each step of an optimizer. One that
    steps inside of another one's step (that of a sharded optimizer) is part of that."""
    cluster, slots = fabric(), context.current().slots
    if cluster is None or _STEPS in slots:
        return
    inside: list[Any] = slots.setdefault(_STEPS, [])

    def begins(optimizer: object, *_: dict | tuple) -> None:
        if any(optimizer is each for each in inside):  # an exception has ended that step
            inside.clear()
        inside.append(optimizer)

    def ends(optimizer: object, *_: dict | tuple) -> None:
        while inside and inside.pop() is not optimizer:
            pass
        if not inside:
            cluster.step()

    register_optimizer_step_pre_hook(begins)
    register_optimizer_step_post_hook(ends)
