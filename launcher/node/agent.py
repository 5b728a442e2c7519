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
import socket
import time
from typing import Any

from disttrain.errors import LaunchError
from disttrain.lifetime import adopt_orphans

from ..debugging import stopping
from ..debugging.server import Server
from ..options import devices, limits
from ..plan.generation import Generation
from ..plan.job import Plan
from ..plan.restarts import Restarts
from ..plan.states import FAILED, FINISHED, LEAVING, READY, WORKING
from ..worker.processes import reap
from .orders import Orders
from .outcome import Attempt, told_of
from .output import Console, consoles
from .ranks import Ranks
from .report import say
from .starting import Body
from .streams import unwatch

FORKED_TOO_LATE = (
    "CUDA is initialised in the process that ranks are forked from (by a .pth file, sitecustomize "
    "or a module that they import); it would work in no rank. Use --start-method spawn, or import "
    "that module in the script"
)


class Agent:
    """Runs ``plan``. ``front`` is a descriptor that ends when our starter does; ``orders`` come
    from the keeper of a job on several nodes; ``terminal``: the way to the one at which the job was
    started."""

    def __init__(
        self,
        plan: Plan,
        body: Body | None,
        front: int,
        orders: Orders | None = None,
        terminal: socket.socket | None = None,
    ) -> None:
        self.selector = selectors.DefaultSelector()
        self.server = Server(self.selector, plan.run_id, say, self._stop, self._hold)
        self.server.listen(terminal)
        opened = limits.raise_open_files()
        self.plan = dataclasses.replace(plan, open_files=opened, debugger=self.server.name)
        self.body, self.front, self.orders = body, front, orders
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)
        self.consoles: dict[int, Console] = consoles()
        self.ranks: Ranks | None = None  # of the generation that runs
        self.kept_fd = -1  # what ranks have committed, over all generations of several nodes
        self.asked = 0  # the signal by which the job was to end while no ranks ran

    def run(self) -> Attempt:
        """All generations: the last one's outcome."""
        adopt_orphans()
        if not self.plan.spawn:
            if self.body is None and devices.cuda_is_initialised():
                raise LaunchError(FORKED_TOO_LATE)
            collects = gc.isenabled()
            gc.disable()  # what is loaded stays
            for package in self.plan.preloads:
                importlib.import_module(package)
            gc.freeze()  # what ranks share with us they need not look through, nor copy
            if collects:  # or the program of launch() wants none
                gc.enable()
        self._listen_for_signals()
        if self.orders is None:
            return self._run_alone()
        return dataclasses.replace(self._run_together(self.orders), box=b"")

    def _run_alone(self) -> Attempt:
        generation, restarts = self.plan.alone(), Restarts(self.plan.max_restarts)
        while True:
            before = restarts.used
            attempt = self._run(generation, restarts)
            if attempt.code == 0 or attempt.stopped_by:
                return attempt
            wait = restarts.another(attempt.seconds, attempt.operations)
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
        orders, began = self.orders, time.monotonic()
        plan = self.plan if orders is None else self._between_nodes(generation)
        tell = None if orders is None else self._tell
        self.ranks = ranks = Ranks(
            plan, generation, self.body, self.selector, self.consoles, restarts, tell,
            -1 if orders is None else orders.nodes_fd,
        )  # fmt: skip
        try:
            ranks.start()
            while not ranks.over:
                waits = ranks.waits() + self.server.waits(time.monotonic())
                if orders is not None:
                    waits += orders.waits(time.monotonic())
                self._wait(min(waits, default=None))
                self.server.tend(time.monotonic())
                ranks.debugged(self.server.told, "" if orders is None else orders.debugged)
                if orders is not None:
                    self._follow(orders, ranks)
                ranks.tend()
            if orders is not None:
                orders.tell_standing(dataclasses.asdict(ranks.stands))
        finally:
            self.server.ranks_end()
            ranks.end()
        return dataclasses.replace(ranks.outcome(), seconds=time.monotonic() - began)

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

    # --- ranks in the debugger ------------------------------------------------------------------

    def _stop(self, rank: int, insist: bool) -> str:
        """Let a rank stop in the debugger; why it cannot, else nothing."""
        if self.ranks is None:
            return "no ranks run now"
        pids, here = self.ranks.pids, self.ranks.generation.ranks
        if rank not in here:
            return f"there is no rank {rank} on this node, but {here.start} to {here.stop - 1}"
        return stopping.stop(pids[rank], insist) if rank in pids else f"rank {rank} has ended"

    def _hold(self, on: bool) -> None:
        """Outputs wait while a rank has the terminal that they would go to."""
        for console in self.consoles.values():
            console.hold(on)

    # --- a job on several nodes -----------------------------------------------------------------

    def _run_together(self, orders: Orders) -> Attempt:
        self.selector.register(orders.channel, selectors.EVENT_READ, orders.take)
        attempt = Attempt(1, None, [], [], 0)
        while True:
            generation = self._next(orders)
            if self.asked:
                orders.report(LEAVING, _asked(self.asked, False))
                return Attempt(128 + self.asked, None, [], [], self.asked)
            if generation is None:
                return self._ended(orders, attempt)
            attempt, self.ranks = self._run(generation, Restarts(0)), None
            self._report(orders, attempt)
            if attempt.stopped_by:
                return attempt

    def _between_nodes(self, generation: Generation) -> Plan:
        """On several nodes a rank that has failed is replaced with all others, by processes that
        take up what these have committed; without a restart left, the others go on."""
        plan = self.plan
        if not plan.replace_ranks:
            return plan
        if self.kept_fd < 0:
            self.kept_fd = os.memfd_create("disttrain-kept", os.MFD_CLOEXEC)
        least = 0 if generation.restart_count < plan.max_restarts else plan.min_ranks
        return dataclasses.replace(plan, min_ranks=least, replace_ranks=False, kept_fd=self.kept_fd)

    def _next(self, orders: Orders) -> Generation | None:
        """The generation to start, once there is one; None where the job has ended."""
        while not self.asked:
            generation = orders.begin(time.monotonic())
            if generation is not None or orders.end is not None:
                return generation
            self._wait(None)
        return None

    def _follow(self, orders: Orders, ranks: Ranks) -> None:
        """Do to the ranks what the keeper has said."""
        for failure in orders.failures:
            ranks.publish(failure["rank"], failure["cause"], failure["traceback"])
            if self.plan.min_ranks and not failure.get("said"):
                say(f"rank {failure['rank']} failed ({failure['cause']}); the others may go on "
                    f"without it (--min-ranks {self.plan.min_ranks})")  # fmt: skip
        orders.failures.clear()
        ranks.know_of_others(orders.others_move, orders.awaited, orders.others_left)
        orders.tell_standing(dataclasses.asdict(ranks.stands))
        orders.tell_others(ranks.watching, time.monotonic())
        if orders.lapses(time.monotonic()):
            ranks.fence()
        elif orders.is_over:
            self.server.pass_over()
            ranks.supersede(orders.patient, orders.saving, not orders.hurries)

    def _tell(self, rank: int, cause: str, text: str) -> None:
        """A rank has failed of itself: ranks elsewhere are to hear of it at once."""
        assert self.orders is not None
        self.orders.report(WORKING, {"rank": rank, "cause": cause, "traceback": text})

    def _report(self, orders: Orders, attempt: Attempt) -> None:
        if attempt.stopped_by:
            orders.report(LEAVING, _asked(attempt.stopped_by, self._saves(attempt.stopped_by)))
        elif attempt.superseded:
            orders.report(READY, {"fenced": True} if orders.fenced else {})
        elif attempt.code:
            orders.report(FAILED, told_of(attempt))
        else:
            orders.report(FINISHED)

    def _ended(self, orders: Orders, attempt: Attempt) -> Attempt:
        """What came of the job, which may have ended elsewhere."""
        assert orders.end is not None
        result, attempt.code = orders.end["result"], orders.end["code"]
        if attempt.code or self.plan.blackbox:
            orders.give_box(attempt.box)
        attempt.why, node = orders.end["why"], result.get("node", "")
        if not (attempt.code or orders.running):
            say("the job has ended well; this node was a spare, and was not needed")
        if node and node != orders.name:
            attempt.node, attempt.report = node, result["report"]
        return attempt

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
                self.asked = self.asked or (number if number in self.plan.signals else 0)
            elif number == signal.SIGCHLD:
                reap(set(ranks.pids.values()))
            elif number in (signal.SIGTSTP, signal.SIGCONT):
                ranks.suspend(number == signal.SIGTSTP)
            else:
                ranks.signalled(number)
                if number == signal.SIGINT:  # which only breaks off a command at a prompt
                    self.server.ranks_end()
                if self.orders is not None:
                    self.orders.report(WORKING, _asked(number, self._saves(number)))
        return True

    def _front_gone(self) -> bool:
        if os.read(self.front, 1):
            return True
        if self.ranks is not None:
            self.ranks.orphaned()
        else:
            self.asked = self.asked or signal.SIGKILL
        return False

    def _saves(self, number: int) -> bool:
        """Do the ranks of all nodes save when one is asked to end so?"""
        return number == signal.SIGTERM and self.plan.on_term == "checkpoint"


def _asked(number: int, saves: bool) -> dict[str, Any]:
    """What a node says that goes since somebody has asked for it. The others need not wait for its
    ranks, unless they save together."""
    cause = f"was asked to end ({signal.Signals(number).name})"
    return {"cause": cause, "code": 128 + number, "saves" if saves else "leaving": True}
