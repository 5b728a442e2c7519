"""The worker processes of a DataLoader, seen from the process that they work for.

Starts them, hands out requests, collects answers, notices deaths, and ends them. Nothing here
blocks but ``wait``, which goes through the rank's one way of waiting. Knows no order of batches.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import context
from ..core.types import dtypes
from ..errors import WorkerFailed
from ..lifetime import end_of, shows
from ..liveness import LOOK_EVERY, Stillness, sample, told
from .fetch import Plan
from .position import Streams
from .transfer import BATCH, END, ERROR, LENGTH, Receiver
from .worker import RESET, TASK, Failure, Job, run

_SLOT = "data.pools"
_QUICK = 100  # looks without blocking before a wait blocks in the kernel
_SLICE = 0.002  # seconds it blocks there; the rank looks at its peers in between
_GRACE = 1.0  # seconds that workers have for ending by themselves


@dataclass
class _Worker:
    """One worker process. ``unsent`` holds requests that its socket had no room for."""

    id: int
    process: Any
    sock: socket.socket
    receiver: Receiver
    pidfd: int
    unsent: bytearray = field(default_factory=bytearray)
    asked: int = 0
    dead: bool = False

    @property
    def name(self) -> str:
        return f"DataLoader worker {self.id} (pid {self.process.pid})"


@dataclass(frozen=True)
class Answer:
    """An answer that has arrived and is not unpacked yet."""

    worker: int
    number: int
    kind: int
    slab: int
    size: int

    @property
    def is_end(self) -> bool:
        return self.kind == END

    @property
    def is_batch(self) -> bool:
        return self.kind == BATCH


class Pool:
    """``num_workers`` processes that answer requests, each in order."""

    def __init__(
        self,
        plan: Plan,
        num_workers: int,
        ctx: Any,
        base_seed: int,
        init: Any,
        prefetch: int,
        streams: dict[int, Streams],
    ) -> None:
        me = context.current()
        in_main = threading.current_thread() is threading.main_thread()
        self.pid, self.prefetch = os.getpid(), prefetch
        kind = dtypes.get_default_dtype()
        child = in_main and ctx.get_start_method() != "forkserver"
        job = Job(plan, num_workers, base_seed, init, self.pid, child, me.numbers, kind, streams)
        self.workers: list[_Worker] = []
        self.answers: deque[Answer] = deque()
        self.poll = select.poll()
        pools: weakref.WeakSet[Pool] = me.slot(_SLOT, weakref.WeakSet)
        pools.add(self)
        self._end = weakref.finalize(self, _end, self.workers, self.pid)
        try:
            for i in range(num_workers):
                self._start(i, job, ctx)
        except BaseException:
            self.close()
            raise

    def _start(self, worker_id: int, job: Job, ctx: Any) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            process = ctx.Process(target=run, args=(job, worker_id, theirs), daemon=True)
            # So that the child closes our end, too, it must be known before the fork.
            worker = _Worker(worker_id, process, ours, Receiver(ours, self.prefetch), -1)
            self.workers.append(worker)
            with warnings.catch_warnings():  # threads of numpy's BLAS, which knows about fork
                warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
                process.start()
        worker.pidfd = end_of(process.pid)
        self.poll.register(ours, select.POLLIN)
        self.poll.register(worker.pidfd, select.POLLIN)

    # --- requests ---------------------------------------------------------------------------------

    def ask(self, worker_id: int, number: int, what: int | list | None) -> None:
        """Ask a worker for batch ``number``; ``what`` is what the sampler gave."""
        self._say(self.workers[worker_id], (TASK, number, what))
        self.workers[worker_id].asked = number

    def reset(self) -> None:
        """Begin a new pass over the dataset in every worker."""
        for worker in self.workers:
            self._say(worker, (RESET, 0, None))

    def _say(self, worker: _Worker, request: tuple) -> None:
        body = pickle.dumps(request, 5)
        worker.unsent += LENGTH.pack(len(body)) + body
        self._push(worker)

    def _push(self, worker: _Worker) -> None:
        """Send as much as the socket takes; the rest goes while waiting."""
        try:
            while worker.unsent:
                sent = worker.sock.send(worker.unsent, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                del worker.unsent[:sent]
        except BlockingIOError:
            self.poll.modify(worker.sock, select.POLLIN | select.POLLOUT)
        except (BrokenPipeError, ConnectionResetError):
            worker.unsent.clear()  # its end is noticed by whoever waits for it
        else:
            self.poll.modify(worker.sock, select.POLLIN)

    # --- answers ----------------------------------------------------------------------------------

    def wait(self, what: str, timeout: float | None) -> Answer:
        """The next answer of any worker. ``WorkerFailed`` when one has died or was stopped for too
        long, ``WaitTimeout``."""
        looks = 0
        # A simulated rank keeps the baton: its clock stands still while real workers work.
        virtual = type(context.current().waiter).now is not context.Waiter.now
        patience = context.DEFAULT_TIMEOUT if timeout is None else timeout

        def ready() -> bool:
            nonlocal looks
            looks += 1
            if virtual:
                return self._stay(patience)
            return self._look(0 if looks <= _QUICK else _SLICE)

        if not self.answers:
            self._stillness, self._next_look = Stillness(), time.monotonic() + LOOK_EVERY
            context.wait_until(ready, lambda: f"{what} of {self._names()}", timeout)
        if self.answers:
            return self.answers.popleft()
        for worker in self.workers:
            if worker.dead:
                raise self._died(worker)
        raise self._stopped(next(w for w in self.workers if self._stillness.is_lost(w.id)))

    def _names(self) -> str:
        return ", ".join(w.name for w in self.workers)

    def _stay(self, seconds: float) -> bool:
        """Look for as long as that, in real time."""
        deadline = time.monotonic() + seconds
        while not self._look(max(0.0, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return False
        return True

    def _look(self, seconds: float) -> bool:
        """Take in what has arrived, and notice who is dead. Is there anything to tell?"""
        events = {fd for fd, _ in self.poll.poll(seconds * 1000)}
        for worker in self.workers if events else ():
            if worker.sock.fileno() in events:
                for kind, slab, number, size in worker.receiver.messages():
                    self.answers.append(Answer(worker.id, number, kind, slab, size))
                self._push(worker)
            if worker.receiver.closed or worker.pidfd in events:
                worker.dead = True
        return bool(self.answers) or any(w.dead for w in self.workers) or self._are_stopped()

    def _are_stopped(self) -> bool:
        """Was a worker stopped for too long, while its answer was waited for?"""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_EVERY
        self._stillness.look(now, {w.id: sample(w.process.pid) for w in self.workers})
        return any(self._stillness.is_lost(w.id) for w in self.workers)

    def value(self, answer: Answer) -> Any:
        """The batch of an answer; raises what the worker raised."""
        worker = self.workers[answer.worker]
        value = worker.receiver.value(answer.slab, answer.size)
        if answer.kind == ERROR:
            raise _raised(value, worker)
        assert answer.kind == BATCH
        return value

    def drop(self, answer: Answer) -> None:
        """Forget an answer that nobody wants any more."""
        if answer.kind != END:
            self.workers[answer.worker].receiver.drop(answer.slab, answer.size)

    def _died(self, worker: _Worker) -> WorkerFailed:
        """Say how a worker ended."""
        if shows(worker.pidfd, _GRACE):
            worker.process.join()
        code = worker.process.exitcode
        if code is not None and code < 0:
            known = -code in set(signal.Signals)
            how = f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
        else:
            how = f"ended with exit code {code}"
        hint = ""
        if code == -signal.SIGKILL:
            hint = " The kernel does that when memory runs out: fewer workers, or a smaller "
            hint += "batch_size or prefetch_factor, need less."
        elif code == -signal.SIGSEGV:
            hint = " Some library in it crashed; try num_workers=0 to see where."
        return WorkerFailed(
            f"{worker.name} {how}, while batch {worker.asked} or one before it was loaded.{hint}"
        )

    def _stopped(self, worker: _Worker) -> WorkerFailed:
        """Say that a worker was stopped."""
        pid = worker.process.pid
        how = told(pid, *self._stillness.still(worker.id))
        return WorkerFailed(
            f"{worker.name} was {how}, while batch {worker.asked} or one before it was "
            f"awaited. `kill -CONT {pid}` lets it go on; then ask the loader for a new iterator."
        )

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers: first by asking, then by signals. Batches that exist stay good."""
        self._end()

    @property
    def closed(self) -> bool:
        return not self._end.alive


