"""What Slurm tells the tasks of a step, beside their rank: where they meet, how many are on a host.

Names as in srun(1), "OUTPUT ENVIRONMENT VARIABLES". Pure: text to numbers and names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
_FIRST_PORT, _NUM_PORTS = 15000, 15000  # below those that systems give out of themselves
_ITEM = re.compile(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def meeting_place(env: Mapping[str, str]) -> tuple[str, int] | None:
    """The host and port at which the tasks of this step meet: on its first node (loopback where
    there is no other one), at a port that follows from the step's numbers. None outside srun."""
    nodes, job, step = (env.get(f"SLURM_{name}") for name in ("STEP_NODELIST", "JOB_ID", "STEP_ID"))
    if not nodes or not job or not step or not (job + step).isdigit():
        return None
    alone = env.get("SLURM_STEP_NUM_NODES") == "1"
    port = _FIRST_PORT + (int(job) * 61 + int(step)) % _NUM_PORTS
    return LOOPBACK if alone else first_node(nodes), port


def first_node(nodes: str) -> str:
    """The first of a list such as ``n[01-03,7],m4``: ``n01``."""
    found = _ITEM.match(nodes)
    if found is None:
        return nodes
    before, inside, after = found.groups()
    return before + re.split("[,-]", inside or "")[0] + after


def tasks_here(env: Mapping[str, str]) -> int | None:
    """How many tasks of the step are on this node. None where Slurm does not say."""
    counts, node = env.get("SLURM_STEP_TASKS_PER_NODE"), env.get("SLURM_NODEID", "")
    if not counts or not node.isdigit():
        return None
    left = int(node)
    for count, times in _COUNT.findall(counts):
        left -= int(times or 1)
        if left < 0:
            return int(count)
    return None
