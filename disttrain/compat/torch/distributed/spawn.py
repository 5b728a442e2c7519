"""``torch.multiprocessing``: the standard library's, and ``spawn``, which starts a function on
several processes. Processes are forked, so they have all that their parent has imported.

Knows processes, and where the memory of tensors lies; no groups.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pickle
import select
import signal
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import context
from ....core.sharing import share
from ....core.tensor import Tensor
from ....errors import ConfigError, DisttrainError
from ....lifetime import die_with, end_of, shows
from ...publish import Shim

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


class _Started:
    """A started process and what it says of its end.

    Its end shows on a pidfd: a sentinel of ``multiprocessing`` stays silent as long as anything
    that the process has started keeps a copy of the other end. An exception is told at once, as
    the process may still wait for its threads; the text is in a file in memory, which holds any
    length without a reader.
    """

    def __init__(
        self, fork: Any, fn: Callable, index: int, args: tuple, daemon: bool, anew: bool
    ) -> None:
        """``anew``: forget the parent's settings?"""
        self.index = index
        self.failure = os.memfd_create("disttrain-failure", os.MFD_CLOEXEC)
        self.told = os.eventfd(0, os.EFD_CLOEXEC)
        weakref.finalize(self, _close, self.failure, self.told)
        starter = os.getpid()
        is_child = threading.current_thread() is threading.main_thread()
        body = (fn, index, args, self.failure, self.told, starter, is_child, anew)
        self.process = fork.Process(target=_run, args=body, daemon=daemon)
        self.process.start()
        self.ended = end_of(self.process.pid)
        weakref.finalize(self, _close, self.ended)

    @property
    def raised(self) -> str:
        """The traceback of what it raised, so far as it has."""
        return os.pread(self.failure, os.fstat(self.failure).st_size, 0).decode()


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _run(
    fn: Callable, index: int, args: tuple, failure: int, told: int, parent: int, is_child: bool,
    anew: bool,
) -> None:  # fmt: skip
    """The body of a started process. ``is_child``: of the main thread of ``parent``?"""
    die_with(parent, is_child)
    if anew:
        context.begin_anew()
        np.random.seed()
    me = os.getpid()
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception:
        if os.getpid() != me:  # a process that fn has forked speaks for itself alone
            raise
        os.write(failure, traceback.format_exc().encode(errors="replace"))
        os.eventfd_write(told, 1)
        sys.exit(1)


class ProcessContext:
    """Started processes, to be joined."""

    def __init__(self, started: list[_Started]) -> None:
        self.processes = [s.process for s in started]
        self._started = started
        self._running = list(started)

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    @property
    def sentinels(self) -> dict[int, int]:
        """Descriptor -> index, of what has not been seen to end."""
        return {s.process.sentinel: s.index for s in self._running}

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """True once all have ended well; False when some still run: ``timeout`` seconds have
        passed (None: for ever), or another one has ended.

        When one fails, the others get ``grace_period`` seconds (if given) to end by themselves,
        are asked to, and after as long again are killed; ``ProcessRaisedException`` or
        ``ProcessExitedException`` tells of the first.
        """
        if not self._running:
            return True
        self._wait(timeout)
        told = [s for s in self._running if shows(s.told)]
        ended = [s for s in self._running if shows(s.ended)]
        for s in ended:
            s.process.join()
        failed = [*told, *(s for s in ended if s.process.exitcode != 0)]
        if not failed:
            self._running = [s for s in self._running if s not in ended]
            return not self._running
        self._stop(grace_period)
        self._report(failed[0])
        raise AssertionError("a report raises")

    def _wait(self, timeout: float | None) -> None:
        """Until one ends or tells of an exception."""
        poll = select.poll()
        for s in self._running:
            poll.register(s.ended, select.POLLIN)
            poll.register(s.told, select.POLLIN)
        poll.poll(None if timeout is None else max(0.0, timeout) * 1000)

    def _stop(self, grace: float | None) -> None:
        """End what still runs: by waiting for ``grace`` seconds, if given; then by signals."""
        if grace is not None:
            self._let_end(grace)
        for s in self._running:
            s.process.terminate()
        self._let_end(_GRACE if grace is None else grace)
        for s in self._running:
            s.process.kill()
            s.process.join()
        self._running = []

    def _let_end(self, seconds: float) -> None:
        deadline = context.now() + seconds
        for s in self._running:
            shows(s.ended, deadline - context.now())

    def _report(self, failed: _Started) -> None:
        """Raise what became of a process."""
        p, index, text = failed.process, failed.index, failed.raised
        if text:
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}", index, p.pid
            )
        if p.exitcode is not None and p.exitcode < 0:
            name = _signal_name(-p.exitcode)
            message = f"process {index} terminated with signal {name}"
        else:
            name, message = None, f"process {index} terminated with exit code {p.exitcode}"
        raise ProcessExitedException(message, index, p.pid, p.exitcode, name)


class _Finder(pickle.Pickler):
    """Meets every tensor that a pickle would contain, and makes no pickle."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), 5, buffer_callback=lambda buffer: False)
        self.tensors: list[Tensor] = []

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, Tensor):
            self.tensors.append(obj)
            return int, ()
        if isinstance(obj, (types.FunctionType, types.ModuleType)):  # with or without a name
            return int, ()
        return NotImplemented


def _tensors(args: tuple) -> list[Tensor]:
    """The tensors in ``args``, modules and other objects; up to what cannot be pickled."""
    finder = _Finder()
    with contextlib.suppress(Exception):  # any class can refuse to be pickled in its own way
        finder.dump(args)
    return finder.tensors


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Call ``fn(i, *args)`` in ``nprocs`` new processes, i from 0.

    Waits for them and returns None, or (``join=False``) returns a ``ProcessContext`` at once. The
    processes are forked from this one whatever ``start_method`` says: nothing is imported or
    pickled again, and ``fn`` may be any function. As in PyTorch, and unless ``start_method`` is
    ``"fork"``, the memory of tensors in ``args`` moves to where all processes see it, and the
    processes begin with the settings of the start (gradients recorded, float32, seeds of their
    own).
    """
    if nprocs < 1:
        raise ConfigError(f"spawn: nprocs={nprocs}; 1 or more is needed")
    if start_method not in _METHODS:
        raise ConfigError(f"spawn: start_method={start_method!r}; needed one of {_METHODS}")
    anew = start_method != "fork"
    if anew:
        share(_tensors((fn, args)))  # as if they had been sent
    fork, running = multiprocessing.get_context("fork"), []
    try:
        for i in range(nprocs):
            running.append(_Started(fork, fn, i, args, daemon, anew))
    except BaseException:
        ProcessContext(running)._stop(0.0)
        raise
    started = ProcessContext(running)
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
