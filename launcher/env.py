"""The environment of a worker: torchrun's names, and one of our own for what is inherited."""

from __future__ import annotations

from .plan import Plan

JOB_FD = "DISTTRAIN_JOB_FD"  # the descriptor of the job segment, inherited


def worker_env(plan: Plan, rank: int, restart: int) -> dict[str, str]:
    """What every script under a launcher may rely on."""
    n = plan.num_ranks
    values: dict[str, object] = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": n,
        "LOCAL_WORLD_SIZE": n,
        "GROUP_RANK": 0,
        "GROUP_WORLD_SIZE": 1,
        "ROLE_NAME": plan.role,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": n,
        "MASTER_ADDR": plan.master_addr,
        "MASTER_PORT": plan.master_port,
        "TORCHELASTIC_RESTART_COUNT": restart,
        "TORCHELASTIC_MAX_RESTARTS": plan.max_restarts,
        "TORCHELASTIC_RUN_ID": plan.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    if plan.devices:
        values |= {"LOCAL_RANK": 0, "CUDA_VISIBLE_DEVICES": plan.devices[rank]}
    if plan.log_dir:
        values["TORCHELASTIC_ERROR_FILE"] = plan.error_file(restart, rank)
    return {name: str(value) for name, value in values.items()}
