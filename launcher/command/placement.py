"""Which device and which cores each rank of a node gets, where these are asked for: rank r has the
visible device r modulo their number, as a script chooses by LOCAL_RANK."""

from __future__ import annotations

import dataclasses
import os

from disttrain import gpus, settings
from disttrain.errors import LaunchError

from ..options.command_line import Options
from ..plan import binding
from ..plan.job import Plan


def placed(plan: Plan, options: Options) -> Plan:
    """The plan with what is asked for of it."""
    machine, given = gpus.ask(), settings.VISIBLE_DEVICES.said()
    seen = gpus.visible(machine.cards, given, each_alone=options.virtual_local_rank)
    ranks: list[gpus.Seen | None] = [
        seen[rank % len(seen)] if seen else None for rank in range(plan.num_ranks)
    ]
    if options.virtual_local_rank:
        if machine.cards and not seen:
            why = gpus.count(machine, given, True)["why"]
            raise LaunchError(f"--virtual-local-rank: no device is visible here ({why})")
        words = [r.word for r in ranks if r] or _unseen(plan.num_ranks, given)
        plan = dataclasses.replace(plan, devices=tuple(words))
    if options.binding == "none":
        return plan
    buses = [r.card.bus if r else None for r in ranks]
    host = binding.read_host([b for b in buses if b], os.sched_getaffinity(0))
    cores = binding.cores_of_ranks(options.binding, host, [b or None for b in buses])
    return dataclasses.replace(plan, cores=tuple(cores))


def _unseen(num_ranks: int, given: str | None) -> list[str]:
    """What ranks are to see alone where nothing is known of devices: as with torchrun, those of the
    list, or the first ones."""
    words = [str(rank) for rank in range(num_ranks)] if given is None else given.split(",")
    if len(words) < num_ranks:
        raise LaunchError(
            f"--virtual-local-rank: {num_ranks} ranks, and CUDA_VISIBLE_DEVICES={given} names "
            f"{len(words)}; name one for each rank, or start fewer"
        )
    return words[:num_ranks]
