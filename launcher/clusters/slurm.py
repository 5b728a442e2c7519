"""Slurm: ``srun dtrun train.py``, one task on each node of a step.

Names as in srun(1). What of them both ranks and nodes read is parsed in one place, by
``disttrain.comm.job.slurm``. The nodes meet on the first one, at a port that follows from the
numbers of job and step; the token follows from the same numbers and the user's key, which lies in
the home directory that the nodes of such clusters share.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from .files import load
from .placement import Place, Reach, number

ENDS = (
    "by SIGTERM, which every process of the step gets, at the time limit, by scancel and "
    "pre-emption; what is left after KillWait (30 s, where nobody has changed it) is killed"
)
PARSER = "disttrain.comm.job.slurm"
_SECONDS = 10.0  # for sinfo to answer


def matches(env: Mapping[str, str]) -> bool:
    """Are we one of several tasks of a step?"""
    if "SLURM_STEP_NODELIST" not in env:
        return False
    return max(number(env, f"SLURM_STEP_NUM_{what}") or 1 for what in ("NODES", "TASKS")) > 1


def hint(env: Mapping[str, str]) -> str:
    """What to say to who has several nodes and starts ``dtrun`` without srun: a batch script runs
    on the first of them alone."""
    nodes = number(env, "SLURM_JOB_NUM_NODES") or 1
    if nodes == 1 or "SLURM_STEP_NODELIST" in env or "SLURM_JOB_ID" not in env:
        return ""
    return (
        f"this job of Slurm's has {nodes} nodes, and dtrun without srun uses this one alone; "
        "`srun --ntasks-per-node=1 dtrun ...` uses all (--cluster local: one is meant)"
    )


def place(env: Mapping[str, str], reach: Reach | None = None) -> Place:
    """Our place in the step. ``reach`` turns a node's name into an address."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
             "SLURM_NODEID", "SLURM_PROCID")  # fmt: skip
    missing = [name for name in names if name not in env]
    if missing:
        raise ValueError(
            f"--cluster slurm: srun has not started this process ({', '.join(missing)} not set); "
            "put srun before dtrun: srun dtrun train.py"
        )
    met = load(PARSER).meeting_place(env)
    if met is None:
        raise ValueError("--cluster slurm: SLURM_JOB_ID or SLURM_STEP_ID is no number")
    nodes = number(env, "SLURM_STEP_NUM_NODES") or 1
    tasks = number(env, "SLURM_STEP_NUM_TASKS") or nodes
    host, port = met
    step = f"{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}"
    restarts = env.get("SLURM_RESTART_COUNT", "0")
    return Place(
        cluster="slurm",
        num_nodes=nodes,
        first=f"{(reach or reachable)(host)}:{port}" if nodes > 1 else "",
        node_rank=number(env, "SLURM_PROCID" if tasks == nodes else "SLURM_NODEID"),
        job=f"slurm-{step}",
        ends=ENDS,
        label=f"slurm {env.get('SLURM_CLUSTER_NAME', '')} {step} {restarts}",
        lasting=f"slurm-{env.get('SLURM_CLUSTER_NAME', '')}-{step}",  # queued again, it is the same
        doubt=_doubt(nodes, tasks),
    )


def _doubt(nodes: int, tasks: int) -> str:
    """Several tasks on a node would each start as many ranks as are meant for the node."""
    if tasks == nodes:
        return ""
    return (
        f"srun has started {tasks} tasks on {nodes} nodes, and dtrun starts a node's ranks itself: "
        "one task on each is needed (srun --ntasks-per-node=1 dtrun --nproc-per-node N ...); "
        f"--nnodes {tasks} if that many agents are meant, --cluster local if each is a job of its "
        "own"
    )


def reachable(host: str) -> str:
    """The node's name where it can be looked up; else the address that Slurm itself uses, which it
    knows where names are its own."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        pass
    else:
        return host
    import subprocess  # which a start without Slurm need not load

    words = ["sinfo", "--noheader", "--nodes", host, "--format", "%o"]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return host
    lines = asked.stdout.split()
    return lines[0] if lines and not asked.returncode else host
