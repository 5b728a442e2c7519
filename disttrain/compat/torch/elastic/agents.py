"""``torch.distributed.elastic.agent.server``: an agent starts the workers of one node and waits for
them. The launcher's own agent does it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from disttrain_launcher.command import preloads
from disttrain_launcher.command.launch import SIGNALS, run_in_agent
from disttrain_launcher.command.launch_nodes import run_together
from disttrain_launcher.node.outcome import Attempt
from disttrain_launcher.plan.job import Plan, reserve_port

from .... import settings
from . import several
from .builtin import LauncherRendezvous
from .errors import ProcessFailure
from .events import Event, EventSource
from .handlers import RendezvousError, RendezvousHandler
from .processes import DefaultLogsSpecs, LogsSpecs, SignalException, as_text, ranks_of
from .static import StaticTCPRendezvous
from .texts import macros


class WorkerState(StrEnum):
    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


@dataclass
class RunResult:
    """How a job has ended: results or failures by global rank."""

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        return self.state == WorkerState.FAILED


@dataclass
class WorkerSpec:
    """What to run on ``local_world_size`` workers: ``entrypoint`` is a function, or a command whose
    arguments are ``args``."""

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable[..., Any] | None = None
    entrypoint: Callable[..., Any] | str | None = None
    args: tuple = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.local_world_size <= 0:
            raise ValueError(f"local_world_size={self.local_world_size}: at least 1 is needed")
        if self.monitor_interval <= 0:
            raise ValueError(f"monitor_interval={self.monitor_interval}: more than 0 is needed")
        self.entrypoint = self.fn or self.entrypoint
        if self.entrypoint is None:
            raise ValueError("WorkerSpec: no entrypoint given; a function or a command is needed")

    def get_entrypoint_name(self) -> str:
        if isinstance(self.entrypoint, str):
            return os.path.basename(self.entrypoint)
        return getattr(self.entrypoint, "__qualname__", repr(self.entrypoint))


class LocalElasticAgent:
    """Runs ``spec`` on this machine. Signals of the launcher's agent end the workers."""

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, start_method: str = "spawn",
        exit_barrier_timeout: float = 300, log_line_prefix_template: str | None = None,
        health_check_server: object = None, shutdown_timeout: float | None = None,
    ) -> None:  # fmt: skip
        self._spec, self._logs, self._start_method = spec, logs_specs, start_method
        self._shutdown_timeout = shutdown_timeout

    def run(self, role: str = "default") -> RunResult:
        """Start the workers, and wait for their end. Raises ``SignalException`` where a signal has
        ended the job."""
        function, nodes = self._spec.entrypoint, several.of_nodes(self._spec)
        body = None if isinstance(function, str) else _body(function, self._spec.args)
        with reserve_port("127.0.0.1" if nodes is None else "") as holder:
            plan = self._plan(holder.getsockname()[1], nodes is not None)
            if nodes is None:
                attempt = run_in_agent(plan, body)
            else:
                attempt = run_together(plan, body, nodes)
        if attempt.stopped_by:
            name = signal.Signals(attempt.stopped_by).name
            raise SignalException(f"the job got {name}", signal.Signals(attempt.stopped_by))
        if attempt.code:
            failures = _failures(attempt)
            if not failures:
                raise several.not_met(attempt)
            return RunResult(WorkerState.FAILED, failures=failures)
        if isinstance(self._logs, DefaultLogsSpecs):
            self._logs.done()
        values = {
            report.rank: pickle.loads(data) if data else None  # from our own forked children
            for report, data in zip(attempt.ranks, attempt.results)
        }
        return RunResult(WorkerState.SUCCEEDED, return_values=values)

    def _plan(self, free_port: int, together: bool) -> Plan:
        spec, logs, handler = self._spec, self._logs, self._spec.rdzv_handler
        program, kind = _program(spec)
        run_id, host, port = handler.get_run_id(), "127.0.0.1", free_port
        if together:  # whose first node says where its ranks meet
            pass
        elif isinstance(handler, StaticTCPRendezvous):
            host, port = handler.master_addr, handler.master_port
        elif not isinstance(handler, LauncherRendezvous):
            host, port = _where(handler, host, port)
        folder = logs.folder(run_id) if isinstance(logs, DefaultLogsSpecs) else logs.root_log_dir
        grace: dict[str, Any] = {} if self._shutdown_timeout is None else {
            "shutdown_timeout": float(self._shutdown_timeout)
        }  # fmt: skip
        return Plan(
            program, spec.local_world_size, **kind, **grace, max_restarts=spec.max_restarts,
            run_id=run_id, role=spec.role, master_addr=spec.master_addr or host,
            master_port=spec.master_port or port, log_dir=folder,
            redirects=as_text(logs._redirects), tee=as_text(logs._tee),
            shown=ranks_of(logs._local_ranks_filter), signals=SIGNALS,
            preloads=preloads.of(spec.max_restarts),
        )  # fmt: skip

    def get_event_succeeded(self) -> Event:
        return self._event("SUCCEEDED")

    def get_event_failed(self) -> Event:
        return self._event("FAILED")

    def _event(self, state: str) -> Event:
        spec = self._spec
        told: dict[str, Any] = {
            "run_id": spec.rdzv_handler.get_run_id(), "agent_restarts": 0, "role": spec.role,
            "hostname": os.uname().nodename, "entry_point": spec.get_entrypoint_name(),
            "state": state, "max_restarts": spec.max_restarts,
        }  # fmt: skip
        return Event(f"torchelastic.worker.status.{state}", EventSource.AGENT, metadata=told)


def _where(handler: RendezvousHandler, host: str, port: int) -> tuple[str, int]:
    """Where the ranks of one node meet, as a handler of the program's own says."""
    told = handler.next_rendezvous()
    if told.world_size != 1:
        raise RendezvousError(
            f"the program's rendezvous handler {handler.get_backend()!r} says that this is node "
            f"{told.rank} of {told.world_size}; a handler of a program's own can place the ranks "
            "of one node. Let several nodes meet by rdzv_backend c10d, static or etcd"
        )
    info = told.bootstrap_store_info
    return (host, port) if info is None else (info.master_addr, info.master_port)


def _program(spec: WorkerSpec) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What the launcher runs. Python's own command is run by the launcher's workers, so that
    ``torch`` means the same in them as here."""
    if not isinstance(spec.entrypoint, str):
        return (spec.get_entrypoint_name(),), {}
    words = [str(word) for word in spec.args]
    if spec.entrypoint == sys.executable and words[:1] == ["-u"]:
        module = words[1:2] == ["-m"]
        return tuple(words[2 if module else 1 :]), {
            "module": module, "spawn": True, "face": f"{preloads.FACES}torch",
        }  # fmt: skip
    return (spec.entrypoint, *words), {"no_python": True, "spawn": True}


def _body(function: Any, args: tuple) -> Callable[[int], bytes]:
    def body(rank: int) -> bytes:
        given = macros.substitute(list(args), settings.environment()["LOCAL_RANK"])
        return pickle.dumps(function(*given), protocol=pickle.HIGHEST_PROTOCOL)

    return body


def _failures(attempt: Attempt) -> dict[int, ProcessFailure]:
    found = {}
    if attempt.node:  # of another node
        far = attempt.report
        found[far["rank"]] = ProcessFailure(far["local_rank"], far["pid"], far["code"], "")
        return found
    for r in attempt.ranks:
        if r.code:
            code = -r.signal if r.signal else r.code
            found[r.rank] = ProcessFailure(r.local_rank, r.pid, code, r.error_file)
    return found
