"""Simulated ranks in one group over NCCL, each with a device of the double."""

from __future__ import annotations

from typing import Any

import disttrain.distributed as dist
from disttrain.comm.group.device_setup import place
from disttrain.comm.transports import sim
from disttrain.distributed.groups.state import group_or_default
from support.device_groups import OnDevice
from support.ranks import Outcome


def outcomes_on(platform: Any, n: int, fn: Any, bind: bool = True) -> list[Outcome]:
    def body() -> Any:
        dist.init_process_group("nccl", timeout=20.0)
        place()
        return fn(OnDevice(group_or_default(), platform, dist.get_rank(), bind))

    tasks = sim.run_tasks(body, n, seed=n).tasks
    return [
        Outcome(t.rank, t.result, t.error, t.text, exitcode=0 if t.error is None else 1)
        for t in tasks
    ]
