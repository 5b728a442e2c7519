"""``dtrun --fake N --fake-rank R train.py``: one process plays rank R of N without peers.

The program runs in this very process: there is nothing to watch over.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys

from .env import worker_env
from .plan import Plan
from .worker import format_error, program_body

FAKE = "DISTTRAIN_FAKE"  # read by the worker's environment: there are no peers


def play(plan: Plan, rank: int, size: int, local_size: int = 1) -> int:
    """Run the program as that rank; its exit code. ``local_size``: how many ranks a host has; 1
    for all of them."""
    local = local_size if 1 < local_size <= size else size
    os.environ.update(worker_env(dataclasses.replace(plan, num_ranks=size), rank, 0))
    os.environ.update(
        {
            "LOCAL_RANK": str(rank % local),
            "LOCAL_WORLD_SIZE": str(local),
            "GROUP_RANK": str(rank // local),
            "GROUP_WORLD_SIZE": str(-(-size // local)),
            FAKE: "1",
        }
    )
    try:
        program_body(plan)()
    except Exception as error:
        sys.stderr.write(format_error(error))
        return 1
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stderr.write(f"dtrun: played rank {rank} of {size}; {peak:.0f} MiB at most\n")
    return 0
