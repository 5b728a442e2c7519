"""``torch.multiprocessing`` over the standard library's: ``spawn``, ``Process``, ``Queue`` ...

Processes are forked, so that they find the stand-in installed and need nothing pickled.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from .shim import Shim


class ProcessRaisedException(Exception):
    """A spawned process raised; the message has its traceback."""


class ProcessExitedException(Exception):
    """A spawned process ended with a code or by a signal."""


def _body(fn: Callable, index: int, args: tuple, errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        sys.exit(1)
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


class SpawnContext:
    """The processes of one ``spawn``."""

    def __init__(self, processes: list, pipes: list) -> None:
        self.processes, self._pipes = processes, pipes

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Wait for one or more to end; True when all have. The first failure ends the others and is
        raised."""
        running = {p.sentinel: i for i, p in enumerate(self.processes) if p.exitcode is None}
        if running:
            wait(list(running), timeout)
        for i, p in enumerate(self.processes):
            if p.exitcode not in (None, 0):
                self._fail(i)
        return all(p.exitcode == 0 for p in self.processes)

    def _fail(self, index: int) -> None:
        failed = self.processes[index]
        for p in self.processes:
            if p.is_alive():
                p.terminate()
        for p in self.processes:
            p.join(5.0)
            if p.is_alive():
                p.kill()
        pipe = self._pipes[index]
        if pipe.poll():
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{pipe.recv()}"
            )
        raise ProcessExitedException(f"process {index} terminated with exit code {failed.exitcode}")


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "fork",
) -> SpawnContext | None:  # fmt: skip
    """Run ``fn(index, *args)`` in ``nprocs`` processes; with ``join``, wait for all of them."""
    context = multiprocessing.get_context("fork")
    processes, pipes = [], []
    sys.stdout.flush()
    sys.stderr.flush()
    for index in range(nprocs):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_body, args=(fn, index, args, writer), daemon=daemon)
        process.start()
        writer.close()
        processes.append(process)
        pipes.append(reader)
    spawned = SpawnContext(processes, pipes)
    if not join:
        return spawned
    while not spawned.join():
        pass
    return None


def start_processes(fn: Callable, args: tuple = (), nprocs: int = 1, **options: Any) -> Any:
    return spawn(fn, args, nprocs, options.get("join", True), options.get("daemon", False))


def module() -> Shim:
    """``torch.multiprocessing``."""
    context = multiprocessing.get_context("fork")
    return Shim("torch.multiprocessing").give(
        spawn=spawn,
        start_processes=start_processes,
        SpawnContext=SpawnContext,
        ProcessRaisedException=ProcessRaisedException,
        ProcessExitedException=ProcessExitedException,
        Process=context.Process,
        Queue=context.Queue,
        SimpleQueue=context.SimpleQueue,
        Pool=context.Pool,
        Event=context.Event,
        Lock=context.Lock,
        Barrier=context.Barrier,
        Manager=context.Manager,
        Value=context.Value,
        Array=context.Array,
        Pipe=context.Pipe,
        get_context=lambda method=None: context,
        set_start_method=lambda method, force=False: None,
        get_start_method=lambda allow_none=False: "fork",
        set_sharing_strategy=lambda strategy: None,
        get_sharing_strategy=lambda: "file_descriptor",
        cpu_count=os.cpu_count,
        current_process=multiprocessing.current_process,
    )
