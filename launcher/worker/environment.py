"""The environment of a worker: torchrun's names, and some of our own."""

from __future__ import annotations

from disttrain import settings

from ..plan.generation import Generation
from ..plan.job import Plan

LEAST = settings.MIN_RANKS.name  # with fewer the job ends: who is left need not try to go on
ON_TERM = settings.ON_TERM.name  # what SIGTERM is to mean, where that is not the end
GENERATION = settings.GENERATION.name  # its number: who says another one is refused by the store
RECORD = tuple(  # in the order of the plan
    s.name
    for s in (
        settings.RECORD_FOLDER, settings.RECORD, settings.RECORD_STEPS, settings.RECORD_RANKS,
        settings.RECORD_PAYLOADS,
    )
)  # fmt: skip
SANITIZE = (settings.SANITIZE.name, settings.SANITIZE_REPORT.name)  # likewise
JOB_FD = settings.JOB_FD.name  # the descriptor of the job segment, inherited
JOB_ID = settings.JOB_ID.name  # the same in all generations of a job, and in no other job


def worker_env(plan: Plan, generation: Generation, rank: int) -> dict[str, str]:
    """What every script under a launcher may rely on. ``rank``: one of this node."""
    local_rank, n = generation.local_rank(rank), generation.world_size
    role_rank, role_size = generation.in_role(rank)
    values: dict[str, object] = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": n,
        "LOCAL_WORLD_SIZE": generation.num_ranks,
        "GROUP_RANK": generation.me,
        "GROUP_WORLD_SIZE": generation.num_nodes,
        "ROLE_NAME": plan.role,
        "ROLE_RANK": role_rank,
        "ROLE_WORLD_SIZE": role_size,
        "MASTER_ADDR": generation.master_addr,
        "MASTER_PORT": generation.master_port,
        "TORCHELASTIC_RESTART_COUNT": generation.restart_count,
        "TORCHELASTIC_MAX_RESTARTS": plan.max_restarts,
        "TORCHELASTIC_RUN_ID": plan.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        GENERATION: generation.number,
        JOB_ID: generation.job or plan.job,
        settings.DEBUGGER.name: plan.debugger,
    }
    if not plan.mpi_hosts:
        values[LEAST] = plan.min_ranks or n
    values |= {name: value for name, value in zip(RECORD, plan.record) if value}
    values |= {name: value for name, value in zip(SANITIZE, plan.sanitize) if value}
    if plan.on_term != "exit":
        values[ON_TERM] = plan.on_term
    if plan.devices:
        values |= {"LOCAL_RANK": 0, settings.VISIBLE_DEVICES.name: plan.devices[local_rank]}
    if plan.kept_fd >= 0:
        values[settings.KEPT_FD.name] = plan.kept_fd
    if plan.token_file:
        values[settings.TOKEN_FILE.name] = plan.token_file
    if plan.log_dir:
        values["TORCHELASTIC_ERROR_FILE"] = plan.error_file(generation, rank)
    return {name: str(value) for name, value in values.items()}
