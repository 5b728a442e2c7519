"""``torch.multiprocessing``: the standard library's, and ``spawn``, which starts a function on
several processes. Processes are forked, so they have all that their parent has imported.

Knows processes; no tensors and no groups.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait

from launcher.processes import die_with_parent

from ... import context
from ...errors import ConfigError, DisttrainError
from .shim import Shim

_GRACE = 5.0  # seconds between asking processes to end and killing them
_METHODS = ("fork", "spawn", "forkserver")


class ProcessException(DisttrainError, RuntimeError):
    """A process that ``spawn`` has started did not end well."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It raised; the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """It was killed, or left with an exit code other than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int,
        signal_name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable, index: int, args: tuple, failure: Connection, parent: int) -> None:
    """The body of a started process."""
    die_with_parent(parent)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception:
        failure.send_bytes(pickle.dumps(traceback.format_exc()))
        sys.exit(1)


class ProcessContext:
    """Started processes, to be joined."""

    def __init__(self, processes: list, failures: list[Connection]) -> None:
        self.processes, self._failures = processes, failures

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """True once all have ended well; False when ``timeout`` seconds were not enough.

        When one fails, the others are asked to end, killed after ``grace_period`` seconds, and
        ``ProcessRaisedException`` or ``ProcessExitedException`` tells of the first.
        """
        running = {p.sentinel: i for i, p in enumerate(self.processes) if p.exitcode is None}
        wait(list(running), timeout)
        failed = next((i for i, p in enumerate(self.processes) if p.exitcode), None)
        if failed is None:
            return all(p.exitcode == 0 for p in self.processes)
        self._stop(_GRACE if grace_period is None else grace_period)
        self._report(failed)
        raise AssertionError("a report raises")

    def _stop(self, grace: float) -> None:
        """End what still runs."""
        deadline = context.now() + grace
        for p in self.processes:
            p.terminate()
        for p in self.processes:
            p.join(max(0.0, deadline - context.now()))
            if p.exitcode is None:
                p.kill()
                p.join()

    def _report(self, index: int) -> None:
        """Raise what became of process ``index``."""
        p = self.processes[index]
        if self._failures[index].poll():
            text = pickle.loads(self._failures[index].recv_bytes())  # written by our own fork
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}", index, p.pid
            )
        if p.exitcode < 0:
            name = signal.Signals(-p.exitcode).name
            message = f"process {index} terminated with signal {name}"
        else:
            name, message = None, f"process {index} terminated with exit code {p.exitcode}"
        raise ProcessExitedException(message, index, p.pid, p.exitcode, name)


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Call ``fn(i, *args)`` in ``nprocs`` new processes, i from 0.

    Waits for them and returns None, or (``join=False``) returns a ``ProcessContext`` at once. The
    processes are forked from this one whatever ``start_method`` says: nothing is imported or
    pickled again, and ``fn`` may be any function.
    """
    if nprocs < 1:
        raise ConfigError(f"spawn: nprocs={nprocs}; 1 or more is needed")
    if start_method not in _METHODS:
        raise ConfigError(f"spawn: start_method={start_method!r}; needed one of {_METHODS}")
    fork, processes, failures = multiprocessing.get_context("fork"), [], []
    for i in range(nprocs):
        reader, writer = fork.Pipe(duplex=False)
        p = fork.Process(target=_run, args=(fn, i, args, writer, os.getpid()), daemon=daemon)
        p.start()
        writer.close()
        processes.append(p)
        failures.append(reader)
    started = ProcessContext(processes, failures)
    if not join:
        return started
    while not started.join():
        pass
    return None


def start_processes(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """``spawn`` under its other name."""
    return spawn(fn, args, nprocs, join, daemon, start_method)


def _set_sharing_strategy(new_strategy: str) -> None:
    if new_strategy not in ("file_descriptor", "file_system"):
        raise ConfigError(f"set_sharing_strategy: {new_strategy!r} given; file_descriptor needed")


def module() -> Shim:
    """``torch.multiprocessing``."""
    return (
        Shim("torch.multiprocessing")
        .take(multiprocessing, multiprocessing.__all__)
        .give(
            spawn=spawn,
            start_processes=start_processes,
            SpawnContext=ProcessContext,
            ProcessContext=ProcessContext,
            ProcessException=ProcessException,
            ProcessRaisedException=ProcessRaisedException,
            ProcessExitedException=ProcessExitedException,
            get_sharing_strategy=lambda: "file_descriptor",
            get_all_sharing_strategies=lambda: {"file_descriptor"},
            set_sharing_strategy=_set_sharing_strategy,
        )
    )