def _end(workers: list[_Worker], pid: int) -> None:
    """End processes that ``pid`` started (a forked child has only copies of their handles)."""
    if os.getpid() != pid:
        return
    started = [w for w in workers if w.process.pid is not None]
    for worker in workers:
        with contextlib.suppress(OSError):  # it may be gone already
            worker.sock.shutdown(socket.SHUT_RDWR)  # reaches it whoever holds copies
        worker.sock.close()
        worker.receiver.close()
    for worker in started:
        if sample(worker.process.pid).state == "T":  # it hears of nothing else
            os.kill(worker.process.pid, signal.SIGKILL)
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        for worker in started:
            if sign is not None and worker.process.is_alive():
                os.kill(worker.process.pid, sign)
        deadline = time.monotonic() + _GRACE
        for worker in started:
            if worker.pidfd >= 0 and shows(worker.pidfd, deadline - time.monotonic()):
                worker.process.join()
    for worker in started:
        if worker.pidfd >= 0:
            os.close(worker.pidfd)
    workers.clear()


def _raised(failure: Failure, worker: _Worker) -> BaseException:
    """The worker's exception, to be raised here: of its own type, with the traceback of there."""
    told = f"Caught {failure.kind} in {worker.name}.\nOriginal traceback:\n{failure.text}"
    if failure.error is None:
        return WorkerFailed(f"{told}\n({failure.kind} itself cannot be sent between processes)")
    error = pickle.loads(failure.error)
    if _is_plain(error):
        error.args = (told,)
    else:
        error.add_note(told)
    return error


def _is_plain(error: BaseException) -> bool:
    """Is its message all that it says? Others are made of things that programs may look at."""
    own = any(k.__module__ != "builtins" and "__init__" in vars(k) for k in type(error).__mro__)
    texts = len(error.args) <= 1 and all(isinstance(a, str) for a in error.args)
    return texts and not own and type(error).__str__ is Exception.__str__


# --- forks ---------------------------------------------------------------------------------------


def _pools() -> Iterable[Pool]:
    """The living pools of the calling thread's rank."""
    return list(context.current().slots.get(_SLOT, ()))


def _before_fork() -> None:
    for pool in _pools():
        for worker in pool.workers:
            if worker.receiver.home is not None:
                worker.receiver.home.before_fork()


def _after_fork_in_child() -> None:
    """A worker ends when the last copy of the other end of its socket closes; keep none here."""
    for pool in _pools():
        for worker in pool.workers:
            with contextlib.suppress(OSError):
                worker.sock.close()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
