"""The process that starts the front and the workers, and looks after them.

It runs no program and speaks with no client, and is single-threaded, so that it can fork at any
time; what it has loaded, all of them share. It holds the listening socket: clients that come while
a front is replaced wait.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import context, lifetime
from ..backends import threads
from ..errors import ConfigError, LaunchError
from ..liveness import LOOK_EVERY, Stillness, sample
from . import front, journal, worker
from .messages import Channel, pair
from .models import Opener, fingerprint
from .options import Options, cores
from .slabs import Slab

_WATCH_EVERY = 0.5
_QUICK = 5.0  # a process that lives no longer is started again later and later
_LONGEST = 2.0
_FRONTS = 5  # quick deaths of the front, after which it is given up
_LAST = 3.0  # seconds in which all end once they have been asked to
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class Child:
    """A process of ours."""

    pid: int
    pidfd: int
    started: float
    generation: int = 0
    id: int = -1  # of the front


def listen(host: str, port: int) -> socket.socket:
    """The socket that clients connect to. Raises ``ConfigError``."""
    listener = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise ConfigError(f"serve: {host}:{port} cannot be had: {error.strerror}") from None
    return listener


def address_of(listener: socket.socket, secure: bool) -> str:
    """For clients."""
    host, port = listener.getsockname()[:2]
    return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"


class Supervisor:
    """``opener`` opens a model's file in a worker; ``ready`` is told once that clients are
    answered."""

    def __init__(
        self,
        options: Options,
        opener: Opener,
        version: str,
        ready: Callable[[str], None] = lambda address: None,
    ) -> None:
        self.options, self.opener, self.version, self.ready = options, opener, version, ready
        self.listener = listen(options.host, options.port)
        self.poll = select.poll()
        self.front: Child | None = None
        self.channel: Channel | None = None
        self.workers: dict[int, Child] = {}  # by pid
        self.due: list[tuple[float, Callable[[], None]]] = []  # what is to be done later
        self.quick: dict[int, int] = {}  # quick deaths in a row, by the number of the process
        self.current = self.loading = self.latest = self.asked = 0
        self.again = self.stopping = self.ended = False
        self.code = 0
        self.failure = ""
        self.files: dict[int, dict[str, int]] = {}  # of a generation: what its models' names mean
        self.seen: dict[str, list] = {}
        self.doubted: dict[str, list] = {}
        self.watched = self.looked = 0.0
        self.stillness = Stillness()
        self.signals: list[int] = []

    def run(self) -> int:
        """Until SIGTERM or Ctrl-C. Raises ``LaunchError`` where the models cannot be loaded."""
        before = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        gc.collect()
        gc.freeze()  # so that children do not write to what they share
        try:
            self._start_front()
            self._begin()
            context.wait_until(lambda: self.ended, lambda: "the end", math.inf, self._step)
        finally:
            self._end_all()
            gc.unfreeze()
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.failure:
            raise LaunchError(f"serve: {self.failure}")
        return self.code

    # -- one turn ----------------------------------------------------------------------------------

    def _step(self, seconds: float) -> None:
        """Sleep until something happens, for so long at most, and do what follows."""
        with contextlib.suppress(InterruptedError):
            for fd, _ in self.poll.poll(1000 * seconds):
                self._happened(fd)
        while self.signals:
            self._obey(self.signals.pop(0))
        now = time.monotonic()
        for when, do in [entry for entry in self.due if entry[0] <= now]:
            self.due.remove((when, do))
            do()
        self._look(now)

    def _happened(self, fd: int) -> None:
        if self.channel is not None and fd == self.channel.sock.fileno():
            self._hear()
        elif self.front is not None and fd == self.front.pidfd:
            self._front_ended(self.front)
        else:
            child = next((c for c in self.workers.values() if c.pidfd == fd), None)
            if child is not None:
                self._worker_ended(child)

    def _signalled(self, number: int, frame: Any) -> None:
        self.signals.append(number)

    def _obey(self, number: int) -> None:
        if number == signal.SIGHUP:
            journal.tell("reload", why="SIGHUP")
            self._begin()
        elif self.stopping:
            self.ended = True
        else:
            self._stop(signal.Signals(number).name)

    def _stop(self, why: str) -> None:
        journal.tell("stopping", why=why)
        self.stopping = True
        if self.channel is None or not self.channel.send({"stop": True}):
            self.ended = True
        self.listener.close()  # the front has it still; then nobody is let in any more
        self.due.append((time.monotonic() + self.options.grace + _LAST, self._give_up))

    def _give_up(self) -> None:
        journal.tell("stopped_early", "warning", after=self.options.grace)
        self.code, self.ended = 1, True

    def _look(self, now: float) -> None:
        """At files that are replaced, and processes that stand still."""
        if self.options.watch and now >= self.watched + _WATCH_EVERY:
            self.watched = now
            self._look_at_files()
        if now >= self.looked + LOOK_EVERY:
            self.looked = now
            children = [*self.workers.values(), *([self.front] if self.front else [])]
            self.stillness.look(now, {c.pid: sample(c.pid) for c in children})
            for child in children:
                if self.stillness.is_lost(child.pid):
                    journal.tell("stopped_process", "error", process=child.pid)
                    _kill(child)

    def _look_at_files(self) -> None:
        found = {name: fingerprint(path) for name, path in self.options.models.items()}
        settled = found == self.doubted and all(found.values()) and not self.loading
        if settled and found != self.seen:
            journal.tell("reload", why="a file was replaced")
            self._begin()
        self.doubted = found  # what is still being written looks different the next time

    # -- generations -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start workers that load the files as they are now."""
        if self.stopping or self.channel is None:
            return
        if self.loading:
            self.again = True
            return
        self.seen = {name: fingerprint(path) for name, path in self.options.models.items()}
        self.latest = self.loading = self.latest + 1
        self.files[self.latest] = self._opened()
        self.channel.send({"generation": self.latest, "covers": self.asked})
        for k in range(self.options.workers):
            self._start_worker(k, self.latest)

    def _opened(self) -> dict[str, int]:
        """Descriptors of the files: a worker that comes later in place of a dead one reads what the
        others have read, though other files may have their names by then. What a model in ONNX
        refers to is found by its own name alone."""
        found: dict[str, int] = {}
        for name, path in self.options.models.items():
            with contextlib.suppress(OSError):  # a worker says what is wrong with it
                if not self.options.onnx:
                    found[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return found

    def _close_files(self) -> None:
        for generation in [g for g in self.files if g not in (self.current, self.loading)]:
            for fd in self.files.pop(generation).values():
                os.close(fd)

    def _hear(self) -> None:
        assert self.channel is not None
        message = self.channel.receive()
        if message is None:
            self.poll.unregister(self.channel.sock)  # the end of its process comes, too
        elif "load" in message:
            self.asked = message["load"]
            self._begin()
        elif "current" in message:
            first, self.current = not self.current, message["current"]
            self._loaded()
            if first:
                self.ready(address_of(self.listener, bool(self.options.certificate)))
        elif "abandon" in message:
            if not self.current:
                self.failure, self.ended = message["error"], True
            self._loaded()
        elif "kill" in message and message["kill"] in self.workers:
            journal.tell("hung_worker", "error", process=message["kill"])
            _kill(self.workers[message["kill"]])

    def _loaded(self) -> None:
        self.loading = 0
        self._close_files()
        if self.again:
            self.again = False
            self._begin()

    # -- processes ---------------------------------------------------------------------------------

    def _start_front(self) -> None:
        ours, theirs = pair()

        def body() -> int:
            ours.close()
            return front.main(self.options, theirs, self.listener, self.version)

        self.front = self._fork(body)
        theirs.close()
        self.channel = ours
        self.poll.register(ours.sock, select.POLLIN)

    def _start_worker(self, number: int, generation: int) -> None:
        if self.channel is None or self.stopping:
            return
        ours, theirs = pair()
        slabs = [(Slab(), Slab()) for _ in range(worker.SLOTS)]
        fds = [(inlet.fd, outlet.fd) for inlet, outlet in slabs]
        channel = self.channel
        share = max(1, min(threads.count(), cores() // self.options.workers))
        places = dict(self.options.models)
        places.update({n: f"/proc/self/fd/{fd}" for n, fd in self.files[generation].items()})

        def body() -> int:
            for other in (ours, channel):
                other.close()
            self.listener.close()
            return worker.main(theirs, fds, self.options.models, places, self.opener, share)

        child = self._fork(body)
        child.generation, child.id = generation, number
        self.workers[child.pid] = child
        message = {"worker": number, "pid": child.pid, "generation": generation}
        channel.send(message, [ours.sock.fileno(), *(fd for both in fds for fd in both)])
        for end in (ours, theirs):
            end.close()
        for inlet, outlet in slabs:
            inlet.close()
            outlet.close()

    def _fork(self, body: Callable[[], int]) -> Child:
        me = os.getpid()
        with warnings.catch_warnings():  # threads of numpy's BLAS, which knows about fork
            warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _be_child(me, body)
        child = Child(pid, lifetime.end_of(pid), time.monotonic())
        self.poll.register(child.pidfd, select.POLLIN)
        return child

    def _reap(self, child: Child) -> str:
        """How it has ended."""
        self.poll.unregister(child.pidfd)
        os.close(child.pidfd)
        _, status = os.waitpid(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def _worker_ended(self, child: Child) -> None:
        del self.workers[child.pid]
        how = self._reap(child)
        wanted = child.generation in (self.current, self.loading) and child.generation != 0
        if self.stopping or not wanted or self.ended:
            return
        if child.generation == self.loading != self.current:
            return  # the front hears of it, and gives the generation up
        delay = self._delay(child)
        journal.tell("worker_ended", "error", process=child.pid, how=how, again_in=delay)

        def again() -> None:
            if child.generation == self.current:
                self._start_worker(child.id, child.generation)

        self.due.append((time.monotonic() + delay, again))

    def _front_ended(self, child: Child) -> None:
        how = self._reap(child)
        assert self.channel is not None
        self.channel.close()
        self.front = self.channel = None
        if self.stopping:
            self.ended, self.code = True, int(how != "exit code 0")
            return
        delay = self._delay(child)
        journal.tell("front_ended", "error", process=child.pid, how=how, again_in=delay)
        if self.quick[child.id] >= _FRONTS:
            self.failure, self.ended = f"its front ends again and again ({how})", True
        self.current = self.loading = 0  # its workers end, too
        self._close_files()
        self.due.append((time.monotonic() + delay, self._start_over))

    def _start_over(self) -> None:
        self._start_front()
        self._begin()

    def _delay(self, child: Child) -> float:
        """Seconds to wait before one is started in its place."""
        quick = time.monotonic() - child.started < _QUICK
        number = self.quick[child.id] = self.quick.get(child.id, 0) + 1 if quick else 0
        return min(_LONGEST, 0.025 * 2.0**number) if quick else 0.0

    def _end_all(self) -> None:
        """Nothing of ours is left behind."""
        if self.channel is not None:
            self.poll = select.poll()
            self.channel.close()
        if self.front is not None:
            _kill(self.front)
        children = [*self.workers.values(), *([self.front] if self.front else [])]
        until = time.monotonic() + _LAST
        for child in children:
            if not lifetime.shows(child.pidfd, until - time.monotonic()):
                _kill(child)
            os.waitpid(child.pid, 0)
            os.close(child.pidfd)
        self.workers.clear()
        self.current = self.loading = 0
        self._close_files()
        self.listener.close()


def _be_child(parent: int, body: Callable[[], int]) -> None:
    """Run ``body``, and end without what the parent would do at its end."""
    code = 1
    try:
        lifetime.die_with_parent(parent)
        code = body()
    except BaseException as error:
        journal.tell("process_failed", "error", error=f"{type(error).__name__}: {error}")
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code)


def _kill(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
