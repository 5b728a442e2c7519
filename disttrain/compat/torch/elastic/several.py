"""From a rendezvous handler of ``torch.distributed.elastic`` to what the launcher's nodes meet by,
and from their failure to meet to PyTorch's errors."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from disttrain_launcher.node.outcome import Attempt
from disttrain_launcher.options.rendezvous import KEYS, Rendezvous, rendezvous_of

from .builtin import LauncherRendezvous
from .handlers import RendezvousConnectionError, RendezvousError, RendezvousTimeoutError
from .static import StaticTCPRendezvous

_TOO_LATE = 75  # the exit code of nodes that have not met in time
_ALONE = {
    "standalone": False, "simulate": 0, "fake": 0, "backend": "", "min_ranks": 0, "spares": 0,
}  # fmt: skip


class _Raising(argparse.ArgumentParser):
    """Says what is wrong with an option as an exception."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def of_nodes(spec: Any) -> Rendezvous | None:
    """How the nodes of a ``WorkerSpec`` meet; None where there is one. Raises ``ValueError``."""
    handler = spec.rdzv_handler
    if isinstance(handler, StaticTCPRendezvous):
        host = f"[{handler.master_addr}]" if ":" in handler.master_addr else handler.master_addr
        conf = {"timeout": f"{handler.timeout.total_seconds():g}"}
        return _made(
            spec.local_addr, str(handler.world_size), "static", f"{host}:{handler.master_port}",
            handler.run_id, conf, handler.rank,
        )  # fmt: skip
    if not isinstance(handler, LauncherRendezvous):
        return None
    p = handler.params
    return _made(
        p.local_addr or spec.local_addr, f"{p.min_nodes}:{p.max_nodes}", p.backend, p.endpoint,
        p.run_id, {key: str(value) for key, value in p.config.items() if key in KEYS}, None,
    )  # fmt: skip


def _made(
    local_addr: str | None, nnodes: str, backend: str, endpoint: str, run_id: str,
    conf: dict[str, str], rank: int | None,
) -> Rendezvous | None:  # fmt: skip
    if nnodes.partition(":")[2] == "1" or nnodes == "1":
        return None
    given = argparse.Namespace(
        **_ALONE, nnodes=nnodes, rdzv_backend=backend, rdzv_endpoint=endpoint, rdzv_id=run_id,
        rdzv_conf=",".join(f"{key}={value}" for key, value in conf.items()), node_rank=rank,
        local_addr=local_addr, master_addr="", master_port=0,
    )  # fmt: skip
    return rendezvous_of(_Raising(), given)


def not_met(attempt: Attempt) -> RendezvousError:
    """Why a job has ended of which no worker has failed."""
    why = attempt.why or f"the job has ended with code {attempt.code}, and no worker has failed"
    return (RendezvousTimeoutError if attempt.code == _TOO_LATE else RendezvousConnectionError)(why)
