"""The ranks of one generation on this node: starts them, watches them, performs the policy.

It watches pidfds, output pipes and results in the agent's selector: a death is seen when it
happens, not at the next poll.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable

from disttrain.comm.job.pause import Pause
from disttrain.comm.job.segment import Segment
from disttrain.liveness import sample

from ..plan import inactivity
from ..plan.generation import Generation
from ..plan.job import Plan
from ..plan.policy import HURRY, REAP, Action, Begin, Exit, Policy, Signal
from ..plan.restarts import Restarts
from ..worker import main
from ..worker.processes import kill_descendants
from .black_box import Watching
from .out_of_memory import Kills
from .outcome import Attempt, is_echo, outcome, report_of
from .output import Console
from .report import RankReport, cause_of, say
from .starting import Body, Start
from .streams import Streams, unwatch

Tell = Callable[[int, str, str], None]  # rank, cause, traceback
LISTEN = 30.0  # seconds for a slow reader to take the last outputs of a job
LISTEN_FAILED = 0.5  # ... that has failed, and whose end must not wait
MOST_PATIENT = 8.0  # times as long as on an idle machine


def _crowd() -> float:
    """How many threads there are for each processor: all that they do takes so much longer."""
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MOST_PATIENT)


LATER = 0.5  # seconds after ``worker.main.FAREWELL`` that a failed rank is ended from outside


class Ranks:
    """One generation's ranks here."""

    def __init__(
        self,
        plan: Plan,
        generation: Generation,
        body: Body | None,
        selector: selectors.BaseSelector,
        consoles: dict[int, Console],
        restarts: Restarts,
        tell: Tell | None = None,
        nodes_fd: int = -1,
    ) -> None:
        """``tell`` hears of every rank that fails of itself, at once. ``nodes_fd``: where ranks of
        other nodes are shown."""
        self._nodes_fd = nodes_fd
        self.plan, self.generation, self.selector = plan, generation, selector
        n = generation.num_ranks
        here = None if generation.num_nodes == 1 else generation.ranks
        self.segment = Segment.create(generation.world_size, epoch=generation.number, here=here)
        self.pause = Pause(self.segment.buffer)  # while a rank of the job is in the debugger
        self.in_debugger = ""  # which of those here are
        anew = restarts if plan.replace_ranks else None
        grace = plan.grace if restarts.used >= restarts.most else min(plan.grace, HURRY)
        elsewhere = generation.world_size - n
        self.policy = Policy(
            n, plan.shutdown_timeout, plan.min_ranks, elsewhere, grace=grace, anew=anew
        )
        self.restarts = restarts
        self.started: dict[int, float] = {}
        self.replaced: list[RankReport] = []  # of ranks that were started anew
        self.pids: dict[int, int] = {}
        self.streams = Streams(plan, generation, selector, consoles)
        self.results = dict.fromkeys(generation.ranks, b"")
        self.result_fds: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.lost: set[int] = set()
        self.failing: dict[int, float] = {}  # ranks that said they have failed, and since when
        self.suspended = False
        self.judge = inactivity.Judge(n, plan.stopped_timeout)
        self.shims = importlib.import_module(".mpi", __package__).Shims(n) if plan.mpi else None
        self.kills = Kills()
        self.watching = Watching(plan, generation)
        self._tell = tell
        box = self.watching.box
        self._begin = Start(plan, generation, self.segment, box, body, self.shims, selector)

    @property
    def stands(self) -> inactivity.Standing:
        """What ranks on other nodes are to know of those here."""
        lost = self.policy.num_lost if self.plan.min_ranks else 0
        return dataclasses.replace(
            self.watching.stands,
            stopped=self.judge.all_stopped,
            lost=lost,
            debugged=self.in_debugger,
        )

    def know_of_others(self, move: bool, awaited: int, ranks: int) -> None:
        """How ranks elsewhere stand: whether any moves, which one of the job all wait for, and how
        many have not failed (-1: unknown)."""
        if ranks >= 0 and ranks != self.policy.elsewhere:
            self.policy.left_elsewhere(ranks, time.monotonic())
        self.judge.others_move = move
        self.watching.tell_awaited(awaited)

    # --- what the agent calls -------------------------------------------------------------------

    def start(self) -> None:
        """Start all ranks."""
        for rank in self.generation.ranks:
            self._start(rank)
        self.watching.announce(self._nodes_fd)

    @property
    def over(self) -> bool:
        return self.policy.over

    def waits(self) -> list[float]:
        """After how many seconds ``tend`` is due."""
        now, waits = time.monotonic(), self.streams.waits()
        if self.pause.on and self.policy.can_wait:
            return waits
        if not self.suspended and not self.pause.on:
            due = min(self.judge.next_look, self.watching.next_look)
            waits.append(max(due - now, 0.0))
        if self.policy.next_tick is not None:
            waits.append(max(self.policy.next_tick - now, 0.0))
        return waits

    def tend(self) -> None:
        """Time has passed, or something has happened."""
        self.streams.tend()
        if self.streams.unheard:
            self._perform(self.policy.unheard(time.monotonic()))
        self._look_for_newcomers()
        self._look_at_ranks(time.monotonic())
        if not self.suspended and not self.pause.on:
            self.watching.look(time.monotonic())
        if not (self.pause.on and self.policy.can_wait):
            self._perform(self.policy.tick(time.monotonic()))

    def debugged(self, here: str, elsewhere: str = "") -> None:
        """Ranks of the job are in the debugger, as people are told: all that is counted in time
        stands still meanwhile."""
        self.in_debugger, on = here, bool(here or elsewhere)
        if on != self.pause.on:
            self.pause.set(on)
            self.watching.suspended()
            (self.policy.hold if on else self.policy.go_on)(time.monotonic())

    def signalled(self, number: int) -> None:
        """The agent got a signal."""
        if number == signal.SIGINT and not self.policy.stopped_by:
            self.watching.tell_if_hung()
        self._perform(self.policy.signalled(number, time.monotonic()))

    def supersede(self, patient: bool, saving: bool, waits: bool) -> None:
        """Something elsewhere ends this generation; ``waits``: once nobody looks at one of its
        ranks here in the debugger."""
        self.policy.crowd = _crowd()
        waits = waits and bool(self.in_debugger)
        self._perform(self.policy.supersede(time.monotonic(), patient, saving, waits))

    def fence(self) -> None:
        """None of them may do anything more."""
        self._perform(self.policy.fence())

    def publish(self, rank: int, cause: str, text: str) -> None:
        """A rank has failed elsewhere: those here learn of it."""
        self.segment.publish_failure(rank, cause, text)

    def orphaned(self) -> None:
        """Who started the agent is gone."""
        self._perform(self.policy.orphaned())

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Begin):
                self._begin_anew(action.rank)
            elif action.rank is None:
                if self.suspended:
                    self.suspend(False)
                self.stopped.update(self.pids)
                self._signal(action.number, self.pids)
            elif action.rank in self.pids:
                self._signal(action.number, [action.rank])

    def suspend(self, suspended: bool) -> None:
        """Ctrl-Z at our terminal, and its end: the whole job stops, and goes on."""
        self.suspended = suspended
        self.watching.suspended()
        self._signal(signal.SIGSTOP if suspended else signal.SIGCONT, self.pids)

    def end(self) -> None:
        """Let nothing of them be left, and take the last that they have said."""
        if self.shims is not None:
            self.shims.close()
        left = kill_descendants(set(), REAP)
        self._begin.leash.close()
        for rank in list(self.result_fds):
            while self._take_result(rank):
                continue
        over = self.policy.failed or self.policy.superseded
        self.streams.finish(time.monotonic() + (LISTEN_FAILED if over else LISTEN))
        if left:
            say(f"processes {left} do not go although they were killed")

    def outcome(self) -> Attempt:
        """What came of them; they have ended."""
        results, self.results = list(self.results.values()), {}
        reports = {e.rank: self._report_of(e) for e in self.policy.exits}
        attempt = outcome(self.plan, self.segment, self.policy, reports, self.replaced, results)
        attempt.operations = max(self.watching.box.operations(r) for r in self.generation.ranks)
        self.pause.close()
        if self.generation.num_nodes > 1:
            attempt.box = self.watching.packed()
        self.segment.close()
        self.watching.close()
        return attempt

    def _report_of(self, exit_: Exit) -> RankReport:
        stopped = exit_.rank in self.stopped
        plan, watching = self.plan, self.watching
        report = report_of(exit_, plan, self.generation, self.segment, watching, stopped)
        if report.code and not report.signal and not report.traceback:
            report = dataclasses.replace(report, said=self.streams.said_last(exit_.rank))
        return report

    # --- events ---------------------------------------------------------------------------------

    def _start(self, rank: int) -> None:
        out, err = (self.streams.open(rank, which) for which in (1, 2))
        begin = self._begin
        if self.segment.slot(rank).turn:
            count = self.restarts.used
            generation = dataclasses.replace(self.generation, restart_count=count)
            begin = dataclasses.replace(begin, generation=generation)
        pid, result_reader = begin.fork(rank, out, err)
        self.started[rank] = time.monotonic()
        for stream in (out, err):
            if stream is not None:
                self.streams.add(stream)
        self.result_fds[rank] = result_reader
        self.selector.register(result_reader, selectors.EVENT_READ, lambda: self._result_came(rank))
        pidfd = os.pidfd_open(pid)
        self.pids[rank] = pid
        self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._gone(rank, pidfd))

    def _begin_anew(self, rank: int) -> None:
        """Another process in the place of ``rank``, which joins the others (``survivors``)."""
        self.replaced.append(self._report_of(self.policy.replaced[-1]))
        for ranks in (self.lost, self.stopped):
            ranks.discard(rank)
        self.failing.pop(rank, None)
        if rank in self.result_fds:  # what it has left behind holds the other end
            fd = self.result_fds.pop(rank)
            unwatch(self.selector, fd)
            os.close(fd)
        self.results[rank] = b""
        self.segment.slot(rank).turn += 1
        self._start(rank)

    def _look_for_newcomers(self) -> None:
        decided = self.segment.rounds[0]
        for rank in list(self.policy.away & self.pids.keys()):
            slot = self.segment.slot(rank)
            if 0 < decided <= slot.member and not slot.lost:
                self.policy.joined(rank)

    def _look_at_ranks(self, now: float) -> None:
        """Find ranks that were stopped, which nothing else would show."""
        if self.suspended or self.policy.stopped_by or now < self.judge.next_look:
            return
        if self.pause.on:
            return
        self._end_failed(now)
        ranks = self.pids.keys() - self.lost
        if self.shims is not None:
            self.shims.look(self.pids.values())
        self.kills.look(self.pids.values())
        warnings, lost = self.judge.look(now, {r: sample(self.pids[r]) for r in ranks})
        for text in warnings:
            say(text)
        for rank, (state, seconds) in lost.items():
            self.lost.add(rank)
            if not self.segment.slot(rank).error[0]:
                cause = inactivity.cause(self.pids[rank], state, seconds)
                self.segment.slot(rank).record_error(cause, "")
            self._perform(self.policy.lost(rank))

    def _end_failed(self, now: float) -> None:
        """End ranks that have failed and do not end by themselves, which who has no memory left may
        be unable to do."""
        for rank in list(self.pids):
            if self.segment.slot(rank).state != "failed":
                continue
            if now - self.failing.setdefault(rank, now) > main.FAREWELL + LATER:
                if rank not in self.stopped:
                    say(f"rank {rank} has failed and does not end; it is killed")
                self.stopped.add(rank)
                self._perform([Signal(signal.SIGKILL, rank)])

    def _gone(self, rank: int, pidfd: int) -> bool:
        pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
        if pid == 0:
            return True
        now = time.monotonic()
        unwatch(self.selector, pidfd)
        os.close(pidfd)
        del self.pids[rank]
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        cause, text = self.segment.slot(rank).error
        by_us = rank in self.lost or rank in self.stopped
        if number == signal.SIGKILL and not (cause or by_us) and (cause := self.kills.why(pid)):
            self.segment.slot(rank).record_error(cause, "")
        if rank in self.lost:
            number, code = 0, inactivity.CODE
        elif cause and number and rank in self.stopped:
            number, code = 0, 1  # its exception ended it; our signal only cut its farewell short
        if code == 0 and self.segment.slot(rank).state in ("starting", "running"):
            self.segment.slot(rank).state = "vanished"  # who waits for it learns of it
        self.watching.ended(rank, code)
        event = Exit(rank, code, now, number)
        if event.failed:
            if self.shims is not None:
                self.shims.look(self.pids.values())
            self.segment.publish_failure(rank, cause_of(event, cause), text)
            over = self.policy.stopped_by or self.policy.superseded
            if self._tell is not None and not over and not is_echo(cause):
                self._tell(rank, cause_of(event, cause), text)
        self._look_for_newcomers()
        ran, used = now - self.started[rank], self.restarts.used
        self.policy.crowd = _crowd()
        self._perform(self.policy.exited(event, ran, self.watching.box.operations(rank)))
        if event.failed and not (self.policy.failed or self.policy.superseded):
            self._say_that_others_go_on(rank, cause_of(event, cause), self.restarts.used > used)
        return True

    def _say_that_others_go_on(self, rank: int, cause: str, begins_anew: bool) -> None:
        text = f"the others may go on without it (--min-ranks {self.plan.min_ranks})"
        if begins_anew:
            wait = max(0.0, (self.policy.next_tick or 0.0) - time.monotonic())
            text = f"the others go on, and it is started anew: {self.restarts.told(round(wait))}"
        say(f"rank {rank} failed ({cause}); {text}")

    def _result_came(self, rank: int) -> bool:
        self._take_result(rank)
        return True

    def _take_result(self, rank: int) -> bool:
        """Read what has come of a result; True when there may be more at once."""
        fd = self.result_fds[rank]
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        self.results[rank] += data
        if not data:
            unwatch(self.selector, fd)
            os.close(fd)
            del self.result_fds[rank]
        return bool(data)

    def _signal(self, number: int, ranks: Iterable[int]) -> None:
        """Its helpers, too; where a rank is to end in its own time, it needs them until then."""
        alone = number == signal.SIGTERM and self.plan.on_term == "checkpoint"
        for rank in ranks:
            pid = self.pids[rank]
            try:
                (os.kill if alone else os.killpg)(pid, number)
            except (ProcessLookupError, PermissionError):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
