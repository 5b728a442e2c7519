"""``dtrun --fake N --fake-rank R train.py``: one process plays rank R of N without peers.

The program runs in this very process: there is nothing to watch over.
"""

from __future__ import annotations

import dataclasses
import os
import resource

from disttrain import settings
from disttrain.outputs import put

from ..plan.generation import of_hosts
from ..plan.job import Plan
from ..worker.environment import worker_env
from ..worker.main import format_error, program_body


def play(plan: Plan, rank: int, size: int, local_size: int = 1) -> int:
    """Run the program as that rank; its exit code. ``local_size``: how many ranks a host has; 1
    for all of them."""
    local = local_size if 1 < local_size <= size else size
    generation = dataclasses.replace(
        of_hosts(size, local, rank), master_addr=plan.master_addr, master_port=plan.master_port
    )
    os.environ.update(worker_env(plan, generation, rank) | {settings.FAKE.name: "1"})
    try:
        program_body(plan)()
    except BrokenPipeError:
        raise  # perhaps its reader has gone, as with any command
    except Exception as error:
        put(format_error(error))
        return 1
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        put(f"dtrun: played rank {rank} of {size}; {peak:.0f} MiB at most\n")
    return 0
