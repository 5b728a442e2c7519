"""``torch.distributed.launcher``: start a job from a program."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import builtin, events
from .agents import LocalElasticAgent, WorkerSpec
from .errors import ChildFailedError
from .handlers import RendezvousParameters
from .processes import DefaultLogsSpecs, LogsSpecs, SignalException
from .texts import macros

_TIMEOUT = 900


@dataclass
class LaunchConfig:
    """What to start: ``nproc_per_node`` workers on between ``min_nodes`` and ``max_nodes`` nodes,
    which meet by ``rdzv_backend`` at ``rdzv_endpoint``. Times are in seconds."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        elif "timeout" not in self.rdzv_configs:
            self.rdzv_configs["timeout"] = _TIMEOUT
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()


class elastic_launch:
    """``elastic_launch(config, function)(*args)`` runs the function (or the command) on all workers
    of this node, and gives their results by global rank. Raises ``ChildFailedError``."""

    def __init__(
        self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None,
        health_check_server: object = None,
    ) -> None:  # fmt: skip
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))


def _get_entrypoint_name(entrypoint: Callable[..., Any] | str | None, args: list[Any]) -> str:
    """For messages: a function's name; of a Python command the script's."""
    if isinstance(entrypoint, str):
        if entrypoint != sys.executable:
            return os.path.basename(entrypoint)
        return next((os.path.basename(str(a)) for a in args if not str(a).startswith("-")), "")
    return "" if entrypoint is None else getattr(entrypoint, "__qualname__", repr(entrypoint))


def launch_agent(
    config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, args: list[Any],
    health_check_server: object = None,
) -> dict[int, Any]:  # fmt: skip
    """As ``elastic_launch(config, entrypoint)(*args)``."""
    run_id = config.run_id or uuid.uuid4().hex
    config.run_id = run_id
    params = RendezvousParameters(
        config.rdzv_backend, config.rdzv_endpoint, run_id, config.min_nodes, config.max_nodes,
        config.local_addr, **config.rdzv_configs,
    )  # fmt: skip
    handler = builtin.get_rendezvous_handler(params)
    over = True
    try:
        spec = WorkerSpec(
            role=config.role, local_world_size=config.nproc_per_node, entrypoint=entrypoint,
            args=tuple(args), rdzv_handler=handler, max_restarts=config.max_restarts,
            monitor_interval=config.monitor_interval, local_addr=config.local_addr,
            event_log_handler=config.event_log_handler, numa_options=config.numa_options,
            virtual_local_rank=config.virtual_local_rank,
        )  # fmt: skip
        agent = LocalElasticAgent(
            spec, config.logs_specs or DefaultLogsSpecs(), config.start_method,
            log_line_prefix_template=config.log_line_prefix_template,
            shutdown_timeout=config.shutdown_timeout,
        )  # fmt: skip
        try:
            result = agent.run()
        except Exception:
            events.record(agent.get_event_failed(), config.event_log_handler)
            raise
        events.record(agent.get_event_succeeded(), config.event_log_handler)
        if result.is_failed():
            name = _get_entrypoint_name(entrypoint, args)
            raise ChildFailedError(name, result.failures)
        return result.return_values
    except SignalException:
        over = False  # the other nodes go on
        raise
    finally:
        if over:
            handler.shutdown()


__all__ = ["LaunchConfig", "elastic_launch", "launch_agent", "macros"]
