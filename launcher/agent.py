"""The agent: runs generations of ranks on this node, one after the other, until the job has ended.

It is the parent and the subreaper of everything that the ranks start, so nothing can outlive the
job. ``ranks`` has the ranks of one generation; signals, and the end of who has started us, come to
the agent.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import selectors
import signal
import time

from disttrain.errors import LaunchError
from disttrain.lifetime import adopt_orphans

from . import devices, limits
from .generation import Generation
from .outcome import Attempt
from .output import Console, consoles
from .plan import Plan
from .processes import reap
from .ranks import Ranks
from .report import say
from .restarts import Restarts
from .starting import Body
from .streams import unwatch

FORKED_TOO_LATE = (
    "CUDA is initialised in the process that ranks are forked from (by a .pth file, sitecustomize "
    "or a module that they import); it would work in no rank. Use --start-method spawn, or import "
    "that module in the script"
)
# Loaded once for all ranks.
WARM = (
    "disttrain.comm.shm.engine",
    "disttrain.data",
    "disttrain.distributed",
    "disttrain.distributed.ddp",
    "disttrain.optim",
)
# What ranks that begin again are likely to use: loaded for all of them, when there may be such.
WARM_AGAIN = (
    "disttrain.distributed.checkpoint",
    "disttrain.distributed.elastic",
    "disttrain.distributed.fsdp",
    "disttrain.distributed.planning",
    "disttrain.metrics",
)


class Agent:
    """Runs ``plan``. ``front`` is a descriptor that ends when our starter does."""

    def __init__(self, plan: Plan, body: Body | None, front: int) -> None:
        self.plan = dataclasses.replace(plan, open_files=limits.raise_open_files())
        self.body, self.front = body, front
        self.selector = selectors.DefaultSelector()
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)
        self.consoles: dict[int, Console] = consoles()
        self.ranks: Ranks | None = None  # of the generation that runs

    def run(self) -> Attempt:
        """All generations: the last one's outcome."""
        adopt_orphans()
        if not self.plan.spawn:
            if self.body is None and devices.cuda_is_initialised():
                raise LaunchError(FORKED_TOO_LATE)
            for package in (*WARM, *(WARM_AGAIN if self.plan.max_restarts else ())):
                importlib.import_module(package)
            if self.body is None:
                gc.collect()
            gc.freeze()  # what ranks share with us they need not look through, nor copy
        self._listen_for_signals()
        generation, restarts = self.plan.alone(), Restarts(self.plan.max_restarts)
        while True:
            began, before = time.monotonic(), restarts.used
            attempt = self._run(generation, restarts)
            if attempt.code == 0 or attempt.stopped_by:
                return attempt
            wait = restarts.another(time.monotonic() - began, attempt.operations)
            if wait is None:
                return attempt
            say(f"rank {attempt.first.rank if attempt.first else '?'} failed "
                f"({attempt.first.cause if attempt.first else attempt.code}); "
                f"{restarts.told(wait)}")  # fmt: skip
            if not self._pause(wait):
                return attempt.stopped(self.ranks.policy.stopped_by if self.ranks else 0)
            generation = generation.after(restarts.used - before)

    def _run(self, generation: Generation, restarts: Restarts) -> Attempt:
        """One generation, from its start to its outcome."""
        self.ranks = ranks = Ranks(
            self.plan, generation, self.body, self.selector, self.consoles, restarts
        )
        try:
            ranks.start()
            while not ranks.over:
                self._wait(min(ranks.waits(), default=None))
                ranks.tend()
        finally:
            ranks.end()
        return ranks.outcome()

    def _pause(self, seconds: float) -> bool:
        """Let so much time pass before the next generation. False: the job is to end instead."""
        until = time.monotonic() + seconds
        while self.ranks is not None and not self.ranks.policy.stopped_by:
            left = until - time.monotonic()
            if left <= 0:
                return True
            self._wait(left)
        return False

    def _wait(self, seconds: float | None) -> None:
        """Handle what happens, for at most so long. None: until something does."""
        for key, _ in self.selector.select(seconds):
            if key.data() is False:
                unwatch(self.selector, key.fd)

    # --- signals --------------------------------------------------------------------------------

    def _listen_for_signals(self) -> None:
        """Signals wake the selector; until now they were held back (see ``held_back``)."""
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)
        for number in (*self.plan.signals, signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.plan.signals)
        self.selector.register(self.wake_reader, selectors.EVENT_READ, self._signalled)
        if self.front >= 0:
            self.selector.register(self.front, selectors.EVENT_READ, self._front_gone)

    def _signalled(self) -> bool:
        ranks = self.ranks
        for number in os.read(self.wake_reader, 512):
            if ranks is None:
                continue
            if number == signal.SIGCHLD:
                reap(set(ranks.pids.values()))
            elif number in (signal.SIGTSTP, signal.SIGCONT):
                ranks.suspend(number == signal.SIGTSTP)
            else:
                ranks.signalled(number)
        return True

    def _front_gone(self) -> bool:
        if os.read(self.front, 1):
            return True
        if self.ranks is not None:
            self.ranks.orphaned()
        return False
