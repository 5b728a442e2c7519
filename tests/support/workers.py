"""Run a test body on several RPC workers, each a forked process or a simulated rank.

    def body(rank):
        return rpc.rpc_sync("worker0", ...)

    assert run_workers(2, body, tmp_path) == [...]

Workers are named worker0, worker1 ... and leave gracefully when the body ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from disttrain import context, rpc
from disttrain.distributed import simulate

from .ranks import run_ranks


def run_workers(
    n: int, body: Callable[[int], Any], tmp_path: Path, timeout: float = 50.0, **options: Any
) -> list[Any]:
    """The results of ``body(rank)`` by rank, on forked processes; the first failure is raised."""
    where = f"file://{tmp_path}/meet"

    def rank_body(rank: int) -> Any:
        given = rpc.TensorPipeRpcBackendOptions(init_method=where, **options)
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=given)
        result = body(rank)
        rpc.shutdown()
        return result

    return run_ranks(n, rank_body, timeout)


def simulate_workers(
    n: int, body: Callable[[int], Any], seed: int = 0, **options: Any
) -> list[Any]:
    """As ``run_workers``, on simulated ranks."""

    def rank_body() -> Any:
        me = context.current().rank
        given = rpc.TensorPipeRpcBackendOptions(**options)
        rpc.init_rpc(f"worker{me}", rpc_backend_options=given)
        result = body(me)
        rpc.shutdown()
        return result

    return simulate(rank_body, n, seed=seed).results
